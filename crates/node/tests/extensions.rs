//! System extensions: refused where they do not fit, placed and proved before anything changes, merged, and taken away again.
#![allow(clippy::disallowed_methods, reason = "the test reads nothing but what it made")]

#[path = "../../bundle/tests/generator/mod.rs"]
mod generator;
mod support;

use std::path::{Path, PathBuf};

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Extension, ExtensionName, ExtensionRelease, Readers,
    RuntimeSource, SYSEXT_UNIT, UnitName, sha256_hex,
};
use engine::{ErrorClass, RunOutcome};
use host::disk::{Disk as _, Kind};
use host::fake::{Crash, Moment, fake_sysext};
use host::units::{ActiveState, Units as _};
use node::{ResetOptions, STORE_FOLDER, Verdict};
use support::{FakeNode, GATE, STORY, clock, expect_converged, surroundings};

const LINK: &str = "/etc/extensions/kubernetes.raw";
const MASK: &str = "/etc/extensions/containerd-flatcar.raw";
const KUBELET: &str = "/usr/bin/kubelet";
const CONTAINERD: &str = "/usr/bin/containerd";
const FITS: &str = "ID=flatcar\nSYSEXT_LEVEL=1.0\n";
/// A transfer by which systemd-sysupdate would replace the link.
const TRANSFER: &str = "/etc/sysupdate.kubernetes.d/kubernetes.conf";
const TRANSFER_TEXT: &[u8] =
    b"[Target]\nPath=/opt/extensions/kubernetes\nCurrentSymlink=/etc/extensions/kubernetes.raw\n";
/// Of the effects of a run.
const EVERY: usize = 3;

/// What an image has, and where it comes from.
fn image(name: ExtensionName, version: &str, release: &str) -> (String, Vec<u8>) {
    let said = format!("{name} {version}");
    let programs: &[&str] = match name {
        ExtensionName::Kubernetes => &[KUBELET, "/usr/libexec/cni/bridge"],
        ExtensionName::Containerd => &[CONTAINERD, "/usr/bin/runc"],
    };
    let programs: Vec<(&str, &str)> = programs.iter().map(|path| (*path, said.as_str())).collect();
    (format!("https://store.example/{name}-{version}.raw"), fake_sysext(release, &programs))
}

fn extension(name: ExtensionName, version: &str) -> Extension {
    let (place, bytes) = image(name, version, FITS);
    let programs = match name {
        ExtensionName::Kubernetes => vec![KUBELET, "/usr/libexec/cni/bridge"],
        ExtensionName::Containerd => vec![CONTAINERD, "/usr/bin/runc"],
    };
    let unit = match name {
        ExtensionName::Kubernetes => "kubelet.service",
        ExtensionName::Containerd => "containerd.service",
    };
    Extension {
        name,
        version: version.to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).expect("a digest"),
            size: bytes.len() as u64,
            form: ArtefactForm::Sysext,
            places: vec![place],
        },
        release: ExtensionRelease {
            id: "flatcar".to_owned(),
            sysext_level: Some("1.0".to_owned()),
            version_id: None,
            architecture: Some("x86-64".to_owned()),
        },
        programs: programs.into_iter().map(|path| AbsolutePath::new(path).expect("a path")).collect(),
        read_by: Readers { units: [UnitName::new(unit).expect("a unit")].into(), ..Readers::default() },
    }
}

/// A node of Flatcar without programs of its own.
fn plain() -> Bundle {
    let mut bundle = support::render("", "  os: flatcar\n");
    bundle.required_programs.clear();
    bundle
}

fn with(extensions: Vec<Extension>) -> Bundle {
    let mut bundle = plain();
    if extensions.iter().any(|extension| extension.name == ExtensionName::Containerd) {
        bundle.runtime.source = RuntimeSource::Sysext;
    }
    bundle.extensions = extensions;
    let mut random = generator::Random::new(1);
    bundle.downloads = Some(generator::tree::downloads(&mut random));
    bundle.validate().expect("it keeps the rules");
    bundle
}

/// The extension of Kubernetes alone, in this version.
fn bundle(version: &str) -> Bundle {
    with(vec![extension(ExtensionName::Kubernetes, version)])
}

fn both(version: &str) -> Bundle {
    with(vec![extension(ExtensionName::Containerd, "2.4.2"), extension(ExtensionName::Kubernetes, version)])
}

