//! The unit that finishes the pod network of a node, once the cluster has given it its ranges.

use crate::confinement;
use crate::error::RenderError;
use crate::unit::{Section, UnitFile, arguments};

/// Pulled in by the kubelet's unit, so that no target waits for a node that cannot register yet.
pub(crate) const NETWORK_UNIT: &str = "nodestrap-network.service";

/// `nodestrap-network.service`; it has no `[Install]` section because the kubelet's unit wants it.
pub(crate) fn render_unit(kubelet_unit: &str, nodestrap: &str) -> Result<Vec<u8>, RenderError> {
    let service = Section::new("Service")
        // Not a oneshot: systemd before 244 refuses Restart= for those. Nothing is ordered after this unit, so
        // it does not matter that it counts as started while it still waits for the node to register.
        .text("Type", "simple")
        // The kubelet's restarts pull the unit in again; once is enough until the next boot.
        .text("RemainAfterExit", "yes")
        .command("ExecStart", nodestrap, arguments(["network"]))
        .text("Restart", "on-failure")
        .text("RestartSec", "2");
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Pod network of this node")
            .text("Documentation", "https://www.cni.dev/docs/spec/")
            .words("After", &[kubelet_unit])
            .text("StartLimitIntervalSec", "0"),
        confinement::READER.add_to(service),
    ])
    .render()
}
