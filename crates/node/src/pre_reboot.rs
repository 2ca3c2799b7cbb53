//! Before a reboot: whether this node will be one in the operating system that boots next.
//!
//! In: a host and its bundle. Out: [`NextBootReady`], or [`NextBootRefused`], which names each artefact that is missing, damaged, or
//! does not fit. The next system is what update_engine has staged ([`crate::os_update`]): the os-release of the running one, with
//! VERSION and VERSION_ID replaced. What else the update changes in it cannot be known before it runs; a new `SYSEXT_LEVEL` is such a
//! thing.
//!
//! Nobody else is at work on the node meanwhile: what is proved stays so until the answer is given.

mod addons;
mod extensions;
mod images;

use std::path::Path;

use bundle::{Bundle, System};
use engine::{Clock, ErrorClass};
use host::disk::DiskError;
use host::machine::OsRelease;
use host::update_engine::{NextOs, OsVersion, UpdateEngineError, Why};
use serde::Serialize;

use crate::facts::Os;
use crate::failure::chain;
use crate::os_update::{self, Because, NextBoot};
use crate::session::{LOCK_PATH, NodeHost};

/// What is no artefact, but decides what the next boot is into.
const THE_SYSTEM: &str = "the operating system";

/// Everything that is enabled fits what boots next, and is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextBootReady {
    pub next: NextBoot,
    /// As people call them.
    pub proved: Vec<String>,
    /// What is no reason to stay, but people want to know.
    pub remarks: Vec<String>,
}

/// No reboot now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextBootRefused {
    #[error("another nodestrap is at work on this node; it holds {LOCK_PATH:?}")]
    Busy,
    #[error("this node would not come back as it is: {}", listed(problems))]
    Unfit { next: Option<NextBoot>, problems: Vec<Problem> },
}

/// Why one artefact keeps a node from a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// As people call it: `kubernetes 1.36.3`.
    pub artefact: String,
    pub reason: String,
    pub advice: String,
    /// Whether waiting may help.
    pub class: ErrorClass,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.artefact, self.reason, self.advice)
    }
}

impl Problem {
    fn of_system(class: ErrorClass, reason: impl Into<String>, advice: &str) -> Self {
        Self { artefact: THE_SYSTEM.to_owned(), reason: reason.into(), advice: advice.to_owned(), class }
    }
}

impl NextBootRefused {
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Busy => &[],
            Self::Unfit { problems, .. } => problems,
        }
    }

    /// Waiting helps only if it helps with everything.
    pub fn class(&self) -> ErrorClass {
        let needs_person = |problem: &Problem| problem.class != ErrorClass::Transient;
        match self.problems().iter().any(needs_person) {
            true => ErrorClass::NeedsOperator,
            false => ErrorClass::Transient,
        }
    }

    fn unknown(problem: Problem) -> Self {
        Self::Unfit { next: None, problems: vec![problem] }
    }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; also ")
}

/// The two operating systems that an artefact has to do with.
struct Systems {
    now: Os,
    next: Os,
    architecture: String,
}

impl Systems {
    /// What is in use is judged by the one, and whether it stays so by the other.
    fn load(host: &NodeHost, next: &NextBoot) -> Result<Self, Problem> {
        let read = || {
            Ok::<_, host::machine::MachineError>((
                host.machine.os_release()?,
                host.machine.architecture()?.unwrap_or_default(),
            ))
        };
        let (release, architecture) = read().map_err(|error| {
            Problem::of_system(ErrorClass::NeedsOperator, chain(&error), "look at /etc/os-release of this machine")
        })?;
        let after = match next {
            NextBoot::Same(_) => release.clone(),
            NextBoot::Other { version, .. } => updated(&release, version),
        };
        Ok(Self { now: release.into(), next: after.into(), architecture })
    }

    fn now(&self) -> System<'_> {
        self.system(&self.now)
    }

    fn next(&self) -> System<'_> {
        self.system(&self.next)
    }

    fn system<'a>(&'a self, os: &'a Os) -> System<'a> {
        let architecture = self.architecture.as_str();
        System { id: &os.id, sysext_level: &os.sysext_level, version_id: &os.version, architecture }
    }
}

/// The os-release of the same system in another version. What a build puts after a plus is in VERSION only.
fn updated(release: &OsRelease, version: &OsVersion) -> OsRelease {
    let version_id = version.as_str().split('+').next().unwrap_or_default().to_owned();
    let mut keys = release.keys.clone();
    keys.insert("VERSION".to_owned(), version.to_string());
    keys.insert("VERSION_ID".to_owned(), version_id.clone());
    OsRelease { version_id, keys, ..release.clone() }
}

