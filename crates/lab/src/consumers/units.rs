//! Unit files, read by the systemd of the node's tree.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::sandbox::Sandbox;
use crate::cache::Consumers;
use crate::command::output_text;
use crate::paths::repository;

/// The tree of a case has no programs, and not the units of every image. What a unit starts is made, and so is a service
/// that has drop-ins only: what remains to be reported is what is wrong with our files.
const VERIFY: &str = r#"
while read -r program; do
  [ -e "$program" ] || { mkdir -p "$(dirname "$program")"; ln -s /bin/true "$program"; }
done
cp -n /mnt/*.service /usr/lib/systemd/system/
for unit; do
  case $unit in *.service)
    [ -e "/etc/systemd/system/$unit" ] || [ -e "/usr/lib/systemd/system/$unit" ] ||
      printf '[Service]\nExecStart=/bin/true\n' > "/usr/lib/systemd/system/$unit" ;;
  esac
done
exec systemd-analyze verify --man=no --recursive-errors=no "$@"
"#;
const UNIT_TYPES: [&str; 8] = ["service", "socket", "timer", "mount", "path", "target", "slice", "automount"];

impl Consumers {
    /// The units below `root/etc/systemd/system`, with their drop-ins, beside the units that nodestrap ships.
    /// Returns how many units were verified.
    pub fn check_units(&self, root: &Path) -> Result<usize> {
        let units = units_of(root)?;
        if units.is_empty() {
            return Ok(0);
        }
        let shipped = repository().join("dist/systemd");
        let mut programs = started_programs(&root.join("etc/systemd/system"))?;
        programs.extend(started_programs(&shipped)?);
        let sandbox = Sandbox::over(&[root, &self.node_root()?])?;
        let list = tempfile::NamedTempFile::new().context("making the list of programs")?;
        std::fs::write(list.path(), programs.join("\n") + "\n").context("writing the list of programs")?;
        let mut command = sandbox.command(&shipped, "sh");
        let input = std::fs::File::open(list.path()).context("opening the list of programs")?;
        command.args(["-euc", VERIFY, "verify"]).args(&units).stdin(Stdio::from(input));
        let output = command.output().context("running systemd-analyze")?;
        let said = output_text(&output);
        // Of a key that it does not know systemd says so and goes on; of other units it says things that we did not write.
        let ours =
            said.lines().filter(|line| units.iter().any(|unit| line.contains(unit.as_str()))).collect::<Vec<_>>();
        if !output.status.success() || !ours.is_empty() {
            bail!("systemd-analyze verify: {}\n{said}", output.status);
        }
        Ok(units.len())
    }
}

/// Names of units that have a file or a drop-in folder here.
fn units_of(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("etc/systemd/system");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut units = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        // A masked unit is a link to nothing, or empty.
        if std::fs::read(entry.path()).is_ok_and(|content| content.is_empty()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let unit = name.strip_suffix(".d").unwrap_or(&name);
        if unit.rsplit_once('.').is_some_and(|(_, kind)| UNIT_TYPES.contains(&kind)) {
            units.push(unit.to_owned());
        }
    }
    units.sort();
    units.dedup();
    Ok(units)
}

fn started_programs(folder: &Path) -> Result<Vec<String>> {
    let mut programs = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                programs.extend(text.lines().filter_map(started_program).map(str::to_owned));
            }
        }
    }
    Ok(programs)
}

/// The path in `ExecStartPre=-/usr/bin/x --y`.
fn started_program(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim_start_matches(['-', '+', '!', '@', ':']);
    key.starts_with("Exec")
        .then(|| value.split_whitespace().next())
        .flatten()
        .filter(|program| program.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_line_is_found_behind_its_prefixes() {
        assert_eq!(started_program("ExecStartPre=-+/usr/bin/x --y"), Some("/usr/bin/x"));
        assert_eq!(started_program("ExecStart="), None);
        assert_eq!(started_program("Environment=/a"), None);
    }
}
