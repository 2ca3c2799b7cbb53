//! The first boot, read top to bottom: bundle and facts in, steps as data out.
//!
//! Pure. File contents stay in the bundle; the plan names them by digest, so that it can be printed, compared and kept
//! without showing a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Plan, PlanError, Step, StepId};
use render::bundle::{Bundle, Secrecy, Start};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// Work on local files: anything near this is a dying disk.
const FILES_DEADLINE: Duration = Duration::from_secs(120);
/// A reload parses all unit files; seconds on the slowest machines.
const RELOAD_DEADLINE: Duration = Duration::from_secs(60);
/// containerd reads its whole metadata store before it says that it is ready.
const SERVICE_DEADLINE: Duration = Duration::from_secs(300);

/// Folders that the kubelet and the container runtime expect, besides those of the bundle's files.
const FOLDERS: [&str; 2] = ["/etc/cni/net.d", "/etc/kubernetes/manifests"];

/// The vocabulary of a node: one domain verb each, never "run this command".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// The image brings what the bundle counts on.
    CheckPrograms {
        paths: Vec<String>,
    },
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
    /// One sync, then every staged file is switched in.
    CommitFiles {
        files: Vec<PlannedFile>,
    },
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

/// Everything that `apply` will do on this machine.
pub fn plan_first_boot(bundle: &Bundle, facts: &Facts) -> Result<Plan<Action>, PlanError> {
    let files: Vec<PlannedFile> = bundle.files.iter().map(planned_file).collect();
    let gate = &bundle.gate;
    let started = units_with(bundle, Start::BeforeGate);
    let released = units_with(bundle, Start::AfterGate);
    let enabled: Vec<String> = started.iter().chain(&released).cloned().collect();

    let mut steps = Sequence::default();
    steps.add("check-programs", &[], FILES_DEADLINE, Action::CheckPrograms { paths: bundle.required_programs.clone() });
    steps.add("make-folders", &[], FILES_DEADLINE, Action::MakeFolders { paths: FOLDERS.map(str::to_owned).to_vec() });
    steps.add("stage-files", &[], FILES_DEADLINE, Action::StageFiles { files: files.clone() });
    let all_prepared = ["check-programs", "make-folders", "stage-files"];
    steps.add_barrier("close-gate", &all_prepared, FILES_DEADLINE, Action::CloseGate { path: gate.path.clone() });
    steps.add("commit-files", &["close-gate"], FILES_DEADLINE, Action::CommitFiles { files: files.clone() });
    steps.add("verify-files", &["commit-files"], FILES_DEADLINE, Action::VerifyFiles { files });
    let units = bundle.units.iter().map(|unit| unit.name.clone()).collect();
    // Enabling reads unit files from the disk, so one reload after it serves both; a reload takes half a second.
    steps.add("enable-units", &["commit-files"], RELOAD_DEADLINE, Action::EnableUnits { units: enabled });
    steps.add("reload-units", &["enable-units"], RELOAD_DEADLINE, Action::ReloadUnits { units });
    let mut before_gate = vec!["verify-files".to_owned(), "reload-units".to_owned()];
    for unit in started {
        before_gate.push(steps.add_unit("start", &unit, &["reload-units"], Action::StartUnit { unit: unit.clone() }));
    }
    for unit in &released {
        before_gate.push(steps.add_unit("arm", unit, &["reload-units"], Action::ArmUnit { unit: unit.clone() }));
    }
    let open = Action::OpenGate { path: gate.path.clone(), environment: gate.environment.clone() };
    let before_gate: Vec<&str> = before_gate.iter().map(String::as_str).collect();
    steps.add_barrier("open-gate", &before_gate, FILES_DEADLINE, open);
    for unit in released {
        steps.add_unit("release", &unit, &["open-gate"], Action::ReleaseUnit { unit: unit.clone() });
    }
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
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn planned_file(file: &render::bundle::File) -> PlannedFile {
    PlannedFile {
        path: file.path.clone(),
        mode: format!("{:04o}", file.mode),
        sha256: file.sha256(),
        secret: file.secrecy == Secrecy::Secret,
    }
}

fn units_with(bundle: &Bundle, start: Start) -> Vec<String> {
    bundle.units.iter().filter(|unit| unit.start == start).map(|unit| unit.name.clone()).collect()
}

/// Reads as a table of contents.
#[derive(Default)]
struct Sequence {
    steps: Vec<Step<Action>>,
}

impl Sequence {
    fn add(&mut self, id: &str, needs: &[&str], deadline: Duration, action: Action) {
        let needs = needs.iter().map(|need| StepId((*need).to_owned())).collect();
        self.steps.push(Step { id: StepId(id.to_owned()), needs, action, deadline, barrier: false });
    }

    fn add_barrier(&mut self, id: &str, needs: &[&str], deadline: Duration, action: Action) {
        self.add(id, needs, deadline, action);
        if let Some(last) = self.steps.last_mut() {
            last.barrier = true;
        }
    }

    /// `start-containerd` for `containerd.service`; other kinds of unit keep their suffix.
    fn add_unit(&mut self, verb: &str, unit: &str, needs: &[&str], action: Action) -> String {
        let id = format!("{verb}-{}", unit.strip_suffix(".service").unwrap_or(unit));
        self.add(&id, needs, SERVICE_DEADLINE, action);
        id
    }
}
