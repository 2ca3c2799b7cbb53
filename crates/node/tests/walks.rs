//! However a node got here, it equals a fresh one.
//!
//! Random bundles that `apply` accepts one after the other, on machines whose images have files, units and settings of their
//! own in the way: what nodestrap manages after the walk equals what it manages after the last bundle alone, every unit runs
//! with the files that it should read, and `reset` gives back what was there.
//!
//! ```text
//! NODESTRAP_WALKS=100000 cargo test -p node --test walks random    more of them, as `make soak` does
//! NODESTRAP_WALK=4711 cargo test -p node --test walks replay -- --nocapture    one, with what differs
//! ```
#![allow(clippy::disallowed_methods, reason = "the test reads which walks are wanted")]

#[path = "../../bundle/tests/generator/mod.rs"]
mod generator;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bundle::{Bundle, Os, Start, UNIT_FOLDER};
use engine::{Report, RunOutcome};
use host::disk::{Disk as _, Kind};
use host::fake::{Entry, FakeDisk, FakeSnaps, FakeUnits};
use host::snaps::Snaps as _;
use host::units::{ActiveState, UnitName, Units as _};
use node::ResetOptions;
use support::{FakeNode, STORY, clock, surroundings};

/// In every `make test`; all of them in `make soak`.
const WALKS: u64 = 2_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// A machine as its image makes it: with what bundles require, and here and there with what they will change.
fn image(seed: u64, os: Os) -> FakeNode {
    let mut random = generator::Random::new(seed ^ 0x1ace);
    let disk = FakeDisk::new();
    let image = disk.uncounted();
    let put = |path: &str, mode: u32, content: &[u8]| {
        host::files::write_durable(&image, Path::new(path), mode, content, None).expect("the image is made");
    };
    for folder in ["/var/lib", "/run", UNIT_FOLDER] {
        image.make_folder(Path::new(folder), 0o755).expect("made");
    }
    let release = match os {
        Os::Flatcar => "ID=flatcar\nVERSION_ID=4081\n",
        Os::ContainerLinux => "ID=coreos\nVERSION_ID=2345\n",
        Os::Debian => "ID=debian\nVERSION_ID=12\n",
        Os::Ubuntu => "ID=ubuntu\nVERSION_ID=24.04\n",
        Os::Al2 => "ID=amzn\nVERSION_ID=2\n",
        Os::Al2023 => "ID=amzn\nVERSION_ID=2023\n",
        Os::Rhel => "ID=rhel\nVERSION_ID=9.4\n",
        Os::Rhcos => "ID=rhcos\nVERSION_ID=4.15\n",
    };
    put("/etc/os-release", 0o644, release.as_bytes());
    put("/etc/hostname", 0o644, b"n1\n");
    put("/etc/machine-id", 0o444, b"0123456789abcdef0123456789abcdef\n");
    for program in generator::PROGRAMS {
        put(program, 0o755, b"");
    }
    let of_image =
        [generator::SNAP_UNIT, "crio.service", "docker.service", "chronyd.service", "systemd-timesyncd.service"];
    for unit in generator::IMAGE_UNITS.into_iter().chain(of_image) {
        let path = format!("/usr/lib/systemd/system/{unit}");
        put(&path, 0o644, b"[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\n");
    }
    for path in random.some_of(&["/etc/a/one", "/etc/b/two", "/etc/kubernetes/kubelet.yaml", "/etc/a/secret"]) {
        put(path, random.pick(&[0o600, 0o644, 0o640]), b"of the image\n");
    }
    // Programs of the image where bundles want theirs: a file, and a link.
    for path in random.some_of(&["/usr/local/bin/kubelet", "/usr/local/bin/containerd", "/usr/local/bin/crictl"]) {
        put(path, random.pick(&[0o755, 0o700]), b"of the image\n");
    }
    if random.coin() {
        image.make_folder(Path::new("/usr/local/bin"), 0o755).expect("made");
        image.symlink("/usr/bin/runc", Path::new("/usr/local/bin/runc")).expect("made");
    }
    let units = FakeUnits::new(&disk);
    for unit in random.some_of(&["containerd.service", "systemd-timesyncd.service"]) {
        units.enable(&[UnitName(unit.to_owned())]).expect("enabled");
        if random.coin() {
            units.restart_and_wait(&UnitName(unit.to_owned()), std::time::Duration::ZERO).expect("started");
        }
    }
    units.remember_files();
    let snaps = FakeSnaps::new(&disk, &units);
    snaps.install(generator::SNAP, &[generator::SNAP_SERVICE]);
    snaps.install("kubectl-eks", &[]);
    let texts = random.some_of(&[("max-pods", "7"), ("their-own", "x")]);
    let settings = texts.into_iter().map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).collect();
    snaps.set(generator::SNAP, &settings, std::time::Duration::ZERO).expect("set");
    let (gate, instance_type) = (String::new(), generator::INSTANCE_TYPE.to_owned());
    FakeNode { gate, instance_type, ..FakeNode::of(disk, units, snaps) }
}

