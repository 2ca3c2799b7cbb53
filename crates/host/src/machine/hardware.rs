//! What the kernel's files say about processors and memory.

/// `0-3,8` is five; the form in which the kernel lists processors.
pub(super) fn parse_cpu_list(text: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// `MemTotal` of `/proc/meminfo`, which counts in units of 1024 bytes and calls them kB.
pub(super) fn parse_total_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_over_gaps() {
        for (text, count) in [("0", 1), ("0-1\n", 2), ("0-3,8", 5), ("0,2,4-7", 6)] {
            assert_eq!(parse_cpu_list(text), Some(count), "{text:?}");
        }
        for text in ["", "x", "3-1", "0-4294967295", "-1", "0,,1"] {
            assert_eq!(parse_cpu_list(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_the_total_counts() {
        assert_eq!(parse_total_memory("Active: 1 kB\nMemTotal:       16384 kB\n"), Some(16 << 20));
        for text in ["", "MemTotal: 1 MB", "MemTotal: -1 kB", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(parse_total_memory(text), None, "{text:?}");
        }
    }
}
