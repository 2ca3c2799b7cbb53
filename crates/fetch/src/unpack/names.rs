//! Names in an archive, as far as they may be believed.

use super::{Limits, UnpackError};

/// As it is shown in messages.
pub(super) fn shown(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

/// The path of an entry without dots and double slashes; `None` for the folder itself (`./`).
pub(super) fn entry_path(raw: &[u8], limits: &Limits) -> Result<Option<String>, UnpackError> {
    let entry = shown(raw);
    let text = text_of(raw, limits)?;
    if text.is_empty() {
        return Err(UnpackError::EmptyName { entry });
    }
    if text.starts_with('/') {
        return Err(UnpackError::AbsolutePath { entry });
    }
    let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return Err(UnpackError::ParentInPath { entry });
    }
    if names.len() > limits.depth {
        return Err(UnpackError::TooDeep { entry, limit: limits.depth });
    }
    Ok(if names.is_empty() { None } else { Some(names.join("/")) })
}

/// The target of a link at a path, which must not leave the tree.
///
/// All folders above the link are real ones, so steps upwards at the start of the target are counted for certain; and names
/// after them lead deeper, or through links of which the same is true. Steps upwards behind a name are not certain, since that
/// name may be a link to anywhere in the tree.
pub(super) fn link_target(path: &str, raw: &[u8], limits: &Limits) -> Result<String, UnpackError> {
    let target = text_of(raw, limits).map_err(|error| match error {
        UnpackError::PathTooLong { limit, .. } => UnpackError::PathTooLong { entry: path.to_owned(), limit },
        other => other,
    })?;
    let refused = || (path.to_owned(), target.to_owned());
    if target.is_empty() {
        return Err(UnpackError::EmptyName { entry: path.to_owned() });
    }
    if target.starts_with('/') {
        let (entry, target) = refused();
        return Err(UnpackError::AbsoluteLink { entry, target });
    }
    let (mut above, mut has_name) = (path.matches('/').count(), false);
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if has_name => {
                let (entry, target) = refused();
                return Err(UnpackError::WindingLink { entry, target });
            }
            ".." if above == 0 => {
                let (entry, target) = refused();
                return Err(UnpackError::LinkOut { entry, target });
            }
            ".." => above -= 1,
            _ => has_name = true,
        }
    }
    Ok(target.to_owned())
}

fn text_of<'a>(raw: &'a [u8], limits: &Limits) -> Result<&'a str, UnpackError> {
    if raw.len() > limits.path {
        return Err(UnpackError::PathTooLong { entry: shown(&raw[..limits.path]), limit: limits.path });
    }
    if raw.contains(&0) {
        return Err(UnpackError::NulInName { entry: shown(raw) });
    }
    std::str::from_utf8(raw).map_err(|_| UnpackError::NotText { entry: shown(raw) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, target: &str) -> Result<String, UnpackError> {
        link_target(path, target.as_bytes(), &Limits::USUAL)
    }

    #[test]
    fn paths_lose_what_says_nothing() {
        let path = |raw: &str| entry_path(raw.as_bytes(), &Limits::USUAL).unwrap();
        for raw in ["./a/b", "a//b", "a/./b/", "././/a/b"] {
            assert_eq!(path(raw).as_deref(), Some("a/b"), "{raw}");
        }
        assert_eq!((path("./"), path(".")), (None, None));
        assert_eq!(path("..a/b..").as_deref(), Some("..a/b.."));
    }

    #[test]
    fn links_stay_inside() {
        for (path, good) in [("a/b/l", "../../c"), ("a/l", ".."), ("l", "."), ("l", "a/b"), ("a/l", "./..//b")] {
            assert_eq!(target(path, good).unwrap(), good);
        }
        for (path, out) in [("l", ".."), ("a/l", "../.."), ("a/b/l", "../../../c"), ("l", "./../l")] {
            assert!(matches!(target(path, out), Err(UnpackError::LinkOut { .. })), "{path} -> {out}");
        }
        assert!(matches!(target("l", "/etc"), Err(UnpackError::AbsoluteLink { .. })));
        // a/b/up -> ../.. is the root, so a/b/up/.. would be above it.
        assert!(matches!(target("a/b/l", "up/.."), Err(UnpackError::WindingLink { .. })));
    }
}
