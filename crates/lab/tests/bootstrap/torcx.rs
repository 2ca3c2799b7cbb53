//! Tectonic's node flow on Container Linux: configured by Ignition, updated, its runtime an addon of torcx, one reboot, then the kubelet of
//! the cluster's release.

use std::path::Path;

use lab::consumers::IgnitionSpec;
use lab::flow::{AddonSite, Published, container_linux_node, download_site, downloaded_from};
use lab::update_engine::{self, Script};
use lab::{FIRST_OS_VERSION, Lab, LabOptions, NEXT_OS_VERSION, Node, Partition, Patch};

use crate::support::{GATE, PATIENCE, exists, files_below, lab, nodestrap, wait_ready_with};

pub(crate) const NODESTRAP: &str = "/opt/bin/nodestrap";
const REFERENCE: &str = "18.06";
/// An update after the update.
const LATER_OS_VERSION: &str = "2705.1.0";
/// What torcx, Tectonic and nodestrap have there; the bundle and its unit are of Ignition.
const TOUCHED: [&str; 3] = ["etc/kubernetes", "etc/torcx", "var/lib/torcx"];

/// A site that has the addon for these versions of the system, and a machine that is sent there.
pub(crate) struct Fleet {
    site: AddonSite,
    _download: lab::WebServer,
    group: String,
}

impl Fleet {
    pub(crate) fn start(lab: &Lab, versions: &[&str]) -> Self {
        let site = AddonSite::start(lab).expect("a site");
        for version in versions {
            site.publish(version, &[REFERENCE], Published::Rightly).expect("published");
        }
        let program = std::fs::read(nodestrap()).expect("the program");
        let (download, url) = download_site(lab, &program).expect("a site");
        Self { site, _download: download, group: downloaded_from(&[&url], &program) }
    }

    /// Off as yet. Its update_engine finds that version.
    pub(crate) fn node(&self, lab: &Lab, name: &str, ignition: IgnitionSpec, update: Option<&str>) -> Node {
        let mut spec = self.site.spec(lab, Patch::Earlier, &[REFERENCE]).expect("a spec");
        spec.group.push_str(&self.group);
        let options = container_linux_node(name, &spec, ignition, &nodestrap()).expect("a config");
        let options = options.container_image(lab.kube_proxy_image().expect("an image"));
        let script = update.map_or_else(Script::that_finds_nothing, Script::that_finds);
        let options = options.before_boot(move |root| {
            update_engine::install(root, Path::new(env!("CARGO_BIN_EXE_lab")))?;
            update_engine::write_script(root, &script)
        });
        lab.add_node(options.not_started()).expect("a node")
    }
}

fn os_version(node: &Node) -> String {
    let text = node.run(&["sh", "-c", ". /usr/lib/os-release; echo $VERSION_ID"]).expect("it runs");
    text.trim().to_owned()
}

/// How often the machine has booted, by the journal of nodestrap: each run names its boot.
fn boots(node: &Node) -> usize {
    let text = std::fs::read_to_string(node.root().join("var/lib/nodestrap/journal")).expect("a journal");
    let mut boots: Vec<&str> = text.split("\"bootId\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    boots.sort_unstable();
    boots.dedup();
    boots.len()
}

#[track_caller]
fn assert_well(node: &Node) {
    let status = node.exec(&[NODESTRAP, "status"]).expect("it runs");
    assert!(status.status.success(), "{}", lab::output_text(&status));
    let verify = node.exec(&[NODESTRAP, "verify"]).expect("it runs");
    assert!(verify.status.success(), "{}", lab::output_text(&verify));
}

#[test]
fn a_container_linux_is_updated_gets_its_addon_reboots_once_and_runs_the_kubelet_of_its_cluster() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let fleet = Fleet::start(&lab, &[FIRST_OS_VERSION, NEXT_OS_VERSION]);
    for (name, ignition) in [("two", IgnitionSpec::Two), ("three", IgnitionSpec::Three)] {
        let node = fleet.node(&lab, name, ignition, Some(NEXT_OS_VERSION));
        node.start().expect("it boots");
        // The spec names the earlier patch as a seed; the cluster says the newest, and counts.
        wait_ready_with(&lab, &node, Patch::Newest);
        assert_eq!(os_version(&node), NEXT_OS_VERSION);
        assert_eq!(node.usr_partitions().booted().expect("one runs"), Partition::B);
        assert_eq!(boots(&node), 2, "one reboot");
        for version in [FIRST_OS_VERSION, NEXT_OS_VERSION] {
            let place = format!("/var/lib/torcx/store/{version}/docker:{REFERENCE}.torcx.tgz");
            assert!(exists(&node, &place).expect("test runs"), "{place}");
        }
        let pod = format!("echo-{name}");
        lab.service_answers(&pod, &node).expect("a pod that the scheduler assigned answers by its service");
        assert_well(&node);

        let asked = fleet.site.server.requests().len();
        let again = node.run(&[NODESTRAP, "apply"]).expect("applied");
        assert!(again.contains("nothing to do"), "{again}");
        node.run(&["sh", "-c", &format!("echo KUBELET_IMAGE_TAG=v0.0.0 > {GATE}")]).expect("damaged");
        node.run(&["systemctl", "restart", "--no-block", "kubelet.service"]).expect("asked");
        node.wait_until("the gate is whole again", PATIENCE, |node| {
            Ok(node.exec(&[NODESTRAP, "gate"])?.status.success())
        })
        .expect("mended");
        lab.wait_ready_in_this_boot(&node, PATIENCE).expect("Ready");
        assert_eq!(boots(&node), 2, "in the same boot");
        assert_eq!(fleet.site.server.requests().len(), asked, "a complete node asks nobody");
    }
}

