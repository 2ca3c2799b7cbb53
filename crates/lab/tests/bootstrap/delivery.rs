//! Each way on which a bundle reaches a machine ends in a Ready node, and in nothing at all where a digest does not fit.

use anyhow::Result;
use lab::consumers::IgnitionSpec;
use lab::flow::{
    PrivateBucket, bare_node, download_site, downloaded_from, eks_instance, ignition_node, incompressible_text,
    published_paths,
};
use lab::metadata::Instance;
use lab::{Lab, LabOptions, Node, Patch, WorkerSpec};

use crate::support::{GATE, PATIENCE, damage_gate, exists, lab, node, nodestrap, user_data, wait_ready_in_this_boot};

const DOWNLOADED: &str = "/usr/local/bin/nodestrap";
const DOWNLOADED_ON_FLATCAR: &str = "/opt/bin/nodestrap";
const BUNDLE: &str = "/etc/nodestrap/bundle.json";
const UNIT: &str = "k8s-node-bootstrap.service";
const UNIT_FILE: &str = "/etc/systemd/system/k8s-node-bootstrap.service";

fn binary() -> Vec<u8> {
    std::fs::read(nodestrap()).expect("the program to test")
}

/// Of a server that is gone.
fn dead_address(lab: &Lab) -> String {
    lab.start_web_server().expect("a web server").url()
}

fn expect_ready_status(machine: &Node, program: &str) {
    let output = machine.exec(&[program, "status"]).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Ready"), "{text}");
}

/// What `cloud-init status` says once it is no longer at work; it ends with an error if there was one.
fn cloud_init_status(machine: &Node) -> Result<String> {
    let mut last = String::new();
    machine.wait_until("cloud-init is through", PATIENCE, |node| {
        last = String::from_utf8_lossy(&node.exec(&["cloud-init", "status"])?.stdout).trim().to_owned();
        Ok(last == "status: done" || last == "status: error")
    })?;
    Ok(last)
}

