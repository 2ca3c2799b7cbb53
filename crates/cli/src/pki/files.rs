//! The folder of a control plane's keys and certificates: reads it whole, writes it durably, one program at a time.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use host::disk::{Disk, LockGuard, RootedDisk};
use host::files::{self, FileWrite};
use host::machine::LinuxClock;
use pki::{Document, PkiFile, Secret, Validity};
use serde::Serialize;

use crate::documents::{read_found, read_limited};
use crate::outcome::{Code, Failure, OrFail};
use crate::show::{Paint, Screen};

/// Beside those who own it.
const EVERYBODY: u32 = 0o007;
/// There are keys inside.
const FOLDER_MODE: u32 = 0o700;
/// A certificate has a few kilobytes.
const FILE_LIMIT: u64 = 1024 * 1024;
/// `/etc/kubernetes/pki/etcd` is two below, a node's kubeconfig too.
const DEEPEST: usize = 4;
const LOCK: &str = ".nodestrap-pki.lock";
const ENDINGS: [&str; 7] = [".crt", ".key", ".pub", ".pem", ".conf", ".kubeconfig", ".old"];
/// Whatever is in them: a damaged one must not be taken for the configuration of another program.
const KUBECONFIGS: [&str; 6] =
    ["admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf", "kube-proxy.conf", "kubelet.conf"];
/// Other machines' clocks may be behind; kubeadm allows as much.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(LinuxClock::new().now_ms())
}

/// From a little before now to a lifetime from now.
pub(crate) fn validity(now: SystemTime, lifetime: Duration) -> Validity {
    Validity { start: now - BACKDATE, lifetime: lifetime.saturating_add(BACKDATE) }
}

/// A folder on this machine that nobody else of us writes to meanwhile.
pub(crate) struct PkiFolder {
    disk: RootedDisk,
    folder: PathBuf,
    _lock: LockGuard,
}

impl PkiFolder {
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let disk = RootedDisk::open(Path::new("/")).or_fail(Code::NeedsPerson)?;
        let folder = std::path::absolute(folder).or_fail(Code::WrongInput)?;
        // Made if it is missing; from here on nobody else can exchange it.
        RootedDisk::open_trusted(&folder, FOLDER_MODE).or_fail(Code::NeedsPerson)?;
        let lock = disk.try_lock(&folder.join(LOCK)).or_fail(Code::NeedsPerson)?;
        let busy = || anyhow::anyhow!("another nodestrap works on {:?}; wait for it", folder.display().to_string());
        let lock = lock.ok_or_else(busy).or_fail(Code::Busy)?;
        Ok(Self { disk, folder, _lock: lock })
    }

    /// `None` if nothing is there.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Secret>, Failure> {
        let bytes = self.disk.read(&self.folder.join(path), FILE_LIMIT).or_fail(Code::NeedsPerson)?;
        let text = bytes.map(String::from_utf8).transpose();
        let text = text.map_err(|_| anyhow::anyhow!("{path} is not text")).or_fail(Code::NeedsPerson)?;
        Ok(text.map(Secret::new))
    }

    /// Which of these are keys for everybody.
    pub(crate) fn exposed(&self, paths: &[String]) -> Vec<Exposed> {
        paths.iter().filter_map(|path| exposure(&self.folder.join(path), path)).collect()
    }

    /// In the given order; each file is old or new at any instant, and all are new for ever when this returns.
    pub(crate) fn write(&self, files: &[PkiFile]) -> Result<(), Failure> {
        if files.is_empty() {
            return Ok(());
        }
        let paths: Vec<PathBuf> = files.iter().map(|file| self.folder.join(&file.path)).collect();
        for path in &paths {
            let below = path.ancestors().skip(1).take_while(|folder| *folder != self.folder);
            for folder in below.collect::<Vec<_>>().into_iter().rev() {
                self.disk.make_folder(folder, FOLDER_MODE).or_fail(Code::NeedsPerson)?;
            }
        }
        let writes: Vec<FileWrite<'_>> = files
            .iter()
            .zip(&paths)
            .map(|(file, path)| FileWrite {
                path,
                mode: file.mode,
                owner: None,
                content: file.content.expose().as_bytes(),
            })
            .collect();
        let staged = files::stage(&self.disk, &writes).or_fail(Code::NeedsPerson)?;
        files::commit(&self.disk, staged).or_fail(Code::NeedsPerson)
    }
}

/// What was found below a folder or named on the command line.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) documents: Vec<Document>,
    pub(crate) exposed: Vec<Exposed>,
}

/// A private key that everybody on the machine may read.
#[derive(Serialize)]
pub(crate) struct Exposed {
    pub(crate) file: String,
    mode: String,
}

impl Exposed {
    pub(crate) fn line(&self, screen: &Screen) -> String {
        let Self { file, mode } = self;
        let sign = screen.paint(Paint::Bad, "!");
        format!("{sign} {file} holds a private key and is open to everybody (mode {mode}): chmod 600 {file}\n")
    }
}

fn exposure(file: &Path, path: &str) -> Option<Exposed> {
    let holds_key = [".key", ".key.old", ".conf", ".conf.old", ".kubeconfig"].iter().any(|end| path.ends_with(end));
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o7777;
    (holds_key && mode & EVERYBODY != 0).then(|| Exposed { file: path.to_owned(), mode: format!("{mode:04o}") })
}

/// Every file that may matter below a folder, by its path there.
pub(crate) fn load_folder(folder: &Path) -> Result<Loaded, Failure> {
    let mut found = Loaded::default();
    let context = || format!("cannot read {:?}", folder.display().to_string());
    walk(folder, "", DEEPEST, &mut found).with_context(context).or_fail(Code::WrongInput)?;
    found.documents.sort_by(|one, other| one.path.cmp(&other.path));
    found.exposed.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, depth: usize, found: &mut Loaded) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A name that is no text is none of ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 0 {
            // One folder that is closed to us must not hide the others.
            if let Err(error) = walk(&entry.path(), &format!("{path}/"), depth - 1, found) {
                found.documents.push(Document { path, content: Err(error.to_string()) });
            }
        } else if !is_folder && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            found.add_of_folder(&entry.path(), &name, path);
        }
    }
    Ok(())
}

impl Loaded {
    fn add_of_folder(&mut self, file: &Path, name: &str, path: String) {
        let content = read_found(file).and_then(text_of);
        // Many programs call their configuration so.
        let is_kubeconfig = || content.as_ref().is_ok_and(|text| text.expose().contains("current-context"));
        if name.ends_with(".conf") && !KUBECONFIGS.contains(&name) && !is_kubeconfig() {
            return;
        }
        self.exposed.extend(exposure(file, &path));
        self.documents.push(Document { path, content });
    }

    /// A file that somebody named.
    pub(crate) fn add(&mut self, file: &Path, path: String) {
        self.exposed.extend(exposure(file, &path));
        self.documents.push(Document { path, content: read_limited(file).and_then(text_of) });
    }

    /// Those of a folder, below its name.
    pub(crate) fn add_below(&mut self, prefix: &str, inside: Self) {
        let below = |path| format!("{prefix}{path}");
        self.documents.extend(inside.documents.into_iter().map(|found| Document { path: below(found.path), ..found }));
        self.exposed.extend(inside.exposed.into_iter().map(|found| Exposed { file: below(found.file), ..found }));
    }
}

fn text_of(bytes: Vec<u8>) -> Result<Secret, String> {
    String::from_utf8(bytes).map(Secret::new).map_err(|_| "it is not text, as PEM is".to_owned())
}
