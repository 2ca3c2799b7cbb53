//! Whether a kubelet runs, as far as its own machine can tell: its unit is active, and stays so for as long as one that dies at
//! once would not.

use std::time::Duration;

use bundle::BOOTSTRAP_UNIT;
use engine::{Clock, StepError};
use host::units::{ActiveState, UnitError, Units};

use super::super::host_name;
use crate::failure::{chain, unit_error};

/// A restarted kubelet is up within seconds.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// One that dies at once is started again by systemd ten seconds later, and is not active until then.
const STEADY: Duration = Duration::from_secs(5);
/// A restart of the kubelet pulls the bootstrap unit in, which systemd skips on a node with a gate as soon as it comes to it. One
/// that is still starting then is the one that this run is part of.
const SKIPPED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn is_active(units: &dyn Units, kubelet: &str) -> Result<bool, StepError> {
    let state = units.state(&host_name(kubelet)).map_err(|error| unit_error(&error))?;
    Ok(state.active == ActiveState::Active)
}

/// `Err`: why nobody can say so yet.
pub fn wait_for_kubelet(units: &dyn Units, clock: &dyn Clock, kubelet: &str) -> Result<(), String> {
    let active = |unit: &str| units.state(&host_name(unit)).map(|state| state.active);
    let begin = clock.monotonic();
    while matches!(active(BOOTSTRAP_UNIT), Ok(ActiveState::Activating)) {
        if clock.monotonic().saturating_sub(begin) >= SKIPPED_WITHIN {
            // Its start waits for the end of this very run.
            return Err(format!("{kubelet} starts when this run has ended"));
        }
        clock.sleep(LOOK_EVERY);
    }
    let steady = if units.run_processes() { STEADY } else { Duration::ZERO };
    let mut since: Option<Duration> = None;
    loop {
        let now = clock.monotonic();
        since = match active(kubelet).map_err(|error: UnitError| chain(&error))? {
            ActiveState::Active => since.or(Some(now)),
            _ => None,
        };
        match since {
            Some(since) if now.saturating_sub(since) >= steady => return Ok(()),
            None if now.saturating_sub(begin) >= START_PATIENCE => {
                return Err(format!("{kubelet} does not run steadily"));
            }
            // One that comes and goes does not run.
            Some(_) if now.saturating_sub(begin) >= START_PATIENCE + STEADY => {
                return Err(format!("{kubelet} does not run steadily"));
            }
            _ => clock.sleep(LOOK_EVERY),
        }
    }
}
