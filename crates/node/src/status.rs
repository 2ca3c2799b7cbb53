//! Where this node is on its way, and what blocks it: read from the bundle, the journal and the gate, changing nothing.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bundle::{Bundle, BundleError, PayloadError, Provenance, Signatures, Stub};
use engine::{ErrorClass, FactNote, Report, RunOutcome, StepError, StepOutcome, Timestamp};
use host::disk::{Disk, DiskError};
use host::machine::MachineIdentity;
use host::units::UnitState;
use serde::Serialize;

use crate::bundle_source::{BundleSourceError, Delivered};
use crate::complete::{self, Complete};
use crate::failure::chain;
use crate::outlook::{Outlook, Worker, failing_since, outlook};
use crate::ownership::{MachineVerdict, compare_machine, refuse_owner, remark};
use crate::refusals::Refusal;
use crate::reset::RESTORE_STEP;
use crate::resource::gate::{self, GateState};
use crate::resource::{credential, host_name};
use crate::session::{LOCK_PATH, NodeHost, load_events};
use crate::spending;

/// In the order in which a node goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No bundle was delivered.
    NotDelivered,
    /// A bundle is there, but it cannot be used.
    BundleBroken,
    /// A stub is there; the bundle that it names was not fetched yet.
    NotFetched,
    /// Delivered, never applied.
    NotStarted,
    /// A run began and has not ended: it is at work, or it was cut off and the next one resumes.
    Unfinished,
    /// The last run asked for a reboot; the next one, after it, resumes.
    Rebooting,
    /// The last run ended with an error.
    Failed,
    /// Complete; the kubelet may start but has no credentials of its own yet.
    Joining,
    /// The kubelet has its own credentials.
    Joined,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub phase: Phase,
    /// One line for people.
    pub summary: String,
    #[serde(flatten)]
    pub outlook: Outlook,
    /// What stands in the way, and what to do about it.
    pub blocked: Option<Blocked>,
    /// What the plan of the last run was decided from, and where each fact came from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<FactNote>,
    /// What steps that are done have to say all the same, such as that an optional hook failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub cluster: Option<String>,
    pub group: Option<String>,
    pub bundle: Option<String>,
    /// Where the bundle, or the stub that names it, was read: a file, or the platform.
    pub bundle_source: Option<String>,
    pub plan: Option<String>,
    pub gate: String,
    pub kubelet: Option<UnitState>,
    pub last_run: Option<Report>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    pub by: String,
    #[serde(serialize_with = "serialize_class")]
    pub class: ErrorClass,
    pub reason: String,
    /// What a program said that failed; only root, who may read the journal, gets to see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub advice: Option<String>,
    /// RFC 3339; since when it stands in the way.
    pub since: Option<String>,
}

fn serialize_class<S: serde::Serializer>(class: &ErrorClass, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(class)
}

/// The bundle, if it is usable, comes along for those who want to look further.
pub fn observe_status(
    host: &NodeHost,
    delivered: Result<Delivered, BundleSourceError>,
) -> Result<(Status, Option<Bundle>), DiskError> {
    let disk = host.disk.as_ref();
    let events = load_events(disk).map(|(events, _)| events).unwrap_or_default();
    let worker = match disk.is_locked(Path::new(LOCK_PATH))? {
        Some(true) => Worker::AtWork,
        Some(false) => Worker::Absent,
        None => Worker::Unknown,
    };
    let (mut status, bundle) = judge(host, delivered, Report::from_events(&events))?;
    status.outlook = outlook(status.phase, status.last_run.as_ref(), &events, worker);
    if worker == Worker::AtWork {
        for idle in ["the next apply resumes", "next: nodestrap apply"] {
            status.summary = status.summary.replace(idle, "nodestrap is at work");
        }
    }
    match &mut status.blocked {
        // Nothing that nodestrap does by itself comes next.
        Some(blocked) if STANDING.contains(&blocked.by.as_str()) => status.outlook.next = None,
        Some(blocked) => blocked.since = failing_since(&events).map(|since| since.to_string()).or(blocked.since.take()),
        None => {}
    }
    status.facts = status.last_run.as_ref().map(|report| report.facts.clone()).unwrap_or_default();
    Ok((status, bundle))
}

