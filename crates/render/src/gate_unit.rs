//! The unit that looks at the gate, and at what it vouches for, before systemd loads it for the kubelet.
//!
//! The kubelet's own unit does so too, in `ExecStartPre=`; but where an environment file is missing or full of zero bytes, systemd
//! does not even come to that. And here it is in time for the bootstrap unit, which mends the node in the same start.

use bundle::{BOOTSTRAP_UNIT, Start};

use crate::confinement;
use crate::error::RenderError;
use crate::part::{Part, unit, unit_file};
use crate::unit::{Section, UnitFile, arguments};

/// Pulled in by the kubelet's unit, at each of its starts.
pub(crate) const GATE_UNIT: &str = "nodestrap-gate.service";

/// It has no `[Install]` section because the kubelet's unit wants it.
pub(crate) fn render(kubelet_unit: &str, nodestrap: &str, gate: &str) -> Result<Part, RenderError> {
    let content = UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Check what the kubelet of this node is about to read")
            .text("ConditionPathExists", gate)
            .words("Before", &[BOOTSTRAP_UNIT, kubelet_unit]),
        confinement::READER.add_to(
            Section::new("Service")
                .text("Type", "oneshot")
                .command("ExecStart", nodestrap, arguments(["gate", "--path", gate]))
                // A gate that was taken away is what this unit is for.
                .text("SuccessExitStatus", "3"),
        ),
    ])
    .render()?;
    let units = vec![unit(GATE_UNIT, Start::ByOthers)?];
    Ok(Part { files: vec![unit_file(GATE_UNIT, content)?], units, ..Part::default() })
}
