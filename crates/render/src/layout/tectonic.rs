//! The layout of Tectonic on Container Linux: the kubelet in its wrapper, the container runtime as an addon of torcx, bootkube.
//!
//! `kubelet.env` is the gate, and names the image that the wrapper runs. Its tag follows the release of the cluster, which each node
//! asks for it; for a cluster that is not up yet, what it would say lies under `/etc/kubernetes/installer`. Of releases of Tectonic's
//! time the kubelet gets flags alone and runs containers by docker; since 1.24 it is that of the layout nodestrap, with containerd.

use bundle::torcx::{KUBELET_ENV_SEED_PATH, KUBERNETES_COMPONENT, MAPPINGS_KIND, MAPPINGS_SEED_PATH};
use bundle::{BOOTSTRAP_UNIT, Bundle, GATE_PATH, Gate, GateFact, IdleUnit, Idleness, Start};
use serde_json::{Map, Value, json};
use spec::{
    CompleteCluster, CompleteGroup, CompleteNodeGroup, CompleteSpec, CompleteTectonic, KubeconfigSource, PodNetwork,
    Role, render_yaml,
};

use super::{
    Decisions, arguments, assemble, credential_path, credential_program, environment_file, kubelet_kubeconfig,
};
use crate::clean_up::{self, CalledBy};
use crate::error::RenderError;
use crate::follow::{self, ADDON};
use crate::gate_unit::{self, GATE_UNIT};
use crate::kubelet::{self, CONFIG_FLAG, KUBELET_UNIT, KubeletUnit, required_flag};
use crate::network::NETWORK_UNIT;
use crate::part::{Part, name, path, public, secret, unit, unit_file};
use crate::unit::{Argument, Failure, Section, UnitFile, arguments as literal};
use crate::{node, runtime, static_pods};

const AUTHORITY_PATH: &str = "/etc/kubernetes/ca.crt";
const LOCKSMITH_UNIT: &str = "locksmithd.service";

/// Where rkt notes which pod the kubelet is, so that the next start removes it.
const POD_UUID: &str = "--uuid-file=/var/cache/kubelet-pod.uuid";

/// What a kubelet expects to be there, besides what the wrapper mounts.
const FOLDERS: [&str; 6] = [
    "/etc/kubernetes/manifests",
    "/srv/kubernetes/manifests",
    "/etc/kubernetes/checkpoint-secrets",
    "/etc/kubernetes/cni/net.d",
    "/var/lib/cni",
    "/var/lib/kubelet/pki",
];

/// One of the two stages that bring up a cluster, each on one master and once.
struct Stage {
    name: &'static str,
    description: &'static str,
    script: &'static str,
    done: &'static str,
    /// What it waits for, and whether it must have succeeded.
    after: &'static str,
    dependency: &'static str,
}

const STAGES: [Stage; 2] = [
    Stage {
        name: "bootkube",
        description: "Bring up the control plane of a Kubernetes cluster",
        script: "/opt/tectonic/bootkube.sh",
        done: "/opt/tectonic/init_bootkube.done",
        after: KUBELET_UNIT,
        dependency: "Wants",
    },
    Stage {
        name: "tectonic",
        description: "Bring up Tectonic on a Kubernetes cluster",
        script: "/opt/tectonic/tectonic-rkt.sh",
        done: "/opt/tectonic/init_tectonic.done",
        after: "bootkube.service",
        dependency: "Requires",
    },
];

