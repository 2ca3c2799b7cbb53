//! One place where API clients are made, so that trust and time-outs are the same everywhere.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// An API server that does not even complete a TCP handshake in this time is down as far as one request is concerned.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no client can be made for API server {server:?}")]
    Client { server: String, source: Box<kube::Error> },
    #[error("waited {waited:?} for {what} from API server {server:?}; last answer: {last}")]
    Deadline { what: String, server: String, waited: Duration, last: String },
    #[error("cannot ask the API server {server:?} about {what}")]
    Ask { what: String, server: String, source: Box<kube::Error> },
    #[error("no runtime can be made for network requests")]
    Runtime(#[source] std::io::Error),
    #[error("the watch on {what} ended")]
    WatchEnded { what: String },
}

/// A client for the current context of a kubeconfig, and the server it talks to.
pub(crate) async fn client_from(kubeconfig: &str, read_timeout: Duration) -> Result<(Client, String), ClusterError> {
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| ClusterError::Kubeconfig(Box::new(error)))?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|error| ClusterError::Kubeconfig(Box::new(error)))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config)
        .map_err(|error| ClusterError::Client { server: server.clone(), source: Box::new(error) })?;
    Ok((client, server))
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
