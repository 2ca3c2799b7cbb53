//! What can go wrong, each message with what to do about it.

use bundle::{BundleError, Component, ExtensionName, InvalidName, StubError};

use crate::delivery::Provider;

/// A complete spec that cannot be written out.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("there is no group '{group}': the spec has {}", quoted_list(.known))]
    UnknownGroup { group: String, known: Vec<String> },
    #[error(
        "the complete spec sets no kubelet flag '{flag}', so there is no place for its file: complete the spec anew"
    )]
    MissingFlag { flag: &'static str },
    #[error(
        "the kubelet flag '{flag}' has a value with {found}, which systemd would split or expand: \
         say it in the kubelet's configuration instead, or choose another value"
    )]
    FlagValue { flag: String, found: &'static str },
    #[error(
        "'{flag}' is no name of a kubelet flag: use lower-case letters, digits and dashes, without the leading dashes"
    )]
    FlagName { flag: String },
    #[error(
        "'{path}' cannot be the program of a unit: \
         use an absolute path of letters, digits and '/._+@%:,=~-', without '.' and '..' in it"
    )]
    ProgramPath { path: String },
    #[error("the value '{value}' of '{key}' in a unit {problem}: change it in the spec")]
    UnitValue { key: &'static str, value: String, problem: &'static str },
    #[error("the containerd configuration has a value at '{path}' that TOML cannot express: {problem}")]
    ContainerdValue { path: String, problem: &'static str },
    #[error("writing the containerd configuration as TOML")]
    ContainerdToml { source: toml::ser::Error },
    #[error(
        "the time server '{server}' has a port, which the time client of {os} cannot use: \
         leave out the port, or give the client its own configuration with fileAssets"
    )]
    TimeServerPort { server: String, os: String },
    #[error("the hook '{hook}' has a timeout that is not positive: give it one such as '5m0s'")]
    HookTimeout { hook: String },
    #[error("the hook '{hook}' has neither a unit nor a container: give it one of them")]
    EmptyHook { hook: String },
    #[error(
        "the hook '{hook}' runs a container at '{slot}', before the container runtime is installed: \
         use the slot 'after-runtime' or later, or a unit"
    )]
    HookBeforeRuntime { hook: String, slot: &'static str },
    #[error(
        "the hook '{hook}' runs a container at 'before-files', when the password of the proxy, by which its image may come, \
         is not on the node yet: use the slot 'after-files' or later, or a unit"
    )]
    HookBeforeProxy { hook: String },
    #[error(
        "'{component}' is to come from the store, and the complete spec has no artefact of it: complete the spec anew"
    )]
    NoArtefact { component: Component },
    #[error(
        "the extension '{name}' is to come from the store, and the complete spec has no artefact of it: complete the spec anew"
    )]
    NoExtension { name: ExtensionName },
    #[error("a control plane needs certificates and keys, and the complete spec has no 'pki.folder': complete it anew")]
    NoPki,
    #[error(
        "nodes have nothing to join with, neither a token nor a program that gives credentials: complete the spec anew"
    )]
    NoCredential,
    #[error("what the spec asks for makes no valid bundle: {}: correct the spec", problem.without_advice())]
    Bundle { problem: BundleError },
    #[error("what the spec asks for makes no valid bundle: {0}: correct the spec")]
    Name(#[from] InvalidName),
    #[error("cloud-config cannot install nodestrap: use the format mime, or an image that brings nodestrap")]
    InstallationNeedsMime,
    #[error("the download of nodestrap {problem}: correct it in the spec")]
    Download { problem: &'static str },
    #[error("Ignition 2.3 verifies SHA-512 only: give the SHA-512 of the nodestrap binary too, or use Ignition 3")]
    Ignition2NeedsSha512,
    #[error("the additional user data '{name}' {problem}")]
    AdditionalPart { name: String, problem: &'static str },
    #[error("the reference to the bundle in the store cannot be written")]
    Stub { source: StubError },
    #[error("the user data has {bytes} bytes, and {provider} takes {limit}; the largest parts are {parts}: {advice}")]
    UserDataTooLarge { provider: Provider, bytes: usize, limit: usize, parts: String, advice: &'static str },
    #[error("'{field}' of the machines {problem}: correct it in the spec")]
    Machines { field: &'static str, problem: String },
    #[error("this group is delivered as a folder, so there is no user data: set delivery.format, or ask for a format")]
    FolderHasNoUserData,
    #[error("there are no templates of machines for the provider '{provider}': only aws and gce have them")]
    NoTemplates { provider: String },
    #[error("a template of machines needs 'machines.{field}' of the NodeGroup: write it into the spec")]
    MachinesLack { field: &'static str },
    #[error("the complete spec has no settings of the layout '{layout}': complete the spec anew")]
    NoLayoutSettings { layout: &'static str },
    #[error("the flag --{flag}: {problem}")]
    OldFlag { flag: &'static str, problem: String },
    #[error("the layout 'eksctl' tells nodes their region, and the spec has none: write 'region' in the Cluster")]
    NoRegion,
    #[error(
        "a kubelet of Kubernetes {version} cannot read how nodestrap names a program that gives credentials, \
         which needs 1.22: write 'join.bootstrapToken' instead of 'join.exec'"
    )]
    ExecTooOld { version: String },
    #[error(
        "'{value}' cannot be {name} of the layout 'tectonic', whose readers know no escapes: \
         use a text without quotes, backslashes, '$' and blanks"
    )]
    ImageVariable { name: &'static str, value: String },
}

fn quoted_list(names: &[String]) -> String {
    match names {
        [] => "no groups".to_owned(),
        [one] => format!("'{one}'"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("'{name}'")).collect();
            format!("{} and '{last}'", first.join(", "))
        }
    }
}
