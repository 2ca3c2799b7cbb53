//! How an image is made: blocks of files first, then what is known of them. No fragments, no extended attributes: an image of a few
//! large programs gains nothing by them.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{
    DATA_IS_PLAIN, GZIP, Limits, MAGIC, METADATA_BLOCK, METADATA_IS_PLAIN, NO_FRAGMENT, NOWHERE, SUPERBLOCK,
    SquashfsError, VERSION,
};

/// As mksquashfs has it.
const BLOCK: usize = 1 << 17;
const BLOCK_LOG: u16 = 17;
/// Devices are read in pages.
const PADDING: u64 = 4096;
/// Without fragments and extended attributes.
const FLAGS: u16 = 0x0010 | 0x0200;
const FOLDER_MODE: u16 = 0o755;
const LINK_MODE: u16 = 0o777;

/// Folders follow from paths.
pub struct ImageFile<'a> {
    /// Relative to the root of the image.
    pub path: String,
    pub content: ImageContent<'a>,
}

pub enum ImageContent<'a> {
    File { mode: u32, size: u64, reader: Box<dyn Read + 'a> },
    Link { target: String },
}

/// A file or folder that is written already, as its folder will name it.
struct Named {
    name: String,
    kind: u16,
    number: u32,
    place: Place,
}

/// Where an inode or a listing begins: its block, counted in stored bytes, and where in it.
#[derive(Clone, Copy)]
struct Place {
    block: u32,
    offset: u16,
}

enum Node<'a> {
    Folder(BTreeMap<String, Node<'a>>),
    Leaf(String, ImageContent<'a>),
}

/// Metadata, in blocks as they are stored.
#[derive(Default)]
struct Metadata {
    stored: Vec<u8>,
    open: Vec<u8>,
}

struct Writer<'w, W> {
    out: &'w mut W,
    inodes: Metadata,
    folders: Metadata,
    count: u32,
}

/// Sorted, owned by root, without times: the same files make the same bytes.
pub fn write<W: Write + Seek>(files: Vec<ImageFile<'_>>, out: &mut W) -> Result<(), SquashfsError> {
    let mut root = BTreeMap::new();
    for file in files {
        insert(&mut root, file)?;
    }
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&[0; SUPERBLOCK])?;
    let mut writer = Writer { out, inodes: Metadata::default(), folders: Metadata::default(), count: 0 };
    // A root has no parent; one more than there are inodes stands for that.
    let total = count(&root) + 1;
    let place = writer.folder(root, total, total + 1)?;
    writer.finish(place)
}

fn count(folder: &BTreeMap<String, Node<'_>>) -> u32 {
    let of = |node: &Node<'_>| match node {
        Node::Folder(below) => 1 + count(below),
        Node::Leaf(..) => 1,
    };
    folder.values().map(of).sum()
}

fn insert<'a>(root: &mut BTreeMap<String, Node<'a>>, file: ImageFile<'a>) -> Result<(), SquashfsError> {
    let ImageFile { path, content } = file;
    let refuse = || SquashfsError::Path(path.clone());
    let mut names: Vec<&str> = path.split('/').collect();
    let is_name = |name: &&str| !matches!(*name, "" | "." | "..") && name.len() <= 255;
    if !names.iter().all(is_name) || path.len() > Limits::USUAL.path || names.len() > Limits::USUAL.depth {
        return Err(refuse());
    }
    let last = names.pop().ok_or_else(refuse)?;
    let mut folder = root;
    for name in names {
        match folder.entry(name.to_owned()).or_insert_with(|| Node::Folder(BTreeMap::new())) {
            Node::Folder(below) => folder = below,
            Node::Leaf(..) => return Err(refuse()),
        }
    }
    match folder.insert(last.to_owned(), Node::Leaf(path.clone(), content)) {
        None => Ok(()),
        Some(_) => Err(refuse()),
    }
}

