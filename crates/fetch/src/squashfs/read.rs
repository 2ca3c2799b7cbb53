//! What an image holds.

use std::io::{Read, Seek, SeekFrom};

use flate2::read::ZlibDecoder;

use super::{
    DATA_IS_PLAIN, GZIP, Limits, MAGIC, METADATA_BLOCK, METADATA_IS_PLAIN, NO_FRAGMENT, SUPERBLOCK, SquashfsError,
    VERSION, compression,
};

const LARGEST_BLOCK: u32 = 1 << 20;
/// What systemd's images may be besides: where each says so, with its name.
const OTHERS: [(u64, &[u8], &str); 4] = [
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "erofs"),
    (1080, &[0x53, 0xef], "ext4"),
    (512, b"EFI PART", "a disk with a partition table"),
    (65_600, b"_BHRfS_M", "btrfs"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root of the image, without dots.
    pub path: String,
    pub kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Folder,
    File {
        mode: u32,
        size: u64,
    },
    Link {
        target: String,
    },
    /// A device, a pipe or a socket.
    Other,
}

/// Where the bytes of a file lie.
#[derive(Clone, Debug, Default)]
struct Blocks {
    start: u64,
    sizes: Vec<u32>,
    /// The number of the fragment, and where in it the rest begins.
    fragment: Option<(u32, u32)>,
}

pub struct Image<R> {
    reader: R,
    block_size: u32,
    fragment_table: u64,
    fragments: u32,
    entries: Vec<Entry>,
    blocks: Vec<Blocks>,
}

struct Tables {
    root: u64,
    inodes: u64,
    folders: u64,
}

/// An inode, as far as anybody wants to know.
enum Inode {
    Folder { block: u32, offset: u16, size: u32 },
    File { mode: u32, size: u64, blocks: Blocks },
    Link { target: String },
    Other,
}

impl<R: Read + Seek> Image<R> {
    /// Every name in it; no content.
    pub fn read(mut reader: R, limits: &Limits) -> Result<Self, SquashfsError> {
        let mut block = [0; SUPERBLOCK];
        let is_whole = read_at(&mut reader, 0, &mut block).is_ok();
        if !is_whole || u32_at(&block, 0) != MAGIC {
            return Err(SquashfsError::NotSquashfs { found: recognise(&mut reader) });
        }
        let (major, minor) = (u16_at(&block, 28), u16_at(&block, 30));
        if (major, minor) != (VERSION, 0) {
            return Err(SquashfsError::Version { major, minor });
        }
        match u16_at(&block, 20) {
            GZIP => {}
            other => return Err(SquashfsError::Compression { by: compression(other) }),
        }
        let block_size = u32_at(&block, 12);
        if !block_size.is_power_of_two() || !(4096..=LARGEST_BLOCK).contains(&block_size) {
            return Err(SquashfsError::Damaged("its blocks have an impossible size"));
        }
        let tables = Tables { root: u64_at(&block, 32), inodes: u64_at(&block, 64), folders: u64_at(&block, 72) };
        let (fragments, fragment_table) = (u32_at(&block, 16), u64_at(&block, 80));
        let mut image = Self { reader, block_size, fragment_table, fragments, entries: Vec::new(), blocks: Vec::new() };
        image.walk(&tables, limits)?;
        Ok(image)
    }

