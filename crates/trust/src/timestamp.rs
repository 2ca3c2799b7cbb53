//! A moment as manifests and signatures know it: whole seconds, UTC, one spelling.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const SECONDS_OF_A_DAY: u64 = 86_400;
/// The end of the year 9999, beyond which RFC 3339 has no spelling.
const LAST: u64 = 253_402_300_799;

/// Seconds since 1970 in UTC, written as `2026-11-18T06:30:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(u64);

/// A text that is no moment in the one spelling that we read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no time such as '2026-11-18T06:30:00Z' (UTC, whole seconds)")]
pub struct InvalidTimestamp {
    pub text: String,
}

impl Timestamp {
    /// A moment after the year 9999 counts as its last second.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(if seconds > LAST { LAST } else { seconds })
    }

    pub const fn seconds(self) -> u64 {
        self.0
    }

    pub(crate) const fn plus(self, seconds: u64) -> Self {
        Self::from_seconds(self.0.saturating_add(seconds))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse(text).ok_or_else(|| InvalidTimestamp { text: text.chars().take(40).collect() })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes: &[u8; 20] = text.as_bytes().try_into().ok()?;
    let shape = bytes.iter().zip(b"dddd-dd-ddTdd:dd:ddZ");
    if !shape.into_iter().all(|(byte, sign)| if *sign == b'd' { byte.is_ascii_digit() } else { byte == sign }) {
        return None;
    }
    let number =
        |from: usize, to: usize| bytes[from..to].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    if year < 1970 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before_year(year) + days_before_month(year, month)? + day.checked_sub(1)?;
    let at = Timestamp(days * SECONDS_OF_A_DAY + hour * 3600 + minute * 60 + second);
    // A day that its month does not have would be read as one of the next month.
    (at.to_string() == text).then_some(at)
}

/// From 1970.
fn days_before_year(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn days_before_month(year: u64, month: u64) -> Option<u64> {
    const DAYS: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = DAYS.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    Some(days + u64::from(is_leap && month > 2))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / SECONDS_OF_A_DAY, self.0 % SECONDS_OF_A_DAY);
        // Leap days make the guess too late by a few years at most, never too early.
        let guess = 1970 + days / 365;
        let year = (1970..=guess).rev().find(|year| days_before_year(*year) <= days).unwrap_or(1970);
        let day_of_year = days - days_before_year(year);
        let before = |month: u64| days_before_month(year, month).unwrap_or(0);
        let month = (1..=12).rev().find(|month| before(*month) <= day_of_year).unwrap_or(1);
        let day = day_of_year - before(month) + 1;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidTimestamp;

    fn try_from(text: String) -> Result<Self, InvalidTimestamp> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_have_their_spelling() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_seconds(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(seconds)));
        }
    }

    #[test]
    fn there_is_one_spelling() {
        for bad in [
            "",
            "2026-11-18",
            "2026-11-18T06:30:00",
            "2026-11-18T06:30:00+00:00",
            "2026-11-18t06:30:00z",
            "2026-11-18 06:30:00Z",
            "2026-11-18T06:30:00.0Z",
            "2026-11-18T24:00:00Z",
            "2026-11-18T23:59:60Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "+026-11-18T06:30:00Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_second_is_read_back(seconds in 0..=LAST) {
            let at = Timestamp::from_seconds(seconds);
            prop_assert_eq!(at.to_string().parse(), Ok(at));
            prop_assert!(at == Timestamp(LAST) || at.to_string() < at.plus(1).to_string());
        }
    }
}
