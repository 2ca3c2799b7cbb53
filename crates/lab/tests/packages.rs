//! The lab's own packages, installed by hand: they are what nodestrap's are tried with, so they must behave as real ones do.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::time::Duration;

use lab::flow::PackageSite;
use lab::{Lab, LabOptions, Node, PackageManager, Patch};

const PATIENCE: Duration = Duration::from_secs(120);

/// A machine that knows where packages are, with the authority of the lab among those that it trusts.
fn machine(lab: &Lab, site: &PackageSite, extra: &[(&str, String)]) -> Node {
    let node = lab.add_node(site.machine("n1")).expect("the node boots");
    node.wait_booted(PATIENCE).expect("no unit failed");
    std::fs::write(node.root().join("etc/lab-ca.crt"), lab.ca_pem()).expect("written");
    std::fs::copy(&site.key, node.root().join("etc/lab-key.asc")).expect("copied");
    for (path, text) in extra {
        std::fs::write(node.root().join(path), text).expect("written");
    }
    for program in ["iptables", "conntrack", "containerd", "runc", "kubelet"] {
        assert!(!has(&node, program), "{program} is there already");
    }
    node
}

fn has(node: &Node, program: &str) -> bool {
    node.exec(&["sh", "-c", &format!("command -v {program}")]).expect("sh runs").status.success()
}

#[track_caller]
fn run(node: &Node, line: &str) -> String {
    node.run(&["sh", "-c", line]).unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn debs_bring_what_they_depend_on_start_their_services_and_ask_about_changed_files() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let site = PackageSite::start(&lab, PackageManager::Apt).expect("repositories");
    let source = format!("Types: deb\nURIs: {}\nSuites: ./\nSigned-By: /etc/lab-key.asc\n", site.url());
    let trust = "Acquire::https::CAInfo \"/etc/lab-ca.crt\";\n".to_owned();
    let files = [("etc/apt/sources.list.d/lab.sources", source), ("etc/apt/apt.conf.d/lab", trust)];
    let node = machine(&lab, &site, &files);
    let install = |patch| {
        let [kubernetes, containerd] = [site.manager.kubernetes_version(patch), site.manager.containerd_version(patch)];
        format!("apt-get install -y kubelet={kubernetes} kubectl={kubernetes} containerd={containerd} conntrack")
    };

    run(&node, "apt-get update --error-on=any");
    run(&node, &format!("DEBIAN_FRONTEND=noninteractive {}", install(Patch::Earlier)));
    for program in ["iptables", "conntrack", "containerd", "runc", "kubelet", "kubectl", "/opt/cni/bin/bridge"] {
        assert!(has(&node, program), "{program} is not there");
    }
    let enabled = run(&node, "systemctl is-enabled containerd kubelet");
    assert_eq!(enabled, "enabled\nenabled\n", "debhelper enables what a package brings");
    run(&node, "systemctl is-active containerd");

    run(&node, "echo '# mine' >> /etc/containerd/config.toml");
    let asked = node.exec(&["sh", "-c", &format!("{} </dev/null", install(Patch::Newest))]).expect("apt runs");
    assert!(!asked.status.success(), "it cannot know which configuration file is wanted");
    run(&node, "DEBIAN_FRONTEND=noninteractive dpkg --force-confold --configure -a");
    assert!(run(&node, "kubelet --version").contains(Patch::Newest.kubernetes_version()));
    assert!(run(&node, "cat /etc/containerd/config.toml").contains("# mine"));
}

#[test]
fn rpms_bring_what_they_depend_on_and_nobody_else_may_have_signed_them() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let site = PackageSite::start(&lab, PackageManager::Dnf).expect("a repository");
    let source = format!(
        "[lab]\nname=lab\nbaseurl={}\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///etc/lab-key.asc\nsslcacert=/etc/lab-ca.crt\n",
        site.url()
    );
    let node = machine(&lab, &site, &[("etc/yum.repos.d/lab.repo", source)]);
    let version = site.manager.kubernetes_version(Patch::Earlier);

    run(&node, &format!("dnf install -y kubelet-{version} containerd.io conntrack-tools"));
    for program in ["iptables", "conntrack", "containerd", "runc", "kubelet", "/opt/cni/bin/bridge"] {
        assert!(has(&node, program), "{program} is not there");
    }
    run(&node, "iptables --version && conntrack --version");
    run(&node, "dnf versionlock add kubelet && dnf upgrade -y");
    assert!(run(&node, "kubelet --version").contains(Patch::Earlier.kubernetes_version()), "it is locked");
    run(&node, "dnf versionlock delete kubelet && dnf upgrade -y && dnf remove -y containerd.io");
    assert!(run(&node, "kubelet --version").contains(Patch::Newest.kubernetes_version()));
    assert!(!has(&node, "containerd"));

    run(&node, "rpm --erase --allmatches gpg-pubkey && gpgconf --version > /etc/lab-key.asc");
    let refused = node.exec(&["dnf", "install", "-y", "kubectl"]).expect("dnf runs");
    assert!(!refused.status.success(), "a key that did not sign for it is no reason to install a package");
}
