//! Programs as trees: fetched and proved before anything changes, switched in one step, mended, and retired when the new ones run.
#![allow(clippy::disallowed_methods, reason = "the test reads nothing but what it made")]

#[path = "../../bundle/tests/generator/mod.rs"]
mod generator;
mod support;

use std::path::Path;

use bundle::{Bundle, Component, Tree};
use engine::{ErrorClass, RunOutcome, StepOutcome};
use host::disk::{Disk as _, Kind};
use host::fake::{Crash, Moment};
use host::units::{ActiveState, UnitName};
use node::{ResetOptions, STORE_FOLDER, Verdict};
use support::shelf::{archive_of, program_of};
use support::{FakeNode, GATE, STORY, clock, expect_converged, surroundings};

const KUBELET: &str = "/usr/local/bin/kubelet";
/// Of the effects of a run; the seeds walk through all of them.
const EVERY: usize = 3;

/// The example, with a kubelet as a program and a containerd as an archive.
fn bundle(version: &str) -> Bundle {
    let mut bundle = support::bundle();
    let mut random = generator::Random::new(1);
    bundle.downloads = Some(generator::tree::downloads(&mut random));
    bundle.trees = vec![tree(Component::Containerd, "2.2.1"), tree(Component::Kubelet, version)];
    bundle.validate().expect("it keeps the rules");
    bundle
}

fn tree(component: Component, version: &str) -> Tree {
    let mut tree = generator::tree::tree_of(component, version, "a", "/usr/local/bin");
    let unit = if component == Component::Kubelet { "kubelet.service" } else { "containerd.service" };
    tree.read_by.units = [bundle::UnitName::new(unit).expect("a unit")].into();
    tree
}

fn kubelet(bundle: &Bundle) -> &Tree {
    bundle.trees.iter().find(|tree| tree.component == Component::Kubelet).expect("there is one")
}

fn names(node: &FakeNode, folder: &str) -> Vec<String> {
    node.disk.list(Path::new(folder)).expect("readable")
}

fn content(node: &FakeNode, path: &str) -> Option<Vec<u8>> {
    node.disk.read(Path::new(path), 1 << 20).expect("readable")
}

fn put(node: &FakeNode, path: &str, content: &[u8]) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o755, content, None).expect("written");
}

/// Of a file that is there, with its mode and without another name.
fn overwrite(node: &FakeNode, path: &str, content: &[u8]) {
    let disk = node.disk.uncounted();
    disk.truncate(Path::new(path), 0).expect("emptied");
    disk.append(Path::new(path), content).expect("written");
}

fn remove(node: &FakeNode, path: &str) {
    assert!(node.disk.uncounted().remove(Path::new(path)).expect("removed"));
}

fn reset(node: &FakeNode, bundle: &Bundle) {
    let (clock, options) = (clock(), ResetOptions::default());
    let (report, _) = node::reset(&node.host(), Some(bundle), options, &surroundings(&clock, 0)).expect("it runs");
    expect_converged(&report.expect("there is something to undo"), "reset");
}

#[track_caller]
fn expect_failed(report: &engine::Report, class: ErrorClass, words: &str) {
    let RunOutcome::Failed { class: found, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(*found == class && message.contains(words), "{found}: {message}");
}

#[test]
fn programs_lie_in_a_folder_of_their_version_and_are_found_by_links() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    node.assert_gate_tells_the_truth(&bundle, "after a first boot");
    let kubelet = kubelet(&bundle);
    assert_eq!(
        names(&node, &kubelet.home()),
        [kubelet.name(), format!("{}.json", kubelet.name()), "current".to_owned()]
    );
    let current = node.disk.stat(Path::new(&kubelet.current())).expect("readable").expect("there").kind;
    assert_eq!(current, Kind::Link { target: kubelet.name() }, "relative, so that it leads there under any root");
    assert_eq!(
        content(&node, KUBELET),
        Some(program_of(kubelet, &kubelet.links.values().next().expect("a link").clone()))
    );
    let again = node.apply(&bundle, 1).expect("it runs");
    assert_eq!(again.outcome, RunOutcome::NothingToDo, "{again:?}");
    assert_eq!(node.shelf.asked().len(), 2, "nothing is fetched twice");
}

