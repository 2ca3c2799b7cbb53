//! An update_engine that finds what it is told to find.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::crash::{Verdict, crashed};
use super::disk::FakeDisk;
use crate::update_engine::{
    Attempt, NextOs, Observed, Operation, OsVersion, UpdateEngine, UpdateEngineError, UpdateStatus,
};

const BUS: &str = "fake bus";

/// A clone is another handle of the same one. Its attempts count on the crash point of the disk. What it has staged stays so
/// when nodestrap is killed, and is gone after a reboot, which boots into it.
#[derive(Clone)]
pub struct FakeUpdateEngine {
    disk: FakeDisk,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    finds: Finds,
    staged: Option<Staged>,
    attempts: u64,
}

#[derive(Clone)]
struct Staged {
    version: OsVersion,
    is_forgotten: bool,
}

/// What an attempt leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finds {
    /// There is no update_engine.
    #[default]
    NoneHere,
    Nothing,
    Version(OsVersion),
    /// It fails at this.
    Error(Operation),
    /// It stays silent at this.
    Hang(Operation),
}

impl FakeUpdateEngine {
    pub fn new(disk: &FakeDisk, finds: Finds) -> Self {
        let state = State { finds, ..State::default() };
        Self { disk: disk.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// From now on.
    pub fn find(&self, finds: Finds) {
        self.with(|state| state.finds = finds);
    }

    /// It ends and is started again: that an update is staged it knows, but no more which.
    pub fn restart(&self) {
        self.with(|state| state.staged.iter_mut().for_each(|staged| staged.is_forgotten = true));
    }

    /// The same one on what a kill of nodestrap left of the machine.
    pub fn after_kill(&self, disk: &FakeDisk) -> Self {
        let state = self.with(|state| state.clone());
        Self { disk: disk.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// The machine boots into what was staged, which is returned; there is nothing newer then.
    pub fn after_reboot(&self, disk: &FakeDisk) -> (Self, Option<OsVersion>) {
        let (state, booted) = self.with(|state| {
            let booted = state.staged.take().map(|staged| staged.version);
            let finds = if booted.is_some() { Finds::Nothing } else { state.finds.clone() };
            (State { finds, ..state.clone() }, booted)
        });
        (Self { disk: disk.clone(), state: Arc::new(Mutex::new(state)) }, booted)
    }

    /// How often it was asked to look for an update, and did.
    pub fn attempts(&self) -> u64 {
        self.with(|state| state.attempts)
    }

    fn says(&self, at: Operation) -> UpdateStatus {
        self.with(|state| {
            let staged = state.staged.as_ref().filter(|staged| !staged.is_forgotten);
            let new_version = staged.map(|staged| staged.version.clone());
            let operation = if state.staged.is_some() { Operation::UpdatedNeedReboot } else { at };
            UpdateStatus { operation, progress: 0.0, new_version, last_checked: 0 }
        })
    }

    /// What an attempt does to it, and the words on the way.
    fn try_update(&self) -> Vec<Operation> {
        self.with(|state| {
            state.attempts += 1;
            let mut words = vec![Operation::CheckingForUpdate];
            match state.finds.clone() {
                Finds::NoneHere => {}
                Finds::Nothing => words.push(Operation::Idle),
                Finds::Version(version) => {
                    words.extend([Operation::Downloading, Operation::Finalizing]);
                    state.staged = Some(Staged { version, is_forgotten: false });
                }
                Finds::Error(at) => words.extend([at, Operation::ReportingErrorEvent, Operation::Idle]),
                Finds::Hang(at) => words.push(at),
            }
            words
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unreachable(source: io::Error) -> UpdateEngineError {
    UpdateEngineError::Bus { address: BUS.to_owned(), source: source.into() }
}

impl UpdateEngine for FakeUpdateEngine {
    fn observe(&self) -> Result<Observed, UpdateEngineError> {
        self.disk.crash_point().read().map_err(unreachable)?;
        match self.with(|state| state.finds == Finds::NoneHere) {
            true => Ok(Observed::NoneHere),
            false => Ok(Observed::Says(self.says(Operation::Idle))),
        }
    }

    fn attempt_and_wait(
        &self,
        deadline: Duration,
        look: &mut (dyn FnMut(&UpdateStatus) + Send),
    ) -> Result<NextOs, UpdateEngineError> {
        let Observed::Says(begun) = self.observe()? else { return Ok(NextOs::NoneHere) };
        let mut attempt = Attempt::default();
        let mut see = |status: &UpdateStatus| {
            look(status);
            attempt.see(status)
        };
        if let Some(end) = see(&begun) {
            return Ok(end);
        }
        let verdict = self.disk.crash_point().operation("update-engine attempt".to_owned()).map_err(unreachable)?;
        let words = self.try_update();
        if let Verdict::DoThenDie(_) = verdict {
            return Err(unreachable(crashed()));
        }
        let mut last = begun.to_string();
        for word in words {
            let status = UpdateStatus { operation: word, progress: 0.0, new_version: None, last_checked: 0 };
            last = status.to_string();
            if let Some(end) = see(&status) {
                return Ok(end);
            }
        }
        let status = self.says(Operation::Idle);
        match status.operation {
            Operation::UpdatedNeedReboot => Ok(see(&status).unwrap_or(NextOs::StagedVersionUnknown)),
            _ => Err(UpdateEngineError::Deadline { operation: "update by update_engine", waited: deadline, last }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Crash, Moment};
    use super::*;
    use crate::update_engine::Why;

    fn version() -> OsVersion {
        OsVersion::try_from("2905.2.0".to_owned()).unwrap()
    }

    fn ask(engine: &FakeUpdateEngine) -> Result<NextOs, UpdateEngineError> {
        engine.attempt_and_wait(Duration::from_secs(60), &mut |_| {})
    }

    #[test]
    fn it_behaves_like_the_real_one() {
        let disk = FakeDisk::new();
        let engine = FakeUpdateEngine::new(&disk, Finds::NoneHere);
        assert_eq!(ask(&engine).unwrap(), NextOs::NoneHere);
        engine.find(Finds::Nothing);
        assert_eq!(engine.observe().unwrap().next_os(), NextOs::NothingStaged(Why::NotAsked));
        assert_eq!(ask(&engine).unwrap(), NextOs::NothingStaged(Why::UpToDate));
        engine.find(Finds::Error(Operation::Downloading));
        let failed = Why::Failed { at: Operation::Downloading };
        assert_eq!(ask(&engine).unwrap(), NextOs::NothingStaged(failed));
        engine.find(Finds::Hang(Operation::Downloading));
        let told = "update by update_engine did not end within 60s; the last that it said was DOWNLOADING (0 %)";
        assert_eq!(ask(&engine).unwrap_err().to_string(), told);
        engine.find(Finds::Version(version()));
        assert_eq!(ask(&engine).unwrap(), NextOs::Staged(version()));
        let attempts = engine.attempts();
        assert_eq!(ask(&engine).unwrap(), NextOs::Staged(version()));
        assert_eq!(engine.attempts(), attempts, "what is staged is not asked for again");
        engine.restart();
        assert_eq!(ask(&engine).unwrap(), NextOs::StagedVersionUnknown);
        assert_eq!(engine.observe().unwrap().next_os(), NextOs::StagedVersionUnknown);
        let (booted, into) = engine.after_reboot(&disk);
        assert_eq!((into, ask(&booted).unwrap()), (Some(version()), NextOs::NothingStaged(Why::UpToDate)));
    }

    #[test]
    fn what_was_staged_is_still_so_after_a_kill() {
        let disk = FakeDisk::new();
        disk.crash_point().crash_at(1, Moment::After);
        let engine = FakeUpdateEngine::new(&disk, Finds::Version(version()));
        ask(&engine).unwrap_err();
        ask(&engine).unwrap_err();
        let engine = engine.after_kill(&disk.after_crash(Crash::ProcessKill, 0));
        assert_eq!(engine.observe().unwrap().next_os(), NextOs::Staged(version()));
        assert_eq!(engine.attempts(), 1);
    }
}
