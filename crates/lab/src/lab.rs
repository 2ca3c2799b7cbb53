//! A lab: control plane and nodes under one name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cache::{
    Cache, PackageManager, Patch, ReleaseFile, kube_proxy_image, package_repositories, prepare, release_files,
    torcx_addon,
};
use crate::command::{stdout_of, stdout_with_input};
use crate::control_plane::{ControlPlane, Program, START_DEADLINE, bootstrap_objects, log_path, log_tails};
use crate::identities::Identities;
use crate::metadata::{Instance, MetadataServer};
use crate::network::{API_SERVER_URL, HUB_MEMBER, create_hub, inside, listen_as_metadata_service, within};
use crate::node::{Node, NodeOptions};
use crate::node_root::{random_hex_128, write_file};
use crate::process::{ProcessId, reap_in_background, spawn_logged};
use crate::routes;
use crate::state::{State, StateFile, check_name};
use crate::teardown::{reap_abandoned, tear_down};
use crate::wait::{Fatal, wait_until};
use crate::web::{Transport, WebServer};

/// Leaves room for a node's name in the name of the machine.
const LONGEST_LAB_NAME: usize = 20;

/// Whose journals say why a node is not Ready.
const BOOTSTRAP_UNITS: [&str; 3] = ["kubelet.service", "containerd.service", "k8s-node-bootstrap.service"];

/// Who ends a lab.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Drop does; if this process is killed, the next lab does.
    #[default]
    Owned,
    /// `lab down` does. The program is `lab` itself, whose hidden commands keep nodes and routes going in the background.
    Detached { program: PathBuf },
}

#[derive(Debug, Clone, Default)]
pub struct LabOptions {
    /// 1 to 20 of a-z, 0-9 and '-'; made up if absent.
    pub name: Option<String>,
    /// Pods, services and nodes get an IPv6 address beside the IPv4 one.
    pub dual_stack: bool,
    pub lifetime: Lifetime,
}

/// A running lab. Dropping it ends an owned lab and everything in it.
pub struct Lab {
    name: String,
    state: StateFile,
    cache: Cache,
    dual_stack: bool,
    token: String,
    authority_pem: String,
    lifetime: Lifetime,
}

impl Lab {
    /// Starts a control plane and returns when its API server is ready and a kubelet could join.
    pub fn up(options: LabOptions) -> Result<Self> {
        let cache = prepare()?;
        reap_abandoned()?;
        let name = options.name.map_or_else(made_up_name, Ok)?;
        check_name("lab", &name, LONGEST_LAB_NAME)?;
        let owner = match options.lifetime {
            Lifetime::Owned => Some(ProcessId::current()?),
            Lifetime::Detached { .. } => None,
        };
        let state = StateFile::create(&State {
            name: name.clone(),
            owner,
            dual_stack: options.dual_stack,
            closing: false,
            bootstrap_token: made_up_token()?,
            processes: Default::default(),
            nodes: Default::default(),
        })?;
        let start = || -> Result<Self> {
            std::fs::create_dir_all(state.folder().join("logs")).context("creating the log folder")?;
            Identities::in_lab(state.folder()).create(&name)?;
            create_hub(&name, options.dual_stack)?;
            let lab = Self::attach(&name, cache, options.lifetime)?;
            lab.start_control_plane()?;
            Ok(lab)
        };
        start().inspect_err(|_| {
            // Only an owner that failed to get a `Lab` to drop comes here; a second teardown finds nothing to do.
            let _ = tear_down(&name);
        })
    }

    /// A lab that somebody else started; dropping it leaves it running.
    pub fn open(name: &str, program: PathBuf) -> Result<Self> {
        if !StateFile::of(name).folder().join("state.json").exists() {
            bail!("there is no lab named '{name}'");
        }
        Self::attach(name, prepare()?, Lifetime::Detached { program })
    }

    fn attach(name: &str, cache: Cache, lifetime: Lifetime) -> Result<Self> {
        let state = StateFile::of(name);
        let State { dual_stack, bootstrap_token: token, .. } = state.load()?;
        let authority_pem = Identities::in_lab(state.folder()).authority_pem()?;
        Ok(Self { name: name.to_owned(), state, cache, dual_stack, token, authority_pem, lifetime })
    }

    fn start_control_plane(&self) -> Result<()> {
        for program in Program::ALL {
            self.control_plane().start(program)?;
            if program == Program::ApiServer {
                self.wait_api_server_ready()?;
            }
        }
        let objects = bootstrap_objects(&self.token).to_string();
        wait_until("the bootstrap token and its role bindings", START_DEADLINE, || {
            self.kubectl_with_input(&["apply", "-f", "-"], &objects).map(Some)
        })?;
        self.start_route_keeper()
    }

