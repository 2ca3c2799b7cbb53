//! The Kubernetes API as nodestrap uses it.
//!
//! Inputs: an [`Access`] and a deadline, both arguments. Outputs: typed answers. Failures name the thing that
//! was waited for and the server it was asked of. Nothing here reads the environment or an in-cluster configuration.

mod access;
mod answer;
mod client;
mod join;
mod node_condition;
mod node_event;
mod node_marks;
mod pod_network;
mod recognition;
mod release;
mod tls;

pub use access::{Access, Identity};
pub use answer::{Answer, Patience};
pub use client::{ClusterError, block_on};
pub use join::{JoinAnswer, ask_whether_node_may_join};
pub use node_condition::{NodeCondition, node_condition};
pub use node_event::{NodeEvent, Weight, say_about_node};
pub use node_marks::{MarkKey, NodeMarks, annotate_node, node_marks};
pub use pod_network::wait_for_pod_cidrs;
pub use recognition::{Recognition, ask_who_we_are};
pub use release::{ConfigMapKey, GitVersion, cluster_version, config_map_text};
