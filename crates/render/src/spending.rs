//! The unit that takes the credentials away with which a node joined, once the kubelet has its own, and older versions of
//! programs, once it is Ready with the new ones.

use bundle::{SPENDING_UNIT, Start};

use crate::confinement;
use crate::error::RenderError;
use crate::part::{Part, unit, unit_file};
use crate::unit::{Section, UnitFile, arguments};

/// What there may be to take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Credentials,
    /// And credentials, if there are any.
    Programs,
}

/// It has no `[Install]` section because the kubelet's unit wants it.
pub(crate) fn render(kubelet_unit: &str, nodestrap: &str, task: Task) -> Result<Part, RenderError> {
    let description = match task {
        Task::Credentials => "Take the bootstrap credentials away once the kubelet has its own",
        Task::Programs => "Take bootstrap credentials and older programs away once the kubelet runs without them",
    };
    let content = UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", description)
            .words("After", &[kubelet_unit])
            .text("StartLimitIntervalSec", "0"),
        confinement::READER.add_to(
            Section::new("Service")
                // Not a oneshot: systemd before 244 refuses Restart= for those, and nothing waits for it to end.
                .text("Type", "simple")
                .command("ExecStart", nodestrap, arguments(["spend-credentials"]))
                .text("Restart", "on-failure")
                // The API server is asked each time.
                .text("RestartSec", "10"),
        ),
    ])
    .render()?;
    let units = vec![unit(SPENDING_UNIT, Start::ByOthers)?];
    Ok(Part { files: vec![unit_file(SPENDING_UNIT, content)?], units, ..Part::default() })
}
