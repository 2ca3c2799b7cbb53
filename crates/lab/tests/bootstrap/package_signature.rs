//! A repository that is signed, by a key that is good, and not by the one that the spec names.

use lab::flow::PackageSite;
use lab::{LabOptions, Node, PackageManager, Patch, output_text};

use crate::support::{GATE, PATIENCE, exists, lab, nodestrap};
use crate::{package, package_dnf};

fn refuses(manager: PackageManager, packages: impl Fn(&Node) -> String) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let site = PackageSite::start(&lab, manager).expect("a repository");
    let spec = site.spec_with_key_of_a_stranger(&lab, Patch::Newest).expect("a spec");
    let user_data = spec.user_data(&nodestrap()).expect("user data");
    let machine = lab.add_node(site.machine("n1").user_data(user_data).nodestrap(nodestrap())).expect("it boots");
    let is_refused = |node: &Node| Ok(node.journal("k8s-node-bootstrap.service").contains("of packages failed"));
    machine.wait_until("the bootstrap has failed once", PATIENCE, is_refused).expect("it is refused");
    // Else the unit, which tries again and again, may be at work, and the answer is "busy".
    machine.run(&["systemctl", "stop", "k8s-node-bootstrap.service"]).expect("stopped");
    let applied = machine.exec(&["nodestrap", "apply"]).expect("it runs");
    let text = output_text(&applied);
    assert_eq!(applied.status.code(), Some(4), "waiting does not mend it: {text}");
    assert!(text.contains("is not signed by the key of its repository"), "{text}");
    assert!(!exists(&machine, GATE).expect("a look"), "the gate stays shut");
    let found = packages(&machine);
    for name in ["kubelet", "kubectl", "containerd"] {
        assert!(!found.lines().any(|line| line.starts_with(name)), "{name} is there:\n{found}");
    }
    machine.run(&["nodestrap", "reset", "--yes"]).expect("reset");
    assert!(!exists(&machine, "/var/cache/nodestrap-packages").expect("a look"), "what was downloaded is left");
    assert!(!packages(&machine).contains("gpg-pubkey"), "the stranger's key is left:\n{}", packages(&machine));
}

#[test]
fn apt_takes_nothing_from_a_repository_that_somebody_else_has_signed() {
    refuses(PackageManager::Apt, package::packages);
}

#[test]
fn dnf_takes_nothing_that_somebody_else_has_signed() {
    refuses(PackageManager::Dnf, package_dnf::packages);
}
