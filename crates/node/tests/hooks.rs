//! What a bundle asks for beyond files: the order of units, hooks in their slots, and what is refused.
mod support;

use std::path::Path;

use bundle::Bundle;
use engine::{Condition, ErrorClass, Plan, RunOutcome, StepOutcome, Style, Timeline};
use host::disk::Disk as _;
use host::fake::{Crash, Moment};
use host::units::{JobResult, UnitName, Units};
use node::Action;

use support::{FakeNode, HOOKS, bundle, expect_converged, hook_unit, render, rich_bundle};

fn plan(bundle: &Bundle) -> Plan<Action> {
    node::prepare(&FakeNode::new(bundle).host(), bundle).expect("a plan").1
}

/// All that must be done before a step, however far back.
fn all_needs(plan: &Plan<Action>, id: &str) -> Vec<String> {
    let mut todo = vec![id.to_owned()];
    let mut found = Vec::new();
    while let Some(next) = todo.pop() {
        let step = plan.steps.iter().find(|step| step.id.0 == next).unwrap_or_else(|| panic!("no step {next}"));
        for need in &step.needs {
            if !found.contains(&need.0) {
                found.push(need.0.clone());
                todo.push(need.0.clone());
            }
        }
    }
    found
}

#[track_caller]
fn assert_chain(plan: &Plan<Action>, steps: &[&str]) {
    for pair in steps.windows(2) {
        let [before, after] = pair else { unreachable!("windows of two") };
        assert!(all_needs(plan, after).iter().any(|need| need == before), "{after} does not wait for {before}");
    }
}

fn started_since_boot(node: &FakeNode) -> Vec<String> {
    node.units.jobs().into_iter().map(|unit| unit.0).collect()
}

#[test]
fn hooks_run_in_their_slots_and_units_in_the_order_of_the_bundle() {
    let bundle = rich_bundle();
    assert_chain(
        &plan(&bundle),
        &[
            "check-bundle",
            "stage-files",
            "close-gate",
            "commit-hooks",
            "reload-hooks",
            "run-hook-first",
            "commit-files",
        ],
    );
    assert_chain(
        &plan(&bundle),
        &[
            "verify-files",
            "run-hook-second",
            "start-nodestrap-kernel",
            "run-hook-third",
            "start-containerd",
            "run-hook-fourth",
            "start-runs",
            "run-hook-fifth-a",
            "run-hook-fifth-b",
            "arm-kubelet",
            "open-gate",
            "release-kubelet",
            "run-hook-sixth",
        ],
    );
    for order in 0..20 {
        let node = FakeNode::new(&bundle);
        expect_converged(&node.apply(&bundle, order).expect("runs"), "first");
        let jobs = started_since_boot(&node);
        let hooks: Vec<&str> = jobs.iter().filter_map(|unit| unit.strip_prefix("nodestrap-hook-")).collect();
        let expected: Vec<String> = HOOKS.iter().map(|(name, _)| format!("{name}.service")).collect();
        assert_eq!(hooks, expected, "{jobs:?}");
        let place = |unit: &str| jobs.iter().position(|job| job == unit).unwrap_or_else(|| panic!("no {unit}"));
        assert!(place("nodestrap-kernel.service") < place("containerd.service"), "{jobs:?}");
        assert!(place("containerd.service") < place("ends.service").min(place("runs.service")), "{jobs:?}");
    }
}

#[test]
fn a_bundle_without_hooks_has_no_steps_for_them() {
    let plan = plan(&bundle());
    assert!(plan.steps.iter().all(|step| !step.id.0.contains("hook")));
}

#[test]
fn a_hook_that_was_done_is_not_run_again_and_one_that_was_cut_off_is() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&hook_unit("fifth-a"), JobResult::Canceled);
    let report = node.apply(&bundle, 0).expect("runs");
    let RunOutcome::Failed { step, class, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((step.0.as_str(), *class), ("run-hook-fifth-a", ErrorClass::Transient));
    node.units.end_jobs_with(&hook_unit("fifth-a"), JobResult::Done);
    let node = node.after(Crash::ProcessKill, 0);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "resumed");
    for (name, _) in HOOKS {
        assert_eq!(node.units.runs(&hook_unit(name)), 1, "{name}");
    }
}

