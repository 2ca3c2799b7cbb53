//! A change to the root of a node, made once and kept as a layer that an overlay lays over it.
//!
//! What was removed is in it, too, as the overlay's own mark of absence: copy no layer, it can only be renamed and mounted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::mounts;

const NAME: &str = "layer";

/// Where the layer of a part is.
pub(super) fn of(part: &Path) -> PathBuf {
    part.join(NAME)
}

/// Lets somebody change the root that these layers give, the first on top, and keeps the changes in the folder of a part.
pub(super) fn record(part: &Path, below: &[&Path], change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    with_changes(part, below, change, |changes| std::fs::rename(changes, of(part)).context("keeping the layer"))
}

/// The same, for whoever wants only some of the files that were written.
pub(super) fn with_changes(
    part: &Path,
    below: &[&Path],
    change: impl FnOnce(&Path) -> Result<()>,
    keep: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let scratch = tempfile::tempdir_in(part).context("making a scratch folder")?;
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| scratch.path().join(name));
    for made in [&upper, &work, &merged] {
        std::fs::create_dir(made).with_context(|| format!("creating {}", made.display()))?;
    }
    mounts::overlay(below, &upper, &work, &merged)?;
    let changed = change(&merged);
    let unmounted = mounts::unmount_below(&merged);
    changed?;
    unmounted?;
    keep(&upper)
}
