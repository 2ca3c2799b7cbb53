//! What must be found on a disk after any power loss: not one lost state chosen by a seed, but all of them at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::{Entry, FakeDisk};
use super::tree::{Ino, Node, Tree};
use crate::disk::Kind;

/// A tree that somebody vouches for.
pub struct Promise {
    children: BTreeMap<String, Kept>,
}

struct Kept {
    /// `None`: a folder of no interest itself, on the way to something.
    entry: Option<Entry>,
    children: BTreeMap<String, Kept>,
}

impl Promise {
    /// Everything of a snapshot but what lies at or below the given paths.
    pub fn of(snapshot: &BTreeMap<PathBuf, Entry>, excluding: &[&str]) -> Self {
        let mut promise = Self { children: BTreeMap::new() };
        for (path, entry) in snapshot {
            if !excluding.iter().any(|prefix| path.starts_with(prefix)) {
                promise.add(path, entry);
            }
        }
        promise
    }

    fn add(&mut self, path: &Path, entry: &Entry) {
        let mut children = &mut self.children;
        let names: Vec<String> = path.iter().skip(1).map(|name| name.to_string_lossy().into_owned()).collect();
        for (depth, name) in names.iter().enumerate() {
            let kept = children.entry(name.clone()).or_insert_with(|| Kept { entry: None, children: BTreeMap::new() });
            if depth + 1 == names.len() {
                kept.entry = Some(entry.clone());
            }
            children = &mut kept.children;
        }
    }
}

impl FakeDisk {
    /// The first path of the promise, with the reason, at which something else is, or could be after a power loss now.
    pub fn find_broken(&self, promise: &Promise) -> Option<String> {
        self.with_tree(|tree| find_broken(tree, 0, &promise.children, &mut Vec::new()))
    }

    /// The whole contents that a power loss now could leave at a path; torn ones aside. Empty: nothing can be there.
    pub fn possible_contents(&self, path: &Path) -> Vec<Vec<u8>> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
        self.with_tree(|tree| {
            let Ok(folder) = tree.existing(folder).and_then(|ino| tree.folder(ino)) else { return Vec::new() };
            let name = name.to_string_lossy();
            let past = folder.past.get(name.as_ref()).into_iter().flatten().flatten();
            let mut contents = Vec::new();
            for ino in past.chain(folder.now.get(name.as_ref())) {
                if let Node::File(file) = &tree.inode(*ino).node {
                    contents.extend(file.past().chain([file.now.as_slice()]).map(<[u8]>::to_vec));
                }
            }
            contents
        })
    }
}

fn find_broken<'a>(tree: &Tree, ino: Ino, wanted: &'a BTreeMap<String, Kept>, at: &mut Vec<&'a str>) -> Option<String> {
    let folder = tree.folder(ino).ok()?;
    for (name, kept) in wanted {
        at.push(name);
        let broken = |why: &str| Some(format!("/{}: {why}", at.join("/")));
        let Some(found) = folder.now.get(name) else { return broken("not there") };
        if let Some(why) = kept.entry.as_ref().and_then(|entry| difference(tree, *found, entry)) {
            return broken(why);
        }
        // A name that was switched and not synced may lead to any of these; if they are all equal, nothing can be lost.
        for past in folder.past.get(name).into_iter().flatten() {
            let is_equal = |past: Ino| {
                let entry = kept.entry.as_ref().filter(|entry| entry.kind != Kind::Folder);
                entry.is_some_and(|entry| difference(tree, past, entry).is_none())
            };
            if !past.is_some_and(is_equal) {
                return broken("its name is not durable");
            }
        }
        let below = find_broken(tree, *found, &kept.children, at);
        if below.is_some() {
            return below;
        }
        at.pop();
    }
    None
}

fn difference(tree: &Tree, ino: Ino, entry: &Entry) -> Option<&'static str> {
    let inode = tree.inode(ino);
    let same = match (&inode.node, &entry.kind) {
        (Node::File(file), Kind::File) if !file.is_durable() => return Some("its content is not durable"),
        (Node::File(file), Kind::File) => *file.now == entry.content,
        (Node::Folder(_), Kind::Folder) => true,
        (Node::Link(found), Kind::Link { target }) => found == target,
        _ => return Some("another kind of thing"),
    };
    match () {
        () if !same => Some("other content"),
        () if inode.mode != entry.mode => Some("another mode"),
        () if inode.owner != (entry.uid, entry.gid) => Some("another owner"),
        () if !inode.past_owners.is_empty() => Some("its owner is not durable"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    #[test]
    fn a_promise_holds_only_when_no_power_loss_can_break_it() {
        let disk = FakeDisk::new();
        disk.make_folder(Path::new("/a"), 0o755).unwrap();
        disk.create(Path::new("/a/x"), 0o600, b"new").unwrap();
        let promise = Promise::of(&disk.snapshot(), &["/run"]);
        assert_eq!(disk.find_broken(&promise).as_deref(), Some("/a: its name is not durable"));
        disk.sync_folder(Path::new("/")).unwrap();
        assert_eq!(disk.find_broken(&promise).as_deref(), Some("/a/x: its content is not durable"));
        disk.sync_file(Path::new("/a/x")).unwrap();
        assert_eq!(disk.find_broken(&promise).as_deref(), Some("/a/x: its name is not durable"));
        disk.sync_folder(Path::new("/a")).unwrap();
        assert_eq!(disk.find_broken(&promise), None);
        disk.append(Path::new("/a/x"), b"er").unwrap();
        assert_eq!(disk.possible_contents(Path::new("/a/x")), [b"new".to_vec(), b"newer".to_vec()]);
        disk.remove(Path::new("/a/x")).unwrap();
        assert_eq!(disk.possible_contents(Path::new("/a/x")).len(), 2, "a removal is not durable either");
        disk.sync_folder(Path::new("/a")).unwrap();
        assert!(disk.possible_contents(Path::new("/a/x")).is_empty());
    }
}
