//! systemd-sysupdate, which replaces the links of extensions by newer versions of its own: not those that are ours.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bundle::Extension;
use host::disk::{Disk, DiskError};

use super::super::record::{Before, Record};

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
                let own = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".nodestrap-before"));
                let original = own.unwrap_or(&name);
                let path = Path::new(root).join(&folder).join(&name);
                if SUFFIXES.iter().any(|suffix| original.ends_with(suffix)) && replaces(disk, &path, &links)? {
                    places.insert(format!("{OWN_ROOT}/{folder}/{original}"));
                }
            }
        }
    }
    // Of a link that was there before, the record alone tells where it led.
    for (place, file) in &record.files {
        let Some(Before::Link { target }) = Some(&file.before) else { continue };
        let folder = Path::new(place).parent().unwrap_or(Path::new("/"));
        let is_transfer = folder.file_name().is_some_and(|name| is_of_transfers(&name.to_string_lossy()));
        if is_transfer && replaces(disk, &folder.join(target), &links)? {
            places.insert(place.clone());
        }
    }
    Ok(places)
}

/// `sysupdate.d`, and `sysupdate.NAME.d` of each component.
fn is_of_transfers(folder: &str) -> bool {
    folder.strip_prefix("sysupdate.").is_some_and(|rest| rest == "d" || rest.ends_with(".d"))
}

fn replaces(disk: &dyn Disk, transfer: &Path, links: &[String]) -> Result<bool, DiskError> {
    // What cannot be read as a small file describes nothing.
    let Ok(Some(bytes)) = disk.read(transfer, LIMIT) else { return Ok(false) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let link = target_link(&text);
    Ok(link.is_some_and(|link| links.iter().any(|own| Path::new(own) == link)))
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
