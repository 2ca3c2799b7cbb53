//! One question over one connection, and its answer.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderMap, LOCATION, PROXY_AUTHORIZATION,
    USER_AGENT,
};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::Patience;
use crate::connect::{Arrival, Outbound, connect};
use crate::content::Content;
use crate::error::{Reason, chain};
use crate::location::Location;
use crate::place::Target;
use crate::proxy::Proxy;
use crate::s3;

/// Stores send one redirect (to a region or a presigned address); more look like a loop.
const MOST_REDIRECTS: usize = 3;
/// Stores send a few hundred bytes of headers; a mirror that sends more is not one.
const HEADER_LIMIT: usize = 32 * 1024;
/// How much of a body may wait to be taken.
const BUFFER_LIMIT: usize = 64 * 1024;

/// An answer that is no redirect, and the connection that it comes over.
pub(crate) struct Opened<'a> {
    pub(crate) answer: Response<Incoming>,
    /// The body ends with it.
    _connection: Connection<'a>,
}

/// Asks, and follows a few redirects. What opens the target is sent to nobody else.
pub(crate) async fn get<'a>(
    start: &Target,
    headers: &HeaderMap,
    outbound: &Outbound<'a>,
    patience: &Patience,
) -> Result<Opened<'a>, Reason> {
    let mut location = start.location.clone();
    let mut arrival = Arrival::Named;
    for step in 0..=MOST_REDIRECTS {
        let mut connection = Connection::open(&location, arrival, outbound, patience).await?;
        let mut question = question(Method::GET, &location, location.target()).header(CONNECTION, "close");
        if let Some(sent) = question.headers_mut() {
            sent.extend(headers.clone());
            if step == 0 {
                sent.extend(start.authorization.clone());
            }
        }
        let answer = connection.ask(question, Content::empty(), patience.stall).await?;
        let Some(reference) = redirect(&answer, start.dialect)? else {
            return Ok(Opened { answer, _connection: connection });
        };
        location = location.follow(&reference).map_err(|why| Reason::Redirect(why.to_owned()))?;
        arrival = arrival.redirected_by(connection.peer);
    }
    Err(Reason::Redirect(format!("more than {MOST_REDIRECTS} in a row")))
}

/// How the one who answers says what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// By the status alone.
    Web,
    /// By a code in the body, too.
    S3,
}

/// Why this answer, whose status is not one that was hoped for, is none.
pub(crate) async fn refusal(answer: Response<Incoming>, dialect: Dialect, stall: Duration) -> Reason {
    let status = Reason::answered(answer.status(), answer.headers());
    match dialect {
        Dialect::Web => status,
        Dialect::S3 => match body(answer, stall, s3::ERROR_LIMIT).await {
            Ok(document) => s3::refusal(status, &document),
            Err(_) => status,
        },
    }
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
pub(crate) struct Connection<'a> {
    sender: http1::SendRequest<Content>,
    driver: tokio::task::JoinHandle<hyper::Result<()>>,
    pub(crate) peer: Option<IpAddr>,
    told: Option<&'a Proxy>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<'a> Connection<'a> {
    pub(crate) async fn open(
        location: &Location,
        arrival: Arrival,
        outbound: &Outbound<'a>,
        patience: &Patience,
    ) -> Result<Self, Reason> {
        let connected = connect(location, arrival, outbound, patience.connect).await?;
        let mut builder = http1::Builder::new();
        builder.max_header_size(HEADER_LIMIT).max_buf_size(BUFFER_LIMIT);
        let (sender, driver) =
            builder.handshake(TokioIo::new(connected.stream)).await.map_err(|error| broken(&error))?;
        Ok(Self { sender, driver: tokio::spawn(driver), peer: connected.peer, told: connected.told })
    }

    /// An answer whose body is not read to its end makes the connection useless for the next question.
    pub(crate) async fn ask(
        &mut self,
        question: Builder,
        content: Content,
        stall: Duration,
    ) -> Result<Response<Incoming>, Reason> {
        let unspeakable = || Reason::Url("it cannot be asked for over HTTP");
        let mut question = question.body(content).map_err(|_| unspeakable())?;
        if let Some(proxy) = self.told {
            address(&mut question, proxy).ok_or_else(unspeakable)?;
        }
        let exchange = async {
            self.sender.ready().await?;
            self.sender.send_request(question).await
        };
        let answer = match timeout(stall, exchange).await {
            Err(_) => return Err(Reason::TimedOut { waiting_for: "an answer", after: stall }),
            Ok(answer) => answer.map_err(|error| broken(&error))?,
        };
        match self.told {
            Some(proxy) if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let reason = Box::new(Reason::answered(answer.status(), answer.headers()));
                Err(Reason::Proxy { proxy: proxy.location().to_string(), reason })
            }
            _ => Ok(answer),
        }
    }
}

/// Says to a proxy whom the question is for, and who asks.
fn address(question: &mut Request<Content>, proxy: &Proxy) -> Option<()> {
    let host = question.headers().get(HOST)?.to_str().ok()?;
    *question.uri_mut() = format!("http://{host}{}", question.uri()).parse::<Uri>().ok()?;
    if let Some(authorization) = proxy.authorization() {
        question.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    Some(())
}

/// Where this answer sends us, if it does.
fn redirect(answer: &Response<Incoming>, dialect: Dialect) -> Result<Option<String>, Reason> {
    let status = answer.status();
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    match answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()) {
        Some(reference) => Ok(Some(reference.to_owned())),
        // It says in the body in which region the bucket is.
        None if dialect == Dialect::S3 => Ok(None),
        None => Err(Reason::Redirect(format!("it answers {} without saying where to go", status.as_u16()))),
    }
}

/// The length that the headers promise.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Nobody asked for bytes in another form; what they would unpack to has no bound.
pub(crate) fn refuse_encoded(headers: &HeaderMap) -> Result<(), Reason> {
    match headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default()) {
        None | Some("" | "identity") => Ok(()),
        Some(encoding) => {
            Err(Reason::Encoded(encoding.chars().filter(char::is_ascii_alphanumeric).take(32).collect::<String>()))
        }
    }
}

pub(crate) async fn body(answer: Response<Incoming>, stall: Duration, limit: usize) -> Result<Vec<u8>, Reason> {
    let too_large = || Reason::TooLarge { limit };
    if announced(answer.headers()).is_some_and(|bytes| usize::try_from(bytes).map_or(true, |bytes| bytes > limit)) {
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

pub(crate) fn broken(error: &hyper::Error) -> Reason {
    let problem = if error.is_incomplete_message() {
        "the connection closed before the answer was complete".to_owned()
    } else {
        chain(error)
    };
    Reason::Exchange(problem)
}
