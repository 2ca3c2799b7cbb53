//! A kubelet that is a snap: what snapd is asked for, decided with the plan and done through [`host::Snaps`].

use std::collections::BTreeMap;

use engine::{Condition, ErrorClass, History, StepContext, StepError};
use host::snaps::{SnapError, SnapService};
use host::units::{ActiveState, UnitName};
use render::bundle::Bundle;
use render::{EksctlSnap, KUBELET_ENV_PATH, METADATA_PATH, SNAP_PATH, parse_environment};

use crate::gate_facts::content;
use crate::refusals::Refusal;
use crate::steps::{NodeExecutor, chain, unit_error};

/// The snap of a bundle, with every variable of its settings filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSnap {
    pub(crate) snap: String,
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) settings: BTreeMap<String, String>,
}

impl PlannedSnap {
    /// Services of snaps have such names: `snap.SNAP.APP.service`.
    pub(crate) fn owns(&self, unit: &str) -> bool {
        unit.strip_prefix("snap.")
            .and_then(|rest| rest.strip_prefix(&self.snap))
            .is_some_and(|rest| rest.starts_with('.'))
    }
}

/// `None` if the bundle has none. `gate` is the environment of the gate.
pub(crate) fn planned_snap(bundle: &Bundle, gate: &BTreeMap<String, String>) -> Result<Option<PlannedSnap>, Refusal> {
    let Some(bytes) = content(bundle, SNAP_PATH) else { return Ok(None) };
    let broken = |path: &str, problem: String| Refusal {
        reason: format!("{path:?} of the bundle cannot be used: {problem}"),
        advice: "render the bundle with the nodestrap that the node has".to_owned(),
    };
    let snap: EksctlSnap = serde_json::from_slice(bytes).map_err(|error| broken(SNAP_PATH, error.to_string()))?;
    let mut variables = gate.clone();
    // In eksctl's order: what is read later wins.
    for path in [KUBELET_ENV_PATH, METADATA_PATH] {
        let read = parse_environment(content(bundle, path).unwrap_or_default());
        variables.extend(read.map_err(|(line, problem)| broken(path, format!("line {line} {problem}")))?);
    }
    let fill = |(key, text): (String, String)| {
        let filled = fill_in(&text, &variables);
        filled.map(|value| (key, value)).map_err(|name| broken(SNAP_PATH, format!("nothing says what {name} is")))
    };
    let settings = snap.settings.into_iter().map(fill).collect::<Result<_, _>>()?;
    Ok(Some(PlannedSnap { snap: snap.snap, aliases: snap.aliases, settings }))
}

