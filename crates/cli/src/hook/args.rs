//! The command line of `hook`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::NodeArguments;

#[derive(Args)]
pub(crate) struct HookArguments {
    #[command(subcommand)]
    pub(crate) command: HookCommand,
}

#[derive(Subcommand)]
pub(crate) enum HookCommand {
    /// Say whether this node will be one after its next boot, also into an update of the operating system.
    #[command(after_help = "Examples:\n  nodestrap hook pre-reboot && systemctl reboot\n  \
                      nodestrap hook pre-reboot --node-annotation nodestrap.io/next-boot-ready\n\n\
                      Exit codes: 0 all that is enabled was proved, 3 not now, 4 an artefact is named that a person must see to.")]
    PreReboot(Box<PreRebootArguments>),
}

#[derive(Args)]
pub(crate) struct PreRebootArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    /// Set this annotation of the Node to true if all was proved, and take it away if not; without it nothing is said in the cluster.
    #[arg(long, value_name = "KEY")]
    pub(crate) node_annotation: Option<String>,
    /// The name of the Node [default: $NODE, or else what the kubelet registers under].
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Answer only while this label of the Node is true: while its operator waits.
    #[arg(long, value_name = "KEY", requires = "node_annotation")]
    pub(crate) while_label: Option<String>,
    /// Stay, and ask again every so many seconds, at least once a minute; 0 ends with the first answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) sleep: u64,
    /// In a pod that sees the folder /run/dbus of its host: have the host's own nodestrap answer.
    #[arg(long, conflicts_with_all = ["root", "bundle"])]
    pub(crate) in_pod: bool,
    /// Where nodestrap lies on the host [default: /opt/bin/nodestrap, or else /usr/bin/nodestrap].
    #[arg(long, value_name = "PATH", requires = "in_pod")]
    pub(crate) host_program: Option<PathBuf>,
}
