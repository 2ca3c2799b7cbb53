//! The nodes of a group.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::NONE;
use super::delivery::complete_delivery;
use super::os::{self, Traits};
use super::{
    Check, artefacts, components, containerd, default, derived, from, kubelet, lists, or_default, ours, packages,
    release, secrets,
};
use crate::catalog::Component;
use crate::complete::{
    CompleteCluster, CompleteComponents, CompleteContainerRuntime, CompleteGroup, CompleteKubelet, CompleteMachines,
    GroupSpec, MachinesSpec,
};
use crate::instances::{self, InstanceType};
use crate::items::{Labels, MaxPods, Taints};
use crate::origin::{Origin, Setting};
use crate::tectonic::CompleteTectonic;
use crate::texts::{Line, ModuleName, SysctlName};
use crate::values::{
    GroupName, KubeVersion, Layout, Os, Provider, Reservation, Role, Runtime, SourceKind, Taint, TaintEffect,
};

/// How many minors a kubelet may be older than the API server.
const OLDEST_KUBELET: u32 = 3;

pub(super) fn complete_group(
    name: &Setting<GroupName>,
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    check: &Check<'_>,
) -> CompleteGroup {
    let group = name.value.as_str();
    let here = |field: &str| format!("nodeGroups.{group}.{field}");
    let role = or_default(&spec.role, || Role::Worker, "most groups run the users' pods");
    let os = complete_os(spec, cluster);
    let traits = os::traits(os.value);
    check_layout(cluster, &os, &role, check);
    check_role(&role, cluster, check);
    let kubernetes_version = complete_version(spec, cluster, role.value, check);
    let runtime = runtime_name(spec, cluster, &traits, group);
    let programs = components::Inputs {
        group,
        spec,
        cluster,
        os: &os,
        traits: &traits,
        version: &kubernetes_version,
        runtime: runtime.value,
    };
    let (source, components) = components::complete_components(&programs, check);
    let packages = packages::complete_packages(
        &packages::Inputs { group, spec: &spec.packages, cluster: &cluster.packages, os: &os, components: &components },
        check,
    );
    let machines = complete_machines(&spec.machines, check);
    let said = spec.max_pods.as_ref().map(|set| &set.value);
    let instance = instance_type(&machines, said, cluster.provider.value, check);
    let labels = or_default(&spec.labels, Labels::default, "no labels but those the kubelet sets itself");
    let taints = complete_taints(spec, role.value, &here("role"));
    let max_pods = kubelet::max_pods_of_config(spec, here).unwrap_or_else(|| complete_max_pods(spec, cluster));
    let reservation = spec.reservation.clone().unwrap_or_else(|| match instance {
        Some(_) => derived(Reservation::Auto, vec![here("machines.instanceType")], "its size is known"),
        None => default(Reservation::None, "how large the machines are is not known"),
    });
    let file_assets = merged(spec, cluster, check, &here);
    let parts = kubelet::Inputs {
        group,
        spec,
        cluster,
        os: os.value,
        target: release(kubernetes_version.value).target(Component::Kubelet),
        traits: &traits,
        role: role.value,
        labels: &labels,
        taints: &taints,
        max_pods: &max_pods,
        reservation: &reservation,
        instance: instance.as_ref(),
        prefix_delegation: machines.prefix_delegation.value,
    };
    let kubelet = CompleteKubelet {
        binary: components::complete_binary(
            bundle::Component::Kubelet,
            &spec.kubelet.binary,
            &programs,
            &components,
            || {
                let path = match (cluster.layout.value, os.value) {
                    (Layout::Tectonic, Os::Flatcar) => "/usr/lib/flatcar/kubelet-wrapper",
                    _ => traits.kubelet,
                };
                derived(ours(path), vec![here("os")], "where it is on this system")
            },
            check,
        ),
        config: kubelet::complete_config(&parts, check),
        flags: kubelet::complete_flags(&parts, check),
    };
    check_docker(&runtime, &os, cluster.layout.value, kubernetes_version.value, check);
    let container_runtime =
        complete_runtime(runtime, &programs, source.value, &components, &kubelet, &file_assets.hooks.value, check);
    let delivery =
        complete_delivery(&spec.delivery, &cluster.delivery, &os, &traits, group, &file_assets.user_data, check);
    let program = |name, path, may_be_a_file| lists::Program { name, path, may_be_a_file };
    let programs = [
        program("nodestrap itself", &delivery.nodestrap.path, false),
        program("the kubelet", &kubelet.binary, !components.is_brought(bundle::Component::Kubelet)),
        program(
            "the container runtime",
            &container_runtime.binary,
            !components.is_brought(bundle::Component::Containerd),
        ),
    ];
    lists::check_programs(&file_assets.files.value, &programs, check);
    let started = started_units(cluster, os.value, container_runtime.name.value, &components);
    lists::check_states(&file_assets.units.value, &started, check);
    let written = secrets::Store {
        urls: spec.delivery.store.urls.as_ref().or(cluster.delivery.store.urls.as_ref()),
        s3: match spec.delivery.store.s3 {
            Some(_) => delivery.store.s3.as_ref(),
            None => cluster.delivery.store.s3.as_ref(),
        },
    };
    secrets::check_store(&written, secrets::held(cluster, role.value, &file_assets.files.value), check);
    CompleteGroup {
        sysctls: complete_sysctls(spec, cluster, &here),
        kernel_modules: complete_modules(spec, cluster, &here),
        role,
        os,
        architecture: spec.architecture.clone().unwrap_or_else(artefacts::default_architecture),
        kubernetes_version,
        source,
        packages,
        components,
        machines,
        labels,
        taints,
        max_pods,
        reservation,
        kubelet,
        container_runtime,
        file_assets: file_assets.files,
        hooks: file_assets.hooks,
        units: file_assets.units,
        additional_user_data: file_assets.user_data,
        delivery,
    }
}

