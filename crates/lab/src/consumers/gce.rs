//! Instance templates and groups of Google Compute Engine, read with Google's own types, which know every field.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use super::FileKind;
use crate::cache::Consumers;
use crate::command::stdout_with_input;
use crate::paths::recipe;

/// The body of a request that makes a template or a group.
#[derive(Debug, Clone)]
pub struct GceFile {
    pub path: PathBuf,
    pub kind: FileKind,
}

/// What Google's types make of it.
#[derive(Debug, Clone, Deserialize)]
pub struct GceVerdict {
    /// Empty if all is well.
    pub complaints: Vec<String>,
    /// What a machine finds as its user data; only a template has it.
    pub user_data: Option<String>,
}

impl Consumers {
    /// In the order given.
    pub fn check_gce(&self, files: &[GceFile]) -> Result<Vec<GceVerdict>> {
        let input = files.iter().map(|file| {
            let message =
                if file.kind == FileKind::InstanceGroup { "InstanceGroupManager" } else { "InstanceTemplate" };
            json!([message, file.path])
        });
        let mut command = Command::new(self.python()?);
        command.arg(recipe("consumers").join("gce.py")).env_clear().env("PATH", "/usr/bin:/bin");
        let answer = stdout_with_input(&mut command, &json!(input.collect::<Vec<_>>()).to_string())?;
        serde_json::from_str(&answer).with_context(|| format!("reading the answer {answer:?}"))
    }
}
