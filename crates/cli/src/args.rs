//! The command line, as people type it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::hook::args::HookArguments;
use crate::pki::args::PkiArguments;
use crate::publish::args::{ArtefactsArguments, PublishArguments};

/// Takes a bare machine to a Ready Kubernetes node, from one spec, with one binary.
#[derive(Parser)]
#[command(name = "nodestrap", version, propagate_version = true, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// How results are written to standard output.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text, value_name = "FORMAT")]
    pub(crate) output: Output,

    /// When to use colour; `auto` means: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) color: When,
}

const EXAMPLES: &str = "\
Examples:
  nodestrap try                                      see a whole bootstrap in a sandbox folder, without root
  nodestrap check cluster.yaml                       all mistakes at once
  nodestrap explain cluster.yaml podNetwork          where a value comes from
  nodestrap render cluster.yaml --group workers      user data for cloud-init
  nodestrap pki create cluster.yaml --out ./pki      authorities, certificates and kubeconfigs of a control plane
  nodestrap push core@10.0.0.10 ./assets             a folder to a node, by ssh, at once
  nodestrap plan                                     on the node: what apply would do
  nodestrap status                                   on the node: where it is and what blocks it

Exit codes: 0 done or nothing to do, 2 the input is wrong, 3 failed but a retry may succeed,
            4 failed and needs a person, 5 busy, 10 a reboot was asked for.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Bootstrap a throw-away node into a sandbox folder: no root, no network.
    #[command(after_help = "Example:\n  nodestrap try --keep ./sandbox")]
    Try(TryArguments),
    /// Find every mistake in a spec, with line and column.
    #[command(after_help = "Example:\n  nodestrap check examples/minimal.yaml")]
    Check(SpecArguments),
    /// Print the spec with every decision made.
    #[command(after_help = "Example:\n  nodestrap complete examples/minimal.yaml > complete.yaml")]
    Complete(CompleteArguments),
    /// Say where a value of the complete spec comes from.
    #[command(
        override_usage = "nodestrap explain [OPTIONS] FILE... [PATH]",
        after_help = "Examples:\n  nodestrap explain examples/minimal.yaml cluster.networking.clusterDNS\n  \
                      nodestrap explain examples/minimal.yaml podNetwork\n  \
                      nodestrap explain examples/full.yaml 'fileAssets[0].mode'\n  nodestrap explain examples/minimal.yaml"
    )]
    Explain(ExplainArguments),
    /// Write what a node of a group receives, or show what would change on it.
    #[command(after_help = "Examples:\n  nodestrap render cluster.yaml --group workers > user-data\n  \
                      nodestrap render cluster.yaml --group workers --format folder --out ./workers\n  \
                      nodestrap render --diff examples/minimal.yaml examples/store.yaml --group workers")]
    Render(RenderArguments),
    /// Put programs and a signed manifest of them, bundles or user data into a store.
    #[command(
        after_help = "Examples:\n  nodestrap publish ./store --key release-secret.asc --add kubelet@1.36.3=./kubelet\n  \
                      nodestrap publish s3://nodes/programs --key release-secret.asc --add runc@1.5.2=./runc\n  \
                      nodestrap publish s3://nodes/bundles --s3-region eu-central-1 --bundle ./workers.json\n  \
                      nodestrap publish s3://nodes/user-data --ignition ./workers.ign --expires 2h > user-data"
    )]
    Publish(Box<PublishArguments>),
    /// List, verify and clean up a store that publish made.
    Artefacts(ArtefactsArguments),
    /// Send a folder to a node by ssh, where it appears as a whole and once.
    #[command(
        override_usage = "nodestrap push [OPTIONS] HOST FOLDER [-- SSH_OPTION...]",
        after_help = "Examples:\n  nodestrap push core@10.0.0.10 ./assets --sudo\n  \
                      nodestrap push core@10.0.0.10 ./assets --sudo -- -i ./key -p 2222\n\n\
                      Exit codes are those of the node; 3 if ssh does not reach it, or loses it."
    )]
    Push(PushArguments),
    /// Make, show and renew the keys and certificates of a control plane.
    Pki(PkiArguments),
    /// Show exactly what apply would do on this node; touches nothing.
    #[command(
        after_help = "Examples:\n  nodestrap plan\n  nodestrap plan --bundle ./workers --root ./sandbox -o json\n  \
                      nodestrap plan --against ./workers"
    )]
    Plan(PlanArguments),
    /// Converge this node and open the kubelet's gate.
    #[command(after_help = "Examples:\n  nodestrap apply --bundle ./workers --root ./sandbox\n  \
                      nodestrap plan -o json > plan.json && nodestrap apply --plan plan.json")]
    Apply(ApplyArguments),
    /// Say where this node is and what blocks it.
    #[command(after_help = "Examples:\n  nodestrap status\n  nodestrap status --json\n  nodestrap status --watch")]
    Status(StatusArguments),
    /// Draw where the time went.
    #[command(after_help = "Examples:\n  nodestrap timeline\n  nodestrap timeline --svg timeline.svg")]
    Timeline(TimelineArguments),
    /// Show what this machine is, and who says so; touches nothing.
    #[command(after_help = "Examples:\n  nodestrap facts\n  nodestrap facts --ask-again -o json")]
    Facts(FactsArguments),
    /// Find what is no more as the bundle made it; touches nothing.
    #[command(
        after_help = "Examples:\n  nodestrap verify\n  nodestrap verify -o json\n\nExit codes: 0 nothing drifted, 4 something did."
    )]
    Verify(VerifyArguments),
    /// Say what an image lacks of what a bundle counts on: programs, their versions, units.
    #[command(after_help = "Examples:\n  nodestrap verify-image --bundle bundle.json\n  \
                      nodestrap verify-image --bundle bundle.json -o json\n\n\
                      It runs the image's kubelet and containerd with --version; in another root that needs chroot.\n\n\
                      Exit codes: 0 all is there, 4 something is missing or wrong.")]
    VerifyImage(VerifyImageArguments),
    /// Undo what nodestrap did: put back what was there before.
    #[command(after_help = "Examples:\n  nodestrap reset --dry-run\n  nodestrap reset --yes\n\n\
                      Data stays: that of etcd, of volumes, containers and pods. Pods that run go on until the next boot.")]
    Reset(ResetArguments),
    /// Answer those who are about to do something to this node.
    Hook(HookArguments),
    /// Take from standard input what push sends, and put it at its place by one rename (run on the node by push).
    #[command(hide = true)]
    Receive(ReceiveArguments),
    /// Check that the kubelet's gate and the files it vouches for are whole; else it is taken away (run by kubelet.service).
    #[command(hide = true)]
    Gate(GateArguments),
    /// Wait for this node's pod ranges and write its CNI configuration (run by nodestrap-network.service).
    #[command(hide = true)]
    Network(RootArguments),
    /// Take away the bootstrap credentials once the kubelet has its own, and older programs once it is Ready with the new ones
    /// (run by nodestrap-spend-credentials.service).
    #[command(hide = true)]
    SpendCredentials(RootArguments),
    /// Empty the data folder of the container runtime if another version left it (run by nodestrap-clean-runtime-data.service).
    #[command(hide = true)]
    CleanRuntimeData(RootArguments),
    /// Print the JSON schema of a spec, for editors.
    #[command(after_help = "Examples:\n  nodestrap schema > nodestrap.schema.json\n  \
                      and as the first line of a spec: # yaml-language-server: $schema=nodestrap.schema.json")]
    Schema,
    /// Print what a shell needs to complete the commands and options.
    #[command(after_help = "Example:\n  nodestrap completions bash > nodestrap.bash")]
    Completions(CompletionsArguments),
}

