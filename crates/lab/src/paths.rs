//! Where things are: the checkout, the cache, the state of the labs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the checkout that this crate was built from.
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// `crates/lab/recipes/NAME`.
pub(crate) fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes").join(name)
}

/// `$NODESTRAP_CACHE`, else `~/.cache/nodestrap`: what is slow to make and the same for every lab.
pub fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("NODESTRAP_CACHE") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither NODESTRAP_CACHE nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cache/nodestrap"))
}

/// `$NODESTRAP_LAB_STATE`, else `/var/lib/nodestrap-lab`: one folder per lab.
pub fn state_root() -> PathBuf {
    std::env::var_os("NODESTRAP_LAB_STATE").map_or_else(|| "/var/lib/nodestrap-lab".into(), PathBuf::from)
}
