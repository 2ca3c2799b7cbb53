//! `plan`, `apply`, `timeline` and `gate`: what runs on the node.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use engine::{Condition, Plan, Recovery, Report, RunOutcome, StepOutcome, Style, Timeline, Workers};
use host::machine::{LinuxClock, random_u64};
use node::{Action, Delivered, Facts, GateState, NodeHost, Preview, SessionError, Surroundings};
use render::gate::GATE_PATH;
use serde::Serialize;

use crate::args::{ApplyArguments, GateArguments, PlanArguments, TimelineArguments};
use crate::machine::{self, MachineClock};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::progress::ProgressView;
use crate::show::{Paint, Screen, table, width};

/// More than there are steps ready at any moment; each costs a small stack, not a core.
const WORKERS: usize = 4;

pub(crate) fn plan(arguments: &PlanArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.node.root.root)?;
    let tell = |line: &str| screen.remark(line);
    let bundle = machine::fetch_bundle(&host, &arguments.node, &arguments.fetch, &tell)?.bundle;
    let (facts, plan) = node::prepare(&host, &bundle).map_err(session_failure)?;
    let clock = MachineClock(LinuxClock::new());
    let previews = node::preview(&host, &bundle, &plan, &clock).map_err(session_failure)?;
    screen.result(&PlanView::new(&facts, &plan), || plan_text(screen, &facts, &plan, &previews))
}

/// What `plan -o json` prints: the canonical plan, and what is around it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanView<'a> {
    digest: String,
    facts: &'a Facts,
    plan: &'a Plan<Action>,
}

impl<'a> PlanView<'a> {
    fn new(facts: &'a Facts, plan: &'a Plan<Action>) -> Self {
        Self { digest: plan.digest().to_string(), facts, plan }
    }
}

pub(crate) fn plan_text(screen: &Screen, facts: &Facts, plan: &Plan<Action>, previews: &[Preview]) -> String {
    let inputs = &plan.inputs;
    let input = |name: &str| inputs.get(name).map_or("", String::as_str);
    let mut text = format!("{} {}\n", screen.paint(Paint::Strong, "plan"), plan.digest());
    text.push_str(&table(&[
        vec![
            "for".to_owned(),
            format!("{}, group {}, Kubernetes {}", input("cluster"), input("group"), input("kubernetes")),
        ],
        vec!["on".to_owned(), format!("{}, {}, {}", facts.hostname.value, facts.os.value.name, place(facts))],
        vec!["bundle".to_owned(), input("bundle").to_owned()],
    ]));
    text.push('\n');
    let rows: Vec<Vec<String>> = plan
        .steps
        .iter()
        .zip(previews)
        .map(|(step, preview)| {
            let state = match &preview.condition {
                Ok(Condition::AlreadySo) => screen.paint(Paint::Quiet, "already so"),
                Ok(Condition::Needed(why)) => format!("to do: {why}"),
                Err(error) => screen.paint(Paint::Bad, &format!("blocked: {error}")),
            };
            vec![step.id.0.clone(), describe(&step.action), state]
        })
        .collect();
    text.push_str(&table(&rows));
    text
}

fn place(facts: &Facts) -> String {
    match facts.instance_id.value.as_str() {
        "" => facts.platform.value.clone(),
        instance => format!("{} {instance}", facts.platform.value),
    }
}

fn describe(action: &Action) -> String {
    match action {
        Action::CheckBundle { .. } => "the bundle is for this machine and this version".to_owned(),
        Action::CheckPrograms { paths } => format!("{} programs of the image", paths.len()),
        Action::MakeFolders { paths } => paths.join(" "),
        Action::StageFiles { files } => format!("{} files, beside the old ones", files.len()),
        Action::CommitFiles { files } => format!("{} files: one sync, then switched in", files.len()),
        Action::CommitHooks { files } => format!("{} units of hooks, before the other files", files.len()),
        Action::RunHook { unit, slot, required, .. } => {
            format!("{unit}, {slot}, {}", if *required { "required" } else { "optional" })
        }
        Action::VerifyFiles { files } => format!("{} files, read back", files.len()),
        Action::CloseGate { path } => path.clone(),
        Action::OpenGate { path, environment } => gate_text(path, environment),
        Action::ReloadUnits { units } => format!("{} unit files", units.len()),
        Action::EnableUnits { units } => units.join(" "),
        Action::StartUnit { unit } => format!("{unit}, and wait for it"),
        Action::ArmUnit { unit } => format!("{unit}: queued behind the gate"),
        Action::ReleaseUnit { unit } => format!("{unit}: free to start"),
        Action::AliasSnapApps { aliases } => {
            aliases.iter().map(|(alias, app)| format!("{alias} for {app}")).collect::<Vec<_>>().join(", ")
        }
        Action::StopSnap { snap, .. } => format!("{snap}, by snapd"),
        Action::ResetUnit { unit } => format!("{unit}: earlier failures forgotten"),
        Action::SetSnap { snap, settings } => format!("{} settings of {snap}", settings.len()),
        Action::StartSnap { snap } => format!("{snap}, by snapd, and wait for it"),
    }
}

/// With what the node alone knows, if it is that what the gate says.
fn gate_text(path: &str, environment: &BTreeMap<String, String>) -> String {
    let known = ["INSTANCE_ID", "INSTANCE_TYPE", "MAX_PODS", "NODE_IP"];
    let shown = known.iter().filter_map(|name| Some(format!("{name}={}", environment.get(*name)?)));
    [path.to_owned()].into_iter().chain(shown).collect::<Vec<_>>().join(" ")
}

