//! What nodestrap renders, given to the programs that it is rendered for: cloud-init, Ignition, systemd, containerd, the
//! components of Kubernetes, and the API of EC2.
//!
//! Inputs: what the golden cases of the renderer render, written to a folder by the tests, and the programs of [`crate::Consumers`].
//! Outputs: nothing, or an error with what the consumer said. Each consumer runs in namespaces of its own, without a network,
//! on a copy that is thrown away. Needs root, as a lab does.

mod aws;
mod cases;
mod cloud_init;
mod component_config;
mod containerd;
mod flags;
mod gce;
mod ignition;
mod sandbox;
mod units;

pub use aws::{AwsFiles, AwsVerdict};
pub use cases::{Case, Document, FileKind, cases_below, check_delivered};
pub use cloud_init::{CloudInitVerdict, UserData, WrittenFile};
pub use flags::{Asked, CommandLine, Flags, command_lines_of_pod, command_lines_of_unit};
pub use gce::{GceFile, GceVerdict};
pub use ignition::IgnitionSpec;
