//! `reset`: undoes what nodestrap did to this node.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use bundle::BUNDLE_PATH;
use engine::{Plan, Report, RunOutcome, Workers};
use host::machine::{LinuxClock, random_u64};
use node::{Forgotten, Preview, ResetAction, ResetOptions, Surroundings};
use serde::Serialize;

use crate::args::ResetArguments;
use crate::machine::{self, MachineClock};
use crate::node_commands::{WORKERS, exit_code, leave, session_failure, tell_recovery};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::planning::steps_text;
use crate::progress::ProgressView;
use crate::show::{Paint, Screen};

/// What `-o json` prints of a plan.
#[derive(Serialize)]
struct ResetView<'a> {
    digest: Option<String>,
    plan: Option<&'a Plan<ResetAction>>,
}

pub(crate) fn run(arguments: &ResetArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.node.root.root)?;
    let options = ResetOptions { force: arguments.force, kubelet_state: arguments.kubelet_state };
    let clock = MachineClock(LinuxClock::new());
    let plan = node::plan_reset(&host, options).map_err(session_failure)?;
    let previews = match &plan {
        Some(plan) => node::preview_reset(&host, plan, &clock).map_err(session_failure)?,
        None => Vec::new(),
    };
    if arguments.dry_run {
        let view = ResetView { digest: plan.as_ref().map(|plan| plan.digest().to_string()), plan: plan.as_ref() };
        return screen.result(&view, || plan_text(screen, plan.as_ref(), &previews));
    }
    if !arguments.yes {
        confirm(screen, plan.as_ref(), &previews)?;
    }
    let view = ProgressView::new(arguments.progress).ending_with("what nodestrap made is gone");
    let surroundings = Surroundings {
        clock: &clock,
        jitter: &random_u64,
        workers: Workers::Threads(WORKERS),
        sink: &|event| view.tell(event),
        on_recovery: &|recovery| tell_recovery(recovery, screen),
        on_hang: &|applied| leave(screen, &applied.report, || {}),
    };
    // Only to find what an interrupted apply may have left; without it the reset is as good.
    let bundle = machine::load_bundle(&host, &arguments.node, None, &|_| {}).ok().map(|delivered| delivered.bundle);
    let (report, forgotten) = node::reset(&host, bundle.as_ref(), options, &surroundings).map_err(session_failure)?;
    let delivery = match host.disk.stat(BUNDLE_PATH.as_ref()).or_fail(Code::NeedsPerson)? {
        None => Delivery::Elsewhere,
        Some(_) if bundle.is_some_and(|bundle| node::cannot_join(host.disk.as_ref(), &bundle)) => Delivery::Spent,
        Some(_) => Delivery::Here,
    };
    screen.result(&report, || text(screen, report.as_ref(), forgotten, delivery))?;
    report.as_ref().map_or(Ok(Code::Done), exit_code)
}

/// Somebody who types a command by mistake shall not lose a node by it.
fn confirm(screen: &Screen, plan: Option<&Plan<ResetAction>>, previews: &[Preview]) -> Result<(), Failure> {
    let refused = |text: &str| Err(Failure { code: Code::WrongInput, error: anyhow::anyhow!("{text}") });
    if !std::io::stdin().is_terminal() {
        return refused("a reset is not asked for twice without a terminal: say --yes, or look first with --dry-run");
    }
    screen.remark(plan_text(screen, plan, previews).trim_end());
    let _ = write!(std::io::stderr().lock(), "undo all this? (yes/no) ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).or_fail(Code::NeedsPerson)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => refused("nothing was changed"),
    }
}

fn plan_text(screen: &Screen, plan: Option<&Plan<ResetAction>>, previews: &[Preview]) -> String {
    let Some(plan) = plan else {
        return "nothing is known here that could be undone; only what nodestrap remembers would be removed\n"
            .to_owned();
    };
    let mut text = format!("{} {}\n", screen.paint(Paint::Strong, "reset"), plan.digest());
    text.push_str(&steps_text(screen, plan, previews, ResetAction::describe));
    for line in plan.steps.iter().flat_map(|step| step.action.details()) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// What is left of what the node was made from.
enum Delivery {
    Here,
    /// Its credentials are no longer in it, and those of the kubelet are gone.
    Spent,
    /// With the platform, or nowhere.
    Elsewhere,
}

fn text(screen: &Screen, report: Option<&Report>, forgotten: Forgotten, delivery: Delivery) -> String {
    let good = screen.paint(Paint::Good, "✓");
    let failed = report.filter(|report| matches!(report.outcome, RunOutcome::Failed { .. } | RunOutcome::Unfinished));
    let mut text = match (failed, report, forgotten) {
        // The error line that follows says why.
        (Some(_), ..) => {
            return format!("{} not all is undone; run it again to go on\n", screen.paint(Paint::Bad, "✗"));
        }
        (None, None, Forgotten::NothingThere) => {
            return format!("{good} nothing to undo: nodestrap changed nothing here\n");
        }
        (None, _, _) => format!("{good} undone: what nodestrap made is gone, what was there before is back\n"),
    };
    for step in report.iter().flat_map(|report| &report.steps) {
        if let Some(detail) = &step.detail {
            let _ = writeln!(text, "  note: {}: {detail}", step.id);
        }
    }
    text.push_str(&match delivery {
        Delivery::Here => format!("  {BUNDLE_PATH} stays: the next boot, or nodestrap apply, makes this a node again\n"),
        Delivery::Spent => format!(
            "  {BUNDLE_PATH} stays, but the bootstrap credentials in it are spent: to make this a node again, deliver the \
             bundle again, with a token that is still valid\n"
        ),
        Delivery::Elsewhere => String::new(),
    });
    text
}
