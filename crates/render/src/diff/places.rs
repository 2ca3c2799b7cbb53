//! Who reads a file of a node. Where the kubelet's flags, its configuration and its static pods lie is up to the layout
//! and to the user, so it is read from the bundle.

use std::collections::{BTreeMap, BTreeSet};

use super::consequence::{Reason, Subject, judge, subject_of_folder};
use super::values::{self, Values};
use super::{FileChange, ValueChange};
use crate::bundle::{Bundle, File};
use crate::kubelet::{ARGUMENTS_VARIABLE, BOOTSTRAP_UNIT};
use crate::layout::eksctl::{EksctlSnap, KUBELET_ENV_PATH, METADATA_PATH, SNAP_PATH};
use crate::runtime::CONTAINERD_UNIT;
use crate::system::{TIME_UNITS, TRUST_UNIT};

const UNIT_FOLDER: &str = "/etc/systemd/system/";
/// Where a kubelet looks that is told nothing else.
const MANIFESTS_FOLDER: &str = "/etc/kubernetes/manifests";

pub(super) struct Places<'a> {
    bundle: &'a Bundle,
    /// The kubelet's, with their dashes.
    flags: BTreeMap<String, String>,
    /// Files and folders that the kubelet's flags and configuration name.
    read_by_kubelet: Vec<String>,
    manifests_folder: String,
    pods: Vec<StaticPod<'a>>,
}

struct StaticPod<'a> {
    name: &'a str,
    manifest: &'a File,
    /// Files and folders of the node that it sees.
    mounts: Vec<String>,
}

impl<'a> Places<'a> {
    pub(super) fn of(bundle: &'a Bundle) -> Self {
        let flags = kubelet_flags(bundle);
        let file = |path: &str| bundle.files.iter().find(|file| file.path == path);
        let config = flags.get("--config").and_then(|path| file(path));
        let config = config.and_then(|file| values::parse(&file.path, &file.content)).unwrap_or_default();
        let configured = config.get("staticPodPath").map(|leaf| leaf.text.as_str());
        let flagged = flags.get("--pod-manifest-path").map(String::as_str);
        let folder = configured.or(flagged).unwrap_or(MANIFESTS_FOLDER);
        let manifests_folder = format!("{}/", folder.trim_end_matches('/'));
        let paths = flags.values().chain(config.values().map(|leaf| &leaf.text));
        let read_by_kubelet = paths.filter(|text| text.len() > 1 && text.starts_with('/')).cloned().collect();
        let pods = bundle.files.iter().filter_map(|file| static_pod(file, &manifests_folder)).collect();
        Self { bundle, flags, read_by_kubelet, manifests_folder, pods }
    }

    fn flags_with(&self, variable: &str) -> impl Iterator<Item = &str> {
        let reference = format!("${{{variable}}}");
        self.flags.iter().filter(move |(_, value)| value.contains(&reference)).map(|(flag, _)| flag.as_str())
    }

    fn has_manifest(&self, pod: &StaticPod<'_>) -> bool {
        self.pods.iter().any(|own| own.manifest == pod.manifest)
    }
}

/// From the gate, the kubelet's unit and its drop-ins, or the settings of its snap.
fn kubelet_flags(bundle: &Bundle) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    let mut add = |word: &str| {
        let (flag, value) = word.split_once('=').unwrap_or((word, ""));
        flags.insert(flag.to_owned(), value.to_owned());
    };
    let in_gate = bundle.gate.environment.get(ARGUMENTS_VARIABLE);
    in_gate.into_iter().flat_map(|line| line.split_whitespace()).for_each(&mut add);
    for file in &bundle.files {
        let Some(text) = file.content.text() else { continue };
        if unit_of(&file.path) == Some(bundle.join.kubelet_unit.as_str()) {
            let commands = text.lines().filter_map(|line| line.trim().strip_prefix("ExecStart="));
            let words = commands.flat_map(str::split_whitespace);
            words.filter(|word| word.starts_with("--")).for_each(&mut add);
        }
        if file.path == SNAP_PATH
            && let Ok(EksctlSnap { settings, .. }) = serde_json::from_str(text)
        {
            settings.iter().for_each(|(name, value)| add(&format!("--{name}={value}")));
        }
    }
    flags
}

fn static_pod<'a>(file: &'a File, folder: &str) -> Option<StaticPod<'a>> {
    let name = file.path.strip_prefix(folder)?.strip_suffix(".yaml")?;
    let manifest: Values = values::parse(&file.path, &file.content)?;
    let mounts = manifest.iter().filter(|(path, _)| path.ends_with(".hostPath.path"));
    Some(StaticPod { name, manifest: file, mounts: mounts.map(|(_, leaf)| leaf.text.clone()).collect() })
}

/// The unit whose file or drop-in this is.
fn unit_of(path: &str) -> Option<&str> {
    Some(path.strip_prefix(UNIT_FOLDER)?.split('/').next().unwrap_or_default().trim_end_matches(".d"))
}

fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || place.ends_with('/'))
}

