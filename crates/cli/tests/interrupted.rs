//! The real binary, killed or failed at every system call that changes a file: the next run makes the same node.
//!
//! strace does the harm. It counts calls for each thread and each kind of call, so every kind is walked through on its
//! own until a run goes by unharmed. The sandboxes lie in memory where that is possible: what is durable is proved in
//! `crates/node/tests/crash.rs`, what is left behind by a death at any instant is proved here.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use support::{BINARY, GATE, Ran, Sandbox, can_run, finish, program, text};

/// Calls that change files or make changes last. Opening with `O_CREAT` cannot be told from other opens; the write that
/// follows stands for it.
const CHANGING: [&str; 17] = [
    "write",
    "pwrite64",
    "mkdirat",
    "unlinkat",
    "renameat",
    "renameat2",
    "rename",
    "symlinkat",
    "linkat",
    "ftruncate",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fsync",
    "fdatasync",
    "syncfs",
];

/// Runs at the same time: most of a traced run is waiting.
const AT_ONCE: usize = 4;

/// No kind of call is made so often; a walk beyond it does not end by itself.
const MOST: u32 = 200;

/// As much memory as a few sandboxes, or the usual place.
fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && tempfile::tempdir_in(memory).is_ok() { memory.to_owned() } else { std::env::temp_dir() }
}

fn traced(sandbox: &Sandbox, log: &Path, options: &[&str]) -> Ran {
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-o"]).arg(log).args(options).arg(BINARY);
    strace.args(sandbox.arguments("apply", &["--progress=none"]));
    finish(strace)
}

/// The kinds of call that an apply really makes.
fn calls_in_use(place: &Path) -> Vec<&'static str> {
    let sandbox = Sandbox::delivered_in(place);
    let log = tempfile::NamedTempFile::new().unwrap();
    traced(&sandbox, log.path(), &["-e", &format!("trace={}", CHANGING.join(","))]).expect(0);
    let traced = text(log.path());
    CHANGING.into_iter().filter(|call| traced.contains(&format!(" {call}("))).collect()
}

struct Harm {
    call: &'static str,
    /// As strace writes it.
    what: &'static str,
}

/// Walks through all places of one harm, and says how many there were.
fn walk(place: &Path, whole: &BTreeMap<String, String>, harm: &Harm) -> u32 {
    let Harm { call, what } = harm;
    for number in 1..=MOST {
        let sandbox = Sandbox::delivered_in(place);
        let log = tempfile::NamedTempFile::new().unwrap();
        let inject = format!("inject={call}:{what}:when={number}");
        let ran = traced(&sandbox, log.path(), &["-e", &format!("trace={call}"), "-e", &inject]);
        let log = text(log.path());
        let killed = ran.signal.is_some() || ran.code == Some(128 + 9) || log.contains("killed by SIGKILL");
        let failed = log.contains("(INJECTED)");
        if !killed {
            assert!(matches!(ran.code, Some(0 | 4)), "{inject}: {ran:?}");
        }
        judge(&sandbox, whole, &ran, &inject);
        if !killed && !failed {
            return number - 1;
        }
    }
    panic!("{call} has no end");
}

fn judge(sandbox: &Sandbox, whole: &BTreeMap<String, String>, ran: &Ran, harm: &str) {
    let vouched = sandbox.exists(GATE);
    if ran.code == Some(0) {
        assert!(vouched, "{harm}: success without a gate: {ran:?}");
    }
    if vouched {
        let tree = sandbox.tree();
        for (path, entry) in whole {
            assert_eq!(tree.get(path), Some(entry), "{harm}: the gate is open, but {path} is not as planned");
        }
        assert_eq!(sandbox.run("gate", &[]).code, Some(0), "{harm}: the gate is there and damaged");
    }
    let status = sandbox.run("status", &["--brief"]);
    assert!(matches!(status.code, Some(0 | 4)), "{harm}: {status:?}");
    let again = sandbox.run("apply", &["--progress=none"]);
    assert_eq!(again.code, Some(0), "{harm}: the next run: {again:?}");
    assert_eq!(&sandbox.tree(), whole, "{harm}: another tree after the next run");
    assert_eq!(sandbox.run("gate", &[]).code, Some(0), "{harm}");
    let third = sandbox.run("apply", &["--progress=none"]);
    assert!(third.code == Some(0) && third.out.contains("nothing to do"), "{harm}: {third:?}");
}

fn walk_all(what: &'static str, calls: impl Fn(&str) -> bool) {
    if !can_run("strace") {
        return;
    }
    let place = place();
    let undisturbed = Sandbox::delivered_in(&place);
    undisturbed.run("apply", &["--progress=none"]).expect(0);
    let whole = undisturbed.tree();
    let in_use = calls_in_use(&place);
    assert!(in_use.contains(&"write") && in_use.contains(&"renameat") && in_use.contains(&"syncfs"), "{in_use:?}");
    let todo: Mutex<Vec<Harm>> =
        Mutex::new(in_use.into_iter().filter(|call| calls(call)).map(|call| Harm { call, what }).collect());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(harm) = todo.lock().unwrap().pop() else { break };
                    let places = walk(&place, &whole, &harm);
                    done.lock().unwrap().push((harm.call, places));
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    eprintln!("{what}: {done:?}");
    assert!(done.iter().all(|(_, places)| *places > 0), "{done:?}");
}

#[test]
fn a_kill_at_any_change_resumes_to_the_same_node() {
    walk_all("signal=SIGKILL", |_| true);
}

#[test]
fn a_disk_error_at_any_change_is_survived() {
    walk_all("error=EIO", |_| true);
}

#[test]
fn a_full_disk_at_any_change_is_survived() {
    walk_all("error=ENOSPC", |call| !["unlinkat", "fchownat", "fchmod"].contains(&call));
}
