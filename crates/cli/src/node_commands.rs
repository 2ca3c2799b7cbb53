//! `apply`, `timeline` and `gate`: what runs on the node.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bundle::GATE_PATH;
use engine::{Digest, Event, Recovery, Report, RunOutcome, StepOutcome, Style, Timeline, Workers};
use host::machine::{LinuxClock, random_u64};
use node::{
    Adopt, Applied, Cleaned, DeliverBundle, Delivered, ExpectedPlan, NodeHost, SessionError, Surroundings, Verdict,
    VouchError,
};

use crate::args::{ApplyArguments, GateArguments, Output, Progress, RootArguments, TimelineArguments};
use crate::machine::{self, MachineClock};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::outside::Outside;
use crate::progress::ProgressView;
use crate::show::{Paint, Screen, width};

/// More than there are steps ready at any moment; each costs a small stack, not a core.
pub(crate) const WORKERS: usize = 4;

/// Longer than a webhook is tried for after a failure.
const LAST_WORDS: Duration = Duration::from_secs(20);

pub(crate) fn apply(arguments: &ApplyArguments, screen: &Screen) -> Outcome {
    let root = &arguments.node.root.root;
    let host = machine::open_with(root, &arguments.fetch.platform)?;
    let expected = arguments.plan.as_deref().map(expected_plan).transpose()?;
    let deliver = |tell: &dyn Fn(&str)| machine::find_bundle(&host, &arguments.node, &arguments.fetch, tell);
    let adopt = if arguments.adopt { Adopt::Yes } else { Adopt::No };
    apply_delivery(&host, root, &deliver, expected.as_ref(), adopt, arguments.progress, screen)
}

/// Whoever brings the bundle.
pub(crate) fn apply_delivery(
    host: &NodeHost,
    root: &Path,
    deliver: DeliverBundle<'_>,
    expected: Option<&ExpectedPlan>,
    adopt: Adopt,
    progress: Progress,
    screen: &Screen,
) -> Outcome {
    if !machine::is_machine(root) {
        screen.remark(&format!("units: {}", host.units.describe()));
    }
    let view = ProgressView::new(progress);
    let outside = Outside::new(host, root, screen);
    let hear = |event: &Event| {
        outside.hear(event);
        view.tell(event);
    };
    let on_hang = |applied: &Applied| {
        leave(screen, &applied.report, || Outside::new(host, root, screen).tell(applied));
    };
    let applied = with_surroundings(&hear, screen, &on_hang, |surroundings| {
        node::apply_delivery(host, deliver, expected, adopt, surroundings)
    })?;
    outside.tell(&applied);
    match exit_code(&applied.report) {
        // The journal has all of it already, with its fields.
        outcome if view.tells_journal() && screen.output == Output::Text => {
            Ok(outcome.unwrap_or_else(|failure| failure.code))
        }
        outcome => {
            let gate_open = node::is_gate_open(host.disk.as_ref(), applied.bundle.as_ref());
            let text = || match applied.report.plan {
                Some(_) => report_text(screen, &applied.report, gate_open),
                // Of a run without a plan there is nothing to say but the error, and that it has changed nothing.
                None => format!("nothing was changed; the gate is {}\n", gate_word(gate_open)),
            };
            screen.result(&applied.report, text)?;
            outcome
        }
    }
}

/// A digest, or the file with what `plan -o json` printed.
fn expected_plan(text: &str) -> Result<ExpectedPlan, Failure> {
    if let Ok(digest) = text.parse::<Digest>() {
        return Ok(ExpectedPlan::from(digest));
    }
    let unreadable = || format!("{text:?} is neither the digest of a plan nor a file with one");
    let json = std::fs::read_to_string(text).with_context(unreadable).or_fail(Code::WrongInput)?;
    ExpectedPlan::parse(&json).with_context(|| format!("cannot use {text:?}")).or_fail(Code::WrongInput)
}

/// Runs the plan with progress on standard error.
pub(crate) fn converge(
    host: &NodeHost,
    delivered: &Delivered,
    view: &ProgressView,
    screen: &Screen,
) -> Result<Report, Failure> {
    let on_hang = |applied: &Applied| leave(screen, &applied.report, || {});
    let run = |surroundings: &Surroundings<'_>| node::apply(host, delivered, surroundings);
    with_surroundings(&|event| view.tell(event), screen, &on_hang, run)
}

/// Ends the process whose run hangs, with its error and its exit code. Whatever else is to be said may hang on the same disk,
/// and then is not.
pub(crate) fn leave(screen: &Screen, report: &Report, tell: impl FnOnce()) {
    let Err(failure) = exit_code(report) else { return };
    let code = failure.code as i32;
    screen.error(&failure);
    std::thread::spawn(move || {
        std::thread::sleep(LAST_WORDS);
        std::process::exit(code);
    });
    tell();
    std::process::exit(code);
}

