//! apt and dpkg behind [`super::FakeUnits`]: they keep dpkg's database on a [`FakeDisk`], and can be cut off between any two
//! packages, as by a loss of power.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::disk::FakeDisk;
use crate::disk::{Disk as _, DiskError};
use crate::packages::dpkg::{STATUS_PATH, State, Status, load};

/// What repositories have, by name and version.
#[derive(Clone, Default)]
pub struct FakeRepository {
    packages: BTreeMap<(String, String), FakePackage>,
    /// Nobody answers.
    pub is_down: bool,
}

#[derive(Clone, Default)]
pub struct FakePackage {
    pub depends: Vec<String>,
    /// Programs and units, by path: 0755.
    pub files: BTreeMap<String, String>,
    /// Kept as they are if they are there.
    pub conffiles: BTreeMap<String, String>,
}

/// One thing that a package manager does and that cannot be cut off within.
pub(super) type Operation = Box<dyn FnOnce(&FakeDisk) -> Result<(), DiskError>>;

impl FakeRepository {
    pub fn add(&mut self, name: &str, version: &str, package: FakePackage) {
        self.packages.insert((name.to_owned(), version.to_owned()), package);
    }

    fn newest(&self, name: &str) -> Option<String> {
        self.packages.keys().filter(|(known, _)| known == name).map(|(_, version)| version.clone()).next_back()
    }

    /// What a command does, one by one; `Err`: it fails, with these words.
    pub(super) fn plan(&self, command: &[String], disk: &FakeDisk) -> Result<Vec<Operation>, String> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let status = load(disk).map_err(|error| error.to_string())?;
        let has = |word: &str| words.contains(&word);
        match words.first().copied().unwrap_or_default() {
            "/usr/bin/apt-get" if has("update") => self.reach().map(|()| Vec::new()),
            "/usr/bin/apt-get" if status.is_interrupted => {
                Err("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'".to_owned())
            }
            "/usr/bin/apt-get" if has("--download-only") => self.download(&words, &status),
            "/usr/bin/apt-get" => self.install(&words, &status, disk),
            "/usr/bin/dpkg" if has("--configure") => Ok(self.configure(&status)),
            "/usr/bin/dpkg" if has("--purge") => self.purge(&words, &status),
            "/usr/bin/apt-mark" => Ok(vec![mark(&words)]),
            other => Err(format!("no such program: {other}")),
        }
    }

    fn reach(&self) -> Result<(), String> {
        match self.is_down {
            true => Err("E: Failed to fetch".to_owned()),
            false => Ok(()),
        }
    }

    /// With all that it depends on and is not there, dependencies first.
    fn transaction(&self, words: &[&str], status: &Status) -> Result<Vec<(String, String)>, String> {
        let mut order = Vec::new();
        for word in wanted(words) {
            let (name, version) = word.split_once('=').map_or((word, None), |(name, version)| (name, Some(version)));
            self.require(name, version, status, &mut order)?;
        }
        Ok(order)
    }

    fn require(
        &self,
        name: &str,
        version: Option<&str>,
        status: &Status,
        order: &mut Vec<(String, String)>,
    ) -> Result<(), String> {
        let there = status.packages.get(name).filter(|package| package.state == State::Installed);
        let fits = there.is_some_and(|package| version.is_none_or(|version| version == package.version));
        if fits || order.iter().any(|(known, _)| known == name) {
            return Ok(());
        }
        let version = version.map(str::to_owned).or_else(|| self.newest(name));
        let key = version.map(|version| (name.to_owned(), version));
        let found = key.as_ref().and_then(|key| self.packages.get(key));
        let (Some(key), Some(package)) = (&key, found) else { return Err(format!("E: Unable to locate {name}")) };
        for dependency in &package.depends {
            self.require(dependency, None, status, order)?;
        }
        order.push(key.clone());
        Ok(())
    }

    fn download(&self, words: &[&str], status: &Status) -> Result<Vec<Operation>, String> {
        self.reach()?;
        let folder = archives(words)?;
        let operation = |(name, version): (String, String)| -> Operation {
            let path = format!("{folder}/{name}_{}_amd64.deb", version.replace(':', "%3a"));
            Box::new(move |disk| write(disk, &path, 0o644, "an archive"))
        };
        Ok(self.transaction(words, status)?.into_iter().map(operation).collect())
    }

    fn install(&self, words: &[&str], status: &Status, disk: &FakeDisk) -> Result<Vec<Operation>, String> {
        let order = self.transaction(words, status)?;
        if words.contains(&"--no-download") {
            let folder = archives(words)?;
            for (name, version) in &order {
                let path = format!("{folder}/{name}_{}_amd64.deb", version.replace(':', "%3a"));
                if !matches!(disk.stat(Path::new(&path)), Ok(Some(_))) {
                    return Err(format!("E: Unable to fetch {path}"));
                }
            }
        } else {
            self.reach()?;
        }
        let mut operations: Vec<Operation> = Vec::new();
        for (name, version) in &order {
            let (first, second) = (name.clone(), name.clone());
            let (old, new, package) =
                (version.clone(), version.clone(), self.packages[&(name.clone(), version.clone())].clone());
            let depends = package.depends.clone();
            let again = depends.clone();
            operations.push(Box::new(move |disk| {
                set(disk, &first, Some((&old, "unpacked")), &depends)?;
                for (path, content) in &package.files {
                    write(disk, path, 0o755, content)?;
                }
                for (path, content) in &package.conffiles {
                    if disk.stat(Path::new(path))?.is_none() {
                        write(disk, path, 0o644, content)?;
                    }
                }
                Ok(())
            }));
            operations.push(Box::new(move |disk| set(disk, &second, Some((&new, "installed")), &again)));
        }
        Ok(operations)
    }

    fn configure(&self, status: &Status) -> Vec<Operation> {
        let cut_off = status.packages.iter().filter(|(_, package)| matches!(package.state, State::Interrupted(_)));
        let operation = |(name, package): (&String, &crate::packages::dpkg::Package)| -> Operation {
            let (name, version) = (name.clone(), package.version.clone());
            let depends: Vec<String> = package.depends.iter().flatten().cloned().collect();
            Box::new(move |disk| set(disk, &name, Some((&version, "installed")), &depends))
        };
        cut_off.map(operation).collect()
    }

    fn purge(&self, words: &[&str], status: &Status) -> Result<Vec<Operation>, String> {
        let names: BTreeSet<String> = wanted(words).map(str::to_owned).collect();
        if let Some(needed) = status.needed_by_others(&names).first() {
            return Err(format!("dpkg: dependency problems prevent removal of {needed}"));
        }
        let mut operations: Vec<Operation> = Vec::new();
        for name in names {
            let Some(package) = status.packages.get(&name) else { continue };
            if package.is_held {
                return Err(format!("dpkg: package {name} is on hold"));
            }
            let brought = self.packages.get(&(name.clone(), package.version.clone())).cloned().unwrap_or_default();
            operations.push(Box::new(move |disk| {
                for path in brought.files.keys().chain(brought.conffiles.keys()) {
                    disk.remove(Path::new(path))?;
                }
                set(disk, &name, None, &[])
            }));
        }
        Ok(operations)
    }
}

