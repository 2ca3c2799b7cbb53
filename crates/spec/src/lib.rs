//! User documents: what is written, what is decided, and where each decision comes from. Pure.
//!
//! Reads: YAML text of one `Cluster` and its `NodeGroup`s ([`parse`]), and the bytes of files they refer to, which the
//! caller reads ([`Parsed::resolve`]). Gives: [`Spec`], then [`CompleteSpec`] ([`complete`]), in which every value has an
//! [`Origin`]; text and JSON of it; [`explain`]. Fails with [`Mistake`]s: all at once, each with its place, none with a
//! secret in it.

mod artefacts;
mod catalog;
mod complete;
mod completion;
mod config;
mod config_tree;
mod contents;
mod decode;
mod document;
mod explain;
mod expression;
mod flags;
mod instances;
mod items;
mod mistake;
mod nearest;
mod no_proxy;
mod origin;
mod packages;
mod path;
mod pem;
mod pki;
mod print;
mod proxy_credentials;
mod quantity;
mod reach;
mod record;
mod resolve;
mod schema;
mod source;
mod syntax;
mod tectonic;
mod texts;
mod tree;
mod values;
mod view;
mod written;
mod yaml;

pub use crate::pki::{PKI_FILES, PkiFolder};
pub use artefacts::{ManifestFile, S3Credentials, Serial};
pub use catalog::newest_kubernetes;
pub use complete::{
    CompleteArtefacts, CompleteAssets, CompleteCluster, CompleteComponent, CompleteComponents,
    CompleteContainerRuntime, CompleteDelivery, CompleteDnsController, CompleteEksctl, CompleteEtcd, CompleteGroup,
    CompleteJoin, CompleteKubeApiserver, CompleteKubeControllerManager, CompleteKubeProxy, CompleteKubeScheduler,
    CompleteKubelet, CompleteMachines, CompleteNetworking, CompleteNodeGroup, CompleteNodestrap, CompletePackages,
    CompletePki, CompleteProxy, CompleteReport, CompleteS3, CompleteSpec, CompleteStore, CompleteTrust,
    DeliveryDefaults, NodestrapDefaults, PackagesDefaults, Pinned, PinnedExtension, StoreDefaults,
};
pub use completion::{complete, complete_before_pki};
pub use config_tree::{ConfigNode, ConfigTree};
pub use contents::{HookText, PublicKeys, UnitText};
pub use document::{FileReference, Spec};
pub use explain::{Explanation, NotFound, explain, explain_all, paths};
pub use expression::Expression;
pub use instances::max_pods_map;
pub use items::{
    AdditionalUserData, Addresses, Content, ExecCredential, ExtraUnit, FileAsset, FileMode, Hook, HookContainer,
    Keyring, Labels, MaxPods, Networks, SecretText, Taints, TrustedAuthority,
};
pub use mistake::{Colour, Mistake, Severity, render_mistakes};
pub use origin::{Origin, Position, Setting};
pub use packages::PackageRepository;
pub use resolve::{Parsed, parse};
pub use schema::json_schema;
pub use source::Source;
pub use tectonic::{CompleteMappingsConfigMap, CompleteTectonic, ConfigMapKey};
pub use texts::{
    AbsolutePath, ComponentVersion, Duration, HeaderName, Host, Image, InstanceTypeName, Line, MediaType, ModuleName,
    Name, NoProxyEntry, PackageName, Registry, Sha256, Sha512, StoreUrl, SysctlName, UnitName, VariableName, WebUrl,
};
pub use trust::Timestamp;
pub use values::{
    ApiServerUrl, Architecture, BootstrapToken, CertificatePem, ClusterName, Compression, DeliveryFormat, DomainName,
    GroupName, HookSlot, Installation, Invalid, KubeVersion, KubeconfigSource, Layout, Necessity, Os, PodNetwork,
    Provider, REDACTED, Reservation, Role, Runtime, Secret, SeedFallback, SourceKind, Taint, TaintEffect, UnitState,
};
pub use view::SecretDisplay;
pub use yaml::{render_config_yaml, render_yaml, write_yaml};
