//! Complete spec → bundle → user data.
//!
//! Inputs: a [`spec::CompleteSpec`] and the name of a group; every decision is made already, this crate writes it out.
//! Outputs: a [`bundle::Bundle`], and the shapes that a delivery carries: one JSON file, a folder, cloud-config, MIME,
//! Ignition, and the documents with which a provider starts machines.
//! Failures: [`RenderError`] for what cannot be written out.
//!
//! Pure and deterministic: no file, clock, environment, network or randomness; the same input and the same version of
//! nodestrap give the same bytes.

mod besides;
mod clean_up;
mod confinement;
pub mod delivery;
mod error;
mod extras;
mod flags;
mod follow;
mod gate_unit;
mod group;
mod kubeconfig;
mod kubelet;
mod layout;
mod network;
mod node;
mod packages;
mod part;
mod pod;
mod readers;
mod runtime;
mod spending;
mod static_pods;
mod system;
mod trees;
mod unit;
mod webhook;

pub use besides::besides_of_user_data;
pub use delivery::{cloud_config, user_data};
pub use error::RenderError;
pub use flags::{OldFlags, bundle_of_flags};
pub use group::{GroupDelivery, refusals, render_all, render_group};
pub use node::render_bundle;
