//! A server on loopback that answers as badly as it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub(crate) trait Stream: Read + Write {
    /// Ends without a farewell: the other side is told that the connection was reset.
    fn reset(&mut self) {
        panic!("only over plain TCP");
    }
}

impl Stream for TcpStream {
    fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&*self, Some(Duration::ZERO)).unwrap();
    }
}

impl<C, S: Read + Write> Stream for rustls::StreamOwned<C, S> where rustls::StreamOwned<C, S>: Read + Write {}

/// Gets the number of the connection (from 1), the question, and the stream.
type Answer = dyn Fn(usize, &str, &mut dyn Stream) + Send + Sync;

pub(crate) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    questions: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(usize, &mut dyn Stream) + Send + Sync + 'static) -> Self {
        Self::start_reading(move |number, _, stream| answer(number, stream))
    }

    /// For those whose answer depends on the question.
    pub(crate) fn start_reading(answer: impl Fn(usize, &str, &mut dyn Stream) + Send + Sync + 'static) -> Self {
        Self::listen("http", None, Arc::new(answer))
    }

    fn listen(scheme: &'static str, tls: Option<Arc<rustls::ServerConfig>>, answer: Arc<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (questions, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, stopping) = (Arc::clone(&questions), Arc::clone(&stop));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, seen, tls) = (Arc::clone(&answer), Arc::clone(&seen), tls.clone());
                std::thread::spawn(move || serve(stream.unwrap(), tls, number + 1, &seen, answer.as_ref()));
            }
        });
        Self { address, scheme, questions, stop }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// All requests so far, heads and bodies.
    pub(crate) fn questions(&self) -> Vec<String> {
        self.questions.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    number: usize,
    seen: &Mutex<Vec<String>>,
    answer: &Answer,
) {
    // A test that fails must not leave threads that wait for ever.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(config) => Box::new(rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), stream)),
    };
    let mut question = Vec::new();
    let mut byte = [0];
    while !question.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => question.push(byte[0]),
            // Not a question: a refused certificate, or a TLS handshake with somebody who does not speak it.
            _ => return,
        }
    }
    // Whoever closes with something unread resets the connection, and the answer can be lost with it.
    let head = String::from_utf8_lossy(&question).to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")).map_or(0, |n| n.trim().parse().unwrap());
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    question.extend(body);
    let question = String::from_utf8_lossy(&question).into_owned();
    seen.lock().unwrap().push(question.clone());
    answer(number, &question, stream.as_mut());
    let _ = stream.flush();
}

pub(crate) fn answer(stream: &mut dyn Stream, status: &str, body: &str) {
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
}

pub(crate) fn good(stream: &mut dyn Stream, body: &str) {
    answer(stream, "200 OK", body);
}

pub(crate) fn redirect(stream: &mut dyn Stream, to: &str) {
    let _ = write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
}

/// Says nothing more until the other side has had enough.
pub(crate) fn hold(stream: &mut dyn Stream) {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
}

/// One byte at a time, each soon enough not to look like a stall.
pub(crate) fn trickle(stream: &mut dyn Stream, body: &str) {
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    for byte in body.bytes() {
        std::thread::sleep(Duration::from_millis(100));
        if stream.write_all(&[byte]).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// When a certificate counts.
#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Now,
    Past,
}

/// A certificate authority of its own.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn serve(&self, answer: impl Fn(usize, &mut dyn Stream) + Send + Sync + 'static) -> Server {
        self.serve_as("127.0.0.1", Validity::Now, answer)
    }

    pub(crate) fn serve_as(
        &self,
        name: &str,
        validity: Validity,
        answer: impl Fn(usize, &mut dyn Stream) + Send + Sync + 'static,
    ) -> Server {
        let mut names = vec![name.to_owned()];
        if name == "127.0.0.1" {
            names.push("localhost".to_owned());
        }
        let mut params = CertificateParams::new(names).unwrap();
        if matches!(validity, Validity::Past) {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2001, 2, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        Server::listen(
            "https",
            Some(Arc::new(config)),
            Arc::new(move |number, _: &str, stream: &mut dyn Stream| answer(number, stream)),
        )
    }
}
