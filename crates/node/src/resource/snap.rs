//! A kubelet that is a snap: what snapd is asked for, decided with the plan and done through [`host::snaps::Snaps`].

use std::collections::BTreeMap;
use std::time::Duration;

use bundle::resource::snap::{Found, compare};
use bundle::{Bundle, Snap};
use engine::{Condition, History, StepContext, StepError};
use host::snaps::SnapService;
use serde::{Deserialize, Serialize};

use super::record::{Record, SnapRecord};
use super::started::Durable;
use super::{Deed, Family, Node, Tools, UndoPhase, UndoStep, Undoing, Verified};
use crate::failure::snap_error;
use crate::refusals::Refusal;
use crate::reset::ResetAction;

pub(crate) struct SnapFamily;

/// snapd starts and stops services on its way.
const UNDO_DEADLINE: Duration = Duration::from_secs(300);

type Texts = BTreeMap<String, String>;

/// The snap of a bundle, with every variable of its settings filled in. `gate` is the environment of the gate.
pub(crate) fn planned_snap(bundle: &Bundle, gate: &Texts) -> Result<Option<Snap>, Refusal> {
    let Some(snap) = &bundle.snap else { return Ok(None) };
    let fill = |(key, text): (&String, &String)| {
        let filled = fill_in(text, gate).map_err(|name| Refusal {
            reason: format!(
                "the setting {key:?} of the snap {:?} cannot be used: nothing says what {name} is",
                snap.name
            ),
            advice: "render the bundle with the nodestrap that the node has".to_owned(),
        });
        filled.map(|value| (key.clone(), value))
    };
    let settings = snap.settings.iter().map(fill).collect::<Result<_, _>>()?;
    Ok(Some(Snap { settings, ..snap.clone() }))
}

/// The error is the variable that nobody knows.
fn fill_in(text: &str, variables: &Texts) -> Result<String, String> {
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Commands that people type start applications of snaps; alias to `SNAP.APP`.
    AliasSnapApps {
        aliases: Texts,
    },
    /// Unless what runs was started with these settings.
    StopSnap {
        snap: String,
        settings: Texts,
    },
    SetSnap {
        snap: String,
        settings: Texts,
    },
    /// Started by snapd, and waited for.
    StartSnap {
        snap: String,
    },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::AliasSnapApps { aliases } => {
                aliases.iter().map(|(alias, app)| format!("{alias} for {app}")).collect::<Vec<_>>().join(", ")
            }
            Self::StopSnap { snap, .. } => format!("{snap}, by snapd"),
            Self::SetSnap { snap, settings } => format!("{} settings of {snap}", settings.len()),
            Self::StartSnap { snap } => format!("{snap}, by snapd, and wait for it"),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::AliasSnapApps { aliases } => Ok(match missing_aliases(&node.tools, aliases)?.first() {
                None => Condition::AlreadySo,
                Some((alias, app)) => Condition::Needed(format!("{alias} does not start {app} yet")),
            }),
            Self::StopSnap { snap, settings } => check_stopped(node, snap, settings),
            Self::SetSnap { snap, settings } => check_settings(&node.tools, snap, settings),
            Self::StartSnap { snap } => {
                let is_up = services(&node.tools, snap)?.iter().all(|service| service.active);
                Ok(match is_up && node.is_started_with_this(&node.bundle.join.kubelet_unit)? {
                    true => Condition::AlreadySo,
                    false => Condition::Needed(format!("the services of {snap} shall run with these settings")),
                })
            }
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let (snaps, left) = (node.tools.snaps, || node.tools.remaining(context));
        let failed = |error| snap_error(&error);
        match self {
            Self::AliasSnapApps { aliases } => missing_aliases(&node.tools, aliases)?
                .into_iter()
                .try_for_each(|(alias, app)| snaps.add_alias(alias, app, left()).map_err(failed)),
            // Whatever starts it from now on starts it with what is not complete yet.
            Self::StopSnap { snap, .. } => {
                node.forget_starts([&node.bundle.join.kubelet_unit])?;
                snaps.stop(snap, left()).map_err(failed)
            }
            Self::SetSnap { snap, settings } => {
                let settings = settings.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
                snaps.set(snap, &settings, left()).map_err(failed)
            }
            Self::StartSnap { snap } => {
                snaps.start(snap, left()).map_err(failed)?;
                node.note_start(&node.bundle.join.kubelet_unit, Durable::Now)
            }
        }
    }
}

fn missing_aliases<'w>(tools: &Tools<'_>, wanted: &'w Texts) -> Result<Vec<(&'w str, &'w str)>, StepError> {
    let found = tools.snaps.aliases().map_err(|error| snap_error(&error))?;
    let missing = wanted.iter().filter(|(alias, app)| found.get(*alias) != Some(*app));
    Ok(missing.map(|(alias, app)| (alias.as_str(), app.as_str())).collect())
}

/// What runs with the wanted settings and files may go on; its settings may still have been changed.
fn check_stopped(node: &Node<'_>, snap: &str, settings: &Texts) -> Result<Condition, StepError> {
    let Some(service) = services(&node.tools, snap)?.into_iter().find(|service| service.active) else {
        return Ok(Condition::AlreadySo);
    };
    let is_as_wanted = node.is_started_with_this(&node.bundle.join.kubelet_unit)?
        && check_settings(&node.tools, snap, settings)? == Condition::AlreadySo;
    Ok(match is_as_wanted {
        true => Condition::AlreadySo,
        false => Condition::Needed(format!("{snap}.{} runs with other settings", service.app)),
    })
}

