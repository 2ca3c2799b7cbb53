//! Why a change of a file takes what it takes: by those who read it, and by the values that they find in it.
//!
//! Who reads a file is said by the file itself. Which flags the kubelet gets, and which of its values cannot change on a
//! living node, is read from the bundle, because where they lie is up to the layout and to the user.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Reason, Subject, ValueChange, judge};
use crate::bundle::{
    ARGUMENTS_VARIABLE, BOOTSTRAP_UNIT, Bundle, File, KERNEL_UNIT, MAX_PODS_MAP_PATH, Readers, Start, TIME_UNITS,
    TRUST_UNIT, UNIT_FOLDER,
};
use crate::names::UnitName;
use crate::values;
use crate::vocabulary::GateFact;

/// Where a kubelet looks that is told nothing else.
const MANIFESTS_FOLDER: &str = "/etc/kubernetes/manifests";
/// Where container runtimes look for the networks of pods, all the time.
const NETWORKS_FOLDER: &str = "/etc/cni/";
/// Ours, and those of the system, which run when a machine boots and which nobody starts anew.
const KERNEL_UNITS: [&str; 3] = [KERNEL_UNIT, "systemd-modules-load.service", "systemd-sysctl.service"];

pub(super) struct Places<'a> {
    bundle: &'a Bundle,
    /// The kubelet's, with their dashes.
    flags: BTreeMap<String, String>,
    manifests_folder: String,
}

impl<'a> Places<'a> {
    pub(super) fn of(bundle: &'a Bundle) -> Self {
        let flags = kubelet_flags(bundle);
        let config = flags.get("--config").and_then(|path| bundle.file(path));
        let config = config.and_then(|file| values::parse(&file.path, &file.content)).unwrap_or_default();
        let configured = config.get("staticPodPath").map(|leaf| leaf.text.as_str());
        let flagged = flags.get("--pod-manifest-path").map(String::as_str);
        let folder = configured.or(flagged).unwrap_or(MANIFESTS_FOLDER);
        Self { bundle, manifests_folder: format!("{}/", folder.trim_end_matches('/')), flags }
    }

    fn flags_with(&self, variable: &str) -> impl Iterator<Item = &str> {
        let reference = format!("${{{variable}}}");
        self.flags.iter().filter(move |(_, value)| value.contains(&reference)).map(|(flag, _)| flag.as_str())
    }

    fn manifest(&self, pod: &str) -> Option<&File> {
        self.bundle.file(&format!("{}{pod}.yaml", self.manifests_folder))
    }

    /// Whether `apply` starts it, and starts it anew when what it reads has changed.
    fn starts(&self, unit: &str) -> bool {
        self.bundle.units.iter().any(|own| own.name == *unit && own.start != Start::ByOthers)
    }

    fn looks_max_pods_up(&self) -> bool {
        self.bundle.gate.facts.contains(&GateFact::MaxPods) && self.bundle.gate.max_pods.is_none()
    }

    fn readers(&self, path: &str) -> Readers {
        self.bundle.file(path).map(|file| file.read_by.clone()).unwrap_or_default()
    }
}

/// Where the kubelet looks for static pods, with a slash at the end.
pub(crate) fn static_pods_folder(bundle: &Bundle) -> String {
    Places::of(bundle).manifests_folder
}

/// From the gate, and from the kubelet's unit and its drop-ins.
fn kubelet_flags(bundle: &Bundle) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    let mut add = |word: &str| {
        let (flag, value) = word.split_once('=').unwrap_or((word, ""));
        flags.insert(flag.to_owned(), value.to_owned());
    };
    let in_gate = bundle.gate.environment.get(ARGUMENTS_VARIABLE);
    in_gate.into_iter().flat_map(|line| line.split_whitespace()).for_each(&mut add);
    let settings = bundle.snap.iter().flat_map(|snap| &snap.settings);
    settings.for_each(|(name, value)| add(&format!("--{name}={value}")));
    for file in bundle.files.iter().filter(|file| unit_of(&file.path) == Some(bundle.join.kubelet_unit.as_str())) {
        let lines = file.content.text().unwrap_or_default().lines();
        let commands = lines.filter_map(|line| line.trim().strip_prefix("ExecStart="));
        let words = commands.flat_map(str::split_whitespace);
        words.filter(|word| word.starts_with("--")).for_each(&mut add);
    }
    flags
}

/// The unit whose file or drop-in this is.
fn unit_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(UNIT_FOLDER)?.strip_prefix('/')?;
    Some(rest.split('/').next().unwrap_or_default().trim_end_matches(".d"))
}

fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || place.ends_with('/'))
}

/// What a change of a file takes, by each of those who read it.
pub(super) fn judge_file(file: &Change, old: &Places<'_>, new: &Places<'_>) -> Vec<Reason> {
    let path = file.subject.as_str();
    let (before, after) = (old.readers(path).units, new.readers(path).units);
    // It counts for those only who read it now, or do so no more.
    if is_same_file(old.bundle.file(path), new.bundle.file(path)) {
        return vec![judge(subject_of_readers(path, &(&before ^ &after), old, new), "", path)];
    }
    let subject = subject(path, old, new);
    let subject = subject.unwrap_or_else(|| subject_of_readers(path, &(&before | &after), old, new));
    let for_pods = judge_for_pods(path, old, new);
    // Who is known to read it says more than that nobody else does.
    let subjects = (subject != Subject::OtherFile || for_pods.is_none()).then_some(subject);
    let mut reasons: Vec<Reason> = subjects
        .into_iter()
        .flat_map(|subject| match file.values.is_empty() {
            true => vec![judge(subject, "", path)],
            false => file.values.iter().flat_map(|change| judge_value(subject, change, path, old, new)).collect(),
        })
        .collect();
    reasons.extend(for_pods);
    reasons
}