    fn wait_api_server_ready(&self) -> Result<()> {
        wait_until("the API server to be ready", START_DEADLINE, || {
            for program in [Program::Etcd, Program::ApiServer] {
                if !self.is_running(program.name())? {
                    return Err(Fatal(format!("{} has ended", program.name())).into());
                }
            }
            self.kubectl(&["get", "--raw", "/readyz"]).map(Some)
        })
        .with_context(|| log_tails(self.state.folder(), &[Program::Etcd, Program::ApiServer]))
        .map(drop)
    }

    fn is_running(&self, process: &str) -> Result<bool> {
        Ok(self.state.load()?.processes.get(process).copied().flatten().is_some_and(ProcessId::is_alive))
    }

    fn start_route_keeper(&self) -> Result<()> {
        match &self.lifetime {
            Lifetime::Owned => {
                let name = self.name.clone();
                std::thread::spawn(move || routes::keep_routes(&name));
                Ok(())
            }
            Lifetime::Detached { program } => {
                let mut command = Command::new(program);
                command.args(["keep-routes", "--name", &self.name]);
                self.spawn_keeper("routes", &command)
            }
        }
    }

    /// A background process of the lab program itself.
    pub(crate) fn spawn_keeper(&self, name: &str, command: &Command) -> Result<()> {
        self.state.record_process(name, None)?;
        let child = spawn_logged(&self.name, None, command, &log_path(self.state.folder(), name))?;
        self.state.record_process(name, ProcessId::observe(child.id()))?;
        reap_in_background(child);
        Ok(())
    }

    pub(crate) fn control_plane(&self) -> ControlPlane<'_> {
        ControlPlane { lab: &self.name, state: &self.state, cache: &self.cache, dual_stack: self.dual_stack }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Logs, keys, node roots and `state.json`.
    pub fn folder(&self) -> &Path {
        self.state.folder()
    }

    pub fn state(&self) -> Result<State> {
        self.state.load()
    }

    pub fn is_dual_stack(&self) -> bool {
        self.dual_stack
    }