#[test]
fn the_part_handler_installs_nodestrap_from_the_mirror_that_lives_and_refuses_a_wrong_binary() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let (site, url) = download_site(&lab, &binary()).expect("a download site");
    let dead = dead_address(&lab) + "/nodestrap";

    let spec = WorkerSpec { group: downloaded_from(&[&dead, &url], &binary()), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(bare_node("n1").user_data(user_data(&spec))).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    assert_eq!(cloud_init_status(&machine).expect("cloud-init"), "status: done");
    machine.wait_booted(PATIENCE).expect("no unit failed");
    assert_eq!(std::fs::read(machine.root().join(DOWNLOADED.trim_start_matches('/'))).expect("installed"), binary());
    assert_eq!(machine.run(&["systemctl", "is-enabled", UNIT]).expect("systemctl").trim(), "enabled");
    expect_ready_status(&machine, DOWNLOADED);
    assert_eq!(site.requests(), ["/nodestrap"]);

    machine.reboot().expect("reboots");
    wait_ready_in_this_boot(&lab, &machine).expect("Ready again");
    assert_eq!(cloud_init_status(&machine).expect("cloud-init"), "status: done");
    assert_eq!(site.requests(), ["/nodestrap"], "nothing is downloaded again");

    let wrong = WorkerSpec { group: downloaded_from(&[&url], b"another program"), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(bare_node("n2").user_data(user_data(&wrong))).expect("the node boots");
    assert_eq!(cloud_init_status(&machine).expect("cloud-init"), "status: error");
    for path in [DOWNLOADED, "/usr/local/bin/nodestrap.part", UNIT_FILE, BUNDLE, "/etc/kubernetes/kubelet.env"] {
        assert!(!exists(&machine, path).expect("test runs"), "{path} must not be there");
    }
    let said = machine.read_file("/var/log/cloud-init-output.log").expect("cloud-init's log");
    assert!(said.contains("could not be downloaded") && said.contains("SHA-256"), "{said}");
    assert!(machine.journal("kubelet.service").contains("No entries"), "the kubelet was never started");
    assert_eq!(lab.kubectl(&["get", "nodes", "-o", "name"]).expect("nodes").trim(), "node/n1");
}

const IGNITIONS: [(IgnitionSpec, &str); 2] = [(IgnitionSpec::Three, "n1"), (IgnitionSpec::Two, "n2")];

#[test]
fn ignition_brings_the_binary_the_bundle_and_the_unit_before_the_first_boot() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let (site, url) = download_site(&lab, &binary()).expect("a download site");
    let spec_with = |program: &[u8]| WorkerSpec {
        group: format!("os: flatcar\n{}", downloaded_from(&[&url], program)),
        ..WorkerSpec::of(&lab)
    };
    let options = |name: &str, ignition: IgnitionSpec, spec: &WorkerSpec| {
        ignition_node(name, spec, ignition, &nodestrap()).unwrap_or_else(|error| panic!("{error:#}"))
    };

    for (ignition, name) in IGNITIONS {
        let options = options(name, ignition, &spec_with(&binary()));
        let machine = lab.add_node(options.not_started()).expect("Ignition runs");
        // It enables by a preset, which systemd follows on the first boot; until then the unit is not enabled.
        let preset = machine.root().join("etc/systemd/system-preset/20-ignition.preset");
        assert!(std::fs::read_to_string(preset).expect("a preset").contains(&format!("enable {UNIT}")));
        assert!(!machine.root().join("etc/systemd/system/multi-user.target.wants").join(UNIT).is_symlink());
        machine.start().expect("the node boots");
        lab.wait_node_ready(name, PATIENCE).expect("Ready");
        machine.wait_booted(PATIENCE).expect("no unit failed");
        assert_eq!(machine.run(&["systemctl", "is-enabled", UNIT]).expect("systemctl").trim(), "enabled");
        assert_eq!(machine.run(&["stat", "-c", "%a", BUNDLE]).expect("the bundle").trim(), "600");
        expect_ready_status(&machine, DOWNLOADED_ON_FLATCAR);
    }
    assert_eq!(site.requests(), ["/nodestrap", "/nodestrap"], "once for each node");

    for (ignition, name) in IGNITIONS {
        let name = format!("wrong-{name}");
        let options = options(&name, ignition, &spec_with(b"another program"));
        let error = lab.add_node(options).err().expect("a machine would not boot either");
        assert!(format!("{error:#}").contains("hash verification failed"), "{error:#}");
        let root = lab.node(&name).expect("it has a root").root();
        assert!(!root.join(DOWNLOADED_ON_FLATCAR.trim_start_matches('/')).exists(), "nothing may be installed");
    }
}

#[test]
fn a_stub_fetches_its_bundle_from_the_store_that_has_the_right_one_and_never_again() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let [wrong_store, right_store] = [(); 2].map(|()| lab.start_store().expect("a store"));
    let addresses = [wrong_store.url() + "/wrong", right_store.url() + "/bundles"];
    let spec = WorkerSpec::too_large_for_user_data(&lab, "/etc/large", &addresses.each_ref().map(String::as_str));
    let other = WorkerSpec { group: spec.group.replace("/etc/large", "/etc/other"), ..spec.clone() };
    let render = |spec: &WorkerSpec, arguments: &[&str]| {
        spec.render(&nodestrap(), arguments).unwrap_or_else(|error| panic!("{error:#}"))
    };

    let stub = render(&spec, &[]);
    assert!(stub.bytes.len() <= 16 * 1024, "{} bytes", stub.bytes.len());
    let paths = published_paths(&stub.remarks, &[&wrong_store, &right_store]).expect("render says where to publish");
    // Whole and well formed, but not the one that the stub names.
    wrong_store.put(&paths[0], render(&other, &["--format", "bundle"]).bytes).expect("published");
    right_store.put(&paths[1], render(&spec, &["--format", "bundle"]).bytes).expect("published");

    let machine = lab.add_node(node("n1", &stub.bytes)).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    machine.wait_booted(PATIENCE).expect("no unit failed");
    assert!(machine.read_file(BUNDLE).expect("the stub").contains("BundleReference"));
    assert_eq!(machine.read_file("/etc/large").expect("the file"), incompressible_text());
    assert!(!exists(&machine, "/etc/other").expect("test runs"));
    assert_eq!((wrong_store.requests(), right_store.requests()), (vec![paths[0].clone()], vec![paths[1].clone()]));
    let said = machine.journal(UNIT);
    assert!(said.contains(&wrong_store.url()), "the store with the wrong bundle is named:\n{said}");
    expect_ready_status(&machine, "/usr/bin/nodestrap");

    drop((wrong_store, right_store));
    machine.reboot().expect("reboots");
    wait_ready_in_this_boot(&lab, &machine).expect("Ready again without a store");
    // And when there is something to do again: the copy that was kept serves for it.
    damage_gate(&machine, GATE).expect("mended without a store");
    expect_ready_status(&machine, "/usr/bin/nodestrap");
}