/// The names behind the options.
fn wanted<'w>(words: &'w [&str]) -> impl Iterator<Item = &'w str> {
    let is_value = |index: usize| index > 0 && words[index - 1] == "-o";
    let names =
        words.iter().enumerate().skip(1).filter(move |(index, word)| !word.starts_with('-') && !is_value(*index));
    names.map(|(_, word)| *word).filter(|word| !["install", "hold", "unhold"].contains(word))
}

fn archives(words: &[&str]) -> Result<String, String> {
    let folder = words.iter().find_map(|word| word.strip_prefix("Dir::Cache::archives="));
    folder.map(str::to_owned).ok_or_else(|| "no folder for archives".to_owned())
}

fn mark(words: &[&str]) -> Operation {
    let (hold, names) = (words.contains(&"hold"), wanted(words).map(str::to_owned).collect::<Vec<_>>());
    Box::new(move |disk| {
        for name in &names {
            hold_one(disk, name, hold)?;
        }
        Ok(())
    })
}

/// As dpkg does it: durable before it has the name.
fn write(disk: &FakeDisk, path: &str, mode: u32, content: &str) -> Result<(), DiskError> {
    let (path, new) = (Path::new(path), format!("{path}.dpkg-new"));
    let new = Path::new(&new);
    if let Some(folder) = path.parent() {
        disk.make_folder(folder, 0o755)?;
    }
    disk.remove(new)?;
    disk.create(new, mode, content.as_bytes())?;
    disk.sync_file(new)?;
    disk.rename(new, path)?;
    path.parent().map_or(Ok(()), |folder| disk.sync_folder(folder))
}

fn stanza(name: &str, version: &str, want: &str, state: &str, depends: &[String]) -> String {
    let depends = if depends.is_empty() { String::new() } else { format!("Depends: {}\n", depends.join(", ")) };
    format!("Package: {name}\nStatus: {want} ok {state}\nArchitecture: amd64\nVersion: {version}\n{depends}\n")
}

fn print(status: &Status) -> String {
    let one = |(name, package): (&String, &crate::packages::dpkg::Package)| {
        let state = match &package.state {
            State::Installed => "installed",
            State::Interrupted(state) => state,
            State::ConfigFiles => "config-files",
        };
        let depends: Vec<String> = package.depends.iter().flatten().cloned().collect();
        stanza(name, &package.version, if package.is_held { "hold" } else { "install" }, state, &depends)
    };
    status.packages.iter().map(one).collect()
}

/// `None`: not installed any more.
fn set(disk: &FakeDisk, name: &str, to: Option<(&str, &str)>, depends: &[String]) -> Result<(), DiskError> {
    let mut status = load(disk)?;
    let is_held = status.packages.remove(name).is_some_and(|package| package.is_held);
    let mut text = print(&status);
    if let Some((version, state)) = to {
        text.push_str(&stanza(name, version, if is_held { "hold" } else { "install" }, state, depends));
    }
    write(disk, STATUS_PATH, 0o644, &text)
}

fn hold_one(disk: &FakeDisk, name: &str, is_held: bool) -> Result<(), DiskError> {
    let mut status = load(disk)?;
    if let Some(package) = status.packages.get_mut(name) {
        package.is_held = is_held;
    }
    write(disk, STATUS_PATH, 0o644, &print(&status))
}
