//! A kernel without `openat2` (RHEL 8), as strace plays it: the same program, and every such call fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test runs itself and looks at the real file system")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use host::disk::{Disk, RootedDisk};

/// Set for the process whose kernel is old.
const IS_OLD: &str = "NODESTRAP_TEST_OLD_KERNEL";

#[test]
fn a_folder_cannot_be_left_on_a_kernel_without_openat2() {
    if std::env::var_os(IS_OLD).is_none() {
        let program = std::env::current_exe().unwrap();
        for error in ["ENOSYS", "EPERM"] {
            let inject = format!("inject=openat2:error={error}");
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-e", "trace=openat2", "-e", &inject, "-o", "/dev/null"]);
            strace.arg(&program).args(["--exact", "a_folder_cannot_be_left_on_a_kernel_without_openat2"]);
            let Ok(output) = strace.env(IS_OLD, "1").output() else {
                eprintln!("SKIPPED: strace is not installed");
                return;
            };
            assert!(output.status.success(), "{error}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    let refused = RootedDisk::open(place.path()).err().expect("the calls must fail here, or nothing is tested");
    assert!(refused.source.to_string().contains("openat2"), "{}", refused.source);
    let disk = RootedDisk::open(Path::new("/")).unwrap();
    disk.make_folder(&inside, 0o755).unwrap();
    disk.make_folder(&outside, 0o755).unwrap();
    let folder = disk.enter(&inside).unwrap();
    folder.symlink("../out", Path::new("link")).unwrap();
    assert!(folder.create(Path::new("link/x"), 0o644).is_err());
    assert!(folder.make_folder(Path::new("link/x"), 0o755).is_err());
    folder.make_folder(Path::new("a/b"), 0o755).unwrap();
    folder.create(Path::new("a/b/x"), 0o644).unwrap().write_all(b"x").unwrap();
    assert_eq!(disk.read(&inside.join("a/b/x"), 1).unwrap().unwrap(), b"x");
    assert!(disk.list(&outside).unwrap().is_empty());
    assert!(disk.remove_tree(&inside).unwrap() && outside.exists());
}
