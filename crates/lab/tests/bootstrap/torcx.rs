//! Tectonic's node flow on Container Linux: configured by Ignition, updated, its runtime an addon of torcx, one reboot, then the kubelet of
//! the cluster's release.

use std::path::Path;

use lab::consumers::IgnitionSpec;
use lab::flow::{AddonSite, Published, container_linux_node, download_site, downloaded_from};
use lab::update_engine::{self, Script};
use lab::{FIRST_OS_VERSION, Lab, LabOptions, NEXT_OS_VERSION, Node, Partition, Patch};

use crate::support::{GATE, PATIENCE, damage_gate, exists, files_below, lab, nodestrap, wait_ready_with};

const NODESTRAP: &str = "/opt/bin/nodestrap";
const REFERENCE: &str = "18.06";
/// An update after the update.
const LATER_OS_VERSION: &str = "2705.1.0";
/// Written while the first boot goes on: what torcx, Tectonic and nodestrap have there.
const TOUCHED: [&str; 5] = ["etc/kubernetes", "etc/nodestrap", "etc/torcx", "var/lib/nodestrap", "var/lib/torcx"];

/// A site that has the addon for these versions of the system, and a machine that is sent there.
struct Fleet {
    site: AddonSite,
    _download: lab::WebServer,
    group: String,
}

impl Fleet {
    fn start(lab: &Lab, versions: &[&str]) -> Self {
        let site = AddonSite::start(lab).expect("a site");
        for version in versions {
            site.publish(version, &[REFERENCE], Published::Rightly).expect("published");
        }
        let program = std::fs::read(nodestrap()).expect("the program");
        let (download, url) = download_site(lab, &program).expect("a site");
        Self { site, _download: download, group: downloaded_from(&[&url], &program) }
    }

    /// Off as yet. Its update_engine finds that version.
    fn node(&self, lab: &Lab, name: &str, ignition: IgnitionSpec, update: Option<&str>) -> Node {
        let mut spec = self.site.spec(lab, Patch::Earlier, &[REFERENCE]);
        spec.group.push_str(&self.group);
        let options = container_linux_node(name, &spec, ignition, &nodestrap()).expect("a config");
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
        lab.service_answers("echo", &node).expect("a pod that the scheduler assigned answers by its service");
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
