//! Stores that speak S3: where an object is, how a question is signed, and what their refusals mean.

use std::time::{Duration, SystemTime};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Reason;
use crate::exchange::Dialect;
use crate::location::Location;
use crate::place::Target;
use crate::sigv4::{
    Canonical, Credentials, Scope, authorization, canonical_query, encoded, presigned_query, timestamp,
};

/// More than any refusal has.
pub(crate) const ERROR_LIMIT: usize = 64 * 1024;
/// The SHA-256 of no bytes.
pub(crate) const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A store, and who asks it. No `Debug`: it leads to secrets.
#[derive(Clone, Copy)]
pub struct S3<'a> {
    pub settings: &'a S3Settings,
    /// `None`: the bucket is open to everybody.
    pub credentials: Option<&'a Credentials>,
    /// A signature says when it was made.
    pub now: &'a dyn Fn() -> SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    pub region: String,
    /// Such as `https://minio.example:9000`; `None`: that of AWS in the region.
    pub endpoint: Option<String>,
    pub style: Style,
}

/// Where the name of the bucket goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `https://BUCKET.ENDPOINT/KEY`: what AWS wants.
    Host,
    /// `https://ENDPOINT/BUCKET/KEY`: what most others want; also for buckets with dots in their names, for which no
    /// certificate of AWS is.
    Path,
}

/// One key in one bucket; the key may be empty where a whole bucket is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) bucket: String,
    pub(crate) key: String,
}

impl Object {
    /// `BUCKET/KEY`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let object = Self::parse_prefix(text)?;
        if object.key.is_empty() { Err("an address in a bucket is s3://BUCKET/KEY") } else { Ok(object) }
    }

    /// `BUCKET` or `BUCKET/PREFIX`.
    pub(crate) fn parse_prefix(text: &str) -> Result<Self, &'static str> {
        let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
        let of_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(of_bucket) {
            return Err("its bucket must be of lower-case letters, digits, dots and hyphens");
        }
        // `.` and `..` would be taken for steps on the way.
        if key.split('/').any(|part| matches!(part, "." | "..")) || key.contains(char::is_control) {
            return Err("its key must have neither . nor .. as a part");
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

impl S3<'_> {
    /// `headers` (in lower case) are signed and sent with the rest; a body is known by its `x-amz-content-sha256`.
    pub(crate) fn target(
        &self,
        method: &str,
        object: &Object,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Result<Target, Reason> {
        let location = self.settings.location(object, query).map_err(Reason::Url)?;
        let mut signed = HeaderMap::new();
        if let Some(credentials) = self.credentials {
            let time = timestamp((self.now)());
            let given = headers.iter().find(|(name, _)| *name == "x-amz-content-sha256").map(|(_, sum)| *sum);
            let body = given.unwrap_or(NOTHING);
            let mut all = vec![("host", location.authority()), ("x-amz-date", &time)];
            if given.is_none() {
                all.push(("x-amz-content-sha256", NOTHING));
            }
            all.extend(credentials.session_token.as_ref().map(|token| ("x-amz-security-token", token.expose())));
            all.extend(headers);
            let path = location.target().split('?').next().unwrap_or_default();
            let canonical = Canonical { method, path, query, headers: &all, body };
            let scope = Scope { region: &self.settings.region, service: "s3", time: &time };
            let authorization = authorization(&canonical, credentials, &scope);
            for (name, value) in all.iter().skip(1).copied().chain([("authorization", authorization.as_str())]) {
                add(&mut signed, name, value)?;
            }
        } else {
            headers.iter().try_for_each(|(name, value)| add(&mut signed, name, value))?;
        }
        Ok(Target { location, authorization: signed, dialect: Dialect::S3 })
    }
}

/// For how long an address may be signed; no store takes more.
pub const LONGEST_PRESIGNED: Duration = Duration::from_secs(7 * 24 * 3600);

/// No address that anybody could use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresignError {
    #[error("{place:?} cannot be signed: {why}")]
    Place { place: String, why: &'static str },
    #[error("an address can be signed for a second at least and for 7 days at most")]
    Expires,
    #[error("an address can only be signed with a key")]
    NoKey,
}

impl S3<'_> {
    /// The address (http or https, as the endpoint is) at which anybody can fetch `s3://BUCKET/KEY` from now until it expires, or
    /// until the credentials end that signed it: those of an instance role do so within hours. It is a secret.
    pub fn presign(&self, place: &str, expires: Duration) -> Result<String, PresignError> {
        let refused = |why| PresignError::Place { place: place.to_owned(), why };
        let object = place.strip_prefix("s3://").ok_or("it is not s3://BUCKET/KEY").and_then(Object::parse);
        let object = object.map_err(refused)?;
        if expires < Duration::from_secs(1) || expires > LONGEST_PRESIGNED {
            return Err(PresignError::Expires);
        }
        let Some(credentials) = self.credentials else { return Err(PresignError::NoKey) };
        let bare = self.settings.location(&object, &[]).map_err(refused)?;
        let time = timestamp((self.now)());
        let scope = Scope { region: &self.settings.region, service: "s3", time: &time };
        let query = presigned_query(bare.target(), bare.authority(), credentials, &scope, expires);
        let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let scheme = if bare.is_https() { "https" } else { "http" };
        Ok(format!("{scheme}://{}{}?{}", bare.authority(), bare.target(), canonical_query(&query)))
    }
}

fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Reason> {
    const UNSPEAKABLE: Reason = Reason::Url("its credentials have characters that cannot be sent");
    let name = HeaderName::try_from(name).map_err(|_| UNSPEAKABLE)?;
    let mut value = HeaderValue::try_from(value).map_err(|_| UNSPEAKABLE)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

impl S3Settings {
    fn location(&self, object: &Object, query: &[(&str, &str)]) -> Result<Location, &'static str> {
        let endpoint = self.endpoint.as_deref().map_or_else(
            || {
                let china = if self.region.starts_with("cn-") { ".cn" } else { "" };
                format!("https://s3.{}.amazonaws.com{china}", self.region)
            },
            |endpoint| endpoint.trim_end_matches('/').to_owned(),
        );
        let (scheme, host) = endpoint.split_once("://").ok_or("the endpoint of the store is not a URL")?;
        let (key, bucket) = (encoded(&object.key, "/"), &object.bucket);
        let place = match self.style {
            Style::Host => format!("{scheme}://{bucket}.{host}/{key}"),
            Style::Path => format!("{scheme}://{host}/{bucket}/{key}"),
        };
        let query = if query.is_empty() { String::new() } else { format!("?{}", canonical_query(query)) };
        Location::parse(&format!("{place}{query}"))
    }
}

/// What the document that came with a status says.
pub(crate) fn refusal(status: Reason, document: &[u8]) -> Reason {
    let Reason::Status { code: number, retry_after, .. } = status else { return status };
    let text = String::from_utf8_lossy(document);
    let code = between(&text, "<Code>", "</Code>").unwrap_or_default();
    if code.is_empty() || code.len() > 64 || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return status;
    }
    Reason::Store { status: number, code: code.to_owned(), retry_after }
}

/// The first text that stands between two others.
pub(crate) fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

pub(crate) fn may_pass(status: u16, code: &str) -> bool {
    match code {
        // At boot the clock may be set while we try.
        "RequestTimeTooSkewed" => true,
        // AWS says so with status 400.
        "RequestTimeout" => true,
        _ => matches!(status, 408 | 429 | 500..=599),
    }
}

pub(crate) fn meaning(code: &str) -> &'static str {
    match code {
        "RequestTimeTooSkewed" => "this machine's clock and the store's are too far apart",
        // Some stores forget a session that is over, and have no other word for it.
        "InvalidAccessKeyId" | "XAdminUserNotFound" => "it does not know the access key, or no longer",
        "SignatureDoesNotMatch" => "the secret key does not belong to the access key",
        "ExpiredToken" => "the session token has expired",
        "InvalidToken" => "it does not accept the session token",
        "AccessDenied" | "AllAccessDisabled" => "whoever asks may not do this",
        "SlowDown" | "ServiceUnavailable" | "Busy" => "it is asked too much at once",
        "NoSuchKey" => "there is no such object",
        "NoSuchBucket" => "there is no such bucket",
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => "the bucket is in another region, or at another endpoint",
        _ => "it refuses",
    }
}