    /// Sorted by path.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn walk(&mut self, tables: &Tables, limits: &Limits) -> Result<(), SquashfsError> {
        let root = self.inode(tables, tables.root >> 16, (tables.root & 0xffff) as u16, limits)?;
        let Inode::Folder { block, offset, size } = root else {
            return Err(SquashfsError::Damaged("its root is no folder"));
        };
        let mut found: Vec<(Entry, Blocks)> = Vec::new();
        let mut open = vec![(String::new(), 0_usize, block, offset, size)];
        while let Some((path, depth, block, offset, size)) = open.pop() {
            for (name, block, offset) in self.names(tables, block, offset, size, limits)? {
                let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                let too_much = |what, limit| Err(SquashfsError::TooMuch { what, limit });
                match () {
                    () if found.len() >= limits.entries => return too_much("files and folders", limits.entries),
                    () if depth + 1 > limits.depth => return too_much("folders in each other", limits.depth),
                    () if path.len() > limits.path => return too_much("characters in a path", limits.path),
                    () => {}
                }
                let mut blocks = Blocks::default();
                let kind = match self.inode(tables, u64::from(block), offset, limits)? {
                    Inode::Folder { block, offset, size } => {
                        open.push((path.clone(), depth + 1, block, offset, size));
                        EntryKind::Folder
                    }
                    Inode::File { mode, size, blocks: of_file } => {
                        blocks = of_file;
                        EntryKind::File { mode, size }
                    }
                    Inode::Link { target } => EntryKind::Link { target },
                    Inode::Other => EntryKind::Other,
                };
                found.push((Entry { path, kind }, blocks));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
        if found.windows(2).any(|pair| pair[0].0.path == pair[1].0.path) {
            return Err(SquashfsError::Damaged("it has two files of one name"));
        }
        (self.entries, self.blocks) = found.into_iter().unzip();
        Ok(())
    }

    fn inode(&mut self, tables: &Tables, block: u64, offset: u16, limits: &Limits) -> Result<Inode, SquashfsError> {
        let block_size = u64::from(self.block_size);
        let mut bytes = Metadata::new(&mut self.reader, tables.inodes.checked_add(block), offset)?;
        let header: [u8; 16] = bytes.take()?;
        let mode = u32::from(u16_at(&header, 2)) & 0o7777;
        Ok(match u16_at(&header, 0) {
            1 => {
                let fields: [u8; 16] = bytes.take()?;
                let (block, offset) = (u32_at(&fields, 0), u16_at(&fields, 10));
                Inode::Folder { block, offset, size: u32::from(u16_at(&fields, 8)) }
            }
            8 => {
                let fields: [u8; 24] = bytes.take()?;
                let (block, offset) = (u32_at(&fields, 8), u16_at(&fields, 18));
                Inode::Folder { block, offset, size: u32_at(&fields, 4) }
            }
            2 => {
                let fields: [u8; 16] = bytes.take()?;
                let size = u64::from(u32_at(&fields, 12));
                let fragment = (u32_at(&fields, 4), u32_at(&fields, 8));
                let blocks = bytes.blocks(u64::from(u32_at(&fields, 0)), size, block_size, fragment)?;
                Inode::File { mode, size, blocks }
            }
            9 => {
                let fields: [u8; 40] = bytes.take()?;
                let size = u64_at(&fields, 8);
                let fragment = (u32_at(&fields, 28), u32_at(&fields, 32));
                let blocks = bytes.blocks(u64_at(&fields, 0), size, block_size, fragment)?;
                Inode::File { mode, size, blocks }
            }
            3 | 10 => {
                let fields: [u8; 8] = bytes.take()?;
                let length = u32_at(&fields, 4) as usize;
                if length > limits.path {
                    return Err(SquashfsError::TooMuch { what: "characters in a link", limit: limits.path });
                }
                Inode::Link { target: text(bytes.bytes(length)?)? }
            }
            4..=7 | 11..=14 => Inode::Other,
            _ => return Err(SquashfsError::Damaged("it has something of an unknown kind")),
        })
    }

    /// Names of a folder, and where the inode of each is.
    fn names(
        &mut self,
        tables: &Tables,
        block: u32,
        offset: u16,
        size: u32,
        limits: &Limits,
    ) -> Result<Vec<(String, u32, u16)>, SquashfsError> {
        let mut names = Vec::new();
        // Of an empty folder only the two names that every folder has are counted, and not written.
        let mut left = size.saturating_sub(3) as usize;
        if left == 0 {
            return Ok(names);
        }
        let place = tables.folders.checked_add(u64::from(block));
        let mut bytes = Metadata::new(&mut self.reader, place, offset)?;
        let short = SquashfsError::Damaged("a folder ends too early");
        while left > 0 {
            let header: [u8; 12] = bytes.take()?;
            left = left.checked_sub(12).ok_or(SquashfsError::Damaged("a folder ends too early"))?;
            for _ in 0..=u32_at(&header, 0).min(255) {
                let entry: [u8; 8] = bytes.take()?;
                let length = usize::from(u16_at(&entry, 6)) + 1;
                let name = text(bytes.bytes(length)?)?;
                let Some(rest) = left.checked_sub(8 + length) else { return Err(short) };
                left = rest;
                if matches!(name.as_str(), "." | "..") || name.contains('/') {
                    return Err(SquashfsError::Damaged("a name leads elsewhere"));
                }
                names.push((name, u32_at(&header, 4), u16_at(&entry, 0)));
                if names.len() > limits.entries {
                    return Err(SquashfsError::TooMuch { what: "files and folders", limit: limits.entries });
                }
            }
        }
        Ok(names)
    }

    /// The whole of a file; `None` if there is no file at this path.
    pub fn content(&mut self, path: &str, limit: usize) -> Result<Option<Vec<u8>>, SquashfsError> {
        let Ok(index) = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)) else { return Ok(None) };
        let EntryKind::File { size, .. } = self.entries[index].kind else { return Ok(None) };
        if size > limit as u64 {
            return Err(SquashfsError::TooMuch { what: "bytes in a file", limit });
        }
        let (blocks, block_size) = (self.blocks[index].clone(), self.block_size as usize);
        let (mut content, mut place) = (Vec::new(), blocks.start);
        for word in blocks.sizes {
            let wanted = block_size.min(size as usize - content.len());
            let stored = word & !DATA_IS_PLAIN;
            match stored {
                0 => content.resize(content.len() + wanted, 0),
                _ => content.extend(self.block(place, word, wanted)?),
            }
            place = place.saturating_add(u64::from(stored));
        }
        if let Some((number, offset)) = blocks.fragment {
            let (start, word) = self.fragment(number)?;
            let all = self.block(start, word, block_size)?;
            let rest = size as usize - content.len();
            let end = (offset as usize).checked_add(rest).filter(|end| *end <= all.len());
            let end = end.ok_or(SquashfsError::Damaged("the end of a file is missing"))?;
            content.extend(&all[offset as usize..end]);
        }
        match content.len() as u64 == size {
            true => Ok(Some(content)),
            false => Err(SquashfsError::Damaged("a file has another size than its name says")),
        }
    }

    /// One block of data, no longer than `longest`.
    fn block(&mut self, place: u64, word: u32, longest: usize) -> Result<Vec<u8>, SquashfsError> {
        let stored = (word & !DATA_IS_PLAIN) as usize;
        if stored > self.block_size as usize {
            return Err(SquashfsError::Damaged("a block is too long"));
        }
        let mut bytes = vec![0; stored];
        read_at(&mut self.reader, place, &mut bytes)?;
        match word & DATA_IS_PLAIN {
            0 => inflate(&bytes, longest),
            _ => Ok(bytes),
        }
    }

    fn fragment(&mut self, number: u32) -> Result<(u64, u32), SquashfsError> {
        if number >= self.fragments {
            return Err(SquashfsError::Damaged("a file ends in a fragment that is not there"));
        }
        const IN_ONE: u32 = (METADATA_BLOCK / 16) as u32;
        let mut pointer = [0; 8];
        let place = self.fragment_table.checked_add(u64::from(number / IN_ONE) * 8);
        let place = place.ok_or(SquashfsError::Damaged("a table lies nowhere"))?;
        read_at(&mut self.reader, place, &mut pointer)?;
        let offset = (number % IN_ONE) * 16;
        let mut bytes = Metadata::new(&mut self.reader, Some(u64::from_le_bytes(pointer)), offset as u16)?;
        let entry: [u8; 16] = bytes.take()?;
        Ok((u64_at(&entry, 0), u32_at(&entry, 8)))
    }
}

