//! The kernel's own list of what is mounted where, and which of it holds what somebody wrote.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";
/// Some 200 bytes a mount: more than a hundred thousand of them.
pub(crate) const MOUNTS_LIMIT: u64 = 32 * 1024 * 1024;

/// What the kernel makes up, and what is memory: lost with the boot, or nobody's writing.
const NOT_ON_A_DISK: [&str; 27] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "pipefs",
    "proc",
    "pstore",
    "ramfs",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// They write back when a file is closed, and a server that does not answer must not hold this machine.
const ON_OTHER_MACHINES: [&str; 7] = ["afs", "ceph", "cifs", "nfs", "nfs4", "smb3", "smbfs"];

/// In the order of their mounting; a line that cannot be read is passed over.
pub(crate) fn parse(mountinfo: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// Where each file system that is on a disk and can be written to is mounted, by its device, from `/proc/self/mountinfo`. What is
/// mounted over one of its places hides that, so all are named.
pub(crate) fn writable(mountinfo: &[u8]) -> Vec<(String, PathBuf)> {
    let mounts = parse(mountinfo).filter(Mount::is_written_to_a_disk);
    mounts.map(|mount| (String::from_utf8_lossy(mount.device).into_owned(), mount.at)).collect()
}

/// As the kernel writes a device there.
pub(crate) fn device(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

pub(crate) struct Mount<'a> {
    /// `major:minor`.
    pub(crate) device: &'a [u8],
    /// What of the file system is mounted; `/`: the whole of it.
    pub(crate) root: &'a [u8],
    pub(crate) at: PathBuf,
    kind: &'a str,
    /// Of the file system; that of this mount may be stricter, and somebody else's not.
    is_read_only: bool,
}

impl Mount<'_> {
    fn is_written_to_a_disk(&self) -> bool {
        let is_elsewhere = NOT_ON_A_DISK.contains(&self.kind)
            || ON_OTHER_MACHINES.contains(&self.kind)
            || self.kind.starts_with("fuse.")
            // What is written to one lies on another file system, which is in the list too, but for the root of a
            // container. A node has one for each of its containers.
            || (self.kind == "overlay" && self.at != *"/");
        !is_elsewhere && !self.is_read_only
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount<'_>> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (device, root, at) = (fields.next()?, fields.next()?, unescape(fields.next()?));
    let mut kinds = fields.skip_while(|field| field != b"-").skip(1);
    let kind = std::str::from_utf8(kinds.next()?).ok()?;
    let options = kinds.nth(1)?;
    let is_read_only = options.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some(Mount { device, root, at, kind, is_read_only })
}

/// Spaces and the like are written as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let escaped = |rest: &[u8]| match rest {
        [b'\\', digits @ ..] => u8::from_str_radix(std::str::from_utf8(digits.get(..3)?).ok()?, 8).ok(),
        _ => None,
    };
    let (mut bytes, mut at) = (Vec::with_capacity(field.len()), 0);
    while at < field.len() {
        let byte = escaped(&field[at..]);
        bytes.push(byte.unwrap_or(field[at]));
        at += if byte.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_on_a_disk_that_can_be_written_to_are_named() {
        let mountinfo = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
23 22 0:21 / /proc rw shared:2 - proc proc rw\n\
24 22 0:22 / /run rw,nosuid shared:3 - tmpfs tmpfs rw,size=1g\n\
25 22 8:2 / /var rw shared:4 master:9 - xfs /dev/sda2 rw,attr2\n\
26 25 8:2 /lib/x /opt/x rw - xfs /dev/sda2 rw,attr2\n\
27 22 8:3 / /usr ro - squashfs /dev/sda3 ro\n\
28 22 8:4 / /data\\040disk ro - ext4 /dev/sda4 rw\n\
29 22 0:50 / /run/containerd/rootfs rw - overlay overlay rw,lowerdir=/a,upperdir=/b\n\
30 22 0:51 / /mnt/nfs rw - nfs4 server:/ rw\n\
31 22 0:52 / /mnt/ssh rw - fuse.sshfs host: rw\n\
32 22 8:5 / /mnt/ntfs rw - fuseblk /dev/sda5 rw\n\
broken\n";
        let found = writable(mountinfo);
        let found: Vec<_> = found.iter().map(|(device, at)| format!("{device} {}", at.display())).collect();
        assert_eq!(found, ["8:1 /", "8:2 /var", "8:2 /opt/x", "8:4 /data disk", "8:5 /mnt/ntfs"]);
        let container = b"1 0 0:40 / / rw - overlay overlay rw,upperdir=/b\n";
        assert_eq!(writable(container), [("0:40".to_owned(), PathBuf::from("/"))]);
    }
}