/// What can be seen of a machine, but for the story of how it got there.
#[derive(Debug, PartialEq)]
struct Seen {
    tree: BTreeMap<PathBuf, Entry>,
    /// Enabled, active, to be reloaded.
    units: BTreeMap<String, (bool, ActiveState, bool)>,
    aliases: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
}

fn look<'b>(node: &FakeNode, bundles: impl IntoIterator<Item = &'b Bundle>) -> Seen {
    let mut tree = node.disk.snapshot();
    tree.retain(|path, _| !STORY.iter().any(|story| path.starts_with(story)));
    let mut units = BTreeMap::new();
    for unit in bundles.into_iter().flat_map(|bundle| &bundle.units) {
        let state = node.units.state(&UnitName(unit.name.to_string())).expect("the manager answers");
        // Whoever pulls such a unit in is not here.
        let active = if unit.start == Start::ByOthers { ActiveState::Inactive } else { state.active };
        units.insert(unit.name.to_string(), (state.enabled, active, state.needs_reload));
    }
    let aliases = node.snaps.aliases().expect("snapd answers");
    let settings = node.snaps.settings(generator::SNAP).expect("snapd answers");
    Seen { tree, units, aliases, settings }
}

/// What was there before may be kept as a copy, or moved aside: that is a part of the story, too.
fn without_kept(mut seen: Seen) -> Seen {
    seen.tree.retain(|path, _| !path.to_string_lossy().ends_with(".nodestrap-before"));
    seen
}

fn differences(expected: &Seen, found: &Seen) -> Vec<String> {
    fn maps<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
        what: &str,
        expected: &BTreeMap<K, V>,
        found: &BTreeMap<K, V>,
    ) -> Vec<String> {
        let keys: std::collections::BTreeSet<&K> = expected.keys().chain(found.keys()).collect();
        let differing = keys.into_iter().filter(|key| expected.get(key) != found.get(key));
        differing
            .map(|key| format!("{what} {key:?}: expected {:?}, found {:?}", expected.get(key), found.get(key)))
            .collect()
    }
    let mut all = maps("file", &expected.tree, &found.tree);
    all.extend(maps("unit", &expected.units, &found.units));
    all.extend(maps("alias", &expected.aliases, &found.aliases));
    all.extend(maps("setting", &expected.settings, &found.settings));
    all
}

/// A unit that runs must have read what is there now.
fn stale(node: &FakeNode, bundle: &Bundle) -> Vec<String> {
    let mut found = Vec::new();
    for unit in bundle.units.iter().filter(|unit| unit.start != Start::ByOthers) {
        let Some(read) = node.units.read_at_start(&UnitName(unit.name.to_string())) else { continue };
        for file in bundle.all_files().iter().filter(|file| file.read_by.units.contains(&unit.name)) {
            let read = read.get(file.path.as_path()).map(|entry| entry.content.as_slice());
            if read != Some(&*file.content) {
                found.push(format!("{} runs without having read {}", unit.name, file.path));
            }
        }
        for tree in bundle.trees.iter().filter(|tree| tree.read_by.units.contains(&unit.name)) {
            let current = read.get(Path::new(&tree.current())).map(|entry| entry.kind.clone());
            if current != Some(Kind::Link { target: tree.name() }) {
                found.push(format!("{} runs another version than {}", unit.name, tree.title()));
            }
        }
    }
    found
}

fn is_done(report: &Report) -> bool {
    matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo)
}

/// What became of one walk.
#[derive(Debug, PartialEq)]
enum Walk {
    /// `apply` refuses one of the bundles on this machine.
    Refused,
    /// With how many bundles.
    Walked(usize),
}

