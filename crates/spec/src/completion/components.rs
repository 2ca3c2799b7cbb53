//! Which programs of a node the image brings, which nodestrap does, and in which version.

use bundle::{Component, ExtensionName, PackageManager};

use super::os::Traits;
use super::packages;
use super::tectonic::check_addon;
use super::{Check, default, derived, from, ours, release};
use crate::artefacts::validate_component_version;
use crate::complete::{CompleteCluster, CompleteComponent, CompleteComponents, ComponentSpec, GroupSpec};
use crate::origin::{Origin, Setting};
use crate::texts::{AbsolutePath, ComponentVersion, PackageName};
use crate::values::{KubeVersion, Layout, Os, Runtime, SourceKind};

pub(super) struct Inputs<'a> {
    pub(super) group: &'a str,
    pub(super) spec: &'a GroupSpec,
    pub(super) cluster: &'a CompleteCluster,
    pub(super) os: &'a Setting<Os>,
    pub(super) traits: &'a Traits,
    pub(super) version: &'a Setting<KubeVersion>,
    pub(super) runtime: Runtime,
}

/// What the group says of all programs, and of each.
pub(super) fn complete_components(inputs: &Inputs<'_>, check: &Check<'_>) -> (Setting<SourceKind>, CompleteComponents) {
    let source = inputs.spec.source.clone().unwrap_or_else(|| match inputs.cluster.layout.value {
        Layout::Tectonic => {
            derived(SourceKind::Torcx, from("cluster.layout"), "the container runtime is an addon of this system")
        }
        _ => default(SourceKind::Preinstalled, "nodestrap installs nothing that the image has already"),
    });
    if let Some(source) = &inputs.spec.source {
        inputs.check_source(source, &[Component::Kubelet, Component::Containerd], check);
    }
    check_addon(&source, inputs.cluster, check);
    let written = &inputs.spec.components;
    let of_group = derived(source.value, inputs.here("source"), "what the group says of all programs");
    let of_containerd = inputs.default_of_containerd(&of_group);
    let kubelet = inputs.complete(Component::Kubelet, &written.kubelet, &of_group, check);
    let containerd = inputs.complete(Component::Containerd, &written.containerd, &of_containerd, check);
    let follow = |component, spec, leader| {
        let default = inputs.follow(component, leader, &of_group);
        inputs.complete(component, spec, &default, check)
    };
    let components = CompleteComponents {
        kubectl: follow(Component::Kubectl, &written.kubectl, &kubelet),
        runc: follow(Component::Runc, &written.runc, &containerd),
        cni_plugins: follow(Component::CniPlugins, &written.cni_plugins, &kubelet),
        crictl: follow(Component::Crictl, &written.crictl, &kubelet),
        kubelet,
        containerd,
    };
    inputs.check_companions(&components, check);
    (source, components)
}

/// In which extension a component comes, and which component decides whether there is one.
pub(super) fn extension_of(component: Component) -> (ExtensionName, Component) {
    match component {
        Component::Containerd | Component::Runc => (ExtensionName::Containerd, Component::Containerd),
        Component::CniPlugins | Component::Crictl | Component::Kubectl | Component::Kubelet => {
            (ExtensionName::Kubernetes, Component::Kubelet)
        }
    }
}

impl CompleteComponents {
    fn get(&self, component: Component) -> &CompleteComponent {
        match component {
            Component::CniPlugins => &self.cni_plugins,
            Component::Containerd => &self.containerd,
            Component::Crictl => &self.crictl,
            Component::Kubectl => &self.kubectl,
            Component::Kubelet => &self.kubelet,
            Component::Runc => &self.runc,
        }
    }

    fn is(&self, component: Component, kind: SourceKind) -> bool {
        self.get(component).source.as_ref().is_some_and(|source| source.value == kind)
    }

    /// Whether any component comes from there.
    pub(crate) fn has(&self, kind: SourceKind) -> bool {
        Component::ALL.iter().any(|component| self.is(*component, kind))
    }

    /// Whether a package brings it: its own, or one that another component needs.
    pub fn is_package(&self, component: Component) -> bool {
        self.is(component, SourceKind::Package)
    }

