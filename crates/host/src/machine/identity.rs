//! Which machine this is: what its firmware and its system are known by, read locally.
//!
//! An id counts only if it is this machine's own and for good. A uuid that a vendor never filled in, that of a container's host,
//! and a machine-id that systemd mounted for this boot alone are unknown.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{IDENTITY_FILE_LIMIT, MachineError};
use crate::disk::{Disk, DiskError};
use crate::mounts::{self, MOUNTS, MOUNTS_LIMIT};

pub const MACHINE_ID_PATH: &str = "/etc/machine-id";
pub const PRODUCT_UUID_PATH: &str = "/sys/class/dmi/id/product_uuid";
/// Somewhere in the path of what it is mounted from: the folder above is a link.
const FIRMWARE_PART: &str = "/dmi";
/// systemd leaves one of these in a container, whose firmware is that of its host and of every other container on it.
const CONTAINER_MARKS: [&str; 2] = ["/run/systemd/container", "/run/host/container-manager"];

/// Of an id, for people.
const SHOWN_DIGITS: usize = 8;

/// What vendors ship on every board, beside one digit over and over.
const VENDOR_DEFAULTS: [&str; 6] = [
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "12345678-1234-1234-1234-123456789abc",
    "4c4c4544-0000-2010-8020-80c04f202020",
    "fefefefe-fefe-fefe-fefe-fefefefefefe",
];

/// What a machine is known by, whatever it is called; `None`: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineIdentity {
    /// By its firmware, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// By its system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
}

/// How two machines compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// No id is known on both sides.
    Unknown,
    Same,
    /// One id is the same and this one is not: a new board, or a copied disk.
    Changed {
        id: &'static str,
    },
    /// Every id that is known on both sides differs.
    Another,
}

impl MachineIdentity {
    pub fn compare(&self, other: &Self) -> Likeness {
        let agree = |one: &Option<String>, other: &Option<String>| Some(one.as_ref()? == other.as_ref()?);
        match (agree(&self.product_uuid, &other.product_uuid), agree(&self.machine_id, &other.machine_id)) {
            (None, None) => Likeness::Unknown,
            (Some(false), None | Some(false)) | (None, Some(false)) => Likeness::Another,
            (Some(false), Some(true)) => Likeness::Changed { id: "product uuid" },
            (Some(true), Some(false)) => Likeness::Changed { id: "machine-id" },
            (Some(true), None | Some(true)) | (None, Some(true)) => Likeness::Same,
        }
    }

    /// What is known now, and from before what is not: of one and the same machine.
    pub fn or(&self, before: &Self) -> Self {
        Self {
            product_uuid: self.product_uuid.clone().or_else(|| before.product_uuid.clone()),
            machine_id: self.machine_id.clone().or_else(|| before.machine_id.clone()),
        }
    }

    /// One word for this machine; empty if nothing is known. The firmware's comes first: it is there from the first boot on.
    pub fn name(&self) -> &str {
        self.product_uuid.as_deref().or(self.machine_id.as_deref()).unwrap_or_default()
    }

    pub fn has(&self, id: &str) -> bool {
        [&self.product_uuid, &self.machine_id].into_iter().flatten().any(|own| own == id)
    }
}

/// Enough to tell machines apart: the kernel and systemd want neither id shown to everybody.
impl fmt::Display for MachineIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |id: &Option<String>| match id {
            Some(id) => format!("{}…", id.chars().take(SHOWN_DIGITS).collect::<String>()),
            None => "unknown".to_owned(),
        };
        write!(f, "product uuid {}, machine-id {}", shown(&self.product_uuid), shown(&self.machine_id))
    }
}

pub(super) fn load(disk: &dyn Disk) -> Result<MachineIdentity, MachineError> {
    let mounts = disk.read(Path::new(MOUNTS), MOUNTS_LIMIT)?.unwrap_or_default();
    Ok(MachineIdentity { product_uuid: product_uuid(disk, &mounts)?, machine_id: machine_id(disk, &mounts)? })
}

fn machine_id(disk: &dyn Disk, mounts: &[u8]) -> Result<Option<String>, MachineError> {
    let is_transient = mounts::parse(mounts).any(|mount| mount.at == Path::new(MACHINE_ID_PATH));
    match word(disk, MACHINE_ID_PATH)?.as_str() {
        // systemd writes it at the end of the first boot's early phase.
        "" | "uninitialized" => Ok(None),
        id if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok((!is_transient).then(|| id.to_ascii_lowercase()))
        }
        _ => Err(MachineError::Malformed { path: MACHINE_ID_PATH, wanted: "32 hexadecimal digits" }),
    }
}

