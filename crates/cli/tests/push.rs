//! `push` and `receive`: a folder goes from here to a node, by something that passes for ssh. crates/lab/tests has a real one.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use support::{BINARY, Ran, Times, can_run, entries, finish, program, text};
use tempfile::TempDir;

const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A folder to push, a folder that stands for the node, and what stands for ssh: a shell here that runs what it is told.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        for below in ["assets/tls", "node/opt", "bin"] {
            std::fs::create_dir_all(scene.path(below)).unwrap();
        }
        scene.write("assets/bootkube.sh", "#!/usr/bin/bash\n", 0o755);
        scene.write("assets/tls/ca.key", "a key", 0o600);
        let node = scene.path("node").display().to_string();
        scene.write(
            "bin/ssh",
            &format!("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"$* --root {node}\"\n"),
            0o755,
        );
        std::os::unix::fs::symlink(BINARY, scene.path("bin/nodestrap")).unwrap();
        scene
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn write(&self, below: &str, content: &str, mode: u32) {
        std::fs::write(self.path(below), content).unwrap();
        std::fs::set_permissions(self.path(below), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Something else in the place of ssh.
    fn ssh(&self, script: &str) {
        self.write("bin/ssh", &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    fn push(&self, options: &[&str]) -> Ran {
        let mut command = program(BINARY);
        command.env("PATH", format!("{}:{USUAL_PATH}", self.path("bin").display()));
        command.args(["push", "core@node"]).arg(self.path("assets")).args(options);
        finish(command)
    }

    fn pushed(&self) -> BTreeMap<String, String> {
        let mut tree = entries(&self.path("node/opt/tectonic"), Times::Ignored);
        tree.retain(|path, _| !path.ends_with(".nodestrap-pushed"));
        tree
    }

    fn assets(&self) -> BTreeMap<String, String> {
        entries(&self.path("assets"), Times::Ignored)
    }

    fn in_opt(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.path("node/opt")).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn a_folder_is_pushed_once_and_replaced_only_when_that_is_said() {
    let scene = Scene::new();
    let first = scene.push(&["-o", "json"]).expect(0).json();
    assert_eq!((&first["outcome"], &first["files"]), (&"published".into(), &2.into()), "{first}");
    assert_eq!(scene.pushed(), scene.assets());
    let again = scene.push(&[]).expect(0);
    assert!(again.out.contains("nothing to do"), "{again:?}");
    scene.write("assets/bootkube.sh", "#!/usr/bin/bash\nexit 0\n", 0o755);
    scene.push(&[]).expect(4).says(&["--replace", "/opt/tectonic"]);
    assert_ne!(scene.pushed(), scene.assets());
    let replaced = scene.push(&["--replace", "-o", "json"]).expect(0).json();
    assert_eq!(replaced["outcome"], "replaced");
    assert_eq!(scene.pushed(), scene.assets());
    assert_eq!(scene.in_opt(), ["tectonic"]);
}

#[test]
fn what_is_there_by_others_stays() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("node/opt/tectonic")).unwrap();
    scene.write("node/opt/tectonic/passwd", "root", 0o644);
    for options in [&[][..], &["--replace"]] {
        scene.push(options).expect(4).says(&["no push has brought it"]);
    }
    assert_eq!(text(scene.path("node/opt/tectonic/passwd")), "root");
}

#[test]
fn progress_is_told_in_bytes_and_secrets_are_in_no_argument() {
    let scene = Scene::new();
    scene.ssh(&format!(
        "echo \"$@\" > {0}/arguments; exec {BINARY} receive -o json --root {0}/node",
        scene.folder.path().display()
    ));
    let ran =
        scene.push(&["--progress=plain", "--sudo", "--program", "/opt/bin/nodestrap", "--", "-p", "2222"]).expect(0);
    ran.says(&["sent "]);
    assert_eq!(
        text(scene.path("arguments")),
        "-p 2222 -- core@node sudo -n /opt/bin/nodestrap receive --to /opt/tectonic -o json\n"
    );
    assert_eq!(scene.push(&["--progress=none"]).expect(0).err, "");
}

#[test]
fn the_code_of_the_node_is_passed_on_and_that_of_ssh_means_try_again() {
    for (script, code, words) in [
        ("exit 255", 3, "did not reach"),
        ("exit 127", 4, "--program"),
        ("cat > /dev/null; exit 5", 5, "exit code 5"),
        ("cat > /dev/null; exit 2", 2, "exit code 2"),
        ("cat > /dev/null; exit 77", 4, "exit code 77"),
        ("kill -9 $$", 3, "killed"),
        // Something that is no nodestrap is content with everything.
        ("cat > /dev/null; exit 0", 4, "did not answer"),
        (
            "cat > /dev/null; echo '{\"folder\": \"/\", \"digest\": \"sha256:00\", \"outcome\": \"published\"}'",
            4,
            "another push",
        ),
    ] {
        let scene = Scene::new();
        scene.ssh(script);
        scene.push(&[]).expect(code).says(&[words]);
    }
    let scene = Scene::new();
    std::fs::remove_file(scene.path("bin/ssh")).unwrap();
    let mut command = program(BINARY);
    command.env("PATH", scene.path("bin")).args(["push", "node"]).arg(scene.path("assets"));
    finish(command).expect(4).says(&["openssh-client"]);
}

#[test]
fn what_is_wrong_here_is_told_before_anybody_is_asked() {
    let scene = Scene::new();
    scene.ssh("echo asked > asked; exit 9");
    std::os::unix::fs::symlink("/etc/shadow", scene.path("assets/link")).unwrap();
    scene.push(&[]).expect(2).says(&["assets/link", "is a link"]);
    for wrong in [&["--to", "opt"][..], &["--to", "/opt/$(id)"], &["--program", "a b"]] {
        scene.push(wrong).expect(2);
    }
    let mut command = program(BINARY);
    command.args(["push", "-oProxyCommand=id", "."]);
    finish(command).expect(2);
    assert!(!Path::new("asked").exists());
}

/// What `push` sends.
fn recorded(scene: &Scene) -> Vec<u8> {
    scene.ssh(&format!("cat > {}/stream", scene.folder.path().display()));
    scene.push(&[]).expect(4);
    std::fs::read(scene.path("stream")).unwrap()
}

fn receive(scene: &Scene, stream: &[u8]) -> Option<i32> {
    let mut command = program(BINARY);
    command.arg("receive").arg("--root").arg(scene.path("node"));
    let mut receive = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Whoever has seen enough does not read on.
    let _ = receive.stdin.take().unwrap().write_all(stream);
    receive.wait().unwrap().code()
}

#[test]
fn the_real_receiver_publishes_no_part_wherever_it_is_cut() {
    let scene = Scene::new();
    let stream = recorded(&scene);
    for length in (0..stream.len()).step_by(97) {
        assert_eq!(receive(&scene, &stream[..length]), Some(3), "cut after {length} bytes");
        assert_eq!(scene.in_opt(), Vec::<String>::new(), "cut after {length} bytes");
    }
    assert_eq!(receive(&scene, &stream), Some(0));
    assert_eq!(scene.pushed(), scene.assets());
}

/// Kills it at the n-th call of each kind that changes something, until it is no longer reached.
#[test]
fn the_real_receiver_is_killed_at_every_change_and_the_next_one_ends_well() {
    if !can_run("strace") {
        return;
    }
    let scene = Scene::new();
    let stream = recorded(&scene);
    let mut places = 0;
    for call in ["mkdirat", "openat2", "openat", "write", "fchmod", "syncfs", "fsync", "renameat", "unlinkat", "flock"]
    {
        for number in 1.. {
            let _ = std::fs::remove_dir_all(scene.path("node/opt/tectonic"));
            let harm = format!("inject={call}:signal=SIGKILL:when={number}");
            let mut strace = program("strace");
            strace.args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &format!("trace={call}"),
                "-e",
                &harm,
                BINARY,
                "receive",
            ]);
            strace.arg("--root").arg(scene.path("node")).stdin(std::fs::File::open(scene.path("stream")).unwrap());
            let ended = strace.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            if scene.path("node/opt/tectonic").exists() {
                assert_eq!(scene.pushed(), scene.assets(), "{harm}");
            }
            assert_eq!(receive(&scene, &stream), Some(0), "{harm}: the next push");
            assert_eq!(scene.pushed(), scene.assets(), "{harm}");
            assert_eq!(scene.in_opt(), ["tectonic"], "{harm}");
            if ended.code() == Some(0) {
                break;
            }
            places += 1;
        }
    }
    assert!(places > 40, "{places}");
}
