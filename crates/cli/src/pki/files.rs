//! The folder of a control plane's keys and certificates: reads it whole, writes it durably, one program at a time.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use host::disk::{Disk, LockGuard, RootedDisk};
use host::files::{self, FileWrite};
use host::machine::LinuxClock;
use pki::{Document, PkiFile, Secret, Validity};

use crate::outcome::{Code, Failure, OrFail};

/// There are keys inside.
const FOLDER_MODE: u32 = 0o700;
/// A certificate has a few kilobytes.
const FILE_LIMIT: u64 = 1024 * 1024;
/// `/etc/kubernetes/pki/etcd` is two below, a node's kubeconfig too.
const DEEPEST: usize = 4;
const LOCK: &str = ".nodestrap-pki.lock";
const ENDINGS: [&str; 7] = [".crt", ".key", ".pub", ".pem", ".conf", ".kubeconfig", ".old"];
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
        disk.make_folder(&folder, FOLDER_MODE).or_fail(Code::NeedsPerson)?;
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

/// Every file that may matter below a folder, by its path there.
pub(crate) fn load_folder(folder: &Path) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    walk(folder, "", DEEPEST, &mut documents)?;
    documents.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(documents)
}

fn walk(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<Document>) -> Result<(), Failure> {
    let context = || format!("cannot read {:?}", folder.display().to_string());
    for entry in std::fs::read_dir(folder).with_context(context).or_fail(Code::WrongInput)? {
        let entry = entry.with_context(context).or_fail(Code::WrongInput)?;
        // A name that is no text is none of ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 0 {
            walk(&entry.path(), &format!("{path}/"), depth - 1, found)?;
        } else if !is_folder && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            let document = load_file(&entry.path(), path)?;
            // Many programs call their configuration so.
            if !name.ends_with(".conf") || document.content.expose().contains("current-context") {
                found.push(document);
            }
        }
    }
    Ok(())
}

pub(crate) fn load_file(file: &Path, path: String) -> Result<Document, Failure> {
    let bytes = crate::documents::read_limited(file);
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not text".to_owned()));
    let text = text.map_err(|reason| anyhow::anyhow!("cannot read {:?}: {reason}", file.display().to_string()));
    Ok(Document { path, content: Secret::new(text.or_fail(Code::NeedsPerson)?) })
}