#[derive(Args)]
pub(crate) struct CompletionsArguments {
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct SpecArguments {
    /// Files with one Cluster and its NodeGroups.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CompleteArguments {
    #[command(flatten)]
    pub(crate) spec: SpecArguments,
    /// Print secrets in clear; without it the output cannot be completed again.
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// Files with one Cluster and its NodeGroups; then a path such as `cluster.networking.clusterDNS`, or its unique end.
    /// Items of lists are `[0]` and so on, or go by their name. Without a path every value is listed.
    #[arg(required = true, value_name = "FILE")]
    words: Vec<PathBuf>,
}

impl ExplainArguments {
    /// The files, and the path: what comes last and is no file.
    pub(crate) fn split(&self) -> (&[PathBuf], Option<&str>) {
        match self.words.split_last() {
            Some((last, files)) if !files.is_empty() && !last.is_file() => (files, last.to_str()),
            _ => (&self.words, None),
        }
    }
}

#[derive(Args)]
pub(crate) struct RenderArguments {
    /// Files with one Cluster and its NodeGroups.
    #[arg(required_unless_present = "diff", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The node group; may be left out if there is only one.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Every node group, one file each, into the folder that --out names.
    #[arg(long, conflicts_with_all = ["group", "diff"])]
    pub(crate) all: bool,
    /// In which form [default: what delivery.format of the spec says].
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Where to write it; standard output by default, also as `-` (a folder needs a path).
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Show what would change on a node, and what that takes; each a bundle, a folder, user data or a spec.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["files", "format", "out"])]
    pub(crate) diff: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// User data for cloud-init: one document.
    CloudConfig,
    /// User data for cloud-init: several parts, which can also install nodestrap.
    Mime,
    /// Ignition, spec 3.
    Ignition,
    /// Ignition, spec 2.3.
    #[value(name = "ignition-2.3")]
    Ignition2,
    /// The bundle as one JSON file.
    Bundle,
    /// A folder with a manifest and the files as they will lie on the node.
    Folder,
    /// The provider's template of a machine and the group that keeps machines running (aws, gce).
    Machines,
}

#[derive(Args)]
pub(crate) struct RootArguments {
    /// The folder that stands for the machine; every path lies under it.
    #[arg(long, default_value = "/", value_name = "DIR")]
    pub(crate) root: PathBuf,
}

