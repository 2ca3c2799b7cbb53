//! Credentials that have done their work: once the API server accepts the kubelet's own certificate, what the node joined with
//! is taken away, as a file and from every copy of the bundle that is ours.
//!
//! ```text
//! spent.json: this very content was spent here      from here on nobody misses the file
//!   → bundle.json, bundles/, platform.json          its content gives way to its sum; the digest stays that of the whole
//!   → the bootstrap kubeconfig                      removed
//! ```
//!
//! Each arrow is durable before the next. Killed in between, a node has too much and never too little: the file is the last
//! to go, and a kubelet that has a certificate and its kubeconfig does not read it. The note holds for one content only, and
//! only while the kubelet has both: other credentials, or the same ones delivered again to a kubelet that lost its own, are
//! written as ever.

use std::path::Path;

use bundle::{AbsolutePath, BUNDLE_PATH, Bundle, Content, File, Join, MAX_BUNDLE_BYTES, Payload};
use engine::StepError;
use host::disk::{Disk, DiskError, Kind, Look, Stat};
use host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use crate::failure::disk_error;
use crate::resource::credential::needs_no_bootstrap;
use crate::session::{LOCK_PATH, SessionError};
use crate::{complete, kept, platform, sealed};

pub(crate) const SPENT_PATH: &str = "/var/lib/nodestrap/spent.json";
/// Of the note, and of bundles, which may have other secrets.
const SECRET_MODE: u32 = 0o600;
/// A path and a digest.
const SPENT_LIMIT: u64 = 64 * 1024;

/// Credentials by their digest; no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Credentials {
    path: AbsolutePath,
    /// Lower-case hexadecimal digits.
    sha256: String,
}

/// What a complete node joined with, and where it shall have joined.
pub struct Spendable {
    pub join: Join,
    credentials: Credentials,
}

/// What the node was last completed with, if it joins with something that is its own to take away and that is still here.
pub fn find_spendable(disk: &dyn Disk) -> Result<Option<Spendable>, FileError> {
    let Some(complete) = complete::load(disk)? else { return Ok(None) };
    let join = complete.manifest.join;
    // Without a certificate of its own, the kubelet goes on with what it was given.
    let is_kept = join.bootstrap_kubeconfig == join.kubeconfig;
    let given = complete.manifest.files.into_iter().find(|file| file.path == join.bootstrap_kubeconfig && !is_kept);
    let Some(file) = given else { return Ok(None) };
    let credentials = Credentials { path: file.path, sha256: file.sha256 };
    let is_here = disk.stat(credentials.path.as_path())?.is_some() || copies_hold(disk, &credentials)?;
    Ok(is_here.then_some(Spendable { join, credentials }))
}

/// What was done about credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The paths that were changed, in order.
    pub changed: Vec<String>,
    /// Why the node's own bundle could not be looked into: it may still hold them, and only a person can tell.
    pub unread: Option<String>,
}

/// Takes them away; durable when it returns.
pub fn spend(disk: &dyn Disk, spendable: &Spendable) -> Result<Spent, SessionError> {
    let lock = disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    take_away(disk, &spendable.credentials).map_err(SessionError::Spend)
}

fn take_away(disk: &dyn Disk, credentials: &Credentials) -> Result<Spent, FileError> {
    files::write_durable(disk, Path::new(SPENT_PATH), SECRET_MODE, &sealed::print(credentials), None)?;
    let mut changed = Vec::new();
    let mut unread = None;
    for path in documents(disk)? {
        match read_document(disk, &path, credentials)? {
            Document::With(document) => {
                files::write_durable(disk, Path::new(&path), SECRET_MODE, document.as_bytes(), None)?;
                changed.push(path);
            }
            Document::Without => {}
            Document::Unreadable(what) if path == BUNDLE_PATH => unread = Some(format!("{path} {what}")),
            // Torn or damaged: nobody can use it, and a token may stand in it.
            Document::Unreadable(_) => {
                if files::remove_durable(disk, Path::new(&path))? {
                    changed.push(path);
                }
            }
        }
    }
    if spend_kept_bundle(disk, credentials)? {
        changed.push(platform::KEPT_PLATFORM_PATH.to_owned());
    }
    let own = credentials.path.as_path();
    // Of writes that were cut off: whole copies under other names.
    for folder in [Path::new(BUNDLE_PATH), Path::new(SPENT_PATH), own].into_iter().filter_map(Path::parent) {
        files::remove_leftovers(disk, folder)?;
        disk.sync_folder(folder)?;
    }
    if files::remove_durable(disk, own)? {
        changed.push(credentials.path.to_string());
    }
    Ok(Spent { changed, unread })
}

/// With a bundle of its own a node never asks again for the platform's, which may have other credentials.
fn spend_kept_bundle(disk: &dyn Disk, credentials: &Credentials) -> Result<bool, FileError> {
    if disk.stat(Path::new(BUNDLE_PATH))?.is_some() {
        return platform::forget_payload(disk);
    }
    let Some(mut bundle) = platform::load_kept_bundle(disk)? else { return platform::remove_damaged(disk) };
    let has_changed = bundle.spend(&credentials.sha256);
    if has_changed {
        platform::replace_kept_bundle(disk, &bundle)?;
    }
    Ok(has_changed)
}

