//! The golden cases as values: their specs, and what is rendered from them.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "reads the specs, and the files that they name")]

pub(crate) mod cases;
