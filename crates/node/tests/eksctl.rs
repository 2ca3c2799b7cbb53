//! eksctl's flows: what the plan of a node of Amazon Linux 2 and of Ubuntu says, what is refused, what snapd is asked for.
//!
//! `UPDATE_GOLDEN=1 cargo test -p node --test eksctl` writes the plans anew.
#![allow(clippy::disallowed_methods, reason = "the test reads its golden files")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use bundle::Bundle;
use engine::{ErrorClass, RunOutcome};
use host::disk::Disk as _;
use host::snaps::{SnapError, Snaps as _};
use host::units::{ActiveState, UnitName, Units as _};
use node::{Action, Facts, Refusal};

use support::{FakeNode, al2_bundle, expect_converged, golden_bundle, ubuntu_bundle};

const GATE: &str = "/etc/eksctl/kubelet.local.env";

fn facts(bundle: &Bundle) -> Facts {
    FakeNode::new(bundle).facts().expect("facts")
}

fn steps(bundle: &Bundle, facts: &Facts) -> Vec<engine::Step<Action>> {
    node::plan_first_boot(bundle, facts).expect("a plan").steps
}

fn refusals(bundle: &Bundle, facts: &Facts) -> Vec<Refusal> {
    let first = serde_json::to_value(steps(bundle, facts).remove(0).action).expect("JSON");
    assert_eq!(first["do"], "check-bundle");
    serde_json::from_value(first["refusals"].clone()).expect("refusals")
}

fn gate(bundle: &Bundle, facts: &Facts) -> Vec<(String, String)> {
    let actions = steps(bundle, facts).into_iter().map(|step| serde_json::to_value(step.action).expect("JSON"));
    let opened = actions.into_iter().find(|action| action["do"] == "open-gate").expect("the gate opens");
    let environment: BTreeMap<String, String> = serde_json::from_value(opened["environment"].clone()).expect("texts");
    environment.into_iter().collect()
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, text).expect("written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(golden, text, "{} differs; look at it, then UPDATE_GOLDEN=1", path.display());
}

#[test]
fn the_plans_of_both_systems_are_these() {
    for (name, bundle) in [("eksctl-al2.json", al2_bundle()), ("eksctl-ubuntu.json", ubuntu_bundle())] {
        let plan = node::plan_first_boot(&bundle, &facts(&bundle)).expect("a plan");
        assert_golden(name, &(serde_json::to_string_pretty(&plan).expect("JSON") + "\n"));
    }
}

#[test]
fn the_plan_shows_what_the_gate_will_say() {
    let bundle = al2_bundle();
    let expected = [
        ("INSTANCE_ID", "i-0123456789abcdef0"),
        ("INSTANCE_TYPE", "m5.large"),
        ("MAX_PODS", "29"),
        ("NODE_IP", "10.0.0.7"),
    ];
    assert_eq!(gate(&bundle, &facts(&bundle)), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(refusals(&bundle, &facts(&bundle)), []);
}

#[test]
fn a_number_of_pods_that_somebody_chose_comes_before_the_map() {
    let bundle = golden_bundle("eksctl-al2-max-pods-override");
    let mut facts = facts(&bundle);
    facts.instance_type.value = "unheard.of".to_owned();
    assert_eq!(refusals(&bundle, &facts), []);
    assert!(gate(&bundle, &facts).contains(&("MAX_PODS".to_owned(), "17".to_owned())));
}

#[test]
fn an_instance_type_that_the_map_does_not_have_is_refused_by_name() {
    let bundle = al2_bundle();
    let mut facts = facts(&bundle);
    facts.instance_type.value = "m99.large".to_owned();
    let refused = refusals(&bundle, &facts);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].reason.contains("m99.large"), "{refused:?}");
    assert!(refused[0].advice.contains("maxPods"), "{refused:?}");
}

