//! The real binary, killed or failed at every system call: the next run makes the same node.
//!
//! strace does the harm. It counts calls for each thread and each kind of call, so every kind is walked through on its
//! own until runs go by unharmed. Calls that change files are all taken. Of those that do not, every fifth of each kind
//! is: what a death leaves on the disk is the same anywhere between two changes. The sandboxes lie in memory where that
//! is possible: what is durable is proved in `crates/node/tests/crash.rs`, what is left behind by a death at any instant
//! is proved here.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;

use support::harm::{Harmed, place, traced, walk};
use support::trees;
use support::{BUNDLE, GATE, Ran, Sandbox, can_run, other_bundle, text};

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

/// A signal may end these early, and they are then to be called again: nobody may hear of it.
const RESTARTABLE: [&str; 9] =
    ["openat2", "read", "write", "fsync", "fdatasync", "syncfs", "flock", "ftruncate", "getrandom"];

/// Calls that read and can fail on a disk that does.
const READING: [&str; 8] = ["openat2", "read", "statx", "newfstatat", "fstat", "getdents64", "readlinkat", "flock"];

/// A death in these says nothing: the program has not begun, or has ended.
const OUTSIDE: [&str; 4] = ["execve", "exit_group", "exit", "restart_syscall"];

const APPLY: &[&str] = &["--progress=none"];

/// Runs at the same time: most of a traced run is waiting.
const AT_ONCE: usize = 4;

/// The kinds of call that an apply really makes, sorted.
fn calls_in_use(story: &Story) -> Vec<String> {
    let (_sandbox, arguments) = story.begin();
    let (ran, traced) = traced(&arguments, &[]);
    ran.expect(0);
    let name = |line: &str| line.split_whitespace().nth(1)?.split_once('(').map(|(name, _)| name.to_owned());
    let is_name =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let calls: BTreeSet<String> = traced.lines().filter_map(name).filter(is_name).collect();
    calls.into_iter().filter(|call| !OUTSIDE.contains(&call.as_str())).collect()
}

/// Where a node is before the run that is disturbed, and after it.
struct Story {
    place: PathBuf,
    start: Start,
    before: Sandbox,
    /// The tree that the first bundle makes, and the one that the last makes: the same on a first boot.
    old: BTreeMap<String, String>,
    new: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Start {
    FirstBoot,
    /// The node is complete, and another bundle was delivered.
    OtherBundle,
    /// The node is complete, and somebody has edited a file of it.
    Edited,
    /// A first boot that brings programs.
    Trees,
}

impl Story {
    fn new(start: Start) -> Self {
        let place = place();
        let begin = || match start {
            Start::Trees => {
                let sandbox = Sandbox::image_in(&place);
                trees::deliver(&sandbox, "1.36.3");
                sandbox
            }
            _ => Sandbox::delivered_in(&place),
        };
        let before = begin();
        if matches!(start, Start::OtherBundle | Start::Edited) {
            before.run("apply", APPLY).expect(0);
        }
        match start {
            Start::FirstBoot | Start::Trees => {}
            Start::OtherBundle => before.deliver(&other_bundle()),
            Start::Edited => before.write("/etc/containerd/config.toml", "edited"),
        }
        let undisturbed = begin();
        undisturbed.run("apply", APPLY).expect(0);
        let old = tree(&undisturbed);
        if start == Start::OtherBundle {
            undisturbed.deliver(&other_bundle());
            undisturbed.run("apply", APPLY).expect(0);
            assert_ne!(tree(&undisturbed), old);
        }
        Self { place, start, before, old, new: tree(&undisturbed) }
    }

