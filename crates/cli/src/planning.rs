//! `plan`: what `apply` would do on this node, or what another bundle would; touches nothing.

use std::path::Path;

use bundle::{Bundle, BundleDiff, Digest, diff_bundles};
use engine::{Condition, Plan, Step};
use host::machine::LinuxClock;
use node::{Action, BundleSourceError, Facts, NodeHost, Preview};
use serde::Serialize;

use crate::args::PlanArguments;
use crate::machine::{self, MachineClock};
use crate::node_commands::session_failure;
use crate::outcome::{Code, Failure, Outcome};
use crate::rendering::load_rendered;
use crate::show::{Paint, Screen, table};

pub(crate) fn run(arguments: &PlanArguments, screen: &Screen) -> Outcome {
    let host = machine::open_with(&arguments.node.root.root, &arguments.fetch.platform)?;
    match &arguments.against {
        None => {
            let tell = |line: &str| screen.remark(line);
            let bundle = machine::fetch_bundle(&host, &arguments.node, &arguments.fetch, &tell)?.bundle;
            let planned = Planned::new(&host, &bundle)?;
            screen.result(&planned.view(), || planned.text(screen))?;
            Ok(planned.code())
        }
        Some(other) => against(&host, arguments, other, screen),
    }
}

/// A plan, and what a look at the machine says about each of its steps.
pub(crate) struct Planned {
    facts: Facts,
    plan: Plan<Action>,
    previews: Vec<Preview>,
}

impl Planned {
    pub(crate) fn new(host: &NodeHost, bundle: &Bundle) -> Result<Self, Failure> {
        let (facts, plan) = node::prepare(host, bundle).map_err(session_failure)?;
        let clock = MachineClock(LinuxClock::new());
        let previews = node::preview(host, bundle, &facts, &plan, &clock).map_err(session_failure)?;
        Ok(Self { facts, plan, previews })
    }

    fn view(&self) -> PlanView<'_> {
        let digest = self.plan.digest().to_string();
        PlanView {
            digest,
            facts: &self.facts,
            plan: &self.plan,
            preview: self.previews.iter().map(StepView::new).collect(),
        }
    }

    /// A plan that cannot be carried out is no success, even if showing it was.
    fn code(&self) -> Code {
        let blocked = self.previews.iter().find_map(|preview| preview.condition.as_ref().err());
        blocked.map_or(Code::Done, |error| error.class.into())
    }

    pub(crate) fn text(&self, screen: &Screen) -> String {
        let (facts, plan) = (&self.facts, &self.plan);
        let input = |name: &str| plan.inputs.get(name).map_or("", String::as_str);
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
        text.push_str(&steps_text(screen, plan, &self.previews, Action::describe));
        text
    }
}

/// Each step of a plan with its state, one in a line.
pub(crate) fn steps_text<A>(
    screen: &Screen,
    plan: &Plan<A>,
    previews: &[Preview],
    describe: impl Fn(&A) -> String,
) -> String {
    let row = |(step, preview): (&Step<A>, &Preview)| {
        let state = match &preview.condition {
            Ok(Condition::AlreadySo) => screen.paint(Paint::Quiet, "already so"),
            Ok(Condition::Needed(why) | Condition::NeedsReboot(why)) => format!("to do: {why}"),
            Err(error) => screen.paint(Paint::Bad, &format!("blocked: {error}")),
        };
        vec![step.id.0.clone(), describe(&step.action), state]
    };
    table(&plan.steps.iter().zip(previews).map(row).collect::<Vec<_>>())
}

/// What `plan -o json` prints: the canonical plan, and what is around it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanView<'a> {
    digest: String,
    facts: &'a Facts,
    plan: &'a Plan<Action>,
    preview: Vec<StepView<'a>>,
}

#[derive(Serialize)]
struct StepView<'a> {
    step: &'a str,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    AlreadySo,
    ToDo,
    Blocked,
}

impl<'a> StepView<'a> {
    fn new(preview: &'a Preview) -> Self {
        let (state, why) = match &preview.condition {
            Ok(Condition::AlreadySo) => (State::AlreadySo, None),
            Ok(Condition::Needed(why) | Condition::NeedsReboot(why)) => (State::ToDo, Some(why.clone())),
            Err(error) => (State::Blocked, Some(error.to_string())),
        };
        Self { step: preview.step.as_str(), state, why }
    }
}

/// What `plan --against` prints: from the bundle that is here to the other one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgainstView<'a> {
    /// Absent if this node has no bundle yet.
    from: Option<Digest>,
    to: Digest,
    diff: Option<BundleDiff>,
    #[serde(flatten)]
    plan: PlanView<'a>,
}

fn against(host: &NodeHost, arguments: &PlanArguments, other: &Path, screen: &Screen) -> Outcome {
    let here = match machine::load_bundle(host, &arguments.node, None, &|_| {}) {
        Ok(delivered) => Some(delivered.bundle),
        Err(BundleSourceError::Absent { .. } | BundleSourceError::NotFetched { .. }) => None,
        Err(error) => return Err(Failure { code: error.class().into(), error: error.into() }),
    };
    // A spec may have many groups; this node is of one of them.
    let other = load_rendered(other, here.as_ref().map(|bundle| bundle.group.as_str()), screen)?;
    let planned = Planned::new(host, &other)?;
    let view = AgainstView {
        from: here.as_ref().map(Bundle::digest),
        to: other.digest(),
        diff: here.as_ref().map(|here| diff_bundles(here, &other)),
        plan: planned.view(),
    };
    screen.result(&view, || {
        let changes = match &view.diff {
            Some(diff) => diff.to_string(),
            None => "this node has no bundle yet: all of it is new\n".to_owned(),
        };
        let strong = |text: &str| screen.paint(Paint::Strong, text);
        let from = view.from.as_ref().map_or("nothing", Digest::as_str);
        format!(
            "{} {from}\n{}   {}\n\n{changes}\n{} {}\n{}",
            strong("from"),
            strong("to"),
            view.to,
            strong("plan"),
            view.plan.digest,
            steps_text(screen, &planned.plan, &planned.previews, Action::describe)
        )
    })?;
    Ok(planned.code())
}

fn place(facts: &Facts) -> String {
    match facts.instance_id.value.as_str() {
        "" => facts.platform.value.clone(),
        instance => format!("{} {instance}", facts.platform.value),
    }
}
