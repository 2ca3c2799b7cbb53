//! The file system in memory, with what each file and folder may look like after a power loss.
//!
//! The model is worse than any real file system on purpose. Between two syncs every file and every single name may
//! independently be found in any state it was ever in; the content of a file may also be cut or filled with zeros from
//! any byte on. Order means nothing: a rename may survive whose file did not. Only a sync pins things down, and a sync
//! of a file says nothing about its name.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::crash::Moment;
use super::names::Names;
use crate::disk::Extent;

pub(super) type Ino = usize;

/// Links followed before a path counts as a circle, as in Linux.
const MAX_LINKS: u32 = 40;
const EXDEV: i32 = 18;
const ELOOP: i32 = 40;

#[derive(Clone)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) device: u64,
    /// Owners since the last sync, oldest first.
    pub(super) past_owners: Vec<(u32, u32)>,
}

#[derive(Clone)]
pub(super) enum Node {
    File(FileState),
    Folder(FolderState),
    Link(String),
}

#[derive(Clone, Default)]
pub(super) struct FileState {
    /// Shared between a disk and what is left of it after a crash: most files are never touched again.
    pub(super) now: Arc<Vec<u8>>,
    /// Contents since the last sync, oldest first; empty: `now` is durable, unless it was lost.
    past: Vec<Past>,
    /// What is on the medium instead of `now`, although nobody has anything to write back: the kernel shows the one and keeps
    /// the other.
    lost: Option<Arc<Vec<u8>>>,
}

/// A journal grows a hundred times between two syncs: what it was is kept as a length, not as a copy.
#[derive(Clone)]
enum Past {
    StartOfNow(usize),
    Other(Arc<Vec<u8>>),
}

impl FileState {
    pub(super) fn is_durable(&self) -> bool {
        self.past.is_empty() && self.lost.is_none()
    }

    /// What a power loss could leave besides `now`.
    pub(super) fn past(&self) -> impl Iterator<Item = &[u8]> {
        let lost = self.lost.iter().map(|lost| lost.as_slice());
        lost.chain(self.past.iter().map(|past| self.resolve(past)))
    }

    /// The medium refuses what is written back; its size arrives. Somebody else is told, and nobody tries again.
    fn lose(&mut self) {
        if !self.past.is_empty() {
            let whole = self.past.iter().map(|past| common_prefix(self.resolve(past), &self.now)).min().unwrap_or(0);
            let mut medium = self.now.to_vec();
            medium[whole..].fill(0);
            self.past.clear();
            self.lost = Some(Arc::new(medium));
        }
    }

    /// Everything that was not lost is on the medium.
    fn settle(&mut self) {
        self.past.clear();
        self.lost = self.lost.take().map(|lost| Arc::new(self.with_what_came_later(&lost)));
    }

    /// The lost bytes stay lost; what was appended since arrives.
    fn with_what_came_later(&self, lost: &[u8]) -> Vec<u8> {
        let kept = lost.len().min(self.now.len());
        [&lost[..kept], &self.now[kept..]].concat()
    }

    /// The kernel forgets what it need not write back any more.
    fn drop_cache(&mut self) {
        if self.past.is_empty()
            && let Some(lost) = self.lost.take()
        {
            self.now = lost;
        }
    }

