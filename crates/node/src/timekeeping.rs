//! Whether the clock of this machine can be right.
//!
//! A machine without a battery starts in 1970 or at the date of its image, and then every certificate looks invalid. What
//! the clock must at least say is known: this program was released, the cluster's authority was made, and the journal was
//! written, before now. In: these moments. Out: nothing, or [`WrongClock`], which names them. Deciding is pure; waiting is
//! bounded.

use std::path::Path;
use std::time::Duration;

use bundle::Bundle;
use data_encoding::BASE64;
use engine::{Clock, Deadline, Timestamp};
use host::disk::{Disk, DiskError};

use crate::plan::CLOCK_DEADLINE;
use crate::session::load_events;

/// 2026-11-01, moved on with each release: a program cannot run before it was made.
const RELEASED: Timestamp = Timestamp(1_793_491_200_000);
/// The clock may have been a little ahead when the journal was written, and set right since.
const JOURNAL_SLACK: Duration = Duration::from_secs(24 * 60 * 60);
/// Made by systemd-timesyncd once it has set the clock in this boot.
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";
/// How often a clock that is waited for is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(crate) const ADVICE: &str = "let a time client set the clock (is the network up, does an NTP server answer?), or set it by hand: \
                                 date -s; if it is right, what it is compared with was made by a machine whose clock is ahead";

/// A moment that has passed for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earliest {
    pub(crate) at: Timestamp,
    pub(crate) because: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clock of this machine is wrong: it says {says}, but it is at least {at_least}, because {because}")]
pub struct WrongClock {
    pub says: Timestamp,
    pub at_least: Timestamp,
    pub because: &'static str,
}

/// Names the newest of the moments that the clock puts into the future.
pub(crate) fn decide_clock(now: Timestamp, earliest: &[Earliest]) -> Result<(), WrongClock> {
    match earliest.iter().max_by_key(|moment| moment.at) {
        Some(moment) if now < moment.at => Err(WrongClock { says: now, at_least: moment.at, because: moment.because }),
        _ => Ok(()),
    }
}

/// Everything that is known to have passed. The journal counts only while nobody has set the clock: it may have been written
/// by a clock that was ahead.
pub(crate) fn earliest(
    disk: &dyn Disk,
    from_bundle: Option<Timestamp>,
    newest_record: Timestamp,
) -> Result<Vec<Earliest>, DiskError> {
    let mut moments = vec![Earliest { at: RELEASED, because: "this version of nodestrap was released then" }];
    let because = "the newest certificate of the bundle is not valid before that";
    moments.extend(from_bundle.map(|at| Earliest { at, because }));
    if disk.stat(Path::new(SYNCHRONISED))?.is_none() {
        let slack = u64::try_from(JOURNAL_SLACK.as_millis()).unwrap_or(u64::MAX);
        let at = Timestamp(newest_record.0.saturating_sub(slack));
        moments.push(Earliest { at, because: "the journal of this node was written a day later" });
    }
    Ok(moments)
}

/// When the youngest certificate of the bundle became valid.
pub(crate) fn earliest_of_bundle(bundle: &Bundle) -> Option<Timestamp> {
    let texts = bundle.files.iter().filter_map(|file| std::str::from_utf8(&file.content).ok());
    texts.filter_map(newest_not_before).max()
}

/// Before a store is asked over TLS. `authorities`: PEM, those of the store.
pub fn wait_for_clock(disk: &dyn Disk, authorities: Option<&str>, clock: &dyn Clock) -> Result<(), WrongClock> {
    let deadline = Deadline::starting_now(clock, CLOCK_DEADLINE);
    let newest = load_events(disk).ok().and_then(|(events, _)| events.iter().map(|event| event.at).max());
    loop {
        // A disk that cannot be read is somebody else's to tell of.
        let moments = earliest(disk, authorities.and_then(newest_not_before), newest.unwrap_or_default());
        let verdict = decide_clock(clock.now(), &moments.unwrap_or_default());
        if verdict.is_ok() || deadline.remaining(clock).is_zero() {
            return verdict;
        }
        clock.sleep(LOOK_AGAIN.min(deadline.remaining(clock)));
    }
}

