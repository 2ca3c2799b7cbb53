//! strace as the one that does harm: at the n-th call of one kind, of each thread, a death or an error.

use std::path::{Path, PathBuf};

use super::{BINARY, Ran, Sandbox, finish, program, text};

/// Among the first calls of every thread.
const FIRST_CALL: &str = "rseq";

/// No kind of call is made so often; a walk beyond it does not end by itself.
const MOST: u32 = 2000;

/// As much memory as a few sandboxes, or the usual place.
pub(crate) fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && tempfile::tempdir_in(memory).is_ok() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A run of the program, and what strace wrote about it.
pub(crate) fn traced(arguments: &[String], options: &[&str]) -> (Ran, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-o"]).arg(log.path()).args(options).arg(BINARY).args(arguments);
    (finish(strace), text(log.path()))
}

/// A run to which harm was done, or not, where there are fewer calls.
pub(crate) struct Harmed {
    /// As strace takes it.
    pub(crate) how: String,
    pub(crate) ran: Ran,
    pub(crate) is_killed: bool,
    is_failed: bool,
}

fn harm(arguments: &[String], call: &str, what: &str, number: u32) -> Harmed {
    let how = format!("inject={call}:{what}:when={number}");
    // With a filter the kernel stops at these calls only, which takes a tenth of the time; a new thread is stopped at all
    // others too until the first of these, so it gets one at once. But a signal that is sent from such a stop is lost.
    let trace = format!("trace={call},{FIRST_CALL}");
    let filter: &[&str] = if what.starts_with("error=") { &["--seccomp-bpf"] } else { &[] };
    let (ran, log) = traced(arguments, &[filter, &["-e", &trace, "-e", &how]].concat());
    let is_killed = ran.signal.is_some() || log.contains("killed by SIGKILL");
    Harmed { how, ran, is_killed, is_failed: log.contains("(INJECTED)") }
}

/// Walks through the calls of one kind, each or every fifth and so on, and says at how many places harm was done.
pub(crate) fn walk(
    (call, what, every): (&str, &str, usize),
    begin: impl Fn() -> (Sandbox, Vec<String>),
    judge: impl Fn(&Sandbox, &Harmed),
) -> u32 {
    let (mut places, mut unharmed) = (0, 0);
    for number in (1..=MOST).step_by(every) {
        let (sandbox, arguments) = begin();
        let harmed = harm(&arguments, call, what, number);
        judge(&sandbox, &harmed);
        if harmed.is_killed || harmed.is_failed {
            places += 1;
            continue;
        }
        // Threads share the work differently each time: one run that goes by proves little.
        unharmed += 1;
        if unharmed == 2 {
            return places;
        }
    }
    panic!("{call} has no end");
}
