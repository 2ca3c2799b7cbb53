//! Real nodes and a real control plane on one Linux machine, for tests and for trying things out.
//!
//! A lab is an etcd, a kube-apiserver, a controller manager and a scheduler in a network namespace of their own (the hub),
//! plus any number of nodes: a booted systemd in nspawn on an overlay, each with a network namespace, a cgroup, a boot id
//! and a cloud-init seed of its own. Nothing is sent to an address of the machine's own network.
//!
//! Inputs: [`LabOptions`], [`NodeOptions`], the cache that [`prepare`] fills. Outputs: a running cluster; state in
//! `/var/lib/nodestrap-lab/NAME` (or `$NODESTRAP_LAB_STATE`). Failures: every wait has a name and a deadline, and its error
//! carries the end of the log that explains it. Needs root: ask [`require`] first.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use std::time::Duration;
//! if !lab::require() { return Ok(()); }
//! let lab = lab::Lab::up(lab::LabOptions::default())?;
//! let node = lab.add_node(lab::NodeOptions::named("n1"))?;
//! node.wait_booted(Duration::from_secs(60))?;
//! # Ok(()) }
//! ```

// The lab is all effects: it runs programs, writes files and reads the clock; no rule of the pure crates applies here.
#![allow(clippy::disallowed_methods)]

pub mod cache;
mod cgroup;
mod command;
pub mod consumers;
mod control_plane;
mod eks_images;
mod flatcar;
pub mod flow;
mod identities;
mod keeper;
mod lab;
mod listener;
pub mod metadata;
mod mounts;
mod network;
mod node;
mod node_root;
pub mod object_store;
mod paths;
mod plain_kubelet;
mod pods;
mod process;
pub mod reboot_operator;
mod routes;
pub mod sandbox;
mod signing;
mod state;
mod support;
mod teardown;
pub mod update_engine;
mod usr_partitions;
mod wait;
mod web;
mod worker_spec;

pub use cache::{Consumers, PackageManager, Patch, ReleaseFile, image_of_program, prepare, prepare_releases};
pub use command::{output_text, stdout_of};
pub use flatcar::stand_in_for_flatcar;
pub use flow::Flow;
pub use keeper::keep_node;
pub use lab::{Lab, LabOptions, Lifetime};
pub use network::{API_SERVER_URL, Addresses};
pub use node::{BeforeBoot, Node, NodeOptions};
pub use object_store::ObjectStore;
pub use paths::{cache_folder, repository, state_root};
pub use pods::Pod;
pub use process::ProcessId;
pub use routes::keep_routes;
pub use state::{Desired, NodeImage, State, names_of_labs};
pub use support::{Unsupported, missing_packages, require, support};
pub use teardown::{reap_abandoned, tear_down};
pub use usr_partitions::{FIRST_OS_VERSION, NEXT_OS_VERSION, Partition, UsrPartitions};
pub use wait::{Fatal, wait_until};
pub use web::{Transport, WebServer, keep_site};
pub use worker_spec::{Rendered, WorkerSpec};
