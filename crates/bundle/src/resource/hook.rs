//! Hooks: programs of the user's, of whose effects nothing is known.

use super::{Change, ChangeKind, Family, Subject, judge};
use crate::bundle::{Bundle, Hook};
use crate::values::{Values, flatten, leaf_changes};

pub struct Hooks;

/// Why nobody can say whether what a hook did is still so.
pub const CANNOT_BE_OBSERVED: &str = "what a hook did is known to its author only";
/// Why nobody can take back what a hook did.
pub const CANNOT_BE_UNDONE: &str = "what a hook did is known to its author only; undo it by hand where it matters";

impl Family for Hooks {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let changes = leaf_changes(&values(&old.hooks), &values(&new.hooks)).into_iter();
        changes
            .map(|value| Change {
                family: "hook",
                reasons: vec![judge(Subject::HookUnit, "", &value.path)],
                subject: value.path.clone(),
                change: ChangeKind::of(value.old.as_ref(), value.new.as_ref()).unwrap_or(ChangeKind::Changed),
                secret: false,
                note: String::new(),
                values: vec![value],
            })
            .collect()
    }
}

fn values(hooks: &[Hook]) -> Values {
    let mut values = Values::new();
    for hook in hooks {
        flatten(&format!("hooks.{}", hook.name), &serde_json::to_value(hook).unwrap_or_default(), &mut values);
        values.remove(&format!("hooks.{}.name", hook.name));
    }
    values
}
