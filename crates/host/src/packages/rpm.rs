//! rpm's database as `rpm` prints it, and what dnf keeps in files of its own. Pure but for reading those.
//!
//! The database itself has three formats, none of them for others to read, so rpm is asked: `rpm -qa --qf` [`LIST_FORMAT`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Package, State, Status};
use crate::disk::{Disk, DiskError, LockHolder};

/// A package, then what it needs and what it gives, a line each.
pub const LIST_FORMAT: &str = "P\\t%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{INSTALLTIME}\\n\
     [R\\t%{REQUIRENAME}\\n][V\\t%{PROVIDENAME}\\n]";
/// What the plug-in versionlock keeps packages at.
pub const LOCKS_PATH: &str = "/etc/dnf/plugins/versionlock.list";
/// There if the plug-in is.
pub const LOCKS_SETTINGS_PATH: &str = "/etc/dnf/plugins/versionlock.conf";
/// rpm's own lock, while it changes something.
const DATABASE_LOCK: &str = "/var/lib/rpm/.rpm.lock";
/// The files of a package, a line each.
pub const FILES_FORMAT: &str = "[%{FILENAMES}\\n]";
/// Of a transaction, in hexadecimal digits.
const NUMBER_DIGITS: usize = 8;
/// Where a dnf that is at work leaves its number.
const PROCESS_FILES: [&str; 3] =
    ["/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid"];
const LOCKS_LIMIT: u64 = 1024 * 1024;
const NUMBER_LIMIT: u64 = 64;
/// A key that packages are signed by is a package to rpm, and there may be many.
const KEY: &str = "gpg-pubkey";

/// What rpm printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub status: Status,
    /// Versions that a newer installation of the same package has replaced, and an interrupted rpm has left in its list; by name, as
    /// rpm takes them. Of packages that may be there several times, such as kernels, that is as it should be.
    pub superseded: BTreeMap<String, Vec<String>>,
}

/// `0:1.36.3-1` is `1.36.3-1` to people.
fn version(text: &str) -> String {
    text.strip_prefix("0:").unwrap_or(text).to_owned()
}

/// What a key is called in a [`Listing`], by its last eight digits; rpm takes it as a name, too.
pub fn key_name(digits: &str) -> String {
    format!("{KEY}-{digits}")
}

/// Lines that are none of ours are passed over: warnings of rpm may be among them.
pub fn parse_listing(text: &str) -> Listing {
    struct Entry {
        installed: u64,
        package: Package,
    }
    let mut all: BTreeMap<(String, String), Vec<Entry>> = BTreeMap::new();
    let mut current: Option<(String, String)> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["P", name, full, architecture, installed] => {
                let (name, full) = match (name, full.strip_prefix("0:").unwrap_or(full).split_once('-')) {
                    (KEY, Some((key, created))) => (key_name(key), created.to_owned()),
                    _ => (name.to_owned(), version(full)),
                };
                let package = Package {
                    version: full,
                    architecture: architecture.to_owned(),
                    is_held: false,
                    state: State::Installed,
                    depends: Vec::new(),
                    provides: Vec::new(),
                };
                let key = (name, architecture.to_owned());
                let installed = installed.parse().unwrap_or(0);
                all.entry(key.clone()).or_default().push(Entry { installed, package });
                current = Some(key);
            }
            [kind @ ("R" | "V"), name] => {
                let entries = current.as_ref().and_then(|key| all.get_mut(key));
                let Some(Entry { package, .. }) = entries.and_then(|entries| entries.last_mut()) else { continue };
                match kind {
                    // What rpm itself must know, and conditions, are not names of packages.
                    "R" if name.starts_with("rpmlib(") || name.starts_with('(') => {}
                    "R" => package.depends.push(vec![name.to_owned()]),
                    _ => package.provides.push(name.to_owned()),
                }
            }
            _ => {}
        }
    }
    let mut listing = Listing::default();
    for ((name, _), mut entries) in all {
        entries.sort_by_key(|entry| entry.installed);
        let Some(last) = entries.pop() else { continue };
        let older: Vec<String> = entries.iter().map(|entry| format!("{name}-{}", entry.package.version)).collect();
        if !older.is_empty() {
            listing.superseded.insert(name.clone(), older);
        }
        listing.status.packages.insert(name, last.package);
    }
    listing
}

