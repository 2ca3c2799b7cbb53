//! The gate: what stands in it, and what a change of that takes.

use std::collections::BTreeMap;

use super::{Change, ChangeKind, Family, Subject, judge};
use crate::bundle::{ARGUMENTS_VARIABLE, Bundle};
use crate::values::changes;

pub struct Gates;

impl Family for Gates {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let values = changes(&values(old), &values(new));
        if values.is_empty() {
            return Vec::new();
        }
        let judged = values.iter().map(|change| {
            let subject = if change.path.starts_with("--") { Subject::Flag } else { Subject::Gate };
            judge(subject, &change.path, &change.path)
        });
        vec![Change {
            family: "gate",
            subject: "gate of the kubelet".to_owned(),
            change: ChangeKind::Changed,
            reasons: judged.collect(),
            values,
            secret: false,
            note: String::new(),
        }]
    }
}

/// The kubelet's flags one by one, everything else as it stands.
fn values(bundle: &Bundle) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (name, value) in &bundle.gate.environment {
        if name != ARGUMENTS_VARIABLE {
            values.insert(name.clone(), value.clone());
            continue;
        }
        for argument in value.split_whitespace() {
            let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
            values.insert(flag.to_owned(), value.to_owned());
        }
    }
    values
}
