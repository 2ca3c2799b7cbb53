//! What a node receives, and its vocabulary. Knows nobody; `render` writes bundles, `node` reads them.
//!
//! In: values, or the bytes of a document, of user data, of a gate. Out: a [`Bundle`] (resources by family, one digest over
//! all), the comparison of two of them or of one with what a node has ([`resource`]), canonical JSON ([`json`]).
//! Fails: [`BundleError`], [`StubError`], [`UserDataError`] for what must not be used; nothing is ever repaired.
//!
//! Pure and deterministic: no file, clock, environment, network or randomness.

mod bundle;
mod check;
mod content;
mod diff;
mod document;
mod error;
mod extension;
mod follow;
mod format;
pub mod gate;
pub mod gzip;
mod idle;
pub mod json;
mod manifest;
mod names;
pub mod network;
mod package;
pub mod resource;
mod stub;
pub mod torcx;
mod tree;
mod user_data;
mod values;
mod vocabulary;

pub use bundle::{
    ARGUMENTS_VARIABLE, BOOTSTRAP_UNIT, BUNDLE_PATH, Bundle, CLEAN_UP_MARKER_PATH, CLEAN_UP_UNIT, FOLDERS, File, Gate,
    HOOK_OUTPUT_FOLDER, HOOK_OUTPUT_FOLDER_MODE, Hook, Join, KERNEL_UNIT, MAX_PODS_MAP_PATH, NodeKind, PodNetwork,
    Readers, Runtime, RuntimeSource, SPENDING_UNIT, Secrecy, Snap, Start, TIME_UNITS, TRUST_UNIT, UNIT_FOLDER, Unit,
    UnitNature, WEBHOOK_SETTINGS_PATH, Webhook, hook_output_path,
};
pub use content::{Content, Sum};
pub use diff::{Besides, BundleDiff, Setting, diff_bundles, diff_rendered};
pub use document::{API_VERSION, MAX_BUNDLE_BYTES};
pub use error::BundleError;
pub use extension::{
    EXTENSION_LINKS_FOLDER, EXTENSIONS_FOLDER, Extension, ExtensionRelease, MASK, SYSEXT_UNIT, System,
};
pub use follow::{Follow, FollowedAddon, FollowedRelease, MappingsPlace, OsUpdate, SeedFallback, Signatures};
pub use format::Format;
pub use gate::{EKSCTL_GATE_PATH, GATE_PATH, GATE_PATHS, GateDamage, check_gate, parse_environment, render_gate};
pub use idle::IdleUnit;
pub use manifest::{ExtensionDigest, FileDigest, Manifest, TreeDigest};
pub use names::{
    AbsolutePath, ArtefactDigest, Digest, InvalidName, RelativePath, Secret, UNIT_SUFFIXES, UnitName, is_lower_hex,
    sha256_hex,
};
pub use network::{NETWORK_SETTINGS_PATH, NetworkSettings, cni_config};
pub use package::{Package, Packages};
pub use resource::{Consequence, Reason, ValueChange};
pub use stub::{MAX_STUB_BYTES, Payload, PayloadError, Stub, StubError, validate_url};
pub use tree::{Artefact, Downloads, Provenance, S3, S3Credentials, TREES_FOLDER, Tree, current, home};
pub use user_data::{
    BUNDLE_TYPE, INSTALL_TYPE, MAX_USER_DATA_BYTES, UserDataError, UserDataPart, read_additional_parts, read_user_data,
};
pub use values::{host_paths, read_yaml};
pub use vocabulary::{
    ArtefactForm, Component, ExtensionName, GateFact, Idleness, Layout, Necessity, Os, PackageManager, Provider, Role,
    RuntimeName, Slot, SourceKind, UnknownWord,
};