fn complete_os(spec: &GroupSpec, cluster: &CompleteCluster) -> Setting<Os> {
    spec.os.clone().unwrap_or_else(|| match cluster.layout.value {
        Layout::Nodestrap => default(Os::Debian, "a plain distribution with systemd and cloud-init"),
        Layout::Eksctl => derived(Os::Al2, from("cluster.layout"), "the system that this layout was made for"),
        Layout::Tectonic => {
            derived(Os::ContainerLinux, from("cluster.layout"), "the system that this layout was made for")
        }
    })
}

fn check_layout(cluster: &CompleteCluster, os: &Setting<Os>, role: &Setting<Role>, check: &Check<'_>) {
    let fits: &[Os] = match cluster.layout.value {
        Layout::Nodestrap => Os::ALL,
        Layout::Eksctl => &[Os::Al2, Os::Al2023, Os::Ubuntu],
        Layout::Tectonic => &[Os::ContainerLinux, Os::Flatcar],
    };
    if !fits.contains(&os.value) {
        let known: Vec<&str> = fits.iter().map(|os| os.as_str()).collect();
        check.report(
            Some(&os.origin),
            format!("the layout {} is not for {}", cluster.layout.value, os.value),
            format!("it is for {}", known.join(", ")),
        );
    }
    if os.value == Os::ContainerLinux && cluster.layout.value == Layout::Nodestrap {
        check.report(
            Some(&os.origin),
            "Container Linux has its container runtime from torcx, which the layout tectonic alone knows",
            "write layout: tectonic in the Cluster, or use its successor: os: flatcar",
        );
    }
    if cluster.layout.value == Layout::Eksctl && role.value == Role::ControlPlane {
        check.report(
            Some(&role.origin),
            "the layout eksctl has workers only: EKS runs the control plane",
            "leave out the layout",
        );
    }
}

fn check_role(role: &Setting<Role>, cluster: &CompleteCluster, check: &Check<'_>) {
    let nodestrap = cluster.layout.value == Layout::Nodestrap;
    if role.value == Role::ControlPlane && nodestrap && cluster.pki.folder.is_none() {
        check.report(
            Some(&role.origin),
            "a control plane needs certificates and keys",
            "`nodestrap pki create … --out pki`, then pki: {folder: pki} in the Cluster",
        );
    }
}

fn complete_version(
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    role: Role,
    check: &Check<'_>,
) -> Setting<KubeVersion> {
    let of_cluster = cluster.kubernetes_version.value;
    let Some(setting) = &spec.kubernetes_version else {
        return derived(of_cluster, from("cluster.kubernetesVersion"), "all nodes run the release of the cluster");
    };
    check_skew(setting, of_cluster, role, check);
    if cluster.layout.value == Layout::Tectonic && setting.value != of_cluster {
        check.report(
            Some(&setting.origin),
            "nodes of the layout tectonic run the release of their cluster, which they ask for it",
            "leave out kubernetesVersion here, or write tectonic.forceKubernetesVersion in the Cluster",
        );
    }
    setting.clone()
}

