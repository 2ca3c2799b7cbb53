//! Nodes that join: pods on different nodes reach each other, and two labs do not know of one another.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use lab::{Lab, LabOptions};

#[test]
fn pods_on_different_nodes_reach_each_other_over_both_address_families() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions { dual_stack: true, ..LabOptions::default() }).expect("lab");
    let nodes = ["n1", "n2"].map(|name| lab.add_plain_node(name).expect("node"));
    let pods = nodes.each_ref().map(|node| lab.run_pod(&format!("on-{}", node.name()), node.name()).expect("pod"));
    for (from, to) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        assert_eq!(to.addresses.len(), 2, "{to:?}");
        for address in &to.addresses {
            assert_eq!(lab.pod_connect(&from.name, address).expect("answer"), to.name);
        }
    }
}

#[test]
fn two_labs_run_side_by_side_with_the_same_names_and_addresses() {
    if !lab::require() {
        return;
    }
    let labs = [(); 2].map(|()| Lab::up(LabOptions::default()).expect("lab"));
    let nodes = labs.each_ref().map(|lab| lab.add_plain_node("n1").expect("node"));
    assert_eq!(nodes[0].addresses(), nodes[1].addresses());
    labs[0].run_pod("only-here", "n1").expect("pod");
    assert!(labs[1].kubectl(&["get", "pod", "only-here"]).is_err());

    let [first, second] = labs;
    drop(first);
    assert_eq!(second.kubectl(&["get", "--raw", "/readyz"]).expect("the other lab is untouched"), "ok");
    assert!(nodes[1].run(&["systemctl", "is-active", "kubelet"]).is_ok());
    assert!(!nodes[0].is_running().unwrap_or(false));
}
