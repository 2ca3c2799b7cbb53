//! Units of the image that the spec disables or masks: stopped, kept from starting, and as they were before once nobody asks for
//! that any more.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle::{Bundle, MASK};
use engine::{RunOutcome, StepOutcome};
use host::disk::{Disk as _, Kind};
use host::fake::{Crash, Entry, FakeUnits, Moment};
use host::units::{ActiveState, UnitName, Units as _};
use node::ResetOptions;

use support::{FakeNode, bundle, clock, expect_converged, render, surroundings};

const MASKED: &str = "/etc/systemd/system/locksmithd.service";
/// Its file is the administrator's, not the image's.
const OF_THE_ADMINISTRATOR: &str = "/etc/systemd/system/backup.service";
const LINK: &str = "/etc/systemd/system/multi-user.target.wants/update-engine.service";

fn idle_bundle() -> Bundle {
    render(
        "  units:\n    - {name: locksmithd.service, state: masked}\n    - {name: backup.service, state: masked}\n    \
         - {name: absent.service, state: masked}\n    - {name: nowhere.service, state: disabled}\n",
        "  units: [{name: update-engine.service, state: disabled}]\n",
    )
}

fn unit(name: &str) -> UnitName {
    UnitName(name.to_owned())
}

/// All of these run, and start at boot.
fn image(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    let image = node.disk.uncounted();
    let text = b"[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\nAlias=of-the-image.service\n";
    let ours = b"[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\n";
    let folder = "/usr/lib/systemd/system";
    for (path, text) in [
        (format!("{folder}/locksmithd.service"), ours.as_slice()),
        (format!("{folder}/update-engine.service"), text),
        (OF_THE_ADMINISTRATOR.to_owned(), ours),
    ] {
        host::files::write_durable(&image, Path::new(&path), 0o644, text, None).expect("written");
    }
    let units = ["locksmithd.service", "update-engine.service", "backup.service"].map(unit);
    FakeUnits::new(&image).enable(&units).expect("enabled");
    host::files::sync_all(&image, &[Path::new("/etc")]).expect("synced");
    units.iter().for_each(|unit| node.units.set_active(unit, ActiveState::Active));
    node
}

fn tree(node: &FakeNode) -> BTreeMap<PathBuf, Entry> {
    let mut tree = node.disk.snapshot();
    tree.retain(|path, _| !path.starts_with("/run") && !path.starts_with("/var"));
    tree
}

/// A crash before anything was recorded may leave an empty folder.
fn files(tree: &BTreeMap<PathBuf, Entry>) -> BTreeMap<PathBuf, Entry> {
    tree.iter()
        .filter(|(_, entry)| entry.kind != Kind::Folder)
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect()
}

fn active(node: &FakeNode, name: &str) -> ActiveState {
    node.units.state(&unit(name)).expect("the manager answers").active
}

fn leads_to(node: &FakeNode, path: &str) -> Option<String> {
    match node.disk.stat(Path::new(path)).expect("readable")?.kind {
        Kind::Link { target } => Some(target),
        _ => None,
    }
}

fn drift(node: &FakeNode, bundle: &Bundle) -> Vec<String> {
    let found = node::verify(&node.host(), bundle, &clock()).expect("verified");
    found
        .drift
        .into_iter()
        .map(|one| format!("{}: expected {}, found {}", one.subject, one.expected, one.found))
        .collect()
}

fn reset(node: &FakeNode, bundle: &Bundle) {
    let clock = clock();
    let (report, _) = node::reset(&node.host(), Some(bundle), ResetOptions::default(), &surroundings(&clock, 0))
        .expect("the reset runs");
    expect_converged(&report.expect("there was something to undo"), "reset");
}

