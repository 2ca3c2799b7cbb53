//! Settings that fit each by itself and not together: a program would refuse to start with them, or two places of a spec
//! contradict each other.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use serde_json::Value;

use super::{Check, leaf_text};
use crate::catalog::{Component, Target};
use crate::config;
use crate::config_tree::ConfigTree;
use crate::origin::{Origin, Setting};
use crate::syntax;
use crate::texts::Name;

/// Fields of the kubelet that need a feature gate, and the minor since which it is on by itself.
const GATED: &[(&[&str], &str, u32)] = &[
    (&["cpuCFSQuotaPeriod"], "CustomCPUCFSQuotaPeriod", 36),
    (&["crashLoopBackOff", "maxContainerRestartPeriod"], "KubeletCrashLoopBackOffMax", 35),
    (&["imagePullCredentialsVerificationPolicy"], "KubeletEnsureSecretPulledImages", 35),
];

/// A configuration as it will be written.
struct Fields<'a> {
    tree: &'a ConfigTree,
    check: &'a Check<'a>,
}

impl Fields<'_> {
    fn value(&self, path: &[&str]) -> Option<Value> {
        config::find(self.tree, path).map(config::node_to_json)
    }

    fn number(&self, name: &str, builtin: i64) -> i64 {
        self.value(&[name]).and_then(|value| value.as_i64()).unwrap_or(builtin)
    }

    /// In nanoseconds; all that are asked for are zero by themselves.
    fn duration(&self, name: &str) -> i64 {
        leaf_text(self.tree, &[name]).and_then(|text| syntax::parse_go_duration(text).ok()).unwrap_or_default()
    }

    fn is_set(&self, name: &str) -> bool {
        leaf_text(self.tree, &[name]).is_some_and(|text| !text.is_empty())
    }

    fn is(&self, path: &[&str], wanted: bool) -> bool {
        self.value(path) == Some(Value::Bool(wanted))
    }

    fn need_gate(&self, path: &[&str], gate: &str, since: u32, target: Target) {
        let on_by_itself = target.minor.is_none_or(|minor| minor >= since);
        if !on_by_itself && !self.is(&["featureGates", gate], true) {
            self.refuse(
                &path[..1],
                format_args!("{} needs the feature gate {gate} before Kubernetes 1.{since}", path.join(".")),
                &format!("write featureGates: {{{gate}: true}} too, or remove it"),
            );
        }
    }

    /// At the first of these fields that the user wrote.
    fn refuse(&self, fields: &[&str], message: fmt::Arguments<'_>, advice: &str) {
        let written = fields.iter().find_map(|name| {
            let origin = config::find(self.tree, &[name]).and_then(config::origin_of)?;
            matches!(origin, Origin::User(_)).then_some(origin)
        });
        if let Some(origin) = written {
            self.check.report(Some(origin), message.to_string(), advice);
        }
    }
}

const SECOND: i64 = 1_000_000_000;

pub(super) fn check_kubelet(tree: &ConfigTree, target: Target, check: &Check<'_>) {
    let fields = Fields { tree, check };
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    let (from, to) = (fields.number(low, 80), fields.number(high, 85));
    if from >= to {
        fields.refuse(
            &[low, high],
            format_args!("{low} is {from} and {high} is {to}"),
            "the low one must be below the high one",
        );
    }
    let (youngest, oldest) = ("imageMinimumGCAge", "imageMaximumGCAge");
    let age = fields.duration(oldest);
    // Zero means the builtin here.
    let least = Some(fields.duration(youngest)).filter(|least| *least != 0).unwrap_or(120 * SECOND);
    if age > 0 && age <= least {
        fields.refuse(
            &[oldest, youngest],
            format_args!("{oldest} must be longer than {youngest}"),
            "imageMinimumGCAge is 2m0s unless the configuration says something else",
        );
    }
    check_shutdown(&fields);
    check_cgroups(&fields);
    if fields.is(&["serializeImagePulls"], true) && fields.number("maxParallelImagePulls", 1) > 1 {
        fields.refuse(
            &["maxParallelImagePulls"],
            format_args!("maxParallelImagePulls needs serializeImagePulls: false"),
            "leave serializeImagePulls out",
        );
    }
    for (path, gate, since) in GATED {
        if fields.value(path).is_some_and(|value| value != "100ms") {
            fields.need_gate(path, gate, *since, target);
        }
    }
}

pub(super) fn check_proxy(tree: &ConfigTree, target: Target, check: &Check<'_>) {
    if leaf_text(tree, &["mode"]) == Some("nftables") {
        Fields { tree, check }.need_gate(&["mode"], "NFTablesProxyMode", 31, target);
    }
}