#[derive(Args)]
pub(crate) struct PushArguments {
    /// The node, as ssh takes it: HOST, USER@HOST, a name of its configuration.
    #[arg(value_name = "HOST", value_parser = parse_ssh_host)]
    pub(crate) host: String,
    /// The folder: files and folders with their modes, no links.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Become root on the node by sudo, which must not ask for a password.
    #[arg(long)]
    pub(crate) sudo: bool,
    /// The nodestrap of the node, if its shell does not find it.
    #[arg(long, value_name = "PATH", default_value = "nodestrap", value_parser = parse_word_of_shell)]
    pub(crate) program: String,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub(crate) progress: Progress,
    /// Options for ssh: the port, the key.
    #[arg(last = true, value_name = "SSH_OPTION", allow_hyphen_values = true)]
    pub(crate) ssh: Vec<String>,
}

/// What push and receive say with the same words.
#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// Where the folder appears on the node.
    #[arg(long, value_name = "PATH", default_value = "/opt/tectonic", value_parser = parse_path_of_node)]
    pub(crate) to: String,
    /// Replace what another push has brought there; units that it starts run again.
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Args)]
pub(crate) struct ReceiveArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) root: RootArguments,
}

/// What every shell takes for one word: the shell of the node reads it.
fn parse_word_of_shell(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@:-".contains(&byte);
    match !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("letters, digits and /._+@:- only, since the shell of the node reads it".to_owned()),
    }
}

fn parse_path_of_node(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => parse_word_of_shell(text),
        false => Err("it is not an absolute path".to_owned()),
    }
}

/// What begins with a dash would be an option of ssh.
fn parse_ssh_host(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        true => Err("it is no name of a host; options of ssh follow at the end, after --".to_owned()),
        false => Ok(text.to_owned()),
    }
}

#[derive(Args)]
pub(crate) struct GateArguments {
    /// The gate of this node's layout: /etc/kubernetes/kubelet.env or /etc/eksctl/kubelet.local.env [default: the former].
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: RootArguments,
}

#[derive(Args)]
pub(crate) struct NodeArguments {
    /// The bundle, or a reference to one: a file or a folder [default: /etc/nodestrap/bundle.json under the root].
    #[arg(long, value_name = "PATH")]
    pub(crate) bundle: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: RootArguments,
}

#[derive(Args)]
pub(crate) struct FetchArguments {
    /// For how long a bundle that was delivered by reference is asked for.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) fetch_deadline: u64,
    #[command(flatten)]
    pub(crate) platform: PlatformArguments,
}

#[derive(Args)]
pub(crate) struct PlatformArguments {
    /// For how long the platform's metadata service is asked for facts and, where no bundle was delivered, user data.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) metadata_deadline: u64,
    /// Ask the platform, whatever an earlier run has kept of its answers.
    #[arg(long)]
    pub(crate) ask_again: bool,
}

#[derive(Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    #[command(flatten)]
    pub(crate) fetch: FetchArguments,
    /// Show what another bundle would do to this node: a bundle, a folder or user data.
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ApplyArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    #[command(flatten)]
    pub(crate) fetch: FetchArguments,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub(crate) progress: Progress,
    /// Do this very plan or nothing: its digest, or the file with what plan -o json printed, which names what differs.
    #[arg(long, value_name = "DIGEST|FILE")]
    pub(crate) plan: Option<String>,
    /// Take over the node that this disk was on another machine, which is gone for good.
    #[arg(long)]
    pub(crate) adopt: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// A bar on a terminal, lines elsewhere.
    Auto,
    Bar,
    Plain,
    /// One event a line.
    Json,
    None,
}

#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    /// Only what is on this node, in one line: do not ask the API server.
    #[arg(long)]
    pub(crate) brief: bool,
    /// The same as -o json.
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on showing it as it changes, until the node is complete: on a terminal in place, elsewhere a line for each change.
    #[arg(long, conflicts_with = "brief")]
    pub(crate) watch: bool,
}

#[derive(Args)]
pub(crate) struct FactsArguments {
    #[command(flatten)]
    pub(crate) root: RootArguments,
    #[command(flatten)]
    pub(crate) platform: PlatformArguments,
}

#[derive(Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
}

#[derive(Args)]
pub(crate) struct VerifyImageArguments {
    /// What nodes made of this image will get (nodestrap render --format bundle).
    #[arg(long, value_name = "PATH")]
    pub(crate) bundle: PathBuf,
    #[command(flatten)]
    pub(crate) root: RootArguments,
}

#[derive(Args)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    /// Show what would be undone, and touch nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Undo files too that somebody changed since; they are kept in /var/lib/nodestrap-saved.
    #[arg(long)]
    pub(crate) force: bool,
    /// Remove the kubelet's own credentials too (/var/lib/kubelet/pki and its kubeconfig), so that the node can join anew.
    #[arg(long)]
    pub(crate) kubelet_state: bool,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub(crate) progress: Progress,
}

#[derive(Args)]
pub(crate) struct TimelineArguments {
    #[command(flatten)]
    pub(crate) root: RootArguments,
    /// Write a picture instead (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct TryArguments {
    /// Keep the sandbox there; without it a folder under the temporary folder is used, and named at the end.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}
