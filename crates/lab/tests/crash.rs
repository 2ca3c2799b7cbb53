//! The owner of a lab is killed, at several moments of the lab's life; afterwards nothing of the lab is left.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::{ProcessId, State, wait_until};

/// Much longer than a start takes: reaching it means that the start failed.
const START: Duration = Duration::from_secs(180);

/// What one can see of a lab without asking the lab crate's own teardown.
struct Traces {
    processes: Vec<ProcessId>,
    name: String,
}

impl Traces {
    fn collect(name: &str) -> Self {
        let mut processes: Vec<ProcessId> = groups_of(name).iter().flat_map(|group| processes_below(group)).collect();
        processes.extend(State::load(name).expect("state").processes.into_values().flatten());
        Self { processes, name: name.to_owned() }
    }

    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.processes.iter().filter(|p| p.is_alive()).map(|p| format!("{p:?}")).collect();
        let folder = lab::state_root().join(&self.name);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        left.extend(mounts.lines().filter(|line| line.contains(&folder.display().to_string())).map(Into::into));
        let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = namespaces.map(|entry| entry.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| name.contains(&format!(".{}.", self.name))));
        left.extend(groups_of(&self.name).iter().map(|group| group.display().to_string()));
        let propagate = Path::new("/run/systemd/nspawn/propagate").join(format!("{}.n1", self.name));
        left.extend([folder, propagate].iter().filter(|path| path.exists()).map(|path| path.display().to_string()));
        left
    }
}

fn groups_of(name: &str) -> Vec<PathBuf> {
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten();
    let groups = hierarchies.map(|entry| entry.path().join("nodestrap-lab").join(name));
    groups.filter(|group| group.exists()).collect()
}

fn processes_below(group: &Path) -> Vec<ProcessId> {
    let listed = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<ProcessId> = listed.lines().filter_map(|pid| ProcessId::observe(pid.parse().ok()?)).collect();
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(processes_below(&entry.path()));
        }
    }
    found
}

/// Starts an owner, kills it as soon as its lab is in the given state, cleans up, and looks for what is left.
fn kill_owner_when(moment: &str, has_come: impl Fn(&State) -> bool) {
    let name = format!("crash{}-{moment}", std::process::id() % 10_000);
    let mut owner = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["--name", &name, "hold", "n1"])
        .stdin(Stdio::null())
        .spawn()
        .expect("owner");
    wait_until(&format!("the moment '{moment}'"), START, || Ok(has_come(&State::load(&name)?).then_some(())))
        .expect("the lab starts");
    owner.kill().expect("kill the owner");
    owner.wait().expect("the owner is dead");
    let traces = Traces::collect(&name);
    assert!(!traces.left().is_empty(), "{moment}: there was nothing to clean up, so this proves nothing");
    lab::reap_abandoned().expect("cleaning up after a dead owner");
    assert_eq!(traces.left(), Vec::<String>::new(), "{moment}: left behind");
}

#[test]
fn nothing_is_left_of_a_lab_whose_owner_was_killed() {
    if !lab::require() {
        return;
    }
    kill_owner_when("claimed", |_| true);
    kill_owner_when("etcd", |state| state.processes.contains_key("etcd"));
    kill_owner_when("node", |state| state.nodes.contains_key("n1"));
    kill_owner_when("booting", |state| state.processes.contains_key("node-n1"));
    kill_owner_when("running", |state| state.nodes.get("n1").is_some_and(|node| node.leader.is_some()));
}
