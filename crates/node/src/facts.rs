//! What the machine is: gathered once, in parallel, each source with its own deadline.
//!
//! Nothing later asks the machine for configuration. Facts that a plan may depend on are kept apart from those that
//! change from boot to boot, so that the plan's digest survives a reboot.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle::Bundle;
use cloud::{Metadata, Said};
use cluster::JoinAnswer;
use engine::FactNote;
use host::disk::Disk;
use host::machine::{MACHINE_ID_PATH, MachineIdentity, OsRelease, PRODUCT_UUID_PATH};
use serde::Serialize;

use crate::complete::{self, Complete};
use crate::followed::{self, Followed};
use crate::following::{self, FollowError};
use crate::kubeconfig::read_access;
use crate::ownership;
use crate::platform::PlatformError;
use crate::resource::gate;
use crate::resource::gate::GateOwner;
use crate::resource::record;
use crate::resource::tree::retire;
use crate::session::NodeHost;

/// Local files answer in microseconds; a disk that needs longer than this is the fault to report.
const LOCAL_SOURCE_DEADLINE: Duration = Duration::from_secs(10);

/// An upgrade waits for it, once; an API server that is up answers in milliseconds.
const API_SERVER_DEADLINE: Duration = Duration::from_secs(5);

/// Over the deadline that the platform's own questions keep.
const PLATFORM_MARGIN: Duration = LOCAL_SOURCE_DEADLINE;

/// A fact and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact<T> {
    pub value: T,
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    pub os: Fact<Os>,
    /// What the processor is, as systemd calls it; empty while it is unknown.
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub architecture: Fact<String>,
    pub hostname: Fact<String>,
    /// Empty while it is unknown, as the next.
    pub machine_id: Fact<String>,
    pub product_uuid: Fact<String>,
    /// What this machine is remembered by: the same word from its first boot on, whatever becomes known about it later.
    #[serde(skip)]
    pub known_as: String,
    /// What this node was last complete as; `None` if it never was, or by a release that kept no record of it.
    #[serde(skip)]
    pub complete: Option<Complete>,
    /// For whom the gate is open, by its own words.
    #[serde(skip)]
    pub gate_owner: GateOwner,
    /// An earlier bundle brought programs, and some of them, or of what was fetched for them, is still here.
    #[serde(skip)]
    pub has_programs: bool,
    /// An earlier bundle had packages installed.
    #[serde(skip)]
    pub has_packages: bool,
    /// The platform's own name for this machine; empty on metal.
    pub platform: Fact<String>,
    pub instance_id: Fact<String>,
    /// The platform's name for the size of this machine; empty where it has none, as the next three.
    pub instance_type: Fact<String>,
    /// The address by which the platform's own network knows this machine.
    pub local_ipv4: Fact<String>,
    pub region: Fact<String>,
    pub zone: Fact<String>,
    /// `None` for a folder that stands for a machine and does not say.
    pub cpus: Fact<Option<u32>>,
    pub memory_bytes: Fact<Option<u64>>,
    /// What the bundle leaves to the node; `None` unless it does, and until it was found out: see [`Facts::find_out`].
    #[serde(skip)]
    pub followed: Option<Followed>,
    /// Empty unless somebody had a reason to ask: see [`Facts::ask_api_server`].
    #[serde(skip_serializing_if = "Fact::is_unknown")]
    pub api_server_version: Fact<String>,
    /// Changes at every boot: never part of a plan.
    pub boot_id: Fact<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Os {
    pub id: String,
    pub version: String,
    /// Such as `coreos` or `server`; most systems have none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// What the machine is to Container Linux and its heirs, such as `amd64-usr`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub board: String,
    /// What it promises to system extensions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sysext_level: String,
    pub name: String,
}

/// In os-release, of Container Linux and of Flatcar.
const BOARD_KEYS: [&str; 2] = ["COREOS_BOARD", "FLATCAR_BOARD"];