/// A machine of Flatcar: it merges an extension of its own from the beginning, and its store has all images.
fn node(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    for (name, version) in [
        (ExtensionName::Kubernetes, "1.36.3"),
        (ExtensionName::Kubernetes, "1.36.4"),
        (ExtensionName::Containerd, "2.4.2"),
    ] {
        let (place, bytes) = image(name, version, FITS);
        node.shelf.put(&place, bytes);
    }
    put(
        &node,
        "/usr/share/flatcar/containerd-flatcar.raw",
        &fake_sysext("ID=_any\n", &[(CONTAINERD, "Flatcar's own")]),
    );
    let disk = node.disk.uncounted();
    for folder in ["/etc/extensions", "/usr/bin", "/usr/libexec/cni", "/usr/lib/extension-release.d"] {
        disk.make_folder(Path::new(folder), 0o755).expect("made");
    }
    disk.symlink("/usr/share/flatcar/containerd-flatcar.raw", Path::new(MASK)).expect("made");
    put(&node, TRANSFER, TRANSFER_TEXT);
    let unit = sysext_unit();
    node.units.enable(std::slice::from_ref(&unit)).expect("enabled");
    node.units.restart_and_wait(&unit, std::time::Duration::from_secs(1)).expect("merged");
    disk.sync_everything().expect("synced");
    // It boots, with that.
    let node = node.after(Crash::PowerLoss, 0);
    assert_eq!(content(&node, CONTAINERD).as_deref(), Some("Flatcar's own"));
    node
}

fn sysext_unit() -> host::units::UnitName {
    host::units::UnitName(SYSEXT_UNIT.to_owned())
}

fn content(node: &FakeNode, path: &str) -> Option<String> {
    let bytes = node.disk.read(Path::new(path), 1 << 20).expect("readable");
    bytes.map(|bytes| String::from_utf8(bytes).expect("text"))
}

fn link(node: &FakeNode, path: &str) -> Option<String> {
    match node.disk.stat(Path::new(path)).expect("readable").map(|stat| stat.kind) {
        Some(Kind::Link { target }) => Some(target),
        _ => None,
    }
}

fn put(node: &FakeNode, path: &str, content: &[u8]) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o644, content, None).expect("written");
}

fn names(node: &FakeNode, folder: &str) -> Vec<String> {
    node.disk.list(Path::new(folder)).expect("readable")
}

fn runs(node: &FakeNode, unit: &str) -> u64 {
    node.units.runs(&host::units::UnitName(unit.to_owned()))
}

#[track_caller]
fn converge(node: &FakeNode, bundle: &Bundle, case: &str) {
    expect_converged(&node.apply(bundle, 0).unwrap_or_else(|error| panic!("{case}: {error}")), case);
    assert_true(node, bundle, case);
}

/// An open gate means that the programs are those of the bundle.
#[track_caller]
fn assert_true(node: &FakeNode, bundle: &Bundle, case: &str) {
    node.assert_gate_tells_the_truth(bundle, case);
    if !node.gate_is_open() {
        return;
    }
    for extension in &bundle.extensions {
        assert_eq!(link(node, &extension.name.link()), Some(extension.image()), "{case}");
        for program in &extension.programs {
            assert_eq!(content(node, program), Some(extension.title()), "{case}: {program}");
        }
    }
}

fn reset(node: &FakeNode, bundle: &Bundle) {
    let (clock, options) = (clock(), ResetOptions::default());
    let (report, _) = node::reset(&node.host(), Some(bundle), options, &surroundings(&clock, 0)).expect("it runs");
    expect_converged(&report.expect("there is something to undo"), "reset");
}

/// What is there besides nodestrap's own memory.
fn files(node: &FakeNode) -> std::collections::BTreeMap<PathBuf, host::fake::Entry> {
    let mut files = node.disk.snapshot();
    files.retain(|path, _| {
        let is_above = ["/var", "/var/lib"].iter().any(|above| path == Path::new(above));
        !is_above && path != Path::new(bundle::BUNDLE_PATH) && !STORY.iter().any(|story| path.starts_with(story))
    });
    files
}

