//! What makes a plan the same plan: the bundle and the machine, whatever that is called and whichever release it runs.

mod support;

use std::path::Path;

use bundle::Bundle;
use engine::RunOutcome;
use host::disk::Disk as _;
use host::units::UnitName;
use node::{COMPLETE_PATH, Verdict};
use support::{FakeNode, GATE, HOOKS, expect_converged, hook_unit, render, rich_bundle};

fn write(node: &FakeNode, path: &str, text: &str) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o644, text.as_bytes(), None).expect("written");
}

fn complete(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    expect_converged(&node.apply(bundle, 0).expect("runs"), "first");
    node
}

fn digest(node: &FakeNode, bundle: &Bundle) -> engine::Digest {
    node::prepare(&node.host(), bundle).expect("a plan").1.digest()
}

fn runs(node: &FakeNode) -> Vec<u64> {
    HOOKS.iter().map(|(name, _)| node.units.runs(&hook_unit(name))).collect()
}

#[test]
fn another_host_name_is_another_plan_to_show_and_nothing_to_do() {
    let bundle = rich_bundle();
    let node = complete(&bundle);
    let (tree, jobs, first) = (node.tree(), node.units.jobs(), digest(&node, &bundle));
    for name in ["n2", "n1", "n2"] {
        write(&node, "/etc/hostname", &format!("{name}\n"));
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{name}");
    }
    assert_ne!(digest(&node, &bundle), first, "a plan says what it was made from");
    write(&node, "/etc/hostname", "n1\n");
    assert_eq!((node.tree(), node.units.jobs()), (tree, jobs));
}

#[test]
fn an_update_of_the_system_and_its_rollback_are_nothing_to_do() {
    let bundle = rich_bundle();
    let node = complete(&bundle);
    let hooks = runs(&node);
    for version in ["12.1", "13", "12"] {
        write(&node, "/etc/os-release", &format!("ID=debian\nVERSION_ID={version}\nPRETTY_NAME=Debian\n"));
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{version}");
    }
    assert_eq!(runs(&node), hooks);
}

const OTHER_ID: &str = "fedcba9876543210fedcba9876543210\n";
const UUID_PATH: &str = "/sys/class/dmi/id/product_uuid";
const UUID: &str = "02aab8a4-74ef-476e-8182-f6d2ba4166a6\n";
const OTHER_UUID: &str = "7c1b0f52-5f0e-4a5d-9f43-3c9d8c6f2f11\n";
/// As systemd mounts a machine-id for one boot over a file that it cannot write.
const TRANSIENT: &str = "31 22 0:22 /machine-id /etc/machine-id ro,relatime - tmpfs tmpfs rw,mode=755\n";

fn refusal(report: &engine::Report) -> (&str, &str) {
    let RunOutcome::Failed { step, message, advice, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(step.as_str(), "check-bundle");
    (message, advice.as_deref().unwrap_or_default())
}

#[test]
fn a_copied_disk_is_refused_until_its_node_is_adopted_and_its_hooks_run_there() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    write(&node, UUID_PATH, UUID);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let hooks = runs(&node);
    // Image tools empty the machine-id, and systemd makes a new one.
    write(&node, "/etc/machine-id", OTHER_ID);
    write(&node, UUID_PATH, OTHER_UUID);
    let tree = node.tree();
    let report = node.apply(&bundle, 0).expect("runs");
    let (message, advice) = refusal(&report);
    assert!(message.contains("on another machine") && message.contains("02aab8a4…"), "{message}");
    assert!(message.contains("7c1b0f52…") && !message.contains(UUID.trim()), "{message}");
    assert!(advice.contains("nodestrap reset") && advice.contains("apply --adopt"), "{advice}");
    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status");
    let blocked = status.blocked.expect("blocked");
    assert_eq!((status.phase, blocked.by.as_str()), (node::Phase::Failed, "machine"));
    assert_eq!((node.tree(), runs(&node)), (tree, hooks.clone()), "nothing was changed");
    write(&node, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    write(&node, UUID_PATH, UUID);
    // Back on its own machine it is complete, as if nothing had been.
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);

    write(&node, "/etc/machine-id", OTHER_ID);
    write(&node, UUID_PATH, OTHER_UUID);
    assert_eq!(node.adopt(&bundle).expect("runs").outcome, RunOutcome::Done);
    let again: Vec<u64> = runs(&node).iter().map(|runs| runs - 1).collect();
    assert_eq!(again, hooks);
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

/// The seal of the gate is whole, and names the machine.
#[test]
fn a_copied_disk_whose_record_is_damaged_says_so_before_the_kubelet_starts() {
    let node = complete(&rich_bundle());
    let vouch = || match node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("looked") {
        Verdict::Open { remarks } => remarks,
        other => panic!("{other:?}"),
    };
    assert_eq!(vouch(), [""; 0]);
    write(&node, COMPLETE_PATH, "\0\0\0\0");
    let is_told = |remarks: Vec<String>| remarks.iter().any(|remark| remark.contains("no id of this one"));
    assert!(!is_told(vouch()));
    write(&node, "/etc/machine-id", "fedcba9876543210fedcba9876543210\n");
    assert!(is_told(vouch()));
}

#[test]
fn a_machine_id_that_becomes_known_later_changes_nothing() {
    let bundle = rich_bundle();
    for firmware in [None, Some(UUID)] {
        let node = FakeNode::new(&bundle);
        if let Some(uuid) = firmware {
            write(&node, UUID_PATH, uuid);
        }
        write(&node, "/proc/self/mountinfo", TRANSIENT);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
        let hooks = runs(&node);
        // Another one in the next boot, and so on; then one for good.
        write(&node, "/etc/machine-id", OTHER_ID);
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{firmware:?}");
        write(&node, "/proc/self/mountinfo", "");
        let was_open = node.units.jobs().len();
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{firmware:?}");
        assert_eq!((runs(&node), node.units.jobs().len()), (hooks.clone(), was_open), "{firmware:?}");
        let complete = node::load_complete(&node.disk).expect("readable").expect("a record");
        assert_eq!(complete.machine.machine_id.as_deref(), Some(OTHER_ID.trim()), "learnt");
    }
}

#[test]
fn a_new_board_under_the_same_machine_id_is_the_same_machine_with_a_word_about_it() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    write(&node, UUID_PATH, UUID);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let hooks = runs(&node);
    write(&node, UUID_PATH, OTHER_UUID);
    let notes = || node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status").0.notes;
    assert!(notes()[0].contains("the product uuid of this machine has changed"), "{:?}", notes());
    let report = node.apply(&bundle, 0).expect("runs");
    assert_eq!(report.outcome, RunOutcome::NothingToDo);
    let said = report.phases.iter().find_map(|phase| phase.detail.clone()).unwrap_or_default();
    assert!(said.contains("the product uuid of this machine has changed"), "{said}");
    assert_eq!((runs(&node), notes()), (hooks, Vec::new()), "said once");
}

