//! Whether the clock of this machine can be right.
//!
//! A machine without a battery starts in 1970 or at the date of its image, and one whose battery is failing may start in
//! 2099; then every certificate looks invalid. What the clock must at least say is known: this program was released, the
//! cluster's authority was made, and the journal was written, before now. What it cannot say without everything having
//! expired is known, too: when the bundle's certificates end. In: these moments. Out: nothing, or [`WrongClock`], which
//! names them. Deciding is pure; waiting is bounded.
//!
//! What a wrong clock wrote into the journal does not outlive it: see [`last_believed`].

use std::path::Path;
use std::time::Duration;

use bundle::Bundle;
use engine::{Clock, Deadline, ErrorClass, Event, EventKind, StepError, Timestamp};
use host::disk::{Disk, DiskError};
use host::units::Units;
use x509_parser::pem::Pem;

use crate::plan::{CLOCK_DEADLINE, CLOCK_STEP};
use crate::session::{NodeHost, load_events};
use crate::store::JOURNAL_PATH;

/// 2026-11-01, moved on with each release: a program cannot run before it was made.
const RELEASED: Timestamp = Timestamp(1_793_491_200_000);
/// The clock may have been a little ahead when the journal was written, and set right since.
const JOURNAL_SLACK: Duration = Duration::from_secs(24 * 60 * 60);
/// Made by systemd-timesyncd once it has set the clock in this boot; there before a bus is.
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";
/// How often a clock that is waited for is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A moment that has passed for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earliest {
    at: Timestamp,
    because: &'static str,
}

/// When certificates end that the node cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Latest {
    at: Timestamp,
    /// Where they stand, as a sentence goes on after "the certificates".
    whose: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongClock {
    #[error("the clock of this machine is wrong: it says {says}, but it is at least {at_least}, because {because}")]
    Behind { says: Timestamp, at_least: Timestamp, because: &'static str },
    #[error(
        "wrong clock or expired: the certificates {whose} ended at {ended}, and the clock of this \
         machine, which no time client is known to have set, says {says}"
    )]
    AheadOrExpired { says: Timestamp, ended: Timestamp, whose: String },
    #[error(
        "the certificates {whose} have expired: they ended at {ended}, and the clock of this machine, \
         which a time client has set, says {says}"
    )]
    Expired { says: Timestamp, ended: Timestamp, whose: String },
}

const BECAUSE_OF_THE_JOURNAL: &str = "the journal of this node was written a day later";
const SET_IT: &str =
    "let a time client set the clock (is the network up, does an NTP server answer?), or set it by hand: date -s";
const RENEW: &str = "renew the certificates (nodestrap pki inspect and renew), render the bundle anew and deliver it";

impl WrongClock {
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Behind { .. } | Self::AheadOrExpired { .. } => ErrorClass::Transient,
            // Time will not mend it.
            Self::Expired { .. } => ErrorClass::NeedsOperator,
        }
    }

    pub(crate) fn into_step_error(self) -> StepError {
        let advice = match &self {
            Self::Behind { because: BECAUSE_OF_THE_JOURNAL, .. } => format!(
                "{SET_IT}; if it is right, and was ahead when the journal was written, remove {JOURNAL_PATH}: hooks then run \
                 once more"
            ),
            Self::Behind { .. } => {
                format!("{SET_IT}; if it is right, what it is compared with was made by a machine whose clock is ahead")
            }
            Self::AheadOrExpired { .. } => format!("{SET_IT}; if it is right, {RENEW}"),
            Self::Expired { .. } => RENEW.to_owned(),
        };
        StepError::new(self.class(), self.to_string()).with_advice(advice)
    }
}

/// All that the clock can be held against.
pub(crate) struct Known<'a> {
    disk: &'a dyn Disk,
    units: &'a dyn Units,
    earliest: Earliest,
    latest: Option<Latest>,
    /// These count only while nobody has set the clock: a journal may have been written, and a certificate made, by a clock that
    /// was ahead; and a next authority may be delivered before it is valid.
    unless_set: Vec<Earliest>,
}

impl<'a> Known<'a> {
    /// `believed`: see [`last_believed`].
    pub(crate) fn new(disk: &'a dyn Disk, units: &'a dyn Units, believed: Timestamp) -> Self {
        let slack = u64::try_from(JOURNAL_SLACK.as_millis()).unwrap_or(u64::MAX);
        let at = Timestamp(believed.0.saturating_sub(slack));
        Self {
            disk,
            units,
            earliest: Earliest { at: RELEASED, because: "this version of nodestrap was released then" },
            latest: None,
            unless_set: vec![Earliest { at, because: BECAUSE_OF_THE_JOURNAL }],
        }
    }