#[test]
fn what_is_missing_or_cannot_be_true_is_refused_by_name_and_source() {
    let bundle = al2_bundle();
    type Change = fn(&mut Facts, String);
    let changes: [(&str, Change); 3] = [
        ("INSTANCE_ID", |facts, value| facts.instance_id.value = value),
        ("INSTANCE_TYPE", |facts, value| facts.instance_type.value = value),
        ("NODE_IP", |facts, value| facts.local_ipv4.value = value),
    ];
    let page = format!("<html><body>{}</body></html>", "sorry ".repeat(1000));
    for (name, change) in changes {
        for value in ["", "<html>", "i-1\nEVIL=1", "a b", "-x-", &page, "::1", "127.0.0.1"] {
            let mut facts = facts(&bundle);
            change(&mut facts, value.to_owned());
            let refused = refusals(&bundle, &facts);
            // Only an address has to be one.
            if name != "NODE_IP" && value == "127.0.0.1" {
                continue;
            }
            assert_eq!(refused.len(), 1, "{name} {value:?}: {refused:?}");
            let reason = &refused[0].reason;
            assert!(reason.contains(name) && reason.contains("metadata service"), "{name} {value:?}: {reason}");
            assert!(reason.len() < 200, "{reason}");
            let environment = gate(&bundle, &facts);
            assert!(environment.iter().all(|(_, found)| found != value), "{name} {value:?}");
        }
    }
}

#[test]
fn facts_that_a_bundle_does_not_ask_for_leave_its_plan_alone() {
    let bundle = support::bundle();
    let plain = FakeNode::new(&bundle).facts().expect("facts");
    let digest = |facts: &Facts| node::plan_first_boot(&bundle, facts).expect("a plan").digest();
    let mut other = plain.clone();
    other.instance_type.value = "m5.large".to_owned();
    other.local_ipv4.value = "10.0.0.7".to_owned();
    other.region.value = "eu-west-1".to_owned();
    assert_eq!(digest(&plain), digest(&other));

    let asking = al2_bundle();
    let known = facts(&asking);
    let mut moved = known.clone();
    moved.local_ipv4.value = "10.0.0.8".to_owned();
    let digest = |facts: &Facts| node::plan_first_boot(&asking, facts).expect("a plan").digest();
    assert_ne!(digest(&known), digest(&moved));
    let mut region = known.clone();
    region.region.value = "eu-west-1".to_owned();
    assert_eq!(digest(&known), digest(&region));
}

