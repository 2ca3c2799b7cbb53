//! Units that the image has and that shall not run.

use serde::{Deserialize, Serialize};

use crate::bundle::UNIT_FOLDER;
use crate::names::UnitName;
use crate::vocabulary::Idleness;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdleUnit {
    pub name: UnitName,
    pub idleness: Idleness,
}

impl IdleUnit {
    /// Where a link to [`crate::MASK`] hides the file of the unit; `None` if nothing does.
    pub fn mask(&self) -> Option<String> {
        match self.idleness {
            Idleness::Disabled => None,
            Idleness::Masked => Some(format!("{UNIT_FOLDER}/{}", self.name)),
        }
    }
}
