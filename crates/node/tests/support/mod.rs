//! A fake machine as its image makes it, bundles to put on it, and a whole run of `apply`.
#![allow(dead_code, clippy::disallowed_methods, reason = "each test file uses its part; the spec's files are real")]

pub(crate) mod fake_cluster;
#[path = "../../../render/tests/support/mod.rs"]
mod rendered;
pub(crate) mod shelf;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bundle::{BUNDLE_PATH, Bundle};
use engine::{Clock, Report, RunOutcome, Timestamp, Workers};
use fake_cluster::FakeCluster;
use host::disk::Disk;
use host::fake::{Crash, FakeClock, FakeDisk, FakeSnaps, FakeUnits, FakeUpdateEngine, Finds};
use host::machine::{LinuxMachine, Machine};
use host::snaps::Snaps as _;
use host::units::{ActiveState, UnitName};
use node::{
    Delivered, Fact, Facts, FactsError, GateState, NodeHost, Ownership, PlatformSource, SessionError, Surroundings,
};
use rendered::cases;
use shelf::Shelf;
use spec::Source;

const SPEC: &str = include_str!("../../../../examples/minimal.yaml");
/// What may differ between two ways to the same node: the story of how it got there.
pub(crate) const STORY: [&str; 2] = ["/var/lib/nodestrap", "/run"];
pub(crate) const GATE: &str = "/etc/kubernetes/kubelet.env";

/// Of the ten-line example.
pub(crate) fn bundle() -> Bundle {
    render("", "")
}

/// Everything that a node has to do something for: a hook in every slot, a unit of the user's that runs and one that
/// ends, kernel parameters.
pub(crate) fn rich_bundle() -> Bundle {
    let hook = |name: &str, slot: &str| format!("    - {{name: {name}, slot: {slot}, unit: ExecStart=/bin/true}}\n");
    let hooks: String = HOOKS.iter().map(|(name, slot)| hook(name, slot)).collect();
    let unit = |name: &str, kind: &str| {
        let content = format!("[Service]\\nType={kind}\\nExecStart=/bin/x\\n[Install]\\nWantedBy=multi-user.target\\n");
        format!("    - {{name: {name}.service, enabled: true, content: \"{content}\"}}\n")
    };
    let units = unit("runs", "exec") + &unit("ends", "oneshot");
    let group = format!("  sysctls: {{vm.max_map_count: \"262144\"}}\n  hooks:\n{hooks}  units:\n{units}");
    render("", &group)
}

/// Names and slots of the hooks of [`rich_bundle`], in the order in which they run.
pub(crate) const HOOKS: [(&str, &str); 7] = [
    ("first", "before-files"),
    ("second", "after-files"),
    ("third", "before-runtime"),
    ("fourth", "after-runtime"),
    ("fifth-a", "before-kubelet"),
    ("fifth-b", "before-kubelet"),
    ("sixth", "after-kubelet"),
];

pub(crate) fn hook_unit(name: &str) -> UnitName {
    UnitName(format!("nodestrap-hook-{name}.service"))
}

/// What eksctl's bootstrap starts by a unit of the image.
pub(crate) fn al2_bundle() -> Bundle {
    golden_bundle("eksctl-al2")
}

/// What it starts by snapd.
pub(crate) fn ubuntu_bundle() -> Bundle {
    golden_bundle("eksctl-ubuntu")
}

/// Of a case of the goldens of `render`.
pub(crate) fn golden_bundle(case: &str) -> Bundle {
    cases::bundle(case)
}

/// The example, with more lines for the specs of its cluster and its group.
pub(crate) fn render(cluster: &str, group: &str) -> Bundle {
    let (head, tail) = SPEC.split_once("---\n").expect("two documents");
    let text = format!("{head}{cluster}---\n{}\nspec:\n  labels: {{a: b}}\n{group}", tail.trim_end());
    let text = if cluster.is_empty() && group.is_empty() { SPEC.to_owned() } else { text };
    let spec = spec::parse(&[Source::new("test.yaml", text)]).resolve(|reference| match reference.path.as_str() {
        // The control plane's authority has to be the one of the example.
        "ca.crt" | "pki/pki/ca.crt" => Ok(cases::authority().into_bytes()),
        // Nobody looks at the keys here.
        path => Ok(format!("{path}\n").into_bytes()),
    });
    let complete = spec.and_then(|spec| spec::complete_before_pki(&spec));
    let complete =
        complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)));
    render::render_bundle(&complete, "workers").unwrap_or_else(|error| panic!("{error}"))
}

/// A machine as its image makes it, with the bundle delivered.
#[derive(Clone)]
pub(crate) struct FakeNode {
    pub(crate) disk: FakeDisk,
    pub(crate) units: FakeUnits,
    pub(crate) snaps: FakeSnaps,
    /// Who has its artefacts.
    pub(crate) shelf: Shelf,
    pub(crate) engine: FakeUpdateEngine,
    pub(crate) cluster: FakeCluster,
    /// Where the bundle wants its gate.
    pub(crate) gate: String,
    /// What a metadata service would say; empty where there is none.
    pub(crate) instance_type: String,
}

