//! Why an artefact is not unpacked.

use std::io;

use host::disk::DiskError;

/// Each names the entry as the archive does. All but the first three say that the archive itself is not wanted here: asking
/// for it again does not help.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("read the artefact")]
    Read(#[source] io::Error),
    #[error("write {entry:?}")]
    Write { entry: String, source: io::Error },
    #[error("put {entry:?} into its place")]
    Place { entry: String, source: DiskError },

    #[error("the artefact ends too early, after {entry:?}: it was cut")]
    Truncated { entry: String },
    #[error("the artefact is not what gzip writes, or was damaged")]
    Gzip(#[source] io::Error),
    #[error("the header after {entry:?} is not one of tar: its checksum is wrong")]
    Checksum { entry: String },
    #[error("the header of {entry:?} is not one of tar: {why}")]
    Header { entry: String, why: &'static str },
    #[error("something follows after the end of the archive, which some programs would read and others would not")]
    TrailingData,
    #[error("the archive has no end: whoever wrote it did not finish")]
    NoEnd,

    #[error("{entry:?} has an absolute path")]
    AbsolutePath { entry: String },
    #[error("the path of {entry:?} leads upwards (..)")]
    ParentInPath { entry: String },
    #[error("{entry:?} has an empty name")]
    EmptyName { entry: String },
    #[error("the name {entry:?} has a NUL inside: some programs would see another name")]
    NulInName { entry: String },
    #[error("the name {entry:?} is not text (UTF-8)")]
    NotText { entry: String },
    #[error("{entry:?} is no name for a program")]
    ProgramName { entry: String },
    #[error("the path of {entry:?} is longer than {limit} bytes")]
    PathTooLong { entry: String, limit: usize },
    #[error("the path of {entry:?} is deeper than {limit} names")]
    TooDeep { entry: String, limit: usize },

    #[error("{entry:?} is a link to the absolute path {target:?}")]
    AbsoluteLink { entry: String, target: String },
    #[error("{entry:?} is a link that leads out of the tree, to {target:?}")]
    LinkOut { entry: String, target: String },
    #[error("{entry:?} is a link to {target:?}, which goes down and up again: where it leads depends on other links")]
    WindingLink { entry: String, target: String },
    #[error("{entry:?} is another name for {target:?}, which is no file of this archive before it")]
    HardLinkToNoFile { entry: String, target: String },
    #[error("{entry:?} lies behind the link {link:?}: it would be written through it")]
    ThroughLink { entry: String, link: String },
    #[error("{entry:?} lies below {file:?}, which is a file")]
    BelowFile { entry: String, file: String },
    #[error("{entry:?} is there twice")]
    Duplicate { entry: String },
    #[error("{entry:?} is a folder and then something else")]
    FolderReplaced { entry: String },

    #[error("{entry:?} is a link: only files and folders are taken here")]
    Link { entry: String },
    #[error("{entry:?} comes before the folder that it is in")]
    FolderComesLate { entry: String },
    #[error("{entry:?} is a device")]
    Device { entry: String },
    #[error("{entry:?} is a named pipe")]
    NamedPipe { entry: String },
    #[error("{entry:?} has the mode {mode:04o}: set-uid, set-gid and sticky files are not taken from archives")]
    SpecialMode { entry: String, mode: u32 },
    #[error("{entry:?} is a sparse file: pack it again without --sparse")]
    Sparse { entry: String },
    #[error("{entry:?} is of the kind {kind:?}, which is not unpacked")]
    UnknownKind { entry: String, kind: char },
    #[error("{entry:?} has the attribute {key:?}: privileges are not taken from archives; pack it again without")]
    Attribute { entry: String, key: String },

    #[error("{entry:?} has two sizes: some programs would read on at another place than others")]
    AmbiguousSize { entry: String },
    #[error("the {key} of {entry:?} is said twice: some programs would use one and some the other")]
    AmbiguousRecord { entry: String, key: String },

    #[error("more than {limit} bytes come out; the entry at which that was seen is {entry:?}")]
    TooLarge { entry: String, limit: u64 },
    #[error(
        "more than {limit} times as much comes out as went in: a gzip bomb; the entry at which that was seen is {entry:?}"
    )]
    Bomb { entry: String, limit: u64 },
    #[error("more than {limit} entries")]
    TooManyEntries { limit: usize },
}
