//! From a location to a connection that can be asked: name, TCP, TLS.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::error::{FetchError, Reason};
use crate::location::Location;

/// How we came to a location decides where it may lead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Somebody who may configure this machine named it.
    Named,
    /// A mirror named it. Link-local addresses are where metadata services live; no mirror may send us there.
    Redirected,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Whose certificates count.
pub(crate) struct Trust {
    given: Vec<CertificateDer<'static>>,
    /// The system's authorities are read and parsed only if somebody asks for https.
    connector: OnceCell<TlsConnector>,
}

impl Trust {
    pub(crate) fn new(authorities: Option<&str>) -> Result<Self, FetchError> {
        let unusable = |problem: String| FetchError::Authorities { problem };
        let given = CertificateDer::pem_slice_iter(authorities.unwrap_or_default().as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(error.to_string()))?;
        if authorities.is_some() && given.is_empty() {
            return Err(unusable("there is no certificate".to_owned()));
        }
        let mut known = RootCertStore::empty();
        for certificate in &given {
            known.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
        }
        Ok(Self { given, connector: OnceCell::new() })
    }

    fn connector(&self) -> Result<&TlsConnector, Reason> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.given.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Reason::Exchange(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.connector.get_or_init(|| TlsConnector::from(Arc::new(config))))
    }
}

pub(crate) async fn connect(
    location: &Location,
    arrival: Arrival,
    trust: &Trust,
    patience: Duration,
) -> Result<Box<dyn Stream>, Reason> {
    let started = Instant::now();
    let left = || patience.saturating_sub(started.elapsed());
    let late = |waiting_for| Reason::TimedOut { waiting_for, after: patience };
    let looked_up = tokio::net::lookup_host((location.host(), location.port()));
    let addresses: Vec<SocketAddr> = timeout(left(), looked_up)
        .await
        .map_err(|_| late("the address of its name"))?
        .map_err(|error| Reason::Lookup(error.to_string()))?
        .collect();
    if arrival == Arrival::Redirected && addresses.iter().any(|address| is_link_local(address.ip())) {
        return Err(Reason::Redirect(format!("{location} is a link-local address")));
    }
    let plain = reach(&addresses, left, late("a connection")).await?;
    if !location.is_https() {
        return Ok(Box::new(plain));
    }
    let name = ServerName::try_from(location.host().to_owned())
        .map_err(|_| Reason::Url("no certificate can be for this host"))?;
    let handshake = trust.connector()?.connect(name, plain);
    match timeout(left(), handshake).await {
        Err(_) => Err(late("the TLS handshake")),
        Ok(Err(error)) => Err(handshake_failure(&error)),
        Ok(Ok(encrypted)) => Ok(Box::new(encrypted)),
    }
}

/// The first address that answers; one that swallows packets leaves the others their share of the time.
async fn reach(addresses: &[SocketAddr], left: impl Fn() -> Duration, late: Reason) -> Result<TcpStream, Reason> {
    let mut trouble = Reason::Lookup("the name has no address".to_owned());
    let mut still = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = left() / still;
        still -= 1;
        trouble = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Reason::Connect(error.to_string()),
            Err(_) => late.clone(),
        };
    }
    Err(trouble)
}

fn handshake_failure(error: &std::io::Error) -> Reason {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = refused else {
        return Reason::Exchange(format!("TLS: {error}"));
    };
    let problem = match why {
        // A bad signature: the authority was made anew under the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is signed by an authority that is not trusted here".to_owned()
        }
        other => other.to_string(),
    };
    let by_clock = matches!(
        why,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    );
    Reason::Certificate { problem, by_clock }
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_known_in_every_spelling() {
        for address in ["169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "::ffff:169.254.169.254"] {
            assert!(is_link_local(address.parse().unwrap()), "{address}");
        }
        for address in ["127.0.0.1", "169.255.0.1", "10.0.0.1", "::1", "fd00::1", "2001:db8::1"] {
            assert!(!is_link_local(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_no_authority() {
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = Trust::new(Some(pem)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("PEM"), "{pem:?}: {error}");
        }
        assert!(Trust::new(None).is_ok());
    }
}
