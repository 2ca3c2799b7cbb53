//! New certificates in the place of those that end: same subject, names and usages, signed by the authority in the folder.

use std::time::{Duration, SystemTime};

use crate::control_plane::{certificate_path, check_alive, key_path};
use crate::inspect::{Document, IssuerFit, KeyFit, State, What, find, inspect, is_kubeconfig};
use crate::kubeconfig::{embedded, replace_embedded};
use crate::{Authority, Certificate, Error, Finding, Leaf, PkiFile, PrivateKey, Secret, Validity};

/// Which certificates are renewed. Authorities never are: everything that they signed would have to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    Within(Duration),
    All,
    /// By path, with or without folder and ending: `apiserver`, `etcd/server.crt`, `admin.conf`.
    Named(Vec<String>),
}

/// What becomes of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChoice {
    Keep,
    /// A new one of the same kind; the old one stays beside it as `.old`.
    Replace,
}

/// What is to be written, and what was decided for each certificate.
pub struct Renewals {
    /// Copies of what is replaced: they must be durable before anything of `files` is written.
    pub backups: Vec<PkiFile>,
    /// A key comes before its certificate: a switch that was cut short is recognised and completed.
    pub files: Vec<PkiFile>,
    pub renewed: Vec<Renewed>,
    /// Leaf certificates that were not selected.
    pub kept: Vec<Finding>,
    pub authorities: Vec<Finding>,
    /// Files that cannot be read: they were left alone, and may hold a certificate that ends.
    pub unreadable: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    pub path: String,
    pub old: Certificate,
    pub new: Certificate,
}

/// Decides on and issues everything, or fails before anything is to be written.
pub fn renew(
    documents: &[Document],
    selection: &Selection,
    choice: KeyChoice,
    validity: Validity,
    now: SystemTime,
) -> Result<Renewals, Error> {
    let findings = inspect(documents, now);
    check_names(selection, &findings)?;
    let mut renewals = Renewals {
        backups: vec![],
        files: vec![],
        renewed: vec![],
        kept: vec![],
        authorities: vec![],
        unreadable: vec![],
    };
    let dates = Dates { validity, now };
    for finding in findings {
        let Some(inspected) = finding.certificate() else {
            if matches!(finding.what, What::Unreadable { .. }) && !matches!(selection, Selection::Named(_)) {
                renewals.unreadable.push(finding);
            }
            continue;
        };
        if inspected.certificate.is_authority {
            renewals.authorities.push(finding);
        } else if is_selected(selection, &finding.path, &inspected.certificate, now) {
            renew_one(documents, &finding, choice, dates, &mut renewals)?;
        } else {
            renewals.kept.push(finding);
        }
    }
    Ok(renewals)
}

fn is_selected(selection: &Selection, path: &str, certificate: &Certificate, now: SystemTime) -> bool {
    match selection {
        Selection::All => true,
        Selection::Within(limit) => {
            certificate.not_after.duration_since(now).is_ok_and(|left| left <= *limit) || certificate.not_after <= now
        }
        Selection::Named(names) => names.iter().any(|name| is_called(path, name)),
    }
}

fn is_called(path: &str, name: &str) -> bool {
    let ends = |path: &str| path == name || path.ends_with(&format!("/{name}"));
    ends(path) || path.rsplit_once('.').is_some_and(|(stem, _)| ends(stem))
}

