//! One question, on the host itself: prove what boots next, and have the Node say what came of it.

use std::fmt::Write as _;

use engine::Clock as _;
use host::machine::LinuxClock;
use node::os_update::NextBoot;
use node::{NextBootReady, NextBootRefused, Problem};
use serde::Serialize;

use super::notice::{Notice, Target};
use crate::args::NodeArguments;
use crate::machine::{self, MachineClock};
use crate::outcome::{Code, Failure, Outcome};
use crate::show::{Paint, Screen, table};

/// What is asked each time.
pub(crate) struct Question {
    pub(crate) node: NodeArguments,
    /// Other than that of the bundle.
    pub(crate) kubeconfig: Option<String>,
    /// `None`: the exit code is the answer.
    pub(crate) target: Option<Target>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Ready,
    Refused,
    NotAsked,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// The version of the operating system that it brings; `null` for the one that runs.
    next_os: Option<String>,
    /// Why it brings no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_because: Option<String>,
    proved: &'a [String],
    problems: &'a [Problem],
    remarks: &'a [String],
}

impl Question {
    pub(crate) fn ask(&self, screen: &Screen) -> Outcome {
        let host = machine::open(&self.node.root.root)?;
        // No store is asked: what is not here was never applied.
        let delivered = machine::load_bundle(&host, &self.node, None, &|_| {});
        let join = match &delivered {
            Ok(delivered) => Some(delivered.bundle.join.clone()),
            // Whoever can still write on the Node takes back what was said of a bundle that is gone.
            Err(_) => node::load_complete(host.disk.as_ref()).ok().flatten().map(|complete| complete.manifest.join),
        };
        let kubeconfig = self.kubeconfig.as_deref().or(join.as_ref().map(|join| join.kubeconfig.as_str()));
        let name = join.as_ref().and_then(|join| join.node_name.as_deref());
        let mut notice = match (&self.target, kubeconfig) {
            (Some(target), Some(kubeconfig)) => Some(Notice::read(&host, target, kubeconfig, name)?),
            _ => None,
        };
        if let Some(notice) = &mut notice
            && let Some(label) = notice.missing_label().map(ToString::to_string)
        {
            notice.withdraw()?;
            let view = View::of(Verdict::NotAsked, None, Some(notice.name()), &[], &[], &[]);
            let said = || format!("nobody waits for {}: it has no label {label}=true\n", notice.name());
            return screen.result(&view, said);
        }
        let delivered = match delivered {
            Ok(delivered) => delivered,
            Err(error) => {
                notice.as_mut().map_or(Ok(()), Notice::withdraw)?;
                return Err(Failure { code: error.class().into(), error: error.into() });
            }
        };
        // Staging takes its time: what was said of another next boot goes first.
        if let Some(notice) = &mut notice
            && notice.is_stale(node::look_at_next_boot(&host).ok().as_ref())
        {
            notice.withdraw()?;
        }
        let clock = MachineClock(LinuxClock::new());
        let tell = |words: &str| screen.remark(words);
        match node::prepare_next_boot(&host, &delivered.bundle, &clock, &tell) {
            Ok(ready) => confirm(notice.as_mut(), &ready, screen),
            Err(refused) => refuse(notice.as_mut(), &refused, screen),
        }
    }
}

fn confirm(mut notice: Option<&mut Notice<'_>>, ready: &NextBootReady, screen: &Screen) -> Outcome {
    if let Some(notice) = &mut notice {
        notice.confirm(&ready.next)?;
    }
    let name = notice.as_ref().map(|notice| notice.name());
    let view = View::of(Verdict::Ready, Some(&ready.next), name, &ready.proved, &[], &ready.remarks);
    screen.result(&view, || view.text(screen))
}

/// Taken back first, and told then.
fn refuse(mut notice: Option<&mut Notice<'_>>, refused: &NextBootRefused, screen: &Screen) -> Outcome {
    let taken_back = notice.as_mut().map_or(Ok(()), |notice| notice.withdraw());
    let (problems, next) = match refused {
        NextBootRefused::Busy => {
            taken_back?;
            return Err(Failure { code: Code::Busy, error: anyhow::anyhow!("{refused}; ask again when it has ended") });
        }
        NextBootRefused::Unfit { next, problems } => (problems.as_slice(), next.as_ref()),
    };
    if let Some(notice) = &notice {
        let now = i64::try_from(MachineClock(LinuxClock::new()).now().0 / 1000).unwrap_or_default();
        for problem in problems {
            // An Event is for people; what counts is that the annotation is not there.
            if let Err(failure) = notice.tell(problem, now) {
                screen.remark(&format!("no Event tells of it: {failure}"));
            }
        }
    }
    let name = notice.as_ref().map(|notice| notice.name());
    let view = View::of(Verdict::Refused, next, name, &[], problems, &[]);
    screen.result(&view, || view.text(screen))?;
    taken_back?;
    Ok(refused.class().into())
}

impl<'a> View<'a> {
    fn of(
        verdict: Verdict,
        next: Option<&NextBoot>,
        node: Option<&'a str>,
        proved: &'a [String],
        problems: &'a [Problem],
        remarks: &'a [String],
    ) -> Self {
        let (next_os, same_because) = match next {
            Some(NextBoot::Other { version, .. }) => (Some(version.to_string()), None),
            Some(NextBoot::Same(because)) => (None, Some(because.to_string())),
            None => (None, None),
        };
        Self { verdict, node, next_os, same_because, proved, problems, remarks }
    }

    fn text(&self, screen: &Screen) -> String {
        let into = match &self.next_os {
            Some(version) => format!("version {version} of the operating system"),
            None => "the operating system that runs".to_owned(),
        };
        let mut text = match self.verdict {
            Verdict::Refused => {
                let mark = screen.paint(Paint::Bad, "✗");
                match (&self.next_os, &self.same_because) {
                    (None, None) => format!("{mark} no reboot now\n"),
                    _ => format!("{mark} no reboot now, into {into}\n"),
                }
            }
            _ => format!("{} ready to boot into {into}\n", screen.paint(Paint::Good, "✓")),
        };
        let rows = self.proved.iter().map(|one| vec!["proved".to_owned(), one.clone()]);
        let problems = self.problems.iter().flat_map(|problem| {
            [vec![problem.artefact.clone(), problem.reason.clone()], vec![String::new(), problem.advice.clone()]]
        });
        text.push_str(&table(&rows.chain(problems).collect::<Vec<_>>()));
        for remark in self.remarks {
            let _ = writeln!(text, "  note: {remark}");
        }
        text
    }
}
