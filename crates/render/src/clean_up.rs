//! The unit that empties the data folder of a container runtime before another version of it runs, while nobody uses it: early in
//! a boot.

use bundle::{CLEAN_UP_MARKER_PATH, CLEAN_UP_UNIT, Start};

use crate::confinement;
use crate::error::RenderError;
use crate::layout::command_line;
use crate::part::{Part, public, unit, unit_file};
use crate::unit::{Section, UnitFile};

/// A target cannot be told by a unit of a bundle to start it: links are systemd's business, and the plan starts what it enables.
const DROP_IN_PATH: &str = "/etc/systemd/system/sysinit.target.d/10-nodestrap-clean-runtime-data.conf";

/// Whoever may use the folder, and the run that counts on it being empty.
const HELD_BACK: [&str; 4] = ["docker.service", "containerd.service", "kubelet.service", "k8s-node-bootstrap.service"];

/// What the program at the path takes itself for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalledBy {
    Path,
    /// Its own name, whatever the file is called: there are names by which it takes other flags.
    Name,
}

pub(crate) fn render(nodestrap: &str, called_by: CalledBy) -> Result<Part, RenderError> {
    const COMMAND: &str = "clean-runtime-data";
    let command = match called_by {
        CalledBy::Path => command_line("ExecStart", nodestrap, [COMMAND])?,
        CalledBy::Name => command_line("ExecStart", &format!("@{nodestrap}"), ["nodestrap", COMMAND])?,
    };
    let content = UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Empty the data folder of the container runtime before another version of it runs")
            .text("DefaultDependencies", "no")
            .text("ConditionPathExists", CLEAN_UP_MARKER_PATH)
            .words("Conflicts", &["shutdown.target"])
            .words("After", &["local-fs.target"])
            .words("Before", &[&HELD_BACK[..], &["shutdown.target"]].concat()),
        confinement::CLEANER.add_to(
            Section::new("Service")
                .text("Type", "oneshot")
                .text("ExecStart", command)
                // Large folders on slow disks; what is not done then is done before the gate opens.
                .text("TimeoutStartSec", "30min"),
        ),
    ])
    .render()?;
    let drop_in = UnitFile::new(vec![Section::new("Unit").words("Wants", &[CLEAN_UP_UNIT])]).render()?;
    Ok(Part {
        // The drop-in is read at boot, and nothing has to start anew because of it.
        files: vec![unit_file(CLEAN_UP_UNIT, content)?, public(DROP_IN_PATH, drop_in)?],
        units: vec![unit(CLEAN_UP_UNIT, Start::ByOthers)?],
        ..Part::default()
    })
}
