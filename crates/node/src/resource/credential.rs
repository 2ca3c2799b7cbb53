//! The kubelet's own credentials: its kubeconfig, and the client certificate that it got when it joined.
//!
//! The kubelet makes them, and takes what it finds for its own. So what a former life left, under an authority that the bundle
//! does not know, is set aside before the gate opens; a kubeconfig under a known authority that leads to another server is
//! rewritten. A certificate's issuer says nothing: the authority for clients need not be the one of the server.
//!
//! A certificate alone does not say whose it is, and a kubelet prefers it to what it could join with. On a machine that never
//! was a complete node it cannot be ours, and is set aside, too; on any other it stays.

use std::path::{Path, PathBuf};

use bundle::resource::{Aspect, Difference};
use bundle::{Bundle, Join, UnitName, sha256_hex};
use data_encoding::BASE64;
use engine::{Condition, History, StepContext, StepError, Timestamp};
use host::disk::{Disk, DiskError, Kind, Look};
use host::files::{self, FileError};
use host::units::ActiveState;
use serde::{Deserialize, Serialize};
use x509_parser::pem::Pem;

use super::file::{FILES_DEADLINE, SAVED_FOLDER};
use super::record::Record;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified, host_name};
use crate::authority::authority_keys;
use crate::complete::COMPLETE_PATH;
use crate::failure::{disk_error, file_error, unit_error};
use crate::kubeconfig::{Destination, names_a_server, parse_destination};
use crate::reset::ResetAction;
use crate::spending::find_spendable;
use crate::store::STATE_FOLDER_MODE;
use crate::timekeeping;

pub(crate) struct Credentials;

/// No kubeconfig, certificate or key is near this size.
const LIMIT: u64 = 1024 * 1024;
/// Of the digest of a kubeconfig or a certificate, to tell one former life from another.
const FOLDER_DIGITS: usize = 12;
/// How the names of the kubelet's certificates begin. `kubelet.crt` is self-signed and says nothing to a cluster.
const OWN_FILES: [&str; 2] = ["kubelet-client", "kubelet-server"];

/// What the kubelet would take for its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// None, or none that says where it leads: the kubelet asks to join.
    Nothing,
    /// Of this cluster, and as the bundle wants it.
    Own,
    /// Of this cluster, but it leads to another server or trusts other authorities.
    /// With how it should read, if that can be said.
    Elsewhere {
        server: String,
        text: Option<String>,
    },
    Foreign {
        server: String,
        saved: String,
    },
    /// A certificate without a kubeconfig, on a machine that never was a complete node.
    Orphaned {
        certificate: String,
        saved: String,
    },
}

/// `None`: the kubelet of this bundle makes no kubeconfig, it is given one.
pub(crate) fn made_by_kubelet(bundle: &Bundle) -> Option<&Path> {
    let path = &bundle.join.kubeconfig;
    bundle.file(path).is_none().then(|| path.as_path())
}

pub(crate) fn observe(disk: &dyn Disk, bundle: &Bundle) -> Result<Found, DiskError> {
    let Some(path) = made_by_kubelet(bundle) else { return Ok(Found::Nothing) };
    let bytes = disk.read(path, LIMIT)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if !names_a_server(&text) {
        return look_for_orphan(disk, &bundle.join);
    }
    // As client-go has it: a name that is not absolute is meant beside the kubeconfig.
    let beside = |file: &str| disk.read(&path.parent().unwrap_or(Path::new("/")).join(file), LIMIT).ok().flatten();
    let Some(found) = parse_destination(&text, beside) else { return Ok(Found::Nothing) };
    Ok(judge(&text, found, &wanted(bundle)))
}

/// By presence, not by what it says: a record that cannot be read any more was written by a node that was complete.
fn look_for_orphan(disk: &dyn Disk, join: &Join) -> Result<Found, DiskError> {
    if disk.stat(Path::new(COMPLETE_PATH))?.is_some() {
        return Ok(Found::Nothing);
    }
    for path in own_files(disk, join)? {
        if is_of_client(&path)
            && let Some(Look { content: Some(content), .. }) = disk.look(&path, LIMIT)?
        {
            return Ok(Found::Orphaned { certificate: path.display().to_string(), saved: saved_as(&content) });
        }
    }
    Ok(Found::Nothing)
}

