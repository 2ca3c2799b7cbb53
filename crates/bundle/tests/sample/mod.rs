//! A bundle written down by hand, with something in every field, and with secrets that can be told when they show.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, BTreeSet};

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Component, Downloads, Extension, ExtensionName,
    ExtensionRelease, File, Follow, FollowedAddon, FollowedRelease, Gate, GateFact, Hook, IdleUnit, Idleness, Join,
    Layout, MappingsPlace, Necessity, NodeKind, Os, OsUpdate, Package, PackageManager, Packages, PodNetwork,
    Provenance, Provider, Readers, RelativePath, Role, Runtime, RuntimeName, RuntimeSource, S3, S3Credentials, Secret,
    SeedFallback, Signatures, Slot, Snap, Start, Tree, Unit, UnitName, UnitNature, Webhook,
};

use bundle::torcx::{AddonName, KubernetesVersion, ProfileName, UrlTemplate};

pub(crate) const CANARY: &str = "canary.0123456789abcdef";

pub(crate) fn path(text: &str) -> AbsolutePath {
    AbsolutePath::new(text).expect("a path of this test")
}

pub(crate) fn unit_name(text: &str) -> UnitName {
    UnitName::new(text).expect("a unit of this test")
}

fn hook(name: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        slot: Slot::BeforeKubelet,
        unit: unit_name("hook.service"),
        timeout_seconds: 300,
        necessity: Necessity::Required,
    }
}

fn unit(name: &str, start: Start, brought: Option<UnitNature>) -> Unit {
    Unit { name: unit_name(name), start, brought }
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn extension() -> Extension {
    Extension {
        name: ExtensionName::Kubernetes,
        version: "1.36.3".to_owned(),
        artefact: Artefact { form: ArtefactForm::Sysext, ..tree().artefact },
        release: ExtensionRelease {
            id: "flatcar".to_owned(),
            sysext_level: Some("1.0".to_owned()),
            version_id: None,
            architecture: Some("x86-64".to_owned()),
        },
        programs: [path("/usr/bin/kubelet")].into(),
        read_by: tree().read_by,
    }
}

fn packages() -> Packages {
    let package = |name: &str, version: Option<&str>, component| Package {
        name: name.to_owned(),
        version: version.map(str::to_owned),
        component,
        read_by: Readers::default(),
    };
    Packages {
        manager: PackageManager::Dnf,
        packages: vec![
            package("conntrack-tools", None, None),
            package("kubectl", Some("1.36.3-150500.1.1"), Some(Component::Kubectl)),
        ],
        programs: vec![path("/usr/bin/kubectl")],
        commands: vec!["conntrack".to_owned()],
        settings: vec![path("/etc/a/text")],
        repositories: vec![path("/etc/a/text")],
        keys: vec!["d491d7d2".to_owned()],
        environment: texts([("no_proxy", "10.0.0.0/8")]),
        environment_file: None,
    }
}

fn follow() -> Follow {
    Follow {
        release: FollowedRelease {
            forced: Some(KubernetesVersion::parse("v1.36.3+lab").expect("a version")),
            kubeconfig: path("/etc/a/secret"),
            seed: path("/etc/a/text"),
            seed_fallback: SeedFallback::Never,
            minors: ["1.36".parse().expect("a minor")].into(),
        },
        addon: Some(FollowedAddon {
            name: AddonName::new("docker").expect("a name"),
            profile: ProfileName::new("tectonic").expect("a name"),
            manifest_url: UrlTemplate::parse("https://a/{{.Board}}/{{.OSVersion}}").expect("a template"),
            signatures: Signatures::By { keyrings: [path("/etc/a/text")].into() },
            mappings: MappingsPlace::default(),
            mappings_seed: path("/etc/a/text"),
            data_folder: Some(path("/var/lib/docker")),
        }),
        os_update: OsUpdate::Ask,
    }
}

fn tree() -> Tree {
    Tree {
        component: Component::Containerd,
        version: "2.2.1".to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", "0a".repeat(32))).expect("a digest of this test"),
            size: 7,
            form: ArtefactForm::TarGz,
            places: vec!["https://a/b".to_owned()],
        },
        links: [(path("/usr/local/bin/containerd"), RelativePath::new("bin/containerd").expect("a path"))].into(),
        read_by: Readers { units: [unit_name("containerd.service")].into(), ..Readers::default() },
    }
}