fn check_shutdown(fields: &Fields<'_>) {
    let (all, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
    for name in [all, critical] {
        if (1..SECOND).contains(&fields.duration(name)) {
            fields.refuse(&[name], format_args!("{name} is shorter than a second"), "write 0s or at least 1s");
        }
    }
    if fields.duration(critical) > fields.duration(all) {
        fields.refuse(
            &[critical, all],
            format_args!("{critical} is longer than {all}"),
            "critical pods get their time out of that of all: write a longer shutdownGracePeriod",
        );
    }
}

fn check_cgroups(fields: &Fields<'_>) {
    const ENFORCED: &str = "enforceNodeAllocatable";
    if fields.is_set("systemCgroups") && !fields.is_set("cgroupRoot") {
        fields.refuse(&["systemCgroups"], format_args!("systemCgroups needs cgroupRoot"), "write cgroupRoot: / too");
    }
    let reserved = ["systemReservedCgroup", "kubeReservedCgroup"];
    if fields.is_set("reservedSystemCPUs")
        && let Some(cgroup) = reserved.iter().find(|name| fields.is_set(name))
    {
        fields.refuse(
            &["reservedSystemCPUs", cgroup],
            format_args!("reservedSystemCPUs and {cgroup} exclude each other"),
            "write one of them",
        );
    }
    let written = fields.value(&[ENFORCED]);
    let builtin = [Value::from("pods")];
    let enforced = written.as_ref().and_then(Value::as_array).map_or(&builtin[..], Vec::as_slice);
    let has = |word: &str| enforced.iter().any(|item| item == word);
    if has("none") {
        if enforced.len() > 1 {
            fields.refuse(
                &[ENFORCED],
                format_args!("\"none\" stands beside others"),
                "write [none], or the others only",
            );
        }
        return;
    }
    for (word, cgroup) in [("system-reserved", reserved[0]), ("kube-reserved", reserved[1])] {
        let compressible = format!("{word}-compressible");
        if has(word) && has(&compressible) {
            fields.refuse(
                &[ENFORCED],
                format_args!("\"{word}\" and \"{compressible}\" exclude each other"),
                "write one of them",
            );
        }
        if (has(word) || has(&compressible)) && !fields.is_set(cgroup) {
            fields.refuse(&[ENFORCED], format_args!("\"{word}\" needs {cgroup}"), "write the cgroup that is limited");
        }
    }
    if fields.is(&["cgroupsPerQOS"], false) && !enforced.is_empty() {
        fields.refuse(
            &["cgroupsPerQOS"],
            format_args!("cgroupsPerQOS: false leaves nothing that enforceNodeAllocatable could limit"),
            "write enforceNodeAllocatable: [] too; it is [pods] unless the configuration says something else",
        );
    }
}

type FlagMap = BTreeMap<String, Setting<String>>;

/// A flag that follows from networks of the spec must name the same.
pub(super) fn check_networks(user: &FlagMap, flag: &str, field: &str, networks: &[IpNet], check: &Check<'_>) {
    let Some(setting) = user.get(flag) else { return };
    let written: Option<Vec<IpNet>> = setting.value.split(',').map(|network| network.trim().parse().ok()).collect();
    if written.as_deref() != Some(networks) {
        let ours = networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        check.report(
            Some(&setting.origin),
            format!("--{flag} is {}, and networking.{field} is {ours}", setting.value),
            format!("write the networks as networking.{field} only: this flag follows from them"),
        );
    }
}

pub(super) fn check_etcd(members: &Setting<Vec<Name>>, user: &FlagMap, check: &Check<'_>) {
    for (index, member) in members.value.iter().enumerate() {
        if members.value[..index].contains(member) {
            check.report(
                Some(&members.origin),
                format!("the member \"{member}\" is named twice"),
                "each has its own name",
            );
        }
    }
    if let Some(name) = user.get("name").filter(|name| !name.value.contains("$("))
        && !members.value.is_empty()
        && !members.value.iter().any(|member| member.as_str() == name.value)
    {
        check.report(
            Some(&name.origin),
            format!("--name is {}, and etcd.members does not have it", name.value),
            "leave it out: each member is called as its node is",
        );
    }
    let builtin = |flag: &str| Component::Etcd.flags().iter().find(|known| known.name == flag)?.builtin;
    let number = |flag: &str| -> Option<u64> {
        user.get(flag).map(|setting| setting.value.as_str()).or_else(|| builtin(flag))?.parse().ok()
    };
    let (heartbeat, election) = ("heartbeat-interval", "election-timeout");
    if let (Some(beat), Some(wait)) = (number(heartbeat), number(election))
        && beat.saturating_mul(5) > wait
        && let Some(setting) = user.get(heartbeat).or_else(|| user.get(election))
    {
        check.report(
            Some(&setting.origin),
            format!("--{election} ({wait} ms) is less than five times --{heartbeat} ({beat} ms)"),
            "etcd does not start so; ten times is usual",
        );
    }
}
