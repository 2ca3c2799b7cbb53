//! The real binary, killed or failed at every system call of a `reset` that changes a file: the next one ends in the machine
//! that was there before. As `interrupted.rs` does with `apply`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{BINARY, GATE, Ran, Sandbox, Times, can_run, entries, finish, program, text};

const CONTAINERD: &str = "/etc/containerd/config.toml";
const CALLS: [&str; 7] = ["write", "mkdirat", "unlinkat", "renameat", "fsync", "syncfs", "fchmod"];
/// No kind of call is made so often; a walk beyond it does not end by itself.
const MOST: u32 = 400;

/// A machine with a file of its own where one of ours goes, bootstrapped; and what it was before.
fn applied(place: &Path) -> (Sandbox, BTreeMap<String, String>) {
    let sandbox = Sandbox::delivered_in(place);
    sandbox.write(CONTAINERD, "version = 1 # mine\n");
    sandbox.chmod(CONTAINERD, 0o640);
    let before = bare(&sandbox);
    sandbox.run("apply", &["--progress=none"]).expect(0);
    (sandbox, before)
}

fn bare(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let mut tree = entries(sandbox.root(), Times::Ignored);
    tree.retain(|path, _| !path.starts_with("/run") && path != "/var" && path != "/var/lib");
    tree
}

fn traced(sandbox: &Sandbox, log: &Path, call: &str, inject: &str) -> Ran {
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-o"]).arg(log).args(["-e", &format!("trace={call}"), "-e", inject]).arg(BINARY);
    strace.args(sandbox.arguments("reset", &["--yes", "--progress=none"]));
    finish(strace)
}

/// How many places there were.
fn walk(call: &str, harm: &str) -> u32 {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let (mut places, mut unharmed) = (0, 0);
    for number in 1..=MOST {
        let (sandbox, before) = applied(&place);
        let log = tempfile::NamedTempFile::new().unwrap();
        let inject = format!("inject={call}:{harm}:when={number}");
        let ran = traced(&sandbox, log.path(), call, &inject);
        let log = text(log.path());
        let harmed = ran.signal.is_some() || log.contains("killed by SIGKILL") || log.contains("(INJECTED)");
        if ran.signal.is_none() && !log.contains("killed by SIGKILL") {
            assert!(matches!(ran.code, Some(0 | 4)), "{inject}: {ran:?}");
        }
        if sandbox.exists(GATE) {
            assert_eq!(sandbox.run("verify", &[]).code, Some(0), "{inject}: the gate is open on what is half undone");
        }
        sandbox.run("reset", &["--yes", "--progress=none"]).expect(0);
        let found = bare(&sandbox);
        assert!(found == before, "{inject}: not as before: {:?}", found.keys().collect::<Vec<_>>());
        places += u32::from(harmed);
        unharmed += u32::from(!harmed);
        // Threads share the work differently each time: one run that goes by proves little.
        if unharmed == 2 {
            return places;
        }
    }
    panic!("{call} has no end");
}

fn walk_all(harm: &str, calls: &[&'static str]) {
    if !can_run("strace") {
        return;
    }
    let places: Vec<(&str, u32)> = std::thread::scope(|scope| {
        let walks: Vec<_> = calls.iter().map(|call| (*call, scope.spawn(move || walk(call, harm)))).collect();
        walks.into_iter().map(|(call, walk)| (call, walk.join().unwrap())).collect()
    });
    eprintln!("{harm}: {places:?}");
    let count = |wanted: &str| places.iter().find(|(call, _)| *call == wanted).map_or(0, |(_, count)| *count);
    assert!(count("unlinkat") > 10 && count("fsync") > 10, "{places:?}");
}

#[test]
fn a_kill_at_any_change_is_resumed() {
    walk_all("signal=SIGKILL", &CALLS);
}

#[test]
fn a_disk_error_at_any_change_is_survived() {
    walk_all("error=EIO", &["write", "unlinkat", "renameat", "fsync", "syncfs"]);
}
