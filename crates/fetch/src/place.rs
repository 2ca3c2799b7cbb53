//! Where an object is: a web address, a local file, or a key in a bucket.

use std::path::PathBuf;

use hyper::header::HeaderMap;

use crate::error::Reason;
use crate::exchange::Dialect;
use crate::location::Location;
use crate::s3::{Object, S3};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Web(Location),
    File(PathBuf),
    Bucket(Object),
}

/// What is asked, and what opens it.
pub(crate) struct Target {
    pub(crate) location: Location,
    pub(crate) authorization: HeaderMap,
    pub(crate) dialect: Dialect,
}

impl Place {
    /// Fails with what is wrong about it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let is_plain = path.starts_with('/') && !path.contains(['%', '?', '#', '\0']);
            let is_plain = is_plain && !path.split('/').any(|part| part == "..");
            return if is_plain {
                Ok(Self::File(path.into()))
            } else {
                Err("a file URL is file:///PATH, without .. and %")
            };
        }
        match text.strip_prefix("s3://") {
            Some(rest) => Object::parse(rest).map(Self::Bucket),
            None => Location::parse(text).map(Self::Web),
        }
    }
}

impl Target {
    pub(crate) fn web(location: &Location) -> Self {
        Self { location: location.clone(), authorization: HeaderMap::new(), dialect: Dialect::Web }
    }

    /// Signed anew each time, since a signature holds for minutes.
    pub(crate) fn object(object: &Object, s3: Option<&S3<'_>>) -> Result<Self, Reason> {
        let s3 = s3.ok_or(Reason::Url("nothing says in which region the bucket is"))?;
        s3.target("GET", object, &[], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_web_address_a_file_or_a_key_in_a_bucket() {
        assert_eq!(Place::parse("file:///srv/a b").unwrap(), Place::File("/srv/a b".into()));
        assert_eq!(Place::parse("file:/srv/a").unwrap(), Place::File("/srv/a".into()));
        assert!(matches!(Place::parse("https://h/x").unwrap(), Place::Web(_)));
        let object = |bucket: &str, key: &str| Object { bucket: bucket.to_owned(), key: key.to_owned() };
        assert_eq!(Place::parse("s3://b-1.x/k/l m").unwrap(), Place::Bucket(object("b-1.x", "k/l m")));
        for (text, why) in [
            ("file:srv/a", "file:///"),
            ("file://host/a", "file:///"),
            ("file:///srv/../etc/shadow", ".."),
            ("file:///srv/a%20b", "%"),
            ("s3://b", "KEY"),
            ("s3://b/", "KEY"),
            ("s3:///k", "bucket"),
            ("s3://Big/k", "bucket"),
            ("s3://key:secret@b/k", "bucket"),
            ("s3://b.evil.example:80/k", "bucket"),
            ("ftp://h/x", "only http"),
        ] {
            let found = Place::parse(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
