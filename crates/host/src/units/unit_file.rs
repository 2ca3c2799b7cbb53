//! Unit files as far as a bootstrap must read them itself: where they lie, whether they are masked, and `[Install]`.
//!
//! In: text, or a disk and a name. Out: values. [`parse_install`] takes anything and never fails, as systemd does: what
//! it cannot read it leaves out.

use std::path::{Path, PathBuf};

use super::UnitName;
use crate::disk::{Disk, DiskError, Kind};

/// Where systemd looks for unit files; the first folder wins.
const FOLDERS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// Unit files are a few hundred bytes; this is systemd's own limit for one line.
const UNIT_FILE_LIMIT: u64 = 1024 * 1024;

/// What `enable` would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Install {
    pub wanted_by: Vec<String>,
    pub required_by: Vec<String>,
    pub alias: Vec<String>,
    pub also: Vec<String>,
}

/// A unit on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Absent,
    Masked,
    File { path: PathBuf, content: String },
}

/// Finds the file of a unit; an instance (`a@b.service`) falls back to its template (`a@.service`).
pub fn find(disk: &dyn Disk, unit: &UnitName) -> Result<Found, DiskError> {
    for name in [Some(unit.0.clone()), template_of(&unit.0)].into_iter().flatten() {
        for folder in FOLDERS {
            let path = Path::new(folder).join(&name);
            match look_at(disk, &path)? {
                Found::Absent => {}
                found => return Ok(found),
            }
        }
    }
    Ok(Found::Absent)
}

fn look_at(disk: &dyn Disk, path: &Path) -> Result<Found, DiskError> {
    match disk.stat(path)?.map(|stat| stat.kind) {
        Some(Kind::Link { target }) if target == "/dev/null" => Ok(Found::Masked),
        Some(Kind::File | Kind::Link { .. }) => Ok(match disk.read(path, UNIT_FILE_LIMIT)? {
            // An empty unit file masks, too.
            Some(bytes) if bytes.is_empty() => Found::Masked,
            Some(bytes) => Found::File { path: path.to_owned(), content: String::from_utf8_lossy(&bytes).into_owned() },
            None => Found::Absent,
        }),
        _ => Ok(Found::Absent),
    }
}

fn template_of(unit: &str) -> Option<String> {
    let (prefix, rest) = unit.split_once('@')?;
    let (_, suffix) = rest.rsplit_once('.')?;
    Some(format!("{prefix}@.{suffix}"))
}

/// Reads `[Install]`: repeated keys add up, an empty assignment forgets, a backslash at the end of a line goes on.
pub fn parse_install(text: &str) -> Install {
    let mut install = Install::default();
    let mut is_install = false;
    for line in logical_lines(text) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_install = section == "Install";
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_install) else { continue };
        let list = match key.trim_end() {
            "WantedBy" => &mut install.wanted_by,
            "RequiredBy" => &mut install.required_by,
            "Alias" => &mut install.alias,
            "Also" => &mut install.also,
            _ => continue,
        };
        if value.trim().is_empty() {
            list.clear();
        }
        list.extend(value.split_whitespace().filter(|word| is_unit_name(word)).map(str::to_owned));
    }
    install
}

/// Names become paths: one with a slash would point anywhere.
fn is_unit_name(word: &str) -> bool {
    !word.contains('/') && !word.contains('\0') && word.contains('.') && !word.starts_with('.')
}

/// Lines without comments and with continuations joined by a space. A comment between continued lines is left out and
/// does not end them.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for physical in text.lines() {
        let line = physical.trim();
        if line.starts_with(['#', ';']) || (line.is_empty() && open.is_none()) {
            continue;
        }
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        let joined = match open.take() {
            Some(before) => format!("{before} {part}"),
            None => part.to_owned(),
        };
        if goes_on {
            open = Some(joined);
        } else {
            lines.push(joined);
        }
    }
    lines.extend(open);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::FakeDisk;

    fn wanted_by(text: &str) -> Vec<String> {
        parse_install(text).wanted_by
    }

    #[test]
    fn reads_install_sections() {
        let cases: [(&str, &[&str]); 11] = [
            ("[Install]\nWantedBy=multi-user.target\n", &["multi-user.target"]),
            ("[Install]\nWantedBy = a.target  b.target", &["a.target", "b.target"]),
            ("[Install]\nWantedBy=a.target\nWantedBy=b.target", &["a.target", "b.target"]),
            ("[Install]\nWantedBy=a.target\nWantedBy=\nWantedBy=b.target", &["b.target"]),
            ("[Install]\nWantedBy=a.target \\\n  b.target", &["a.target", "b.target"]),
            ("[Install]\nWantedBy=a.target \\\n# why\n; not\n  b.target\n", &["a.target", "b.target"]),
            ("[Install]\n#WantedBy=a.target\n;WantedBy=b.target", &[]),
            ("[Unit]\nWantedBy=a.target\n[Install]\nAlias=b.service", &[]),
            ("[Install]\r\nWantedBy=a.target\r\n", &["a.target"]),
            ("[Install]\nWantedBy=../../x.target a.target", &["a.target"]),
            ("WantedBy=a.target\n[Install]\n[Service]\nWantedBy=a.target", &[]),
        ];
        for (text, wanted) in cases {
            assert_eq!(wanted_by(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn finds_files_in_order_and_sees_masks() {
        let disk = FakeDisk::new();
        let put = |path: &str, text: &str| {
            let path = Path::new(path);
            disk.make_folder(path.parent().unwrap(), 0o755).unwrap();
            disk.create(path, 0o644, text.as_bytes()).unwrap();
        };
        put("/usr/lib/systemd/system/a.service", "vendor");
        put("/etc/systemd/system/a.service", "admin");
        put("/lib/systemd/system/t@.service", "template");
        put("/etc/systemd/system/empty.service", "");
        disk.symlink("/dev/null", Path::new("/etc/systemd/system/b.service")).unwrap();
        let found = |name: &str| find(&disk, &UnitName(name.to_owned())).unwrap();
        assert!(matches!(found("a.service"), Found::File { content, .. } if content == "admin"));
        assert!(matches!(found("t@1.service"), Found::File { content, .. } if content == "template"));
        assert_eq!(found("b.service"), Found::Masked);
        assert_eq!(found("empty.service"), Found::Masked);
        assert_eq!(found("c.service"), Found::Absent);
    }

    proptest! {
        #[test]
        fn never_panics_and_never_yields_a_path(text in "(\\[Install\\]\n)?([A-Za-z=\\\\;#\\[\\]/. \n\r]|WantedBy=|\\PC){0,200}") {
            let install = parse_install(&text);
            for name in install.wanted_by.iter().chain(&install.also) {
                prop_assert!(!name.contains('/') && !name.is_empty());
            }
        }
    }
}