    /// What the package manager is asked for, each with its version, if it matters.
    pub fn packages(
        &self,
    ) -> impl Iterator<Item = (Component, &Setting<PackageName>, Option<&Setting<ComponentVersion>>)> {
        let packages = Component::ALL.iter().copied().filter(|component| self.is_package(*component));
        packages.filter_map(|one| Some((one, self.get(one).package.as_ref()?, self.get(one).version.as_ref())))
    }

    /// Whether nodestrap brings it.
    pub fn is_tree(&self, component: Component) -> bool {
        self.is(component, SourceKind::Tree)
    }

    /// Whether nodestrap brings it in a system extension.
    pub fn is_extension(&self, component: Component) -> bool {
        self.is(component, SourceKind::Sysext)
    }

    /// Whether the image need not bring it.
    pub fn is_brought(&self, component: Component) -> bool {
        self.is_tree(component) || self.is_package(component) || self.is_extension(component)
    }

    /// Whether any program comes from the artefacts, as a tree or in an extension.
    pub fn have_artefacts(&self) -> bool {
        Component::ALL.iter().any(|component| self.is_tree(*component) || self.is_extension(*component))
    }

    /// Extensions that nodestrap brings, in the order of a bundle, each with its version and the components in it.
    pub fn extensions(&self) -> impl Iterator<Item = (ExtensionName, &Setting<ComponentVersion>, Vec<Component>)> {
        ExtensionName::ALL.iter().filter_map(|name| {
            let is_in = |component: &Component| extension_of(*component).0 == *name && self.is_extension(*component);
            let components: Vec<Component> = Component::ALL.iter().copied().filter(is_in).collect();
            let leader = components.first().map(|component| extension_of(*component).1)?;
            Some((*name, self.get(leader).version.as_ref()?, components))
        })
    }

    /// What nodestrap brings, in the order of a bundle, each with its version.
    pub fn trees(&self) -> impl Iterator<Item = (Component, &Setting<ComponentVersion>)> {
        let trees = Component::ALL.iter().copied().filter(|component| self.is_tree(*component));
        trees.filter_map(|component| Some((component, self.get(component).version.as_ref()?)))
    }

    /// Where the user says so of this one.
    pub(super) fn source_origin(&self, component: Component) -> Option<&Origin> {
        self.get(component).source.as_ref().map(|source| &source.origin)
    }
}