    fn resolve<'a>(&'a self, past: &'a Past) -> &'a [u8] {
        match past {
            Past::StartOfNow(length) => &self.now[..*length],
            Past::Other(bytes) => bytes,
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.past.push(Past::StartOfNow(self.now.len()));
        Arc::make_mut(&mut self.now).extend_from_slice(bytes);
    }

    fn resize(&mut self, length: usize) {
        self.keep_past();
        Arc::make_mut(&mut self.now).resize(length, 0);
    }

    fn empty_start(&mut self, kept: usize) {
        self.keep_past();
        let emptied = self.now.len().saturating_sub(kept);
        Arc::make_mut(&mut self.now)[..emptied].fill(0);
    }

    /// Before a change that leaves the start of the file as it was no longer.
    fn keep_past(&mut self) {
        for index in 0..self.past.len() {
            let whole = self.resolve(&self.past[index]).to_vec();
            self.past[index] = Past::Other(Arc::new(whole));
        }
        self.past.push(Past::Other(Arc::clone(&self.now)));
    }
}

#[derive(Clone, Default)]
pub(super) struct FolderState {
    pub(super) now: BTreeMap<String, Ino>,
    /// What each changed name led to since the last sync, oldest first.
    pub(super) past: BTreeMap<String, Vec<Option<Ino>>>,
}

impl FolderState {
    fn set(&mut self, name: &str, ino: Option<Ino>) {
        self.past.entry(name.to_owned()).or_default().push(self.now.get(name).copied());
        match ino {
            Some(ino) => self.now.insert(name.to_owned(), ino),
            None => self.now.remove(name),
        };
    }
}

#[derive(Clone)]
pub(super) struct Tree {
    inodes: Vec<Inode>,
    /// Mount points and whether they survive a reboot.
    mounts: Vec<(Ino, Lasting)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    /// A tmpfs: gone at the next boot.
    UntilReboot,
    Durable,
}

/// Where a path leads: the folder, the name in it, and what is there.
struct Place {
    folder: Ino,
    name: String,
    found: Option<Ino>,
}

const ROOT: Ino = 0;

impl Tree {
    pub(super) fn new() -> Self {
        let root = Inode::new(Node::Folder(FolderState::default()), 0o755, 1);
        Self { inodes: vec![root], mounts: Vec::new() }
    }

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        &self.inodes[ino]
    }

    /// Makes a folder that is a file system of its own; its name is durable.
    pub(super) fn mount(&mut self, path: &Path, lasting: Lasting) -> io::Result<()> {
        self.make_folder(path, 0o755)?;
        let ino = self.existing(path)?;
        self.mounts.push((ino, lasting));
        self.inodes[ino].device = 1 + self.mounts.len() as u64;
        (0..self.inodes.len()).for_each(|each| self.settle(each));
        Ok(())
    }

    fn place(&self, path: &Path, follow_last: bool) -> io::Result<Place> {
        self.walk(path, follow_last).map(|(folder, name, found)| Place { folder, name: name.to_owned(), found })
    }

    /// What is at the path, if anything.
    pub(super) fn find(&self, path: &Path, follow_last: bool) -> io::Result<Option<Ino>> {
        self.walk(path, follow_last).map(|(_, _, found)| found)
    }