fn judge(
    host: &NodeHost,
    delivered: Result<Delivered, BundleSourceError>,
    last_run: Option<Report>,
) -> Result<(Status, Option<Bundle>), DiskError> {
    let disk = host.disk.as_ref();
    let (bundle, source) = match delivered {
        Ok(delivered) => (delivered.bundle, delivered.source),
        Err(BundleSourceError::NotFetched { stub }) => return Ok((not_fetched(disk, &stub, last_run)?, None)),
        Err(error) => return Ok((without_bundle(disk, &error, last_run)?, None)),
    };
    let gate = gate::observe(disk, &bundle.gate.path)?;
    let joined = credential::has_joined(disk, &bundle)?;
    let kubelet = host.units.state(&host_name(&bundle.join.kubelet_unit)).ok();
    let complete = complete::load(disk)?;
    // What cannot be read says nothing.
    let machine = host.machine.identity().unwrap_or_default();
    let (phase, summary, mut blocked) = assess(&bundle, &gate, joined, last_run.as_ref());
    let mut notes: Vec<String> =
        notes(last_run.as_ref()).into_iter().chain(remark(complete.as_ref(), &machine)).collect();
    if bundle.downloads.as_ref().is_some_and(|downloads| matches!(downloads.provenance, Provenance::Unsigned {})) {
        notes.push("programs: nobody signed for them (the spec says that unsigned artefacts are allowed)".to_owned());
    }
    let addon = bundle.follow.as_ref().and_then(|follow| follow.addon.as_ref());
    if addon.is_some_and(|addon| addon.signatures == Signatures::Unverified {}) {
        notes.push(
            "addons: nobody has to have signed their lists (the spec, or --no-verify-signatures, says so)".to_owned(),
        );
    }
    if spending::files_wanted(disk, &bundle).iter().any(|file| file.content.is_spent()) {
        notes.push("bootstrap credentials: spent".to_owned());
        if let Err(error) = spending::check_spent(disk, &bundle.join) {
            let (by, since) = ("join".to_owned(), None);
            let StepError { class, message: reason, advice, output } = error;
            blocked = Some(Blocked { by, class, reason, output, advice, since });
        }
    }
    let (phase, summary, blocked) = match complete.as_ref().and_then(|complete| contest(complete, &machine, &bundle)) {
        Some((Contested::Machine, blocked)) => (Phase::Failed, NOT_THIS_MACHINE.to_owned(), Some(blocked)),
        Some((Contested::Bundle, blocked)) => (phase, OTHER_OWNER.to_owned(), Some(blocked)),
        None => (phase, summary, blocked),
    };
    let status = Status {
        phase,
        summary,
        outlook: Outlook::default(),
        blocked,
        facts: Vec::new(),
        notes,
        cluster: Some(complete.as_ref().map_or(&bundle.cluster, |own| &own.manifest.cluster).clone()),
        group: Some(complete.as_ref().map_or(&bundle.group, |own| &own.manifest.group).clone()),
        bundle: Some(bundle.digest().to_string()),
        bundle_source: Some(source),
        plan: plan_of(last_run.as_ref()),
        gate: describe_gate(&gate),
        kubelet,
        last_run,
    };
    Ok((status, Some(bundle)))
}

const NOT_THIS_MACHINE: &str = "this disk is that of a node on another machine; the kubelet does not start";
const OTHER_OWNER: &str = "complete as its own bundle wanted it; the one that is here now is refused";
/// What stands in the way whatever the last run said, by name.
const STANDING: [&str; 2] = ["machine", "owner"];