/// Beside trees nothing is installed that nobody asked for.
#[test]
fn what_a_host_lacks_that_some_pods_miss_is_named_and_no_reason_to_stop() {
    let bundle = bundle("1.36.3");
    for (brought, missed) in
        [(&[][..], &["iptables", "conntrack"][..]), (&["nft"], &["conntrack"]), (&["iptables", "conntrack"], &[])]
    {
        let node = FakeNode::new(&bundle);
        put(&node, "/proc/filesystems", b"nodev\toverlay\n");
        for program in ["mount", "umount"].iter().chain(brought) {
            put(&node, &format!("/usr/sbin/{program}"), b"");
        }
        let report = node.apply(&bundle, 0).expect("it runs");
        expect_converged(&report, "Ready without them");
        let journal = content(&node, node::JOURNAL_PATH).expect("all that was said");
        let journal = String::from_utf8_lossy(&journal);
        for (program, words) in [("iptables", "neither iptables nor nft"), ("conntrack", "there is no conntrack")] {
            assert_eq!(journal.contains(words), missed.contains(&program), "{brought:?}: {words:?} in {journal}");
        }
    }
}

#[test]
fn nothing_changes_when_an_artefact_cannot_be_had() {
    let (old, new) = (bundle("1.36.3"), bundle("1.36.4"));
    let node = FakeNode::new(&old);
    expect_converged(&node.apply(&old, 0).expect("it runs"), "apply");
    let (tree, runs) = (node.tree(), node.units.runs(&UnitName("kubelet.service".to_owned())));
    node.shelf.take_down(&kubelet(&new).artefact.places[0]);
    let report = node.apply(&new, 0).expect("it runs");
    expect_failed(&report, ErrorClass::Transient, "nobody has kubelet 1.36.4");
    assert!(node.gate_is_open(), "for the bundle that this node is complete with");
    assert_eq!(node.tree(), tree, "no file, no link and no folder is another");
    assert_eq!(node.units.runs(&UnitName("kubelet.service".to_owned())), runs, "nobody was restarted");
    node.shelf.bring_back();
    expect_converged(&node.apply(&new, 0).expect("it runs"), "when it is there again");
    node.assert_gate_tells_the_truth(&new, "when it is there again");
}

#[test]
fn bytes_that_are_not_those_of_the_bundle_are_thrown_away_and_no_place_is_believed_twice() {
    let mut bundle = bundle("1.36.3");
    let (good, bad) = (kubelet(&bundle).artefact.places[0].clone(), "https://bad.example/kubelet");
    let wrong = vec![b'x'; usize::try_from(kubelet(&bundle).artefact.size).expect("small")];
    bundle.trees[1].artefact.places = vec![bad.to_owned(), good];
    let node = FakeNode::new(&bundle);
    node.shelf.put(bad, wrong);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "from the second place");
    // Where nobody has the right ones, trying again does not help.
    bundle.trees[1].artefact.places = vec![bad.to_owned()];
    let node = FakeNode::new(&bundle);
    node.shelf.put(bad, vec![b'x'; usize::try_from(kubelet(&bundle).artefact.size).expect("small")]);
    let report = node.apply(&bundle, 0).expect("it runs");
    expect_failed(&report, ErrorClass::Permanent, bad);
    assert!(!node.gate_is_open() && content(&node, KUBELET).is_none());
    assert!(names(&node, &format!("{STORE_FOLDER}/sha256")).len() < 2, "of the kubelet nothing is in the store");
}

#[test]
fn an_archive_without_the_program_that_is_linked_is_refused_before_anything_changes() {
    let mut bundle = bundle("1.36.3");
    let place = "https://one.example/containerd/else/tar.gz";
    let bytes = archive_of("bin/other", b"program");
    let artefact = &mut bundle.trees[0].artefact;
    artefact.places = vec![place.to_owned()];
    artefact.size = bytes.len() as u64;
    artefact.digest = bundle::ArtefactDigest::new(format!("sha256:{}", bundle::sha256_hex(&bytes))).expect("a digest");
    let node = FakeNode::new(&bundle);
    node.shelf.put(place, bytes);
    let report = node.apply(&bundle, 0).expect("it runs");
    expect_failed(&report, ErrorClass::Permanent, "bin/containerd");
    assert!(!node.gate_is_open() && content(&node, KUBELET).is_none());
}

