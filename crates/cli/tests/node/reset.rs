use super::*;

const CONTAINERD: &str = "/etc/containerd/config.toml";

/// What lies in the sandbox, without what tells of runs.
fn bare(sandbox: &Sandbox) -> std::collections::BTreeMap<String, String> {
    let mut tree = support::entries(sandbox.root(), support::Times::Ignored);
    tree.retain(|path, _| !path.starts_with("/run") && path != "/var" && path != "/var/lib");
    tree
}

#[test]
fn a_reset_leaves_the_machine_as_it_was() {
    let sandbox = Sandbox::delivered();
    sandbox.write(CONTAINERD, "version = 1 # mine\n");
    sandbox.chmod(CONTAINERD, 0o640);
    let before = bare(&sandbox);
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(sandbox.mode("/var/lib/nodestrap/before"), 0o700);
    assert_eq!(sandbox.mode("/var/lib/nodestrap/before/record.json"), 0o600);
    let applied = sandbox.snapshot();
    let shown = sandbox.run("reset", &["--dry-run"]).expect(0).out;
    assert!(shown.contains(&format!("put back  {CONTAINERD}")) && shown.contains("stop-kubelet"), "{shown}");
    let plan = agree(|format| sandbox.run("reset", &["--dry-run", "-o", format]), 0);
    assert_eq!(plan["plan"]["steps"][1]["id"], "close-gate");
    sandbox.run("reset", &[]).expect(2).says(&["--yes", "--dry-run"]);
    assert_eq!(sandbox.snapshot(), applied, "neither touches anything");

    let ran = sandbox.run("reset", &["--yes", "--progress=plain"]).expect(0);
    assert!(ran.out.contains("undone") && ran.out.contains("bundle.json stays"), "{}", ran.out);
    assert!(ran.err.ends_with("what nodestrap made is gone\n"), "{}", ran.err);
    assert_eq!(bare(&sandbox), before);
    let again = sandbox.run("reset", &["--yes"]).expect(0).out;
    assert!(again.contains("nothing to undo"), "{again}");
    sandbox.run("status", &[]).expect(0);
    sandbox.run("apply", &[]).expect(0);
    sandbox.run("verify", &[]).expect(0);
}

#[test]
fn what_somebody_changed_needs_a_word() {
    let sandbox = Sandbox::applied();
    sandbox.write("/etc/kubernetes/kubelet.yaml", "maxPods: 7\n");
    sandbox.run("reset", &["--yes"]).expect(4).says(&["check-changes", "/etc/kubernetes/kubelet.yaml", "--force"]);
    sandbox.run("gate", &[]).expect(0);
    let ran = sandbox.run("reset", &["--yes", "--force"]).expect(0);
    assert!(ran.out.contains("/var/lib/nodestrap-saved/etc/kubernetes/kubelet.yaml"), "{}", ran.out);
    assert_eq!(text(sandbox.path("/var/lib/nodestrap-saved/etc/kubernetes/kubelet.yaml")), "maxPods: 7\n");
    assert!(!sandbox.exists("/etc/kubernetes/kubelet.yaml"));
}

#[test]
fn what_is_said_of_the_delivery_is_what_apply_then_does() {
    let sandbox = Sandbox::applied();
    let mut bundle = bundle::Bundle::parse(text(sandbox.path(BUNDLE)).as_bytes()).unwrap();
    let joins_with = bundle.file(&bundle.join.bootstrap_kubeconfig).unwrap().clone();
    // As after joining.
    sandbox.write(&bundle.join.client_certificate, PEM);
    sandbox.write(&bundle.join.kubeconfig, joins_with.content.text().unwrap());
    assert!(bundle.spend(joins_with.sha256()));
    sandbox.write(BUNDLE, bundle.to_json());
    let said = sandbox.run("reset", &["--yes"]).expect(0).out;
    assert!(said.contains("makes this a node again") && !said.contains("spent"), "{said}");
    sandbox.run("apply", &[]).expect(0);
    let said = sandbox.run("reset", &["--yes", "--kubelet-state"]).expect(0).out;
    assert!(said.contains("are spent") && said.contains("deliver the bundle again"), "{said}");
    assert!(!said.contains("nodestrap apply, makes this a node again"), "{said}");
    sandbox.run("apply", &[]).expect(4).says(&["were spent when it joined"]);
}

#[test]
fn works_without_root_on_a_folder() {
    let sandbox = Sandbox::for_nobody();
    let before = bare(&sandbox);
    sandbox.run_as_nobody("apply", &[]).expect(0);
    sandbox.run_as_nobody("reset", &["--yes"]).expect(0);
    assert_eq!(bare(&sandbox), before);
}

#[test]
fn a_marker_makes_apply_end_with_ten_and_another_boot_goes_on() {
    let sandbox = Sandbox::delivered();
    sandbox.write("/run/reboot-required", "*** System restart required ***\n");
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(10);
    assert!(ran.out.contains("rebooting: /run/reboot-required is there"), "{}", ran.out);
    assert!(ran.err.ends_with("rebooting; resumes by itself\n"), "{}", ran.err);
    let json = agree(|format| sandbox.run("status", &["-o", format]), 0);
    assert_eq!(json["phase"], "rebooting");
    assert_eq!(json["lastRun"]["outcome"]["rebooting"]["step"], "reboot-if-required");
    assert!(!sandbox.exists(GATE));
    // The same boot: asked again, never taken for done.
    sandbox.remove("/run/reboot-required");
    sandbox.run("apply", &[]).expect(10);
    sandbox.write("/run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000002\n");
    sandbox.run("apply", &[]).expect(0);
    sandbox.run("gate", &[]).expect(0);
}
