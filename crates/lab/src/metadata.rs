//! A metadata service as AWS, GCE, Azure and OpenStack have it, which can also behave badly.
//!
//! In: an [`Instance`] and an address to listen at. Out: answers as the real service gives them (it wants the same headers
//! and refuses in the same way), and the list of what was asked. A test tells it how to behave next ([`Manner`]); without a
//! word it is faithful. Gone with its value.

mod answers;
mod manners;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

pub use answers::{Instance, Provider};
pub use manners::Manner;

/// How soon a server that was dropped stops listening.
const PAUSE: Duration = Duration::from_millis(5);
/// A client that is silent for this long has gone.
const SILENCE: Duration = Duration::from_secs(30);
/// No client of a test sends more before its empty line.
const MAX_REQUEST_BYTES: u64 = 64 * 1024;

pub struct MetadataServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    instance: Instance,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    next: Mutex<VecDeque<Manner>>,
    always: Mutex<Manner>,
    closing: AtomicBool,
}

/// One request, as far as a metadata service looks at it.
pub(crate) struct Request {
    pub(crate) verb: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl MetadataServer {
    /// On loopback, at a port of its own.
    pub fn start(instance: Instance) -> Result<Self> {
        Self::serve(TcpListener::bind("127.0.0.1:0").context("listening on loopback")?, instance)
    }

    /// Where something else has made the listener: in another namespace, at a port that was free before.
    pub fn serve(listener: TcpListener, instance: Instance) -> Result<Self> {
        let address = listener.local_addr().context("asking for the port")?;
        listener.set_nonblocking(true).context("preparing the listener")?;
        let shared = Arc::new(Shared {
            instance,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            next: Mutex::default(),
            always: Mutex::new(Manner::Faithful),
            closing: AtomicBool::new(false),
        });
        let listening = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept_until_closed(&listener, &shared)
        });
        Ok(Self { address, shared, listening: Some(listening) })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next requests are answered like this, one after the other.
    pub fn next(&self, manners: impl IntoIterator<Item = Manner>) {
        locked(&self.shared.next).extend(manners);
    }

    /// All others are answered like this.
    pub fn always(&self, manner: Manner) {
        *locked(&self.shared.always) = manner;
    }

    /// Such as `PUT /latest/api/token`, in the order in which they came.
    pub fn requests(&self) -> Vec<String> {
        locked(&self.shared.requests).clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.listening.take() {
            // It returns at its next look at the flag, and only a panic could make this an error.
            let _ = thread.join();
        }
    }
}

fn accept_until_closed(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.closing.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(shared);
                // A client that goes away in the middle is its own affair.
                std::thread::spawn(move || converse(&stream, &shared));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// One connection, for as many requests as the client wants and the manner allows.
fn converse(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        if shared.closing.load(Ordering::SeqCst) {
            break;
        }
        locked(&shared.requests).push(format!("{} {}", request.verb, request.path));
        let manner = locked(&shared.next).pop_front().unwrap_or_else(|| locked(&shared.always).clone());
        let answer = answers::answer(&shared.instance, &request);
        if !manners::send(stream, &manner, &answer)? {
            break;
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<Request>> {
    let mut lines = reader.by_ref().take(MAX_REQUEST_BYTES).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    Ok(Some(Request { verb, path, headers }))
}

/// Nothing is left half changed by whoever panicked with the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