/// A kubelet whose certificate has ended cannot renew it, and joins anew or not at all. Whether that is so hangs on the clock, so
/// nothing but `status` judges by it.
pub fn find_ended_certificate(disk: &dyn Disk, bundle: &Bundle, now: Timestamp) -> Result<Option<Blocked>, DiskError> {
    let certificate = &bundle.join.client_certificate;
    let blocked = |ended: Timestamp| Blocked {
        by: "join".to_owned(),
        class: ErrorClass::NeedsOperator,
        reason: format!(
            "wrong clock or expired: the kubelet's own certificate {certificate} ended at {ended}, and the clock of this machine \
             says {now}"
        ),
        output: None,
        advice: Some(format!(
            "if the clock is right, the kubelet has to join anew: remove {certificate}, deliver the bundle with a token that is \
             still valid, then: nodestrap apply"
        )),
        since: Some(ended.to_string()),
    };
    Ok(credential::ended(disk, &bundle.join, now)?.map(blocked))
}

enum Contested {
    Machine,
    Bundle,
}

/// Why a complete node is not this machine's, or not this bundle's.
fn contest(complete: &Complete, machine: &MachineIdentity, bundle: &Bundle) -> Option<(Contested, Blocked)> {
    let blocked = |by: &str, Refusal { reason, advice }| Blocked {
        by: by.to_owned(),
        class: ErrorClass::NeedsOperator,
        reason,
        output: None,
        advice: Some(advice),
        since: None,
    };
    if let MachineVerdict::Another(refusal) = compare_machine(complete, machine) {
        return Some((Contested::Machine, blocked(STANDING[0], refusal)));
    }
    let refusal = refuse_owner(&complete.manifest, bundle)?;
    Some((Contested::Bundle, blocked(STANDING[1], refusal)))
}

fn assess(
    bundle: &Bundle,
    gate: &GateState,
    joined: bool,
    last_run: Option<&Report>,
) -> (Phase, String, Option<Blocked>) {
    if let GateState::Open { bundle: opened_by, .. } = gate {
        if opened_by != bundle.digest().as_str() {
            let phase = if joined { Phase::Joined } else { Phase::Joining };
            let summary = "complete as an earlier bundle wanted it; another one is here now; next: nodestrap apply";
            return (phase, summary.to_owned(), None);
        }
        let server = &bundle.join.api_server;
        let (phase, summary) = match joined {
            true => (Phase::Joined, format!("complete; the kubelet has joined {server}")),
            false => (Phase::Joining, format!("complete; the kubelet is asking {server} for credentials")),
        };
        // Such as a hook after the kubelet: the gate does not wait for it, but somebody should know. A run that came to no
        // plan, such as that of a bundle which was refused, has nothing to do with the state of this node.
        return (phase, summary, last_run.filter(|report| report.plan.is_some()).and_then(failure));
    }
    let Some(report) = last_run else {
        return (Phase::NotStarted, "a bundle is here, nothing was done yet; next: nodestrap apply".to_owned(), None);
    };
    if let Some(blocked) = failure(report) {
        return (Phase::Failed, format!("stopped at {}; the gate is shut", blocked.by), Some(blocked));
    }
    if let RunOutcome::Rebooting { why, .. } = &report.outcome {
        return (Phase::Rebooting, format!("rebooting: {why}; resumes by itself"), None);
    }
    if is_complete(report) {
        let what = if *gate == GateState::Absent { "is gone" } else { "is damaged" };
        let summary = format!(
            "was complete, but the gate {} {what}: the kubelet does not start again before it is open, which the bootstrap \
             unit sees to at the next boot; next: nodestrap apply",
            bundle.gate.path
        );
        return (Phase::Unfinished, summary, None);
    }
    let done = report.steps.iter().filter(|step| is_done(&step.outcome)).count();
    let summary = format!("{done} of {} steps done; the next apply resumes", report.steps.len());
    (Phase::Unfinished, summary, None)
}

fn failure(report: &Report) -> Option<Blocked> {
    let RunOutcome::Failed { step, class, message, advice } = &report.outcome else { return None };
    Some(Blocked {
        by: step.0.clone(),
        class: *class,
        reason: message.clone(),
        output: report.step(step.as_str()).and_then(|step| step.output.clone()),
        advice: advice.clone(),
        since: Some(report.started_at.after(Duration::from_millis(report.duration_ms)).to_string()),
    })
}

