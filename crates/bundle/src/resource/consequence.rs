//! What a change takes: one table, first match wins.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// What a change takes to have its effect, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Consequence {
    /// It has its effect once it is written.
    None,
    /// Of units other than those of the kubelet and the container runtime.
    RestartUnits,
    RestartKubelet,
    RestartRuntime,
    /// Of those that read a file which changed, one by one.
    RestartStaticPods,
    Reboot,
    /// The machine has to be replaced, or drained and joined anew.
    NewMachine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    pub consequence: Consequence,
    /// A file with the value in it, a flag, a field or a unit.
    pub subject: String,
    pub why: Cow<'static, str>,
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Bundle,
    /// A program that the image need not bring any more.
    NotRequired,
    /// A variable of the gate other than the kubelet's flags.
    Gate,
    /// A flag of the kubelet, with its dashes.
    Flag,
    /// When a unit starts, by its name.
    Unit,
    /// One that shall not run.
    IdleUnit,
    /// Which unit starts after which.
    UnitOrder,
    /// Beside the bundle: the machine, and what else its user data carries.
    Machine,
    KubeletConfig,
    /// Variables that the kubelet's flags refer to.
    KubeletEnvironment,
    KubeletUnit,
    BootstrapCredentials,
    /// What a kubelet shows that never gets a certificate.
    OwnKubeconfig,
    /// Named by the kubelet's flags or its configuration.
    KubernetesFile,
    StaticPod,
    Etcd,
    /// Read by static pods whose manifests stay the same.
    FileOfPods,
    /// Read by static pods, all of which start anew.
    FileOfNewPods,
    RuntimeConfig,
    RuntimeUnit,
    /// When the unit of the container runtime starts.
    RuntimeStart,
    Trust,
    /// With it goes the unit that would tell the system.
    TrustWithdrawn,
    Time,
    /// With it goes the time client from the bundle, though not from the machine.
    TimeWithdrawn,
    /// For a time client that no bundle starts.
    TimeOfOthers,
    Kernel,
    PodNetwork,
    BootstrapUnit,
    HookUnit,
    /// Programs that run for a while, of the container runtime.
    TreeOfRuntime,
    TreeOfKubelet,
    /// Programs that nothing keeps running.
    TreeOfNobody,
    /// The same programs by another way.
    TreeFromElsewhere,
    /// Where packages come from; which they are does not change by it.
    PackagesFromElsewhere,
    OtherUnit,
    /// Neither started nor enabled by `apply`.
    UnitOfOthers,
    /// Read by units of the bundle other than those above.
    FileOfUnits,
    OtherFile,
}

/// Path of a value, exactly or as the beginning of a longer one; with `*` in front, its end; empty: any.
type Pattern = &'static str;

use Consequence::{NewMachine, None, Reboot, RestartKubelet, RestartRuntime, RestartStaticPods, RestartUnits};

