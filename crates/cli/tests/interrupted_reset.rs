//! The real binary, killed or failed at every system call of a `reset` that changes a file: the next one ends in the machine
//! that was there before. As `interrupted.rs` does with `apply`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use support::harm::{self, Harmed};
use support::{GATE, Sandbox, Times, can_run, entries};

const CONTAINERD: &str = "/etc/containerd/config.toml";
const CALLS: [&str; 7] = ["write", "mkdirat", "unlinkat", "renameat", "fsync", "syncfs", "fchmod"];
const RESET: &[&str] = &["--yes", "--progress=none"];

/// A machine with a file of its own where one of ours goes, bootstrapped; and what it was before.
fn applied() -> (Sandbox, BTreeMap<String, String>) {
    let sandbox = Sandbox::delivered_in(&harm::place());
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

fn judge(sandbox: &Sandbox, harmed: &Harmed, before: &BTreeMap<String, String>) {
    let Harmed { how: harm, ran, .. } = harmed;
    assert!(harmed.is_killed || matches!(ran.code, Some(0 | 4)), "{harm}: {ran:?}");
    if sandbox.exists(GATE) {
        assert_eq!(sandbox.run("verify", &[]).code, Some(0), "{harm}: the gate is open on what is half undone");
    }
    sandbox.run("reset", RESET).expect(0);
    let found = bare(sandbox);
    assert!(found == *before, "{harm}: not as before: {:?}", found.keys().collect::<Vec<_>>());
}

fn walk_all(what: &str, calls: &[&'static str]) {
    if !can_run("strace") {
        return;
    }
    let (applied, before) = applied();
    let begin = || {
        let sandbox = applied.copied_to(&harm::place());
        let arguments = sandbox.arguments("reset", RESET);
        (sandbox, arguments)
    };
    let judge = |sandbox: &Sandbox, harmed: &Harmed| judge(sandbox, harmed, &before);
    let walk = |call: &'static str| harm::walk((call, what, 1), begin, judge);
    let places: Vec<(&str, u32)> = std::thread::scope(|scope| {
        let walks: Vec<_> = calls.iter().map(|call| (*call, scope.spawn(|| walk(call)))).collect();
        walks.into_iter().map(|(call, walk)| (call, walk.join().unwrap())).collect()
    });
    eprintln!("{what}: {places:?}");
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
