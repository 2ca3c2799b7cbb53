//! The address of the package list of a release: a template with two variables, in the words of Go's `text/template`.

use serde::{Deserialize, Serialize};

use super::names::Board;
use super::package_list::without_user;
use super::version::OsVersion;
use crate::stub::validate_url;

/// Where Tectonic's lists were. The bucket is gone since 2020.
pub const DEFAULT_MANIFEST_URL: &str =
    "https://tectonic-torcx.release.core-os.net/manifests/{{.Board}}/{{.OSVersion}}/torcx_manifest.json";
const DEAD_HOST: &str = "tectonic-torcx.release.core-os.net";
/// Beside the list: an ASCII-armoured detached signature.
const SIGNATURE_SUFFIX: &str = ".asc";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UrlTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Board,
    OsVersion,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the template {template:?} has {action:?}, where only {{{{.Board}}}} and {{{{.OSVersion}}}} are known")]
    Action { template: String, action: String },
    #[error("the template {template:?} has a '{{{{' without '}}}}', or the other way round")]
    Unbalanced { template: String },
    #[error("the template {template:?} {problem}")]
    Address { template: String, problem: &'static str },
}

impl TryFrom<String> for UrlTemplate {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        Self::parse(&text)
    }
}

impl From<UrlTemplate> for String {
    fn from(template: UrlTemplate) -> Self {
        template.text
    }
}

impl UrlTemplate {
    /// Whatever would make a wrong address is refused here, and not on the node.
    pub fn parse(template: &str) -> Result<Self, TemplateError> {
        let unbalanced = || TemplateError::Unbalanced { template: template.to_owned() };
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some((text, after)) = rest.split_once("{{") {
            let (action, after) = after.split_once("}}").ok_or_else(unbalanced)?;
            parts.push(Part::Text(text.to_owned()));
            parts.push(match action.trim_matches([' ', '\t']) {
                ".Board" => Part::Board,
                ".OSVersion" => Part::OsVersion,
                _ => {
                    let action = format!("{{{{{action}}}}}");
                    return Err(TemplateError::Action { template: template.to_owned(), action });
                }
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        if parts.iter().any(|part| matches!(part, Part::Text(text) if text.contains("}}"))) {
            return Err(unbalanced());
        }
        let parsed = Self { text: template.to_owned(), parts };
        let sample = parsed.fill("amd64-usr", "2512.1.0");
        validate_url(&sample)
            .map_err(|problem| TemplateError::Address { template: without_user(template), problem })?;
        Ok(parsed)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn list_url(&self, board: &Board, version: &OsVersion) -> String {
        self.fill(board.as_str(), version.as_str())
    }

    pub fn signature_url(&self, board: &Board, version: &OsVersion) -> String {
        self.list_url(board, version) + SIGNATURE_SUFFIX
    }

    /// Whether it leads to the bucket that is gone, whatever becomes of its variables.
    pub fn is_dead(&self) -> bool {
        let Some(Part::Text(start)) = self.parts.first() else { return false };
        let authority = start.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
        let host = authority.split(':').next().unwrap_or_default();
        host.trim_end_matches('.').eq_ignore_ascii_case(DEAD_HOST)
    }

    fn fill(&self, board: &str, version: &str) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Board => board.to_owned(),
            Part::OsVersion => version.to_owned(),
        };
        self.parts.iter().map(text).collect()
    }
}
