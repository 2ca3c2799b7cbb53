//! The layout of Tectonic on Container Linux: the kubelet in its wrapper, docker as an addon of torcx, bootkube.
//!
//! `k8s-node-bootstrap.service` blocks the kubelet until `kubelet.env`, the gate, is there. What it would learn from the
//! cluster lies under `/etc/kubernetes/installer` too, for a cluster that is not up yet.

use std::collections::BTreeSet;

use bundle::{BOOTSTRAP_UNIT, Bundle, GATE_PATH, Gate, IdleUnit, Idleness, Start};
use serde_json::{Map, Value, json};
use spec::{CompleteGroup, CompleteNodeGroup, CompleteSpec, CompleteTectonic, Role, SourceKind, render_yaml};

use super::{
    Decisions, arguments, assemble, command_line, credential_path, credential_program, environment_file,
    kubelet_kubeconfig,
};
use crate::error::RenderError;
use crate::kubelet::KUBELET_UNIT;
use crate::part::{Part, name, path, public, secret, unit, unit_file};
use crate::runtime;
use crate::unit::{Argument, Failure, Section, UnitFile, arguments as literal};

const SEED_ENV_PATH: &str = "/etc/kubernetes/installer/kubelet.env";
const MAPPINGS_PATH: &str = "/etc/kubernetes/installer/runtime-mappings.yaml";
const AUTHORITY_PATH: &str = "/etc/kubernetes/ca.crt";
const KEYRINGS: &str = "/etc/nodestrap/keyrings";
const LOCKSMITH_UNIT: &str = "locksmithd.service";

/// The name under which the program takes the flags of that time.
const OLD_NAME: &str = "tectonic-torcx-bootstrap";
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
    let group = &node_group.spec;
    // `into` reads the settings whether or not the spec has them in other layouts.
    let settings: Option<&CompleteTectonic> = (&spec.cluster.tectonic).into();
    let settings = settings.ok_or(RenderError::NoLayoutSettings { layout: "tectonic" })?;
    let stages: &[Stage] = match (group.role.value, settings.bootkube.value) {
        (Role::ControlPlane, true) => &STAGES,
        _ => &[],
    };
    let image = image_variables(settings)?;
    let authority = spec.cluster.join.certificate_authority.value.as_str();
    let mut part = Part {
        files: vec![
            secret(credential_path(group)?, kubelet_kubeconfig(spec, group)?)?,
            // The kubelet's unit took it out of the kubeconfig with a shell; here it is simply there.
            public(AUTHORITY_PATH, authority)?,
            public(SEED_ENV_PATH, environment_file(image))?,
            public(MAPPINGS_PATH, runtime_mappings(settings))?,
            unit_file(BOOTSTRAP_UNIT, bootstrap_unit(spec, group, settings, stages)?)?,
            unit_file(KUBELET_UNIT, kubelet_unit(group)?)?,
        ],
        units: vec![unit(KUBELET_UNIT, Start::AfterGate)?],
        ..Part::default()
    };
    if !group.units.value.iter().any(|unit| unit.name == LOCKSMITH_UNIT) {
        // Nodes of a cluster reboot one by one, by whoever coordinates them, and never by locksmith's own decision.
        part.idle_units.push(IdleUnit { name: name(LOCKSMITH_UNIT)?, idleness: Idleness::Masked });
    }
    for stage in stages {
        part.add(stage.render()?);
    }
    let mut programs = vec![group.kubelet.binary.value.clone()];
    programs.extend(credential_program(spec)?);
    assemble(
        spec,
        node_group,
        Decisions {
            kubelet_unit: KUBELET_UNIT,
            proxied_units: vec![KUBELET_UNIT, BOOTSTRAP_UNIT],
            kubelet: part,
            programs,
            gate: Gate {
                path: path(GATE_PATH)?,
                environment: image.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
                facts: BTreeSet::new(),
                max_pods: None,
            },
            snap: None,
        },
    )
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
        releases.insert(minor.to_string(), json!({ "docker": versions }));
    }
    let mut document = Map::new();
    document.insert("kind".to_owned(), json!("VersionManifestV1"));
    document.insert("versions".to_owned(), json!({ "k8s": Value::Object(releases) }));
    render_yaml(&document)
}

/// The work is done in `ExecStartPre`, before the unit counts as started: what is ordered after it waits, and a reboot
/// can happen in between.
fn bootstrap_unit(
    spec: &CompleteSpec,
    group: &CompleteGroup,
    settings: &CompleteTectonic,
    stages: &[Stage],
) -> Result<Vec<u8>, RenderError> {
    let skip_torcx = group.source.value != SourceKind::Torcx;
    let mut flags = vec![
        format!("--kubeconfig={}", credential_path(group)?),
        format!("--kubelet-env-path={GATE_PATH}"),
        format!("--version-manifest={MAPPINGS_PATH}"),
        format!("--torcx-manifest-url={}", settings.manifest_url.value),
        format!("--torcx-skip-setup={skip_torcx}"),
        format!("--upgrade-os={}", settings.upgrade_os.value),
    ];
    let keyrings = &spec.cluster.trust.keyrings.value;
    flags.extend(keyrings.iter().map(|keyring| format!("--keyring={KEYRINGS}/{}.asc", keyring.name)));
    // The word after a program with an "@" is the name under which it runs. A "$" is doubled, or it would be a variable.
    let program = format!("@{}", group.delivery.nodestrap.path.value);
    let flags: Vec<String> = flags.iter().map(|flag| flag.replace('$', "$$")).collect();
    let words = [OLD_NAME].into_iter().chain(flags.iter().map(String::as_str));
    let command = command_line("ExecStartPre", &program, words)?;
    let mut held_back = vec![KUBELET_UNIT];
    held_back.extend(stages.first().map(|_| "bootkube.service"));
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Bootstrap the components of a Kubernetes node")
            .text("ConditionPathExists", format!("!{GATE_PATH}"))
            .words("Wants", &["network-online.target"])
            .words("After", &["network-online.target", "update-ca-certificates.service"])
            // It may be running already, and nodestrap masks it only later.
            .words("Conflicts", &[LOCKSMITH_UNIT])
            .words("Before", &held_back),
        Section::new("Service")
            .text("Type", "simple")
            .text("RemainAfterExit", "true")
            .text("Restart", "on-failure")
            .text("RestartSec", "10")
            .text("TimeoutStartSec", "1h")
            .text("LimitCORE", "0")
            .text("ExecStartPre", command)
            .command("ExecStart", "/usr/bin/echo", literal(["node components bootstrapped"])),
        Section::new("Install").words("WantedBy", &["multi-user.target", KUBELET_UNIT]),
    ])
    .render()
}

fn texts(arguments: &[String]) -> Vec<Argument<'_>> {
    literal(arguments.iter().map(String::as_str))
}

fn kubelet_unit(group: &CompleteGroup) -> Result<Vec<u8>, RenderError> {
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
            .words("Wants", &[runtime_unit, "rpc-statd.service"])
            .words("After", &[runtime_unit]),
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
                .text("After", self.after),
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
