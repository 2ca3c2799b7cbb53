//! How artefacts come into the store of a node: asked for by their digest, taken from whoever has them, and never believed.
//!
//! In: an artefact of the bundle. Out: a verified object of the store. Who has it is asked through [`Artefacts`], which is the
//! network, or a test. Fails with a [`StepError`]: transient if asking again may help, permanent if every place has other
//! bytes than the bundle was made for, and a matter for a person if the node has no room or no right to it.

mod network;

use std::io;
use std::path::Path;
use std::time::Duration;

use bundle::resource::extension::State;
use bundle::{Artefact, Downloads, Extension, Tree};
use engine::{StepContext, StepError};
use fetch::store::{Object, Reception, Store, StoreError, Wanted};
use fetch::{DigestError, Mixing, Sink, SinkError};
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, FileError};

use crate::failure::{chain, disk_error, file_error};
use crate::resource::Node;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub use network::NetworkArtefacts;

/// What is placed whole is for everybody to read.
const COPY_MODE: u32 = 0o644;
const COPY_FOLDER_MODE: u32 = 0o755;

/// Shared by all that a node unpacks.
pub const STORE_FOLDER: &str = "/var/lib/nodestrap/store";

/// One artefact, and how it may be had.
pub struct Order<'a> {
    /// What people call it.
    pub what: &'a str,
    pub artefact: &'a Artefact,
    pub downloads: &'a Downloads,
    /// Those of its places that gave wrong bytes before.
    pub without: &'a [String],
    pub mixing: Mixing,
    /// For everything.
    pub patience: Duration,
    /// Says how it is going.
    pub tell: &'a dyn Fn(String),
}

/// One object of which neither size nor digest is known yet.
pub struct Errand<'a> {
    /// What people call it.
    pub what: &'a str,
    pub places: &'a [String],
    pub downloads: &'a Downloads,
    /// The most bytes that it may have.
    pub limit: usize,
    /// For everything.
    pub patience: Duration,
    /// Says how it is going.
    pub tell: &'a dyn Fn(String),
}