    /// A machine, and what to run on it.
    fn begin(&self) -> (Sandbox, Vec<String>) {
        let sandbox = self.before.copied_to(&self.place);
        let arguments = sandbox.arguments("apply", APPLY);
        (sandbox, arguments)
    }
}

/// Without the bundle, which the delivery brings and not we.
fn tree(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let mut tree = sandbox.tree();
    tree.remove(BUNDLE);
    tree
}

struct Harm {
    call: String,
    /// Each, or every fifth, and so on.
    every: usize,
    /// How a run may end that was not killed.
    may_end: &'static [i32],
}

/// The dynamic loader of the test binary was hit, before the first line of ours.
fn never_began(ran: &Ran) -> bool {
    ran.code == Some(127) && ran.err.contains("error while loading shared libraries")
}

fn judge(story: &Story, sandbox: &Sandbox, harmed: &Harmed, may_end: &[i32]) {
    let Harmed { how: harm, ran, .. } = harmed;
    let ends_well = ran.code.is_some_and(|code| may_end.contains(&code));
    assert!(harmed.is_killed || ends_well || never_began(ran), "{harm}: {ran:?}");
    if ran.code == Some(0) {
        assert!(sandbox.exists(GATE), "{harm}: success without a gate: {ran:?}");
    }
    // A gate cannot know of an edit; it is shut for another plan only.
    if sandbox.exists(GATE) && story.start != Start::Edited {
        assert_eq!(sandbox.run("gate", &[]).code, Some(0), "{harm}: the gate is there and damaged");
        // What lies beside the files of a node does no harm to it: staged files that were never switched in.
        let found = tree(sandbox);
        let is_whole =
            |wanted: &BTreeMap<String, String>| wanted.iter().all(|(path, entry)| found.get(path) == Some(entry));
        assert!(
            is_whole(&story.old) || is_whole(&story.new),
            "{harm}: the gate is open on a tree that is neither: {found:#?}"
        );
    }
    let status = sandbox.run("status", &["--brief"]);
    assert!(matches!(status.code, Some(0 | 4)), "{harm}: {status:?}");
    let again = sandbox.run("apply", APPLY);
    assert_eq!(again.code, Some(0), "{harm}: the next run: {again:?}");
    assert_eq!(tree(sandbox), story.new, "{harm}: another tree after the next run");
    assert_eq!(sandbox.run("gate", &[]).code, Some(0), "{harm}");
    if story.start == Start::Edited {
        let books = text(sandbox.path("/run/nodestrap/stand-in-units.json"));
        let books: serde_json::Value = serde_json::from_str(&books).unwrap();
        let restarts = books["units"]["containerd.service"]["restarts"].as_u64();
        assert!(restarts > Some(1), "{harm}: containerd still runs with the edited file: {books}");
    }
    let third = sandbox.run("apply", APPLY);
    assert!(third.code == Some(0) && third.out.contains("nothing to do"), "{harm}: {third:?}");
}

/// Which calls are harmed, how often, and how a run may end then.
type Choice = fn(&str) -> Option<(usize, &'static [i32])>;

fn walk_all(start: Start, what: &'static str, choose: Choice) {
    if !can_run("strace") {
        return;
    }
    let story = Story::new(start);
    let in_use = calls_in_use(&story);
    let uses = |call: &str| in_use.iter().any(|used| used == call);
    assert!(uses("write") && uses("renameat") && uses("syncfs") && uses("openat2"), "{in_use:?}");
    let harm = |call: String| choose(&call).map(|(every, may_end)| Harm { call, every, may_end });
    let todo: Mutex<Vec<Harm>> = Mutex::new(in_use.into_iter().filter_map(harm).collect());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(harm) = todo.lock().unwrap().pop() else { break };
                    let judge = |sandbox: &Sandbox, harmed: &Harmed| judge(&story, sandbox, harmed, harm.may_end);
                    let places = walk((&harm.call, what, harm.every), || story.begin(), judge);
                    done.lock().unwrap().push((harm.call, places));
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    eprintln!("{what}: {} places: {done:?}", done.iter().map(|(_, places)| places).sum::<u32>());
    assert!(done.iter().all(|(_, places)| *places > 0), "{done:?}");
}

fn changes(call: &str) -> bool {
    CHANGING.contains(&call)
}

#[test]
fn a_kill_at_any_call_resumes_to_the_same_node() {
    walk_all(Start::FirstBoot, "signal=SIGKILL", |call| Some((if changes(call) { 1 } else { 5 }, &[0])));
}

#[test]
fn a_kill_on_the_way_to_another_bundle_leaves_the_old_node_or_the_new_one_or_a_shut_gate() {
    walk_all(Start::OtherBundle, "signal=SIGKILL", |call| Some((if changes(call) { 1 } else { 25 }, &[0])));
}

#[test]
fn a_kill_while_an_edited_file_is_put_back_forgets_no_restart() {
    walk_all(Start::Edited, "signal=SIGKILL", |call| changes(call).then_some((1, &[0])));
}

#[test]
fn a_kill_while_programs_are_fetched_unpacked_or_switched_in_resumes_to_the_same_node() {
    walk_all(Start::Trees, "signal=SIGKILL", |call| changes(call).then_some((1, &[0])));
}

#[test]
fn a_disk_error_at_any_change_is_survived() {
    walk_all(Start::FirstBoot, "error=EIO", |call| changes(call).then_some((1, &[0, 4])));
}

#[test]
fn a_disk_error_on_the_way_to_another_bundle_is_survived() {
    walk_all(Start::OtherBundle, "error=EIO", |call| changes(call).then_some((3, &[0, 4])));
}

/// A bundle that cannot be read is wrong input, as far as anybody can tell.
#[test]
fn a_disk_that_cannot_be_read_is_survived() {
    walk_all(Start::FirstBoot, "error=EIO", |call| READING.contains(&call).then_some((3, &[0, 2, 3, 4])));
}

#[test]
fn a_full_disk_at_any_change_is_survived() {
    walk_all(Start::FirstBoot, "error=ENOSPC", |call| {
        (changes(call) && !["unlinkat", "fchownat", "fchmod"].contains(&call)).then_some((1, &[0, 4]))
    });
}

#[test]
fn a_read_only_disk_at_any_change_is_survived() {
    walk_all(Start::FirstBoot, "error=EROFS", |call| {
        (changes(call) && !["write", "fsync", "syncfs"].contains(&call)).then_some((2, &[0, 4]))
    });
}

#[test]
fn nobody_hears_of_a_call_that_a_signal_interrupted() {
    walk_all(Start::FirstBoot, "error=EINTR", |call| RESTARTABLE.contains(&call).then_some((1, &[0])));
}

/// A machine at its limit of processes; what needs a thread does without.
#[test]
fn a_machine_without_a_thread_to_spare_becomes_the_same_node() {
    walk_all(Start::FirstBoot, "error=EAGAIN", |call| ["clone", "clone3"].contains(&call).then_some((1, &[0])));
}
