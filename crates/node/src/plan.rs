//! The first boot, read top to bottom: bundle and facts in, steps as data out.
//!
//! Pure. File contents stay in the bundle; the plan names them by digest, so that it can be printed, compared and kept
//! without showing a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use bundle::torcx::AddonName;
use bundle::{BUNDLE_PATH, Bundle, FOLDERS, SPENDING_UNIT, Slot, Snap, Start, UnitName};
use engine::{Plan, PlanError, Step, StepId};
use serde::{Deserialize, Serialize};

use crate::checks;
use crate::facts::Facts;
use crate::followed::Followed;
use crate::gate_facts;
use crate::refusals;
use crate::resource::extension::{self, MERGE_DEADLINE, PlannedExtension};
use crate::resource::file::{FILES_DEADLINE, PlannedFile};
use crate::resource::os::{self, UPDATE_DEADLINE};
use crate::resource::package::PACKAGES_DEADLINE;
use crate::resource::snap::planned_snap;
use crate::resource::torcx::{self, IMAGE_DEADLINE, RESOLVE_DEADLINE, WantedAddon};
use crate::resource::tree::{self, FETCH_DEADLINE, PlannedTree, RETIRE_DEADLINE, UNPACK_DEADLINE};
use crate::resource::{Deed, Node, credential, file, folder, gate, hook, keep, package, short, snap, unit};

/// A reload parses all unit files; seconds on the slowest machines.
const RELOAD_DEADLINE: Duration = Duration::from_secs(60);
/// containerd reads its whole metadata store before it says that it is ready.
const SERVICE_DEADLINE: Duration = Duration::from_secs(300);

/// Time clients set the clock within seconds after the network is up.
pub(crate) const CLOCK_STEP: &str = "check-clock";
pub(crate) const CLOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Left by packages of Debian and Ubuntu, and by hooks on any system. Both are gone after a boot.
const REBOOT_MARKERS: [&str; 2] = ["/run/reboot-required", "/run/nodestrap/reboot-required"];

/// Beyond the timeout of a hook, which systemd keeps: it asks the processes to end, and after 90 seconds ends them.
const HOOK_MARGIN: Duration = Duration::from_secs(120);

/// The step that refuses what cannot be done here.
pub(crate) const CHECK_STEP: &str = "check-bundle";
const UPDATE_STEP: &str = "update-system";
const REBOOT_STEP: &str = "reboot-into-system";
const CREDENTIALS_STEP: &str = "settle-credentials";
/// The step that switches files in.
pub(crate) const COMMIT_STEP: &str = "commit-files";

/// The vocabulary of a node, by family: one domain verb each, never "run this command".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Action {
    Check(checks::Action),
    Keep(keep::Action),
    Os(os::Action),
    Addon(torcx::Action),
    Folder(folder::Action),
    Credential(credential::Action),
    Tree(tree::Action),
    Package(package::Action),
    Extension(extension::Action),
    File(file::Action),
    Gate(gate::Action),
    Hook(hook::Action),
    Unit(unit::Action),
    Snap(snap::Action),
}

impl Action {
    /// In a few words, for those who read the plan.
    pub fn describe(&self) -> String {
        self.deed().describe()
    }

    pub(crate) fn deed<'n>(&self) -> &dyn Deed<Node<'n>> {
        match self {
            Self::Check(action) => action,
            Self::Keep(action) => action,
            Self::Os(action) => action,
            Self::Addon(action) => action,
            Self::Folder(action) => action,
            Self::Credential(action) => action,
            Self::Tree(action) => action,
            Self::Package(action) => action,
            Self::Extension(action) => action,
            Self::File(action) => action,
            Self::Gate(action) => action,
            Self::Hook(action) => action,
            Self::Unit(action) => action,
            Self::Snap(action) => action,
        }
    }
}

