//! One part of the cache: made in a temporary folder under a lock, then renamed into place, so it is complete or absent.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::state::lock_file;

/// The first run takes minutes; silence for longer than this looks like a hang.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Fills a folder; the second path is the log for what its programs say.
pub(super) type Recipe = Box<dyn Fn(&Path, &Path) -> Result<()>>;

pub(super) struct Part {
    pub(super) name: &'static str,
    /// What is being made and how long it takes, for the person who waits.
    pub(super) description: String,
    /// Hash of everything that decides the content.
    pub(super) key: String,
    pub(super) recipe: Recipe,
}

impl Part {
    fn place(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.key))
    }

    pub(super) fn is_present(&self, cache: &Path) -> bool {
        self.place(cache).is_dir()
    }

    /// The folder of this part, made now if nobody has made it before.
    pub(super) fn ensure(&self, cache: &Path) -> Result<PathBuf> {
        let place = self.place(cache);
        if place.is_dir() {
            return Ok(place);
        }
        std::fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
        let _lock = lock_file(&cache.join(format!("{}.lock", self.name)))?;
        if place.is_dir() {
            return Ok(place);
        }
        let fresh = cache.join(format!(".making-{}", self.name));
        // Left by a run that was killed; the lock says that nobody is working in it.
        remove_tree(&fresh)?;
        std::fs::create_dir(&fresh).with_context(|| format!("creating {}", fresh.display()))?;
        let log = cache.join(format!("{}.log", self.name));
        let _ = std::fs::remove_file(&log);
        let progress = Progress::start(self.name, &self.description);
        let outcome = (self.recipe)(&fresh, &log);
        progress.end(outcome.is_ok());
        outcome.with_context(|| format!("making the part '{}' of the cache", self.name))?;
        std::fs::rename(&fresh, &place).with_context(|| format!("renaming {} into place", fresh.display()))?;
        Ok(place)
    }
}

fn remove_tree(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Twelve hex digits over the inputs, each with its length so that no two lists of inputs look alike.
pub(super) fn key<T: AsRef<[u8]>>(inputs: &[T]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update((input.as_ref().len() as u64).to_le_bytes());
        hash.update(input.as_ref());
    }
    data_encoding::HEXLOWER.encode(&hash.finalize())[..12].to_owned()
}

/// The content of every file of a recipe folder, in order of name; its sub-folders are other recipes.
pub(super) fn recipe_files(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    let mut content = Vec::new();
    for path in paths {
        content.push(path.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
        content.push(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(content)
}

struct Progress {
    name: &'static str,
    start: Instant,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Progress {
    fn start(name: &'static str, description: &str) -> Self {
        eprintln!("lab: {name}: {description}; not in the cache yet");
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("lab: {name}: {} s …", start.elapsed().as_secs());
            }
        });
        Self { name, start, stop, thread }
    }

    fn end(self, done: bool) {
        drop(self.stop);
        let _ = self.thread.join();
        let outcome = if done { "done" } else { "FAILED" };
        eprintln!("lab: {}: {outcome} after {} s", self.name, self.start.elapsed().as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(key: &str, recipe: impl Fn(&Path, &Path) -> Result<()> + 'static) -> Part {
        Part { name: "thing", description: "a thing".into(), key: key.into(), recipe: Box::new(recipe) }
    }

    #[test]
    fn a_part_is_made_once_and_then_found() {
        let cache = tempfile::tempdir().expect("temporary folder");
        let made = part("k1", |folder, _| Ok(std::fs::write(folder.join("x"), "1")?)).ensure(cache.path());
        let found = part("k1", |_, _| anyhow::bail!("made twice")).ensure(cache.path());
        assert_eq!(made.expect("made"), found.expect("found"));
    }

    #[test]
    fn a_failed_part_is_absent_and_what_it_left_does_not_reach_the_next_try() {
        let cache = tempfile::tempdir().expect("temporary folder");
        let half = part("k1", |folder, _| {
            std::fs::write(folder.join("half"), "")?;
            anyhow::bail!("power cut")
        });
        assert!(half.ensure(cache.path()).is_err());
        assert!(!half.is_present(cache.path()));
        let whole = part("k1", |_, _| Ok(())).ensure(cache.path()).expect("second try");
        assert!(!whole.join("half").exists());
    }

    #[test]
    fn keys_differ_when_the_same_bytes_are_split_differently() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
    }
}
