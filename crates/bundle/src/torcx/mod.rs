//! What torcx and Tectonic's bootstrapper read and write, as types, and the rules by which a version is chosen. Pure.
//!
//! In: the bytes of a file, a ConfigMap or an answer. Out: values that need no second look. Fails: one error a format, which
//! says what is wrong with it. What others write is read as their programs read it (unknown fields, spelling of keys); what
//! would go wrong later (a version that cannot be a file's name, a digest that proves nothing) is refused here.
//!
//! | what | where | module |
//! |---|---|---|
//! | version of Kubernetes, also as the tag of an image | `/version`, `KUBELET_IMAGE_TAG` | [`KubernetesVersion`] |
//! | version of the operating system, board | os-release, update_engine | [`OsVersion`], [`Board`] |
//! | runtime mappings | ConfigMap, `/etc/kubernetes/installer/runtime-mappings.yaml` | [`RuntimeMappings`] |
//! | address of the package list | `--torcx-manifest-url` | [`UrlTemplate`] |
//! | package list | `torcx_manifest.json` | [`PackageList`] |
//! | profile | `/etc/torcx/profiles/NAME.json`, `/run/torcx/profile.json` | [`Profile`] |
//! | name of the next profile | `/etc/torcx/next-profile` | [`ProfileName`] |
//! | seal | `/run/metadata/torcx` | [`Seal`] |
//! | manifest of an image | `/.torcx/manifest.json` in it | [`ImageManifest`] |
//! | seed of the kubelet's environment | `/etc/kubernetes/installer/kubelet.env` | [`KubeletEnv`] |
//!
//! [`pick_version`] says which version of an addon is wanted.

mod image_manifest;
mod json;
mod kubelet_env;
mod mappings;
mod names;
mod package_list;
mod pick;
mod profile;
mod seal;
mod template;
mod version;

pub use image_manifest::{IMAGE_MANIFEST_KIND, IMAGE_MANIFEST_PATH, ImageManifest};
pub use json::FormatError;
pub use kubelet_env::{IMAGE_TAG_VARIABLE, KUBELET_ENV_SEED_PATH, KubeletEnv, KubeletEnvError};
pub use mappings::{KUBERNETES_COMPONENT, MAPPINGS_KIND, MAPPINGS_SEED_PATH, MappingsError, RuntimeMappings};
pub use names::{AddonName, AddonVersion, Board, ProfileName, archive_name};
pub use package_list::{
    AddonImage, Location, PACKAGE_LIST_KIND, Package, PackageList, PackageListError, PackageVersion, Place,
};
pub use pick::{NoVersion, OsRelease, Pick, has_torcx, needed_lists, pick_version};
pub use profile::{ImageReference, Profile, ProfileKind, choose_profile};
pub use seal::{SEAL_PATH, Seal};
pub use template::{DEFAULT_MANIFEST_URL, TemplateError, UrlTemplate};
pub use version::{InvalidVersion, KubernetesVersion, Minor, OsVersion};

/// What the operating system brings; nodestrap only reads it.
pub const VENDOR_STORE: &str = "/usr/share/torcx/store";
/// Where addons for the releases of the operating system are put, each in a folder of that release.
pub const USER_STORE: &str = "/var/lib/torcx/store";
pub const PROFILES_FOLDER: &str = "/etc/torcx/profiles";
pub const NEXT_PROFILE_PATH: &str = "/etc/torcx/next-profile";
/// What torcx applied in this boot.
pub const RUNNING_PROFILE_PATH: &str = "/run/torcx/profile.json";
/// The profile that Tectonic's bootstrapper makes where there is none.
pub const DEFAULT_PROFILE: &str = "tectonic";
