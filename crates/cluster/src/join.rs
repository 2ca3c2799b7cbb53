//! Would the API server let this node in? Asked by `nodestrap status` when a kubelet has no credentials yet.

use std::time::Duration;

use crate::access::Access;
use crate::client::{ClusterError, client_for, root_cause};
use crate::tls::{explain_tls, find_tls_error};

/// What the API server says to the bootstrap credentials, in terms of what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAnswer {
    /// TLS and token are fine; the API server runs this version.
    Welcome { version: String },
    /// 401: the token is unknown, expired or mistyped.
    TokenRefused,
    /// The server's certificate does not fit the CA or the address in the bundle.
    CertificateRefused { reason: String },
    /// Nobody answered: down, not up yet, no route or no such name.
    Unreachable { reason: String },
    /// It answered, but not in a way that says anything about the credentials.
    Unclear { reason: String },
}

/// Sends one request with the bootstrap kubeconfig and reads the answer.
pub async fn ask_whether_node_may_join(access: &Access, deadline: Duration) -> Result<JoinAnswer, ClusterError> {
    let (client, server) = client_for(access, deadline);
    match tokio::time::timeout(deadline, client.apiserver_version()).await {
        Ok(Ok(version)) => Ok(JoinAnswer::Welcome { version: version.git_version }),
        Ok(Err(error)) => Ok(interpret(&error)),
        Err(_) => Ok(JoinAnswer::Unreachable { reason: format!("no answer from {server} within {deadline:?}") }),
    }
}

fn interpret(error: &kube::Error) -> JoinAnswer {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => JoinAnswer::TokenRefused,
            // Known, but not allowed to read versions: good enough to join.
            403 => JoinAnswer::Welcome { version: "unknown".to_owned() },
            code => JoinAnswer::Unclear { reason: format!("HTTP {code}: {}", status.message) },
        };
    }
    if let Some(tls) = find_tls_error(error) {
        return JoinAnswer::CertificateRefused { reason: explain_tls(tls, "bundle") };
    }
    let reason = root_cause(error);
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => JoinAnswer::Unreachable { reason },
        _ => JoinAnswer::Unclear { reason },
    }
}
