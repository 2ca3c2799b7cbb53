//! The two partitions of a Container Linux, each with a whole `/usr` of one version, and which of them boots.
//!
//! Reads and writes files of the node that stand for its partition table: `usr-a` and `usr-b` name the version on each, `next`
//! the one that boots next, and `booted` the one that runs, as the command line of a kernel would. Whoever installs an update
//! on the node writes the other partition first and then `next`. Fails on a table that a machine could not boot from.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, usr_layers};
use crate::mounts;
use crate::node_root::write_file;

/// Of a node that nobody has updated yet.
pub const FIRST_OS_VERSION: &str = "2512.1.0";
/// What an update brings in the tests; every other version can be had, too.
pub const NEXT_OS_VERSION: &str = "2605.6.0";

const TABLE: &str = "var/lib/nodestrap-lab/partitions";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    A,
    B,
}

impl Partition {
    fn name(self) -> &'static str {
        match self {
            Self::A => "usr-a",
            Self::B => "usr-b",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The partition table of a node.
#[derive(Debug, Clone)]
pub struct UsrPartitions {
    table: PathBuf,
}

impl UsrPartitions {
    /// That of the node with this root, seen from this machine.
    pub(crate) fn of(root: &Path) -> Self {
        Self { table: root.join(TABLE) }
    }

    /// As the installer of the system leaves it. A table that is there stays as it is.
    pub(crate) fn ensure(&self) -> Result<()> {
        if self.table.join("next").exists() {
            return Ok(());
        }
        self.write(Partition::A, FIRST_OS_VERSION)?;
        self.boot_next(Partition::A)
    }

    /// The version on a partition. `None`: nobody has written it yet.
    pub fn version(&self, partition: Partition) -> Result<Option<String>> {
        let path = self.table.join(partition.name());
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Some(text.trim().to_owned()))
    }

    pub fn write(&self, partition: Partition, version: &str) -> Result<()> {
        self.put(partition.name(), version)
    }

    /// After an update the one that runs is still there, and a user who is unhappy with the other goes back.
    pub fn boot_next(&self, partition: Partition) -> Result<()> {
        self.put("next", partition.name())
    }

    pub fn next(&self) -> Result<Partition> {
        self.named_in("next")
    }

    pub fn booted(&self) -> Result<Partition> {
        self.named_in("booted")
    }

    /// Mounts the partition that boots next, unless it is mounted.
    pub(crate) fn mount(&self, cache: &Cache, usr: &Path) -> Result<()> {
        let next = self.next()?;
        let mounted = !mounts::mount_points_below(usr)?.is_empty();
        if mounted && self.booted().is_ok_and(|booted| booted == next) {
            return Ok(());
        }
        let Some(version) = self.version(next)? else { bail!("nothing is on {}, which is to boot", next.name()) };
        let layers = usr_layers(cache, &version)?;
        mounts::unmount_below(usr)?;
        mounts::read_only_overlay(&layers, usr)?;
        self.put("booted", next.name())
    }

    fn named_in(&self, file: &str) -> Result<Partition> {
        let path = self.table.join(file);
        let name = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let found = [Partition::A, Partition::B].into_iter().find(|partition| partition.name() == name.trim());
        found.with_context(|| format!("{} names no partition: '{}'", path.display(), name.trim()))
    }

    fn put(&self, file: &str, text: &str) -> Result<()> {
        let (fresh, place) = (self.table.join(format!(".{file}")), self.table.join(file));
        write_file(&fresh, format!("{text}\n"))?;
        std::fs::rename(&fresh, &place).with_context(|| format!("renaming {} into place", fresh.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_table_boots_the_first_version_and_one_that_is_there_stays() {
        let root = tempfile::tempdir().expect("temporary folder");
        let partitions = UsrPartitions::of(root.path());
        partitions.ensure().expect("made");
        assert_eq!(partitions.next().expect("a partition"), Partition::A);
        assert_eq!(partitions.version(Partition::A).expect("read").as_deref(), Some(FIRST_OS_VERSION));
        assert_eq!(partitions.version(Partition::B).expect("read"), None);

        partitions.write(Partition::B, NEXT_OS_VERSION).expect("written");
        partitions.boot_next(Partition::B).expect("written");
        partitions.ensure().expect("left alone");
        assert_eq!(partitions.next().expect("a partition"), Partition::B);
    }

    #[test]
    fn a_table_that_names_no_partition_is_an_error_that_quotes_it() {
        let root = tempfile::tempdir().expect("temporary folder");
        let partitions = UsrPartitions::of(root.path());
        partitions.put("next", "usr-c").expect("written");
        let error = partitions.next().expect_err("there are two");
        assert!(format!("{error:#}").contains("'usr-c'"), "{error:#}");
    }
}