#[test]
fn a_refused_node_is_left_untouched() {
    let bundle = al2_bundle();
    let mut machine = FakeNode::new(&bundle);
    machine.instance_type = "m99.large".to_owned();
    let report = machine.apply(&bundle, 0).expect("runs");
    let RunOutcome::Failed { step, class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((step.0.as_str(), *class), ("check-bundle", ErrorClass::Permanent));
    assert!(message.contains("m99.large"), "{message}");
    let written: Vec<String> = machine.disk.log().into_iter().filter(|line| line.contains("/etc/")).collect();
    assert_eq!(written, [""; 0]);
}

#[test]
fn amazon_linux_gets_its_gate_last_and_its_kubelet_started() {
    let bundle = al2_bundle();
    let machine = FakeNode::new(&bundle);
    expect_converged(&machine.apply(&bundle, 0).expect("runs"), "first");
    let text = machine.disk.read(Path::new(GATE), 1 << 20).expect("readable").expect("there");
    let text = String::from_utf8(text).expect("text");
    for line in ["NODE_IP=\"10.0.0.7\"", "INSTANCE_ID=\"i-0123456789abcdef0\"", "MAX_PODS=\"29\""] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let kubelet = machine.units.state(&UnitName("kubelet.service".to_owned())).expect("known");
    assert_eq!((kubelet.active, kubelet.enabled), (ActiveState::Active, true));
    let opened = machine.disk.log().iter().rposition(|line| line.contains(GATE)).expect("the gate was written");
    let later = machine.disk.log().split_off(opened + 1);
    assert!(
        later.iter().all(|line| line.contains("sync-folder") || !line.contains("/etc/")),
        "after the gate: {later:#?}"
    );
}

#[test]
fn ubuntu_gets_aliases_settings_and_a_start_from_snapd_in_eksctls_order() {
    let bundle = ubuntu_bundle();
    let machine = FakeNode::new(&bundle);
    let kubelet = UnitName("snap.kubelet-eks.daemon.service".to_owned());
    machine.units.set_active(&kubelet, ActiveState::Active);
    expect_converged(&machine.apply(&bundle, 0).expect("runs"), "first");
    let log: Vec<String> = machine.disk.log();
    let asked: Vec<&str> = log.iter().filter_map(|line| line.split_once(" snap ").map(|(_, rest)| rest)).collect();
    assert_eq!(
        asked,
        ["alias kubectl", "alias kubelet", "stop kubelet-eks", "setting kubelet-eks", "start kubelet-eks"]
    );
    let gate = log.iter().rposition(|line| line.contains(GATE)).expect("the gate was written");
    let start = log.iter().position(|line| line.contains("snap start")).expect("started");
    assert!(gate < start, "{log:#?}");
    let settings = machine.snaps.settings("kubelet-eks").expect("snapd answers");
    for (key, value) in [
        ("node-ip", "10.0.0.7"),
        ("max-pods", "29"),
        ("node-labels", "example.com/pool=general,alpha.eksctl.io/instance-id=i-0123456789abcdef0"),
        ("register-with-taints", ""),
        ("config", "/etc/eksctl/kubelet.yaml"),
    ] {
        assert_eq!(settings.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(machine.snaps.aliases().expect("snapd answers")["kubelet"], "kubelet-eks.kubelet");
    assert_eq!(machine.units.state(&kubelet).expect("known").active, ActiveState::Active);
    assert_eq!(machine.apply(&bundle, 1).expect("runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn a_setting_that_somebody_changed_is_put_back_and_the_kubelet_started_with_it() {
    let bundle = ubuntu_bundle();
    let machine = FakeNode::new(&bundle);
    expect_converged(&machine.apply(&bundle, 0).expect("runs"), "first");
    let text = |text: &str| Some(text.to_owned());
    let changed = [("max-pods".to_owned(), text("5")), ("their-own".to_owned(), text("x"))].into();
    machine.snaps.set("kubelet-eks", &changed, std::time::Duration::ZERO).expect("changed");
    let before = machine.disk.log().len();
    expect_converged(&machine.apply(&bundle, 1).expect("runs"), "again");
    let later = machine.disk.log().split_off(before);
    let asked: Vec<&str> = later.iter().filter_map(|line| line.split_once(" snap ").map(|(_, rest)| rest)).collect();
    assert_eq!(asked, ["stop kubelet-eks", "setting kubelet-eks", "start kubelet-eks"]);
    let settings = machine.snaps.settings("kubelet-eks").expect("snapd answers");
    assert_eq!((settings["max-pods"].as_str(), settings["their-own"].as_str()), ("29", "x"));
}

#[test]
fn a_snap_that_failed_before_is_forgiven_and_one_that_does_not_run_is_not_stopped() {
    let bundle = ubuntu_bundle();
    let machine = FakeNode::new(&bundle);
    expect_converged(&machine.apply(&bundle, 0).expect("runs"), "first");
    let log = machine.disk.log();
    assert!(log.iter().any(|line| line.contains("unit reset snap.kubelet-eks.daemon.service")), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("snap stop")), "{log:#?}");
}

#[test]
fn what_snapd_says_no_to_leaves_the_gate_shut_and_is_named() {
    let bundle = ubuntu_bundle();
    type Refuse = fn(&'static str, &str) -> SnapError;
    let cases: [(&'static str, &str, Refuse, ErrorClass, &str); 3] = [
        (
            "setting",
            "configure-snap-kubelet-eks",
            |operation, what| SnapError::Change {
                operation,
                what: what.to_owned(),
                change: "7".to_owned(),
                status: "Error".to_owned(),
                message: "run hook \"configure\": bad flag".to_owned(),
            },
            ErrorClass::Transient,
            "bad flag",
        ),
        (
            "alias",
            "alias-snap-apps",
            |operation, what| SnapError::NotFound {
                operation,
                what: what.to_owned(),
                message: "no such snap".to_owned(),
            },
            ErrorClass::NeedsOperator,
            "no such snap",
        ),
        (
            "alias",
            "alias-snap-apps",
            |operation, what| SnapError::Busy {
                operation,
                what: what.to_owned(),
                message: "has changes in progress".to_owned(),
            },
            ErrorClass::Transient,
            "in progress",
        ),
    ];
    for (verb, wanted_step, refuse, wanted_class, wanted_text) in cases {
        let machine = FakeNode::new(&bundle);
        machine.snaps.refuse(verb, refuse);
        let report = machine.apply(&bundle, 0).expect("runs");
        let RunOutcome::Failed { step, class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
        assert_eq!((step.0.as_str(), *class), (wanted_step, wanted_class));
        assert!(message.contains(wanted_text), "{message}");
        assert!(!machine.gate_is_open());
        machine.snaps.heal();
        expect_converged(&machine.apply(&bundle, 1).expect("runs"), "healed");
    }
}
