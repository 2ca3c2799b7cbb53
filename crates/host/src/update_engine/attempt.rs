//! What to make of what update_engine says while it is waited for. Pure.

use super::{NextOs, Operation, UpdateStatus, Why};

/// One attempt, from its beginning on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    /// What it was at last, but for `IDLE` and the report of an error; `None` before it began.
    busy_at: Option<Operation>,
    /// Where an error came in between.
    failed_at: Option<Operation>,
}

impl Attempt {
    /// How it ended, if this is the end.
    pub fn see(&mut self, status: &UpdateStatus) -> Option<NextOs> {
        match &status.operation {
            Operation::UpdatedNeedReboot => Some(status.next_os()),
            Operation::Idle => self.end_of_idleness().map(NextOs::NothingStaged),
            Operation::ReportingErrorEvent => {
                self.failed_at = Some(self.busy_at.clone().unwrap_or(Operation::ReportingErrorEvent));
                None
            }
            busy => {
                self.busy_at = Some(busy.clone());
                None
            }
        }
    }

    fn end_of_idleness(&self) -> Option<Why> {
        match (&self.failed_at, &self.busy_at) {
            (Some(at), _) => Some(Why::Failed { at: at.clone() }),
            (None, Some(Operation::CheckingForUpdate)) => Some(Why::UpToDate),
            // Somebody took back what it had found, without a word.
            (None, Some(at)) => Some(Why::Failed { at: at.clone() }),
            // It has not begun.
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::OsVersion;
    use super::*;

    /// How a sequence of words ends, and after which of them.
    fn end(words: &str) -> Option<(usize, NextOs)> {
        let mut attempt = Attempt::default();
        words.split_whitespace().enumerate().find_map(|(place, word)| {
            let (word, version) = word.split_once('@').unwrap_or((word, "0.0.0"));
            let status = UpdateStatus::parse(0, 0.0, word, version).unwrap();
            attempt.see(&status).map(|end| (place + 1, end))
        })
    }

    fn nothing(why: Why) -> NextOs {
        NextOs::NothingStaged(why)
    }

    #[test]
    fn an_attempt_ends_as_the_way_there_tells() {
        let failed = |at| nothing(Why::Failed { at });
        let staged = || NextOs::Staged(OsVersion::try_from("2905.2.0".to_owned()).unwrap());
        use Operation::{CheckingForUpdate, Downloading, Finalizing, ReportingErrorEvent, UpdateAvailable};
        for (words, expected) in [
            // Before it began, `IDLE` says nothing.
            ("", None),
            ("IDLE", None),
            ("IDLE IDLE IDLE", None),
            ("IDLE CHECKING_FOR_UPDATE", None),
            ("CHECKING_FOR_UPDATE IDLE", Some((2, nothing(Why::UpToDate)))),
            ("IDLE CHECKING_FOR_UPDATE CHECKING_FOR_UPDATE IDLE", Some((4, nothing(Why::UpToDate)))),
            (
                "CHECKING_FOR_UPDATE UPDATE_AVAILABLE DOWNLOADING DOWNLOADING FINALIZING UPDATED_NEED_REBOOT@2905.2.0",
                Some((6, staged())),
            ),
            // It was staged, or is on its way, without our doing.
            ("UPDATED_NEED_REBOOT@2905.2.0", Some((1, staged()))),
            ("DOWNLOADING@2905.2.0 VERIFYING@2905.2.0 UPDATED_NEED_REBOOT@2905.2.0", Some((3, staged()))),
            ("UPDATED_NEED_REBOOT", Some((1, NextOs::StagedVersionUnknown))),
            // An error is not "no update".
            ("REPORTING_ERROR_EVENT IDLE", Some((2, failed(ReportingErrorEvent)))),
            ("CHECKING_FOR_UPDATE REPORTING_ERROR_EVENT IDLE", Some((3, failed(CheckingForUpdate)))),
            ("CHECKING_FOR_UPDATE DOWNLOADING REPORTING_ERROR_EVENT IDLE", Some((4, failed(Downloading)))),
            ("CHECKING_FOR_UPDATE REPORTING_ERROR_EVENT", None),
            // Nor is what somebody took back.
            ("CHECKING_FOR_UPDATE UPDATE_AVAILABLE IDLE", Some((3, failed(UpdateAvailable)))),
            ("FINALIZING IDLE", Some((2, failed(Finalizing)))),
            // A silence ends by a deadline only.
            ("CHECKING_FOR_UPDATE UPDATE_AVAILABLE DOWNLOADING", None),
            ("CHECKING_FOR_UPDATE SOMETHING_NEW", None),
        ] {
            assert_eq!(end(words), expected, "{words}");
        }
    }
}
