//! Archives written by hand, header by header, so that they can be as wrong as one likes.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

#[derive(Clone, Default)]
pub(crate) struct Tarball(pub(crate) Vec<u8>);

/// A header of ustar; every field can be overwritten before its checksum is made.
#[derive(Clone)]
pub(crate) struct Header(pub(crate) [u8; 512]);

impl Header {
    pub(crate) fn new(kind: u8, name: &[u8], size: u64) -> Self {
        let mut header = Self([0; 512]);
        header.0[..name.len()].copy_from_slice(name);
        header.0[156] = kind;
        header.0[257..265].copy_from_slice(b"ustar\x0000");
        header.mode(if kind == b'5' { 0o755 } else { 0o644 }).size(size)
    }

    pub(crate) fn field(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn mode(self, mode: u32) -> Self {
        self.field(100, format!("{mode:07o}\0").as_bytes())
    }

    pub(crate) fn size(self, size: u64) -> Self {
        self.field(124, format!("{size:011o}\0").as_bytes())
    }

    pub(crate) fn link(self, target: &[u8]) -> Self {
        self.field(157, target)
    }

    fn summed(self) -> Self {
        let spaced = self.field(148, b"        ");
        let sum: u32 = spaced.0.iter().map(|byte| u32::from(*byte)).sum();
        spaced.field(148, format!("{sum:06o}\0 ").as_bytes())
    }
}

impl Tarball {
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn header(self, header: Header) -> Self {
        self.raw(&header.summed().0)
    }

    pub(crate) fn body(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn entry(self, kind: u8, name: &str, body: &[u8]) -> Self {
        self.header(Header::new(kind, name.as_bytes(), body.len() as u64)).body(body)
    }

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(b'0', name, content)
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.entry(b'5', name, b"")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.header(Header::new(b'2', name.as_bytes(), 0).link(target.as_bytes()))
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.header(Header::new(b'1', name.as_bytes(), 0).link(target.as_bytes()))
    }

    pub(crate) fn pax(self, records: &[(&str, &str)]) -> Self {
        self.entry(b'x', "PaxHeaders/x", &records_of(records))
    }

    pub(crate) fn end(self) -> Self {
        self.raw(&[0; 1024])
    }

    /// With its end.
    pub(crate) fn gz(self) -> Vec<u8> {
        gzip(&self.end().0, Compression::fast())
    }
}

pub(crate) fn records_of(records: &[(&str, &str)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (key, value) in records {
        let bare = key.len() + value.len() + 3;
        let mut length = bare + 1;
        while length != bare + length.to_string().len() {
            length += 1;
        }
        all.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    all
}

pub(crate) fn gzip(bytes: &[u8], how: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), how);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