/// What was spent on this node, and came again with another copy of its bundle.
pub(crate) fn spend_again(disk: &dyn Disk, bundle: &Bundle) -> Result<(), FileError> {
    let Some(file) = bundle.file(&bundle.join.bootstrap_kubeconfig) else { return Ok(()) };
    let credentials = Credentials { path: file.path.clone(), sha256: file.sha256().to_owned() };
    if was_spent(disk, bundle, file)? && copies_hold(disk, &credentials)? {
        take_away(disk, &credentials)?;
    }
    Ok(())
}

/// Files of ours that are a bundle: the one that was delivered, and those that were fetched.
fn documents(disk: &dyn Disk) -> Result<Vec<String>, DiskError> {
    let kept = disk.list(Path::new(kept::KEPT_BUNDLES_FOLDER))?;
    let kept = kept.into_iter().map(|name| format!("{}/{name}", kept::KEPT_BUNDLES_FOLDER));
    Ok([BUNDLE_PATH.to_owned()].into_iter().chain(kept).collect())
}

/// What a document is to those who look for credentials.
enum Document {
    /// The same without them.
    With(String),
    Without,
    /// In a few words.
    Unreadable(&'static str),
}

fn read_document(disk: &dyn Disk, path: &str, credentials: &Credentials) -> Result<Document, DiskError> {
    let bytes = match disk.look(Path::new(path), MAX_BUNDLE_BYTES as u64)? {
        None => return Ok(Document::Without),
        Some(Look { stat: Stat { kind: Kind::File, .. }, content: Some(bytes) }) => bytes,
        Some(_) => return Ok(Document::Unreadable("is no file of a bundle's size")),
    };
    Ok(match Payload::parse(&bytes) {
        Ok(Payload::Bundle(mut bundle)) => match bundle.spend(&credentials.sha256) {
            true => Document::With(bundle.to_json()),
            false => Document::Without,
        },
        Ok(_) => Document::Without,
        Err(_) => Document::Unreadable("cannot be read as a bundle"),
    })
}

fn copies_hold(disk: &dyn Disk, credentials: &Credentials) -> Result<bool, DiskError> {
    for path in documents(disk)? {
        if matches!(read_document(disk, &path, credentials)?, Document::With(_)) {
            return Ok(true);
        }
    }
    Ok(platform::load_kept_bundle(disk)?.is_some_and(|mut bundle| bundle.spend(&credentials.sha256)))
}

/// The files of a bundle as this node wants them: of what was spent here only the sum.
pub(crate) fn files_wanted(disk: &dyn Disk, bundle: &Bundle) -> Vec<File> {
    let mut files = bundle.all_files();
    let place = &bundle.join.bootstrap_kubeconfig;
    if let Some(file) = files.iter_mut().find(|file| file.path == *place)
        && was_spent(disk, bundle, file).unwrap_or(false)
    {
        file.content = Content::spent(file.content.sum());
    }
    files
}

/// This very content, by the note, on a node whose kubelet still has what it got for it.
fn was_spent(disk: &dyn Disk, bundle: &Bundle, file: &File) -> Result<bool, DiskError> {
    let noted = disk.read(Path::new(SPENT_PATH), SPENT_LIMIT)?.and_then(|bytes| sealed::parse::<Credentials>(&bytes));
    let is_noted = noted.is_some_and(|noted| noted.path == file.path && noted.sha256 == file.sha256());
    Ok(is_noted && needs_no_bootstrap(disk, &bundle.join)?)
}

/// Whether a machine that this bundle makes a node of could not join: what it joins with was spent, and what the kubelet got for
/// that is gone.
pub fn cannot_join(disk: &dyn Disk, bundle: &Bundle) -> bool {
    let is_spent = |file: &File| file.content.is_spent();
    bundle.file(&bundle.join.bootstrap_kubeconfig).is_some_and(is_spent) && check_spent(disk, &bundle.join).is_err()
}

/// A kubelet that lost its own credentials needs others than those.
pub(crate) fn check_spent(disk: &dyn Disk, join: &Join) -> Result<(), StepError> {
    let there = needs_no_bootstrap(disk, join)
        .and_then(|joined| Ok(joined || disk.stat(join.bootstrap_kubeconfig.as_path())?.is_some()));
    match there.map_err(|error| disk_error(&error))? {
        true => Ok(()),
        false => Err(StepError::needs_operator(format!(
            "the bootstrap credentials of this node were spent when it joined, and the kubelet's own ({} and {}) are gone or \
             not whole",
            join.kubeconfig, join.client_certificate
        ))
        .with_advice("deliver the bundle again, with a token that is still valid, then: nodestrap apply")),
    }
}
