//! A program of the host, run by its service manager for somebody who sees nothing of the host but its system bus: a process in a
//! container. It outlives whoever asked for it, and whoever comes next waits for its end first.
//!
//! In: a command. Out: its words as they come, and its exit status. It speaks into memory that is handed over with the question, so
//! that it is never held up by a listener that has gone, nor killed by the lack of one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use zbus::{Connection, Fd, OwnedObjectPath, Variant};

use super::proxies::ManagerProxy;
use super::systemd::{Failure, SystemdUnits, typed_proxy, unit_detail, wait_for_end, watch_job};
use super::{JobResult, UnitError, UnitName};

const OPERATION: &str = "run";
/// `CLD_EXITED`: it ended by itself, and not by a signal.
const EXITED: i32 = 1;
/// How much is read at once.
const PIECE: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Two of the same name never run at once.
    pub unit: UnitName,
    pub description: String,
    /// The absolute path of a program on the host, then its arguments. No secret is among them: everybody can ask for them.
    pub command: Vec<String>,
}

/// The exit status with which systemd says that there is no such program, or none that can be started.
pub const NOT_STARTED: i32 = 203;

impl Heard {
    /// Without a timeout: whoever waits gives up by themselves.
    fn properties(&self, words: &File) -> io::Result<Vec<(&'static str, Variant<'static>)>> {
        let program = self.command.first().cloned().unwrap_or_default();
        let output = || Ok::<_, io::Error>(Variant::Fd(Fd::Owned(OwnedFd::from(words.try_clone()?))));
        Ok(vec![
            ("Description", Variant::from(self.description.clone())),
            ("Type", Variant::from("oneshot")),
            // Nothing of it stays, however it ends; our own reference keeps it until its result was read.
            ("CollectMode", Variant::from("inactive-or-failed")),
            ("AddRef", Variant::from(true)),
            ("ExecStart", Variant::from(vec![(program, self.command.clone(), false)])),
            ("StandardOutputFileDescriptor", output()?),
            ("StandardErrorFileDescriptor", output()?),
        ])
    }
}

impl SystemdUnits {
    /// The exit status; `hear` gets what it says, every second or so. An end by a signal, and one without a start, are errors. It goes on
    /// when the deadline passes or this process dies.
    pub fn run_and_hear(
        &self,
        heard: &Heard,
        deadline: Duration,
        hear: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<i32, UnitError> {
        let name = heard.unit.0.clone();
        let memory =
            |source: io::Error| UnitError::Call { operation: OPERATION, what: name.clone(), source: source.into() };
        let words = memfd_create("nodestrap-words", MemfdFlags::CLOEXEC).map_err(|error| memory(error.into()))?;
        let mut words = Words { file: File::from(words), heard: 0 };
        let properties = heard.properties(&words.file).map_err(memory)?;
        self.ask(OPERATION, &heard.unit.0, deadline, |bus, manager| async move {
            let name = heard.unit.0.as_str();
            wait_for_end(&bus, &manager, name).await?;
            // Of a run that somebody gave up waiting for we may still hold it, and its name would be taken.
            let _ = manager.unref_unit(name).await;
            let mut removed = manager.receive_job_removed_with_args(&[(2, name)]).await?;
            let job = manager.start_transient_unit(name, "fail", &properties, &[]).await?;
            // What is handed over is theirs alone from now on.
            drop(properties);
            let result = watch_job(&mut removed, &job, &mut || words.pass_on(hear)).await;
            words.pass_on(hear);
            let ended = match result? {
                JobResult::Done => Ok(0),
                result => status(&bus, &manager, name, result).await,
            };
            // A reference that cannot be given back ends with the connection.
            let _ = manager.unref_unit(name).await;
            ended
        })
    }
}

/// It is there as long as we hold it.
async fn status(bus: &Connection, manager: &ManagerProxy<'_>, name: &str, result: JobResult) -> Result<i32, Failure> {
    let path: OwnedObjectPath = manager.load_unit(name).await?;
    if let (JobResult::Failed, Some(proxy)) = (result, typed_proxy(bus, &path, name).await) {
        let code = proxy.get_property::<i32>("ExecMainCode").await;
        let status = proxy.get_property::<i32>("ExecMainStatus").await;
        if let (Ok(EXITED), Ok(status)) = (code, status) {
            return Ok(status);
        }
    }
    let detail = unit_detail(bus, &path, name).await;
    let unit = name.to_owned();
    Err(Failure::Unit(UnitError::Job { operation: OPERATION, unit, result, detail, output: None }))
}

/// What it has said, and how much of that was passed on.
struct Words {
    file: File,
    heard: u64,
}

impl Words {
    /// What cannot be read is not heard: the end of the run counts, and that is told elsewhere.
    fn pass_on(&mut self, hear: &mut (dyn FnMut(&[u8]) + Send)) {
        let mut piece = [0; PIECE];
        while let Ok(length @ 1..) = self.file.read_at(&mut piece, self.heard) {
            hear(&piece[..length]);
            self.heard += length as u64;
        }
    }
}
