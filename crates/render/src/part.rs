//! Files and units that belong together, on their way into a bundle.

use bundle::{AbsolutePath, Content, File, IdleUnit, Start, Unit, UnitName};

use crate::error::RenderError;

/// Files, and the units that they are for, in the order in which they are started.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) files: Vec<File>,
    pub(crate) units: Vec<Unit>,
    pub(crate) idle_units: Vec<IdleUnit>,
}

impl Part {
    pub(crate) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.units.extend(other.units);
        self.idle_units.extend(other.idle_units);
    }
}

pub(crate) fn path(text: impl Into<String>) -> Result<AbsolutePath, RenderError> {
    Ok(AbsolutePath::new(text)?)
}

pub(crate) fn name(unit: impl Into<String>) -> Result<UnitName, RenderError> {
    Ok(UnitName::new(unit)?)
}

/// Mode 0644.
pub(crate) fn public(place: impl Into<String>, content: impl Into<Content>) -> Result<File, RenderError> {
    Ok(File::public(path(place)?, content))
}

pub(crate) fn secret(place: impl Into<String>, content: impl Into<Content>) -> Result<File, RenderError> {
    Ok(File::secret(path(place)?, content))
}

/// The file of a unit, or a drop-in of it (`UNIT.d/NAME.conf`).
pub(crate) fn unit_file(name: &str, content: impl Into<Content>) -> Result<File, RenderError> {
    Ok(File::of_unit(name, content)?)
}

/// What its file says is added once all files are known.
pub(crate) fn unit(unit: impl Into<String>, start: Start) -> Result<Unit, RenderError> {
    Ok(Unit { name: name(unit)?, start, brought: None })
}
