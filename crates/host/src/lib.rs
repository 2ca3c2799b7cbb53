//! The only room that touches the machine.
//!
//! Small traits of domain verbs ([`Disk`], [`Units`], [`Snaps`], [`UpdateEngine`], [`Machine`]), each with a Linux and a fake implementation; the
//! durable-write protocol in [`files`] is written once, above [`Disk`], so that the fake exercises the real thing.
//!
//! In: verbs with paths, unit names and bytes as values. Out: effects on one machine, or on one folder that stands for
//! it. Every error says which verb failed, on what; the cause is its source. Nothing here reads the environment, starts
//! a process or decides anything.

#![allow(clippy::disallowed_methods, reason = "this is the room where these effects live")]

mod bus;
pub mod disk;
pub mod doubt;
pub mod fake;
pub mod files;
pub mod machine;
mod mounts;
pub mod packages;
pub mod snaps;
pub mod units;
pub mod update_engine;
pub mod volumes;

pub use disk::Disk;
pub use machine::Machine;
pub use snaps::Snaps;
pub use units::Units;
pub use update_engine::UpdateEngine;
