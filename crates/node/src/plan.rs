//! The first boot, read top to bottom: bundle and facts in, steps as data out.
//!
//! Pure. File contents stay in the bundle; the plan names them by digest, so that it can be printed, compared and kept
//! without showing a secret.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Plan, PlanError, Step, StepId};
use render::bundle::{Bundle, File, Secrecy, Start};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::gate_facts;
use crate::refusals::{self, Refusal};
use crate::snap::{PlannedSnap, planned_snap};

/// Work on local files: anything near this is a dying disk.
const FILES_DEADLINE: Duration = Duration::from_secs(120);
/// A reload parses all unit files; seconds on the slowest machines.
const RELOAD_DEADLINE: Duration = Duration::from_secs(60);
/// containerd reads its whole metadata store before it says that it is ready.
const SERVICE_DEADLINE: Duration = Duration::from_secs(300);

/// Time clients set the clock within seconds after the network is up.
pub(crate) const CLOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Left by packages of Debian and Ubuntu, and by hooks on any system. Both are gone after a boot.
const REBOOT_MARKERS: [&str; 2] = ["/run/reboot-required", "/run/nodestrap/reboot-required"];

/// Beyond the timeout of a hook, which systemd keeps: it asks the processes to end, and after 90 seconds ends them.
const HOOK_MARGIN: Duration = Duration::from_secs(120);

/// Where the units of a bundle lie, and where systemd keeps the links of enabled ones.
pub(crate) const UNIT_FOLDER: &str = "/etc/systemd/system";

/// Folders that the kubelet and the container runtime expect, besides those of the bundle's files.
pub(crate) const FOLDERS: [&str; 2] = ["/etc/cni/net.d", "/etc/kubernetes/manifests"];

/// The step that switches files in.
pub(crate) const COMMIT_STEP: &str = "commit-files";

