//! Modes are exact whatever the umask. Alone in its process, because the umask belongs to all threads.

use std::path::Path;

use host::disk::{Disk, RootedDisk};
use host::files;
use rustix::fs::Mode;

#[test]
fn modes_are_exact_under_any_umask() {
    let root = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(root.path()).unwrap();
    for (round, umask) in [0o000, 0o077].into_iter().enumerate() {
        rustix::process::umask(Mode::from_raw_mode(umask));
        for mode in [0o600, 0o644, 0o755, 0o400] {
            let folder = format!("/{round}/{mode:o}");
            disk.make_folder(Path::new(&folder), mode | 0o700).unwrap();
            let file = format!("{folder}/file");
            files::write_durable(&disk, Path::new(&file), mode, b"x", None).unwrap();
            let found = |path: &str| disk.stat(Path::new(path)).unwrap().unwrap().mode;
            assert_eq!(found(&format!("/{round}")), 0o755, "umask {umask:o}");
            assert_eq!(found(&folder), mode | 0o700, "umask {umask:o}");
            assert_eq!(found(&file), mode, "umask {umask:o}");
        }
    }
}
