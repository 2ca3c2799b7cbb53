//! A folder that is pushed to a node: what is sent, and how it gets its place there.
//!
//! ```text
//! nodestrap-push-v1 sha256:HEX SIZE MODE\n      one line: the digest and the size of what follows, the mode of the folder
//! SIZE bytes of tar                            sorted, without owners and times: the same folder gives the same bytes
//! ```
//!
//! In, where the folder is: a [`Disk`](host::Disk) and the folder. Out: a [`Parcel`], which writes itself to whoever carries it. In, where it
//! goes: what was carried, a disk and the [`Target`]. Out: the folder at its place, durable, by one rename; or nothing.
//!
//! ```text
//! lock → heading → is it there already? → unpack beside the target → digest → sync → read back → rename → sync
//! ```
//!
//! Whoever waits for a file in that folder finds all of them at once, and finds them once: the same push again does nothing,
//! and another one is refused, unless it may replace what a push has brought. A folder that a push has brought says so in a
//! file of its own (`.nodestrap-pushed`), because what runs there may add and take away files.
//!
//! What was carried in part, or wrongly, is given up: it is removed at once if that is still possible, and else by the next
//! [`receive`].

mod heading;
mod pack;
mod receive;

pub use heading::{Heading, HeadingError};
pub use pack::{PackError, Parcel};
pub use receive::{Done, Existing, LOCK, ReceiveError, Received, Target, receive};

use crate::unpack::Limits;

/// Manifests, keys and scripts; an image of containers is an artefact, and belongs into a store.
pub const LIMITS: Limits = Limits { total: 1 << 30, entries: 20_000, path: 1024, depth: 32, ratio: 1 };

/// At the top of a folder that a push has brought: its heading.
const MARK: &str = ".nodestrap-pushed";
