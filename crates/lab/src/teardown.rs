//! Ending a lab, from its own process or from another one after a crash.
//!
//! Order: no new processes, end the old ones, then mounts, namespaces, groups and files. Each step finds what there is
//! and is content if it is gone, so teardown can itself be interrupted and done again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroup;
use crate::keeper::machine_name;
use crate::mounts::unmount_below;
use crate::network::{delete_namespace, namespaces};
use crate::paths::state_root;
use crate::process::{MARKER, ProcessId, all_process_ids};
use crate::state::{State, StateFile, check_name, lock_file, names_of_labs};
use crate::wait::wait_until;

/// SIGKILL works at once, but a busy kernel may take its time to free a node's memory.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// Ends every process of the lab and removes everything it made. A lab that does not exist is no error.
pub fn tear_down(name: &str) -> Result<()> {
    check_name("lab", name, usize::MAX)?;
    let file = StateFile::of(name);
    // Unreadable after a crash in the middle of the first write; what follows does not need it.
    let _ = file.update(|state| state.closing = true);
    let state = file.load().ok();
    end_processes(name, state.as_ref())?;
    unmount_below(file.folder())?;
    for namespace in namespaces(name) {
        delete_namespace(&namespace)?;
    }
    cgroup::remove(name, None)?;
    for node in state.iter().flat_map(|state| state.nodes.keys()) {
        remove_nspawn_leftovers(&machine_name(name, node));
    }
    remove_folder(file.folder())
}

fn end_processes(name: &str, state: Option<&State>) -> Result<()> {
    wait_until(&format!("all processes of lab '{name}' to end"), END_DEADLINE, || {
        let mut alive = processes_of(name, state);
        alive.retain(|process| process.is_alive());
        for process in &alive {
            process.kill();
        }
        // Once more round after the last: a keeper may just have started something.
        Ok(alive.is_empty().then_some(()))
    })
}

/// What the state file says, and what it does not: everything in the lab's groups and namespaces, or with its marker.
fn processes_of(name: &str, state: Option<&State>) -> Vec<ProcessId> {
    let mut found = Vec::new();
    if let Some(state) = state {
        found.extend(state.processes.values().copied().flatten());
        found.extend(state.nodes.values().filter_map(|node| node.leader));
    }
    let namespaces: Vec<u64> = namespaces(name).iter().filter_map(|namespace| inode_of(namespace)).collect();
    let marker = format!("{MARKER}={name}");
    // Its start time is read before we look at what it is, so that a number which changes hands in between is not signalled.
    for process in all_process_ids().into_iter().filter_map(ProcessId::observe) {
        let pid = process.pid;
        let in_namespace =
            std::fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| namespaces.contains(&m.ino()));
        if in_namespace || has_variable(pid, marker.as_bytes()) || cgroup::contains(name, pid) {
            found.push(process);
        }
    }
    found.retain(|process| process.pid != std::process::id());
    found
}

fn inode_of(namespace: &str) -> Option<u64> {
    std::fs::metadata(Path::new("/run/netns").join(namespace)).ok().map(|metadata| metadata.ino())
}

fn has_variable(pid: u32, variable: &[u8]) -> bool {
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == variable))
}

/// nspawn removes these itself unless it was killed.
fn remove_nspawn_leftovers(machine: &str) {
    let _ = std::fs::remove_dir_all(Path::new("/run/systemd/nspawn/propagate").join(machine));
}

fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Ends the labs whose owner is dead. Returns their names.
pub fn reap_abandoned() -> Result<Vec<String>> {
    let root = state_root();
    std::fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    let _lock = lock_file(&root.join(".reap.lock"))?;
    let is_abandoned = |name: &String| {
        let state = StateFile::of(name).load();
        state.is_ok_and(|state| state.owner.is_some_and(|owner| !owner.is_alive()))
    };
    let abandoned: Vec<String> = names_of_labs().into_iter().filter(is_abandoned).collect();
    for name in &abandoned {
        eprintln!("lab: ending '{name}', whose owner is dead");
        tear_down(name).with_context(|| format!("ending the abandoned lab '{name}'"))?;
    }
    Ok(abandoned)
}
