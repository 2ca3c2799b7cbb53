//! What can be seen of a booted node: the files that nodestrap may change, and the units of its bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use bundle::Bundle;
use lab::Node;

use crate::support::GATE;

/// Where every file is looked at; nodestrap writes nowhere else but into what it remembers.
const FOLDERS: [&str; 2] = ["etc", "usr/local"];

/// What is in the gate only of this machine: its name for itself, and the seal over that.
const GATE_OF_THE_MACHINE: [&str; 2] = ["NODESTRAP_MACHINE=", "NODESTRAP_GATE="];

/// Of these two nodes differ in what is inside, and must not in mode and owner.
const CONTENT_OF_THE_NODE: [&str; 6] = [
    // The lab gives each node a name, an address and an id.
    "/etc/hostname",
    "/etc/hosts",
    "/etc/machine-id",
    // cloud-init writes down when it made them.
    "/etc/sudoers",
    "/etc/sudoers.d/90-cloud-init-users",
    // The range of the node's pods is in it.
    "/etc/cni/net.d/10-nodestrap.conflist",
];

/// Asked of systemd for each unit. `UnitFileState` is what `is-enabled` says, `ActiveState` what `is-active` says.
const PROPERTIES: [&str; 6] =
    ["LoadState", "UnitFileState", "ActiveState", "SubState", "NeedDaemonReload", "FragmentPath"];

/// A file, a link or a folder.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Folder,
    File(Vec<u8>),
    Link(String),
}

/// By path, as the node has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    pub(crate) fn of(machine: &Node) -> Result<Self> {
        Self::below(&machine.root())
    }

    fn below(root: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for folder in FOLDERS {
            walk(root, folder, &mut entries)?;
        }
        Ok(Self(entries))
    }

    /// Without what is of this node and no other.
    pub(crate) fn comparable(mut self) -> Self {
        for path in CONTENT_OF_THE_NODE {
            if let Some(Entry { content: Content::File(content), .. }) = self.0.get_mut(path) {
                content.clear();
            }
        }
        if let Some(Entry { content: Content::File(content), .. }) = self.0.get_mut(GATE) {
            let text = String::from_utf8_lossy(content).into_owned();
            let is_shared = |line: &&str| !GATE_OF_THE_MACHINE.iter().any(|name| line.starts_with(name));
            *content = text.lines().filter(is_shared).collect::<Vec<_>>().join("\n").into_bytes();
        }
        self
    }

    /// Without a folder and all that is in it.
    pub(crate) fn without(mut self, folder: &str) -> Self {
        self.0.retain(|path, _| !Path::new(path).starts_with(folder));
        self
    }

    pub(crate) fn differences(&self, found: &Self) -> Vec<String> {
        differences(&self.0, &found.0, |entry| format!("{entry}"))
    }
}

fn walk(root: &Path, relative: &str, entries: &mut BTreeMap<String, Entry>) -> Result<()> {
    let path = root.join(relative);
    // A file that is written right now may come and go.
    let Ok(found) = std::fs::symlink_metadata(&path) else { return Ok(()) };
    let content = match found.file_type() {
        kind if kind.is_dir() => Content::Folder,
        kind if kind.is_symlink() => Content::Link(std::fs::read_link(&path)?.display().to_string()),
        _ => Content::File(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?),
    };
    let is_folder = content == Content::Folder;
    let entry = Entry { mode: found.mode() & 0o7777, owner: (found.uid(), found.gid()), content };
    entries.insert(format!("/{relative}"), entry);
    if is_folder {
        for child in std::fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
            let name = child?.file_name();
            walk(root, &format!("{relative}/{}", name.to_string_lossy()), entries)?;
        }
    }
    Ok(())
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mode, owner: (user, group), content } = self;
        write!(f, "{mode:04o} {user}:{group} ")?;
        match content {
            Content::Folder => f.write_str("a folder"),
            Content::Link(target) => write!(f, "a link to {target}"),
            Content::File(bytes) => write!(f, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(600)])),
        }
    }
}

fn differences<V: PartialEq>(
    expected: &BTreeMap<String, V>,
    found: &BTreeMap<String, V>,
    show: impl Fn(&V) -> String,
) -> Vec<String> {
    let show = |value: Option<&V>| value.map_or_else(|| "nothing".to_owned(), &show);
    let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differing = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key));
    let line = |key: &String| format!("{key}: expected {}, found {}", show(expected.get(key)), show(found.get(key)));
    differing.map(line).collect()
}

