//! Drift: what on this node is no longer as its bundle and its plan made it. Reads only.
//!
//! In: a bundle and a host. Out: a [`Verification`], every difference with what is expected and what was found. Contents of
//! secret files are never in it. Fails only where the machine cannot be looked at.

use bundle::Bundle;
use bundle::resource::Difference;
use engine::{Clock, StepError};
use serde::Serialize;

use crate::resource::keep::find_obsolete;
use crate::resource::{FAMILIES, record};
use crate::session::{NodeHost, Past, SessionError, prepare};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    pub bundle: String,
    pub plan: String,
    /// How many of each were looked at; components are the trees and extensions that the bundle brings.
    pub files: usize,
    pub units: usize,
    pub components: usize,
    pub packages: usize,
    pub drift: Vec<Difference>,
    /// What is no drift, but changes what the bundle means, or cannot be observed.
    pub remarks: Vec<String>,
}

/// Compares the node with what this bundle and this machine give.
pub fn verify(host: &NodeHost, bundle: &Bundle, clock: &dyn Clock) -> Result<Verification, SessionError> {
    let (facts, plan) = prepare(host, bundle)?;
    let node = host.node(bundle, &facts, clock, &Past::default());
    let failed = |error: StepError| SessionError::Verify(error);
    let (mut drift, mut remarks) = (Vec::new(), Vec::new());
    for family in FAMILIES {
        let found = family.verify(&node).map_err(failed)?;
        drift.extend(found.drift);
        remarks.extend(found.remarks);
    }
    let record = record::load_for_step(host.disk.as_ref()).map_err(failed)?;
    let left = find_obsolete(&node, &record).map_err(failed)?.subjects();
    remarks.extend(left.iter().map(|one| format!("{one} is of an earlier bundle; nodestrap apply undoes it")));
    let (files, units, components) =
        (node.files.len(), bundle.units.len(), bundle.trees.len() + bundle.extensions.len());
    let packages = bundle.packages.as_ref().map_or(0, |packages| packages.packages.len());
    let (bundle, plan) = (node.identity.bundle.to_string(), plan.digest().to_string());
    Ok(Verification { bundle, plan, files, units, components, packages, drift, remarks })
}
