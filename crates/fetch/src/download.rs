//! One large object into a sink, piece by piece: where one attempt or one mirror ends, the next one goes on.
//!
//! In: a [`Download`] and a [`Sink`]. Out: as many bytes as were promised, from whom ([`Completed`]); whether they are the
//! right ones, only the digest over the whole can tell, and the owner of the sink has it. Fails with [`FetchError`].
//!
//! ```text
//! nothing kept      GET                              200, the promised length       → append
//! n bytes kept      GET Range: bytes=n-              206, exactly from n to the end → append
//!                       If-Range: strong ETag        200: the object changed, or ranges are unknown → from the beginning
//!                                                    416: what is kept is too long  → from the beginning
//! ```

use std::cell::{Cell, RefCell};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE, TRANSFER_ENCODING};
use hyper::{Response, StatusCode};
use tokio::time::{Instant, timeout};

use crate::connect::Outbound;
use crate::error::{FetchError, Reason, chain};
use crate::exchange::{announced, broken, get, refusal, refuse_encoded};
use crate::mirrors::{Notice, Rounds, Trouble};
use crate::pace::{Pace, Slowest};
use crate::place::{Place, Target};
use crate::sink::{Sink, SinkError};
use crate::{Digest, Network, Patience};

/// What is read from a local file at once.
const CHUNK: usize = 64 * 1024;

/// One object of which size and digest are known.
pub struct Download<'a> {
    /// What is fetched, as people call it: it appears in messages.
    pub what: &'a str,
    /// Where the object is, the preferred mirror first: `https://`, `http://`, `s3://BUCKET/KEY`, `file:///PATH`.
    pub places: &'a [String],
    /// Those of the places that gave the wrong bytes before.
    pub without: &'a [String],
    /// No byte more is taken, and no byte less is enough.
    pub size: u64,
    /// What the owner of the sink verifies when all bytes are there.
    pub digest: Digest,
    pub mixing: Mixing,
    pub network: Network<'a>,
    pub patience: Patience,
    pub slowest: Slowest,
    /// Uniform over all of `u64`: for the jitter between rounds.
    pub random: &'a dyn Fn() -> u64,
    /// Told of every attempt and of the progress.
    pub tell: &'a dyn Fn(&Notice<'_>),
}

/// Whether the beginning may be of one mirror, and the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixing {
    Allowed,
    /// After wrong bytes of which nobody knows whose they were.
    Refused,
}

/// As many bytes as were promised; nobody has verified them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "these may be the wrong bytes"]
pub struct Completed<'a> {
    /// The place that gave every byte of them. If they are wrong, leave it out ([`Download::without`]); if there is no such
    /// place, refuse [`Mixing`]. Each of both ends, since every further try has one place less.
    pub all_from: Option<&'a str>,
}

/// Blocks the calling thread until the sink has all bytes.
pub fn download<'a>(request: &Download<'a>, sink: &mut dyn Sink) -> Result<Completed<'a>, FetchError> {
    let outbound = Outbound::new(request.network.authorities, request.network.proxy)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let outcome = runtime.block_on(Transfer::new(request, sink).run(&outbound));
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    outcome
}

struct Transfer<'r, 'a> {
    request: &'r Download<'a>,
    places: Vec<&'a str>,
    rounds: Rounds<'r>,
    kept: RefCell<Kept<'r>>,
    /// For each place, by what it knows this very object.
    tags: Vec<RefCell<Option<HeaderValue>>>,
    /// Somebody cannot go on where another left off.
    refused_to_go_on: Cell<bool>,
}

/// The sink, and who filled it.
struct Kept<'r> {
    sink: &'r mut dyn Sink,
    /// `None`: an earlier run.
    givers: Vec<Option<usize>>,
}

impl Kept<'_> {
    fn discard(&mut self) -> Result<(), SinkError> {
        self.givers.clear();
        self.sink.discard()
    }
}

/// Where the body of an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Beginning,
    WhereWeAre,
    /// There is nothing so far behind.
    Nowhere,
}