/// Everything that `apply` will do on this machine.
pub fn plan_first_boot(bundle: &Bundle, facts: &Facts) -> Result<Plan<Action>, PlanError> {
    let gate = gate_facts::resolve(bundle, facts).environment;
    // What cannot be planned is refused by the first step.
    let snap = planned_snap(bundle, &gate).ok().flatten();
    let mut steps = Sequence { bundle, followed: facts.followed.as_ref(), gate, snap, steps: Vec::new() };
    steps.prepare(facts);
    steps.write_files(facts);
    let mut before_gate = steps.start_units();
    steps.settle_machine(&mut before_gate);
    before_gate.push(CREDENTIALS_STEP.to_owned());
    steps.open_gate(&before_gate, facts);
    Plan::new(inputs(bundle, facts), steps.steps)
}

/// What the plan depends on, by name, so that two plans can be told apart at a glance.
fn inputs(bundle: &Bundle, facts: &Facts) -> BTreeMap<String, String> {
    let release = facts.followed.as_ref().map(|followed| followed.release.value.to_string());
    [
        ("bundle", bundle.digest().to_string()),
        ("cluster", bundle.cluster.clone()),
        ("group", bundle.group.clone()),
        ("kubernetes", release.unwrap_or_else(|| bundle.kubernetes_version.clone())),
        ("os", format!("{} {}", facts.os.value.id, facts.os.value.version)),
        ("hostname", facts.hostname.value.clone()),
        ("platform", facts.platform.value.clone()),
        ("instanceId", facts.instance_id.value.clone()),
    ]
    .into_iter()
    .chain(gate_facts::named(bundle, facts).map(|(name, value)| (name, value.to_owned())))
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn units_with(bundle: &Bundle, start: Start) -> Vec<UnitName> {
    bundle.units.iter().filter(|unit| unit.start == start).map(|unit| unit.name.clone()).collect()
}

/// Reads as a table of contents.
struct Sequence<'a> {
    bundle: &'a Bundle,
    followed: Option<&'a Followed>,
    gate: BTreeMap<String, String>,
    snap: Option<Snap>,
    steps: Vec<Step<Action>>,
}

