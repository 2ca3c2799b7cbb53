//! A web server in the network of a lab: what a download site, a mirror or a store of bundles is to a node.
//!
//! In: paths with their bytes, which may change while it runs. Out: those bytes by plain GET, and the list of what was asked.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::identities::Identities;
use crate::listener::{Connection, Listening, Request, locked, read_request};
use crate::network::{HUB, HUB_MEMBER, listen_inside};

/// Listens at a port of the hub until it is dropped.
pub struct WebServer {
    listening: Listening,
    scheme: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    requests: Mutex<Vec<String>>,
}

impl WebServer {
    pub(crate) fn start(lab: &str) -> Result<Self> {
        Self::listen(lab, "http", |connection, shared| match connection.next_request()? {
            Some(request) => answer(&request, connection.stream, shared),
            None => Ok(()),
        })
    }

    /// With TLS, by a certificate of the lab's authority.
    pub(crate) fn start_with_tls(lab: &str, identities: &Identities) -> Result<Self> {
        let config = Arc::new(tls_config(identities)?);
        Self::listen(lab, "https", move |connection, shared| {
            let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            let mut reader = BufReader::new(StreamOwned::new(session, connection.stream));
            let Some(request) = read_request(&mut reader)? else { return Ok(()) };
            let mut stream = reader.into_inner();
            answer(&request, &mut stream, shared)?;
            stream.conn.send_close_notify();
            stream.flush()
        })
    }

    fn listen(
        lab: &str,
        scheme: &'static str,
        converse: impl Fn(&mut Connection<'_>, &Shared) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = listen_inside(lab, HUB_MEMBER, (HUB.v4, 0).into())?;
        let shared = Arc::new(Shared::default());
        let answering = Arc::clone(&shared);
        let listening = Listening::start(listener, move |connection| converse(connection, &answering))?;
        Ok(Self { listening, scheme, shared })
    }

    /// `http://10.99.0.1:PORT`, as nodes reach it; with TLS `https`.
    pub fn url(&self) -> String {
        self.listening.url_with(self.scheme)
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

/// The API server's own: it is for all addresses of the hub.
fn tls_config(identities: &Identities) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(identities.path("apiserver.crt")).context("reading the certificate")?;
    let chain = chain.collect::<Result<Vec<_>, _>>().context("reading the certificate")?;
    let key = PrivateKeyDer::from_pem_file(identities.path("apiserver.key")).context("reading the key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    builder.with_no_client_auth().with_single_cert(chain, key).context("using the certificate")
}

fn answer(request: &Request, stream: impl Write, shared: &Shared) -> io::Result<()> {
    if request.verb != "GET" {
        return respond(stream, "405 Method Not Allowed", b"");
    }
    let found = locked(&shared.files).get(&request.path).cloned();
    locked(&shared.requests).push(request.path.clone());
    match found {
        Some(bytes) => respond(stream, "200 OK", &bytes),
        None => respond(stream, "404 Not Found", b"there is no such file\n"),
    }
}

fn respond(mut stream: impl Write, status: &str, body: &[u8]) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
