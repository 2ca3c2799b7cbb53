//! What a node receives, typed to the end. A new field is a line here, one where it is decided (`render`) and one where it
//! is used (`node`): digest, document, strictness and comparison follow from the type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::{Content, Written};
use crate::document::harmless_reason;
use crate::extension::Extension;
use crate::follow::Follow;
use crate::idle::IdleUnit;
use crate::json::pretty;
use crate::names::{AbsolutePath, InvalidName, Secret, UnitName};
use crate::network::NetworkSettings;
use crate::package::Packages;
use crate::tree::{Downloads, Tree};
use crate::vocabulary::{Component, GateFact, Layout, Necessity, Os, Provider, Role, RuntimeName, Slot, SourceKind};

/// Where a delivery puts the bundle on the node.
pub const BUNDLE_PATH: &str = "/etc/nodestrap/bundle.json";

/// Where the units of a bundle lie, and where systemd keeps the links of enabled ones.
pub const UNIT_FOLDER: &str = "/etc/systemd/system";

/// The unit that runs `nodestrap apply`.
pub const BOOTSTRAP_UNIT: &str = "k8s-node-bootstrap.service";
/// Runs `nodestrap spend-credentials`. Pulled in by the kubelet's unit: what it waits for, only a kubelet can bring.
pub const SPENDING_UNIT: &str = "nodestrap-spend-credentials.service";
/// Runs `nodestrap clean-runtime-data` early in a boot, if there is something to clean.
pub const CLEAN_UP_UNIT: &str = "nodestrap-clean-runtime-data.service";
/// What there is to clean.
pub const CLEAN_UP_MARKER_PATH: &str = "/var/lib/nodestrap/clean-runtime-data.json";
/// Hands certificate authorities on to the system.
pub const TRUST_UNIT: &str = "nodestrap-trust.service";
/// Loads kernel modules and sets kernel parameters.
pub const KERNEL_UNIT: &str = "nodestrap-kernel.service";
/// The time clients of systems like Red Hat's, and of all others.
pub const TIME_UNITS: [&str; 2] = ["chronyd.service", "systemd-timesyncd.service"];
/// The variable of the gate that carries the kubelet's flags.
pub const ARGUMENTS_VARIABLE: &str = "KUBELET_ARGS";

/// Folders that the kubelet and the container runtime expect, besides those of the bundle's files.
pub const FOLDERS: [&str; 2] = ["/etc/cni/net.d", "/etc/kubernetes/manifests"];

/// How many pods a machine of a type may have, one type a line; eksctl's own file.
pub const MAX_PODS_MAP_PATH: &str = "/etc/eksctl/max_pods.map";

/// Where a node keeps the settings of its webhook, for runs that end before there is a bundle.
pub const WEBHOOK_SETTINGS_PATH: &str = "/etc/nodestrap/webhook.json";

/// What hooks say may be secret: the folder is for root alone, whatever the modes of the files.
pub const HOOK_OUTPUT_FOLDER: &str = "/run/nodestrap/hooks";
pub const HOOK_OUTPUT_FOLDER_MODE: u32 = 0o700;

/// Where systemd puts what the unit of a hook says, if it is of version 240 or later and the unit does not say otherwise.
pub fn hook_output_path(unit: &str) -> String {
    format!("{HOOK_OUTPUT_FOLDER}/{unit}.log")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bundle {
    pub cluster: String,
    pub group: String,
    pub kubernetes_version: String,
    pub node: NodeKind,
    /// Programs that the image must bring, checked before anything is changed.
    pub required_programs: Vec<AbsolutePath>,
    /// In the order in which they are started.
    pub units: Vec<Unit>,
    /// Sorted by name, none of them among [`Bundle::units`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_units: Vec<IdleUnit>,
    /// Sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    pub runtime: Runtime,
    /// Programs that the bootstrap brings. Sorted by component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<Tree>,
    /// Programs that the bootstrap brings in images. Sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
    /// Where there are trees, extensions or addons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downloads: Option<Downloads>,
    /// Programs that the package manager of the system brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Packages>,
    /// What the node finds out by itself before its gate opens. `None`: everything was decided when the bundle was rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
    pub gate: Gate,
    pub join: Join,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_network: Option<PodNetwork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<Snap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Sorted by path, no duplicates; see [`Bundle::all_files`].
    pub files: Vec<File>,
}

/// What a bundle was made for; a node compares it with what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeKind {
    pub role: Role,
    pub os: Os,
    pub provider: Provider,
    pub layout: Layout,
}

/// A file of the node, owned by root.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "WrittenFile")]
pub struct File {
    pub path: AbsolutePath,
    #[serde(with = "octal")]
    pub mode: u32,
    #[serde(skip_serializing_if = "Secrecy::is_public")]
    pub secrecy: Secrecy,
    #[serde(skip_serializing_if = "Readers::is_empty")]
    pub read_by: Readers,
    pub content: Content,
}