impl<'r, 'a> Transfer<'r, 'a> {
    fn new(request: &'r Download<'a>, sink: &'r mut dyn Sink) -> Self {
        let places: Vec<&str> =
            request.places.iter().filter(|place| !request.without.contains(place)).map(String::as_str).collect();
        let givers = if sink.kept() > 0 { vec![None] } else { Vec::new() };
        let rounds = Rounds {
            what: request.what,
            patience: &request.patience,
            random: request.random,
            tell: request.tell,
            advanced: Cell::default(),
        };
        let tags = places.iter().map(|_| RefCell::default()).collect();
        let kept = RefCell::new(Kept { sink, givers });
        Self { request, places, rounds, kept, tags, refused_to_go_on: Cell::default() }
    }

    async fn run(&self, outbound: &Outbound<'_>) -> Result<Completed<'a>, FetchError> {
        let what = || self.request.what.to_owned();
        let keeping = |source| FetchError::Sink { what: what(), source };
        if self.at() > self.request.size {
            self.start_over("more is kept of it than there is").map_err(keeping)?;
        }
        if self.at() == self.request.size {
            return Ok(Completed { all_from: None });
        }
        let attempt = async |number: usize, place: &Place| self.attempt(number, place, outbound).await;
        let mut outcome = self.rounds.ask(&self.places, attempt).await;
        // A mirror that knows no ranges may have the right object all the same.
        if matches!(outcome, Err(FetchError::Mirrors { .. })) && self.refused_to_go_on.take() && self.at() > 0 {
            self.start_over("no mirror goes on where it was left off").map_err(keeping)?;
            outcome = self.rounds.ask(&self.places, attempt).await;
        }
        outcome?;
        let givers = &self.kept.borrow().givers;
        let only = if let [Some(number)] = givers.as_slice() { self.places.get(*number).copied() } else { None };
        Ok(Completed { all_from: only })
    }

    fn at(&self) -> u64 {
        self.kept.borrow().sink.kept()
    }

    fn start_over(&self, why: &str) -> Result<(), SinkError> {
        (self.request.tell)(&Notice::StartingOver { what: self.request.what, why });
        self.kept.borrow_mut().discard()
    }

    async fn attempt(&self, number: usize, place: &Place, outbound: &Outbound<'_>) -> Result<(), Trouble> {
        let of_others = self.kept.borrow().givers.iter().any(|giver| *giver != Some(number));
        if self.request.mixing == Mixing::Refused && of_others {
            self.start_over("what is kept of it came from another mirror")?;
        }
        match place {
            Place::File(path) => self.copy(number, path),
            Place::Web(location) => self.transfer(number, || Ok(Target::web(location)), outbound).await,
            Place::Bucket(object) => {
                self.transfer(number, || Target::object(object, self.request.network.s3.as_ref()), outbound).await
            }
        }
    }

    async fn transfer(
        &self,
        number: usize,
        target: impl Fn() -> Result<Target, Reason>,
        outbound: &Outbound<'_>,
    ) -> Result<(), Trouble> {
        // The second time after "there is nothing so far behind", from the beginning.
        loop {
            let (target, from) = (target()?, self.at());
            let tag = self.tags.get(number);
            let headers = part_wanted(from, tag.and_then(|tag| tag.borrow().clone()));
            let opened = get(&target, &headers, outbound, &self.request.patience).await?;
            let (status, answered) = (opened.answer.status(), opened.answer.headers());
            let Some(start) = decide_start(status, answered, from, self.request.size) else {
                return Err(refusal(opened.answer, target.dialect, self.request.patience.stall).await.into());
            };
            let start = start.inspect_err(|_| {
                if from > 0 && status == StatusCode::PARTIAL_CONTENT {
                    self.refused_to_go_on.set(true);
                }
            })?;
            match start {
                Start::Nowhere => {
                    self.start_over("what is kept of it is longer than what the mirror has")?;
                    continue;
                }
                Start::Beginning if from > 0 => self.start_over("the mirror does not go on where it was left off")?,
                Start::Beginning | Start::WhereWeAre => {}
            }
            if let Some(tag) = tag {
                *tag.borrow_mut() = strong_tag(answered);
            }
            return self.receive(number, opened.answer).await;
        }
    }

    async fn receive(&self, number: usize, answer: Response<Incoming>) -> Result<(), Trouble> {
        let stall = self.request.patience.stall;
        let has_its_own_end = answer.headers().contains_key(TRANSFER_ENCODING);
        let mut incoming = answer.into_body();
        let mut pace = Pace::new(self.request.slowest);
        loop {
            let asked = Instant::now();
            let next = timeout(stall, incoming.frame()).await;
            let next = next.map_err(|_| Reason::TimedOut { waiting_for: "more of its answer", after: stall })?;
            let waited = asked.elapsed();
            let Some(frame) = next else {
                let (at, size) = (self.at(), self.request.size);
                return match has_its_own_end {
                    _ if at == size => Ok(()),
                    true => Err(Reason::Mismatch(format!("its object ends after {at} of {size} bytes")).into()),
                    false => Err(Reason::Exchange(format!("it ends after {at} of {size} bytes")).into()),
                };
            };
            let frame = frame.map_err(|error| broken(&error))?;
            let Some(part) = frame.data_ref() else { continue };
            self.append(number, part)?;
            pace.came(part.len() as u64, waited)?;
        }
    }

    fn append(&self, number: usize, part: &[u8]) -> Result<(), Trouble> {
        let (at, size) = (self.at(), self.request.size);
        if part.len() as u64 > size - at {
            // What came before it from this mirror is of another object.
            self.start_over("a mirror has more of it than there is")?;
            return Err(Reason::TooLarge { limit: usize::try_from(size).unwrap_or(usize::MAX) }.into());
        }
        let mut kept = self.kept.borrow_mut();
        kept.sink.append(part)?;
        if !part.is_empty() && kept.givers.last() != Some(&Some(number)) {
            kept.givers.push(Some(number));
        }
        self.rounds.advanced.set(true);
        let now = kept.sink.kept();
        drop(kept);
        let hundredths = |bytes: u64| u128::from(bytes) * 100 / u128::from(size.max(1));
        if hundredths(now) != hundredths(at) {
            (self.request.tell)(&Notice::Progress { what: self.request.what, bytes: now, of: size });
        }
        Ok(())
    }

    fn copy(&self, number: usize, path: &Path) -> Result<(), Trouble> {
        let unreadable = |error: &dyn std::error::Error| Reason::File(chain(error));
        let disk = self.request.network.disk.ok_or(Reason::Url("local files cannot be fetched here"))?;
        let found = disk.open(path).map_err(|error| unreadable(&error))?;
        let mut file = found.ok_or_else(|| Reason::File("there is no such file".to_owned()))?;
        let length = file.seek(SeekFrom::End(0)).map_err(|error| unreadable(&error))?;
        if length != self.request.size {
            return Err(wrong_size(length, self.request.size).into());
        }
        file.seek(SeekFrom::Start(self.at())).map_err(|error| unreadable(&error))?;
        let mut chunk = vec![0; CHUNK];
        while self.at() < self.request.size {
            match file.read(&mut chunk) {
                Ok(0) => return Err(Reason::File("it became shorter while it was read".to_owned()).into()),
                Ok(read) => self.append(number, chunk.get(..read).unwrap_or_default())?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&error).into()),
            }
        }
        Ok(())
    }
}