/// Metadata from a place on, block after block.
struct Metadata<'r, R> {
    reader: &'r mut R,
    next: u64,
    block: Vec<u8>,
    at: usize,
}

impl<'r, R: Read + Seek> Metadata<'r, R> {
    fn new(reader: &'r mut R, place: Option<u64>, offset: u16) -> Result<Self, SquashfsError> {
        let next = place.ok_or(SquashfsError::Damaged("a table lies nowhere"))?;
        let mut metadata = Self { reader, next, block: Vec::new(), at: 0 };
        metadata.load()?;
        metadata.at = usize::from(offset);
        if metadata.at > metadata.block.len() {
            return Err(SquashfsError::Damaged("a place lies behind its block"));
        }
        Ok(metadata)
    }

    fn load(&mut self) -> Result<(), SquashfsError> {
        let mut header = [0; 2];
        read_at(self.reader, self.next, &mut header)?;
        let header = u16::from_le_bytes(header);
        let stored = usize::from(header & !METADATA_IS_PLAIN);
        if stored == 0 || stored > METADATA_BLOCK {
            return Err(SquashfsError::Damaged("a block of metadata has an impossible size"));
        }
        let mut bytes = vec![0; stored];
        read_at(self.reader, self.next.saturating_add(2), &mut bytes)?;
        self.next = self.next.saturating_add(2 + stored as u64);
        self.at = 0;
        self.block = if header & METADATA_IS_PLAIN == 0 { inflate(&bytes, METADATA_BLOCK)? } else { bytes };
        Ok(())
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, SquashfsError> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            if self.at >= self.block.len() {
                self.load()?;
            }
            let end = self.block.len().min(self.at + length - bytes.len());
            bytes.extend(&self.block[self.at..end]);
            self.at = end;
        }
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], SquashfsError> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| SquashfsError::Damaged("metadata ends too early"))
    }

    fn blocks(
        &mut self,
        start: u64,
        size: u64,
        block_size: u64,
        (fragment, offset): (u32, u32),
    ) -> Result<Blocks, SquashfsError> {
        let count = match fragment {
            NO_FRAGMENT => size.div_ceil(block_size),
            _ => size / block_size,
        };
        // Two terabytes of a file, and 64 MB of memory for it.
        if count > 1 << 24 {
            return Err(SquashfsError::Damaged("a file has an impossible size"));
        }
        let mut sizes = Vec::new();
        for _ in 0..count {
            sizes.push(u32::from_le_bytes(self.take()?));
        }
        Ok(Blocks { start, sizes, fragment: (fragment != NO_FRAGMENT).then_some((fragment, offset)) })
    }
}

