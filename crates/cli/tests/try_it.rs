//! `try`: what everybody runs first.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::os::unix::fs::PermissionsExt as _;

use support::{BINARY, Times, entries, finish, nodestrap, nodestrap_as_nobody, program};

#[test]
fn a_whole_bootstrap_is_shown_and_kept() {
    let place = tempfile::tempdir().unwrap();
    let keep = place.path().join("sandbox").display().to_string();
    let ran = nodestrap(["try", "--keep", &keep]).expect(0);
    for words in [
        "The spec: ten lines",
        "The plan: what will happen, before anything does",
        "node complete",
        "the gate, written last",
        "nothing to do: this node is as planned",
        "stand-in",
        &keep,
    ] {
        assert!(ran.out.contains(words), "no {words:?}:\n{}", ran.out);
    }
    // What it says can be asked and seen afterwards.
    nodestrap(["status", "--root", &keep]).expect(0);
    nodestrap(["timeline", "--root", &keep]).expect(0);
    nodestrap(["gate", "--root", &keep]).expect(0);
    assert!(std::path::Path::new(&keep).join("timeline.svg").is_file());
}

#[test]
fn no_root_is_needed() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let keep = place.path().join("sandbox").display().to_string();
    let ran = nodestrap_as_nobody(["try", "--keep", &keep]).expect(0);
    assert!(ran.out.contains("nothing to do"), "{}", ran.out);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("precious"), "mine").unwrap();
    let before = entries(place.path(), Times::Seen);
    let ran = nodestrap(["try", "--keep", &place.path().display().to_string()]).expect(2);
    ran.says(&["is not empty", "--keep"]);
    assert_eq!(ran.out, "");
    assert_eq!(entries(place.path(), Times::Seen), before);
}

#[test]
fn without_a_place_the_temporary_folder_is_used_and_named() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = program(BINARY);
    command.arg("try").env("TMPDIR", temporary.path());
    let ran = finish(command).expect(0);
    let made: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(ran.out.contains(&format!("rm -r {}", made[0].display())), "{}", ran.out);
}