/// As the kubelet calls its own: kubelet-client-DATE.pem, kubelet-server-DATE.pem, and links to the newest; or, as older ones
/// did and today's still read, kubelet-client.crt and .key. Sorted.
fn own_files(disk: &dyn Disk, join: &Join) -> Result<Vec<PathBuf>, DiskError> {
    let folder = join.client_certificate.as_path().parent().unwrap_or(Path::new("/"));
    let mut names = disk.list(folder)?;
    names.retain(|name| OWN_FILES.iter().any(|own| name.starts_with(own)));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn is_of_client(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_FILES[0]))
}

fn saved_as(content: &[u8]) -> String {
    format!("{SAVED_FOLDER}/credentials-{}", &sha256_hex(content)[..FOLDER_DIGITS])
}

/// Whether the kubelet has a certificate of its own, of whichever cluster, and its key. It syncs neither, so after a power cut
/// the link may lead nowhere, or to an empty file or zero bytes.
fn has_certificate(disk: &dyn Disk, join: &Join) -> Result<bool, DiskError> {
    let pem = disk.read(join.client_certificate.as_path(), LIMIT)?.unwrap_or_default();
    let labels: Vec<String> = Pem::iter_from_buffer(&pem).map_while(Result::ok).map(|block| block.label).collect();
    Ok(labels.iter().any(|label| label == "CERTIFICATE") && labels.iter().any(|label| label.ends_with("PRIVATE KEY")))
}

/// When the kubelet's own certificate ended, if it has. It renews one that is still good; after that it can only join anew.
pub(crate) fn ended(disk: &dyn Disk, join: &Join, now: Timestamp) -> Result<Option<Timestamp>, DiskError> {
    let pem = disk.read(join.client_certificate.as_path(), LIMIT)?.unwrap_or_default();
    Ok(timekeeping::end(&String::from_utf8_lossy(&pem)).filter(|end| *end < now))
}

/// Whether the kubelet can do without what it joins with: it has a certificate, and a kubeconfig that leads to a server, of
/// whichever cluster. With the certificate alone it would read what it joins with again.
pub(crate) fn needs_no_bootstrap(disk: &dyn Disk, join: &Join) -> Result<bool, DiskError> {
    let leads = |bytes: Vec<u8>| names_a_server(&String::from_utf8_lossy(&bytes));
    Ok(has_certificate(disk, join)? && disk.read(join.kubeconfig.as_path(), LIMIT)?.is_some_and(leads))
}

/// Whether the kubelet has credentials of this cluster: those of another one are no sign that it has joined.
pub(crate) fn has_joined(disk: &dyn Disk, bundle: &Bundle) -> Result<bool, DiskError> {
    Ok(has_certificate(disk, &bundle.join)?
        && match made_by_kubelet(bundle) {
            None => true,
            Some(_) => matches!(observe(disk, bundle)?, Found::Own | Found::Elsewhere { .. }),
        })
}

/// Where the bundle leads. Without what the node joins with, which may be spent, the authorities among its public files are
/// good enough to recognise the cluster by.
fn wanted(bundle: &Bundle) -> Destination {
    let content = |path: &str| bundle.file(path).map(|file| file.content.to_vec());
    let joining = content(&bundle.join.bootstrap_kubeconfig).unwrap_or_default();
    let server = bundle.join.api_server.clone();
    match parse_destination(&String::from_utf8_lossy(&joining), content) {
        Some(destination) => Destination { server, ..destination },
        None => {
            let public = bundle.files.iter().filter(|file| !file.is_secret());
            let authorities = public.flat_map(|file| file.content.to_vec()).collect();
            Destination { server, authorities, embedded: false }
        }
    }
}

fn judge(text: &str, found: Destination, wanted: &Destination) -> Found {
    let (trusted, known) = (authority_keys(&found.authorities), authority_keys(&wanted.authorities));
    if trusted.is_empty() || known.is_empty() {
        // Nobody can tell.
        return Found::Nothing;
    }
    if trusted.is_disjoint(&known) {
        return Found::Foreign { server: found.server, saved: saved_as(text.as_bytes()) };
    }
    // An authority that is being replaced overlaps for a while; whoever does not follow would be foreign in the end.
    let trusts_all = trusted == known || !(found.embedded && wanted.embedded);
    if same_server(&found.server, &wanted.server) && trusts_all {
        return Found::Own;
    }
    Found::Elsewhere { text: rewrite(text, &found, wanted), server: found.server }
}

