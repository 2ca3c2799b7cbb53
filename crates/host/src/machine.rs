//! What this machine is: identity, operating system, time, chance, and a word to its service manager.
//!
//! In: a [`Disk`]. Out: facts as values, each asked once by whoever gathers facts. Fails with [`MachineError`]; an unknown
//! id is an answer, not a failure.
//!
//! When the root is a folder that stands for a machine, nothing of the running kernel leaks into the answers:
//! | fact | root `/` | root is a folder |
//! |---|---|---|
//! | boot id | `/proc/sys/kernel/random/boot_id` | `run/nodestrap/boot_id` in it, else all zeros: it never reboots |
//! | host name | the kernel's, or `/etc/hostname` before it has one | `etc/hostname` only |
//! | architecture | the kernel's | unknown |
//! | processors, memory | `/sys/devices/system/cpu/online`, `/proc/meminfo` | the same files in it; unknown without them |

mod clock;
mod console;
mod dumps;
mod hardware;
mod identity;
mod input;
mod journald;
mod notify;
mod os_release;
mod wait;
mod watch;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use clock::LinuxClock;
pub use console::write_console;
pub use dumps::forbid_core_dumps;
pub use identity::{Likeness, MACHINE_ID_PATH, MachineIdentity, PRODUCT_UUID_PATH, is_container, parse_product_uuid};
pub use input::StandardInput;
pub(crate) use journald::{JOURNAL_SOCKET, say_for_unit};
pub use journald::{JournalSocket, Priority};
pub use notify::{Readiness, sd_notify, sd_notify_with};
pub use os_release::{OsRelease, parse_os_release};
pub use wait::wait_for_file;
pub use watch::Watch;

use crate::disk::{Disk, DiskError};

/// Changes with every boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{path:?} does not hold {wanted}")]
    Malformed { path: &'static str, wanted: &'static str },
    #[error("neither \"/etc/os-release\" nor \"/usr/lib/os-release\" exists")]
    NoOsRelease,
    #[error("this machine has no name: \"/etc/hostname\" is absent or empty")]
    NoHostname,
}

pub trait Machine: Send + Sync {
    fn boot_id(&self) -> Result<BootId, MachineError>;
    fn identity(&self) -> Result<MachineIdentity, MachineError>;
    fn hostname(&self) -> Result<String, MachineError>;
    fn os_release(&self) -> Result<OsRelease, MachineError>;
    /// Processors that are switched on; `None` where nothing says so.
    fn cpus(&self) -> Result<Option<u32>, MachineError>;
    /// What the kernel has to give away; `None` where nothing says so.
    fn memory_bytes(&self) -> Result<Option<u64>, MachineError>;
    /// What the processor is, as systemd calls it (`x86-64`, `arm64`); `None` where nothing says so.
    fn architecture(&self) -> Result<Option<String>, MachineError>;
}

/// Who we are: 0 may set owners and talk to systemd.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// From the kernel's generator, which is waited for at an early boot. For jitter and names, not for keys: on a kernel
/// that refuses, the clock stands in.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Up to 256 bytes come whole or not at all.
    match rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, flags)) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(_) => LinuxClock::new().monotonic().as_nanos() as u64,
    }
}

/// Identity files are one line each.
const IDENTITY_FILE_LIMIT: u64 = 4096;
const OS_RELEASE_LIMIT: u64 = 64 * 1024;
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";
const MEMORY: &str = "/proc/meminfo";
const MEMORY_LIMIT: u64 = 64 * 1024;
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const FOLDER_BOOT_ID: &str = "/run/nodestrap/boot_id";
const NEVER_BOOTED: &str = "00000000-0000-0000-0000-000000000000";

pub struct LinuxMachine {
    disk: Arc<dyn Disk>,
    scope: Scope,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    RunningSystem,
    Folder,
}

impl LinuxMachine {
    /// `root` is the root that the disk was opened with.
    pub fn new(disk: Arc<dyn Disk>, root: &Path) -> Self {
        let scope = if root == Path::new("/") { Scope::RunningSystem } else { Scope::Folder };
        Self { disk, scope }
    }

    /// The first line of a small file, without blanks around it; `None` if it is absent or empty.
    fn line(&self, path: &'static str) -> Result<Option<String>, MachineError> {
        let Some(bytes) = self.disk.read(Path::new(path), IDENTITY_FILE_LIMIT)? else { return Ok(None) };
        let malformed = |_| MachineError::Malformed { path, wanted: "text" };
        let text = String::from_utf8(bytes).map_err(malformed)?;
        let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(first.map(str::to_owned))
    }
}

impl Machine for LinuxMachine {
    fn boot_id(&self) -> Result<BootId, MachineError> {
        let wanted = "a boot id";
        match self.scope {
            Scope::RunningSystem => {
                let line = self.line(KERNEL_BOOT_ID)?;
                line.map(BootId).ok_or(MachineError::Malformed { path: KERNEL_BOOT_ID, wanted })
            }
            Scope::Folder => Ok(BootId(self.line(FOLDER_BOOT_ID)?.unwrap_or_else(|| NEVER_BOOTED.to_owned()))),
        }
    }

