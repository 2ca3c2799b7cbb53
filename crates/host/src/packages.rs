//! What package managers know, read from their own files without starting one.
//!
//! In: a [`crate::Disk`], or the text of a file. Out: packages with version, state and hold; and who holds a lock. Fails with
//! [`crate::disk::DiskError`] only: what cannot be parsed is not there.

pub mod dpkg;