    pub(crate) fn with_bundle(mut self, bundle: &Bundle) -> Self {
        // What a user's own programs read may be of whichever time the user likes.
        let kubelet = &bundle.join.kubelet_unit;
        let is_needed = |file: &&bundle::File| file.read_by.units.contains(kubelet) || !file.read_by.pods.is_empty();
        let needed: Vec<&bundle::File> = bundle.files.iter().filter(is_needed).collect();
        let texts = needed.iter().filter_map(|file| std::str::from_utf8(&file.content).ok());
        self.since(texts.filter_map(newest_not_before).max());
        let ends = needed.iter().filter_map(|file| {
            let at = end(std::str::from_utf8(&file.content).ok()?)?;
            Some(Latest { at, whose: format!("in {:?} of the bundle", file.path.as_str()) })
        });
        self.latest = ends.min_by_key(|latest| latest.at);
        self
    }

    fn since(&mut self, not_before: Option<Timestamp>) {
        let because = "the newest certificate of the bundle is not valid before that";
        self.unless_set.extend(not_before.map(|at| Earliest { at, because }));
    }

    /// The time client is asked only if its word matters: it may have to be started to answer.
    pub(crate) fn judge(&self, now: Timestamp) -> Result<Result<(), WrongClock>, DiskError> {
        let too_early = |moment: &&Earliest| now < moment.at;
        let behind = |moment: &Earliest| WrongClock::Behind { says: now, at_least: moment.at, because: moment.because };
        if let Some(moment) = Some(&self.earliest).filter(too_early) {
            return Ok(Err(behind(moment)));
        }
        if let Some(Latest { at, whose }) = self.latest.clone().filter(|latest| latest.at < now) {
            return Ok(Err(match self.is_synchronised()? {
                true => WrongClock::Expired { says: now, ended: at, whose },
                false => WrongClock::AheadOrExpired { says: now, ended: at, whose },
            }));
        }
        match self.unless_set.iter().filter(too_early).max_by_key(|moment| moment.at) {
            Some(moment) if !self.is_synchronised()? => Ok(Err(behind(moment))),
            _ => Ok(Ok(())),
        }
    }

    fn is_synchronised(&self) -> Result<bool, DiskError> {
        let by_timesyncd = self.disk.stat(Path::new(SYNCHRONISED))?.is_some();
        Ok(by_timesyncd || self.units.is_clock_synchronised() == Some(true))
    }
}

/// The newest moment in the journal that was written by a clock which could be right, by all that was known.
///
/// Only the last run that passed [`CLOCK_STEP`] counts: it either agreed with all before it, or was set by a time client and
/// so knew better. A run that was refused has no say, however far in the future it was, nor has one whose clock was set
/// while it waited, since all its times are counted from its start.
pub(crate) fn last_believed(events: &[Event]) -> Timestamp {
    let mut newest = Timestamp::default();
    let (mut waited, mut believed) = (false, false);
    for event in events {
        match &event.kind {
            EventKind::RunOpened { .. } | EventKind::RunStarted { .. } => (waited, believed) = (false, false),
            EventKind::StepFailed { id, .. } if id.0 == CLOCK_STEP => waited = true,
            EventKind::StepFinished { id, .. } if id.0 == CLOCK_STEP => {
                believed = !waited;
                newest = Timestamp::default();
            }
            _ => {}
        }
        if believed {
            newest = newest.max(event.at);
        }
        // What follows without a start is the end of a run that found nothing to do, and looked at no clock.
        believed &= !matches!(event.kind, EventKind::RunFinished { .. });
    }
    newest
}

/// Before a store is asked over TLS. `authorities`: PEM, those of the store.
pub fn wait_for_clock(host: &NodeHost, authorities: Option<&str>, clock: &dyn Clock) -> Result<(), WrongClock> {
    let deadline = Deadline::starting_now(clock, CLOCK_DEADLINE);
    let (disk, units) = (host.disk.as_ref(), host.units.as_ref());
    let believed = load_events(disk).map(|(events, _)| last_believed(&events)).unwrap_or_default();
    let mut known = Known::new(disk, units, believed);
    known.since(authorities.and_then(newest_not_before));
    // While one of them lasts, the store may be proved by that one.
    let last = authorities.and_then(|text| certificates(text).map(|certificate| certificate.until).max());
    known.latest = last.map(|at| Latest { at, whose: "of the store's authorities".to_owned() });
    loop {
        // A disk that cannot be read is somebody else's to tell of.
        let verdict = known.judge(clock.now()).unwrap_or(Ok(()));
        let is_final = !verdict.as_ref().is_err_and(|wrong| wrong.class() == ErrorClass::Transient);
        if is_final || deadline.remaining(clock).is_zero() {
            return verdict;
        }
        clock.sleep(LOOK_AGAIN.min(deadline.remaining(clock)));
    }
}