/// Who reads a file when it starts, and so has to start anew when the file changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Readers {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub units: BTreeSet<UnitName>,
    /// Static pods, by name. The kubelet starts one anew only when its manifest changes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pods: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Secrecy {
    #[default]
    Public,
    /// Mode 0600, never shown, never logged.
    Secret,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unit {
    pub name: UnitName,
    pub start: Start,
    /// What its file says, if the bundle brings it; that of the image is looked at on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought: Option<UnitNature>,
}

/// What the file of a unit says about its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitNature {
    /// It does something and is over: that it does not run any more says nothing.
    pub oneshot: bool,
    /// Its `[Install]` section says what shall start it at boot; without that there is nothing to enable.
    pub installable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// Enabled, started, and waited for, before the gate opens.
    BeforeGate,
    /// Enabled, and ordered after the bootstrap unit: its job is only queued, once the gate is open.
    AfterGate,
    /// Neither enabled nor started: another unit of the bundle pulls it in.
    ByOthers,
}

/// A unit of the user's that runs at a named point; its file is among the bundle's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    pub name: String,
    pub slot: Slot,
    pub unit: UnitName,
    pub timeout_seconds: u64,
    pub necessity: Necessity,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    pub name: RuntimeName,
    pub unit: UnitName,
    pub source: RuntimeSource,
}

/// Where the container runtime comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", from = "WrittenSource")]
pub enum RuntimeSource {
    Preinstalled,
    Torcx,
    /// Its programs are among [`Bundle::trees`].
    Tree,
    /// Among [`Bundle::packages`].
    Package,
    /// Its programs are in one of [`Bundle::extensions`].
    Sysext,
}

/// The file without which the kubelet does not start; written last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gate {
    pub path: AbsolutePath,
    pub environment: BTreeMap<String, String>,
    /// Variables that only the node can fill in. Sorted, none of them in the environment.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub facts: BTreeSet<GateFact>,
    /// How many pods, if somebody chose a number; without it the node looks its type up at [`MAX_PODS_MAP_PATH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<u32>,
}

/// What `status` needs to tell why a node has not joined; paths on the node, no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    pub api_server: String,
    pub bootstrap_kubeconfig: AbsolutePath,
    pub kubeconfig: AbsolutePath,
    /// The client certificate that the kubelet gets when it joins. Its kubeconfig names this file before it is there.
    pub client_certificate: AbsolutePath,
    pub kubelet_unit: UnitName,
    /// `None`: the host name, as the kubelet registers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A bridge on each node, which `nodestrap network` configures once the cluster has given the node its ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetwork {
    pub bridge: String,
    pub cni_config: AbsolutePath,
    /// The unit that runs `nodestrap network`.
    pub unit: UnitName,
}

/// A kubelet that is a snap of the image: what snapd is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snap {
    pub name: String,
    /// The command that people type, and the application (`SNAP.APP`) that it shall start.
    pub aliases: BTreeMap<String, String>,
    /// Flags of the kubelet. `${NAME}` is a variable of the gate, filled in on the node.
    pub settings: BTreeMap<String, String>,
}

/// Who is told how each run of nodestrap on a node ended. The address may be a secret, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    pub url: Secret,
    /// PEM; trusted beside what the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
}

impl Bundle {
    /// Every file of the node, sorted by path: those of the bundle, and those by which the node's own programs know its fields.
    pub fn all_files(&self) -> Vec<File> {
        let mut files = self.files.clone();
        files.extend(self.files_of_fields());
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }

    pub(crate) fn files_of_fields(&self) -> impl Iterator<Item = File> {
        let network = NetworkSettings::of(self).map(|settings| settings.to_file(self));
        network.into_iter().chain(self.webhook.as_ref().map(Webhook::to_file))
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().map(|index| &self.files[index])
    }

    /// Takes the credentials away with which a node joins, if they are the ones with this digest, a secret, and not what the
    /// kubelet goes on with. The digest of the bundle stays what it is. Whether there was anything to take away.
    pub fn spend(&mut self, sha256: &str) -> bool {
        let place = &self.join.bootstrap_kubeconfig;
        let is_kept = *place == self.join.kubeconfig;
        let given = self.files.iter_mut().find(|file| file.path == *place && file.is_secret() && !is_kept);
        let Some(file) = given.filter(|file| !file.content.is_spent() && file.sha256() == sha256) else { return false };
        file.content = Content::spent(file.content.sum());
        true
    }

    /// Whether the bootstrap brings it, in whichever way.
    pub fn brings(&self, component: Component) -> bool {
        self.trees.iter().any(|tree| tree.component == component)
            || self.extensions.iter().any(|extension| extension.name.brings(component))
            || self.packages.as_ref().is_some_and(|packages| packages.brings(component))
    }

    /// Whether the unit is the container runtime's, and comes with an addon of torcx: it is there after a boot, and the kubelet's unit
    /// starts it.
    pub fn is_brought_by_addon(&self, unit: &UnitName) -> bool {
        let has_addon = self.follow.as_ref().is_some_and(|follow| follow.addon.is_some());
        has_addon && self.runtime.source == RuntimeSource::Torcx && *unit == self.runtime.unit
    }

