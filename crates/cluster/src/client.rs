//! One place where API clients are made, so that trust and time-outs are the same everywhere.
//!
//! kube's own maker of clients can also ask cloud CLIs for credentials, with the expressions and paths that this takes: half
//! a megabyte that a node never uses.

use std::time::Duration;

use hyper::Request;
use hyper::header::AUTHORIZATION;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::Body;
use kube::client::middleware::BaseUriLayer;
use tower::ServiceBuilder;

use crate::access::Access;

/// An API server that does not even complete a TCP handshake in this time is down as far as one request is concerned.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the API server {server:?} cannot be asked: {reason}")]
    Access { server: String, reason: String },
    #[error("waited {waited:?} for {what} from API server {server:?}; last answer: {last}")]
    Deadline { what: String, server: String, waited: Duration, last: String },
    #[error("cannot ask the API server {server:?} about {what}")]
    Ask { what: String, server: String, source: Box<kube::Error> },
    #[error("no runtime can be made for network requests")]
    Runtime(#[source] std::io::Error),
    #[error("the watch on {what} ended")]
    WatchEnded { what: String },
}

/// A client, and the server it talks to.
pub(crate) fn client_for(access: &Access, read_timeout: Duration) -> (Client, String) {
    let https = HttpsConnectorBuilder::new().with_tls_config(access.tls.clone()).https_only().enable_http1().build();
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(Some(read_timeout));
    let authorization = access.authorization.clone();
    let service = ServiceBuilder::new()
        .layer(BaseUriLayer::new(access.server.clone()))
        .map_request(move |mut request: Request<Body>| {
            if let Some(authorization) = &authorization {
                request.headers_mut().insert(AUTHORIZATION, authorization.clone());
            }
            request
        })
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    // Nothing here asks for what lies in a namespace.
    (Client::new(service, "default"), access.server.to_string())
}

/// The innermost cause: the one that tells a person something.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Runs one question to its end on the calling thread, so that callers need no runtime of their own.
pub fn block_on<T>(question: impl Future<Output = T>) -> Result<T, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClusterError::Runtime)?;
    Ok(runtime.block_on(question))
}
