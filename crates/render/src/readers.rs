//! Who reads a file when it starts. What nodestrap writes is said where it is written; here is what only the whole bundle
//! tells: what the kubelet's flags and configuration name, what static pods mount, and what users add.

use std::collections::BTreeSet;

use bundle::{Bundle, File, TIME_UNITS, TRUST_UNIT, UNIT_FOLDER, UnitName};
use spec::{CompleteGroup, ConfigNode, ConfigTree};

use crate::error::RenderError;
use crate::kubelet::leaf_text;
use crate::part::name;
use crate::static_pods::MANIFESTS_FOLDER;

/// Folders and files that some program of the system reads, for files that users put there.
const FOLDERS: [(&str, &str); 10] = [
    ("/usr/local/share/ca-certificates/", TRUST_UNIT),
    ("/etc/ssl/certs/", TRUST_UNIT),
    ("/etc/pki/ca-trust/", TRUST_UNIT),
    ("/etc/chrony.conf", TIME_UNITS[0]),
    ("/etc/systemd/timesyncd.conf", TIME_UNITS[1]),
    ("/etc/sysctl.d/", "systemd-sysctl.service"),
    ("/etc/modules-load.d/", "systemd-modules-load.service"),
    ("/etc/modprobe.d/", "systemd-modules-load.service"),
    ("/etc/kernel/", "systemd-modules-load.service"),
    ("/etc/default/grub", "systemd-modules-load.service"),
];

/// Folders of container runtimes; what containerd reads for each pull is not among them.
const RUNTIME_FOLDERS: [&str; 4] = ["/etc/containerd/", "/etc/containers/", "/etc/crio/", "/etc/docker/"];
const READ_FOR_EACH_PULL: &str = "/etc/containerd/certs.d/";

/// Of a file that a user adds: what lies there is read by, and all units that the user adds, which may read anything.
pub(crate) fn of_asset(
    path: &str,
    runtime: &UnitName,
    own_units: &[UnitName],
) -> Result<BTreeSet<UnitName>, RenderError> {
    let mut units: BTreeSet<UnitName> = own_units.iter().cloned().collect();
    for (_, unit) in FOLDERS.iter().filter(|(folder, _)| path.starts_with(folder)) {
        units.insert(name(*unit)?);
    }
    // What the system trusts is read by a runtime, too.
    let is_trusted = units.contains(TRUST_UNIT);
    let is_of_runtime = RUNTIME_FOLDERS.iter().any(|folder| path.starts_with(folder));
    if is_trusted || is_of_runtime && !path.starts_with(READ_FOR_EACH_PULL) {
        units.insert(runtime.clone());
    }
    units.extend(unit_of(path));
    Ok(units)
}

/// The unit whose file or drop-in lies there.
fn unit_of(path: &str) -> Option<UnitName> {
    let first = path.strip_prefix(UNIT_FOLDER)?.strip_prefix('/')?.split('/').next()?;
    UnitName::new(first.strip_suffix(".d").unwrap_or(first)).ok()
}

/// What the kubelet and its static pods read of this bundle.
pub(crate) fn assign(bundle: &mut Bundle, group: &CompleteGroup) {
    let flagged = group.kubelet.flags.get("pod-manifest-path").map(|setting| setting.value.as_str());
    let manifests = leaf_text(&group.kubelet.config, &["staticPodPath"]).or(flagged).unwrap_or(MANIFESTS_FOLDER);
    let manifests = format!("{}/", manifests.trim_end_matches('/'));
    let mut named: Vec<String> = group.kubelet.flags.values().map(|setting| setting.value.clone()).collect();
    texts(&group.kubelet.config, &mut named);
    named.retain(|text| text.len() > 1 && text.starts_with('/'));
    let pods: Vec<(String, Vec<String>)> =
        bundle.files.iter().filter_map(|file| static_pod(file, &manifests)).collect();
    let join = bundle.join.clone();
    for file in &mut bundle.files {
        let mounting = pods.iter().filter(|(_, mounts)| mounts.iter().any(|mount| file.path.is_within(mount)));
        file.read_by.pods.extend(mounting.map(|(pod, _)| pod.clone()));
        // The kubelet watches its manifests, and reads what it joins with only until it has.
        let is_watched = file.path.is_within(&manifests);
        let is_for_joining = file.path == join.bootstrap_kubeconfig && join.bootstrap_kubeconfig != join.kubeconfig;
        if named.iter().any(|place| file.path.is_within(place)) && !is_watched && !is_for_joining {
            file.read_by.units.insert(join.kubelet_unit.clone());
        }
    }
}

fn texts(tree: &ConfigTree, found: &mut Vec<String>) {
    for (_, node) in tree {
        match node {
            ConfigNode::Leaf(setting) => found.extend(setting.value.as_str().map(str::to_owned)),
            ConfigNode::Branch(tree) => texts(tree, found),
        }
    }
}

/// Its name, and the files and folders of the node that it sees.
fn static_pod(file: &File, folder: &str) -> Option<(String, Vec<String>)> {
    let pod = file.path.strip_prefix(folder)?.strip_suffix(".yaml")?;
    Some((pod.to_owned(), bundle::host_paths(&file.content)))
}
