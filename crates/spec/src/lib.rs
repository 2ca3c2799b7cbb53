//! User documents: what is written, what is decided, and where each decision comes from. Pure.
//!
//! Reads: YAML text of one `Cluster` and its `NodeGroup`s ([`parse`]), and the bytes of files they refer to, which the
//! caller reads ([`Parsed::resolve`]). Gives: [`Spec`], then [`CompleteSpec`] ([`complete`]), in which every value has an
//! [`Origin`]; text and JSON of it; [`explain`]. Fails with [`Mistake`]s: all at once, each with its place, none with a
//! secret in it.

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
pub use yaml::render_yaml;
