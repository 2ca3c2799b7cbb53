//! Would the API server let this node in? Asked by `nodestrap status` when a kubelet has no credentials yet.

use std::error::Error as StdError;
use std::time::Duration;

use rustls::CertificateError;

use crate::access::Access;
use crate::client::{ClusterError, client_for, root_cause};

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
        return JoinAnswer::CertificateRefused { reason: explain_tls(tls) };
    }
    let reason = root_cause(error);
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => JoinAnswer::Unreachable { reason },
        _ => JoinAnswer::Unclear { reason },
    }
}

/// The TLS error sits inside an `io::Error`, which hides it from `source()`.
fn find_tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut next: Option<&'a (dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        if let Some(tls) = current.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        next = match current.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref()) {
            Some(inner) => Some(inner),
            None => current.source(),
        };
    }
    None
}

fn explain_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate was not issued by the certificate authority of the bundle".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired, or this machine's clock is wrong".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid yet, or this machine's clock is behind".to_owned(),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for other names than the address in the bundle".to_owned(),
        other => other.to_string(),
    }
}
