//! AWS Signature Version 4, by headers or by an address: pure, the clock is an argument.
//!
//! The canonical form of a request is hashed, and the hash is signed with a key that is derived from the secret, the day, the
//! region and the service. What is signed: the method, the path, the query, and the headers that are given here.

use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use ring::{digest, hmac};

use crate::secret::Secret;

/// Who asks. No `Debug`: it holds secrets.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: Secret,
    /// Credentials of an instance role have one.
    pub session_token: Option<Secret>,
}

pub(crate) struct Canonical<'a> {
    pub(crate) method: &'a str,
    /// As it stands in the request line, each segment encoded.
    pub(crate) path: &'a str,
    /// In no particular order, not encoded.
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// Names in lower case, in no particular order.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The SHA-256 of the body, in hexadecimal digits.
    pub(crate) body: &'a str,
}

/// For what a signature holds.
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// As [`timestamp`] makes it.
    pub(crate) time: &'a str,
}

/// The value of the header `Authorization`.
pub(crate) fn authorization(request: &Canonical<'_>, credentials: &Credentials, scope: &Scope<'_>) -> String {
    let (canonical, signed) = canonical(request);
    format!(
        "AWS4-HMAC-SHA256 Credential={}, SignedHeaders={signed}, Signature={}",
        credential(credentials, scope),
        signature(&canonical, credentials, scope)
    )
}

/// The query of a GET that anybody may send until it expires: a signature that stands in the address. The address itself is
/// then a secret.
pub(crate) fn presigned_query(
    path: &str,
    host: &str,
    credentials: &Credentials,
    scope: &Scope<'_>,
    expires: Duration,
) -> Vec<(&'static str, String)> {
    let mut query = vec![
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
        ("X-Amz-Credential", credential(credentials, scope)),
        ("X-Amz-Date", scope.time.to_owned()),
        ("X-Amz-Expires", expires.as_secs().to_string()),
        ("X-Amz-SignedHeaders", "host".to_owned()),
    ];
    query.extend(credentials.session_token.as_ref().map(|token| ("X-Amz-Security-Token", token.expose().to_owned())));
    let pairs: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let headers = [("host", host)];
    // Nobody knows yet what will be sent along.
    let request = Canonical { method: "GET", path, query: &pairs, headers: &headers, body: "UNSIGNED-PAYLOAD" };
    let (canonical, _) = canonical(&request);
    query.push(("X-Amz-Signature", signature(&canonical, credentials, scope)));
    query
}

fn credential(credentials: &Credentials, scope: &Scope<'_>) -> String {
    format!("{}/{}", credentials.access_key, scoped(scope))
}

fn scoped(scope: &Scope<'_>) -> String {
    format!("{}/{}/{}/aws4_request", day(scope), scope.region, scope.service)
}

fn day<'a>(scope: &Scope<'a>) -> &'a str {
    scope.time.split('T').next().unwrap_or_default()
}

