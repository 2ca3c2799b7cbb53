//! What tells of lost writes is a descriptor from before the first write: strace looks on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test runs itself under strace")]

use std::path::Path;
use std::process::Command;

use host::disk::{Disk, RootedDisk};

/// Set for the process that is looked at.
const IS_TRACED: &str = "NODESTRAP_TEST_TRACED";
const TRACED: &str = "trace=openat,openat2,mkdirat,symlinkat,renameat,renameat2,unlinkat,syncfs";

type Change = (&'static str, fn(&dyn Disk, &Path));

/// Each is the first change that its disk sees, by the name that it changes.
const CHANGES: [Change; 8] = [
    ("created", |disk, path| disk.create(path, 0o600, b"x").unwrap()),
    ("appended", |disk, path| disk.append(path, b"x").unwrap()),
    ("made", |disk, path| disk.make_folder(path, 0o700).unwrap()),
    ("linked", |disk, path| disk.symlink("nowhere", path).unwrap()),
    ("there-truncated", |disk, path| disk.truncate(path, 0).unwrap()),
    ("there-renamed", |disk, path| disk.rename(path, &path.with_file_name("renamed")).unwrap()),
    // By another program, such as a hook; here nodestrap itself writes nothing.
    ("by-others", |disk, path| {
        disk.hold_system_folders().unwrap();
        std::fs::write(path.file_name().unwrap(), "x").unwrap();
    }),
    ("there-removed", |disk, path| assert!(disk.remove(path).unwrap())),
];

#[test]
fn the_descriptor_that_is_synced_is_older_than_the_first_write() {
    if std::env::var_os(IS_TRACED).is_some() {
        return make_changes();
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", TRACED, "-o"]).arg(log.path()).arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "the_descriptor_that_is_synced_is_older_than_the_first_write"]);
    let Ok(output) = strace.env(IS_TRACED, "1").output() else {
        eprintln!("SKIPPED: strace is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let log = std::fs::read_to_string(log.path()).unwrap();
    let calls: Vec<&str> = log.lines().filter_map(|line| line.split_once(' ')).map(|(_, call)| call.trim()).collect();
    for (name, _) in CHANGES {
        check_order(&calls, name);
    }
}

fn make_changes() {
    let place = tempfile::tempdir().unwrap();
    for (name, change) in CHANGES {
        if name.starts_with("there-") {
            std::fs::write(place.path().join(name), "before").unwrap();
        }
        std::env::set_current_dir(place.path()).unwrap();
        let disk = RootedDisk::open(place.path()).unwrap();
        change(&disk, &Path::new("/").join(name));
        disk.sync_file_system(Path::new("/")).unwrap();
    }
}

fn check_order(calls: &[&str], name: &str) {
    let is_by_name = |call: &&str| call.contains(&format!(", \"{name}\"")) && !call.starts_with("openat2(");
    let change = calls.iter().position(is_by_name).unwrap_or_else(|| panic!("{name}: no such call"));
    let synced = change + calls[change..].iter().position(|call| call.starts_with("syncfs(")).unwrap();
    let descriptor = calls[synced].trim_start_matches("syncfs(").split(')').next().unwrap();
    let gives = |call: &&str| call.starts_with("openat") && call.ends_with(&format!(" = {descriptor}"));
    let opened = calls[..synced].iter().rposition(gives).unwrap();
    assert!(opened < change, "{name}: {} came after {}", calls[opened], calls[change]);
}