fn recognise<R: Read + Seek>(reader: &mut R) -> Option<&'static str> {
    OTHERS.iter().find_map(|(place, magic, name)| {
        let mut found = vec![0; magic.len()];
        read_at(reader, *place, &mut found).ok()?;
        (found == *magic).then_some(*name)
    })
}

fn read_at<R: Read + Seek>(reader: &mut R, place: u64, into: &mut [u8]) -> Result<(), SquashfsError> {
    reader.seek(SeekFrom::Start(place))?;
    reader.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => SquashfsError::Damaged("it ends too early"),
        _ => SquashfsError::Io(error),
    })
}

fn inflate(bytes: &[u8], longest: usize) -> Result<Vec<u8>, SquashfsError> {
    let mut out = Vec::new();
    let read = ZlibDecoder::new(bytes).take(longest as u64 + 1).read_to_end(&mut out);
    match read.is_ok() && out.len() <= longest {
        true => Ok(out),
        false => Err(SquashfsError::Damaged("a block cannot be unpacked")),
    }
}

fn text(bytes: Vec<u8>) -> Result<String, SquashfsError> {
    let text = String::from_utf8(bytes).map_err(|_| SquashfsError::Damaged("a name is no text"))?;
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err(SquashfsError::Damaged("a name is empty or has a control character")),
        false => Ok(text),
    }
}

/// Offsets are those of fixed fields, within what was read.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
