use super::*;

const UUID: &str = "/sys/class/dmi/id/product_uuid";
const MACHINE_ID: &str = "/etc/machine-id";

/// The example's bundle with one word of its specification changed, beside the node.
fn changed(from: &str, to: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml");
    std::fs::write(&spec, text(example("minimal.yaml")).replace(from, to)).unwrap();
    let bundle = folder.path().join("bundle.json").display().to_string();
    let rendered = nodestrap(["render", &spec.display().to_string(), "--format=bundle"]).expect(0).out;
    std::fs::write(&bundle, rendered).unwrap();
    (folder, bundle)
}

fn on_metal() -> Sandbox {
    let sandbox = Sandbox::delivered();
    sandbox.write(UUID, "02aab8a4-74ef-476e-8182-f6d2ba4166a6\n");
    sandbox.write(MACHINE_ID, "0123456789abcdef0123456789abcdef\n");
    sandbox.run("apply", &["--progress=none"]).expect(0);
    sandbox
}

fn copy_to_another_machine(sandbox: &Sandbox) {
    sandbox.write(UUID, "7c1b0f52-5f0e-4a5d-9f43-3c9d8c6f2f11\n");
    sandbox.write(MACHINE_ID, "fedcba9876543210fedcba9876543210\n");
}

#[test]
fn another_clusters_bundle_is_refused_and_changes_neither_the_node_nor_its_own_bundle() {
    let sandbox = Sandbox::applied();
    let (before, own) = (sandbox.without_story(), text(sandbox.path(BUNDLE)));
    let (_folder, other) = changed("name: demo", "name: other");
    let ran = sandbox.run("apply", &["--bundle", &other, "--progress=none"]).expect(4);
    ran.says(&["check-bundle", "cluster \"demo\"", "cluster \"other\"", "reset first"]);
    assert_eq!(ran.out, "nothing was changed; the gate is open\n");
    assert_eq!((sandbox.without_story(), text(sandbox.path(BUNDLE))), (before, own));
    let status = sandbox.run("status", &[]).expect(0);
    assert!(status.out.contains("complete; the kubelet is asking"), "{}", status.out);
    assert!(status.out.contains("failed at check-bundle: this node is complete as a worker"), "{}", status.out);
    sandbox.run("gate", &[]).expect(0);
    sandbox.run("plan", &["--bundle", &other]).expect(4);
    assert!(sandbox.run("apply", &[]).expect(0).out.contains("nothing to do"));
}

#[test]
fn a_refusal_without_a_plan_tells_of_a_gate_that_is_shut() {
    let sandbox = Sandbox::applied();
    sandbox.remove(GATE);
    let (_folder, other) = changed("name: demo", "name: other");
    let ran = sandbox.run("apply", &["--bundle", &other, "--progress=none"]).expect(4);
    assert_eq!(ran.out, "nothing was changed; the gate is shut\n");
    let bare = Sandbox::delivered();
    bare.write(BUNDLE, "{}");
    let ran = bare.run("apply", &["--progress=none"]).expect(2);
    assert_eq!(ran.out, "nothing was changed; the gate is shut\n");
}

#[test]
fn a_copied_disk_starts_no_kubelet_and_can_be_adopted() {
    let sandbox = on_metal();
    copy_to_another_machine(&sandbox);
    let before = sandbox.without_story();
    sandbox.run("gate", &[]).expect(4).says(&["the kubelet does not start", "another machine", "apply --adopt"]);
    sandbox.run("apply", &[]).expect(4).says(&["02aab8a4…", "7c1b0f52…", "nodestrap reset", "apply --adopt"]);
    let status = sandbox.run("status", &[]).expect(4);
    assert!(status.out.contains("this disk is that of a node on another machine"), "{}", status.out);
    assert_eq!(sandbox.without_story(), before);
    sandbox.run("apply", &["--adopt"]).expect(0);
    sandbox.run("gate", &[]).expect(0);
    sandbox.run("status", &[]).expect(0);
    assert!(sandbox.run("apply", &[]).expect(0).out.contains("nothing to do"));
}

#[test]
fn a_copied_disk_is_a_node_of_its_own_after_a_reset() {
    let sandbox = on_metal();
    copy_to_another_machine(&sandbox);
    sandbox.run("reset", &["--yes", "--kubelet-state"]).expect(0);
    sandbox.run("apply", &[]).expect(0);
    sandbox.run("gate", &[]).expect(0);
}

#[test]
fn a_machine_that_got_a_new_board_keeps_its_kubelet_with_a_word() {
    let sandbox = on_metal();
    sandbox.write(UUID, "7c1b0f52-5f0e-4a5d-9f43-3c9d8c6f2f11\n");
    sandbox.run("gate", &[]).expect(0).says(&["the product uuid of this machine has changed"]);
    sandbox.write(MACHINE_ID, "uninitialized\n");
    sandbox.write(UUID, "03000200-0400-0500-0006-000700080009\n");
    let ran = sandbox.run("gate", &[]).expect(0);
    assert_eq!(ran.err, "", "nothing is known, and nobody is accused");
}

#[test]
fn a_bundle_given_by_hand_becomes_the_nodes_own() {
    let sandbox = Sandbox::applied();
    let (_folder, given) = changed("10.0.0.10", "10.0.0.20");
    sandbox.run("apply", &["--bundle", &given, "--progress=none"]).expect(0);
    assert_eq!((text(sandbox.path(BUNDLE)), sandbox.mode(BUNDLE)), (text(&given), 0o600));
    let whole = sandbox.tree();
    // As the bootstrap unit runs it at the next boot.
    assert!(sandbox.run("apply", &[]).expect(0).out.contains("nothing to do"));
    let status = sandbox.run("status", &["-o", "json"]).expect(0).json();
    assert_eq!(status["bundleSource"], BUNDLE);
    assert!(status["summary"].as_str().unwrap().contains("10.0.0.20"), "{status}");
    // And a damaged gate is mended to it.
    sandbox.write(GATE, "");
    sandbox.run("gate", &[]).expect(3);
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(sandbox.tree(), whole);
}

#[test]
fn a_bundle_given_by_hand_that_cannot_be_applied_does_not_become_the_nodes_own() {
    let sandbox = Sandbox::applied();
    let own = text(sandbox.path(BUNDLE));
    let (_folder, given) = changed("10.0.0.10", "10.0.0.20");
    sandbox.remove("/usr/bin/kubelet");
    let ran = sandbox.run("apply", &["--bundle", &given, "--progress=none"]).expect(4);
    ran.says(&["/usr/bin/kubelet"]);
    assert!(ran.out.contains("the gate is open"), "it is open from before: {}", ran.out);
    assert_eq!(text(sandbox.path(BUNDLE)), own);
}