pub(super) fn check_skew(setting: &Setting<KubeVersion>, of_cluster: KubeVersion, role: Role, check: &Check<'_>) {
    let version = setting.value;
    if version > of_cluster && (version.minor > of_cluster.minor || role == Role::ControlPlane) {
        check.report(
            Some(&setting.origin),
            format!("a kubelet of {version} is newer than the API server of {of_cluster}"),
            "Kubernetes does not support that: upgrade the cluster first",
        );
    } else if of_cluster.minor.saturating_sub(version.minor) > OLDEST_KUBELET {
        check.report(
            Some(&setting.origin),
            format!("a kubelet of {version} is too old for the API server of {of_cluster}"),
            format!("Kubernetes supports {OLDEST_KUBELET} minors: 1.{} at least", of_cluster.minor - OLDEST_KUBELET),
        );
    } else if role == Role::ControlPlane && version != of_cluster {
        check.report(
            Some(&setting.origin),
            "the control plane runs the release of the cluster",
            "leave out kubernetesVersion here",
        );
    }
}

pub(super) fn complete_machines(spec: &MachinesSpec, check: &Check<'_>) -> CompleteMachines {
    let desired = or_default(
        &spec.desired,
        || {
            spec.min
                .as_ref()
                .map_or(1, |min| min.value)
                .max(u32::from(spec.max.as_ref().is_none_or(|max| max.value > 0)))
        },
        "one machine, or the fewest",
    );
    let min = or_default(&spec.min, || desired.value.min(1), "a lost machine is replaced");
    let max = or_default(&spec.max, || desired.value.max(min.value), "no more than are wanted");
    if min.value > desired.value || desired.value > max.value {
        let origin = [&spec.desired, &spec.min, &spec.max].into_iter().flatten().map(|set| &set.origin).next();
        check.report(
            origin,
            format!("min {}, desired {}, max {} are not in order", min.value, desired.value, max.value),
            "min ≤ desired ≤ max",
        );
    }
    CompleteMachines {
        instance_type: spec.instance_type.clone(),
        prefix_delegation: or_default(
            &spec.prefix_delegation,
            || false,
            "the network plug-in of AWS gives single addresses unless told otherwise",
        ),
        image: spec.image.clone(),
        min,
        max,
        desired,
        subnets: or_default(&spec.subnets, Vec::new, "the provider's default"),
        security_groups: or_default(&spec.security_groups, Vec::new, "the provider's default"),
        identity: spec.identity.clone(),
        disk_size: spec.disk_size.clone(),
        tags: or_default(&spec.tags, BTreeMap::new, NONE),
    }
}

/// Only AWS' types are known; elsewhere, and where the user has said what follows from it, the name is taken as it is.
fn instance_type(
    machines: &CompleteMachines,
    max_pods: Option<&MaxPods>,
    provider: Provider,
    check: &Check<'_>,
) -> Option<InstanceType> {
    let setting = machines.instance_type.as_ref().filter(|_| provider == Provider::Aws)?;
    match instances::require(setting.value.as_str()) {
        Ok(instance) => Some(instance),
        Err(_) if matches!(max_pods, Some(MaxPods::Number(_))) => None,
        Err(invalid) => {
            check.report(Some(&setting.origin), invalid.message, invalid.advice.unwrap_or_default());
            None
        }
    }
}

fn complete_taints(spec: &GroupSpec, role: Role, role_path: &str) -> Setting<Taints> {
    spec.taints.clone().unwrap_or_else(|| match role {
        Role::Worker => default(Taints::default(), "every pod may run on these nodes"),
        Role::ControlPlane => derived(
            Taints(vec![Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
            }]),
            from(role_path),
            "the control plane keeps its machines to itself",
        ),
    })
}

fn complete_max_pods(spec: &GroupSpec, cluster: &CompleteCluster) -> Setting<MaxPods> {
    spec.max_pods.clone().unwrap_or_else(|| match cluster.layout.value {
        Layout::Eksctl => derived(MaxPods::Map, from("cluster.layout"), "the network of EKS has so many addresses"),
        _ => default(MaxPods::Number(110), "the limit that Kubernetes is tested with"),
    })
}

