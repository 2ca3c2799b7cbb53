//! Whose node this is: a complete node belongs to one machine, and to one cluster, group and role, until it is reset. Pure.
//!
//! What it was last complete as ([`Complete`]) decides, whether or not its gate is open at the moment. A node that never was
//! complete, or became so by a release that kept no record, belongs to nobody yet.

use bundle::{Bundle, Manifest, Role};
use host::machine::{Likeness, MachineIdentity};

use crate::complete::Complete;
use crate::facts::Facts;
use crate::refusals::Refusal;
use crate::resource::gate::GateOwner;

/// All that keeps this bundle from this node.
pub(crate) fn refusals(bundle: &Bundle, facts: &Facts) -> Vec<Refusal> {
    let Some(complete) = &facts.complete else {
        return refuse_by_gate(&facts.gate_owner, bundle).into_iter().collect();
    };
    let machine = match compare_machine(complete, &facts.machine()) {
        MachineVerdict::Another(refusal) => Some(refusal),
        MachineVerdict::Own | MachineVerdict::Changed { .. } => None,
    };
    let owner = refuse_owner(&complete.manifest, bundle);
    // Of another cluster's release there is nothing to say.
    let release = match &owner {
        None => refuse_release(&complete.manifest, bundle, &facts.api_server_version.value),
        Some(_) => None,
    };
    [machine, owner, release].into_iter().flatten().collect()
}

/// What is no reason to stop, but people want to know.
pub(crate) fn remark(complete: Option<&Complete>, now: &MachineIdentity) -> Option<String> {
    match compare_machine(complete?, now) {
        MachineVerdict::Changed { remark } => Some(remark),
        MachineVerdict::Own | MachineVerdict::Another(_) => None,
    }
}

/// Whether a node is still on the machine on which it was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineVerdict {
    /// As far as anything is known.
    Own,
    /// The same by one id, but not by the other.
    Changed {
        remark: String,
    },
    Another(Refusal),
}

pub(crate) fn compare_machine(complete: &Complete, now: &MachineIdentity) -> MachineVerdict {
    let was = &complete.machine;
    match was.compare(now) {
        Likeness::Unknown | Likeness::Same => MachineVerdict::Own,
        Likeness::Changed { id } => MachineVerdict::Changed {
            remark: format!(
                "the {id} of this machine has changed since this node was complete (it was {was}, and is {now}): if its \
                 disk was copied, two machines are one node now"
            ),
        },
        Likeness::Another => MachineVerdict::Another(Refusal {
            reason: format!(
                "this disk is that of a complete node on another machine ({} of {}/{}, on a machine with {was}), and \
                 this machine has {now}",
                complete.manifest.role, complete.manifest.cluster, complete.manifest.group
            ),
            advice:
                "for a node of its own: nodestrap reset --kubelet-state, then nodestrap apply; if this machine takes \
                     that node over and the other one is gone for good: nodestrap apply --adopt"
                    .to_owned(),
        }),
    }
}

/// The record of a complete node was damaged, or written by another release; its gate still says whose it is, but for its role.
fn refuse_by_gate(gate: &GateOwner, bundle: &Bundle) -> Option<Refusal> {
    let differs = |known: &Option<String>, wanted: &str| known.as_deref().is_some_and(|known| known != wanted);
    let shown = |name: &Option<String>| name.clone().unwrap_or_default();
    (differs(&gate.cluster, &bundle.cluster) || differs(&gate.group, &bundle.group)).then(|| Refusal {
        reason: format!(
            "the gate of this node is open for cluster {:?}, group {:?}, and the bundle is for cluster {:?}, group {:?}",
            shown(&gate.cluster),
            shown(&gate.group),
            bundle.cluster,
            bundle.group
        ),
        advice: RESET_FIRST.to_owned(),
    })
}

/// The files of another cluster, group or role would replace this node's keys and manifests.
pub(crate) fn refuse_owner(own: &Manifest, bundle: &Bundle) -> Option<Refusal> {
    let is = (own.role, own.cluster.as_str(), own.group.as_str());
    let wanted = (bundle.node.role, bundle.cluster.as_str(), bundle.group.as_str());
    let shown = |(role, cluster, group)| format!("a {role} of cluster {cluster:?}, group {group:?}");
    (is != wanted).then(|| Refusal {
        reason: format!("this node is complete as {}, and the bundle is for {}", shown(is), shown(wanted)),
        advice: RESET_FIRST.to_owned(),
    })
}

const RESET_FIRST: &str = "reset first, which takes the node out of its cluster: nodestrap reset --kubelet-state, then nodestrap \
                           apply; or deliver a bundle of the node's own group";

/// Whether the version of the API server decides if this bundle may follow.
pub(crate) fn depends_on_api_server(own: &Manifest, bundle: &Bundle) -> bool {
    let rises = minor(&bundle.kubernetes_version) > minor(&own.kubernetes_version);
    bundle.node.role == Role::Worker && bundle.digest() != own.bundle && rises
}

/// A control plane goes up one minor release at a time, since its data is converted on the way; a kubelet is never above its
/// API server. The last bundle that was complete here is the way back, and always open to a worker. What is no version of
/// Kubernetes says nothing.
fn refuse_release(own: &Manifest, bundle: &Bundle, api_server: &str) -> Option<Refusal> {
    let wanted = minor(&bundle.kubernetes_version)?;
    let version = &bundle.kubernetes_version;
    match bundle.node.role {
        Role::ControlPlane => {
            let (is, runs) = (minor(&own.kubernetes_version)?, &own.kubernetes_version);
            let next = (is.0, is.1 + 1);
            (wanted != is && wanted != next).then(|| Refusal {
                reason: format!(
                    "this control plane runs Kubernetes {runs}, and the bundle is for {version}: it goes up one minor \
                     release at a time, and never down"
                ),
                advice: format!("apply a bundle for Kubernetes {}.{} or {}.{} first", is.0, is.1, next.0, next.1),
            })
        }
        Role::Worker if bundle.digest() == own.bundle => None,
        Role::Worker => (wanted > minor(api_server)?).then(|| Refusal {
            reason: format!(
                "the bundle is for Kubernetes {version}, and the API server runs {api_server}: a kubelet is never newer \
                 than its API server"
            ),
            advice: "upgrade the control plane first, then apply again".to_owned(),
        }),
    }
}

/// Major and minor number of `1.36.3`, `v1.36.3` or `v1.36.3-eks-1`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u32>().ok();
    Some((number()?, number()?))
}
