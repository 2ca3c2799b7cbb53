//! What a node does: facts, plan, and the steps of a first boot.
//!
//! Joins the other rooms: a bundle, a machine from `host`, a scheduler from `engine`. Deciding
//! ([`plan_first_boot`]) is pure; doing ([`apply`]) goes through the host's traits only.

mod artefacts;
mod authority;
mod buckets;
mod bundle_source;
mod checks;
pub mod cluster_release;
mod complete;
mod expected;
mod facts;
mod failure;
mod followed;
mod following;
mod gate_facts;
mod hook_output;
mod image;
mod kept;
mod kubeconfig;
mod network;
pub mod os_update;
mod outlook;
mod ownership;
mod plan;
mod platform;
mod pre_reboot;
mod prerequisites;
mod refusals;
mod reset;
mod resource;
mod sealed;
mod session;
mod spending;
mod status;
mod store;
mod timekeeping;
mod told;
mod verify;
mod vouch;

pub use artefacts::{Artefacts, Errand, NetworkArtefacts, Order, STORE_FOLDER};
pub use buckets::BucketError;
pub use bundle_source::{BundleSourceError, Delivered, FetchBundle, fetch_bundle, load_bundle, load_platform_bundle};
pub use complete::{COMPLETE_PATH, Complete, load as load_complete};
pub use expected::{ExpectedPlan, ExpectedPlanError};
pub use facts::{Fact, Facts, FactsError, Os, gather_facts};
pub use followed::{ChosenAddon, FOLLOWED_PATH, Followed, Told, load as load_followed};
pub use following::{ApiServer, AskCluster, FollowError};
pub use image::{AskVersion, ImageError, ImageFinding, ImageReport, verify_image};
pub use kept::KEPT_BUNDLES_FOLDER;
pub use kubeconfig::{KubeconfigError, read_access, read_server};
pub use network::{Change, NetworkError, ensure_cni_config, load_network_settings};
pub use outlook::Outlook;
pub use plan::{Action, plan_first_boot};
pub use platform::{Freshness, KEPT_PLATFORM_PATH, METADATA_DEADLINE, PlatformError, PlatformSource};
pub use pre_reboot::{NextBootReady, NextBootRefused, Problem, look_at_next_boot, prepare_next_boot};
pub use refusals::Refusal;
pub use reset::{Forgotten, ResetAction, ResetOptions, plan_reset, preview_reset, reset};
pub use resource::Ownership;
pub use resource::file::{PlannedFile, SAVED_FOLDER};
pub use resource::gate::{GateOwner, GateState, is_any_open as is_gate_open, observe as observe_gate};
pub use resource::torcx::data::{CLEAN_DATA_PATH, CleanError, Cleaned, clean_runtime_data};
pub use resource::tree::PlannedTree;
pub use resource::tree::retire::{Outdated, find_outdated, retire_outdated};
pub use resource::tree::steady::wait_for_kubelet;
pub use session::{
    Adopt, Applied, DeliverBundle, LOCK_PATH, NodeHost, Prepare, Preview, SessionError, Surroundings, apply,
    apply_delivery, apply_prepared, load_events, prepare, preview,
};
pub use spending::{Spendable, Spent, cannot_join, find_spendable, spend};
pub use status::{Blocked, Phase, Status, find_ended_certificate, observe_status};
pub use store::{JOURNAL_PATH, STATE_FOLDER};
pub use timekeeping::{WrongClock, wait_for_clock};
pub use told::{
    CLUSTER_API_PATH, DURABLE_REPORT_PATH, FAILED_PATH, NodeReport, REPORT_PATH, RunResult, SUCCESS_PATH, tell,
    tell_webhook, withdraw,
};
pub use verify::{Verification, verify};
pub use vouch::{Verdict, VouchError, vouch};
