//! `status`: where the node is, and what blocks it. If the kubelet has not joined yet, the API server is asked why.

use std::time::Duration;

use bundle::Bundle;
use cluster::{JoinAnswer, NodeCondition};
use engine::{Clock as _, ErrorClass, Report, RunOutcome};
use host::machine::LinuxClock;
use node::{Blocked, NodeHost, Phase, Status};
use serde::Serialize;

use crate::args::StatusArguments;
use crate::machine::{self, MachineClock};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::{Paint, Screen, table};
use crate::status_watch;

/// People wait for this.
const QUESTION_DEADLINE: Duration = Duration::from_secs(5);

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusView {
    #[serde(flatten)]
    pub(crate) status: Status,
    /// What the API server says about this Node.
    node: Option<String>,
}

pub(crate) fn run(arguments: &StatusArguments, screen: &Screen) -> Outcome {
    let as_json = arguments.json.then(|| screen.as_json());
    let screen = as_json.as_ref().unwrap_or(screen);
    let host = machine::open(&arguments.node.root.root)?;
    if arguments.watch {
        return status_watch::run(arguments, &host, screen);
    }
    let view = look(arguments, &host)?;
    if arguments.brief {
        screen.print(&format!("{}\n", view.status.summary))?;
        return Ok(code(&view.status));
    }
    screen.result(&view, || text(screen, &view))?;
    Ok(code(&view.status))
}

pub(crate) fn look(arguments: &StatusArguments, host: &NodeHost) -> Result<StatusView, Failure> {
    let bundle = machine::load_bundle(host, &arguments.node, None, &|_| {});
    let (mut status, bundle) = node::observe_status(host, bundle).or_fail(Code::NeedsPerson)?;
    if let (Some(bundle), Phase::Joined, None) = (&bundle, status.phase, &status.blocked) {
        let now = MachineClock(LinuxClock::new()).now();
        status.blocked = node::find_ended_certificate(host.disk.as_ref(), bundle, now).or_fail(Code::NeedsPerson)?;
    }
    let mut node = None;
    if let (Some(bundle), true) = (&bundle, !arguments.brief && machine::is_machine(&arguments.node.root.root)) {
        match status.phase {
            // What keeps it from joining matters more than what failed after the gate was open.
            Phase::Joining => status.blocked = ask_why_not_joined(host, bundle).or(status.blocked.take()),
            Phase::Joined => node = ask_about_node(host, bundle, &mut status),
            _ => {}
        }
    }
    Ok(StatusView { status, node })
}

pub(crate) fn code(status: &Status) -> Code {
    match &status.blocked {
        Some(blocked) => blocked.class.into(),
        None => Code::Done,
    }
}

fn ask_why_not_joined(host: &NodeHost, bundle: &Bundle) -> Option<Blocked> {
    let server = &bundle.join.api_server;
    let blocked = |class, reason: String, advice: &str| {
        let (by, advice) = ("join".to_owned(), Some(advice.to_owned()));
        Some(Blocked { by, class, reason, output: None, advice, since: None })
    };
    let access = match node::read_access(host.disk.as_ref(), &bundle.join.bootstrap_kubeconfig) {
        Ok(access) => access,
        // Not this layout's way of joining, or nobody can ask with it: neither keeps the kubelet from joining.
        Err(_) => return None,
    };
    let answer = match ask(cluster::ask_whether_node_may_join(&access, QUESTION_DEADLINE)) {
        Ok(answer) => answer,
        Err(error) => return blocked(ErrorClass::Transient, format!("{:#}", anyhow::Error::from(error)), "try again"),
    };
    match answer {
        JoinAnswer::Welcome { .. } => None,
        JoinAnswer::TokenRefused => blocked(
            ErrorClass::NeedsOperator,
            format!("the API server {server} refuses the bootstrap token (401): it is unknown, mistyped or expired"),
            "make a new token, put it into the spec, deliver the bundle again, then: nodestrap apply",
        ),
        JoinAnswer::CertificateRefused { reason } => blocked(
            ErrorClass::NeedsOperator,
            format!("the API server {server} cannot be trusted: {reason}"),
            "compare join.certificateAuthority of the spec with the cluster's, and this machine's clock with a good one",
        ),
        JoinAnswer::Unreachable { reason } => blocked(
            ErrorClass::Transient,
            format!("the API server {server} cannot be reached: {reason}"),
            "the kubelet goes on trying; see whether the server is up and the network lets this machine through",
        ),
        JoinAnswer::Unclear { reason } => {
            blocked(ErrorClass::Transient, format!("the API server {server} answers: {reason}"), "look at its log")
        }
    }
}

