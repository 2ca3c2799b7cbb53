//! Ignition configs, judged by Ignition's validator and carried out by Ignition itself, on a folder instead of a disk.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::sandbox::without_network;
use crate::cache::{Consumers, Ignition};
use crate::command::{output_text, stdout_of};

/// Spec 2 and spec 3 are two formats, each read by a program that does not know the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnitionSpec {
    Two,
    Three,
}

impl Consumers {
    /// Errors and warnings alike: Ignition only warns of a key that it does not know.
    pub fn check_ignition(&self, spec: IgnitionSpec, config: &Path) -> Result<()> {
        let mut validator = Command::new(&self.ignition_of(spec)?.validator);
        let output = validator.arg(config).stdin(Stdio::null()).output().context("running ignition-validate")?;
        let said = output_text(&output);
        if !output.status.success() || !said.is_empty() {
            bail!("ignition-validate: {}\n{said}", output.status);
        }
        Ok(())
    }

    /// Does to a folder what Ignition does to the root of a machine on its first boot, as far as files and units go.
    /// There is no network, and what a golden config would download is nowhere: an empty file takes its place.
    pub fn run_ignition(&self, spec: IgnitionSpec, config: &Path, root: &Path) -> Result<()> {
        let enter = |program: &Path| {
            let mut command = without_network();
            command.arg(program);
            command
        };
        self.ignite(spec, without_downloads(config)?.as_bytes(), root, &enter)
    }

    /// Carries out a config as it is; `enter` makes the command that runs Ignition in some network.
    pub(crate) fn ignite(
        &self,
        spec: IgnitionSpec,
        config: &[u8],
        root: &Path,
        enter: &dyn Fn(&Path) -> Command,
    ) -> Result<()> {
        let work = tempfile::tempdir().context("making a folder for Ignition's state")?;
        let local = work.path().join("config.ign");
        std::fs::write(&local, config).context("writing the config")?;
        let engine = self.ignition_of(spec)?.engine;
        let (platform, stages) = match spec {
            IgnitionSpec::Two => ("-oem", ["files"].as_slice()),
            IgnitionSpec::Three => ("-platform", ["fetch", "files"].as_slice()),
        };
        for stage in stages {
            let mut command = enter(&engine);
            command.env("IGNITION_CONFIG_FILE", &local);
            command.args([platform, "file", "-stage", stage, "-log-to-stdout", "-root"]).arg(root);
            command.arg("-config-cache").arg(work.path().join("config"));
            if spec == IgnitionSpec::Three {
                command.arg("-state-file").arg(work.path().join("state"));
                command.arg("-neednet").arg(work.path().join("neednet"));
            }
            stdout_of(&mut command)?;
        }
        Ok(())
    }

    fn ignition_of(&self, spec: IgnitionSpec) -> Result<Ignition> {
        match spec {
            IgnitionSpec::Two => self.ignition_spec_2(),
            IgnitionSpec::Three => self.ignition(),
        }
    }
}

fn without_downloads(config: &Path) -> Result<String> {
    let text = std::fs::read_to_string(config).with_context(|| format!("reading {}", config.display()))?;
    let mut value: Value = serde_json::from_str(&text).with_context(|| format!("parsing {}", config.display()))?;
    for file in value.pointer_mut("/storage/files").and_then(Value::as_array_mut).into_iter().flatten() {
        let source = file.pointer("/contents/source").and_then(Value::as_str).unwrap_or_default();
        if !source.is_empty() && !source.starts_with("data:") {
            file["contents"] = json!({"source": "data:,"});
        }
    }
    Ok(value.to_string())
}
