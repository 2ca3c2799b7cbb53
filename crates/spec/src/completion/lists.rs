//! Files, hooks and units: a cluster's reach every group, a group's are laid over them by name.

use std::collections::{BTreeMap, BTreeSet};

use bundle::BOOTSTRAP_UNIT;

use super::{Check, default, derived};
use crate::items::{AdditionalUserData, ExtraUnit, FileAsset, Hook, Keyring, TrustedAuthority};
use crate::origin::{Origin, Setting};
use crate::packages::PackageRepository;
use crate::record::Place;
use crate::texts::{AbsolutePath, ModuleName};
use crate::values::UnitState;

/// What makes two items the same one.
pub(super) trait Keyed: Clone + PartialEq {
    fn key(&self) -> &str;
    fn place(&self) -> Place;
}

macro_rules! keyed {
    ($($item:ident by $key:ident),+) => {
        $(impl Keyed for $item {
            fn key(&self) -> &str {
                self.$key.as_str()
            }

            fn place(&self) -> Place {
                self.place
            }
        })+
    };
}

keyed!(FileAsset by path, Hook by name, ExtraUnit by name, AdditionalUserData by name, TrustedAuthority by name, Keyring by name,
    PackageRepository by name);

impl Keyed for ModuleName {
    fn key(&self) -> &str {
        self.as_str()
    }

    fn place(&self) -> Place {
        Place::default()
    }
}

/// The cluster's items in their order, replaced by the group's of the same key; then the group's others.
pub(super) fn merge<T: Keyed>(
    cluster: &Setting<Vec<T>>,
    group: &Option<Setting<Vec<T>>>,
    cluster_path: &str,
    group_path: String,
    reason: &'static str,
) -> Setting<Vec<T>> {
    let Some(group) = group else {
        return match cluster.value.is_empty() {
            true => default(Vec::new(), reason),
            false => derived(cluster.value.clone(), vec![cluster_path.to_owned()], "what the cluster has"),
        };
    };
    if cluster.value.is_empty() {
        return group.clone();
    }
    let mut merged = cluster.value.clone();
    let known: BTreeMap<&str, usize> = cluster.value.iter().enumerate().map(|(at, item)| (item.key(), at)).collect();
    for item in &group.value {
        match known.get(item.key()) {
            Some(at) => merged[*at] = item.clone(),
            None => merged.push(item.clone()),
        }
    }
    // A complete spec says everything in the group: that stays the user's own word.
    if merged == group.value {
        return group.clone();
    }
    derived(merged, vec![cluster_path.to_owned(), group_path], "what the cluster has, and the group besides")
}