pub(crate) fn apply(arguments: &ApplyArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.node.root.root)?;
    let view = ProgressView::new(arguments.progress);
    let delivered = machine::fetch_bundle(&host, &arguments.node, &arguments.fetch, &|line| view.say(line))?;
    if !machine::is_machine(&arguments.node.root.root) {
        screen.remark(&format!("units: {}", host.units.describe()));
    }
    let report = converge(&host, &delivered, &view, screen)?;
    screen.result(&report, || report_text(screen, &report))?;
    exit_code(&report)
}

/// Runs the plan with progress on standard error.
pub(crate) fn converge(
    host: &NodeHost,
    delivered: &Delivered,
    view: &ProgressView,
    screen: &Screen,
) -> Result<Report, Failure> {
    let clock = MachineClock(LinuxClock::new());
    let surroundings = Surroundings {
        clock: &clock,
        jitter: &random_u64,
        workers: Workers::Threads(WORKERS),
        sink: &|event| view.tell(event),
        on_recovery: &|recovery| tell_recovery(recovery, screen),
    };
    node::apply(host, delivered, &surroundings).map_err(session_failure)
}

fn tell_recovery(recovery: &Recovery, screen: &Screen) {
    if let Some(damaged) = &recovery.damaged {
        screen.remark(&format!(
            "the journal is damaged from line {} on; what it said after that is done again",
            damaged.line
        ));
    } else if recovery.torn_bytes > 0 {
        screen.remark("the last run was cut off; resuming");
    }
}

fn exit_code(report: &Report) -> Outcome {
    match &report.outcome {
        RunOutcome::Failed { class, message, step, advice } => {
            let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
            Err(Failure { code: (*class).into(), error: anyhow::anyhow!("{}: {message}{advice}", step.0) })
        }
        _ => Ok(Code::Done),
    }
}

pub(crate) fn report_text(screen: &Screen, report: &Report) -> String {
    let count = |wanted: fn(&StepOutcome) -> bool| report.steps.iter().filter(|step| wanted(&step.outcome)).count();
    let done = count(|outcome| matches!(outcome, StepOutcome::Done));
    match &report.outcome {
        RunOutcome::NothingToDo => {
            format!("{} nothing to do: this node is as planned\n", screen.paint(Paint::Good, "✓"))
        }
        RunOutcome::Done => format!(
            "{} node complete: {done} of {} steps done in {} ms; the gate is open\n",
            screen.paint(Paint::Good, "✓"),
            report.steps.len(),
            report.duration_ms
        ),
        // The error line that follows says why.
        _ => {
            let gate = if gate_is_open(report) { "open" } else { "shut" };
            format!(
                "{} {done} of {} steps done; the gate is {gate}\n",
                screen.paint(Paint::Bad, "✗"),
                report.steps.len()
            )
        }
    }
}

fn gate_is_open(report: &Report) -> bool {
    let opened = report.step("open-gate").map(|step| step.outcome);
    matches!(opened, Some(StepOutcome::Done | StepOutcome::AlreadySo))
}

pub(crate) fn session_failure(error: SessionError) -> Failure {
    let code = match &error {
        SessionError::Busy => Code::Busy,
        SessionError::Plan(_) => Code::WrongInput,
        SessionError::Facts(_) | SessionError::Lock(_) | SessionError::Journal(_) | SessionError::Keep(_) => {
            Code::NeedsPerson
        }
    };
    Failure { code, error: error.into() }
}

pub(crate) fn timeline(arguments: &TimelineArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root.root)?;
    let (events, _) = node::load_events(host.disk.as_ref()).or_fail(Code::NeedsPerson)?;
    if events.is_empty() {
        return Err(Failure {
            code: Code::WrongInput,
            error: anyhow::anyhow!("this node has no journal yet; nodestrap apply makes one"),
        });
    }
    let timeline = Timeline::from_events(&events);
    let Some(picture) = &arguments.svg else {
        return screen.result(&events, || timeline_text(screen, &timeline));
    };
    if picture == Path::new("-") {
        screen.print(&timeline.to_svg())?;
    } else {
        write_picture(picture, &timeline)?;
    }
    Ok(Code::Done)
}

pub(crate) fn write_picture(path: &Path, timeline: &Timeline) -> Result<(), Failure> {
    std::fs::write(path, timeline.to_svg())
        .with_context(|| format!("cannot write {:?}", path.display().to_string()))
        .or_fail(Code::NeedsPerson)
}

pub(crate) fn timeline_text(screen: &Screen, timeline: &Timeline) -> String {
    timeline.to_text(width(), if screen.colour_out() { Style::Colour } else { Style::Plain })
}

/// Run by the kubelet's unit before each start. A damaged gate is taken away, so that the bootstrap runs again.
pub(crate) fn gate(arguments: &GateArguments, _screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root.root)?;
    let path = arguments.path.as_deref().unwrap_or(Path::new(GATE_PATH)).display().to_string();
    match node::observe_gate(host.disk.as_ref(), &path).or_fail(Code::NeedsPerson)? {
        GateState::Open { .. } => Ok(Code::Done),
        GateState::Absent => Err(Failure {
            code: Code::MayRetry,
            error: anyhow::anyhow!("the gate {path} is shut: the node is not complete yet"),
        }),
        GateState::Damaged { reason } => {
            host::files::remove_durable(host.disk.as_ref(), Path::new(&path)).or_fail(Code::NeedsPerson)?;
            Err(Failure {
                code: Code::MayRetry,
                error: anyhow::anyhow!(
                    "the gate {path} was damaged ({reason}) and is taken away; the bootstrap runs again"
                ),
            })
        }
    }
}