fn plan_of(last_run: Option<&Report>) -> Option<String> {
    last_run?.plan.as_ref().map(ToString::to_string)
}

fn notes(last_run: Option<&Report>) -> Vec<String> {
    let steps = last_run.map(|report| report.steps.as_slice()).unwrap_or_default();
    let done = steps.iter().filter(|step| is_done(&step.outcome));
    done.filter_map(|step| step.detail.as_ref().map(|detail| format!("{}: {detail}", step.id))).collect()
}

/// The last run opened the gate, or found it open.
pub(crate) fn is_complete(report: &Report) -> bool {
    let is_reset = report.steps.iter().any(|step| step.id.0 == RESTORE_STEP);
    matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) && !is_reset
}

fn is_done(outcome: &StepOutcome) -> bool {
    matches!(outcome, StepOutcome::Done | StepOutcome::AlreadySo)
}

/// A stub says what the node shall be; only its bundle could say how far it is.
fn not_fetched(disk: &dyn Disk, stub: &Stub, last_run: Option<Report>) -> Result<Status, DiskError> {
    let gate = gate::observe_any(disk)?;
    let missing = BundleSourceError::NotFetched { stub: Box::new(stub.clone()) };
    let before = match gate {
        GateState::Open { .. } => "complete as an earlier bundle wanted it; ",
        _ => "",
    };
    Ok(Status {
        phase: Phase::NotFetched,
        summary: format!("{before}{missing}; next: nodestrap apply"),
        outlook: Outlook::default(),
        // Why it could not be fetched.
        blocked: last_run.as_ref().filter(|report| report.plan.is_none()).and_then(failure),
        facts: Vec::new(),
        notes: Vec::new(),
        cluster: Some(stub.cluster.clone()),
        group: Some(stub.group.clone()),
        bundle: Some(stub.digest.to_string()),
        bundle_source: None,
        plan: plan_of(last_run.as_ref()),
        gate: describe_gate(&gate),
        kubelet: None,
        last_run,
    })
}

fn without_bundle(disk: &dyn Disk, error: &BundleSourceError, last_run: Option<Report>) -> Result<Status, DiskError> {
    let gate = gate::observe_any(disk)?;
    let is_older = matches!(
        error,
        BundleSourceError::Broken { source: PayloadError::Bundle(BundleError::OlderApiVersion { .. }), .. }
    );
    let (phase, summary) = match (error, &gate) {
        (BundleSourceError::Absent { .. }, _) => (Phase::NotDelivered, "no bundle was delivered to this node"),
        (_, GateState::Open { .. }) if is_older => (
            Phase::BundleBroken,
            "complete as an older nodestrap made it, and stays so; its bundle has to be rendered again",
        ),
        _ => (Phase::BundleBroken, "the bundle on this node cannot be used"),
    };
    let is_forbidden =
        matches!(error, BundleSourceError::Read(disk) if disk.source.kind() == ErrorKind::PermissionDenied);
    let (class, advice) = if is_forbidden {
        (ErrorClass::NeedsOperator, "run as root: the bundle holds a secret")
    } else {
        (ErrorClass::WrongInput, "render it again and deliver it: nodestrap render FILE --group NAME")
    };
    let (by, advice) = ("bundle".to_owned(), Some(advice.to_owned()));
    let blocked = Blocked { by, class, reason: chain(error), output: None, advice, since: None };
    Ok(Status {
        phase,
        summary: summary.to_owned(),
        outlook: Outlook::default(),
        blocked: Some(blocked),
        facts: Vec::new(),
        notes: Vec::new(),
        cluster: None,
        group: None,
        bundle: None,
        bundle_source: None,
        plan: plan_of(last_run.as_ref()),
        gate: describe_gate(&gate),
        kubelet: None,
        last_run,
    })
}

fn describe_gate(gate: &GateState) -> String {
    match gate {
        GateState::Absent => "shut".to_owned(),
        GateState::Open { .. } => "open".to_owned(),
        GateState::Damaged { reason } => format!("damaged ({reason}): counts as shut"),
    }
}
