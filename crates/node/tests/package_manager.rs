//! What people hear of a package manager: who is in its way, and what it said.

mod support;

use std::path::Path;

use bundle::Bundle;
use engine::{ErrorClass, Report, RunOutcome};
use host::disk::{Disk as _, Kind, LockHolder};
use host::packages::dpkg::LOCKS;
use support::{FakeNode, GATE};

/// For these words of a group, with a containerd that no repository has.
fn bundle(group: &str) -> Bundle {
    support::render("", &format!("{group}  source: package\n  components: {{containerd: {{version: 2.4.2-1}}}}\n"))
}

fn put(node: &FakeNode, path: &str, content: &str) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o644, content.as_bytes(), None)
        .expect("written");
}

fn red_hat() -> (Bundle, FakeNode) {
    let bundle = bundle("  os: rhel\n");
    let node = FakeNode::new(&bundle);
    put(&node, "/etc/os-release", "ID=rhel\nVERSION_ID=9.4\n");
    put(&node, "/etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 1\n");
    (bundle, node)
}

#[track_caller]
fn failure(report: &Report) -> (ErrorClass, String) {
    let RunOutcome::Failed { class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    (*class, message.clone())
}

/// The words of programs that change something: whoever only asks rpm is in nobody's way.
fn changing(node: &FakeNode) -> Vec<Vec<String>> {
    node.units.commands().into_iter().filter(|command| command[..2] != ["/usr/bin/rpm", "-qa"]).collect()
}

/// It is waited for as long as a step may take, and nothing is started over its head.
#[test]
fn who_holds_a_lock_of_dpkg_is_waited_for_and_named() {
    let bundle = bundle("");
    for lock in LOCKS {
        let node = FakeNode::new(&bundle);
        let holder = LockHolder { pid: 4711, name: "unattended-upgr".to_owned() };
        node.disk.set_lock_holder(Path::new(lock), Some(holder));
        let report = node.apply(&bundle, 0).expect("it runs");
        let (class, message) = failure(&report);
        assert_eq!(class, ErrorClass::Transient, "{message}");
        assert!(message.contains(&format!("unattended-upgr (process 4711) holds {lock}")), "{message}");
        assert_eq!(changing(&node), Vec::<Vec<String>>::new(), "{lock}");
        assert!(!node.gate_is_open());

        node.disk.set_lock_holder(Path::new(lock), None);
        let (_, message) = failure(&node.apply(&bundle, 0).expect("it runs"));
        assert!(!message.contains("holds") && !changing(&node).is_empty(), "it is let go of: {message}");
    }
}

#[test]
fn who_is_at_work_with_dnf_or_rpm_is_waited_for_and_named() {
    let by_number = |node: &FakeNode| {
        put(node, "/var/cache/dnf/download_lock.pid", "4711");
        put(node, "/proc/4711/comm", "dnf-automatic\n");
    };
    let by_lock = |node: &FakeNode| {
        let holder = LockHolder { pid: 4711, name: "dnf-automatic".to_owned() };
        node.disk.set_lock_holder(Path::new("/var/lib/rpm/.rpm.lock"), Some(holder));
    };
    for (place, hold) in
        [("/var/cache/dnf/download_lock.pid", &by_number as &dyn Fn(&FakeNode)), ("/var/lib/rpm/.rpm.lock", &by_lock)]
    {
        let (bundle, node) = red_hat();
        hold(&node);
        let (class, message) = failure(&node.apply(&bundle, 0).expect("it runs"));
        assert_eq!(class, ErrorClass::Transient, "{message}");
        assert!(message.contains(&format!("dnf-automatic (process 4711) holds {place}")), "{message}");
        assert_eq!(changing(&node), Vec::<Vec<String>>::new(), "{place}");
    }
}

/// As with hooks: root sees the last lines, and all of them in a file; others learn where that is.
#[test]
fn what_a_package_manager_said_is_for_root() {
    const WORDS: &str = "E: Unable to locate";
    let bundle = bundle("");
    let node = FakeNode::new(&bundle);
    let report = node.apply(&bundle, 0).expect("it runs");
    let RunOutcome::Failed { message, advice, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    let log = "/run/nodestrap/packages/download.log";
    assert!(advice.as_ref().is_some_and(|advice| advice.contains(log)), "{advice:?}");
    assert!(!message.contains(WORDS), "everybody hears that: {message}");
    let (status, _) = node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status");
    let output = status.blocked.and_then(|blocked| blocked.output).expect("it said something");
    assert!(output.contains(WORDS), "{output}");
    let kept = node.disk.read(Path::new(log), 1 << 20).expect("readable").expect("the file");
    assert!(String::from_utf8_lossy(&kept).contains(WORDS));
    let folder = node.disk.stat(Path::new("/run/nodestrap/packages")).expect("readable").expect("the folder");
    assert_eq!((folder.kind, folder.mode), (Kind::Folder, 0o700));
    assert!(node.disk.stat(Path::new(GATE)).expect("readable").is_none());
}