    /// The folder, the name in it, and what is there. It borrows its names: nothing is called as often as this.
    fn walk<'a>(&'a self, path: &'a Path, follow_last: bool) -> io::Result<(Ino, &'a str, Option<Ino>)> {
        let mut todo = Names::of(path)?;
        let mut stack = Vec::with_capacity(8);
        stack.push(ROOT);
        let mut links = 0;
        while let Some(name) = todo.next() {
            let folder = *stack.last().unwrap_or(&ROOT);
            if name == ".." {
                stack.truncate(stack.len().saturating_sub(1).max(1));
                continue;
            }
            let entries = &self.folder(folder)?.now;
            match entries.get(name).copied() {
                None if todo.is_empty() => return Ok((folder, name, None)),
                None => return Err(io::ErrorKind::NotFound.into()),
                Some(ino) => match &self.inodes[ino].node {
                    Node::Link(target) if follow_last || !todo.is_empty() => {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(io::Error::from_raw_os_error(ELOOP));
                        }
                        if target.starts_with('/') {
                            stack.truncate(1);
                        }
                        todo.go_through(target);
                    }
                    _ if todo.is_empty() => return Ok((folder, name, Some(ino))),
                    _ => stack.push(ino),
                },
            }
        }
        Ok((ROOT, ".", stack.last().copied()))
    }

    /// What is at the path, links followed.
    pub(super) fn existing(&self, path: &Path) -> io::Result<Ino> {
        self.find(path, true)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn folder(&self, ino: Ino) -> io::Result<&FolderState> {
        match &self.inodes[ino].node {
            Node::Folder(folder) => Ok(folder),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn create(&mut self, path: &Path, mode: u32, bytes: &[u8], moment: Moment) -> io::Result<()> {
        let ino = self.add(path, Node::File(FileState::default()), mode)?;
        self.change_file(ino, |file| file.append(written(bytes, moment)))
    }

    pub(super) fn append(&mut self, path: &Path, bytes: &[u8], moment: Moment) -> io::Result<()> {
        let ino = match self.find(path, false)? {
            Some(ino) => ino,
            None => self.add(path, Node::File(FileState::default()), 0o600)?,
        };
        self.change_file(ino, |file| file.append(written(bytes, moment)))
    }

    /// Empty; what is written to it later finds it by its number.
    pub(super) fn create_open(&mut self, path: &Path, mode: u32) -> io::Result<Ino> {
        self.add(path, Node::File(FileState::default()), mode)
    }

    pub(super) fn write(&mut self, ino: Ino, bytes: &[u8], moment: Moment) -> io::Result<()> {
        self.change_file(ino, |file| file.append(written(bytes, moment)))
    }

    pub(super) fn file(&self, ino: Ino) -> io::Result<&FileState> {
        match &self.inodes[ino].node {
            Node::File(file) => Ok(file),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    }

    pub(super) fn hard_link(&mut self, existing: &Path, path: &Path) -> io::Result<()> {
        let ino = self.find(existing, false)?.ok_or(io::ErrorKind::NotFound)?;
        self.file(ino)?;
        let place = self.place(path, false)?;
        match place.found {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => self.set_name(place.folder, &place.name, Some(ino)),
        }
    }

    /// On the way below a folder; what is missing is none.
    pub(super) fn refuse_links(&self, folder: &Path, below: &Path) -> io::Result<()> {
        let mut way = folder.to_owned();
        for name in below.parent().into_iter().flatten() {
            way.push(name);
            match self.find(&way, false)? {
                Some(ino) if matches!(self.inodes[ino].node, Node::Link(_)) => {
                    return Err(io::Error::from_raw_os_error(ELOOP));
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        let ino = self.find(path, false)?.ok_or(io::ErrorKind::NotFound)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.change_file(ino, |file| file.resize(length))
    }

    pub(super) fn empty_start(&mut self, path: &Path, kept: u64) -> io::Result<()> {
        let ino = self.find(path, false)?.ok_or(io::ErrorKind::NotFound)?;
        self.change_file(ino, |file| file.empty_start(usize::try_from(kept).unwrap_or(usize::MAX)))
    }

    pub(super) fn symlink(&mut self, target: &str, path: &Path) -> io::Result<()> {
        self.add(path, Node::Link(target.to_owned()), 0o777).map(drop)
    }

    pub(super) fn make_folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for folder in ancestors.into_iter().rev() {
            let mode = if folder == path { mode } else { 0o755 };
            match self.find(folder, true)? {
                Some(ino) => self.folder(ino).map(drop)?,
                None => self.add(folder, Node::Folder(FolderState::default()), mode).map(drop)?,
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.place(from, false)?, self.place(to, false)?);
        let moved = from.found.ok_or(io::ErrorKind::NotFound)?;
        if self.inodes[from.folder].device != self.inodes[to.folder].device {
            return Err(io::Error::from_raw_os_error(EXDEV));
        }
        if let Some(replaced) = to.found {
            match (&self.inodes[moved].node, &self.inodes[replaced].node) {
                (Node::Folder(_), Node::Folder(old)) if old.now.is_empty() => {}
                (Node::Folder(_), Node::Folder(_)) => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                (Node::Folder(_), _) => return Err(io::ErrorKind::NotADirectory.into()),
                (_, Node::Folder(_)) => return Err(io::ErrorKind::IsADirectory.into()),
                _ => {}
            }
            // Two names of one file: the kernel does nothing and says yes.
            if moved == replaced {
                return Ok(());
            }
        }
        self.set_name(to.folder, &to.name, Some(moved))?;
        self.set_name(from.folder, &from.name, None)
    }

    pub(super) fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        let (one, other) = (self.place(one, false)?, self.place(other, false)?);
        let (Some(first), Some(second)) = (one.found, other.found) else { return Err(io::ErrorKind::NotFound.into()) };
        if one.folder != other.folder {
            return Err(io::Error::from_raw_os_error(EXDEV));
        }
        self.set_name(one.folder, &one.name, Some(second))?;
        self.set_name(other.folder, &other.name, Some(first))
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<bool> {
        let place = match self.place(path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(false),
            other => other?,
        };
        let Some(ino) = place.found else { return Ok(false) };
        if self.folder(ino).is_ok_and(|folder| !folder.now.is_empty()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.set_name(place.folder, &place.name, None)?;
        Ok(true)
    }

    pub(super) fn set_owner(&mut self, path: &Path, owner: (u32, u32)) -> io::Result<()> {
        let ino = self.find(path, false)?.ok_or(io::ErrorKind::NotFound)?;
        let inode = &mut self.inodes[ino];
        inode.past_owners.push(inode.owner);
        inode.owner = owner;
        Ok(())
    }

    /// What a sync of this extent is about.
    fn within(&self, extent: Extent<'_>) -> io::Result<Vec<Ino>> {
        Ok(match extent {
            Extent::File(path) => vec![self.find(path, false)?.ok_or(io::ErrorKind::NotFound)?],
            Extent::Folder(path) => {
                let ino = self.existing(path)?;
                self.folder(ino)?;
                vec![ino]
            }
            Extent::FileSystem(path) => {
                let device = self.inodes[self.existing(path)?].device;
                (0..self.inodes.len()).filter(|ino| self.inodes[*ino].device == device).collect()
            }
            Extent::Everything => (0..self.inodes.len()).collect(),
        })
    }

    pub(super) fn sync(&mut self, extent: Extent<'_>) -> io::Result<()> {
        self.within(extent)?.into_iter().for_each(|ino| self.settle(ino));
        Ok(())
    }

    /// Of all contents that are not written back yet, none arrives.
    pub(super) fn lose_writeback(&mut self, extent: Extent<'_>) -> io::Result<()> {
        let memory = self.mounts.iter().filter(|(_, lasting)| *lasting == Lasting::UntilReboot);
        let memory: Vec<u64> = memory.map(|(ino, _)| self.inodes[*ino].device).collect();
        for ino in self.within(extent)? {
            let inode = &mut self.inodes[ino];
            if let Node::File(file) = &mut inode.node
                && !memory.contains(&inode.device)
            {
                file.lose();
            }
        }
        Ok(())
    }

    pub(super) fn drop_cache(&mut self, path: &Path) -> io::Result<()> {
        match self.find(path, false)? {
            Some(ino) => self.change_file(ino, FileState::drop_cache),
            None => Ok(()),
        }
    }

    /// One of the many trees that a power loss at this moment may leave, chosen by the seed.
    pub(super) fn after_power_loss(&self, seed: u64) -> Self {
        let mut tree = self.clone();
        let mut chance = Chance(seed);
        for inode in &mut tree.inodes {
            inode.lose_power(&mut chance);
        }
        for (ino, lasting) in &self.mounts {
            if *lasting == Lasting::UntilReboot {
                tree.inodes[*ino].node = Node::Folder(FolderState::default());
            }
        }
        tree.leave_folders_one_name(&mut chance);
        tree
    }

    /// A folder that was renamed may be found at its old or its new place, but on no file system at both: whoever removed the
    /// one would empty the other.
    fn leave_folders_one_name(&mut self, chance: &mut Chance) {
        let mut names = Vec::new();
        for (folder, inode) in self.inodes.iter().enumerate() {
            let Node::Folder(state) = &inode.node else { continue };
            let below = state.now.iter().filter(|(_, child)| matches!(self.inodes[**child].node, Node::Folder(_)));
            names.extend(below.map(|(name, child)| (*child, folder, name.clone())));
        }
        names.sort();
        if chance.below(2) == 0 {
            names.reverse();
        }
        for pair in names.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let (_, folder, name) = &pair[0];
            if let Node::Folder(state) = &mut self.inodes[*folder].node {
                state.now.remove(name);
            }
        }
    }

    fn add(&mut self, path: &Path, node: Node, mode: u32) -> io::Result<Ino> {
        let place = self.place(path, false)?;
        if place.found.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ino = self.inodes.len();
        self.inodes.push(Inode::new(node, mode & 0o7777, self.inodes[place.folder].device));
        self.set_name(place.folder, &place.name, Some(ino))?;
        Ok(ino)
    }

    fn set_name(&mut self, folder: Ino, name: &str, ino: Option<Ino>) -> io::Result<()> {
        match &mut self.inodes[folder].node {
            Node::Folder(state) if name != "." => {
                state.set(name, ino);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn change_file(&mut self, ino: Ino, change: impl FnOnce(&mut FileState)) -> io::Result<()> {
        match &mut self.inodes[ino].node {
            Node::File(file) => {
                change(file);
                Ok(())
            }
            Node::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
            Node::Link(_) => Err(io::Error::from_raw_os_error(ELOOP)),
        }
    }

    fn settle(&mut self, ino: Ino) {
        let inode = &mut self.inodes[ino];
        inode.past_owners.clear();
        match &mut inode.node {
            Node::File(file) => file.settle(),
            Node::Folder(folder) => folder.past.clear(),
            Node::Link(_) => {}
        }
    }
}

impl Inode {
    fn new(node: Node, mode: u32, device: u64) -> Self {
        Self { node, mode, owner: (0, 0), device, past_owners: Vec::new() }
    }

    fn lose_power(&mut self, chance: &mut Chance) {
        if let Some(owner) = chance.pick(&self.past_owners) {
            self.owner = owner;
        }
        self.past_owners.clear();
        match &mut self.node {
            Node::File(file) if !file.is_durable() => {
                file.now = Arc::new(surviving_content(file, chance));
                file.past.clear();
                file.lost = None;
            }
            Node::File(_) => {}
            Node::Folder(folder) => {
                for (name, past) in std::mem::take(&mut folder.past) {
                    match chance.pick(&past) {
                        None => {}
                        Some(None) => drop(folder.now.remove(&name)),
                        Some(Some(ino)) => drop(folder.now.insert(name, ino)),
                    }
                }
            }
            Node::Link(_) => {}
        }
    }
}

fn surviving_content(file: &FileState, chance: &mut Chance) -> Vec<u8> {
    if let Some(lost) = &file.lost {
        return if chance.below(2) == 0 { lost.to_vec() } else { file.with_what_came_later(lost) };
    }
    let versions: Vec<&[u8]> = file.past().chain([file.now.as_slice()]).collect();
    let durable = versions[0];
    let version = versions[chance.below(versions.len())];
    // Bytes that were durable and never changed since cannot be lost.
    let kept = versions.iter().map(|each| common_prefix(durable, each)).min().unwrap_or(0);
    let cut = kept + chance.below(version.len() - kept.min(version.len()) + 1);
    match chance.below(5) {
        0 => durable.to_vec(),
        1 => version.to_vec(),
        2 => file.now.to_vec(),
        // The size arrived, the data did not.
        3 => version[..cut].iter().copied().chain(std::iter::repeat_n(0, version.len() - cut)).collect(),
        _ => version[..cut].to_vec(),
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn written(bytes: &[u8], moment: Moment) -> &[u8] {
    match moment {
        Moment::Midway => &bytes[..bytes.len() / 2],
        _ => bytes,
    }
}

/// SplitMix64: small, and every seed is a good one.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// One of the past states, or `None` for the present one.
    fn pick<T: Clone>(&mut self, past: &[T]) -> Option<T> {
        past.get(self.below(past.len() + 1)).cloned()
    }
}
