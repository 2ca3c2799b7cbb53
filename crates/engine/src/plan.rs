//! What will happen, as data.
//!
//! A [`Plan`] is a list of [`Step`]s with needs, a pure function of its inputs. Its JSON (no white space, no clock, fields in
//! the order of their declaration) is what the digest covers: the same inputs give the same digest on any machine.
//!
//! In: inputs and steps, or JSON. Out: a plan whose needs exist and form no circle, in the order it was given.
//! Fails: [`PlanError`], which names the steps at fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, graph::Graph};

/// Stable kebab-case verb-object name of a step; it appears in the journal, in logs and in metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub String);

impl StepId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for StepId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for StepId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// One thing to do. `A` is the vocabulary of the caller; the engine never looks inside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<A> {
    pub id: StepId,
    /// Steps that must be done before this one starts; everything else may run at the same time.
    pub needs: Vec<StepId>,
    pub action: A,
    /// How long all attempts together may take before the step fails by name.
    #[serde(rename = "deadlineMs", with = "millis")]
    pub deadline: Duration,
    /// The journal is made durable before a barrier starts and after it ends: for steps that let the world see the
    /// node, or whose outcome cannot be read back from the machine.
    pub barrier: bool,
}

/// Everything that a run will do. The fields are public to be read; [`Plan::new`] is what makes a valid one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPlan<A>", bound(deserialize = "A: Serialize + Deserialize<'de>"))]
pub struct Plan<A> {
    /// What the plan was made from, by name: digests and versions, so that two plans can be told apart by cause.
    pub inputs: BTreeMap<String, String>,
    pub steps: Vec<Step<A>>,
}

#[derive(Deserialize)]
struct UncheckedPlan<A> {
    inputs: BTreeMap<String, String>,
    steps: Vec<Step<A>>,
}

impl<A: Serialize> TryFrom<UncheckedPlan<A>> for Plan<A> {
    type Error = PlanError;

    fn try_from(plan: UncheckedPlan<A>) -> Result<Self, PlanError> {
        Self::new(plan.inputs, plan.steps)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("two steps of the plan are called `{id}`: give each step a name of its own")]
    DuplicateStep { id: StepId },
    #[error("step `{step}` needs `{need}`, which is not in the plan: add that step or drop the need")]
    UnknownNeed { step: StepId, need: StepId },
    #[error("steps of the plan need each other in a circle, so none can start: {}", arrows(.cycle))]
    Cycle {
        /// Each needs the next, and the last needs the first.
        cycle: Vec<StepId>,
    },
    #[error("the action of step `{step}` cannot be written as JSON")]
    WriteAction { step: StepId, source: serde_json::Error },
}

fn arrows(cycle: &[StepId]) -> String {
    let names: Vec<_> = cycle.iter().chain(cycle.first()).map(|id| format!("`{id}`")).collect();
    names.join(" needs ")
}

impl<A: Serialize> Plan<A> {
    /// Keeps the order of `steps`: it is the order of reports, and of starts among steps that are ready at once.
    pub fn new(inputs: BTreeMap<String, String>, steps: Vec<Step<A>>) -> Result<Self, PlanError> {
        let plan = Self { inputs, steps };
        plan.validate()?;
        for step in &plan.steps {
            serde_json::to_writer(std::io::sink(), &step.action)
                .map_err(|source| PlanError::WriteAction { step: step.id.clone(), source })?;
        }
        Ok(plan)
    }

    /// Compact. Types and sorted maps have one order; a vocabulary with maps that have none would have no digest to rely on.
    pub fn to_json(&self) -> String {
        // `new` has written every action once already; a type that changes its mind still gets a digest of its own.
        serde_json::to_string(self).unwrap_or_else(|error| error.to_string())
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.to_json().as_bytes())
    }
}

impl<A> Plan<A> {
    /// What [`Plan::new`] refuses; the run asks again because the fields can be changed after `new`.
    pub(crate) fn validate(&self) -> Result<(), PlanError> {
        let mut names = BTreeSet::new();
        for step in &self.steps {
            if !names.insert(&step.id) {
                return Err(PlanError::DuplicateStep { id: step.id.clone() });
            }
        }
        for step in &self.steps {
            if let Some(need) = step.needs.iter().find(|need| !names.contains(need)) {
                return Err(PlanError::UnknownNeed { step: step.id.clone(), need: need.clone() });
            }
        }
        match self.graph().find_cycle() {
            Some(cycle) => {
                Err(PlanError::Cycle { cycle: cycle.into_iter().map(|index| self.steps[index].id.clone()).collect() })
            }
            None => Ok(()),
        }
    }

    /// The chain of needs that took longest, first step first: only a step on it can make the whole faster.
    /// Steps without a duration count as instant, and a chain of instants is no path.
    pub fn critical_path(&self, durations: &BTreeMap<StepId, Duration>) -> Vec<StepId> {
        let weights: Vec<_> =
            self.steps.iter().map(|step| durations.get(&step.id).copied().unwrap_or_default()).collect();
        self.graph().longest_path(&weights).into_iter().map(|index| self.steps[index].id.clone()).collect()
    }

    pub(crate) fn graph(&self) -> Graph {
        Graph::new(self.steps.iter().map(|step| (&step.id, step.needs.as_slice())))
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
