//! A web server in the network of a lab: what a download site, a mirror or a store of bundles is to a node.
//!
//! In: paths with their bytes, which may change while it runs. Out: those bytes by plain GET, and the list of what was asked.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use anyhow::Result;

use crate::listener::{Connection, Listening, locked};
use crate::network::{HUB, HUB_MEMBER, listen_inside};

/// Listens at a port of the hub until it is dropped.
pub struct WebServer {
    listening: Listening,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    requests: Mutex<Vec<String>>,
}

impl WebServer {
    pub(crate) fn start(lab: &str) -> Result<Self> {
        let listener = listen_inside(lab, HUB_MEMBER, (HUB.v4, 0).into())?;
        let shared = Arc::new(Shared::default());
        let answering = Arc::clone(&shared);
        let listening = Listening::start(listener, move |connection| answer(connection, &answering))?;
        Ok(Self { listening, shared })
    }

    /// `http://10.99.0.1:PORT`, as nodes reach it.
    pub fn url(&self) -> String {
        self.listening.url()
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

fn answer(connection: &mut Connection<'_>, shared: &Shared) -> io::Result<()> {
    let Some(request) = connection.next_request()? else { return Ok(()) };
    if request.verb != "GET" {
        return respond(connection.stream, "405 Method Not Allowed", b"");
    }
    let found = locked(&shared.files).get(&request.path).cloned();
    locked(&shared.requests).push(request.path);
    match found {
        Some(bytes) => respond(connection.stream, "200 OK", &bytes),
        None => respond(connection.stream, "404 Not Found", b"there is no such file\n"),
    }
}

fn respond(mut stream: &TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