impl Inputs<'_> {
    fn here(&self, field: &str) -> Vec<String> {
        vec![format!("nodeGroups.{}.{field}", self.group)]
    }

    /// Flatcar's own containerd is an extension that goes with the system: it stays, unless somebody wants another.
    fn default_of_containerd(&self, of_group: &Setting<SourceKind>) -> Setting<SourceKind> {
        match of_group.value {
            SourceKind::Sysext => derived(
                SourceKind::Preinstalled,
                self.here("source"),
                "the system brings a containerd that goes with it; components.containerd.source: sysext brings another",
            ),
            _ => of_group.clone(),
        }
    }

    /// What comes in an extension comes with the program that it is named after.
    fn follow(
        &self,
        component: Component,
        leader: &CompleteComponent,
        of_group: &Setting<SourceKind>,
    ) -> Setting<SourceKind> {
        let sources = [leader.source.as_ref(), Some(of_group)];
        match &leader.source {
            Some(source) if sources.iter().flatten().any(|source| source.value == SourceKind::Sysext) => {
                let leader = extension_of(component).1;
                derived(source.value, self.here(&format!("components.{leader}.source")), "they come together")
            }
            _ => of_group.clone(),
        }
    }

    /// An extension is one image: its parts cannot come without it.
    fn check_companions(&self, components: &CompleteComponents, check: &Check<'_>) {
        for component in Component::ALL {
            let (name, leader) = extension_of(*component);
            let Some(source) = &components.get(*component).source else { continue };
            let is_written = matches!(source.origin, Origin::User(_));
            if is_written && source.value == SourceKind::Sysext && !components.is_extension(leader) {
                check.report(
                    Some(&source.origin),
                    format!("{component} comes in the extension {name}, and {leader} does not come from there"),
                    format!("write components: {{{leader}: {{source: sysext}}}} too"),
                );
            }
            if *component == Component::Runc && source.value != SourceKind::Sysext && components.is_extension(leader) {
                check.report(
                    Some(&source.origin),
                    "runc comes with containerd in its extension".to_owned(),
                    "leave out the source of runc",
                );
            }
        }
    }

    fn complete(
        &self,
        component: Component,
        spec: &ComponentSpec,
        default: &Setting<SourceKind>,
        check: &Check<'_>,
    ) -> CompleteComponent {
        let written = [
            spec.source.as_ref().map(|set| &set.origin),
            spec.version.as_ref().map(|set| &set.origin),
            spec.package.as_ref().map(|set| &set.origin),
        ];
        let written = written.into_iter().flatten().next();
        if let Some((message, advice)) = self.is_not_there(component) {
            if let Some(origin) = written {
                check.report(Some(origin), message, advice);
            }
            return NOTHING;
        }
        if component == Component::Crictl && written.is_none() {
            return NOTHING;
        }
        if let Some(source) = &spec.source {
            self.check_source(source, &[component], check);
        }
        let source = spec.source.clone().unwrap_or_else(|| default.clone());
        if source.value == SourceKind::Package {
            return self.complete_package(component, spec, source, check);
        }
        if let Some(package) = &spec.package {
            let message = format!("{component} is no package: its source is {}", source.value);
            check.report(Some(&package.origin), message, "remove package, or write source: package too");
        }
        let version = match (source.value, &spec.version) {
            (SourceKind::Tree, Some(version)) => {
                if let Err(invalid) = validate_component_version(version.value.as_str()) {
                    check.report(Some(&version.origin), invalid.message, invalid.advice.unwrap_or_default());
                }
                self.check_version(component, version, "+example.1", check);
                Some(version.clone())
            }
            (SourceKind::Tree, None) => Some(self.default_version(component)),
            (SourceKind::Sysext, version) if extension_of(component).1 == component => match version {
                Some(version) => {
                    self.check_version(component, version, "+example.1", check);
                    Some(version.clone())
                }
                None => Some(self.default_version(component)),
            },
            (SourceKind::Sysext, Some(version)) => {
                let (name, leader) = extension_of(component);
                let message = format!("{component} comes in the extension {name}, whichever version that has");
                let advice = format!("leave out the version; that of {leader} is the version of the extension");
                check.report(Some(&version.origin), message, advice);
                None
            }
            (_, Some(version)) => {
                // How a containerd of the image is configured hangs on its version; of others nothing does.
                if component != Component::Containerd {
                    let message = format!("the image brings {component}, whichever version that is");
                    check.report(
                        Some(&version.origin),
                        message,
                        "write source: tree or package too, or leave out the version",
                    );
                }
                Some(version.clone())
            }
            (_, None) => None,
        };
        CompleteComponent { source: Some(source), version, package: None }
    }

    /// What others bring as a dependency is asked for only where the user wants one in particular.
    fn complete_package(
        &self,
        component: Component,
        spec: &ComponentSpec,
        source: Setting<SourceKind>,
        check: &Check<'_>,
    ) -> CompleteComponent {
        let is_asked_for = spec.version.is_some() || spec.package.is_some();
        let by_others = matches!(component, Component::Runc | Component::CniPlugins) && !is_asked_for;
        let Some(manager) = PackageManager::of(self.os.value).filter(|_| !by_others) else {
            return CompleteComponent { source: Some(source), version: None, package: None };
        };
        let version = match (&spec.version, component) {
            (Some(version), _) => {
                self.check_version(component, version, "-1.2", check);
                Some(version.clone())
            }
            (None, Component::Kubelet | Component::Kubectl) => Some(self.first_build(manager)),
            (None, Component::Containerd) => {
                let origin = packages::user([
                    Some(&source.origin),
                    self.spec.source.as_ref().map(|source| &source.origin),
                    None,
                ]);
                let (message, advice) = match manager {
                    PackageManager::Apt => (NO_CONTAINERD, "apt-cache madison containerd"),
                    PackageManager::Dnf => (NO_CONTAINERD, "dnf list --showduplicates containerd.io"),
                };
                let write = "write components: {containerd: {version: …}}; such versions are listed by";
                check.report(origin, message, format!("{write} `{advice}`"));
                None
            }
            (None, _) => None,
        };
        let package = spec.package.clone().unwrap_or_else(|| {
            let name = match (component, manager) {
                (Component::Containerd, PackageManager::Dnf) if self.os.value == Os::Rhel => "containerd.io",
                (Component::CniPlugins, _) => "kubernetes-cni",
                (Component::Crictl, _) => "cri-tools",
                _ => component.as_str(),
            };
            derived(ours(name), self.here("os"), "what its package is called on this system")
        });
        CompleteComponent { source: Some(source), version, package: Some(package) }
    }

    fn first_build(&self, manager: PackageManager) -> Setting<ComponentVersion> {
        let revision = match manager {
            PackageManager::Apt => "1.1",
            PackageManager::Dnf => "150500.1.1",
        };
        let version = ours(&format!("{}-{revision}", self.version.value));
        derived(version, self.here("kubernetesVersion"), "the first build in the Kubernetes community's repositories")
    }

    /// Why nothing can be said about a component, and what to do.
    fn is_not_there(&self, component: Component) -> Option<(String, String)> {
        let (layout, runtime) = (self.cluster.layout.value, self.runtime);
        let of_runtime = matches!(component, Component::Containerd | Component::Runc);
        if layout != Layout::Nodestrap {
            let message = format!("nodes of the layout {layout} have their programs from their image");
            return Some((message, "remove components, or leave out the layout".to_owned()));
        }
        (of_runtime && runtime != Runtime::Containerd).then(|| {
            let message = format!("the nodes run {runtime}, which comes with the image and all that it needs");
            (message, format!("remove {component} from components"))
        })
    }

    fn default_version(&self, component: Component) -> Setting<ComponentVersion> {
        let programs = &release(self.version.value).programs;
        let of_kubernetes = self.version.value.to_string();
        let (version, rule) = match component {
            Component::Kubelet | Component::Kubectl => (of_kubernetes.as_str(), "it is a part of Kubernetes"),
            Component::Containerd => (programs.containerd, GOES_WITH),
            Component::Runc => (programs.runc, GOES_WITH),
            Component::CniPlugins => (programs.cni_plugins, GOES_WITH),
            Component::Crictl => (programs.crictl, GOES_WITH),
        };
        derived(ours(version), self.here("kubernetesVersion"), rule)
    }

    /// A kubelet may be of somebody's own build, and is of the release that it is configured for all the same.
    fn check_version(
        &self,
        component: Component,
        version: &Setting<ComponentVersion>,
        example: &str,
        check: &Check<'_>,
    ) {
        if component != Component::Kubelet {
            return;
        }
        let wanted = self.version.value.to_string();
        // Packages may have an epoch.
        let upstream = version.value.as_str();
        let upstream = upstream.split_once(':').map_or(upstream, |(_, rest)| rest);
        let build = upstream.strip_prefix(wanted.as_str());
        if !build.is_some_and(|build| build.is_empty() || build.starts_with(['+', '-', '_', '~'])) {
            check.report(
                Some(&version.origin),
                format!("the kubelet is of the release that the group runs, {wanted}"),
                format!("write kubernetesVersion; here only another build of it, such as {wanted}{example}"),
            );
        }
    }

    /// Of a source that the user wrote, for these components.
    fn check_source(&self, source: &Setting<SourceKind>, of: &[Component], check: &Check<'_>) {
        let (layout, os) = (self.cluster.layout.value, self.os.value);
        let refuse = |message: String, advice: &str| check.report(Some(&source.origin), message, advice);
        match source.value {
            SourceKind::Preinstalled => {}
            SourceKind::Sysext => self.check_sysext(source, check),
            SourceKind::Package if layout != Layout::Nodestrap => refuse(
                format!("nodes of the layout {layout} have their programs from their image"),
                "write preinstalled, or leave out the layout",
            ),
            SourceKind::Package if PackageManager::of(os).is_none() => refuse(
                format!(
                    "{os} has no package manager that nodestrap knows: apt is debian's and ubuntu's, dnf rhel's and al2023's"
                ),
                match (os, self.traits.programs) {
                    (Os::Flatcar, _) => "write sysext or preinstalled, or use another system",
                    (_, Some(_)) => "write tree or preinstalled, or use another system",
                    (_, None) => "write preinstalled, or use another system",
                },
            ),
            SourceKind::Package if of.contains(&Component::Containerd) && self.runtime != Runtime::Containerd => {
                refuse(
                    format!("{} comes with the image: nodestrap installs no packages of it", self.runtime),
                    "write containerRuntime: {name: containerd}, or source: package for single components",
                )
            }
            SourceKind::Package => {}
            SourceKind::Torcx if layout == Layout::Tectonic => {}
            SourceKind::Torcx => {
                refuse("the source torcx is for the layout tectonic".to_owned(), "write preinstalled or tree");
            }
            SourceKind::Tree if layout != Layout::Nodestrap => refuse(
                format!("nodes of the layout {layout} have their programs from their image"),
                "write preinstalled, or leave out the layout",
            ),
            SourceKind::Tree if self.traits.programs.is_none() => refuse(
                format!("{os} has no place for programs that are brought later: its /usr belongs to the image"),
                "write preinstalled, or use another system",
            ),
            SourceKind::Tree if of.contains(&Component::Containerd) && self.runtime != Runtime::Containerd => refuse(
                format!("{} comes with the image: nodestrap has no trees of it", self.runtime),
                "write containerRuntime: {name: containerd}, or source: tree for single components",
            ),
            SourceKind::Tree if self.cluster.artefacts.is_none() => refuse(
                "the source tree needs artefacts: the Cluster does not say where they are".to_owned(),
                "write artefacts: {store: https://…, manifest: {file: manifest.json}, keyrings: [{file: keys.asc}]} there",
            ),
            SourceKind::Tree => {}
        }
    }
}

