//! "Did you mean …?"

/// The candidate that a typing mistake most likely meant, if one is near enough to be worth saying.
pub(crate) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = text.to_lowercase();
    let limit = match text.chars().count() {
        0..=2 => 1,
        3..=5 => 2,
        6..=11 => 3,
        _ => 4,
    };
    let length = wanted.chars().count();
    candidates
        // Cheap, and never wrong: the distance is at least the difference in length.
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= limit)
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    /// Longer texts are no typing mistakes of any field name; the bound keeps hostile input cheap.
    const LONGEST: usize = 128;
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    if from.len() > LONGEST || to.len() > LONGEST {
        return usize::MAX;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in to.iter().enumerate() {
            let replace = last[column] + usize::from(a != b);
            let mut best = replace.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *a == to[column - 1] && from[row - 1] == *b {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_swapped_letters_and_wrong_case_but_not_strangers() {
        let names = ["apiServer", "kubernetesVersion", "join", "networking"];
        assert_eq!(nearest("apiSevrer", names.into_iter()), Some("apiServer"));
        assert_eq!(nearest("APISERVER", names.into_iter()), Some("apiServer"));
        assert_eq!(nearest("kubernetesVerison", names.into_iter()), Some("kubernetesVersion"));
        assert_eq!(nearest("storage", names.into_iter()), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_mistake() {
        assert_eq!(distance("abcd", "abdc"), 1);
        assert_eq!(distance("abcd", "abcd"), 0);
        assert_eq!(distance("", "abc"), 3);
    }
}