/// Settings that are not ours are left alone.
fn check_settings(tools: &Tools<'_>, snap: &str, wanted: &Texts) -> Result<Condition, StepError> {
    let found = tools.snaps.settings(snap).map_err(|error| snap_error(&error))?;
    let mut differing = wanted.iter().filter(|(key, value)| found.get(*key) != Some(*value)).map(|(key, _)| key);
    Ok(match (differing.next(), differing.count()) {
        (None, _) => Condition::AlreadySo,
        (Some(key), 0) => Condition::Needed(format!("setting {key} of {snap} differs")),
        (Some(key), more) => Condition::Needed(format!("{} settings of {snap} differ, the first is {key}", more + 1)),
    })
}

fn services(tools: &Tools<'_>, snap: &str) -> Result<Vec<SnapService>, StepError> {
    match tools.snaps.services(snap) {
        Ok(services) if services.is_empty() => {
            Err(StepError::needs_operator(format!("snap {snap:?} of this image has no service"))
                .with_advice("the image must bring a snap whose kubelet is a service"))
        }
        other => other.map_err(|error| snap_error(&error)),
    }
}

impl Family for SnapFamily {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        let Some(snap) = &node.snap else { return Ok(()) };
        if snap.aliases.is_empty() && snap.settings.is_empty() {
            return Ok(());
        }
        let known = record.snaps.entry(snap.name.clone()).or_default();
        let new = |keys: &Texts, known: &BTreeMap<String, Option<String>>| {
            keys.keys().filter(|key| !known.contains_key(*key)).cloned().collect::<Vec<String>>()
        };
        let (aliases, settings) = (new(&snap.aliases, &known.aliases), new(&snap.settings, &known.settings));
        if !aliases.is_empty() {
            let found = node.tools.snaps.aliases().map_err(|error| snap_error(&error))?;
            known.aliases.extend(aliases.into_iter().map(|alias| (alias.clone(), found.get(&alias).cloned())));
        }
        if !settings.is_empty() {
            let found = node.tools.snaps.settings(&snap.name).map_err(|error| snap_error(&error))?;
            known.settings.extend(settings.into_iter().map(|key| (key.clone(), found.get(&key).cloned())));
        }
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let Some(snap) = &node.snap else { return Ok(Verified::default()) };
        let failed = |error| snap_error(&error);
        let aliases = node.tools.snaps.aliases().map_err(failed)?;
        let settings = node.tools.snaps.settings(&snap.name).map_err(failed)?;
        let services = services(&node.tools, &snap.name)?;
        let stopped: Vec<String> =
            services.into_iter().filter(|service| !service.active).map(|service| service.app).collect();
        let found = Found { aliases: &aliases, settings: &settings, stopped: &stopped };
        Ok(Verified { drift: compare(snap, &found), remarks: Vec::new() })
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        for (name, known) in &record.snaps {
            let wanted = node.snap.as_ref().filter(|snap| snap.name == *name);
            let left = |known: &BTreeMap<String, Option<String>>, wanted: Option<&Texts>| {
                let gone = known.iter().filter(|(key, _)| !wanted.is_some_and(|wanted| wanted.contains_key(*key)));
                gone.map(|(key, was)| (key.clone(), was.clone())).collect::<BTreeMap<_, _>>()
            };
            let snap = SnapRecord {
                aliases: left(&known.aliases, wanted.map(|snap| &snap.aliases)),
                settings: left(&known.settings, wanted.map(|snap| &snap.settings)),
            };
            if snap != SnapRecord::default() {
                obsolete.snaps.insert(name.clone(), snap);
            }
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let restore = |name: &String| UndoStep {
            phase: UndoPhase::Restore,
            id: format!("restore-snap-{name}"),
            deadline: UNDO_DEADLINE,
            barrier: false,
            action: ResetAction::Snap(Undo::RestoreSnap { snap: name.clone() }),
        };
        record.snaps.keys().map(restore).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// Aliases and settings are as they were before; others are left alone.
    RestoreSnap { snap: String },
}

/// What has to change so that things are as they were.
struct Back {
    aliases: BTreeMap<String, Option<String>>,
    settings: BTreeMap<String, Option<String>>,
}

impl Undo {
    fn back(&self, on: &Undoing<'_>) -> Result<Back, StepError> {
        let Self::RestoreSnap { snap } = self;
        let known = on.record.snaps.get(snap).cloned().unwrap_or_default();
        let aliases = on.tools.snaps.aliases().map_err(|error| snap_error(&error))?;
        let settings = on.tools.snaps.settings(snap).map_err(|error| snap_error(&error))?;
        let differing = |known: BTreeMap<String, Option<String>>, found: &Texts| {
            known.into_iter().filter(|(key, was)| found.get(key) != was.as_ref()).collect()
        };
        Ok(Back { aliases: differing(known.aliases, &aliases), settings: differing(known.settings, &settings) })
    }
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RestoreSnap { snap } = self;
        format!("aliases and settings of {snap}")
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let Self::RestoreSnap { snap } = self;
        let Back { aliases, settings } = self.back(on)?;
        Ok(match aliases.len() + settings.len() {
            0 => Condition::AlreadySo,
            count => Condition::Needed(format!("{count} aliases and settings of {snap} are ours")),
        })
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::RestoreSnap { snap } = self;
        let Back { aliases, settings } = self.back(on)?;
        let (snaps, left) = (on.tools.snaps, || on.tools.remaining(context));
        let undo = || {
            for (alias, was) in &aliases {
                match was {
                    Some(app) => snaps.add_alias(alias, app, left())?,
                    None => snaps.remove_alias(alias, left())?,
                }
            }
            match settings.is_empty() {
                true => Ok(()),
                false => snaps.set(snap, &settings, left()),
            }
        };
        undo().map_err(|error| snap_error(&error))
    }
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
}
