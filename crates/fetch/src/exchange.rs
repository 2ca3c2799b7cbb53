//! One attempt at one mirror: ask, follow a few redirects, read the whole body.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, LOCATION, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::Patience;
use crate::connect::{Arrival, Trust, connect};
use crate::error::{Reason, chain};
use crate::location::Location;

/// Stores send one redirect (to a region or a presigned address); more look like a loop.
const MOST_REDIRECTS: usize = 3;
/// Stores send a few hundred bytes of headers; a mirror that sends more is not one.
const HEADER_LIMIT: usize = 32 * 1024;
/// How much of a body may wait to be taken.
const BUFFER_LIMIT: usize = 64 * 1024;

pub(crate) async fn get(start: &Location, trust: &Trust, patience: &Patience, limit: usize) -> Result<Vec<u8>, Reason> {
    let mut location = start.clone();
    let mut arrival = Arrival::Named;
    for _ in 0..=MOST_REDIRECTS {
        let mut connection = Connection::open(&location, arrival, trust, patience).await?;
        let question = question(Method::GET, &location, location.target()).header(CONNECTION, "close");
        let answer = connection.ask(question, Bytes::new(), patience.stall).await?;
        let Some(reference) = redirect(&answer)? else {
            return body(answer, patience.stall, limit).await;
        };
        location = location.follow(&reference).map_err(|why| Reason::Redirect(why.to_owned()))?;
        arrival = arrival.redirected_by(connection.peer);
    }
    Err(Reason::Redirect(format!("more than {MOST_REDIRECTS} in a row")))
}

/// What every question of ours begins with.
pub(crate) fn head(method: Method, location: &Location, target: &str) -> Builder {
    Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, location.authority())
        .header(USER_AGENT, concat!("nodestrap/", env!("CARGO_PKG_VERSION")))
}

/// One whose answer is read.
pub(crate) fn question(method: Method, location: &Location, target: &str) -> Builder {
    // The body is verified as it comes; packing it would only hide its size.
    head(method, location, target).header(ACCEPT_ENCODING, "identity")
}

/// Takes one question at a time. Its other half runs beside us and ends with this value.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: tokio::task::JoinHandle<hyper::Result<()>>,
    peer: IpAddr,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(crate) async fn open(
        location: &Location,
        arrival: Arrival,
        trust: &Trust,
        patience: &Patience,
    ) -> Result<Self, Reason> {
        let (stream, peer) = connect(location, arrival, trust, patience.connect).await?;
        let mut builder = http1::Builder::new();
        builder.max_header_size(HEADER_LIMIT).max_buf_size(BUFFER_LIMIT);
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        Ok(Self { sender, driver: tokio::spawn(driver), peer })
    }

    /// An answer whose body is not read to its end makes the connection useless for the next question.
    pub(crate) async fn ask(
        &mut self,
        question: Builder,
        body: Bytes,
        stall: Duration,
    ) -> Result<Response<Incoming>, Reason> {
        let question = question.body(Full::new(body)).map_err(|_| Reason::Url("it cannot be asked for over HTTP"))?;
        let exchange = async {
            self.sender.ready().await?;
            self.sender.send_request(question).await
        };
        match timeout(stall, exchange).await {
            Err(_) => Err(Reason::TimedOut { waiting_for: "an answer", after: stall }),
            Ok(answer) => answer.map_err(|error| broken(&error)),
        }
    }
}

/// Where this answer sends us, if it does; an answer that is neither that nor the object is a failure.
fn redirect(answer: &Response<Incoming>) -> Result<Option<String>, Reason> {
    let status = answer.status();
    match status {
        StatusCode::OK => Ok(None),
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            let reference = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            reference
                .map(|reference| Some(reference.to_owned()))
                .ok_or_else(|| Reason::Redirect(format!("it answers {} without saying where to go", status.as_u16())))
        }
        _ => Err(Reason::Status { code: status.as_u16(), name: status.canonical_reason().unwrap_or_default() }),
    }
}

pub(crate) async fn body(answer: Response<Incoming>, stall: Duration, limit: usize) -> Result<Vec<u8>, Reason> {
    let too_large = || Reason::TooLarge { limit };
    let announced = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| usize::try_from(bytes).map_or(true, |bytes| bytes > limit)) {
        return Err(too_large());
    }
    let mut incoming = answer.into_body();
    let mut bytes = Vec::new();
    loop {
        let next = timeout(stall, incoming.frame()).await;
        let next = next.map_err(|_| Reason::TimedOut { waiting_for: "more of its answer", after: stall })?;
        let Some(frame) = next else { return Ok(bytes) };
        let frame = frame.map_err(|error| broken(&error))?;
        let Some(part) = frame.data_ref() else { continue };
        if bytes.len() + part.len() > limit {
            return Err(too_large());
        }
        bytes.extend_from_slice(part);
    }
}

fn broken(error: &hyper::Error) -> Reason {
    let problem = if error.is_incomplete_message() {
        "the connection closed before the answer was complete".to_owned()
    } else {
        chain(error)
    };
    Reason::Exchange(problem)
}
