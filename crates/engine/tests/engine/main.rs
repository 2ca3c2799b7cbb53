//! The engine as its users see it, over a world in memory.

mod crash;
mod failure;
mod journal;
mod plan;
mod report;
mod scheduling;
mod support;
mod timeline;
