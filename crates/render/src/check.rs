//! The rules that every bundle keeps, whoever made it: nothing here is repaired, only refused.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use spec::{HookSlot, RuntimeSource};

use crate::bundle::{Bundle, File, Gate, Hook, Runtime, Secrecy, Unit};
use crate::error::BundleError;
use crate::gate::{SEAL, is_variable_name};

/// The one mode of a secret file.
const SECRET_MODE: u32 = 0o600;

/// Where the units of a bundle lie, with the slash.
const UNIT_FOLDER: &str = "/etc/systemd/system/";

/// Unit types that a bundle may start.
const UNIT_SUFFIXES: [&str; 6] = [".service", ".socket", ".target", ".timer", ".mount", ".path"];

/// Where the files of a bundle lie.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Places {
    /// As in another bundle, which keeps the rules: a fleet has the same again and again.
    Known,
    New,
}

/// All rules at once; the first broken one is the error.
pub(crate) fn validate_bundle(bundle: &Bundle, places: Places) -> Result<(), BundleError> {
    let texts = [
        ("cluster", &bundle.cluster),
        ("group", &bundle.group),
        ("kubernetesVersion", &bundle.kubernetes_version),
        ("node.role", &bundle.kind.role),
        ("node.os", &bundle.kind.os),
        ("node.provider", &bundle.kind.provider),
        ("node.layout", &bundle.kind.layout),
        ("runtime.name", &bundle.runtime.name),
        ("join.apiServer", &bundle.join.api_server),
    ];
    for (field, text) in texts {
        validate_text(field, text)?;
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
    if places == Places::New {
        validate_files(&bundle.files, &bundle.gate)?;
    }
    validate_gate(&bundle.gate)?;
    validate_units(&bundle.units)?;
    validate_hooks(&bundle.hooks, &bundle.files)?;
    validate_runtime(&bundle.runtime)?;
    validate_unit_name(&bundle.join.kubelet_unit)
}

fn validate_text(field: &'static str, text: &str) -> Result<(), BundleError> {
    if text.is_empty() || has_control(text) {
        return Err(BundleError::Text { field });
    }
    Ok(())
}

fn has_control(text: &str) -> bool {
    // Of plain text that is known at once, and a fleet has much of it.
    let plain = text.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    !plain && text.chars().any(char::is_control)
}

/// A hook whose unit were not there would stop a bootstrap half-way: it is refused before anything is changed.
fn validate_hooks(hooks: &[Hook], files: &[File]) -> Result<(), BundleError> {
    let mut previous = "";
    for hook in hooks {
        let refuse = |problem| Err(BundleError::Hook { name: hook.name.clone(), problem });
        validate_text("hooks.name", &hook.name)?;
        validate_unit_name(&hook.unit)?;
        if hook.name.as_str() <= previous {
            return refuse("is there twice or out of order");
        }
        previous = &hook.name;
        if hook.slot.parse::<HookSlot>().is_err() {
            return refuse("has a slot that this nodestrap does not know");
        }
        if hook.timeout_seconds == 0 {
            return refuse("has a timeout of zero");
        }
        let is_unit = |file: &File| file.path.strip_prefix(UNIT_FOLDER) == Some(&hook.unit);
        if !files.iter().any(is_unit) {
            return refuse("has no file for its unit");
        }
    }
    Ok(())
}

/// What is installed must be named and provable.
fn validate_runtime(runtime: &Runtime) -> Result<(), BundleError> {
    let Ok(source) = runtime.source.parse::<RuntimeSource>() else {
        return Err(BundleError::Runtime { problem: "has a source that this nodestrap does not know" });
    };
    let problem = match (source, &runtime.archive, &runtime.package) {
        (RuntimeSource::Tree | RuntimeSource::Sysext, None, _) => "comes from an archive but names none",
        (RuntimeSource::Package, _, None) => "comes from a package but names none",
        (_, Some(archive), _) if archive.urls.is_empty() => "has an archive without an address",
        (_, Some(archive), _) if !archive.urls.iter().all(|url| is_web_address(url)) => {
            "has an archive whose address is neither http nor https"
        }
        (_, Some(archive), _) if !is_sha256(&archive.sha256) => "has an archive without a SHA-256",
        (_, archive, package) => {
            let texts = package.iter().flat_map(|package| [&package.name, &package.version]);
            let texts = texts.chain(archive.iter().flat_map(|archive| &archive.urls));
            return texts.into_iter().try_for_each(|text| validate_text("runtime", text));
        }
    };
    Err(BundleError::Runtime { problem })
}

fn is_web_address(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn validate_files(files: &[File], gate: &Gate) -> Result<(), BundleError> {
    let mut previous = "";
    for file in files {
        let path = file.path.as_str();
        validate_path(path)?;
        match previous.cmp(path) {
            Ordering::Less => previous = path,
            Ordering::Equal => return Err(BundleError::DuplicatePath { path: path.to_owned() }),
            Ordering::Greater => return Err(BundleError::Order { path: path.to_owned() }),
        }
        // A file that is the gate would open it before everything else is durable.
        if path == gate.path {
            return Err(BundleError::GateAmongFiles { path: path.to_owned() });
        }
        validate_mode(file)?;
    }
    // The gate is written too, so no file may need it as a folder, nor the other way round.
    let is_file = |path: &str| path == gate.path || files.binary_search_by(|file| file.path.as_str().cmp(path)).is_ok();
    let mut folder = "";
    for path in files.iter().map(|file| &file.path).chain([&gate.path]) {
        let innermost = parents(path).next().unwrap_or_default();
        // Files of one folder mostly stand together, and it is looked at once.
        if innermost == folder {
            continue;
        }
        folder = innermost;
        if let Some(parent) = parents(path).find(|parent| is_file(parent)) {
            return Err(BundleError::FileUnderFile { path: path.clone(), parent: parent.to_owned() });
        }
    }
    Ok(())
}

/// The folders of an absolute path, innermost first, without `/`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty())
}

fn validate_mode(file: &File) -> Result<(), BundleError> {
    let facts = || (file.path.clone(), octal(file.mode).into_owned());
    if file.mode > 0o777 {
        let (path, mode) = facts();
        return Err(BundleError::Mode { path, mode });
    }
    if file.secrecy == Secrecy::Secret && file.mode != SECRET_MODE {
        let (path, mode) = facts();
        return Err(BundleError::SecretMode { path, mode });
    }
    Ok(())
}

/// A path is taken as it stands, so it must have one spelling only and cannot leave the root of the node.
pub(crate) fn validate_path(path: &str) -> Result<(), BundleError> {
    // Nearly all are plain, and a fleet has many; what is not is looked at more closely.
    let bytes = path.as_bytes();
    let graphic = bytes.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
    let odd_part = bytes.windows(2).fold(false, |any, pair| any | matches!(pair, [b'/', b'/' | b'.']));
    if graphic && !odd_part && bytes.starts_with(b"/") && !bytes.ends_with(b"/") {
        return Ok(());
    }
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
        if has_control(value) {
            return Err(BundleError::GateValue { name: name.clone() });
        }
    }
    let mut previous = "";
    for name in &gate.facts {
        // What the bundle says and what the node finds out are different variables, each there once.
        let known = gate.environment.contains_key(name) || name.as_str() <= previous;
        if !is_variable_name(name) || name == SEAL || known {
            return Err(BundleError::GateName { name: name.clone() });
        }
        previous = name;
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
pub(crate) fn octal(mode: u32) -> Cow<'static, str> {
    match mode {
        0o644 => "0644".into(),
        SECRET_MODE => "0600".into(),
        mode => format!("{mode:04o}").into(),
    }
}
