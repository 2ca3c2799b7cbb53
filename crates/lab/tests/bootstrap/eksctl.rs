//! eksctl's flows on booted nodes: a metadata service at 169.254.169.254, no bash, curl, jq or aws, a real kubelet.

use lab::flow::{EksImage, eks_instance, eks_spec};
use lab::{Flow, Lab, LabOptions, Node};

use super::support::*;

const GATE: &str = "/etc/eksctl/kubelet.local.env";
const INSTANCE: &str = "i-0123456789abcdef0";

fn assert_no_tools(machine: &Node) {
    for tool in ["bash", "curl", "jq", "aws"] {
        let found = machine.exec(&["sh", "-c", &format!("command -v {tool}")]).expect("runs");
        assert!(!found.status.success(), "{tool} is there: {}", String::from_utf8_lossy(&found.stdout));
    }
}

/// The kernel's word for it: one program is started, and that is nodestrap.
fn apply_without_children(machine: &Node) {
    let words = ["strace", "-f", "-qq", "-e", "trace=execve,execveat", "-o", "/root/trace", "nodestrap", "apply"];
    let said = machine.run(&words).expect("applied");
    assert!(said.contains("node complete"), "there was something to do: {said}");
    let trace = machine.read_file("/root/trace").expect("a trace");
    assert_eq!(trace.lines().filter(|line| line.contains("exec")).count(), 1, "{trace}");
}

fn variable(gate: &str, name: &str) -> String {
    let line = gate.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name} is not in {gate}")).trim_matches('"').to_owned()
}

/// What a gate of this layout says, and what the kubelet made of it.
fn assert_joined_with_facts(lab: &Lab, machine: &Node, max_pods: &str) {
    let gate = machine.read_file(GATE).expect("the gate");
    let address = machine.addresses().v4.to_string();
    for (name, value) in [("NODE_IP", &*address), ("INSTANCE_ID", INSTANCE), ("MAX_PODS", max_pods)] {
        assert_eq!(variable(&gate, name), value, "{gate}");
    }
    let seen = lab.kubectl_json(&["get", "node", "n1"]).expect("the Node");
    assert_eq!(seen["metadata"]["labels"]["alpha.eksctl.io/instance-id"], INSTANCE);
    assert_eq!(seen["metadata"]["labels"]["example.com/pool"], "workers");
    assert_eq!(seen["status"]["capacity"]["pods"], max_pods);
    let addresses = seen["status"]["addresses"].to_string();
    assert!(addresses.contains(&address), "{addresses}");
}

#[test]
fn amazon_linux_becomes_a_ready_node_without_bash_curl_jq_and_aws() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let flow = ready_by(Flow::EksctlAl2, &lab, "n1");
    let machine = &flow.node;
    assert_no_tools(machine);
    assert_joined_with_facts(&lab, machine, "29");
    assert_eq!(variable(&machine.read_file(GATE).expect("the gate"), "INSTANCE_TYPE"), "m5.large");

    // Not one attempt of a kubelet before the gate got as far as running it.
    let journal = machine.run(&["journalctl", "-b", "-o", "cat", "--no-pager", "_PID=1"]).expect("journal");
    let position = |needle: &str| journal.find(needle).unwrap_or_else(|| panic!("{needle:?} is not in:\n{journal}"));
    assert!(position("Started k8s-node-bootstrap.service") < position("Started kubelet.service"), "{journal}");
    let again = machine.run(&["nodestrap", "apply"]).expect("a rerun succeeds");
    assert!(again.contains("nothing to do"), "{again}");

    machine.run(&["rm", GATE, "/etc/eksctl/kubelet.yaml"]).expect("removed");
    apply_without_children(machine);

    // A damaged gate counts as absent, and is mended without help.
    damage_gate(machine, GATE).expect("mended");
    assert_joined_with_facts(&lab, machine, "29");

    machine.reboot().expect("reboots");
    wait_ready_in_this_boot(&lab, machine).expect("Ready again");
    assert_bootstrap_skipped(machine);
}

#[test]
fn an_instance_type_that_nobody_knows_stops_the_boot_until_somebody_says_how_many_pods() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let image = EksImage::AmazonLinux2;
    let options = node("n1", &user_data(&eks_spec(&lab, image, ""))).before_boot(move |root| image.make(root));
    let machine = lab.add_node(options.not_started()).expect("a node");
    let instance = eks_instance(&machine, "m99.large");
    let _service = lab.start_metadata_service("n1", instance).expect("a metadata service");
    machine.start().expect("the node boots");
    machine
        .wait_until("the refusal", PATIENCE, |node| {
            Ok(node.journal("k8s-node-bootstrap.service").contains("m99.large"))
        })
        .expect("refused by name");
    assert!(machine.journal("k8s-node-bootstrap.service").contains("maxPods"));
    for path in [GATE, "/etc/eksctl/kubelet.yaml"] {
        assert!(!exists(&machine, path).expect("runs"), "{path} is there");
    }

    let chosen = eks_spec(&lab, image, "maxPods: 17\n");
    let bundle = chosen.render(&nodestrap(), &["--format", "bundle"]).expect("rendered").bytes;
    std::fs::write(machine.root().join("etc/nodestrap/bundle.json"), bundle).expect("delivered");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready by itself");
    assert_joined_with_facts(&lab, &machine, "17");
}

#[test]
fn ubuntu_becomes_a_ready_node_by_the_socket_of_a_real_snapd() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let flow = ready_by(Flow::EksctlUbuntu, &lab, "n1");
    let machine = &flow.node;
    assert_no_tools(machine);
    assert_joined_with_facts(&lab, machine, "17");

    let kubelet = "snap.kubelet-eks.daemon.service";
    let aliases = machine.run(&["snap", "aliases"]).expect("snap");
    assert!(aliases.contains("kubelet-eks.kubelet") && aliases.contains("kubectl-eks.kubectl"), "{aliases}");
    let max_pods = machine.run(&["snap", "get", "kubelet-eks", "max-pods"]).expect("snap");
    assert_eq!(max_pods.trim(), "17");
    let again = machine.run(&["nodestrap", "apply"]).expect("a rerun succeeds");
    assert!(again.contains("nothing to do"), "{again}");

    machine.run(&["snap", "set", "kubelet-eks", "max-pods=5"]).expect("changed");
    apply_without_children(machine);
    let max_pods = machine.run(&["snap", "get", "kubelet-eks", "max-pods"]).expect("snap");
    assert_eq!(max_pods.trim(), "17");

    // Without its gate it does not start, and whoever tries starts the bootstrap too, which mends it.
    machine.run(&["snap", "stop", "kubelet-eks"]).expect("stopped");
    machine.run(&["rm", GATE]).expect("shut");
    machine.run(&["snap", "start", "kubelet-eks"]).expect("snapd takes it for started");
    wait_mended(machine, GATE, kubelet).expect("mended");
    let skipped = format!("{kubelet} - Service for snap application kubelet-eks.daemon was skipped");
    assert!(machine.journal("").contains(&skipped), "the gate was shut, and the kubelet was not held back");
    assert_joined_with_facts(&lab, machine, "17");

    machine.reboot().expect("reboots");
    wait_ready_in_this_boot(&lab, machine).expect("Ready again");
    assert_bootstrap_skipped(machine);
}
