//! The layout of eksctl's node bootstrap: everything under `/etc/eksctl`, a drop-in for the kubelet of the image.
//!
//! What is known before a node boots lies in `metadata.env` and `kubelet.env`. What only the node knows lies in
//! `kubelet.local.env`, which is the gate: the drop-in reads it without a leading dash, so no kubelet starts before.

use std::collections::BTreeMap;

use bundle::{BOOTSTRAP_UNIT, Bundle, EKSCTL_GATE_PATH as GATE_PATH, Gate, GateFact, MAX_PODS_MAP_PATH, Snap, Start};
use spec::{
    CompleteContainerRuntime, CompleteGroup, CompleteNodeGroup, CompleteSpec, ConfigNode, KubeVersion, MaxPods, Origin,
    Os, Runtime, max_pods_map,
};

use super::{
    Decisions, arguments, assemble, command_line, credential_path, credential_program, environment_file,
    kubelet_kubeconfig,
};
use crate::error::RenderError;
use crate::gate_unit::{self, GATE_UNIT};
use crate::kubelet::{self, CONFIG_FLAG, KUBELET_UNIT, required_flag};
use crate::part::{Part, name, path, public, secret, unit, unit_file};
use crate::runtime;
use crate::unit::{Section, UnitFile, arguments as literal};

/// Misspelt, but this is its name: whoever looks for eksctl's drop-in looks here.
const DROP_IN: &str = "kubelet.service.d/10-eksclt.al2.conf";
const METADATA_PATH: &str = "/etc/eksctl/metadata.env";
const KUBELET_ENV_PATH: &str = "/etc/eksctl/kubelet.env";
const AUTHORITY_PATH: &str = "/etc/eksctl/ca.crt";

/// What the node finds out from its metadata service; the number of pods from the map, unless somebody chose one.
const FACTS: [GateFact; 4] = [GateFact::InstanceId, GateFact::InstanceType, GateFact::MaxPods, GateFact::NodeIp];

const SNAP: &str = "kubelet-eks";
const SNAP_UNIT: &str = "snap.kubelet-eks.daemon.service";
/// Starts the snap's kubelet when the gate appears, even if whoever opened it died right after that.
const GATE_WATCH_UNIT: &str = "nodestrap-kubelet-gate.path";

/// The order of eksctl's drop-in; other flags follow by name.
const ORDER: [&str; 13] = [
    "node-ip",
    "node-labels",
    "max-pods",
    "register-node",
    "register-with-taints",
    "cloud-provider",
    "container-runtime",
    "network-plugin",
    "cni-bin-dir",
    "cni-conf-dir",
    "pod-infra-container-image",
    "kubeconfig",
    "config",
];

/// The kubelet lost its Docker client, and with it everything about CNI: from here on that is the runtime's business.
const FIRST_WITHOUT_DOCKER: KubeVersion = KubeVersion { major: 1, minor: 24, patch: 0 };
/// The runtime keeps its pause image by itself; the kubelet does not even know the flag any more.
const FIRST_WITHOUT_PAUSE_IMAGE: KubeVersion = KubeVersion { major: 1, minor: 35, patch: 0 };
const CNI_CONFIGURATION: &str = "/etc/cni/net.d";

pub(crate) fn render(spec: &CompleteSpec, node_group: &CompleteNodeGroup) -> Result<Bundle, RenderError> {
    let group = &node_group.spec;
    let authority = spec.cluster.join.certificate_authority.value.as_str();
    let (metadata, environment) = (metadata(spec)?, kubelet_environment(group));
    let kubelet_unit = match group.os.value {
        Os::Ubuntu => SNAP_UNIT,
        _ => KUBELET_UNIT,
    };
    let read_by_kubelet = [name(kubelet_unit)?];
    let mut files = vec![
        public(required_flag(group, CONFIG_FLAG)?, kubelet::render_config(&group.kubelet.config))?,
        secret(credential_path(group)?, kubelet_kubeconfig(spec, group)?)?,
        public(AUTHORITY_PATH, authority)?,
        public(METADATA_PATH, environment_file(pairs(&metadata)))?.read_by(read_by_kubelet.clone()),
        public(KUBELET_ENV_PATH, environment_file(pairs(&environment)))?.read_by(read_by_kubelet),
        public(MAX_PODS_MAP_PATH, max_pods_map())?,
    ];
    let flags = flags(group)?;
    let mut programs: Vec<_> = credential_program(spec)?.into_iter().collect();
    files.push(unit_file(&format!("{BOOTSTRAP_UNIT}.d/10-gate.conf"), bootstrap_condition()?)?);
    let mut units = Vec::new();
    let mut known_snap = None;
    let guard = match group.os.value {
        Os::Ubuntu => {
            known_snap = Some(snap(&flags, metadata.iter().chain(&environment)));
            files.push(unit_file(GATE_WATCH_UNIT, gate_watch()?)?);
            units.push(unit(GATE_WATCH_UNIT, Start::BeforeGate)?);
            Guard::SkipWithoutGate
        }
        _ => {
            files.push(unit_file(DROP_IN, drop_in(group, &flags)?)?);
            programs.insert(0, group.kubelet.binary.value.clone());
            Guard::FailWithoutGate
        }
    };
    files.push(unit_file(&format!("{kubelet_unit}.d/20-nodestrap-gate.conf"), gate_check(group, guard)?)?);
    units.push(unit(kubelet_unit, Start::AfterGate)?);
    let mut kubelet = Part { files, units, ..Part::default() };
    kubelet.add(gate_unit::render(kubelet_unit, group.delivery.nodestrap.path.value.as_str(), GATE_PATH)?);
    let decisions = Decisions {
        kubelet_unit,
        proxied_units: vec![kubelet_unit],
        kubelet,
        programs,
        gate: Gate {
            path: path(GATE_PATH)?,
            environment: BTreeMap::new(),
            facts: FACTS.into(),
            max_pods: chosen_max_pods(group).and_then(|number| number.parse().ok()),
        },
        follow: None,
        downloads: None,
        pod_network: None,
        snap: known_snap,
    };
    assemble(spec, node_group, decisions)
}