pub(super) fn merge_map<K: Ord + Clone, V: Clone + PartialEq>(
    layers: &[&BTreeMap<K, V>],
    group: &Option<Setting<BTreeMap<K, V>>>,
    from: Vec<String>,
    rule: &'static str,
) -> Setting<BTreeMap<K, V>> {
    let mut merged = BTreeMap::new();
    for layer in layers {
        merged.extend(layer.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    match group {
        Some(group) => {
            merged.extend(group.value.iter().map(|(key, value)| (key.clone(), value.clone())));
            if merged == group.value { group.clone() } else { derived(merged, from, rule) }
        }
        None => derived(merged, from, rule),
    }
}

pub(super) fn report_twice<T: Keyed>(list: &[T], what: &str, check: &Check<'_>) {
    let mut seen = BTreeSet::new();
    for item in list {
        if !seen.insert(item.key()) {
            check.report_item(item.place(), format!("{what} \"{}\" is there twice", item.key()), "remove one of them");
        }
    }
}

pub(super) fn items<T>(list: &Option<Setting<Vec<T>>>) -> &[T] {
    list.as_ref().map_or(&[], |list| list.value.as_slice())
}

pub(super) fn check_files(files: &Option<Setting<Vec<FileAsset>>>, check: &Check<'_>) {
    let files = items(files);
    report_twice(files, "the file", check);
    for file in files.iter().filter(|file| file.secret && file.mode.0 != 0o600) {
        check.report_item(
            file.place,
            format!("the secret file \"{}\" has the mode {:04o}", file.path, file.mode.0),
            "leave out the mode: secrets are 0600",
        );
    }
}

pub(super) fn check_hooks(hooks: &Option<Setting<Vec<Hook>>>, check: &Check<'_>) {
    let hooks = items(hooks);
    report_twice(hooks, "the hook", check);
    for hook in hooks {
        if hook.unit.is_some() == hook.container.is_some() {
            check.report_item(
                hook.place,
                format!("the hook \"{}\" needs either \"unit\" or \"container\"", hook.name),
                "a unit is the text of a systemd service; a container has an image and a command",
            );
        }
    }
}

pub(super) fn check_units(units: &Option<Setting<Vec<ExtraUnit>>>, check: &Check<'_>) {
    let units = items(units);
    report_twice(units, "the unit", check);
    for unit in units {
        if unit.content.is_none() && unit.drop_ins.is_empty() && unit.state.is_none() {
            check.report_item(
                unit.place,
                format!("the unit \"{}\" has neither \"content\" nor \"dropIns\" nor \"state\"", unit.name),
                "write one of them, or remove it",
            );
        }
        if unit.state == Some(UnitState::Masked) && (unit.content.is_some() || !unit.drop_ins.is_empty()) {
            check.report_item(
                unit.place,
                format!(
                    "the unit \"{}\" is masked, and has \"content\" or \"dropIns\" that nobody would read",
                    unit.name
                ),
                "remove them, or the state",
            );
        }
    }
}

/// Units of nodestrap's own, whatever their names are in this group.
const OWN_UNITS: &str = "nodestrap-";

/// Nobody but nodestrap says when the units are started without which there is no node.
pub(super) fn check_states(units: &[ExtraUnit], started: &BTreeSet<String>, check: &Check<'_>) {
    for unit in units {
        let Some(state) = unit.state.filter(|_| unit.content.is_none()) else { continue };
        let name = unit.name.as_str();
        if started.contains(name) || name.starts_with(OWN_UNITS) {
            let problem = match state {
                UnitState::Enabled => format!("nodestrap starts \"{name}\" itself"),
                UnitState::Disabled | UnitState::Masked => {
                    format!("\"{name}\" cannot be {state}: nodestrap starts it on each node of this group")
                }
            };
            check.report_item(unit.place, problem, "remove the state");
        }
    }
}

/// What lies on the node: no two at one path, none below another, and nothing where nodestrap writes itself.
pub(super) fn check_clashes(files: &[FileAsset], units: &[ExtraUnit], hooks: &[Hook], check: &Check<'_>) {
    let files = files.iter().map(|file| (file.path.to_string(), "file", file.place));
    let unit_files = units.iter().flat_map(|unit| {
        let path = format!("{UNIT_FOLDER}/{}", unit.name);
        let drop_ins = unit.drop_ins.keys().map(|name| format!("{path}.d/{name}.conf")).collect::<Vec<_>>();
        let is_there = unit.content.is_some() || unit.state == Some(UnitState::Masked);
        let own = is_there.then(|| path.clone());
        own.into_iter().chain(drop_ins).map(|path| (path, "unit", unit.place))
    });
    let hook_units =
        hooks.iter().map(|hook| (format!("{UNIT_FOLDER}/nodestrap-hook-{}.service", hook.name), "hook", hook.place));
    let mut known: BTreeMap<String, (&str, Place)> = BTreeMap::new();
    for (path, what, place) in files.chain(unit_files).chain(hook_units) {
        if let Some((problem, instead)) = ours_at(&path) {
            check.report_item(place, problem, instead);
        }
        match known.get(&path) {
            // Two of a kind have been reported by their names.
            Some((other, _)) if *other == what => {}
            Some((other, _)) => {
                check.report_item(
                    place,
                    format!("\"{path}\" is there twice: for a {other} and a {what}"),
                    "remove one",
                );
            }
            None => {
                known.insert(path, (what, place));
            }
        }
    }
    for (path, (_, place)) in &known {
        let mut folders = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
        if let Some(folder) = folders.find(|folder| known.contains_key(*folder)) {
            check.report_item(
                *place,
                format!("\"{folder}\" is a file, so \"{path}\" cannot lie below it"),
                "rename one of them",
            );
        }
    }
}

/// A program that nodestrap starts, and whether a file of the user's may be it.
pub(super) struct Program<'a> {
    pub(super) name: &'static str,
    pub(super) path: &'a Setting<AbsolutePath>,
    pub(super) may_be_a_file: bool,
}

/// A file in the place of a program is meant only if the spec names that place and the file can be run.
pub(super) fn check_programs(files: &[FileAsset], programs: &[Program<'_>], check: &Check<'_>) {
    for file in files {
        let path = file.path.as_str();
        for Program { name, path: Setting { value: program, origin }, may_be_a_file } in programs {
            let is_named = *may_be_a_file && matches!(origin, Origin::User(_)) && file.mode.0 & 0o111 != 0;
            let program = program.as_str();
            if path == program && !is_named {
                let advice = match may_be_a_file {
                    true => {
                        "choose another path; a program of your own has the mode \"0755\" and is named as \"binary\""
                    }
                    false => "choose another path",
                };
                check.report_item(file.place, format!("\"{path}\" is {name}, which this file would replace"), advice);
            } else if below(path, program) || below(program, path) {
                let message = format!("\"{path}\" cannot be a file: {name} is \"{program}\"");
                check.report_item(file.place, message, "choose another path");
            }
        }
    }
}

fn below(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether nodestrap writes or reads there, and where to say instead what is wanted.
fn ours_at(path: &str) -> Option<(String, &'static str)> {
    if let Some((_, instead)) = OWN_FILES.iter().find(|(own, _)| *own == path) {
        return Some((format!("nodestrap writes \"{path}\" itself"), instead));
    }
    if let Some((_, why)) = NO_PLACE.iter().find(|(folder, _)| path == *folder || below(path, folder)) {
        return Some((format!("no file can be at \"{path}\": {why}"), "choose another path"));
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    if name == BOOTSTRAP_UNIT && UNIT_FOLDERS.contains(&folder) {
        let problem = format!("\"{path}\" is the unit that runs nodestrap, which this would replace");
        return Some((problem, "add a drop-in for it with units"));
    }
    if name.starts_with('.') && name.ends_with(TEMPORARY) {
        let problem = format!("no file can be at \"{path}\": nodestrap has names like this while it writes a file");
        return Some((problem, "choose another path"));
    }
    let mut owned = OWN_FILES.iter().chain(NO_PLACE).map(|(own, _)| *own);
    let own = owned.find(|own| below(path, own) || below(own, path))?;
    let problem = match below(path, own) {
        true => format!("nodestrap writes the file \"{own}\", so nothing can lie below it"),
        false => format!("\"{path}\" is a folder, in which nodestrap writes files"),
    };
    Some((problem, "choose another path"))
}

const UNIT_FOLDER: &str = "/etc/systemd/system";
/// Where systemd looks for units, by all of their names.
const UNIT_FOLDERS: [&str; 4] = [UNIT_FOLDER, "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// How a file is called that is not whole yet; see `host::files`.
const TEMPORARY: &str = ".nodestrap-new";

/// Where nothing stays that is written, or nodestrap keeps what is its own.
const NO_PLACE: &[(&str, &str)] = &[
    ("/dev", "it is not kept on a disk"),
    ("/proc", "it is the kernel's"),
    ("/sys", "it is the kernel's"),
    ("/etc/nodestrap", "nodestrap's own settings lie there, and its bundle"),
    ("/run/nodestrap", "nodestrap keeps there what it knows of this boot"),
    ("/var/run/nodestrap", "nodestrap keeps there what it knows of this boot"),
    ("/var/lib/nodestrap", "nodestrap keeps its journal there"),
    ("/opt/nodestrap/bin", "nodestrap unpacks programs there"),
    ("/var/lib/nodestrap-saved", "a reset keeps there what somebody changed"),
    ("/var/lib/kubelet/kubeconfig", "the kubelet gets it when it joins"),
    ("/var/lib/kubelet/pki/kubelet-client-current.pem", "the kubelet gets it when it joins"),
    ("/run/cluster-api", "nodestrap says there how a bootstrap ended"),
    ("/var/run/cluster-api", "nodestrap says there how a bootstrap ended"),
    ("/var/cache/nodestrap-packages", "nodestrap downloads packages into it"),
    ("/opt/extensions/containerd", "nodestrap keeps images of system extensions there"),
    ("/opt/extensions/kubernetes", "nodestrap keeps images of system extensions there"),
    ("/etc/extensions/containerd.raw", "nodestrap switches a system extension by it"),
    ("/etc/extensions/containerd-flatcar.raw", "nodestrap switches a system extension by it"),
    ("/etc/extensions/kubernetes.raw", "nodestrap switches a system extension by it"),
    ("/etc/dnf/plugins/versionlock.list", "packages are held by it"),
];

/// What nodestrap writes, and where to say it instead.
const OWN_FILES: &[(&str, &str)] = &[
    ("/etc/kubernetes/kubelet.env", "it is the gate, which is written last; write kubelet.flags"),
    ("/etc/kubernetes/kubelet.yaml", "write kubelet.config"),
    ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", "write join of the Cluster"),
    ("/etc/kubernetes/pki/ca.crt", "write join.certificateAuthority of the Cluster"),
    ("/etc/containerd/config.toml", "write containerRuntime.config"),
    ("/etc/systemd/system/kubelet.service", "add a drop-in for it with units"),
    ("/etc/nodestrap/bundle.json", "it is the bundle itself"),
    ("/etc/nodestrap/network.json", "write networking of the Cluster"),
    ("/etc/cni/net.d/10-nodestrap.conflist", "write networking of the Cluster"),
    ("/etc/nodestrap/webhook.json", "write report of the Cluster"),
    ("/etc/sysctl.d/90-nodestrap.conf", "write sysctls"),
    ("/etc/sysctl.d/91-nodestrap-user.conf", "write sysctls"),
    ("/etc/modules-load.d/nodestrap.conf", "write kernelModules"),
    ("/etc/modules-load.d/nodestrap-user.conf", "write kernelModules"),
    (
        "/etc/systemd/system/nodestrap-clean-runtime-data.service",
        "it empties what another runtime left, and has no settings",
    ),
    ("/etc/systemd/system/sysinit.target.d/10-nodestrap-clean-runtime-data.conf", "it starts a unit of nodestrap's"),
    ("/etc/systemd/system/nodestrap-gate.service", "it checks what the kubelet reads, and has no settings"),
    ("/etc/systemd/system/nodestrap-kernel.service", "write sysctls and kernelModules"),
    ("/etc/systemd/system/nodestrap-network.service", "write networking of the Cluster"),
    ("/etc/systemd/system/nodestrap-spend-credentials.service", "write join of the Cluster"),
    ("/etc/systemd/system/nodestrap-trust.service", "write trust of the Cluster"),
    ("/etc/kubernetes/kube-proxy.yaml", "write kubeProxy.config of the Cluster"),
    ("/etc/kubernetes/manifests/kube-proxy.yaml", "write kubeProxy of the Cluster"),
    ("/etc/eksctl/ca.crt", "write join.certificateAuthority of the Cluster"),
    ("/etc/eksctl/kubeconfig.yaml", "write join of the Cluster"),
    ("/etc/eksctl/kubelet.env", "write labels, taints and maxPods"),
    ("/etc/eksctl/kubelet.local.env", "it is the gate, which is written last"),
    ("/etc/eksctl/kubelet.yaml", "write kubelet.config"),
    ("/etc/eksctl/max_pods.map", "write maxPods"),
    ("/etc/eksctl/metadata.env", "write region and eksctl.ecrAccount of the Cluster"),
    ("/etc/kubernetes/installer/kubelet.env", "write tectonic.kubeletImage of the Cluster"),
    ("/etc/kubernetes/installer/runtime-mappings.yaml", "write tectonic.runtimeMappings of the Cluster"),
    ("/etc/kubernetes/kubeconfig", "write join of the Cluster"),
    ("/etc/tmpfiles.d/nodestrap-hooks.conf", "it makes the folder in which hooks leave what they say"),
];