pub(crate) fn advice(code: &str) -> &'static str {
    match code {
        "RequestTimeTooSkewed" => "set this machine's clock right; it may be a quarter of an hour wrong at most",
        "InvalidAccessKeyId" | "XAdminUserNotFound" => {
            "correct the access key and the secret key that are given for the store; those of an instance role last for hours, \
             and fresh ones come by themselves when it is tried again"
        }
        "SignatureDoesNotMatch" => "correct the access key and the secret key that are given for the store",
        "ExpiredToken" | "InvalidToken" => {
            "give fresh credentials; those of an instance role come by themselves when it is tried again"
        }
        "AccessDenied" | "AllAccessDisabled" => {
            "let the user or the instance role read the bucket (s3:GetObject; s3:PutObject and s3:ListBucket to publish)"
        }
        "SlowDown" | "ServiceUnavailable" | "Busy" => {
            "let fewer machines start at once, or put a cache before the store"
        }
        "NoSuchKey" => "put the object into the store, or correct the store's address",
        "NoSuchBucket" => "make the bucket, or correct its name",
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => "correct the region or the endpoint of the store",
        _ => "look at the store's log",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn at(endpoint: Option<&str>, region: &str, style: Style, query: &[(&str, &str)]) -> String {
        let settings = S3Settings { region: region.to_owned(), endpoint: endpoint.map(str::to_owned), style };
        let object = Object { bucket: "b".to_owned(), key: "a dir/k+1".to_owned() };
        let location = settings.location(&object, query).unwrap();
        format!("{}{}", location.authority(), location.target())
    }

    #[test]
    fn an_object_has_one_address_in_each_style() {
        assert_eq!(at(None, "eu-central-1", Style::Host, &[]), "b.s3.eu-central-1.amazonaws.com/a%20dir/k%2B1");
        assert_eq!(at(None, "cn-north-1", Style::Path, &[]), "s3.cn-north-1.amazonaws.com.cn/b/a%20dir/k%2B1");
        let own = Some("http://minio:9000/");
        assert_eq!(at(own, "x", Style::Path, &[("prefix", "a/b")]), "minio:9000/b/a%20dir/k%2B1?prefix=a%2Fb");
        assert_eq!(at(own, "x", Style::Host, &[]), "b.minio:9000/a%20dir/k%2B1");
    }

    #[test]
    fn credentials_sign_and_are_shown_nowhere() {
        let settings = S3Settings { region: "r".to_owned(), endpoint: None, style: Style::Host };
        let credentials = Credentials {
            access_key: "AK".to_owned(),
            secret_key: Secret::new("canary"),
            session_token: Some(Secret::new("canary-token")),
        };
        let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &|| SystemTime::UNIX_EPOCH };
        let object = Object::parse("b/k").unwrap();
        let Ok(target) = s3.target("GET", &object, &[], &[]) else { panic!("no target") };
        assert_eq!(target.authorization.get("x-amz-security-token").unwrap(), "canary-token");
        let authorization = target.authorization.get("authorization").unwrap().to_str().unwrap();
        assert!(authorization.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
        assert!(!format!("{:?} {authorization}", target.authorization).contains("canary"));
        let Ok(open) = S3 { credentials: None, ..s3 }.target("GET", &object, &[], &[]) else { panic!("no target") };
        assert!(open.authorization.is_empty());
    }

    #[test]
    fn an_address_is_signed_for_as_long_as_a_store_takes_it() {
        let settings = S3Settings { region: "eu-central-1".to_owned(), endpoint: None, style: Style::Host };
        let credentials = Credentials {
            access_key: "AK".to_owned(),
            secret_key: Secret::new("canary"),
            session_token: Some(Secret::new("a/token")),
        };
        let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &|| SystemTime::UNIX_EPOCH };
        let hour = Duration::from_secs(3600);
        let address = s3.presign("s3://nodes/a dir/doc.ign", hour).unwrap();
        let start = "https://nodes.s3.eu-central-1.amazonaws.com/a%20dir/doc.ign?X-Amz-Algorithm=AWS4-HMAC-SHA256&";
        assert!(address.starts_with(start), "{address}");
        assert!(
            address.contains("&X-Amz-Expires=3600&") && address.contains("&X-Amz-Security-Token=a%2Ftoken&"),
            "{address}"
        );
        assert!(!address.contains("canary"));
        for expires in [Duration::ZERO, LONGEST_PRESIGNED + hour] {
            assert_eq!(s3.presign("s3://nodes/doc", expires), Err(PresignError::Expires));
        }
        for wrong in ["https://nodes/doc", "s3://nodes", "s3://nodes/", "s3://Nodes/doc", "s3://nodes/../doc"] {
            assert!(matches!(s3.presign(wrong, hour), Err(PresignError::Place { .. })), "{wrong}");
        }
        assert_eq!(S3 { credentials: None, ..s3 }.presign("s3://nodes/doc", hour), Err(PresignError::NoKey));
    }

    #[test]
    fn a_refusal_is_told_by_its_code_and_nothing_else_of_it() {
        let status = || Reason::Status { code: 403, name: "Forbidden", retry_after: None };
        let page =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>canary</Message></Error>");
        for (code, word, advice) in [
            ("RequestTimeTooSkewed", "clock", "clock"),
            ("SignatureDoesNotMatch", "secret key", "correct the access key"),
            ("InvalidAccessKeyId", "access key", "correct the access key"),
            ("ExpiredToken", "expired", "fresh credentials"),
            ("SlowDown", "too much", "fewer machines"),
        ] {
            let reason = refusal(status(), page(code).as_bytes());
            let text = reason.to_string();
            assert!(text.contains(word) && text.contains(code) && !text.contains("canary"), "{text}");
            assert!(reason.advice().contains(advice), "{code}");
        }
        for strange in ["", "a b", "<x>", &"x".repeat(65)] {
            assert_eq!(refusal(status(), page(strange).as_bytes()), status(), "{strange}");
        }
        assert_eq!(refusal(status(), b"\xff<html>"), status());
    }
}
