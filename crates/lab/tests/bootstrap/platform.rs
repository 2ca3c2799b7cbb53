//! No cloud-init, no file: the bundle and the facts come straight from the platform.

use std::path::Path;

use anyhow::{Context, Result};
use lab::metadata::{Instance, Manner, Provider};
use lab::{LabOptions, NodeOptions, WorkerSpec};

use crate::support::{PATIENCE, exists, lab, nodestrap, status, user_data, wait_ready_in_this_boot};

/// An image for one platform, as its maker leaves it: nodestrap's package, no cloud-init, and a word about where it runs,
/// since a container sees the firmware of its host, if any.
fn make_image(root: &Path) -> Result<()> {
    std::fs::remove_dir_all(root.join("var/lib/cloud/seed")).context("the seed of the lab")?;
    std::fs::create_dir_all(root.join("etc/cloud")).context("cloud-init's folder")?;
    std::fs::write(root.join("etc/cloud/cloud-init.disabled"), "").context("disabling cloud-init")?;
    std::fs::create_dir_all(root.join("etc/nodestrap")).context("nodestrap's folder")?;
    std::fs::write(root.join("etc/nodestrap/platform"), "aws\n").context("the platform")
}

#[test]
fn a_metadata_service_alone_makes_a_ready_node_and_a_reboot_asks_it_nothing() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let options = NodeOptions::named("n1").nodestrap(nodestrap()).before_boot(make_image).not_started();
    let machine = lab.add_node(options).expect("a node");
    // What was heard counts only as long as the address is the machine's own.
    let ipv4 = Some(machine.addresses().v4.to_string());
    let instance = Instance { ipv4, ..Instance::of(Provider::Aws).with_user_data(user_data) };
    let service = lab.start_metadata_service("n1", instance.clone()).expect("a metadata service");
    // As a service does that comes up with the machine.
    service.next([Manner::Status(404), Manner::Status(503), Manner::Truncate]);

    machine.start().expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    machine.wait_booted(PATIENCE).expect("no unit failed");
    assert!(machine.read_file("/etc/nodestrap/bundle.json").is_err(), "nobody delivered a file");
    assert!(!exists(&machine, "/run/cloud-init/enabled").expect("test runs"), "cloud-init took no part");
    let asked = service.requests();
    assert!(asked.iter().any(|request| request == "GET /latest/user-data"), "{asked:?}");
    assert!(asked.len() <= 10 + 3, "more than its ten questions and the three that failed: {asked:?}");
    assert_eq!(machine.run(&["stat", "-c", "%a", "/var/lib/nodestrap/platform.json"]).expect("kept").trim(), "600");

    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("http://169.254.169.254/latest/user-data"), "{text}");
    let plan = machine.run(&["nodestrap", "plan", "-o", "json"]).expect("a plan");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    assert_eq!(plan["facts"]["instanceType"]["value"], instance.kind);
    assert_eq!(plan["facts"]["instanceId"]["value"], instance.id);
    assert_eq!(service.requests(), asked, "status and plan ask nobody again");

    machine.reboot().expect("reboots");
    machine.wait_booted(PATIENCE).expect("booted again");
    wait_ready_in_this_boot(&lab, &machine).expect("Ready again");
    let again = machine.run(&["nodestrap", "status"]).expect("status");
    assert!(again.contains("latest/user-data"), "{again}");
    assert_eq!(service.requests(), asked, "a reboot asks nothing");
}
