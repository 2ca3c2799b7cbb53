//! systemd-sysext on a [`FakeDisk`]: lays the images that are linked over `/usr`, and takes them away again.
//!
//! A fake image is a text: a first line that says so, lines of its extension-release, `--`, and a line for each program with its path
//! and what is in it. As with the real thing, an image that does not fit is passed over, and that is a success.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::FakeDisk;
use crate::disk::{Disk as _, DiskError};
use crate::files::{self, FileError};
use crate::machine::{OsRelease, parse_os_release};

pub(super) const UNIT: &str = "systemd-sysext.service";
const FOLDER: &str = "/etc/extensions";
const FIRST_LINE: &str = "fake system extension";
const LIMIT: u64 = 1 << 20;

/// What is merged now, and what was below it; `None`: nothing.
#[derive(Clone, Default)]
pub(super) struct Merged(BTreeMap<PathBuf, Option<Vec<u8>>>);

/// The bytes of an image: its release, and its programs with their contents.
pub fn fake_sysext(release: &str, programs: &[(&str, &str)]) -> Vec<u8> {
    let programs: String = programs.iter().map(|(path, content)| format!("{path} {content}\n")).collect();
    format!("{FIRST_LINE}\n{release}--\n{programs}").into_bytes()
}

impl Merged {
    /// `/usr` as the image has it.
    pub(super) fn unmerge(&mut self, disk: &FakeDisk) -> Result<(), FileError> {
        for (path, below) in std::mem::take(&mut self.0) {
            match below {
                Some(content) => files::write_durable(disk, &path, 0o755, &content, None)?,
                None => drop(files::remove_durable(disk, &path)?),
            }
        }
        Ok(())
    }

    /// What is linked now, and fits, is in `/usr`; nothing else is.
    pub(super) fn refresh(&mut self, disk: &FakeDisk) -> Result<(), FileError> {
        self.unmerge(disk)?;
        let system = os_release(disk)?;
        for name in disk.list(Path::new(FOLDER))? {
            let Some(extension) = name.strip_suffix(".raw") else { continue };
            let Ok(Some(bytes)) = disk.read(&Path::new(FOLDER).join(&name), LIMIT) else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((release, programs)) = parse(&text) else { continue };
            if !fits(&parse_os_release(release), &system) {
                continue;
            }
            let marker = format!("/usr/lib/extension-release.d/extension-release.{extension}");
            let programs = programs.lines().filter_map(|line| line.split_once(' '));
            for (path, content) in programs.chain([(marker.as_str(), release)]) {
                let path = PathBuf::from(path);
                let below = disk.read(&path, LIMIT)?;
                self.0.entry(path.clone()).or_insert(below);
                files::write_durable(disk, &path, 0o755, content.as_bytes(), None)?;
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?.split_once("--\n")
}

fn os_release(disk: &FakeDisk) -> Result<OsRelease, DiskError> {
    for path in ["/etc/os-release", "/usr/lib/os-release"] {
        if let Some(bytes) = disk.read(Path::new(path), LIMIT)? {
            return Ok(parse_os_release(&String::from_utf8_lossy(&bytes)));
        }
    }
    Ok(parse_os_release(""))
}

fn fits(extension: &OsRelease, system: &OsRelease) -> bool {
    let get = |release: &OsRelease, key: &str| release.keys.get(key).cloned().unwrap_or_default();
    let level = (get(extension, "SYSEXT_LEVEL"), get(system, "SYSEXT_LEVEL"));
    match () {
        () if extension.id == "_any" => true,
        () if extension.id != system.id => false,
        () if !level.0.is_empty() && !level.1.is_empty() => level.0 == level.1,
        () => extension.version_id == system.version_id,
    }
}
