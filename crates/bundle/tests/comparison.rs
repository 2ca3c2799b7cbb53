//! Two bundles compared, whichever they are: nothing is made up, nothing is left out, no secret is shown, and what is said to
//! start anew is what reads something else.

mod generator;
mod sample;

use std::collections::{BTreeMap, BTreeSet};

use bundle::resource::ChangeKind;
use bundle::resource::unit::{started_after, started_with};
use bundle::{Bundle, BundleDiff, Consequence, Content, File, Secret, Slot, Start, UnitName, diff_bundles};
use sample::{path, sample, unit_name};

const SEEDS: u64 = 600;

fn pairs() -> impl Iterator<Item = (u64, Bundle, Bundle)> {
    (0..SEEDS).map(|seed| {
        let (old, new) = generator::pair(seed);
        (seed, old, new)
    })
}

/// All that anybody can see of it.
fn shown(diff: &BundleDiff) -> String {
    format!("{diff} {diff:?} {}", serde_json::to_string(diff).expect("a comparison is data"))
}

#[test]
fn a_bundle_does_not_differ_from_itself() {
    for seed in 0..SEEDS {
        let bundle = generator::bundle_with(seed, generator::Sources::Any);
        let read_back = Bundle::parse(bundle.to_json().as_bytes()).expect("what was written is read");
        let diff = diff_bundles(&bundle, &read_back);
        assert!(diff.is_empty() && diff.restarts.is_empty() && diff.reasons.is_empty(), "{seed}: {diff}");
        assert_eq!(diff.consequence, Consequence::None);
        assert_eq!(diff.to_string(), "nothing changes on the node\n");
    }
}

#[test]
fn bundles_that_differ_are_said_to_differ() {
    let mut differing = 0;
    for (seed, old, new) in pairs() {
        let diff = diff_bundles(&old, &new);
        assert_eq!(diff.is_empty(), old == new, "{seed}: {diff}");
        assert_eq!(diff.is_empty(), diff.reasons.is_empty(), "{seed}: {diff}");
        let weightiest = diff.reasons.iter().map(|reason| reason.consequence).max();
        assert_eq!(diff.consequence, weightiest.unwrap_or(Consequence::None), "{seed}");
        differing += usize::from(!diff.is_empty());
    }
    assert!(differing > 400, "{differing}");
}

#[test]
fn no_comparison_shows_a_secret() {
    for (seed, old, new) in pairs() {
        let text = shown(&diff_bundles(&old, &new));
        assert!(!text.contains("canary"), "{seed}: {text}");
        assert!(!format!("{old:?}").contains("canary"), "{seed}");
    }
}

#[test]
fn a_webhook_is_only_said_to_have_changed() {
    let old = Bundle { hooks: Vec::new(), ..sample() };
    let changes: [fn(&mut Bundle); 4] = [
        |bundle| bundle.webhook = None,
        |bundle| bundle.webhook.as_mut().unwrap().url = Secret::new("https://hooks.example/canary-other"),
        |bundle| bundle.webhook.as_mut().unwrap().headers.clear(),
        |bundle| bundle.webhook.as_mut().unwrap().certificate_authority = None,
    ];
    for change in changes {
        let mut new = old.clone();
        change(&mut new);
        for (old, new) in [(&old, &new), (&new, &old)] {
            let diff = diff_bundles(old, new);
            assert_eq!((diff.changes.len(), diff.changes[0].subject.as_str()), (1, "webhook"), "{diff}");
            assert!(diff.changes[0].secret && diff.to_string().contains("secret, not shown"), "{diff}");
            assert!(!shown(&diff).contains("canary") && diff.restarts.is_empty(), "{diff}");
            assert_eq!(diff.consequence, Consequence::None, "{diff}");
        }
    }
}

fn gate() -> BTreeMap<String, String> {
    BTreeMap::from([("A".to_owned(), "1".to_owned())])
}

fn all_started_with(bundle: &Bundle, gate: &BTreeMap<String, String>) -> BTreeMap<UnitName, String> {
    let digest = |unit: &UnitName| (unit.clone(), started_with(bundle, gate, unit).to_string());
    bundle.units.iter().map(|unit| digest(&unit.name)).collect()
}

/// Units whose digest is not what it was.
fn differing(old: &BTreeMap<UnitName, String>, new: &BTreeMap<UnitName, String>) -> BTreeSet<UnitName> {
    old.iter().filter(|(unit, digest)| new.get(*unit) != Some(digest)).map(|(unit, _)| unit.clone()).collect()
}

#[test]
fn a_changed_file_counts_for_those_who_read_it_and_nobody_else() {
    for seed in 0..200 {
        let bundle = generator::bundle(seed);
        let before = all_started_with(&bundle, &gate());
        for index in 0..bundle.files.len() {
            let changes: [fn(&mut File); 3] = [
                |file| file.content = Content::from([&file.content[..], b"#"].concat()),
                |file| file.mode ^= 0o001,
                |file| file.path = path(&format!("{}x", file.path)),
            ];
            for change in changes {
                let mut changed = bundle.clone();
                change(&mut changed.files[index]);
                let units: BTreeSet<&UnitName> = bundle.units.iter().map(|unit| &unit.name).collect();
                let readers = bundle.files[index].read_by.units.iter().filter(|unit| units.contains(unit));
                let expected: BTreeSet<UnitName> = readers.cloned().collect();
                let found = differing(&before, &all_started_with(&changed, &gate()));
                assert_eq!(found, expected, "{seed}: {}", bundle.files[index].path);
            }
        }
    }
}