fn is_same_file(old: Option<&File>, new: Option<&File>) -> bool {
    let bytes = |file: Option<&File>| file.map(|file| (file.mode, file.content.clone()));
    bytes(old) == bytes(new)
}

/// A flag of the kubelet, by its name without dashes.
pub(super) fn judge_flag(name: &str) -> Reason {
    let flag = format!("--{name}");
    judge(Subject::Flag, &flag, &flag)
}

/// Where it lies tells what it is for.
fn subject(path: &str, old: &Places<'_>, new: &Places<'_>) -> Option<Subject> {
    let either = |test: &dyn Fn(&Places<'_>) -> bool| test(old) || test(new);
    let configures = |places: &Places<'_>| {
        let named = ["--config", "--config-dir"].into_iter().filter_map(|flag| places.flags.get(flag));
        named.into_iter().any(|place| is_within(path, place))
    };
    if either(&configures) {
        return Some(Subject::KubeletConfig);
    }
    if either(&|places| places.bundle.join.bootstrap_kubeconfig == *path) {
        let is_kept = either(&|places| places.bundle.join.kubeconfig == *path);
        return Some(if is_kept { Subject::OwnKubeconfig } else { Subject::BootstrapCredentials });
    }
    if let Some(unit) = unit_of(path) {
        let is_hook = |places: &Places<'_>| places.bundle.hooks.iter().any(|hook| hook.unit == *unit);
        return Some(match unit {
            _ if either(&|places| places.bundle.join.kubelet_unit == *unit) => Subject::KubeletUnit,
            _ if either(&|places| places.bundle.runtime.unit == *unit) => Subject::RuntimeUnit,
            BOOTSTRAP_UNIT => Subject::BootstrapUnit,
            _ if either(&is_hook) => Subject::HookUnit,
            _ if new.bundle.file(path).is_some() && !new.starts(unit) => Subject::UnitOfOthers,
            _ => Subject::OtherUnit,
        });
    }
    if either(&|places| path.starts_with(&places.manifests_folder)) {
        return Some(if path.ends_with("/etcd.yaml") { Subject::Etcd } else { Subject::StaticPod });
    }
    None
}

/// Who reads it, besides static pods.
fn subject_of_readers(path: &str, readers: &BTreeSet<UnitName>, old: &Places<'_>, new: &Places<'_>) -> Subject {
    let either = |test: &dyn Fn(&Places<'_>) -> bool| test(old) || test(new);
    let reads = |name: &str| readers.contains(name);
    let by_kubelet = either(&|places| readers.contains(&places.bundle.join.kubelet_unit));
    match () {
        () if reads(TRUST_UNIT) && !new.starts(TRUST_UNIT) => Subject::TrustWithdrawn,
        () if reads(TRUST_UNIT) => Subject::Trust,
        () if KERNEL_UNITS.iter().any(|unit| reads(unit)) => Subject::Kernel,
        () if TIME_UNITS.iter().any(|unit| reads(unit) && !new.starts(unit) && old.starts(unit)) => {
            Subject::TimeWithdrawn
        }
        () if TIME_UNITS.iter().any(|unit| reads(unit) && !new.starts(unit)) => Subject::TimeOfOthers,
        () if TIME_UNITS.iter().any(|unit| reads(unit)) => Subject::Time,
        () if path.starts_with(NETWORKS_FOLDER) => Subject::PodNetwork,
        () if path == MAX_PODS_MAP_PATH && new.looks_max_pods_up() => Subject::Gate,
        () if either(&|places| readers.contains(&places.bundle.runtime.unit)) => Subject::RuntimeConfig,
        () if by_kubelet && path.ends_with(".env") => Subject::KubeletEnvironment,
        () if by_kubelet => Subject::KubernetesFile,
        () if readers.iter().any(|unit| new.starts(unit)) => Subject::FileOfUnits,
        () => Subject::OtherFile,
    }
}

fn judge_value(subject: Subject, change: &ValueChange, place: &str, old: &Places<'_>, new: &Places<'_>) -> Vec<Reason> {
    let value = change.path.as_str();
    let flags: BTreeSet<String> = match subject {
        Subject::KubeletUnit if value.starts_with("Service.ExecStart ") || value.starts_with("Service.ExecStart[") => {
            value.rsplit_once(' ').map(|(_, flag)| flag.to_owned()).into_iter().collect()
        }
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
    let readers: BTreeSet<String> = [old, new].iter().flat_map(|places| places.readers(path).pods).collect();
    let readers = readers.iter().filter(|pod| new.manifest(pod).is_some());
    let (same, anew): (Vec<_>, Vec<_>) = readers.partition(|pod| old.manifest(pod) == new.manifest(pod));
    if same.is_empty() {
        return (!anew.is_empty()).then(|| judge(Subject::FileOfNewPods, "", path));
    }
    let names: Vec<&str> = same.iter().map(|pod| pod.as_str()).collect();
    let why = format!(
        "read at the start of {}; the kubelet starts a static pod anew only with another manifest",
        names.join(", ")
    );
    Some(Reason { why: why.into(), ..judge(Subject::FileOfPods, "", path) })
}
