//! Who holds a record lock, as package managers take them: another process, told by its number.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test starts another process")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use host::disk::{Disk as _, RootedDisk};
use rustix::fs::{FlockOperation, fcntl_lock};

const FILE_TO_LOCK: &str = "NODESTRAP_TEST_FILE_TO_LOCK";
const HELD: &str = "the lock is held";

/// The other process: this program, with a file to lock. It ends with its standard input.
#[test]
fn holds_a_lock_for_the_test_below() {
    let Some(path) = std::env::var_os(FILE_TO_LOCK) else { return };
    let file = std::fs::File::options().write(true).open(path).unwrap();
    fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    println!("\n{HELD}");
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn the_process_that_holds_a_record_lock_is_named_by_its_number_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(folder.path()).unwrap();
    let lock = Path::new("/lock-frontend");
    assert_eq!(disk.lock_holder(lock).unwrap(), None, "there is no such file");
    disk.create(lock, 0o640, b"").unwrap();
    assert_eq!(disk.lock_holder(lock).unwrap(), None, "nobody holds it");

    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_lock_for_the_test_below", "--nocapture"])
        .env(FILE_TO_LOCK, folder.path().join("lock-frontend"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.by_ref().any(|line| line == HELD), "the other process has the lock");
    assert_eq!(disk.lock_holder(lock).unwrap().map(|holder| holder.pid), Some(other.id()));
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert_eq!(disk.lock_holder(lock).unwrap(), None, "it ended, and so did its lock");
}