#[rustfmt::skip]
const RULES: &[(Subject, Pattern, Consequence, &str)] = &[
    (Subject::Bundle, "cluster", NewMachine, "a node cannot move from one cluster to another"),
    (Subject::Bundle, "group", NewMachine, "a node stays in the group that it was started for"),
    (Subject::Bundle, "join.nodeName", NewMachine, "a node keeps the name under which it joined"),
    (Subject::Bundle, "join.apiServer", NewMachine, "the kubelet keeps the address that it got when it joined"),
    (Subject::Bundle, "join.certificateAuthority", NewMachine, "the kubelet keeps the authority that it got when it joined"),
    (Subject::Bundle, "join.kubeconfig", NewMachine, "the kubelet would look for its credentials elsewhere and join anew"),
    (Subject::Bundle, "join.clientCertificate", NewMachine, "the kubelet would look for its certificate elsewhere and join anew"),
    (Subject::Bundle, "join.bootstrapKubeconfig", None, "only a machine that has not joined reads it"),
    (Subject::Bundle, "kubernetesVersion", NewMachine, "the image brings the kubelet"),
    (Subject::Bundle, "requiredPrograms", NewMachine, "the image brings these programs"),
    (Subject::Bundle, "gate.path", NewMachine, "the bootstrap unit looks for the gate where the image says"),
    (Subject::Bundle, "node", NewMachine, "a machine is what its image and its provider make it"),
    (Subject::Bundle, "runtime", NewMachine, "the image brings the container runtime"),
    (Subject::Bundle, "webhook", None, "it is read when a run ends"),
    (Subject::Bundle, "gate.facts", RestartKubelet, "the kubelet reads the gate when it starts"),
    (Subject::Bundle, "follow.addon", Reboot, "torcx applies addons when the machine boots"),
    (Subject::Bundle, "follow.osUpdate", None, "only a node that is not complete yet asks for an update"),
    (Subject::Bundle, "", RestartKubelet, "the kubelet is set up by it"),
    (Subject::NotRequired, "", None, "a program more than needed does no harm"),
    (Subject::Machine, "machines.min", None, "only the provider's group changes"),
    (Subject::Machine, "machines.max", None, "only the provider's group changes"),
    (Subject::Machine, "machines.desired", None, "only the provider's group changes"),
    (Subject::Machine, "machines", NewMachine, "the provider starts machines with it"),
    (Subject::Machine, "delivery.nodestrap.urls", None, "its digest says which nodestrap it is, wherever it comes from"),
    (Subject::Machine, "", NewMachine, "user data has its effect on the first boot only"),

    (Subject::Flag, "--hostname-override", NewMachine, "a node keeps the name under which it joined"),
    (Subject::Flag, "--node-labels", NewMachine, "the kubelet sets labels only when it registers"),
    (Subject::Flag, "--register-with-taints", NewMachine, "the kubelet sets taints only when it registers"),
    (Subject::Flag, "--register-node", NewMachine, "the kubelet registers once"),
    (Subject::Flag, "--provider-id", NewMachine, "the provider's id of a node cannot change"),
    (Subject::Flag, "--cloud-provider", NewMachine, "a node is initialised by its provider once, when it registers"),
    (Subject::Flag, "--root-dir", NewMachine, "the kubelet would lose sight of the pods that run"),
    (Subject::Flag, "--kubeconfig", NewMachine, "the kubelet would look for its credentials elsewhere and join anew"),
    (Subject::Flag, "--cert-dir", NewMachine, "the kubelet would look for its certificate elsewhere and join anew"),
    (Subject::Flag, "--cgroup-driver", NewMachine, "running pods cannot move to other control groups"),
    (Subject::Flag, "--cgroup-root", NewMachine, "running pods cannot move to other control groups"),
    (Subject::Flag, "--pod-cidr", NewMachine, "running pods keep their addresses"),
    (Subject::Flag, "--cpu-manager-policy", NewMachine, "the kubelet refuses to start with the state of another policy"),
    (Subject::Flag, "--memory-manager-policy", NewMachine, "the kubelet refuses to start with the state of another policy"),
    (Subject::Flag, "--container-runtime", NewMachine, "the kubelet would lose sight of the pods that run"),
    (Subject::Flag, "--container-runtime-endpoint", NewMachine, "the kubelet would lose sight of the pods that run"),
    (Subject::Flag, "", RestartKubelet, "the kubelet reads its flags when it starts"),
    (Subject::Gate, "NODESTRAP_CLUSTER", NewMachine, "a node cannot move from one cluster to another"),
    (Subject::Gate, "NODESTRAP_GROUP", NewMachine, "a node stays in the group that it was started for"),
    (Subject::Gate, "", RestartKubelet, "the kubelet reads the gate when it starts"),

    (Subject::KubeletConfig, "cgroupDriver", NewMachine, "running pods cannot move to other control groups"),
    (Subject::KubeletConfig, "cgroupRoot", NewMachine, "running pods cannot move to other control groups"),
    (Subject::KubeletConfig, "podCIDR", NewMachine, "running pods keep their addresses"),
    (Subject::KubeletConfig, "providerID", NewMachine, "the provider's id of a node cannot change"),
    (Subject::KubeletConfig, "registerNode", NewMachine, "the kubelet registers once"),
    (Subject::KubeletConfig, "registerWithTaints", NewMachine, "the kubelet sets taints only when it registers"),
    (Subject::KubeletConfig, "containerRuntimeEndpoint", NewMachine, "the kubelet would lose sight of the pods that run"),
    (Subject::KubeletConfig, "cpuManagerPolicy", NewMachine, "the kubelet refuses to start with the state of another policy"),
    (Subject::KubeletConfig, "memoryManagerPolicy", NewMachine, "the kubelet refuses to start with the state of another policy"),
    (Subject::KubeletConfig, "", RestartKubelet, "the kubelet reads its configuration when it starts"),
    (Subject::KubeletUnit, "", RestartKubelet, "it is how the kubelet is started"),
    (Subject::BootstrapCredentials, "", None, "only a machine that has not joined reads it"),
    (Subject::KubeletEnvironment, "", RestartKubelet, "it is how the kubelet is started"),
    (Subject::OwnKubeconfig, "", RestartKubelet, "the kubelet reads its kubeconfig when it starts"),
    (Subject::KubernetesFile, "", RestartKubelet, "the kubelet reads it when it starts"),
    (Subject::StaticPod, "", None, "the kubelet watches this folder and starts the pod anew"),
    (Subject::Etcd, "*--data-dir", NewMachine, "etcd would start with an empty folder, without its data; or move the data by hand while it is stopped"),
    (Subject::Etcd, "*--wal-dir", NewMachine, "etcd would start with an empty folder, without its data; or move the data by hand while it is stopped"),
    (Subject::Etcd, "*--initial-cluster", NewMachine, "a member with data keeps the members that it knows: add and remove them by hand, with etcdctl member"),
    (Subject::Etcd, "*--initial-cluster-state", NewMachine, "etcd reads it only when it has no data"),
    (Subject::Etcd, "*--initial-cluster-token", NewMachine, "etcd reads it only when it has no data"),
    (Subject::Etcd, "*--initial-advertise-peer-urls", NewMachine, "a member with data keeps its address: change it by hand, with etcdctl member update"),
    (Subject::Etcd, "*--name", NewMachine, "a member keeps the name under which it joined"),
    (Subject::Etcd, "", None, "the kubelet watches this folder and starts the pod anew"),
    (Subject::FileOfPods, "", RestartStaticPods, "static pods read it when they start"),
    (Subject::FileOfNewPods, "", None, "the static pods that read it start anew, with their manifests"),

    (Subject::RuntimeConfig, "*SystemdCgroup", NewMachine, "running pods cannot move to other control groups"),
    (Subject::RuntimeConfig, "*snapshotter", NewMachine, "images and containers of the other snapshotter are lost"),
    (Subject::RuntimeConfig, "root", NewMachine, "images and containers lie in the other folder"),
    (Subject::RuntimeConfig, "state", NewMachine, "running containers are known in the other folder only"),
    (Subject::RuntimeConfig, "", RestartRuntime, "the container runtime reads its configuration when it starts"),
    (Subject::RuntimeUnit, "", RestartRuntime, "it is how the container runtime is started"),

    (Subject::Trust, "", RestartRuntime, "nodestrap-trust.service hands it on to the system, and the container runtime reads that when it starts"),
    (Subject::TrustWithdrawn, "", NewMachine, "the system still trusts it; or update its certificates by hand and restart the container runtime"),
    (Subject::Time, "", RestartUnits, "the time client reads it when it starts"),
    (Subject::TimeOfOthers, "", Reboot, "the time client reads it when it starts; or restart it by hand"),
    (Subject::TimeWithdrawn, "", RestartUnits, "the time client starts anew with its own servers, if it ran before"),
    (Subject::Kernel, "", Reboot, "it is certain to have its effect only when the kernel starts"),
    (Subject::PodNetwork, "", Reboot, "running pods keep the network that they were started with"),
    (Subject::TreeOfRuntime, "", RestartRuntime, "the container runtime runs from it"),
    (Subject::TreeOfKubelet, "", RestartKubelet, "the kubelet runs from it"),
    (Subject::TreeOfNobody, "", None, "its programs are found at their next start"),
    (Subject::TreeFromElsewhere, "", None, "the digest says what it is, wherever it comes from"),
    (Subject::PackagesFromElsewhere, "", None, "it counts when packages are installed"),
    (Subject::RuntimeStart, "", RestartRuntime, "it is when the container runtime is started"),
    (Subject::Unit, "", RestartUnits, "the unit starts anew, or stops where it is gone"),
    (Subject::IdleUnit, "", RestartUnits, "it stops, and runs again once it may, if it ran before"),
    (Subject::UnitOrder, "", None, "it counts when they start"),
    (Subject::BootstrapUnit, "", None, "it counts when the machine boots"),
    (Subject::HookUnit, "", None, "hooks run whenever a new bundle is applied"),
    (Subject::OtherUnit, "", RestartUnits, "the unit starts anew, or stops where it is gone"),
    (Subject::UnitOfOthers, "", None, "it counts when something else starts the unit"),
    (Subject::FileOfUnits, "", RestartUnits, "the units that read it start anew"),
    (Subject::OtherFile, "", None, "nothing that nodestrap starts reads it at its start"),
];

