//! dpkg's database: `/var/lib/dpkg/status`, and what an interrupted or running dpkg has written beside it.
//!
//! Parsing is pure. A stanza that says less than it should is left out, as dpkg would refuse it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::disk::{Disk, DiskError};

pub const STATUS_PATH: &str = "/var/lib/dpkg/status";
/// One stanza a file, newer than the status; empty while no dpkg is at work or was interrupted.
pub const UPDATES_FOLDER: &str = "/var/lib/dpkg/updates";
/// What apt and dpkg lock, in the order in which they do.
pub const LOCKS: [&str; 3] = ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock"];
/// Some megabytes on a machine with everything.
const LIMIT: u64 = 64 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub packages: BTreeMap<String, Package>,
    /// A dpkg was interrupted, or is at work now.
    pub is_interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    pub version: String,
    pub architecture: String,
    pub is_held: bool,
    pub state: State,
    /// Each is satisfied by any of its names.
    pub depends: Vec<Vec<String>>,
    pub provides: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Installed,
    /// In dpkg's words: `half-installed`, `unpacked`, `half-configured`, `triggers-awaited`, `triggers-pending`.
    Interrupted(String),
    /// Removed, not purged.
    ConfigFiles,
}

pub fn load(disk: &dyn Disk) -> Result<Status, DiskError> {
    let text = |path: &Path| -> Result<String, DiskError> {
        let bytes = disk.read(path, LIMIT)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut whole = text(Path::new(STATUS_PATH))?;
    let mut is_interrupted = false;
    for name in disk.list(Path::new(UPDATES_FOLDER))? {
        // Others are files that are still being written.
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            is_interrupted = true;
            whole.push_str("\n\n");
            whole.push_str(&text(&Path::new(UPDATES_FOLDER).join(name))?);
        }
    }
    let status = parse_status(&whole);
    Ok(Status { is_interrupted: is_interrupted || status.is_interrupted, ..status })
}

/// Later stanzas of a package replace earlier ones; of several architectures that of dpkg itself counts.
pub fn parse_status(text: &str) -> Status {
    let mut all: BTreeMap<(String, String), Option<Package>> = BTreeMap::new();
    for stanza in stanzas(text) {
        let field = |name: &str| stanza.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let (Some(name), Some(status)) = (field("Package"), field("Status")) else { continue };
        let words: Vec<&str> = status.split_whitespace().collect();
        let [want, flag, state] = words[..] else { continue };
        let architecture = field("Architecture").cloned().unwrap_or_default();
        let state = match state {
            "installed" if flag == "ok" => Some(State::Installed),
            "config-files" => Some(State::ConfigFiles),
            "not-installed" => None,
            other => Some(State::Interrupted(other.to_owned())),
        };
        let relations = |name: &str| field(name).map(|text| parse_relations(text)).unwrap_or_default();
        let package = state.map(|state| Package {
            version: field("Version").cloned().unwrap_or_default(),
            architecture: architecture.clone(),
            is_held: want == "hold",
            state,
            depends: [relations("Pre-Depends"), relations("Depends")].concat(),
            provides: relations("Provides").into_iter().flatten().collect(),
        });
        all.insert((name.clone(), architecture), package);
    }
    let native = all.iter().find(|((name, _), package)| name == "dpkg" && package.is_some());
    let native = native.map(|((_, architecture), _)| architecture.clone());
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for ((name, architecture), package) in all {
        let Some(package) = package else { continue };
        let is_own = architecture == "all" || native.is_none() || native.as_ref() == Some(&architecture);
        if is_own || !packages.contains_key(&name) {
            packages.insert(name, package);
        }
    }
    let is_cut_off = |package: &Package| match &package.state {
        State::Interrupted(state) => state != "triggers-pending" && state != "triggers-awaited",
        State::Installed | State::ConfigFiles => false,
    };
    let is_interrupted = packages.values().any(is_cut_off);
    Status { packages, is_interrupted }
}

fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in text.lines() {
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if !line.starts_with([' ', '\t'])
            && let Some((key, value)) = line.split_once(':')
            && let Some(last) = all.last_mut()
        {
            last.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    all.retain(|stanza| !stanza.is_empty());
    all
}

/// `a (>= 1), b | c:any [amd64]` by their names alone: whether the versions fit is for dpkg to say.
fn parse_relations(text: &str) -> Vec<Vec<String>> {
    let name = |relation: &str| {
        let word = relation.split(['(', '[', '<']).next().unwrap_or_default().trim();
        word.split(':').next().unwrap_or_default().to_owned()
    };
    let group = |group: &str| group.split('|').map(name).filter(|name| !name.is_empty()).collect::<Vec<_>>();
    text.split(',').map(group).filter(|group| !group.is_empty()).collect()
}

impl Status {
    /// Those of `removed` without which some package that stays would miss what it depends on.
    pub fn needed_by_others(&self, removed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut kept: BTreeSet<String> = BTreeSet::new();
        loop {
            let stays = |name: &String| !removed.contains(name) || kept.contains(name);
            let is_there = |package: &Package| package.state != State::ConfigFiles;
            let staying = self.packages.iter().filter(|(name, package)| stays(name) && is_there(package));
            let mut more = BTreeSet::new();
            for group in staying.flat_map(|(_, package)| &package.depends) {
                let providers: Vec<&String> = group.iter().flat_map(|name| self.providers(name)).collect();
                if !providers.iter().any(|name| stays(name)) {
                    more.extend(providers.into_iter().take(1).cloned());
                }
            }
            if more.is_empty() {
                return kept;
            }
            kept.extend(more);
        }
    }

    fn providers<'s>(&'s self, wanted: &str) -> Vec<&'s String> {
        let gives = |(name, package): &(&String, &Package)| {
            package.state != State::ConfigFiles
                && (name.as_str() == wanted || package.provides.iter().any(|provided| provided == wanted))
        };
        self.packages.iter().filter(gives).map(|(name, _)| name).collect()
    }
}

/// `kubelet_1.36.3-1.1_amd64.deb` as apt names what it downloads: the package, and its version with the epoch.
pub fn parse_archive_name(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version, _) = (parts.next()?, parts.next()?, parts.next()?);
    Some((name.to_owned(), version.replace("%3a", ":").replace("%3A", ":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21\n\n\
        Package: kubelet\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 1.36.3-1.1\n\
        Depends: iptables (>= 1.4), kubernetes-cni | cni, libc6:any\nDescription: x\n more: than one line\n .\n\n\
        Package: iptables\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 1:1.8\nProvides: ipt (= 1)\n\n\
        Package: kubernetes-cni\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.2\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: i386\nVersion: 9\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\n\n\
        Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n\
        Package: never\nStatus: unknown ok not-installed\nArchitecture: all\n\n";

    #[test]
    fn packages_are_known_by_version_hold_and_state() {
        let status = parse_status(STATUS);
        let kubelet = &status.packages["kubelet"];
        assert!(kubelet.is_held && kubelet.state == State::Installed && kubelet.version == "1.36.3-1.1");
        assert_eq!(kubelet.depends, [vec!["iptables"], vec!["kubernetes-cni", "cni"], vec!["libc6"]]);
        assert_eq!(status.packages["iptables"].state, State::Interrupted("half-configured".to_owned()));
        assert_eq!(status.packages["libc6"].version, "2", "of the machine's own architecture");
        assert_eq!(status.packages["gone"].state, State::ConfigFiles);
        assert!(status.is_interrupted && !status.packages.contains_key("never"));
    }

    #[test]
    fn what_others_need_stays_and_so_does_what_that_needs() {
        let status = parse_status(STATUS);
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(status.needed_by_others(&set(&["kubelet", "iptables", "kubernetes-cni"])), set(&[]));
        assert_eq!(
            status.needed_by_others(&set(&["iptables", "kubernetes-cni"])),
            set(&["iptables", "kubernetes-cni"])
        );
    }

    #[test]
    fn what_an_interrupted_dpkg_wrote_beside_counts() {
        let disk = crate::fake::FakeDisk::new();
        for folder in ["/var/lib/dpkg", UPDATES_FOLDER] {
            disk.make_folder(Path::new(folder), 0o755).unwrap();
        }
        disk.create(Path::new(STATUS_PATH), 0o644, STATUS.replace("half-configured", "installed").as_bytes()).unwrap();
        assert!(!load(&disk).unwrap().is_interrupted);
        let update = "Package: kubelet\nStatus: hold ok unpacked\nArchitecture: amd64\nVersion: 1.36.4-1.1\n";
        disk.create(&Path::new(UPDATES_FOLDER).join("0001"), 0o644, update.as_bytes()).unwrap();
        disk.create(&Path::new(UPDATES_FOLDER).join("tmp.i"), 0o644, b"Pack").unwrap();
        let status = load(&disk).unwrap();
        assert!(status.is_interrupted);
        assert_eq!(status.packages["kubelet"].version, "1.36.4-1.1");
    }

    #[test]
    fn archives_are_named_after_package_and_version() {
        let parsed = |file| parse_archive_name(file).map(|(name, version)| format!("{name} {version}"));
        assert_eq!(parsed("kubelet_1.36.3-1.1_amd64.deb").as_deref(), Some("kubelet 1.36.3-1.1"));
        assert_eq!(parsed("libstdc++6_1%3a12.2.0-14_amd64.deb").as_deref(), Some("libstdc++6 1:12.2.0-14"));
        assert_eq!(parsed("lock"), None);
    }
}
