//! `nodestrap publish`: a store of artefacts that specs can name.
//!
//! ```text
//! STORE/NAME/VERSION/DIGEST12-FILE     never changed: another build of a version is another object
//! STORE/manifest.json.asc              the signature
//! STORE/manifest.json                  what there is; written last
//! ```
//!
//! Bundles (`--bundle`) lie in a store under their digest, and no manifest names them: user data does. So does a document for
//! Ignition (`--ignition`), to which a presigned address leads.
//!
//! Killed anywhere, a store has its old manifest or its new one, and everything that this names. (Between the two documents,
//! whoever verifies is told that signature and manifest do not fit, and asks again.) Publishing the same again changes nothing.

pub(crate) mod args;
pub(crate) mod artefacts;
mod bundles;
mod extension;
mod ignition;
mod inspect;
mod target;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use serde::Serialize;
use trust::openpgp::{Keyring, sign_detached};
use trust::{Artefact, Form, MAX_MANIFEST_BYTES, Manifest, Place, Policy, Timestamp, Unsigned, Verified};

use crate::documents::read_limited;
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::pki::files::now;
use crate::publish::args::{Addition, PublishArguments, StoreArguments};
use crate::publish::extension::make_image;
use crate::publish::inspect::{Inspected, inspect, inspect_made};
use crate::publish::target::{Known, Target};
use crate::show::{Paint, Screen, table};

