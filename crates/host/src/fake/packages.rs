//! apt and dpkg behind [`super::FakeUnits`]: they keep dpkg's database on a [`FakeDisk`], and can be cut off between any two
//! packages, as by a loss of power.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::disk::FakeDisk;
use crate::disk::{Disk as _, DiskError};
use crate::packages::dpkg::{STATUS_PATH, State, Status, load, parse_status};

/// What repositories have, by name and version.
#[derive(Clone, Default)]
pub struct FakeRepository {
    packages: BTreeMap<(String, String), FakePackage>,
    /// Nobody answers.
    pub is_down: bool,
    /// Signed by a key that nobody has been told of.
    pub is_unsigned: bool,
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
    pub(super) fn plan(&self, command: &[String], output: &Path, disk: &FakeDisk) -> Result<Vec<Operation>, String> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let status = load(disk).map_err(|error| error.to_string())?;
        let has = |word: &str| words.contains(&word);
        match words.first().copied().unwrap_or_default() {
            "/usr/bin/apt-get" if has("update") => self.reach().map(|()| Vec::new()),
            "/usr/bin/apt-get" if status.packages.values().any(waits_to_be_configured) => {
                Err("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'".to_owned())
            }
            "/usr/bin/apt-get" if has("--download-only") => self.download(&words, &status),
            "/usr/bin/apt-get" => self.install(&words, &status, disk),
            "/usr/bin/dpkg" if has("--configure") => Ok(self.configure(&status)),
            "/usr/bin/dpkg" if has("--purge") => self.remove(&words, &status, Configuration::Goes),
            "/usr/bin/dpkg" if has("--remove") => self.remove(&words, &status, Configuration::Stays),
            "/usr/bin/apt-mark" => Ok(vec![mark(&words)]),
            // Of all that rpm and dnf do, this one thing.
            "/usr/bin/rpm" if has("-qa") => Ok(vec![list(&status, output)]),
            other => Err(format!("no such program: {other}")),
        }
    }

    fn reach(&self) -> Result<(), String> {
        match () {
            () if self.is_down => Err("E: Failed to fetch".to_owned()),
            () if self.is_unsigned => Err("E: The repository 'https://packages' is not signed.".to_owned()),
            () => Ok(()),
        }
    }

    /// With all that it depends on and is not there, dependencies first. What is named without a version becomes the newest.
    fn transaction(&self, words: &[&str], status: &Status) -> Result<Vec<(String, String)>, String> {
        let mut order = Vec::new();
        for word in wanted(words) {
            let (name, version) = match word.split_once('=') {
                Some((name, version)) => (name, Some(version.to_owned())),
                None => (word, self.newest(word)),
            };
            self.require(name, version.as_deref(), status, &mut order)?;
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
            Box::new(move |disk| write(disk, &path, 0o644, ARCHIVE))
        };
        Ok(self.transaction(words, status)?.into_iter().map(operation).collect())
    }

    fn install(&self, words: &[&str], status: &Status, disk: &FakeDisk) -> Result<Vec<Operation>, String> {
        let order = self.transaction(words, status)?;
        if words.contains(&"--no-download") {
            let folder = archives(words)?;
            for (name, version) in &order {
                let path = format!("{folder}/{name}_{}_amd64.deb", version.replace(':', "%3a"));
                let found = disk.read(Path::new(&path), 1024).map_err(|error| error.to_string())?;
                if found.is_none_or(|found| found != ARCHIVE.as_bytes()) {
                    return Err("E: Unable to fetch some archives".to_owned());
                }
            }
        } else {
            self.reach()?;
        }
        let mut operations: Vec<Operation> = Vec::new();
        for (name, version) in &order {
            let package = self.packages[&(name.clone(), version.clone())].clone();
            let state = |state: &'static str| -> Operation {
                let (name, version, depends) = (name.clone(), version.clone(), package.depends.clone());
                Box::new(move |disk| set(disk, &name, Some((&version, state)), &depends))
            };
            operations.push(state(HALF_INSTALLED));
            let brought = package.clone();
            operations.push(Box::new(move |disk| unpack(disk, &brought)));
            operations.push(state("unpacked"));
            operations.push(state("installed"));
        }
        Ok(operations)
    }

    fn configure(&self, status: &Status) -> Vec<Operation> {
        let cut_off = status.packages.iter().filter(|(_, package)| waits_to_be_configured(package));
        let operation = |(name, package): (&String, &crate::packages::dpkg::Package)| -> Operation {
            let (name, version) = (name.clone(), package.version.clone());
            let depends: Vec<String> = package.depends.iter().flatten().cloned().collect();
            Box::new(move |disk| set(disk, &name, Some((&version, "installed")), &depends))
        };
        cut_off.map(operation).collect()
    }

    fn remove(&self, words: &[&str], status: &Status, configuration: Configuration) -> Result<Vec<Operation>, String> {
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
            let version = package.version.clone();
            operations.push(Box::new(move |disk| {
                brought.files.keys().try_for_each(|path| disk.remove(Path::new(path)).map(drop))?;
                if configuration == Configuration::Stays {
                    return set(disk, &name, Some((&version, "config-files")), &[]);
                }
                brought.conffiles.keys().try_for_each(|path| disk.remove(Path::new(path)).map(drop))?;
                set(disk, &name, None, &[])
            }));
        }
        Ok(operations)
    }
}

/// What is in every archive that came through whole.
const ARCHIVE: &str = "an archive";

#[derive(Clone, Copy, PartialEq)]
enum Configuration {
    Goes,
    Stays,
}

fn unpack(disk: &FakeDisk, package: &FakePackage) -> Result<(), DiskError> {
    for (path, content) in &package.files {
        write(disk, path, 0o755, content)?;
    }
    for (path, content) in &package.conffiles {
        if disk.stat(Path::new(path))?.is_none() {
            write(disk, path, 0o644, content)?;
        }
    }
    Ok(())
}

/// Which no configuring brings to its end, but only another installation.
const HALF_INSTALLED: &str = "half-installed";

fn waits_to_be_configured(package: &crate::packages::dpkg::Package) -> bool {
    matches!(&package.state, State::Interrupted(state) if state != HALF_INSTALLED)
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

/// As rpm is told to print it.
fn list(status: &Status, output: &Path) -> Operation {
    let line = |(name, package): (&String, &crate::packages::Package)| {
        format!("P\t{name}\t0:{}\t{}\t1\n", package.version, package.architecture)
    };
    let (text, output) = (status.packages.iter().map(line).collect::<String>(), output.to_owned());
    Box::new(move |disk| disk.append(&output, text.as_bytes()))
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
    // Machines have these folders for ever; this one may be new.
    for folder in path.ancestors().skip(1).filter(|folder| folder.parent().is_some()) {
        disk.make_folder(folder, 0o755)?;
        folder.parent().map_or(Ok(()), |above| disk.sync_folder(above))?;
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
    if let Some((version, state)) = to {
        let want = if is_held { "hold" } else { "install" };
        status.packages.extend(parse_status(&stanza(name, version, want, state, depends)).packages);
    }
    write(disk, STATUS_PATH, 0o644, &print(&status))
}

fn hold_one(disk: &FakeDisk, name: &str, is_held: bool) -> Result<(), DiskError> {
    let mut status = load(disk)?;
    if let Some(package) = status.packages.get_mut(name) {
        package.is_held = is_held;
    }
    write(disk, STATUS_PATH, 0o644, &print(&status))
}
