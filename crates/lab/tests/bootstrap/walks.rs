//! However a booted node got here, it equals a fresh one.
//!
//! A node gets one bundle and then another of the same group; a second node gets the other alone. What nodestrap manages is
//! then the same on both, only those units were started anew of which `render --diff` says so, and `reset` gives back what was
//! there before. The same with a thousand times more bundles, on a fake machine, is in `crates/node/tests/walks.rs`.
//!
//! ```text
//! NODESTRAP_BOOTED_WALKS=20 make booted     more of them
//! NODESTRAP_BOOTED_WALK=4711 …              one, again; a failure prints the whole command
//! ```

mod seen;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use bundle::{BUNDLE_PATH, Bundle, Start, TRUST_UNIT, diff_bundles};
use lab::{Lab, LabOptions, Node, NodeOptions, WorkerSpec};

use crate::support::{GATE, PATIENCE, lab, nodestrap, number};
use seen::{Tree, UnitStates, all_services, invocations, units_of};
use wishes::Wishes;

const KUBELET: &str = "kubelet.service";
/// Where the system keeps what it trusts.
const TRUSTED: &str = "/etc/ssl/certs";

/// The client of the time servers, which the lab's image lacks: running and enabled, as Debian has it.
const TIME_CLIENT: &str = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
const TIME_CLIENT_FILE: &str = "usr/lib/systemd/system/systemd-timesyncd.service";
const TIME_CLIENT_LINK: &str = "etc/systemd/system/multi-user.target.wants/systemd-timesyncd.service";

/// Certificates of authorities for specs that trust them.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["one", "two"] {
            let (start, lifetime) = (SystemTime::now() - Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
            let authority = pki::Authority::create(name, pki::Validity { start, lifetime })?;
            std::fs::write(folder.path().join(format!("{name}.crt")), authority.certificate_pem())?;
        }
        Ok(Self(folder))
    }
}

/// A bundle, and its bytes as they are delivered.
struct Delivery {
    bundle: Bundle,
    bytes: Vec<u8>,
}

impl Delivery {
    fn of(lab: &Lab, wishes: &Wishes, certificates: &Certificates) -> Result<Self> {
        let (cluster, group) = (wishes.cluster(certificates.0.path()), wishes.group());
        let spec = WorkerSpec { labels: wishes.labels(), cluster, group, ..WorkerSpec::of(lab) };
        Self::rendered(&spec)
    }

    fn rendered(spec: &WorkerSpec) -> Result<Self> {
        let bytes = spec.render(&nodestrap(), &["--format", "bundle"])?.bytes;
        Ok(Self { bundle: Bundle::parse(&bytes)?, bytes })
    }