#[test]
fn programs_are_merged_from_a_linked_image_and_a_rerun_does_nothing() {
    let bundle = bundle("1.36.3");
    let node = node(&bundle);
    converge(&node, &bundle, "a first boot");
    assert_eq!(content(&node, KUBELET).as_deref(), Some("kubernetes 1.36.3"));
    assert_eq!(content(&node, CONTAINERD).as_deref(), Some("Flatcar's own"), "nobody asked for another");
    assert_eq!(link(&node, TRANSFER).as_deref(), Some("/dev/null"), "sysupdate would replace the link");
    assert!(node.units.state(&sysext_unit()).expect("known").enabled);
    let log = node.disk.crash_point().log();
    let last = |effect: &str| log.iter().rposition(|done| done.contains(effect)).unwrap_or_else(|| panic!("{effect}"));
    assert!(last(SYSEXT_UNIT) < last("reload all units"), "units of an image are known only after that");
    let (merges, kubelets) = (runs(&node, SYSEXT_UNIT), runs(&node, "kubelet.service"));
    let again = node.apply(&bundle, 1).expect("it runs");
    assert_eq!(again.outcome, RunOutcome::NothingToDo, "{again:?}");
    assert_eq!((runs(&node, SYSEXT_UNIT), runs(&node, "kubelet.service")), (merges, kubelets));
    assert_eq!(node.shelf.asked().len(), 1, "nothing is fetched twice");
    let found = node::verify(&node.host(), &bundle, &clock()).expect("it can be told");
    assert!(found.drift.is_empty(), "{:?}", found.drift);
}

