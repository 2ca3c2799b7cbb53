//! The store and the unpacking on the fake disk, which loses power, and on the real one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at the real file system from outside, and run tar and themselves"
)]
#![allow(clippy::print_stdout, reason = "processes of one test tell each other what they did")]

mod assets;
mod crashes;
mod honest;
mod processes;
mod store;
mod tarball;
mod zoo;

use std::path::Path;

use fetch::Digest;
use fetch::store::Wanted;
use sha2::{Digest as _, Sha256, Sha512};

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// Bytes that no compression shortens, the same for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn by_sha256(bytes: &[u8]) -> Wanted {
    Wanted { digest: Digest::Sha256(Sha256::digest(bytes).into()), size: bytes.len() as u64 }
}

fn by_sha512(bytes: &[u8]) -> Wanted {
    Wanted { digest: Digest::Sha512(Sha512::digest(bytes).into()), size: bytes.len() as u64 }
}