/// What nodestrap starts, or asks, on each node of a group.
fn started_units(
    cluster: &CompleteCluster,
    os: Os,
    runtime: Runtime,
    components: &CompleteComponents,
) -> BTreeSet<String> {
    let (layout, provided) = (cluster.layout.value, bundle::Component::ALL);
    let mut units = vec![bundle::BOOTSTRAP_UNIT];
    units.push(match (layout, os) {
        (Layout::Eksctl, Os::Ubuntu) => "snap.kubelet-eks.daemon.service",
        _ => "kubelet.service",
    });
    units.push(match runtime {
        Runtime::Containerd => "containerd.service",
        Runtime::CriO => "crio.service",
        Runtime::Docker => "docker.service",
    });
    if !cluster.ntp_servers.value.is_empty() {
        units.extend(bundle::TIME_UNITS);
    }
    if provided.iter().any(|component| components.is_extension(*component)) {
        units.push(bundle::SYSEXT_UNIT);
    }
    let tectonic: Option<&CompleteTectonic> = (&cluster.tectonic).into();
    if let Some(settings) = tectonic {
        units.extend(["bootkube.path", "bootkube.service", "tectonic.path", "tectonic.service"]);
        // It is asked for a newer system.
        units.extend(settings.upgrade_os.value.then_some("update-engine.service"));
    }
    units.into_iter().map(str::to_owned).collect()
}

struct Lists {
    files: Setting<Vec<crate::items::FileAsset>>,
    hooks: Setting<Vec<crate::items::Hook>>,
    units: Setting<Vec<crate::items::ExtraUnit>>,
    user_data: Setting<Vec<crate::items::AdditionalUserData>>,
}

pub(super) fn check_lists(spec: &GroupSpec, check: &Check<'_>) {
    lists::check_files(&spec.file_assets, check);
    lists::check_hooks(&spec.hooks, check);
    lists::check_units(&spec.units, check);
}

fn merged(spec: &GroupSpec, cluster: &CompleteCluster, check: &Check<'_>, here: &dyn Fn(&str) -> String) -> Lists {
    check_lists(spec, check);
    let lists = Lists {
        files: lists::merge(&cluster.file_assets, &spec.file_assets, "cluster.fileAssets", here("fileAssets"), NONE),
        hooks: lists::merge(&cluster.hooks, &spec.hooks, "cluster.hooks", here("hooks"), NONE),
        units: lists::merge(&cluster.units, &spec.units, "cluster.units", here("units"), NONE),
        user_data: lists::merge(
            &cluster.additional_user_data,
            &spec.additional_user_data,
            "cluster.additionalUserData",
            here("additionalUserData"),
            NONE,
        ),
    };
    // What the cluster says by itself was looked at once for all groups.
    if spec.file_assets.is_some() || spec.units.is_some() || spec.hooks.is_some() {
        lists::check_clashes(&lists.files.value, &lists.units.value, &lists.hooks.value, check);
    }
    lists
}

fn complete_sysctls(
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    here: &dyn Fn(&str) -> String,
) -> Setting<BTreeMap<SysctlName, Line>> {
    let mut needed = BTreeMap::new();
    if cluster.is_like_nodestraps() {
        for network in &cluster.networking.pod_cidrs.value.0 {
            let name = match network.addr().is_ipv4() {
                true => "net.ipv4.ip_forward",
                false => "net.ipv6.conf.all.forwarding",
            };
            needed.insert(ours(name), ours("1"));
        }
    }
    let from = vec!["cluster.networking.podCIDRs".to_owned(), "cluster.sysctls".to_owned(), here("sysctls")];
    lists::merge_map(
        &[&needed, &cluster.sysctls.value],
        &spec.sysctls,
        from,
        "packets of pods are forwarded, and what the cluster and the group say",
    )
}

fn complete_modules(
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    here: &dyn Fn(&str) -> String,
) -> Setting<Vec<ModuleName>> {
    let needed: &[&str] = if cluster.is_like_nodestraps() { &["br_netfilter", "overlay"] } else { &[] };
    if spec.kernel_modules.is_none() && cluster.kernel_modules.value.is_empty() {
        let modules = needed.iter().map(|name| ours(name)).collect();
        return default(
            modules,
            "bridges are filtered and images are layered; kernels that have them built in do not mind",
        );
    }
    let mut base = default(needed.iter().map(|name| ours(name)).collect::<Vec<ModuleName>>(), NONE);
    for module in &cluster.kernel_modules.value {
        if !base.value.contains(module) {
            base.value.push(module.clone());
        }
    }
    let mut merged = lists::merge(&base, &spec.kernel_modules, "cluster.kernelModules", here("kernelModules"), NONE);
    if let Origin::Derived { rule, .. } = &mut merged.origin
        && !needed.is_empty()
    {
        *rule = "bridges are filtered and images are layered, and what the cluster and the group say";
    }
    merged
}

