//! A node: a booted systemd of its own, driven from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;

use crate::cache::{Cache, Consumers};
use crate::command::{last_lines, output_text, stdout_if_well, tail};
use crate::consumers::IgnitionSpec;
use crate::control_plane::log_path;
use crate::flatcar::forget_machine_id;
use crate::keeper::{self, keep_node, nspawn_process};
use crate::lab::{Lab, Lifetime};
use crate::network::{self, Addresses, HUB_MEMBER, connect_node, free_index, inside};
use crate::node_root::{NodeFolders, install_nodestrap, provide_image, write_identity};
use crate::process::ProcessId;
use crate::state::{Desired, NodeImage, NodeState, StateFile, check_name};
use crate::usr_partitions::UsrPartitions;
use crate::wait::{Fatal, wait_until};

/// Together with the lab's name it becomes a machine name, which has at most 64 characters.
const LONGEST_NODE_NAME: usize = 40;
/// A boot to an answering systemd takes one second; more only when many nodes share two cores.
const BOOT_DEADLINE: Duration = Duration::from_secs(60);
/// systemd itself gives each unit up to 90 s to stop.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(120);
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// Changes a node's root before its first boot.
pub type BeforeBoot<'a> = Box<dyn FnOnce(&Path) -> Result<()> + 'a>;

/// What a node is made of. `NodeOptions::named("n1").user_data(…).nodestrap(…)`.
pub struct NodeOptions<'a> {
    pub name: String,
    /// For cloud-init, as a cloud would hand it over.
    pub user_data: Option<Vec<u8>>,
    /// For Ignition, which carries it out in the network of the node before the first boot, as from an initramfs.
    pub ignition: Option<(IgnitionSpec, Vec<u8>)>,
    /// The program to install together with the units of `dist/systemd`, as the Debian package does.
    pub nodestrap: Option<PathBuf>,
    pub image: NodeImage,
    /// Archives of container images that are there besides the lab's own.
    pub container_images: Vec<PathBuf>,
    pub before_boot: Option<BeforeBoot<'a>>,
    /// Whether to boot at once; otherwise [`Node::start`] does.
    pub desired: Desired,
}

impl<'a> NodeOptions<'a> {
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            user_data: None,
            ignition: None,
            nodestrap: None,
            image: NodeImage::Complete,
            container_images: Vec::new(),
            before_boot: None,
            desired: Desired::Running,
        }
    }

    pub fn user_data(mut self, user_data: impl Into<Vec<u8>>) -> Self {
        self.user_data = Some(user_data.into());
        self
    }

    pub fn ignition(mut self, spec: IgnitionSpec, config: impl Into<Vec<u8>>) -> Self {
        self.ignition = Some((spec, config.into()));
        self
    }

    pub fn nodestrap(mut self, program: impl Into<PathBuf>) -> Self {
        self.nodestrap = Some(program.into());
        self
    }

    /// Nothing but an operating system: no kubelet, containerd, runc or CNI plug-ins.
    pub fn bare(self) -> Self {
        self.image(NodeImage::Bare)
    }

    pub fn image(mut self, image: NodeImage) -> Self {
        self.image = image;
        self
    }

    /// As if a registry had it.
    pub fn container_image(mut self, archive: impl Into<PathBuf>) -> Self {
        self.container_images.push(archive.into());
        self
    }

    /// The root is complete but nothing runs in it yet, not even Ignition.
    pub fn before_boot(mut self, change: impl FnOnce(&Path) -> Result<()> + 'a) -> Self {
        self.before_boot = Some(Box::new(change));
        self
    }

    pub fn not_started(mut self) -> Self {
        self.desired = Desired::Stopped;
        self
    }
}

/// A node of a lab. Ends with its lab; dropping it does nothing.
pub struct Node {
    lab: String,
    name: String,
    state: StateFile,
    folders: NodeFolders,
    addresses: Addresses,
    lifetime: Lifetime,
    cache: Cache,
}