    /// The file of a unit, if the bundle brings it.
    pub fn unit_file(&self, unit: &UnitName) -> Option<&File> {
        self.file(&format!("{UNIT_FOLDER}/{unit}"))
    }
}

impl File {
    /// Mode 0644.
    pub fn public(path: AbsolutePath, content: impl Into<Content>) -> Self {
        let (secrecy, read_by) = (Secrecy::Public, Readers::default());
        Self { path, mode: 0o644, secrecy, read_by, content: content.into() }
    }

    pub fn secret(path: AbsolutePath, content: impl Into<Content>) -> Self {
        Self { mode: 0o600, secrecy: Secrecy::Secret, ..Self::public(path, content) }
    }

    /// Of a unit, or a drop-in of it (`UNIT.d/NAME.conf`), which that unit reads.
    pub fn of_unit(name: &str, content: impl Into<Content>) -> Result<Self, InvalidName> {
        let unit = name.split('/').next().unwrap_or_default();
        let unit = UnitName::new(unit.strip_suffix(".d").unwrap_or(unit))?;
        Ok(Self::public(AbsolutePath::new(format!("{UNIT_FOLDER}/{name}"))?, content).read_by([unit]))
    }

    pub fn read_by(mut self, units: impl IntoIterator<Item = UnitName>) -> Self {
        self.read_by.units.extend(units);
        self
    }

    pub fn is_secret(&self) -> bool {
        self.secrecy == Secrecy::Secret
    }

    /// Lower-case hexadecimal SHA-256 of the content.
    pub fn sha256(&self) -> &str {
        self.content.sha256()
    }

    /// The mode as people write it.
    pub fn octal_mode(&self) -> String {
        octal::text(self.mode)
    }
}

impl Readers {
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.pods.is_empty()
    }
}

impl Secrecy {
    pub(crate) fn is_public(&self) -> bool {
        *self == Self::Public
    }
}

impl RuntimeSource {
    pub fn kind(self) -> SourceKind {
        match self {
            Self::Preinstalled => SourceKind::Preinstalled,
            Self::Torcx => SourceKind::Torcx,
            Self::Tree => SourceKind::Tree,
            Self::Package => SourceKind::Package,
            Self::Sysext => SourceKind::Sysext,
        }
    }
}

impl Snap {
    /// Services of snaps have such names: `snap.SNAP.APP.service`.
    pub fn owns(&self, unit: &str) -> bool {
        let rest = unit.strip_prefix("snap.").and_then(|rest| rest.strip_prefix(&self.name));
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

impl Webhook {
    /// Reads the file at [`WEBHOOK_SETTINGS_PATH`]. Nothing of it is in an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes).map_err(|error| serde::de::Error::custom(harmless_reason(&error)))
    }

    fn to_file(&self) -> File {
        File::secret(AbsolutePath::known(WEBHOOK_SETTINGS_PATH), pretty(self))
    }
}

/// As it is read: with the bytes, and their proof.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenFile {
    path: AbsolutePath,
    #[serde(with = "octal")]
    mode: u32,
    #[serde(default)]
    secrecy: Secrecy,
    #[serde(default)]
    read_by: Readers,
    content: Written,
}

impl TryFrom<WrittenFile> for File {
    type Error = String;

    fn try_from(written: WrittenFile) -> Result<Self, String> {
        let WrittenFile { path, mode, secrecy, read_by, content } = written;
        let content = content.prove().map_err(|problem| format!("the file '{path}' {problem}"))?;
        if content.is_spent() && secrecy != Secrecy::Secret {
            return Err(format!("the file '{path}' is spent, but no secret"));
        }
        Ok(Self { path, mode, secrecy, read_by, content })
    }
}

/// As it is read: with braces also where there is no data, since serde would pass over whatever else stands there.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum WrittenSource {
    Preinstalled {},
    Torcx {},
    Tree {},
    Package {},
    Sysext {},
}

impl From<WrittenSource> for RuntimeSource {
    fn from(written: WrittenSource) -> Self {
        match written {
            WrittenSource::Preinstalled {} => Self::Preinstalled,
            WrittenSource::Torcx {} => Self::Torcx,
            WrittenSource::Tree {} => Self::Tree,
            WrittenSource::Package {} => Self::Package,
            WrittenSource::Sysext {} => Self::Sysext,
        }
    }
}

/// With the mode as people write it.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("mode", &format_args!("{:04o}", self.mode))
            .field("secrecy", &self.secrecy)
            .field("read_by", &self.read_by)
            .field("content", &self.content)
            .finish()
    }
}

/// Permission bits as four octal digits.
pub(crate) mod octal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn text(mode: u32) -> String {
        format!("{mode:04o}")
    }

    pub(crate) fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(*mode))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let written = String::deserialize(deserializer)?;
        let mode = u32::from_str_radix(&written, 8).ok().filter(|mode| *mode <= 0o777 && text(*mode) == written);
        mode.ok_or_else(|| D::Error::custom(format!("the mode '{written}' is not four octal digits up to '0777'")))
    }
}