fn same_server(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The same kubeconfig with the wanted server and authorities; `None` if it is written in a way that cannot be changed line by
/// line, as no kubelet writes it.
fn rewrite(text: &str, found: &Destination, wanted: &Destination) -> Option<String> {
    let mut values = vec![("server: ", wanted.server.clone())];
    if found.embedded && wanted.embedded {
        values.push(("certificate-authority-data: ", BASE64.encode(&wanted.authorities)));
    }
    let line = |line: &str| {
        let start = line.len() - line.trim_start_matches([' ', '-']).len();
        let (indent, rest) = line.split_at(start);
        let changed = values.iter().find(|(key, _)| rest.starts_with(key));
        changed.map_or_else(|| line.to_owned(), |(key, value)| format!("{indent}{key}{value}"))
    };
    let rewritten = text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n";
    let leads_there = |now: Destination| {
        let trusts = if found.embedded && wanted.embedded { &wanted.authorities } else { &found.authorities };
        same_server(&now.server, &wanted.server) && now.authorities == *trusts
    };
    parse_destination(&rewritten, |_| Some(found.authorities.clone())).is_some_and(leads_there).then_some(rewritten)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// What the kubelet would take for its own is of this cluster and leads to its server, or is set aside.
    SettleCredentials { kubeconfig: String, server: String },
    /// A kubelet that has joined starts this unit only with its next start, and what a node joins with restarts no kubelet.
    SpendCredentials { unit: UnitName },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::SettleCredentials { kubeconfig, server } => format!("{kubeconfig}, if it is there, is for {server}"),
            Self::SpendCredentials { unit } => format!("{unit}, if the kubelet has joined"),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::SettleCredentials { kubeconfig, server } => check_settled(node, kubeconfig, server),
            Self::SpendCredentials { unit } => check_spending(node, unit),
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::SettleCredentials { kubeconfig, .. } => settle(node, kubeconfig, context),
            // It asks the API server, and waits for this very run to end.
            Self::SpendCredentials { unit } => {
                node.tools.units.queue_start(&host_name(unit)).map_err(|error| unit_error(&error))
            }
        }
    }
}

fn check_settled(node: &Node<'_>, kubeconfig: &str, server: &str) -> Result<Condition, StepError> {
    Ok(match observe(node.tools.disk, node.bundle).map_err(|error| disk_error(&error))? {
        Found::Nothing | Found::Own => Condition::AlreadySo,
        Found::Elsewhere { server: other, .. } => Condition::Needed(match same_server(&other, server) {
            true => format!("{kubeconfig} trusts other authorities than the bundle"),
            false => format!("{kubeconfig} leads to {other}, not to {server}"),
        }),
        Found::Foreign { server: other, .. } => Condition::Needed(format!(
            "{kubeconfig} is of another cluster, {other}, whose authority the bundle does not know"
        )),
        Found::Orphaned { certificate, .. } => Condition::Needed(format!(
            "{certificate} is of a former life: this node was never complete, and no kubeconfig says whose it is"
        )),
    })
}

fn check_spending(node: &Node<'_>, unit: &UnitName) -> Result<Condition, StepError> {
    let (disk, join) = (node.tools.disk, &node.bundle.join);
    let is_here = disk.stat(join.bootstrap_kubeconfig.as_path()).map_err(|error| disk_error(&error))?.is_some();
    let has_joined = needs_no_bootstrap(disk, join).map_err(|error| disk_error(&error))?;
    if !is_here || !has_joined || find_spendable(disk).map_err(|error| file_error(&error))?.is_none() {
        return Ok(Condition::AlreadySo);
    }
    let state = node.tools.units.state(&host_name(unit)).map_err(|error| unit_error(&error))?;
    Ok(match state.active {
        ActiveState::Inactive | ActiveState::Failed => {
            Condition::Needed("the kubelet has joined, and what it joins with is still here".to_owned())
        }
        _ => Condition::AlreadySo,
    })
}

