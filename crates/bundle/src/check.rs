//! The rules that every bundle keeps, whoever made it: nothing here is repaired, only refused.
//!
//! What a type can say (paths, names of units, words) is refused where the document is read.

use std::collections::BTreeSet;

use crate::bundle::{Archive, Bundle, File, Gate, RuntimeSource, octal};
use crate::error::BundleError;
use crate::gate::{SEAL, is_variable_name};
use crate::names::{AbsolutePath, is_lower_hex};

/// The one mode of a secret file.
const SECRET_MODE: u32 = 0o600;

/// All rules at once; the first broken one is the error.
pub(crate) fn validate_bundle(bundle: &Bundle) -> Result<(), BundleError> {
    let texts = [
        ("cluster", &bundle.cluster),
        ("group", &bundle.group),
        ("kubernetesVersion", &bundle.kubernetes_version),
        ("join.apiServer", &bundle.join.api_server),
    ];
    for (field, text) in texts {
        validate_text(field, text)?;
    }
    validate_sorted(&bundle.files)?;
    let of_fields: Vec<File> = bundle.files_of_fields().collect();
    let files: Vec<&File> = bundle.files.iter().chain(&of_fields).collect();
    validate_files(&files, &bundle.gate.path)?;
    validate_gate(&bundle.gate)?;
    validate_units(bundle)?;
    validate_hooks(bundle)?;
    validate_runtime(&bundle.runtime.source)
}

fn validate_text(field: &'static str, text: &str) -> Result<(), BundleError> {
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err(BundleError::Text { field }),
        false => Ok(()),
    }
}

/// A hook whose unit were not there would stop a bootstrap half-way: it is refused before anything is changed.
fn validate_hooks(bundle: &Bundle) -> Result<(), BundleError> {
    let mut previous = "";
    for hook in &bundle.hooks {
        let refuse = |problem| Err(BundleError::Hook { name: hook.name.clone(), problem });
        validate_text("hooks.name", &hook.name)?;
        if hook.name.as_str() <= previous {
            return refuse("is there twice or out of order");
        }
        previous = &hook.name;
        if hook.timeout_seconds == 0 {
            return refuse("has a timeout of zero");
        }
        if bundle.unit_file(&hook.unit).is_none() {
            return refuse("has no file for its unit");
        }
    }
    Ok(())
}

/// What is installed must be named and provable.
fn validate_runtime(source: &RuntimeSource) -> Result<(), BundleError> {
    match source {
        RuntimeSource::Preinstalled | RuntimeSource::Torcx => Ok(()),
        RuntimeSource::Tree(archive) | RuntimeSource::Sysext(archive) => validate_archive(archive),
        RuntimeSource::Package(package) => {
            [&package.name, &package.version].into_iter().try_for_each(|text| validate_text("runtime", text))
        }
    }
}

fn validate_archive(Archive { urls, sha256 }: &Archive) -> Result<(), BundleError> {
    let is_web_address = |url: &String| url.starts_with("https://") || url.starts_with("http://");
    let problem = match urls.as_slice() {
        [] => "has an archive without an address",
        urls if !urls.iter().all(is_web_address) => "has an archive whose address is neither http nor https",
        _ if !is_lower_hex(sha256, 64) => "has an archive without a SHA-256",
        urls => return urls.iter().try_for_each(|url| validate_text("runtime", url)),
    };
    Err(BundleError::Runtime { problem })
}

fn validate_sorted(files: &[File]) -> Result<(), BundleError> {
    match files.windows(2).find(|pair| pair[0].path > pair[1].path) {
        Some(pair) => Err(BundleError::Order { path: pair[1].path.to_string() }),
        None => Ok(()),
    }
}

/// All that the node will write.
fn validate_files(files: &[&File], gate: &AbsolutePath) -> Result<(), BundleError> {
    let mut places = BTreeSet::from([gate.as_str()]);
    for file in files {
        let path = || file.path.to_string();
        // A file that is the gate would open it before everything else is durable.
        if file.path == *gate {
            return Err(BundleError::GateAmongFiles { path: path() });
        }
        if !places.insert(&file.path) {
            return Err(BundleError::DuplicatePath { path: path() });
        }
        if file.mode > 0o777 {
            return Err(BundleError::Mode { path: path(), mode: octal::text(file.mode) });
        }
        if file.is_secret() && file.mode != SECRET_MODE {
            return Err(BundleError::SecretMode { path: path(), mode: octal::text(file.mode) });
        }
    }
    // The gate is written too, so no file may need it as a folder, nor the other way round.
    for path in files.iter().map(|file| &file.path).chain([gate]) {
        if let Some(parent) = path.folders().find(|folder| places.contains(folder)) {
            return Err(BundleError::FileUnderFile { path: path.to_string(), parent: parent.to_owned() });
        }
    }
    Ok(())
}

fn validate_gate(gate: &Gate) -> Result<(), BundleError> {
    for (name, value) in &gate.environment {
        // What the bundle says and what the node finds out are different variables.
        let is_fact = gate.facts.iter().any(|fact| fact.as_str() == name);
        if !is_variable_name(name) || name == SEAL || is_fact {
            return Err(BundleError::GateName { name: name.clone() });
        }
        if value.chars().any(char::is_control) {
            return Err(BundleError::GateValue { name: name.clone() });
        }
    }
    Ok(())
}

fn validate_units(bundle: &Bundle) -> Result<(), BundleError> {
    let mut seen = BTreeSet::new();
    for unit in &bundle.units {
        if !seen.insert(&unit.name) {
            return Err(BundleError::DuplicateUnit { name: unit.name.to_string() });
        }
        let problem = match (bundle.unit_file(&unit.name), unit.brought) {
            (None, Some(_)) => "is said to come with the bundle, which has no file for it",
            (Some(_), None) => "comes with the bundle, which does not say what it is",
            _ => continue,
        };
        return Err(BundleError::Unit { name: unit.name.to_string(), problem });
    }
    Ok(())
}
