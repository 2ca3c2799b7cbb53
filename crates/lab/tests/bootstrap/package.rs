//! An operating system as its installer leaves it: Kubernetes, its runtime and what they expect of a host come as packages.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use lab::flow::PackageSite;
use lab::{LabOptions, Node, PackageManager, Patch, stdout_of};

use crate::support::{GATE, PATIENCE, deliver, files_below, lab, nodestrap, wait_ready_with, wait_spent};

/// Where packages put what they bring, and where we name repositories.
pub(crate) const TOUCHED: [&str; 11] = [
    "etc/apt",
    "etc/cni",
    "etc/containerd",
    "etc/default",
    "etc/dnf",
    "etc/yum.repos.d",
    "opt",
    "usr/bin",
    "usr/lib/systemd/system",
    "usr/sbin",
    "var/lib/nodestrap",
];
/// The whole list, with versions, states and holds.
const DEBS: &str = "dpkg-query -W -f '${Package} ${Version} ${Status}\\n'";
const APPLY_LOG: &str = "/var/log/apply-by-hand.log";
/// As a package manager does it that somebody else started.
const HOLD_LOCK: &str =
    "import fcntl, sys, time\nf = open(sys.argv[1], 'a')\nfcntl.lockf(f, fcntl.LOCK_EX)\ntime.sleep(3600)";

/// Of a root in which nobody runs yet.
pub(crate) fn packages_below(root: &Path) -> String {
    stdout_of(Command::new("chroot").arg(root).args(["sh", "-c", DEBS])).expect("dpkg-query")
}

pub(crate) fn packages(node: &Node) -> String {
    node.run(&["sh", "-c", DEBS]).expect("dpkg-query")
}

/// `apply` by a person who looks at something else meanwhile.
fn start_applying(node: &Node) -> Child {
    let mut command = node.command("sh").expect("the node runs");
    command.args(["-c", &format!("exec nodestrap apply >{APPLY_LOG} 2>&1")]);
    command.stdin(Stdio::null()).spawn().expect("apply starts")
}

fn wait_told(node: &Node, words: &str) {
    node.wait_until(&format!("apply says '{words}'"), PATIENCE, |node| Ok(node.read_file(APPLY_LOG)?.contains(words)))
        .unwrap_or_else(|error| panic!("{}\n{error:#}", node.read_file(APPLY_LOG).unwrap_or_default()));
}

#[track_caller]
fn ends_well(node: &Node, mut applying: Child) {
    let status = applying.wait().expect("apply ends");
    assert!(status.success(), "{status}: {}", node.read_file(APPLY_LOG).unwrap_or_default());
}

/// How often systemd has started it.
fn starts(node: &Node, unit: &str) -> usize {
    node.journal(unit).lines().filter(|line| line.contains(&format!("Started {unit}"))).count()
}

#[track_caller]
fn assert_installed(node: &Node, patch: Patch) {
    let found = packages(node);
    let manager = PackageManager::Apt;
    let kubernetes = manager.kubernetes_version(patch);
    for (name, version) in
        [("kubelet", &kubernetes), ("kubectl", &kubernetes), ("containerd", &manager.containerd_version(patch))]
    {
        let line = format!("{name} {version} hold ok installed");
        assert!(found.lines().any(|found| found == line), "'{line}' is not in\n{found}");
    }
    node.run(&["nodestrap", "verify"]).expect("no drift");
}

/// While its repository goes down in the middle of a change to another patch the node stays as it is; afterwards the same run goes on.
pub(crate) fn change_while_the_repository_is_down(
    node: &Node,
    site: &PackageSite,
    patch: Patch,
    list: fn(&Node) -> String,
) {
    let before = list(node);
    let version = site.manager.kubernetes_version(patch);
    let package = match site.manager {
        PackageManager::Apt => format!("{}/./kubelet_{version}_amd64.deb", site.path()),
        PackageManager::Dnf => format!("{}/kubelet-{version}.x86_64.rpm", site.path()),
    };
    site.ours.go_down_at(&package).expect("from now on");
    let applying = start_applying(node);
    node.wait_until("the repository is down", PATIENCE, |_| Ok(site.ours.requests().contains(&package)))
        .expect("it goes down");
    wait_told(node, "fetch-packages");
    node.run(&["systemctl", "is-active", "kubelet.service", "containerd.service"]).expect("both run on");
    assert_eq!(list(node), before, "nothing is installed before all is there");
    node.run(&["test", "-e", GATE]).expect("the gate stays open");
    site.ours.come_back().expect("up again");
    ends_well(node, applying);
}

/// A holder of the lock is named, and waited for.
pub(crate) fn apply_while_somebody_holds_the_lock(node: &Node, lock: &str) {
    node.run(&["systemd-run", "--quiet", "--unit=holder", "python3", "-c", HOLD_LOCK, lock]).expect("it starts");
    node.wait_until("the lock is held", PATIENCE, |node| Ok(node.run(&["cat", "/proc/locks"])?.contains("POSIX")))
        .expect("it is held");
    let applying = start_applying(node);
    wait_told(node, "python3");
    wait_told(node, lock);
    node.run(&["systemctl", "stop", "holder.service"]).expect("it ends");
    ends_well(node, applying);
}

#[test]
fn a_minimal_debian_becomes_a_ready_node_by_apt_goes_to_another_patch_and_back_and_is_as_before_after_a_reset() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let site = PackageSite::start(&lab, PackageManager::Apt).expect("repositories");
    let options = site.node(&lab, "n1", Patch::Earlier, &nodestrap()).expect("a bundle");
    let machine = lab.add_node(options.not_started()).expect("a node");
    let before = [packages_below(&machine.root()), files_below(&machine.root(), &TOUCHED)];

    machine.start().expect("it boots");
    wait_ready_with(&lab, &machine, Patch::Earlier);
    machine.wait_booted(PATIENCE).expect("no unit failed");
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    wait_spent(&machine).expect("it has its own credentials");
    assert_installed(&machine, Patch::Earlier);
    for unit in ["containerd.service", "kubelet.service"] {
        assert_eq!(starts(&machine, unit), 1, "{unit} stays down until it is configured");
    }

    deliver(&machine, &site.spec(&lab, Patch::Newest).expect("a spec"));
    change_while_the_repository_is_down(&machine, &site, Patch::Newest, packages);
    wait_ready_with(&lab, &machine, Patch::Newest);
    assert_installed(&machine, Patch::Newest);

    machine.run(&["apt-mark", "unhold", "kubelet"]).expect("apt-mark");
    let drifted = machine.exec(&["nodestrap", "verify"]).expect("verify runs");
    assert!(
        !drifted.status.success() && lab::output_text(&drifted).contains("kubelet"),
        "a hold that was lost is drift"
    );

    deliver(&machine, &site.spec(&lab, Patch::Earlier).expect("a spec"));
    apply_while_somebody_holds_the_lock(&machine, "/var/lib/dpkg/lock-frontend");
    wait_ready_with(&lab, &machine, Patch::Earlier);
    assert_installed(&machine, Patch::Earlier);

    machine.run(&["nodestrap", "reset", "--yes", "--kubelet-state"]).expect("reset");
    let after = [packages(&machine), files_below(&machine.root(), &TOUCHED)];
    assert_eq!(after[0], before[0], "the list of packages with versions and holds");
    assert_eq!(after[1], before[1], "the files");
}
