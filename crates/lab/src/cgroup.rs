//! A cgroup for each node, so that two nodes do not see (and clean up) each other's groups.
//!
//! On a machine without systemd nspawn stays in the group of its caller; both kubelets would then write to one `/kubepods`.
//! The group is at the top of each hierarchy, named by lab and node; the node's cgroup namespace makes it the node's root.
//! On a machine with systemd nspawn gets a scope of its own instead.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::wait::wait_until;

const ROOT: &str = "/sys/fs/cgroup";
const FOLDER: &str = "nodestrap-lab";

/// Whether this machine's own systemd gives nspawn its group.
pub(crate) fn machine_runs_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// One folder per mounted hierarchy: each v1 controller, or the one v2 tree.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.procs").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let entries = std::fs::read_dir(root).context("reading the cgroup hierarchies")?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.join("cgroup.procs").exists());
    found.sort();
    Ok(found)
}

/// Makes the groups of a node and returns them, for its first process to enter.
pub(crate) fn create(lab: &str, node: &str) -> Result<Vec<PathBuf>> {
    let mut groups = Vec::new();
    for hierarchy in hierarchies()? {
        let mut group = hierarchy;
        for name in [FOLDER, lab, node] {
            let parent = group.clone();
            group.push(name);
            std::fs::create_dir_all(&group).with_context(|| format!("creating {}", group.display()))?;
            // A fresh v1 cpuset is empty and takes no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = std::fs::read_to_string(parent.join(file)) {
                    let _ = std::fs::write(group.join(file), value.trim());
                }
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Removes the groups of a lab, or of one node of it. Its processes have been killed; the last may still be ending.
pub(crate) fn remove(lab: &str, node: Option<&str>) -> Result<()> {
    for hierarchy in hierarchies().unwrap_or_default() {
        let mut group = hierarchy.join(FOLDER).join(lab);
        if let Some(node) = node {
            group.push(node);
        }
        wait_until(&format!("removal of {}", group.display()), Duration::from_secs(10), || {
            remove_tree(&group)?;
            Ok(Some(()))
        })?;
        // Succeeds for whoever is the last lab.
        let _ = std::fs::remove_dir(hierarchy.join(FOLDER));
    }
    Ok(())
}

/// Whether a process is in a group of the lab, in any hierarchy.
pub(crate) fn contains(lab: &str, pid: u32) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| is_below(line, lab))
}

/// A line of `/proc/PID/cgroup` is `number:controllers:/path`.
fn is_below(line: &str, lab: &str) -> bool {
    let Some(path) = line.splitn(3, ':').nth(2) else { return false };
    let mut names = path.split('/').skip(1);
    names.next() == Some(FOLDER) && names.next() == Some(lab)
}

fn remove_tree(group: &Path) -> Result<()> {
    for child in child_groups(group) {
        remove_tree(&child)?;
    }
    match std::fs::remove_dir(group) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => bail!("removing {}: {error}", group.display()),
        _ => Ok(()),
    }
}

fn child_groups(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(group) else { return Vec::new() };
    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_belongs_to_the_lab_that_its_path_names_in_full() {
        assert!(is_below("4:memory:/nodestrap-lab/one/n1/kubepods", "one"));
        assert!(is_below("0::/nodestrap-lab/one", "one"));
        assert!(!is_below("4:memory:/nodestrap-lab/one-more/n1", "one"));
        assert!(!is_below("1:name=systemd:/user.slice/nodestrap-lab/one", "one"));
    }
}