impl From<OsRelease> for Os {
    fn from(release: OsRelease) -> Self {
        let get = |key: &str| release.keys.get(key).cloned().unwrap_or_default();
        let (variant, sysext_level) = (get("VARIANT_ID"), get("SYSEXT_LEVEL"));
        let board = BOARD_KEYS.map(get).into_iter().find(|board| !board.is_empty()).unwrap_or_default();
        Self { id: release.id, version: release.version_id, variant, board, sysext_level, name: release.pretty_name }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    #[error("cannot tell {fact} of this machine")]
    Source { fact: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("waited {waited:?} for {fact} of this machine; its disk does not answer")]
    Deadline { fact: &'static str, waited: Duration },
    #[error("cannot tell the platform of this machine")]
    Platform(#[from] PlatformError),
}

impl FactsError {
    /// Whether the same attempt may succeed later without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Platform(error) if error.may_pass())
    }
}

impl Fact<String> {
    fn is_unknown(&self) -> bool {
        self.value.is_empty()
    }
}

impl Facts {
    /// A release above the one that a worker was complete with must not be above its API server's. One question, with the
    /// kubelet's own credentials; without an answer it stays unknown, which is no reason to refuse.
    pub(crate) fn ask_api_server(&mut self, disk: &dyn Disk, bundle: &Bundle) {
        let Some(own) = self.complete.as_ref().map(|complete| &complete.manifest) else { return };
        if !ownership::depends_on_api_server(own, bundle) {
            return;
        }
        let Ok(access) = read_access(disk, &own.join.kubeconfig) else { return };
        let asked = cluster::block_on(cluster::ask_whether_node_may_join(&access, API_SERVER_DEADLINE));
        if let Ok(Ok(JoinAnswer::Welcome { version })) = asked {
            self.api_server_version = Fact { value: version, source: own.join.api_server.clone() };
        }
    }

    /// The release of the cluster, and what goes with it, if the bundle wants it to be followed. A node that was complete with this
    /// bundle knows it already, and asks nobody.
    pub fn find_out(&mut self, host: &NodeHost, bundle: &Bundle) -> Result<(), FollowError> {
        if bundle.follow.is_none() {
            return Ok(());
        }
        let disk = host.disk.as_ref();
        let digest = bundle.digest();
        let known = followed::load(disk, &digest)?;
        let was_complete = self.complete.as_ref().is_some_and(|complete| complete.manifest.bundle == digest);
        self.followed = match known {
            Some(known) if was_complete => Some(known),
            known => following::find_out(disk, host.cluster.as_ref(), bundle, known.as_ref())?,
        };
        Ok(())
    }

    /// All of them as people read them, by name. Whatever is a fact here is told, without a list to keep up.
    pub fn notes(&self) -> Vec<FactNote> {
        let Ok(serde_json::Value::Object(mut facts)) = serde_json::to_value(self) else { return Vec::new() };
        // The kernel shows it to root only, and a report is for everybody.
        facts.remove("productUuid");
        let notes = facts.into_iter().filter_map(|(name, fact)| note(name, &fact));
        notes.chain(self.followed.iter().flat_map(Followed::notes)).collect()
    }

    /// This machine takes over the node that its disk was.
    pub fn adopt(&mut self) {
        let machine = self.machine();
        if let Some(complete) = &mut self.complete {
            complete.machine = machine;
        }
    }

    pub(crate) fn machine(&self) -> MachineIdentity {
        let known = |fact: &Fact<String>| (!fact.value.is_empty()).then(|| fact.value.clone());
        MachineIdentity { product_uuid: known(&self.product_uuid), machine_id: known(&self.machine_id) }
    }
}

/// No value of a fact is near this; a journal must not grow with one that is.
const LONGEST_NOTE: usize = 256;

fn note(name: String, fact: &serde_json::Value) -> Option<FactNote> {
    let source = fact.get("source")?.as_str()?.to_owned();
    let value = match fact.get("value")? {
        serde_json::Value::Null => return None,
        serde_json::Value::String(text) => text.clone(),
        // Such as the operating system, of which the name for people says it all.
        serde_json::Value::Object(fields) if fields.get("name").is_some_and(serde_json::Value::is_string) => {
            fields["name"].as_str().unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    };
    Some(FactNote { name, value: value.chars().take(LONGEST_NOTE).collect(), source })
}

/// Reads the disk and asks the platform at the same time; the first failure names its fact. What lies on the disk is read one
/// after the other: a thread for each would take longer to start than to read.
pub fn gather_facts(host: &NodeHost) -> Result<Facts, FactsError> {
    let mut machine = Questions::of(&host.machine);
    let mut disk = Questions::of(&host.disk);
    let past = disk.ask("the last complete state", |disk| {
        let gate = gate::observe_any(disk.as_ref())?;
        let gate = (gate.machine().map(str::to_owned), gate.owner());
        let has_packages = record::load(disk.as_ref())?.is_some_and(|record| !record.packages.is_empty());
        Ok((complete::load(disk.as_ref())?, gate, retire::has_any(disk.as_ref())?, has_packages))
    });
    disk.begin();
    let mut platform = Questions::of(&host.platform);
    let said = platform.ask("the platform", |platform| Ok(platform.metadata(&|_| {})));
    platform.begin();
    let os = machine.ask("the operating system", |machine| {
        Ok(Fact { value: Os::from(machine.os_release()?), source: "os-release".to_owned() })
    });
    let architecture = machine.ask("the architecture", |machine| {
        Ok(Fact { value: machine.architecture()?.unwrap_or_default(), source: "the kernel".to_owned() })
    });
    let hostname = machine.ask("the host name", |machine| {
        Ok(Fact { value: machine.hostname()?, source: "the kernel, or /etc/hostname".to_owned() })
    });
    let identity = machine.ask("the ids", |machine| Ok(machine.identity()?));
    let boot_id = machine.ask("the boot id", |machine| {
        Ok(Fact { value: machine.boot_id()?.0, source: "/proc/sys/kernel/random/boot_id".to_owned() })
    });
    let cpus = machine.ask("the processors", |machine| {
        Ok(Fact { value: machine.cpus()?, source: "/sys/devices/system/cpu/online".to_owned() })
    });
    let memory = machine
        .ask("the memory", |machine| Ok(Fact { value: machine.memory_bytes()?, source: "/proc/meminfo".to_owned() }));
    machine.begin();

    let said = said.wait_for(host.platform.deadline() + PLATFORM_MARGIN)??;
    let Metadata { platform, instance_id, instance_type, local_ipv4, region, zone } = said;
    let (identity, (complete, (gate, gate_owner), has_programs, has_packages)) = (identity.wait()?, past.wait()?);
    let known_as = complete::known_as(&identity, complete.as_ref(), gate.as_deref());
    let id = |id: Option<String>, source: &str| Fact { value: id.unwrap_or_default(), source: source.to_owned() };
    Ok(Facts {
        os: os.wait()?,
        architecture: architecture.wait()?,
        hostname: hostname.wait()?,
        machine_id: id(identity.machine_id, MACHINE_ID_PATH),
        product_uuid: id(identity.product_uuid, PRODUCT_UUID_PATH),
        known_as,
        complete,
        gate_owner,
        has_programs,
        has_packages,
        platform: platform.into(),
        instance_id: instance_id.into(),
        instance_type: instance_type.into(),
        local_ipv4: local_ipv4.into(),
        region: region.into(),
        zone: zone.into(),
        cpus: cpus.wait()?,
        memory_bytes: memory.wait()?,
        followed: None,
        api_server_version: id(None, "not asked"),
        boot_id: boot_id.wait()?,
    })
}

impl From<Said> for Fact<String> {
    fn from(said: Said) -> Self {
        Self { value: said.value, source: said.source }
    }
}

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A question whose answer is on its way.
struct Question<T> {
    fact: &'static str,
    answer: mpsc::Receiver<Answer<T>>,
}

/// Reads one fact and sends it to who asked.
type Reader<S> = Box<dyn FnOnce(&Arc<S>) + Send>;

/// Questions to one source, answered in this order on a thread of their own.
struct Questions<S: ?Sized> {
    source: Arc<S>,
    readers: Vec<Reader<S>>,
}

impl<S: ?Sized + Send + Sync + 'static> Questions<S> {
    fn of(source: &Arc<S>) -> Self {
        Self { source: Arc::clone(source), readers: Vec::new() }
    }

    fn ask<T, F>(&mut self, fact: &'static str, read: F) -> Question<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<S>) -> Answer<T> + Send + 'static,
    {
        let (sender, answer) = mpsc::channel();
        self.readers.push(Box::new(move |source| drop(sender.send(read(source)))));
        Question { fact, answer }
    }

    /// A thread that is stuck in a dead disk cannot be stopped, only left behind: the process ends soon after.
    fn begin(self) {
        let Self { source, readers } = self;
        let readers = Arc::new(Mutex::new(readers));
        let answer_all = {
            let readers = Arc::clone(&readers);
            move || {
                let readers = std::mem::take(&mut *readers.lock().unwrap_or_else(PoisonError::into_inner));
                readers.into_iter().for_each(|read| read(&source));
            }
        };
        if std::thread::Builder::new().spawn(answer_all.clone()).is_err() {
            // No thread to spare: slower, but asked all the same.
            answer_all();
        }
    }
}

impl<T> Question<T> {
    fn wait(self) -> Result<T, FactsError> {
        self.wait_for(LOCAL_SOURCE_DEADLINE)
    }

    fn wait_for(self, deadline: Duration) -> Result<T, FactsError> {
        match self.answer.recv_timeout(deadline) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(FactsError::Source { fact: self.fact, source }),
            Err(RecvTimeoutError::Timeout) => Err(FactsError::Deadline { fact: self.fact, waited: deadline }),
            Err(RecvTimeoutError::Disconnected) => {
                Err(FactsError::Source { fact: self.fact, source: "its reader died".into() })
            }
        }
    }
}
