//! `pki inspect`: what the certificates of a folder are, and what is wrong with them.

use std::time::SystemTime;

use engine::Timestamp;
use pki::{Finding, Inspected, IssuerFit, KeyFit, State, What, inspect};
use serde::Serialize;

use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::pki::args::InspectArguments;
use crate::pki::files::{Exposed, Loaded, load_folder, now};
use crate::show::{Paint, Screen, table, width};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InspectView {
    certificates: Vec<CertificateView>,
    /// Files without a certificate inside, and what they are.
    others: Vec<OtherView>,
    /// Private keys that everybody may read: a warning, not a fault.
    exposed: Vec<Exposed>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateView {
    file: String,
    subject: String,
    issuer: String,
    /// The file of the authority that signed it, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_by: Option<String>,
    names: Vec<String>,
    usages: Vec<String>,
    algorithm: String,
    serial: String,
    starts: String,
    expires: String,
    days_left: i64,
    /// `matches`, `differs`, `unreadable` or `absent`.
    key: &'static str,
    pin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtherView {
    file: String,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

pub(crate) fn run(arguments: &InspectArguments, screen: &Screen) -> Outcome {
    let Loaded { documents, exposed } = load(arguments)?;
    let findings = inspect(&documents, now());
    if findings.is_empty() {
        return Err(anyhow::anyhow!("there is no certificate and no kubeconfig")).or_fail(Code::WrongInput);
    }
    let view = InspectView {
        certificates: findings
            .iter()
            .filter_map(|finding| finding.certificate().map(|found| certificate_view(finding, found)))
            .collect(),
        others: findings.iter().filter_map(other_view).collect(),
        exposed,
    };
    screen.result(&view, || text(&findings, &view, screen))?;
    Ok(if findings.iter().any(|finding| finding.fault().is_some()) { Code::NeedsPerson } else { Code::Done })
}

fn load(arguments: &InspectArguments) -> Result<Loaded, Failure> {
    let mut loaded = Loaded::default();
    for path in &arguments.paths {
        let shown = path.display().to_string();
        if path.is_dir() {
            let inside = load_folder(path)?;
            // One folder needs no name in every line.
            let prefix = if arguments.paths.len() == 1 { String::new() } else { shown + "/" };
            loaded.add_below(&prefix, inside);
            continue;
        }
        loaded.add(path, shown.clone());
        let key = path.with_extension("key");
        let is_named = arguments.paths.contains(&key);
        if let Some(stem) = shown.strip_suffix(".crt")
            && key.is_file()
            && !is_named
        {
            loaded.add(&key, format!("{stem}.key"));
        }
    }
    Ok(loaded)
}

pub(crate) fn date_of(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).to_string()
}

/// Without the time of day, which nobody plans by.
pub(crate) fn day_of(time: SystemTime) -> String {
    date_of(time).split('T').next().unwrap_or_default().to_owned()
}

fn certificate_view(finding: &Finding, found: &Inspected) -> CertificateView {
    let certificate = &found.certificate;
    CertificateView {
        file: finding.path.clone(),
        subject: certificate.to_string(),
        issuer: certificate.issuer.clone(),
        issued_by: match &found.issuer {
            IssuerFit::SelfSigned => Some(finding.path.clone()),
            IssuerFit::By { authority } => Some(authority.clone()),
            IssuerFit::NotHere | IssuerFit::Forged { .. } => None,
        },
        names: certificate.names.iter().map(ToString::to_string).collect(),
        usages: usages(found),
        algorithm: certificate.key.clone(),
        serial: certificate.serial.clone(),
        starts: date_of(certificate.not_before),
        expires: date_of(certificate.not_after),
        days_left: found.days_left,
        key: match found.key {
            KeyFit::Matches => "matches",
            KeyFit::Differs { .. } => "differs",
            KeyFit::Unreadable { .. } => "unreadable",
            KeyFit::NotHere => "absent",
        },
        pin: certificate.pin.clone(),
        fault: finding.fault(),
    }
}

fn usages(found: &Inspected) -> Vec<String> {
    if found.certificate.is_authority {
        return vec!["authority".to_owned()];
    }
    found.certificate.usages.iter().map(ToString::to_string).collect()
}

fn other_view(finding: &Finding) -> Option<OtherView> {
    let what = match &finding.what {
        What::Certificate(_) => return None,
        What::PublicKey { key: KeyFit::Matches } => "public key, matches its key".to_owned(),
        What::PublicKey { .. } => "public key".to_owned(),
        What::Other { why } => (*why).to_owned(),
        What::Unreadable { .. } => "not readable".to_owned(),
    };
    Some(OtherView { file: finding.path.clone(), what, fault: finding.fault() })
}

fn text(findings: &[Finding], view: &InspectView, screen: &Screen) -> String {
    let heading = ["file", "expires", "", "subject", "issued by", "for", "algorithm", "key"];
    let mut rows = vec![heading.iter().map(|word| screen.paint(Paint::Strong, word)).collect::<Vec<_>>()];
    let certificates: Vec<(&Finding, &Inspected)> =
        findings.iter().filter_map(|finding| finding.certificate().map(|found| (finding, found))).collect();
    rows.extend(certificates.iter().map(|(finding, found)| row(finding, found, screen)));
    let mut text = String::new();
    // The names of a server are too many for a column: they follow its line.
    for (index, line) in table(&rows).lines().enumerate() {
        text.push_str(line);
        text.push('\n');
        let names = index.checked_sub(1).map(|row| &certificates[row].1.certificate.names);
        if let Some(names) = names.filter(|names| !names.is_empty()) {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            for wrapped in wrap(&names, width().saturating_sub(6)) {
                text.push_str(&format!("      {}\n", screen.paint(Paint::Quiet, &wrapped)));
            }
        }
    }
    let others: Vec<Vec<String>> =
        view.others.iter().map(|other| vec![other.file.clone(), other.what.clone()]).collect();
    text.push_str(&table(&others));
    for (finding, found) in certificates.iter().filter(|(_, found)| found.certificate.is_authority) {
        text.push_str(&format!("  pin of {}: {}\n", finding.path, found.certificate.pin));
    }
    view.exposed.iter().for_each(|exposed| text.push_str(&exposed.line(screen)));
    for finding in findings {
        if let Some(fault) = finding.fault() {
            text.push_str(&format!("{} {} {fault}\n", screen.paint(Paint::Bad, "✗"), finding.path));
        }
    }
    text
}

fn row(finding: &Finding, found: &Inspected, screen: &Screen) -> Vec<String> {
    let certificate = &found.certificate;
    let left = match found.state {
        State::Good => format!("{} days", found.days_left),
        State::EndsSoon => screen.paint(Paint::Bad, &format!("{} days", found.days_left)),
        State::Ended => screen.paint(Paint::Bad, "expired"),
        State::NotYet => screen.paint(Paint::Bad, "not yet valid"),
    };
    let issuer = match &found.issuer {
        IssuerFit::SelfSigned => "itself".to_owned(),
        IssuerFit::By { authority } => authority.clone(),
        IssuerFit::NotHere => format!("{} (not here)", certificate.issuer),
        IssuerFit::Forged { authority } => screen.paint(Paint::Bad, &format!("not {authority}")),
    };
    let key = match &found.key {
        KeyFit::Matches => "matches".to_owned(),
        KeyFit::Differs { .. } => screen.paint(Paint::Bad, "differs"),
        KeyFit::Unreadable { .. } => screen.paint(Paint::Bad, "unreadable"),
        KeyFit::NotHere => screen.paint(Paint::Quiet, "not here"),
    };
    let subject = certificate.to_string();
    let usages = usages(found).join(", ");
    vec![
        finding.path.clone(),
        day_of(certificate.not_after),
        left,
        subject,
        issuer,
        usages,
        certificate.key.clone(),
        key,
    ]
}

/// Words in lines of at most so many characters; a longer word has a line of its own.
fn wrap(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}
