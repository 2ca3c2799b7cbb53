//! The gate: the file without which the kubelet does not start.
//!
//! Its last line is a checksum of all the others, so that an empty, torn or edited file is recognised and counts as
//! absent; it also names the plan that opened it.

use std::collections::BTreeMap;
use std::path::Path;

use engine::Digest;
use host::disk::{Disk, DiskError};
use render::bundle::Gate;
use render::gate::{check_gate, render_gate};

/// No secrets inside; the kubelet's unit and people read it.
pub(crate) const MODE: u32 = 0o644;

/// Far more than any gate.
const GATE_LIMIT: u64 = 256 * 1024;

const PLAN_VARIABLE: &str = "NODESTRAP_PLAN";
const BUNDLE_VARIABLE: &str = "NODESTRAP_BUNDLE";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateState {
    Absent,
    /// Whole, and opened by this plan, made from this bundle.
    Open {
        plan: String,
        bundle: String,
    },
    Damaged {
        reason: String,
    },
}

/// `environment` is what the plan says of this gate: the bundle's part and what only the node knows.
pub(crate) fn render(gate: &Gate, environment: &BTreeMap<String, String>, bundle: &str, plan: &Digest) -> Vec<u8> {
    let mut all = environment.clone();
    all.insert(BUNDLE_VARIABLE.to_owned(), bundle.to_owned());
    all.insert(PLAN_VARIABLE.to_owned(), plan.to_string());
    render_gate(gate, &all)
}

pub fn observe(disk: &dyn Disk, path: &str) -> Result<GateState, DiskError> {
    let Some(bytes) = disk.read(Path::new(path), GATE_LIMIT)? else {
        return Ok(GateState::Absent);
    };
    Ok(match check_gate(&bytes) {
        Ok(mut environment) => match (environment.remove(PLAN_VARIABLE), environment.remove(BUNDLE_VARIABLE)) {
            (Some(plan), Some(bundle)) => GateState::Open { plan, bundle },
            _ => GateState::Damaged { reason: format!("{PLAN_VARIABLE} or {BUNDLE_VARIABLE} is missing") },
        },
        Err(damage) => GateState::Damaged { reason: damage.to_string() },
    })
}
