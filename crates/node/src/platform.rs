//! What the platform says about this machine, asked at most once in a run, and kept for the next.
//!
//! ```text
//! identify ─→ seed folder, volume            ─→ read, every time
//!         └─→ metadata service ─→ kept copy? ─→ believed, nobody is asked
//!                              └─→ asked      ─→ kept by `apply`, never by `plan`
//! ```
//!
//! A kept copy counts for the machine that made it only: see [`cloud::machine_key`]. A machine that cannot be told from
//! another one without asking keeps it for one boot. A copy is also not believed once its address is no longer one of the
//! machine's own. It is verified when it is read; a damaged one counts as absent.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud::{Asking, CloudError, Extent, Metadata, UserData, Wanted};
use data_encoding::HEXLOWER;
use host::disk::{Disk, DiskError};
use host::files::{self, Difference, FileError, FileWrite};
use host::machine::{Machine, random_u64};
use host::volumes::{FolderVolumes, Volumes};

use bundle::{BUNDLE_PATH, Bundle, MAX_BUNDLE_BYTES, Payload, UserDataError, read_user_data};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

/// What the platform said, for the next run.
pub const KEPT_PLATFORM_PATH: &str = "/var/lib/nodestrap/platform.json";
/// The payload of the user data holds a secret.
const KEPT_PLATFORM_MODE: u32 = 0o600;
/// The largest payload as a JSON string, in which every byte may take two.
const KEPT_PLATFORM_LIMIT: u64 = 2 * MAX_BUNDLE_BYTES as u64 + 64 * 1024;
/// Enough for a metadata service that comes up with the machine; a boot must not hang on one that never does.
pub const METADATA_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(
        "this machine got no bundle: there is none at {path:?}, and {platform} has no user data for it ({by}); give it what \
         `nodestrap render` wrote"
    )]
    NoUserData { path: &'static str, platform: String, by: String },
    #[error("the user data of this platform has no nodestrap bundle: {from}")]
    NotOurs { from: String, source: UserDataError },
    #[error("cannot tell this machine from another one")]
    Identity(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl PlatformError {
    /// Whether the same attempt may succeed later without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Cloud(error) if error.may_pass())
    }
}

/// Whether an earlier run may speak for the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    AsKept,
    AskAgain,
}

/// Where the platform is asked from, and what it said in this run.
pub struct PlatformSource {
    disk: Arc<dyn Disk>,
    machine: Arc<dyn Machine>,
    volumes: Arc<dyn Volumes>,
    deadline: Duration,
    freshness: Freshness,
    heard: Mutex<Option<Heard>>,
}

/// What is known about the platform now.
#[derive(Clone)]
struct Heard {
    record: Record,
    wanted: Wanted,
    /// Whether it is worth keeping: a seed folder or nothing at all is as quickly read again.
    is_worth_keeping: bool,
    /// By an earlier run; sources say so.
    was_kept: bool,
}

