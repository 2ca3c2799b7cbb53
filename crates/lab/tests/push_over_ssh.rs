//! `nodestrap push` by the real ssh to a real sshd on loopback, with keys and a configuration of the test's own; and beside it what
//! Terraform's provisioners `file` and `remote-exec` do: scp, then a command.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::sandbox::{Times, entries};
use tempfile::TempDir;

const TARGET: &str = "node/opt/tectonic";
const STAGED: &str = "node/opt/.tectonic.nodestrap-new";
/// The account that sshd gives its unprivileged half, and the folder that it wants empty; both in a mount namespace of its own.
const START: &str = "mount --bind \"$1\" /etc/passwd; mount -t tmpfs none /run; mkdir -m 755 /run/sshd; \
                     export LD_LIBRARY_PATH=\"$2\"; exec \"$3\" -D -e -f \"$4\"";
const SOON: Duration = Duration::from_secs(60);

fn nodestrap() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// An sshd, what it lets in, a folder to push, and a folder that stands for the node: the nodestrap that sshd finds works on that.
struct Scene {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
    sshd: Child,
}

impl Scene {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = lab::cache::sshd().expect("sshd").join("root/usr");
        let path = |name: &str| folder.path().join(name);
        for below in ["assets/tls", "node/opt", "bin", "keys"] {
            std::fs::create_dir_all(path(below)).expect("a folder");
        }
        write(&path("assets/bootkube.sh"), "#!/usr/bin/bash\n", 0o755);
        write(&path("assets/tls/ca.key"), "a key", 0o600);
        let at_node = format!("#!/bin/sh\nexec {} \"$@\" --root {}\n", nodestrap().display(), path("node").display());
        write(&path("bin/nodestrap"), &at_node, 0o755);
        for name in ["host", "user"] {
            let mut keygen = Command::new(programs.join("bin/ssh-keygen"));
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path("keys").join(name));
            assert!(keygen.status().expect("ssh-keygen").success());
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let read = |name: &str| std::fs::read_to_string(path(name)).expect("a file");
        write(&path("keys/known_hosts"), &format!("[127.0.0.1]:{port} {}", read("keys/host.pub")), 0o600);
        write(&path("keys/authorized_keys"), &read("keys/user.pub"), 0o600);
        let users = std::fs::read_to_string("/etc/passwd").expect("users");
        let others: String =
            users.lines().filter(|line| !line.starts_with("sshd:")).flat_map(|line| [line, "\n"]).collect();
        write(&path("keys/passwd"), &format!("{others}sshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n"), 0o644);
        let shown = |name: &str| path(name).display().to_string();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n\
             SetEnv PATH={}:/usr/bin:/bin:/usr/sbin:/sbin\n",
            shown("keys/host"),
            shown("keys/authorized_keys"),
            shown("bin"),
        );
        write(&path("keys/sshd_config"), &config, 0o600);
        let libraries = format!("{0}/lib/x86_64-linux-gnu:{0}/lib/aarch64-linux-gnu", programs.display());
        let mut sshd = Command::new("unshare");
        sshd.args(["--mount", "--", "sh", "-ec", START, "sh", &shown("keys/passwd"), &libraries]);
        sshd.arg(programs.join("sbin/sshd")).arg(shown("keys/sshd_config"));
        let log = std::fs::File::create(path("keys/log")).expect("a log");
        let sshd = sshd.stdin(Stdio::null()).stderr(log).spawn().expect("sshd");
        let scene = Self { programs, port, sshd, folder };
        wait("sshd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        scene
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// For ssh and scp, which call the port differently.
    fn options(&self, port: &str) -> Vec<String> {
        let shown = |name: &str| self.path(name).display().to_string();
        let known = format!("UserKnownHostsFile={}", shown("keys/known_hosts"));
        let identity = shown("keys/user");
        let number = self.port.to_string();
        let words = ["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", &known];
        [&words[..], &["-i", &identity, port, &number]].concat().into_iter().map(str::to_owned).collect()
    }

    /// With the ssh of the cache, which need not be installed.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.programs.join("bin").display()));
        command
    }

    fn push_command(&self, options: &[&str]) -> Command {
        let mut push = self.command(&nodestrap());
        push.args(["push", "root@127.0.0.1"]).arg(self.path("assets")).args(options).arg("--").args(self.options("-p"));
        push
    }

    fn push(&self, options: &[&str]) -> Output {
        self.push_command(options).output().expect("a push")
    }

    fn is_as_pushed(&self) -> bool {
        let mut found = entries(&self.path(TARGET), Times::Ignored).expect("what was pushed");
        found.retain(|path, _| !path.ends_with(".nodestrap-pushed"));
        found == entries(&self.path("assets"), Times::Ignored).expect("what there is to push")
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.path("node/opt")).expect("a folder").next().is_none()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

