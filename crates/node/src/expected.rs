//! The plan that somebody was shown and agreed to. Pure.
//!
//! In: its digest, or the whole of it as `plan -o json` prints it. Out: nothing if the plan of now is the very same, or what
//! differs, by name.

use engine::{Digest, Plan};
use serde::Deserialize;

use crate::plan::Action;

#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedPlan {
    digest: Digest,
    /// Without it a difference can be noticed, but not named.
    plan: Option<Plan<Action>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExpectedPlanError {
    #[error("this is no plan as `nodestrap plan -o json` prints it")]
    Parse(#[from] serde_json::Error),
    #[error("this plan was changed after it was printed: it says {said}, and is {is}")]
    Changed { said: Digest, is: Digest },
}

impl From<Digest> for ExpectedPlan {
    fn from(digest: Digest) -> Self {
        Self { digest, plan: None }
    }
}

impl ExpectedPlan {
    /// What `plan -o json` printed.
    pub fn parse(json: &str) -> Result<Self, ExpectedPlanError> {
        #[derive(Deserialize)]
        struct Printed {
            digest: Digest,
            plan: Plan<Action>,
        }
        let Printed { digest, plan } = serde_json::from_str(json)?;
        match plan.digest() {
            is if is == digest => Ok(Self { digest, plan: Some(plan) }),
            is => Err(ExpectedPlanError::Changed { said: digest, is }),
        }
    }

    /// `None` if it is the same.
    pub fn difference(&self, plan: &Plan<Action>) -> Option<String> {
        let is = plan.digest();
        if is == self.digest {
            return None;
        }
        let what = match &self.plan {
            Some(expected) => differences(expected, plan).join("; "),
            None => {
                let inputs: Vec<String> = plan.inputs.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
                format!(
                    "it is made from {} (to have the difference named, keep nodestrap plan -o json and give that file)",
                    inputs.join(", ")
                )
            }
        };
        Some(format!("{} was expected, and it is {is}: {what}", self.digest))
    }
}

/// Inputs first: they are the causes.
fn differences(old: &Plan<Action>, new: &Plan<Action>) -> Vec<String> {
    let mut found = Vec::new();
    let names: std::collections::BTreeSet<&String> = old.inputs.keys().chain(new.inputs.keys()).collect();
    for name in names {
        match (old.inputs.get(name), new.inputs.get(name)) {
            (old, new) if old == new => {}
            (Some(old), Some(new)) => found.push(format!("{name} was {old:?} and is {new:?}")),
            (Some(old), None) => found.push(format!("{name} was {old:?} and is not there")),
            (None, new) => found.push(format!("{name} is new: {:?}", new.map_or("", String::as_str))),
        }
    }
    for step in &old.steps {
        match new.steps.iter().find(|other| other.id == step.id) {
            None => found.push(format!("step {} is gone", step.id)),
            Some(other) if other != step => found.push(format!("step {} differs", step.id)),
            Some(_) => {}
        }
    }
    let is_new = |step: &&engine::Step<Action>| old.steps.iter().all(|other| other.id != step.id);
    found.extend(new.steps.iter().filter(is_new).map(|step| format!("step {} is new", step.id)));
    if found.is_empty() {
        found.push("the same steps stand in another order".to_owned());
    }
    found
}
