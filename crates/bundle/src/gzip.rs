//! gzip back to what was packed, with a limit.

use libdeflater::{DecompressionError, Decompressor};

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The header and the trailer of a stream without a name or a comment.
const SMALLEST: usize = 18;

/// Why a stream was not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipDamage {
    /// Cut short, damaged, or followed by something else.
    Damaged,
    /// It holds more than the limit.
    TooLarge,
}

pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The content of one stream, which must end where the input ends. No more memory is used than the limit allows.
pub fn decompress(packed: &[u8], limit: usize) -> Result<Vec<u8>, GzipDamage> {
    if packed.len() < SMALLEST || !is_gzip(packed) {
        return Err(GzipDamage::Damaged);
    }
    // Never more than the limit, whatever the stream says of its length.
    let mut bytes = vec![0; limit];
    let length = match Decompressor::new().gzip_decompress(packed, &mut bytes) {
        Ok(length) => length,
        Err(DecompressionError::InsufficientSpace) => return Err(GzipDamage::TooLarge),
        Err(DecompressionError::BadData) => return Err(GzipDamage::Damaged),
    };
    // The stream ends with its length: if that is not at the end of the input, something was added.
    if !packed.ends_with(&(length as u32).to_le_bytes()) {
        return Err(GzipDamage::Damaged);
    }
    bytes.truncate(length);
    Ok(bytes)
}