const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "manifest.json.asc";
const SIGNATURE_LIMIT: usize = 64 * 1024;
/// Enough to tell two builds of one version apart.
const DIGEST_DIGITS: usize = 12;
const FILE_MODE: u32 = 0o644;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PublishView {
    store: String,
    serial: u64,
    expires: String,
    /// Whether the manifest is a new one.
    manifest_changed: bool,
    artefacts: Vec<PublishedView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PublishedView {
    artefact: String,
    place: String,
    size: u64,
    digest: String,
    programs: Vec<String>,
    /// Whether it was sent; otherwise it was there.
    sent: bool,
}

/// One file, ready to be published.
struct Ready {
    artefact: Artefact,
    known: Known,
    name: String,
    content: Content,
}

/// Where its bytes are.
enum Content {
    File(PathBuf),
    /// Of an image that was made here.
    Made(Vec<u8>),
}

pub(crate) fn publish(arguments: &PublishArguments, screen: &Screen) -> Outcome {
    if !arguments.bundles.is_empty() {
        return bundles::publish_bundles(arguments, screen);
    }
    if let Some(document) = &arguments.ignition {
        return ignition::publish_ignition(document, arguments, screen);
    }
    let ready = arguments.artefacts.iter().map(|addition| prepare(addition, arguments));
    let ready = ready.chain(arguments.extensions.iter().map(|addition| make(addition, arguments)));
    let ready = ready.collect::<anyhow::Result<Vec<_>>>().or_fail(Code::WrongInput)?;
    let key = Key::load(arguments)?;
    let target = Target::open(&arguments.store)?;
    let unsigned = if arguments.unsigned { Unsigned::Allowed } else { Unsigned::Refused };
    let before = load_manifest(&target, &arguments.store, unsigned, None)?;
    let manifest = next_manifest(before.as_ref().map(|before| &before.manifest), &ready, arguments.lifetime)?;
    let changed = before.as_ref().is_none_or(|before| before.manifest != manifest);
    let json = manifest.to_json();
    // What cannot be signed is known before the first byte is sent.
    let signature = match changed {
        true => key.map(|key| key.sign(json.as_bytes())).transpose()?,
        false => None,
    };
    let mut published = Vec::new();
    for ready in &ready {
        published.push(send(&target, ready, screen)?);
    }
    if changed {
        if let Some(signature) = &signature {
            target.put(SIGNATURE, signature.as_bytes(), FILE_MODE).or_fail(Code::MayRetry)?;
        }
        target.put(MANIFEST, json.as_bytes(), FILE_MODE).or_fail(Code::MayRetry)?;
        if signature.is_none() {
            // One of an earlier manifest would be taken for a forgery.
            target.remove(SIGNATURE).or_fail(Code::MayRetry)?;
        }
    }
    if let Some(out) = &arguments.out {
        write_out(&target, out)?;
    }
    let view = PublishView {
        store: arguments.store.store.clone(),
        serial: manifest.serial(),
        expires: manifest.expires().to_string(),
        manifest_changed: changed,
        artefacts: published,
    };
    screen.result(&view, || publish_text(&view, screen))
}

fn prepare(addition: &Addition, arguments: &PublishArguments) -> anyhow::Result<Ready> {
    let inspected = inspect(&addition.name, arguments.architecture, &addition.file)?;
    ready(addition, arguments, inspected, Content::File(addition.file.clone()))
}

fn make(addition: &Addition, arguments: &PublishArguments) -> anyhow::Result<Ready> {
    let image = make_image(&addition.name, arguments.architecture, &addition.file)?;
    let inspected = inspect_made(&addition.name, arguments.architecture, &image)
        .with_context(|| format!("the image of {:?} could not be used", addition.file.display().to_string()))?;
    ready(addition, arguments, inspected, Content::Made(image))
}

fn ready(
    Addition { name, version, .. }: &Addition,
    arguments: &PublishArguments,
    inspected: Inspected,
    content: Content,
) -> anyhow::Result<Ready> {
    let digest = inspected.known.digest();
    let ending = match inspected.form {
        Form::TarGz => ".tar.gz",
        Form::Program => "",
        Form::Sysext => ".raw",
    };
    let object = format!("{name}/{version}/{}-{name}{ending}", &digest.hex()[..DIGEST_DIGITS]);
    let artefact = Artefact {
        name: name.clone(),
        version: version.clone(),
        architecture: arguments.architecture,
        os: arguments.os.iter().cloned().collect(),
        role: arguments.role,
        form: inspected.form,
        size: inspected.known.size,
        digest: trust::Digest::new(digest.to_string())?,
        extension: inspected.extension,
        programs: inspected.programs,
        places: vec![Place::new(object.as_str())?],
    };
    Ok(Ready { artefact, known: inspected.known, name: object, content })
}

/// The secret key, with what opens it.
struct Key {
    secret: Vec<u8>,
    passphrase: Option<Vec<u8>>,
}

impl Key {
    fn load(arguments: &PublishArguments) -> Result<Option<Self>, Failure> {
        let Some(path) = &arguments.key else { return Ok(None) };
        let passphrase = arguments.passphrase_file.as_deref().map(read_input).transpose()?;
        // An editor ends the line.
        let passphrase = passphrase.map(|bytes| bytes.strip_suffix(b"\n").unwrap_or(&bytes).to_vec());
        Ok(Some(Self { secret: read_input(path)?, passphrase }))
    }

    fn sign(&self, data: &[u8]) -> Result<String, Failure> {
        sign_detached(data, &self.secret, self.passphrase.as_deref(), timestamp(now())).or_fail(Code::WrongInput)
    }
}

fn read_input(path: &Path) -> Result<Vec<u8>, Failure> {
    let shown = path.display().to_string();
    read_limited(path).map_err(|reason| anyhow::anyhow!("cannot read {shown:?}: {reason}")).or_fail(Code::WrongInput)
}

fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::from_seconds(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// The manifest that is there, verified; dates count only if `now` is given.
fn load_manifest(
    target: &Target,
    store: &StoreArguments,
    unsigned: Unsigned,
    now: Option<Timestamp>,
) -> Result<Option<Verified>, Failure> {
    let Some(bytes) = target.read(MANIFEST, MAX_MANIFEST_BYTES).or_fail(Code::MayRetry)? else { return Ok(None) };
    let signature = target.read(SIGNATURE, SIGNATURE_LIMIT).or_fail(Code::MayRetry)?;
    let mut keyrings = Vec::new();
    for path in &store.keyrings {
        let keyring = Keyring::parse(&read_input(path)?);
        let context = || format!("cannot use the keyring {:?}", path.display().to_string());
        keyrings.push(keyring.with_context(context).or_fail(Code::WrongInput)?);
    }
    if signature.is_some() && keyrings.is_empty() {
        return Err(anyhow::anyhow!(
            "there is a signed manifest in the store: name the public keys by which it is verified with --keyring"
        ))
        .or_fail(Code::WrongInput);
    }
    let policy = Policy { now, minimum_serial: 0, unsigned };
    let verified = trust::verify_manifest(&bytes, signature.as_deref(), &keyrings, policy)
        .with_context(|| format!("{} cannot be used", target.place_of(MANIFEST)));
    Ok(Some(verified.or_fail(Code::NeedsPerson)?))
}

/// What there was, and what is added. The same manifest, if nothing is new and the old one still has half of its time.
fn next_manifest(before: Option<&Manifest>, ready: &[Ready], lifetime: Duration) -> Result<Manifest, Failure> {
    let issued = timestamp(now());
    let half = Timestamp::from_seconds(issued.seconds().saturating_add(lifetime.as_secs() / 2));
    let old = before.map(Manifest::artefacts).unwrap_or_default();
    let replaced = |one: &Artefact| ready.iter().any(|ready| is_for_the_same(one, &ready.artefact));
    let kept = old.iter().filter(|one| !replaced(one)).cloned();
    let mut artefacts: Vec<Artefact> = kept.chain(ready.iter().map(|ready| ready.artefact.clone())).collect();
    artefacts.sort();
    match before {
        Some(before) if before.artefacts() == artefacts && before.expires() > half => return Ok(before.clone()),
        _ => {}
    }
    let serial = before.map_or(0, Manifest::serial).saturating_add(1);
    let expires = Timestamp::from_seconds(issued.seconds().saturating_add(lifetime.as_secs()));
    Manifest::new(serial, issued, expires, artefacts).or_fail(Code::WrongInput)
}

fn is_for_the_same(one: &Artefact, other: &Artefact) -> bool {
    let key = |artefact: &Artefact| {
        let Artefact { name, version, architecture, os, role, .. } = artefact.clone();
        (name, version, architecture, os, role, artefact.is_image())
    };
    key(one) == key(other)
}

fn send(target: &Target, ready: &Ready, screen: &Screen) -> Result<PublishedView, Failure> {
    let is_there = target.has(&ready.name, &ready.known).or_fail(Code::MayRetry)?;
    if !is_there {
        screen.remark(&format!("sending {}, {}", ready.artefact, megabytes(ready.known.size)));
        match &ready.content {
            Content::File(file) => target.put_file(&ready.name, file, &ready.known),
            Content::Made(bytes) => target.put(&ready.name, bytes, FILE_MODE),
        }
        .or_fail(Code::MayRetry)?;
    }
    Ok(PublishedView {
        artefact: ready.artefact.to_string(),
        place: target.place_of(&ready.name),
        size: ready.known.size,
        digest: ready.artefact.digest.to_string(),
        programs: ready.artefact.programs.iter().map(ToString::to_string).collect(),
        sent: !is_there,
    })
}

/// What is in the store now, for a spec that names it by a file.
fn write_out(target: &Target, out: &Path) -> Result<(), Failure> {
    let write = |path: &Path, bytes: &[u8]| -> anyhow::Result<()> {
        let path = std::path::absolute(path)?;
        let disk = host::disk::RootedDisk::open(Path::new("/"))?;
        Ok(host::files::write_durable(&disk, &path, FILE_MODE, bytes, None)?)
    };
    let beside = PathBuf::from(format!("{}.asc", out.display()));
    for (name, path) in [(SIGNATURE, beside.as_path()), (MANIFEST, out)] {
        let context = || format!("cannot write {:?}", path.display().to_string());
        match target.read(name, MAX_MANIFEST_BYTES).or_fail(Code::MayRetry)? {
            Some(bytes) => write(path, &bytes).with_context(context).or_fail(Code::NeedsPerson)?,
            None => {
                let gone = std::fs::remove_file(path).or_else(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                });
                gone.with_context(context).or_fail(Code::NeedsPerson)?;
            }
        }
    }
    Ok(())
}

fn publish_text(view: &PublishView, screen: &Screen) -> String {
    let sent = view.artefacts.iter().filter(|artefact| artefact.sent).count();
    let sign = screen.paint(Paint::Good, "✓");
    let mut text = match (sent, view.manifest_changed) {
        (0, false) => format!("{sign} {} has all of it already; nothing changed\n", view.store),
        _ => format!("{sign} {sent} sent, {} there before\n", view.artefacts.len() - sent),
    };
    let rows = view.artefacts.iter().map(|artefact| {
        vec![artefact.artefact.clone(), megabytes(artefact.size), artefact.programs.join(" "), artefact.place.clone()]
    });
    text.push_str(&table(&rows.collect::<Vec<_>>()));
    text.push_str(&format!("  manifest {}, until {}\n", view.serial, view.expires));
    text
}

fn megabytes(bytes: u64) -> String {
    match (bytes + 50_000) / 100_000 {
        0 => format!("{bytes} bytes"),
        tenths => format!("{}.{} MB", tenths / 10, tenths % 10),
    }
}
