//! What the golden cases of the renderer render, as the consumers see it: files by name, documents by kind.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::IgnitionSpec;
use crate::cache::minor_of;

/// What gzip starts with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// One rendered group: a folder with `manifest.json`, the tree that a node gets under `root/`, and the same as user data.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
}

/// One YAML or JSON document of a file below `root/`.
#[derive(Debug, Clone)]
pub struct Document {
    /// Relative to the folder of the case.
    pub file: PathBuf,
    pub kind: String,
    pub text: String,
    pub value: Value,
}

#[derive(Deserialize)]
struct Manifest {
    digest: String,
    bundle: Bundle,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    kubernetes_version: String,
    gate: Gate,
}

#[derive(Deserialize)]
struct Gate {
    environment: std::collections::BTreeMap<String, String>,
}

/// What a file is for, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// For cloud-init: a cloud-config or a multipart message, perhaps compressed.
    UserData,
    Ignition(IgnitionSpec),
    LaunchTemplate,
    AutoScalingGroup,
    /// Of Google Compute Engine.
    InstanceTemplate,
    /// Of Google Compute Engine.
    InstanceGroup,
}

impl FileKind {
    /// Nothing for what no consumer here reads.
    pub fn of(content: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(content);
        let multipart = text.lines().take_while(|line| !line.is_empty()).any(|line| line.starts_with("MIME-Version:"));
        if content.starts_with(&GZIP) || text.starts_with("#cloud-config") || multipart {
            return Some(Self::UserData);
        }
        let value: Value = serde_json::from_slice(content).ok()?;
        let has = |pointer: &str| value.pointer(pointer).is_some();
        match value.pointer("/ignition/version").and_then(Value::as_str) {
            Some(version) if version.starts_with("2.") => Some(Self::Ignition(IgnitionSpec::Two)),
            Some(_) => Some(Self::Ignition(IgnitionSpec::Three)),
            None if has("/LaunchTemplateData") => Some(Self::LaunchTemplate),
            None if has("/AutoScalingGroupName") => Some(Self::AutoScalingGroup),
            None if has("/properties/disks") => Some(Self::InstanceTemplate),
            None if has("/baseInstanceName") => Some(Self::InstanceGroup),
            None => None,
        }
    }
}