#[test]
fn the_gate_counts_for_the_kubelet_alone() {
    for seed in 0..200 {
        let bundle = generator::bundle(seed);
        let before = all_started_with(&bundle, &gate());
        let after = all_started_with(&bundle, &BTreeMap::from([("A".to_owned(), "2".to_owned())]));
        assert_eq!(differing(&before, &after), BTreeSet::from([bundle.join.kubelet_unit.clone()]), "{seed}");
    }
}

#[test]
fn settings_that_the_node_writes_count_for_the_unit_that_reads_them() {
    let old = sample();
    let mut new = old.clone();
    new.pod_network.as_mut().unwrap().bridge = "br0".to_owned();
    let found = differing(&all_started_with(&old, &gate()), &all_started_with(&new, &gate()));
    assert_eq!(found, BTreeSet::from([unit_name("pods.service")]));
    // It is for others to start.
    assert!(diff_bundles(&old, &new).restarts.iter().all(|unit| *unit != "pods.service"));
}

/// Of a bundle without hooks, which may have changed anything: those who read something else, and those who were not started
/// before; and of these only whom `apply` starts.
#[test]
fn who_reads_something_else_starts_anew_and_nobody_else() {
    for (seed, mut old, mut new) in pairs() {
        old.hooks.clear();
        new.hooks.clear();
        let started = |bundle: &Bundle| -> BTreeSet<UnitName> {
            let units = bundle.units.iter().filter(|unit| unit.start != Start::ByOthers);
            units.map(|unit| unit.name.clone()).collect()
        };
        let read = |bundle: &Bundle, unit: &UnitName| -> Vec<File> {
            bundle.all_files().into_iter().filter(|file| file.read_by.units.contains(unit)).collect()
        };
        let runs = |bundle: &Bundle, unit: &UnitName| -> Vec<String> {
            let trees = bundle.trees.iter().filter(|tree| tree.read_by.units.contains(unit));
            trees.map(|tree| format!("{} {}", tree.folder(), tree.artefact.digest)).collect()
        };
        let bytes = |files: &[File]| -> Vec<(String, u32, Vec<u8>)> {
            files.iter().map(|file| (file.path.to_string(), file.mode, file.content.to_vec())).collect()
        };
        let restarts = diff_bundles(&old, &new).restarts;
        assert!(restarts.is_subset(&started(&new)), "{seed}: {restarts:?}");
        for unit in started(&new) {
            let reads_the_same =
                bytes(&read(&old, &unit)) == bytes(&read(&new, &unit)) && runs(&old, &unit) == runs(&new, &unit);
            let is_same = started(&old).contains(&unit) && reads_the_same;
            let is_kubelet = unit == new.join.kubelet_unit;
            assert!(is_kubelet || restarts.contains(&unit) != is_same, "{seed}: {unit} in {restarts:?}");
            let told_the_same = old.gate == new.gate && old.snap == new.snap;
            assert!(!is_kubelet || !is_same || !told_the_same || !restarts.contains(&unit), "{seed}");
            assert!(!is_kubelet || is_same || restarts.contains(&unit), "{seed}");
        }
    }
}

#[test]
fn who_starts_after_a_hook_starts_anew_with_any_new_bundle() {
    for (seed, old, new) in pairs() {
        let restarts = diff_bundles(&old, &new).restarts;
        for hook in new.hooks.iter().filter(|_| old != new) {
            let after = started_after(&new, hook.slot);
            assert!(after.iter().all(|unit| restarts.contains(*unit)), "{seed}: {} {restarts:?}", hook.name);
            assert_eq!(after.is_empty(), hook.slot == Slot::AfterKubelet, "{seed}: {}", hook.name);
        }
    }
}

/// "Which is all that it takes" has to be true.
#[test]
fn what_a_change_needs_of_apply_is_what_apply_does() {
    for (seed, old, new) in pairs() {
        let diff = diff_bundles(&old, &new);
        let mut named: Vec<Consequence> = diff.reasons.iter().map(|reason| reason.consequence).collect();
        named.dedup();
        let does = |unit: &UnitName| diff.restarts.contains(unit);
        if named.contains(&Consequence::RestartKubelet) {
            assert!(does(&new.join.kubelet_unit), "{seed}: {diff}");
        }
        if named.contains(&Consequence::RestartRuntime) {
            assert!(does(&new.runtime.unit), "{seed}: {diff}");
        }
        // A unit that is gone, or is for others to start now, is stopped or left alone.
        let is_less =
            |change: &&bundle::resource::Change| change.family == "unit" || change.change == ChangeKind::Removed;
        if named.contains(&Consequence::RestartUnits) && !diff.changes.iter().any(|change| is_less(&change)) {
            assert!(!diff.restarts.is_empty(), "{seed}: {diff}");
        }
    }
}
