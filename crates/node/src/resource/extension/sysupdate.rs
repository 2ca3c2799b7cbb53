//! systemd-sysupdate, which replaces the links of extensions by newer versions of its own: not those that are ours.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bundle::Extension;
use host::disk::{Disk, DiskError};

use super::super::record::{Before, Record, load_original};

/// Where transfers are described; what is in `/etc` hides what is behind it.
const ROOTS: [&str; 4] = ["/etc", "/run", "/usr/local/lib", "/usr/lib"];
const OWN_ROOT: &str = "/etc";
const SUFFIXES: [&str; 2] = [".conf", ".transfer"];
const LIMIT: u64 = 256 * 1024;

/// Places in `/etc` by which transfers are hidden whose link is one of ours: also those that are hidden already.
pub(super) fn find(disk: &dyn Disk, extensions: &[Extension], record: &Record) -> Result<BTreeSet<String>, DiskError> {
    let links: Vec<String> = extensions.iter().map(|extension| extension.name.link()).collect();
    let mut places = BTreeSet::new();
    for root in ROOTS {
        for folder in disk.list(Path::new(root))?.into_iter().filter(|name| is_of_transfers(name)) {
            for name in disk.list(&Path::new(root).join(&folder))? {
                let path = Path::new(root).join(&folder).join(&name);
                if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) && replaces(read(disk, &path), &links) {
                    places.insert(format!("{OWN_ROOT}/{folder}/{name}"));
                }
            }
        }
    }
    // Of what was there before, the record alone tells what it said.
    for (place, file) in record.files.iter().filter(|(place, _)| is_transfer(place)) {
        let text = match &file.before {
            Before::File { sha256, .. } => load_original(disk, sha256)?,
            Before::Link { target } => read(disk, &Path::new(place).parent().unwrap_or(Path::new("/")).join(target)),
            Before::Absent | Before::Aside => None,
        };
        if replaces(text, &links) {
            places.insert(place.clone());
        }
    }
    Ok(places)
}

pub(super) fn is_transfer(path: &str) -> bool {
    let folder =
        path.strip_prefix(OWN_ROOT).and_then(|rest| rest.strip_prefix('/')).and_then(|rest| rest.split_once('/'));
    folder.is_some_and(|(folder, _)| is_of_transfers(folder))
}

/// What cannot be read as a small file describes nothing.
fn read(disk: &dyn Disk, transfer: &Path) -> Option<Vec<u8>> {
    disk.read(transfer, LIMIT).ok().flatten()
}

/// `sysupdate.d`, and `sysupdate.NAME.d` of each component.
fn is_of_transfers(folder: &str) -> bool {
    folder.strip_prefix("sysupdate.").is_some_and(|rest| rest == "d" || rest.ends_with(".d"))
}

fn replaces(transfer: Option<Vec<u8>>, links: &[String]) -> bool {
    let link = transfer.and_then(|bytes| target_link(&String::from_utf8_lossy(&bytes)));
    link.is_some_and(|link| links.iter().any(|own| Path::new(own) == link))
}

/// The link that a transfer replaces; relative ones lie beside what is transferred.
fn target_link(text: &str) -> Option<PathBuf> {
    let (mut section, mut path, mut link) = ("", "", None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if let ("[Target]", Some((key, value))) = (section, line.split_once('=')) {
            match key.trim() {
                "Path" => path = value.trim(),
                "CurrentSymlink" => link = Some(value.trim()).filter(|value| !value.is_empty()),
                _ => {}
            }
        }
    }
    // `..` occurs where people write it relative; what it leads to is told by names alone.
    let mut whole = PathBuf::new();
    for part in Path::new(path).join(link?).components() {
        match part {
            std::path::Component::ParentDir => drop(whole.pop()),
            std::path::Component::CurDir => {}
            other => whole.push(other),
        }
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_replaces_the_link_that_it_names() {
        let text = |link: &str| {
            format!(
                "[Source]\nType=url-file\nPath=https://example.org/\n[Target]\nType=regular-file\nPath=/opt/extensions/kubernetes\n{link}"
            )
        };
        for (line, link) in [
            ("CurrentSymlink=/etc/extensions/kubernetes.raw\n", Some("/etc/extensions/kubernetes.raw")),
            ("CurrentSymlink = ../../../etc/extensions/kubernetes.raw\n", Some("/etc/extensions/kubernetes.raw")),
            ("CurrentSymlink=current.raw\n", Some("/opt/extensions/kubernetes/current.raw")),
            ("CurrentSymlink=\n", None),
            ("", None),
        ] {
            assert_eq!(target_link(&text(line)), link.map(PathBuf::from), "{line}");
        }
        assert_eq!(target_link("[Source]\nCurrentSymlink=/etc/extensions/kubernetes.raw\n"), None);
    }
}