#[test]
fn the_old_version_stays_until_the_kubelet_runs_with_the_new_one() {
    let (old, new) = (bundle("1.36.3"), bundle("1.36.4"));
    let unit = UnitName("kubelet.service".to_owned());
    let node = FakeNode::new(&old);
    expect_converged(&node.apply(&old, 0).expect("it runs"), "apply");
    // Its start waits for the end of the run.
    let bootstrap = UnitName(bundle::BOOTSTRAP_UNIT.to_owned());
    put(&node, &format!("{}/{}", bundle::UNIT_FOLDER, bundle::BOOTSTRAP_UNIT), b"[Service]\nExecStart=/bin/x\n");
    node.units.set_active(&bootstrap, ActiveState::Activating);
    expect_converged(&node.apply(&new, 0).expect("it runs"), "the new version");
    let both = [kubelet(&old).name(), kubelet(&new).name()];
    let there = |name: &String| names(&node, &kubelet(&old).home()).contains(name);
    assert!(both.iter().all(there), "{:?}", names(&node, &kubelet(&old).home()));
    assert_eq!(names(&node, &format!("{STORE_FOLDER}/sha256")).len(), 3, "two kubelets and a containerd");
    // A kubelet that dies is not one that runs.
    node.units.set_active(&bootstrap, ActiveState::Inactive);
    node.units.set_active(&unit, ActiveState::Active);
    expect_converged(&node.apply(&new, 0).expect("it runs"), "the kubelet runs");
    assert!(!there(&both[0]) && there(&both[1]), "{:?}", names(&node, &kubelet(&old).home()));
    assert_eq!(names(&node, &format!("{STORE_FOLDER}/sha256")).len(), 2);
    let fresh = FakeNode::new(&new);
    expect_converged(&fresh.apply(&new, 0).expect("it runs"), "a fresh node");
    assert_eq!(names(&node, &kubelet(&new).home()), names(&fresh, &kubelet(&new).home()));
}

/// In a boot the kubelet starts after the run, so another program has to look whether it is healthy.
#[test]
fn what_a_run_left_of_older_versions_is_taken_away_later_unless_a_run_has_failed_since() {
    let (old, new, newer) = (bundle("1.36.3"), bundle("1.36.4"), bundle("1.36.5"));
    let node = FakeNode::new(&old);
    expect_converged(&node.apply(&old, 0).expect("it runs"), "apply");
    assert!(node::find_outdated(&node.disk).expect("readable").is_none(), "there is one version only");
    let bootstrap = UnitName(bundle::BOOTSTRAP_UNIT.to_owned());
    put(&node, &format!("{}/{}", bundle::UNIT_FOLDER, bundle::BOOTSTRAP_UNIT), b"[Service]\nExecStart=/bin/x\n");
    node.units.set_active(&bootstrap, ActiveState::Activating);
    expect_converged(&node.apply(&new, 0).expect("it runs"), "the new version");
    let there = |name: &str| names(&node, &kubelet(&old).home()).iter().any(|one| one == name);
    assert!(there(&kubelet(&old).name()) && there(&kubelet(&new).name()));
    let outdated = node::find_outdated(&node.disk).expect("readable").expect("an older version");

    // What a failed run has fetched is not of an earlier version.
    node.shelf.take_down(&kubelet(&newer).artefact.places[0]);
    expect_failed(&node.apply(&newer, 0).expect("it runs"), ErrorClass::Transient, "nobody has kubelet 1.36.5");
    assert!(node::find_outdated(&node.disk).expect("readable").is_none(), "nobody knows what the next run wants");
    assert_eq!(node::retire_outdated(&node.disk, &outdated).expect("looked"), [""; 0]);
    assert!(there(&kubelet(&old).name()));

    expect_converged(&node.apply(&new, 0).expect("it runs"), "the new version again");
    let gone = node::retire_outdated(&node.disk, &outdated).expect("taken away");
    assert!(gone.contains(&kubelet(&old).folder()), "{gone:?}");
    let fresh = FakeNode::new(&new);
    expect_converged(&fresh.apply(&new, 0).expect("it runs"), "a fresh node");
    assert_eq!(names(&node, &kubelet(&new).home()), names(&fresh, &kubelet(&new).home()));
    let stored = format!("{STORE_FOLDER}/sha256");
    assert_eq!(names(&node, &stored), names(&fresh, &stored));
    assert!(node::find_outdated(&node.disk).expect("readable").is_none(), "all is gone");
}