/// Who has artefacts.
pub trait Artefacts: Send + Sync {
    /// A small document, whole; nobody has proved it yet.
    fn read(&self, errand: &Errand<'_>) -> Result<Vec<u8>, StepError>;

    /// How large an object is, as whoever has it announces it.
    fn size(&self, errand: &Errand<'_>) -> Result<u64, StepError>;

    /// As many bytes as were promised go into the sink, from where it left off. Gives the place that every byte came from, if
    /// there is one such place.
    fn download(&self, order: &Order<'_>, sink: &mut dyn Sink) -> Result<Option<String>, StepError>;
}

/// What is made of an artefact.
pub(crate) trait Fetched {
    /// As people call it.
    fn title(&self) -> String;
    fn artefact(&self) -> &Artefact;
}

impl Fetched for Tree {
    fn title(&self) -> String {
        Self::title(self)
    }

    fn artefact(&self) -> &Artefact {
        &self.artefact
    }
}

impl Fetched for Extension {
    fn title(&self) -> String {
        Self::title(self)
    }

    fn artefact(&self) -> &Artefact {
        &self.artefact
    }
}

/// Every byte of a copy is read, from the disk itself.
pub(crate) fn look_at_copy(disk: &dyn Disk, path: &Path, artefact: &Artefact) -> Result<State, DiskError> {
    match disk.stat(path)? {
        None => return Ok(State::Absent),
        Some(stat) if stat.kind != Kind::File || stat.size != artefact.size => return Ok(State::Damaged),
        Some(_) => {}
    }
    let Some(mut reader) = disk.open_medium(path)? else { return Ok(State::Absent) };
    let digest: Result<fetch::Digest, DigestError> = artefact.digest.as_str().parse();
    // What cannot be read is not as it was.
    let is_whole = digest.is_ok_and(|digest| digest.is_of_all(&mut reader).unwrap_or(false));
    Ok(if is_whole { State::Whole } else { State::Damaged })
}

/// Under another name in the same folder, synced, and only then where others find it.
pub(crate) fn place_copy(disk: &dyn Disk, object: &mut Object, staging: &Path, path: &Path) -> Result<(), StepError> {
    let home = path.parent().unwrap_or(Path::new("/"));
    let mut write = || -> Result<(), FileError> {
        files::make_folder_durable(disk, home, COPY_FOLDER_MODE)?;
        disk.remove(staging)?;
        let name = staging.file_name().map(Path::new).unwrap_or(Path::new(""));
        let mut file = disk.enter(home)?.create(name, COPY_MODE)?;
        let copied = io::copy(object, &mut file).and_then(|_| file.flush());
        copied.map_err(|source| DiskError { operation: "write", path: staging.display().to_string(), source })?;
        drop(file);
        disk.sync_file(staging)?;
        disk.rename(staging, path)?;
        Ok(disk.sync_folder(home)?)
    };
    write().map_err(|error| {
        // Space that nobody needs; the first error is the one that counts.
        let _ = disk.remove(staging);
        file_error(&error)
    })
}

pub(crate) fn store(disk: &dyn Disk) -> Store<'_> {
    Store::new(disk, Path::new(STORE_FOLDER))
}

/// By what the store knows it.
pub(crate) fn wanted(wish: &dyn Fetched) -> Result<Wanted, StepError> {
    let digest = wish.artefact().digest.as_str().parse();
    let digest = digest.map_err(|error: DigestError| StepError::permanent(format!("{}: {error}", wish.title())))?;
    Ok(Wanted { digest, size: wish.artefact().size })
}

/// Whether the store has it, by its name and size; who opens it learns more. Reads only.
pub(crate) fn is_in_store(disk: &dyn Disk, wish: &dyn Fetched) -> Result<bool, StepError> {
    let wanted = wanted(wish)?;
    Ok(store(disk).list().map_err(|error| store_error(&error))?.contains(&wanted))
}

/// From the store, or else from wherever it can be had. A damaged copy is gone by then.
pub(crate) fn obtain(node: &Node<'_>, wish: &dyn Fetched, context: &StepContext<'_>) -> Result<Object, StepError> {
    let (disk, wanted) = (node.tools.disk, wanted(wish)?);
    let store = store(disk);
    if let Some(object) = store.open(&wanted).map_err(|error| store_error(&error))? {
        return Ok(object);
    }
    disk.make_folder(Path::new(STATE_FOLDER), STATE_FOLDER_MODE).map_err(|error| disk_error(&error))?;
    let mut incoming = match store.receive(&wanted).map_err(|error| store_error(&error))? {
        Reception::Present(object) => return Ok(object),
        Reception::Incoming(incoming) => incoming,
        Reception::Busy => {
            return Err(StepError::transient(format!("another nodestrap is fetching {}", wish.title()))
                .with_advice("it is waited for; see who else uses /var/lib/nodestrap/store"));
        }
    };
    let Some(downloads) = &node.bundle.downloads else {
        return Err(StepError::permanent(format!("the bundle does not say how {} is downloaded", wish.title())));
    };
    let (mut without, mut mixing) = (Vec::new(), Mixing::Allowed);
    loop {
        let order = Order {
            what: &wish.title(),
            artefact: wish.artefact(),
            downloads,
            without: &without,
            mixing,
            patience: node.tools.remaining(context),
            tell: &|line| context.detail(line),
        };
        let from = node.tools.artefacts.download(&order, &mut incoming)?;
        let found = match incoming.check() {
            Ok(()) => return incoming.finish().map_err(|error| store_error(&error)),
            Err(StoreError::Differs { found, .. }) => found,
            Err(other) => return Err(store_error(&other)),
        };
        incoming.discard().map_err(|error| sink_error(&error))?;
        let whose = from.as_deref().map_or_else(|| "several places".to_owned(), fetch::redacted);
        context.detail(format!("what came from {whose} is {found}, not {}: thrown away", wanted.digest));
        match from {
            Some(place) if !without.contains(&place) => without.push(place),
            _ if mixing == Mixing::Allowed => mixing = Mixing::Refused,
            _ => return Err(nobody_has(wish)),
        }
        if wish.artefact().places.iter().all(|place| without.contains(place)) {
            return Err(nobody_has(wish));
        }
    }
}

fn nobody_has(wish: &dyn Fetched) -> StepError {
    let places = wish.artefact().places.iter().map(|place| fetch::redacted(place)).collect::<Vec<_>>().join(", ");
    StepError::permanent(format!(
        "{} is to be {}, and what these places have is something else: {places}",
        wish.title(),
        wish.artefact().digest
    ))
    .with_advice("publish the artefact again, or render the bundle from the manifest that is published now")
}

pub(crate) fn sink_error(error: &SinkError) -> StepError {
    // The store's own word, if it is one.
    match error.0.downcast_ref::<StoreError>() {
        Some(found) => StepError { message: chain(error), ..store_error(found) },
        None => match error.0.downcast_ref::<DiskError>() {
            Some(found) => StepError { message: chain(error), ..disk_error(found) },
            None => StepError::needs_operator(chain(error)),
        },
    }
}

pub(crate) fn store_error(error: &StoreError) -> StepError {
    match error {
        StoreError::Incomplete { .. } => StepError::transient(chain(error)),
        StoreError::TooLong(_) | StoreError::Differs { .. } => StepError::permanent(chain(error)),
        StoreError::Lost { .. } | StoreError::Read { .. } => {
            StepError::needs_operator(chain(error)).with_advice("look in dmesg for what the disk says")
        }
        StoreError::Disk(disk) => disk_error(disk),
        StoreError::Files(file) => file_error(file),
    }
}
