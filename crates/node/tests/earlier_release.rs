//! A node that the release before made, with the bundle format of then (`v1alpha1/node.json`: what its image had, and what the
//! node had more): it stays as it is, can be undone, and becomes a node of this release.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use engine::RunOutcome;
use host::disk::Disk;
use host::fake::{FakeDisk, FakeSnaps, FakeUnits};
use node::{Adopt, BundleSourceError, GateState, Phase, ResetOptions, SessionError};
use serde::Deserialize;
use support::{FakeNode, GATE, STORY, clock, expect_converged, render, surroundings};

#[derive(Deserialize)]
struct Fixture {
    image: BTreeMap<String, Entry>,
    node: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Link { link: String },
    File { mode: String, text: String },
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("v1alpha1/node.json")).expect("the fixture is JSON")
}

fn machine<'e>(entries: impl IntoIterator<Item = (&'e String, &'e Entry)>) -> FakeNode {
    let disk = FakeDisk::new();
    let image = disk.uncounted();
    for folder in ["/etc/cni/net.d", "/run", "/var/lib"] {
        image.make_folder(Path::new(folder), 0o755).expect("made");
    }
    for (path, entry) in entries {
        let path = Path::new(path);
        image.make_folder(path.parent().expect("a folder"), 0o755).expect("made");
        match entry {
            Entry::Link { link } => image.symlink(link, path).expect("linked"),
            Entry::File { mode, text } => {
                image.remove(path).expect("room");
                let mode = u32::from_str_radix(mode, 8).expect("octal");
                image.create(path, mode, text.as_bytes()).expect("written");
            }
        }
    }
    let units = FakeUnits::new(&disk);
    let snaps = FakeSnaps::new(&disk, &units);
    FakeNode::of(disk, units, snaps)
}

fn files(node: &FakeNode) -> BTreeMap<std::path::PathBuf, host::fake::Entry> {
    let mut tree = node.disk.snapshot();
    tree.retain(|path, entry| {
        entry.kind != host::disk::Kind::Folder && !STORY.iter().any(|story| path.starts_with(story))
    });
    tree
}

fn old_node() -> FakeNode {
    let Fixture { image, node } = fixture();
    machine(image.iter().chain(&node))
}

#[test]
fn its_bundle_gets_one_clear_sentence_and_its_gate_stays_open() {
    let node = old_node();
    let before = files(&node);
    assert!(matches!(node::observe_gate(&node.disk, GATE), Ok(GateState::Open { .. })));
    let load = || node::load_bundle(&node.disk, Path::new(bundle::BUNDLE_PATH), &node.disk, None);
    let refused = load().err().expect("it is refused");
    let BundleSourceError::Broken { source, .. } = &refused else { panic!("{refused}") };
    let sentence = source.to_string();
    assert!(sentence.contains("nodestrap.io/v1alpha1") && sentence.contains("render it again"), "{sentence}");
    let clock = clock();
    let applied =
        node::apply_delivery(&node.host(), &|_| load(), None, Adopt::No, &surroundings(&clock, 0)).expect("it runs");
    let RunOutcome::Failed { message, .. } = &applied.report.outcome else { panic!("{:?}", applied.report.outcome) };
    assert!(message.contains("nodestrap.io/v1alpha1"), "{message}");
    assert_eq!(files(&node), before);
    let (status, _) = node::observe_status(&node.host(), load()).expect("a status");
    assert_eq!((status.phase, status.gate.as_str()), (Phase::BundleBroken, "open"));
    assert!(status.summary.contains("complete as an older nodestrap made it"), "{}", status.summary);
}

#[test]
fn it_can_be_reset_to_what_its_image_had() {
    let node = old_node();
    let clock = clock();
    let (report, _) =
        node::reset(&node.host(), None, ResetOptions::default(), &surroundings(&clock, 0)).expect("it runs");
    expect_converged(&report.expect("there was something to undo"), "reset");
    let mut left = files(&node);
    // A delivery is not ours to take away.
    left.remove(Path::new(bundle::BUNDLE_PATH));
    assert_eq!(left, files(&machine(&fixture().image)));
}

#[test]
fn a_bundle_of_this_release_makes_it_equal_to_a_fresh_node() -> Result<(), SessionError> {
    let wanted = render("", "  sysctls: {vm.max_map_count: \"262144\"}\n");
    let (node, fresh) = (old_node(), machine(&fixture().image));
    expect_converged(&node.apply(&wanted, 0)?, "the old node");
    expect_converged(&fresh.apply(&wanted, 0)?, "a fresh node");
    let mut found = files(&node);
    found.remove(Path::new(bundle::BUNDLE_PATH));
    assert_eq!(found, files(&fresh));
    assert_eq!(node.apply(&wanted, 0)?.outcome, RunOutcome::NothingToDo);
    Ok(())
}
