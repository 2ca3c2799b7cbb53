//! `status --watch`: the status again whenever something of it changes, until the node is complete.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use bundle::{BUNDLE_PATH, GATE_PATH};
use engine::RunOutcome;
use host::machine::Watch;
use node::{NodeHost, Phase};

use crate::args::{Output, StatusArguments};
use crate::outcome::{Code, Failure, OrFail as _, Outcome};
use crate::show::{Screen, visible, width};
use crate::status::{StatusView, code, look, text};

pub(crate) fn run(arguments: &StatusArguments, host: &NodeHost, screen: &Screen) -> Outcome {
    let root = std::path::absolute(&arguments.node.root.root).or_fail(Code::WrongInput)?;
    let watched = [node::JOURNAL_PATH, node::LOCK_PATH, BUNDLE_PATH, GATE_PATH];
    let paths: Vec<PathBuf> = watched.iter().map(|path| root.join(path.trim_start_matches('/'))).collect();
    let watch = Watch::new(paths).or_fail(Code::NeedsPerson)?;
    let in_place = screen.output == Output::Text && std::io::stdout().is_terminal();
    let mut before: Option<StatusView> = None;
    let mut drawn = 0;
    loop {
        watch.arm().or_fail(Code::NeedsPerson)?;
        let view = look(arguments, host)?;
        if before.as_ref() != Some(&view) {
            match (screen.output, in_place) {
                (Output::Text, true) => drawn = redraw(screen, &view, drawn)?,
                (Output::Text, false) => {
                    let line = line(&view);
                    if before.as_ref().map(self::line).as_ref() != Some(&line) {
                        screen.print(&line)?;
                    }
                }
                (Output::Json, _) => {
                    let json = serde_json::to_string(&view).or_fail(Code::NeedsPerson)?;
                    screen.print(&format!("{json}\n"))?;
                }
                (Output::Yaml, _) => {
                    screen.print("---\n")?;
                    screen.result(&view, String::new)?;
                }
            }
        }
        if is_over(&view) {
            return Ok(code(&view.status));
        }
        before = Some(view);
        watch.wait().or_fail(Code::NeedsPerson)?;
    }
}

/// Complete, and nobody is at work on it any more. A failure is not the end: the bootstrap unit tries again.
fn is_over(view: &StatusView) -> bool {
    let status = &view.status;
    let unfinished = status.last_run.as_ref().is_some_and(|report| report.outcome == RunOutcome::Unfinished);
    matches!(status.phase, Phase::Joining | Phase::Joined) && !unfinished
}

/// Over what was drawn before; gives the number of lines that it takes.
fn redraw(screen: &Screen, view: &StatusView, drawn: usize) -> Result<usize, Failure> {
    let text = text(screen, view);
    let back = if drawn > 0 { format!("\x1b[{drawn}F\x1b[J") } else { String::new() };
    screen.print(&format!("{back}{text}"))?;
    let columns = width();
    Ok(text.lines().map(|line| visible(line).div_ceil(columns).max(1)).sum())
}

fn line(view: &StatusView) -> String {
    let status = &view.status;
    let mut line = status.summary.clone();
    if !status.outlook.now.is_empty() {
        line.push_str(&format!("; now: {}", status.outlook.now.join(", ")));
    }
    if let Some(blocked) = &status.blocked {
        line.push_str(&format!("; {}: {}", blocked.by, blocked.reason));
    }
    if let Some(next) = &status.outlook.next {
        line.push_str(&format!("; next: {next}"));
    }
    line.push('\n');
    line
}
