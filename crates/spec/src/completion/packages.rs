//! What the package managers of nodes are told: where packages come from, and which the host needs besides.

use std::collections::BTreeMap;

use bundle::{Component, PackageManager};

use super::lists::{self, report_twice};
use super::{Check, default, derived, ours};
use crate::complete::{CompleteComponents, CompletePackages, PackagesDefaults, PackagesDefaultsSpec, PackagesSpec};
use crate::origin::{Origin, Setting};
use crate::packages::PackageRepository;
use crate::syntax;
use crate::texts::PackageName;
use crate::values::{Os, SourceKind};

pub(super) fn packages_defaults(spec: &PackagesDefaultsSpec, check: &Check<'_>) -> PackagesDefaults {
    let repositories = super::or_default(&spec.repositories, Vec::new, "the repositories of the image");
    check_repositories(&repositories.value, check);
    PackagesDefaults { repositories, prerequisites: spec.prerequisites.clone() }
}

pub(super) struct Inputs<'a> {
    pub(super) group: &'a str,
    pub(super) spec: &'a PackagesSpec,
    pub(super) cluster: &'a PackagesDefaults,
    pub(super) os: &'a Setting<Os>,
    pub(super) components: &'a CompleteComponents,
}

pub(super) fn complete_packages(inputs: &Inputs<'_>, check: &Check<'_>) -> CompletePackages {
    let Inputs { group, spec, cluster, os, components } = inputs;
    let here = format!("nodeGroups.{group}.packages.repositories");
    if let Some(own) = &spec.repositories {
        check_repositories(&own.value, check);
    }
    let repositories = lists::merge(
        &cluster.repositories,
        &spec.repositories,
        "cluster.packages.repositories",
        here,
        "the repositories of the image",
    );
    let manager = PackageManager::of(os.value);
    let prerequisites = prerequisites(inputs, manager, check);
    let installs = components.has(SourceKind::Package) || !prerequisites.value.is_empty();
    if let Some(manager) = manager.filter(|_| installs) {
        repositories.value.iter().for_each(|repository| check_suite(repository, manager, check));
    }
    report_shared_packages(components, check);
    CompletePackages { repositories, prerequisites }
}

/// A package is installed once, at one version: two components that name it would be two wishes for one thing.
fn report_shared_packages(components: &CompleteComponents, check: &Check<'_>) {
    let mut owners: BTreeMap<&str, (Component, &Origin)> = BTreeMap::new();
    for (component, package, _) in components.packages() {
        let Some((owner, origin)) = owners.insert(package.value.as_str(), (component, &package.origin)) else {
            continue;
        };
        check.report(
            user([Some(&package.origin), Some(origin), None]),
            format!("the package \"{}\" is named for {owner} and for {component}", package.value),
            "name it for one of them, and leave out the other: it comes along",
        );
    }
}

/// By themselves only where packages are installed anyway; beside trees where somebody asks for it; else never.
fn prerequisites(inputs: &Inputs<'_>, manager: Option<PackageManager>, check: &Check<'_>) -> Setting<Vec<PackageName>> {
    let Inputs { spec, cluster, os, components, .. } = inputs;
    let (packages, trees) = (components.has(SourceKind::Package), components.has(SourceKind::Tree));
    let nothing = || default(Vec::new(), "the image brings what the programs need");
    let of_cluster = || {
        let set = cluster.prerequisites.as_ref()?;
        let path = vec!["cluster.packages.prerequisites".to_owned()];
        Some(derived(set.value.clone(), path, "what the cluster has"))
    };
    match (&spec.prerequisites, manager) {
        (Some(written), None) if !written.value.is_empty() => {
            let message = format!("{} has no package manager that nodestrap knows: nothing can be installed", os.value);
            check.report(Some(&written.origin), message, "remove prerequisites: the image must bring what is needed");
            written.clone()
        }
        (Some(written), _) if !packages && !trees && !written.value.is_empty() => {
            check.report(
                Some(&written.origin),
                "nodestrap installs nothing here: every program comes from the image",
                "remove prerequisites, or write source: package or tree",
            );
            written.clone()
        }
        (Some(written), _) => written.clone(),
        (None, None) => nothing(),
        (None, Some(_)) if !packages && !trees => nothing(),
        (None, Some(manager)) => of_cluster().unwrap_or_else(|| match packages {
            true => usual(inputs.group, manager),
            false => nothing(),
        }),
    }
}

fn usual(group: &str, manager: PackageManager) -> Setting<Vec<PackageName>> {
    let names: &[&str] = match manager {
        PackageManager::Apt => &["conntrack", "iptables"],
        PackageManager::Dnf => &["conntrack-tools", "iptables-nft"],
    };
    let names = names.iter().map(|name| ours(name)).collect();
    derived(names, vec![format!("nodeGroups.{group}.os")], "what a node needs besides, by its names on this system")
}

fn check_repositories(repositories: &[PackageRepository], check: &Check<'_>) {
    report_twice(repositories, "the repository", check);
    for repository in repositories {
        let url = repository.url.as_str();
        if url.contains('?') {
            check.report_item(
                repository.place,
                "the address of a repository cannot have a question mark: the names of its files come behind it",
                "write the address of the folder",
            );
        } else if syntax::is_read_on_the_way(url) {
            let message = format!("over plain http anybody on the way sees what nodes fetch from \"{url}\"");
            check.warn_item(repository.place, message, "write https://…; signatures keep it from being changed");
        }
        if repository.certificate_authority.is_some() && !url.starts_with("https://") {
            check.report_item(
                repository.place,
                "over plain http nobody asks for a certificate",
                "write https://…, or remove certificateAuthority",
            );
        }
    }
}

fn check_suite(repository: &PackageRepository, manager: PackageManager, check: &Check<'_>) {
    let has_components = repository.components.as_ref().is_some_and(|components| !components.is_empty());
    let report = |message: &str, advice: &str| check.report_item(repository.place, message, advice);
    match manager {
        PackageManager::Dnf if repository.suite.is_some() || repository.components.is_some() => {
            report("suite and components are for apt, and these nodes have dnf", "write the whole address as url");
        }
        PackageManager::Apt if repository.is_flat() && has_components => {
            report("a flat repository has no components", "remove components, or write suite without a slash");
        }
        PackageManager::Apt if !repository.is_flat() && !has_components => {
            report("a suite is made of components", "write components: [main], or end the suite with a slash");
        }
        _ => {}
    }
}

/// Where a component is asked for that is a package: for mistakes.
pub(super) fn user(origins: [Option<&Origin>; 3]) -> Option<&Origin> {
    origins.into_iter().flatten().find(|origin| matches!(origin, Origin::User(_)))
}
