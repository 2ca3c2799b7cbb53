//! Complete spec → bundle → user data.
//!
//! Inputs: a [`spec::CompleteSpec`] and the name of a group; every decision is made already, this crate writes it out.
//! Outputs: a [`Bundle`] (files, units, gate, one digest over all) in the shapes that a delivery carries: one JSON file,
//! a folder, cloud-config. And the two documents that only the node can finish: the gate file ([`gate`]) and the pod
//! network ([`network`]).
//! Failures: [`RenderError`] for what cannot be written out, [`BundleError`] for a bundle that must not be used.
//!
//! Pure and deterministic: no file, clock, environment, network or randomness; the same input and the same version of
//! nodestrap give the same bytes.

pub mod bundle;
mod check;
mod content;
pub mod delivery;
mod diff;
mod document;
mod entry;
mod error;
mod extras;
pub mod gate;
mod group;
mod json;
mod kubeconfig;
mod kubelet;
mod layout;
mod manifest;
pub mod network;
mod node;
mod pod;
mod runtime;
mod shared;
mod static_pods;
mod stub;
mod system;
mod unit;
pub mod webhook;

pub use bundle::{
    Archive, BUNDLE_PATH, Bundle, File, Gate, Hook, Join, NodeKind, Package, Runtime, Secrecy, Start, Unit,
};
pub use content::Content;
pub use delivery::{cloud_config, read_user_data, user_data};
pub use diff::{
    Besides, BundleDiff, Consequence, FileChange, Reason, UnitChange, ValueChange, diff_bundles, diff_contents,
    diff_rendered,
};
pub use error::{BundleError, RenderError};
pub use gate::{EKSCTL_GATE_PATH, GATE_PATH, GateDamage, check_gate, parse_environment, render_gate};
pub use group::{GroupDelivery, refusals, render_all, render_group};
pub use layout::eksctl::{EksctlSnap, KUBELET_ENV_PATH, MAX_PODS_MAP_PATH, METADATA_PATH, SNAP_PATH};
pub use network::{NETWORK_SETTINGS_PATH, NetworkSettings, cni_config};
pub use node::render_bundle;
pub use stub::{MAX_STUB_BYTES, Payload, PayloadError, Stub, StubError};