/// What comes of looking at artefacts.
#[derive(Default)]
struct Proof {
    proved: Vec<String>,
    problems: Vec<Problem>,
    remarks: Vec<String>,
}

impl Proof {
    fn into_result(self, next: NextBoot) -> Result<NextBootReady, NextBootRefused> {
        let Self { proved, problems, remarks } = self;
        match problems.is_empty() {
            true => Ok(NextBootReady { next, proved, remarks }),
            false => Err(NextBootRefused::Unfit { next: Some(next), problems }),
        }
    }
}

/// What the next boot brings, as far as it is known now. Only looks.
pub fn look_at_next_boot(host: &NodeHost) -> Result<NextBoot, NextBootRefused> {
    decide(host, &ask(host)?)
}

/// Stages what the next boot needs, and proves it. `tell` hears what is being done.
pub fn prepare_next_boot(
    host: &NodeHost,
    bundle: &Bundle,
    clock: &dyn Clock,
    tell: &dyn Fn(&str),
) -> Result<NextBootReady, NextBootRefused> {
    let lock = host.disk.try_lock(Path::new(LOCK_PATH)).map_err(|error| unreadable(&error))?;
    let _lock = lock.ok_or(NextBootRefused::Busy)?;
    let said = ask(host)?;
    let boot = boot_id(host)?;
    os_update::note(host.disk.as_ref(), &said, &boot).map_err(|error| {
        let advice = "look in dmesg for what the disk says";
        NextBootRefused::unknown(Problem::of_system(ErrorClass::NeedsOperator, chain(&error), advice))
    })?;
    let next = decide(host, &said)?;
    tell(&match &next {
        NextBoot::Same(because) => format!("the next boot brings no other operating system: {because}"),
        NextBoot::Other { version, .. } => format!("the next boot brings version {version} of the operating system"),
    });
    let systems = Systems::load(host, &next).map_err(NextBootRefused::unknown)?;
    let mut proof = Proof::default();
    extensions::prove_own(host.disk.as_ref(), bundle, &systems, &mut proof);
    images::prove_others(host.disk.as_ref(), bundle, &systems, &mut proof);
    addons::prove_addons(host, bundle, &next, clock, tell, &mut proof);
    // Staging takes its time, and another update may have come in.
    if decide(host, &ask(host)?)? != next {
        let reason = "what the next boot brings has changed while it was looked at";
        proof.problems.push(Problem::of_system(ErrorClass::Transient, reason, "ask again"));
    }
    proof.into_result(next)
}

fn ask(host: &NodeHost) -> Result<NextOs, NextBootRefused> {
    let observed = host.update_engine.observe().map_err(|error| {
        let class = match error {
            UpdateEngineError::Answer(_) => ErrorClass::NeedsOperator,
            _ => ErrorClass::Transient,
        };
        let reason = format!("which one boots next is not known: {}", chain(&error));
        NextBootRefused::unknown(Problem::of_system(class, reason, "systemctl status update-engine says more"))
    })?;
    Ok(observed.next_os())
}

/// While an update is on its way, any moment may be the one in which it is staged.
fn decide(host: &NodeHost, said: &NextOs) -> Result<NextBoot, NextBootRefused> {
    let record = os_update::load(host.disk.as_ref()).map_err(|error| unreadable(&error))?;
    let refused =
        |class, reason: String, advice: &str| Err(NextBootRefused::unknown(Problem::of_system(class, reason, advice)));
    match os_update::next_os(said, record.as_ref(), &boot_id(host)?) {
        Ok(NextBoot::Same(because @ Because::NothingStaged(Why::UnderWay { .. }))) => {
            refused(ErrorClass::Transient, because.to_string(), "wait until it has ended")
        }
        Ok(next) => Ok(next),
        Err(error) => {
            let (reason, advice) = error.parts();
            refused(ErrorClass::NeedsOperator, reason.to_owned(), advice)
        }
    }
}

fn boot_id(host: &NodeHost) -> Result<host::machine::BootId, NextBootRefused> {
    host.machine.boot_id().map_err(|error| {
        let advice = "look at /proc of this machine";
        NextBootRefused::unknown(Problem::of_system(ErrorClass::NeedsOperator, chain(&error), advice))
    })
}

fn unreadable(error: &DiskError) -> NextBootRefused {
    let advice = "run as root; look in dmesg for what the disk says";
    NextBootRefused::unknown(Problem::of_system(ErrorClass::NeedsOperator, chain(error), advice))
}
