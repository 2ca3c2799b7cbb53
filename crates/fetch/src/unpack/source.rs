//! The bytes that come out, and whether they may be so many.

use std::io::{BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::{Limits, UnpackError, is_interrupted};

/// Zeros compress to a thousandth, and a small archive has many in its headers.
const NO_BOMB_YET: u64 = 1 << 20;
const BUFFER: usize = 64 * 1024;

pub(super) struct Source<'a> {
    bytes: Bytes<'a>,
    limits: Limits,
    given: u64,
    /// The entry that is being read, for messages.
    entry: String,
}

enum Bytes<'a> {
    Plain(Counted<'a>),
    /// Several compressed files behind each other are one, as for gzip itself; anything else behind them is an error.
    Gzip(Box<MultiGzDecoder<BufReader<Counted<'a>>>>),
}

struct Counted<'a> {
    inner: &'a mut dyn Read,
    taken: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        self.taken += read as u64;
        Ok(read)
    }
}

impl<'a> Source<'a> {
    pub(super) fn plain(inner: &'a mut dyn Read, limits: &Limits) -> Self {
        Self::new(Bytes::Plain(Counted { inner, taken: 0 }), limits)
    }

    pub(super) fn gzip(inner: &'a mut dyn Read, limits: &Limits) -> Self {
        let buffered = BufReader::with_capacity(BUFFER, Counted { inner, taken: 0 });
        Self::new(Bytes::Gzip(Box::new(MultiGzDecoder::new(buffered))), limits)
    }

    fn new(bytes: Bytes<'a>, limits: &Limits) -> Self {
        Self { bytes, limits: *limits, given: 0, entry: String::new() }
    }

    /// What comes next belongs to this entry.
    pub(super) fn enter(&mut self, entry: &str) {
        entry.clone_into(&mut self.entry);
    }

    pub(super) fn entry(&self) -> String {
        self.entry.clone()
    }

    pub(super) fn truncated(&self) -> UnpackError {
        UnpackError::Truncated { entry: self.entry() }
    }

    /// Some bytes, or none at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        let read = loop {
            let read = match &mut self.bytes {
                Bytes::Plain(bytes) => bytes.read(into),
                Bytes::Gzip(bytes) => bytes.read(into),
            };
            match read {
                Err(error) if is_interrupted(&error) => {}
                other => break other,
            }
        };
        let read = read.map_err(|error| self.failed(error))?;
        self.given += read as u64;
        self.check_limits()?;
        Ok(read)
    }

    fn failed(&self, error: std::io::Error) -> UnpackError {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match (&self.bytes, error.kind()) {
            (Bytes::Gzip(_), UnexpectedEof) => self.truncated(),
            (Bytes::Gzip(_), InvalidInput | InvalidData) => UnpackError::Gzip(error),
            _ => UnpackError::Read(error),
        }
    }

    fn check_limits(&self) -> Result<(), UnpackError> {
        let Limits { total, ratio, .. } = self.limits;
        let taken = match &self.bytes {
            Bytes::Plain(bytes) => bytes.taken,
            Bytes::Gzip(bytes) => bytes.get_ref().get_ref().taken,
        };
        match self.given {
            given if given > total => Err(UnpackError::TooLarge { entry: self.entry(), limit: total }),
            given if given > NO_BOMB_YET && given / ratio.max(1) > taken => {
                Err(UnpackError::Bomb { entry: self.entry(), limit: ratio })
            }
            _ => Ok(()),
        }
    }

    /// As many bytes as fit, fewer only at the end.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }
}