/// `Err`: what differs at its end.
fn walk(seed: u64) -> Result<Walk, Vec<String>> {
    let (first, second) = generator::pair(seed);
    let bundles = match seed % 4 {
        // There and back again.
        0 => vec![first.clone(), second, first],
        _ => vec![first, second],
    };
    let last = &bundles[bundles.len() - 1];
    let node = image(seed, last.node.os);
    let (before, fresh) = (look(&node, &bundles), image(seed, last.node.os));
    if !is_done(&fresh.apply(last, seed).map_err(|error| vec![error.to_string()])?) {
        return Ok(Walk::Refused);
    }
    for bundle in &bundles {
        let report = node.apply(bundle, seed).map_err(|error| vec![error.to_string()])?;
        if !is_done(&report) {
            // Refused must mean untouched; that is for other tests.
            return Ok(Walk::Refused);
        }
        let again = node.apply(bundle, seed).map_err(|error| vec![error.to_string()])?;
        if again.outcome != RunOutcome::NothingToDo {
            let steps = again.steps.iter().filter(|step| step.outcome == engine::StepOutcome::Done);
            return Err(steps.map(|step| format!("a rerun did {}", step.id)).collect());
        }
    }
    let mut wrong = differences(&without_kept(look(&fresh, [last])), &without_kept(look(&node, [last])));
    wrong.extend(stale(&node, last));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let options = ResetOptions::default();
    let clock = clock();
    let (report, _) = node::reset(&node.host(), Some(last), options, &surroundings(&clock, seed))
        .map_err(|error| vec![error.to_string()])?;
    if !report.as_ref().is_some_and(is_done) {
        return Err(vec![format!("the reset ended with {report:?}")]);
    }
    let mut wrong = differences(&before, &look(&node, &bundles));
    wrong.iter_mut().for_each(|one| *one = format!("after the reset: {one}"));
    if wrong.is_empty() { Ok(Walk::Walked(bundles.len())) } else { Err(wrong) }
}

#[test]
fn random_walks_end_in_a_node_that_equals_a_fresh_one() {
    let walks = number("NODESTRAP_WALKS").unwrap_or(WALKS);
    // A sample of its own for each commit; the same for everybody who tests that commit.
    let start = number("NODESTRAP_SAMPLE").unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    println!("{walks} walks from {start}");
    let (next, walked) = (AtomicU64::new(0), AtomicU64::new(0));
    let failure: Mutex<Option<(u64, Vec<String>)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while failure.lock().expect("nobody panics with it").is_none() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= walks {
                        return;
                    }
                    let seed = start.wrapping_add(index);
                    match walk(seed) {
                        Ok(Walk::Refused) => {}
                        Ok(Walk::Walked(_)) => drop(walked.fetch_add(1, Ordering::Relaxed)),
                        Err(wrong) => *failure.lock().expect("nobody panics with it") = Some((seed, wrong)),
                    }
                }
            });
        }
    });
    if let Some((seed, wrong)) = failure.into_inner().expect("nobody panics with it") {
        panic!(
            "walk {seed}: {}\nreplay: NODESTRAP_WALK={seed} cargo test -p node --test walks replay -- --nocapture",
            wrong.join("\n")
        );
    }
    let walked = walked.into_inner();
    println!("{walked} of {walks} walks were accepted");
    assert!(walked * 2 > walks, "only {walked} of {walks} walks were accepted: that says little");
}

/// One walk, with what differs at its end.
#[test]
fn replay() {
    let Some(seed) = number("NODESTRAP_WALK") else { return };
    let (first, second) = generator::pair(seed);
    println!("{}\n{}", first.manifest_json(), second.manifest_json());
    println!("{}", bundle::diff_bundles(&first, &second));
    match walk(seed) {
        Ok(walk) => println!("{walk:?}"),
        Err(wrong) => panic!("{}", wrong.join("\n")),
    }
}

/// A harness that does not see what is left behind is worth nothing.
#[test]
fn what_an_earlier_bundle_left_would_be_seen() {
    let bundle = generator::bundle(1);
    let (node, other) = (image(1, bundle.node.os), image(1, bundle.node.os));
    assert_eq!(differences(&look(&node, [&bundle]), &look(&other, [&bundle])), Vec::<String>::new());
    let stray = format!("{UNIT_FOLDER}/stray.service");
    host::files::write_durable(&other.disk.uncounted(), Path::new(&stray), 0o644, b"x", None).expect("written");
    other
        .snaps
        .set(generator::SNAP, &[("a".to_owned(), Some("b".to_owned()))].into(), std::time::Duration::ZERO)
        .expect("set");
    assert_eq!(differences(&look(&node, [&bundle]), &look(&other, [&bundle])).len(), 2);
    assert!(other.disk.stat(Path::new(&stray)).expect("readable").is_some());
}