#[test]
fn a_required_hook_that_fails_keeps_the_gate_shut_and_is_named_with_what_to_do() {
    for (name, slot) in HOOKS {
        let bundle = rich_bundle();
        let node = FakeNode::new(&bundle);
        node.units.end_jobs_with(&hook_unit(name), JobResult::Failed);
        let report = node.apply(&bundle, 0).expect("runs");
        let RunOutcome::Failed { step, class, message, advice } = &report.outcome else { panic!("{name} passes") };
        assert_eq!((step.0.clone(), *class), (format!("run-hook-{name}"), ErrorClass::Permanent));
        assert!(message.contains(name) && message.contains(slot) && message.contains("exit-code"), "{message}");
        assert!(advice.as_ref().is_some_and(|advice| advice.contains("optional")), "{advice:?}");
        let is_late = slot == "after-kubelet";
        assert_eq!(node.gate_is_open(), is_late, "{name}");
        assert_eq!(message.contains("the gate is open"), is_late, "{message}");
        if slot == "before-files" {
            let staged = bundle.files.iter().filter(|file| !file.path.contains("hook"));
            let found =
                staged.filter(|file| host::disk::Disk::stat(&node.disk, file.path.as_ref()).expect("stat").is_some());
            assert_eq!(found.count(), 0, "a file was switched in before the hook");
        }
        node.units.end_jobs_with(&hook_unit(name), JobResult::Done);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), name);
        assert!(node.gate_is_open());
    }
}

#[test]
fn an_optional_hook_that_fails_is_told_of_and_the_node_goes_on() {
    let hook = "  hooks: [{name: extra, slot: before-kubelet, necessity: optional, unit: ExecStart=/bin/false}]\n";
    let bundle = render("", hook);
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&hook_unit("extra"), JobResult::Failed);
    let report = node.apply(&bundle, 0).expect("runs");
    assert_eq!(report.outcome, RunOutcome::Done);
    let step = report.step("run-hook-extra").expect("in the plan");
    assert_eq!(step.outcome, StepOutcome::Done);
    let note = step.detail.as_deref().expect("a word about it");
    assert!(note.contains("optional hook \"extra\"") && note.contains("exit-code"), "{note}");

    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("status");
    assert!(status.blocked.is_none());
    assert_eq!(status.notes.len(), 1, "{:?}", status.notes);
    assert!(status.notes[0].contains("run-hook-extra") && status.notes[0].contains("exit-code"), "{:?}", status.notes);
    let (events, _) = node::load_events(&node.disk).expect("a journal");
    let timeline = Timeline::from_events(&events).to_text(100, Style::Plain);
    assert!(timeline.contains("! run-hook-extra: optional hook"), "{timeline}");
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn what_an_earlier_run_noted_is_not_forgotten_by_the_one_that_resumes() {
    let hooks = "  hooks:\n    \
                 - {name: a, slot: before-kubelet, necessity: optional, unit: ExecStart=/bin/false}\n    \
                 - {name: b, slot: before-kubelet, unit: ExecStart=/bin/true}\n";
    let bundle = render("", hooks);
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&hook_unit("a"), JobResult::Failed);
    node.units.end_jobs_with(&hook_unit("b"), JobResult::Failed);
    node.apply(&bundle, 0).expect("runs");
    node.units.end_jobs_with(&hook_unit("b"), JobResult::Done);
    let report = node.apply(&bundle, 0).expect("runs");
    assert_eq!(report.outcome, RunOutcome::Done);
    let noted = report.step("run-hook-a").expect("in the plan");
    assert_eq!((noted.outcome, noted.done_in_run), (StepOutcome::AlreadySo, Some(1)));
    assert!(noted.detail.as_deref().is_some_and(|detail| detail.contains("optional hook")), "{noted:?}");
}

#[test]
fn status_names_a_required_hook_that_failed_after_the_gate_was_open() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&hook_unit("sixth"), JobResult::Timeout);
    node.apply(&bundle, 0).expect("runs");
    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("status");
    let blocked = status.blocked.expect("blocked");
    assert_eq!((blocked.by.as_str(), blocked.class), ("run-hook-sixth", ErrorClass::Permanent));
    assert_eq!(status.gate, "open");
}

