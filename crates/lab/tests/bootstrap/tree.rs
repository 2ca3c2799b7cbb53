//! Nothing but an operating system: kubelet, runtime and CNI plug-ins come as trees from a store of signed artefacts.

use std::path::Path;

use anyhow::{Result, ensure};
use lab::flow::ArtefactStore;
use lab::{LabOptions, Node, Patch};

use crate::support::{GATE, PATIENCE, deliver, exists, lab, nodestrap, wait_ready_with, wait_spent};

/// What `check-host` only remarks on: a node must become Ready without it, and its services answer.
fn take_away_what_is_not_needed(root: &Path) -> Result<()> {
    let mut gone = 0;
    for folder in ["usr/sbin", "usr/bin"] {
        for entry in root.join(folder).read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if ["iptables", "ip6tables", "xtables", "nft", "conntrack"].iter().any(|word| name.starts_with(word)) {
                std::fs::remove_file(entry.path())?;
                gone += 1;
            }
        }
    }
    ensure!(gone > 0, "the image has none of them, so that they are missed by nobody shows nothing");
    Ok(())
}

/// Who runs `apply`.
enum By {
    Hand,
    /// The bootstrap unit: the kubelet starts after the run, which therefore cannot see it.
    Boot,
}

fn versions_of_the_kubelet(machine: &Node) -> Result<usize> {
    let names = machine.run(&["ls", "/opt/nodestrap/bin/kubelet"])?;
    Ok(names.lines().filter(|name| name.ends_with(".json")).count())
}

#[test]
fn a_bare_debian_becomes_a_ready_node_goes_to_another_patch_and_back_and_is_bare_again_after_a_reset() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let store = ArtefactStore::start(&lab).expect("a store");
    let mut release = lab.release(Patch::Earlier).expect("a release");
    for file in lab.release(Patch::Newest).expect("a release") {
        if !release.contains(&file) {
            release.push(file);
        }
    }
    store.publish(&nodestrap(), &release).expect("published");

    let options = store.node(&lab, "n1", Patch::Earlier, &nodestrap()).expect("a bundle");
    let machine = lab.add_node(options.before_boot(take_away_what_is_not_needed)).expect("the node boots");
    wait_ready_with(&lab, &machine, Patch::Earlier);
    machine.wait_booted(PATIENCE).expect("no unit failed");
    lab.service_answers("echo", &machine).expect("a pod that the scheduler assigned answers by its service");
    wait_spent(&machine).expect("it has its own credentials");

    for (patch, by) in [(Patch::Newest, By::Hand), (Patch::Earlier, By::Boot)] {
        let spec = store.spec(&lab, patch).expect("a spec");
        deliver(&machine, &spec);
        match by {
            By::Hand => machine.run(&["nodestrap", "apply"]).expect("applied"),
            By::Boot => machine
                .run(&["sh", "-c", &format!("rm {GATE} && systemctl restart --no-block kubelet.service")])
                .expect("without a gate the bootstrap runs before the kubelet starts"),
        };
        wait_ready_with(&lab, &machine, patch);
        machine
            .wait_until("the other version is gone", PATIENCE, |node| Ok(versions_of_the_kubelet(node)? == 1))
            .expect("it goes when the new one is healthy");
        let verified = machine.run(&["nodestrap", "verify"]).expect("no drift");
        assert!(verified.contains("the programs of 5 components"), "{verified}");
    }

    machine.run(&["nodestrap", "reset", "--yes", "--kubelet-state"]).expect("reset");
    for program in ["kubelet", "kubectl", "containerd", "runc", "ctr"] {
        let found = machine.exec(&["sh", "-c", &format!("command -v {program}")]).expect("sh runs");
        assert!(!found.status.success(), "{program} is still at {}", String::from_utf8_lossy(&found.stdout));
    }
    for path in ["/opt/nodestrap", "/opt/cni", "/etc/containerd", "/etc/cni"] {
        assert!(!exists(&machine, path).expect("test runs"), "{path} is still there");
    }
}
