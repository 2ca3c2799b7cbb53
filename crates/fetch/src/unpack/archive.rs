//! An archive of tar, entry by entry. The `tar` crate reads the fields of a header; which headers mean what is decided here,
//! because programs differ about that, and an archive that means two things is refused.

use tar::Header;

use super::names::{entry_path, link_target, shown};
use super::pax::Records;
use super::source::Source;
use super::{Limits, UnpackError};

const BLOCK: usize = 512;
/// Of the records of one entry: a path, a target, and attributes that are refused anyway.
const MOST_RECORDS: u64 = 64 * 1024;
const SPECIAL_BITS: u32 = 0o7000;
/// Where a header has its size, and how it is written.
const SIZE_FIELD: std::ops::Range<usize> = 124..136;
const KIND_FIELD: usize = 156;
const CHECKSUM_FIELD: std::ops::Range<usize> = 148..156;

/// One entry that may be unpacked, if nothing is in its way. The content of a file comes next from the source.
pub(super) enum Member {
    /// What is no number is no mode.
    Folder {
        path: String,
        mode: Option<u32>,
    },
    File {
        path: String,
        mode: u32,
        size: u64,
    },
    Link {
        path: String,
        target: String,
    },
    HardLink {
        path: String,
        existing: String,
    },
}

/// What headers before that of an entry say about it.
#[derive(Default)]
struct Preface {
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    records: Option<Records>,
}

pub(super) struct Archive<'a> {
    source: Source<'a>,
    limits: Limits,
}

impl<'a> Archive<'a> {
    pub(super) fn new(source: Source<'a>, limits: &Limits) -> Self {
        Self { source, limits: *limits }
    }

    pub(super) fn source(&mut self) -> &mut Source<'a> {
        &mut self.source
    }

    /// The next entry; `None` at the mark of the end.
    pub(super) fn next(&mut self) -> Result<Option<Member>, UnpackError> {
        let mut preface = Preface::default();
        while let Some(block) = self.next_header()? {
            let header = Header::from_byte_slice(&block);
            let entry = shown(&header.path_bytes());
            match block[KIND_FIELD] {
                b'L' => set_once(&mut preface.long_path, self.long_name(header, &entry)?, &entry, "path")?,
                b'K' => set_once(&mut preface.long_link, self.long_name(header, &entry)?, &entry, "linkpath")?,
                b'x' => {
                    let records = Records::parse(&self.body(header, &entry, MOST_RECORDS)?, &entry)?;
                    set_once(&mut preface.records, records, &entry, "records")?;
                }
                b'g' => self.refuse_global(header, &entry)?,
                _ => match self.member(header, preface)? {
                    Some(member) => return Ok(Some(member)),
                    None => preface = Preface::default(),
                },
            }
        }
        match preface {
            Preface { long_path: None, long_link: None, records: None } => Ok(None),
            _ => {
                Err(UnpackError::Header { entry: self.source.entry(), why: "it describes an entry that does not come" })
            }
        }
    }

    /// After the mark of the end there may be zeros, to fill a tape.
    pub(super) fn expect_end(&mut self) -> Result<(), UnpackError> {
        let mut piece = [0; 8 * BLOCK];
        loop {
            // All is read, so that the checksum of gzip at its end is checked.
            match self.source.read(&mut piece)? {
                0 => return Ok(()),
                read if piece[..read].iter().all(|byte| *byte == 0) => {}
                _ => return Err(UnpackError::TrailingData),
            }
        }
    }

    /// The content of an entry fills whole blocks.
    pub(super) fn skip_padding(&mut self, size: u64) -> Result<(), UnpackError> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..(BLOCK - over) % BLOCK];
        match self.source.fill(padding)? == padding.len() {
            true => Ok(()),
            false => Err(self.source.truncated()),
        }
    }

    fn next_header(&mut self) -> Result<Option<[u8; BLOCK]>, UnpackError> {
        let mut block = [0; BLOCK];
        match self.source.fill(&mut block)? {
            0 => return Err(UnpackError::NoEnd),
            BLOCK => {}
            _ => return Err(self.source.truncated()),
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // Its own field counts as spaces.
        let counted = |(at, byte): (usize, &u8)| if CHECKSUM_FIELD.contains(&at) { 32 } else { u32::from(*byte) };
        let sum: u32 = block.iter().enumerate().map(counted).sum();
        let header = Header::from_byte_slice(&block);
        if header.cksum().ok() != Some(sum) {
            return Err(UnpackError::Checksum { entry: self.source.entry() });
        }
        self.source.enter(&shown(&header.path_bytes()));
        Ok(Some(block))
    }

    fn body(&mut self, header: &Header, entry: &str, limit: u64) -> Result<Vec<u8>, UnpackError> {
        let size = size_of(header, entry)?;
        let length = usize::try_from(size).ok().filter(|_| size <= limit);
        let Some(length) = length else {
            return Err(UnpackError::PathTooLong { entry: entry.to_owned(), limit: self.limits.path });
        };
        let mut body = vec![0; length];
        if self.source.fill(&mut body)? != length {
            return Err(self.source.truncated());
        }
        self.skip_padding(size)?;
        Ok(body)
    }

    /// GNU ends them with a NUL.
    fn long_name(&mut self, header: &Header, entry: &str) -> Result<Vec<u8>, UnpackError> {
        let mut name = self.body(header, entry, self.limits.path as u64 + 1)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// Records about all entries that follow: git writes a comment there.
    fn refuse_global(&mut self, header: &Header, entry: &str) -> Result<(), UnpackError> {
        let records = Records::parse(&self.body(header, entry, MOST_RECORDS)?, entry)?;
        if let Some(key) = records.attribute {
            return Err(UnpackError::Attribute { entry: entry.to_owned(), key });
        }
        match records.is_about_one_entry() {
            true => {
                Err(UnpackError::Header { entry: entry.to_owned(), why: "it gives all entries the same path or size" })
            }
            false => Ok(()),
        }
    }

    /// `None` for the folder itself that all is unpacked into.
    fn member(&mut self, header: &Header, preface: Preface) -> Result<Option<Member>, UnpackError> {
        let in_header = header.path_bytes().into_owned();
        let records = preface.records.unwrap_or_default();
        let raw = choose(preface.long_path, records.path.as_ref(), &in_header, "path")?.unwrap_or(in_header);
        let entry = shown(&raw);
        self.source.enter(&entry);
        refuse_records(&records, &entry)?;
        let link = header.link_name_bytes().map(|name| name.into_owned());
        let link = choose(preface.long_link, records.link.as_ref(), &raw, "linkpath")?.or(link);
        let size = size_of(header, &entry)?;
        refuse_second_size(&records, size, &entry)?;
        let path = entry_path(&raw, &self.limits)?;
        let kind = header.as_bytes()[KIND_FIELD];
        let Some(path) = path else {
            let is_folder = kind == b'5' && size == 0;
            return if is_folder { Ok(None) } else { Err(UnpackError::EmptyName { entry }) };
        };
        // Only files have content here; programs differ about where the next header is if others say that they have some.
        if matches!(kind, b'1' | b'2' | b'5') && size != 0 {
            return Err(UnpackError::AmbiguousSize { entry });
        }
        let member = match kind {
            b'0' | 0 => file(header, path, entry, size)?,
            b'1' => hard_link(path, entry, link.as_deref().unwrap_or_default(), &self.limits)?,
            b'2' => {
                let target = link_target(&path, link.as_deref().unwrap_or_default(), &self.limits)?;
                Member::Link { path, target }
            }
            b'3' | b'4' => return Err(UnpackError::Device { entry }),
            b'5' => Member::Folder { path, mode: header.mode().ok() },
            b'6' => return Err(UnpackError::NamedPipe { entry }),
            b'S' => return Err(UnpackError::Sparse { entry }),
            other => return Err(UnpackError::UnknownKind { entry, kind: char::from(other) }),
        };
        Ok(Some(member))
    }
}

fn file(header: &Header, path: String, entry: String, size: u64) -> Result<Member, UnpackError> {
    if entry.ends_with('/') {
        // Before there was a kind for folders, this was one.
        return Err(UnpackError::Header { entry, why: "it is a file, and its name is that of a folder" });
    }
    match header.mode() {
        Ok(mode) if mode & SPECIAL_BITS != 0 => Err(UnpackError::SpecialMode { entry, mode }),
        Ok(mode) => Ok(Member::File { path, mode, size }),
        Err(_) => Err(UnpackError::Header { entry, why: "its mode is no number" }),
    }
}

fn hard_link(path: String, entry: String, raw: &[u8], limits: &Limits) -> Result<Member, UnpackError> {
    match entry_path(raw, limits) {
        Ok(Some(existing)) => Ok(Member::HardLink { path, existing }),
        Ok(None) | Err(UnpackError::EmptyName { .. }) => {
            Err(UnpackError::HardLinkToNoFile { entry, target: shown(raw) })
        }
        Err(UnpackError::AbsolutePath { .. }) => Err(UnpackError::AbsoluteLink { entry, target: shown(raw) }),
        Err(UnpackError::ParentInPath { .. }) => Err(UnpackError::LinkOut { entry, target: shown(raw) }),
        Err(other) => Err(other),
    }
}

fn set_once<T>(place: &mut Option<T>, value: T, entry: &str, key: &str) -> Result<(), UnpackError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(UnpackError::AmbiguousRecord { entry: entry.to_owned(), key: key.to_owned() }),
    }
}

