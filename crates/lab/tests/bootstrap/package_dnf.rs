//! The same by dnf, on an image that passes for Red Hat's.

use std::path::Path;
use std::process::Command;

use lab::flow::PackageSite;
use lab::{LabOptions, Node, PackageManager, Patch, output_text, stdout_of};

use crate::package::{apply_while_somebody_holds_the_lock, change_while_the_repository_is_down};
use crate::support::{PATIENCE, deliver, files_below, lab, nodestrap, wait_ready_with, wait_spent};

/// Where packages put what they bring, and where we name repositories.
pub(crate) const TOUCHED: [&str; 11] = [
    "etc/cni",
    "etc/containerd",
    "etc/dnf",
    "etc/pki",
    "etc/sysconfig",
    "etc/yum.repos.d",
    "opt",
    "usr/bin",
    "usr/lib/systemd/system",
    "usr/sbin",
    "var/lib/nodestrap",
];
/// The whole list with keys and locks.
const RPMS: &str = "rpm -qa | sort; grep -v '^#' /etc/dnf/plugins/versionlock.list | grep . || true";
/// Ends rpm with all that it started, as soon as it is at work on a transaction.
const CUT_OFF: &str = "until grep -q begun /var/lib/nodestrap/packages.json 2>/dev/null; do :; done; sleep 0.7; \
                       exec systemctl kill --signal=KILL nodestrap-packages.service";

pub(crate) fn packages_below(root: &Path) -> String {
    stdout_of(Command::new("chroot").arg(root).args(["sh", "-c", RPMS])).expect("rpm")
}

pub(crate) fn packages(node: &Node) -> String {
    node.run(&["sh", "-c", RPMS]).expect("rpm")
}

#[track_caller]
fn assert_installed(node: &Node, patch: Patch) {
    let found = packages(node);
    let manager = PackageManager::Dnf;
    let kubernetes = manager.kubernetes_version(patch);
    for (name, version) in
        [("kubelet", &kubernetes), ("kubectl", &kubernetes), ("containerd.io", &manager.containerd_version(patch))]
    {
        for line in [format!("{name}-{version}.x86_64"), format!("{name}-0:{version}.*")] {
            assert_eq!(found.lines().filter(|found| *found == line).count(), 1, "'{line}' in\n{found}");
        }
        assert_eq!(found.lines().filter(|found| found.starts_with(&format!("{name}-"))).count(), 2, "{found}");
    }
    node.run(&["nodestrap", "verify"]).expect("no drift");
}

#[test]
fn a_red_hat_becomes_a_ready_node_by_dnf_goes_to_another_patch_though_rpm_is_cut_off_and_is_as_before_after_a_reset() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let site = PackageSite::start(&lab, PackageManager::Dnf).expect("a repository");
    let options = site.node(&lab, "n1", Patch::Earlier, &nodestrap()).expect("a bundle");
    let machine = lab.add_node(options.not_started()).expect("a node");
    let before = [packages_below(&machine.root()), files_below(&machine.root(), &TOUCHED)];

    machine.start().expect("it boots");
    wait_ready_with(&lab, &machine, Patch::Earlier);
    machine.wait_booted(PATIENCE).expect("no unit failed");
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    wait_spent(&machine).expect("it has its own credentials");
    assert_installed(&machine, Patch::Earlier);
    let planned = machine.run(&["nodestrap", "plan"]).expect("a plan");
    assert!(planned.contains("a plan starts no program"), "{planned}");

    deliver(&machine, &site.spec(&lab, Patch::Newest).expect("a spec"));
    machine.run(&["systemd-run", "--quiet", "--unit=cut-off", "sh", "-c", CUT_OFF]).expect("it waits");
    let cut_off = machine.exec(&["nodestrap", "apply"]).expect("apply runs");
    machine
        .wait_until("rpm is cut off", PATIENCE, |node| {
            Ok(!node.exec(&["systemctl", "is-active", "--quiet", "cut-off.service"])?.status.success())
        })
        .unwrap_or_else(|error| panic!("{}\n{error:#}", output_text(&cut_off)));
    let missed = machine.exec(&["systemctl", "is-failed", "--quiet", "cut-off.service"]).expect("systemctl runs");
    assert!(!missed.status.success(), "it was at work when it was cut off: {}", output_text(&cut_off));
    machine.run(&["nodestrap", "apply"]).expect("what was begun is brought to its end");
    wait_ready_with(&lab, &machine, Patch::Newest);
    assert_installed(&machine, Patch::Newest);

    machine.run(&["dnf", "-q", "-C", "versionlock", "clear"]).expect("dnf");
    let drifted = machine.exec(&["nodestrap", "verify"]).expect("verify runs");
    assert!(!drifted.status.success() && output_text(&drifted).contains("not held"), "a lock that was lost is drift");
    apply_while_somebody_holds_the_lock(&machine, "/var/lib/rpm/.rpm.lock");
    assert_installed(&machine, Patch::Newest);

    deliver(&machine, &site.spec(&lab, Patch::Earlier).expect("a spec"));
    change_while_the_repository_is_down(&machine, &site, Patch::Earlier, packages);
    wait_ready_with(&lab, &machine, Patch::Earlier);
    assert_installed(&machine, Patch::Earlier);

    // What is cached of repositories may go at any time, and a reset needs none of it.
    machine.run(&["dnf", "-q", "clean", "all"]).expect("dnf");
    machine.run(&["nodestrap", "reset", "--yes", "--kubelet-state"]).expect("reset");
    assert_eq!(packages(&machine), before[0], "the list of packages with keys and locks");
    assert_eq!(files_below(&machine.root(), &TOUCHED), before[1], "the files");
}
