//! Which machine this is, without asking anybody: what was heard from a platform counts for this machine only.
//!
//! A disk may be copied and boot as another machine, or on another size of machine. Neither may believe what the first one
//! kept, so the key is made of what the firmware and the processor say now, not of anything on the disk.

use std::net::Ipv4Addr;
use std::path::Path;

use data_encoding::HEXLOWER;
use host::disk::{Disk, DiskError};
use host::machine::{is_container, parse_product_uuid};
use sha2::{Digest, Sha256};

use crate::dmi;

const CPUS: &str = "/sys/devices/system/cpu/present";
const CPU_INFO: &str = "/proc/cpuinfo";
const ADDRESSES: &str = "/proc/net/fib_trie";
/// `/proc/cpuinfo` has about 2 KiB a processor, the table of addresses about 100 bytes an address.
const TABLE_LIMIT: u64 = 16 * 1024 * 1024;
/// A digest of the platform's own name for this machine, its kind and its processors. `None` where the firmware gives no
/// name that is this machine's alone.
pub fn machine_key(disk: &dyn Disk) -> Result<Option<String>, DiskError> {
    // The firmware of a container is that of its host.
    if is_container(disk)? {
        return Ok(None);
    }
    let dmi = dmi::load(disk)?;
    if parse_product_uuid(&dmi.product_uuid).is_none() {
        return Ok(None);
    }
    let cpus = disk.read(Path::new(CPUS), TABLE_LIMIT)?.unwrap_or_default();
    let info = disk.read(Path::new(CPU_INFO), TABLE_LIMIT)?.unwrap_or_default();
    let info = String::from_utf8_lossy(&info);
    let model = info.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    let mut digest = Sha256::new();
    for part in [
        dmi.sys_vendor.as_bytes(),
        dmi.product_name.as_bytes(),
        dmi.product_uuid.as_bytes(),
        dmi.board_asset_tag.as_bytes(),
        dmi.chassis_asset_tag.as_bytes(),
        &cpus,
        model.as_bytes(),
    ] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    Ok(Some(HEXLOWER.encode(&digest.finalize())))
}

/// Whether this address is one of the machine's own. `None` while it has no address but loopback, or does not say.
pub fn has_ipv4(disk: &dyn Disk, address: Ipv4Addr) -> Result<Option<bool>, DiskError> {
    let Some(table) = disk.read(Path::new(ADDRESSES), TABLE_LIMIT)? else { return Ok(None) };
    let own = parse_own_addresses(&String::from_utf8_lossy(&table));
    Ok((!own.is_empty()).then(|| own.contains(&address)))
}

/// The kernel's routing trie: an address on one line, and on the next that it is a host of our own.
fn parse_own_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut own = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse().ok();
        } else if line.trim() == "/32 host LOCAL" {
            own.extend(last.filter(|address| !address.is_loopback()));
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use host::fake::FakeDisk;

    use super::*;

    const UUID: &str = "EC2D3C4B-0123-4567-89AB-CDEF01234567";

    fn machine(files: &[(&str, &str)]) -> FakeDisk {
        let disk = FakeDisk::new();
        for (path, text) in files {
            disk.make_folder(Path::new(path).parent().unwrap(), 0o755).unwrap();
            disk.create(Path::new(path), 0o444, text.as_bytes()).unwrap();
        }
        disk
    }

    fn key(files: &[(&str, &str)]) -> Option<String> {
        machine_key(&machine(files)).unwrap()
    }

    #[test]
    fn another_machine_and_another_size_have_another_key() {
        let uuid = ("/sys/class/dmi/id/product_uuid", UUID);
        let one = key(&[uuid]).unwrap();
        assert_eq!(key(&[uuid]).unwrap(), one);
        let other_uuid = UUID.replace("4567-", "4568-");
        for other in [
            &[("/sys/class/dmi/id/product_uuid", other_uuid.as_str())][..],
            &[uuid, ("/sys/class/dmi/id/product_name", "m5.xlarge")],
            &[uuid, ("/sys/class/dmi/id/board_asset_tag", "i-0123456789abcdef0")],
            &[uuid, ("/sys/devices/system/cpu/present", "0-7")],
            &[uuid, ("/proc/cpuinfo", "processor: 0\nmodel name: Other\n")],
        ] {
            assert_ne!(key(other).unwrap(), one, "{other:?}");
        }
    }

    #[test]
    fn what_is_not_this_machines_alone_is_no_key() {
        assert_eq!(key(&[]), None);
        for uuid in ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "Not Settable"] {
            assert_eq!(key(&[("/sys/class/dmi/id/product_uuid", uuid)]), None, "{uuid}");
        }
        assert_eq!(
            key(&[("/sys/class/dmi/id/product_uuid", UUID), ("/run/systemd/container", "systemd-nspawn")]),
            None
        );
    }

    #[test]
    fn own_addresses_are_read_from_the_routing_trie() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.0.0.7\n        \
                    /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        \
                    /32 host LOCAL\n";
        assert_eq!(parse_own_addresses(trie), [Ipv4Addr::new(10, 0, 0, 7)]);
        let disk = machine(&[("/proc/net/fib_trie", trie)]);
        assert_eq!(has_ipv4(&disk, Ipv4Addr::new(10, 0, 0, 7)).unwrap(), Some(true));
        assert_eq!(has_ipv4(&disk, Ipv4Addr::new(10, 0, 0, 8)).unwrap(), Some(false));
        assert_eq!(has_ipv4(&machine(&[]), Ipv4Addr::new(10, 0, 0, 8)).unwrap(), None);
    }
}
