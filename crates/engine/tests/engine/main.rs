//! The engine as its users see it, over a world in memory.

#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod crash;
mod failure;
mod journal;
mod opening;
mod plan;
mod reboot;
mod report;
mod scheduling;
mod support;
mod timeline;
