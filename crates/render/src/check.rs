//! The rules that every bundle keeps, whoever made it: nothing here is repaired, only refused.

use std::collections::BTreeSet;

use crate::bundle::{Bundle, File, Gate, Secrecy, Unit};
use crate::error::BundleError;
use crate::gate::{SEAL, is_variable_name};

/// The one mode of a secret file.
const SECRET_MODE: u32 = 0o600;

/// Unit types that a bundle may start.
const UNIT_SUFFIXES: [&str; 6] = [".service", ".socket", ".target", ".timer", ".mount", ".path"];

/// All rules at once; the first broken one is the error.
pub(crate) fn validate_bundle(bundle: &Bundle) -> Result<(), BundleError> {
    let texts = [
        ("cluster", &bundle.cluster),
        ("group", &bundle.group),
        ("kubernetesVersion", &bundle.kubernetes_version),
        ("join.apiServer", &bundle.join.api_server),
    ];
    for (field, text) in texts {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(BundleError::Text { field });
        }
    }
    let paths = bundle.required_programs.iter().chain([
        &bundle.gate.path,
        &bundle.join.bootstrap_kubeconfig,
        &bundle.join.kubeconfig,
        &bundle.join.client_certificate,
    ]);
    for path in paths {
        validate_path(path)?;
    }
    validate_files(&bundle.files, &bundle.gate)?;
    validate_gate(&bundle.gate)?;
    validate_units(&bundle.units)?;
    validate_unit_name(&bundle.join.kubelet_unit)
}

fn validate_files(files: &[File], gate: &Gate) -> Result<(), BundleError> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut previous = "";
    for file in files {
        let path = file.path.as_str();
        validate_path(path)?;
        if !seen.insert(path) {
            return Err(BundleError::DuplicatePath { path: path.to_owned() });
        }
        if path < previous {
            return Err(BundleError::Order { path: path.to_owned() });
        }
        previous = path;
        // A file that is the gate would open it before everything else is durable.
        if path == gate.path {
            return Err(BundleError::GateAmongFiles { path: path.to_owned() });
        }
        validate_mode(file)?;
    }
    // The gate is written too, so no file may need it as a folder, nor the other way round.
    seen.insert(&gate.path);
    for path in &seen {
        if let Some(parent) = parents(path).find(|parent| seen.contains(parent)) {
            return Err(BundleError::FileUnderFile { path: (*path).to_owned(), parent: parent.to_owned() });
        }
    }
    Ok(())
}

/// The folders of an absolute path, innermost first, without `/`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty())
}

fn validate_mode(file: &File) -> Result<(), BundleError> {
    let (path, mode) = (file.path.clone(), octal(file.mode));
    if file.mode > 0o777 {
        return Err(BundleError::Mode { path, mode });
    }
    if file.secrecy == Secrecy::Secret && file.mode != SECRET_MODE {
        return Err(BundleError::SecretMode { path, mode });
    }
    Ok(())
}

/// A path is taken as it stands, so it must have one spelling only and cannot leave the root of the node.
pub(crate) fn validate_path(path: &str) -> Result<(), BundleError> {
    let problem = match path.strip_prefix('/') {
        None => "is not absolute",
        Some(_) if path.chars().any(char::is_control) => "has a control character",
        Some(rest) if rest.split('/').any(|part| part == "..") => "has a '..' in it",
        Some(rest) if rest.split('/').any(|part| part.is_empty() || part == ".") => "has an empty or '.' part in it",
        Some(_) => return Ok(()),
    };
    Err(BundleError::Path { path: path.to_owned(), problem })
}

fn validate_gate(gate: &Gate) -> Result<(), BundleError> {
    for (name, value) in &gate.environment {
        if !is_variable_name(name) || name == SEAL {
            return Err(BundleError::GateName { name: name.clone() });
        }
        if value.chars().any(char::is_control) {
            return Err(BundleError::GateValue { name: name.clone() });
        }
    }
    Ok(())
}

fn validate_units(units: &[Unit]) -> Result<(), BundleError> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for unit in units {
        validate_unit_name(&unit.name)?;
        if !seen.insert(&unit.name) {
            return Err(BundleError::DuplicateUnit { name: unit.name.clone() });
        }
    }
    Ok(())
}

fn validate_unit_name(name: &str) -> Result<(), BundleError> {
    let stem = UNIT_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_.\\@-".contains(&byte);
    match stem {
        Some(stem) if !stem.is_empty() && name.len() < 256 && stem.bytes().all(allowed) => Ok(()),
        _ => Err(BundleError::UnitName { name: name.to_owned() }),
    }
}

/// How modes are written in a manifest.
pub(crate) fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}