/// What a change of a file takes, by each of those who read it.
pub(super) fn judge_file(file: &FileChange, old: &Places<'_>, new: &Places<'_>) -> Vec<Reason> {
    let path = file.path.as_str();
    let mut reasons: Vec<Reason> = subjects(path, old, new)
        .into_iter()
        .flat_map(|subject| match file.values.is_empty() {
            true => vec![judge(subject, "", path)],
            false => file.values.iter().flat_map(|change| judge_value(subject, change, path, old, new)).collect(),
        })
        .collect();
    reasons.extend(judge_for_pods(path, old, new));
    if reasons.is_empty() {
        reasons.push(judge(Subject::OtherFile, "", path));
    }
    reasons
}

/// Besides static pods.
fn subjects(path: &str, old: &Places<'_>, new: &Places<'_>) -> Vec<Subject> {
    let either = |test: &dyn Fn(&Places<'_>) -> bool| test(old) || test(new);
    let configures = |places: &Places<'_>| {
        let named = ["--config", "--config-dir"].into_iter().filter_map(|flag| places.flags.get(flag));
        named.into_iter().any(|place| is_within(path, place))
    };
    if either(&configures) {
        return vec![Subject::KubeletConfig];
    }
    if either(&|places| places.bundle.join.bootstrap_kubeconfig == path) {
        let is_kept = either(&|places| places.bundle.join.kubeconfig == path);
        return vec![if is_kept { Subject::OwnKubeconfig } else { Subject::BootstrapCredentials }];
    }
    if let Some(unit) = unit_of(path) {
        let is_hook = |places: &Places<'_>| places.bundle.hooks.iter().any(|hook| hook.unit == unit);
        return vec![match unit {
            _ if either(&|places| places.bundle.join.kubelet_unit == unit) => Subject::KubeletUnit,
            CONTAINERD_UNIT | "crio.service" | "docker.service" => Subject::RuntimeUnit,
            TRUST_UNIT => Subject::Trust,
            BOOTSTRAP_UNIT => Subject::BootstrapUnit,
            _ if either(&is_hook) => Subject::HookUnit,
            _ => Subject::OtherUnit,
        }];
    }
    if either(&|places| path.starts_with(&places.manifests_folder)) {
        return vec![if path.ends_with("/etcd.yaml") { Subject::Etcd } else { Subject::StaticPod }];
    }
    if [KUBELET_ENV_PATH, METADATA_PATH].contains(&path) {
        return vec![Subject::KubeletEnvironment];
    }
    if path == SNAP_PATH {
        return vec![Subject::KubeletSnap];
    }
    let by_kubelet = either(&|places| places.read_by_kubelet.iter().any(|place| is_within(path, place)));
    let by_kubelet = by_kubelet.then_some(Subject::KubernetesFile);
    // apply restarts the units of the new bundle, and not those that it lacks.
    let restarts = |names: &[&str]| new.bundle.units.iter().any(|unit| names.contains(&unit.name.as_str()));
    match subject_of_folder(path) {
        Some(Subject::Trust) if !restarts(&[TRUST_UNIT]) => vec![Subject::TrustWithdrawn],
        Some(Subject::Time) if !restarts(&TIME_UNITS) => vec![Subject::TimeWithdrawn],
        known => known.or(by_kubelet).into_iter().collect(),
    }
}

fn judge_value(subject: Subject, change: &ValueChange, place: &str, old: &Places<'_>, new: &Places<'_>) -> Vec<Reason> {
    let value = change.path.as_str();
    let flags: BTreeSet<String> = match subject {
        Subject::KubeletUnit if value.starts_with("Service.ExecStart ") || value.starts_with("Service.ExecStart[") => {
            value.rsplit_once(' ').map(|(_, flag)| flag.to_owned()).into_iter().collect()
        }
        Subject::KubeletSnap => value.strip_prefix("settings.").map(|name| format!("--{name}")).into_iter().collect(),
        Subject::KubeletEnvironment => old.flags_with(value).chain(new.flags_with(value)).map(str::to_owned).collect(),
        _ => return vec![judge(subject, value, place)],
    };
    match flags.is_empty() {
        true => vec![judge(Subject::KubeletUnit, "", place)],
        false => flags.iter().map(|flag| judge(Subject::Flag, flag, place)).collect(),
    }
}

/// The kubelet starts a static pod anew when its manifest changes, and never because a file does that the pod reads.
fn judge_for_pods(path: &str, old: &Places<'_>, new: &Places<'_>) -> Option<Reason> {
    let readers = new.pods.iter().filter(|pod| pod.mounts.iter().any(|mount| is_within(path, mount)));
    let (same, anew): (Vec<_>, Vec<_>) = readers.partition(|pod| old.has_manifest(pod));
    if same.is_empty() {
        return (!anew.is_empty()).then(|| judge(Subject::FileOfNewPods, "", path));
    }
    let names: Vec<&str> = same.iter().map(|pod| pod.name).collect();
    let why = format!(
        "read at the start of {}; the kubelet starts a static pod anew only with another manifest",
        names.join(", ")
    );
    Some(Reason { why: why.into(), ..judge(Subject::FileOfPods, "", path) })
}