/// By package: the line itself, and the version that it keeps it at. Lines that say something else are not ours to judge.
pub fn parse_locks(text: &str) -> Vec<(String, String, String)> {
    let lock = |line: &str| {
        let line = line.trim();
        let full = line.strip_suffix(".*").unwrap_or(line);
        let (rest, release) = full.rsplit_once('-')?;
        let (name, number) = rest.rsplit_once('-')?;
        let is_lock = !line.starts_with(['#', '!']) && number.bytes().any(|byte| byte.is_ascii_digit());
        is_lock.then(|| (name.to_owned(), line.to_owned(), version(&format!("{number}-{release}"))))
    };
    text.lines().filter_map(lock).collect()
}

pub fn load_locks(disk: &dyn Disk) -> Result<Vec<(String, String, String)>, DiskError> {
    let bytes = disk.read(Path::new(LOCKS_PATH), LOCKS_LIMIT)?.unwrap_or_default();
    Ok(parse_locks(&String::from_utf8_lossy(&bytes)))
}

/// A line of the list that keeps a package at a version, on every architecture.
pub fn lock_line(name: &str, version: &str) -> String {
    let epoch = if version.contains(':') { "" } else { "0:" };
    format!("{name}-{epoch}{version}.*")
}

/// Whoever is at work on packages, with the file that tells.
pub fn lock_holder(disk: &dyn Disk) -> Result<Option<(&'static str, LockHolder)>, DiskError> {
    if let Some(holder) = disk.lock_holder(Path::new(DATABASE_LOCK))? {
        return Ok(Some((DATABASE_LOCK, holder)));
    }
    for path in PROCESS_FILES {
        let Some(bytes) = disk.read(Path::new(path), NUMBER_LIMIT)? else { continue };
        let Ok(pid) = String::from_utf8_lossy(&bytes).trim().parse::<u32>() else { continue };
        // The file of a process that is gone means nothing.
        if let Some(name) = disk.read(Path::new(&format!("/proc/{pid}/comm")), NUMBER_LIMIT)? {
            let name = String::from_utf8_lossy(&name).trim().to_owned();
            return Ok(Some((path, LockHolder { pid, name })));
        }
    }
    Ok(None)
}

/// What an interrupted rpm has not put into its place lies beside it for ever, under its name and the number of the transaction:
/// `/usr/sbin/iptables;6aff79cb`. `files` are those of the packages, a line each; other lines are passed over.
pub fn remove_leftovers(disk: &dyn Disk, files: &str) -> Result<(), DiskError> {
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (folder, name) in files.lines().filter(|line| line.starts_with('/')).filter_map(|line| line.rsplit_once('/')) {
        folders.entry(folder).or_default().insert(name);
    }
    let is_number = |text: &str| text.len() == NUMBER_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (folder, names) in folders {
        for found in disk.list(Path::new(folder))? {
            if found.rsplit_once(';').is_some_and(|(name, number)| names.contains(name) && is_number(number)) {
                disk.remove(&Path::new(folder).join(found))?;
            }
        }
    }
    Ok(())
}