/// GNU and PAX have a way each to say a long name; who uses both says it twice.
fn choose(
    long: Option<Vec<u8>>,
    record: Option<&Vec<u8>>,
    entry: &[u8],
    key: &str,
) -> Result<Option<Vec<u8>>, UnpackError> {
    match (long, record) {
        (Some(_), Some(_)) => Err(UnpackError::AmbiguousRecord { entry: shown(entry), key: key.to_owned() }),
        (long, record) => Ok(long.or_else(|| record.cloned())),
    }
}

fn refuse_records(records: &Records, entry: &str) -> Result<(), UnpackError> {
    let entry = || entry.to_owned();
    match records {
        Records { twice: Some(key), .. } => Err(UnpackError::AmbiguousRecord { entry: entry(), key: key.clone() }),
        Records { attribute: Some(key), .. } => Err(UnpackError::Attribute { entry: entry(), key: key.clone() }),
        Records { is_sparse: true, .. } => Err(UnpackError::Sparse { entry: entry() }),
        _ => Ok(()),
    }
}

/// A size in a record is for those that have no room in the header, which are larger than we take.
fn refuse_second_size(records: &Records, size: u64, entry: &str) -> Result<(), UnpackError> {
    match &records.size {
        Some(said) if said.as_slice() != size.to_string().as_bytes() => {
            Err(UnpackError::AmbiguousSize { entry: entry.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Octal digits and nothing else: programs differ about what anything else means.
fn size_of(header: &Header, entry: &str) -> Result<u64, UnpackError> {
    let field = &header.as_bytes()[SIZE_FIELD];
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| !matches!(byte, b'0'..=b'7')).unwrap_or(digits.len());
    let is_clean = end > 0 && digits[end..].iter().all(|byte| matches!(byte, b' ' | 0));
    match header.entry_size() {
        Ok(size) if is_clean => Ok(size),
        _ => Err(UnpackError::Header { entry: entry.to_owned(), why: "its size is no octal number" }),
    }
}
