//! What a hook says is kept in a file, found again in the error and in the log of the machine, and bounded.
mod support;

use std::path::Path;

use engine::RunOutcome;
use host::disk::{Disk as _, Kind};
use host::units::JobResult;

use support::{FakeNode, expect_converged, hook_unit, render};

const FOLDER: &str = "/run/nodestrap/hooks";
const LOG: &str = "/run/nodestrap/hooks/nodestrap-hook-extra.service.log";

fn node_with(hook: &str) -> (FakeNode, bundle::Bundle) {
    let bundle = render("", &format!("  hooks: [{{name: extra, slot: before-kubelet, {hook}}}]\n"));
    (FakeNode::new(&bundle), bundle)
}

#[track_caller]
fn failure(node: &FakeNode, bundle: &bundle::Bundle) -> String {
    match node.apply(bundle, 0).expect("runs").outcome {
        RunOutcome::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_words_of_a_hook_that_fails_are_in_its_error_and_in_the_log_of_the_machine() {
    let (node, bundle) = node_with("unit: ExecStart=/bin/false");
    let hook = hook_unit("extra");
    node.units.end_jobs_with(&hook, JobResult::Failed);
    node.units.say(&hook, "looking\nnobody is here\n");
    let message = failure(&node, &bundle);
    let expected = format!("; the last lines of {LOG}: \"looking\", \"nobody is here\"");
    assert!(message.ends_with(&expected), "{message}");
    assert_eq!(node.units.logged(&hook), ["looking", "nobody is here"]);
    let folder = node.disk.stat(Path::new(FOLDER)).unwrap().expect("the folder");
    assert_eq!((folder.kind, folder.mode), (Kind::Folder, 0o700));

    // The next run speaks for itself.
    node.units.say(&hook, "now it is another matter\n");
    let message = failure(&node, &bundle);
    assert!(message.contains("another matter") && !message.contains("nobody"), "{message}");
    assert_eq!(node.disk.read(Path::new(LOG), 1000).unwrap().unwrap(), b"now it is another matter\n");
    assert_eq!(node.units.logged(&hook).last().unwrap(), "now it is another matter");
}

#[test]
fn what_a_hook_that_ends_well_says_is_in_the_log_of_the_machine() {
    let (node, bundle) = node_with("unit: ExecStart=/bin/true");
    node.units.say(&hook_unit("extra"), b"\xff done\n\nall is well");
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "a good hook");
    assert_eq!(node.units.logged(&hook_unit("extra")), ["\u{fffd} done", "all is well"]);
}

#[test]
fn gigabytes_of_words_neither_fill_the_memory_of_the_machine_nor_its_log() {
    let (node, bundle) = node_with("unit: ExecStart=/bin/false");
    let hook = hook_unit("extra");
    node.units.end_jobs_with(&hook, JobResult::Failed);
    let mut words = b"again and again\n".repeat(2 * 1024 * 1024);
    words.extend_from_slice(b"the end\n");
    node.units.say(&hook, words.clone());
    let message = failure(&node, &bundle);
    assert!(message.ends_with("\"again and again\", \"the end\""), "{message}");
    let logged = node.units.logged(&hook);
    assert!(logged[0].contains(&words.len().to_string()) && logged[0].contains(LOG), "{}", logged[0]);
    assert_eq!((logged[1].as_str(), logged.last().unwrap().as_str()), ("again and again", "the end"));
    assert!(logged.iter().map(String::len).sum::<usize>() < 70_000, "{}", logged.len());
    let kept = node.disk.read(Path::new(LOG), u64::MAX).unwrap().unwrap();
    assert_eq!(kept.iter().filter(|byte| **byte != 0).count(), 1024 * 1024);
}

#[test]
fn where_systemd_cannot_append_or_the_user_decided_otherwise_there_is_no_file_and_no_trouble() {
    let (old, bundle) = node_with("unit: ExecStart=/bin/false");
    old.units.forget_how_to_append();
    let own = "unit: \"StandardOutput=null\\nExecStart=/bin/false\"";
    let (decided, decided_bundle) = node_with(own);
    for (node, bundle) in [(old, bundle), (decided, decided_bundle)] {
        node.units.say(&hook_unit("extra"), "heard by the journal, or by nobody\n");
        node.units.end_jobs_with(&hook_unit("extra"), JobResult::Failed);
        let message = failure(&node, &bundle);
        assert!(message.contains("exit-code") && !message.contains("the last lines"), "{message}");
        assert!(node.disk.stat(Path::new(LOG)).unwrap().is_none());
        assert!(node.units.logged(&hook_unit("extra")).is_empty());
        node.units.end_jobs_with(&hook_unit("extra"), JobResult::Done);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "mended");
    }
}