fn write(path: &Path, content: &str, mode: u32) {
    std::fs::write(path, content).expect("a file");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("its mode");
}

#[track_caller]
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

#[test]
fn a_folder_arrives_once_and_the_codes_of_the_node_come_back() {
    if !lab::require() {
        return;
    }
    let scene = Scene::start();
    // More than any buffer on the way.
    std::fs::write(scene.path("assets/large"), vec![7; 20 << 20]).expect("a large file");
    expect(&scene.push(&["-o", "json"]), 0, &["\"published\""]);
    assert!(scene.is_as_pushed());
    expect(&scene.push(&["-o", "json"]), 0, &["\"thereAlready\""]);
    write(&scene.path("assets/bootkube.sh"), "other", 0o755);
    expect(&scene.push(&[]), 4, &["--replace", "exit code 4"]);
    expect(&scene.push(&["--replace", "-o", "json"]), 0, &["\"replaced\""]);
    assert!(scene.is_as_pushed());
    expect(&scene.push(&["--program", "/nowhere/nodestrap"]), 4, &["--program"]);
    write(&scene.path("keys/authorized_keys"), "", 0o600);
    expect(&scene.push(&[]), 3, &["did not reach"]);
}

#[test]
fn a_key_that_may_only_push_does_what_the_node_says() {
    if !lab::require() {
        return;
    }
    let scene = Scene::start();
    let key = std::fs::read_to_string(scene.path("keys/user.pub")).expect("a key");
    let forced = format!("restrict,command=\"nodestrap receive --to /opt/tectonic -o json\" {key}");
    write(&scene.path("keys/authorized_keys"), &forced, 0o600);
    expect(&scene.push(&["--to", "/etc/other", "--program", "/bin/false"]), 0, &["/opt/tectonic"]);
    assert!(scene.is_as_pushed());
    write(&scene.path("assets/bootkube.sh"), "other", 0o755);
    expect(&scene.push(&["--replace"]), 4, &["exit code 4"]);
}

#[test]
fn a_connection_that_breaks_on_the_way_publishes_nothing_and_leaves_nothing() {
    if !lab::require() {
        return;
    }
    let scene = Scene::start();
    std::fs::write(scene.path("assets/large"), vec![7; 256 << 20]).expect("a large file");
    let mut push = scene.push_command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a push");
    wait("the node takes it", || scene.path(STAGED).exists());
    push.kill().expect("it runs");
    push.wait().expect("it has ended");
    wait("the node gives it up", || !scene.path(STAGED).exists());
    assert!(scene.is_empty());
    std::fs::write(scene.path("assets/large"), "small").expect("a small file");
    expect(&scene.push(&["-o", "json"]), 0, &["\"published\""]);
    assert!(scene.is_as_pushed());
}

#[test]
fn what_terraform_copies_and_moves_into_place_is_there_and_no_push_replaces_it() {
    if !lab::require() {
        return;
    }
    let scene = Scene::start();
    let mut scp = scene.command(&scene.programs.join("bin/scp"));
    // It looks for its ssh where Debian installs that.
    scp.arg("-S").arg(scene.programs.join("bin/ssh")).args(scene.options("-P"));
    scp.args(["-q", "-p", "-r"]).arg(scene.path("assets"));
    scp.arg(format!("root@127.0.0.1:{}", scene.path("node/opt/copied").display()));
    expect(&scp.output().expect("scp"), 0, &[]);
    let mut ssh = scene.command(&scene.programs.join("bin/ssh"));
    ssh.args(scene.options("-p")).arg("root@127.0.0.1");
    ssh.arg(format!("mv {} {}", scene.path("node/opt/copied").display(), scene.path(TARGET).display()));
    expect(&ssh.output().expect("ssh"), 0, &[]);
    assert!(scene.is_as_pushed());
    expect(&scene.push(&["--replace"]), 4, &["no push has brought it"]);
    assert!(scene.is_as_pushed());
}
