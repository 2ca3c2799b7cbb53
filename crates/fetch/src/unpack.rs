//! Verified bytes become files, and nothing else.
//!
//! In: the bytes of one artefact as a stream, what they are ([`Form`]), a [`Folder`] that cannot be left, and [`Limits`]. Out: the
//! files, and a [`Listing`] of them, by which the tree can be verified later. Fails with [`UnpackError`], which names the
//! entry; what was written until then is for the caller to throw away, so the folder should be one that nobody uses yet.
//! Nothing is durable until the caller syncs the file system.
//!
//! ```text
//! bytes → count → gunzip → limit (all, and how much more than came in) → headers → names → hash and write
//! ```
//!
//! The same archive gives the same tree, whoever unpacks it and when: owners and times are not taken over, folders are
//! 0755, files are 0755 if their owner may execute them and 0644 if not. What other programs could read in another way, or
//! what does not belong into a tree of programs, is refused and never repaired. [`Form::Assets`] keeps modes, because there
//! are secrets among the files, and takes no links.

mod archive;
mod error;
mod listing;
mod names;
mod pax;
mod source;
mod tree;

use std::io::{self, Read};

use host::disk::Folder;

use archive::{Archive, Member};
pub use error::UnpackError;
pub use listing::{Difference, Entry, EntryKind, Listing};
use source::Source;
use tree::{Modes, Tree};

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// One program, that is to have this name.
    Program { name: &'a str },
    /// An archive of tar (ustar, GNU or PAX), compressed by gzip.
    TarGz,
    /// An archive of tar as it is, of files and folders with the modes that they shall have; each folder comes before what is
    /// in it.
    Assets,
}

/// What an archive may ask of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In bytes, of all that comes out; of an archive with its headers.
    pub total: u64,
    /// Folders that are only named on the way to others count.
    pub entries: usize,
    /// In bytes, of a path or the target of a link.
    pub path: usize,
    /// Names in a path.
    pub depth: usize,
    /// How many times as much may come out as went in.
    pub ratio: u64,
}

impl Limits {
    /// Far above all artefacts that we know; a program for Linux compresses to a quarter or a third.
    pub const USUAL: Self = Self { total: 2 << 30, entries: 20_000, path: 1024, depth: 32, ratio: 100 };
}

/// Unpacks into the folder.
pub fn unpack(
    reader: &mut dyn Read,
    form: Form<'_>,
    folder: &dyn Folder,
    limits: &Limits,
) -> Result<Listing, UnpackError> {
    let modes = if form == Form::Assets { Modes::AsPacked } else { Modes::Usual };
    let mut tree = Tree::new(folder, limits, modes);
    match form {
        Form::Program { name } => {
            let mut source = Source::plain(reader, limits);
            tree.add_program(name, &mut source)?;
        }
        Form::TarGz => unpack_archive(&mut Archive::new(Source::gzip(reader, limits), limits), &mut tree)?,
        Form::Assets => unpack_archive(&mut Archive::new(Source::plain(reader, limits), limits), &mut tree)?,
    }
    Ok(tree.into_listing())
}

fn unpack_archive(archive: &mut Archive<'_>, tree: &mut Tree<'_>) -> Result<(), UnpackError> {
    while let Some(member) = archive.next()? {
        match member {
            Member::Folder { path, mode } => tree.add_folder(&path, mode)?,
            Member::File { path, mode, size } => {
                tree.add_file(&path, mode, size, archive.source())?;
                archive.skip_padding(size)?;
            }
            Member::Link { path, target } => tree.add_link(&path, &target)?,
            Member::HardLink { path, existing } => tree.add_hard_link(&path, &existing)?,
        }
    }
    archive.expect_end()
}

/// For errors that are nobody's but the reader's.
fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}
