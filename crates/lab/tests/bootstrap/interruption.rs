//! `kill -9` and power cuts in the middle of `apply`, on a booted node with a real disk, and on a bare one that gets its programs
//! as trees.
//!
//! strace stops the real binary at its n-th change of the disk. Then either the process or the whole machine is killed,
//! and the next boot must end in the same tree, Ready.
//!
//! ```sh
//! NODESTRAP_INTERRUPTIONS=10 make booted     every point of a bare node, not only a sample of them
//! ```

use std::path::Path;

use anyhow::Result;
use bundle::{Bundle, Component, Tree};
use lab::flow::ArtefactStore;
use lab::{Lab, LabOptions, Node, NodeOptions, Patch, WorkerSpec};

use crate::support::{PATIENCE, exists, lab, node, nodestrap, number, programs, tree, user_data, wait_spent};

/// The n-th call of one thread to that system call, spread over the run. strace counts for each thread by itself, and
/// steps run on several: these are few enough to be reached whichever thread does the work, and the test checks that.
const POINTS: [(&str, u32); 10] = [
    ("mkdirat", 1),   // the lock's folder: nothing is done yet
    ("openat", 2),    // before the first file is staged
    ("openat", 9),    // in the middle of them
    ("syncfs", 1),    // all staged, nothing durable
    ("renameat", 1),  // durable, nothing switched
    ("renameat", 10), // all but one switched
    ("syncfs", 2),    // all switched, the switch not durable
    ("sendmsg", 4),   // in the middle of a call to systemd
    ("fsync", 1),     // the journal before the gate
    ("fsync", 4),     // around the gate itself
];

const STORE: &str = "/var/lib/nodestrap/store";
const PROGRAMS: &str = "/usr/local/bin";
/// Where runs are cut off that bring programs, on each commit; there are ten in all.
const SAMPLE: u64 = 2;

/// The n-th call of one thread to that system call on a file or in a folder, or anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) call: &'static str,
    pub(crate) at: Option<String>,
    pub(crate) count: u32,
}

/// While programs are fetched, unpacked and switched in. Of containerd, which is an archive with folders, all that is unpacked is
/// known by name.
fn points_of_programs(containerd: &Tree) -> [Point; 10] {
    let home = containerd.home();
    let unpacked = format!("{home}/.{}.nodestrap-new", containerd.name());
    let [staging, objects] = ["staging", "sha256"].map(|folder| format!("{STORE}/{folder}"));
    let point = |call, at: &str, count| Point { call, at: Some(at.to_owned()), count };
    [
        point("mkdirat", STORE, 1),                                          // nothing is fetched yet
        point("openat", &staging, 40), // in the middle of the first artefact of some thread
        point("renameat", &staging, 1), // one is whole, and not in the store
        point("fsync", &objects, 1),   // it is there, and its name is not durable
        point("mkdirat", &home, 1),    // nothing is unpacked yet
        point("openat", &format!("{unpacked}/bin"), 2), // after the first program of several
        point("renameat", &home, 1),   // all unpacked, and nobody knows what is in it
        point("fsync", &home, 2),      // it has its name, which is not durable
        point("symlinkat", &format!("{}/kubelet", bundle::TREES_FOLDER), 1), // no version of the kubelet is in use
        point("renameat", PROGRAMS, 2), // one link of several leads to its program
    ]
}

/// Where an image has it.
pub(crate) const PROGRAM: &str = "/usr/bin/nodestrap";
/// What strace saw, on the node.
pub(crate) const TRACE: &str = "/var/log/interrupted.strace";

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// `kill -9` of nodestrap; systemd starts it again.
    Process,
    /// The machine loses power and is started again.
    Machine,
}

/// Makes the first run of the bootstrap unit stop at its n-th change, once.
pub(crate) fn stop_at(root: &Path, nodestrap: &str, Point { call, at, count }: &Point, end: End) -> Result<()> {
    let place = at.as_ref().map(|at| format!("-P {at}")).unwrap_or_default();
    let signal = match end {
        End::Process => "SIGKILL",
        End::Machine => "SIGSTOP",
    };
    // The marker lives on the disk: the second run, or the second boot, is undisturbed.
    let script = format!(
        "#!/bin/sh\nif [ -e /var/lib/interrupted ]; then exec {nodestrap} apply; fi\n: > /var/lib/interrupted\nsync\n\
         exec strace -f -o {TRACE} {place} -e trace={call} -e inject={call}:signal={signal}:when={count} \
         {nodestrap} apply\n"
    );
    // Not below /usr, which cannot be written on every system.
    let program = root.join("opt/interrupted-apply");
    std::fs::create_dir_all(root.join("opt"))?;
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let folder = root.join("etc/systemd/system/k8s-node-bootstrap.service.d");
    std::fs::create_dir_all(&folder)?;
    // strace has to do what the unit forbids nodestrap.
    let drop_in = "[Service]\nExecStartPre=\nExecStartPre=/opt/interrupted-apply\nRestartSec=1\n\
                   SystemCallFilter=\nCapabilityBoundingSet=~\n";
    std::fs::write(folder.join("interrupt.conf"), drop_in)?;
    Ok(())
}