fn part_wanted(from: u64, tag: Option<HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if from == 0 {
        return headers;
    }
    if let Ok(range) = HeaderValue::try_from(format!("bytes={from}-")) {
        headers.insert(RANGE, range);
        headers.extend(tag.map(|tag| (IF_RANGE, tag)));
    }
    headers
}

/// `None` if the status is not one that a body comes with; an error if the headers promise something else than was asked for.
fn decide_start(status: StatusCode, headers: &HeaderMap, from: u64, size: u64) -> Option<Result<Start, Reason>> {
    let check = |length: u64, start: Start| {
        refuse_encoded(headers)?;
        match announced(headers) {
            Some(said) if said != length => Err(wrong_size(said, length)),
            _ => Ok(start),
        }
    };
    match status {
        StatusCode::OK => Some(check(size, Start::Beginning)),
        StatusCode::PARTIAL_CONTENT if from > 0 => {
            let wanted = format!("bytes {from}-{}/{size}", size.saturating_sub(1));
            let said = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            Some(if said.trim().eq_ignore_ascii_case(&wanted) {
                check(size - from, Start::WhereWeAre)
            } else {
                let said: String = said.chars().filter(|character| !character.is_control()).take(64).collect();
                Err(Reason::Mismatch(format!("it was asked for {wanted:?}, and sends {said:?}")))
            })
        }
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => Some(Ok(Start::Nowhere)),
        _ => None,
    }
}

