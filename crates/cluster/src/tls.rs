//! Why a server's certificate was not believed.

use std::error::Error as StdError;

use rustls::CertificateError;

/// The TLS error sits inside an `io::Error`, which hides it from `source()`.
pub(crate) fn find_tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
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

/// `document`: what says whom to trust, and under which address.
pub(crate) fn explain_tls(error: &rustls::Error, document: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("its certificate was not issued by the certificate authority of the {document}")
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired, or this machine's clock is wrong".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid yet, or this machine's clock is behind".to_owned(),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is for other names than the address in the {document}"),
        other => other.to_string(),
    }
}
