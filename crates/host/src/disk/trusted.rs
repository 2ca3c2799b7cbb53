//! A folder at the end of a way that no other user can have laid.
//!
//! In a folder that everybody may write to, such as `/tmp`, whoever comes first decides what a name is: a folder whose owner
//! can exchange everything in it, or a link to anywhere. What lies in such a folder is therefore followed only if it is
//! ours, root's, or of the owner of that folder, as the kernel does with `fs.protected_symlinks`. Every part of the way
//! is opened, looked at and held before the next is taken, so there is no moment in which it could be exchanged.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{DiskError, MOST_LINKS, RootedDisk};

const EVERYBODY_WRITES: u32 = 0o002;
/// In such a folder only the owner of a thing may rename it or take it away.
const STICKY: u32 = 0o1000;
/// Of folders that are made on the way.
const WAY_MODE: u32 = 0o755;

impl RootedDisk {
    /// Opens this folder as a root; what is missing of the way is made, itself with this mode. Refused if somebody else
    /// could have put a part of the way there, or can exchange what will lie in the folder.
    pub fn open_trusted(folder: &Path, mode: u32) -> Result<Self, DiskError> {
        let opened = open(folder, mode).map_err(|source| DiskError::new("use the folder", folder, source))?;
        Self::within(opened)
    }
}

fn open(folder: &Path, mode: u32) -> io::Result<OwnedFd> {
    let me = rustix::process::geteuid().as_raw();
    let top = || rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let (mut here, mut rest, mut links) = (top()?, parts(folder), 0);
    while let Some(name) = rest.pop_front() {
        let found = open_or_make(&here, &name, if rest.is_empty() { mode } else { WAY_MODE })?;
        let stat = rustix::fs::fstat(&found)?;
        decide_trust(&rustix::fs::fstat(&here)?, &stat, me).map_err(|why| refused(format!("{name:?} {why}")))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => here = found,
            FileType::Symlink if links < MOST_LINKS => {
                links += 1;
                let target = OsString::from_vec(rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes());
                if Path::new(&target).is_absolute() {
                    here = top()?;
                }
                for part in parts(Path::new(&target)).into_iter().rev() {
                    rest.push_front(part);
                }
            }
            FileType::Symlink => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    let mode = rustix::fs::fstat(&here)?.st_mode;
    if mode & EVERYBODY_WRITES != 0 && mode & STICKY == 0 {
        return Err(refused("everybody may exchange what lies in it; take that away (chmod o-w)".to_owned()));
    }
    Ok(here)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

fn open_or_make(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(folder, name, flags, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {}
        found => return Ok(found?),
    }
    match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(mode)) {
        // Somebody was faster: whoever that was is looked at next.
        Ok(()) | Err(Errno::EXIST) => Ok(open()?),
        Err(error) => Err(error.into()),
    }
}

fn decide_trust(folder: &Stat, found: &Stat, me: u32) -> Result<(), String> {
    let is_shared = folder.st_mode & EVERYBODY_WRITES != 0;
    if !is_shared || [me, 0, folder.st_uid].contains(&found.st_uid) {
        return Ok(());
    }
    Err(format!(
        "on the way belongs to the user with the number {}, who put it into a folder that everybody may write to; name \
         another place",
        found.st_uid
    ))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::disk::Disk as _;

    const OTHER: u32 = 65_534;

    fn shared(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, shared)
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_is_missing_is_made_and_links_of_our_own_are_followed() {
        let (folder, shared) = shared(0o1777);
        let disk = RootedDisk::open_trusted(&shared.join("a/b"), 0o700).unwrap();
        disk.create(Path::new("/x"), 0o600, b"x").unwrap();
        assert_eq!((mode(&shared.join("a/b")), std::fs::read(shared.join("a/b/x")).unwrap()), (0o700, b"x".to_vec()));
        symlink("shared/a/../a", folder.path().join("link")).unwrap();
        symlink(folder.path().join("link"), shared.join("far")).unwrap();
        let disk = RootedDisk::open_trusted(&shared.join("far/./b"), 0o700).unwrap();
        assert_eq!(disk.list(Path::new("/")).unwrap(), ["x"]);
        symlink("round", shared.join("round")).unwrap();
        let error = RootedDisk::open_trusted(&shared.join("round"), 0o700).err().unwrap();
        assert_eq!(error.source.raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{error}");
        let error = RootedDisk::open_trusted(&shared.join("a/b/x"), 0o700).err().unwrap();
        assert_eq!(error.source.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_folder_in_which_everybody_may_exchange_everything_is_refused() {
        let (_folder, shared) = shared(0o777);
        let error = RootedDisk::open_trusted(&shared, 0o700).err().unwrap();
        assert!(error.source.to_string().contains("chmod o-w"), "{}", error.source);
        // What is ours in there is ours, as long as nobody lets the name go.
        assert!(RootedDisk::open_trusted(&shared.join("own"), 0o700).is_ok());
    }

    #[test]
    fn what_another_user_put_into_a_shared_folder_is_refused_and_in_their_own_folder_it_is_not() {
        if rustix::process::geteuid().as_raw() != 0 {
            eprintln!("SKIPPED: only root can make a folder of somebody else");
            return;
        }
        let (folder, shared) = shared(0o1777);
        let secret = folder.path().join("elsewhere");
        std::fs::create_dir(&secret).unwrap();
        std::fs::create_dir(shared.join("theirs")).unwrap();
        chown(shared.join("theirs"), Some(OTHER), Some(OTHER)).unwrap();
        symlink(&secret, shared.join("link")).unwrap();
        std::os::unix::fs::lchown(shared.join("link"), Some(OTHER), Some(OTHER)).unwrap();
        for name in ["theirs", "theirs/below", "link", "link/below"] {
            let error = RootedDisk::open_trusted(&shared.join(name), 0o700).err().expect(name);
            assert!(error.source.to_string().contains("65534"), "{name}: {}", error.source);
        }
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(shared.join("theirs")).unwrap().count(), 0);
        // Whoever names a folder of theirs outside of a shared one trusts them.
        chown(&secret, Some(OTHER), Some(OTHER)).unwrap();
        assert!(RootedDisk::open_trusted(&secret.join("below"), 0o700).is_ok());
    }
}
