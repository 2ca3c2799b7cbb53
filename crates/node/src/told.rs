//! What the outside is told about a run: a report, sentinels and a webhook. Nothing here can fail a run.
//!
//! | path | when | what |
//! |---|---|---|
//! | `/run/nodestrap/report.json` | after each run | the report, for everybody on the machine; lost with the boot |
//! | `/var/lib/nodestrap/report.json` | after each run that did something | the same, for root; durable |
//! | `/run/nodestrap/success`, `/run/nodestrap/failed` | one of them after each run | one line |
//! | `/run/cluster-api/bootstrap-success.complete` | while the gate is open | `success`, as Cluster API wants it |
//!
//! All of them are taken away when a run begins to change something. Those under `/run` cannot outlive their boot.

use std::path::Path;
use std::time::Duration;

use bundle::{Bundle, WEBHOOK_SETTINGS_PATH, Webhook};
use engine::{Report, RunOutcome};
use fetch::{Post, PostError};
use host::disk::Disk;
use host::files::{self, FileError};
use serde::Serialize;

use crate::resource::gate;
use crate::session::{Applied, NodeHost};
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub const REPORT_PATH: &str = "/run/nodestrap/report.json";
pub const DURABLE_REPORT_PATH: &str = "/var/lib/nodestrap/report.json";
pub const SUCCESS_PATH: &str = "/run/nodestrap/success";
pub const FAILED_PATH: &str = "/run/nodestrap/failed";
/// The contract of Cluster API's bootstrap providers.
pub const CLUSTER_API_PATH: &str = "/run/cluster-api/bootstrap-success.complete";

/// Of the report, which has not changed with the bundle.
const API_VERSION: &str = "nodestrap.io/v1alpha1";

/// No secrets inside.
const MODE: u32 = 0o644;
const SETTINGS_LIMIT: u64 = 64 * 1024;

/// When the gate is open the kubelet waits for us to end, so a webhook that is not there must not cost it long.
const SUCCESS_DEADLINE: Duration = Duration::from_secs(3);
/// Nobody waits for a run that failed.
const FAILURE_DEADLINE: Duration = Duration::from_secs(10);

/// What is told: the engine's report, and which node it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    api_version: &'static str,
    kind: &'static str,
    pub result: RunResult,
    /// One line for people.
    pub summary: String,
    pub gate_open: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    pub run: Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RunResult {
    Success,
    Failure,
    /// Neither: the run ended to be resumed, such as after a reboot.
    Unfinished,
}

impl NodeReport {
    pub fn new(host: &NodeHost, applied: &Applied) -> Self {
        let (report, bundle) = (&applied.report, applied.bundle.as_ref());
        let gate_open = gate::is_any_open(host.disk.as_ref(), bundle);
        let result = match &report.outcome {
            RunOutcome::Done | RunOutcome::NothingToDo => RunResult::Success,
            RunOutcome::Failed { .. } => RunResult::Failure,
            RunOutcome::Rebooting { .. } | RunOutcome::Unfinished => RunResult::Unfinished,
        };
        let hostname = host.machine.hostname().ok();
        let node = hostname.as_deref().unwrap_or("this node");
        let of = bundle.map(|bundle| format!(" of {}/{}", bundle.cluster, bundle.group)).unwrap_or_default();
        let summary = format!("{node}{of}: {}", describe(&report.outcome, gate_open));
        Self {
            api_version: API_VERSION,
            kind: "NodeReport",
            result,
            summary,
            gate_open,
            hostname,
            cluster: bundle.map(|bundle| bundle.cluster.clone()),
            group: bundle.map(|bundle| bundle.group.clone()),
            bundle: bundle.map(|bundle| bundle.digest().to_string()),
            run: report.clone(),
        }
    }