impl<W: Write + Seek> Writer<'_, W> {
    /// What is in a folder comes before it, so that its listing can say where.
    fn folder(&mut self, below: BTreeMap<String, Node<'_>>, number: u32, parent: u32) -> Result<Place, SquashfsError> {
        let mut named = Vec::new();
        let mut next = number;
        let mut folders = 0;
        for (name, node) in below {
            // Numbers count down from the root, each with all that is below it.
            next -= 1;
            let own = next;
            let (kind, place) = match node {
                Node::Folder(below) => {
                    next -= count(&below);
                    folders += 1;
                    (1, self.folder(below, own, number)?)
                }
                Node::Leaf(path, ImageContent::File { mode, size, reader }) => {
                    (2, self.file(&path, mode, size, reader, own)?)
                }
                Node::Leaf(_, ImageContent::Link { target }) => (3, self.link(&target, own)?),
            };
            named.push(Named { name, kind, number: own, place });
        }
        let (listing, size) = self.listing(&named);
        let mut inode = Vec::new();
        if let Ok(size) = u16::try_from(size) {
            self.header(&mut inode, 1, FOLDER_MODE, number);
            inode.extend(listing.block.to_le_bytes());
            inode.extend((2 + folders as u32).to_le_bytes());
            inode.extend(size.to_le_bytes());
            inode.extend(listing.offset.to_le_bytes());
            inode.extend(parent.to_le_bytes());
        } else {
            self.header(&mut inode, 8, FOLDER_MODE, number);
            inode.extend((2 + folders as u32).to_le_bytes());
            inode.extend(size.to_le_bytes());
            inode.extend(listing.block.to_le_bytes());
            inode.extend(parent.to_le_bytes());
            inode.extend(0_u16.to_le_bytes());
            inode.extend(listing.offset.to_le_bytes());
            inode.extend(u32::MAX.to_le_bytes());
        }
        Ok(self.inodes.add(&inode))
    }

    /// Runs of names whose inodes share a block; gives where it begins, and its size as an inode says it.
    fn listing(&mut self, named: &[Named]) -> (Place, u32) {
        let (begin, mut size) = (self.folders.place(), 3);
        let alike = |one: &Named, other: &Named| one.place.block == other.place.block;
        for run in named.chunk_by(alike).flat_map(|run| run.chunks(256)) {
            let lowest = run.iter().map(|entry| entry.number).min().unwrap_or_default();
            let mut bytes = Vec::new();
            bytes.extend((run.len() as u32 - 1).to_le_bytes());
            bytes.extend(run[0].place.block.to_le_bytes());
            bytes.extend(lowest.to_le_bytes());
            for entry in run {
                bytes.extend(entry.place.offset.to_le_bytes());
                // At most 256 in a run, but below each of them may be many.
                bytes.extend((entry.number.wrapping_sub(lowest) as u16).to_le_bytes());
                bytes.extend(entry.kind.to_le_bytes());
                bytes.extend((entry.name.len() as u16 - 1).to_le_bytes());
                bytes.extend(entry.name.as_bytes());
            }
            size += bytes.len() as u32;
            self.folders.add(&bytes);
        }
        (begin, size)
    }

    fn file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        mut reader: Box<dyn Read + '_>,
        number: u32,
    ) -> Result<Place, SquashfsError> {
        let start = self.out.stream_position()?;
        let (mut sizes, mut read) = (Vec::new(), 0_u64);
        loop {
            let mut block = Vec::new();
            reader.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
            if block.is_empty() {
                break;
            }
            read += block.len() as u64;
            let packed = deflate(&block)?;
            let (bytes, plain) = if packed.len() < block.len() { (packed, 0) } else { (block, DATA_IS_PLAIN) };
            sizes.push(bytes.len() as u32 | plain);
            self.out.write_all(&bytes)?;
        }
        if read != size {
            return Err(SquashfsError::Size { path: path.to_owned() });
        }
        let mut inode = Vec::new();
        self.header(&mut inode, 9, (mode & 0o7777) as u16, number);
        inode.extend(start.to_le_bytes());
        inode.extend(size.to_le_bytes());
        inode.extend(0_u64.to_le_bytes());
        inode.extend(1_u32.to_le_bytes());
        inode.extend(NO_FRAGMENT.to_le_bytes());
        inode.extend(0_u32.to_le_bytes());
        inode.extend(u32::MAX.to_le_bytes());
        sizes.iter().for_each(|size| inode.extend(size.to_le_bytes()));
        Ok(self.inodes.add(&inode))
    }

    fn link(&mut self, target: &str, number: u32) -> Result<Place, SquashfsError> {
        let length = u32::try_from(target.len()).ok().filter(|length| *length > 0);
        let length = length.ok_or_else(|| SquashfsError::Path(target.to_owned()))?;
        let mut inode = Vec::new();
        self.header(&mut inode, 3, LINK_MODE, number);
        inode.extend(1_u32.to_le_bytes());
        inode.extend(length.to_le_bytes());
        inode.extend(target.as_bytes());
        Ok(self.inodes.add(&inode))
    }

    /// Owned by root, the only owner in the table; from the beginning of time.
    fn header(&mut self, inode: &mut Vec<u8>, kind: u16, mode: u16, number: u32) {
        self.count += 1;
        inode.extend(kind.to_le_bytes());
        inode.extend(mode.to_le_bytes());
        inode.extend([0; 4]);
        inode.extend(0_u32.to_le_bytes());
        inode.extend(number.to_le_bytes());
    }

    fn finish(self, root: Place) -> Result<(), SquashfsError> {
        let Self { out, inodes, folders, count } = self;
        let inode_table = out.stream_position()?;
        out.write_all(&inodes.finish())?;
        let folder_table = out.stream_position()?;
        out.write_all(&folders.finish())?;
        let owners = out.stream_position()?;
        out.write_all(&(METADATA_IS_PLAIN | 4).to_le_bytes())?;
        out.write_all(&0_u32.to_le_bytes())?;
        let owner_table = out.stream_position()?;
        out.write_all(&owners.to_le_bytes())?;
        let used = out.stream_position()?;
        let padding = used.next_multiple_of(PADDING) - used;
        out.write_all(&vec![0; padding as usize])?;
        let mut block = Vec::new();
        for word in [MAGIC, count, 0, BLOCK as u32, 0] {
            block.extend(word.to_le_bytes());
        }
        for word in [GZIP, BLOCK_LOG, FLAGS, 1, VERSION, 0] {
            block.extend(word.to_le_bytes());
        }
        let root = u64::from(root.block) << 16 | u64::from(root.offset);
        // There are no fragments, so their table ends where it begins.
        for word in [root, used, owner_table, NOWHERE, inode_table, folder_table, owners, NOWHERE] {
            block.extend(word.to_le_bytes());
        }
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&block)?;
        out.seek(SeekFrom::End(0))?;
        Ok(out.flush()?)
    }
}

impl Metadata {
    fn place(&self) -> Place {
        // Blocks are closed as soon as they are full, so an offset is less than 8192.
        Place { block: self.stored.len() as u32, offset: self.open.len() as u16 }
    }

    /// Gives where it begins.
    fn add(&mut self, bytes: &[u8]) -> Place {
        let place = self.place();
        self.open.extend(bytes);
        while self.open.len() >= METADATA_BLOCK {
            let rest = self.open.split_off(METADATA_BLOCK);
            let full = std::mem::replace(&mut self.open, rest);
            self.close(&full);
        }
        place
    }

    /// Not compressed: it is a few kilobytes.
    fn close(&mut self, block: &[u8]) {
        self.stored.extend((METADATA_IS_PLAIN | block.len() as u16).to_le_bytes());
        self.stored.extend(block);
    }

    fn finish(mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.open);
        if !rest.is_empty() {
            self.close(&rest);
        }
        self.stored
    }
}

fn deflate(bytes: &[u8]) -> Result<Vec<u8>, SquashfsError> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
