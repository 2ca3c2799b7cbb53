//! Of what does not depend on the kernel that runs the tests.

use super::*;

/// As on a kernel before 5.6; the root is the real one.
pub(in crate::disk) fn without_openat2() -> RootedDisk {
    RootedDisk { resolver: Resolver::PlainPaths, ..RootedDisk::open(Path::new("/")).unwrap() }
}

#[test]
fn an_old_kernel_is_served_at_the_real_root_only() {
    assert_eq!(decide_resolver(None, Path::new("/srv")).unwrap(), Resolver::InRoot);
    assert_eq!(decide_resolver(Some(Errno::NOSYS), Path::new("/")).unwrap(), Resolver::PlainPaths);
    let refused = decide_resolver(Some(Errno::NOSYS), Path::new("/srv")).unwrap_err();
    assert!(refused.to_string().contains("openat2"), "{refused}");
    assert!(decide_resolver(Some(Errno::MFILE), Path::new("/")).is_err());
}

#[test]
fn plain_paths_do_the_same_work() {
    let folder = tempfile::tempdir().unwrap();
    let disk = without_openat2();
    let file = folder.path().join("a/b/c");
    disk.make_folder(file.parent().unwrap(), 0o750).unwrap();
    disk.create(&file, 0o640, b"x").unwrap();
    disk.sync_file(&file).unwrap();
    assert_eq!(disk.read(&file, 1).unwrap().unwrap(), b"x");
    assert_eq!(disk.list(&folder.path().join("a/b")).unwrap(), ["c"]);
    assert!(disk.remove(&file).unwrap());
    assert_eq!(disk.stat(&file).unwrap(), None);
}