#[test]
fn hooks_run_once_for_each_bundle_that_comes_even_if_it_was_there_before() {
    let (first, second) = (rich_bundle(), {
        let mut other = rich_bundle();
        other.gate.environment.insert("OTHER".to_owned(), "1".to_owned());
        other
    });
    let node = complete(&first);
    for (bundle, expected) in [(&second, 2), (&second, 2), (&first, 3)] {
        expect_converged(&node.apply(bundle, 0).expect("runs"), "walk");
        assert_eq!(runs(&node), vec![expected; HOOKS.len()]);
    }
}

#[test]
fn a_changed_file_restarts_the_units_that_read_it_and_no_others() {
    let with = |max_pods: u32, motd: &str| {
        let assets = format!("  fileAssets: [{{path: /etc/motd, content: \"{motd}\"}}]\n");
        render("", &format!("  kubelet: {{config: {{maxPods: {max_pods}}}}}\n{assets}"))
    };
    let node = complete(&with(110, "a"));
    let started_since = |before: usize| -> Vec<String> {
        node.units.jobs()[before..].iter().map(|UnitName(name)| name.clone()).collect()
    };
    let before = node.units.jobs().len();
    expect_converged(&node.apply(&with(64, "a"), 0).expect("runs"), "other pods");
    assert_eq!(started_since(before), ["kubelet.service"]);
    let before = node.units.jobs().len();
    expect_converged(&node.apply(&with(64, "b"), 0).expect("runs"), "another word of the day");
    assert_eq!(started_since(before), Vec::<String>::new());
    // Drift in what a unit reads means that it may have read it.
    write(&node, "/etc/containerd/config.toml", "version = 9\n");
    let before = node.units.jobs().len();
    expect_converged(&node.apply(&with(64, "b"), 0).expect("runs"), "drift");
    assert_eq!(started_since(before), ["containerd.service"]);
}

/// Its gate names the machine-id, and there is no record yet.
#[test]
fn a_node_of_an_earlier_release_gets_its_record_and_nothing_else() {
    let bundle = rich_bundle();
    let node = complete(&bundle);
    let hooks = runs(&node);
    node.disk.uncounted().remove(Path::new(node::COMPLETE_PATH)).expect("removed");
    write(&node, UUID_PATH, UUID);
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
    let record = node::load_complete(&node.disk).expect("readable").expect("a record");
    assert_eq!((record.machine.name(), record.known_as.as_str()), (UUID.trim(), "0123456789abcdef0123456789abcdef"));
    assert_eq!(runs(&node), hooks);
}

#[test]
fn a_renamed_machine_stays_the_node_that_it_was() {
    let bundle = rich_bundle();
    let node = complete(&bundle);
    write(&node, "/etc/hostname", "from-dhcp-7\n");
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status");
    assert_eq!((status.phase, status.blocked, status.notes), (node::Phase::Joining, None, Vec::new()));
}
