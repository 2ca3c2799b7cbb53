//! A bundle that must not be used. nodestrap never repairs one: it was rendered from a spec and can be rendered again.

use crate::document::{API_VERSION, MAX_BUNDLE_BYTES};
use crate::names::Digest;
use crate::tree::TREES_FOLDER;
use crate::vocabulary::{Component, ExtensionName};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error(
        "the bundle has {bytes} bytes, more than the {MAX_BUNDLE_BYTES} allowed: \
         render it again with fewer or smaller files"
    )]
    TooLarge { bytes: usize },
    #[error(
        "the bundle cannot be read{}: {reason}; \
         render it again with this version of nodestrap and deliver it unchanged", place(*line, *column)
    )]
    Syntax { line: usize, column: usize, reason: String },
    #[error("the document has kind '{found}', not 'Bundle': give the file that `nodestrap render` wrote")]
    Kind { found: String },
    #[error(
        "the bundle is of an older nodestrap, with apiVersion '{found}' where this one reads '{API_VERSION}': \
         render it again with version {} and deliver it; what is on the node stays as it is until then",
        env!("CARGO_PKG_VERSION")
    )]
    OlderApiVersion { found: String },
    #[error(
        "the bundle comes from a newer nodestrap, with apiVersion '{found}' where this one reads '{API_VERSION}': \
         update nodestrap on the node, or render the bundle again with version {}", env!("CARGO_PKG_VERSION")
    )]
    NewerApiVersion { found: String },
    #[error("the bundle was changed after it was rendered, its digest is '{actual}', not '{stated}': render it again")]
    Digest { stated: Digest, actual: Digest },
    #[error("the path '{path}' in the bundle {problem}: render it again")]
    Path { path: String, problem: &'static str },
    #[error("the file '{path}' stands twice in the bundle: render it again")]
    DuplicatePath { path: String },
    #[error("the file '{path}' of the bundle is out of order: render it again")]
    Order { path: String },
    #[error("the file '{path}' of the bundle lies under the file '{parent}': render it again")]
    FileUnderFile { path: String, parent: String },
    #[error("the bundle would write '{path}' as a file, but it is the gate: render it again")]
    GateAmongFiles { path: String },
    #[error("the file '{path}' has mode '{mode}', not four octal digits from '0000' to '0777': render it again")]
    Mode { path: String, mode: String },
    #[error("the file '{path}' is secret but has mode '{mode}', not '0600': render it again")]
    SecretMode { path: String, mode: String },
    #[error("the manifest of a folder has the content of '{path}', which belongs under root/: render it again")]
    ContentTwice { path: String },
    #[error("the folder of the bundle has no file 'root{path}': render it again")]
    MissingFile { path: String },
    #[error("the unit '{name}' stands twice in the bundle: render it again")]
    DuplicateUnit { name: String },
    #[error("the unit '{name}' of the bundle {problem}: render it again with this version of nodestrap")]
    Unit { name: String, problem: &'static str },
    #[error(
        "the unit '{name}', which shall not run, {problem}: render the bundle again with this version of nodestrap"
    )]
    IdleUnit { name: String, problem: &'static str },
    #[error("the hook '{name}' of the bundle {problem}: render it again with this version of nodestrap")]
    Hook { name: String, problem: &'static str },
    #[error("the component '{component}' of the bundle {problem}: render it again with this version of nodestrap")]
    Tree { component: Component, problem: &'static str },
    #[error("what the node shall find out by itself {problem}: render the bundle again with this version of nodestrap")]
    Follow { problem: &'static str },
    #[error("the bundle has packages without a single package: render it again")]
    NoPackages,
    #[error("the package '{name}' of the bundle {problem}: render it again with this version of nodestrap")]
    Package { name: String, problem: &'static str },
    #[error("the extension '{name}' of the bundle {problem}: render it again with this version of nodestrap")]
    Extension { name: ExtensionName, problem: &'static str },
    #[error("the bundle has a file under '{TREES_FOLDER}', which is for programs: render it again")]
    FileAmongTrees,
    #[error("the container runtime of the bundle {problem}: render it again with this version of nodestrap")]
    Runtime { problem: &'static str },
    #[error("'{name}' in the bundle is no name that the gate may set: render it again")]
    GateName { name: String },
    #[error("the value of '{name}' in the gate has a control character: render the bundle again")]
    GateValue { name: String },
    #[error("'{field}' of the bundle has a control character or is empty: render it again")]
    Text { field: &'static str },
}

/// What was put together from several files has no lines.
fn place(line: usize, column: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line} column {column}") }
}

impl BundleError {
    /// What is wrong, for who is about to render it.
    pub fn without_advice(&self) -> String {
        let text = self.to_string();
        text.split_once(": render ").map(|(problem, _)| problem.to_owned()).unwrap_or(text)
    }
}
