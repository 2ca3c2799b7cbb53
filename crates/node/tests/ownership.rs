//! Whose node this is: a complete node belongs to one cluster, group and role until it is reset.

mod support;

use bundle::{Bundle, File, Role};
use engine::{ErrorClass, RunOutcome};
use host::units::JobResult;
use node::{COMPLETE_PATH, Phase, ResetOptions};
use support::{FakeNode, HOOKS, clock, expect_converged, hook_unit, render, rich_bundle, surroundings};

const KEY: &str = "/etc/kubernetes/pki/apiserver.key";

/// The example as a control plane, with a key of its own.
fn control_plane() -> Bundle {
    let mut bundle = rich_bundle();
    bundle.node.role = Role::ControlPlane;
    bundle.files.push(File::secret(bundle::AbsolutePath::new(KEY.to_owned()).expect("a path"), "a key\n"));
    bundle.files.sort_by(|one, other| one.path.cmp(&other.path));
    bundle
}

fn others() -> [(&'static str, Bundle); 3] {
    let with = |change: fn(&mut Bundle)| {
        let mut other = rich_bundle();
        other.node.role = Role::ControlPlane;
        change(&mut other);
        other
    };
    [
        ("a worker", rich_bundle()),
        ("cluster \"other\"", with(|bundle| bundle.cluster = "other".to_owned())),
        ("group \"other\"", with(|bundle| bundle.group = "other".to_owned())),
    ]
}

fn runs(node: &FakeNode) -> Vec<u64> {
    HOOKS.iter().map(|(name, _)| node.units.runs(&hook_unit(name))).collect()
}

#[test]
fn a_bundle_of_another_cluster_group_or_role_is_refused_and_leaves_a_complete_node_as_it_is() {
    let own = control_plane();
    let node = FakeNode::new(&own);
    expect_converged(&node.apply(&own, 0).expect("runs"), "first");
    let (tree, jobs, hooks) = (node.tree(), node.units.jobs(), runs(&node));
    for (what, other) in others() {
        let report = node.apply(&other, 0).expect("runs");
        let RunOutcome::Failed { class, message, advice, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
        assert!(message.contains("this node is complete as a control-plane") && message.contains(what), "{message}");
        assert!(advice.as_ref().is_some_and(|advice| advice.starts_with("reset first")), "{advice:?}");
        assert_eq!(*class, ErrorClass::Permanent);
        assert!(node.gate_is_open());
        assert_eq!((node.tree(), node.units.jobs()), (tree.clone(), jobs.clone()), "{what}");
        // Neither its state nor what is remembered of it.
        let (status, _) = node::observe_status(&node.host(), Ok(own.clone().into())).expect("a status");
        assert_eq!((status.phase, status.blocked), (Phase::Joining, None), "{what}");
        assert_eq!(status.last_run.map(|report| report.outcome), Some(report.outcome.clone()), "{what}");
        assert_eq!(node.apply(&own, 0).expect("runs").outcome, RunOutcome::NothingToDo, "{what}");
        assert_eq!(runs(&node), hooks, "{what}");
    }
}

/// Torn, or of a release that knows more: the gate still says for whom it is open.
#[test]
fn without_its_record_a_node_is_known_by_its_gate() {
    let own = control_plane();
    for damaged in ["", "\0\0\0\0", "0000\n{}\n"] {
        let node = FakeNode::new(&own);
        expect_converged(&node.apply(&own, 0).expect("runs"), "first");
        let path = std::path::Path::new(COMPLETE_PATH);
        host::files::write_durable(&node.disk.uncounted(), path, 0o600, damaged.as_bytes(), None).expect("written");
        let tree = node.tree();
        for (what, other) in others().into_iter().skip(1) {
            let RunOutcome::Failed { message, advice, .. } = node.apply(&other, 0).expect("runs").outcome else {
                panic!("{what} was taken by a node of {}/{}", own.cluster, own.group);
            };
            assert!(
                message.contains(what) && advice.is_some_and(|advice| advice.starts_with("reset first")),
                "{message}"
            );
            assert!(node.gate_is_open());
            assert_eq!(node.tree(), tree, "{what}");
        }
        expect_converged(&node.apply(&own, 0).expect("runs"), "its own");
    }
}

#[test]
fn a_refused_delivery_is_named_by_status_beside_what_the_node_is() {
    let own = control_plane();
    let node = FakeNode::new(&own);
    expect_converged(&node.apply(&own, 0).expect("runs"), "first");
    let mut other = own.clone();
    other.cluster = "other".to_owned();
    let (status, _) = node::observe_status(&node.host(), Ok(other.into())).expect("a status");
    assert_eq!((status.phase, status.gate.as_str()), (Phase::Joining, "open"));
    assert_eq!(status.cluster.as_deref(), Some(own.cluster.as_str()));
    let blocked = status.blocked.expect("blocked");
    assert_eq!(blocked.by, "owner");
    assert!(blocked.advice.is_some_and(|advice| advice.starts_with("reset first")));
}

#[test]
fn after_a_reset_any_bundle_is_welcome() {
    let own = control_plane();
    for (what, other) in others() {
        let node = FakeNode::new(&own);
        expect_converged(&node.apply(&own, 0).expect("runs"), "first");
        let clock = clock();
        let reset = node::reset(&node.host(), Some(&own), ResetOptions::default(), &surroundings(&clock, 0));
        expect_converged(&reset.expect("it runs").0.expect("a report"), "reset");
        assert_eq!(node::load_complete(&node.disk).expect("readable"), None);
        expect_converged(&node.apply(&other, 0).expect("runs"), what);
    }
}

#[test]
fn a_node_that_was_never_complete_belongs_to_nobody() {
    let own = control_plane();
    let node = FakeNode::new(&own);
    node.units.end_jobs_with(&hook_unit("first"), JobResult::Failed);
    assert!(matches!(node.apply(&own, 0).expect("runs").outcome, RunOutcome::Failed { .. }));
    expect_converged(&node.apply(&render("", ""), 0).expect("runs"), "another bundle");
}

fn of_release(role: Role, version: &str) -> Bundle {
    let mut bundle = rich_bundle();
    (bundle.node.role, bundle.kubernetes_version) = (role, version.to_owned());
    bundle
}

/// Whether a node that is complete with one release accepts another, and what it says if not.
fn follows(role: Role, from: &str, to: &str, api_server: &str) -> Result<(), String> {
    let own = of_release(role, from);
    let node = FakeNode::new(&own);
    expect_converged(&node.apply(&own, 0).expect("runs"), "first");
    let says = |facts: &mut node::Facts| facts.api_server_version.value = api_server.to_owned();
    let report = node.apply_with(&of_release(role, to).into(), 0, says).expect("runs");
    match report.outcome {
        RunOutcome::Failed { message, .. } => Err(message),
        _ => Ok(()),
    }
}

#[test]
fn a_control_plane_goes_up_one_minor_release_at_a_time_and_never_down() {
    for to in ["1.35.4", "1.35.0", "1.36.1"] {
        assert_eq!(follows(Role::ControlPlane, "1.35.2", to, ""), Ok(()), "{to}");
    }
    for to in ["1.34.4", "1.37.0", "2.0.0"] {
        let refusal = follows(Role::ControlPlane, "1.35.2", to, "").expect_err(to);
        assert!(refusal.contains("runs Kubernetes 1.35.2") && refusal.contains(to), "{refusal}");
    }
}

#[test]
fn a_worker_is_never_above_an_api_server_that_is_known() {
    for (to, api_server) in [("1.36.1", "v1.36.0"), ("1.34.4", "v1.34.1"), ("1.36.1", ""), ("1.36.1", "unknown")] {
        assert_eq!(follows(Role::Worker, "1.35.2", to, api_server), Ok(()), "{to} {api_server}");
    }
    let refusal = follows(Role::Worker, "1.35.2", "1.36.1", "v1.35.9-eks-1").expect_err("newer");
    assert!(refusal.contains("the API server runs v1.35.9-eks-1"), "{refusal}");
    // The way back is open, whatever the API server is by now.
    assert_eq!(follows(Role::Worker, "1.36.1", "1.36.1", "v1.35.9"), Ok(()));
}
