//! Looks through the files of a folder: what each certificate is, when it ends, and whether it fits to its key and issuer.

use std::time::{Duration, SystemTime};

use crate::control_plane::same_public_key;
use crate::kubeconfig::embedded;
use crate::{Certificate, Error, PrivateKey, Secret};

/// Time enough to plan a renewal.
pub const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A file of a folder, with its text or why it has none. No `Debug`: it may be a key.
#[derive(Clone)]
pub struct Document {
    pub path: String,
    pub content: Result<Secret, String>,
}

impl Document {
    pub(crate) fn text(&self) -> Result<&Secret, Error> {
        self.content.as_ref().map_err(|why| Error::ReadFile { why: why.clone() })
    }

    pub(crate) fn certificate(&self) -> Result<Certificate, Error> {
        Certificate::parse(self.text()?.expose())
    }

    pub(crate) fn key(&self) -> Result<PrivateKey, Error> {
        PrivateKey::parse(self.text()?)
    }
}

/// What one file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Certificate(Box<Inspected>),
    /// The public half of a key pair without certificate, such as `sa.pub`.
    PublicKey {
        key: KeyFit,
    },
    /// Nothing to look at, and why.
    Other {
        why: &'static str,
    },
    Unreadable {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    pub certificate: Certificate,
    pub days_left: i64,
    pub state: State,
    pub key: KeyFit,
    pub issuer: IssuerFit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Good,
    /// Within [`SOON`].
    EndsSoon,
    Ended,
    NotYet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFit {
    Matches,
    Differs {
        key: String,
    },
    /// As on every machine that only trusts the certificate.
    NotHere,
    Unreadable {
        key: String,
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerFit {
    SelfSigned,
    By {
        authority: String,
    },
    /// No authority of that name is among the files.
    NotHere,
    /// An authority of that name is there, but it did not sign.
    Forged {
        authority: String,
    },
}

impl Finding {
    /// What a person must look at, if anything.
    pub fn fault(&self) -> Option<String> {
        match self.certificate().map(|inspected| inspected.state) {
            Some(State::Ended) => Some("has expired".into()),
            Some(State::NotYet) => Some("is not valid yet".into()),
            _ => self.misfit(),
        }
    }

    /// The same, whatever the time.
    pub(crate) fn misfit(&self) -> Option<String> {
        let key_fault = |key: &KeyFit| match key {
            KeyFit::Differs { key } => Some(format!("is not the certificate of {key}")),
            KeyFit::Unreadable { key, why } => Some(format!("has a key that cannot be used, {key}: {why}")),
            KeyFit::Matches | KeyFit::NotHere => None,
        };
        match &self.what {
            What::Unreadable { why } => Some(why.clone()),
            What::Other { .. } => None,
            What::PublicKey { key: KeyFit::Differs { key } } => Some(format!("is not the public half of {key}")),
            What::PublicKey { key } => key_fault(key),
            What::Certificate(inspected) => match &inspected.issuer {
                IssuerFit::Forged { authority } => Some(format!("was not signed by {authority}")),
                _ => key_fault(&inspected.key),
            },
        }
    }

    pub fn certificate(&self) -> Option<&Inspected> {
        match &self.what {
            What::Certificate(inspected) => Some(inspected),
            _ => None,
        }
    }
}

/// One finding for each file, but not for keys, which are looked at together with their certificates, nor for `.old` ones.
pub fn inspect(documents: &[Document], now: SystemTime) -> Vec<Finding> {
    let authorities = authorities(documents);
    let finding = |document: &Document| {
        let what = look(document, documents, &authorities, now)
            .unwrap_or_else(|error| What::Unreadable { why: error.to_string() });
        Finding { path: document.path.clone(), what }
    };
    let is_shown = |document: &&Document| !is_key_with_company(document, documents) && !document.path.ends_with(".old");
    documents.iter().filter(is_shown).map(finding).collect()
}

/// A file begins with what it is: an authority that follows a leaf only completes its chain.
pub(crate) fn authorities(documents: &[Document]) -> Vec<(String, Certificate)> {
    let parsed = documents.iter().filter(|document| !is_kubeconfig(&document.path)).flat_map(|document| {
        let certificates = document.text().and_then(|text| Certificate::parse_all(text.expose())).unwrap_or_default();
        let authorities = certificates.into_iter().take_while(|certificate| certificate.is_authority);
        authorities.map(|certificate| (document.path.clone(), certificate))
    });
    parsed.collect()
}

pub(crate) fn is_kubeconfig(path: &str) -> bool {
    path.ends_with(".conf") || path.ends_with(".kubeconfig")
}

fn is_key_with_company(document: &Document, documents: &[Document]) -> bool {
    let Some(stem) = document.path.strip_suffix(".key") else { return false };
    [".crt", ".pub"].iter().any(|other| find(documents, &format!("{stem}{other}")).is_some())
}

pub(crate) fn find<'a>(documents: &'a [Document], path: &str) -> Option<&'a Document> {
    documents.iter().find(|document| document.path == path)
}

fn look(
    document: &Document,
    documents: &[Document],
    authorities: &[(String, Certificate)],
    now: SystemTime,
) -> Result<What, Error> {
    let path = document.path.as_str();
    if is_kubeconfig(path) {
        let inside = embedded(document.text()?)?;
        let Some(certificate) = inside.certificate else {
            inside.server.ok_or(Error::ReadKubeconfig)?;
            return Ok(What::Other { why: "a kubeconfig without an embedded certificate" });
        };
        let key = match inside.key {
            Some(key) => key_fit(&certificate, &key, path),
            None => KeyFit::NotHere,
        };
        let issuer = match issuer_fit(&certificate, authorities) {
            IssuerFit::NotHere => {
                let inner = inside.authorities.into_iter().map(|found| (format!("the authority in {path}"), found));
                issuer_fit(&certificate, &inner.collect::<Vec<_>>())
            }
            found => found,
        };
        return Ok(What::Certificate(Box::new(judge(certificate, key, issuer, now))));
    }
    if let Some(stem) = path.strip_suffix(".pub") {
        document.text()?;
        return Ok(What::PublicKey { key: public_key_fit(document, find(documents, &format!("{stem}.key"))) });
    }
    match document.certificate() {
        Ok(certificate) => {
            let key = certificate_key(&certificate, document, documents);
            let issuer = issuer_fit(&certificate, authorities);
            Ok(What::Certificate(Box::new(judge(certificate, key, issuer, now))))
        }
        Err(Error::NoCertificate) if document.key().is_ok() => Ok(What::Other { why: "a key without a certificate" }),
        Err(error) => Err(error),
    }
}

fn judge(certificate: Certificate, key: KeyFit, issuer: IssuerFit, now: SystemTime) -> Inspected {
    let state = match certificate.not_after.duration_since(now) {
        _ if now < certificate.not_before => State::NotYet,
        Err(_) => State::Ended,
        Ok(left) if left.is_zero() => State::Ended,
        Ok(left) if left < SOON => State::EndsSoon,
        Ok(_) => State::Good,
    };
    Inspected { days_left: certificate.days_left(now), certificate, state, key, issuer }
}

/// In the file itself (`.pem` of a kubelet), or beside it.
fn certificate_key(certificate: &Certificate, document: &Document, documents: &[Document]) -> KeyFit {
    if let Ok(key) = document.key() {
        return key_fit(certificate, &key, &document.path);
    }
    let beside = document.path.strip_suffix(".crt").and_then(|stem| find(documents, &format!("{stem}.key")));
    let Some(beside) = beside else { return KeyFit::NotHere };
    match beside.key() {
        Ok(key) => key_fit(certificate, &key, &beside.path),
        Err(error) => KeyFit::Unreadable { key: beside.path.clone(), why: error.to_string() },
    }
}

fn key_fit(certificate: &Certificate, key: &PrivateKey, path: &str) -> KeyFit {
    if certificate.belongs_to(key) { KeyFit::Matches } else { KeyFit::Differs { key: path.to_owned() } }
}

fn public_key_fit(public: &Document, key: Option<&Document>) -> KeyFit {
    let Some(key) = key else { return KeyFit::NotHere };
    match key.key() {
        Ok(pair) if public.text().is_ok_and(|half| same_public_key(&pair, half)) => KeyFit::Matches,
        Ok(_) => KeyFit::Differs { key: key.path.clone() },
        Err(error) => KeyFit::Unreadable { key: key.path.clone(), why: error.to_string() },
    }
}

fn issuer_fit(certificate: &Certificate, authorities: &[(String, Certificate)]) -> IssuerFit {
    if certificate.is_issued_by(certificate) {
        return IssuerFit::SelfSigned;
    }
    let of_that_name = || authorities.iter().filter(|(_, authority)| certificate.names_as_issuer(authority));
    if let Some((path, _)) = of_that_name().find(|(_, authority)| certificate.is_issued_by(authority)) {
        return IssuerFit::By { authority: path.clone() };
    }
    of_that_name().next().map_or(IssuerFit::NotHere, |(path, _)| IssuerFit::Forged { authority: path.clone() })
}
