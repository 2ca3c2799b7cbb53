//! What happened, as one stream: it feeds the log, the progress display, the journal, the report and the timeline.
//!
//! In: JSON of this or another release. Out: events; a kind that this release does not know reads as
//! [`EventKind::Unknown`]. Fails: only on text that is no event at all.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, execute::ErrorClass, plan::StepId};

/// Milliseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Zero if `earlier` is later: wall clocks go backwards between runs.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn after(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// RFC 3339 in UTC, to the second: the milliseconds are noise to people and are in the JSON.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (year, month, day) = civil_date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Year, month and day of a count of days since 1970. Years are counted from March, so that the leap day is the last
/// day of a year and the lengths of the months before it follow one formula.
fn civil_date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_0000_TO_1970: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + DAYS_FROM_MARCH_0000_TO_1970;
    let (era, day_of_era) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// One thing that happened. Within a run `at` never goes backwards, even if the wall clock is set meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventKind {
    /// The first event of a run; what is done before there is a plan follows.
    RunOpened {
        boot_id: String,
    },
    /// Work before there is a plan, such as fetching what to do.
    PhaseStarted {
        phase: StepId,
    },
    PhaseDetail {
        phase: StepId,
        text: String,
    },
    PhaseFinished {
        phase: StepId,
    },
    /// Ends the run: without this phase there is no plan.
    PhaseFailed {
        phase: StepId,
        class: ErrorClass,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
    },
    /// What the plan of this run was decided from.
    FactsGathered {
        facts: Vec<FactNote>,
    },
    RunStarted {
        plan: Digest,
        /// What the run is remembered by; before there was such a thing, the plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Digest>,
        boot_id: String,
        steps: Vec<StepOutline>,
    },
    StepStarted {
        id: StepId,
        /// Counts from one.
        attempt: u32,
        /// Why the step is needed, for people.
        why: String,
    },
    StepDetail {
        id: StepId,
        text: String,
    },
    /// What a program said that the step ran and that failed; the failure follows. For root's eyes: in no report.
    StepOutput {
        id: StepId,
        text: String,
    },
    StepFinished {
        id: StepId,
        outcome: Finish,
    },
    StepFailed {
        id: StepId,
        attempt: u32,
        class: ErrorClass,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
        /// Absent when this was the last attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
    /// Written durably before a reboot is asked for, with the boot that is to end. Only a run in another boot proves that
    /// it did.
    RebootRequested {
        id: StepId,
        boot_id: String,
    },
    RunFinished {
        outcome: RunOutcome,
    },
    /// Written by a release that knows more than this one; never written by us.
    #[serde(other)]
    Unknown,
}

/// The shape of a plan, so that a report and a timeline can be drawn without the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutline {
    pub id: StepId,
    pub needs: Vec<StepId>,
    /// How long all attempts together may take; zero if a release before this one wrote it.
    #[serde(default, rename = "deadlineMs", skip_serializing_if = "is_zero")]
    pub deadline_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A fact, as people read it, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactNote {
    pub name: String,
    pub value: String,
    pub source: String,
}

/// How a step came to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Finish {
    Done,
    AlreadySo,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RunOutcome {
    Done,
    NothingToDo,
    Failed {
        step: StepId,
        class: ErrorClass,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
    },
    /// The machine was asked to reboot and goes down; the next run resumes.
    Rebooting {
        step: StepId,
        why: String,
    },
    /// Only in reports: the events end within the run, which is still going or was cut off by a crash or a reboot.
    Unfinished,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_dates() {
        let shown = |seconds: u64| Timestamp(seconds * 1000).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(shown(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn events_are_flat_camel_case_json() {
        let kind = EventKind::StepFailed {
            id: "a".into(),
            attempt: 1,
            class: ErrorClass::NeedsOperator,
            message: "m".into(),
            advice: None,
            retry_in_ms: Some(7),
        };
        let text = serde_json::to_string(&Event { at: Timestamp(5), kind }).unwrap();
        let expected =
            r#"{"at":5,"kind":"stepFailed","id":"a","attempt":1,"class":"needsOperator","message":"m","retryInMs":7}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_kind_or_field_of_a_future_release_is_no_error() {
        let event: Event = serde_json::from_str(r#"{"at":5,"kind":"stepPaused","id":"a","colour":{"b":[1]}}"#).unwrap();
        assert_eq!(event, Event { at: Timestamp(5), kind: EventKind::Unknown });
        let event: Event = serde_json::from_str(r#"{"at":5,"kind":"stepDetail","id":"a","text":"t","new":1}"#).unwrap();
        assert_eq!(event.kind, EventKind::StepDetail { id: "a".into(), text: "t".into() });
    }
}
