use super::*;

const CONFIG: &str = "/etc/kubernetes/kubelet.yaml";
const SECRET: &str = "/etc/kubernetes/bootstrap-kubelet.kubeconfig";

/// Each difference as `subject what found`, the same in every form; touches nothing.
fn drift(sandbox: &Sandbox, code: i32) -> Vec<String> {
    let before = sandbox.snapshot();
    let json = agree(|format| sandbox.run("verify", &["-o", format]), code);
    let shown = sandbox.run("verify", &[]).expect(code).out;
    assert_eq!(sandbox.snapshot(), before, "verify touches nothing");
    let word = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let findings = json["drift"].as_array().unwrap();
    for finding in findings {
        assert!(shown.contains(&word(finding, "subject")) && shown.contains(&word(finding, "found")), "{shown}");
    }
    let line = |one| format!("{} {} {}", word(one, "subject"), word(one, "what"), word(one, "found"));
    findings.iter().map(line).collect()
}

#[test]
fn a_node_as_it_was_made_has_not_drifted() {
    let sandbox = Sandbox::applied();
    assert_eq!(drift(&sandbox, 0), [""; 0]);
    let shown = sandbox.run("verify", &[]).expect(0).out;
    assert!(shown.starts_with("✓ nothing drifted: 12 files, 6 units and the gate"), "{shown}");
}

#[test]
fn every_kind_of_difference_is_found_and_apply_mends_them() {
    let sandbox = Sandbox::applied();
    let yaml = text(sandbox.path(CONFIG));
    sandbox.write(CONFIG, yaml.replace("10.96.0.10", "10.96.0.99"));
    sandbox.chmod("/etc/containerd/config.toml", 0o600);
    sandbox.remove("/etc/sysctl.d/90-nodestrap.conf");
    sandbox.write("/etc/kubernetes/.kubelet.yaml.nodestrap-new", "half");
    sandbox.remove("/etc/systemd/system/multi-user.target.wants/kubelet.service");
    sandbox.remove(GATE);
    assert_eq!(
        drift(&sandbox, 4),
        [
            "/etc/kubernetes/kubelet.env gate absent: shut",
            "/etc/containerd/config.toml mode 0600",
            "/etc/kubernetes/kubelet.yaml leftover a temporary file of an interrupted write",
            "/etc/kubernetes/kubelet.yaml content 1 value differs",
            "/etc/sysctl.d/90-nodestrap.conf presence nothing",
            "kubelet.service enabled does not",
        ]
    );
    let shown = sandbox.run("verify", &[]).expect(4).out;
    assert!(shown.contains("clusterDNS: 10.96.0.10 → 10.96.0.99"), "{shown}");
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(drift(&sandbox, 0), [""; 0]);
}

#[test]
fn a_secret_is_never_shown() {
    let sandbox = Sandbox::applied();
    sandbox.write(SECRET, text(sandbox.path(SECRET)).replace(support::TOKEN_OF_EXAMPLE, "canary-of-the-thief"));
    sandbox.chmod(SECRET, 0o600);
    assert_eq!(drift(&sandbox, 4), [format!("{SECRET} content other content")]);
    for format in ["text", "json", "yaml"] {
        let ran = sandbox.run("verify", &["-o", format]).expect(4);
        for secret in [support::TOKEN_OF_EXAMPLE, "canary-of-the-thief"] {
            assert!(!ran.out.contains(secret) && !ran.err.contains(secret), "{}", ran.out);
        }
    }
}

#[test]
fn a_gate_of_another_bundle_or_a_damaged_one_is_told() {
    let sandbox = Sandbox::applied();
    sandbox.write(GATE, "KUBELET_ARGS=\"--forged\"\n");
    assert!(drift(&sandbox, 4)[0].starts_with(&format!("{GATE} gate damaged: ")));
    let sandbox = Sandbox::applied();
    sandbox.deliver(&other_bundle());
    let found = drift(&sandbox, 4);
    assert!(found[0].contains("for another bundle"), "{found:?}");
}

#[test]
fn units_that_are_masked_and_drop_ins_of_somebody_else_are_told() {
    let sandbox = Sandbox::applied();
    sandbox.write("/etc/systemd/system/kubelet.service.d/50-mine.conf", "[Service]\nNice=5\n");
    assert_eq!(drift(&sandbox, 0), [""; 0]);
    let shown = sandbox.run("verify", &[]).expect(0).out;
    assert!(shown.contains("note: kubelet.service is changed by /etc/systemd/system/kubelet.service.d/50-mine.conf"));
    std::os::unix::fs::symlink("/dev/null", sandbox.path("/etc/systemd/system/containerd.service")).unwrap();
    assert_eq!(drift(&sandbox, 4), ["containerd.service active masked"]);
}

#[test]
fn without_a_bundle_there_is_nothing_to_compare_with() {
    Sandbox::image().run("verify", &[]).expect(2).says(&["there is no bundle"]);
}