/// The error is the variable that nobody knows.
fn fill_in(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or_else(|| after.to_owned())?;
        filled.push_str(before);
        filled.push_str(variables.get(name).ok_or_else(|| name.to_owned())?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

impl NodeExecutor<'_> {
    pub(crate) fn check_aliases(&self, wanted: &BTreeMap<String, String>) -> Result<Condition, StepError> {
        Ok(match self.missing_aliases(wanted)?.first() {
            None => Condition::AlreadySo,
            Some((alias, app)) => Condition::Needed(format!("{alias} does not start {app} yet")),
        })
    }

    pub(crate) fn add_aliases(
        &self,
        wanted: &BTreeMap<String, String>,
        context: &StepContext<'_>,
    ) -> Result<(), StepError> {
        for (alias, app) in self.missing_aliases(wanted)? {
            let left = context.deadline.remaining(self.clock);
            self.snaps.add_alias(alias, app, left).map_err(|error| snap_error(&error))?;
        }
        Ok(())
    }

    fn missing_aliases<'w>(&self, wanted: &'w BTreeMap<String, String>) -> Result<Vec<(&'w str, &'w str)>, StepError> {
        let found = self.snaps.aliases().map_err(|error| snap_error(&error))?;
        let missing = wanted.iter().filter(|(alias, app)| found.get(*alias) != Some(*app));
        Ok(missing.map(|(alias, app)| (alias.as_str(), app.as_str())).collect())
    }

    /// Once stopped for this plan, what runs was started with this plan's files; its settings may still have been changed.
    pub(crate) fn check_snap_stopped(
        &self,
        snap: &str,
        settings: &BTreeMap<String, String>,
        history: &History,
    ) -> Result<Condition, StepError> {
        let Some(service) = self.services(snap)?.into_iter().find(|service| service.active) else {
            return Ok(Condition::AlreadySo);
        };
        if history.done_before && self.check_snap_settings(snap, settings)? == Condition::AlreadySo {
            return Ok(Condition::AlreadySo);
        }
        Ok(Condition::Needed(format!("{snap}.{} runs with other settings", service.app)))
    }

    pub(crate) fn stop_snap(&self, snap: &str, context: &StepContext<'_>) -> Result<(), StepError> {
        self.snaps.stop(snap, context.deadline.remaining(self.clock)).map_err(|error| snap_error(&error))
    }

    pub(crate) fn check_reset(&self, unit: &str) -> Result<Condition, StepError> {
        let state = self.units.state(&UnitName(unit.to_owned())).map_err(|error| unit_error(&error))?;
        Ok(match state.active {
            ActiveState::Failed => Condition::Needed(format!("{unit} has failed before")),
            _ => Condition::AlreadySo,
        })
    }

    /// Settings that are not ours are left alone.
    pub(crate) fn check_snap_settings(
        &self,
        snap: &str,
        wanted: &BTreeMap<String, String>,
    ) -> Result<Condition, StepError> {
        let found = self.snaps.settings(snap).map_err(|error| snap_error(&error))?;
        let mut differing = wanted.iter().filter(|(key, value)| found.get(*key) != Some(*value)).map(|(key, _)| key);
        Ok(match (differing.next(), differing.count()) {
            (None, _) => Condition::AlreadySo,
            (Some(key), 0) => Condition::Needed(format!("setting {key} of {snap} differs")),
            (Some(key), more) => {
                Condition::Needed(format!("{} settings of {snap} differ, the first is {key}", more + 1))
            }
        })
    }

    pub(crate) fn set_snap(
        &self,
        snap: &str,
        settings: &BTreeMap<String, String>,
        context: &StepContext<'_>,
    ) -> Result<(), StepError> {
        let left = context.deadline.remaining(self.clock);
        self.snaps.set(snap, settings, left).map_err(|error| snap_error(&error))
    }

    pub(crate) fn check_snap_started(&self, snap: &str, history: &History) -> Result<Condition, StepError> {
        let is_up = self.services(snap)?.iter().all(|service| service.active);
        Ok(match is_up && history.done_before {
            true => Condition::AlreadySo,
            false => Condition::Needed(format!("the services of {snap} shall run with this plan's settings")),
        })
    }

    pub(crate) fn start_snap(&self, snap: &str, context: &StepContext<'_>) -> Result<(), StepError> {
        self.snaps.start(snap, context.deadline.remaining(self.clock)).map_err(|error| snap_error(&error))
    }

    fn services(&self, snap: &str) -> Result<Vec<SnapService>, StepError> {
        match self.snaps.services(snap) {
            Ok(services) if services.is_empty() => Err(StepError {
                class: ErrorClass::NeedsOperator,
                message: format!("snap {snap:?} of this image has no service"),
                advice: Some("the image must bring a snap whose kubelet is a service".to_owned()),
            }),
            other => other.map_err(|error| snap_error(&error)),
        }
    }
}

fn snap_error(error: &SnapError) -> StepError {
    let (class, advice) = match error {
        SnapError::Unreachable { .. } => {
            (ErrorClass::Transient, "is snapd installed here? systemctl status snapd.socket")
        }
        SnapError::NotFound { .. } => (ErrorClass::NeedsOperator, "the image must bring this snap"),
        SnapError::Busy { .. } => (ErrorClass::Transient, "snap changes says what is under way"),
        SnapError::Refused { status: 500.., .. } => (ErrorClass::Transient, "journalctl -u snapd says more"),
        SnapError::Refused { .. } => (ErrorClass::NeedsOperator, "run as root; journalctl -u snapd says more"),
        SnapError::Change { .. } => (ErrorClass::Transient, "snap change with its number says why"),
        SnapError::Deadline { .. } => (ErrorClass::Transient, "snap changes says what is under way"),
        SnapError::Answer { .. } => (ErrorClass::NeedsOperator, "look at what listens at /run/snapd.socket"),
    };
    StepError { class, message: chain(error), advice: Some(advice.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_an_unknown_one_is_named() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())]);
        assert_eq!(fill_in("${A}.x.${A},${B}", &variables).as_deref(), Ok("1.x.1,"));
        assert_eq!(fill_in("plain", &variables).as_deref(), Ok("plain"));
        assert_eq!(fill_in("${C}", &variables), Err("C".to_owned()));
        assert_eq!(fill_in("${A", &variables), Err("A".to_owned()));
    }

    #[test]
    fn a_snap_owns_its_own_units_only() {
        let snap = PlannedSnap { snap: "kubelet-eks".to_owned(), aliases: BTreeMap::new(), settings: BTreeMap::new() };
        assert!(snap.owns("snap.kubelet-eks.daemon.service"));
        for other in ["kubelet.service", "snap.kubelet-eks2.daemon.service", "snap.other.kubelet-eks.service"] {
            assert!(!snap.owns(other), "{other}");
        }
    }
}