/// A clock on which the bootstrap unit is starting for so long, and then is skipped.
struct UntilSkipped<'a> {
    node: &'a FakeNode,
    seconds: u64,
    slept: std::sync::atomic::AtomicU64,
}

impl engine::Clock for UntilSkipped<'_> {
    fn now(&self) -> engine::Timestamp {
        engine::Timestamp(0)
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.slept.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn sleep(&self, duration: std::time::Duration) {
        let slept = self.slept.fetch_add(duration.as_secs(), std::sync::atomic::Ordering::SeqCst);
        if slept + duration.as_secs() >= self.seconds {
            self.node.units.set_active(&UnitName(bundle::BOOTSTRAP_UNIT.to_owned()), ActiveState::Inactive);
        }
    }
}

/// A restart of the kubelet by hand pulls in the bootstrap unit, which systemd then skips.
#[test]
fn a_bootstrap_unit_that_is_skipped_in_a_moment_is_not_the_one_that_a_run_is_part_of() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    put(&node, &format!("{}/{}", bundle::UNIT_FOLDER, bundle::BOOTSTRAP_UNIT), b"[Service]\nExecStart=/bin/x\n");
    for (seconds, runs) in [(1, true), (600, false)] {
        node.units.set_active(&UnitName(bundle::BOOTSTRAP_UNIT.to_owned()), ActiveState::Activating);
        let clock = UntilSkipped { node: &node, seconds, slept: 0.into() };
        let told = node::wait_for_kubelet(&node.units, &clock, "kubelet.service");
        assert_eq!(told.is_ok(), runs, "{told:?}");
    }
}

