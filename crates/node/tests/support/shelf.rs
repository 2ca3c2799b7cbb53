//! Who has artefacts, in memory: serves what it is told to, and fails at will.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bundle::{ArtefactForm, RelativePath, Tree};
use engine::StepError;
use fetch::Sink;
use node::{Artefacts, Errand, Order};

use self::artefact::{archive, bytes_of, gzip};

/// The generator's artefacts are made from their names.
#[allow(clippy::duplicate_mod, reason = "tests that generate bundles load it with the generator, too")]
#[path = "../../../bundle/tests/generator/artefact.rs"]
pub(crate) mod artefact;

/// A clone is another handle of the same shelf.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What lies at a place, other than the generator would have it.
    special: BTreeMap<String, Vec<u8>>,
    /// Places that nobody answers at.
    down: BTreeSet<String>,
    /// Every download that began, by the first of its places.
    asked: Vec<String>,
}

impl Shelf {
    pub(crate) fn put(&self, place: &str, bytes: Vec<u8>) {
        self.with(|state| state.special.insert(place.to_owned(), bytes));
    }

    pub(crate) fn take_down(&self, place: &str) {
        self.with(|state| state.down.insert(place.to_owned()));
    }

    pub(crate) fn bring_back(&self) {
        self.with(|state| state.down.clear());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.with(|state| state.asked.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics with it"))
    }
}

impl Shelf {
    /// What is at the first of these places that anybody answers at. What nobody has put there is not there.
    fn find(&self, errand: &Errand<'_>) -> Result<Vec<u8>, StepError> {
        self.with(|state| state.asked.extend(errand.places.first().cloned()));
        let answers = errand.places.iter().find(|place| !self.with(|state| state.down.contains(*place)));
        let place = answers.ok_or_else(|| StepError::transient(format!("nobody has {}", errand.what)))?;
        let found = self.with(|state| state.special.get(place).cloned());
        found.ok_or_else(|| StepError::needs_operator(format!("{}: 404 at {place}", errand.what)))
    }

    /// Nobody has it any more.
    pub(crate) fn forget(&self, place: &str) {
        self.with(|state| state.special.remove(place));
    }
}

impl Artefacts for Shelf {
    fn read(&self, errand: &Errand<'_>) -> Result<Vec<u8>, StepError> {
        self.find(errand)
    }

    fn size(&self, errand: &Errand<'_>) -> Result<u64, StepError> {
        Ok(self.find(errand)?.len() as u64)
    }

    fn download(&self, order: &Order<'_>, sink: &mut dyn Sink) -> Result<Option<String>, StepError> {
        self.with(|state| state.asked.extend(order.artefact.places.first().cloned()));
        for place in order.artefact.places.iter().filter(|place| !order.without.contains(place)) {
            if self.with(|state| state.down.contains(place)) || !place.starts_with("https://") {
                continue;
            }
            let bytes = self.with(|state| state.special.get(place).cloned()).unwrap_or_else(|| bytes_of(place));
            let kept = sink.kept();
            // In pieces, so that a kill leaves a part.
            for piece in bytes.get(kept as usize..).unwrap_or_default().chunks(100) {
                sink.append(piece).map_err(|error| StepError::needs_operator(format!("{error}: {:?}", error.0)))?;
            }
            return Ok((kept == 0).then(|| place.clone()));
        }
        Err(StepError::transient(format!("nobody has {}", order.what)))
    }
}

/// What a program of a tree of the generator says.
pub(crate) fn program_of(tree: &Tree, program: &RelativePath) -> Vec<u8> {
    let place = &tree.artefact.places[0];
    match tree.artefact.form {
        ArtefactForm::Program => artefact::program("a program", place),
        ArtefactForm::TarGz | ArtefactForm::Sysext => artefact::program(program, place),
    }
}

/// An archive with one program.
pub(crate) fn archive_of(name: &str, content: &[u8]) -> Vec<u8> {
    gzip(&archive(&[(name, content.to_vec())]))
}