impl Node {
    pub(crate) fn add(lab: &Lab, options: NodeOptions<'_>) -> Result<Self> {
        let name = options.name.as_str();
        check_name("node", name, LONGEST_NODE_NAME)?;
        if name == HUB_MEMBER {
            bail!("a node cannot be named '{HUB_MEMBER}'");
        }
        let index = lab.state_file().update(|state| {
            if state.nodes.contains_key(name) {
                bail!("the lab has a node named '{name}' already");
            }
            let index = free_index(state.nodes.values().map(|node| node.index))?;
            let image = options.image;
            let node = NodeState { index, image, desired: Desired::Stopped, leader: None, boots: 0, starts: 0 };
            state.nodes.insert(name.to_owned(), node);
            Ok(index)
        })??;
        connect_node(lab.name(), name, index, lab.is_dual_stack())?;
        let node = Self::open(lab, name)?;
        node.folders.mount(lab.cache(), options.image)?;
        write_identity(&node.root(), name, &node.addresses, options.user_data.as_deref())?;
        if let Some(program) = &options.nodestrap {
            install_nodestrap(&node.root(), program)?;
        }
        for archive in &options.container_images {
            provide_image(&node.root(), options.image, archive)?;
        }
        if options.image == NodeImage::ContainerLinux {
            forget_machine_id(&node.root())?;
        }
        if let Some(change) = options.before_boot {
            change(&node.root()).with_context(|| format!("changing the root of {name} before its first boot"))?;
        }
        if let Some((spec, config)) = &options.ignition {
            let enter = |program: &Path| inside(lab.name(), name, program);
            let ignited = Consumers::open()?.ignite(*spec, config, &node.root(), &enter);
            ignited.with_context(|| format!("running Ignition for {name}"))?;
        }
        if options.desired == Desired::Running {
            node.start()?;
        }
        Ok(node)
    }

