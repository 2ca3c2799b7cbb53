//! What nodestrap renders, judged by the programs that it is rendered for. Each test walks every golden case; beside it, a
//! test breaks an input on purpose and sees that the consumer notices.
#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "tests drive real programs")]

mod aws;
mod cloud_init;
mod component_config;
mod containerd;
mod flags;
mod gce;
mod ignition;
mod schema;
mod support;
mod units;
