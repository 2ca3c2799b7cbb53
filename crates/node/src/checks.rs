//! Steps that only look: whether the bundle can be applied here, whether the image brings what it counts on, the clock, and
//! whether the machine has to reboot first.

use std::path::Path;

use engine::{Condition, History, Plan, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind, Stat, follow};
use serde::{Deserialize, Serialize};

use crate::failure::{disk_error, unit_error};
use crate::prerequisites::find_missing;
use crate::refusals::Refusal;
use crate::resource::{Deed, Node, Tools};
use crate::timekeeping::Known;

/// What the kernel wants to see before it runs a file, for root too.
const ANYBODY_MAY_RUN: u32 = 0o111;
/// A marker says a line, if anything.
const MARKER_LIMIT: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Decided with the plan, so that the plan shows it.
    CheckBundle { refusals: Vec<Refusal>, remarks: Vec<String> },
    /// The image brings what the bundle counts on.
    CheckPrograms { paths: Vec<String> },
    /// The machine has what the programs of the bundle need: all that it lacks is named at once.
    CheckHost,
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
            Self::CheckHost => "this machine has what the programs need".to_owned(),
            Self::CheckClock => "the clock says what it can say".to_owned(),
            Self::RebootIfRequired { markers } => markers.join(" "),
        }
    }

    fn check(&self, node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        match self {
            Self::CheckBundle { refusals, remarks } => check_bundle(refusals, remarks, history),
            Self::CheckPrograms { paths } => check_programs(node.tools.disk, paths),
            Self::CheckHost => check_host(node, history),
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
            Self::CheckHost => {
                let missing = find_missing(node.tools.disk, node.bundle)?;
                missing.remarks.into_iter().for_each(|remark| context.detail(remark));
                Ok(())
            }
            Self::CheckClock => check_clock(node).map(drop),
            Self::RebootIfRequired { .. } => node.tools.units.reboot().map_err(|error| unit_error(&error)),
        }
    }
}

/// Why nothing of this plan may be done.
pub(crate) fn refusal(plan: &Plan<crate::Action>) -> Option<StepError> {
    plan.steps.iter().find_map(|step| match &step.action {
        crate::Action::Check(Action::CheckBundle { refusals, .. }) => refuse(refusals).err(),
        _ => None,
    })
}

fn refuse(refusals: &[Refusal]) -> Result<(), StepError> {
    if refusals.is_empty() {
        return Ok(());
    }
    let joined = |part: fn(&Refusal) -> &str| refusals.iter().map(part).collect::<Vec<_>>().join("; ");
    Err(StepError::permanent(joined(|refusal| &refusal.reason)).with_advice(joined(|refusal| &refusal.advice)))
}

fn check_bundle(refusals: &[Refusal], remarks: &[String], history: &History) -> Result<Condition, StepError> {
    refuse(refusals)?;
    match remarks {
        // A remark is made once, in the journal of the first run.
        [remark, ..] if !history.done_before => Ok(Condition::Needed(remark.clone())),
        _ => Ok(Condition::AlreadySo),
    }
}

fn check_programs(disk: &dyn Disk, paths: &[String]) -> Result<Condition, StepError> {
    let mut problems = Vec::new();
    for path in paths {
        let problem = program_problem(disk, Path::new(path)).map_err(|error| disk_error(&error))?;
        problems.extend(problem.map(|why| format!("{path} {why}")));
    }
    if problems.is_empty() {
        return Ok(Condition::AlreadySo);
    }
    Err(StepError::needs_operator(format!("programs of the image cannot be run: {}", problems.join(", "))).with_advice(
        "the runtime source is \"preinstalled\": put them into the image, or name their place in the spec (kubelet.binary, \
         containerRuntime.binary, containerRuntime.cniBinaries)",
    ))
}

fn check_host(node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
    let missing = find_missing(node.tools.disk, node.bundle)?;
    if !missing.reasons.is_empty() {
        return Err(StepError::needs_operator(format!(
            "this machine cannot run what the bundle brings: {}",
            missing.reasons.join("; ")
        ))
        .with_advice("mend the image or the machine; nothing was changed"));
    }
    match missing.remarks.first() {
        // Made once, in the journal of the first run.
        Some(remark) if !history.done_before => Ok(Condition::Needed(remark.clone())),
        _ => Ok(Condition::AlreadySo),
    }
}

/// Why nobody can run this program.
pub(crate) fn program_problem(disk: &dyn Disk, path: &Path) -> Result<Option<String>, DiskError> {
    let found = disk.stat(path)?;
    Ok(wrong_program(found.map(|stat| stat.kind), follow(disk, path)?))
}

/// Images link programs to where they really are, so what is at the path and what it leads to in the end both count.
fn wrong_program(found: Option<Kind>, end: Option<Stat>) -> Option<String> {
    match (found, end) {
        (None, _) => Some("is not there".to_owned()),
        (Some(_), Some(Stat { kind: Kind::File, mode, .. })) if mode & ANYBODY_MAY_RUN != 0 => None,
        (Some(_), Some(Stat { kind: Kind::File, mode, .. })) => Some(format!("is not executable (mode {mode:04o})")),
        (Some(Kind::Link { target }), None) => Some(format!("is a link to {target:?}, which leads nowhere")),
        (Some(_), _) => Some("is not a file".to_owned()),
    }
}

/// Waited for by trying again until the deadline, since a time client may be about to set it.
fn check_clock(node: &Node<'_>) -> Result<Condition, StepError> {
    let Tools { disk, units, clock, .. } = node.tools;
    let known = Known::new(disk, units, node.last_believed).with_bundle(node.bundle);
    match known.judge(clock.now()).map_err(|error| disk_error(&error))? {
        Ok(()) => Ok(Condition::AlreadySo),
        // Its certificates are the kubelet's business by now.
        Err(_) if node.is_complete()? => Ok(Condition::AlreadySo),
        Err(wrong) => Err(wrong.into_step_error()),
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
