//! `status`: where the node is, and what blocks it. If the kubelet has not joined yet, the API server is asked why.

use std::path::Path;
use std::time::Duration;

use cluster::{JoinAnswer, NodeCondition};
use engine::ErrorClass;
use node::{Blocked, NodeHost, Phase, Status};
use render::bundle::Bundle;
use serde::Serialize;

use crate::args::StatusArguments;
use crate::machine;
use crate::outcome::{Code, OrFail, Outcome};
use crate::show::{Paint, Screen, table};

/// People wait for this.
const QUESTION_DEADLINE: Duration = Duration::from_secs(5);
/// No kubeconfig is near this size.
const KUBECONFIG_LIMIT: u64 = 1024 * 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    #[serde(flatten)]
    status: Status,
    /// What the API server says about this Node.
    node: Option<String>,
}

pub(crate) fn run(arguments: &StatusArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.node.root.root)?;
    let bundle = machine::load_bundle(&host, &arguments.node, None, &|_| {});
    let (mut status, bundle) =
        node::observe_status(host.disk.as_ref(), host.units.as_ref(), bundle).or_fail(Code::NeedsPerson)?;
    if arguments.brief {
        screen.print(&format!("{}\n", status.summary))?;
        return Ok(code(&status));
    }
    let mut node = None;
    if let (Some(bundle), true) = (&bundle, machine::is_machine(&arguments.node.root.root)) {
        match status.phase {
            // What keeps it from joining matters more than what failed after the gate was open.
            Phase::Joining => status.blocked = ask_why_not_joined(&host, bundle).or(status.blocked.take()),
            Phase::Joined => node = ask_about_node(&host, bundle, &mut status),
            _ => {}
        }
    }
    let view = StatusView { status, node };
    screen.result(&view, || text(screen, &view))?;
    Ok(code(&view.status))
}

fn code(status: &Status) -> Code {
    match &status.blocked {
        Some(blocked) => blocked.class.into(),
        None => Code::Done,
    }
}

fn ask_why_not_joined(host: &NodeHost, bundle: &Bundle) -> Option<Blocked> {
    let kubeconfig = read(host, &bundle.join.bootstrap_kubeconfig)?;
    let server = &bundle.join.api_server;
    let blocked = |class, reason: String, advice: &str| {
        Some(Blocked { by: "join".to_owned(), class, reason, advice: Some(advice.to_owned()), since: None })
    };
    let answer = match ask(cluster::ask_whether_node_may_join(&kubeconfig, QUESTION_DEADLINE)) {
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
    let kubeconfig = read(host, &bundle.join.kubeconfig)?;
    let name = host.node_name(bundle.join.node_name.as_deref()).ok()?;
    match ask(cluster::node_condition(&kubeconfig, &name, QUESTION_DEADLINE)) {
        Ok(NodeCondition::Ready) => Some("Ready".to_owned()),
        Ok(NodeCondition::NotReady { reason }) => {
            status.blocked = Some(Blocked {
                by: "node".to_owned(),
                class: ErrorClass::Transient,
                reason: format!("Node {name} is not Ready: {reason}"),
                advice: Some("journalctl -u kubelet -u nodestrap-network says more".to_owned()),
                since: None,
            });
            Some("NotReady".to_owned())
        }
        Ok(NodeCondition::Absent) => Some("not registered yet".to_owned()),
        Err(error) => Some(format!("unknown: {:#}", anyhow::Error::from(error))),
    }
}

fn read(host: &NodeHost, path: &str) -> Option<String> {
    let bytes = host.disk.read(Path::new(path), KUBECONFIG_LIMIT).ok()??;
    String::from_utf8(bytes).ok()
}

/// Runs one question to its end on this thread.
pub(crate) fn ask<T>(
    question: impl Future<Output = Result<T, cluster::ClusterError>>,
) -> Result<T, cluster::ClusterError> {
    cluster::block_on(question)?
}

fn text(screen: &Screen, view: &StatusView) -> String {
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
        row("last run", Some(format!("{} ({} ms)", report.started_at, report.duration_ms)));
    }
    if let Some(blocked) = &status.blocked {
        row("blocked by", Some(screen.paint(Paint::Bad, &blocked.by)));
        row("why", Some(blocked.reason.clone()));
        row("what to do", blocked.advice.clone());
        row("since", blocked.since.clone());
    }
    for note in &status.notes {
        row("note", Some(note.clone()));
    }
    format!("{mark} {}\n{}", status.summary, table(&rows))
}
