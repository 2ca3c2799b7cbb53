//! Configurations of the kubelet, kube-proxy and the scheduler, decoded with the Go types of their minor, strictly.

use std::process::Command;

use anyhow::{Context, Result};

use super::Document;
use crate::cache::Consumers;
use crate::command::stdout_with_input;

impl Consumers {
    /// The kinds that the decoders know.
    pub const COMPONENT_CONFIGS: [&str; 3] =
        ["KubeletConfiguration", "KubeProxyConfiguration", "KubeSchedulerConfiguration"];

    /// Fields that this minor does not have, doubled fields and values of the wrong type are errors.
    pub fn check_component_config(&self, minor: &str, document: &Document) -> Result<()> {
        let decoders = self.decoders()?;
        let decoder = decoders.get(minor).with_context(|| {
            let known: Vec<&str> = decoders.keys().map(String::as_str).collect();
            format!("there is no decoder for Kubernetes {minor}, only for {}", known.join(", "))
        })?;
        stdout_with_input(Command::new(decoder).arg(&document.kind), &document.text).map(drop)
    }

    /// The minors that there are decoders for.
    pub fn decoded_minors(&self) -> Result<Vec<String>> {
        Ok(self.decoders()?.into_keys().collect())
    }
}