const NOTHING: CompleteComponent = CompleteComponent { source: None, version: None, package: None };
const NO_CONTAINERD: &str =
    "which version of containerd is installed has to be said: repositories differ in what they have";

impl Inputs<'_> {
    fn check_sysext(&self, source: &Setting<SourceKind>, check: &Check<'_>) {
        let (layout, os) = (self.cluster.layout.value, self.os.value);
        let refuse = |message: String, advice: &str| check.report(Some(&source.origin), message, advice);
        match os {
            _ if layout != Layout::Nodestrap => refuse(
                format!("nodes of the layout {layout} have their programs from their image"),
                "write preinstalled, or leave out the layout",
            ),
            Os::ContainerLinux => {
                refuse(format!("{os} has no systemd that knows system extensions"), "write preinstalled");
            }
            Os::Rhcos => {
                refuse(format!("what extends {os} is decided by its cluster, not by its nodes"), "write preinstalled");
            }
            Os::Debian | Os::Ubuntu | Os::Al2 | Os::Al2023 | Os::Rhel => refuse(
                format!("/usr is writable on {os}, and a system extension would make it read-only"),
                "write tree or package",
            ),
            Os::Flatcar if self.runtime != Runtime::Containerd => refuse(
                format!("the source sysext is for nodes that run containerd, and these run {}", self.runtime),
                "write containerRuntime: {name: containerd}",
            ),
            Os::Flatcar if self.cluster.artefacts.is_none() => refuse(
                "the source sysext needs artefacts: the Cluster does not say where they are".to_owned(),
                "write artefacts: {store: https://…, manifest: {file: manifest.json}, keyrings: [{file: keys.asc}]} there",
            ),
            Os::Flatcar => {}
        }
    }
}