impl Sequence<'_> {
    /// Up to the moment at which a crash begins to mean "not started".
    fn prepare(&mut self, facts: &Facts) {
        let bundle = self.bundle;
        let check = checks::Action::CheckBundle {
            refusals: refusals::refusals(bundle, facts),
            remarks: refusals::remarks(bundle, facts),
        };
        self.add(CHECK_STEP, &[""; 0], FILES_DEADLINE, Action::Check(check));
        // What is refused must leave no trace, so everything waits for this check.
        let checked = [CHECK_STEP];
        let paths = bundle.required_programs.iter().map(ToString::to_string).collect();
        let programs = Action::Check(checks::Action::CheckPrograms { paths });
        self.add("check-programs", &checked, FILES_DEADLINE, programs);
        let checked = self.check_host(&checked);
        let checked = self.check_package_manager(checked);
        let checked = self.check_idle_units(checked);
        let folders = folder::Action::MakeFolders { paths: FOLDERS.map(str::to_owned).to_vec() };
        self.add("keep-before", &checked, FILES_DEADLINE, Action::Keep(keep::Action::KeepBefore));
        let kept = ["keep-before"];
        self.add("make-folders", &kept, FILES_DEADLINE, Action::Folder(folders));
        let stage = file::Action::StageFiles { files: self.files(Early::No) };
        self.add("stage-files", &kept, FILES_DEADLINE, Action::File(stage));
        let mut all_prepared = ["check-programs", "make-folders", "stage-files"].map(str::to_owned).to_vec();
        all_prepared.extend(self.unpack_trees(&checked));
        all_prepared.extend(self.fetch_packages());
        all_prepared.extend(self.place_extensions(&checked));
        all_prepared.extend(self.resolve_versions(&checked));
        let take = keep::Action::TakeBundle { path: BUNDLE_PATH.to_owned() };
        self.add("take-bundle", &all_prepared, FILES_DEADLINE, Action::Keep(take));
        let close = gate::Action::CloseGate { path: bundle.gate.path.to_string() };
        self.add_barrier("close-gate", &["take-bundle"], FILES_DEADLINE, Action::Gate(close));
        let join = &bundle.join;
        let (kubeconfig, server) = (join.kubeconfig.to_string(), join.api_server.clone());
        let settle = Action::Credential(credential::Action::SettleCredentials { kubeconfig, server });
        self.add(CREDENTIALS_STEP, &["close-gate"], FILES_DEADLINE, settle);
    }

    /// Gives what waits for it: a host that lacks something is left as it is.
    fn check_host(&mut self, checked: &[&'static str]) -> Vec<&'static str> {
        let bundle = self.bundle;
        if bundle.trees.is_empty() && bundle.extensions.is_empty() && bundle.packages.is_none() {
            return checked.to_vec();
        }
        self.add("check-host", checked, FILES_DEADLINE, Action::Check(checks::Action::CheckHost));
        vec![CHECK_STEP, "check-host"]
    }

    /// The same for a place where no package manager can run.
    fn check_package_manager(&mut self, checked: Vec<&'static str>) -> Vec<&'static str> {
        let Some(packages) = &self.bundle.packages else { return checked };
        let check = package::Action::CheckPackageManager { manager: packages.manager };
        self.add("check-package-manager", &checked, FILES_DEADLINE, Action::Package(check));
        [checked, vec!["check-package-manager"]].concat()
    }

    /// The same for a unit that cannot be kept from starting.
    fn check_idle_units(&mut self, checked: Vec<&'static str>) -> Vec<&'static str> {
        let units = self.bundle.idle_units.clone();
        if units.is_empty() {
            return checked;
        }
        let check = Action::Unit(unit::Action::CheckIdleUnits { units });
        self.add("check-idle-units", &checked, FILES_DEADLINE, check);
        [checked, vec!["check-idle-units"]].concat()
    }

    /// A repository that does not answer leaves the node as it was, but for where to look.
    fn fetch_packages(&mut self) -> Vec<String> {
        let packages = self.packages();
        if packages.is_empty() {
            return Vec::new();
        }
        let mut kept = vec!["keep-before", "check-programs"];
        let files = self.files(Early::Settings);
        if !files.is_empty() {
            let commit = Action::File(file::Action::CommitSettings { files });
            self.add("commit-repositories", &kept, FILES_DEADLINE, commit);
            kept.push("commit-repositories");
        }
        let fetch = Action::Package(package::Action::FetchPackages { packages });
        self.add("fetch-packages", &kept, PACKAGES_DEADLINE, fetch);
        vec!["fetch-packages".to_owned()]
    }

    fn packages(&self) -> Vec<String> {
        let packages = self.bundle.packages.iter().flat_map(|packages| &packages.packages);
        packages.map(bundle::Package::title).collect()
    }

    /// Before files are switched in, which replace the configuration that packages bring. Gives the steps after which they may.
    fn install_packages(&mut self, before: Vec<String>, facts: &Facts) -> Vec<String> {
        let (packages, mut before) = (self.packages(), before);
        if !packages.is_empty() {
            let install = Action::Package(package::Action::InstallPackages { packages });
            self.add("install-packages", &before, PACKAGES_DEADLINE, install);
            before = vec!["install-packages".to_owned()];
        }
        if self.bundle.packages.is_some() || facts.has_packages {
            let remove = Action::Package(package::Action::RemovePackages);
            self.add("remove-packages", &before, PACKAGES_DEADLINE, remove);
            before = vec!["remove-packages".to_owned()];
        }
        before
    }

    /// The whole payload is there and proved before anything else changes. Gives the steps after which it is.
    fn unpack_trees(&mut self, checked: &[&str]) -> Vec<String> {
        let mut unpacked = Vec::new();
        for tree in &self.bundle.trees {
            let [fetch, unpack] = ["fetch", "unpack"].map(|verb| format!("{verb}-{}", tree.component));
            let needs: Vec<&str> = checked.iter().copied().chain(["check-programs"]).collect();
            let planned = PlannedTree::from(tree);
            let action = Action::Tree(tree::Action::FetchTree { tree: planned.clone() });
            self.add(&fetch, &needs, FETCH_DEADLINE, action);
            let action = Action::Tree(tree::Action::UnpackTree { tree: planned });
            self.add(&unpack, &[fetch.as_str(), "keep-before"], UNPACK_DEADLINE, action);
            unpacked.push(unpack);
        }
        unpacked
    }

    /// What is staged hangs on the system that boots next, so that comes first. Gives the steps after which all of it is there.
    fn resolve_versions(&mut self, checked: &[&str]) -> Vec<String> {
        let (Some(follow), Some(followed)) = (&self.bundle.follow, self.followed) else { return Vec::new() };
        let needs: Vec<&str> = checked.iter().copied().chain(["check-programs", "keep-before"]).collect();
        let update = Action::Os(os::Action::UpdateSystem { update: follow.os_update });
        self.add(UPDATE_STEP, &needs, UPDATE_DEADLINE, update);
        let (release, source) = (followed.release.value.to_string(), followed.release.source.clone());
        let addon = follow.addon.as_ref().zip(followed.preferred.as_ref());
        let addon = addon.map(|(addon, preferred)| WantedAddon {
            name: addon.name.clone(),
            versions: preferred.value.clone(),
            source: preferred.source.clone(),
            lists: addon.manifest_url.as_str().to_owned(),
        });
        let resolve = torcx::Action::ResolveVersions { release, source, addon };
        self.add("resolve-versions", &[UPDATE_STEP], RESOLVE_DEADLINE, Action::Addon(resolve));
        let Some(addon) = self.addon() else { return vec!["resolve-versions".to_owned()] };
        let fetch = format!("fetch-addon-{addon}");
        let action = Action::Addon(torcx::Action::FetchAddon { addon });
        self.add(&fetch, &["resolve-versions"], IMAGE_DEADLINE, action);
        vec![fetch]
    }

    fn addon(&self) -> Option<AddonName> {
        let addon = self.bundle.follow.as_ref()?.addon.as_ref()?;
        Some(addon.name.clone())
    }

    /// The same for images.
    fn place_extensions(&mut self, checked: &[&str]) -> Vec<String> {
        let mut placed = Vec::new();
        for extension in &self.bundle.extensions {
            let [fetch, place] = ["fetch", "place"].map(|verb| format!("{verb}-extension-{}", extension.name));
            let needs: Vec<&str> = checked.iter().copied().chain(["check-programs"]).collect();
            let planned = PlannedExtension::from(extension);
            let action = Action::Extension(extension::Action::FetchExtension { extension: planned.clone() });
            self.add(&fetch, &needs, FETCH_DEADLINE, action);
            let action = Action::Extension(extension::Action::PlaceExtension { extension: planned });
            self.add(&place, &[fetch.as_str(), "keep-before"], UNPACK_DEADLINE, action);
            placed.push(place);
        }
        placed
    }

    fn extensions(&self) -> Vec<PlannedExtension> {
        self.bundle.extensions.iter().map(PlannedExtension::from).collect()
    }

    fn trees(&self) -> Vec<PlannedTree> {
        self.bundle.trees.iter().map(PlannedTree::from).collect()
    }

    fn write_files(&mut self, facts: &Facts) {
        let before = self.run_hooks_before_files();
        let before = self.install_packages(before, facts);
        let files = self.files(Early::No);
        let commit = file::Action::CommitFiles { files: files.clone() };
        // Whose credentials a kubelet has may be told by an authority in a file that is about to be replaced.
        let settled = [before.as_slice(), &[CREDENTIALS_STEP.to_owned()]].concat();
        self.add(COMMIT_STEP, &settled, FILES_DEADLINE, Action::File(commit));
        let verify = file::Action::VerifyFiles { files };
        self.add("verify-files", &[COMMIT_STEP], FILES_DEADLINE, Action::File(verify));
        let mut switched = vec![COMMIT_STEP];
        if !self.bundle.trees.is_empty() {
            let switch = Action::Tree(tree::Action::SwitchTrees { trees: self.trees() });
            self.add("switch-trees", &before, FILES_DEADLINE, switch);
            let verify = Action::Tree(tree::Action::VerifyTrees { trees: self.trees() });
            self.add("verify-trees", &["switch-trees"], UNPACK_DEADLINE, verify);
            switched.push("switch-trees");
        }
        let packages = self.packages();
        if !packages.is_empty() {
            let verify = Action::Package(package::Action::VerifyPackages { packages });
            self.add("verify-packages", &[COMMIT_STEP], FILES_DEADLINE, verify);
        }
        let extensions = self.extensions();
        if !extensions.is_empty() {
            let switch = extension::Action::SwitchExtensions { extensions: extensions.clone() };
            self.add("switch-extensions", &before, FILES_DEADLINE, Action::Extension(switch));
            switched.push("switch-extensions");
        }
        let addon = self.addon();
        let use_addon = addon.as_ref().map(|addon| format!("use-addon-{addon}"));
        if let (Some(id), Some(addon)) = (&use_addon, addon) {
            let action = Action::Addon(torcx::Action::UseAddon { addon });
            self.add(id, &before, FILES_DEADLINE, action);
            switched.push(id);
        }
        self.add("remove-files", &switched, SERVICE_DEADLINE, Action::Keep(keep::Action::RemoveFiles));
        let merged = if extensions.is_empty() { "remove-files" } else { "merge-extensions" };
        if !extensions.is_empty() {
            let merge = extension::Action::MergeExtensions { extensions: extensions.clone() };
            self.add(merged, &["remove-files"], MERGE_DEADLINE, Action::Extension(merge));
            let verify = extension::Action::VerifyExtensions { extensions };
            self.add("verify-extensions", &[merged], UNPACK_DEADLINE, Action::Extension(verify));
        }
        let idle = &self.bundle.idle_units;
        let settled = if idle.is_empty() { merged } else { "idle-units" };
        if !idle.is_empty() {
            let action = Action::Unit(unit::Action::IdleUnits { units: idle.clone() });
            self.add(settled, &[merged], SERVICE_DEADLINE, action);
        }
        // Enabling reads unit files from the disk, where none of an earlier bundle is left; so one reload after it serves all,
        // which takes half a second.
        let enabled = unit::Action::EnableUnits { units: self.enabled_units() };
        self.add("enable-units", &[settled], RELOAD_DEADLINE, Action::Unit(enabled));
        let hooks = self.bundle.hooks.iter().map(|hook| &hook.unit);
        let masked = self.bundle.idle_units.iter().filter(|unit| unit.mask().is_some()).map(|unit| &unit.name);
        let started = self.bundle.units.iter().map(|unit| &unit.name);
        let started = started.filter(|unit| !self.bundle.is_brought_by_addon(unit));
        let units = started.chain(hooks).chain(masked).cloned().collect();
        let reload = Action::Unit(unit::Action::ReloadUnits { units });
        self.add("reload-units", &["enable-units"], RELOAD_DEADLINE, reload);
    }

    /// Gives the step after which files may change. The units of these hooks come before all other files: systemd starts
    /// only what it has read.
    fn run_hooks_before_files(&mut self) -> Vec<String> {
        let files = self.files(Early::Yes);
        if files.is_empty() {
            return vec!["close-gate".to_owned()];
        }
        let units = self.early_units().cloned().collect();
        self.add("commit-hooks", &["close-gate"], FILES_DEADLINE, Action::File(file::Action::CommitHooks { files }));
        let reload = Action::Unit(unit::Action::ReloadUnits { units });
        self.add("reload-hooks", &["commit-hooks"], RELOAD_DEADLINE, reload);
        self.add_hooks(Slot::BeforeFiles, &["reload-hooks"])
    }

    /// Gives the steps that the gate waits for.
    ///
    /// The units of a bundle stand in the order of their starts. Those before the container runtime change what it
    /// reads when it starts (certificate authorities, kernel parameters). Their unit files say `Before=` too, but
    /// systemd heeds that only between jobs that are queued at the same time, and ours are not. Units that have no need
    /// of each other start together.
    fn start_units(&mut self) -> Vec<String> {
        let started = units_with(self.bundle, Start::BeforeGate);
        let position = started.iter().position(|unit| *unit == self.bundle.runtime.unit);
        let (before_runtime, from_runtime) = started.split_at(position.unwrap_or(0));
        let (runtime, after_runtime) = from_runtime.split_at(usize::from(position.is_some()));

        // A unit need not wait until files were read back, only the gate does; a hook after the files waits.
        let mut way = Way {
            ready: vec!["reload-units".to_owned()],
            all: vec!["verify-files".to_owned(), "reload-units".to_owned()],
        };
        if !self.bundle.trees.is_empty() {
            way.all.push("verify-trees".to_owned());
        }
        if self.bundle.packages.is_some() {
            way.all.push("verify-packages".to_owned());
        }
        if !self.bundle.extensions.is_empty() {
            way.all.push("verify-extensions".to_owned());
        }
        way.advance(self.reboot_into_system(&way.all));
        way.advance(self.add_hooks(Slot::AfterFiles, &way.all));
        way.advance(self.add_starts(before_runtime, &way.ready));
        way.advance(self.add_hooks(Slot::BeforeRuntime, &way.ready));
        way.advance(self.add_starts(runtime, &way.ready));
        way.advance(self.add_hooks(Slot::AfterRuntime, &way.ready));
        way.advance(self.add_starts(after_runtime, &way.ready));
        let hooks = self.add_hooks(Slot::BeforeKubelet, &way.all);
        // Before these hooks have run, not even an attempt of a start is wanted.
        let armed_after = match (hooks.is_empty(), &self.bundle.follow) {
            (false, _) => hooks.clone(),
            (true, Some(_)) => vec![REBOOT_STEP.to_owned()],
            (true, None) => vec!["reload-units".to_owned()],
        };
        way.advance(hooks);
        let configured = self.configure_snap(&armed_after);
        way.all.extend(configured);
        for unit in self.armed_units() {
            let arm = unit::Action::ArmUnit { unit: unit.clone() };
            way.all.push(self.add_unit("arm", &unit, &armed_after, arm));
        }
        way.all
    }

    /// Nothing is started in a system, or beside an addon, that another boot replaces.
    fn reboot_into_system(&mut self, needs: &[String]) -> Vec<String> {
        let Some(follow) = &self.bundle.follow else { return Vec::new() };
        let (addon, data_folder) = (self.addon(), follow.addon.as_ref().and_then(|addon| addon.data_folder.clone()));
        let reboot = torcx::Action::RebootIntoSystem { addon: addon.clone() };
        self.add_barrier(REBOOT_STEP, needs, FILES_DEADLINE, Action::Addon(reboot));
        let mut done = vec![REBOOT_STEP.to_owned()];
        if let Some(folder) = data_folder {
            let clean = Action::Addon(torcx::Action::CleanRuntimeData { folder });
            self.add("clean-runtime-data", &done, SERVICE_DEADLINE, clean);
            done = vec!["clean-runtime-data".to_owned()];
        }
        if let Some(addon) = addon {
            let id = format!("verify-addon-{addon}");
            self.add(&id, &done, UNPACK_DEADLINE, Action::Addon(torcx::Action::VerifyAddon { addon }));
            done = vec![id];
        }
        done
    }

    /// In eksctl's order. Whatever starts the kubelet in between, its gate is shut. Its unit is not armed: a unit of the
    /// bundle watches the gate, and snapd could not wait for a start that waits for this very run.
    fn configure_snap(&mut self, needs: &[String]) -> Vec<String> {
        let Some(Snap { name, aliases, settings }) = self.snap.clone() else { return Vec::new() };
        let [stop, set] = ["stop", "configure"].map(|verb| format!("{verb}-snap-{name}"));
        let alias = Action::Snap(snap::Action::AliasSnapApps { aliases });
        self.add("alias-snap-apps", needs, SERVICE_DEADLINE, alias);
        let stopped = Action::Snap(snap::Action::StopSnap { snap: name.clone(), settings: settings.clone() });
        self.add(&stop, &["alias-snap-apps"], SERVICE_DEADLINE, stopped);
        let reset = Action::Unit(unit::Action::ResetUnit { unit: self.bundle.join.kubelet_unit.clone() });
        self.add("reset-kubelet", &[&stop], RELOAD_DEADLINE, reset);
        let configured = Action::Snap(snap::Action::SetSnap { snap: name, settings });
        self.add(&set, &["reset-kubelet"], SERVICE_DEADLINE, configured);
        vec![set]
    }

    /// Those that start after the gate, by systemd's own doing.
    fn armed_units(&self) -> Vec<UnitName> {
        let mut units = units_with(self.bundle, Start::AfterGate);
        units.retain(|unit| !self.snap.as_ref().is_some_and(|snap| snap.owns(unit)));
        units
    }

    /// A machine that is about to reboot, or does not know the time, is no node yet. The time client may be one of the
    /// units that were started.
    fn settle_machine(&mut self, before_gate: &mut Vec<String>) {
        self.add(CLOCK_STEP, before_gate, CLOCK_DEADLINE, Action::Check(checks::Action::CheckClock));
        let reboot = checks::Action::RebootIfRequired { markers: REBOOT_MARKERS.map(str::to_owned).to_vec() };
        self.add_barrier("reboot-if-required", before_gate, FILES_DEADLINE, Action::Check(reboot));
        before_gate.extend([CLOCK_STEP, "reboot-if-required"].map(str::to_owned));
    }

    fn open_gate(&mut self, before_gate: &[String], facts: &Facts) {
        let open = gate::Action::OpenGate { path: self.bundle.gate.path.to_string(), environment: self.gate.clone() };
        self.add_barrier("open-gate", before_gate, FILES_DEADLINE, Action::Gate(open));
        let mut released = Vec::new();
        if let Some(snap) = self.snap.as_ref().map(|snap| snap.name.clone()) {
            let id = format!("start-snap-{snap}");
            self.add(&id, &["open-gate"], SERVICE_DEADLINE, Action::Snap(snap::Action::StartSnap { snap }));
            released.push(id);
        }
        for unit in self.armed_units() {
            let release = unit::Action::ReleaseUnit { unit: unit.clone() };
            released.push(self.add_unit("release", &unit, &["open-gate"], release));
        }
        // Of a bundle that brings none, only where an earlier one did.
        let (trees, extensions) = (self.trees(), self.extensions());
        if !trees.is_empty() || !extensions.is_empty() || facts.has_programs {
            let retire = Action::Tree(tree::Action::RetireTrees { trees, extensions });
            self.add("retire-trees", &released, RETIRE_DEADLINE, retire);
        }
        if self.bundle.packages.is_some() || facts.has_packages {
            let retire = Action::Package(package::Action::RetireArchives);
            self.add("retire-archives", &["open-gate"], FILES_DEADLINE, retire);
        }
        released.push("open-gate".to_owned());
        if let Some(unit) = self.bundle.units.iter().map(|unit| &unit.name).find(|name| *name == SPENDING_UNIT) {
            let spend = credential::Action::SpendCredentials { unit: unit.clone() };
            self.add("spend-credentials", &released, FILES_DEADLINE, Action::Credential(spend));
        }
        self.add_hooks(Slot::AfterKubelet, &released);
    }

    fn files(&self, early: Early) -> Vec<PlannedFile> {
        let early_files: Vec<_> = self.early_units().filter_map(|unit| self.bundle.unit_file(unit)).collect();
        let files = self.bundle.all_files();
        let settings = self.bundle.packages.as_ref().map(|packages| packages.settings.as_slice()).unwrap_or_default();
        let kind = |file: &bundle::File| match () {
            () if early_files.iter().any(|early| early.path == file.path) => Early::Yes,
            () if settings.contains(&file.path) => Early::Settings,
            () => Early::No,
        };
        files.iter().filter(|file| kind(file) == early).map(PlannedFile::from).collect()
    }

    fn early_units(&self) -> impl Iterator<Item = &UnitName> {
        self.bundle.hooks.iter().filter(|hook| hook.slot == Slot::BeforeFiles).map(|hook| &hook.unit)
    }

    /// Without those that bring a file without an `[Install]` section: there is nothing to enable, and systemd would
    /// say "not enabled" for ever.
    fn enabled_units(&self) -> Vec<UnitName> {
        let started = self.bundle.units.iter().filter(|unit| unit.start != Start::ByOthers);
        // The kubelet's unit wants it; there is nothing to enable before torcx has brought it.
        let started = started.filter(|unit| !self.bundle.is_brought_by_addon(&unit.name));
        let installable = started.filter(|unit| unit.brought.is_none_or(|nature| nature.installable));
        installable.map(|unit| unit.name.clone()).collect()
    }

    fn add(&mut self, id: &str, needs: &[impl AsRef<str>], deadline: Duration, action: Action) {
        let needs = needs.iter().map(|need| StepId(need.as_ref().to_owned())).collect();
        self.steps.push(Step { id: StepId(id.to_owned()), needs, action, deadline, barrier: false });
    }

    fn add_barrier(&mut self, id: &str, needs: &[impl AsRef<str>], deadline: Duration, action: Action) {
        self.add(id, needs, deadline, action);
        if let Some(last) = self.steps.last_mut() {
            last.barrier = true;
        }
    }

    fn add_unit(&mut self, verb: &str, unit: &str, needs: &[impl AsRef<str>], action: unit::Action) -> String {
        let id = format!("{verb}-{}", short(unit));
        self.add(&id, needs, SERVICE_DEADLINE, Action::Unit(action));
        id
    }

    fn add_starts(&mut self, units: &[UnitName], needs: &[String]) -> Vec<String> {
        let start = |unit: &UnitName| unit::Action::StartUnit { unit: unit.clone() };
        units.iter().map(|unit| self.add_unit("start", unit, needs, start(unit))).collect()
    }

    /// One after the other, in the order of their names; gives the last one, if there is any. What a hook did cannot be
    /// read back from the machine, so the journal remembers it: each is a barrier.
    fn add_hooks(&mut self, slot: Slot, needs: &[impl AsRef<str>]) -> Vec<String> {
        let mut last: Vec<String> = Vec::new();
        for hook in self.bundle.hooks.iter().filter(|hook| hook.slot == slot) {
            let id = format!("run-hook-{}", hook.name);
            let deadline = Duration::from_secs(hook.timeout_seconds).saturating_add(HOOK_MARGIN);
            let action = Action::Hook(hook::Action::RunHook {
                hook: hook.name.clone(),
                slot,
                unit: hook.unit.clone(),
                necessity: hook.necessity,
            });
            match last.as_slice() {
                [] => self.add_barrier(&id, needs, deadline, action),
                before => self.add_barrier(&id, before, deadline, action),
            }
            last = vec![id];
        }
        last
    }
}

/// How far the starting of units has come.
struct Way {
    /// What the next start needs.
    ready: Vec<String>,
    /// What the gate needs.
    all: Vec<String>,
}

impl Way {
    fn advance(&mut self, steps: Vec<String>) {
        if !steps.is_empty() {
            self.all.extend(steps.iter().cloned());
            self.ready = steps;
        }
    }
}

/// Whether files are those of hooks that run before all other files are switched in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    Yes,
    /// Of the package manager, before anything is fetched.
    Settings,
    No,
}