fn runtime_name(spec: &GroupSpec, cluster: &CompleteCluster, traits: &Traits, group: &str) -> Setting<Runtime> {
    spec.container_runtime.name.clone().unwrap_or_else(|| match cluster.layout.value {
        Layout::Tectonic if cluster.is_of_tectonics_time() => {
            derived(Runtime::Docker, from("cluster.layout"), "the runtime of that time")
        }
        Layout::Tectonic => {
            derived(Runtime::Containerd, from("cluster.kubernetesVersion"), "what kubelets can use since 1.24")
        }
        _ => derived(traits.runtime, vec![format!("nodeGroups.{group}.os")], "what this system brings"),
    })
}

fn complete_runtime(
    name: Setting<Runtime>,
    programs: &components::Inputs<'_>,
    source: SourceKind,
    components: &CompleteComponents,
    kubelet: &CompleteKubelet,
    hooks: &[crate::items::Hook],
    check: &Check<'_>,
) -> CompleteContainerRuntime {
    let &components::Inputs { group, spec, cluster, .. } = programs;
    let (runtime, version) = (&spec.container_runtime, programs.version.value);
    let sandbox_image = runtime.sandbox_image.clone().unwrap_or_else(|| {
        let image = release(version).sandbox_image;
        match image.strip_prefix("registry.k8s.io/") {
            Some(rest) => derived(
                ours(&format!("{}/{rest}", cluster.assets.container_registry.value)),
                vec!["cluster.assets.containerRegistry".to_owned()],
                "the pause image, pinned so that garbage collection never removes it",
            ),
            None => default(ours(image), "the pause image, pinned so that garbage collection never removes it"),
        }
    });
    let cni_binaries = match &runtime.cni_binaries {
        None if components.is_extension(bundle::Component::CniPlugins) => derived(
            ours(CNI_OF_EXTENSION),
            vec![format!("nodeGroups.{group}.components.cniPlugins.source")],
            "in the extension of the kubelet",
        ),
        written => or_default(written, || ours("/opt/cni/bin"), "where the packages of the CNI plug-ins put them"),
    };
    let in_image = || {
        let is_addon = cluster.layout.value == Layout::Tectonic
            && (programs.os.value == Os::ContainerLinux || source == SourceKind::Torcx);
        let (path, rule) = match name.value {
            Runtime::Containerd if is_addon => ("/run/torcx/bin/containerd", "where torcx puts it"),
            Runtime::Containerd => ("/usr/bin/containerd", "where the packages of containerd put it"),
            Runtime::CriO => ("/usr/bin/crio", "where the packages of CRI-O put it"),
            Runtime::Docker => ("/run/torcx/bin/dockerd", "where torcx puts it"),
        };
        derived(ours(path), vec![format!("nodeGroups.{group}.containerRuntime.name")], rule)
    };
    let component = bundle::Component::Containerd;
    let binary = components::complete_binary(component, &runtime.binary, programs, components, in_image, check);
    let config = containerd::complete_config(
        &containerd::Inputs {
            group,
            spec,
            cluster,
            kubelet,
            runtime: name.value,
            version: components.containerd.version.as_ref(),
            kubernetes_minor: version.minor,
            sandbox_image: &sandbox_image,
            cni_binaries: &cni_binaries,
            plugins_in_extension: components.is_extension(bundle::Component::CniPlugins),
            hooks,
        },
        check,
    );
    CompleteContainerRuntime { name, binary, sandbox_image, cni_binaries, config }
}

/// An extension has nothing outside `/usr`.
const CNI_OF_EXTENSION: &str = "/usr/libexec/cni";

fn check_docker(name: &Setting<Runtime>, os: &Setting<Os>, layout: Layout, version: KubeVersion, check: &Check<'_>) {
    let chosen = matches!(name.origin, Origin::User(_));
    // Other layouts refuse by themselves the system that brings nothing else.
    if name.value == Runtime::Docker
        && version >= KubeVersion::FIRST_WITHOUT_DOCKER
        && (chosen || layout == Layout::Nodestrap)
    {
        check.report(
            Some(if chosen { &name.origin } else { &os.origin }),
            "kubelets cannot use docker since Kubernetes 1.24",
            "docker's own engine is containerd: write name: containerd",
        );
    }
}
