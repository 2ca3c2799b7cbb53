//! User data, read by cloud-init's own code in the node's tree: what each part is, whether its schema holds, what it writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::sandbox::Sandbox;
use crate::cache::Consumers;
use crate::command::stdout_of;
use crate::paths::recipe;

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
    /// What `write_files` and the part handlers wrote: path, then SHA-256 and mode, as "0600".
    pub written: BTreeMap<String, (String, String)>,
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
        let sandbox = Sandbox::over(&[&self.node_root()?])?;
        let mut command = sandbox.command(input.path(), "python3");
        let answer = stdout_of(command.args(["/mnt/check.py", &files.len().to_string()]))?;
        let verdicts: Vec<CloudInitVerdict> =
            serde_json::from_str(&answer).with_context(|| format!("reading the answer {answer:?}"))?;
        Ok(files.iter().map(|file| file.name.clone()).zip(verdicts).collect())
    }
}
