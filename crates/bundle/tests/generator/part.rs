//! The parts of a bundle, each at random from a small number of possibilities: so that two bundles often agree on one.

use std::collections::{BTreeMap, BTreeSet};

use bundle::{
    ARGUMENTS_VARIABLE, Bundle, File, GateFact, Hook, IdleUnit, Idleness, KERNEL_UNIT, Necessity, PodNetwork,
    RuntimeName, Secrecy, Secret, Slot, Snap, Start, TRUST_UNIT, Unit, UnitName, Webhook,
};

use super::settle::put;
use super::{Random, SNAP, path, unit_name};

pub(crate) const OWN_UNITS: [&str; 6] = ["a.service", "b.service", "c.service", "d.service", TRUST_UNIT, KERNEL_UNIT];
pub(crate) const HOOKS: [&str; 4] = ["alpha", "beta", "delta", "gamma"];
pub(crate) const NETWORK_UNIT: &str = "nodestrap-network.service";
pub(crate) const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.yaml";
pub(crate) const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap.kubeconfig";
pub(crate) const KUBECONFIG: &str = "/etc/kubernetes/kubelet.kubeconfig";
pub(crate) const MANIFESTS: [&str; 2] = ["/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/web.yaml"];

/// One in each format that is compared by value, and some in none.
pub(crate) const FILES: [&str; 12] = [
    "/etc/a/deep/er/four.env",
    "/etc/a/one.yaml",
    "/etc/a/three.toml",
    "/etc/a/two.json",
    "/etc/b/five.txt",
    "/etc/b/seven.conf",
    "/etc/b/six.bin",
    "/etc/containerd/config.toml",
    "/etc/kubernetes/nine.yaml",
    "/etc/kubernetes/pki/ten.crt",
    "/etc/sysctl.d/90-eight.conf",
    super::tree::SHARED_PLACE,
];
const DROP_INS: [&str; 3] = ["containerd.service.d/10-a.conf", "kubelet.service.d/10-b.conf", "a.service.d/10-c.conf"];

pub(crate) fn version(random: &mut Random) -> String {
    random.pick(&["1.35.1", "1.36.0", "1.36.3"]).to_owned()
}

pub(crate) fn api_server(random: &mut Random) -> String {
    random.pick(&["https://10.0.0.1:6443", "https://api.example:443"]).to_owned()
}

pub(crate) fn node_name(random: &mut Random) -> String {
    random.pick(&["n1", "n2.example"]).to_owned()
}

pub(crate) fn max_pods(random: &mut Random) -> u32 {
    random.pick(&[29, 110])
}

pub(crate) fn facts(random: &mut Random) -> BTreeSet<GateFact> {
    // The others, on any node; this one only where a release is followed.
    let facts = random.some_of(GateFact::ALL).into_iter();
    facts.filter(|fact| *fact != GateFact::KubeletImageTag).collect()
}

/// Without any of the variables that are facts.
pub(crate) fn environment(random: &mut Random) -> BTreeMap<String, String> {
    let flags = [
        format!("--config={KUBELET_CONFIG}"),
        format!("--v={}", random.below(3)),
        format!("--node-labels=a={}", random.pick(&["b", "c"])),
    ];
    let mut environment = BTreeMap::from([(ARGUMENTS_VARIABLE.to_owned(), flags.join(" "))]);
    for (name, values) in [("EXTRA", ["1", "\"$x\\`'\""]), ("EMPTY", ["", " "])] {
        environment.extend(random.maybe(|random| (name.to_owned(), random.pick(&values).to_owned())));
    }
    match random.below(8) {
        0 => BTreeMap::new(),
        _ => environment,
    }
}

pub(crate) fn runtime_unit(name: RuntimeName) -> UnitName {
    unit_name(match name {
        RuntimeName::Containerd => "containerd.service",
        RuntimeName::CriO => "crio.service",
        RuntimeName::Docker => "docker.service",
    })
}

pub(crate) fn pod_network(random: &mut Random) -> PodNetwork {
    PodNetwork {
        bridge: random.pick(&["cni0", "pods0"]).to_owned(),
        cni_config: path(random.pick(&["/etc/cni/net.d/10-nodestrap.conflist", "/etc/cni/net.d/20-other.conflist"])),
        unit: unit_name(NETWORK_UNIT),
    }
}

pub(crate) fn webhook(random: &mut Random) -> Webhook {
    let header = |random: &mut Random| Secret::new(random.pick(&["Bearer canary-one", "canary-two"]));
    let mut headers = BTreeMap::new();
    for name in ["Authorization", "X-Token"] {
        headers.extend(random.maybe(|random| (name.to_owned(), header(random))));
    }
    Webhook {
        url: Secret::new(random.pick(&["https://hooks.example/canary-path", "http://10.0.0.9:8080/canary-else"])),
        certificate_authority: random.maybe(|_| include_str!("../../../../examples/ca.crt").to_owned()),
        headers,
    }
}

pub(crate) fn snap(random: &mut Random) -> Snap {
    let aliases = [("kubelet", "kubelet-eks.kubelet"), ("kubectl", "kubectl-eks.kubectl")];
    let settings = [
        ("node-ip", "${NODE_IP}"),
        ("max-pods", "${MAX_PODS}"),
        ("register-node", "true"),
        ("v", random.pick(&["2", "4"])),
    ];
    let texts =
        |pairs: Vec<(&str, &str)>| pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Snap { name: SNAP.to_owned(), aliases: texts(random.some_of(&aliases)), settings: texts(random.some_of(&settings)) }
}

