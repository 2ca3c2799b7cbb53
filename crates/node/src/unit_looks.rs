//! How the files of units were found to be, until something is done that may change it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use host::units::{UnitError, UnitName, UnitState, Units};

/// Several steps look at the same unit, one after the other; the service manager is asked once. Not for whether a unit runs,
/// which changes by itself.
#[derive(Default)]
pub(crate) struct UnitLooks(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    states: BTreeMap<String, UnitState>,
    /// How often all was forgotten.
    age: u64,
}

impl UnitLooks {
    pub(crate) fn state(&self, units: &dyn Units, unit: &str) -> Result<UnitState, UnitError> {
        let age = {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(state) = seen.states.get(unit) {
                return Ok(state.clone());
            }
            seen.age
        };
        let state = units.state(&UnitName(unit.to_owned()))?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another step may have begun or ended while the manager was asked: then the answer is good for this one only.
        if seen.age == age {
            seen.states.insert(unit.to_owned(), state.clone());
        }
        Ok(state)
    }

    /// Before something is done, and after it.
    pub(crate) fn forget(&self) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.states.clear();
        seen.age += 1;
    }
}
