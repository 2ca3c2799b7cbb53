//! Paths inside a root, split the way that the `*at` system calls want them.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};

/// The folder that holds a name, and the name. The root itself is the name `.` in the root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    pub(crate) parent: &'a Path,
    pub(crate) name: &'a OsStr,
}

/// `..` may occur on the way (it is resolved inside the root) but not as the name: what would be created or renamed
/// then depends on links, and nobody means that.
pub(crate) fn split(path: &Path) -> io::Result<Split<'_>> {
    if !path.is_absolute() {
        return Err(invalid("the path is not absolute"));
    }
    match path.components().next_back() {
        Some(Component::Normal(name)) => Ok(Split { parent: path.parent().unwrap_or(Path::new("/")), name }),
        Some(Component::RootDir) => Ok(Split { parent: Path::new("/"), name: OsStr::new(".") }),
        _ => Err(invalid("the path does not end in a name")),
    }
}

/// A path for a call relative to the root's descriptor: `/etc/x` → `etc/x`, `/` → `.`.
pub(crate) fn relative(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
        Ok(rest) => rest,
        Err(_) => path,
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_from_their_folders() {
        let cases =
            [("/a/b", "/a", "b"), ("/a", "/", "a"), ("/", "/", "."), ("/a/../b", "/a/..", "b"), ("/a/", "/", "a")];
        for (path, parent, name) in cases {
            let wanted = Split { parent: Path::new(parent), name: OsStr::new(name) };
            assert_eq!(split(Path::new(path)).unwrap(), wanted, "{path}");
        }
        for path in ["", "a/b", "/a/..", ".."] {
            assert!(split(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(relative(Path::new("/etc/x")), Path::new("etc/x"));
        assert_eq!(relative(Path::new("/")), Path::new("."));
    }
}
