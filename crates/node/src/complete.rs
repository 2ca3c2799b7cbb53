//! What this node was last complete as: which machine it was, and by which bundle.
//!
//! `/var/lib/nodestrap/complete.json`, sealed, digests only. Written durably before the gate opens, replaced when the node is next
//! complete, removed by a reset: a run that fails or is refused leaves it alone. A node without it never was complete, or became
//! so by a release that kept no such record.

use std::path::Path;

use bundle::Manifest;
use host::disk::{Disk, DiskError};
use host::files::{self, FileError};
use host::machine::{Likeness, MachineIdentity};
use serde::{Deserialize, Serialize};

use crate::sealed;

pub const COMPLETE_PATH: &str = "/var/lib/nodestrap/complete.json";
/// Which files a node has is nobody else's business.
const MODE: u32 = 0o600;
/// Tens of thousands of files.
const LIMIT: u64 = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Complete {
    pub machine: MachineIdentity,
    /// The word for this machine that its gate and its journal have: it stays when more becomes known about the machine.
    pub known_as: String,
    pub manifest: Manifest,
}

/// The record, if it is there and whole. Reads only.
pub fn load(disk: &dyn Disk) -> Result<Option<Complete>, DiskError> {
    let bytes = disk.read(Path::new(COMPLETE_PATH), LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)))
}

/// Durable when it returns. The folder is there since the journal was made.
pub(crate) fn write(disk: &dyn Disk, complete: &Complete) -> Result<(), FileError> {
    files::write_durable(disk, Path::new(COMPLETE_PATH), MODE, &sealed::print(complete), None)
}

/// What a machine is remembered by. A record of this machine decides; without one, a gate that names one of its ids, as every
/// release wrote it. Pure.
pub(crate) fn known_as(now: &MachineIdentity, complete: Option<&Complete>, gate: Option<&str>) -> String {
    match complete {
        Some(complete) if complete.machine.compare(now) != Likeness::Another => complete.known_as.clone(),
        Some(_) => now.name().to_owned(),
        None => gate.filter(|name| now.has(name)).unwrap_or(now.name()).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"bundle":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","cluster":"c",
        "group":"g","role":"worker","layout":"nodestrap","kubernetesVersion":"1.36.3","gate":"/g","files":[{"path":"/f",
        "mode":"0600","sha256":"00","size":3,"secrecy":"secret","readBy":{"units":["kubelet.service"]}}],
        "join":{"apiServer":"https://a","bootstrapKubeconfig":"/b","kubeconfig":"/k","clientCertificate":"/p",
        "kubeletUnit":"kubelet.service"}}"#;

    fn machine(product_uuid: Option<&str>, machine_id: Option<&str>) -> MachineIdentity {
        let known = |id: Option<&str>| id.map(str::to_owned);
        MachineIdentity { product_uuid: known(product_uuid), machine_id: known(machine_id) }
    }

    fn complete(machine: MachineIdentity, known_as: &str) -> Complete {
        Complete { machine, known_as: known_as.to_owned(), manifest: serde_json::from_str(MANIFEST).unwrap() }
    }

    #[test]
    fn the_record_is_read_back_and_a_field_of_another_release_makes_it_absent() {
        let disk = host::fake::FakeDisk::new();
        assert_eq!(load(&disk).unwrap(), None);
        let record = complete(machine(None, Some("m")), "m");
        write(&disk, &record).unwrap();
        assert_eq!(load(&disk).unwrap().as_ref(), Some(&record));
        let mut json = serde_json::to_value(&record).unwrap();
        json["manifest"]["more"] = 1.into();
        files::write_durable(&disk, Path::new(COMPLETE_PATH), MODE, &sealed::print(&json), None).unwrap();
        assert_eq!(load(&disk).unwrap(), None);
    }

    #[test]
    fn a_machine_keeps_its_word_when_more_becomes_known_about_it() {
        let (first, later) = (machine(Some("u"), None), machine(Some("u"), Some("m")));
        assert_eq!(known_as(&first, None, None), "u");
        assert_eq!(known_as(&later, Some(&complete(first, "u")), Some("u")), "u");
        assert_eq!(known_as(&later, Some(&complete(machine(None, None), "")), None), "");
        // As an earlier release called it, which knew the machine-id only.
        assert_eq!(known_as(&later, None, Some("m")), "m");
        assert_eq!(known_as(&later, None, Some("n")), "u");
        assert_eq!(known_as(&later, Some(&complete(machine(Some("v"), Some("n")), "v")), Some("v")), "u");
    }
}