fn signature(canonical: &str, credentials: &Credentials, scope: &Scope<'_>) -> String {
    let hash = HEXLOWER.encode(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{}\n{hash}", scope.time, scoped(scope));
    let secret = format!("AWS4{}", credentials.secret_key.expose());
    let key = [day(scope), scope.region, scope.service, "aws4_request", &to_sign]
        .iter()
        .fold(secret.into_bytes(), |key, part| keyed(&key, part));
    HEXLOWER.encode(&key)
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// With the names of the headers that are in it.
fn canonical(request: &Canonical<'_>) -> (String, String) {
    let mut headers = request.headers.to_vec();
    headers.sort_unstable();
    let signed = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let spaced = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", spaced(value))).collect();
    let query = canonical_query(request.query);
    let text = format!("{}\n{}\n{query}\n{lines}\n{signed}\n{}", request.method, request.path, request.body);
    (text, signed)
}

/// Also the query of the request line: it must be the same one.
pub(crate) fn canonical_query(query: &[(&str, &str)]) -> String {
    let mut pairs: Vec<_> = query.iter().map(|(name, value)| (encoded(name, ""), encoded(value, ""))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// RFC 3986, as AWS reads it: everything but letters, digits, `-._~` and `besides` is percent-encoded.
pub(crate) fn encoded(text: &str, besides: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || besides.as_bytes().contains(&byte);
        match plain {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// `20130524T000000Z`.
pub(crate) fn timestamp(now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let second = seconds % 86_400;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Of a number of days since 1970, by the calendar that counts years from March, so that the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(request: &Canonical<'_>, credentials: &Credentials, scope: &Scope<'_>) -> String {
        let authorization = authorization(request, credentials, scope);
        authorization.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    fn key(access: &str, secret: &str) -> Credentials {
        Credentials { access_key: access.to_owned(), secret_key: Secret::new(secret), session_token: None }
    }

    /// The examples of "Authenticating Requests: Using the Authorization Header" in the S3 API reference.
    #[test]
    fn requests_to_s3_are_signed_as_in_its_manual() {
        let credentials = key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let scope = Scope { region: "us-east-1", service: "s3", time: "20130524T000000Z" };
        let always = [("host", "examplebucket.s3.amazonaws.com"), ("x-amz-date", "20130524T000000Z")];
        let sign = |method: &str, path: &str, query: &[(&str, &str)], headers: &[(&str, &str)], body: &str| {
            let headers = [&always, headers, &[("x-amz-content-sha256", body)]].concat();
            signature(&Canonical { method, path, query, headers: &headers, body }, &credentials, &scope)
        };
        assert_eq!(
            sign("GET", "/test.txt", &[], &[("range", "bytes=0-9")], EMPTY),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let sent = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        assert_eq!(
            sign("PUT", &encoded("/test$file.text", "/"), &[], &sent, welcome),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            sign("GET", "/", &[("lifecycle", "")], &[], EMPTY),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            sign("GET", "/", &[("max-keys", "2"), ("prefix", "J")], &[], EMPTY),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    /// The example of "Authenticating Requests: Using Query Parameters" in the S3 API reference.
    #[test]
    fn an_address_is_signed_as_in_the_manual() {
        let credentials = key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let scope = Scope { region: "us-east-1", service: "s3", time: "20130524T000000Z" };
        let host = "examplebucket.s3.amazonaws.com";
        let query = presigned_query("/test.txt", host, &credentials, &scope, Duration::from_secs(86_400));
        let (last, signature) = query.last().unwrap();
        assert_eq!(*last, "X-Amz-Signature");
        assert_eq!(signature, "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
        let pairs: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert!(canonical_query(&pairs).contains(
            "X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z\
             &X-Amz-Expires=86400&"
        ));
    }

    /// From AWS's `aws-sig-v4-test-suite`.
    #[test]
    fn the_published_vectors_hold() {
        let credentials = key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let scope = Scope { region: "us-east-1", service: "service", time: "20150830T123600Z" };
        let always = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        let sign = |method: &str, path: &str, query: &[(&str, &str)], headers: &[(&str, &str)]| {
            let headers = [&always, headers].concat();
            signature(&Canonical { method, path, query, headers: &headers, body: EMPTY }, &credentials, &scope)
        };
        for (name, found, expected) in [
            (
                "get-vanilla",
                sign("GET", "/", &[], &[]),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                sign("POST", "/", &[], &[]),
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "get-vanilla-query-order-key-case",
                sign("GET", "/", &[("Param2", "value2"), ("Param1", "value1")], &[]),
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-header-value-trim",
                sign("GET", "/", &[], &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")]),
                "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            ),
            (
                "get-utf8",
                sign("GET", &encoded("/ሴ", "/"), &[], &[]),
                "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
            ),
        ] {
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_moment_is_written_as_a_date() {
        let at = |seconds| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_868_799), "20000229T235959Z");
        assert_eq!(at(1_369_353_600), "20130524T000000Z");
        assert_eq!(at(4_107_542_400), "21000301T000000Z");
    }
}
