//! Launch templates and Auto Scaling groups, given as they are to the API of EC2: botocore checks each parameter against
//! the published model of the API, moto plays the service. No socket is opened.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use crate::cache::Consumers;
use crate::command::stdout_with_input;
use crate::paths::recipe;

/// What one case renders for the API.
#[derive(Debug, Clone)]
pub struct AwsFiles {
    pub name: String,
    pub launch_template: PathBuf,
    pub auto_scaling_group: Option<PathBuf>,
}

/// What the API made of it.
#[derive(Debug, Clone, Deserialize)]
pub struct AwsVerdict {
    /// Empty if all is well.
    pub complaints: Vec<String>,
    /// What a machine of the group, or of the template, finds as its user data; base64.
    pub user_data: Option<String>,
    /// Whether the group replaced a machine that was taken from it; nothing if there is no group.
    pub replaced: Option<bool>,
}

impl AwsVerdict {
    /// The user data as the machine reads it.
    pub fn user_data(&self) -> Result<Vec<u8>> {
        let text = self.user_data.as_deref().context("the machine has no user data")?;
        data_encoding::BASE64.decode(text.as_bytes()).context("decoding the user data")
    }
}

impl Consumers {
    /// Each case in an account of its own; in the order given.
    pub fn check_aws(&self, files: &[AwsFiles]) -> Result<Vec<(String, AwsVerdict)>> {
        let input =
            files.iter().map(|files| json!([files.launch_template, files.auto_scaling_group])).collect::<Vec<_>>();
        // Values that are nowhere valid: a request that escaped moto could do nothing.
        let mut command = Command::new(self.python()?);
        command.arg(recipe("consumers").join("aws.py")).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("AWS_ACCESS_KEY_ID", "testing").env("AWS_SECRET_ACCESS_KEY", "testing");
        let answer = stdout_with_input(&mut command, &json!(input).to_string())?;
        let verdicts: Vec<AwsVerdict> =
            serde_json::from_str(&answer).with_context(|| format!("reading the answer {answer:?}"))?;
        Ok(files.iter().map(|files| files.name.clone()).zip(verdicts).collect())
    }
}