/// Variables of an environment file, in their order.
type Variables = Vec<(&'static str, String)>;

fn pairs(variables: &Variables) -> impl Iterator<Item = (&str, &str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str()))
}

/// Known of all nodes of the group.
fn metadata(spec: &CompleteSpec) -> Result<Variables, RenderError> {
    let cluster = &spec.cluster;
    let region = cluster.region.as_ref().ok_or(RenderError::NoRegion)?;
    // `into` reads the settings whether or not the spec has them in other layouts.
    let settings: Option<&spec::CompleteEksctl> = (&cluster.eksctl).into();
    let settings = settings.ok_or(RenderError::NoLayoutSettings { layout: "eksctl" })?;
    Ok(vec![
        ("AWS_DEFAULT_REGION", region.value.to_string()),
        ("AWS_EKS_CLUSTER_NAME", spec.name.value.to_string()),
        ("AWS_EKS_ENDPOINT", cluster.api_server.value.to_string()),
        ("AWS_EKS_ECR_ACCOUNT", settings.ecr_account.value.to_string()),
    ])
}

/// For flags that `kubelet.yaml` cannot say, or could not in eksctl's time.
fn kubelet_environment(group: &CompleteGroup) -> Variables {
    let labels: Vec<String> = group.labels.value.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let taints: Vec<String> =
        group.taints.value.0.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect)).collect();
    let mut variables = vec![("NODE_LABELS", labels.join(",")), ("NODE_TAINTS", taints.join(","))];
    variables.extend(chosen_max_pods(group).map(|number| (GateFact::MaxPods.as_str(), number)));
    variables
}

/// A number that differs from what the node would look up, or that somebody chose: the flag beats `kubelet.yaml`, so
/// whatever stands there must reach the flag too.
fn chosen_max_pods(group: &CompleteGroup) -> Option<String> {
    let Some(ConfigNode::Leaf(setting)) = group.kubelet.config.get("maxPods") else { return None };
    let number = setting.value.to_string();
    let looked_up = group.machines.instance_type.as_ref().and_then(|machine| {
        let map = max_pods_map();
        let pods = map.lines().find_map(|line| line.strip_prefix(machine.value.as_str())?.strip_prefix(' '));
        pods.map(str::to_owned)
    });
    let follows_from_map = group.max_pods.value == MaxPods::Map && looked_up.as_ref() == Some(&number);
    (!follows_from_map).then_some(number)
}