pub(crate) struct TestClock(pub(crate) FakeClock);

/// 2027-01-15, in milliseconds.
pub(crate) const NOW: u64 = 1_800_000_000_000;

pub(crate) fn clock() -> TestClock {
    TestClock(FakeClock::new(NOW))
}

/// One thing after the other, in this order; nobody watches.
pub(crate) fn surroundings(clock: &TestClock, order: u64) -> Surroundings<'_> {
    Surroundings {
        clock,
        jitter: &|| u64::MAX / 2,
        workers: Workers::Sequential { order },
        sink: &|_| {},
        on_recovery: &|_| {},
        on_hang: &|_| {},
    }
}

impl Clock for TestClock {
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

impl FakeNode {
    pub(crate) fn new(bundle: &Bundle) -> Self {
        let disk = FakeDisk::new();
        let image = disk.uncounted();
        let put = |path: &str, mode: u32, content: &[u8]| {
            host::files::write_durable(&image, Path::new(path), mode, content, None).expect("the image is made");
        };
        let os_release: &[u8] = match bundle.node.os.as_str() {
            "al2" => b"ID=amzn\nVERSION_ID=2\nPRETTY_NAME=\"Amazon Linux 2\"\n",
            "container-linux" => b"ID=coreos\nVERSION_ID=2512.1.0\nCOREOS_BOARD=\"amd64-usr\"\nPRETTY_NAME=CL\n",
            "flatcar" => b"ID=flatcar\nVERSION_ID=4230.2.1\nSYSEXT_LEVEL=1.0\nPRETTY_NAME=Flatcar\n",
            "ubuntu" => b"ID=ubuntu\nVERSION_ID=24.04\nPRETTY_NAME=Ubuntu\n",
            _ => b"ID=debian\nVERSION_ID=12\nPRETTY_NAME=Debian\n",
        };
        put("/etc/os-release", 0o644, os_release);
        put("/etc/hostname", 0o644, b"n1\n");
        put("/etc/machine-id", 0o444, b"0123456789abcdef0123456789abcdef\n");
        put(
            "/usr/lib/systemd/system/containerd.service",
            0o644,
            b"[Service]\nExecStart=/usr/bin/containerd\n[Install]\nWantedBy=multi-user.target\n",
        );
        if bundle.node.os == bundle::Os::Flatcar {
            put(
                "/usr/lib/systemd/system/systemd-sysext.service",
                0o644,
                b"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=systemd-sysext merge\n[Install]\nWantedBy=sysinit.target\n",
            );
        }
        let kubelet = &bundle.join.kubelet_unit;
        let path = format!("/etc/systemd/system/{kubelet}");
        if bundle.file(&path).is_none() {
            put(&path, 0o644, b"[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n");
        }
        for program in &bundle.required_programs {
            put(program, 0o755, b"");
        }
        put(BUNDLE_PATH, 0o600, bundle.to_json().as_bytes());
        let units = FakeUnits::new(&disk);
        let snaps = FakeSnaps::new(&disk, &units);
        if kubelet.starts_with("snap.") {
            snaps.install("kubelet-eks", &["daemon"]);
            snaps.install("kubectl-eks", &[]);
            // Without settings it cannot run.
            units.set_active(&UnitName(kubelet.to_string()), ActiveState::Failed);
        }
        let instance_type = if bundle.node.layout == bundle::Layout::Eksctl { "m5.large" } else { "" }.to_owned();
        let gate = bundle.gate.path.to_string();
        Self { gate, instance_type, ..Self::of(disk, units, snaps) }
    }

    /// That nobody updates, and whose cluster nobody can reach.
    pub(crate) fn of(disk: FakeDisk, units: FakeUnits, snaps: FakeSnaps) -> Self {
        let engine = FakeUpdateEngine::new(&disk, Finds::NoneHere);
        let (shelf, cluster) = (Shelf::default(), FakeCluster::default());
        let (gate, instance_type) = (GATE.to_owned(), String::new());
        Self { disk, units, snaps, shelf, engine, cluster, gate, instance_type }
    }

    pub(crate) fn host(&self) -> NodeHost {
        self.host_on(Arc::new(self.disk.clone()))
    }

    /// With something in front of its disk.
    pub(crate) fn host_on(&self, disk: Arc<dyn Disk>) -> NodeHost {
        let machine: Arc<dyn Machine> = Arc::new(LinuxMachine::new(Arc::clone(&disk), Path::new("/fake")));
        NodeHost {
            disk: Arc::clone(&disk),
            units: Arc::new(self.units.clone()),
            snaps: Arc::new(self.snaps.clone()),
            artefacts: Arc::new(self.shelf.clone()),
            update_engine: Arc::new(self.engine.clone()),
            cluster: Arc::new(self.cluster.clone()),
            machine: Arc::clone(&machine),
            ownership: Ownership::Root,
            platform: Arc::new(PlatformSource::of_folder(disk, machine)),
        }
    }

    pub(crate) fn apply(&self, bundle: &Bundle, order: u64) -> Result<Report, SessionError> {
        self.apply_delivered(&bundle.clone().into(), order)
    }

