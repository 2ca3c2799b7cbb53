//! What a change takes: one table, first match wins.

use std::fmt;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::kubelet::ARGUMENTS_VARIABLE;
use crate::runtime::CONTAINERD_UNIT;

/// What a change takes to have its effect, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Consequence {
    /// It has its effect once it is written.
    None,
    RestartKubelet,
    /// And with it the kubelet.
    RestartRuntime,
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
    pub why: &'static str,
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Bundle,
    /// A program that the image need not bring any more.
    NotRequired,
    /// A variable of the gate other than the kubelet's flags.
    Gate,
    /// A flag of the kubelet, with its dashes.
    Flag,
    /// When a unit starts, by its name.
    Unit,
    KubeletConfig,
    BootstrapCredentials,
    KubeletUnit,
    RuntimeConfig,
    RegistryHosts,
    RuntimeUnit,
    StaticPod,
    KubernetesFile,
    Kernel,
    PodNetwork,
    OtherUnit,
    OtherFile,
}

/// Path of a value, exactly or as the beginning of a longer one; with `*` in front, its end; empty: any.
type Pattern = &'static str;

use Consequence::{NewMachine, None, Reboot, RestartKubelet, RestartRuntime};

#[rustfmt::skip]
const RULES: &[(Subject, Pattern, Consequence, &str)] = &[
    (Subject::Bundle, "cluster", NewMachine, "a node cannot move from one cluster to another"),
    (Subject::Bundle, "group", NewMachine, "a node stays in the group that it was started for"),
    (Subject::Bundle, "join.nodeName", NewMachine, "a node keeps the name under which it joined"),
    (Subject::Bundle, "join.apiServer", NewMachine, "the kubelet keeps the address that it got when it joined"),
    (Subject::Bundle, "join.kubeconfig", NewMachine, "the kubelet would look for its credentials elsewhere and join anew"),
    (Subject::Bundle, "join.clientCertificate", NewMachine, "the kubelet would look for its certificate elsewhere and join anew"),
    (Subject::Bundle, "join.bootstrapKubeconfig", None, "only a machine that has not joined reads it"),
    (Subject::Bundle, "kubernetesVersion", NewMachine, "the image brings the kubelet"),
    (Subject::Bundle, "requiredPrograms", NewMachine, "the image brings these programs"),
    (Subject::Bundle, "gate.path", NewMachine, "the bootstrap unit looks for the gate where the image says"),
    (Subject::Bundle, "node", NewMachine, "a machine is what its image and its provider make it"),
    (Subject::Bundle, "runtime", NewMachine, "the image brings the container runtime"),
    (Subject::Bundle, "", RestartKubelet, "the kubelet is set up by it"),
    (Subject::NotRequired, "", None, "a program more than needed does no harm"),

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
    (Subject::StaticPod, "", None, "the kubelet watches this folder"),
    (Subject::KubernetesFile, "", RestartKubelet, "the kubelet reads it when it starts"),

    (Subject::RuntimeConfig, "*SystemdCgroup", NewMachine, "running pods cannot move to other control groups"),
    (Subject::RuntimeConfig, "*snapshotter", NewMachine, "images and containers of the other snapshotter are lost"),
    (Subject::RuntimeConfig, "root", NewMachine, "images and containers lie in the other folder"),
    (Subject::RuntimeConfig, "state", NewMachine, "running containers are known in the other folder only"),
    (Subject::RuntimeConfig, "", RestartRuntime, "containerd reads its configuration when it starts"),
    (Subject::RegistryHosts, "", None, "containerd reads it for each pull"),
    (Subject::RuntimeUnit, "", RestartRuntime, "it is how containerd is started"),

    (Subject::Kernel, "", Reboot, "it is certain to have its effect only when the kernel starts"),
    (Subject::PodNetwork, "nodeName", None, "it is how the pod network finds the node, which has its name already"),
    (Subject::PodNetwork, "kubeconfig", None, "it is how the pod network finds the node, once per boot"),
    (Subject::PodNetwork, "clientCertificate", None, "it is how the pod network finds the node, once per boot"),
    (Subject::PodNetwork, "", Reboot, "running pods keep the network that they were started with"),
    (Subject::Unit, CONTAINERD_UNIT, RestartRuntime, "it is when containerd is started"),
    (Subject::Unit, "", RestartKubelet, "the kubelet waits for the units of the bundle"),
    (Subject::OtherUnit, "", RestartKubelet, "the kubelet waits for the units of the bundle"),
    (Subject::OtherFile, "", None, "no service that nodestrap knows reads it"),
];

/// What a file of a node is for. Where the kubelet's files lie is up to the bundle.
pub(super) fn subject_of(path: &str, old: &Bundle, new: &Bundle) -> Subject {
    let either = |test: &dyn Fn(&Bundle) -> bool| test(old) || test(new);
    if either(&|bundle| kubelet_flag(bundle, "--config") == Some(path)) {
        return Subject::KubeletConfig;
    }
    if either(&|bundle| bundle.join.bootstrap_kubeconfig == path) {
        return Subject::BootstrapCredentials;
    }
    if let Some(rest) = path.strip_prefix("/etc/systemd/system/") {
        let unit = rest.split('/').next().unwrap_or_default().trim_end_matches(".d");
        return match unit {
            _ if either(&|bundle| bundle.join.kubelet_unit == unit) => Subject::KubeletUnit,
            CONTAINERD_UNIT => Subject::RuntimeUnit,
            _ => Subject::OtherUnit,
        };
    }
    let folders = [
        ("/etc/containerd/certs.d/", Subject::RegistryHosts),
        ("/etc/containerd/", Subject::RuntimeConfig),
        ("/etc/kubernetes/manifests/", Subject::StaticPod),
        ("/etc/kubernetes/", Subject::KubernetesFile),
        ("/var/lib/kubelet/", Subject::KubernetesFile),
        ("/etc/cni/", Subject::PodNetwork),
        (crate::network::NETWORK_SETTINGS_PATH, Subject::PodNetwork),
        ("/etc/sysctl.d/", Subject::Kernel),
        ("/etc/modules-load.d/", Subject::Kernel),
        ("/etc/modprobe.d/", Subject::Kernel),
        ("/etc/kernel/", Subject::Kernel),
        ("/etc/default/grub", Subject::Kernel),
    ];
    folders.iter().find(|(folder, _)| path.starts_with(folder)).map_or(Subject::OtherFile, |(_, subject)| *subject)
}

fn kubelet_flag<'a>(bundle: &'a Bundle, flag: &str) -> Option<&'a str> {
    let arguments = bundle.gate.environment.get(ARGUMENTS_VARIABLE)?;
    arguments.split_whitespace().find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='))
}

/// `place` is what people know the subject by: a file, a flag, a field. The rule says how much of the value's path matters.
pub(super) fn judge(subject: Subject, value: &str, place: &str) -> Reason {
    let rule = RULES.iter().find(|(about, pattern, ..)| *about == subject && matches(pattern, value));
    let (pattern, consequence, why) =
        rule.map_or(("", NewMachine, "nothing is known of it"), |rule| (rule.1, rule.2, rule.3));
    let detail = if pattern.starts_with('*') { value } else { pattern };
    let subject = if detail.is_empty() || value == place { place.to_owned() } else { format!("{place} {detail}") };
    Reason { consequence, subject, why }
}

fn matches(pattern: &str, value: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => value.ends_with(end),
        Option::None => {
            let rest = value.strip_prefix(pattern);
            pattern.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        }
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            None => "nothing but the new files",
            RestartKubelet => "a restart of the kubelet",
            RestartRuntime => "a restart of the container runtime and the kubelet",
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
