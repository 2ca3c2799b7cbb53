//! `verify`: what on this node is no longer as its bundle made it.

use std::fmt::Write as _;

use bundle::resource::Difference;
use host::machine::LinuxClock;
use node::Verification;

use crate::args::VerifyArguments;
use crate::machine::{self, MachineClock};
use crate::node_commands::session_failure;
use crate::outcome::{Code, Failure, Outcome};
use crate::show::{Paint, Screen, table};

/// More of them and a person looks at the file anyway.
const CHANGES_SHOWN: usize = 8;

pub(crate) fn run(arguments: &VerifyArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.node.root.root)?;
    // No store is asked: what is not here was never applied.
    let delivered = machine::load_bundle(&host, &arguments.node, None, &|_| {})
        .map_err(|error| Failure { code: error.class().into(), error: error.into() })?;
    let clock = MachineClock(LinuxClock::new());
    let verification = node::verify(&host, &delivered.bundle, &clock).map_err(session_failure)?;
    screen.result(&verification, || text(screen, &verification))?;
    Ok(if verification.drift.is_empty() { Code::Done } else { Code::NeedsPerson })
}

fn text(screen: &Screen, verification: &Verification) -> String {
    let Verification { files, units, components, packages, drift, remarks, .. } = verification;
    let mut text = if drift.is_empty() {
        let programs = match components {
            0 => String::new(),
            1 => ", the programs of 1 component".to_owned(),
            many => format!(", the programs of {many} components"),
        };
        let packages = match packages {
            0 => String::new(),
            1 => ", 1 package".to_owned(),
            many => format!(", {many} packages"),
        };
        let mark = screen.paint(Paint::Good, "✓");
        format!("{mark} nothing drifted: {files} files, {units} units{programs}{packages} and the gate\n")
    } else {
        let count = if drift.len() == 1 { "1 difference".to_owned() } else { format!("{} differences", drift.len()) };
        format!("{} {count}; nodestrap apply puts it right\n", screen.paint(Paint::Bad, "✗"))
    };
    if !drift.is_empty() {
        let mut rows = vec![["", "what", "expected", "found"].map(|head| screen.paint(Paint::Quiet, head)).to_vec()];
        rows.extend(drift.iter().map(row));
        text.push_str(&table(&rows));
    }
    for finding in drift.iter().filter(|finding| !finding.values.is_empty()) {
        let _ = writeln!(text, "\n  {}", screen.paint(Paint::Strong, &finding.subject));
        for change in finding.values.iter().take(CHANGES_SHOWN) {
            let _ = writeln!(text, "    {change}");
        }
        if let Some(more) = finding.values.len().checked_sub(CHANGES_SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "    and {more} more");
        }
    }
    for remark in remarks {
        let _ = writeln!(text, "  note: {remark}");
    }
    text
}

fn row(finding: &Difference) -> Vec<String> {
    let Difference { subject, what, expected, found, .. } = finding;
    vec![subject.clone(), what.as_str().to_owned(), expected.clone(), found.clone()]
}
