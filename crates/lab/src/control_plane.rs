//! The control plane of a lab: four programs in the hub, and the objects that let a kubelet join with a bootstrap token.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::command::tail;
use crate::identities::Identities;
use crate::network::{HUB, HUB_MEMBER, namespace_path, pod_ranges, service_ranges};
use crate::process::{ProcessId, reap_in_background, spawn_logged};
use crate::state::StateFile;

/// kube-apiserver takes four seconds alone and much longer while other labs start on the same two cores.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(120);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// The group of everybody who holds the lab's bootstrap token.
const BOOTSTRAP_GROUP: &str = "system:bootstrappers:nodestrap";

/// The programs, by the name that their process and their log have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Program {
    pub(crate) const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
        }
    }
}

/// Everything needed to start a program of one lab.
pub(crate) struct ControlPlane<'a> {
    pub(crate) lab: &'a str,
    pub(crate) state: &'a StateFile,
    pub(crate) cache: &'a Cache,
    pub(crate) dual_stack: bool,
}

impl ControlPlane<'_> {
    /// Records the intent, starts, records the process.
    pub(crate) fn start(&self, program: Program) -> Result<()> {
        let name = program.name();
        if self.state.load()?.processes.get(name).copied().flatten().is_some_and(ProcessId::is_alive) {
            bail!("{name} runs already");
        }
        self.state.record_process(name, None)?;
        let log = log_path(self.state.folder(), name);
        let hub = namespace_path(self.lab, HUB_MEMBER);
        let child = spawn_logged(self.lab, Some(&hub), &self.command(program), &log)?;
        self.state.record_process(name, ProcessId::observe(child.id()))?;
        reap_in_background(child);
        Ok(())
    }

    /// SIGKILL, as if its machine had lost power: a graceful stop of the API server takes a minute and proves less.
    pub(crate) fn stop(&self, program: Program) -> Result<()> {
        let name = program.name();
        let Some(process) = self.state.load()?.processes.get(name).copied().flatten() else { return Ok(()) };
        process.kill();
        process.wait_for_exit(name, STOP_DEADLINE)?;
        self.state.record_process(name, None)
    }

    fn command(&self, program: Program) -> Command {
        let identities = Identities::in_lab(self.state.folder());
        match program {
            Program::Etcd => self.etcd(),
            Program::ApiServer => self.api_server(&identities),
            Program::ControllerManager => self.controller_manager(&identities),
            Program::Scheduler => self.scheduler(&identities),
        }
    }

    fn etcd(&self) -> Command {
        let mut command = Command::new(self.cache.etcd.join("etcd"));
        command.arg("--data-dir").arg(self.state.folder().join("etcd"));
        // Nothing in a lab is worth waiting for a disk.
        command.args(["--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"]);
        command
    }

    fn api_server(&self, identities: &Identities) -> Command {
        let path = |file: &str| identities.path(file).display().to_string();
        let mut command = Command::new(self.cache.kubernetes.join("kube-apiserver"));
        command.args([
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--service-cluster-ip-range={}", service_ranges(self.dual_stack)),
            format!("--advertise-address={}", HUB.v4),
            "--secure-port=6443".to_owned(),
            format!("--cert-dir={}", self.state.folder().join("apiserver-certs").display()),
            format!("--client-ca-file={}", path("ca.crt")),
            format!("--tls-cert-file={}", path("apiserver.crt")),
            format!("--tls-private-key-file={}", path("apiserver.key")),
            format!("--kubelet-client-certificate={}", path("kubelet-client.crt")),
            format!("--kubelet-client-key={}", path("kubelet-client.key")),
            // The host names of nodes mean nothing in the hub.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", path("service-account.crt")),
            format!("--service-account-signing-key-file={}", path("service-account.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--allow-privileged=true".to_owned(),
        ]);
        command
    }

    fn controller_manager(&self, identities: &Identities) -> Command {
        let path = |file: &str| identities.path(file).display().to_string();
        let mut command = Command::new(self.cache.kubernetes.join("kube-controller-manager"));
        command.args([
            format!("--kubeconfig={}", path("admin.kubeconfig")),
            // The only one: it must survive an API server that a test takes away, not hand over.
            "--leader-elect=false".to_owned(),
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
            format!("--service-account-private-key-file={}", path("service-account.key")),
            format!("--root-ca-file={}", path("ca.crt")),
            format!("--cluster-signing-cert-file={}", path("ca.crt")),
            format!("--cluster-signing-key-file={}", path("ca.key")),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={}", pod_ranges(self.dual_stack)),
            format!("--service-cluster-ip-range={}", service_ranges(self.dual_stack)),
            "--use-service-account-credentials=false".to_owned(),
        ]);
        command
    }

    fn scheduler(&self, identities: &Identities) -> Command {
        let mut command = Command::new(self.cache.kubernetes.join("kube-scheduler"));
        command.arg(format!("--kubeconfig={}", identities.admin_kubeconfig().display())).arg("--leader-elect=false");
        command
    }
}

pub(crate) fn log_path(lab: &Path, name: &str) -> std::path::PathBuf {
    lab.join("logs").join(format!("{name}.log"))
}

/// The end of the logs of the control plane, for an error.
pub(crate) fn log_tails(lab: &Path, programs: &[Program]) -> String {
    let section = |program: &Program| format!("--- {}\n{}", program.name(), tail(&log_path(lab, program.name())));
    programs.iter().map(section).collect::<Vec<_>>().join("\n")
}

/// The token's secret, and who may ask for and who approves the certificates of kubelets.
pub(crate) fn bootstrap_objects(token: &str) -> Value {
    let (id, secret) = token.split_once('.').unwrap_or((token, ""));
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })
    };
    let signing = "system:certificates.k8s.io:certificatesigningrequests";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {
                "token-id": id,
                "token-secret": secret,
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": BOOTSTRAP_GROUP,
            },
        },
        binding("nodestrap-lab:bootstrap", "system:node-bootstrapper", BOOTSTRAP_GROUP),
        binding("nodestrap-lab:approve-first", &format!("{signing}:nodeclient"), BOOTSTRAP_GROUP),
        binding("nodestrap-lab:approve-renewal", &format!("{signing}:selfnodeclient"), "system:nodes"),
    ]})
}
