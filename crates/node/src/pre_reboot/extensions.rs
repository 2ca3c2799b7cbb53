//! The system extensions of the bundle: they fit, their images are whole, and the next merge finds them.

use bundle::resource::extension::State;
use bundle::{Bundle, Extension};
use engine::ErrorClass;
use host::disk::{Disk, DiskError};

use super::{Problem, Proof, Systems};
use crate::failure::chain;
use crate::resource::extension::{image, links};

const MEND: &str = "nodestrap apply puts it right";

pub(super) fn prove_own(disk: &dyn Disk, bundle: &Bundle, systems: &Systems, proof: &mut Proof) {
    for extension in &bundle.extensions {
        let problems = problems(disk, extension, systems);
        if problems.is_empty() {
            proof.proved.push(extension.title());
        }
        proof.problems.extend(problems);
    }
}

fn problems(disk: &dyn Disk, extension: &Extension, systems: &Systems) -> Vec<Problem> {
    let problem = |reason: String, advice: &str| {
        let class = ErrorClass::NeedsOperator;
        Problem { artefact: extension.title(), reason, advice: advice.to_owned(), class }
    };
    if let Some(misfit) = extension.release.misfit(systems.next()) {
        let reason = format!("it does not fit what boots next, so systemd would leave it out: {misfit}");
        return vec![problem(reason, "publish an image that fits both systems, render, deliver and apply")];
    }
    let unreadable = |error: &DiskError| vec![problem(chain(error), "look in dmesg for what the disk says")];
    let image = extension.image();
    match image::state(disk, extension) {
        Err(error) => return unreadable(&error),
        Ok(State::Absent) => return vec![problem(format!("{image} is not there"), MEND)],
        Ok(State::Damaged) => return vec![problem(format!("{image} has other bytes"), MEND)],
        Ok(State::Whole) => {}
    }
    match links::find_wrong(disk, extension) {
        Err(error) => unreadable(&error),
        Ok(wrong) => {
            let said = |(place, found): (String, String)| problem(format!("{place} is {found}"), MEND);
            wrong.into_iter().map(said).collect()
        }
    }
}
