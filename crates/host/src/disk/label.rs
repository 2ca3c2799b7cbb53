//! What SELinux knows files by, of which nodestrap decides one: that of programs.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// There if the kernel labels files, whether it enforces what follows or not.
pub(super) const SELINUX: &str = "/sys/fs/selinux/enforce";
const ATTRIBUTE: &str = "security.selinux";
/// The reference policy, and all that come from it, have this type for programs of the system.
const PROGRAMS: &[u8] = b"system_u:object_r:bin_t:s0\0";

pub(super) fn set_programs(folder: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fsetxattr(folder, ATTRIBUTE, PROGRAMS, XattrFlags::empty()) {
        // All of such a file system has one label, which its mount decides.
        Err(Errno::NOTSUP) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::disk::{Disk as _, RootedDisk};
    use crate::machine::effective_uid;

    fn label(folder: &Path) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 256];
        let size = rustix::fs::getxattr(folder, super::ATTRIBUTE, &mut buffer).ok()?;
        buffer.truncate(size);
        Some(buffer)
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a folder that stands for a machine with SELinux")]
    fn a_folder_for_programs_is_labelled_where_selinux_is_at_work_and_nowhere_else() {
        let machine = tempfile::tempdir().expect("a folder");
        let disk = RootedDisk::open(machine.path()).expect("a disk");
        let folder = Path::new("/opt/programs");
        disk.make_folder(folder, 0o755).expect("made");
        disk.label_for_programs(folder).expect("nothing to do");
        let real = machine.path().join("opt/programs");
        assert_eq!(label(&real), None);

        disk.make_folder(Path::new("/sys/fs/selinux"), 0o755).expect("made");
        disk.create(Path::new(super::SELINUX), 0o644, b"1").expect("written");
        let labelled = disk.label_for_programs(folder);
        if effective_uid() == 0 {
            labelled.expect("labelled");
            assert_eq!(label(&real).as_deref(), Some(super::PROGRAMS));
        } else {
            assert_eq!(labelled.expect_err("only root may").source.raw_os_error(), Some(1));
        }
    }
}