pub(crate) fn wait_for_stop(machine: &Node, program: &str) -> Result<()> {
    machine.wait_until(&format!("{program} is stopped"), PATIENCE, |node| {
        let states = node.exec(&["ps", "-C", program, "-o", "stat="])?;
        Ok(String::from_utf8_lossy(&states.stdout).lines().any(|state| state.trim_start().starts_with(['T', 't'])))
    })
}

/// One node, interrupted once; what it ends in.
pub(crate) fn interrupted(lab: &Lab, options: NodeOptions<'static>, point: Point, end: End) -> Result<String> {
    let machine = lab.add_node(options.before_boot(move |root| stop_at(root, PROGRAM, &point, end)))?;
    if matches!(end, End::Machine) {
        wait_for_stop(&machine, "nodestrap")?;
        machine.kill()?;
        machine.start()?;
    }
    let found = settled(lab, &machine)?;
    if matches!(end, End::Process) {
        let trace = machine.read_file(TRACE)?;
        anyhow::ensure!(trace.contains("killed by SIGKILL"), "the run was never interrupted:\n{trace}");
    }
    machine.poweroff()?;
    Ok(found)
}

/// What a node is made of that is Ready and has come to rest.
pub(crate) fn settled(lab: &Lab, machine: &Node) -> Result<String> {
    lab.wait_node_ready(machine.name(), PATIENCE)?;
    machine.wait_until("the CNI configuration is there", PATIENCE, |node| {
        exists(node, "/etc/cni/net.d/10-nodestrap.conflist")
    })?;
    wait_spent(machine)?;
    Ok(comparable(&(tree(machine)? + &programs(machine)?)))
}

/// The CNI configuration carries the node's own range, and what interrupts is the test's: neither is part of the comparison.
pub(crate) fn comparable(tree: &str) -> String {
    let tests_own = ["interrupt.conf", "interrupted-apply"];
    tree.lines()
        .filter(|line| !line.contains("10-nodestrap.conflist") && !tests_own.iter().any(|name| line.ends_with(name)))
        .filter(|line| !line.ends_with("etc/kubernetes/kubelet.env"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// An undisturbed node, and one for each point that must end like it.
fn run(lab: &Lab, options: &dyn Fn(&str) -> NodeOptions<'static>, points: Vec<Point>, end: End) -> String {
    let machine = lab.add_node(options("clean")).expect("boots");
    let expected = settled(lab, &machine).expect("Ready");
    assert!(expected.contains("etc/kubernetes/kubelet.yaml"), "{expected}");
    machine.poweroff().expect("off");
    for (index, point) in points.into_iter().enumerate() {
        let found = interrupted(lab, options(&format!("n{index}")), point.clone(), end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at {point:?}: {error:#}"));
        assert_eq!(found, expected, "{end:?} at {point:?}");
        println!("{end:?} at {point:?}: Ready, same tree");
    }
    expected
}

fn run_with_an_image(end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let points = POINTS.map(|(call, count)| Point { call, at: None, count });
    run(&lab, &|name| node(name, &user_data), points.to_vec(), end);
}

fn run_with_programs(end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let store = ArtefactStore::start(&lab).expect("a store");
    store.publish(&nodestrap(), &lab.release(Patch::Newest).expect("a release")).expect("published");
    let spec = store.spec(&lab, Patch::Newest).expect("a spec");
    let rendered = spec.render(&nodestrap(), &["--format", "bundle"]).expect("a bundle").bytes;
    let bundle = Bundle::parse(&rendered).expect("a bundle");
    let containerd = bundle.trees.iter().find(|tree| tree.component == Component::Containerd).expect("a containerd");
    let all = points_of_programs(containerd);
    // Others for each commit; three has no factor in common with ten, so none comes twice.
    let first = number("NODESTRAP_SAMPLE").unwrap_or(0) % 10;
    let count = number("NODESTRAP_INTERRUPTIONS").unwrap_or(SAMPLE).min(10);
    let at = |index: u64| usize::try_from((first + 3 * index) % 10).expect("below ten");
    let points = (0..count).map(|index| all[at(index)].clone()).collect();
    let options = |name: &str| store.node(&lab, name, Patch::Newest, &nodestrap()).expect("a bundle");
    let expected = run(&lab, &options, points, end);
    for wanted in [containerd.folder().trim_start_matches('/'), "usr/local/bin/kubelet", "store/sha256/"] {
        assert!(expected.contains(wanted), "{wanted} is not compared: {expected}");
    }
}

#[test]
fn ready_with_the_same_tree_after_kill_9_at_ten_points_of_apply() {
    run_with_an_image(End::Process);
}

#[test]
fn ready_with_the_same_tree_after_a_power_cut_at_ten_points_of_apply() {
    run_with_an_image(End::Machine);
}

#[test]
fn ready_with_the_same_programs_after_kill_9_while_they_are_fetched_unpacked_and_switched_in() {
    run_with_programs(End::Process);
}

#[test]
fn ready_with_the_same_programs_after_a_power_cut_while_they_are_fetched_unpacked_and_switched_in() {
    run_with_programs(End::Machine);
}