#[test]
fn an_image_that_does_not_fit_is_refused_before_anything_is_fetched_and_what_is_merged_stays() {
    let good = bundle("1.36.3");
    let node = node(&good);
    converge(&node, &good, "a first boot");
    let before = files(&node);
    type Change = fn(&mut ExtensionRelease);
    let changes: [(&str, Change); 3] = [
        ("SYSEXT_LEVEL=2.0", |release| release.sysext_level = Some("2.0".to_owned())),
        ("it is for debian", |release| release.id = "debian".to_owned()),
        ("VERSION_ID=4081.2.0", |release| {
            (release.sysext_level, release.version_id) = (None, Some("4081.2.0".to_owned()));
        }),
    ];
    for (words, change) in changes {
        let mut other = bundle("1.36.4");
        change(&mut other.extensions[0].release);
        let report = node.apply(&other, 0).expect("it runs");
        let RunOutcome::Failed { class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
        assert!(*class == ErrorClass::Permanent && message.contains(words), "{message}");
    }
    assert_eq!(node.shelf.asked().len(), 1, "nothing was fetched");
    assert!(files(&node) == before && node.gate_is_open());
    assert_eq!(content(&node, KUBELET).as_deref(), Some("kubernetes 1.36.3"), "still merged");
    let report = node.apply_with(&bundle("1.36.4").into(), 0, |facts| facts.architecture.value = "arm64".to_owned());
    assert!(matches!(report.expect("it runs").outcome, RunOutcome::Failed { .. }));
}

/// What a manifest says of an image may be wrong; then it is told by what is missing.
#[test]
fn an_image_that_systemd_passes_over_is_an_error_and_the_gate_stays_shut() {
    let mut wrong = bundle("1.36.3");
    let (_, bytes) = image(ExtensionName::Kubernetes, "1.36.3", "ID=flatcar\nSYSEXT_LEVEL=9.9\n");
    let artefact = &mut wrong.extensions[0].artefact;
    artefact.digest = ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).expect("a digest");
    artefact.size = bytes.len() as u64;
    artefact.places = vec!["https://store.example/wrong.raw".to_owned()];
    let node = node(&wrong);
    node.shelf.put("https://store.example/wrong.raw", bytes);
    let report = node.apply(&wrong, 0).expect("it runs");
    let RunOutcome::Failed { class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(*class == ErrorClass::NeedsOperator && message.contains(KUBELET), "{message}");
    assert!(!node.gate_is_open());
    converge(&node, &bundle("1.36.4"), "a better one");
}

#[test]
fn a_new_version_is_merged_its_readers_start_anew_and_the_old_image_goes() {
    let (old, new) = (bundle("1.36.3"), bundle("1.36.4"));
    let node = node(&old);
    converge(&node, &old, "the first version");
    let containerds = runs(&node, "containerd.service");
    let kubelets = runs(&node, "kubelet.service");
    converge(&node, &new, "the next version");
    assert_eq!(content(&node, KUBELET).as_deref(), Some("kubernetes 1.36.4"));
    assert_eq!(runs(&node, "containerd.service"), containerds, "it runs none of these programs");
    assert!(runs(&node, "kubelet.service") > kubelets);
    assert_eq!(names(&node, "/opt/extensions/kubernetes"), [new.extensions[0].file_name()]);
    assert_eq!(names(&node, &format!("{STORE_FOLDER}/sha256")).len(), 1);
    converge(&node, &old, "and back");
    assert_eq!(content(&node, KUBELET).as_deref(), Some("kubernetes 1.36.3"));
}

#[test]
fn our_containerd_takes_the_place_of_the_systems_own_and_gives_it_back() {
    let (one, two) = (bundle("1.36.3"), both("1.36.3"));
    let node = node(&one);
    converge(&node, &two, "with containerd");
    assert_eq!(link(&node, MASK).as_deref(), Some("/dev/null"));
    assert_eq!(content(&node, CONTAINERD).as_deref(), Some("containerd 2.4.2"));
    converge(&node, &one, "without it");
    assert_eq!(link(&node, MASK).as_deref(), Some("/usr/share/flatcar/containerd-flatcar.raw"));
    assert_eq!(content(&node, CONTAINERD).as_deref(), Some("Flatcar's own"), "merged again in the same run");
    let fresh = self::node(&one);
    converge(&fresh, &one, "a fresh node");
    assert_eq!(files(&node), files(&fresh), "however it got here");
}

#[test]
fn a_bundle_without_extensions_leaves_none_behind() {
    let (with, without) = (both("1.36.3"), plain());
    let node = node(&with);
    converge(&node, &with, "with extensions");
    converge(&node, &without, "without");
    assert_eq!(content(&node, KUBELET), None);
    assert_eq!(content(&node, CONTAINERD).as_deref(), Some("Flatcar's own"));
    let fresh = self::node(&without);
    converge(&fresh, &without, "a fresh node");
    assert_eq!(files(&node), files(&fresh));
    assert_eq!(node.apply(&without, 0).expect("it runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn a_reset_gives_everything_back_also_what_was_disabled_and_not_merged() {
    for is_used in [true, false] {
        let bundle = both("1.36.3");
        let node = node(&bundle);
        if !is_used {
            // As on Debian: the unit is there, and nobody uses it.
            node.disk.uncounted().remove(Path::new(MASK)).expect("removed");
            node.units.stop_and_wait(&sysext_unit(), std::time::Duration::from_secs(1)).expect("unmerged");
            node.units.disable(std::slice::from_ref(&sysext_unit())).expect("disabled");
            node.disk.uncounted().sync_everything().expect("synced");
        }
        put(&node, "/opt/extensions/kubernetes/kubernetes-v1.33.0-x86-64.raw", b"somebody's own");
        put(&node, LINK, b"an image of somebody's own");
        let before = files(&node);
        converge(&node, &bundle, "apply");
        let state = node.units.state(&sysext_unit()).expect("known");
        assert!(state.enabled && state.active == ActiveState::Active, "{is_used}: merged after every boot, too");
        assert_eq!(link(&node, TRANSFER).as_deref(), Some("/dev/null"));
        reset(&node, &bundle);
        let after = files(&node);
        for path in before.keys().chain(after.keys()) {
            assert_eq!(after.get(path), before.get(path), "{is_used} {}", path.display());
        }
        let state = node.units.state(&sysext_unit()).expect("known");
        assert_eq!((state.enabled, state.active == ActiveState::Active), (is_used, is_used));
    }
}

#[test]
fn what_is_not_merged_or_damaged_shuts_the_gate_and_is_mended_without_the_network() {
    let bundle = bundle("1.36.3");
    type Damage = fn(&FakeNode, &Bundle);
    let damages: [(&str, Damage); 3] = [
        ("unmerged", |node, _| {
            node.units.stop_and_wait(&sysext_unit(), std::time::Duration::from_secs(1)).expect("unmerged");
        }),
        ("no link", |node, _| assert!(node.disk.uncounted().remove(Path::new(LINK)).expect("removed"))),
        ("no image", |node, bundle| {
            let image = bundle.extensions[0].image();
            assert!(node.disk.uncounted().remove(Path::new(&image)).expect("removed"));
        }),
    ];
    for (name, damage) in damages {
        let node = node(&bundle);
        converge(&node, &bundle, name);
        let whole = node.tree();
        let vouch = || node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("it can be told");
        assert_eq!(vouch(), Verdict::Open { remarks: Vec::new() }, "{name}");
        damage(&node, &bundle);
        assert!(matches!(vouch(), Verdict::TakenAway { .. }), "{name}");
        node.shelf.take_down(&bundle.extensions[0].artefact.places[0]);
        converge(&node, &bundle, name);
        assert_eq!(node.tree(), whole, "{name}");
    }
}

#[test]
fn what_a_machine_lacks_or_has_in_the_way_is_named_and_nothing_is_changed() {
    let bundle = bundle("1.36.3");
    let node = node(&bundle);
    node.disk.uncounted().make_folder(Path::new("/etc/extensions/kubernetes"), 0o755).expect("made");
    node.disk.uncounted().remove(Path::new("/usr/lib/systemd/system/systemd-sysext.service")).expect("removed");
    node.disk.uncounted().make_folder(Path::new("/var/lib"), 0o755).expect("made");
    let before = node.tree();
    let report = node.apply(&bundle, 0).expect("it runs");
    let RunOutcome::Failed { message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    for word in ["/etc/extensions/kubernetes is an extension of the same name", "no systemd-sysext.service"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(node.tree(), before);
}

/// Dying anywhere, as a process or as a machine, on every way that a node goes.
#[test]
fn a_death_anywhere_is_followed_by_the_same_node() {
    let (one, two, without) = (bundle("1.36.3"), both("1.36.4"), plain());
    let image = node(&one);
    let walk = |start: &FakeNode, bundle: &Bundle| {
        let end = start.after(Crash::ProcessKill, 0);
        converge(&end, bundle, "undisturbed");
        end
    };
    let first = walk(&image, &one);
    let second = walk(&first, &two);
    let third = walk(&second, &one);
    let last = walk(&third, &without);
    for (start, bundle, end) in
        [(&image, &one, &first), (&first, &two, &second), (&second, &one, &third), (&third, &without, &last)]
    {
        let effects = start.after(Crash::ProcessKill, 0);
        converge(&effects, bundle, "undisturbed");
        for at in (1..=effects.disk.operations()).step_by(EVERY) {
            for (crash, moment) in [(Crash::ProcessKill, Moment::Midway), (Crash::PowerLoss, Moment::After)] {
                let case = format!("{crash:?} {moment:?} effect {at}");
                let node = start.after(Crash::ProcessKill, 0);
                node.disk.crash_point().crash_at(at, moment);
                let _ = node.apply(bundle, 0);
                let node = node.after(crash, at);
                // Until it is shut, the gate is that of the bundle before.
                let gate = node::observe_gate(&node.disk, GATE).expect("readable");
                if matches!(&gate, node::GateState::Open { bundle: of, .. } if *of == bundle.digest().to_string()) {
                    assert_true(&node, bundle, &case);
                }
                converge(&node, bundle, &case);
                assert_eq!(files(&node), files(end), "{case}");
            }
        }
    }
}

#[test]
fn a_reset_that_dies_anywhere_is_finished_by_the_next() {
    let bundle = both("1.36.3");
    let complete = node(&bundle);
    let before = files(&complete);
    converge(&complete, &bundle, "complete");
    let effects = complete.after(Crash::ProcessKill, 0);
    reset(&effects, &bundle);
    assert_eq!(files(&effects), before);
    for at in (1..=effects.disk.operations()).step_by(EVERY) {
        for (crash, moment) in [(Crash::ProcessKill, Moment::Midway), (Crash::PowerLoss, Moment::After)] {
            let node = complete.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, moment);
            let (time, options) = (clock(), ResetOptions::default());
            let _ = node::reset(&node.host(), Some(&bundle), options, &surroundings(&time, 0));
            let node = node.after(crash, at);
            let again = node::reset(&node.host(), Some(&bundle), options, &surroundings(&time, 0)).expect("it runs");
            if let Some(report) = again.0 {
                expect_converged(&report, &format!("{crash:?} {moment:?} effect {at}"));
            }
            let after = files(&node);
            for path in before.keys().chain(after.keys()) {
                assert_eq!(after.get(path), before.get(path), "{crash:?} {moment:?} effect {at}: {}", path.display());
            }
        }
    }
}

#[test]
fn a_reset_after_a_death_anywhere_leaves_the_machine_as_its_image_had_it() {
    let bundle = both("1.36.3");
    let image = node(&bundle);
    let before = files(&image);
    let effects = image.after(Crash::ProcessKill, 0);
    converge(&effects, &bundle, "undisturbed");
    for at in (1..=effects.disk.operations()).step_by(EVERY) {
        for (crash, moment) in [(Crash::ProcessKill, Moment::Midway), (Crash::PowerLoss, Moment::After)] {
            let case = format!("{crash:?} {moment:?} effect {at}");
            let node = image.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, 0);
            let node = node.after(crash, at);
            let (time, options) = (clock(), ResetOptions::default());
            let undone = node::reset(&node.host(), Some(&bundle), options, &surroundings(&time, 0)).expect("it runs");
            if let Some(report) = undone.0 {
                expect_converged(&report, &case);
            }
            let after = files(&node);
            for path in before.keys().chain(after.keys()) {
                assert_eq!(after.get(path), before.get(path), "{case}: {}", path.display());
            }
            assert_eq!(content(&node, KUBELET), None, "{case}");
        }
    }
}
