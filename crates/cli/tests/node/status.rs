use super::*;

/// Code, phase and summary, the same in every form.
fn at(sandbox: &Sandbox, code: i32, phase: &str, words: &str) -> Value {
    let before = sandbox.snapshot();
    let json = agree(|format| sandbox.run("status", &["-o", format]), code);
    assert_eq!(json["phase"], phase);
    let summary = json["summary"].as_str().unwrap();
    assert!(summary.contains(words), "{summary}");
    let text = sandbox.run("status", &[]).expect(code).out;
    assert!(text.lines().next().unwrap().ends_with(summary), "{text}");
    let brief = sandbox.run("status", &["--brief"]).expect(code).out;
    assert_eq!(brief, format!("{summary}\n"));
    assert_eq!(sandbox.snapshot(), before, "status touches nothing");
    json
}

#[test]
fn before_a_bundle_came() {
    let json = at(&Sandbox::image(), 2, "not-delivered", "no bundle was delivered");
    assert_eq!(json["blocked"]["by"], "bundle");
    assert!(json["blocked"]["advice"].as_str().unwrap().contains("nodestrap render"));
}

#[test]
fn with_a_bundle_that_cannot_be_used() {
    let sandbox = Sandbox::image();
    sandbox.deliver("{}");
    let json = at(&sandbox, 2, "bundle-broken", "cannot be used");
    assert_eq!(json["blocked"]["by"], "bundle");
}

#[test]
fn before_the_first_apply() {
    let json = at(&Sandbox::delivered(), 0, "not-started", "next: nodestrap apply");
    assert_eq!(json["gate"], "shut");
    assert_eq!(json["cluster"], "demo");
    assert_eq!(json["blocked"], Value::Null);
}

#[test]
fn after_a_failure_with_its_class_as_exit_code() {
    let sandbox = Sandbox::delivered();
    sandbox.remove("/usr/bin/kubelet");
    sandbox.run("apply", &[]).expect(4);
    let json = at(&sandbox, 4, "failed", "stopped at check-programs; the gate is shut");
    let blocked = &json["blocked"];
    assert_eq!(blocked["by"], "check-programs");
    assert!(blocked["reason"].as_str().unwrap().contains("/usr/bin/kubelet"));
    assert!(blocked["advice"].as_str().unwrap().contains("put them into the image"));
    assert!(blocked["since"].as_str().unwrap().ends_with('Z'));
    let text = sandbox.run("status", &[]).expect(4).out;
    for word in ["blocked by", "check-programs", "what to do", "since"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn after_a_run_that_was_cut_off() {
    let sandbox = Sandbox::applied();
    let journal = text(sandbox.path(JOURNAL));
    let lines: Vec<&str> = journal.lines().collect();
    sandbox.write(JOURNAL, format!("{}\n{}", lines[..8].join("\n"), &lines[8][..20]));
    sandbox.remove(GATE);
    let json = at(&sandbox, 0, "unfinished", "the next apply resumes");
    assert_eq!(json["gate"], "shut");
    sandbox.run("apply", &[]).expect(0).says(&["the last run was cut off; resuming"]);
}

#[test]
fn while_the_kubelet_joins_and_after() {
    let sandbox = Sandbox::applied();
    let json = at(&sandbox, 0, "joining", "is asking https://10.0.0.10:6443");
    assert_eq!((&json["gate"], &json["lastRun"]["outcome"]), (&Value::from("open"), &Value::from("done")));
    let bundle: Value = serde_json::from_str(bundle()).unwrap();
    let place = |name: &str| bundle["bundle"]["join"][name].as_str().unwrap();
    sandbox.write(place("clientCertificate"), PEM);
    // Whose it is, the kubeconfig says.
    at(&sandbox, 0, "joining", "is asking https://10.0.0.10:6443");
    sandbox.write(place("kubeconfig"), text(sandbox.path(place("bootstrapKubeconfig"))));
    at(&sandbox, 0, "joined", "has joined https://10.0.0.10:6443");

    let key = rcgen::KeyPair::generate().unwrap();
    let mut certificate = rcgen::CertificateParams::new(Vec::new()).unwrap();
    certificate.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let ended = certificate.self_signed(&key).unwrap().pem() + &key.serialize_pem();
    sandbox.write(place("clientCertificate"), ended);
    let json = at(&sandbox, 4, "joined", "has joined https://10.0.0.10:6443");
    assert!(json["blocked"]["reason"].as_str().unwrap().contains("wrong clock or expired"), "{json}");
}

#[test]
fn with_a_damaged_gate() {
    let sandbox = Sandbox::applied();
    sandbox.write(GATE, "KUBELET_ARGS=\"--forged\"\n");
    let json = at(&sandbox, 0, "unfinished", "damaged");
    assert!(json["gate"].as_str().unwrap().starts_with("damaged"), "{json}");
}

#[test]
fn after_the_gate_was_taken_away() {
    let sandbox = Sandbox::applied();
    sandbox.remove(GATE);
    let json = at(&sandbox, 0, "unfinished", GATE);
    assert_eq!(json["gate"], "shut");
    let text = sandbox.run("status", &[]).expect(0).out;
    for words in ["is gone", "does not start again before it is open", "at the next boot", "nodestrap apply"] {
        assert!(json["summary"].as_str().unwrap().contains(words), "{text}");
    }
    assert!(!text.contains("steps done") && !text.contains("resumes"), "{text}");
    sandbox.run("apply", &[]).expect(0);
    at(&sandbox, 0, "joining", "complete");
}

#[test]
fn tells_a_user_who_may_not_read_the_bundle_to_become_root() {
    let sandbox = Sandbox::applied();
    let ran = sandbox.run_as_nobody("status", &[]);
    assert!(ran.out.contains("run as root") && !ran.out.contains("render it again"), "{}", ran.out);
    assert_eq!(ran.code, Some(4));
}

#[test]
fn tells_that_another_bundle_was_delivered_than_the_one_applied() {
    let sandbox = Sandbox::applied();
    sandbox.deliver(&other_bundle());
    let json = at(&sandbox, 0, "joining", "next: nodestrap apply");
    assert!(!json["summary"].as_str().unwrap().contains("10.0.0.20"), "the kubelet asks the old server");
}

#[test]
fn with_a_damaged_journal() {
    let sandbox = Sandbox::applied();
    sandbox.write(JOURNAL, "garbage\n");
    at(&sandbox, 0, "joining", "");
}