/// Its file is the matter of `settle`.
pub(crate) fn hook(random: &mut Random, name: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        slot: random.pick(Slot::ALL),
        unit: unit_name(&format!("nodestrap-hook-{name}.service")),
        timeout_seconds: random.pick(&[1, 30, 600]),
        necessity: random.pick(Necessity::ALL),
    }
}

pub(crate) fn own_unit(random: &mut Random, name: &str) -> Unit {
    let start = match name {
        // What they do is of no use later.
        TRUST_UNIT | KERNEL_UNIT => Start::BeforeGate,
        _ => random.pick(&[Start::BeforeGate, Start::AfterGate, Start::ByOthers]),
    };
    Unit { name: unit_name(name), start, brought: None }
}

/// Some of an image, some of other bundles, and one that nobody has. Those that the bundle starts are left out by `settle`.
pub(crate) fn idle_units(random: &mut Random) -> Vec<IdleUnit> {
    let names = ["a.service", "absent.service", "containerd.service", "docker.service", "systemd-timesyncd.service"];
    let idle =
        |name: &str, random: &mut Random| IdleUnit { name: unit_name(name), idleness: random.pick(Idleness::ALL) };
    random.some_of(&names).into_iter().map(|name| idle(name, random)).collect()
}

/// `of_any_nature`: it may end by itself, and there may be nothing to enable.
pub(crate) fn unit_file(random: &mut Random, name: &UnitName, of_any_nature: bool) -> File {
    let service = match random.below(if of_any_nature { 3 } else { 1 }) {
        0 => "Type=exec\nExecStart=/bin/sleep infinity",
        1 => "Type=oneshot\nExecStart=/bin/true",
        _ => "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true",
    };
    let install = match of_any_nature && random.coin() {
        true => "",
        false => "\n[Install]\nWantedBy=multi-user.target\n",
    };
    let description = random.pick(&["first", "second"]);
    File::of_unit(name, format!("[Unit]\nDescription=The {description}\n\n[Service]\n{service}\n{install}"))
        .expect("a unit of the generator")
}

/// All but the files of units and of hooks.
pub(crate) fn add_files(bundle: &mut Bundle, random: &mut Random) {
    for place in random.some_of(&FILES) {
        let file = file(random, place, bundle);
        put(bundle, file);
    }
    for name in random.some_of(&DROP_INS) {
        put(bundle, drop_in(random, name));
    }
    for place in random.some_of(&MANIFESTS) {
        put(bundle, manifest(random, place));
    }
    let config = kubelet_config(random);
    put(bundle, config);
}

pub(crate) fn kubelet_config(random: &mut Random) -> File {
    let text = format!("kind: KubeletConfiguration\nmaxPods: {}\n", random.pick(&[110, 250]));
    File::public(path(KUBELET_CONFIG), text)
}

/// One of the pods sees a folder, the other one file.
pub(crate) fn manifest(random: &mut Random, place: &str) -> File {
    let mount = random.pick(&["/etc/a", "/etc/b/five.txt"]);
    let image = random.pick(&["example/one:1", "example/one:2"]);
    let text = format!(
        "kind: Pod\nspec:\n  containers: [{{name: main, image: \"{image}\"}}]\n  volumes: [{{name: a, hostPath: {{path: {mount}}}}}]\n"
    );
    File::public(path(place), text)
}

fn drop_in(random: &mut Random, name: &str) -> File {
    let text = format!("[Service]\nEnvironment=A={}\n", random.below(2));
    File::of_unit(name, text).expect("a drop-in of the generator")
}

pub(crate) fn file(random: &mut Random, place: &str, bundle: &Bundle) -> File {
    let secrecy = if random.below(3) == 0 { Secrecy::Secret } else { Secrecy::Public };
    let content = content(random, place, secrecy);
    let mut file = match secrecy {
        Secrecy::Secret => File::secret(path(place), content),
        Secrecy::Public => {
            File { mode: random.pick(&[0o644, 0o600, 0o755, 0o440]), ..File::public(path(place), content) }
        }
    };
    for unit in &bundle.units {
        if random.below(4) == 0 {
            file = file.read_by([unit.name.clone()]);
        }
    }
    file
}

/// In the format that the name promises; two seldom differ in more than a value. Only secrets say "canary".
pub(crate) fn content(random: &mut Random, place: &str, secrecy: Secrecy) -> Vec<u8> {
    let words = if secrecy == Secrecy::Secret { ["canary-x", "canary-y"] } else { ["x", "y"] };
    let (number, word) = (random.below(3), random.pick(&words));
    let text = match place.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "yaml" => format!("a: {number}\nb: [{word}, z]\n"),
        "json" => format!("{{\"a\": {number}, \"b\": {{\"c\": \"{word}\"}}}}\n"),
        "toml" => format!("a = {number}\n[b]\nc = \"{word}\"\n"),
        "env" => format!("A=\"{number}\"\nB=\"{word}\"\n"),
        "conf" => format!("a.b = {number}\n# {word}\n"),
        // Some sizes, empty among them.
        "bin" => return [0, 255, 1, 254, b'\n'].repeat(number * 40),
        _ => format!("{word}\n\u{e9}\n").repeat(number),
    };
    text.into_bytes()
}