fn product_uuid(disk: &dyn Disk, mounts: &[u8]) -> Result<Option<String>, DiskError> {
    // Unless it was given one of its own.
    if is_container(disk)? && !mounts::parse(mounts).any(|mount| mount.at.to_string_lossy().contains(FIRMWARE_PART)) {
        return Ok(None);
    }
    match word(disk, PRODUCT_UUID_PATH) {
        Ok(text) => Ok(parse_product_uuid(&text)),
        // It is for root only; whoever looks at a plan without root goes on without it.
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn is_container(disk: &dyn Disk) -> Result<bool, DiskError> {
    for mark in CONTAINER_MARKS {
        if disk.stat(Path::new(mark))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// In lower case; `None` if it cannot be this machine's alone.
pub fn parse_product_uuid(text: &str) -> Option<String> {
    let uuid = text.trim().to_ascii_lowercase();
    let is_uuid = uuid.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let first = uuid.bytes().next();
    let is_blank = uuid.bytes().all(|byte| byte == b'-' || Some(byte) == first);
    (is_uuid && !is_blank && !VENDOR_DEFAULTS.contains(&uuid.as_str())).then_some(uuid)
}

fn word(disk: &dyn Disk, path: &'static str) -> Result<String, DiskError> {
    let bytes = disk.read(Path::new(path), IDENTITY_FILE_LIMIT)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDisk;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const UUID: &str = "02aab8a4-74ef-476e-8182-f6d2ba4166a6";

    fn found(files: &[(&str, &str)]) -> Result<MachineIdentity, MachineError> {
        let disk = FakeDisk::new();
        for (path, text) in files {
            disk.make_folder(Path::new(path).parent().unwrap(), 0o755).unwrap();
            disk.create(Path::new(path), 0o644, text.as_bytes()).unwrap();
        }
        load(&disk)
    }

    fn machine(product_uuid: &str, machine_id: &str) -> MachineIdentity {
        let known = |id: &str| (!id.is_empty()).then(|| id.to_owned());
        MachineIdentity { product_uuid: known(product_uuid), machine_id: known(machine_id) }
    }

    #[test]
    fn another_machine_is_one_of_which_every_known_id_differs() {
        let cases = [
            (("u", "m"), ("u", "m"), Likeness::Same),
            (("u", ""), ("u", "m"), Likeness::Same),
            (("", "m"), ("u", "m"), Likeness::Same),
            (("u", "m"), ("v", "m"), Likeness::Changed { id: "product uuid" }),
            (("u", "m"), ("u", "n"), Likeness::Changed { id: "machine-id" }),
            (("u", "m"), ("v", "n"), Likeness::Another),
            (("u", "m"), ("v", ""), Likeness::Another),
            (("u", "m"), ("", "n"), Likeness::Another),
            (("u", ""), ("", "n"), Likeness::Unknown),
            (("", ""), ("u", "m"), Likeness::Unknown),
        ];
        for (one, other, likeness) in cases {
            let (one, other) = (machine(one.0, one.1), machine(other.0, other.1));
            assert_eq!((one.compare(&other), other.compare(&one)), (likeness, likeness), "{one} / {other}");
        }
        assert_eq!(machine("", "m").or(&machine("u", "n")), machine("u", "m"));
        assert_eq!((machine("u", "m").name(), machine("", "m").name(), machine("", "").name()), ("u", "m", ""));
    }

    #[test]
    fn what_is_not_this_machines_own_for_good_is_unknown() {
        let transient = format!("31 22 0:22 /machine-id {MACHINE_ID_PATH} ro - tmpfs tmpfs rw\n");
        let own = "40 22 0:9 / /sys/devices/virtual/dmi/id/product_uuid ro - ext4 /dev/vda rw\n";
        let firmware = (PRODUCT_UUID_PATH, "02AAB8A4-74EF-476E-8182-F6D2BA4166A6\n");
        let container = ("/run/systemd/container", "systemd-nspawn\n");
        let both = machine(UUID, ID);
        assert_eq!(found(&[]).unwrap(), MachineIdentity::default());
        assert_eq!(found(&[firmware, (MACHINE_ID_PATH, &ID.to_uppercase())]).unwrap(), both);
        for id in ["", "\n", "uninitialized\n"] {
            assert_eq!(found(&[firmware, (MACHINE_ID_PATH, id)]).unwrap(), machine(UUID, ""), "{id:?}");
        }
        assert_eq!(found(&[firmware, (MACHINE_ID_PATH, ID), (MOUNTS, &transient)]).unwrap(), machine(UUID, ""));
        assert_eq!(found(&[firmware, (MACHINE_ID_PATH, ID), container]).unwrap(), machine("", ID));
        assert_eq!(found(&[firmware, (MACHINE_ID_PATH, ID), container, (MOUNTS, own)]).unwrap(), both);
        let broken = found(&[(MACHINE_ID_PATH, "xyz\n")]).unwrap_err();
        assert_eq!(broken.to_string(), "\"/etc/machine-id\" does not hold 32 hexadecimal digits");
    }

    #[test]
    fn what_vendors_ship_on_every_board_is_no_name() {
        let blank = ["00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"];
        let others = ["", "Not Specified", "To be filled by O.E.M.", &UUID.replace('-', "")];
        for text in blank.into_iter().chain(VENDOR_DEFAULTS).chain(others) {
            assert_eq!(parse_product_uuid(text), None, "{text:?}");
        }
        assert_eq!(parse_product_uuid(&UUID.to_uppercase()).as_deref(), Some(UUID));
    }
}
