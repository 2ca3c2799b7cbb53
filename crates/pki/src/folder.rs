//! Whether the files of a control plane fit together, and to the address of its API server, whatever the time.

use std::time::SystemTime;

use crate::control_plane::{endpoint_of, reaches};
use crate::inspect::{Document, IssuerFit, find, inspect, is_kubeconfig};
use crate::kubeconfig::embedded;
use crate::{Certificate, Error, Finding, KeyFit, SubjectName, What};

const CLUSTER_AUTHORITY: &str = "pki/ca.crt";
const API_SERVER: &str = "pki/apiserver.crt";

/// What is wrong with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub path: String,
    /// Goes on after the path: `was not signed by pki/ca.crt`.
    pub what: String,
}

/// All faults of the files of one control plane, which are called as `create` calls them. Dates are not looked at.
pub fn check_folder(documents: &[Document], api_server: &str) -> Vec<Fault> {
    let names = api_server_names(documents);
    // Any time will do: only what is true at all times is asked.
    let findings = inspect(documents, SystemTime::UNIX_EPOCH);
    let what_of = |finding: &Finding| match find(documents, &finding.path) {
        Some(document) if is_kubeconfig(&finding.path) => {
            fault_of_kubeconfig(finding, document, documents, api_server, &names)
        }
        _ => fault_of_file(finding, api_server),
    };
    let faults = findings.iter().filter_map(|finding| {
        let what = finding.misfit().map(as_sentence(finding)).or_else(|| what_of(finding))?;
        Some(Fault { path: finding.path.clone(), what })
    });
    faults.collect()
}

/// The reason of a file that cannot be read is a sentence of its own.
fn as_sentence(finding: &Finding) -> impl Fn(String) -> String {
    let is_unreadable = matches!(finding.what, What::Unreadable { .. });
    move |fault| if is_unreadable { format!("is damaged ({fault})") } else { fault }
}

/// Empty if the certificate cannot be read, which is a fault of its own.
fn api_server_names(documents: &[Document]) -> Vec<SubjectName> {
    let certificate = find(documents, API_SERVER).and_then(|document| document.certificate().ok());
    certificate.map(|certificate| certificate.names).unwrap_or_default()
}

fn fault_of_file(finding: &Finding, api_server: &str) -> Option<String> {
    let found = match &finding.what {
        What::Certificate(found) => found,
        What::PublicKey { key: KeyFit::NotHere } => return Some("is here without its key".into()),
        What::PublicKey { .. } | What::Unreadable { .. } => return None,
        What::Other { why } => return Some(format!("is {why}")),
    };
    let certificate = &found.certificate;
    if found.key == KeyFit::NotHere {
        return Some("is here without its key".into());
    }
    let Some(authority) = authority_of(&finding.path) else {
        return (!certificate.is_authority).then(|| "is no certificate of an authority".into());
    };
    // Who signed the first of several is not told by the authority alone.
    let is_signed = found.issuer == IssuerFit::By { authority: authority.to_owned() } || certificate.has_chain;
    if !is_signed {
        return Some(format!("was not signed by {authority}"));
    }
    let (host, _) = endpoint_of(api_server).ok()?;
    let lacks = finding.path == API_SERVER && !covers(certificate, &host);
    lacks.then(|| format!("lacks the name {host}, by which everybody reaches the API server"))
}

/// `None` for the authorities themselves.
fn authority_of(path: &str) -> Option<&'static str> {
    match path {
        "pki/ca.crt" | "pki/etcd/ca.crt" | "pki/front-proxy-ca.crt" => None,
        "pki/front-proxy-client.crt" => Some("pki/front-proxy-ca.crt"),
        "pki/apiserver-etcd-client.crt" => Some("pki/etcd/ca.crt"),
        _ if path.starts_with("pki/etcd/") => Some("pki/etcd/ca.crt"),
        _ => Some(CLUSTER_AUTHORITY),
    }
}

fn covers(certificate: &Certificate, host: &SubjectName) -> bool {
    let parent = |name: &str| name.split_once('.').map(|(_, parent)| parent.to_ascii_lowercase());
    certificate.names.iter().any(|name| match (name, host) {
        (SubjectName::Dns(name), SubjectName::Dns(host)) => {
            name.eq_ignore_ascii_case(host) || name.starts_with("*.") && parent(name) == parent(host)
        }
        _ => name == host,
    })
}

fn fault_of_kubeconfig(
    finding: &Finding,
    document: &Document,
    documents: &[Document],
    api_server: &str,
    names: &[SubjectName],
) -> Option<String> {
    let inside = document.text().and_then(embedded).ok()?;
    let (Some(found), Some(_)) = (finding.certificate(), &inside.key) else {
        return Some("has no certificate with its key inside".into());
    };
    if found.issuer != (IssuerFit::By { authority: CLUSTER_AUTHORITY.to_owned() }) && !found.certificate.has_chain {
        return Some(format!("was not signed by {CLUSTER_AUTHORITY}"));
    }
    let trusted = find(documents, CLUSTER_AUTHORITY).ok_or(Error::NoCertificate);
    let trusted = trusted.and_then(|document| Certificate::parse_all(document.text()?.expose())).ok()?;
    if !inside.authorities.iter().any(|inner| trusted.iter().any(|authority| inner.is_same_as(authority))) {
        return Some(format!("does not trust {CLUSTER_AUTHORITY}"));
    }
    let server = inside.server.unwrap_or_default();
    let reached = reaches(&document.path, &server, api_server, names);
    (!reached).then(|| format!("is for the API server \"{server}\", not for {api_server}"))
}
