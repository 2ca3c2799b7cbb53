//! One node: boot, cloud-init, reboot, power cut, power off.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use lab::{Lab, LabOptions, Node, NodeOptions};

const BOOT: Duration = Duration::from_secs(120);

#[test]
fn boots_reboots_and_survives_a_power_cut_with_its_files() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("lab");
    let user_data =
        "#cloud-config\nwrite_files: [{path: /etc/greeting, content: hello}]\nruncmd: [[touch, /var/ran]]\n";
    let options = NodeOptions::named("n1")
        .user_data(user_data)
        .before_boot(|root| Ok(std::fs::write(root.join("etc/before-boot"), "here")?));
    let node = lab.add_node(options).expect("node");
    node.wait_booted(BOOT).expect("boot");

    assert!(node.run(&["cloud-init", "status"]).expect("cloud-init").contains("done"));
    assert_eq!(node.read_file("/etc/greeting").expect("cloud-init wrote it"), "hello");
    assert!(node.root().join("var/ran").exists(), "cloud-init ran no command");
    assert_eq!(node.read_file("/etc/before-boot").expect("we wrote it"), "here");
    assert_eq!(node.run(&["hostname"]).expect("hostname").trim(), "n1");
    let machine_boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot id");
    let first_boot_id = node.boot_id().expect("boot id");
    assert_ne!(first_boot_id, machine_boot_id.trim(), "the node has the boot id of the machine below");
    let containerd = node.exec(&["systemctl", "is-enabled", "containerd"]).expect("systemctl");
    assert_eq!(String::from_utf8_lossy(&containerd.stdout).trim(), "disabled");

    // A command that is under way when the node goes down ends with it, and does not hold it up.
    std::thread::scope(|scope| {
        let cut_off = scope.spawn(|| node.exec(&["sh", "-c", "touch /var/under-way; sleep 1000"]));
        node.wait_until("the command is under way", BOOT, |node| Ok(node.root().join("var/under-way").exists()))
            .expect("it starts");
        node.reboot().expect("reboot");
        assert!(!cut_off.join().expect("no panic").is_ok_and(|output| output.status.success()));
    });
    node.wait_booted(BOOT).expect("second boot");
    let second_boot_id = node.boot_id().expect("boot id");
    assert_ne!(second_boot_id, first_boot_id);
    assert_eq!(node.boots().expect("boots"), 2);

    node.run(&["sh", "-c", "echo kept > /var/kept"]).expect("write");
    node.kill().expect("power cut");
    assert!(!node.is_running().expect("state"));
    assert!(node.exec(&["true"]).is_err());
    assert_eq!(std::fs::read_to_string(node.root().join("var/kept")).expect("readable from outside"), "kept\n");
    assert!(!node.journal("cloud-init.service").is_empty(), "the journal can be read while the node is off");
    node.start().expect("power is back");
    node.wait_booted(BOOT).expect("third boot");
    assert_eq!(node.read_file("/var/kept").expect("read"), "kept\n");
    assert_ne!(node.boot_id().expect("boot id"), second_boot_id);

    node.poweroff().expect("power off");
    assert!(!node.is_running().expect("state"));
}

/// What a person would look for to see whether somebody has made this machine a node.
const OF_KUBERNETES: [&str; 6] = ["kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "runc", "ctr"];
/// What Kubernetes expects of any host.
const OF_THE_HOST: [&str; 7] = ["iptables", "conntrack", "mount", "modprobe", "ip", "dbus-daemon", "mkfs.ext4"];

fn assert_bare(node: &Node) {
    let is_found = |program: &str| {
        let found = node.exec(&["sh", "-c", &format!("command -v {program}")]).expect("sh runs");
        found.status.success()
    };
    assert_eq!(OF_KUBERNETES.into_iter().filter(|program| is_found(program)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(OF_THE_HOST.into_iter().filter(|program| !is_found(program)).collect::<Vec<_>>(), [""; 0]);
    for path in ["opt/cni", "etc/cni", "etc/containerd", "usr/lib/systemd/system/containerd.service"] {
        assert!(!node.root().join(path).exists(), "{path} is there");
    }
    assert!(node.root().join("etc/ssl/certs/ca-certificates.crt").exists());
}

#[test]
fn a_node_that_reboots_by_itself_comes_back_a_bare_one_boots_and_one_that_never_boots_says_why() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("lab");
    let node = lab.add_node(NodeOptions::named("n1")).expect("node");
    let boots = node.boots().expect("boots");
    node.run(&["systemd-run", "--on-active=1ms", "systemctl", "reboot"]).expect("ask for a reboot");
    node.wait_rebooted(boots).expect("came back");

    let bare = lab.add_node(NodeOptions::named("bare").bare()).expect("node");
    bare.wait_booted(BOOT).expect("boot");
    assert_bare(&bare);

    let broken = NodeOptions::named("n2").before_boot(|root| {
        for program in ["usr/sbin/init", "usr/lib/systemd/systemd", "usr/bin/bash", "usr/bin/sh"] {
            std::fs::remove_file(root.join(program))?;
        }
        Ok(())
    });
    let error = lab.add_node(broken).err().expect("it cannot boot");
    assert!(format!("{error:#}").contains("console of n2"), "{error:#}");
}
