//! A web server in the network of a lab: what a download site, a mirror or a store of bundles is to a node.
//!
//! In: paths with their bytes, which may change while it runs. Out: those bytes by plain GET, and the list of what was asked.
//! Gone with its value, as a server is that was switched off: the next connection is refused.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::network::{HUB, HUB_MEMBER, listen_inside};

/// How soon a server that was dropped stops listening.
const PAUSE: Duration = Duration::from_millis(20);
/// A client that is silent for this long has gone.
const SILENCE: Duration = Duration::from_secs(30);
/// No client of a test sends more before its empty line.
const MAX_REQUEST_BYTES: u64 = 64 * 1024;

/// Listens at a port of the hub until it is dropped.
pub struct WebServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    requests: Mutex<Vec<String>>,
    closing: AtomicBool,
}

impl WebServer {
    pub(crate) fn start(lab: &str) -> Result<Self> {
        let listener = listen_inside(lab, HUB_MEMBER, (HUB.v4, 0).into())?;
        let address = listener.local_addr().context("asking for the port")?;
        listener.set_nonblocking(true).context("preparing the listener")?;
        let shared = Arc::new(Shared::default());
        let listening = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept_until_closed(&listener, &shared)
        });
        Ok(Self { address, shared, listening: Some(listening) })
    }

    /// `http://10.99.0.1:PORT`, as nodes reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the path, which starts with a slash, has these bytes.
    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        locked(&self.shared.files).insert(path.to_owned(), Arc::new(bytes.into()));
    }

    /// The paths that were asked for, in that order, whether or not they were there.
    pub fn requests(&self) -> Vec<String> {
        locked(&self.shared.requests).clone()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.listening.take() {
            // It returns at its next look at the flag, and only a panic could make this an error.
            let _ = thread.join();
        }
    }
}

fn accept_until_closed(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.closing.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                // A client that goes away in the middle is its own affair.
                std::thread::spawn(move || answer(&stream, &shared));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut lines = BufReader::new(stream.take(MAX_REQUEST_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let Some(path) = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()) else {
        return respond(stream, "405 Method Not Allowed", b"");
    };
    locked(&shared.requests).push(path.to_owned());
    let found = locked(&shared.files).get(path).cloned();
    match found {
        Some(bytes) => respond(stream, "200 OK", &bytes),
        None => respond(stream, "404 Not Found", b"there is no such file\n"),
    }
}

fn respond(mut stream: &TcpStream, status: &str, body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(body)
}

/// Nothing is left half changed by whoever panicked with the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
