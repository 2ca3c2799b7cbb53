//! Objects in an S3 store, for those who publish: put, look, list, delete.
//!
//! In: a place such as `s3://BUCKET/KEY`, and who asks ([`Bucket`]). Fails with [`BucketError`], which says what to do. A
//! redirect is never followed, for it would carry what was signed to somebody else.

use std::io::Read;
use std::time::Duration;

use data_encoding::HEXLOWER;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH};
use hyper::{Method, Response, StatusCode};

use crate::connect::{Arrival, Outbound};
use crate::content::Content;
use crate::error::{FetchError, Reason};
use crate::exchange::{Connection, announced, body, question, refusal};
use crate::insist::{insist, times};
use crate::s3::{Object, S3, between};
use crate::{Network, Patience};

/// A page of a list has up to a thousand keys of up to a kilobyte.
const LIST_LIMIT: usize = 4 * 1024 * 1024;
/// A million objects.
const MOST_PAGES: usize = 1000;
const SUM_HEADER: &str = "x-amz-meta-sha256";

/// How objects are reached; [`Network::s3`] must say where and as whom.
pub struct Bucket<'a> {
    pub network: Network<'a>,
    /// For each question; `attempt` is for the whole of an object that is sent.
    pub patience: Patience,
    /// Uniform over all of `u64`: for the jitter between attempts.
    pub random: &'a dyn Fn() -> u64,
}

/// What is put: it is read anew with each attempt.
pub struct Upload<'a> {
    pub size: u64,
    pub sha256: [u8; 32],
    pub open: &'a dyn Fn() -> std::io::Result<Box<dyn Read + Send>>,
}

/// An object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub size: u64,
    /// If it was put by us: what we said that it is, not what it is now.
    pub sha256: Option<[u8; 32]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub size: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    #[error("cannot {verb} {place}: {reason}{}; {}", times(*.attempts), .reason.advice())]
    Refused { verb: &'static str, place: String, attempts: u32, reason: Reason },
    #[error("cannot {verb} {place}")]
    Setup { verb: &'static str, place: String, source: FetchError },
}

impl BucketError {
    /// Whether the same request may succeed later without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => reason.may_pass(),
            Self::Setup { source, .. } => source.may_pass(),
        }
    }
}

/// One question, whole.
struct Asked<'a> {
    method: Method,
    object: &'a Object,
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'a str, &'a str)],
    upload: Option<&'a Upload<'a>>,
}

impl Bucket<'_> {
    /// Replaces what is there. The store verifies the sum.
    pub fn put(&self, place: &str, upload: &Upload<'_>) -> Result<(), BucketError> {
        let sum = HEXLOWER.encode(&upload.sha256);
        let headers = [("x-amz-content-sha256", sum.as_str()), (SUM_HEADER, sum.as_str())];
        self.of("put", place, Object::parse, async |object, outbound| {
            let upload = Some(upload);
            let asked = Asked { method: Method::PUT, object, query: &[], headers: &headers, upload };
            self.ask(&asked, outbound, async |answer, stall| match answer.status() {
                StatusCode::OK => Ok(()),
                _ => Err(refusal(answer, crate::exchange::Dialect::S3, stall).await),
            })
            .await
        })
    }

    /// `None` if there is no such object.
    pub fn head(&self, place: &str) -> Result<Option<Stored>, BucketError> {
        self.of("look at", place, Object::parse, async |object, outbound| {
            let asked = Asked { method: Method::HEAD, object, query: &[], headers: &[], upload: None };
            self.ask(&asked, outbound, async |answer, _| match answer.status() {
                StatusCode::OK => {
                    let sum = answer.headers().get(SUM_HEADER).and_then(|sum| HEXLOWER.decode(sum.as_bytes()).ok());
                    let size = announced(answer.headers())
                        .ok_or_else(|| Reason::Mismatch("it does not say how large the object is".to_owned()))?;
                    Ok(Some(Stored { size, sha256: sum.and_then(|sum| sum.try_into().ok()) }))
                }
                StatusCode::NOT_FOUND => Ok(None),
                // Without a body there is no code either.
                status => Err(Reason::answered(status, answer.headers())),
            })
            .await
        })
    }

    /// All objects whose place begins like this; `s3://BUCKET` for all.
    pub fn list(&self, place: &str) -> Result<Vec<Listed>, BucketError> {
        let (mut found, mut token) = (Vec::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let page = self.of("list", place, Object::parse_prefix, async |object, outbound| {
                let bucket = Object { bucket: object.bucket.clone(), key: String::new() };
                let mut query = vec![("list-type", "2"), ("prefix", object.key.as_str())];
                query.extend(token.as_deref().map(|token| ("continuation-token", token)));
                let asked = Asked { method: Method::GET, object: &bucket, query: &query, headers: &[], upload: None };
                self.ask(&asked, outbound, async |answer, stall| match answer.status() {
                    StatusCode::OK => read_page(&body(answer, stall, LIST_LIMIT).await?),
                    _ => Err(refusal(answer, crate::exchange::Dialect::S3, stall).await),
                })
                .await
            })?;
            found.extend(page.objects);
            token = page.next;
            if token.is_none() {
                return Ok(found);
            }
        }
        let reason = Reason::Mismatch(format!("its list has no end after {} objects", found.len()));
        Err(BucketError::Refused { verb: "list", place: place.to_owned(), attempts: 1, reason })
    }

    /// An object that is not there is no error.
    pub fn delete(&self, place: &str) -> Result<(), BucketError> {
        self.of("delete", place, Object::parse, async |object, outbound| {
            let asked = Asked { method: Method::DELETE, object, query: &[], headers: &[], upload: None };
            self.ask(&asked, outbound, async |answer, stall| match answer.status() {
                StatusCode::OK | StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(()),
                _ => Err(refusal(answer, crate::exchange::Dialect::S3, stall).await),
            })
            .await
        })
    }

    /// Asks again and again, on the calling thread.
    fn of<T>(
        &self,
        verb: &'static str,
        place: &str,
        parse: impl Fn(&str) -> Result<Object, &'static str>,
        attempt: impl AsyncFn(&Object, &Outbound<'_>) -> Result<T, Reason>,
    ) -> Result<T, BucketError> {
        let setup = |source| BucketError::Setup { verb, place: place.to_owned(), source };
        let refused = |attempts, reason| BucketError::Refused { verb, place: place.to_owned(), attempts, reason };
        let rest = place.strip_prefix("s3://").ok_or("an address in a bucket is s3://BUCKET/KEY");
        let object = rest.and_then(parse).map_err(|why| refused(0, Reason::Url(why)))?;
        let outbound = Outbound::new(self.network.authorities, self.network.proxy).map_err(setup)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| setup(FetchError::Runtime(error)))?;
        let outcome = runtime.block_on(insist(&self.patience, self.random, async || attempt(&object, &outbound).await));
        // A name that is still being looked up must not hold up the end.
        runtime.shutdown_background();
        outcome.map_err(|(attempts, reason)| refused(attempts, reason))
    }

    async fn ask<T>(
        &self,
        asked: &Asked<'_>,
        outbound: &Outbound<'_>,
        read: impl AsyncFn(Response<Incoming>, Duration) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let s3: &S3<'_> = self.network.s3.as_ref().ok_or(Reason::Url("nothing says in which region the bucket is"))?;
        let target = s3.target(asked.method.as_str(), asked.object, asked.query, asked.headers)?;
        let (content, patience) = match asked.upload {
            None => (Content::empty(), self.patience.stall),
            Some(upload) => {
                let reader = (upload.open)().map_err(|error| Reason::File(error.to_string()))?;
                // The answer comes when all is sent.
                (Content::read(reader, upload.size), self.patience.attempt)
            }
        };
        let mut connection = Connection::open(&target.location, Arrival::Named, outbound, &self.patience).await?;
        let mut builder = question(asked.method.clone(), &target.location, target.location.target());
        if let Some(headers) = builder.headers_mut() {
            headers.extend(target.authorization);
        }
        if let Some(upload) = asked.upload {
            builder = builder.header(CONTENT_LENGTH, upload.size);
        }
        let answer = connection.ask(builder.header(CONNECTION, "close"), content, patience).await?;
        read(answer, self.patience.stall).await
    }
}

