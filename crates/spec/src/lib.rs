//! User documents: types, parsing with source positions, validation, completion, and what nodestrap knows about versions.

mod catalog;
mod complete;
mod completion;
mod config;
mod decode;
mod document;
mod explain;
mod flags;
mod mistake;
mod nearest;
mod origin;
mod path;
mod pem;
mod print;
mod resolve;
mod secret;
mod source;
mod syntax;
mod tree;
mod values;
mod view;
mod yaml;

pub use catalog::newest_kubernetes;
pub use complete::{
    CompleteCluster, CompleteContainerRuntime, CompleteGroup, CompleteJoin, CompleteKubelet, CompleteNetworking,
    CompleteSpec, ConfigNode, ConfigTree,
};
pub use completion::complete;
pub use document::{FileReference, Spec};
pub use explain::{Explanation, NotFound, explain, paths};
pub use mistake::{Colour, Mistake, render_mistakes};
pub use origin::{Origin, Position, Setting};
pub use resolve::{Parsed, parse};
pub use secret::Secret;
pub use source::Source;
pub use values::{
    ApiServerUrl, BootstrapToken, CertificatePem, ClusterName, DomainName, GroupName, Invalid, KubeVersion, PodNetwork,
    REDACTED, Role, RuntimeSource, Taint, TaintEffect,
};
pub use view::SecretDisplay;
