//! What makes a plan the same plan: the bundle and the machine, whatever that is called and whichever release it runs.

mod support;

use std::path::Path;

use bundle::Bundle;
use engine::RunOutcome;
use host::units::UnitName;
use support::{FakeNode, HOOKS, expect_converged, hook_unit, render, rich_bundle};

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

#[test]
fn another_machine_is_another_node_and_its_hooks_run() {
    let bundle = rich_bundle();
    let node = complete(&bundle);
    let hooks = runs(&node);
    write(&node, "/etc/machine-id", "fedcba9876543210fedcba9876543210\n");
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::Done);
    let again: Vec<u64> = runs(&node).iter().map(|runs| runs - 1).collect();
    assert_eq!(again, hooks);
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
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
