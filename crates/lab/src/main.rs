//! `lab`: real nodes and a real control plane on this machine, by hand.
//!
//! Reads: the cache (`$NODESTRAP_CACHE`), the state of labs (`$NODESTRAP_LAB_STATE`). Exit status: 0 done, 1 failed (the
//! reason is on the standard error), or that of the command which `kubectl` and `shell` ran.

// The lab is all effects and talks to the person in front of the terminal.
#![allow(clippy::disallowed_methods)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use lab::flow::Prepared;
use lab::{Flow, Lab, LabOptions, Lifetime, Node, NodeOptions, Transport, WorkerSpec};

/// A line for the person in front of the terminal; one who has closed it (`lab logs | head`) is no reason to panic.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// A node takes about ten seconds on an idle machine.
const READY_PATIENCE: Duration = Duration::from_secs(300);
/// The lab that commands mean when they name none.
const DEFAULT_NAME: &str = "lab";

#[derive(Parser)]
#[command(name = "lab", about = "Real nodes and a real control plane on this machine, for development")]
struct Arguments {
    /// Which lab.
    #[arg(long, global = true, default_value = DEFAULT_NAME)]
    name: String,
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build everything slow into the cache; what is there is skipped.
    Prepare {
        /// Install missing Debian packages with apt-get first.
        #[arg(long)]
        install: bool,
    },
    /// Start a control plane and leave it running.
    Up {
        /// IPv6 beside IPv4 for nodes, pods and services.
        #[arg(long)]
        dual_stack: bool,
    },
    /// A control plane, a node that nodestrap bootstraps, and a pod: the whole thing to look at ($NODESTRAP_BINARY).
    Demo,
    /// Add, stop, start and reboot nodes.
    #[command(subcommand)]
    Node(NodeAction),
    /// A shell, or a command, on a node.
    Shell {
        node: String,
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// The journal of a node, or the log of etcd, apiserver, controller-manager or scheduler.
    Logs { of: Option<String> },
    /// kubectl as administrator of the lab.
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// What runs.
    Status,
    /// End a lab and remove everything it made.
    Down {
        /// All labs, those of tests that were killed included.
        #[arg(long)]
        all: bool,
    },
    /// Own a lab with one node until killed: what the test of crashed owners kills.
    #[command(hide = true)]
    Hold { node: String },
    #[command(hide = true)]
    KeepNode { node: String },
    #[command(hide = true)]
    KeepRoutes,
    #[command(hide = true)]
    KeepSite {
        site: String,
        #[arg(long)]
        transport: Transport,
    },
    #[command(hide = true)]
    KeepMetadata { node: String, instance: PathBuf },
    /// Stand in for update_engine on a D-Bus, as a script says; runs on a node as well.
    #[command(hide = true)]
    UpdateEngine {
        #[arg(long, default_value = "unix:path=/run/dbus/system_bus_socket")]
        bus: String,
        /// See the module `update_engine` of this crate.
        #[arg(long, value_name = "FILE")]
        script: PathBuf,
        #[arg(long, value_name = "FOLDER", default_value = "/run/update-engine")]
        state: PathBuf,
        /// Write the partitions of this root: an update is one.
        #[arg(long, value_name = "FOLDER")]
        updated_root: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum NodeAction {
    /// Make a node and boot it.
    Add {
        node: String,
        /// For cloud-init; without it, and with nodestrap, the lab's own spec is rendered.
        #[arg(long, value_name = "FILE")]
        user_data: Option<PathBuf>,
        /// The nodestrap program to install with the units of dist/systemd [default: $NODESTRAP_BINARY].
        #[arg(long, value_name = "FILE")]
        nodestrap: Option<PathBuf>,
        /// Nothing but an operating system: no kubelet, runtime or CNI plug-ins.
        #[arg(long)]
        bare: bool,
        /// Do not boot it yet.
        #[arg(long)]
        no_start: bool,
        /// Join with a kubelet configured by the lab, without nodestrap.
        #[arg(long, conflicts_with_all = ["user_data", "nodestrap", "bare", "no_start"])]
        plain: bool,
        /// Bootstrap it by nodestrap on this way, and return when it is Ready.
        #[arg(long, conflicts_with_all = ["user_data", "bare", "no_start", "plain"])]
        flow: Option<Flow>,
    },
    /// Boot a node that is off.
    Start { node: String },
    /// Reboot from inside.
    Reboot { node: String },
    /// A power cut.
    Kill { node: String },
    /// Shut down in good order.
    Poweroff { node: String },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { name, command }: Arguments) -> Result<ExitCode> {
    if !matches!(command, Action::Prepare { .. } | Action::Status | Action::UpdateEngine { .. }) {
        lab::support().context("there can be no lab on this machine")?;
    }
    match command {
        Action::Prepare { install } => prepare(install)?,
        Action::Up { dual_stack } => up(&name, dual_stack)?,
        Action::Demo => demo(&name)?,
        Action::Node(action) => node(&open(&name)?, action)?,
        Action::Shell { node, words } => return shell(&open(&name)?.node(&node)?, &words),
        Action::Logs { of } => logs(&open(&name)?, of.as_deref())?,
        Action::Kubectl { words } => return exit_code(open(&name)?.kubectl_command().args(words)),
        Action::Status => status()?,
        Action::Down { all } => down(&name, all)?,
        Action::Hold { node } => hold(name, node)?,
        Action::KeepNode { node } => lab::keep_node(&name, &node)?,
        Action::KeepRoutes => lab::keep_routes(&name)?,
        Action::KeepSite { site, transport } => lab::keep_site(&name, &site, transport)?,
        Action::KeepMetadata { node, instance } => lab::metadata::keep_metadata(&name, &node, &instance)?,
        Action::UpdateEngine { bus, script, state, updated_root } => {
            lab::update_engine::keep_update_engine(&bus, &script, &state, updated_root.as_deref())?;
            // Only its script ends it, and then like somebody who was killed: its unit restarts it, or not.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open(name: &str) -> Result<Lab> {
    Lab::open(name, this_program()?).with_context(|| format!("start one with `{}`", invocation(name, "up")))
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program")
}

/// What to type, with the name of the lab only where it is needed.
fn invocation(name: &str, rest: &str) -> String {
    let lab = if name == DEFAULT_NAME { String::new() } else { format!("--name {name} ") };
    format!("cargo run -p lab -- {lab}{rest}")
}

fn prepare(install: bool) -> Result<()> {
    let missing = lab::missing_packages();
    if install && !missing.is_empty() && rustix::process::geteuid().is_root() {
        say!("installing {}", missing.join(" "));
        let apt = |arguments: &[&str]| -> Result<()> {
            let status = Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments).status()?;
            if !status.success() {
                bail!("apt-get {} failed", arguments.join(" "));
            }
            Ok(())
        };
        apt(&["update", "-q"])?;
        apt(&[&["install", "-y", "-q", "--no-install-recommends"], missing.as_slice()].concat())?;
    }
    if !lab::require() {
        return Ok(());
    }
    lab::prepare_releases(&lab::prepare()?)?;
    lab::Consumers::open()?.prepare()?;
    lab::cache::object_store()?;
    lab::cache::sshd()?;
    say!("everything is in {}", lab::cache_folder()?.display());
    Ok(())
}

fn up(name: &str, dual_stack: bool) -> Result<()> {
    if lab::names_of_labs().iter().any(|known| known == name) {
        say!("lab '{name}' is up already; `{}` ends it", invocation(name, "down"));
        return Ok(());
    }
    say!("starting etcd, API server, controller manager and scheduler …");
    let lifetime = Lifetime::Detached { program: this_program()? };
    let lab = Lab::up(LabOptions { name: Some(name.to_owned()), dual_stack, lifetime })?;
    say!("lab '{name}' is up: {} in a network of its own", lab.api_server_url());
    say!("  bootstrap token  {}", lab.bootstrap_token());
    say!("  files            {}", lab.folder().display());
    say!("next:");
    say!("  {}    a Ready node with a kubelet set up by the lab", invocation(name, "node add n1 --plain"));
    let by_flow = "node add n2 --flow user-data --nodestrap target/release/nodestrap";
    say!("  {}    one by nodestrap; --help lists the flows", invocation(name, by_flow));
    say!("  {}", invocation(name, "kubectl get nodes"));
    say!("  {}", invocation(name, "down"));
    Ok(())
}

fn nodestrap_binary() -> Option<PathBuf> {
    std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from)
}

fn demo(name: &str) -> Result<()> {
    let nodestrap =
        nodestrap_binary().context("NODESTRAP_BINARY must name the nodestrap program; `make lab` sets it")?;
    up(name, false)?;
    let lab = open(name)?;
    say!("");
    let Prepared { node, .. } = boot_by_flow(&lab, "n1", Flow::UserData, &nodestrap)?;
    lab.run_pod("p1", "n1")?;
    say!("\n{}", node.run(&["nodestrap", "timeline"])?);
    say!("{}", node.run(&["nodestrap", "status"])?);
    say!("{}", lab.kubectl(&["get", "node,pod", "-o", "wide"])?);
    say!("it is yours:");
    for what in ["shell n1", "shell n1 -- nodestrap plan", "node reboot n1", "node add n2", "kubectl get nodes", "down"]
    {
        say!("  {}", invocation(name, what));
    }
    Ok(())
}

fn hold(name: String, node: String) -> Result<()> {
    let lab = Lab::up(LabOptions { name: Some(name), ..LabOptions::default() })?;
    lab.add_node(NodeOptions::named(node))?;
    loop {
        std::thread::park();
    }
}

fn node(lab: &Lab, action: NodeAction) -> Result<()> {
    match action {
        NodeAction::Add { node, plain: true, .. } => {
            lab.add_plain_node(&node)?;
            say!("{node} is Ready; try `{}`", invocation(lab.name(), "kubectl get nodes -o wide"));
        }
        NodeAction::Add { node, flow: Some(flow), nodestrap, .. } => add_by_flow(lab, &node, flow, nodestrap)?,
        NodeAction::Add { node, user_data, nodestrap, bare, no_start, plain: false, flow: None } => {
            let mut options = NodeOptions::named(&node);
            options.nodestrap = nodestrap.or_else(nodestrap_binary);
            options.user_data = match (user_data, &options.nodestrap) {
                (Some(path), _) => Some(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?),
                (None, Some(nodestrap)) => Some(WorkerSpec::of(lab).user_data(nodestrap)?),
                (None, None) => None,
            };
            if bare {
                options = options.bare();
            }
            if no_start {
                options = options.not_started();
            }
            let made = lab.add_node(options)?;
            let root = made.root();
            if no_start {
                say!("{node} is ready to boot; change {} and then `{}`", root.display(), start_line(lab, &node));
            } else {
                say!("{node} ({}) boots; its files are in {}", made.addresses().v4, root.display());
                say!("watch it with `{}`", invocation(lab.name(), &format!("shell {node} -- journalctl -f")));
            }
        }
        NodeAction::Start { node } => report(&node, "boots", lab.node(&node)?.start())?,
        NodeAction::Reboot { node } => report(&node, "boots again", lab.node(&node)?.reboot())?,
        NodeAction::Poweroff { node } => report(&node, "is off", lab.node(&node)?.poweroff())?,
        NodeAction::Kill { node } => {
            lab.node(&node)?.kill()?;
            say!("{node} has lost its power; `{}` boots it again", start_line(lab, &node));
        }
    }
    Ok(())
}

fn add_by_flow(lab: &Lab, node: &str, flow: Flow, nodestrap: Option<PathBuf>) -> Result<()> {
    let nodestrap = nodestrap.or_else(nodestrap_binary).context(
        "neither --nodestrap nor $NODESTRAP_BINARY names a program; `scripts/build-dist` builds one and prints its path",
    )?;
    boot_by_flow(lab, node, flow, &nodestrap)?;
    say!("{node} is Ready:\n{}", lab.kubectl(&["get", "node", node, "-o", "wide"])?.trim_end());
    for what in [format!("shell {node}"), format!("node reboot {node}"), "down".to_owned()] {
        say!("  {}", invocation(lab.name(), &what));
    }
    Ok(())
}

fn boot_by_flow(lab: &Lab, node: &str, flow: Flow, nodestrap: &Path) -> Result<Prepared> {
    let prepared = flow.prepare(lab, node, nodestrap, &|what| say!("{node}: {what}"))?;
    let (address, root) = (prepared.node.addresses().v4, prepared.node.root());
    say!("{node}: boots at {address}; its files are in {}", root.display());
    prepared.boot_until_ready(lab, READY_PATIENCE)?;
    Ok(prepared)
}

fn start_line(lab: &Lab, node: &str) -> String {
    invocation(lab.name(), &format!("node start {node}"))
}

fn report(node: &str, what: &str, outcome: Result<()>) -> Result<()> {
    outcome.map(|()| say!("{node} {what}"))
}

fn shell(node: &Node, words: &[String]) -> Result<ExitCode> {
    let (program, arguments) = words.split_first().map_or(("bash", [].as_slice()), |(p, rest)| (p.as_str(), rest));
    exit_code(node.command(program)?.args(arguments))
}

fn exit_code(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("running the command")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn logs(lab: &Lab, of: Option<&str>) -> Result<()> {
    let nodes: Vec<String> = lab.state()?.nodes.into_keys().collect();
    match of {
        None => {
            say!("logs: etcd apiserver controller-manager scheduler {}", nodes.join(" "));
            say!("files: {}", lab.folder().join("logs").display());
        }
        Some(node) if nodes.iter().any(|known| known == node) => say!("{}", lab.node(node)?.journal("")),
        Some(program) => say!("{}", lab.log(program)?.trim_end()),
    }
    Ok(())
}

fn status() -> Result<()> {
    let names = lab::names_of_labs();
    if names.is_empty() {
        say!("no lab is up; `{}` starts one", invocation(DEFAULT_NAME, "up"));
    }
    for name in names {
        let state = lab::State::load(&name)?;
        let owner = state.owner.map_or("until `lab down`".to_owned(), |owner| {
            format!("owned by process {}{}", owner.pid, if owner.is_alive() { "" } else { ", which is dead" })
        });
        say!("{name}: {owner}, {}", lab::state_root().join(&name).display());
        for (process, id) in &state.processes {
            let state = id.map_or("stopped".to_owned(), |id| {
                if id.is_alive() { format!("runs as process {}", id.pid) } else { "has ended".to_owned() }
            });
            say!("  {process:<20} {state}");
        }
        for (node, state) in &state.nodes {
            say!("  {node:<20} wanted {:?}, booted {} times", state.desired, state.boots);
        }
    }
    Ok(())
}

fn down(name: &str, all: bool) -> Result<()> {
    let names = if all { lab::names_of_labs() } else { vec![name.to_owned()] };
    for name in names {
        lab::tear_down(&name)?;
        say!("lab '{name}' is down");
    }
    Ok(())
}
