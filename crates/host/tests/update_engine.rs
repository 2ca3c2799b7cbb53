//! What is made of update_engine, against the lab's stand-in on a private bus (the same one serves on booted nodes).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test starts a bus daemon and measures real time")]

mod bus;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use host::UpdateEngine as _;
use host::update_engine::{
    NextOs, Observed, Operation as At, OsVersion, SystemUpdateEngine, UpdateEngineError, UpdateStatus, Why,
};
use lab::update_engine::{Begins, Operation, Script, Step, UpdateEngine as StandIn};

use bus::PrivateBus;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// A bus, and what the stand-in reads and writes.
struct Place {
    bus: PrivateBus,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { bus: PrivateBus::start(), folder: tempfile::tempdir().unwrap() }
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("script.json")
    }

    fn write(&self, begins: Begins, steps: &[(u64, Operation)]) {
        let steps = steps.iter().map(|(after, operation)| Step::new(*after, *operation)).collect();
        let script = Script { next_version: "2905.2.0".to_owned(), next_size: 7, begins, steps };
        std::fs::write(self.script(), serde_json::to_vec(&script).unwrap()).unwrap();
    }

    fn start(&self) -> StandIn {
        StandIn::start(&self.bus.address, &self.script(), &self.folder.path().join("state")).unwrap()
    }

    /// One that is asked, and what it says on the way.
    fn serve(&self, steps: &[(u64, Operation)]) -> StandIn {
        self.write(Begins::WhenAsked, steps);
        self.start()
    }

    fn engine(&self) -> SystemUpdateEngine {
        SystemUpdateEngine::new(Some(&self.bus.address)).with_return_deadline(SHORT)
    }

    fn attempt(&self, deadline: Duration) -> (Result<NextOs, UpdateEngineError>, Vec<String>) {
        let mut said = Vec::new();
        let end = self.engine().attempt_and_wait(deadline, &mut |status: &UpdateStatus| said.push(status.to_string()));
        (end, said)
    }
}

fn version() -> OsVersion {
    OsVersion::try_from("2905.2.0".to_owned()).unwrap()
}

const UPDATE: [(u64, Operation); 4] = [
    (5, Operation::UpdateAvailable),
    (5, Operation::Downloading),
    (5, Operation::Finalizing),
    (5, Operation::UpdatedNeedReboot),
];

#[test]
fn a_machine_without_one_is_an_answer() {
    let place = Place::new();
    assert_eq!(place.engine().observe().unwrap(), Observed::NoneHere);
    assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::NoneHere);
    let nowhere = SystemUpdateEngine::new(Some("unix:path=/nonexistent/bus"));
    let error = nowhere.observe().unwrap_err();
    assert!(matches!(error, UpdateEngineError::Bus { .. }), "no bus is not no update_engine: {error}");
}

#[test]
fn nothing_newer_is_known_only_after_a_check() {
    let place = Place::new();
    let stand_in = place.serve(&[(5, Operation::Idle)]);
    assert_eq!(place.engine().observe().unwrap().next_os(), NextOs::NothingStaged(Why::NotAsked));
    assert_eq!(stand_in.calls(), ["GetStatus"], "who only looks begins nothing");
    let (end, said) = place.attempt(LONG);
    assert_eq!(end.unwrap(), NextOs::NothingStaged(Why::UpToDate));
    assert_eq!(said, ["IDLE", "CHECKING_FOR_UPDATE", "IDLE"]);
    assert_eq!(stand_in.calls(), ["GetStatus", "GetStatus", "AttemptUpdate"]);
}

#[test]
fn a_check_that_is_over_before_it_is_answered_is_seen_all_the_same() {
    let place = Place::new();
    let _stand_in = place.serve(&[(0, Operation::Idle)]);
    for _ in 0..20 {
        assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::NothingStaged(Why::UpToDate));
    }
}

#[test]
fn an_update_is_brought_and_neither_asked_for_again_nor_lost_with_its_version() {
    let place = Place::new();
    let stand_in = place.serve(&UPDATE);
    let (end, said) = place.attempt(LONG);
    assert_eq!(end.unwrap(), NextOs::Staged(version()));
    let way = ["IDLE", "CHECKING_FOR_UPDATE", "UPDATE_AVAILABLE of 2905.2.0", "DOWNLOADING (0 %) of 2905.2.0"];
    assert_eq!(said[..4], way);
    let attempts = || stand_in.calls().iter().filter(|call| *call == "AttemptUpdate").count();
    assert_eq!(attempts(), 1);
    assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::Staged(version()));
    assert_eq!(attempts(), 1);
    assert_eq!(place.engine().observe().unwrap().next_os(), NextOs::Staged(version()));
}

