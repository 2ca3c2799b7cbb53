//! What a hook says is kept in a file, found again in the error and in the log of the machine, and bounded.
mod support;

use std::path::Path;

use engine::RunOutcome;
use host::disk::{Disk as _, Kind};
use host::fake::FakeDisk;
use host::units::JobResult;
use node::{JOURNAL_PATH, NodeReport};

use support::{FakeNode, clock, expect_converged, hook_unit, render, surroundings};

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

/// What `status` shows to root beside the error.
#[track_caller]
fn output(node: &FakeNode, bundle: &bundle::Bundle) -> String {
    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status");
    status.blocked.and_then(|blocked| blocked.output).expect("it said something")
}

/// The files that any user of the machine can read.
fn read_by_all(disk: &FakeDisk) -> Vec<(String, String)> {
    let entries = disk.snapshot();
    let allows = |path: &Path, bit: u32| entries.get(path).is_none_or(|entry| entry.mode & bit != 0);
    let is_open = |path: &Path| path.ancestors().skip(1).all(|folder| allows(folder, 0o001)) && allows(path, 0o004);
    let files = entries.iter().filter(|(path, entry)| entry.kind == Kind::File && is_open(path));
    files
        .map(|(path, file)| (path.display().to_string(), String::from_utf8_lossy(&file.content).into_owned()))
        .collect()
}

#[test]
fn what_a_failed_hook_said_is_told_to_root_and_to_nobody_else() {
    const CANARY: &str = "canary-c4n4ry";
    for necessity in ["required", "optional"] {
        let (node, bundle) = node_with(&format!("necessity: {necessity}, unit: ExecStart=/bin/false"));
        node.units.end_jobs_with(&hook_unit("extra"), JobResult::Failed);
        node.units.say(&hook_unit("extra"), CANARY);
        let (clock, host) = (clock(), node.host());
        let deliver = |_: &dyn Fn(&str)| Ok(bundle.clone().into());
        let applied =
            node::apply_delivery(&host, &deliver, None, node::Adopt::No, &surroundings(&clock, 0)).expect("runs");
        let report = NodeReport::new(&host, &applied);
        node::tell(&node.disk, &report).expect("told");
        // The webhook gets the one, the console the other.
        for told in [report.to_json(), report.summary.clone()] {
            assert!(!told.contains(CANARY), "{necessity}: {told}");
        }
        assert!(report.to_json().contains("hook \\\"extra\\\"") && report.to_json().contains(LOG), "{necessity}");
        let open = read_by_all(&node.disk);
        assert!(open.iter().any(|(path, _)| path == node::REPORT_PATH));
        for (path, content) in open {
            assert!(!content.contains(CANARY), "{necessity}: {path} says {content}");
        }
        let kept = node.disk.read(Path::new(LOG), 1000).unwrap().expect("the file");
        assert_eq!(String::from_utf8_lossy(&kept), CANARY);
        assert_eq!(node.units.logged(&hook_unit("extra")), [CANARY]);
        if necessity == "required" {
            let journal = node.disk.read(Path::new(JOURNAL_PATH), u64::MAX).unwrap().expect("the journal");
            assert!(String::from_utf8_lossy(&journal).contains(CANARY), "root finds it in the journal");
            assert!(output(&node, &bundle).contains(CANARY));
        }
    }
}

#[test]
fn the_last_words_of_a_hook_that_fails_are_for_root_and_in_the_log_of_the_machine() {
    let (node, bundle) = node_with("unit: ExecStart=/bin/false");
    let hook = hook_unit("extra");
    node.units.end_jobs_with(&hook, JobResult::Failed);
    node.units.say(&hook, "looking\nnobody is here\n");
    let message = failure(&node, &bundle);
    assert!(message.ends_with(&format!("; what it said is in {LOG}, for root")), "{message}");
    assert_eq!(output(&node, &bundle), "its last lines: \"looking\", \"nobody is here\"");
    assert_eq!(node.units.logged(&hook), ["looking", "nobody is here"]);
    let folder = node.disk.stat(Path::new(FOLDER)).unwrap().expect("the folder");
    assert_eq!((folder.kind, folder.mode), (Kind::Folder, 0o700));

    // The next run speaks for itself.
    node.units.say(&hook, "now it is another matter\n");
    failure(&node, &bundle);
    assert_eq!(output(&node, &bundle), "its last lines: \"now it is another matter\"");
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
    failure(&node, &bundle);
    let said = output(&node, &bundle);
    assert!(said.ends_with("\"again and again\", \"the end\""), "{said}");
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
        assert!(message.contains("exit-code") && !message.contains(LOG), "{message}");
        assert!(node.disk.stat(Path::new(LOG)).unwrap().is_none());
        assert!(node.units.logged(&hook_unit("extra")).is_empty());
        node.units.end_jobs_with(&hook_unit("extra"), JobResult::Done);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "mended");
    }
}
