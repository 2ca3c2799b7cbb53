//! The shipped binary on disks that are recorded, full, read-only and small, and in little memory. As root.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout, reason = "tests drive real processes")]

mod block;
mod limits;
mod lost;
mod machine;
mod recorded;
mod trees;