    pub(crate) fn open(lab: &Lab, name: &str) -> Result<Self> {
        let state = lab.state_file().clone();
        let known = state.load()?;
        let node = known.nodes.get(name).with_context(|| format!("the lab has no node named '{name}'"))?;
        Ok(Self {
            lab: lab.name().to_owned(),
            name: name.to_owned(),
            folders: NodeFolders::new(state.folder(), name),
            addresses: Addresses::of_node(node.index),
            state,
            lifetime: lab.lifetime().clone(),
            cache: lab.cache().clone(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// In the lab's network; the IPv6 one is configured only in a dual-stack lab.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The node's files on this machine, running or not, with `/var/lib/kubelet` and `/var/lib/containerd`, without what the
    /// node mounts itself. Beware of absolute links: they lead into this machine. [`Node::read_file`] does not have that trap.
    pub fn root(&self) -> PathBuf {
        self.folders.root()
    }

    /// Of a Container Linux: what it boots, now and next.
    pub fn usr_partitions(&self) -> UsrPartitions {
        UsrPartitions::of(&self.root())
    }

    pub fn is_running(&self) -> Result<bool> {
        Ok(self.leader()?.is_some())
    }

    /// How often the lab has booted this node.
    pub fn boots(&self) -> Result<u32> {
        Ok(self.node_state()?.boots)
    }

    fn node_state(&self) -> Result<NodeState> {
        self.state.load()?.nodes.remove(&self.name).context("the node is no longer in the state file")
    }

    fn leader(&self) -> Result<Option<ProcessId>> {
        Ok(self.node_state()?.leader.filter(|leader| leader.is_alive()))
    }

    /// Boots the node on the root it has. Returns when its systemd answers.
    pub fn start(&self) -> Result<()> {
        if self.nspawn()?.is_some() {
            bail!("{} runs already", self.name);
        }
        if crate::mounts::mount_points_below(&self.root())?.is_empty() {
            // Only after this machine itself was rebooted.
            network::connect_node(&self.lab, &self.name, self.node_state()?.index, self.state.load()?.dual_stack)?;
            self.folders.mount(&self.cache, self.node_state()?.image)?;
        }
        let boots = self.boots()?;
        self.set_desired(Desired::Running)?;
        let (lab, name) = (self.lab.clone(), self.name.clone());
        match &self.lifetime {
            Lifetime::Owned => drop(std::thread::spawn(move || keep_node(&lab, &name))),
            Lifetime::Detached { program } => {
                let mut command = Command::new(program);
                command.args(["keep-node", "--name", &lab, &name]);
                keeper::spawn_process(&self.state, &lab, &name, &command)?;
            }
        }
        self.wait_answering(boots)
    }

    fn set_desired(&self, desired: Desired) -> Result<()> {
        self.state.update(|state| {
            if let Some(node) = state.nodes.get_mut(&self.name) {
                node.desired = desired;
                node.starts += u32::from(desired == Desired::Running);
            }
        })
    }

    fn nspawn(&self) -> Result<Option<ProcessId>> {
        let process = self.state.load()?.processes.get(&nspawn_process(&self.name)).copied().flatten();
        Ok(process.filter(|process| process.is_alive()))
    }

    /// The boot after `boots` earlier ones has begun and its systemd takes requests.
    fn wait_answering(&self, boots: u32) -> Result<()> {
        wait_until(&format!("systemd of {} to answer", self.name), BOOT_DEADLINE, || {
            let node = self.node_state()?;
            if node.desired == Desired::Stopped {
                return Err(Fatal("its nspawn has ended".into()).into());
            }
            Ok((node.boots > boots && self.has_answering_systemd()?).then_some(()))
        })
        .with_context(|| self.diagnosis(&[]))
    }

    fn has_answering_systemd(&self) -> Result<bool> {
        let output = self.exec(&["systemctl", "is-system-running"])?;
        let state = output_text(&output);
        Ok(["initializing", "starting", "running", "degraded", "maintenance", "stopping"].contains(&state.as_str()))
    }

    /// Waits until every unit of the boot has been started, and fails if one of them failed.
    pub fn wait_booted(&self, deadline: Duration) -> Result<()> {
        self.wait_until("finished boot", deadline, |node| {
            match output_text(&node.exec(&["systemctl", "is-system-running"])?).as_str() {
                "running" => Ok(true),
                "degraded" => Err(Fatal(format!("failed units:\n{}", node.failed_units()?)).into()),
                other => Err(anyhow!("systemd says '{other}'; jobs: {}", node.run(&["systemctl", "list-jobs"])?)),
            }
        })
    }

    /// With what each of them said.
    fn failed_units(&self) -> Result<String> {
        let names = self.run(&["systemctl", "list-units", "--failed", "--plain", "--no-legend"])?;
        let names = names.lines().filter_map(|line| line.split_whitespace().next());
        names
            .map(|name| Ok(output_text(&self.exec(&["systemctl", "status", "--no-pager", "--full", name])?) + "\n"))
            .collect()
    }

    /// Waits for something about this node. An error of the closure counts as "not yet", unless it is a [`Fatal`].
    pub fn wait_until(
        &self,
        what: &str,
        deadline: Duration,
        mut is_so: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        wait_until(&format!("{what} on {}", self.name), deadline, || Ok(is_so(self)?.then_some(())))
            .with_context(|| self.diagnosis(&[]))
    }

    /// A command on the node, for callers that want its streams.
    pub fn command(&self, program: &str) -> Result<Command> {
        let leader = self.leader()?.with_context(|| format!("{} does not run", self.name))?;
        let mut command = Command::new("nsenter");
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LANG", "C.UTF-8");
        if let Some(terminal) = std::env::var_os("TERM") {
            command.env("TERM", terminal);
        }
        command.args(["-t", &leader.pid.to_string(), "-a", "--", program]);
        Ok(command)
    }

    /// Runs a command on the node, whatever its exit status.
    pub fn exec(&self, words: &[&str]) -> Result<Output> {
        let (program, arguments) = words.split_first().context("no command was given")?;
        let mut command = self.command(program)?;
        output_of_stoppable(command.args(arguments)).with_context(|| format!("running {program} on {}", self.name))
    }

    /// Runs a command on the node and returns its standard output; a failure is an error that quotes it.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let (program, arguments) = words.split_first().context("no command was given")?;
        let mut command = self.command(program)?;
        let output = output_of_stoppable(command.args(arguments)).with_context(|| format!("on {}", self.name))?;
        stdout_if_well(&command, &output).with_context(|| format!("on {}", self.name))
    }

    /// A file as the running node sees it, `/run` and `/proc` included.
    pub fn read_file(&self, path: &str) -> Result<String> {
        self.run(&["cat", "--", path])
    }

    /// Where a path of the running node is found on this machine, `/run` and sockets included. Beware of absolute links.
    pub fn path_from_outside(&self, path: &str) -> Result<PathBuf> {
        let leader = self.leader()?.with_context(|| format!("{} does not run", self.name))?;
        Ok(PathBuf::from(format!("/proc/{}/root{path}", leader.pid)))
    }

    /// Its own, new at each boot.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.read_file("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// Reboots from inside; returns when the new systemd answers.
    pub fn reboot(&self) -> Result<()> {
        let boots = self.boots()?;
        // The connection may be cut before the answer.
        self.exec(&["systemctl", "reboot"])?;
        self.wait_rebooted(boots)
    }

    /// Waits for a reboot that the node began by itself, given [`Node::boots`] from before.
    pub fn wait_rebooted(&self, boots: u32) -> Result<()> {
        wait_until(&format!("{} to boot again", self.name), SHUTDOWN_DEADLINE, || {
            let node = self.node_state()?;
            if node.desired == Desired::Stopped {
                return Err(Fatal("it went off instead".into()).into());
            }
            Ok((node.boots > boots).then_some(()))
        })
        .with_context(|| self.diagnosis(&[]))?;
        self.wait_answering(boots)
    }

    /// Shuts down in good order and stays off.
    pub fn poweroff(&self) -> Result<()> {
        let Some(nspawn) = self.nspawn()? else { return Ok(()) };
        self.exec(&["systemctl", "poweroff"])?;
        nspawn.wait_for_exit(&format!("node {}", self.name), SHUTDOWN_DEADLINE)?;
        self.set_desired(Desired::Stopped)
    }

    /// A power cut: the kernel ends every process of the node together with its first one.
    pub fn kill(&self) -> Result<()> {
        self.set_desired(Desired::Stopped)?;
        let nspawn = self.nspawn()?;
        match (self.leader()?, nspawn) {
            (Some(leader), _) => leader.kill(),
            (None, Some(nspawn)) => nspawn.kill(),
            (None, None) => return Ok(()),
        }
        nspawn.map_or(Ok(()), |nspawn| nspawn.wait_for_exit(&format!("node {}", self.name), KILL_DEADLINE))
    }

    /// The journal of a unit over all boots, or of everything if the unit is empty. Works on a node that is off.
    pub fn journal(&self, unit: &str) -> String {
        let mut filter = vec!["--no-pager", "--output=short-precise"];
        if !unit.is_empty() {
            filter.extend(["--unit", unit]);
        }
        let folder = format!("--directory={}", self.root().join("var/log/journal").display());
        let output = match self.command("journalctl") {
            Ok(mut inside) => inside.args(filter).stdin(Stdio::null()).output(),
            Err(_) => Command::new("journalctl").arg(folder).args(filter).output(),
        };
        output.map_or_else(|error| format!("(no journal: {error})"), |output| output_text(&output))
    }

    /// What the console said; the log of nspawn itself.
    pub fn console_log(&self) -> PathBuf {
        log_path(self.state.folder(), &nspawn_process(&self.name))
    }

    /// For an error: the end of the console and of the journals of some units, or of the whole journal.
    pub fn diagnosis(&self, units: &[&str]) -> String {
        let mut text = format!("--- console of {}\n{}", self.name, tail(&self.console_log()));
        let units = if units.is_empty() { &[""] } else { units };
        for unit in units {
            text.push_str(&format!("\n--- journal of {} {unit}\n{}", self.name, last_lines(&self.journal(unit))));
        }
        text
    }
}

/// A machine that goes down stops all its processes before it ends them, and nsenter then stops itself, as its child did.
/// It would never wake up, never bury its child, and so keep the machine from ending.
fn output_of_stoppable(command: &mut Command) -> std::io::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let id = ProcessId::observe(child.id());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::park_timeout(STOPPED_LOOK);
                if let Some(id) = id.filter(|id| id.is_stopped()) {
                    id.signal(Signal::CONT);
                }
            }
        });
        let output = child.wait_with_output();
        ended.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        output
    })
}

/// How often it is looked at whether a command has been stopped.
const STOPPED_LOOK: Duration = Duration::from_millis(100);
