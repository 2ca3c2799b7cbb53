//! What the machine is: gathered once, in parallel, each source with its own deadline.
//!
//! Nothing later asks the machine for configuration. Facts that a plan may depend on are kept apart from those that
//! change from boot to boot, so that the plan's digest survives a reboot.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use cloud::Platform;
use host::disk::Disk;
use host::machine::{Machine, MachineId};
use serde::Serialize;

/// Local files answer in microseconds; a disk that needs longer than this is the fault to report.
const LOCAL_SOURCE_DEADLINE: Duration = Duration::from_secs(10);

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
    pub hostname: Fact<String>,
    pub machine_id: Fact<String>,
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
    pub name: String,
}

#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    #[error("cannot tell {fact} of this machine")]
    Source { fact: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("waited {waited:?} for {fact} of this machine; its disk does not answer")]
    Deadline { fact: &'static str, waited: Duration },
}

/// Reads every source at the same time; the first failure names its fact.
pub fn gather_facts(disk: &Arc<dyn Disk>, machine: &Arc<dyn Machine>) -> Result<Facts, FactsError> {
    let os = ask("the operating system", machine, |machine| {
        let release = machine.os_release()?;
        let variant = release.keys.get("VARIANT_ID").cloned().unwrap_or_default();
        let os = Os { id: release.id, version: release.version_id, variant, name: release.pretty_name };
        Ok(Fact { value: os, source: "os-release".to_owned() })
    });
    let hostname = ask("the host name", machine, |machine| {
        Ok(Fact { value: machine.hostname()?, source: "the kernel, or /etc/hostname".to_owned() })
    });
    let machine_id = ask("the machine id", machine, |machine| {
        let value = match machine.machine_id()? {
            MachineId::Known(id) => id,
            // systemd writes it at the end of the first boot's early phase; a plan does not hang on it.
            MachineId::Absent | MachineId::Uninitialized => String::new(),
        };
        Ok(Fact { value, source: "/etc/machine-id".to_owned() })
    });
    let boot_id = ask("the boot id", machine, |machine| {
        Ok(Fact { value: machine.boot_id()?.0, source: "/proc/sys/kernel/random/boot_id".to_owned() })
    });
    let cpus = ask("the processors", machine, |machine| {
        Ok(Fact { value: machine.cpus()?, source: "/sys/devices/system/cpu/online".to_owned() })
    });
    let memory = ask("the memory", machine, |machine| {
        Ok(Fact { value: machine.memory_bytes()?, source: "/proc/meminfo".to_owned() })
    });
    let platform = ask("the platform", disk, |disk| Ok(cloud::identify_platform(disk.as_ref())?));

    let (platform, instance_id) = describe_platform(platform.wait()?);
    let not_said = Fact { value: String::new(), source: platform.source.clone() };
    Ok(Facts {
        os: os.wait()?,
        hostname: hostname.wait()?,
        machine_id: machine_id.wait()?,
        platform,
        instance_id,
        instance_type: not_said.clone(),
        local_ipv4: not_said.clone(),
        region: not_said.clone(),
        zone: not_said,
        cpus: cpus.wait()?,
        memory_bytes: memory.wait()?,
        boot_id: boot_id.wait()?,
    })
}

fn describe_platform(platform: Platform) -> (Fact<String>, Fact<String>) {
    let fact = |value: &str, source: String| Fact { value: value.to_owned(), source };
    match platform {
        Platform::NoCloud { instance_id, seed } => (fact("nocloud", seed.clone()), fact(&instance_id, seed)),
        Platform::Metal => {
            let source = "no platform left its mark".to_owned();
            (fact("metal", source.clone()), fact("", source))
        }
    }
}

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A question under way on its own thread.
struct Question<T> {
    fact: &'static str,
    answer: mpsc::Receiver<Answer<T>>,
}

fn ask<S, T, F>(fact: &'static str, source: &Arc<S>, read: F) -> Question<T>
where
    S: ?Sized + Send + Sync + 'static,
    T: Send + 'static,
    F: FnOnce(&Arc<S>) -> Answer<T> + Send + 'static,
{
    let (sender, answer) = mpsc::channel();
    let source = Arc::clone(source);
    // A thread that is stuck in a dead disk cannot be stopped, only left behind: the process ends soon after.
    std::thread::spawn(move || {
        let _ = sender.send(read(&source));
    });
    Question { fact, answer }
}

impl<T> Question<T> {
    fn wait(self) -> Result<T, FactsError> {
        match self.answer.recv_timeout(LOCAL_SOURCE_DEADLINE) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(FactsError::Source { fact: self.fact, source }),
            Err(RecvTimeoutError::Timeout) => {
                Err(FactsError::Deadline { fact: self.fact, waited: LOCAL_SOURCE_DEADLINE })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(FactsError::Source { fact: self.fact, source: "its reader died".into() })
            }
        }
    }
}
