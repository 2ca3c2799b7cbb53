//! The control plane alone: it comes up, its certificates verify, its bootstrap token is accepted, its API server can be taken away.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use std::process::Command;

use lab::{Lab, LabOptions, stdout_of};

fn openssl(lab: &Lab, words: &[&str]) -> String {
    let folder = lab.folder().join("pki");
    stdout_of(Command::new("openssl").current_dir(folder).args(words)).expect("openssl agrees")
}

#[test]
fn comes_up_with_verifiable_certificates_and_a_token_that_bootstraps_and_survives_its_api_server() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("lab");
    assert_eq!(lab.kubectl(&["get", "--raw", "/readyz"]).expect("readyz"), "ok");

    let server = ["verify", "-CAfile", "ca.crt", "-purpose", "sslserver", "-verify_ip", "10.99.0.1", "apiserver.crt"];
    assert_eq!(openssl(&lab, &server), "apiserver.crt: OK\n");
    let client = ["verify", "-CAfile", "ca.crt", "-purpose", "sslclient", "kubelet-client.crt"];
    assert_eq!(openssl(&lab, &client), "kubelet-client.crt: OK\n");

    let token = format!("--token={}", lab.bootstrap_token());
    let authority = lab.folder().join("pki/ca.crt").display().to_string();
    let kubectl = lab.kubectl_command().get_args().nth(1).expect("the program").to_owned();
    let mut whoami = lab.hub_command(kubectl);
    whoami.args(["--kubeconfig=/dev/null", "--server", lab.api_server_url(), "--certificate-authority", &authority]);
    let identity = stdout_of(whoami.args([&token, "auth", "whoami", "-o", "json"])).expect("the token is accepted");
    assert!(identity.contains("system:bootstrappers:nodestrap"), "{identity}");

    lab.stop_apiserver().expect("stop");
    assert!(lab.kubectl(&["get", "--raw", "/readyz"]).is_err());
    lab.start_apiserver().expect("start");
    let secrets = lab.kubectl_json(&["get", "secrets", "--namespace", "kube-system"]).expect("etcd kept everything");
    assert_eq!(secrets["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_name_is_used_once_and_names_that_would_not_fit_are_refused() {
    if !lab::require() {
        return;
    }
    let name = format!("once{}", std::process::id());
    let options = || LabOptions { name: Some(name.clone()), ..LabOptions::default() };
    let first = Lab::up(options()).expect("lab");
    let error = Lab::up(options()).err().expect("the name is taken");
    assert!(format!("{error:#}").contains("exists already"), "{error:#}");
    assert!(first.kubectl(&["get", "--raw", "/readyz"]).is_ok(), "the refused second lab harmed the first");
    for bad in ["", "Upper", "a.b", "-a", "a-very-long-name-that-does-not-fit"] {
        assert!(Lab::up(LabOptions { name: Some(bad.into()), ..LabOptions::default() }).is_err(), "'{bad}' was taken");
    }
}
