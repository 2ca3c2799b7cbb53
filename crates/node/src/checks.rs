//! Steps that only look: whether the bundle can be applied here, whether the image brings what it counts on, the clock, and
//! whether the machine has to reboot first.

use std::path::Path;

use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, Kind};
use serde::{Deserialize, Serialize};

use crate::failure::{disk_error, unit_error};
use crate::refusals::Refusal;
use crate::resource::{Deed, Node};
use crate::timekeeping;

/// A marker says a line, if anything.
const MARKER_LIMIT: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Decided with the plan, so that the plan shows it.
    CheckBundle { refusals: Vec<Refusal>, remarks: Vec<String> },
    /// The image brings what the bundle counts on.
    CheckPrograms { paths: Vec<String> },
    /// Certificates look invalid to a clock that is years behind; better that it is named.
    CheckClock,
    /// Only what runs after the last reboot may open the gate.
    RebootIfRequired { markers: Vec<String> },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::CheckBundle { .. } => "the bundle is for this machine and this version".to_owned(),
            Self::CheckPrograms { paths } => format!("{} programs of the image", paths.len()),
            Self::CheckClock => "the clock says what it can say".to_owned(),
            Self::RebootIfRequired { markers } => markers.join(" "),
        }
    }

    fn check(&self, node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        match self {
            Self::CheckBundle { refusals, remarks } => check_bundle(refusals, remarks, history),
            Self::CheckPrograms { paths } => check_programs(node.tools.disk, paths),
            Self::CheckClock => check_clock(node),
            Self::RebootIfRequired { markers } => check_reboot(node, markers),
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::CheckBundle { remarks, .. } => {
                remarks.iter().for_each(|remark| context.detail(remark.as_str()));
                Ok(())
            }
            Self::CheckPrograms { paths } => check_programs(node.tools.disk, paths).map(drop),
            Self::CheckClock => check_clock(node).map(drop),
            Self::RebootIfRequired { .. } => node.tools.units.reboot().map_err(|error| unit_error(&error)),
        }
    }
}

fn check_bundle(refusals: &[Refusal], remarks: &[String], history: &History) -> Result<Condition, StepError> {
    let joined = |part: fn(&Refusal) -> &str| refusals.iter().map(part).collect::<Vec<_>>().join("; ");
    match (refusals, remarks) {
        ([], []) => Ok(Condition::AlreadySo),
        // A remark is made once, in the journal of the first run.
        ([], _) if history.done_before => Ok(Condition::AlreadySo),
        ([], [remark, ..]) => Ok(Condition::Needed(remark.clone())),
        (_, _) => {
            Err(StepError::permanent(joined(|refusal| &refusal.reason)).with_advice(joined(|refusal| &refusal.advice)))
        }
    }
}

fn check_programs(disk: &dyn Disk, paths: &[String]) -> Result<Condition, StepError> {
    let mut missing = Vec::new();
    for path in paths {
        // Images link programs to where they really are, so a link counts.
        match disk.stat(Path::new(path)).map_err(|error| disk_error(&error))? {
            Some(found) if matches!(found.kind, Kind::File | Kind::Link { .. }) => {}
            _ => missing.push(path.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(Condition::AlreadySo);
    }
    Err(StepError::needs_operator(format!("the image does not have {}", missing.join(", "))).with_advice(
        "the runtime source is \"preinstalled\": put them into the image, or name their place in the spec (kubelet.binary, \
         containerRuntime.binary, containerRuntime.cniBinaries)",
    ))
}

/// Waited for by trying again until the deadline, since a time client may be about to set it.
fn check_clock(node: &Node<'_>) -> Result<Condition, StepError> {
    let earliest = timekeeping::earliest_of_bundle(node.bundle);
    let earliest = timekeeping::earliest(node.tools.disk, earliest, node.newest_record);
    let earliest = earliest.map_err(|error| disk_error(&error))?;
    match timekeeping::decide_clock(node.tools.clock.now(), &earliest) {
        Ok(()) => Ok(Condition::AlreadySo),
        // Its certificates are the kubelet's business by now.
        Err(_) if node.is_complete()? => Ok(Condition::AlreadySo),
        Err(wrong) => Err(StepError::transient(wrong.to_string()).with_advice(timekeeping::ADVICE)),
    }
}

/// A node that is complete is not rebooted by us: that is for those who drain it first.
fn check_reboot(node: &Node<'_>, markers: &[String]) -> Result<Condition, StepError> {
    if node.is_complete()? {
        return Ok(Condition::AlreadySo);
    }
    let disk = node.tools.disk;
    for marker in markers {
        if disk.stat(Path::new(marker)).map_err(|error| disk_error(&error))?.is_some() {
            return Ok(Condition::NeedsReboot(format!("{marker} is there{}", said_by(disk, marker))));
        }
    }
    Ok(Condition::AlreadySo)
}

/// What a marker says about itself: its first line.
fn said_by(disk: &dyn Disk, marker: &str) -> String {
    let text = disk.read(Path::new(marker), MARKER_LIMIT).ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line: String = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(120).collect();
    if line.trim().is_empty() { String::new() } else { format!(" ({})", line.trim()) }
}