#[test]
fn one_that_was_restarted_knows_no_version_any_more() {
    let place = Place::new();
    let stand_in = place.serve(&UPDATE);
    place.attempt(LONG).0.unwrap();
    drop(stand_in);
    let _restarted = place.start();
    assert_eq!(place.engine().observe().unwrap().next_os(), NextOs::StagedVersionUnknown);
    assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::StagedVersionUnknown);
}

#[test]
fn an_error_is_not_taken_for_no_update() {
    let place = Place::new();
    let _stand_in = place.serve(&[
        (5, Operation::UpdateAvailable),
        (5, Operation::Downloading),
        (5, Operation::ReportingErrorEvent),
        (5, Operation::Idle),
    ]);
    assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::NothingStaged(Why::Failed { at: At::Downloading }));
}

#[test]
fn an_update_that_is_under_way_already_is_waited_for() {
    let place = Place::new();
    place.write(Begins::AtStart, &[(0, Operation::Downloading), (200, Operation::UpdatedNeedReboot)]);
    let stand_in = place.start();
    std::thread::sleep(Duration::from_millis(50));
    let under_way = Why::UnderWay { at: At::Downloading, version: Some(version()) };
    assert_eq!(place.engine().observe().unwrap().next_os(), NextOs::NothingStaged(under_way));
    assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::Staged(version()));
    assert!(!stand_in.calls().contains(&"AttemptUpdate".to_owned()));
}

#[test]
fn silence_ends_with_the_deadline_and_names_the_last_word() {
    let place = Place::new();
    let _stand_in = place.serve(&[(5, Operation::UpdateAvailable), (5, Operation::Downloading)]);
    let start = Instant::now();
    let error = place.attempt(Duration::from_millis(500)).0.unwrap_err();
    let told =
        "update by update_engine did not end within 500ms; the last that it said was DOWNLOADING (0 %) of 2905.2.0";
    assert_eq!(error.to_string(), told);
    assert!(start.elapsed() < LONG);
    // A bus that takes connections and says nothing.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("bus");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let engine = SystemUpdateEngine::new(Some(&format!("unix:path={}", socket.display())));
    let error = engine.attempt_and_wait(SHORT, &mut |_| {}).unwrap_err();
    assert!(error.to_string().ends_with("the last that it said was nothing"), "{error}");
}

#[test]
fn one_that_is_killed_midway_and_does_not_come_back_is_named() {
    let place = Place::new();
    let _stand_in = place.serve(&[(5, Operation::Downloading), (5, Operation::Killed)]);
    let error = place.attempt(LONG).0.unwrap_err();
    let told = "update_engine went away, and was not back within 300ms; the last that it said was DOWNLOADING (0 %) of 2905.2.0";
    assert_eq!(error.to_string(), told);
}

#[test]
fn one_that_is_killed_midway_and_comes_back_is_asked_again() {
    let place = Place::new();
    let first = place.serve(&[(5, Operation::Downloading), (5, Operation::Killed)]);
    std::thread::scope(|scope| {
        let engine = place.engine().with_return_deadline(LONG);
        let waiting = scope.spawn(move || engine.attempt_and_wait(LONG, &mut |_| {}));
        while place.engine().observe().unwrap() != Observed::NoneHere {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(first);
        let second = place.serve(&UPDATE);
        assert_eq!(waiting.join().unwrap().unwrap(), NextOs::Staged(version()));
        assert_eq!(second.calls().iter().filter(|call| *call == "AttemptUpdate").count(), 2);
    });
}

#[test]
fn one_that_dies_with_every_attempt_is_not_asked_for_ever() {
    let place = Place::new();
    std::thread::scope(|scope| {
        let engine = place.engine().with_return_deadline(LONG);
        let first = place.serve(&[(5, Operation::Killed)]);
        let waiting = scope.spawn(move || engine.attempt_and_wait(LONG, &mut |_| {}));
        let mut stand_in = Some(first);
        while !waiting.is_finished() {
            if place.engine().observe().unwrap() == Observed::NoneHere {
                drop(stand_in.take());
                stand_in = Some(place.start());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, UpdateEngineError::Restless { .. }), "{error}");
    });
}

#[test]
fn a_version_that_fits_into_no_path_is_believed_by_nobody() {
    let place = Place::new();
    std::fs::write(
        place.script(),
        r#"{"nextVersion": "../../etc", "steps": [{"afterMs": 1, "operation": "UPDATED_NEED_REBOOT"}]}"#,
    )
    .unwrap();
    let _stand_in = place.start();
    let error = place.attempt(LONG).0.unwrap_err();
    assert!(error.to_string().contains("\"../../etc\" is no version"), "{error}");
    assert!(place.engine().observe().is_err());
}

#[test]
fn a_caller_inside_a_runtime_is_served() {
    let place = Place::new();
    let _stand_in = place.serve(&[(5, Operation::Idle)]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(place.attempt(LONG).0.unwrap(), NextOs::NothingStaged(Why::UpToDate));
    });
}