pub(crate) fn render(spec: &CompleteSpec, node_group: &CompleteNodeGroup) -> Result<Bundle, RenderError> {
    let (cluster, group) = (&spec.cluster, &node_group.spec);
    // `into` reads the settings whether or not the spec has them in other layouts.
    let settings: Option<&CompleteTectonic> = (&cluster.tectonic).into();
    let settings = settings.ok_or(RenderError::NoLayoutSettings { layout: "tectonic" })?;
    let stages: &[Stage] = match (group.role.value, settings.bootkube.value) {
        (Role::ControlPlane, true) => &STAGES,
        _ => &[],
    };
    let image = image_variables(settings)?;
    let nodestrap = group.delivery.nodestrap.path.value.as_str();
    let follow = follow::render_follow(cluster, group, settings, credential_path(group)?)?;
    let mut part = Part {
        files: vec![
            // The kubelet's unit took it out of the kubeconfig with a shell; here it is simply there.
            public(AUTHORITY_PATH, cluster.join.certificate_authority.value.as_str())?,
            public(KUBELET_ENV_SEED_PATH, environment_file(image))?,
        ],
        ..Part::default()
    };
    if settings.kubeconfig.value == KubeconfigSource::Rendered {
        part.files.push(secret(credential_path(group)?, kubelet_kubeconfig(spec, group)?)?);
    }
    if !settings.runtime_mappings.value.is_empty() {
        part.files.push(public(MAPPINGS_SEED_PATH, runtime_mappings(settings))?);
    }
    let mut programs = vec![group.kubelet.binary.value.clone()];
    programs.extend(credential_program(spec)?);
    let mut pod_network = None;
    if cluster.is_of_tectonics_time() {
        part.files.push(unit_file(KUBELET_UNIT, kubelet_unit_of_its_time(group)?)?);
        part.units.push(unit(KUBELET_UNIT, Start::AfterGate)?);
    } else {
        part.add(kubelet_of_today(cluster, group)?);
        pod_network = node::pod_network(cluster, group, &mut part)?;
        programs.extend(node::network_plugins(cluster, group)?);
    }
    part.add(gate_unit::render(KUBELET_UNIT, nodestrap, GATE_PATH)?);
    if follow.addon.as_ref().is_some_and(|addon| addon.data_folder.is_some()) {
        part.add(clean_up::render(nodestrap, CalledBy::Path)?);
    }
    if !group.units.value.iter().any(|unit| unit.name == LOCKSMITH_UNIT) {
        // Nodes of a cluster reboot one by one, by whoever coordinates them, and never by locksmith's own decision.
        part.idle_units.push(IdleUnit { name: name(LOCKSMITH_UNIT)?, idleness: Idleness::Masked });
    }
    for stage in stages {
        part.add(stage.render()?);
    }
    let [url, _] = image.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let decisions = Decisions {
        kubelet_unit: KUBELET_UNIT,
        // What asks the cluster and downloads is told of the proxy by its bundle.
        proxied_units: vec![KUBELET_UNIT],
        kubelet: part,
        programs,
        gate: Gate {
            path: path(GATE_PATH)?,
            environment: [url].into(),
            facts: [GateFact::KubeletImageTag].into(),
            max_pods: None,
        },
        downloads: follow::render_downloads(cluster, group, settings)?,
        follow: Some(follow),
        pod_network,
        snap: None,
    };
    assemble(spec, node_group, decisions)
}

/// That of nodestrap's own layout, in its wrapper.
fn kubelet_of_today(cluster: &CompleteCluster, group: &CompleteGroup) -> Result<Part, RenderError> {
    let flags = arguments(group)?;
    let kubelet = KubeletUnit {
        binary: group.kubelet.binary.value.as_str(),
        // What the gate says belongs to the wrapper.
        arguments: texts(&flags),
        nodestrap: group.delivery.nodestrap.path.value.as_str(),
        runtime_unit: runtime::unit_name(group.container_runtime.name.value),
        followers: match cluster.networking.pod_network.value {
            PodNetwork::Bridge => vec![NETWORK_UNIT],
            PodNetwork::None => Vec::new(),
        },
    };
    let mut files = vec![
        public(required_flag(group, CONFIG_FLAG)?, kubelet::render_config(&group.kubelet.config))?,
        unit_file(KUBELET_UNIT, kubelet::render_unit(kubelet)?)?,
    ];
    files.extend(static_pods::render_kube_proxy(cluster, group)?);
    Ok(Part { files, units: vec![unit(KUBELET_UNIT, Start::AfterGate)?], ..Part::default() })
}

/// What the wrapper runs. Readers of that time strip the quotes and undo nothing else.
fn image_variables(settings: &CompleteTectonic) -> Result<[(&'static str, &str); 2], RenderError> {
    let variables = [
        ("KUBELET_IMAGE_URL", settings.kubelet_image.value.as_str()),
        ("KUBELET_IMAGE_TAG", settings.kubelet_image_tag.value.as_str()),
    ];
    match variables.iter().find(|(_, value)| value.contains(['"', '\\', '`', '$', ' '])) {
        Some((name, value)) => Err(RenderError::ImageVariable { name, value: (*value).to_owned() }),
        None => Ok(variables),
    }
}

/// Releases are texts and stay so: unquoted, `1.10` would be the number 1.1 to most readers.
fn runtime_mappings(settings: &CompleteTectonic) -> String {
    let mut releases = Map::new();
    for (minor, versions) in &settings.runtime_mappings.value {
        let versions: Vec<&str> = versions.iter().map(|version| version.as_str()).collect();
        releases.insert(minor.to_string(), json!({ ADDON: versions }));
    }
    let mut document = Map::new();
    document.insert("kind".to_owned(), json!(MAPPINGS_KIND));
    document.insert("versions".to_owned(), json!({ KUBERNETES_COMPONENT: Value::Object(releases) }));
    render_yaml(&document)
}

fn texts(arguments: &[String]) -> Vec<Argument<'_>> {
    literal(arguments.iter().map(String::as_str))
}

