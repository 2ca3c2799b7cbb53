//! What the shipped program costs: size, memory, processes. No time is asserted here or anywhere.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One static binary with everything in it; OpenPGP alone, to verify and to sign, is 1.3 MB of it. Packages by two package managers
/// and system extensions took 0.8 MB; following a cluster, torcx's addons, the pre-reboot hook and the old names 0.9.
const LARGEST_BYTES: u64 = 14_400_000;
/// Peak resident memory of `apply`. Less than one of it is memory that `apply` asked for; the rest are pages of the program itself,
/// which the kernel may drop and read again, so this grows with the binary: it was 10 until update_engine and pushes came, and 11 until nodes followed
/// their cluster.
const MOST_MEMORY_KIB: u64 = 12 * 1024;

fn nodestrap() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// The peak so far of a process that is still there.
fn peak_memory_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn only_child_of(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Runs `apply` on a fresh sandbox under strace, which holds it for a moment before it exits so that its peak can be read.
fn traced_apply(sandbox: &Path, trace: &Path) -> u64 {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=execve,fork,vfork,clone,clone3,exit_group"]);
    strace.args(["-e", "inject=exit_group:delay_enter=1500000", "-o"]).arg(trace);
    strace.arg(nodestrap()).args(["apply", "--progress", "none", "--root"]).arg(sandbox);
    let mut running = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace runs");
    let mut peak = 0;
    while running.try_wait().expect("waited for").is_none() {
        let seen = only_child_of(running.id()).and_then(peak_memory_kib);
        peak = peak.max(seen.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(running.wait().expect("waited for").success(), "apply failed");
    peak
}

#[test]
fn one_static_binary_small_in_size_and_memory_that_starts_no_process() {
    let size = std::fs::metadata(nodestrap()).expect("it is there").len();
    assert!(size <= LARGEST_BYTES, "{size} bytes");
    let folder = tempfile::tempdir().expect("a folder");
    let sandbox = folder.path().join("sandbox");
    let tried = Command::new(nodestrap()).arg("try").arg("--keep").arg(&sandbox).output().expect("it runs");
    assert!(tried.status.success());
    // Its own work is undone, so that apply has everything to do again.
    for made in ["etc/kubernetes", "etc/containerd", "var/lib/nodestrap"] {
        std::fs::remove_dir_all(sandbox.join(made)).expect("removed");
    }
    let trace = folder.path().join("trace");
    let peak = traced_apply(&sandbox, &trace);
    assert!(peak > 0 && peak <= MOST_MEMORY_KIB, "{peak} KiB at the peak");
    let trace = std::fs::read_to_string(trace).expect("the trace");
    assert_eq!(trace.matches("execve(").count(), 1, "{trace}");
    let is_new_process =
        |line: &&str| line.contains("fork(") || (line.contains("clone") && !line.contains("CLONE_THREAD"));
    let processes: Vec<&str> = trace.lines().filter(is_new_process).filter(|line| !line.contains("resumed")).collect();
    assert!(processes.is_empty(), "{processes:#?}");
}

#[test]
fn the_binary_needs_no_loader() {
    let program = std::fs::read(nodestrap()).expect("it is there");
    let has_interpreter = program_headers(&program).any(|kind| kind == PT_INTERP);
    assert!(!has_interpreter, "it is linked dynamically");
}

const PT_INTERP: u32 = 3;

/// The kinds of the program headers of a 64-bit little-endian ELF file.
fn program_headers(elf: &[u8]) -> impl Iterator<Item = u32> + '_ {
    assert_eq!(elf.get(..6), Some(&b"\x7fELF\x02\x01"[..]), "a 64-bit little-endian ELF file");
    let number = |at: usize, length: usize| {
        elf[at..at + length].iter().rev().fold(0_usize, |value, byte| value << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).map(move |index| u32::try_from(number(start + index * size, 4)).expect("four bytes"))
}
