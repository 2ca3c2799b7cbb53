//! Durations as people read them.
//!
//! In: a duration. Out: at most three significant digits and a unit. Fails: never.

use std::time::Duration;

pub(crate) fn human_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let seconds = (millis + 500) / 1000;
    match millis {
        0..1_000 => format!("{millis} ms"),
        // Rounded in whole numbers, so that every machine prints the same.
        1_000..9_995 => format!("{}.{:02} s", (millis + 5) / 1000, (millis + 5) % 1000 / 10),
        9_995..59_950 => format!("{}.{} s", (millis + 50) / 1000, (millis + 50) % 1000 / 100),
        59_950..3_599_500 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// For deadlines, which are round numbers: without the decimals that measurements have.
pub(crate) fn human_round(duration: Duration) -> String {
    match duration.as_millis() {
        millis if (1_000..60_000).contains(&millis) && millis % 1000 == 0 => format!("{} s", millis / 1000),
        millis if (1_000..10_000).contains(&millis) && millis % 100 == 0 => {
            format!("{}.{} s", millis / 1000, millis % 1000 / 100)
        }
        millis if (60_000..3_600_000).contains(&millis) && millis % 60_000 == 0 => format!("{} min", millis / 60_000),
        _ => human_duration(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits_and_round_into_the_next_unit() {
        let shown = |millis| human_duration(Duration::from_millis(millis));
        assert_eq!(shown(0), "0 ms");
        assert_eq!(shown(999), "999 ms");
        assert_eq!(shown(1_005), "1.01 s");
        assert_eq!(shown(9_994), "9.99 s");
        assert_eq!(shown(9_995), "10.0 s");
        assert_eq!(shown(59_949), "59.9 s");
        assert_eq!(shown(59_950), "1 min 00 s");
        assert_eq!(shown(125_000), "2 min 05 s");
        assert_eq!(shown(3_599_500), "1 h 00 min");
        assert_eq!(shown(90_000_000), "25 h 00 min");
    }

    #[test]
    fn round_durations_have_no_decimals() {
        let shown = |millis| human_round(Duration::from_millis(millis));
        assert_eq!(shown(200), "200 ms");
        assert_eq!(shown(30_000), "30 s");
        assert_eq!(shown(1_500), "1.5 s");
        assert_eq!(shown(300_000), "5 min");
    }
}