#[test]
fn programs_that_a_bundle_brings_no_more_go_by_a_step_of_its_plan() {
    let (with, without) = (bundle("1.36.3"), support::bundle());
    let node = FakeNode::new(&with);
    let retires = |bundle: &Bundle| {
        let (_, plan) = node::prepare(&node.host(), bundle).expect("a plan");
        plan.steps.iter().any(|step| step.id.0 == "retire-trees")
    };
    assert!(retires(&with) && !retires(&without), "on a new machine");
    expect_converged(&node.apply(&with, 0).expect("it runs"), "with programs");
    assert!(retires(&without), "what is there");
    let report = node.apply(&without, 0).expect("it runs");
    expect_converged(&report, "without programs");
    let step = report.steps.iter().find(|step| step.id.0 == "retire-trees").expect("it is a step");
    assert_eq!(step.outcome, StepOutcome::Done);
    let fresh = FakeNode::new(&without);
    expect_converged(&fresh.apply(&without, 0).expect("it runs"), "a fresh node");
    let (found, wanted) = (node.disk.snapshot(), fresh.disk.snapshot());
    let outside = |path: &&std::path::PathBuf| {
        *path != Path::new(bundle::BUNDLE_PATH) && !STORY.iter().any(|story| path.starts_with(story))
    };
    let other = found.keys().chain(wanted.keys()).filter(outside).filter(|path| found.get(*path) != wanted.get(*path));
    assert_eq!(other.collect::<Vec<_>>(), Vec::<&std::path::PathBuf>::new());
    assert!(names(&node, &format!("{STORE_FOLDER}/sha256")).is_empty());
    assert!(!retires(&without), "nothing of them is left");
    assert_eq!(node.apply(&without, 0).expect("it runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn a_damaged_program_shuts_the_gate_and_is_mended_from_the_store_in_the_same_boot() {
    let bundle = bundle("1.36.3");
    let program = format!("{}/kubelet", kubelet(&bundle).folder());
    type Damage = fn(&FakeNode, &str);
    let damages: [(&str, Damage); 4] = [
        ("empty", |node, path| overwrite(node, path, b"")),
        ("missing", remove),
        ("no version in use", |node, _| {
            let current = "/opt/nodestrap/bin/kubelet/current";
            remove(node, current);
        }),
        ("no link", |node, _| remove(node, KUBELET)),
    ];
    for (name, damage) in damages {
        let node = FakeNode::new(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("it runs"), name);
        let whole = node.tree();
        let vouch = || node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("it can be told");
        assert_eq!(vouch(), Verdict::Open { remarks: Vec::new() }, "{name}");
        damage(&node, &program);
        assert!(matches!(vouch(), Verdict::TakenAway { .. }), "{name}");
        assert!(!node.gate_is_open(), "{name}");
        node.shelf.take_down(&kubelet(&bundle).artefact.places[0]);
        expect_converged(&node.apply(&bundle, 0).expect("it runs"), name);
        assert_eq!(node.tree(), whole, "{name}");
        assert_eq!(vouch(), Verdict::Open { remarks: Vec::new() }, "{name}");
    }
}

#[test]
fn a_program_that_somebody_replaced_is_drift_that_apply_puts_back() {
    let bundle = bundle("1.36.3");
    let program = format!("{}/kubelet", kubelet(&bundle).folder());
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    let whole = node.tree();
    let mut other = content(&node, &program).expect("there");
    other[0] ^= 1;
    overwrite(&node, &program, &other);
    let gate = node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("it can be told");
    assert!(matches!(gate, Verdict::Open { .. }), "a look at sizes does not tell: {gate:?}");
    let found = node::verify(&node.host(), &bundle, &clock()).expect("it can be told");
    assert_eq!(found.drift.iter().map(|one| one.subject.as_str()).collect::<Vec<_>>(), [program.as_str()]);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    assert_eq!(node.tree(), whole);
    let found = node::verify(&node.host(), &bundle, &clock()).expect("it can be told");
    assert!(found.drift.is_empty(), "{:?}", found.drift);
}

#[test]
fn a_flipped_bit_in_the_store_is_found_and_the_artefact_fetched_again() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    let object = format!("{STORE_FOLDER}/sha256/{}", kubelet(&bundle).artefact.digest.hex());
    let mut bytes = content(&node, &object).expect("in the store");
    bytes[7] ^= 1;
    overwrite(&node, &object, &bytes);
    overwrite(&node, &format!("{}/kubelet", kubelet(&bundle).folder()), b"");
    let asked = node.shelf.asked().len();
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    node.assert_gate_tells_the_truth(&bundle, "mended");
    assert_eq!(node.shelf.asked().len(), asked + 1);
    bytes[7] ^= 1;
    assert_eq!(content(&node, &object), Some(bytes), "the store has the right one again");
}

#[test]
fn what_was_at_the_place_of_a_link_is_kept_and_given_back() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    put(&node, KUBELET, b"the distribution's own");
    let disk = node.disk.uncounted();
    disk.symlink("/usr/bin/containerd", Path::new("/usr/local/bin/containerd")).expect("made");
    let before = node.disk.snapshot();
    expect_converged(&node.apply(&bundle, 0).expect("it runs"), "apply");
    node.assert_gate_tells_the_truth(&bundle, "over what was there");
    reset(&node, &bundle);
    let after = node.disk.snapshot();
    let outside = |path: &&std::path::PathBuf| {
        let is_above = ["/var", "/var/lib"].iter().any(|above| *path == Path::new(above));
        !is_above && !STORY.iter().any(|story| path.starts_with(story))
    };
    for path in before.keys().chain(after.keys()).filter(outside) {
        assert_eq!(after.get(path), before.get(path), "{}", path.display());
    }
    for gone in ["/opt/nodestrap", "/var/lib/nodestrap/store"] {
        assert!(node.disk.stat(Path::new(gone)).expect("readable").is_none(), "{gone}");
    }
}

