//! The environment of the kubelet as an installer leaves it, and what becomes of it once the version is known.
//!
//! ```text
//! # /etc/kubernetes/installer/kubelet.env
//! KUBELET_IMAGE_URL="images.example/k8s/hyperkube"
//! KUBELET_IMAGE_TAG="v1.9.6_coreos.0"
//! ```
//!
//! It is read as Tectonic's bootstrapper does (up to the first `=`, without quotes, lines without `=` say nothing), except that a
//! comment is one also where it has a `=`. Everything is kept; only the tag is replaced. What is written is the gate's business:
//! variables are given sorted, and without quotes.

use std::collections::BTreeMap;

use super::version::{InvalidVersion, KubernetesVersion};
use crate::gate::is_variable_name;

/// Where an installer puts it, for a cluster that has no API server yet.
pub const KUBELET_ENV_SEED_PATH: &str = "/etc/kubernetes/installer/kubelet.env";
pub const IMAGE_TAG_VARIABLE: &str = "KUBELET_IMAGE_TAG";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletEnv(BTreeMap<String, String>);

/// No value is in a message: nobody knows what else stands there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletEnvError {
    #[error("line {line} of the kubelet's environment {problem}")]
    Line { line: usize, problem: &'static str },
    #[error("the kubelet's environment does not set {IMAGE_TAG_VARIABLE}")]
    NoTag,
    #[error(transparent)]
    Tag(#[from] InvalidVersion),
}

impl KubeletEnv {
    pub fn parse(text: &str) -> Result<Self, KubeletEnvError> {
        let mut variables = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else { continue };
            let wrong = |problem| KubeletEnvError::Line { line: index + 1, problem };
            let (name, value) = (name.trim_end(), value.trim_start());
            if !is_variable_name(name) {
                return Err(wrong("has no name of a variable before the '='"));
            }
            if value.chars().any(char::is_control) {
                return Err(wrong("has a control character in its value"));
            }
            // The last of two counts, as everywhere.
            variables.insert(name.to_owned(), unquote(value));
        }
        Ok(Self(variables))
    }

    /// As it was sown.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The version at the time of the installation.
    pub fn version(&self) -> Result<KubernetesVersion, KubeletEnvError> {
        let tag = self.0.get(IMAGE_TAG_VARIABLE).filter(|tag| !tag.is_empty()).ok_or(KubeletEnvError::NoTag)?;
        Ok(KubernetesVersion::from_tag(tag)?)
    }

    /// What a kubelet of this version is started with: all that was there, with another tag.
    pub fn for_version(&self, version: &KubernetesVersion) -> BTreeMap<String, String> {
        let mut variables = self.0.clone();
        variables.insert(IMAGE_TAG_VARIABLE.to_owned(), version.tag());
        variables
    }
}

/// In one pair of quotes as systemd reads it, since that is who read it before; else as the bootstrapper does.
fn unquote(value: &str) -> String {
    if let Some(inner) = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return inner.to_owned();
    }
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.trim_matches('"').to_owned();
    };
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(escaped @ ('"' | '\\' | '`' | '$'))) => {
                text.push(*escaped);
                characters.next();
            }
            _ => text.push(character),
        }
    }
    text
}
