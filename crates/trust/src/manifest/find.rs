//! Which artefact is for a node; and if there is none, what there is instead.

use std::collections::BTreeSet;

use super::{Architecture, Artefact, Manifest, Role};

/// More would hide what the message is about.
const MAX_LISTED: usize = 12;

/// There is no such artefact. Each variant is one step nearer than the one before it: there is the name, the version, …
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("the manifest has no artefact '{name}'{}: publish it, or correct the name", but("it has", there))]
    Name { name: String, there: Vec<String> },
    #[error(
        "the manifest has {name}, but not version '{version}'{}: publish that version, or ask for another",
        but("it has", there)
    )]
    Version { name: String, version: String, there: Vec<String> },
    #[error(
        "the manifest has {name} {version}, but not for the architecture {architecture}{}: \
         publish it for {architecture}",
        but("it is there for", there)
    )]
    Architecture { name: String, version: String, architecture: Architecture, there: Vec<String> },
    #[error(
        "the manifest has {name} {version} for {architecture}, but not for the operating system '{os}'{}: \
         publish it for '{os}'",
        but("it is there for", there)
    )]
    Os { name: String, version: String, architecture: Architecture, os: String, there: Vec<String> },
    #[error(
        "the manifest has {name} {version} for {architecture} and '{os}', but not for the role {role}{}: \
         publish it for nodes of the role {role}",
        but("it is there for", there)
    )]
    Role { name: String, version: String, architecture: Architecture, os: String, role: Role, there: Vec<String> },
}

fn but(words: &str, there: &[String]) -> String {
    let rest = there.len().saturating_sub(MAX_LISTED);
    let listed = there[..there.len() - rest].join(", ");
    match (there.is_empty(), rest) {
        (true, _) => "; it has none at all".to_owned(),
        (false, 0) => format!("; {words} {listed}"),
        (false, _) => format!("; {words} {listed} and {rest} more"),
    }
}

impl Manifest {
    /// The artefact for such a node that is unpacked there: there is one at most.
    pub fn find(
        &self,
        name: &str,
        version: &str,
        os: &str,
        architecture: Architecture,
        role: Role,
    ) -> Result<&Artefact, NotFound> {
        let all: Vec<&Artefact> = self.artefacts().iter().filter(|artefact| !artefact.is_image()).collect();
        find_among(&all, name, version, os, architecture, role)
    }

    /// The system extension for such a node: there is one at most.
    pub fn find_extension(
        &self,
        name: &str,
        version: &str,
        os: &str,
        architecture: Architecture,
        role: Role,
    ) -> Result<&Artefact, NotFound> {
        let all: Vec<&Artefact> = self.artefacts().iter().filter(|artefact| artefact.is_image()).collect();
        find_among(&all, name, version, os, architecture, role)
    }
}

fn find_among<'a>(
    all: &[&'a Artefact],
    name: &str,
    version: &str,
    os: &str,
    architecture: Architecture,
    role: Role,
) -> Result<&'a Artefact, NotFound> {
    let (name_of, version_of) = (name.to_owned(), version.to_owned());
    let named = those(all, |artefact| artefact.name.as_str() == name);
    if named.is_empty() {
        return Err(NotFound::Name { name: name_of, there: each(all, |of| vec![of.name.to_string()]) });
    }
    let versions = those(&named, |artefact| artefact.version.as_str() == version);
    if versions.is_empty() {
        let there = each(&named, |of| vec![of.version.to_string()]);
        return Err(NotFound::Version { name: name_of, version: version_of, there });
    }
    let compiled = those(&versions, |artefact| artefact.architecture == architecture);
    if compiled.is_empty() {
        let there = each(&versions, |of| vec![of.architecture.to_string()]);
        return Err(NotFound::Architecture { name: name_of, version: version_of, architecture, there });
    }
    let fitting = those(&compiled, |artefact| artefact.is_for_os(os));
    if fitting.is_empty() {
        let there = each(&compiled, |of| of.os.iter().map(ToString::to_string).collect());
        return Err(NotFound::Os { name: name_of, version: version_of, architecture, os: os.to_owned(), there });
    }
    fitting.iter().copied().find(|artefact| artefact.role.is_none_or(|made_for| made_for == role)).ok_or_else(|| {
        let there = each(&fitting, |of| of.role.iter().map(ToString::to_string).collect());
        NotFound::Role { name: name_of, version: version_of, architecture, os: os.to_owned(), role, there }
    })
}

impl Artefact {
    pub fn is_for_os(&self, os: &str) -> bool {
        self.os.is_empty() || self.os.iter().any(|name| name.as_str() == os)
    }
}

fn those<'a>(artefacts: &[&'a Artefact], fits: impl Fn(&Artefact) -> bool) -> Vec<&'a Artefact> {
    artefacts.iter().copied().filter(|artefact| fits(artefact)).collect()
}

fn each(artefacts: &[&Artefact], words: impl Fn(&Artefact) -> Vec<String>) -> Vec<String> {
    let distinct: BTreeSet<String> = artefacts.iter().flat_map(|artefact| words(artefact)).collect();
    distinct.into_iter().collect()
}
