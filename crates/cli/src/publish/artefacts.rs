//! `nodestrap artefacts`: what is in a store that `publish` made, whether it is whole, and what nobody names any more.

use std::collections::BTreeSet;

use serde::Serialize;
use trust::{Artefact, Place, Provenance, Unsigned, Verified};

use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::pki::files::now;
use crate::publish::args::{ArtefactsArguments, ArtefactsCommand, GcArguments, StoreArguments};
use crate::publish::target::{Known, Target};
use crate::publish::{DIGEST_DIGITS, MANIFEST, SIGNATURE, load_manifest, megabytes, timestamp};
use crate::show::{Paint, Screen, table};

pub(crate) fn run(arguments: &ArtefactsArguments, screen: &Screen) -> Outcome {
    match &arguments.command {
        ArtefactsCommand::List(store) => list(store, screen),
        ArtefactsCommand::Verify(store) => verify(store, screen),
        ArtefactsCommand::Gc(arguments) => collect(arguments, screen),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoreView {
    serial: u64,
    issued: String,
    expires: String,
    /// Fingerprint of the key; absent if nobody signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
    artefacts: Vec<ArtefactView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtefactView {
    artefact: String,
    digest: String,
    size: u64,
    programs: Vec<String>,
    places: Vec<String>,
    /// What is wrong with it; only after it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// With the clock: what a node would refuse is refused here.
fn open_store(store: &StoreArguments) -> Result<(Target, Verified), Failure> {
    let target = Target::open(store)?;
    let found = load_manifest(&target, store, Unsigned::Allowed, Some(timestamp(now())))?;
    let absent = || anyhow::anyhow!("there is no {}: nothing was published there yet", target.place_of(MANIFEST));
    let found = found.ok_or_else(absent).or_fail(Code::WrongInput)?;
    Ok((target, found))
}

fn list(store: &StoreArguments, screen: &Screen) -> Outcome {
    let (_, verified) = open_store(store)?;
    let view = store_view(&verified, |_| None);
    screen.result(&view, || store_text(&view, screen))
}

fn verify(store: &StoreArguments, screen: &Screen) -> Outcome {
    let (target, verified) = open_store(store)?;
    let mut problems = Vec::new();
    for artefact in verified.manifest.artefacts() {
        problems.push(problem(&target, artefact).or_fail(Code::MayRetry)?);
    }
    let mut found = problems.iter().cloned();
    let view = store_view(&verified, |_| found.next().flatten());
    screen.result(&view, || store_text(&view, screen))?;
    Ok(if problems.iter().all(Option::is_none) { Code::Done } else { Code::NeedsPerson })
}

/// What is wrong with the objects of an artefact that lie in this store; mirrors elsewhere are not asked.
fn problem(target: &Target, artefact: &Artefact) -> anyhow::Result<Option<String>> {
    for place in artefact.places.iter().filter(|place| place.is_relative()) {
        let digest: fetch::Digest = artefact.digest.as_str().parse()?;
        let fetch::Digest::Sha256(sha256) = digest else {
            return Ok(Some(format!("{place} is known by a SHA-512, which publish does not write")));
        };
        let expected = Known { size: artefact.size, sha256 };
        match target.look(place.as_str(), &expected)? {
            None => return Ok(Some(format!("{place} is missing: publish it again"))),
            Some(found) if found != expected => {
                let why = format!("{place} is {}, {} bytes: publish it again", found.digest(), found.size);
                return Ok(Some(why));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

#[derive(Serialize)]
struct CollectView {
    removed: Vec<String>,
    bytes: u64,
}

fn collect(arguments: &GcArguments, screen: &Screen) -> Outcome {
    let (target, verified) = open_store(&arguments.store)?;
    let places = verified.manifest.artefacts().iter().flat_map(|artefact| &artefact.places);
    let named: BTreeSet<&str> = places.map(Place::as_str).chain([MANIFEST, SIGNATURE]).collect();
    let all = target.list().or_fail(Code::MayRetry)?;
    let (removed, sizes): (Vec<String>, Vec<u64>) =
        all.into_iter().filter(|(name, _)| !named.contains(name.as_str()) && is_object(name)).unzip();
    if !arguments.dry_run {
        for name in &removed {
            target.remove(name).or_fail(Code::MayRetry)?;
        }
    }
    let view = CollectView { removed, bytes: sizes.iter().sum() };
    screen.result(&view, || {
        let verb = if arguments.dry_run { "would be removed" } else { "removed" };
        let rows: Vec<_> = view.removed.iter().map(|name| vec![name.clone()]).collect();
        format!("{} {verb}, {}\n{}", view.removed.len(), megabytes(view.bytes), table(&rows))
    })
}

/// Of the shape that publish gives them, or left by one that was cut off: bundles and other files of somebody's are not ours to
/// remove.
fn is_object(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let [artefact, _, file] = parts.as_slice() else { return false };
    let file = file.strip_prefix('.').unwrap_or(file);
    let rest = file.split_once('-').filter(|(digits, _)| bundle::is_lower_hex(digits, DIGEST_DIGITS));
    rest.is_some_and(|(_, rest)| rest.starts_with(artefact))
}

fn store_view(verified: &Verified, mut problem: impl FnMut(&Artefact) -> Option<String>) -> StoreView {
    let manifest = &verified.manifest;
    StoreView {
        serial: manifest.serial(),
        issued: manifest.issued().to_string(),
        expires: manifest.expires().to_string(),
        signed_by: match &verified.provenance {
            Provenance::Signed(signer) => Some(signer.primary.to_string()),
            Provenance::Unsigned => None,
        },
        artefacts: manifest
            .artefacts()
            .iter()
            .map(|artefact| ArtefactView {
                artefact: artefact.to_string(),
                digest: artefact.digest.to_string(),
                size: artefact.size,
                programs: artefact.programs.iter().map(ToString::to_string).collect(),
                places: artefact.places.iter().map(ToString::to_string).collect(),
                problem: problem(artefact),
            })
            .collect(),
    }
}

fn store_text(view: &StoreView, screen: &Screen) -> String {
    let rows = view.artefacts.iter().map(|artefact| {
        let sign = match artefact.problem {
            None => screen.paint(Paint::Good, "✓"),
            Some(_) => screen.paint(Paint::Bad, "✗"),
        };
        let detail = artefact.problem.clone().unwrap_or_else(|| artefact.programs.join(" "));
        vec![sign, artefact.artefact.clone(), megabytes(artefact.size), detail]
    });
    let signed = match &view.signed_by {
        Some(key) => format!("signed by {key}"),
        None => "not signed".to_owned(),
    };
    format!("manifest {}, until {}, {signed}\n{}", view.serial, view.expires, table(&rows.collect::<Vec<_>>()))
}