    pub(crate) fn apply_delivered(&self, delivered: &Delivered, order: u64) -> Result<Report, SessionError> {
        self.apply_with(delivered, order, |_| {})
    }

    /// As `apply --adopt`.
    pub(crate) fn adopt(&self, bundle: &Bundle) -> Result<Report, SessionError> {
        self.apply_with(&bundle.clone().into(), 0, Facts::adopt)
    }

    /// With facts that no fake disk says.
    pub(crate) fn apply_with(
        &self,
        delivered: &Delivered,
        order: u64,
        change: impl Fn(&mut Facts),
    ) -> Result<Report, SessionError> {
        node::apply_prepared(&self.host(), delivered, &surroundings(&clock(), order), &|bundle| {
            let mut facts = self.facts()?;
            change(&mut facts);
            facts.find_out(&self.host(), bundle)?;
            let plan = node::plan_first_boot(bundle, &facts)?;
            Ok(Arc::new((facts, plan)))
        })
    }

    /// What the disk says, and the metadata service.
    pub(crate) fn facts(&self) -> Result<Facts, FactsError> {
        let host = self.host();
        let mut facts = node::gather_facts(&host)?;
        if !self.instance_type.is_empty() {
            let said = |value: &str| Fact { value: value.to_owned(), source: "a metadata service".to_owned() };
            facts.instance_id = said("i-0123456789abcdef0");
            facts.instance_type = said(&self.instance_type);
            facts.local_ipv4 = said("10.0.0.7");
        }
        Ok(facts)
    }

    pub(crate) fn after(&self, crash: Crash, seed: u64) -> Self {
        let disk = self.disk.after_crash(crash, seed);
        let units = self.units.after_crash(crash, &disk);
        let snaps = self.snaps.after_crash(&disk, &units);
        let engine = match crash {
            Crash::ProcessKill => self.engine.after_kill(&disk),
            Crash::PowerLoss => {
                let (engine, booted) = self.engine.after_reboot(&disk);
                if let Some(version) = booted {
                    let text = format!("ID=coreos\nVERSION_ID={version}\nCOREOS_BOARD=\"amd64-usr\"\nPRETTY_NAME=CL\n");
                    let image = disk.uncounted();
                    host::files::write_durable(&image, Path::new("/etc/os-release"), 0o644, text.as_bytes(), None)
                        .expect("an update");
                }
                engine
            }
        };
        Self { disk, units, snaps, engine, ..self.clone() }
    }

    pub(crate) fn tree(&self) -> String {
        self.disk.tree_digest(&STORY)
    }

    pub(crate) fn gate_is_open(&self) -> bool {
        matches!(node::observe_gate(&self.disk, &self.gate).expect("the gate can be read"), GateState::Open { .. })
    }

    /// "The gate is there" must mean: every byte of the bundle is there.
    pub(crate) fn assert_gate_tells_the_truth(&self, bundle: &Bundle, case: &str) {
        let gate = node::observe_gate(&self.disk, &self.gate).expect("the gate can be read");
        assert!(!matches!(gate, GateState::Damaged { .. }), "{case}: the gate itself is torn: {gate:?}");
        if !self.gate_is_open() {
            return;
        }
        for file in &bundle.files {
            let found = self.disk.read(file.path.as_path(), 1 << 20).expect("readable");
            assert!(
                found.as_deref() == Some(&file.content[..]),
                "{case}: the gate is open, but {} is not whole",
                file.path
            );
        }
        for tree in &bundle.trees {
            for (place, program) in &tree.links {
                let found = self.disk.read(place.as_path(), 1 << 20).expect("readable");
                let wanted = shelf::program_of(tree, program);
                assert!(found == Some(wanted), "{case}: the gate is open, but {place} is not whole");
            }
        }
        for hook in bundle
            .hooks
            .iter()
            .filter(|hook| hook.necessity == bundle::Necessity::Required && hook.slot != bundle::Slot::AfterKubelet)
        {
            let runs = self.units.runs(&UnitName(hook.unit.to_string()));
            assert!(runs > 0, "{case}: the gate is open, but hook {} has not run", hook.name);
        }
        if bundle.join.kubelet_unit.starts_with("snap.") {
            let settings = self.snaps.settings("kubelet-eks").expect("snapd answers");
            assert_eq!(settings.get("node-ip").map(String::as_str), Some("10.0.0.7"), "{case}: settings are missing");
            assert_eq!(self.snaps.aliases().expect("snapd answers").len(), 2, "{case}: aliases are missing");
        }
    }
}

pub(crate) fn expect_converged(report: &Report, case: &str) {
    assert!(matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo), "{case}: {:?}", report.outcome);
}

impl FakeNode {
    /// As [`FakeNode::assert_gate_tells_the_truth`], where a gate that is not ours may be back.
    pub(crate) fn assert_gate_is_foreign_or_true(&self, bundle: &Bundle, case: &str) {
        let found = self.disk.read(Path::new(GATE), 1 << 20).expect("readable");
        if found.as_deref() != Some(b"FOREIGN=1\n") {
            self.assert_gate_tells_the_truth(bundle, case);
        }
    }
}