    fn put(&self, machine: &Node) -> Result<()> {
        let path = machine.root().join(BUNDLE_PATH.trim_start_matches('/'));
        let folder = path.parent().context("it has a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(&path, &self.bytes)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(())
    }

    fn apply(&self, machine: &Node) -> Result<()> {
        // A kubelet tells in whole seconds when it spoke: the next one shall not start in the same.
        std::thread::sleep(Duration::from_secs(1));
        self.put(machine)?;
        machine.run(&["nodestrap", "apply"]).map(drop)
    }

    /// Waits for what an apply set in motion.
    fn wait_settled(&self, lab: &Lab, machine: &Node) -> Result<()> {
        wait_ready_by_this_kubelet(lab, machine)?;
        let units = units_of(&[&self.bundle]);
        machine.wait_until("the units have settled", PATIENCE, |node| Ok(UnitStates::of(node, &units)?.are_settled()))
    }
}

/// A booted machine that is no node yet.
fn bare(lab: &Lab, name: &str) -> Result<Node> {
    let options = NodeOptions::named(name).nodestrap(nodestrap()).before_boot(|root| {
        std::fs::write(root.join(TIME_CLIENT_FILE), TIME_CLIENT)?;
        std::os::unix::fs::symlink(Path::new("/").join(TIME_CLIENT_FILE), root.join(TIME_CLIENT_LINK))?;
        Ok(())
    });
    lab.add_node(options)
}

/// A complete node of the lab's own spec.
fn complete(lab: &Lab) -> Result<(Node, Delivery)> {
    let machine = bare(lab, "n1")?;
    machine.wait_booted(PATIENCE)?;
    let delivery = Delivery::rendered(&WorkerSpec::of(lab))?;
    delivery.apply(&machine)?;
    delivery.wait_settled(lab, &machine)?;
    Ok((machine, delivery))
}

/// By the word of the kubelet that runs now, which tells how the node is as soon as it starts, and later only what is new.
fn wait_ready_by_this_kubelet(lab: &Lab, machine: &Node) -> Result<()> {
    machine.wait_until("Ready by the word of this kubelet", PATIENCE, |node| {
        // A restart that is queued is a job.
        let show = ["systemctl", "show", "--timestamp=unix", "-p", "ActiveState,Job,ActiveEnterTimestamp", KUBELET];
        let shown = node.run(&show)?;
        let values: BTreeMap<&str, &str> = shown.lines().filter_map(|line| line.split_once('=')).collect();
        if (values.get("ActiveState"), values.get("Job")) != (Some(&"active"), Some(&"")) {
            return Ok(false);
        }
        let started = values.get("ActiveEnterTimestamp").context("it was started")?;
        let started = node.run(&["date", "--utc", "--date", started, "+%Y-%m-%dT%H:%M:%SZ"])?;
        let seen = lab.kubectl_json(&["get", "node", node.name()])?;
        let conditions = seen["status"]["conditions"].as_array().context("conditions")?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").context("Ready")?;
        let told = ready["lastHeartbeatTime"].as_str().context("a time")?;
        Ok(ready["status"] == "True" && told >= started.trim())
    })
}

/// Nothing is left to do, and nothing drifted.
fn check_complete(machine: &Node) -> Result<()> {
    let again = machine.run(&["nodestrap", "apply"])?;
    ensure!(again.contains("nothing to do"), "a second apply on {} said: {again}", machine.name());
    machine.run(&["nodestrap", "verify"]).map(drop)
}

/// Fails with all that differs.
fn none_of(differences: Vec<String>, what: &str) -> Result<()> {
    ensure!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
    Ok(())
}

/// The walk of one number, on two nodes.
fn walk(lab: &Lab, certificates: &Certificates, seed: u64) -> Result<()> {
    let (first, last) = wishes::pair(seed);
    println!("--- first\n{first}--- last\n{last}---");
    let [first, last] = [Delivery::of(lab, &first, certificates)?, Delivery::of(lab, &last, certificates)?];
    println!("{}", diff_bundles(&first.bundle, &last.bundle));
    let units = units_of(&[&first.bundle, &last.bundle]);

    let [walker, fresh] = [bare(lab, "walker")?, bare(lab, "fresh")?];
    walker.wait_booted(PATIENCE)?;
    fresh.wait_booted(PATIENCE)?;
    let (tree_before, units_before) = (Tree::of(&walker)?, UnitStates::of(&walker, &units)?);

    last.apply(&fresh)?;
    first.apply(&walker).context("with the first bundle")?;
    first.wait_settled(lab, &walker).context("with the first bundle")?;
    check_complete(&walker).context("with the first bundle")?;
    let invocations_before = invocations(&walker, &units)?;
    last.apply(&walker).context("with the last bundle")?;
    last.wait_settled(lab, &walker).context("with the last bundle")?;
    last.wait_settled(lab, &fresh).context("with the last bundle alone")?;

    check_restarts(&first.bundle, &last.bundle, &invocations_before, &invocations(&walker, &units)?)?;
    let wrong = UnitStates::of(&fresh, &units)?.differences(&UnitStates::of(&walker, &units)?);
    none_of(wrong, "units that are not as on a fresh node")?;
    let wrong = Tree::of(&fresh)?.comparable().differences(&Tree::of(&walker)?.comparable());
    none_of(wrong, "files that are not as on a fresh node")?;
    check_complete(&walker)?;
    check_complete(&fresh)?;

    walker.run(&["nodestrap", "reset", "--yes"])?;
    // The delivery is ours; nothing else may be left beside it.
    walker.run(&["rm", BUNDLE_PATH])?;
    walker.run(&["rmdir", "/etc/nodestrap"])?;
    let (mut expected, mut found) = (tree_before, Tree::of(&walker)?);
    if units.contains(TRUST_UNIT) {
        // What the system took over from us it keeps: nothing runs its program again once our authorities are gone.
        (expected, found) = (expected.without(TRUSTED), found.without(TRUSTED));
    }
    none_of(expected.differences(&found), "files that a reset did not put back")?;
    none_of(units_before.differences(&UnitStates::of(&walker, &units)?), "units that a reset did not put back")
}

/// Of the units that ran before and run now, those were started anew of which `render --diff` says so, and no others.
fn check_restarts(
    first: &Bundle,
    last: &Bundle,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Result<()> {
    let announced: BTreeSet<String> = diff_bundles(first, last).restarts.iter().map(ToString::to_string).collect();
    let started = last.units.iter().filter(|unit| unit.start != Start::ByOthers).map(|unit| unit.name.to_string());
    for unit in started {
        // One that does something and is over has no run to compare.
        let (Some(before), Some(after)) = (before.get(&unit), after.get(&unit)) else { continue };
        ensure!(
            (before != after) == announced.contains(&unit),
            "{unit} was {}started anew; announced were {announced:?}",
            if before == after { "not " } else { "" }
        );
    }
    Ok(())
}

#[test]
fn random_walks_end_in_a_node_that_equals_a_fresh_one() {
    let certificates = Certificates::make().expect("certificates");
    // A sample of its own for each commit; the same for everybody who tests that commit.
    let start = number("NODESTRAP_SAMPLE").unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let walks = number("NODESTRAP_BOOTED_WALKS").unwrap_or(1);
    let seeds: Vec<u64> = match number("NODESTRAP_BOOTED_WALK") {
        Some(seed) => vec![seed],
        None => (0..walks).map(|index| start.wrapping_add(index)).collect(),
    };
    for seed in seeds {
        let replay = format!(
            "NODESTRAP_BOOTED_WALK={seed} NODESTRAP_BINARY=$(scripts/build-dist) \
             cargo test -p lab --test bootstrap random_walks -- --nocapture"
        );
        println!("walk {seed}; again: {replay}");
        let begun = Instant::now();
        // One for each walk: what is left of the last one is in nobody's way.
        let Some(lab) = lab(LabOptions::default()) else { return };
        walk(&lab, &certificates, seed).unwrap_or_else(|error| panic!("walk {seed}: {error:#}\nagain: {replay}"));
        println!("walk {seed}: {} seconds", begun.elapsed().as_secs());
    }
}

#[test]
fn a_change_of_max_pods_restarts_the_kubelet_and_nothing_else() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let (machine, _) = complete(&lab).expect("complete");
    let services = all_services(&machine).expect("systemctl");
    let before = invocations(&machine, &services).expect("systemctl");
    assert!(before.contains_key("containerd.service") && before.contains_key(KUBELET), "{before:?}");

    let spec = WorkerSpec { group: "maxPods: 40\n".to_owned(), ..WorkerSpec::of(&lab) };
    let changed = Delivery::rendered(&spec).expect("rendered");
    changed.apply(&machine).expect("applied");
    changed.wait_settled(&lab, &machine).expect("Ready");
    machine
        .wait_until("the cluster knows how many pods there may be", PATIENCE, |node| {
            Ok(lab.kubectl(&["get", "node", node.name(), "-o", "jsonpath={.status.capacity.pods}"])? == "40")
        })
        .expect("changed");
    let after = invocations(&machine, &services).expect("systemctl");
    let changed: Vec<&String> =
        before.iter().filter(|(unit, run)| after.get(*unit) != Some(run)).map(|(unit, _)| unit).collect();
    assert_eq!(changed, [KUBELET]);
}

#[test]
fn a_new_host_name_is_nothing_to_do() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let (machine, delivery) = complete(&lab).expect("complete");
    let units = units_of(&[&delivery.bundle]);
    let gate = machine.read_file(GATE).expect("the gate");
    let before = invocations(&machine, &units).expect("systemctl");
    assert!(before.contains_key("containerd.service") && before.contains_key(KUBELET), "{before:?}");

    machine.run(&["sh", "-c", "echo another > /etc/hostname && hostname another"]).expect("another name");
    check_complete(&machine).expect("still complete");
    assert_eq!(machine.read_file(GATE).expect("the gate"), gate);
    assert_eq!(invocations(&machine, &units).expect("systemctl"), before);
}
