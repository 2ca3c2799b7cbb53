//! A machine that was a node of another cluster before, and still has some of what its kubelet got there.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use lab::{LabOptions, WorkerSpec};

use crate::support::{PATIENCE, lab, node, user_data};

const PKI: &str = "var/lib/kubelet/pki";
const DATED: &str = "kubelet-client-2026-01-01-00-00-00.pem";
const CURRENT: &str = "kubelet-client-current.pem";
const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";

/// Valid for a node of this name, to another cluster: a kubelet that finds it uses it instead of its token.
fn leave_certificate(root: &Path, name: &str) -> Result<()> {
    let (start, lifetime) = (SystemTime::now() - Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
    let validity = pki::Validity { start, lifetime };
    let leaf = pki::Authority::create("kubernetes", validity)?.issue(&pki::LeafRequest {
        common_name: format!("system:node:{name}"),
        organization: Some("system:nodes".to_owned()),
        names: Vec::new(),
        usages: vec![pki::Usage::Client],
        validity,
    })?;
    let folder = root.join(PKI);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(DATED), format!("{}{}", leaf.certificate_pem, leaf.key_pem.expose()))?;
    Ok(std::os::unix::fs::symlink(DATED, folder.join(CURRENT))?)
}

#[test]
fn a_client_certificate_of_a_former_life_without_a_kubeconfig_does_not_keep_a_node_from_joining() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    // None at all, and one that a power cut emptied, which a kubelet takes for none.
    for (name, kubeconfig) in [("n1", None), ("n2", Some(""))] {
        let options = node(name, &user_data).before_boot(move |root| {
            leave_certificate(root, name)?;
            Ok(kubeconfig.map_or(Ok(()), |text| std::fs::write(root.join(KUBECONFIG), text))?)
        });
        lab.add_node(options).expect("the node boots");
    }
    for name in ["n1", "n2"] {
        lab.wait_node_ready(name, PATIENCE).expect("Ready");
    }
}
