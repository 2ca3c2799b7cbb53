//! The rules that every bundle keeps, whoever made it: nothing here is repaired, only refused.
//!
//! What a type can say (paths, names of units, words) is refused where the document is read.

use std::collections::BTreeSet;

use crate::bundle::{BOOTSTRAP_UNIT, Bundle, File, Gate, RuntimeSource, octal};
use crate::error::BundleError;
use crate::extension::{EXTENSION_LINKS_FOLDER, EXTENSIONS_FOLDER};
use crate::gate::{SEAL, is_variable_name};
use crate::names::AbsolutePath;
use crate::tree::{Artefact, TREES_FOLDER};
use crate::vocabulary::{ArtefactForm, GateFact, PackageManager};

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
    validate_idle_units(bundle)?;
    validate_hooks(bundle)?;
    validate_trees(bundle, &files)?;
    validate_extensions(bundle, &files)?;
    validate_packages(bundle)?;
    validate_follow(bundle)
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

/// What is installed must be named and provable, and lie where nothing else does.
fn validate_trees(bundle: &Bundle, files: &[&File]) -> Result<(), BundleError> {
    let mut previous = None;
    let mut places: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).chain([&*bundle.gate.path]).collect();
    for tree in &bundle.trees {
        let refuse = |problem| Err(BundleError::Tree { component: tree.component, problem });
        if previous >= Some(tree.component) {
            return refuse("is there twice or out of order");
        }
        previous = Some(tree.component);
        if !is_file_name(&tree.version) {
            return refuse("has a version that cannot be the name of a folder");
        }
        if let Some(problem) = artefact_problem(&tree.artefact) {
            return refuse(problem);
        }
        if tree.artefact.form == ArtefactForm::Sysext {
            return refuse("is a system extension, which cannot be unpacked");
        }
        for link in tree.links.keys() {
            if link.is_within(TREES_FOLDER) || !places.insert(link) || link.folders().any(|f| places.contains(f)) {
                return refuse("is linked from where something else lies");
            }
        }
        if bundle.downloads.is_none() {
            return refuse("does not say how it is downloaded");
        }
    }
    if files.iter().any(|file| file.path.is_within(TREES_FOLDER)) {
        return Err(BundleError::FileAmongTrees);
    }
    let runtime = bundle.runtime.source == RuntimeSource::Tree;
    match runtime && !bundle.trees.iter().any(|tree| tree.component.as_str() == bundle.runtime.name.as_str()) {
        true => Err(BundleError::Runtime { problem: "is said to be a tree, and is none" }),
        false => Ok(()),
    }
}

/// What becomes a word of a command line is a name and nothing else.
fn validate_packages(bundle: &Bundle) -> Result<(), BundleError> {
    if let Some(packages) = &bundle.packages {
        if packages.packages.is_empty() {
            return Err(BundleError::NoPackages);
        }
        let mut previous = "";
        for package in &packages.packages {
            let refuse = |problem| Err(BundleError::Package { name: package.name.clone(), problem });
            if package.name.as_str() <= previous {
                return refuse("is there twice or out of order");
            }
            previous = &package.name;
            if !PackageManager::is_name(&package.name) {
                return refuse("has a name that no package has");
            }
            if !package.version.iter().all(|version| PackageManager::is_version(version)) {
                return refuse("has a version that no package has");
            }
        }
        let is_key = |key: &String| key.len() == 8 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(key) = packages.keys.iter().find(|key| !is_key(key)) {
            return Err(BundleError::Package { name: key.clone(), problem: "is said to be a key, and is none" });
        }
        let refuse = |name: &AbsolutePath, problem| Err(BundleError::Package { name: name.to_string(), problem });
        if let Some(path) = packages.settings.iter().find(|path| bundle.file(path).is_none()) {
            return refuse(path, "is said to be a setting of the package manager, and is no file");
        }
        let named = packages.repositories.iter().chain(&packages.environment_file);
        if let Some(path) = named.into_iter().find(|path| !packages.settings.contains(path)) {
            return refuse(path, "is read by the package manager, and is none of its settings");
        }
    }
    let runtime = bundle.runtime.name.as_str();
    let brings = |package: &crate::package::Package| package.component.is_some_and(|one| one.as_str() == runtime);
    let is_brought = bundle.packages.iter().flat_map(|packages| &packages.packages).any(brings);
    match bundle.runtime.source == RuntimeSource::Package && !is_brought {
        true => Err(BundleError::Runtime { problem: "is said to be a package, and is none" }),
        false => Ok(()),
    }
}

