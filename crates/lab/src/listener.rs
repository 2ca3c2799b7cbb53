//! What the servers of a lab have in common: a listener, a thread for each connection, and requests as lines of text.
//!
//! Gone with its value, as a server is that was switched off: the next connection is refused, and no request is answered
//! that comes over an old one.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// How soon a server that was dropped stops listening.
const PAUSE: Duration = Duration::from_millis(5);
/// A client that is silent for this long has gone.
const SILENCE: Duration = Duration::from_secs(30);
/// No client of a test sends more before its empty line.
const MAX_REQUEST_BYTES: u64 = 64 * 1024;

/// Listens until it is dropped.
pub(crate) struct Listening {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Listening {
    /// Each connection gets its own thread, which ends with `converse`.
    pub(crate) fn start(
        listener: TcpListener,
        converse: impl Fn(&mut Connection<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let address = listener.local_addr().context("asking for the port")?;
        listener.set_nonblocking(true).context("preparing the listener")?;
        let closing = Arc::new(AtomicBool::new(false));
        let accepting = std::thread::spawn({
            let (closing, converse) = (Arc::clone(&closing), Arc::new(converse));
            move || {
                while !closing.load(Ordering::SeqCst) {
                    let Ok((stream, _)) = listener.accept() else {
                        std::thread::sleep(PAUSE);
                        continue;
                    };
                    let (closing, converse) = (Arc::clone(&closing), Arc::clone(&converse));
                    // A client that goes away in the middle is its own affair.
                    std::thread::spawn(move || converse(&mut Connection::new(&stream, &closing)?));
                }
            }
        });
        Ok(Self { address, closing, accepting: Some(accepting) })
    }

    /// Such as `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        self.url_with("http")
    }

    pub(crate) fn url_with(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.accepting.take() {
            // It returns at its next look at the flag, and only a panic could make this an error.
            let _ = thread.join();
        }
    }
}

pub(crate) struct Connection<'a> {
    pub(crate) stream: &'a TcpStream,
    reader: BufReader<&'a TcpStream>,
    closing: &'a AtomicBool,
}

/// One request, as far as a server of the lab looks at it.
pub(crate) struct Request {
    pub(crate) verb: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl<'a> Connection<'a> {
    fn new(stream: &'a TcpStream, closing: &'a AtomicBool) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self { stream, reader: BufReader::new(stream), closing })
    }

    /// `None`: the client has gone, or the server has.
    pub(crate) fn next_request(&mut self) -> io::Result<Option<Request>> {
        let request = read_request(&mut self.reader)?;
        Ok(request.filter(|_| !self.closing.load(Ordering::SeqCst)))
    }
}

/// `None`: the client has gone.
pub(crate) fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut lines = reader.by_ref().take(MAX_REQUEST_BYTES).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    for line in lines {
        match line?.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    Ok(Some(Request { verb, path, headers }))
}

/// Nothing is left half changed by whoever panicked with the lock.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