/// `place` is what people know the subject by: a file, a flag, a field. The rule says how much of the value's path matters.
pub(crate) fn judge(subject: Subject, value: &str, place: &str) -> Reason {
    let rule = RULES.iter().find(|(about, pattern, ..)| *about == subject && matches(pattern, value));
    let (pattern, consequence, why) =
        rule.map_or(("", NewMachine, "nothing is known of it"), |rule| (rule.1, rule.2, rule.3));
    let detail = if pattern.starts_with('*') { value } else { pattern };
    let subject = if detail.is_empty() || value == place { place.to_owned() } else { format!("{place} {detail}") };
    Reason { consequence, subject, why: why.into() }
}

fn matches(pattern: &str, value: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => value.ends_with(end),
        Option::None => {
            let rest = value.strip_prefix(pattern);
            pattern.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ' ']))
        }
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            None => "nothing but the new files",
            RestartUnits => "a restart of other services",
            RestartKubelet => "a restart of the kubelet",
            RestartRuntime => "a restart of the container runtime",
            RestartStaticPods => "a restart of static pods",
            Reboot => "a reboot",
            NewMachine => "a new machine",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.subject, self.consequence, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_a_rule_for_any_value_and_none_behind_it() {
        let subjects: Vec<Subject> = RULES.iter().map(|rule| rule.0).collect();
        for subject in subjects {
            let own: Vec<&str> = RULES.iter().filter(|rule| rule.0 == subject).map(|rule| rule.1).collect();
            assert_eq!(own.iter().position(|pattern| pattern.is_empty()), Some(own.len() - 1), "{subject:?}");
        }
    }

    #[test]
    fn a_pattern_matches_whole_steps_of_a_path() {
        for (pattern, value, expected) in [
            ("root", "root", true),
            ("root", "rootless", false),
            ("registerWithTaints", "registerWithTaints[0].key", true),
            ("*SystemdCgroup", "plugins.a.options.SystemdCgroup", true),
            ("", "anything", true),
        ] {
            assert_eq!(matches(pattern, value), expected, "{pattern} {value}");
        }
    }
}