/// The units of these bundles, those of hooks included.
pub(crate) fn units_of(bundles: &[&Bundle]) -> BTreeSet<String> {
    let units = bundles.iter().flat_map(|bundle| bundle.units.iter().map(|unit| unit.name.to_string()));
    let hooks = bundles.iter().flat_map(|bundle| bundle.hooks.iter().map(|hook| hook.unit.to_string()));
    units.chain(hooks).collect()
}

/// What systemd says of units, by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnitStates(BTreeMap<String, Shown>);

/// Properties with their values.
type Shown = BTreeMap<String, String>;

impl UnitStates {
    pub(crate) fn of(machine: &Node, units: &BTreeSet<String>) -> Result<Self> {
        Ok(Self(show(machine, &PROPERTIES, units)?))
    }

    /// Whether nothing of this is about to change.
    pub(crate) fn are_settled(&self) -> bool {
        let passing = ["activating", "deactivating", "reloading"];
        let is_at_work = |(name, unit): (&String, &Shown)| {
            // They run until the node has its range, and its own certificate.
            let followers = ["nodestrap-network.service", "nodestrap-spend-credentials.service"];
            let is_waiting = followers.contains(&name.as_str()) && unit["SubState"] == "running";
            is_waiting || passing.contains(&unit["ActiveState"].as_str())
        };
        !self.0.iter().any(is_at_work)
    }

    pub(crate) fn differences(&self, found: &Self) -> Vec<String> {
        differences(&self.0, &found.0, |unit| format!("{unit:?}"))
    }
}

/// Which run of each unit this is; a unit that does not run is not among them.
pub(crate) fn invocations(machine: &Node, units: &BTreeSet<String>) -> Result<BTreeMap<String, String>> {
    let shown = show(machine, &["ActiveState", "InvocationID"], units)?;
    let running = shown.into_iter().filter(|(_, unit)| unit["ActiveState"] == "active");
    Ok(running.map(|(name, mut unit)| (name, unit.remove("InvocationID").unwrap_or_default())).collect())
}

/// Every service that the node knows.
pub(crate) fn all_services(machine: &Node) -> Result<BTreeSet<String>> {
    let listed = machine.run(&["systemctl", "list-units", "--type=service", "--plain", "--no-legend"])?;
    Ok(listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn show(machine: &Node, properties: &[&str], units: &BTreeSet<String>) -> Result<BTreeMap<String, Shown>> {
    let wanted = format!("--property={}", properties.join(","));
    let mut command = vec!["systemctl", "show", &wanted, "--"];
    command.extend(units.iter().map(String::as_str));
    let shown = machine.run(&command)?;
    // One block for each unit, in the order in which they were asked for.
    let blocks = shown.trim_end().split("\n\n").map(|block| {
        block.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    let by_name: BTreeMap<_, BTreeMap<_, _>> =
        units.iter().cloned().zip(blocks.map(|block| block.collect::<BTreeMap<_, _>>())).collect();
    anyhow::ensure!(by_name.values().all(|unit| unit.len() == properties.len()), "systemctl show said:\n{shown}");
    Ok(by_name)
}

/// A comparison that does not see what is left behind is worth nothing.
#[test]
fn what_an_earlier_bundle_left_would_be_seen() {
    let roots = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    for (root, machine) in roots.iter().zip(["one", "two"]) {
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("etc/hostname", machine);
        write("etc/kubernetes/kubelet.env", &format!("A=b\nNODESTRAP_MACHINE={machine}\nNODESTRAP_GATE={machine}\n"));
        write("etc/same", "same");
        write("usr/local/bin/same", "same");
    }
    let [one, two] = roots.each_ref().map(tempfile::TempDir::path);
    let seen = || [one, two].map(|root| Tree::below(root).expect("readable").comparable());
    let [before, after] = seen();
    assert_eq!(before.differences(&after), Vec::<String>::new());

    std::fs::write(two.join("etc/kubernetes/kubelet.env"), "A=c\n").expect("written");
    std::fs::set_permissions(two.join("etc/same"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    std::os::unix::fs::symlink("nowhere", two.join("etc/link")).expect("linked");
    std::fs::create_dir(two.join("usr/local/empty")).expect("made");
    std::fs::remove_file(two.join("usr/local/bin/same")).expect("removed");
    let [before, after] = seen();
    let wrong = before.differences(&after);
    let paths: Vec<&str> = wrong.iter().filter_map(|line| line.split(": ").next()).collect();
    let expected = ["/etc/kubernetes/kubelet.env", "/etc/link", "/etc/same", "/usr/local/bin/same", "/usr/local/empty"];
    assert_eq!(paths, expected, "{wrong:#?}");
}
