//! Paths of settings: `nodeGroups.workers.kubelet.config.maxPods`, `cluster.fileAssets[0].path`; a segment with dots or
//! brackets stands in double quotes.

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Name(String),
    /// Of an item of a list; the first is 0.
    Index(usize),
}

impl Step {
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own == name)
    }
}

pub(crate) fn join<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    segments.map(quote).collect::<Vec<_>>().join(".")
}

/// The path of a part of what lies at `segments`.
pub(crate) fn join_steps(segments: &[String], steps: &[Step]) -> String {
    let mut path = join(segments.iter().map(String::as_str));
    for step in steps {
        match step {
            Step::Name(name) => path.extend([".", &quote(name)]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

fn quote(segment: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !segment.is_empty() && segment.chars().all(plain) {
        return segment.to_owned();
    }
    format!("\"{}\"", segment.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `None` if a quote is not closed or stands in the middle of a segment.
pub(crate) fn split(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    loop {
        let (name, after) =
            if let Some(quoted) = rest.strip_prefix('"') { unquote(quoted)? } else { split_name(rest)? };
        steps.push(Step::Name(name));
        rest = after;
        while let Some((index, after)) = split_index(rest) {
            steps.push(Step::Index(index));
            rest = after;
        }
        if rest.is_empty() {
            return Some(steps);
        }
        rest = rest.strip_prefix('.')?;
    }
}

/// What stands before the closing quote, and what after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((name, chars.as_str())),
            '\\' => name.push(chars.next()?),
            c => name.push(c),
        }
    }
}

/// Up to the next dot or index; brackets around anything but a number are part of the name (`[::1]:5000`).
fn split_name(text: &str) -> Option<(String, &str)> {
    let ends = |at: &usize| *at > 0 && split_index(&text[*at..]).is_some() || text[*at..].starts_with('.');
    let end = text.char_indices().map(|(at, _)| at).find(ends).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.contains('"')).then(|| (name.to_owned(), rest))
}

/// `[0]` at the end of a segment.
fn split_index(text: &str) -> Option<(usize, &str)> {
    let (digits, rest) = text.strip_prefix('[')?.split_once(']')?;
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
    if numeric && ends { Some((digits.parse().ok()?, rest)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Step> {
        names.iter().map(|name| Step::Name((*name).to_owned())).collect()
    }

    #[test]
    fn segments_with_dots_survive_joining_and_splitting() {
        let segments = ["plugins", "io.containerd.cri.v1.runtime", "a\"b\\c", "", "[0]", "x"];
        let joined = join(segments.into_iter());
        assert_eq!(joined, r#"plugins."io.containerd.cri.v1.runtime"."a\"b\\c".""."[0]".x"#);
        assert_eq!(split(&joined).unwrap(), names(&segments));
        assert_eq!(split("a.\"b"), None);
        assert_eq!(split("a.b\"c\""), None);
        assert_eq!(split("a.\"b\"c"), None);
    }

    #[test]
    fn items_of_lists_survive_joining_and_splitting() {
        let below = [Step::Index(0), Step::Name("dropIns".to_owned()), Step::Name("a.b".to_owned()), Step::Index(12)];
        let joined = join_steps(&["cluster".to_owned(), "units".to_owned()], &below);
        assert_eq!(joined, "cluster.units[0].dropIns.\"a.b\"[12]");
        assert_eq!(split(&joined).unwrap(), [names(&["cluster", "units"]), below.to_vec()].concat());
        assert_eq!(split("a[1][2]").unwrap(), [names(&["a"]), vec![Step::Index(1), Step::Index(2)]].concat());
    }

    #[test]
    fn brackets_without_a_number_are_part_of_a_name() {
        for text in ["[0]", "[::1]:5000", "a[", "a[]", "a[x]", "a[0]b", "a[99999999999999999999999]"] {
            assert_eq!(split(text).unwrap(), names(&[text]), "{text}");
        }
    }
}