fn kubelet_unit_of_its_time(group: &CompleteGroup) -> Result<Vec<u8>, RenderError> {
    let runtime_unit = runtime::unit_name(group.container_runtime.name.value);
    let flags = arguments(group)?;
    let mounts = rkt_arguments();
    let mut service = Section::new("Service")
        // No leading dash: without the gate the kubelet must not start.
        .text("EnvironmentFile", GATE_PATH)
        .environment("RKT_RUN_ARGS", &mounts)
        // A damaged gate counts as absent.
        .command("ExecStartPre", group.delivery.nodestrap.path.value.as_str(), literal(["gate"]));
    for folder in FOLDERS {
        service = service.command("ExecStartPre", "/usr/bin/mkdir", literal(["-p", folder]));
    }
    service = service
        .command_with("ExecStartPre", Failure::Ignored, "/usr/bin/rkt", literal(["rm", POD_UUID]))
        .command("ExecStart", group.kubelet.binary.value.as_str(), texts(&flags))
        .command_with("ExecStop", Failure::Ignored, "/usr/bin/rkt", literal(["stop", POD_UUID]))
        .text("Restart", "always")
        .text("RestartSec", "10");
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Kubernetes node agent in its wrapper")
            // The second, for volumes of NFS.
            .words("Wants", &[runtime_unit, "rpc-statd.service", BOOTSTRAP_UNIT, GATE_UNIT])
            .words("After", &[runtime_unit, BOOTSTRAP_UNIT, GATE_UNIT])
            // It is restarted until the gate opens, however long that takes.
            .text("StartLimitIntervalSec", "0"),
        service,
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}

/// What the wrapper does not mount by itself, and the kubelet needs from the host.
fn rkt_arguments() -> String {
    let mounts = [("resolv", "/etc/resolv.conf"), ("var-lib-cni", "/var/lib/cni")];
    let mut arguments = String::from("--uuid-file-save=/var/cache/kubelet-pod.uuid");
    for (name, path) in mounts {
        arguments.push_str(&format!(" --volume={name},kind=host,source={path} --mount=volume={name},target={path}"));
    }
    arguments
}

impl Stage {
    /// A path unit that waits for the assets of the installer, and the service that it starts.
    fn render(&self) -> Result<Part, RenderError> {
        let (path, service) = (format!("{}.path", self.name), format!("{}.service", self.name));
        let path_unit = UnitFile::new(vec![
            Section::new("Unit")
                .text("Description", format!("Wait for {}", self.script))
                // A service that is skipped because it is done would be triggered over and over.
                .text("ConditionPathExists", format!("!{}", self.done)),
            Section::new("Path").text("PathExists", self.script),
            Section::new("Install").text("WantedBy", "multi-user.target"),
        ]);
        let service_unit = UnitFile::new(vec![
            Section::new("Unit")
                .text("Description", self.description)
                .text("ConditionPathExists", format!("!{}", self.done))
                .text(self.dependency, self.after)
                // Its assets may be there before the last reboot of the bootstrap, in which it must not be caught.
                .words("After", &[self.after, BOOTSTRAP_UNIT]),
            Section::new("Service")
                .text("Type", "oneshot")
                .text("RemainAfterExit", "true")
                .text("WorkingDirectory", "/opt/tectonic")
                .command("ExecStart", "/usr/bin/bash", literal([self.script]))
                .command("ExecStartPost", "/bin/touch", literal([self.done])),
        ]);
        Ok(Part {
            files: vec![unit_file(&path, path_unit.render()?)?, unit_file(&service, service_unit.render()?)?],
            units: vec![unit(path, Start::AfterGate)?, unit(service, Start::ByOthers)?],
            ..Part::default()
        })
    }
}