/// `kubelet-1.36.3-150500.1.1.x86_64.rpm` as dnf names what it downloads: the package, and its version without the epoch.
pub fn parse_archive_name(file: &str) -> Option<(String, String)> {
    let (full, _) = file.strip_suffix(".rpm")?.rsplit_once('.')?;
    let (rest, release) = full.rsplit_once('-')?;
    let (name, number) = rest.rsplit_once('-')?;
    Some((name.to_owned(), format!("{number}-{release}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDisk;

    const LIST: &str = "warning: something that rpm has to say\n\
        P\tiptables-nft\t0:1.8.9-1.el9\tx86_64\t100\nR\tlibnetfilter_conntrack\nR\trpmlib(FileDigests)\nV\tiptables\n\
        P\tgpg-pubkey\t0:d491d7d2-6afde5b3\t(none)\t90\nV\tgpg(d491d7d2)\n\
        P\tgpg-pubkey\t0:fd431d51-4ae0493b\t(none)\t10\n\
        P\tkubelet\t0:1.36.3-150500.1.1\tx86_64\t300\nP\tkubelet\t0:1.36.1-150500.1.1\tx86_64\t200\n\
        P\tglibc\t0:2.34-100.el9\ti686\t5\nP\tglibc\t0:2.34-100.el9\tx86_64\t5\n\
        P\tbind-libs\t32:9.16.23-1.el9\tx86_64\t5\n";

    #[test]
    fn packages_are_known_by_version_and_keys_one_by_one() {
        let Listing { status, superseded } = parse_listing(LIST);
        assert_eq!(status.packages["iptables-nft"].version, "1.8.9-1.el9");
        assert_eq!(status.packages["iptables-nft"].depends, [["libnetfilter_conntrack"]]);
        assert_eq!(status.packages["bind-libs"].version, "32:9.16.23-1.el9");
        assert_eq!(status.packages["gpg-pubkey-d491d7d2"].version, "6afde5b3");
        assert!(status.packages.contains_key("gpg-pubkey-fd431d51"));
        assert_eq!(status.packages["kubelet"].version, "1.36.3-150500.1.1", "the one that was installed last");
        assert_eq!(superseded["kubelet"], ["kubelet-1.36.1-150500.1.1"]);
        assert!(!superseded.contains_key("glibc"), "one for each architecture");
    }

    #[test]
    fn locks_are_read_back_as_they_are_written() {
        let line = lock_line("cri-tools", "1.36.0-150500.1.1");
        let text = format!("\n# Added lock on Wed\n{line}\n!kernel-0:5.14-1.*\ncontainerd.io-2.4.2-1.el9.*\nfoo*\n");
        let locks = parse_locks(&text);
        let lock = |name: &str, line: &str, version: &str| (name.to_owned(), line.to_owned(), version.to_owned());
        let containerd = lock("containerd.io", "containerd.io-2.4.2-1.el9.*", "2.4.2-1.el9");
        assert_eq!(locks, [lock("cri-tools", &line, "1.36.0-150500.1.1"), containerd]);
        assert_eq!(lock_line("bind", "32:9.16-1"), "bind-32:9.16-1.*");
    }

    #[test]
    fn archives_are_known_by_their_names() {
        let known = parse_archive_name("containerd.io-2.4.2-1.el9.x86_64.rpm");
        assert_eq!(known, Some(("containerd.io".to_owned(), "2.4.2-1.el9".to_owned())));
        assert_eq!(parse_archive_name("kubelet.rpm"), None);
    }

    #[test]
    fn a_dnf_at_work_is_known_by_its_number_and_one_that_is_gone_is_nobody() {
        let disk = FakeDisk::new();
        disk.make_folder(Path::new("/var/lib/dnf"), 0o755).unwrap();
        disk.create(Path::new(PROCESS_FILES[0]), 0o644, b"42").unwrap();
        assert_eq!(lock_holder(&disk).unwrap(), None);
        disk.make_folder(Path::new("/proc/42"), 0o755).unwrap();
        disk.create(Path::new("/proc/42/comm"), 0o644, b"dnf\n").unwrap();
        let holder = LockHolder { pid: 42, name: "dnf".to_owned() };
        assert_eq!(lock_holder(&disk).unwrap(), Some((PROCESS_FILES[0], holder)));
    }

    #[test]
    fn what_an_interrupted_rpm_left_beside_files_of_its_packages_goes_and_nothing_else() {
        let disk = crate::fake::FakeDisk::new();
        let stays =
            ["/usr/sbin/iptables", "/usr/sbin/iptables;mine", "/usr/sbin/others;6aff79cb", "/etc/iptables;6aff79cb"];
        let goes = ["/usr/sbin/iptables;6aff79cb", "/usr/sbin/iptables;00000001", "/usr/bin/kubelet;6aff79cb"];
        for path in stays.iter().chain(&goes) {
            crate::files::write_durable(&disk, Path::new(path), 0o755, b"", None).unwrap();
        }
        remove_leftovers(&disk, "warning: of rpm\n/usr/sbin/iptables\n/usr/bin/kubelet\n/usr/share/absent/file\n")
            .unwrap();
        let is_there = |path: &str| disk.stat(Path::new(path)).unwrap().is_some();
        assert!(stays.iter().all(|path| is_there(path)) && !goes.iter().any(|path| is_there(path)));
    }
}
