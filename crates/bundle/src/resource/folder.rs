//! Folders: those of a bundle's files and trees, and those that the kubelet and the container runtime expect.

use std::collections::BTreeSet;

use super::{Aspect, Difference};
use crate::bundle::{Bundle, FOLDERS, UNIT_FOLDER};
use crate::extension::EXTENSION_LINKS_FOLDER;

/// All that must be there, parents before what is in them. Folders of links by which systemd enables units are the node's to
/// say.
pub fn wanted(bundle: &Bundle) -> BTreeSet<String> {
    let files = bundle.all_files();
    let paths = files.iter().map(|file| &file.path).chain([&bundle.gate.path]);
    let paths = paths.chain(bundle.trees.iter().flat_map(|tree| tree.links.keys()));
    let of_files = paths.flat_map(|path| path.folders().map(str::to_owned).collect::<Vec<_>>());
    let of_trees = bundle.trees.iter().flat_map(|tree| with_parents(&tree.home()));
    let extensions = bundle.extensions.iter().flat_map(|extension| {
        with_parents(&extension.name.home()).chain(with_parents(EXTENSION_LINKS_FOLDER)).collect::<Vec<_>>()
    });
    let masks = bundle.idle_units.iter().filter(|unit| unit.mask().is_some());
    let of_masks = masks.flat_map(|_| with_parents(UNIT_FOLDER));
    of_files
        .chain(of_masks)
        .chain(of_trees)
        .chain(extensions)
        .chain(FOLDERS.iter().flat_map(|folder| with_parents(folder)))
        .collect()
}

/// The folder itself and those above it, without `/`.
pub fn with_parents(folder: &str) -> impl Iterator<Item = String> + use<> {
    let ends = folder.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([folder.len()]);
    ends.map(|end| folder[..end].to_owned()).collect::<Vec<_>>().into_iter()
}

/// `found`: what is there instead, such as "a file"; `None` if nothing is.
pub fn compare(path: &str, found: Option<&str>) -> Difference {
    Difference::new(path, Aspect::Presence, "a folder", found.unwrap_or("not there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_the_root_is_nobodys() {
        assert_eq!(with_parents("/etc/cni/net.d").collect::<Vec<_>>(), ["/etc", "/etc/cni", "/etc/cni/net.d"]);
    }
}
