//! What only looks touches nothing: every system call of the real binary is watched.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use support::{BINARY, Sandbox, bundle, can_run, finish, other_bundle, program, text};

/// Calls that change a file system, another process or the machine, whatever their arguments are.
const FORBIDDEN: [&str; 44] = [
    "creat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "truncate",
    "ftruncate",
    "fallocate",
    "utimensat",
    "setxattr",
    "fsetxattr",
    "removexattr",
    "mount",
    "umount2",
    "flock",
    "sync",
    "syncfs",
    "fsync",
    "fdatasync",
    "kill",
    "tkill",
    "reboot",
    "sethostname",
    "settimeofday",
    "clock_settime",
    "execveat",
];

/// What may be asked: the system bus, and a metadata service.
const MAY_BE_ASKED: [&str; 4] =
    ["/run/dbus/system_bus_socket", "169.254.169.254", "fd00:ec2::254", "/run/systemd/private"];

/// Why a call is no mere look.
fn objection(call: &str) -> Option<&'static str> {
    let (name, rest) = call.split_once('(')?;
    let descriptor = || rest.split([',', ')']).next().and_then(|number| number.trim().parse::<i32>().ok());
    match name {
        _ if FORBIDDEN.contains(&name) => Some("it changes something"),
        "open" | "openat" | "openat2" => ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"]
            .iter()
            .any(|flag| rest.contains(flag))
            .then_some("it opens for writing"),
        // A failed look for a program is none either; the first call is the start of the command itself.
        "execve" => Some("it starts a program"),
        "fork" | "vfork" => Some("it starts a process"),
        "clone" | "clone3" => (!rest.contains("CLONE_THREAD")).then_some("it starts a process"),
        "connect" | "sendto" | "sendmsg" => {
            let address = rest.contains("AF_UNIX") || rest.contains("sin_addr") || rest.contains("sin6_addr");
            (address && !MAY_BE_ASKED.iter().any(|known| rest.contains(known))).then_some("it asks somebody")
        }
        "write" | "writev" | "pwrite64" | "pwritev" | "sendfile" | "copy_file_range" => {
            descriptor().is_some_and(|number| number > 2).then_some("it writes to more than the terminal")
        }
        _ => None,
    }
}

/// The calls of one command, one a line, without the process id.
fn trace(arguments: &[String]) -> Vec<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-s", "200", "-o"]).arg(log.path()).arg(BINARY).args(arguments);
    finish(strace);
    let calls = text(log.path());
    calls.lines().map(|line| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned()).collect()
}

#[track_caller]
fn assert_pure(arguments: &[String]) {
    let calls = trace(arguments);
    assert!(calls.len() > 20 && calls[0].starts_with("execve("), "nothing was watched: {calls:?}");
    let objections: Vec<_> =
        calls[1..].iter().filter_map(|call| Some(format!("{}: {call}", objection(call)?))).collect();
    assert!(objections.is_empty(), "{arguments:?}\n{}", objections.join("\n"));
}

#[test]
fn looking_at_a_node_changes_nothing_and_asks_nobody() {
    if !can_run("strace") {
        return;
    }
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), other_bundle()).unwrap();
    let other = other.path().display().to_string();
    for sandbox in [Sandbox::delivered(), Sandbox::applied(), Sandbox::image()] {
        let before = sandbox.snapshot();
        for arguments in [
            &["plan"][..],
            &["plan", "-o", "json"],
            &["plan", "--against", &other],
            &["status"],
            &["status", "--json"],
            &["timeline"],
        ] {
            assert_pure(&sandbox.arguments(arguments[0], &arguments[1..]));
        }
        assert_eq!(sandbox.snapshot(), before);
    }
}

#[test]
fn a_plan_for_the_machine_itself_only_looks() {
    if !can_run("strace") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bundle()).unwrap();
    let file = file.path().display().to_string();
    // It may fail, for this is no node; it may not touch anything.
    assert_pure(&["plan", "--bundle", &file].map(str::to_owned));
}

#[test]
fn the_watcher_sees_what_apply_does() {
    if !can_run("strace") {
        return;
    }
    let sandbox = Sandbox::delivered();
    let calls = trace(&sandbox.arguments("apply", &[]));
    let seen: std::collections::BTreeSet<_> = calls[1..].iter().filter_map(|call| objection(call)).collect();
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["it changes something", "it opens for writing", "it writes to more than the terminal"]
    );
}