    pub fn to_json(&self) -> String {
        // Names and texts only: it cannot fail, and if it did, an empty report is better than a failed run.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}

fn describe(outcome: &RunOutcome, gate_open: bool) -> String {
    match outcome {
        RunOutcome::Done => "complete, the gate is open".to_owned(),
        RunOutcome::NothingToDo => "complete, nothing had to be done".to_owned(),
        RunOutcome::Failed { step, message, advice, .. } => {
            let gate = if gate_open { "open" } else { "shut" };
            let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
            format!("FAILED at {step}, the gate is {gate}: {message}{advice}")
        }
        RunOutcome::Rebooting { why, .. } => format!("rebooting: {why}; resumes by itself"),
        RunOutcome::Unfinished => "not ended, the next run resumes".to_owned(),
    }
}

/// For the first change of a run, and for a reset: what was told about the run before does not hold any more.
pub fn withdraw(disk: &dyn Disk) -> Result<(), FileError> {
    for path in [CLUSTER_API_PATH, SUCCESS_PATH, FAILED_PATH] {
        disk.remove(Path::new(path))?;
    }
    remove_leftovers(disk)
}

/// What a run that was killed while it told of itself has left.
fn remove_leftovers(disk: &dyn Disk) -> Result<(), FileError> {
    let all = [REPORT_PATH, DURABLE_REPORT_PATH, SUCCESS_PATH, FAILED_PATH, CLUSTER_API_PATH];
    all.iter().try_for_each(|path| files::remove_leftover(disk, Path::new(path)).map(drop))
}

/// Writes report and sentinels. A run that found nothing to do, as the last one of this boot did, leaves them alone.
pub fn tell(disk: &dyn Disk, report: &NodeReport) -> Result<(), FileError> {
    let (mine, other) = match report.result {
        RunResult::Success => (Some(SUCCESS_PATH), FAILED_PATH),
        RunResult::Failure => (Some(FAILED_PATH), SUCCESS_PATH),
        RunResult::Unfinished => (None, SUCCESS_PATH),
    };
    remove_leftovers(disk)?;
    if report.run.outcome == RunOutcome::NothingToDo && disk.stat(Path::new(SUCCESS_PATH))?.is_some() {
        return Ok(());
    }
    let json = report.to_json();
    let write = |path: &str, bytes: &[u8]| files::write_volatile(disk, Path::new(path), MODE, bytes);
    write(REPORT_PATH, json.as_bytes())?;
    disk.remove(Path::new(other))?;
    if report.gate_open {
        write(CLUSTER_API_PATH, b"success")?;
    } else {
        disk.remove(Path::new(CLUSTER_API_PATH))?;
    }
    disk.make_folder(Path::new(STATE_FOLDER), STATE_FOLDER_MODE)?;
    let kept = files::write_durable(disk, Path::new(DURABLE_REPORT_PATH), MODE, json.as_bytes(), None);
    // Last, because it says that all the rest was told; but a disk that is full is no reason to be silent.
    match mine {
        Some(path) => write(path, format!("{}\n", report.summary).as_bytes()).and(kept),
        None => kept,
    }
}

/// Sends the report to the webhook of the bundle, or, if none came, of the last bundle that was applied. `None`: there is no
/// webhook.
pub fn tell_webhook(
    disk: &dyn Disk,
    applied: &Applied,
    report: &NodeReport,
    random: &dyn Fn() -> u64,
) -> Option<Result<(), PostError>> {
    let settings = webhook(disk, applied.bundle.as_ref())?;
    let deadline = if report.gate_open { SUCCESS_DEADLINE } else { FAILURE_DEADLINE };
    let headers = settings.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    Some(fetch::post(&Post {
        url: settings.url.expose(),
        authorities: settings.certificate_authority.as_deref(),
        headers: &headers,
        body: report.to_json().as_bytes(),
        deadline,
        random,
    }))
}

fn webhook(disk: &dyn Disk, bundle: Option<&Bundle>) -> Option<Webhook> {
    match bundle {
        Some(bundle) => bundle.webhook.clone(),
        None => Webhook::parse(&disk.read(Path::new(WEBHOOK_SETTINGS_PATH), SETTINGS_LIMIT).ok()??).ok(),
    }
}