fn with_surroundings<T>(
    sink: &dyn Fn(&Event),
    screen: &Screen,
    on_hang: &(dyn Fn(&Applied) + Sync),
    run: impl FnOnce(&Surroundings<'_>) -> Result<T, SessionError>,
) -> Result<T, Failure> {
    let clock = MachineClock(LinuxClock::new());
    let surroundings = Surroundings {
        clock: &clock,
        jitter: &random_u64,
        workers: Workers::Threads(WORKERS),
        sink,
        on_recovery: &|recovery| tell_recovery(recovery, screen),
        on_hang,
    };
    run(&surroundings).map_err(session_failure)
}

pub(crate) fn tell_recovery(recovery: &Recovery, screen: &Screen) {
    if let Some(damaged) = &recovery.damaged {
        screen.remark(&format!(
            "the journal is damaged from line {} on; what it said after that is done again",
            damaged.line
        ));
    } else if recovery.torn_bytes > 0 {
        screen.remark("the last run was cut off; resuming");
    }
}

pub(crate) fn exit_code(report: &Report) -> Outcome {
    match &report.outcome {
        RunOutcome::Failed { class, message, step, advice } => {
            let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
            Err(Failure { code: (*class).into(), error: anyhow::anyhow!("{}: {message}{advice}", step.0) })
        }
        RunOutcome::Rebooting { .. } => Ok(Code::Reboot),
        _ => Ok(Code::Done),
    }
}

/// `gate_open`: as it was found after the run, which need not have had anything to do with it.
pub(crate) fn report_text(screen: &Screen, report: &Report, gate_open: bool) -> String {
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
        RunOutcome::Rebooting { why, .. } => {
            format!("{} rebooting: {why}; resumes by itself\n", screen.paint(Paint::Strong, "↻"))
        }
        // The error line that follows says why.
        _ => format!(
            "{} {done} of {} steps done; the gate is {}\n",
            screen.paint(Paint::Bad, "✗"),
            report.steps.len(),
            gate_word(gate_open)
        ),
    }
}

fn gate_word(is_open: bool) -> &'static str {
    if is_open { "open" } else { "shut" }
}

pub(crate) fn session_failure(error: SessionError) -> Failure {
    let code = match &error {
        SessionError::Busy => Code::Busy,
        other => other.class().into(),
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

/// Run by the kubelet's unit before each start; see [`node::vouch`].
pub(crate) fn gate(arguments: &GateArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root.root)?;
    let path = arguments.path.as_deref().unwrap_or(Path::new(GATE_PATH)).display().to_string();
    let verdict = node::vouch(host.disk.as_ref(), host.machine.as_ref(), &path).map_err(|error| {
        let code = match &error {
            VouchError::NotAGate { .. } => Code::WrongInput,
            VouchError::File(_) => Code::NeedsPerson,
        };
        Failure { code, error: error.into() }
    })?;
    let refused = |code, error| Err(Failure { code, error });
    match verdict {
        Verdict::Open { remarks } => {
            for remark in remarks {
                screen.remark(&format!("warning: {remark}"));
            }
            Ok(Code::Done)
        }
        Verdict::Shut => {
            refused(Code::MayRetry, anyhow::anyhow!("the gate {path} is shut: the node is not complete yet"))
        }
        Verdict::TakenAway { reason } => refused(
            Code::MayRetry,
            anyhow::anyhow!("{reason}; the gate {path} is taken away, and the bootstrap runs again"),
        ),
        Verdict::AnotherMachine(refusal) => refused(
            Code::NeedsPerson,
            anyhow::anyhow!("the kubelet does not start: {}; {}", refusal.reason, refusal.advice),
        ),
    }
}

/// Early in a boot; nothing else of nodestrap runs then.
pub(crate) fn clean_runtime_data(arguments: &RootArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root)?;
    let boot = host.machine.boot_id().or_fail(Code::NeedsPerson)?;
    let cleaned = node::clean_runtime_data(host.disk.as_ref(), &boot);
    let cleaned = cleaned.map_err(|error| Failure { code: error.class().into(), error: error.into() })?;
    let said = match cleaned {
        Cleaned::NothingToDo => "nothing to clean".to_owned(),
        Cleaned::SameBoot => "nothing is cleaned before the machine has been rebooted".to_owned(),
        Cleaned::OtherVersion { wanted, runs } => {
            format!("nothing is cleaned: version {wanted} of the runtime was to run in this boot, and {runs} does")
        }
        Cleaned::Done { folder } => format!("{folder} was of another version of the runtime, and is gone"),
    };
    screen.remark(&said);
    Ok(Code::Done)
}
