//! Opens the machine that a command works on: the real one, or a folder that stands for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bundle::{BUNDLE_PATH, Stub};
use engine::{Clock, Timestamp};
use host::disk::{Disk, RootedDisk};
use host::machine::{LinuxClock, LinuxMachine, Machine, effective_uid, random_u64};
use host::snaps::{SnapdSnaps, Snaps};
use host::units::{StandInUnits, SystemdUnits, Units};
use host::update_engine::{NoUpdateEngine, SystemUpdateEngine, UpdateEngine};
use host::volumes::{FolderVolumes, LinuxVolumes, Volumes};
use node::{
    Artefacts, BundleSourceError, Delivered, FetchBundle, Freshness, NetworkArtefacts, NodeHost, Ownership,
    PlatformSource,
};

use crate::args::{FetchArguments, NodeArguments, PlatformArguments};
use crate::outcome::{Code, Failure, OrFail};

/// `/` is the machine itself; any other root is a folder, whose units a stand-in keeps.
pub(crate) fn open(root: &Path) -> Result<NodeHost, Failure> {
    open_asking(root, node::METADATA_DEADLINE, Freshness::AsKept)
}

/// The same, for those who may ask the platform.
pub(crate) fn open_with(root: &Path, platform: &PlatformArguments) -> Result<NodeHost, Failure> {
    let freshness = if platform.ask_again { Freshness::AskAgain } else { Freshness::AsKept };
    open_asking(root, Duration::from_secs(platform.metadata_deadline), freshness)
}

fn open_asking(root: &Path, metadata_deadline: Duration, freshness: Freshness) -> Result<NodeHost, Failure> {
    let rooted = Arc::new(RootedDisk::open(root).or_fail(Code::WrongInput)?);
    let snaps: Arc<dyn Snaps> = Arc::new(SnapdSnaps::new(Arc::clone(&rooted)));
    let disk: Arc<dyn Disk> = rooted;
    let units: Arc<dyn Units> = if is_machine(root) {
        Arc::new(SystemdUnits::new(None))
    } else {
        Arc::new(StandInUnits::new(Arc::clone(&disk)))
    };
    let scope = if is_machine(root) { Path::new("/") } else { root };
    let machine: Arc<dyn Machine> = Arc::new(LinuxMachine::new(Arc::clone(&disk), scope));
    let ownership = if effective_uid() == 0 { Ownership::Root } else { Ownership::Keep };
    let volumes: Arc<dyn Volumes> =
        if is_machine(root) { Arc::new(LinuxVolumes::new()) } else { Arc::new(FolderVolumes::new(Arc::clone(&disk))) };
    let (its_disk, its_machine) = (Arc::clone(&disk), Arc::clone(&machine));
    let platform = Arc::new(PlatformSource::with(its_disk, its_machine, volumes, metadata_deadline, freshness));
    let here: Arc<dyn Disk> = match is_machine(root) {
        true => Arc::clone(&disk),
        false => Arc::new(RootedDisk::open(Path::new("/")).or_fail(Code::WrongInput)?),
    };
    let artefacts: Arc<dyn Artefacts> = Arc::new(NetworkArtefacts::new(Arc::clone(&disk), here, Arc::clone(&platform)));
    let update_engine: Arc<dyn UpdateEngine> =
        if is_machine(root) { Arc::new(SystemUpdateEngine::new(None)) } else { Arc::new(NoUpdateEngine) };
    Ok(NodeHost { disk, units, snaps, update_engine, artefacts, machine, ownership, platform })
}

/// By any of its names: `--root .` in `/` is the machine too, and no stand-in may keep its units.
pub(crate) fn is_machine(root: &Path) -> bool {
    std::fs::canonicalize(root).is_ok_and(|real| real == Path::new("/"))
}

/// The bundle that the user names, or the one that was delivered to the node: by a file, or else by the platform's user
/// data. Without `fetch`, nobody is asked for it.
pub(crate) fn load_bundle(
    host: &NodeHost,
    arguments: &NodeArguments,
    fetch: Option<FetchBundle<'_>>,
    tell: &dyn Fn(&str),
) -> Result<Delivered, BundleSourceError> {
    let node = host.disk.as_ref();
    match &arguments.bundle {
        None => match node::load_bundle(node, Path::new(BUNDLE_PATH), node, fetch) {
            Err(BundleSourceError::Absent { .. }) => node::load_platform_bundle(host, fetch, tell),
            found => found,
        },
        // What the user names lies where the user is, not under the root.
        Some(path) => {
            let here = RootedDisk::open(Path::new("/"))?;
            node::load_bundle(&here, &absolute(path), node, fetch).map(Delivered::by_hand)
        }
    }
}

/// The same, from its store if it must be; `tell` hears of every attempt.
pub(crate) fn fetch_bundle(
    host: &NodeHost,
    arguments: &NodeArguments,
    fetch: &FetchArguments,
    tell: &dyn Fn(&str),
) -> Result<Delivered, Failure> {
    find_bundle(host, arguments, fetch, tell)
        .map_err(|error| Failure { code: error.class().into(), error: error.into() })
}

pub(crate) fn find_bundle(
    host: &NodeHost,
    arguments: &NodeArguments,
    fetch: &FetchArguments,
    tell: &dyn Fn(&str),
) -> Result<Delivered, BundleSourceError> {
    let deadline = Duration::from_secs(fetch.fetch_deadline);
    let ask = |stub: &Stub| {
        // A clock that is years behind makes every certificate look invalid; that is said by its name.
        let clock = MachineClock(LinuxClock::new());
        node::wait_for_clock(host, stub.certificate_authorities.as_deref(), &clock)?;
        node::fetch_bundle(stub, &host.platform, deadline, &random_u64, tell)
    };
    load_bundle(host, arguments, Some(&ask), tell)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The machine's clock in the engine's terms.
pub(crate) struct MachineClock(pub(crate) LinuxClock);

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.now_ms())
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_many_names_and_a_folder_is_none_of_them() {
        for name in ["/", "//", "/.", "/usr/..", "/proc/self/root"] {
            assert!(is_machine(Path::new(name)), "{name}");
        }
        for name in ["/usr", ".", "/nonexistent"] {
            assert!(!is_machine(Path::new(name)), "{name}");
        }
    }
}
