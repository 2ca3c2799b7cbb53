//! User data in, a Ready node out.

use lab::{LabOptions, WorkerSpec};

use crate::support::{
    GATE, PATIENCE, assert_bootstrap_skipped, damage_gate, lab, node, status, tree, user_data, wait_for_gate,
    wait_ready_in_this_boot, wait_spent,
};

/// Monotonic microseconds at which the unit's main process was started.
fn started(node: &lab::Node, unit: &str) -> u64 {
    let shown = node.run(&["systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", unit]).expect("systemctl");
    shown.trim().parse().expect("a number")
}

#[test]
fn user_data_becomes_a_ready_node_that_runs_a_pod_and_stays_so_over_a_reboot() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let machine = lab.add_node(node("n1", &user_data)).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    machine.wait_booted(PATIENCE).expect("no unit failed");

    // The order of units, from the journal of the node.
    let journal = machine.run(&["journalctl", "-b", "-o", "cat", "--no-pager", "_PID=1"]).expect("journal");
    let position = |needle: &str| journal.find(needle).unwrap_or_else(|| panic!("{needle:?} is not in:\n{journal}"));
    let bootstrap_starts = position("Starting k8s-node-bootstrap.service");
    let containerd_is_up = position("Started containerd.service");
    let bootstrap_is_done = position("Started k8s-node-bootstrap.service");
    let kubelet_starts = position("Starting kubelet.service");
    assert!(position("Finished cloud-init.service") < bootstrap_starts);
    assert!(bootstrap_starts < containerd_is_up && containerd_is_up < bootstrap_is_done, "{journal}");
    assert!(bootstrap_is_done < kubelet_starts, "the kubelet started before the gate was open:\n{journal}");
    assert!(started(&machine, "containerd.service") < started(&machine, "kubelet.service"));

    let seen = lab.kubectl_json(&["get", "node", "n1"]).expect("the Node");
    assert_eq!(seen["metadata"]["labels"]["example.com/pool"], "workers");
    let cidr = seen["spec"]["podCIDR"].as_str().expect("a PodCIDR").to_owned();
    let cni = machine.read_file("/etc/cni/net.d/10-nodestrap.conflist").expect("the CNI configuration");
    assert!(cni.contains(&cidr), "{cidr} is not in {cni}");
    lab.run_pod("p1", "n1").expect("the pod runs");

    wait_spent(&machine).expect("the token has done its work");
    assert_token_is_gone(&machine, lab.bootstrap_token());
    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Ready"), "{text}");
    assert!(text.contains("bootstrap credentials: spent"), "{text}");
    machine.run(&["nodestrap", "verify"]).expect("no drift");
    let again = machine.run(&["nodestrap", "apply"]).expect("a rerun succeeds");
    assert!(again.contains("nothing to do"), "{again}");

    let before = tree(&machine).expect("tree");
    damage_gate(&machine, GATE).expect("mended");
    assert_eq!(tree(&machine).expect("tree"), before);

    machine.reboot().expect("reboots");
    machine.wait_booted(PATIENCE).expect("booted again");
    wait_ready_in_this_boot(&lab, &machine).expect("Ready again");
    assert_token_is_gone(&machine, lab.bootstrap_token());
    assert_bootstrap_skipped(&machine);
    assert_eq!(tree(&machine).expect("tree"), before);
}

/// Out of everything that is ours, also of what was interrupted.
fn assert_token_is_gone(machine: &lab::Node, token: &str) {
    let places = ["/etc/nodestrap", "/etc/kubernetes", "/var/lib/nodestrap"];
    let found = machine.exec(&[&["grep", "-rlF", token], places.as_slice()].concat()).expect("grep runs");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found, "", "the token is still there");
}

#[test]
fn three_nodes_at_once_get_their_own_ranges_and_their_pods_reach_each_other_over_both_families() {
    let Some(lab) = lab(LabOptions { dual_stack: true, ..LabOptions::default() }) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let names = ["n1", "n2", "n3"];
    for name in names {
        lab.add_node(node(name, &user_data)).expect("the node boots");
    }
    for name in names {
        lab.wait_node_ready(name, PATIENCE).expect("Ready");
    }
    let pods: Vec<_> =
        names.iter().map(|name| lab.run_pod(&format!("pod-{name}"), name).expect("the pod runs")).collect();
    for from in &pods {
        for to in pods.iter().filter(|to| to.name != from.name) {
            assert_eq!(to.addresses.len(), 2, "{} has an address of each family: {:?}", to.name, to.addresses);
            for address in &to.addresses {
                let answer = lab.pod_connect(&from.name, &address.to_string()).expect("they reach each other");
                assert_eq!(answer.trim(), to.name);
            }
        }
    }
}

#[test]
fn two_labs_at_the_same_time_do_not_see_each_other() {
    let (Some(one), Some(two)) = (lab(LabOptions::default()), lab(LabOptions::default())) else { return };
    for lab in [&one, &two] {
        let user_data = user_data(&WorkerSpec::of(lab));
        lab.add_node(node("n1", &user_data)).expect("the node boots");
    }
    for lab in [&one, &two] {
        lab.wait_node_ready("n1", PATIENCE).expect("Ready");
        let nodes = lab.kubectl(&["get", "nodes", "-o", "name"]).expect("nodes");
        assert_eq!(nodes.trim(), "node/n1");
    }
    assert_ne!(one.bootstrap_token(), two.bootstrap_token());
}

#[test]
fn a_node_that_boots_while_the_api_server_is_down_becomes_ready_without_help() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    lab.stop_apiserver().expect("stopped");
    let machine = lab.add_node(node("n1", &user_data)).expect("the node boots");
    wait_for_gate(&machine).expect("the bootstrap needs no API server");
    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "a retry may succeed: {text}");
    assert!(text.contains("cannot be reached"), "{text}");
    lab.start_apiserver().expect("started");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready without help");
}

#[test]
fn kube_proxy_as_a_static_pod_makes_the_address_of_a_service_answer_on_the_node() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let spec = WorkerSpec::of(&lab).with_kube_proxy(&lab).expect("a spec");
    let proxy = lab.kube_proxy_image().expect("the image of kube-proxy");
    let machine = lab.add_node(node("n1", &user_data(&spec)).container_image(proxy)).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    let pods = lab.kubectl_json(&["get", "pods", "--namespace", "kube-system"]).expect("pods");
    let names: Vec<_> = pods["items"].as_array().into_iter().flatten().map(|pod| &pod["metadata"]["name"]).collect();
    assert_eq!(names, ["kube-proxy-n1"], "the node's own, by the kubelet alone");
}
