//! The golden cases as values: their specs, what is rendered from them, and how that is compared with what is kept.
//!
//! The tests of other crates include this file by its path, since they want what a case renders and not what is kept of it.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "reads the specs; writes goldens when asked, and what differs")]

pub(crate) mod cases;
pub(crate) mod deliveries;
pub(crate) mod golden;
pub(crate) mod keys;
