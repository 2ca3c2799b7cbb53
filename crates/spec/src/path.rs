//! Paths of settings: `nodeGroups.workers.kubelet.config.maxPods`; a segment with dots stands in double quotes.

pub(crate) fn join<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    segments.map(quote).collect::<Vec<_>>().join(".")
}

fn quote(segment: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !segment.is_empty() && segment.chars().all(plain) {
        return segment.to_owned();
    }
    format!("\"{}\"", segment.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `None` if a quote is not closed or stands in the middle of a segment.
pub(crate) fn split(text: &str) -> Option<Vec<String>> {
    let mut segments = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        let mut segment = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => segment.push(chars.next()?),
                    c => segment.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.') {
                if c == '"' {
                    return None;
                }
                segment.push(c);
            }
        }
        segments.push(segment);
        match chars.next() {
            None => return Some(segments),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_with_dots_survive_joining_and_splitting() {
        let segments = ["plugins", "io.containerd.cri.v1.runtime", "a\"b\\c", "", "x"];
        let joined = join(segments.into_iter());
        assert_eq!(joined, r#"plugins."io.containerd.cri.v1.runtime"."a\"b\\c"."".x"#);
        assert_eq!(split(&joined).unwrap(), segments);
        assert_eq!(split("a.\"b"), None);
        assert_eq!(split("a.b\"c\""), None);
    }
}