fn downloads() -> Downloads {
    Downloads {
        provenance: Provenance::Signed { by: "AB".to_owned(), serial: 3 },
        certificate_authorities: None,
        proxy: Some(Secret::new("http://canary:canary@proxy")),
        no_proxy: vec!["a".to_owned()],
        s3: Some(S3 {
            region: "r".to_owned(),
            endpoint: None,
            path_style: true,
            credentials: S3Credentials::Key {
                access_key: "k".to_owned(),
                secret_key: Secret::new("canary-key"),
                session_token: None,
            },
        }),
    }
}

pub(crate) fn sample() -> Bundle {
    let secret = File::secret(path("/etc/a/secret"), CANARY);
    let text = File::public(path("/etc/a/text"), "é: \"quoted\"\n").read_by([unit_name("containerd.service")]);
    Bundle {
        cluster: "lab".to_owned(),
        group: "workers".to_owned(),
        kubernetes_version: "1.36.3".to_owned(),
        node: NodeKind { role: Role::Worker, os: Os::Debian, provider: Provider::Metal, layout: Layout::Nodestrap },
        required_programs: vec![path("/usr/bin/kubelet")],
        units: vec![
            unit("containerd.service", Start::BeforeGate, None),
            unit("kubelet.service", Start::AfterGate, None),
            unit("pods.service", Start::ByOthers, Some(UnitNature { oneshot: true, installable: false })),
        ],
        idle_units: vec![IdleUnit { name: unit_name("locksmithd.service"), idleness: Idleness::Masked }],
        hooks: vec![hook("a"), hook("b")],
        runtime: Runtime {
            name: RuntimeName::Containerd,
            unit: unit_name("containerd.service"),
            source: RuntimeSource::Tree,
        },
        trees: vec![tree()],
        extensions: vec![extension()],
        downloads: Some(downloads()),
        packages: Some(packages()),
        follow: Some(follow()),
        gate: Gate {
            path: path("/etc/kubernetes/kubelet.env"),
            environment: texts([("KUBELET_ARGS", "--v=2")]),
            facts: BTreeSet::from([GateFact::NodeIp]),
            max_pods: Some(29),
        },
        join: Join {
            api_server: "https://10.0.0.1:6443".to_owned(),
            bootstrap_kubeconfig: path("/etc/a/secret"),
            kubeconfig: path("/var/lib/kubelet/kubeconfig"),
            client_certificate: path("/var/lib/kubelet/pki/kubelet-client-current.pem"),
            kubelet_unit: unit_name("kubelet.service"),
            node_name: Some("n1".to_owned()),
        },
        pod_network: Some(PodNetwork {
            bridge: "cni0".to_owned(),
            cni_config: path("/etc/cni/net.d/10-pods.conflist"),
            unit: unit_name("pods.service"),
        }),
        snap: Some(Snap {
            name: "kubelet-eks".to_owned(),
            aliases: texts([("kubelet", "kubelet-eks.kubelet")]),
            settings: texts([("node-ip", "${NODE_IP}")]),
        }),
        webhook: Some(Webhook {
            url: Secret::new("https://hooks.example/canary-address"),
            certificate_authority: Some("-----BEGIN CERTIFICATE-----\n".to_owned()),
            headers: [("Authorization".to_owned(), Secret::new("Bearer canary-header"))].into(),
        }),
        files: vec![
            secret,
            text,
            File { mode: 0o755, ..File::public(path("/etc/b"), [0, 255, 1, 254]) },
            File::of_unit("hook.service", "[Service]\n").expect("a unit"),
            File::of_unit("pods.service", "[Service]\nType=oneshot\n").expect("a unit"),
        ],
    }
}