const GOES_WITH: &str = "what goes with this release of Kubernetes";

/// Where a program is that a tree brings; else `in_image`. Only one place is linked.
pub(super) fn complete_binary(
    component: Component,
    written: &Option<Setting<AbsolutePath>>,
    inputs: &Inputs<'_>,
    components: &CompleteComponents,
    in_image: impl FnOnce() -> Setting<AbsolutePath>,
    check: &Check<'_>,
) -> Setting<AbsolutePath> {
    if components.is_extension(component) {
        let source = inputs.here(&format!("components.{component}.source"));
        let path = format!("/usr/bin/{component}");
        return written.clone().unwrap_or_else(|| derived(ours::<AbsolutePath>(&path), source, "in its extension"));
    }
    let Some(folder) = inputs.traits.programs.filter(|_| components.is_tree(component)) else {
        return written.clone().unwrap_or_else(in_image);
    };
    let source = inputs.here(&format!("components.{component}.source"));
    let linked = derived(ours::<AbsolutePath>(&format!("{folder}/{component}")), source, "the link to its tree");
    match written {
        Some(written) if written.value != linked.value => {
            check.report(
                Some(&written.origin),
                format!("nodestrap brings {component} as a tree, and links it from {}", linked.value),
                "leave out binary",
            );
            written.clone()
        }
        Some(written) => written.clone(),
        None => linked,
    }
}