#[test]
fn a_unit_of_the_user_without_an_install_section_is_started_and_not_enabled() {
    let unit =
        "  units: [{name: once.service, enabled: true, content: \"[Service]\\nType=oneshot\\nExecStart=/bin/x\\n\"}]\n";
    let bundle = render("", unit);
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let once = UnitName("once.service".to_owned());
    assert_eq!(node.units.runs(&once), 1);
    assert!(!node.units.state(&once).expect("known").enabled);
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

/// Shown by `plan`, refused by `apply`, and nothing but the journal of the refusal is written.
#[track_caller]
fn assert_refused(bundle: &Bundle, os_release: &str, words: &[&str]) {
    let node = FakeNode::new(bundle);
    let image = node.disk.uncounted();
    host::files::write_durable(&image, "/etc/os-release".as_ref(), 0o644, os_release.as_bytes(), None)
        .expect("written");
    // The journal tells of the refusal; its folder is no part of the tree, but those above it are.
    host::disk::Disk::make_folder(&image, "/var/lib".as_ref(), 0o755).expect("made");
    let before = node.tree();
    let (_, plan) = node::prepare(&node.host(), bundle).expect("a plan");
    let first = &plan.steps[0];
    assert_eq!(first.id.0, "check-bundle");
    let report = node.apply(bundle, 3).expect("runs");
    let RunOutcome::Failed { step, class, message, advice } = &report.outcome else { panic!("it is not refused") };
    assert_eq!((step, *class), (&first.id, ErrorClass::Permanent));
    let said = format!("{message} {}", advice.as_deref().unwrap_or_default());
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    assert_eq!(node.tree(), before, "something was written");
}

const DEBIAN: &str = "ID=debian\nVERSION_ID=12\nPRETTY_NAME=Debian\n";

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let mut installed = bundle();
    installed.runtime.source = bundle::RuntimeSource::Torcx;
    assert_refused(&installed, DEBIAN, &["\"torcx\"", "preinstalled"]);
    let mut unfilled = bundle();
    unfilled.gate.facts = [bundle::GateFact::NodeIp, bundle::GateFact::MaxPods].into();
    assert_refused(&unfilled, DEBIAN, &["NODE_IP", "INSTANCE_TYPE"]);
    let mut both = installed;
    both.gate.facts = unfilled.gate.facts;
    assert_refused(&both, DEBIAN, &["\"torcx\"", "NODE_IP"]);
}

#[test]
fn a_bundle_for_another_system_is_refused_and_an_unknown_system_is_a_remark() {
    let bundle = bundle();
    assert_eq!(bundle.node.os, bundle::Os::Debian);
    let flatcar = "ID=flatcar\nVERSION_ID=4081.2.0\nPRETTY_NAME=\"Flatcar Container Linux\"\n";
    assert_refused(&bundle, flatcar, &["for debian", "runs flatcar", "os: flatcar"]);
    let mut for_rhcos = bundle.clone();
    for_rhcos.node.os = bundle::Os::Rhcos;
    assert_refused(&for_rhcos, "ID=rhel\nVERSION_ID=9.4\n", &["for rhcos", "runs rhel"]);

    let node = FakeNode::new(&bundle);
    let image = node.disk.uncounted();
    host::files::write_durable(&image, "/etc/os-release".as_ref(), 0o644, b"ID=nixos\n", None).expect("written");
    let report = node.apply(&bundle, 0).expect("runs");
    expect_converged(&report, "nixos");
    let remark = report.step("check-bundle").and_then(|step| step.detail.clone()).expect("a remark");
    assert!(remark.contains("nixos") && remark.contains("debian"), "{remark}");
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn a_control_plane_can_be_applied() {
    let bundle = render("  pki: {folder: pki}\n", "  role: control-plane\n");
    assert_eq!(bundle.node.role, bundle::Role::ControlPlane);
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "control plane");
    node.assert_gate_tells_the_truth(&bundle, "control plane");
    let manifests = bundle.files.iter().filter(|file| file.path.starts_with("/etc/kubernetes/manifests/"));
    assert!(manifests.count() >= 4, "{:?}", bundle.files);
    let (facts, plan) = node::prepare(&node.host(), &bundle).expect("a plan");
    let clock = support::clock();
    let previews = node::preview(&node.host(), &bundle, &facts, &plan, &clock).expect("a preview");
    assert!(previews.iter().all(|preview| preview.condition == Ok(Condition::AlreadySo)));
}

#[test]
fn what_a_hook_wrote_is_durable_before_the_hook_counts_as_done() {
    let bundle = rich_bundle();
    let written = Path::new("/opt/made-by-a-hook");
    let (mut done, mut torn) = (0, 0);
    let before = FakeNode::new(&bundle).disk.operations();
    let effects = {
        let node = FakeNode::new(&bundle);
        node.apply(&bundle, 0).expect("runs");
        node.disk.operations() - before
    };
    for at in 1..=effects {
        let node = FakeNode::new(&bundle);
        // On a file system that nodestrap itself never touches.
        node.disk.mount(Path::new("/opt")).expect("mounted");
        node.units.write(&hook_unit("first"), written, "precious");
        node.disk.crash_point().crash_at(node.disk.operations() + at, Moment::After);
        let _ = node.apply(&bundle, 0);
        let runs = node.units.runs(&hook_unit("first"));
        let node = node.after(Crash::PowerLoss, at);
        let found = node.disk.read(written, 100).expect("readable");
        torn += u32::from(runs > 0 && found.as_deref() != Some(b"precious"));
        node.apply(&bundle, 0).expect("runs");
        // Either it ran again, or all that it wrote before is there.
        if node.units.runs(&hook_unit("first")) == runs {
            done += 1;
            assert_eq!(found.as_deref(), Some(&b"precious"[..]), "effect {at}: done, but not durable");
        }
    }
    assert!(done > 0 && torn > 0, "{done} of {effects} cuts came after the hook, {torn} tore its file");
}