/// All cases below a folder, by name: the folders below `golden…`, and such a folder itself where it has files.
pub fn cases_below(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for golden in entries(folder)? {
        let name = golden.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !golden.is_dir() || !name.starts_with("golden") {
            continue;
        }
        let (folders, files): (Vec<_>, Vec<_>) = entries(&golden)?.into_iter().partition(|path| path.is_dir());
        if !files.is_empty() {
            cases.push(Case { name: name.clone(), folder: golden });
        }
        for folder in folders {
            let case = folder.file_name().unwrap_or_default().to_string_lossy();
            cases.push(Case { name: format!("{name}/{case}"), folder });
        }
    }
    Ok(cases)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether this is what belongs at the bundle's place on a node: the bundle of one of the cases, or a reference to it.
pub fn check_delivered(cases: &[Case], content: &str) -> Result<()> {
    let delivered: Value = serde_json::from_str(content).context("parsing what is delivered as the bundle")?;
    for case in cases {
        let (Some(manifest), Some(path)) = (case.manifest()?, case.file("bundle.json")) else { continue };
        let rendered = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let document: Value = serde_json::from_str(&rendered).with_context(|| format!("parsing {}", path.display()))?;
        // Where nothing is compressed, the blanks that are for people are left out.
        let without_blanks = document.to_string();
        let is_bundle = content == rendered || content == without_blanks;
        let referred =
            delivered["kind"] == "BundleReference" && delivered["reference"]["digest"] == manifest.digest.as_str();
        if is_bundle || referred {
            return Ok(());
        }
    }
    bail!("what is delivered as the bundle is no bundle that was rendered")
}

impl Case {
    /// As "1.36"; nothing for a case that renders no bundle, such as one that the renderer refuses.
    pub fn kubernetes_minor(&self) -> Result<Option<String>> {
        Ok(self.manifest()?.map(|manifest| minor_of(&manifest.bundle.kubernetes_version)))
    }

    /// The variables that the gate gives to the kubelet's unit.
    pub fn gate_environment(&self) -> Result<Vec<(String, String)>> {
        Ok(self.manifest()?.map(|manifest| manifest.bundle.gate.environment.into_iter().collect()).unwrap_or_default())
    }

    fn manifest(&self) -> Result<Option<Manifest>> {
        let Some(path) = self.file("manifest.json") else { return Ok(None) };
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("parsing {}", path.display()))
    }

    /// A file of the case, if it has it.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|path| path.is_file())
    }

    /// Its files of one kind, beside the tree of the node.
    pub fn files_of(&self, kind: FileKind) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for path in entries(&self.folder)?.into_iter().filter(|path| path.is_file()) {
            let content = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            if FileKind::of(&content) == Some(kind) {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Where the tree of the node is, if the case has one.
    pub fn root(&self) -> Option<PathBuf> {
        Some(self.folder.join("root")).filter(|path| path.is_dir())
    }

    /// Every file below a folder of the case, in order of path; none if it is not there.
    pub fn files_below(&self, folder: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        collect_files(&self.folder.join(folder), &mut files)?;
        files.sort();
        Ok(files)
    }

    /// The documents of these kinds among the YAML and JSON files of the node's tree.
    pub fn documents(&self, kinds: &[&str]) -> Result<Vec<Document>> {
        let mut found = Vec::new();
        for path in self.files_below("root")? {
            // JSON is YAML too.
            if !["yaml", "yml", "json"].iter().any(|known| path.extension().is_some_and(|it| it == *known)) {
                continue;
            }
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let file = path.strip_prefix(&self.folder).unwrap_or(&path);
            found.extend(documents_of(file, &text)?.into_iter().filter(|it| kinds.contains(&it.kind.as_str())));
        }
        Ok(found)
    }
}

pub(super) fn documents_of(file: &Path, text: &str) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for text in text.split("\n---\n") {
        let value: Value =
            serde_saphyr::from_str(text).with_context(|| format!("parsing {} as YAML", file.display()))?;
        if let Some(kind) = value.get("kind").and_then(Value::as_str) {
            let kind = kind.to_owned();
            documents.push(Document { file: file.to_owned(), kind, text: text.to_owned(), value });
        }
    }
    Ok(documents)
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() { collect_files(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_one_file_are_told_apart_and_those_without_a_kind_left_out() {
        let text = "kind: A\n---\nkind: B\nx: 1\n---\nx: 2\n";
        let kinds: Vec<String> =
            documents_of(Path::new("f"), text).expect("YAML").into_iter().map(|document| document.kind).collect();
        assert_eq!(kinds, ["A", "B"]);
    }

    #[test]
    fn only_the_rendered_bundle_or_a_reference_to_it_may_be_delivered() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let manifest =
            r#"{"digest": "sha256:1", "bundle": {"kubernetesVersion": "1.36.3", "gate": {"environment": {}}}}"#;
        std::fs::write(folder.path().join("manifest.json"), manifest).expect("manifest");
        std::fs::write(folder.path().join("bundle.json"), "{}").expect("bundle");
        let case = Case { name: "x".into(), folder: folder.path().to_owned() };
        let check = |content: &str| check_delivered(std::slice::from_ref(&case), content);
        check("{}").expect("the bundle");
        let reference =
            |digest: u8| format!(r#"{{"kind": "BundleReference", "reference": {{"digest": "sha256:{digest}"}}}}"#);
        check(&reference(1)).expect("a reference");
        for other in ["", "{} ", &reference(2), r#"{"reference": {"digest": "sha256:1"}}"#] {
            assert!(check(other).is_err(), "{other}");
        }
    }

    #[test]
    fn files_are_told_apart_by_what_they_say() {
        for (content, kind) in [
            ("#cloud-config\n{}", Some(FileKind::UserData)),
            ("Content-Type: multipart/mixed\nMIME-Version: 1.0\n\n", Some(FileKind::UserData)),
            ("text\n\nMIME-Version: 1.0\n", None),
            (r#"{"ignition": {"version": "2.3.0"}}"#, Some(FileKind::Ignition(IgnitionSpec::Two))),
            (r#"{"ignition": {"version": "3.4.0"}}"#, Some(FileKind::Ignition(IgnitionSpec::Three))),
            (r#"{"LaunchTemplateData": {}}"#, Some(FileKind::LaunchTemplate)),
            (r#"{"kind": "Bundle"}"#, None),
        ] {
            assert_eq!(FileKind::of(content.as_bytes()), kind, "{content}");
        }
    }
}
