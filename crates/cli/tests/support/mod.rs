//! The binary as people run it, a folder that stands for a machine, and goldens.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "each test file uses its part; tests own their effects and may panic"
)]

pub(crate) mod harm;
pub(crate) mod openpgp;
pub(crate) mod trees;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub(crate) use lab::sandbox::Times;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_nodestrap");
pub(crate) const GATE: &str = "/etc/kubernetes/kubelet.env";
pub(crate) const JOURNAL: &str = "/var/lib/nodestrap/journal";
pub(crate) const BUNDLE: &str = "/etc/nodestrap/bundle.json";

/// Of `examples/minimal.yaml`.
pub(crate) const TOKEN_OF_EXAMPLE: &str = "0123456789abcdef";

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}", self.out))
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in stderr:\n{}", self.err);
        }
    }
}

pub(crate) fn finish(mut command: Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Ran {
        code: output.status.code(),
        signal: output.status.signal(),
        out: String::from_utf8(output.stdout).expect("standard output is text"),
        err: String::from_utf8(output.stderr).expect("standard error is text"),
    }
}

/// A command that does not depend on who runs the tests.
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LC_ALL", "C");
    command
}

pub(crate) fn nodestrap<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let mut command = program(BINARY);
    command.args(arguments);
    finish(command)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const NOBODY: u32 = 65534;

/// The same without root's powers; it may write what lies in a [`Sandbox::for_nobody`].
pub(crate) fn nodestrap_as_nobody<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    if !is_root() {
        return nodestrap(arguments);
    }
    // The build folder may lie in a home that nobody else may enter.
    static COPY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, binary) = COPY.get_or_init(|| {
        let folder = open_folder();
        let copy = folder.path().join("nodestrap");
        // By another process: a test that forks while we hold the copy open for writing would make it "busy".
        let mut cp = program("cp");
        cp.args([OsStr::new(BINARY), copy.as_os_str()]);
        finish(cp).expect(0);
        (folder, copy)
    });
    let mut command = program("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary).args(arguments);
    finish(command)
}

/// A temporary folder that everybody may enter.
pub(crate) fn open_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

pub(crate) fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// The bundle of the example, as `render` writes it.
pub(crate) fn bundle() -> &'static str {
    static BUNDLE: OnceLock<String> = OnceLock::new();
    BUNDLE.get_or_init(|| {
        let file = example("minimal.yaml");
        nodestrap([OsStr::new("render"), file.as_os_str(), OsStr::new("--format=bundle")]).expect(0).out
    })
}

/// A bundle of the same group for another API server.
pub(crate) fn other_bundle() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, text(example("minimal.yaml")).replace("10.0.0.10", "10.0.0.20")).unwrap();
    nodestrap([OsStr::new("render"), file.as_os_str(), OsStr::new("--format=bundle")]).expect(0).out
}

/// A machine as its vendor delivers it, in a folder: an operating system and the programs that the bundle counts on.
pub(crate) struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    /// The image alone.
    pub(crate) fn image() -> Self {
        Self::image_in(&std::env::temp_dir())
    }

    pub(crate) fn image_in(place: &Path) -> Self {
        let sandbox = Self { folder: tempfile::tempdir_in(place).unwrap() };
        sandbox.chmod("/", 0o755);
        lab::sandbox::write_image(sandbox.root(), bundle()).unwrap();
        sandbox
    }

    /// The image with the example's bundle where a delivery puts it.
    pub(crate) fn delivered() -> Self {
        Self::delivered_in(&std::env::temp_dir())
    }

    pub(crate) fn delivered_in(place: &Path) -> Self {
        let sandbox = Self::image_in(place);
        sandbox.deliver(bundle());
        sandbox
    }

    /// The same machine once more, by the same owner: much quicker than another `apply`.
    pub(crate) fn copied_to(&self, place: &Path) -> Self {
        let copy = Self { folder: tempfile::tempdir_in(place).unwrap() };
        copy_folder(self.root(), copy.root());
        copy
    }

    /// One that a user without powers owns.
    pub(crate) fn for_nobody() -> Self {
        let sandbox = Self::delivered();
        if is_root() {
            let mut chown = program("chown");
            chown.arg("-R").arg(format!("{NOBODY}:{NOBODY}")).arg(sandbox.root());
            finish(chown).expect(0);
        }
        sandbox
    }

    pub(crate) fn applied() -> Self {
        let sandbox = Self::delivered();
        sandbox.run("apply", &["--progress=none"]).expect(0);
        sandbox
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(crate) fn deliver(&self, bundle: &str) {
        self.write(BUNDLE, bundle);
        self.chmod(BUNDLE, 0o600);
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).unwrap();
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        self.path(path).metadata().unwrap().permissions().mode() & 0o7777
    }

    /// A command with `--root` on this sandbox.
    pub(crate) fn run(&self, command: &str, more: &[&str]) -> Ran {
        nodestrap(self.arguments(command, more))
    }

    pub(crate) fn run_as_nobody(&self, command: &str, more: &[&str]) -> Ran {
        nodestrap_as_nobody(self.arguments(command, more))
    }

    pub(crate) fn arguments(&self, command: &str, more: &[&str]) -> Vec<String> {
        let mut arguments = vec![command.to_owned(), "--root".to_owned(), self.root().display().to_string()];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        arguments
    }

    /// Everything, with modes, owners and times: two equal ones mean that nothing was touched.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, String> {
        entries(self.root(), Times::Seen)
    }

    /// What a node is made of: no times, nothing that tells of the way it came to be.
    pub(crate) fn tree(&self) -> BTreeMap<String, String> {
        let mut tree = entries(self.root(), Times::Ignored);
        tree.retain(|path, _| !path.starts_with("/var/lib/nodestrap") && !path.starts_with("/run"));
        tree
    }
}

impl Sandbox {
    /// What a node is made of and where it was delivered from, without the folders that its story lies in: equal ones mean that
    /// nothing but the story was written.
    pub(crate) fn without_story(&self) -> BTreeMap<String, String> {
        let mut tree = self.tree();
        tree.retain(|path, _| !["/var", "/var/lib"].contains(&path.as_str()));
        tree
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
        let to = to.join(from.file_name().unwrap());
        if kind.is_symlink() {
            std::os::unix::fs::symlink(from.read_link().unwrap(), &to).unwrap();
        } else if kind.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_folder(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
    std::fs::set_permissions(to, from.metadata().unwrap().permissions()).unwrap();
}

pub(crate) fn entries(root: &Path, times: Times) -> BTreeMap<String, String> {
    lab::sandbox::entries(root, times).unwrap()
}

/// Compares with a file under `golden/`; `UPDATE_GOLDEN=1` writes it instead.
#[track_caller]
pub(crate) fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{} differs; UPDATE_GOLDEN=1 accepts:\n{actual}", path.display());
}

/// Whether a program that a test needs is there. In CI a test must not be skipped unseen.
pub(crate) fn can_run(tool: &str) -> bool {
    let mut command = program(tool);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let there = command.status().is_ok_and(|status| status.success());
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(there || !in_ci, "{tool} is not installed, and CI must not skip this test");
    if !there {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    there
}