fn ask_about_node(host: &NodeHost, bundle: &Bundle, status: &mut Status) -> Option<String> {
    let access = match node::read_access(host.disk.as_ref(), &bundle.join.kubeconfig) {
        Ok(access) => access,
        Err(error) => return Some(format!("unknown: {:#}", anyhow::Error::from(error))),
    };
    let name = host.node_name(bundle.join.node_name.as_deref()).ok()?;
    match ask(cluster::node_condition(&access, &name, QUESTION_DEADLINE)) {
        Ok(NodeCondition::Ready { .. }) => Some("Ready".to_owned()),
        Ok(NodeCondition::NotReady { reason }) => {
            status.blocked = Some(Blocked {
                by: "node".to_owned(),
                class: ErrorClass::Transient,
                reason: format!("Node {name} is not Ready: {reason}"),
                output: None,
                advice: Some("journalctl -u kubelet -u nodestrap-network says more".to_owned()),
                since: None,
            });
            Some("NotReady".to_owned())
        }
        Ok(NodeCondition::Absent) => Some("not registered yet".to_owned()),
        Err(error) => Some(format!("unknown: {:#}", anyhow::Error::from(error))),
    }
}

/// Runs one question to its end on this thread.
pub(crate) fn ask<T>(
    question: impl Future<Output = Result<T, cluster::ClusterError>>,
) -> Result<T, cluster::ClusterError> {
    cluster::block_on(question)?
}

/// How a run ended that was no success: the state of the node may be another thing.
fn ended(report: &Report) -> String {
    match &report.outcome {
        RunOutcome::Failed { step, message, .. } => format!(": failed at {step}: {message}"),
        _ => String::new(),
    }
}

pub(crate) fn text(screen: &Screen, view: &StatusView) -> String {
    let status = &view.status;
    let good = matches!(status.phase, Phase::Joined | Phase::Joining) && status.blocked.is_none();
    let mark = if good { screen.paint(Paint::Good, "✓") } else { screen.paint(Paint::Bad, "✗") };
    let mut rows = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            rows.push(vec![name.to_owned(), value]);
        }
    };
    if let (Some(cluster), Some(group)) = (&status.cluster, &status.group) {
        row("node of", Some(format!("{cluster}, group {group}")));
    }
    row("gate", Some(status.gate.clone()));
    row("kubelet", status.kubelet.as_ref().map(|unit| format!("{:?}", unit.active).to_lowercase()));
    row("node", view.node.clone());
    row("bundle", status.bundle.clone());
    row("from", status.bundle_source.clone());
    row("plan", status.plan.clone());
    if let Some(report) = &status.last_run {
        row("last run", Some(format!("{} ({} ms){}", report.started_at, report.duration_ms, ended(report))));
    }
    row("since", status.outlook.since.clone());
    if !status.outlook.now.is_empty() {
        row("now", Some(status.outlook.now.join(", ")));
    }
    if let Some(blocked) = &status.blocked {
        row("blocked by", Some(screen.paint(Paint::Bad, &blocked.by)));
        row("why", Some(blocked.reason.clone()));
        row("it said", blocked.output.clone());
        row("what to do", blocked.advice.clone());
        row("blocked since", blocked.since.clone());
    }
    row("next", status.outlook.next.clone());
    for note in &status.notes {
        row("note", Some(note.clone()));
    }
    let mut text = format!("{mark} {}\n{}", status.summary, table(&rows));
    if !status.facts.is_empty() {
        text.push_str(&format!("\n{}\n", screen.paint(Paint::Strong, "decided from")));
        let from = |source: &str| screen.paint(Paint::Quiet, &format!("({source})"));
        let value = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
        let facts = status.facts.iter().map(|fact| vec![fact.name.clone(), value(&fact.value), from(&fact.source)]);
        text.push_str(&table(&facts.collect::<Vec<_>>()));
    }
    text
}
