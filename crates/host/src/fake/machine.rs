//! A machine whose facts are what the test says.

use crate::machine::{BootId, Machine, MachineError, MachineIdentity, OsRelease, parse_os_release};

/// Fields are free to change; the boot id counts boots.
pub struct FakeMachine {
    pub boots: u64,
    pub identity: MachineIdentity,
    pub hostname: Option<String>,
    pub os_release: OsRelease,
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub architecture: Option<String>,
}

impl Default for FakeMachine {
    fn default() -> Self {
        Self {
            boots: 1,
            identity: MachineIdentity {
                product_uuid: None,
                machine_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
            },
            hostname: Some("node-1".to_owned()),
            os_release: parse_os_release("ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            cpus: Some(2),
            memory_bytes: Some(4 << 30),
            architecture: Some("x86-64".to_owned()),
        }
    }
}

impl Machine for FakeMachine {
    fn boot_id(&self) -> Result<BootId, MachineError> {
        Ok(BootId(format!("00000000-0000-4000-8000-{:012}", self.boots)))
    }

    fn identity(&self) -> Result<MachineIdentity, MachineError> {
        Ok(self.identity.clone())
    }

    fn hostname(&self) -> Result<String, MachineError> {
        self.hostname.clone().ok_or(MachineError::NoHostname)
    }

    fn os_release(&self) -> Result<OsRelease, MachineError> {
        Ok(self.os_release.clone())
    }

    fn cpus(&self) -> Result<Option<u32>, MachineError> {
        Ok(self.cpus)
    }

    fn memory_bytes(&self) -> Result<Option<u64>, MachineError> {
        Ok(self.memory_bytes)
    }

    fn architecture(&self) -> Result<Option<String>, MachineError> {
        Ok(self.architecture.clone())
    }
}