fn settle(node: &Node<'_>, kubeconfig: &str, context: &StepContext<'_>) -> Result<(), StepError> {
    let path = Path::new(kubeconfig);
    let found = observe(node.tools.disk, node.bundle).map_err(|error| disk_error(&error))?;
    if !matches!(found, Found::Nothing | Found::Own) {
        // It reads them when it starts.
        node.forget_starts([&node.bundle.join.kubelet_unit])?;
    }
    match found {
        Found::Nothing | Found::Own => Ok(()),
        Found::Elsewhere { text: None, .. } => {
            Err(StepError::needs_operator(format!("{kubeconfig:?} cannot be changed line by line"))
                .with_advice("write the server of the spec into it, or move it away: the kubelet then joins anew"))
        }
        Found::Elsewhere { text: Some(text), .. } => {
            let owner = node.tools.ownership.owner();
            files::write_durable(node.tools.disk, path, 0o600, text.as_bytes(), owner)
                .map_err(|error| file_error(&error))
        }
        Found::Foreign { server, saved } => {
            set_aside(node, path, &saved).map_err(|error| file_error(&error))?;
            context.detail(format!("{kubeconfig} was of another cluster, {server}; kept in {saved}"));
            Ok(())
        }
        Found::Orphaned { certificate, saved } => {
            set_aside(node, path, &saved).map_err(|error| file_error(&error))?;
            context.detail(format!("{certificate} was of a former life of this machine; kept in {saved}"));
            Ok(())
        }
    }
}

/// The certificates first: without its kubeconfig, nothing says any more whose they were. Of them the first last, since it is
/// what they are recognised by.
fn set_aside(node: &Node<'_>, kubeconfig: &Path, saved: &str) -> Result<(), FileError> {
    let disk = node.tools.disk;
    for folder in [SAVED_FOLDER, saved] {
        files::make_folder_durable(disk, Path::new(folder), STATE_FOLDER_MODE)?;
    }
    let certificates = own_files(disk, &node.bundle.join)?;
    for path in certificates.iter().rev().map(PathBuf::as_path).chain([kubeconfig]) {
        let Some(stat) = disk.stat(path)? else { continue };
        // A link is only a name; what it leads to lies beside it.
        if stat.kind == Kind::File
            && let Some(content) = disk.read(path, LIMIT)?
        {
            let copy = format!("{saved}{}", path.display());
            files::write_durable(disk, Path::new(&copy), stat.mode, &content, node.tools.ownership.owner())?;
        }
        files::remove_durable(disk, path)?;
    }
    Ok(())
}

impl Family for Credentials {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        if let Found::Foreign { saved, .. } | Found::Orphaned { saved, .. } =
            observe(node.tools.disk, node.bundle).map_err(|error| disk_error(&error))?
        {
            record.credentials.insert(saved);
        }
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let path = node.bundle.join.kubeconfig.as_str();
        let found = match observe(node.tools.disk, node.bundle).map_err(|error| disk_error(&error))? {
            Found::Nothing | Found::Own => return Ok(Verified::default()),
            Found::Elsewhere { server, .. } => server,
            Found::Foreign { server, .. } => format!("{server}, of another cluster"),
            Found::Orphaned { certificate, .. } => {
                let drift = Difference::new(&certificate, Aspect::Presence, "absent", "of a former life");
                return Ok(Verified { drift: vec![drift], remarks: Vec::new() });
            }
        };
        let drift = Difference::new(path, Aspect::Content, node.bundle.join.api_server.clone(), found);
        Ok(Verified { drift: vec![drift], remarks: Vec::new() })
    }

    /// What was set aside stays so.
    fn find_obsolete(&self, _: &Node<'_>, _: &Record, _: &mut Record) -> Result<(), StepError> {
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let tell = Undo::TellOfCredentials { folders: record.credentials.iter().cloned().collect() };
        let step = || UndoStep {
            phase: UndoPhase::Tell,
            id: "tell-of-credentials".to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::Credential(tell),
        };
        (!record.credentials.is_empty()).then(step).into_iter().collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// A kubelet would take them for its own again, so they stay where they are.
    TellOfCredentials { folders: Vec<String> },
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::TellOfCredentials { folders } = self;
        format!("{}: stays", folders.join(" "))
    }

    fn check(&self, _: &Undoing<'_>, history: &History) -> Result<Condition, StepError> {
        let Self::TellOfCredentials { folders } = self;
        Ok(match history.done_before {
            true => Condition::AlreadySo,
            false => Condition::Needed(format!("{} stays", folders.join(", "))),
        })
    }

    fn apply(&self, _: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::TellOfCredentials { folders } = self;
        context.detail(format!(
            "{} has credentials from before nodestrap came, which are not of this cluster; not put back",
            folders.join(", ")
        ));
        Ok(())
    }
}