struct Page {
    objects: Vec<Listed>,
    next: Option<String>,
}

fn read_page(document: &[u8]) -> Result<Page, Reason> {
    let wrong = || Reason::Mismatch("its list cannot be understood".to_owned());
    let text = std::str::from_utf8(document).map_err(|_| wrong())?;
    if !text.contains("<ListBucketResult") {
        return Err(wrong());
    }
    let object = |part: &str| {
        let size = between(part, "<Size>", "</Size>")?.parse().ok()?;
        Some(Listed { key: plain(between(part, "<Key>", "</Key>")?)?, size })
    };
    let objects: Option<Vec<Listed>> = text.split("<Contents>").skip(1).map(object).collect();
    let next = between(text, "<NextContinuationToken>", "</NextContinuationToken>").map(plain);
    let next = if between(text, "<IsTruncated>", "</IsTruncated>") == Some("true") { next } else { None };
    match (objects, next) {
        (Some(objects), None) => Ok(Page { objects, next: None }),
        (Some(objects), Some(Some(next))) => Ok(Page { objects, next: Some(next) }),
        _ => Err(wrong()),
    }
}

/// Text of an XML document without its entities.
fn plain(text: &str) -> Option<String> {
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, rest) = part.split_once(';')?;
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            numbered => {
                let digits = numbered.strip_prefix('#')?;
                let number = match digits.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => digits.parse(),
                };
                char::from_u32(number.ok()?)?
            }
        });
        out.push_str(rest);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_a_list_is_read() {
        let page = read_page(
            b"<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated>\
              <Contents><Key>a&amp;b&#x20;&#99;</Key><ETag>&quot;x&quot;</ETag><Size>5</Size></Contents>\
              <Contents><Size>0</Size><Key>d</Key></Contents>\
              <NextContinuationToken>t=</NextContinuationToken></ListBucketResult>",
        );
        let Ok(page) = page else { panic!("no page") };
        let listed = |key: &str, size| Listed { key: key.to_owned(), size };
        assert_eq!(page.objects, [listed("a&b c", 5), listed("d", 0)]);
        assert_eq!(page.next.as_deref(), Some("t="));
        let empty = read_page(b"<ListBucketResult xmlns=\"x\"><IsTruncated>false</IsTruncated></ListBucketResult>");
        assert!(empty.is_ok_and(|page| page.objects.is_empty() && page.next.is_none()));
        for wrong in [
            "<html></html>",
            "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>a&bad;</Key><Size>1</Size></Contents></ListBucketResult>",
        ] {
            assert!(read_page(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
