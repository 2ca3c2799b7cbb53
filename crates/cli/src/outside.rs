//! Tells the world around a node how a run went: files, webhook, console. Nothing of it can fail the run.

use std::cell::Cell;
use std::path::Path;

use engine::{Event, EventKind};
use host::machine::{random_u64, write_console};
use node::{Applied, NodeHost, NodeReport};

use crate::machine;
use crate::show::Screen;

const CONSOLE: &str = "/dev/console";

pub(crate) struct Outside<'a> {
    host: &'a NodeHost,
    root: &'a Path,
    screen: &'a Screen,
    withdrawn: Cell<bool>,
}

impl<'a> Outside<'a> {
    pub(crate) fn new(host: &'a NodeHost, root: &'a Path, screen: &'a Screen) -> Self {
        Self { host, root, screen, withdrawn: Cell::new(false) }
    }

    /// From the first change on, what was said about the run before does not hold any more.
    pub(crate) fn hear(&self, event: &Event) {
        if matches!(event.kind, EventKind::StepStarted { .. }) && !self.withdrawn.replace(true) {
            self.remark(node::withdraw(self.host.disk.as_ref()).map_err(anyhow::Error::from));
        }
    }

    pub(crate) fn tell(&self, applied: &Applied) {
        let disk = self.host.disk.as_ref();
        let report = NodeReport::new(self.host, applied);
        self.remark(node::tell(disk, &report).map_err(anyhow::Error::from));
        self.tell_console(&report);
        // Nobody far away wants to hear that nothing happened.
        if report.run.outcome != engine::RunOutcome::NothingToDo
            && let Some(told) = node::tell_webhook(disk, applied, &report, &random_u64)
        {
            self.remark(told.map_err(anyhow::Error::from));
        }
    }

    /// A cloud shows it when nothing else of the machine can be reached. Not for somebody who ran us by hand and sees the
    /// outcome anyway.
    fn tell_console(&self, report: &NodeReport) {
        let is_service = std::env::var_os("INVOCATION_ID").is_some() || std::env::var_os("JOURNAL_STREAM").is_some();
        if is_service && machine::is_machine(self.root) && report.run.outcome != engine::RunOutcome::NothingToDo {
            // There need not be one.
            let _ = write_console(Path::new(CONSOLE), &format!("nodestrap: {}", report.summary));
        }
    }

    fn remark(&self, told: Result<(), anyhow::Error>) {
        if let Err(error) = told {
            self.screen.remark(&format!("not told to the outside: {error:#}"));
        }
    }
}