/// Of all certificates in a PEM text; what is none is passed over.
fn newest_not_before(pem: &str) -> Option<Timestamp> {
    pem.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|part| {
            let (base64, _) = part.split_once("-----END CERTIFICATE-----")?;
            let base64: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            not_before(&BASE64.decode(base64.as_bytes()).ok()?)
        })
        .max()
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notBefore` of a DER certificate: RFC 5280, section 4.1.
fn not_before(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (tbs, _) = take(certificate, SEQUENCE)?;
    let rest = take(tbs, EXPLICIT_VERSION).map_or(tbs, |(_, rest)| rest);
    let (_serial, rest) = take(rest, INTEGER)?;
    let (_algorithm, rest) = take(rest, SEQUENCE)?;
    let (_issuer, rest) = take(rest, SEQUENCE)?;
    let (validity, _) = take(rest, SEQUENCE)?;
    let (text, century) = match take(validity, UTC_TIME) {
        Some((text, _)) => (text, None),
        None => (take(validity, GENERALIZED_TIME)?.0, Some(())),
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    // Two digits of a year count from 1950.
    let full = match century {
        Some(()) => text.to_owned(),
        None => format!("{}{text}", if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" }),
    };
    parse_time(&full)
}

/// `YYYYMMDDHHMMSS`, as RFC 5280 wants it.
fn parse_time(text: &str) -> Option<Timestamp> {
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let days = days_since_1970(year, month, day)?;
    let seconds = days * 86_400 + number(8, 10)? * 3600 + number(10, 12)? * 60 + number(12, 14)?;
    Some(Timestamp(seconds * 1000))
}

/// Years are counted from March, so that the leap day is the last day of a year.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

/// The content of the element at the start, if it has this tag, and what follows it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length))?
}

#[cfg(test)]
mod tests {
    use host::fake::{FakeClock, FakeDisk};

    use super::*;

    const AUTHORITY: &str = include_str!("../tests/authority.crt");

    struct TestClock(FakeClock);

    impl Clock for TestClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.now_ms())
        }
        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }
        fn sleep(&self, duration: Duration) {
            self.0.sleep(duration);
        }
    }

    #[test]
    fn the_newest_moment_in_the_future_is_named() {
        let moment = |at: u64, because| Earliest { at: Timestamp(at), because };
        let moments = [moment(10, "a"), moment(30, "b"), moment(20, "c")];
        assert_eq!(decide_clock(Timestamp(30), &moments), Ok(()));
        let wrong = decide_clock(Timestamp(15), &moments).unwrap_err();
        assert_eq!(wrong, WrongClock { says: Timestamp(15), at_least: Timestamp(30), because: "b" });
        assert_eq!(decide_clock(Timestamp(0), &[]), Ok(()));
        let shown = WrongClock { says: Timestamp(0), at_least: RELEASED, because: "x" }.to_string();
        assert!(shown.contains("1970-01-01T00:00:00Z") && shown.contains("2026-11-01T00:00:00Z"), "{shown}");
    }

    #[test]
    fn a_certificate_says_since_when_it_is_valid() {
        let found = newest_not_before(AUTHORITY).expect("a certificate");
        assert_eq!(found.to_string(), NOT_BEFORE);
        assert_eq!(newest_not_before(&format!("text\n{AUTHORITY}\n{AUTHORITY}")), Some(found));
        assert_eq!(newest_not_before("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), None);
        // No prefix of it makes the reader panic, and none has another date.
        let der = BASE64.decode(AUTHORITY.lines().filter(|line| !line.starts_with('-')).collect::<String>().as_bytes());
        let der = der.unwrap();
        for length in 0..der.len() {
            assert_eq!(not_before(&der[..length]), None, "{length}");
        }
        assert_eq!(not_before(&der), Some(found));
    }

    /// As `openssl x509 -startdate -noout -in crates/node/tests/authority.crt` says.
    const NOT_BEFORE: &str = "2026-11-16T00:53:00Z";

    #[test]
    fn dates_are_counted() {
        for (text, shown) in [
            ("19700101000000", Some("1970-01-01T00:00:00Z")),
            ("20000229235959", Some("2000-02-29T23:59:59Z")),
            ("20261116070102", Some("2026-11-16T07:01:02Z")),
            ("21000301000000", Some("2100-03-01T00:00:00Z")),
            ("20261316070102", None),
            ("2026111607010", None),
            ("19690101000000", None),
        ] {
            assert_eq!(parse_time(text).map(|at| at.to_string()).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn a_clock_that_is_set_in_time_is_waited_for_and_one_that_is_not_is_named() {
        let disk = FakeDisk::new();
        let right = RELEASED.0 + 1;
        let late = TestClock(FakeClock::new(0));
        late.0.set_wall_after(Duration::from_secs(12), right);
        assert_eq!(wait_for_clock(&disk, None, &late), Ok(()));
        let never = TestClock(FakeClock::new(0));
        let wrong = wait_for_clock(&disk, None, &never).unwrap_err();
        assert_eq!((wrong.says, wrong.at_least), (Timestamp(30_000), RELEASED));
        assert_eq!(never.monotonic(), CLOCK_DEADLINE);
        let made = newest_not_before(AUTHORITY).unwrap().0;
        let good = TestClock(FakeClock::new(made));
        assert_eq!(wait_for_clock(&disk, Some(AUTHORITY), &good), Ok(()));
        assert_eq!(good.monotonic(), Duration::ZERO, "nobody waits for a clock that is right");
        let early = TestClock(FakeClock::new(made - 60_000));
        assert!(wait_for_clock(&disk, Some(AUTHORITY), &early).unwrap_err().because.contains("certificate"));
    }

    #[test]
    fn the_journal_counts_only_while_nobody_has_set_the_clock() {
        let disk = FakeDisk::new();
        let newest = Timestamp(RELEASED.0 * 2);
        let judge = || decide_clock(Timestamp(RELEASED.0 + 1), &earliest(&disk, None, newest).unwrap());
        assert!(judge().unwrap_err().because.contains("journal"));
        host::files::write_volatile(&disk, Path::new(SYNCHRONISED), 0o644, b"").unwrap();
        assert_eq!(judge(), Ok(()));
    }
}