fn wrong_size(found: u64, wanted: u64) -> Reason {
    Reason::Mismatch(format!("it has {found} bytes where {wanted} are wanted"))
}

/// By a weak one, two different objects may be the same.
fn strong_tag(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(status: u16, headers: &[(&'static str, &str)], from: u64) -> Option<Result<Start, Reason>> {
        let headers = headers
            .iter()
            .map(|(name, value)| (hyper::header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        decide_start(StatusCode::from_u16(status).unwrap(), &headers.collect(), from, 100)
    }

    #[test]
    fn only_exactly_the_part_that_was_asked_for_is_taken() {
        let part = |range| start(206, &[("content-range", range), ("content-length", "60")], 40);
        assert_eq!(part("bytes 40-99/100"), Some(Ok(Start::WhereWeAre)));
        for wrong in [
            "bytes 0-99/100",
            "bytes 39-99/100",
            "bytes 41-99/100",
            "bytes 40-98/100",
            "bytes 40-99/101",
            "bytes 40-99/*",
            "bytes 40-99/100, bytes 0-1/100",
            "bytes */100",
            "items 40-99/100",
            "",
        ] {
            assert!(matches!(part(wrong), Some(Err(Reason::Mismatch(_)))), "{wrong}");
        }
        assert!(matches!(start(206, &[], 40), Some(Err(_))), "without a word about the range");
        assert_eq!(start(206, &[("content-range", "bytes 0-99/100")], 0), None, "nobody asked for a part");
        let short = start(206, &[("content-range", "bytes 40-99/100"), ("content-length", "59")], 40);
        assert!(matches!(short, Some(Err(Reason::Mismatch(_)))));
    }

    #[test]
    fn another_length_and_another_form_are_refused_before_the_body() {
        assert_eq!(start(200, &[("content-length", "100")], 0), Some(Ok(Start::Beginning)));
        assert_eq!(start(200, &[], 40), Some(Ok(Start::Beginning)), "in chunks, and from the beginning");
        for length in ["99", "101", "10000000000"] {
            assert!(matches!(start(200, &[("content-length", length)], 0), Some(Err(Reason::Mismatch(_)))), "{length}");
        }
        assert_eq!(start(200, &[("content-encoding", "gzip")], 0), Some(Err(Reason::Encoded("gzip".to_owned()))));
        assert_eq!(start(416, &[], 40), Some(Ok(Start::Nowhere)));
        for status in [204, 206, 304, 404, 416, 500] {
            assert_eq!(start(status, &[], 0), None, "{status}");
        }
    }

    #[test]
    fn a_part_is_asked_for_with_what_the_object_is_known_by() {
        assert!(part_wanted(0, Some(HeaderValue::from_static("\"x\""))).is_empty());
        let headers = part_wanted(7, Some(HeaderValue::from_static("\"x\"")));
        assert!(headers.get(RANGE).unwrap() == "bytes=7-" && headers.get(IF_RANGE).unwrap() == "\"x\"");
        let tagged = |tag| strong_tag(&HeaderMap::from_iter([(ETAG, HeaderValue::from_static(tag))]));
        assert!(tagged("\"x\"").is_some() && tagged("W/\"x\"").is_none() && tagged("x").is_none());
    }
}
