//! An image that passes for Flatcar's, with a runtime and a read-only `/usr`: Kubernetes comes as a system extension.

use lab::flow::ExtensionStore;
use lab::{Lab, LabOptions, Node, Patch};

use crate::support::{PATIENCE, deliver, exists, files_below, lab, nodestrap, wait_ready_with, wait_spent};

/// Where Ignition puts it.
pub(crate) const NODESTRAP: &str = "/opt/bin/nodestrap";
/// Not all of `/etc/systemd/system`: the first boot enables there what the presets of the image say.
pub(crate) const TOUCHED: [&str; 10] = [
    "etc/cni",
    "etc/containerd",
    "etc/extensions",
    "etc/sysupdate.d",
    "etc/systemd/system/containerd.service.d",
    "etc/systemd/system/kubelet.service",
    "etc/systemd/system/kubelet.service.d",
    "etc/systemd/system/sysinit.target.wants/systemd-sysext.service",
    "opt/extensions",
    "var/lib/nodestrap",
];
/// What Flatcar's own images have that keep an extension up to date; ours must not be moved behind our back.
const TRANSFER: &str = "[Transfer]\nVerify=false\n\n[Source]\nType=url-file\nPath=https://extensions.example.com\nMatchPattern=kubernetes-@v.raw\n\n\
     [Target]\nType=regular-file\nPath=/opt/extensions/kubernetes\nMatchPattern=kubernetes-@v.raw\nCurrentSymlink=/etc/extensions/kubernetes.raw\n";

fn merged(node: &Node) -> String {
    node.run(&["systemd-sysext", "status", "--json=short"]).expect("systemd-sysext")
}

#[track_caller]
fn assert_merged(lab: &Lab, node: &Node, patch: Patch) {
    wait_ready_with(lab, node, patch);
    let said = node.run(&["/usr/bin/kubelet", "--version"]).expect("it runs");
    assert_eq!(said.trim(), format!("Kubernetes v{}", patch.kubernetes_version()));
    assert!(merged(node).contains("kubernetes"), "{}", merged(node));
    node.run(&[NODESTRAP, "verify"]).expect("no drift");
    assert!(!node.exec(&["touch", "/usr/mine"]).expect("touch runs").status.success(), "/usr stays read-only");
}

#[test]
fn a_flatcar_becomes_a_ready_node_by_an_extension_goes_to_another_patch_and_back_and_is_as_before_after_a_reset() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let store = ExtensionStore::start(&lab, &nodestrap()).expect("a store");
    for patch in [Patch::Earlier, Patch::Newest] {
        store.publish(&lab, &nodestrap(), patch).expect("published");
    }
    let options = store.node(&lab, "n1", Patch::Earlier, &nodestrap()).expect("a config");
    let machine = lab.add_node(options.not_started()).expect("a node");
    let transfers = machine.root().join("etc/sysupdate.d");
    std::fs::create_dir_all(&transfers).expect("a folder");
    std::fs::write(transfers.join("kubernetes.conf"), TRANSFER).expect("written");
    let before = files_below(&machine.root(), &TOUCHED);

    machine.start().expect("it boots");
    assert_merged(&lab, &machine, Patch::Earlier);
    machine.wait_booted(PATIENCE).expect("no unit failed");
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    wait_spent(&machine).expect("it has its own credentials");
    let transfer = machine.run(&["readlink", "/etc/sysupdate.d/kubernetes.conf"]).expect("a link");
    assert_eq!(transfer.trim(), "/dev/null", "nobody else moves what we own");

    deliver(&machine, &store.spec(&lab, Patch::Newest).expect("a spec"));
    machine.run(&[NODESTRAP, "apply"]).expect("applied");
    assert_merged(&lab, &machine, Patch::Newest);
    machine.reboot().expect("boots again");
    assert_merged(&lab, &machine, Patch::Newest);

    refuses_what_does_not_fit(&lab, &machine);

    deliver(&machine, &store.spec(&lab, Patch::Earlier).expect("a spec"));
    machine.run(&[NODESTRAP, "apply"]).expect("applied");
    assert_merged(&lab, &machine, Patch::Earlier);

    machine.run(&[NODESTRAP, "reset", "--yes", "--kubelet-state"]).expect("reset");
    assert!(!exists(&machine, "/usr/bin/kubelet").expect("test runs"), "it is unmerged");
    assert!(exists(&machine, "/usr/bin/containerd").expect("test runs"), "what the image brings stays");
    assert_eq!(files_below(&machine.root(), &TOUCHED), before);
}

/// systemd would skip the image, take the other one away and report success.
fn refuses_what_does_not_fit(lab: &Lab, machine: &Node) {
    let other = ExtensionStore::start(lab, &nodestrap()).expect("a store");
    let folder = tempfile::tempdir().expect("temporary folder");
    let release = folder.path().join("usr/lib/extension-release.d");
    std::fs::create_dir_all(folder.path().join("usr/libexec/cni")).expect("a folder");
    std::fs::create_dir_all(folder.path().join("usr/bin")).expect("a folder");
    std::fs::create_dir_all(&release).expect("a folder");
    std::fs::write(release.join("extension-release.kubernetes"), "ID=flatcar\nSYSEXT_LEVEL=2.0\n").expect("written");
    for program in [
        "bin/kubelet",
        "bin/kubectl",
        "libexec/cni/bridge",
        "libexec/cni/host-local",
        "libexec/cni/loopback",
        "libexec/cni/portmap",
    ] {
        std::fs::copy("/bin/true", folder.path().join("usr").join(program)).expect("copied");
    }
    other.publish_folder(&nodestrap(), Patch::Earlier, folder.path()).expect("published");
    deliver(machine, &other.spec(lab, Patch::Earlier).expect("a spec"));
    for command in ["plan", "apply"] {
        let refused = machine.exec(&[NODESTRAP, command]).expect("it runs");
        let said = lab::output_text(&refused);
        assert!(!refused.status.success() && said.contains("SYSEXT_LEVEL"), "{command}: {said}");
    }
    assert!(!other.store.server.requests().iter().any(|path| path.ends_with(".raw")), "nothing was fetched");
    let said = machine.run(&["/usr/bin/kubelet", "--version"]).expect("the running one is still merged");
    assert_eq!(said.trim(), format!("Kubernetes v{}", Patch::Newest.kubernetes_version()));
    lab.wait_node_ready(machine.name(), PATIENCE).expect("and still serves");
}