/// A node that follows nothing has nothing to find out, and one that follows must be able to ask.
fn validate_follow(bundle: &Bundle) -> Result<(), BundleError> {
    let addon = bundle.follow.as_ref().and_then(|follow| follow.addon.as_ref());
    let problem = match &bundle.follow {
        Some(follow) if follow.problem().is_some() => follow.problem(),
        _ if addon.is_some() && bundle.downloads.is_none() => Some("does not say how package lists are downloaded"),
        None if bundle.gate.facts.contains(&GateFact::KubeletImageTag) => {
            Some("does not say which release is followed")
        }
        _ => None,
    };
    problem.map_or(Ok(()), |problem| Err(BundleError::Follow { problem }))
}

/// Images lie and are linked where nothing else does, and bring nothing outside `/usr`.
fn validate_extensions(bundle: &Bundle, files: &[&File]) -> Result<(), BundleError> {
    let mut previous = None;
    for extension in &bundle.extensions {
        let refuse = |problem| Err(BundleError::Extension { name: extension.name, problem });
        if previous >= Some(extension.name) {
            return refuse("is there twice or out of order");
        }
        previous = Some(extension.name);
        if !is_file_name(&extension.version) {
            return refuse("has a version that cannot be the name of a file");
        }
        if let Some(problem) = artefact_problem(&extension.artefact) {
            return refuse(problem);
        }
        if extension.artefact.form != ArtefactForm::Sysext {
            return refuse("is no image of a system extension");
        }
        if extension.release.id.is_empty() {
            return refuse("does not say which systems it fits");
        }
        if extension.programs.is_empty() || !extension.programs.iter().all(|path| path.is_within("/usr")) {
            return refuse("must have programs, all of them under /usr");
        }
        if bundle.downloads.is_none() {
            return refuse("does not say how it is downloaded");
        }
        let places = [EXTENSIONS_FOLDER, EXTENSION_LINKS_FOLDER];
        if files.iter().any(|file| places.iter().any(|place| file.path.is_within(place))) {
            return refuse("lies where a file of the bundle lies");
        }
        if bundle.trees.iter().any(|tree| extension.name.brings(tree.component)) {
            return refuse("brings what a tree brings, too");
        }
    }
    let runtime = bundle.runtime.source == RuntimeSource::Sysext;
    match runtime && !bundle.extensions.iter().any(|one| one.name.as_str() == bundle.runtime.name.as_str()) {
        true => Err(BundleError::Runtime { problem: "is said to be an extension, and is none" }),
        false => Ok(()),
    }
}

fn is_file_name(version: &str) -> bool {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b".+_-".contains(&byte);
    !version.is_empty() && !version.starts_with('.') && version.bytes().all(is_harmless)
}

fn artefact_problem(artefact: &Artefact) -> Option<&'static str> {
    match () {
        () if artefact.size == 0 => Some("is made of nothing"),
        () if artefact.places.is_empty() => Some("has no place to come from"),
        () if !artefact.places.iter().all(|place| is_address(place)) => {
            Some("has an address that is none of http, https, s3 and file")
        }
        () => None,
    }
}

fn is_address(place: &str) -> bool {
    let rest = ["https://", "http://", "s3://", "file:///"].iter().find_map(|scheme| place.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty()) && place.bytes().all(|byte| byte.is_ascii_graphic())
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

/// Whoever applied a bundle that masks what it starts would fail half-way, or never run again.
fn validate_idle_units(bundle: &Bundle) -> Result<(), BundleError> {
    let mut previous = "";
    for unit in &bundle.idle_units {
        let refuse = |problem| Err(BundleError::IdleUnit { name: unit.name.to_string(), problem });
        if unit.name.as_str() <= previous {
            return refuse("is there twice or out of order");
        }
        previous = unit.name.as_str();
        let is_ours = [BOOTSTRAP_UNIT, &*bundle.join.kubelet_unit, &*bundle.runtime.unit].contains(&&*unit.name);
        if is_ours || bundle.units.iter().any(|started| started.name == unit.name) {
            return refuse("is one that the bundle starts");
        }
        if bundle.hooks.iter().any(|hook| hook.unit == unit.name) {
            return refuse("is that of a hook");
        }
        if unit.mask().is_some_and(|place| bundle.file(&place).is_some() || bundle.gate.path == *place) {
            return refuse("is masked where the bundle has a file");
        }
    }
    Ok(())
}
