//! What is wrong is named, the kubelet does not join, and the exit code says what kind of wrong it is.

use lab::{LabOptions, Node, WorkerSpec};
use pki::Authority;

use crate::support::{PATIENCE, lab, node, nodestrap, status, user_data, wait_for_gate};

fn expect_status(machine: &Node, code: i32, words: &[&str]) {
    let output = status(machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
}

#[test]
fn a_wrong_token_a_wrong_authority_and_a_broken_bundle_are_each_named() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let good = WorkerSpec::of(&lab);

    let bad_token = WorkerSpec { token: "abcdef.0123456789abcdef".to_owned(), ..good.clone() };
    let machine = lab.add_node(node("bad-token", &user_data(&bad_token))).expect("boots");
    wait_for_gate(&machine).expect("the bootstrap itself succeeds");
    expect_status(&machine, 4, &["refuses the bootstrap token", "make a new token"]);

    let stranger = Authority::create("somebody else", around_now()).expect("an authority");
    let bad_authority = WorkerSpec { authority_pem: stranger.certificate_pem().to_owned(), ..good.clone() };
    let machine = lab.add_node(node("bad-ca", &user_data(&bad_authority))).expect("boots");
    wait_for_gate(&machine).expect("the bootstrap itself succeeds");
    expect_status(&machine, 4, &["cannot be trusted", "certificate authority of the bundle"]);

    let broken = node("broken", &user_data(&good)).before_boot(|root| {
        // Delivered straight into the image, and damaged on the way; cloud-init has nothing to write then.
        std::fs::create_dir_all(root.join("etc/nodestrap"))?;
        std::fs::write(root.join("etc/nodestrap/bundle.json"), b"{\"apiVersion\":\"nodestrap.io/v1alpha2\"")?;
        std::fs::write(root.join("etc/cloud/cloud-init.disabled"), b"")?;
        Ok(())
    });
    let machine = lab.add_node(broken).expect("boots");
    machine
        .wait_until("the bootstrap has failed once", PATIENCE, |node| {
            Ok(node.journal("k8s-node-bootstrap.service").contains("cannot be used"))
        })
        .expect("it says that the bundle cannot be used");
    expect_status(&machine, 2, &["cannot be used", "render it again"]);
    // Else the unit, which tries again and again, may be at work, and the answer is "busy".
    machine.run(&["systemctl", "stop", "k8s-node-bootstrap.service"]).expect("stopped");
    let apply = machine.exec(&["nodestrap", "apply"]).expect("runs");
    assert_eq!(apply.status.code(), Some(2));
    assert!(!machine.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success(), "the kubelet must not run");

    let nodes = lab.kubectl(&["get", "nodes", "-o", "name"]).expect("nodes");
    assert_eq!(nodes.trim(), "", "nobody may have joined");
}

#[test]
fn a_worker_that_goes_up_a_release_asks_its_own_api_server_for_its_version() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let before = WorkerSpec { cluster: "kubernetesVersion: 1.35.0\n".to_owned(), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(node("n1", &user_data(&before))).expect("boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    let next = WorkerSpec::of(&lab).render(&nodestrap(), &["--format", "bundle"]).expect("rendered").bytes;
    std::fs::write(machine.path_from_outside("/opt/next.json").expect("it runs"), next).expect("written");
    let plan = machine.run(&["nodestrap", "plan", "--bundle", "/opt/next.json", "-o", "json"]).expect("a plan");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let runs = lab.kubectl_json(&["version"]).expect("the version of the server");
    assert_eq!(plan["facts"]["apiServerVersion"]["value"], runs["serverVersion"]["gitVersion"]);
}

/// Any time will do: the certificate is refused before its dates are looked at.
fn around_now() -> pki::Validity {
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    pki::Validity { start: now - day, lifetime: day * 2 }
}