/// The vocabulary of a node: one domain verb each, never "run this command".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Decided with the plan, so that the plan shows it.
    CheckBundle {
        refusals: Vec<Refusal>,
        remarks: Vec<String>,
    },
    /// The image brings what the bundle counts on.
    CheckPrograms {
        paths: Vec<String>,
    },
    /// Certificates look invalid to a clock that is years behind; better that it is named.
    CheckClock,
    /// What is there now, and was not made by nodestrap, is kept, so that `reset` can put it back.
    KeepBefore,
    MakeFolders {
        paths: Vec<String>,
    },
    /// New contents lie beside the old ones; nothing has changed yet.
    StageFiles {
        files: Vec<PlannedFile>,
    },
    /// A gate of another plan is taken away before the first change: from here on a crash means "not started".
    CloseGate {
        path: String,
    },
    /// The units of hooks that run before the other files are switched in.
    CommitHooks {
        files: Vec<PlannedFile>,
    },
    /// A unit of the user's is started and its end waited for.
    RunHook {
        hook: String,
        slot: String,
        unit: String,
        required: bool,
    },
    /// One sync, then every staged file is switched in.
    CommitFiles {
        files: Vec<PlannedFile>,
    },
    /// What an earlier bundle brought and this one does not is undone.
    RemoveFiles,
    ReloadUnits {
        units: Vec<String>,
    },
    EnableUnits {
        units: Vec<String>,
    },
    /// Started, or started anew with the new files, and waited for.
    StartUnit {
        unit: String,
    },
    /// The start job is queued while the gate is still shut: if this process dies after opening it, the unit starts all
    /// the same.
    ArmUnit {
        unit: String,
    },
    /// Every byte is read back.
    VerifyFiles {
        files: Vec<PlannedFile>,
    },
    /// Commands that people type start applications of snaps; alias to `SNAP.APP`.
    AliasSnapApps {
        aliases: BTreeMap<String, String>,
    },
    /// Unless what runs was started with these settings.
    StopSnap {
        snap: String,
        settings: BTreeMap<String, String>,
    },
    ResetUnit {
        unit: String,
    },
    SetSnap {
        snap: String,
        settings: BTreeMap<String, String>,
    },
    /// Started by snapd, and waited for.
    StartSnap {
        snap: String,
    },
    /// Only what runs after the last reboot may open the gate.
    RebootIfRequired {
        markers: Vec<String>,
    },
    OpenGate {
        path: String,
        environment: BTreeMap<String, String>,
    },
    /// The unit is ordered after the bootstrap unit, so its job is queued and not waited for.
    ReleaseUnit {
        unit: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    pub path: String,
    /// Octal, as people write it.
    pub mode: String,
    pub sha256: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// When a hook runs; the names of a spec.
pub(crate) const SLOTS: [&str; 6] =
    [BEFORE_FILES, AFTER_FILES, BEFORE_RUNTIME, AFTER_RUNTIME, BEFORE_KUBELET, AFTER_KUBELET];
const BEFORE_FILES: &str = "before-files";
const AFTER_FILES: &str = "after-files";
const BEFORE_RUNTIME: &str = "before-runtime";
const AFTER_RUNTIME: &str = "after-runtime";
const BEFORE_KUBELET: &str = "before-kubelet";
/// The gate is open by then: a failure can no more keep the kubelet from starting.
pub(crate) const AFTER_KUBELET: &str = "after-kubelet";

/// Everything that `apply` will do on this machine.
pub fn plan_first_boot(bundle: &Bundle, facts: &Facts) -> Result<Plan<Action>, PlanError> {
    let gate = gate_facts::resolve(bundle, facts).environment;
    // What cannot be planned is refused by the first step.
    let snap = planned_snap(bundle, &gate).ok().flatten();
    let mut steps = Sequence { bundle, gate, snap, steps: Vec::new() };
    steps.prepare(facts);
    steps.write_files();
    let mut before_gate = steps.start_units();
    steps.settle_machine(&mut before_gate);
    steps.open_gate(&before_gate);
    Plan::new(inputs(bundle, facts), steps.steps)
}

/// What the plan depends on, by name, so that two plans can be told apart at a glance.
fn inputs(bundle: &Bundle, facts: &Facts) -> BTreeMap<String, String> {
    [
        ("bundle", bundle.digest()),
        ("cluster", bundle.cluster.clone()),
        ("group", bundle.group.clone()),
        ("kubernetes", bundle.kubernetes_version.clone()),
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

fn planned_file(file: &File) -> PlannedFile {
    PlannedFile {
        path: file.path.clone(),
        mode: format!("{:04o}", file.mode),
        sha256: file.sha256().to_owned(),
        secret: file.secrecy == Secrecy::Secret,
    }
}

fn units_with(bundle: &Bundle, start: Start) -> Vec<String> {
    bundle.units.iter().filter(|unit| unit.start == start).map(|unit| unit.name.clone()).collect()
}

/// Reads as a table of contents.
struct Sequence<'a> {
    bundle: &'a Bundle,
    gate: BTreeMap<String, String>,
    snap: Option<PlannedSnap>,
    steps: Vec<Step<Action>>,
}

impl Sequence<'_> {
    /// Up to the moment at which a crash begins to mean "not started".
    fn prepare(&mut self, facts: &Facts) {
        let bundle = self.bundle;
        let check = Action::CheckBundle {
            refusals: refusals::refusals(bundle, facts),
            remarks: refusals::remarks(bundle, facts),
        };
        self.add("check-bundle", &[""; 0], FILES_DEADLINE, check);
        // What is refused must leave no trace, so everything waits for this check.
        let checked = ["check-bundle"];
        let programs = Action::CheckPrograms { paths: bundle.required_programs.clone() };
        self.add("check-programs", &checked, FILES_DEADLINE, programs);
        let folders = Action::MakeFolders { paths: FOLDERS.map(str::to_owned).to_vec() };
        self.add("keep-before", &checked, FILES_DEADLINE, Action::KeepBefore);
        let kept = ["keep-before"];
        self.add("make-folders", &kept, FILES_DEADLINE, folders);
        self.add("stage-files", &kept, FILES_DEADLINE, Action::StageFiles { files: self.files(Early::No) });
        let all_prepared = ["check-programs", "make-folders", "stage-files"];
        let close = Action::CloseGate { path: bundle.gate.path.clone() };
        self.add_barrier("close-gate", &all_prepared, FILES_DEADLINE, close);
    }

    fn write_files(&mut self) {
        let before = self.run_hooks_before_files();
        let files = self.files(Early::No);
        self.add(COMMIT_STEP, &before, FILES_DEADLINE, Action::CommitFiles { files: files.clone() });
        self.add("verify-files", &["commit-files"], FILES_DEADLINE, Action::VerifyFiles { files });
        // Enabling reads unit files from the disk, so one reload after it serves both; a reload takes half a second.
        let enabled = Action::EnableUnits { units: self.enabled_units() };
        self.add("enable-units", &["commit-files"], RELOAD_DEADLINE, enabled);
        let hooks = self.bundle.hooks.iter().map(|hook| &hook.unit);
        let units = self.bundle.units.iter().map(|unit| &unit.name).chain(hooks).cloned().collect();
        self.add("remove-files", &["commit-files"], SERVICE_DEADLINE, Action::RemoveFiles);
        self.add("reload-units", &["enable-units", "remove-files"], RELOAD_DEADLINE, Action::ReloadUnits { units });
    }

    /// Gives the step after which files may change. The units of these hooks come before all other files: systemd starts
    /// only what it has read.
    fn run_hooks_before_files(&mut self) -> Vec<String> {
        let files = self.files(Early::Yes);
        if files.is_empty() {
            return vec!["close-gate".to_owned()];
        }
        let units = self.early_units().map(str::to_owned).collect();
        self.add("commit-hooks", &["close-gate"], FILES_DEADLINE, Action::CommitHooks { files });
        self.add("reload-hooks", &["commit-hooks"], RELOAD_DEADLINE, Action::ReloadUnits { units });
        self.add_hooks(BEFORE_FILES, &["reload-hooks"])
    }

    /// Gives the steps that the gate waits for.
    ///
    /// The units of a bundle stand in the order of their starts. Those before the container runtime change what it
    /// reads when it starts (certificate authorities, kernel parameters). Their unit files say `Before=` too, but
    /// systemd heeds that only between jobs that are queued at the same time, and ours are not. Units that have no need
    /// of each other start together.
    fn start_units(&mut self) -> Vec<String> {
        let started = units_with(self.bundle, Start::BeforeGate);
        let runtime = runtime_unit(&self.bundle.runtime.name);
        let position = started.iter().position(|unit| Some(unit.as_str()) == runtime);
        let (before_runtime, from_runtime) = started.split_at(position.unwrap_or(0));
        let (runtime, after_runtime) = from_runtime.split_at(usize::from(position.is_some()));

        // A unit need not wait until files were read back, only the gate does; a hook after the files waits.
        let mut way = Way {
            ready: vec!["reload-units".to_owned()],
            all: vec!["verify-files".to_owned(), "reload-units".to_owned()],
        };
        way.advance(self.add_hooks(AFTER_FILES, &way.all));
        way.advance(self.add_starts(before_runtime, &way.ready));
        way.advance(self.add_hooks(BEFORE_RUNTIME, &way.ready));
        way.advance(self.add_starts(runtime, &way.ready));
        way.advance(self.add_hooks(AFTER_RUNTIME, &way.ready));
        way.advance(self.add_starts(after_runtime, &way.ready));
        let hooks = self.add_hooks(BEFORE_KUBELET, &way.all);
        // Before these hooks have run, not even an attempt of a start is wanted.
        let armed_after = if hooks.is_empty() { vec!["reload-units".to_owned()] } else { hooks.clone() };
        way.advance(hooks);
        let configured = self.configure_snap(&armed_after);
        way.all.extend(configured);
        for unit in self.armed_units() {
            way.all.push(self.add_unit("arm", &unit, &armed_after, Action::ArmUnit { unit: unit.clone() }));
        }
        way.all
    }

    /// In eksctl's order. Whatever starts the kubelet in between, its gate is shut. Its unit is not armed: a unit of the
    /// bundle watches the gate, and snapd could not wait for a start that waits for this very run.
    fn configure_snap(&mut self, needs: &[String]) -> Vec<String> {
        let Some(PlannedSnap { snap, aliases, settings }) = self.snap.clone() else { return Vec::new() };
        let [stop, set] = ["stop", "configure"].map(|verb| format!("{verb}-snap-{snap}"));
        self.add("alias-snap-apps", needs, SERVICE_DEADLINE, Action::AliasSnapApps { aliases });
        let stopped = Action::StopSnap { snap: snap.clone(), settings: settings.clone() };
        self.add(&stop, &["alias-snap-apps"], SERVICE_DEADLINE, stopped);
        let reset = Action::ResetUnit { unit: self.bundle.join.kubelet_unit.clone() };
        self.add("reset-kubelet", &[&stop], RELOAD_DEADLINE, reset);
        self.add(&set, &["reset-kubelet"], SERVICE_DEADLINE, Action::SetSnap { snap, settings });
        vec![set]
    }

    /// Those that start after the gate, by systemd's own doing.
    fn armed_units(&self) -> Vec<String> {
        let mut units = units_with(self.bundle, Start::AfterGate);
        units.retain(|unit| !self.snap.as_ref().is_some_and(|snap| snap.owns(unit)));
        units
    }

    /// A machine that is about to reboot, or does not know the time, is no node yet. The time client may be one of the
    /// units that were started.
    fn settle_machine(&mut self, before_gate: &mut Vec<String>) {
        self.add("check-clock", before_gate, CLOCK_DEADLINE, Action::CheckClock);
        let reboot = Action::RebootIfRequired { markers: REBOOT_MARKERS.map(str::to_owned).to_vec() };
        self.add_barrier("reboot-if-required", before_gate, FILES_DEADLINE, reboot);
        before_gate.extend(["check-clock", "reboot-if-required"].map(str::to_owned));
    }

    fn open_gate(&mut self, before_gate: &[String]) {
        let open = Action::OpenGate { path: self.bundle.gate.path.clone(), environment: self.gate.clone() };
        self.add_barrier("open-gate", before_gate, FILES_DEADLINE, open);
        let mut released = Vec::new();
        if let Some(snap) = self.snap.as_ref().map(|planned| planned.snap.clone()) {
            let id = format!("start-snap-{snap}");
            self.add(&id, &["open-gate"], SERVICE_DEADLINE, Action::StartSnap { snap });
            released.push(id);
        }
        for unit in self.armed_units() {
            let release = Action::ReleaseUnit { unit: unit.clone() };
            released.push(self.add_unit("release", &unit, &["open-gate"], release));
        }
        released.push("open-gate".to_owned());
        self.add_hooks(AFTER_KUBELET, &released);
    }

    fn files(&self, early: Early) -> Vec<PlannedFile> {
        let is_early = |file: &&File| self.early_units().any(|unit| file.path == unit_path(unit));
        self.bundle.files.iter().filter(|file| is_early(file) == (early == Early::Yes)).map(planned_file).collect()
    }

    fn early_units(&self) -> impl Iterator<Item = &str> {
        self.bundle.hooks.iter().filter(|hook| hook.slot == BEFORE_FILES).map(|hook| hook.unit.as_str())
    }

    /// Without those that bring a file without an `[Install]` section: there is nothing to enable, and systemd would
    /// say "not enabled" for ever.
    fn enabled_units(&self) -> Vec<String> {
        let mut units = units_with(self.bundle, Start::BeforeGate);
        units.extend(units_with(self.bundle, Start::AfterGate));
        units.retain(|unit| unit_text(self.bundle, unit).is_none_or(|text| has_line(&text, "[Install]")));
        units
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

    /// `start-containerd` for `containerd.service`; other kinds of unit keep their suffix.
    fn add_unit(&mut self, verb: &str, unit: &str, needs: &[impl AsRef<str>], action: Action) -> String {
        let id = format!("{verb}-{}", unit.strip_suffix(".service").unwrap_or(unit));
        self.add(&id, needs, SERVICE_DEADLINE, action);
        id
    }

    fn add_starts(&mut self, units: &[String], needs: &[String]) -> Vec<String> {
        units.iter().map(|unit| self.add_unit("start", unit, needs, Action::StartUnit { unit: unit.clone() })).collect()
    }

    /// One after the other, in the order of their names; gives the last one, if there is any. What a hook did cannot be
    /// read back from the machine, so the journal remembers it: each is a barrier.
    fn add_hooks(&mut self, slot: &str, needs: &[impl AsRef<str>]) -> Vec<String> {
        let mut last: Vec<String> = Vec::new();
        for hook in self.bundle.hooks.iter().filter(|hook| hook.slot == slot) {
            let id = format!("run-hook-{}", hook.name);
            let deadline = Duration::from_secs(hook.timeout_seconds).saturating_add(HOOK_MARGIN);
            let action = Action::RunHook {
                hook: hook.name.clone(),
                slot: hook.slot.clone(),
                unit: hook.unit.clone(),
                required: hook.required,
            };
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
    No,
}

/// The unit by which this runtime is started.
fn runtime_unit(runtime: &str) -> Option<&'static str> {
    match runtime {
        "containerd" => Some("containerd.service"),
        "cri-o" => Some("crio.service"),
        "docker" => Some("docker.service"),
        _ => None,
    }
}

fn unit_path(unit: &str) -> String {
    format!("{UNIT_FOLDER}/{unit}")
}

/// The file of a unit, if the bundle and not the image brings it.
pub(crate) fn unit_text<'a>(bundle: &'a Bundle, unit: &str) -> Option<Cow<'a, str>> {
    let path = unit_path(unit);
    let file = bundle.files.iter().find(|file| file.path == path)?;
    Some(String::from_utf8_lossy(&file.content))
}

pub(crate) fn has_line(text: &str, wanted: &str) -> bool {
    text.lines().any(|line| line.trim() == wanted)
}
