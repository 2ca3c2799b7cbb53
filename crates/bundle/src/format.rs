//! How a file is written: told by its name and its content once, and enough to see later whether it can still be read.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::values::unit_sections;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    Yaml,
    Json,
    Toml,
    /// Sections of assignments, as systemd reads them.
    Unit,
    /// Assignments, one a line.
    Environment,
    Pem,
    /// Text of which no more is known.
    #[default]
    Text,
    Binary,
}

impl Format {
    /// Of a file that is as it should be. It is never one that the content itself does not have: whatever a file is called,
    /// nobody will be told later that it is broken because it is what it always was.
    pub fn of(path: &str, content: &[u8]) -> Self {
        let by_content = [Self::Pem, Self::Yaml].into_iter().filter(|format| match format {
            // Nearly every text is YAML to somebody; an object of Kubernetes is meant to be.
            Self::Yaml => is_kubernetes_object(content),
            _ => true,
        });
        let mut candidates = Self::by_name(path).into_iter().chain(by_content).chain([Self::Text]);
        candidates.find(|format| format.can_read(content)).unwrap_or(Self::Binary)
    }

    /// What the name of a file says.
    pub(crate) fn by_name(path: &str) -> Option<Self> {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        Some(match extension {
            "yaml" | "yml" | "kubeconfig" => Self::Yaml,
            "json" | "conflist" => Self::Json,
            "toml" => Self::Toml,
            "service" | "socket" | "timer" | "mount" | "path" | "target" => Self::Unit,
            "conf" if path.contains(".service.d/") => Self::Unit,
            "env" => Self::Environment,
            "conf" if path.starts_with("/etc/sysctl.d/") => Self::Environment,
            "crt" | "pem" | "key" => Self::Pem,
            _ => return None,
        })
    }

    /// Whether somebody who expects this format can make anything of it. In doubt they can: what is refused here is taken
    /// for damage and put back as it was.
    pub fn can_read(self, content: &[u8]) -> bool {
        if self == Self::Binary {
            return true;
        }
        let Some(text) = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0')) else { return false };
        match self {
            Self::Yaml => serde_saphyr::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
            Self::Json => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
            Self::Toml => toml::from_str::<toml::Table>(text).is_ok(),
            Self::Unit => unit_sections(text).first().is_some_and(|(section, ..)| !section.is_empty()),
            Self::Environment => {
                text.lines().any(|line| !line.trim_start().starts_with(['#', ';']) && line.contains('='))
            }
            Self::Pem => is_pem(text),
            Self::Text | Self::Binary => true,
        }
    }

    pub(crate) fn is_text(&self) -> bool {
        *self == Self::Text
    }

    /// With its article, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Toml => "TOML",
            Self::Unit => "a unit of systemd",
            Self::Environment => "a list of variables",
            Self::Pem => "PEM",
            Self::Text => "text",
            Self::Binary => "binary data",
        }
    }
}

fn is_kubernetes_object(content: &[u8]) -> bool {
    let text = std::str::from_utf8(content).unwrap_or_default();
    let has = |field: &str| text.lines().any(|line| line.starts_with(field));
    has("apiVersion:") && has("kind:")
}

/// At least one block, and every block whole. What stands between them is for people.
fn is_pem(text: &str) -> bool {
    let mut blocks = text.split("-----BEGIN ");
    let before = blocks.next().unwrap_or_default();
    let mut blocks = blocks.peekable();
    blocks.peek().is_some() && !before.contains("-----END ") && blocks.all(is_whole_block)
}

/// From the label on.
fn is_whole_block(block: &str) -> bool {
    let parts = block.split_once("-----").and_then(|(label, rest)| rest.split_once(&format!("-----END {label}-----")));
    parts.is_some_and(|(body, _)| {
        let digits: String = body.split_whitespace().collect();
        !digits.is_empty() && BASE64.decode(digits.as_bytes()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAEC\nAwQF\n-----END CERTIFICATE-----\n";

    #[test]
    fn the_format_is_what_the_name_says_if_the_content_is_of_it_and_else_what_the_content_says() {
        for (path, content, format) in [
            ("/etc/kubernetes/kubelet.yaml", "a: 1\n", Format::Yaml),
            ("/etc/kubernetes/kubelet.yaml", "{{ a template }}\n- x", Format::Text),
            ("/etc/kubernetes/bootstrap-kubeconfig", "apiVersion: v1\nkind: Config\n", Format::Yaml),
            ("/etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\n", Format::Yaml),
            ("/etc/motd", "note: be kind\n", Format::Text),
            ("/etc/kubernetes/pki/ca.crt", CERTIFICATE, Format::Pem),
            ("/etc/ca", CERTIFICATE, Format::Pem),
            ("/etc/systemd/system/kubelet.service.d/10-x.conf", "[Service]\nA=1\n", Format::Unit),
            ("/etc/systemd/system/locksmithd.service", "", Format::Text),
            ("/etc/eksctl/metadata.env", "# x\nA=\"1\"\n", Format::Environment),
            ("/etc/containerd/config.toml", "version = 2\n", Format::Toml),
            ("/etc/cni/net.d/10-x.conflist", "{}", Format::Json),
            ("/etc/app/blob", "a\0b", Format::Binary),
        ] {
            assert_eq!(Format::of(path, content.as_bytes()), format, "{path}: {content:?}");
        }
        assert_eq!(Format::of("/etc/app/blob.yaml", b"\xff\xfe"), Format::Binary);
    }

    #[test]
    fn an_edit_that_its_reader_takes_is_read_whatever_it_does() {
        for (format, content) in [
            (Format::Yaml, "# a comment\na: &x {b: 1}\nc: *x\n"),
            (Format::Yaml, "---\nmaxPods: 5\n"),
            (Format::Environment, "export A='1'\nB=\"x \\\n  y\"\n"),
            (Format::Unit, "# nothing of ours\n[Service]\nRestart=no\n"),
            (Format::Toml, "# all gone\n"),
            (Format::Pem, "this is our root\n-----BEGIN X-----\nAAEC\n-----END X-----\n"),
            (Format::Text, "anything"),
        ] {
            assert!(format.can_read(content.as_bytes()), "{format:?}: {content:?}");
        }
    }

    #[test]
    fn what_no_reader_could_use_is_not_read() {
        let cut = &CERTIFICATE[..CERTIFICATE.len() / 2];
        for (format, content) in [
            (Format::Yaml, "a: [1, 2"),
            (Format::Yaml, "only words"),
            (Format::Yaml, "\n"),
            (Format::Json, "{\"a\": 1"),
            (Format::Toml, "a = "),
            (Format::Unit, "Restart=always\n"),
            (Format::Unit, "# a comment\n"),
            (Format::Environment, "# a comment\n"),
            (Format::Pem, cut),
            (Format::Pem, &format!("{CERTIFICATE}{cut}")),
            (Format::Pem, "-----BEGIN X-----\n!!!!\n-----END X-----\n"),
            (Format::Pem, "no block"),
            (Format::Text, "a\0b"),
        ] {
            assert!(!format.can_read(content.as_bytes()), "{format:?}: {content:?}");
        }
        assert!(!Format::Text.can_read(b"\xff"));
    }
}
