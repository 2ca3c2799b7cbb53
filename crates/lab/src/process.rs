//! Processes of a lab: started with a log, named by id and start time, stopped through a pidfd.
//!
//! A process id alone may by now belong to somebody else; with the start time from `/proc/PID/stat` it cannot, and a
//! pidfd keeps it so between the check and the signal.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::command::append;
use crate::wait::wait_until;

/// Set in the environment of everything that a lab starts, so that a process which never reached the state file is found too.
pub(crate) const MARKER: &str = "NODESTRAP_LAB";

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// Clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn observe(pid: u32) -> Option<Self> {
        let (_, start_time) = state_and_start_time(pid)?;
        Some(Self { pid, start_time })
    }

    pub(crate) fn current() -> Result<Self> {
        Self::observe(std::process::id()).context("reading /proc/self/stat")
    }

    /// A zombie counts as gone: nothing of it runs.
    pub fn is_alive(self) -> bool {
        matches!(state_and_start_time(self.pid), Some((state, start)) if start == self.start_time && !"ZX".contains(state))
    }

    pub(crate) fn is_stopped(self) -> bool {
        matches!(state_and_start_time(self.pid), Some(('T', start)) if start == self.start_time)
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Sends nothing if the process is gone or the number has a new owner.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            // Fails only if it ended in between, which is what we want.
            let _ = pidfd_send_signal(&descriptor, signal);
        }
    }

    pub(crate) fn wait_for_exit(self, what: &str, deadline: Duration) -> Result<()> {
        wait_until(&format!("end of {what} (process {})", self.pid), deadline, || Ok((!self.is_alive()).then_some(())))
    }
}

fn state_and_start_time(pid: u32) -> Option<(char, u64)> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may itself contain spaces and parentheses, so fields are counted from the last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Starts a program that outlives the terminal, with its output in a log. `setsid` and `nsenter` replace themselves, so the
/// id of the child is the id of the program.
pub(crate) fn spawn_logged(lab: &str, namespace: Option<&Path>, program: &Command, log: &Path) -> Result<Child> {
    let mut command = Command::new("setsid");
    if let Some(namespace) = namespace {
        command.arg("nsenter").arg(format!("--net={}", namespace.display()));
    }
    command.arg(program.get_program()).args(program.get_args()).env(MARKER, lab);
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    if let Some(folder) = program.get_current_dir() {
        command.current_dir(folder);
    }
    command
        .stdin(Stdio::null())
        .stdout(append(log)?)
        .stderr(append(log)?)
        .spawn()
        .with_context(|| format!("starting {}", program.get_program().to_string_lossy()))
}

/// Collects the exit status of a child that nobody waits for, so that it does not stay a zombie.
pub(crate) fn reap_in_background(mut child: Child) {
    std::thread::spawn(move || child.wait());
}

/// All process ids of the machine that we may look at.
pub(crate) fn all_process_ids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) b)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 1";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }

    #[test]
    fn this_process_is_alive_and_one_with_another_start_time_is_not() {
        let this = ProcessId::current().expect("we run");
        assert!(this.is_alive());
        assert!(!ProcessId { start_time: this.start_time + 1, ..this }.is_alive());
    }
}