/// By update_engine, as it does by itself from time to time.
fn stage(node: &Node, version: &str) {
    update_engine::write_script(&node.root(), &Script::that_finds(version)).expect("offered");
    let call = |method: &str| {
        let method = format!("com.coreos.update1.Manager.{method}");
        let words =
            ["dbus-send", "--system", "--print-reply", "--dest=com.coreos.update1", "/com/coreos/update1", &method];
        node.run(&words).expect("it answers")
    };
    call("AttemptUpdate");
    node.wait_until("a staged update", PATIENCE, |_| Ok(call("GetStatus").contains("UPDATED_NEED_REBOOT")))
        .expect("it is staged");
}

/// Whether this node may reboot, by the pre-reboot hook, and what it says.
fn hook(node: &Node) -> (Option<i32>, String) {
    let output = node.exec(&[NODESTRAP, "hook", "pre-reboot"]).expect("it runs");
    (output.status.code(), lab::output_text(&output))
}

#[test]
fn an_update_that_the_hook_has_prepared_ends_ready_and_so_does_the_way_back_and_one_that_lacks_its_addon_is_refused() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let fleet = Fleet::start(&lab, &[FIRST_OS_VERSION]);
    let node = fleet.node(&lab, "n1", IgnitionSpec::Three, None);
    let before = files_below(&node.root(), &TOUCHED);
    node.start().expect("it boots");
    wait_ready_with(&lab, &node, Patch::Newest);
    assert_eq!((os_version(&node).as_str(), boots(&node)), (FIRST_OS_VERSION, 2), "one reboot, for the addon alone");

    stage(&node, LATER_OS_VERSION);
    let (code, said) = hook(&node);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("docker") && said.contains(LATER_OS_VERSION) && said.contains("404"), "{said}");
    fleet.site.publish(LATER_OS_VERSION, &[REFERENCE], Published::ByAStranger).expect("published");
    let (code, said) = hook(&node);
    assert!(code == Some(4) && said.contains("cannot be believed"), "{said}");
    fleet.site.publish(LATER_OS_VERSION, &[REFERENCE], Published::Rightly).expect("published");
    let (code, said) = hook(&node);
    assert!(code == Some(0) && said.contains(LATER_OS_VERSION), "{said}");

    node.reboot().expect("boots again");
    lab.wait_ready_in_this_boot(&node, PATIENCE).expect("Ready");
    assert_eq!(os_version(&node), LATER_OS_VERSION);
    assert_well(&node);
    node.usr_partitions().boot_next(Partition::A).expect("chosen");
    node.reboot().expect("boots again");
    lab.wait_ready_in_this_boot(&node, PATIENCE).expect("Ready");
    assert_eq!(os_version(&node), FIRST_OS_VERSION);
    assert_well(&node);

    node.run(&[NODESTRAP, "reset", "--yes", "--kubelet-state"]).expect("reset");
    node.poweroff().expect("off");
    let after = files_below(&node.root(), &TOUCHED);
    assert_eq!(after, before, "as Ignition left it");
}

#[test]
fn a_node_whose_store_is_away_waits_and_goes_on_by_itself() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let fleet = Fleet::start(&lab, &[FIRST_OS_VERSION]);
    fleet.site.server.go_down().expect("down");
    let node = fleet.node(&lab, "n1", IgnitionSpec::Two, None);
    node.start().expect("it boots");
    node.wait_until("the store is asked", PATIENCE, |node| {
        let status = lab::output_text(&node.exec(&[NODESTRAP, "status"])?);
        Ok(status.contains("resolve-versions"))
    })
    .expect("it waits");
    assert!(!exists(&node, GATE).expect("test runs"));
    fleet.site.server.come_back().expect("back");
    wait_ready_with(&lab, &node, Patch::Newest);
    assert_eq!(boots(&node), 2);
}
