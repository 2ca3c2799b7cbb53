//! What a node does: facts, plan, and the steps of a first boot.
//!
//! Joins the other rooms: a bundle from `render`, a machine from `host`, a scheduler from `engine`. Deciding
//! ([`plan_first_boot`]) is pure; doing ([`apply`]) goes through the host's traits only.

mod bundle_source;
mod facts;
mod gate;
mod kept;
mod network;
mod plan;
mod platform;
mod refusals;
mod session;
mod status;
mod steps;
mod store;

pub use bundle_source::{BundleSourceError, Delivered, FetchBundle, fetch_bundle, load_bundle, load_platform_bundle};
pub use facts::{Fact, Facts, FactsError, Os, gather_facts};
pub use gate::{GateState, observe as observe_gate};
pub use kept::KEPT_BUNDLES_FOLDER;
pub use network::{Change, NetworkError, ensure_cni_config, load_network_settings};
pub use plan::{Action, PlannedFile, plan_first_boot};
pub use platform::{Freshness, KEPT_PLATFORM_PATH, METADATA_DEADLINE, PlatformError, PlatformSource};
pub use refusals::Refusal;
pub use session::{LOCK_PATH, NodeHost, Preview, SessionError, Surroundings, apply, load_events, prepare, preview};
pub use status::{Blocked, Phase, Status, observe_status};
pub use steps::Ownership;
pub use store::{JOURNAL_PATH, STATE_FOLDER};
