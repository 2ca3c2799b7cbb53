//! Keeps one node running: starts nspawn, starts it again when the node reboots, lets it be when the node goes off.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cache::prepare;
use crate::cgroup;
use crate::control_plane::log_path;
use crate::network::namespace_path;
use crate::node_root::NodeFolders;
use crate::process::{ProcessId, all_process_ids, reap_in_background, spawn_logged};
use crate::state::{Desired, NodeState, StateFile, Usr};
use crate::usr_partitions::UsrPartitions;
use crate::wait::{Fatal, wait_until};

/// The exit status of nspawn when the system inside asked for a reboot.
const REBOOT_ASKED: i32 = 133;
/// Each node has one of its own, as machines have.
const PRODUCT_UUID: &str = "/sys/class/dmi/id/product_uuid";
const LEADER_DEADLINE: Duration = Duration::from_secs(30);
/// Enters the groups named before `--`, then becomes the program named after it, under the same process id.
const ENTER_GROUPS: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;

/// The name of a node's nspawn among the processes of the lab, and of its console log.
pub(crate) fn nspawn_process(node: &str) -> String {
    format!("node-{node}")
}

/// Runs until the node goes off or its lab ends. A thread of the owner for tests, a background process for the command line.
pub fn keep_node(lab: &str, node: &str) -> Result<()> {
    let state = StateFile::of(lab);
    let start = state.load()?.nodes.get(node).map_or(0, |node| node.starts);
    let outcome = boot_while_wanted(&state, lab, node, start);
    // Whoever waits for the node learns that nothing will come. Fails if the lab is gone, which is no news then.
    let _ = change_node(&state, node, start, |node| node.desired = Desired::Stopped);
    if let Err(error) = &outcome {
        let log = log_path(state.folder(), &nspawn_process(node));
        let _ = crate::command::append(&log).map(|mut log| {
            use std::io::Write;
            writeln!(log, "lab: {error:#}")
        });
    }
    outcome
}

fn boot_while_wanted(state: &StateFile, lab: &str, node: &str, start: u32) -> Result<()> {
    loop {
        let known = state.load()?;
        let is_mine = |node: &NodeState| node.starts == start && node.desired == Desired::Running;
        let wanted = known.nodes.get(node).is_some_and(is_mine);
        if known.closing || !wanted {
            return Ok(());
        }
        let mut child = boot(state, lab, node)?;
        let leader = wait_for_leader(&mut child);
        if let Ok(leader) = leader {
            change_node(state, node, start, |node| {
                node.leader = Some(leader);
                node.boots += 1;
            })?;
        }
        let status = child.wait().context("waiting for nspawn")?;
        change_node(state, node, start, |node| node.leader = None)?;
        leader?;
        if status.code() != Some(REBOOT_ASKED) {
            return Ok(());
        }
    }
}

/// Unless the node was started anew since: then it is another keeper's.
fn change_node(state: &StateFile, node: &str, start: u32, change: impl FnOnce(&mut NodeState)) -> Result<()> {
    state.update(|state| state.nodes.get_mut(node).filter(|node| node.starts == start).map(change)).map(drop)
}

fn boot(state: &StateFile, lab: &str, node: &str) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", ENTER_GROUPS, "sh"]);
    if !cgroup::machine_runs_systemd() {
        cgroup::remove(lab, Some(node))?;
        command.args(cgroup::create(lab, node)?);
    }
    command.arg("--").arg("systemd-nspawn").args(nspawn_arguments(state, lab, node));
    let image = state.load()?.nodes.get(node).map(|node| node.image).unwrap_or_default();
    let root = NodeFolders::new(state.folder(), node).root();
    let usr = root.join("usr");
    if image.usr() == Usr::Partitions {
        UsrPartitions::of(&root).mount(&prepare()?, &usr)?;
    }
    if image.usr() != Usr::Writable {
        command.arg(format!("--bind-ro={}:/usr", usr.display()));
    }
    // Where the machine has no firmware to speak of, its nodes have none either: sysfs takes no new names.
    if Path::new(PRODUCT_UUID).exists() {
        let own = NodeFolders::new(state.folder(), node).product_uuid()?;
        command.arg(format!("--bind-ro={}:{PRODUCT_UUID}", own.display()));
    }
    // Without this /proc/sys is read-only and the kubelet's container manager exits.
    command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1");
    let process = nspawn_process(node);
    state.record_process(&process, None)?;
    let child = spawn_logged(lab, None, &command, &log_path(state.folder(), &process))?;
    state.record_process(&process, ProcessId::observe(child.id()))?;
    Ok(child)
}

fn nspawn_arguments(state: &StateFile, lab: &str, node: &str) -> Vec<String> {
    let root = NodeFolders::new(state.folder(), node).root();
    let mut arguments = vec![
        "--quiet".to_owned(),
        "--boot".to_owned(),
        format!("--directory={}", root.display()),
        format!("--machine={}", machine_name(lab, node)),
        format!("--hostname={node}"),
        "--register=no".to_owned(),
        format!("--network-namespace-path={}", namespace_path(lab, node).display()),
        "--capability=all".to_owned(),
        "--bind=/dev/kmsg".to_owned(),
        "--system-call-filter=@known".to_owned(),
        "--console=pipe".to_owned(),
        "--resolv-conf=off".to_owned(),
        "--timezone=off".to_owned(),
        "--link-journal=no".to_owned(),
    ];
    if !cgroup::machine_runs_systemd() {
        arguments.push("--keep-unit".to_owned());
    }
    arguments
}

/// Unique on this machine, so that nspawn's own locks and folders do not collide between labs.
pub(crate) fn machine_name(lab: &str, node: &str) -> String {
    format!("{lab}.{node}")
}

/// The child of nspawn that is process 1 in a namespace of its own.
fn wait_for_leader(nspawn: &mut Child) -> Result<ProcessId> {
    wait_until("the first process of the node", LEADER_DEADLINE, || {
        if let Some(status) = nspawn.try_wait()? {
            return Err(Fatal(format!("nspawn ended with {status}")).into());
        }
        let leads = |pid: &u32| leads_namespace_below(*pid, nspawn.id());
        Ok(all_process_ids().into_iter().find(leads).and_then(ProcessId::observe))
    })
}

fn leads_namespace_below(pid: u32, parent: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let ids: Vec<&str> = field("NSpid:").unwrap_or_default().split_whitespace().collect();
    field("PPid:").is_some_and(|value| value.trim() == parent.to_string()) && ids.len() > 1 && ids.last() == Some(&"1")
}

/// The keeper as a background process, for a lab that outlives the command that started it.
pub(crate) fn spawn_process(state: &StateFile, lab: &str, node: &str, command: &Command) -> Result<()> {
    let name = format!("keeper-{node}");
    state.record_process(&name, None)?;
    let child = spawn_logged(lab, None, command, &log_path(state.folder(), &name))?;
    let Some(process) = ProcessId::observe(child.id()) else { bail!("the keeper of {node} ended at once") };
    state.record_process(&name, Some(process))?;
    reap_in_background(child);
    Ok(())
}