    fn identity(&self) -> Result<MachineIdentity, MachineError> {
        identity::load(self.disk.as_ref())
    }

    fn hostname(&self) -> Result<String, MachineError> {
        // The kernel's name is the one that the kubelet registers under; the file may be what the image was built with.
        let running = match self.scope {
            Scope::RunningSystem => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            Scope::Folder => String::new(),
        };
        // `(none)` is what the kernel says before anybody named the machine.
        if !running.is_empty() && running != "(none)" {
            return Ok(running);
        }
        self.line("/etc/hostname")?.ok_or(MachineError::NoHostname)
    }

    fn os_release(&self) -> Result<OsRelease, MachineError> {
        for path in ["/etc/os-release", "/usr/lib/os-release"] {
            if let Some(bytes) = self.disk.read(Path::new(path), OS_RELEASE_LIMIT)? {
                return Ok(parse_os_release(&String::from_utf8_lossy(&bytes)));
            }
        }
        Err(MachineError::NoOsRelease)
    }

    fn cpus(&self) -> Result<Option<u32>, MachineError> {
        let wanted = "a list of processors";
        let Some(line) = self.line(ONLINE_CPUS)? else { return Ok(None) };
        hardware::parse_cpu_list(&line).map(Some).ok_or(MachineError::Malformed { path: ONLINE_CPUS, wanted })
    }

    fn memory_bytes(&self) -> Result<Option<u64>, MachineError> {
        let Some(bytes) = self.disk.read(Path::new(MEMORY), MEMORY_LIMIT)? else { return Ok(None) };
        let total = hardware::parse_total_memory(&String::from_utf8_lossy(&bytes));
        total.map(Some).ok_or(MachineError::Malformed { path: MEMORY, wanted: "the total memory" })
    }

    fn architecture(&self) -> Result<Option<String>, MachineError> {
        if self.scope == Scope::Folder {
            return Ok(None);
        }
        let name = rustix::system::uname().machine().to_string_lossy().into_owned();
        Ok(Some(match name.as_str() {
            "x86_64" => "x86-64".to_owned(),
            "aarch64" => "arm64".to_owned(),
            _ => name,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RootedDisk;
    use crate::fake::FakeDisk;

    fn machine(files: &[(&str, &str)]) -> LinuxMachine {
        let disk = FakeDisk::new();
        for (path, text) in files {
            disk.make_folder(Path::new(path).parent().unwrap(), 0o755).unwrap();
            disk.create(Path::new(path), 0o644, text.as_bytes()).unwrap();
        }
        LinuxMachine::new(Arc::new(disk), Path::new("/srv/node"))
    }

    #[test]
    fn a_folder_answers_for_itself() {
        let empty = machine(&[]);
        assert_eq!(empty.boot_id().unwrap(), BootId(NEVER_BOOTED.to_owned()));
        assert_eq!(empty.identity().unwrap(), MachineIdentity::default());
        assert!(matches!(empty.hostname(), Err(MachineError::NoHostname)));
        assert!(matches!(empty.os_release(), Err(MachineError::NoOsRelease)));
        assert_eq!((empty.cpus().unwrap(), empty.memory_bytes().unwrap()), (None, None));
        let full = machine(&[
            ("/run/nodestrap/boot_id", "two\n"),
            ("/etc/machine-id", "0123456789abcdef0123456789ABCDEF\n"),
            ("/etc/hostname", "# who\n n1 \n"),
            ("/usr/lib/os-release", "ID=flatcar\n"),
            ("/sys/devices/system/cpu/online", "0-3,6\n"),
            ("/proc/meminfo", "MemTotal:        2048 kB\nMemFree:          512 kB\n"),
        ]);
        assert_eq!((full.cpus().unwrap(), full.memory_bytes().unwrap()), (Some(5), Some(2048 * 1024)));
        assert_eq!(full.boot_id().unwrap(), BootId("two".to_owned()));
        assert_eq!(full.identity().unwrap().name(), "0123456789abcdef0123456789abcdef");
        assert_eq!(full.hostname().unwrap(), "n1");
        assert_eq!(full.os_release().unwrap().id, "flatcar");
    }

    #[test]
    fn the_running_system_answers() {
        let root = Path::new("/");
        let machine = LinuxMachine::new(Arc::new(RootedDisk::open(root).unwrap()), root);
        assert_eq!(machine.boot_id().unwrap().0.len(), 36);
        assert!(!machine.hostname().unwrap().is_empty());
        assert!(machine.cpus().unwrap() >= Some(1));
        assert!(machine.memory_bytes().unwrap() > Some(1 << 24));
        assert!(matches!(machine.architecture().unwrap().as_deref(), Some("x86-64" | "arm64")));
        assert_ne!(random_u64(), random_u64());
    }
}
