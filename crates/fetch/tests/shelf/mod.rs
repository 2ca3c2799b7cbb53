//! A server that has one object, with the ranges that a store has and the tricks that it is told, and somebody who fetches it.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fetch::{Digest, Download, FetchError, Mixing, Network, Patience, Sink, SinkError, Slowest, download};
use sha2::Digest as _;

use crate::server::{Server, Stream, hold};

pub(crate) const OBJECT_SIZE: usize = 1_000_000;

/// Of which every part differs from every other.
pub(crate) fn object() -> Vec<u8> {
    (0..OBJECT_SIZE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What a server does with one question; without a word it is honest. Places in percent of the object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trick {
    CutAt(usize),
    ResetAt(usize),
    StallAt(usize),
    Trickle,
    /// As if nobody had asked for a part.
    Whole,
    Unsatisfiable,
    WrongRange,
    WrongBytes,
    WrongBytesCutAt(usize),
    RetryAfter(&'static str, u32),
}

pub(crate) struct Shelf {
    pub(crate) server: Server,
    sent: Arc<AtomicUsize>,
}

impl Shelf {
    /// The tricks are for the first questions, in order.
    pub(crate) fn start(tricks: Vec<Trick>) -> Self {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let server = Server::start_reading(move |number, question, stream| {
            serve(tricks.get(number - 1).copied(), question, stream, &counted);
        });
        Self { server, sent }
    }

    /// Bytes of bodies.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

fn serve(trick: Option<Trick>, question: &str, stream: &mut dyn Stream, sent: &AtomicUsize) {
    let mut bytes = object();
    if matches!(trick, Some(Trick::WrongBytes | Trick::WrongBytesCutAt(_))) {
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
    }
    let question = question.to_lowercase();
    let asked = question.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
    let from = asked.filter(|_| !matches!(trick, Some(Trick::Whole))).map_or(0, |from| from.parse::<usize>().unwrap());
    match trick {
        Some(Trick::Unsatisfiable) => {
            let _ = write!(stream, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        Some(Trick::RetryAfter(status, seconds)) => {
            let _ = write!(stream, "HTTP/1.1 {status}\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        _ => {}
    }
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let said = if matches!(trick, Some(Trick::WrongRange)) { from + 1 } else { from };
    let range = format!("Content-Range: bytes {said}-{}/{OBJECT_SIZE}\r\n", OBJECT_SIZE - 1);
    let range = if from > 0 { range } else { String::new() };
    let length = OBJECT_SIZE - from;
    let _ = write!(stream, "HTTP/1.1 {status}\r\nETag: \"v1\"\r\n{range}Content-Length: {length}\r\n\r\n");
    let end = match trick {
        Some(Trick::CutAt(at) | Trick::ResetAt(at) | Trick::StallAt(at) | Trick::WrongBytesCutAt(at)) => {
            (OBJECT_SIZE / 100 * at).max(from)
        }
        _ => OBJECT_SIZE,
    };
    let pause = matches!(trick, Some(Trick::Trickle)).then_some(Duration::from_millis(50));
    let size = if pause.is_some() { 8 } else { 10_000 };
    for part in bytes[from..end].chunks(size) {
        if stream.write_all(part).and_then(|()| stream.flush()).is_err() {
            return;
        }
        sent.fetch_add(part.len(), Ordering::SeqCst);
        pause.map(std::thread::sleep);
    }
    match trick {
        Some(Trick::ResetAt(_)) => stream.reset(),
        Some(Trick::StallAt(_)) => hold(stream),
        _ => {}
    }
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) discards: usize,
    /// How many bytes there ever were.
    pub(crate) most: usize,
    pub(crate) room: Option<usize>,
}

impl Sink for Memory {
    fn kept(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        if self.room.is_some_and(|room| self.bytes.len() + bytes.len() > room) {
            return Err(SinkError(Box::<dyn Error + Send + Sync>::from("no space left on device")));
        }
        self.bytes.extend_from_slice(bytes);
        self.most = self.most.max(self.bytes.len());
        Ok(())
    }

    fn discard(&mut self) -> Result<(), SinkError> {
        self.bytes.clear();
        self.discards += 1;
        Ok(())
    }
}

/// Quick where a mirror is silent; generous where a busy test machine might be slow.
pub(crate) fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(20),
        stall: Duration::from_millis(600),
        attempt: Duration::from_secs(60),
        overall: Duration::from_secs(60),
        first_rest: Duration::from_millis(1),
        longest_rest: Duration::from_millis(5),
    }
}

/// For what never gets better.
pub(crate) fn hasty() -> Patience {
    Patience { overall: Duration::from_secs(2), ..patience() }
}

pub(crate) struct Ask {
    pub(crate) places: Vec<String>,
    pub(crate) without: Vec<String>,
    pub(crate) authorities: Option<String>,
    pub(crate) mixing: Mixing,
    pub(crate) patience: Patience,
    pub(crate) slowest: Slowest,
}

pub(crate) struct Asked {
    /// The place that gave all.
    pub(crate) outcome: Result<Option<String>, FetchError>,
    pub(crate) sink: Memory,
    pub(crate) told: Vec<String>,
}

impl Ask {
    pub(crate) fn new(places: Vec<String>) -> Self {
        Self {
            places,
            without: Vec::new(),
            authorities: None,
            mixing: Mixing::Allowed,
            patience: patience(),
            slowest: Slowest::default(),
        }
    }

    pub(crate) fn run(&self, sink: Memory) -> Asked {
        self.run_with(sink, |network| network)
    }

    pub(crate) fn run_with<'a>(&'a self, mut sink: Memory, network: impl Fn(Network<'a>) -> Network<'a>) -> Asked {
        let told = RefCell::default();
        let request = Download {
            what: "the thing",
            places: &self.places,
            without: &self.without,
            size: OBJECT_SIZE as u64,
            digest: Digest::Sha256(sha2::Sha256::digest(object()).into()),
            mixing: self.mixing,
            network: network(Network { authorities: self.authorities.as_deref(), ..Network::default() }),
            patience: self.patience,
            slowest: self.slowest,
            random: &|| u64::MAX / 2,
            tell: &|notice| Vec::push(&mut told.borrow_mut(), notice.to_string()),
        };
        let outcome = download(&request, &mut sink).map(|completed| completed.all_from.map(str::to_owned));
        Asked { outcome, sink, told: told.into_inner() }
    }

    /// As the owner of a sink does it: verifies, and leaves out whoever was wrong. With how often it tried.
    pub(crate) fn run_until_right(mut self) -> (Memory, usize) {
        let mut sink = Memory::default();
        for tries in 1.. {
            let asked = self.run(sink);
            sink = asked.sink;
            let Ok(all_from) = asked.outcome else { return (sink, tries) };
            if sink.bytes == object() {
                return (sink, tries);
            }
            let _ = sink.discard();
            match all_from {
                Some(place) => self.without.push(place),
                None => self.mixing = Mixing::Refused,
            }
        }
        unreachable!("it ends by itself")
    }
}