#[test]
fn they_are_stopped_and_kept_from_starting() {
    let bundle = idle_bundle();
    let node = image(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    for place in [MASKED, OF_THE_ADMINISTRATOR, "/etc/systemd/system/absent.service"] {
        assert_eq!(leads_to(&node, place).as_deref(), Some(MASK), "{place}");
    }
    assert_eq!(active(&node, "locksmithd.service"), ActiveState::Masked);
    assert_eq!(active(&node, "update-engine.service"), ActiveState::Inactive);
    assert_eq!(leads_to(&node, LINK), None);
    assert_eq!(leads_to(&node, "/etc/systemd/system/of-the-image.service"), None);
    assert_eq!(drift(&node, &bundle), [""; 0]);
    let effects = node.disk.operations();
    assert_eq!(node.apply(&bundle, 1).expect("runs").outcome, RunOutcome::NothingToDo);
    assert!(node.disk.operations() <= effects + 1, "{:#?}", node.disk.log());
}

#[test]
fn a_mask_that_somebody_takes_away_is_drift_and_comes_back() {
    let bundle = idle_bundle();
    let node = image(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    node.disk.uncounted().remove(Path::new(MASKED)).expect("removed");
    node.units.reload(std::time::Duration::ZERO).expect("reloaded");
    node.units.queue_start(&unit("locksmithd.service")).expect("started");
    node.units.enable(&[unit("update-engine.service")]).expect("enabled");
    assert_eq!(
        drift(&node, &bundle),
        [
            "locksmithd.service: expected masked, found not masked",
            "locksmithd.service: expected not running, found active",
            "update-engine.service: expected does not start at boot, found does",
        ]
    );
    expect_converged(&node.apply(&bundle, 1).expect("runs"), "second");
    assert_eq!(active(&node, "locksmithd.service"), ActiveState::Masked);
    assert_eq!(drift(&node, &bundle), [""; 0]);
}

/// Being disabled keeps a unit from starting at boot, not from being needed.
#[test]
fn what_another_unit_starts_later_is_left_alone_if_it_is_only_disabled() {
    let bundle = idle_bundle();
    let node = image(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    node.units.queue_start(&unit("update-engine.service")).expect("started");
    assert_eq!(node.apply(&bundle, 1).expect("runs").outcome, RunOutcome::NothingToDo);
    assert_eq!(active(&node, "update-engine.service"), ActiveState::Active);
    assert_eq!(drift(&node, &bundle), [""; 0]);
}

#[test]
fn a_bundle_that_says_nothing_of_them_and_a_reset_give_them_back() {
    let (idle, plain) = (idle_bundle(), bundle());
    for way in ["bundle", "reset"] {
        let node = image(&idle);
        let before = tree(&node);
        expect_converged(&node.apply(&idle, 0).expect("runs"), way);
        if way == "bundle" {
            expect_converged(&node.apply(&plain, 1).expect("runs"), way);
            assert_eq!(node.apply(&plain, 2).expect("runs").outcome, RunOutcome::NothingToDo);
        }
        if way == "reset" {
            reset(&node, &idle);
            assert_eq!(tree(&node), before, "{way}");
        }
        for name in ["locksmithd.service", "update-engine.service", "backup.service"] {
            assert_eq!(active(&node, name), ActiveState::Active, "{way}: {name}");
            let link = format!("/etc/systemd/system/multi-user.target.wants/{name}");
            let target = leads_to(&node, &link);
            assert!(target.is_some_and(|target| target.ends_with(name)), "{way}: {link}");
        }
        assert_eq!(leads_to(&node, MASKED), None, "{way}");
    }
}

/// `/usr` is the image's: a link there starts the unit at the next boot, whatever is taken away in `/etc`.
#[test]
fn what_the_image_starts_by_a_link_of_its_own_can_only_be_masked() {
    let bundle = idle_bundle();
    let node = image(&bundle);
    let wants = Path::new("/usr/lib/systemd/system/multi-user.target.wants");
    let disk = node.disk.uncounted();
    disk.make_folder(wants, 0o755).expect("made");
    for name in ["locksmithd.service", "update-engine.service"] {
        disk.symlink(&format!("../{name}"), &wants.join(name)).expect("linked");
    }
    let before = tree(&node);
    let report = node.apply(&bundle, 0).expect("runs");
    let failed = report.steps.iter().find(|step| matches!(step.outcome, StepOutcome::Failed));
    assert_eq!(failed.map(|step| step.id.0.as_str()), Some("check-idle-units"), "{:?}", report.outcome);
    assert_eq!(tree(&node), before);
    let masked = render("", "  units: [{name: update-engine.service, state: masked}]\n");
    expect_converged(&node.apply(&masked, 1).expect("runs"), "masked");
    assert_eq!(active(&node, "update-engine.service"), ActiveState::Masked);
}

#[test]
fn a_crash_at_any_effect_loses_nothing_of_what_was_before() {
    let bundle = idle_bundle();
    let (reference, before) = (image(&bundle), tree(&image(&bundle)));
    let start = reference.disk.operations();
    expect_converged(&reference.apply(&bundle, 0).expect("runs"), "reference");
    let (effects, whole) = (reference.disk.operations() - start, tree(&reference));
    for crash in [Crash::ProcessKill, Crash::PowerLoss] {
        for moment in [Moment::Before, Moment::Midway, Moment::After] {
            for at in 1..=effects {
                let case = format!("{crash:?} {moment:?} effect {at}");
                let node = image(&bundle);
                node.disk.crash_point().crash_at(at, moment);
                let _ = node.apply(&bundle, at);
                let wreck = node.after(crash, at);
                expect_converged(&wreck.apply(&bundle, at / 2).expect("runs"), &case);
                assert_eq!(tree(&wreck), whole, "{case}");
                assert_eq!(wreck.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{case}");
                reset(&wreck, &bundle);
                assert_eq!(files(&tree(&wreck)), files(&before), "{case}: after a reset");
            }
        }
    }
}
