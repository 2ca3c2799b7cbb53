//! Container Linux as the lab has it, driven by hand: what nodestrap relies on, and what strands a node that nobody prepared.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::time::Duration;

use lab::{FIRST_OS_VERSION, Lab, LabOptions, NEXT_OS_VERSION, Node, NodeImage, NodeOptions, Partition, Patch};

const PATIENCE: Duration = Duration::from_secs(120);
const ADDON: &str = "18.06";
const SEAL: &str = "/run/metadata/torcx";

fn container_linux(lab: &Lab) -> Node {
    lab.add_node(NodeOptions::named("n1").image(NodeImage::ContainerLinux)).expect("the node boots")
}

fn write(node: &Node, path: &str, text: impl AsRef<[u8]>) {
    let place = node.root().join(path);
    std::fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    std::fs::write(place, text).expect("written");
}

fn put_addon(lab: &Lab, node: &Node, os_version: &str) {
    let archive = lab.torcx_addon(os_version, ADDON).expect("an archive");
    let name = archive.file_name().expect("a name").to_string_lossy().into_owned();
    write(node, &format!("var/lib/torcx/store/{os_version}/{name}"), std::fs::read(&archive).expect("read"));
}

fn want_addon(node: &Node) {
    let images = format!("[{{\"name\":\"docker\",\"reference\":\"{ADDON}\"}}]");
    let profile = format!("{{\"kind\":\"profile-manifest-v0\",\"value\":{{\"images\":{images}}}}}");
    write(node, "etc/torcx/profiles/tectonic.json", profile);
    write(node, "etc/torcx/next-profile", "tectonic\n");
}

/// As an engine does that has installed it.
fn stage(node: &Node, os_version: &str) {
    let partitions = node.usr_partitions();
    let passive = partitions.booted().expect("one runs").other();
    partitions.write(passive, os_version).expect("written");
    partitions.boot_next(passive).expect("chosen");
}

fn reboot(node: &Node) {
    node.reboot().expect("boots again");
    node.wait_booted(PATIENCE).expect("no unit failed");
}

fn is_there(node: &Node, path: &str) -> bool {
    node.exec(&["test", "-e", path]).expect("test runs").status.success()
}

fn version(node: &Node) -> String {
    node.run(&["sh", "-c", ". /etc/os-release; echo $VERSION_ID"]).expect("sh").trim().to_owned()
}

/// Why there are no addons.
fn torcx_said(node: &Node) -> String {
    node.read_file("/run/nodestrap-lab-torcx.log").expect("the generator has run")
}

#[track_caller]
fn assert_stranded(node: &Node, missing: &str) {
    assert!(!is_there(node, SEAL) && !is_there(node, "/run/torcx/profile.json"), "nothing is sealed");
    assert!(torcx_said(node).contains(missing), "{}", torcx_said(node));
    assert!(!node.exec(&["systemctl", "start", "containerd.service"]).expect("systemctl runs").status.success());
    assert!(!node.exec(&["systemctl", "start", "torcx.target"]).expect("systemctl runs").status.success());
}

/// Really from the addon, and for this version of the system.
#[track_caller]
fn assert_runs_addon_of(node: &Node, os_version: &str) {
    assert!(is_there(node, SEAL), "{}", torcx_said(node));
    node.run(&["systemctl", "start", "containerd.service"]).expect("containerd runs");
    let description = node.run(&["systemctl", "show", "-P", "Description", "containerd.service"]).expect("systemctl");
    assert_eq!(description.trim(), format!("containerd of the addon docker:{ADDON} for {os_version}"));
    let program = node.run(&["sh", "-c", "readlink /proc/$(pidof containerd)/exe"]).expect("it runs");
    assert_eq!(program.trim(), "/run/torcx/unpack/docker/bin/containerd");
    node.run(&["/run/torcx/bin/ctr", "version"]).expect("it answers");
}

