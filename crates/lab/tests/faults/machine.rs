//! A folder that stands for a machine, on whatever file system a test wants, and what nodestrap makes of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lab::sandbox::Times;

pub(crate) const GATE: &str = "/etc/kubernetes/kubelet.env";
const BUNDLE: &str = "/etc/nodestrap/bundle.json";

pub(crate) fn nodestrap() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

pub(crate) fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A program that must succeed; what it says.
pub(crate) fn done(words: &[&str]) -> String {
    let arguments: Vec<&OsStr> = words[1..].iter().map(OsStr::new).collect();
    let output = run(words[0], &arguments);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The bundle of the ten-line example, and one of the same group for another API server.
pub(crate) struct Bundles {
    pub(crate) first: String,
    pub(crate) second: String,
}

impl Bundles {
    pub(crate) fn render() -> Self {
        let spec = std::fs::read_to_string(lab::repository().join("examples/minimal.yaml")).unwrap();
        Self { first: render(&spec), second: render(&spec.replace("10.0.0.10", "10.0.0.20")) }
    }
}

fn render(spec: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, spec).unwrap();
    std::fs::copy(lab::repository().join("examples/ca.crt"), folder.path().join("ca.crt")).unwrap();
    let output = run(nodestrap(), &["render".as_ref(), file.as_os_str(), "--format=bundle".as_ref()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) struct Machine {
    pub(crate) root: PathBuf,
}

impl Machine {
    /// As its vendor delivers it, in a folder that exists.
    pub(crate) fn create(root: &Path, bundle: &str) -> Self {
        let machine = Self { root: root.to_owned() };
        lab::sandbox::write_image(root, bundle).unwrap();
        machine.deliver(bundle);
        machine
    }

    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn deliver(&self, bundle: &str) {
        self.write(BUNDLE, bundle);
        std::fs::set_permissions(self.path(BUNDLE), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// As a boot does.
    pub(crate) fn empty_run(&self, boot: u32) {
        std::fs::remove_dir_all(self.path("/run")).unwrap();
        self.write("/run/nodestrap/boot_id", &format!("00000000-0000-4000-8000-{boot:012}\n"));
    }

    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(nodestrap());
        command.arg(verb).arg("--root").arg(&self.root).stdin(Stdio::null());
        if verb == "apply" {
            command.arg("--progress=none");
        }
        command
    }

    pub(crate) fn nodestrap(&self, verb: &str) -> Output {
        self.command(verb).output().unwrap()
    }

    /// There and whole, by the word that the kubelet's unit asks for.
    pub(crate) fn gate_is_open(&self) -> bool {
        self.path(GATE).exists() && self.nodestrap("gate").status.success()
    }

    /// What a node is made of, by path: no times, nothing of the way it came to be, not the delivery.
    pub(crate) fn tree(&self) -> BTreeMap<String, String> {
        let mut found = lab::sandbox::entries(&self.root, Times::Ignored).unwrap();
        let outside = ["/var/lib/nodestrap", "/run", "/lost+found", BUNDLE];
        found.retain(|path, _| path != "/" && !outside.iter().any(|other| path.starts_with(other)));
        found
    }

    /// Every entry of the wanted tree is here; staged files beside them do no harm.
    pub(crate) fn has(&self, wanted: &BTreeMap<String, String>) -> bool {
        let found = self.tree();
        wanted.iter().all(|(path, entry)| found.get(path) == Some(entry))
    }
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
