//! What a package manager is told: repositories with their keys, and which packages are wanted.

use std::fmt::Write as _;

use bundle::network::PLUGINS;
use bundle::{AbsolutePath, Component, File, Package, PackageManager, Packages, Readers};
use spec::{CompleteCluster, CompleteGroup, PackageRepository, PodNetwork};

use crate::error::RenderError;
use crate::kubelet::KUBELET_UNIT;
use crate::part::{name, path, public};
use crate::runtime;
use crate::system::ProxyVariables;

const HEADER: &str = "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n";

/// Where a package manager looks, by the name of the repository.
struct Places {
    repository: String,
    key: String,
    authority: String,
}

impl Places {
    fn of(manager: PackageManager, name: &str) -> Self {
        match manager {
            PackageManager::Apt => Self {
                repository: format!("/etc/apt/sources.list.d/nodestrap-{name}.sources"),
                key: format!("/etc/apt/keyrings/nodestrap-{name}.asc"),
                authority: format!("/etc/apt/keyrings/nodestrap-{name}.crt"),
            },
            PackageManager::Dnf => Self {
                repository: format!("/etc/yum.repos.d/nodestrap-{name}.repo"),
                key: format!("/etc/pki/rpm-gpg/nodestrap-{name}.asc"),
                authority: format!("/etc/pki/rpm-gpg/nodestrap-{name}.crt"),
            },
        }
    }
}

/// The packages, and the files by which the package manager knows where they come from; `None` if nothing is installed.
pub(crate) fn render_packages(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
) -> Result<Option<(Packages, Vec<File>)>, RenderError> {
    let Some(manager) = PackageManager::of(group.os.value) else { return Ok(None) };
    let packages = wanted(group)?;
    if packages.is_empty() {
        return Ok(None);
    }
    let (mut files, mut repositories) = (Vec::new(), Vec::new());
    for repository in &group.packages.repositories.value {
        let places = Places::of(manager, repository.name.as_str());
        repositories.push(path(&places.repository)?);
        files.extend(repository_files(manager, repository, &places)?);
    }
    let mut settings: Vec<AbsolutePath> = files.iter().map(|file| file.path.clone()).collect();
    let proxy = ProxyVariables::of(&cluster.proxy);
    let environment_file = proxy.file().map(path).transpose()?;
    settings.extend(environment_file.clone());
    settings.sort();
    repositories.sort();
    let (programs, commands) = programs(cluster, group)?;
    let environment = proxy.open().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let packages =
        Packages { manager, packages, programs, commands, settings, repositories, environment, environment_file };
    Ok(Some((packages, files)))
}

/// Sorted by name. What is a component and a prerequisite, too, is a component.
fn wanted(group: &CompleteGroup) -> Result<Vec<Package>, RenderError> {
    let runtime = runtime::unit_name(group.container_runtime.name.value);
    let mut packages = Vec::new();
    for (component, package, version) in group.components.packages() {
        let reader = match component {
            Component::Kubelet => Some(KUBELET_UNIT),
            Component::Containerd | Component::Runc => Some(runtime),
            Component::CniPlugins | Component::Crictl | Component::Kubectl => None,
        };
        let units = reader.map(name).transpose()?.into_iter().collect();
        packages.push(Package {
            name: package.value.to_string(),
            version: version.map(|version| version.value.to_string()),
            component: Some(component),
            read_by: Readers { units, ..Readers::default() },
        });
    }
    for prerequisite in &group.packages.prerequisites.value {
        if packages.iter().all(|package| package.name != prerequisite.as_str()) {
            let (name, read_by) = (prerequisite.to_string(), Readers::default());
            packages.push(Package { name, version: None, component: None, read_by });
        }
    }
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// What must be there once they are installed: by its path, or by its name where packages differ in the folder.
fn programs(cluster: &CompleteCluster, group: &CompleteGroup) -> Result<(Vec<AbsolutePath>, Vec<String>), RenderError> {
    let components = &group.components;
    let (mut programs, mut commands) = (Vec::new(), Vec::new());
    if components.is_package(Component::Kubelet) {
        programs.push(group.kubelet.binary.value.clone());
    }
    if components.is_package(Component::Containerd) {
        programs.push(group.container_runtime.binary.value.clone());
    }
    if components.is_package(Component::CniPlugins) && cluster.networking.pod_network.value == PodNetwork::Bridge {
        let folder = &group.container_runtime.cni_binaries.value;
        for plugin in PLUGINS {
            programs.push(path(format!("{folder}/{plugin}"))?);
        }
    }
    for component in [Component::Crictl, Component::Kubectl, Component::Runc] {
        if components.is_package(component) {
            commands.push(component.to_string());
        }
    }
    programs.sort();
    Ok((programs, commands))
}

fn repository_files(
    manager: PackageManager,
    repository: &PackageRepository,
    places: &Places,
) -> Result<Vec<File>, RenderError> {
    let name = repository.name.as_str();
    let authority = repository.certificate_authority.as_ref();
    let mut files = vec![public(&places.key, repository.key.0.as_str())?];
    if let Some(authority) = authority {
        files.push(public(&places.authority, authority.as_str())?);
    }
    let text = match manager {
        PackageManager::Apt => {
            if authority.is_some() {
                // A source of apt cannot say it by itself.
                let (host, file) = (repository.host(), &places.authority);
                let line = format!("Acquire::https::{host}::CAInfo \"{file}\";\n");
                let comment = HEADER.replacen('#', "//", 1);
                files.push(public(format!("/etc/apt/apt.conf.d/90nodestrap-{name}"), [comment, line].concat())?);
            }
            apt_source(repository, places)
        }
        PackageManager::Dnf => dnf_repository(repository, places),
    };
    files.push(public(&places.repository, text)?);
    Ok(files)
}

fn apt_source(repository: &PackageRepository, places: &Places) -> String {
    let mut text = format!("{HEADER}Types: deb\nURIs: {}\nSuites: {}\n", repository.url, repository.suite());
    if let (false, Some(components)) = (repository.is_flat(), &repository.components) {
        let words: Vec<&str> = components.iter().map(|component| component.as_str()).collect();
        let _ = writeln!(text, "Components: {}", words.join(" "));
    }
    let _ = writeln!(text, "Signed-By: {}", places.key);
    text
}

fn dnf_repository(repository: &PackageRepository, places: &Places) -> String {
    let name = repository.name.as_str();
    let mut text = format!(
        "{HEADER}[nodestrap-{name}]\nname={name}, for nodestrap\nbaseurl={}\nenabled=1\nskip_if_unavailable=0\n\
         gpgcheck=1\ngpgkey=file://{}\n",
        repository.url, places.key
    );
    if repository.certificate_authority.is_some() {
        let _ = writeln!(text, "sslverify=1\nsslcacert={}", places.authority);
    }
    text
}