#[test]
fn an_addon_runs_if_profile_and_store_name_it_and_an_update_without_one_leaves_no_runtime_until_it_is_rolled_back() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let node = container_linux(&lab);
    node.wait_booted(PATIENCE).expect("no unit failed");
    assert_eq!(version(&node), FIRST_OS_VERSION);
    assert!(!node.exec(&["touch", "/usr/mine"]).expect("touch runs").status.success(), "/usr is read-only");
    assert_stranded(&node, "docker:com.coreos.cl");
    put_addon(&lab, &node, FIRST_OS_VERSION);
    want_addon(&node);
    node.run(&["systemctl", "daemon-reload"]).expect("generators run");
    assert_stranded(&node, "docker:com.coreos.cl");

    reboot(&node);
    assert_runs_addon_of(&node, FIRST_OS_VERSION);
    let seal = node.read_file(SEAL).expect("sealed");
    assert!(seal.contains("TORCX_LOWER_PROFILES=\"vendor\"\nTORCX_UPPER_PROFILE=\"tectonic\"\n"), "{seal}");
    let running = node.read_file("/run/torcx/profile.json").expect("sealed");
    assert!(running.contains(&format!("{{\"name\":\"docker\",\"reference\":\"{ADDON}\"}}")), "{running}");
    let write = node.exec(&["touch", "/run/torcx/unpack/docker/mine"]).expect("touch runs");
    assert!(!write.status.success(), "what is unpacked is read-only");

    stage(&node, NEXT_OS_VERSION);
    assert_eq!(version(&node), FIRST_OS_VERSION, "until the next boot");
    reboot(&node);
    assert_eq!(version(&node), NEXT_OS_VERSION);
    assert_eq!(node.usr_partitions().booted().expect("one runs"), Partition::B);
    assert_stranded(&node, &format!("/var/lib/torcx/store/{NEXT_OS_VERSION}"));

    node.usr_partitions().boot_next(Partition::A).expect("chosen");
    reboot(&node);
    assert_eq!(version(&node), FIRST_OS_VERSION);
    assert_runs_addon_of(&node, FIRST_OS_VERSION);

    put_addon(&lab, &node, NEXT_OS_VERSION);
    node.usr_partitions().boot_next(Partition::B).expect("chosen");
    reboot(&node);
    assert_eq!(version(&node), NEXT_OS_VERSION);
    assert_runs_addon_of(&node, NEXT_OS_VERSION);
}

#[test]
fn the_wrapper_starts_the_kubelet_of_its_tag_and_names_a_tag_that_it_does_not_know() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let node = container_linux(&lab);
    node.wait_booted(PATIENCE).expect("no unit failed");
    let run = |environment: &[&str]| {
        let words = [&["env"], environment, &["/usr/lib/coreos/kubelet-wrapper", "--version"]].concat();
        node.exec(&words).expect("it runs")
    };
    for patch in [Patch::Newest, Patch::Earlier] {
        let tag = format!("KUBELET_IMAGE_TAG=v{}", patch.kubernetes_version());
        let said = lab::output_text(&run(&["KUBELET_IMAGE_URL=registry.example/hyperkube", &tag]));
        assert_eq!(said, format!("Kubernetes v{}", patch.kubernetes_version()));
    }
    let image = format!("KUBELET_IMAGE=registry.example:5000/kubelet:v{}", Patch::Earlier.kubernetes_version());
    let said = lab::output_text(&run(&[&image, "KUBELET_IMAGE_TAG=v0.0.0"]));
    assert_eq!(said, format!("Kubernetes v{}", Patch::Earlier.kubernetes_version()), "the image has precedence");
    for environment in [&["KUBELET_IMAGE_TAG=v1.9.6_coreos.0"], &["KUBELET_IMAGE_URL=registry.example/hyperkube"]] {
        assert!(!run(environment).status.success(), "{environment:?}");
    }
    let said = lab::output_text(&run(&["KUBELET_IMAGE_TAG=v1.9.6_coreos.0"]));
    assert!(said.contains("'v1.9.6_coreos.0'"), "{said}");
    let locksmith = node.run(&["systemctl", "is-active", "locksmithd.service"]).expect("it runs");
    assert_eq!(locksmith.trim(), "active", "as the image has it");
}