    /// As the nodes see it.
    pub fn api_server_url(&self) -> &'static str {
        API_SERVER_URL
    }

    /// The certificate of the authority that signs the API server and the kubelets.
    pub fn ca_pem(&self) -> &str {
        &self.authority_pem
    }

    /// In the form `id.secret`; good for the whole life of the lab.
    pub fn bootstrap_token(&self) -> &str {
        &self.token
    }

    pub fn admin_kubeconfig(&self) -> PathBuf {
        Identities::in_lab(self.state.folder()).admin_kubeconfig()
    }

    /// A power cut for the API server; etcd, the nodes and everything else go on.
    pub fn stop_apiserver(&self) -> Result<()> {
        self.control_plane().stop(Program::ApiServer)
    }

    /// Returns when it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        self.control_plane().start(Program::ApiServer)?;
        self.wait_api_server_ready()
    }

    /// kubectl as administrator, in the hub, for callers that want its streams.
    pub fn kubectl_command(&self) -> Command {
        let mut command = inside(&self.name, HUB_MEMBER, self.cache.kubernetes.join("kubectl"));
        command.arg("--kubeconfig").arg(self.admin_kubeconfig());
        command.arg("--cache-dir").arg(self.state.folder().join("kubectl-cache"));
        command
    }

    /// Standard output of kubectl; an error quotes what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        stdout_of(self.kubectl_command().args(arguments))
    }

    /// As [`Lab::kubectl`] with a manifest on standard input: `&["apply", "-f", "-"]`.
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        stdout_with_input(self.kubectl_command().args(arguments), input)
    }

    /// kubectl with `-o json`, parsed.
    pub fn kubectl_json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("parsing what kubectl said")
    }

    /// A program in the network of the hub, where the API server is; it sees the files of this machine.
    pub fn hub_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(&self.name, HUB_MEMBER, program)
    }

    /// Runs this where the API server is: what it connects to, it connects to from there.
    pub fn in_hub<T: Send + 'static>(&self, act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        within(&self.name, HUB_MEMBER, act)
    }

    /// A web server in the hub, empty as yet.
    pub fn start_web_server(&self) -> Result<WebServer> {
        WebServer::start(self, Transport::Plain)
    }

    /// The same with TLS: for what nobody else shall read.
    pub fn start_store(&self) -> Result<WebServer> {
        WebServer::start(self, Transport::Tls)
    }

    /// A metadata service at 169.254.169.254, for one node, which need not be running.
    pub fn start_metadata_service(&self, node: &str, instance: Instance) -> Result<MetadataServer> {
        MetadataServer::serve(listen_as_metadata_service(&self.name, node)?, instance)
    }

    /// The same for as long as the lab is up. `None`: a process of its own answers.
    pub(crate) fn keep_metadata_service(&self, node: &str, instance: Instance) -> Result<Option<MetadataServer>> {
        let Lifetime::Detached { program } = &self.lifetime else {
            return self.start_metadata_service(node, instance).map(Some);
        };
        let description = self.state.folder().join(format!("instance-of-{node}.json"));
        write_file(&description, serde_json::to_vec(&instance)?)?;
        let mut command = Command::new(program);
        command.args(["keep-metadata", "--name", &self.name, node]).arg(description);
        // A node that asks too early asks again.
        self.spawn_keeper(&format!("metadata-{node}"), &command)?;
        Ok(None)
    }

    /// This program, for nodes that run a part of it. Tests name theirs themselves.
    pub(crate) fn program(&self) -> Result<&Path> {
        match &self.lifetime {
            Lifetime::Detached { program } => Ok(program),
            _ => bail!("a lab that ends with its process does not know where the program `lab` is"),
        }
    }

    /// An archive for [`NodeOptions::container_image`], made when it is first asked for.
    pub fn kube_proxy_image(&self) -> Result<PathBuf> {
        kube_proxy_image(&self.cache)
    }

    /// What a bare machine lacks, as its projects publish it; made when it is first asked for.
    pub fn release(&self, patch: Patch) -> Result<Vec<ReleaseFile>> {
        release_files(&self.cache, patch)
    }

    /// The archive of an addon for that version of Container Linux; made when it is first asked for.
    pub fn torcx_addon(&self, os_version: &str, reference: &str) -> Result<PathBuf> {
        torcx_addon(os_version, reference)
    }

    /// The repositories of a package manager, with the key that has signed for them; made when they are first asked for.
    pub(crate) fn package_repositories(&self, manager: PackageManager) -> Result<PathBuf> {
        package_repositories(&self.cache, manager)
    }

    /// Makes a node and boots it. Returns when its systemd answers, not when it has finished booting.
    pub fn add_node(&self, options: NodeOptions<'_>) -> Result<Node> {
        Node::add(self, options)
    }

    /// A node that was added before.
    pub fn node(&self, name: &str) -> Result<Node> {
        Node::open(self, name)
    }

    pub(crate) fn state_file(&self) -> &StateFile {
        &self.state
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }

    /// The error of a node that is late has the end of its kubelet's and containerd's journal.
    pub fn wait_node_ready(&self, name: &str, deadline: Duration) -> Result<()> {
        let filter = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        wait_until(&format!("node {name} to be Ready"), deadline, || {
            Ok((self.kubectl(&["get", "node", name, "-o", filter])? == "True").then_some(()))
        })
        .with_context(|| match self.node(name) {
            Ok(node) => node.diagnosis(&BOOTSTRAP_UNITS),
            Err(error) => format!("{error:#}"),
        })
    }

    /// Ready by the word of a kubelet that was started in the boot that is running, not by that of an earlier one.
    pub fn wait_ready_in_this_boot(&self, node: &Node, deadline: Duration) -> Result<()> {
        wait_until(&format!("node {} to be Ready in this boot", node.name()), deadline, || {
            let seen = self.kubectl_json(&["get", "node", node.name()])?;
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            let conditions = seen["status"]["conditions"].as_array();
            let boot = seen["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default();
            let is_so = boot == node.boot_id()? && conditions.into_iter().flatten().any(is_ready);
            Ok(is_so.then_some(()))
        })
        .with_context(|| node.diagnosis(&BOOTSTRAP_UNITS))
    }

    /// The log of `apiserver`, `etcd`, `controller-manager`, `scheduler`, or the console of a node.
    pub fn log(&self, name: &str) -> Result<String> {
        let path = log_path(self.state.folder(), name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.lifetime != Lifetime::Owned {
            return;
        }
        if std::thread::panicking() {
            keep_logs(&self.name, self.state.folder());
        }
        if let Err(error) = tear_down(&self.name) {
            eprintln!("lab: ending '{}': {error:#}", self.name);
        }
    }
}

/// A failed test is read after its lab has gone.
fn keep_logs(name: &str, folder: &Path) {
    let kept = std::env::temp_dir().join(format!("nodestrap-lab-logs-{name}"));
    let copied = Command::new("cp").arg("-r").arg(folder.join("logs")).arg(&kept).status();
    if copied.is_ok_and(|status| status.success()) {
        eprintln!("lab: logs of '{name}' are kept in {}", kept.display());
    }
}

fn made_up_name() -> Result<String> {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    Ok(format!("t{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)))
}

/// Six and sixteen of a-z and 0-9, which hex digits are.
fn made_up_token() -> Result<String> {
    let random = random_hex_128()?;
    Ok(format!("{}.{}", &random[..6], &random[16..32]))
}