/// Names and values; `${NAME}` in a value is a variable of the environment files, and there is no other `$`.
fn flags(group: &CompleteGroup) -> Result<Vec<(String, String)>, RenderError> {
    let version = group.kubernetes_version.value;
    let own_runtime = &group.container_runtime;
    let docker = own_runtime.name.value == Runtime::Docker;
    let mut flags = BTreeMap::from(
        [
            ("node-ip", "${NODE_IP}"),
            ("node-labels", node_labels(group)),
            ("max-pods", "${MAX_PODS}"),
            ("register-node", "true"),
            ("register-with-taints", "${NODE_TAINTS}"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let mut set = |name: &str, value: &str| flags.insert(name.to_owned(), value.to_owned());
    if version < FIRST_WITHOUT_DOCKER {
        if docker {
            set("container-runtime", "docker");
            set("network-plugin", "cni");
            set("cni-bin-dir", own_runtime.cni_binaries.value.as_str());
            set("cni-conf-dir", CNI_CONFIGURATION);
        } else {
            set("container-runtime", "remote");
            set("container-runtime-endpoint", runtime_endpoint(own_runtime.name.value));
        }
    }
    if version < FIRST_WITHOUT_PAUSE_IMAGE {
        set("pod-infra-container-image", pause_image(own_runtime));
    }
    // The spec's own, the user's among them, come last and win.
    for argument in arguments(group)? {
        let bare = argument.trim_start_matches('-');
        let (name, value) = bare.split_once('=').unwrap_or((bare, ""));
        flags.insert(name.to_owned(), value.to_owned());
    }
    let mut ordered: Vec<(String, String)> = flags.into_iter().collect();
    // Stable: what has no place in the order stays sorted by name.
    ordered.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    Ok(ordered)
}

/// Without labels of the user's the list must not begin with a comma.
fn node_labels(group: &CompleteGroup) -> &'static str {
    match group.labels.value.0.is_empty() {
        true => "alpha.eksctl.io/instance-id=${INSTANCE_ID}",
        false => "${NODE_LABELS},alpha.eksctl.io/instance-id=${INSTANCE_ID}",
    }
}

/// With docker the kubelet itself pulls it, by the role of the node, so EKS' own registry will do; other runtimes pull
/// it without credentials, and their configuration names the same image.
fn pause_image(runtime: &CompleteContainerRuntime) -> &str {
    match (runtime.name.value, &runtime.sandbox_image.origin) {
        (Runtime::Docker, Origin::Default { .. } | Origin::Derived { .. }) => {
            "${AWS_EKS_ECR_ACCOUNT}.dkr.ecr.${AWS_DEFAULT_REGION}.amazonaws.com/eks/pause-amd64:3.1"
        }
        _ => runtime.sandbox_image.value.as_str(),
    }
}

fn runtime_endpoint(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::CriO => "unix:///var/run/crio/crio.sock",
        Runtime::Containerd | Runtime::Docker => "unix:///run/containerd/containerd.sock",
    }
}

/// For the `kubelet.service` of the image.
fn drop_in(group: &CompleteGroup, flags: &[(String, String)]) -> Result<Vec<u8>, RenderError> {
    let words: Vec<String> = flags.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let command = command_line("ExecStart", group.kubelet.binary.value.as_str(), words.iter().map(String::as_str))?;
    UnitFile::new(vec![
        // The unit of the image knows neither.
        Section::new("Unit").words("After", &[runtime::unit_name(group.container_runtime.name.value), BOOTSTRAP_UNIT]),
        Section::new("Service")
            .text("EnvironmentFile", METADATA_PATH)
            .text("EnvironmentFile", KUBELET_ENV_PATH)
            // Last, so that its MAX_PODS wins; no leading dash, because it is the gate.
            .text("EnvironmentFile", GATE_PATH)
            // A service has one command: where the unit of the image has its own, a second one would make systemd
            // refuse the whole unit, so the list is emptied first. Where it has none, this line changes nothing.
            .text("ExecStart", "")
            .text("ExecStart", command),
    ])
    .render()
}

/// The shipped bootstrap unit is skipped once the gate of the layout nodestrap is there; here it is another file.
fn bootstrap_condition() -> Result<Vec<u8>, RenderError> {
    UnitFile::new(vec![Section::new("Unit").text("ConditionPathExists", format!("!{GATE_PATH}"))]).render()
}

/// What a kubelet does that is started while the gate is shut.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    /// It fails, for want of the environment file in eksctl's own drop-in, and is started again until it may.
    FailWithoutGate,
    /// It stays down, and that counts as success: settings of a snap are undone if a start that they cause fails.
    SkipWithoutGate,
}

/// Apart from eksctl's drop-in, which stays as it is. A damaged gate is taken away and counts as absent; whoever starts
/// the kubelet then starts the bootstrap too.
fn gate_check(group: &CompleteGroup, guard: Guard) -> Result<Vec<u8>, RenderError> {
    let mut unit = Section::new("Unit").words("Wants", &[BOOTSTRAP_UNIT, GATE_UNIT]).words("After", &[GATE_UNIT]);
    if guard == Guard::SkipWithoutGate {
        unit = unit.text("ConditionPathExists", GATE_PATH);
    }
    let nodestrap = group.delivery.nodestrap.path.value.as_str();
    let check = literal(["gate", "--path", GATE_PATH]);
    UnitFile::new(vec![unit, Section::new("Service").command("ExecStartPre", nodestrap, check)]).render()
}

/// Not `PathExists`, which would start a kubelet anew that somebody stopped.
fn gate_watch() -> Result<Vec<u8>, RenderError> {
    UnitFile::new(vec![
        Section::new("Unit").text("Description", "Start the kubelet when its gate opens"),
        Section::new("Path").text("PathChanged", GATE_PATH).text("Unit", SNAP_UNIT),
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}

/// What the node asks of snapd, whose kubelet takes neither a drop-in with flags nor environment files. What only the node
/// knows stays a variable.
fn snap<'v>(flags: &[(String, String)], known: impl Iterator<Item = &'v (&'static str, String)>) -> Snap {
    let known: Vec<_> = known.filter(|(name, _)| FACTS.iter().all(|fact| fact.as_str() != *name)).collect();
    let fill = |text: &String| {
        known.iter().fold(text.clone(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    };
    let alias = |command: &str, app: &str| (command.to_owned(), app.to_owned());
    Snap {
        name: SNAP.to_owned(),
        aliases: [alias("kubelet", "kubelet-eks.kubelet"), alias("kubectl", "kubectl-eks.kubectl")].into(),
        settings: flags.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
    }
}
