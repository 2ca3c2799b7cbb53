//! One program, run by the service manager as a unit that is gone afterwards: it outlives whoever asked for it, and whoever
//! comes next can wait for its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use zbus::Variant;

use super::{UnitError, UnitName};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transient {
    /// Two of the same name never run at once.
    pub unit: UnitName,
    pub description: String,
    /// The absolute path of a program, then its arguments. No secret is among them: everybody can ask for them.
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// More of the environment, for root to read.
    pub environment_file: Option<PathBuf>,
    /// All that it says. Its folder must be there, and the file not.
    pub output: PathBuf,
}

/// How long to rest between two looks at a unit that somebody else started.
pub(super) const END_INTERVAL: Duration = Duration::from_millis(500);

impl Transient {
    /// Without a timeout: nobody kills a package manager half-way; whoever waits gives up by themselves.
    pub(super) fn properties(&self) -> Vec<(&'static str, Variant<'static>)> {
        let program = self.command.first().cloned().unwrap_or_default();
        let variables: Vec<String> = self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let output = self.output.display().to_string();
        let mut properties = vec![
            ("Description", Variant::from(self.description.clone())),
            ("Type", Variant::from("oneshot")),
            // Nothing of it stays, however it ends; our own reference keeps it until its result was read.
            ("CollectMode", Variant::from("inactive-or-failed")),
            ("AddRef", Variant::from(true)),
            ("ExecStart", Variant::from(vec![(program, self.command.clone(), false)])),
            ("Environment", Variant::from(variables)),
            // systemd 236 and later; the appending kind came with 240.
            ("StandardOutputFile", Variant::from(output.clone())),
            ("StandardErrorFile", Variant::from(output)),
        ];
        if let Some(file) = &self.environment_file {
            properties.push(("EnvironmentFiles", Variant::from(vec![(file.display().to_string(), false)])));
        }
        properties
    }

    pub(super) fn is_runnable(&self) -> Result<(), UnitError> {
        match self.command.first().is_some_and(|program| program.starts_with('/')) {
            true => Ok(()),
            false => Err(UnitError::Call {
                operation: "run",
                what: self.unit.0.clone(),
                source: "the command has no absolute path".into(),
            }),
        }
    }
}