/// An image for AWS; a container shows no firmware that would say so.
fn say_aws(root: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(root.join("etc/nodestrap"))?;
    Ok(std::fs::write(root.join("etc/nodestrap/platform"), "aws\n")?)
}

#[test]
fn a_bare_machine_that_is_given_a_role_gets_its_bundle_and_its_programs_from_a_private_bucket() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let bucket = PrivateBucket::start(&lab).expect("a bucket");
    let release = lab.release(Patch::Newest).expect("a release");
    bucket.publish_release(&nodestrap(), &release).unwrap_or_else(|error| panic!("{error:#}"));
    let spec = bucket.spec(&lab, Patch::Newest, "/etc/large").expect("a spec");
    let render = |arguments: &[&str]| spec.render(&nodestrap(), arguments).unwrap_or_else(|error| panic!("{error:#}"));
    let stub = render(&[]);
    assert!(stub.bytes.len() <= 16 * 1024, "{} bytes", stub.bytes.len());
    assert!(stub.remarks.contains("nodestrap publish s3://nodes/bundles --bundle FILE"), "{}", stub.remarks);
    let bundle = render(&["--format", "bundle"]).bytes;
    bucket.publish_bundle(&nodestrap(), &bundle).unwrap_or_else(|error| panic!("{error:#}"));

    let options = node("n1", &stub.bytes).bare().before_boot(say_aws).not_started();
    let options = options.container_image(lab.kube_proxy_image().expect("an image"));
    let machine = lab.add_node(options).expect("a node");
    let instance = eks_instance(&machine, "m5.large");
    let without_role = lab.start_metadata_service("n1", instance.clone()).expect("a metadata service");
    machine.start().expect("the node boots");
    machine
        .wait_until("the node says what it lacks", PATIENCE, |node| {
            Ok(node.journal(UNIT).contains("give the instance a role that may read the bucket"))
        })
        .expect("it waits for a role");
    assert!(!exists(&machine, "/etc/kubernetes").expect("test runs"), "nothing is touched");
    let reads = |log: &str| log.lines().filter(|line| line.contains("GET") && line.contains("/nodes/bundles/")).count();
    assert_eq!(reads(&bucket.store.log()), 0, "nobody asks without a signature:\n{}", bucket.store.log());

    drop(without_role);
    let instance = Instance { role: Some(bucket.role.clone()), ..instance };
    let _service = lab.start_metadata_service("n1", instance).expect("a metadata service");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    machine.wait_booted(PATIENCE).expect("no unit failed");
    expect_ready_status(&machine, "/usr/bin/nodestrap");
    assert!(machine.read_file(BUNDLE).expect("the stub").contains("BundleReference"));
    assert_eq!(machine.read_file("/etc/large").expect("the file"), incompressible_text());
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    let log = bucket.store.log();
    assert_eq!(reads(&log), 1, "once and never again:\n{log}");
    for part in ["/nodes/programs/kubelet/", "/nodes/programs/containerd/"] {
        assert!(log.contains(part), "{part} was not read from the bucket:\n{log}");
    }
    // They were good for hours, and lie nowhere.
    let found = machine.exec(&["grep", "-rlsF", &bucket.role.secret_key, "/etc", "/var", "/run", "/opt"]);
    let found = String::from_utf8_lossy(&found.expect("grep runs").stdout).into_owned();
    assert!(found.is_empty(), "the secret key of the role lies in {found}");
}
