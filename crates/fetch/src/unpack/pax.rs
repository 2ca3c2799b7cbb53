//! Records of PAX: what an entry is called and how long it is, if its header has no room for that.

use super::UnpackError;

/// What the records before an entry say about it; the rest (owners, times, comments) is not taken over.
#[derive(Default)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<Vec<u8>>,
    /// A key that is there twice and must not be.
    pub(super) twice: Option<String>,
    pub(super) attribute: Option<String>,
    pub(super) is_sparse: bool,
}

impl Records {
    /// `entry` is the name of the header that the records belong to.
    pub(super) fn parse(mut body: &[u8], entry: &str) -> Result<Self, UnpackError> {
        let mut records = Self::default();
        while !body.is_empty() {
            let Some((key, value, rest)) = split_first(body) else {
                return Err(UnpackError::Header { entry: entry.to_owned(), why: "its PAX records are damaged" });
            };
            records.add(&String::from_utf8_lossy(key), value);
            body = rest;
        }
        Ok(records)
    }

    /// Whether it says anything that must not be said about all entries at once.
    pub(super) fn is_about_one_entry(&self) -> bool {
        self.path.is_some() || self.link.is_some() || self.size.is_some() || self.is_sparse
    }

    fn add(&mut self, key: &str, value: &[u8]) {
        let place = match key {
            "path" => &mut self.path,
            "linkpath" => &mut self.link,
            "size" => &mut self.size,
            _ if key.starts_with("GNU.sparse.") => {
                self.is_sparse = true;
                return;
            }
            _ if is_privilege(key) => {
                self.attribute = Some(key.to_owned());
                return;
            }
            _ => return,
        };
        if place.replace(value.to_vec()).is_some() {
            self.twice = Some(key.to_owned());
        }
    }
}

/// Capabilities, labels of security modules, access control lists, and what only root may see. What users note about
/// their own files (`user.`) gives nobody anything.
fn is_privilege(key: &str) -> bool {
    let attribute = key.strip_prefix("SCHILY.xattr.").or_else(|| key.strip_prefix("LIBARCHIVE.xattr."));
    attribute.is_some_and(|name| !name.starts_with("user."))
        || ["SCHILY.acl.", "RHT.security.", "SUN.acl", "SCHILY.fflags"].iter().any(|prefix| key.starts_with(prefix))
}

/// A record is `LENGTH KEY=VALUE\n`, and its length is that of all of it.
fn split_first(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = body.iter().position(|byte| *byte == b' ')?;
    let length = std::str::from_utf8(&body[..digits]).ok()?;
    if !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (record, rest) = body.split_at_checked(length.parse().ok()?)?;
    let record = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    if key.is_empty() { None } else { Some((key, value, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_have_newlines_and_equal_signs() {
        let records = Records::parse(b"13 path=a\n=b\n20 comment=path=other", "x");
        assert!(records.is_err(), "the second one has no end");
        let records = Records::parse(b"13 path=a\n=b\n11 size=12\n", "x").unwrap();
        assert_eq!((records.path.as_deref(), records.size.as_deref()), (Some(&b"a\n=b"[..]), Some(&b"12"[..])));
    }

    #[test]
    fn damaged_records_are_refused() {
        for bad in
            ["x", "5 a=b\n", "99 a=b\n", "-6 a=b\n", "+6 a=b\n", "6 a=bc", "5 ab\n", "5 =b\n", "0 a=b\n", " a=b\n"]
        {
            assert!(Records::parse(bad.as_bytes(), "x").is_err(), "{bad:?}");
        }
        assert!(Records::parse(b"6 a=b\n", "x").is_ok());
    }
}
