//! User data, read by cloud-init's own code in the node's tree: what each part is, whether its schema holds, what it writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::sandbox::Sandbox;
use crate::cache::Consumers;
use crate::command::stdout_of;
use crate::paths::{recipe, repository};

/// A file to be judged; the name is for the answer.
#[derive(Debug, Clone)]
pub struct UserData {
    pub name: String,
    pub path: PathBuf,
}

/// What cloud-init makes of one file.
#[derive(Debug, Clone, Deserialize)]
pub struct CloudInitVerdict {
    /// Empty if all is well.
    pub complaints: Vec<String>,
    /// The content type of each part, as cloud-init sees it.
    pub types: Vec<String>,
    /// What `write_files` and the part handlers wrote, by path.
    pub written: BTreeMap<String, WrittenFile>,
}

/// A file as cloud-init left it.
#[derive(Debug, Clone, Deserialize)]
pub struct WrittenFile {
    pub sha256: String,
    /// As "0600".
    pub mode: String,
    pub text: String,
}

impl Consumers {
    /// All files in one start of cloud-init's interpreter; in the order given.
    pub fn check_user_data(&self, files: &[UserData]) -> Result<Vec<(String, CloudInitVerdict)>> {
        let input = tempfile::tempdir().context("making a folder for user data")?;
        std::fs::copy(recipe("consumers").join("cloud_init.py"), input.path().join("check.py"))
            .context("copying the script")?;
        for (index, file) in files.iter().enumerate() {
            std::fs::copy(&file.path, input.path().join(format!("{index}.user-data")))
                .with_context(|| format!("copying {}", file.path.display()))?;
        }
        let mut units = Vec::new();
        for entry in std::fs::read_dir(repository().join("dist/systemd")).context("reading dist/systemd")? {
            let unit = entry?;
            std::fs::copy(unit.path(), input.path().join(unit.file_name())).context("copying a unit")?;
            units.push(unit.file_name());
        }
        let sandbox = Sandbox::over(&[&self.node_root()?])?;
        let mut command = sandbox.command(input.path(), "python3");
        let answer = stdout_of(command.args(["/mnt/check.py", &files.len().to_string()]).args(units))?;
        let verdicts: Vec<CloudInitVerdict> =
            serde_json::from_str(&answer).with_context(|| format!("reading the answer {answer:?}"))?;
        Ok(files.iter().map(|file| file.name.clone()).zip(verdicts).collect())
    }
}