#[test]
fn all_that_a_machine_lacks_is_named_at_once_and_nothing_is_changed() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    let disk = node.disk.uncounted();
    for (path, text) in [
        ("/proc/filesystems", "nodev\tsysfs\n"),
        ("/proc/sys/kernel/osrelease", "6.1.0-1\n"),
        ("/lib/modules/6.1.0-1/modules.builtin", "kernel/fs/ext4/ext4.ko\n"),
        ("/lib/modules/6.1.0-1/modules.dep", "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\n"),
    ] {
        put(&node, path, text.as_bytes());
    }
    for folder in ["/usr/local/bin/ctr", "/var/lib"] {
        disk.make_folder(Path::new(folder), 0o755).expect("made");
    }
    let before = node.tree();
    let report = node.apply(&bundle, 0).expect("it runs");
    let RunOutcome::Failed { class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    for word in ["no mount", "no umount", "overlay", "/usr/local/bin/ctr is a folder"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(!message.contains("br_netfilter"), "it can be loaded: {message}");
    assert_eq!(*class, ErrorClass::NeedsOperator);
    assert_eq!(node.tree(), before);
    assert!(node.shelf.asked().is_empty(), "nothing was fetched for it");
    // What is there is enough.
    disk.remove(Path::new("/usr/local/bin/ctr")).expect("removed");
    for program in ["/usr/bin/mount", "/bin/umount"] {
        put(&node, program, b"program");
    }
    disk.make_folder(Path::new("/sys/module/overlay"), 0o755).expect("made");
    let report = node.apply(&bundle, 0).expect("it runs");
    expect_converged(&report, "with what it needs");
}

#[test]
fn a_plan_names_each_artefact_and_fetches_all_before_the_gate_is_shut() {
    let bundle = bundle("1.36.3");
    let node = FakeNode::new(&bundle);
    let plan = node::plan_first_boot(&bundle, &node.facts().expect("known")).expect("a plan");
    let fetch = plan.steps.iter().find(|step| step.id.0 == "fetch-kubelet").expect("it is fetched");
    let said = fetch.action.describe();
    let artefact = &kubelet(&bundle).artefact;
    assert!(said.contains(artefact.digest.as_str()) && said.contains(&artefact.size.to_string()), "{said}");
    let order: Vec<&str> = plan.steps.iter().map(|step| step.id.0.as_str()).collect();
    let at = |id: &str| order.iter().position(|one| *one == id).unwrap_or_else(|| panic!("no {id} in {order:?}"));
    assert!(at("unpack-kubelet") < at("close-gate") && at("unpack-containerd") < at("close-gate"));
    assert!(at("close-gate") < at("switch-trees") && at("release-kubelet") < at("retire-trees"));
    let report = node.apply(&bundle, 0).expect("it runs");
    let done = |id: &str| report.steps.iter().any(|step| step.id.0 == id && step.outcome == StepOutcome::Done);
    assert!(["fetch-kubelet", "unpack-kubelet", "switch-trees", "verify-trees"].into_iter().all(done), "{report:?}");
}

/// Dying anywhere, as a process or as a machine, on the way to the first version and to the next.
#[test]
fn a_death_anywhere_is_followed_by_the_same_node() {
    let (old, new) = (bundle("1.36.3"), bundle("1.36.4"));
    let image = FakeNode::new(&old);
    put(&image, KUBELET, b"the distribution's own");
    let complete = image.after(Crash::ProcessKill, 0);
    expect_converged(&complete.apply(&old, 0).expect("it runs"), "complete");
    let upgraded = complete.after(Crash::ProcessKill, 0);
    expect_converged(&upgraded.apply(&new, 0).expect("it runs"), "upgraded");
    for (start, bundle, end) in [(&image, &old, &complete), (&complete, &new, &upgraded)] {
        let effects = start.after(Crash::ProcessKill, 0);
        expect_converged(&effects.apply(bundle, 0).expect("it runs"), "undisturbed");
        for at in (1..=effects.disk.operations()).step_by(EVERY) {
            for (crash, moment) in [(Crash::ProcessKill, Moment::Midway), (Crash::PowerLoss, Moment::After)] {
                let case = format!("{crash:?} {moment:?} effect {at}");
                let node = start.after(Crash::ProcessKill, 0);
                node.disk.crash_point().crash_at(at, moment);
                let _ = node.apply(bundle, 0);
                let node = node.after(crash, at);
                expect_converged(&node.apply(bundle, at).unwrap_or_else(|error| panic!("{case}: {error}")), &case);
                node.assert_gate_tells_the_truth(bundle, &case);
                assert_eq!(node.tree(), end.tree(), "{case}");
            }
        }
    }
}
