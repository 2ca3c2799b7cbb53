//! Where an API server is, whom to trust about it, and who we are to it.

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::ClusterError;

/// No `Debug`: it holds credentials.
pub struct Access {
    pub(crate) server: Uri,
    pub(crate) tls: ClientConfig,
    pub(crate) authorization: Option<HeaderValue>,
    /// The same trust, and no certificate to show.
    anonymous_tls: ClientConfig,
    is_anonymous: bool,
}

/// How a client proves who it is.
pub enum Identity {
    Token(String),
    /// A certificate chain and its key, each as PEM; they may lie in one text.
    Certificate {
        chain: Vec<u8>,
        key: Vec<u8>,
    },
    Nobody,
}

impl Access {
    /// Without an authority of its own, a server is trusted if the operating system trusts it.
    pub fn new(server: &str, authority: Option<&[u8]>, identity: &Identity) -> Result<Self, ClusterError> {
        let wrong = |reason: String| ClusterError::Access { server: server.to_owned(), reason };
        let address: Uri = server.parse().map_err(|_| wrong("its address is no URL".to_owned()))?;
        if address.scheme_str() != Some("https") || address.host().is_none() {
            return Err(wrong("its address must begin with https://".to_owned()));
        }
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots(authority).map_err(wrong)?);
        let anonymous_tls = tls.clone().with_no_client_auth();
        let (tls, authorization) = match identity {
            Identity::Nobody => (tls.with_no_client_auth(), None),
            Identity::Token(token) => {
                let no_header = |_| wrong("the token has characters that no token may have".to_owned());
                let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(no_header)?;
                header.set_sensitive(true);
                (tls.with_no_client_auth(), Some(header))
            }
            Identity::Certificate { chain, key } => {
                let broken = |what: &str| wrong(format!("{what} of the client is no PEM"));
                let chain = certificates(chain).ok_or_else(|| broken("the certificate"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| broken("the key"))?;
                (tls.with_client_auth_cert(chain, key).map_err(|error| wrong(error.to_string()))?, None)
            }
        };
        let is_anonymous = matches!(identity, Identity::Nobody);
        Ok(Self { server: address, tls, authorization, anonymous_tls, is_anonymous })
    }

    /// The way to the same server for somebody who does not say who they are; `None` if that is this one.
    pub fn without_identity(&self) -> Option<Self> {
        let (server, tls) = (self.server.clone(), self.anonymous_tls.clone());
        let anonymous = Self { server, anonymous_tls: tls.clone(), tls, authorization: None, is_anonymous: true };
        (!self.is_anonymous).then_some(anonymous)
    }

    /// Whether it is this server that is asked.
    pub fn is_for(&self, server: &str) -> bool {
        server.parse::<Uri>().is_ok_and(|address| address == self.server)
    }
}

fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(authority) = authority else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for certificate in certificates(authority).ok_or("its certificate authority is no PEM certificate")? {
        roots.add(certificate).map_err(|error| format!("its certificate authority cannot be used: {error}"))?;
    }
    Ok(roots)
}

/// At least one.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(server: &str, authority: Option<&[u8]>, identity: &Identity) -> String {
        Access::new(server, authority, identity).err().expect("it is refused").to_string()
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let nobody = Identity::Nobody;
        assert!(refusal("http://api:6443", None, &nobody).contains("https://"));
        assert!(refusal("not a url", None, &nobody).contains("no URL"));
        assert!(refusal("https://api", Some(b"rubbish"), &nobody).contains("no PEM certificate"));
        assert!(refusal("https://api", None, &Identity::Token("a\nb".to_owned())).contains("no token may have"));
        let certificate = Identity::Certificate { chain: Vec::new(), key: Vec::new() };
        assert!(refusal("https://api", None, &certificate).contains("the certificate of the client"));
    }
}