struct Validity {
    from: Timestamp,
    until: Timestamp,
    is_authority: bool,
}

/// Of all certificates in a PEM text; what is none is passed over.
fn certificates(text: &str) -> impl Iterator<Item = Validity> {
    let blocks = Pem::iter_from_buffer(text.as_bytes()).filter_map(Result::ok);
    blocks.filter(|block| block.label == "CERTIFICATE").filter_map(|block| {
        let certificate = block.parse_x509().ok()?;
        let validity = certificate.validity();
        let moment = |seconds: i64| Timestamp(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
        Some(Validity {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
            is_authority: certificate.is_ca(),
        })
    })
}

fn newest_not_before(text: &str) -> Option<Timestamp> {
    certificates(text).map(|certificate| certificate.from).max()
}

/// When a file of certificates is of no more use: with the first of its own, or with the last of its authorities, of which
/// there are two while they change.
pub(crate) fn end(text: &str) -> Option<Timestamp> {
    let (authorities, own): (Vec<_>, Vec<_>) = certificates(text).partition(|certificate| certificate.is_authority);
    let last = authorities.iter().map(|authority| authority.until).max();
    own.iter().map(|certificate| certificate.until).chain(last).min()
}

#[cfg(test)]
mod tests {
    use engine::{Finish, RunOutcome, StepId};
    use host::fake::{FakeDisk, FakeUnits};

    use super::*;

    const AUTHORITY: &str = include_str!("../tests/authority.crt");
    /// As `openssl x509 -dates -noout -in crates/node/tests/authority.crt` says.
    const NOT_BEFORE: &str = "2026-11-16T00:53:00Z";
    const NOT_AFTER: &str = "2126-10-23T00:53:00Z";
    /// 2099-01-01.
    const FAR: u64 = 4_070_908_800_000;
    const NOW: u64 = RELEASED.0 + 86_400_000;

    #[test]
    fn a_certificate_says_since_when_and_until_when_it_is_valid() {
        let found = newest_not_before(AUTHORITY).expect("a certificate");
        assert_eq!(found.to_string(), NOT_BEFORE);
        assert_eq!(newest_not_before(&format!("text\n{AUTHORITY}\n{AUTHORITY}")), Some(found));
        assert_eq!(newest_not_before("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), None);
        assert_eq!(end(AUTHORITY).expect("a certificate").to_string(), NOT_AFTER);
        assert_eq!((newest_not_before("no certificate"), end("")), (None, None));
    }

    struct Machine {
        disk: FakeDisk,
        units: FakeUnits,
    }

    impl Machine {
        fn new() -> Self {
            let disk = FakeDisk::new();
            Self { units: FakeUnits::new(&disk), disk }
        }

        fn judge(&self, now: u64, believed: u64, latest: Option<u64>) -> Result<(), WrongClock> {
            let mut known = Known::new(&self.disk, &self.units, Timestamp(believed));
            known.latest = latest.map(|at| Latest { at: Timestamp(at), whose: "/ca.crt".to_owned() });
            known.judge(Timestamp(now)).expect("a disk")
        }
    }

    #[test]
    fn the_newest_moment_in_the_future_is_named() {
        let machine = Machine::new();
        assert_eq!(machine.judge(RELEASED.0, 0, None), Ok(()));
        let mut known = Known::new(&machine.disk, &machine.units, Timestamp(0));
        known.since(newest_not_before(AUTHORITY));
        let shown = known.judge(Timestamp(5)).expect("a disk").unwrap_err().to_string();
        assert!(shown.contains("it says 1970-01-01T00:00:00Z") && shown.contains("was released then"), "{shown}");
        let wrong = known.judge(RELEASED).expect("a disk").unwrap_err();
        assert!(matches!(&wrong, WrongClock::Behind { because, .. } if because.contains("certificate")), "{wrong}");
        assert!(wrong.to_string().contains(NOT_BEFORE), "{wrong}");
    }

    #[test]
    fn an_authority_that_is_delivered_before_it_is_valid_holds_nobody_back_whose_clock_is_set() {
        let machine = Machine::new();
        let judge = || {
            let mut known = Known::new(&machine.disk, &machine.units, Timestamp(0));
            known.since(newest_not_before(AUTHORITY));
            known.judge(RELEASED).expect("a disk")
        };
        assert!(judge().is_err(), "nobody knows what time it is");
        machine.units.set_clock_synchronised(Some(true));
        assert_eq!(judge(), Ok(()));
    }

    #[test]
    fn whoever_set_a_clock_back_by_hand_is_told_how_to_have_that_believed() {
        let error = Machine::new().judge(NOW, FAR, None).unwrap_err().into_step_error();
        assert!(
            error.advice.as_ref().is_some_and(|advice| advice.contains("remove /var/lib/nodestrap/journal")),
            "{error:?}"
        );
    }

    #[test]
    fn certificates_that_have_ended_are_expired_only_if_the_clock_is_known_to_be_right() {
        let machine = Machine::new();
        assert_eq!(machine.judge(NOW, 0, Some(NOW)), Ok(()));
        for unknown in [None, Some(false)] {
            machine.units.set_clock_synchronised(unknown);
            let error = machine.judge(FAR, 0, Some(NOW)).unwrap_err().into_step_error();
            assert_eq!(error.class, ErrorClass::Transient, "a time client may be about to set it");
            for part in ["wrong clock or expired", "/ca.crt", "ended at 2026-11-02T", "says 2099-01-01T"] {
                assert!(error.message.contains(part), "{error}");
            }
            let advice = error.advice.expect("advice");
            assert!(advice.contains("date -s") && advice.contains("pki"), "{advice}");
        }
        machine.units.set_clock_synchronised(Some(true));
        let error = machine.judge(FAR, 0, Some(NOW)).unwrap_err().into_step_error();
        assert_eq!(error.class, ErrorClass::NeedsOperator);
        assert!(error.message.contains("have expired") && !error.message.contains("wrong clock"), "{error}");
    }

    #[test]
    fn the_journal_counts_only_while_no_time_client_has_set_the_clock() {
        let judge = |machine: &Machine| machine.judge(NOW, FAR, None);
        let by_bus = Machine::new();
        for unknown in [None, Some(false)] {
            by_bus.units.set_clock_synchronised(unknown);
            assert!(judge(&by_bus).unwrap_err().to_string().contains("journal"));
        }
        by_bus.units.set_clock_synchronised(Some(true));
        assert_eq!(judge(&by_bus), Ok(()));
        let by_file = Machine::new();
        host::files::write_volatile(&by_file.disk, Path::new(SYNCHRONISED), 0o644, b"").expect("a disk");
        assert_eq!(judge(&by_file), Ok(()));
    }

    fn opened(at: u64) -> Event {
        Event { at: Timestamp(at), kind: EventKind::RunOpened { boot_id: String::new() } }
    }

    fn passed(at: u64) -> Event {
        let kind = EventKind::StepFinished { id: StepId::from(CLOCK_STEP), outcome: Finish::AlreadySo };
        Event { at: Timestamp(at), kind }
    }

    fn refused(at: u64) -> Event {
        let (class, message) = (ErrorClass::Transient, String::new());
        let id = StepId::from(CLOCK_STEP);
        let kind = EventKind::StepFailed { id, attempt: 1, class, message, advice: None, retry_in_ms: None };
        Event { at: Timestamp(at), kind }
    }

    fn ended(at: u64) -> Event {
        Event { at: Timestamp(at), kind: EventKind::RunFinished { outcome: RunOutcome::NothingToDo } }
    }

    #[test]
    fn what_a_wrong_clock_recorded_does_not_outlive_it() {
        for (case, events, newest) in [
            ("nothing", vec![], 0),
            ("a run to its end", vec![opened(1), passed(3), ended(5)], 5),
            ("one that was cut off", vec![opened(1), passed(3)], 3),
            ("one that was refused", vec![opened(FAR), refused(FAR), ended(FAR)], 0),
            ("refused after another", vec![opened(1), passed(3), ended(5), opened(FAR), refused(FAR)], 5),
            ("set while it waited", vec![opened(FAR), refused(FAR), passed(FAR), ended(FAR)], 0),
            ("believed until one knew better", vec![opened(FAR), passed(FAR), ended(FAR), opened(7), passed(8)], 8),
            ("a complete node looked at no clock", vec![opened(1), passed(3), ended(5), ended(FAR)], 5),
        ] {
            assert_eq!(last_believed(&events), Timestamp(newest), "{case}");
        }
    }
}