/// What is kept. The payload is that of the user data, unpacked: a bundle or a stub.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    holds_for: HoldsFor,
    metadata: Metadata,
    payload: Option<DeliveredText>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeliveredText {
    source: String,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum HoldsFor {
    Machine(String),
    Boot(String),
}

/// A bundle or a stub from the platform, and where it said it.
pub(crate) struct PlatformPayload {
    pub(crate) payload: Payload,
    pub(crate) source: String,
}

impl PlatformSource {
    /// A folder `dev/disk/by-label/LABEL` stands for a volume; see [`PlatformSource::with`] for a real machine.
    pub fn of_folder(disk: Arc<dyn Disk>, machine: Arc<dyn Machine>) -> Self {
        let volumes = Arc::new(FolderVolumes::new(Arc::clone(&disk)));
        Self::with(disk, machine, volumes, METADATA_DEADLINE, Freshness::AsKept)
    }

    pub fn with(
        disk: Arc<dyn Disk>,
        machine: Arc<dyn Machine>,
        volumes: Arc<dyn Volumes>,
        deadline: Duration,
        freshness: Freshness,
    ) -> Self {
        Self { disk, machine, volumes, deadline, freshness, heard: Mutex::new(None) }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Writes nothing; `tell` hears of every attempt that failed.
    pub(crate) fn metadata(&self, tell: &dyn Fn(&str)) -> Result<Metadata, PlatformError> {
        let heard = self.hear(Wanted::Facts, tell)?;
        Ok(if heard.was_kept { from_earlier(heard.record.metadata) } else { heard.record.metadata })
    }

    /// What the user data carries. Writes nothing.
    pub(crate) fn payload(&self, tell: &dyn Fn(&str)) -> Result<PlatformPayload, PlatformError> {
        let Heard { record, was_kept, .. } = self.hear(Wanted::FactsAndUserData, tell)?;
        let Some(delivered) = record.payload else {
            let platform = record.metadata.platform;
            let path = BUNDLE_PATH;
            return Err(PlatformError::NoUserData { path, platform: platform.value, by: platform.source });
        };
        parse(delivered, was_kept)
    }

    /// What the last run on this disk took from the platform, for those who look at what it did: nobody is asked, not even
    /// whether this is still the same machine.
    pub(crate) fn kept_payload(&self) -> Option<PlatformPayload> {
        parse(self.load_record().ok()??.payload?, true).ok()
    }

    /// Durable when it returns. Nothing is written if nothing new was heard, but seen is not durable: the run that wrote the
    /// copy may have been killed before its last sync.
    pub(crate) fn keep(&self) -> Result<(), FileError> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(heard) = heard.as_ref().filter(|heard| heard.is_worth_keeping) else { return Ok(()) };
        let (disk, path) = (self.disk.as_ref(), Path::new(KEPT_PLATFORM_PATH));
        let content = write_record(&heard.record);
        let wanted = FileWrite { path, mode: KEPT_PLATFORM_MODE, owner: None, content: content.as_bytes() };
        if files::matches(disk, &wanted)? == Difference::Same {
            disk.sync_file(path)?;
            for folder in path.ancestors().skip(1) {
                disk.sync_folder(folder)?;
            }
            return Ok(());
        }
        files::make_folder_durable(disk, Path::new(STATE_FOLDER), STATE_FOLDER_MODE)?;
        files::write_durable(disk, path, KEPT_PLATFORM_MODE, content.as_bytes(), None)
    }

    /// What the platform gives to this machine for stores; `None` if it gives nothing. Asked each time: it is good for some
    /// hours only, and is kept nowhere.
    pub(crate) fn role_credentials(&self, tell: &dyn Fn(&str)) -> Result<Option<fetch::Credentials>, PlatformError> {
        let identified = cloud::identify(self.disk.as_ref(), self.volumes.as_ref())?;
        let asking = Asking { deadline: self.deadline, random: &random_u64, tell };
        Ok(cloud::role_credentials(&identified, &asking)?.map(|role| role.credentials))
    }

    fn hear(&self, wanted: Wanted, tell: &dyn Fn(&str)) -> Result<Heard, PlatformError> {
        // Whoever else wants to know waits: the platform is asked once.
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = heard.as_ref().filter(|known| wanted == Wanted::Facts || known.wanted == wanted) {
            return Ok(known.clone());
        }
        let news = self.find_out(wanted, tell)?;
        Ok(heard.insert(news).clone())
    }

    fn find_out(&self, wanted: Wanted, tell: &dyn Fn(&str)) -> Result<Heard, PlatformError> {
        let disk = self.disk.as_ref();
        let identified = cloud::identify(disk, self.volumes.as_ref())?;
        // A volume may have been taken away since; then the machine looks as if it ran on metal.
        if identified.is_remote() || identified.is_by_absence() {
            let kept = self.load_kept()?.filter(|kept| {
                let is_same_platform = kept.metadata.platform.value == identified.platform.name();
                (identified.is_by_absence() || is_same_platform) && (wanted == Wanted::Facts || kept.payload.is_some())
            });
            if let Some(record) = kept
                && self.is_at_its_address(&record)?
            {
                return Ok(Heard { record, wanted, is_worth_keeping: true, was_kept: true });
            }
        }
        let asking = Asking { deadline: self.deadline, random: &random_u64, tell };
        let answered = cloud::ask(&identified, disk, wanted, &asking)?;
        let payload = answered.user_data.map(unpack).transpose()?;
        let record = Record { holds_for: self.identity()?, metadata: answered.metadata, payload };
        let is_worth_keeping =
            answered.extent == Extent::Whole && (identified.is_remote() || identified.is_on_volume());
        Ok(Heard { record, wanted, is_worth_keeping, was_kept: false })
    }

    fn identity(&self) -> Result<HoldsFor, PlatformError> {
        let key = cloud::machine_key(self.disk.as_ref()).map_err(|error| PlatformError::Identity(error.into()))?;
        match key {
            Some(key) => Ok(HoldsFor::Machine(key)),
            None => {
                let boot = self.machine.boot_id().map_err(|error| PlatformError::Identity(error.into()))?;
                Ok(HoldsFor::Boot(boot.0))
            }
        }
    }

    /// What an earlier run heard, if it holds for this machine.
    fn load_kept(&self) -> Result<Option<Record>, PlatformError> {
        if self.freshness == Freshness::AskAgain {
            return Ok(None);
        }
        match self.load_record()? {
            Some(record) if record.holds_for == self.identity()? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    fn load_record(&self) -> Result<Option<Record>, PlatformError> {
        load_record(self.disk.as_ref()).map_err(|error| PlatformError::Cloud(error.into()))
    }

    /// Whether the address that was heard is still one of the machine's own, as far as that can be told.
    fn is_at_its_address(&self, record: &Record) -> Result<bool, PlatformError> {
        let Ok(address) = record.metadata.local_ipv4.value.parse::<Ipv4Addr>() else { return Ok(true) };
        let is_own =
            cloud::has_ipv4(self.disk.as_ref(), address).map_err(|error| PlatformError::Cloud(error.into()))?;
        Ok(is_own != Some(false))
    }
}

fn load_record(disk: &dyn Disk) -> Result<Option<Record>, DiskError> {
    let path = Path::new(KEPT_PLATFORM_PATH);
    // What is larger than a copy may be is not one, and is no reason to stop.
    if disk.stat(path)?.is_none_or(|stat| stat.size > KEPT_PLATFORM_LIMIT) {
        return Ok(None);
    }
    match disk.read(path, KEPT_PLATFORM_LIMIT) {
        Ok(bytes) => Ok(read_record(&bytes.unwrap_or_default())),
        // Whoever looks at a plan without root goes on without it.
        Err(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bundle among what is kept, if it came from the platform itself.
pub(crate) fn load_kept_bundle(disk: &dyn Disk) -> Result<Option<Bundle>, DiskError> {
    let payload = load_record(disk)?.and_then(|record| record.payload);
    Ok(payload.and_then(|payload| match Payload::parse(payload.text.as_bytes()) {
        Ok(Payload::Bundle(bundle)) => Some(*bundle),
        _ => None,
    }))
}

/// The same bundle with another content, in the place of the one that is kept. Durable when it returns.
pub(crate) fn replace_kept_bundle(disk: &dyn Disk, bundle: &Bundle) -> Result<(), FileError> {
    let Some(mut record) = load_record(disk)? else { return Ok(()) };
    if let Some(payload) = &mut record.payload {
        payload.text = bundle.to_json();
    }
    let (path, content) = (Path::new(KEPT_PLATFORM_PATH), write_record(&record));
    files::write_durable(disk, path, KEPT_PLATFORM_MODE, content.as_bytes(), None)
}

/// What the platform said of the machine stays, the bundle or stub that it delivered goes. Whether anything changed; durable when
/// it returns.
pub(crate) fn forget_payload(disk: &dyn Disk) -> Result<bool, FileError> {
    let Some(mut record) = load_record(disk)? else { return remove_damaged(disk) };
    if record.payload.take().is_none() {
        return Ok(false);
    }
    let (path, content) = (Path::new(KEPT_PLATFORM_PATH), write_record(&record));
    files::write_durable(disk, path, KEPT_PLATFORM_MODE, content.as_bytes(), None)?;
    Ok(true)
}

/// A copy that is not whole counts as absent, and a token may stand in it.
pub(crate) fn remove_damaged(disk: &dyn Disk) -> Result<bool, FileError> {
    match load_record(disk)? {
        Some(_) => Ok(false),
        None => files::remove_durable(disk, Path::new(KEPT_PLATFORM_PATH)),
    }
}

/// The digest of the rest, then the rest.
fn write_record(record: &Record) -> String {
    // Plain data without maps of other keys than text: this cannot fail.
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("{}\n{json}\n", HEXLOWER.encode(&Sha256::digest(json.as_bytes())))
}

fn read_record(bytes: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (digest, rest) = text.split_once('\n')?;
    let json = rest.strip_suffix('\n')?;
    (digest == HEXLOWER.encode(&Sha256::digest(json.as_bytes()))).then(|| serde_json::from_str(json).ok())?
}

const FROM_EARLIER: &str = "kept from an earlier run: ";

fn from_earlier(mut metadata: Metadata) -> Metadata {
    let Metadata { platform: _, instance_id, instance_type, local_ipv4, region, zone } = &mut metadata;
    for said in [instance_id, instance_type, local_ipv4, region, zone] {
        said.source.insert_str(0, FROM_EARLIER);
    }
    metadata
}

fn unpack(user_data: UserData) -> Result<DeliveredText, PlatformError> {
    let UserData { bytes, source: from } = user_data;
    let text = match read_user_data(&bytes) {
        Ok(Payload::Bundle(bundle)) => bundle.to_json(),
        Ok(Payload::Stub(stub)) => stub.to_json(),
        Err(source) => return Err(PlatformError::NotOurs { from, source }),
    };
    Ok(DeliveredText { source: from, text })
}

fn parse(delivered: DeliveredText, was_kept: bool) -> Result<PlatformPayload, PlatformError> {
    let DeliveredText { source: mut from, text } = delivered;
    if was_kept {
        from.insert_str(0, FROM_EARLIER);
    }
    match Payload::parse(text.as_bytes()) {
        Ok(payload) => Ok(PlatformPayload { payload, source: from }),
        Err(error) => Err(PlatformError::NotOurs { from, source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use cloud::Said;

    use super::*;

    fn record() -> Record {
        let said = |value: &str| Said { value: value.to_owned(), source: "http://x/".to_owned() };
        let [platform, instance_id, instance_type, local_ipv4, region, zone] =
            ["aws", "i-1", "m5.large", "10.0.0.7", "r", "z"].map(said);
        let metadata = Metadata { platform, instance_id, instance_type, local_ipv4, region, zone };
        let payload = Some(DeliveredText { source: "http://x/user-data".to_owned(), text: "{}".to_owned() });
        Record { holds_for: HoldsFor::Machine("key".to_owned()), metadata, payload }
    }

    #[test]
    fn a_record_reads_back_and_a_damaged_one_is_none() {
        let whole = write_record(&record());
        let read = read_record(whole.as_bytes()).expect("it reads back");
        assert_eq!(read.metadata, record().metadata);
        for end in 0..whole.len() {
            assert!(read_record(&whole.as_bytes()[..end]).is_none(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(read_record(&bytes).is_none(), "flipped at {at}");
        }
    }
}