fn check_names(selection: &Selection, findings: &[Finding]) -> Result<(), Error> {
    let Selection::Named(names) = selection else { return Ok(()) };
    for name in names {
        let mut called = findings.iter().filter(|finding| is_called(&finding.path, name));
        match called.next().map(|finding| (finding, finding.certificate())) {
            Some((Finding { path, what: What::Unreadable { why } }, _)) => {
                return Err(Error::ReadFile { why: why.clone() }.within(path));
            }
            None | Some((_, None)) => return Err(Error::NothingCalled { name: name.clone() }),
            Some((finding, Some(inspected))) if inspected.certificate.is_authority => {
                return Err(Error::AuthorityRenewal { path: finding.path.clone() });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn renew_one(
    documents: &[Document],
    finding: &Finding,
    choice: KeyChoice,
    dates: Dates,
    renewals: &mut Renewals,
) -> Result<(), Error> {
    let path = finding.path.as_str();
    let Some(inspected) = finding.certificate() else { return Ok(()) };
    let old = &inspected.certificate;
    let request = old.request(dates.validity).map_err(|error| error.within(path))?;
    let authority = authority_of(documents, path, &inspected.issuer, dates.now)?;
    let document = find(documents, path).ok_or(Error::NoCertificate)?;
    let present = present_key(documents, document, &inspected.key)?;
    // A switch of keys that was cut short is completed by a certificate for the new key, not by yet another key.
    let fresh = match choice {
        KeyChoice::Replace if present.fits => Some(PrivateKey::generate(present.key.algorithm())?),
        _ => None,
    };
    let leaf =
        authority.issue_for(fresh.as_ref().unwrap_or(&present.key), &request).map_err(|error| error.within(path))?;
    let new = Certificate::parse(&leaf.certificate_pem)?;
    if fresh.is_some() {
        back_up(documents, &present, renewals)?;
    }
    write(document, &present, &leaf, fresh.is_some(), renewals).map_err(|error| error.within(path))?;
    renewals.renewed.push(Renewed { path: path.to_owned(), old: old.clone(), new });
    Ok(())
}

#[derive(Clone, Copy)]
struct Dates {
    validity: Validity,
    now: SystemTime,
}

struct Present {
    key: PrivateKey,
    /// The file that holds it: the kubeconfig itself, or a `.key`.
    path: String,
    content: Secret,
    fits: bool,
}

fn present_key(documents: &[Document], document: &Document, fit: &KeyFit) -> Result<Present, Error> {
    let path = document.path.as_str();
    if is_kubeconfig(path) {
        let content = document.text()?;
        let key = embedded(content)?.key.ok_or_else(|| Error::NothingEmbedded { path: path.to_owned() })?;
        if *fit != KeyFit::Matches {
            return Err(Error::KeyMismatch { certificate: path.to_owned(), key: path.to_owned() });
        }
        return Ok(Present { key, path: path.to_owned(), content: content.clone(), fits: true });
    }
    let stem = path.strip_suffix(".crt").ok_or_else(|| Error::NotRenewable { path: path.to_owned() })?;
    let key_path = key_path(stem);
    let missing = || Error::KeyMissing { certificate: path.to_owned(), key: key_path.clone() };
    let found = find(documents, &key_path).ok_or_else(missing)?;
    let key = found.key().map_err(|error| error.within(key_path.clone()))?;
    let fits = *fit == KeyFit::Matches;
    if !fits && !was_cut_short(documents, document, &key_path) {
        return Err(Error::KeyMismatch { certificate: path.to_owned(), key: key_path });
    }
    Ok(Present { key, path: key_path, content: found.text()?.clone(), fits })
}

/// The old key lies beside the new one and the certificate is still the old key's.
fn was_cut_short(documents: &[Document], certificate: &Document, key_path: &str) -> bool {
    let old = find(documents, &old_path(key_path)).and_then(|document| document.key().ok());
    match (old, certificate.certificate()) {
        (Some(old), Ok(certificate)) => certificate.belongs_to(&old),
        _ => false,
    }
}

fn old_path(path: &str) -> String {
    format!("{path}.old")
}

/// Never over another key that somebody may still need.
fn back_up(documents: &[Document], present: &Present, renewals: &mut Renewals) -> Result<(), Error> {
    let old = old_path(&present.path);
    match find(documents, &old) {
        None => renewals.backups.push(PkiFile::secret(old, present.content.clone())),
        Some(document) if document.text().is_ok_and(|content| *content == present.content) => {}
        Some(_) => return Err(Error::OldKeyInTheWay { path: old }),
    }
    Ok(())
}

fn write(
    document: &Document,
    present: &Present,
    leaf: &Leaf,
    is_new_key: bool,
    renewals: &mut Renewals,
) -> Result<(), Error> {
    if is_kubeconfig(&document.path) {
        let key = is_new_key.then_some(&leaf.key_pem);
        let text = replace_embedded(document.text()?, &leaf.certificate_pem, key)?;
        renewals.files.push(PkiFile::secret(&document.path, text));
        return Ok(());
    }
    if is_new_key {
        renewals.files.push(PkiFile::secret(&present.path, leaf.key_pem.clone()));
    }
    renewals.files.push(PkiFile::public(&document.path, &leaf.certificate_pem));
    Ok(())
}

fn authority_of(documents: &[Document], path: &str, issuer: &IssuerFit, now: SystemTime) -> Result<Authority, Error> {
    let IssuerFit::By { authority } = issuer else {
        return Err(match issuer {
            IssuerFit::Forged { authority } => {
                Error::NotIssuedBy { certificate: path.to_owned(), authority: authority.clone() }
            }
            _ => Error::IssuerMissing { certificate: path.to_owned() },
        });
    };
    let stem = authority.strip_suffix(".crt").unwrap_or(authority);
    // A kubeconfig may carry the certificate of an authority that is not a file here.
    let missing = || Error::IssuerMissing { certificate: path.to_owned() };
    let certificate = find(documents, &certificate_path(stem)).ok_or_else(missing)?;
    let key = key_path(stem);
    let key_missing = || Error::AuthorityKeyMissing { wanted: path.to_owned(), key: key.clone() };
    let key = find(documents, &key).ok_or_else(key_missing)?;
    let key_pem = key.text().map_err(|error| error.within(key.path.clone()))?;
    let parsed = Authority::parse(certificate.text()?.expose(), key_pem);
    let parsed = parsed.map_err(|error| error.within(authority.clone()))?;
    check_alive(parsed.certificate(), authority, path, now)?;
    Ok(parsed)
}

impl Renewals {
    /// Authorities that end soon or have ended: the one thing that this cannot do.
    pub fn ending_authorities(&self) -> impl Iterator<Item = &Finding> {
        self.authorities.iter().filter(|finding| {
            finding.certificate().is_some_and(|found| matches!(found.state, State::EndsSoon | State::Ended))
        })
    }
}
