//! What a change of a bundle takes, and that no secret is shown.

mod support;

use bundle::{AbsolutePath, Bundle, Consequence, File, Secrecy, Start, Unit, UnitName, diff_bundles};

const CANARY: &str = "canary-7f3a";
const KUBELET: &str = "/etc/kubernetes/kubelet.yaml";
const CONTAINERD: &str = "/etc/containerd/config.toml";

type Edit = fn(&mut Bundle);

fn bundle() -> Bundle {
    support::cases::bundle("minimal")
}

fn consequence(change: impl FnOnce(&mut Bundle)) -> (Consequence, String) {
    let mut new = bundle();
    change(&mut new);
    let diff = diff_bundles(&bundle(), &new);
    assert!(!diff.is_empty());
    (diff.consequence, diff.to_string())
}

fn edit(bundle: &mut Bundle, path: &str, from: &str, to: &str) {
    let file = bundle.files.iter_mut().find(|file| file.path == path).expect("the bundle has it");
    let text = file.content.text().expect("it is text").to_owned();
    assert!(text.contains(from), "{path} has no '{from}'");
    file.content = text.replace(from, to).into();
}

fn add(bundle: &mut Bundle, path: &str, content: &str) {
    bundle.files.push(File::public(AbsolutePath::new(path).expect("a path of this test"), content));
    bundle.files.sort_by(|one, other| one.path.cmp(&other.path));
}

#[test]
fn the_same_bundle_changes_nothing() {
    let diff = diff_bundles(&bundle(), &bundle());
    assert!(diff.is_empty() && diff.consequence == Consequence::None);
    assert_eq!(diff.to_string(), "nothing changes on the node\n");
}

#[test]
fn consequences_follow_the_table() {
    let cases: [(Consequence, Edit, &str); 19] = [
        (Consequence::RestartKubelet, |b| edit(b, KUBELET, "maxPods: 110", "maxPods: 50"), "maxPods: 110 → 50"),
        (
            Consequence::NewMachine,
            |b| edit(b, KUBELET, "cgroupDriver: systemd", "cgroupDriver: cgroupfs"),
            "cgroupDriver: systemd → cgroupfs",
        ),
        (
            Consequence::RestartRuntime,
            |b| edit(b, CONTAINERD, "pause:3.10.2", "pause:4"),
            "sandbox: registry.k8s.io/pause:3.10.2 → registry.k8s.io/pause:4",
        ),
        (
            Consequence::NewMachine,
            |b| edit(b, CONTAINERD, "SystemdCgroup = true", "SystemdCgroup = false"),
            "SystemdCgroup: true → false",
        ),
        (
            Consequence::RestartKubelet,
            |b| edit(b, "/etc/systemd/system/kubelet.service", "RestartSec=2", "RestartSec=3"),
            "Service.RestartSec: 2 → 3",
        ),
        (
            Consequence::Reboot,
            |b| b.pod_network.as_mut().unwrap().bridge = "br0".to_owned(),
            "podNetwork.bridge: cni0 → br0",
        ),
        (Consequence::Reboot, |b| add(b, "/etc/cni/net.d/99-own.conflist", "{}"), "+ /etc/cni/net.d/99-own.conflist"),
        (
            Consequence::Reboot,
            |b| edit(b, "/etc/sysctl.d/90-nodestrap.conf", "ip_forward = 1", "ip_forward = 0"),
            "net.ipv4.ip_forward: 1 → 0",
        ),
        (
            Consequence::None,
            |b| add(b, "/etc/kubernetes/manifests/a.yaml", "a: 1\n"),
            "+ /etc/kubernetes/manifests/a.yaml",
        ),
        (Consequence::None, |b| add(b, "/etc/containerd/certs.d/a/hosts.toml", ""), "hosts.toml"),
        (Consequence::None, |b| add(b, "/opt/motd", "hello\n"), "+ /opt/motd"),
        (Consequence::NewMachine, |b| b.cluster = "other".to_owned(), "cluster: golden → other"),
        (Consequence::NewMachine, |b| b.join.node_name = Some("n1".to_owned()), "join.nodeName: added n1"),
        (Consequence::NewMachine, |b| b.join.api_server = "https://10.0.0.9".to_owned(), "→ https://10.0.0.9"),
        (
            Consequence::RestartKubelet,
            |b| {
                b.gate.environment.get_mut("KUBELET_ARGS").unwrap().push_str(" --v=4");
            },
            "--v: added 4",
        ),
        (
            Consequence::NewMachine,
            |b| {
                b.gate.environment.get_mut("KUBELET_ARGS").unwrap().push_str(" --node-labels=a=b");
            },
            "--node-labels: added a=b",
        ),
        (
            Consequence::NewMachine,
            |b| {
                b.gate.environment.get_mut("KUBELET_ARGS").unwrap().push_str(" --hostname-override=a");
            },
            "--hostname-override: added a",
        ),
        (
            Consequence::RestartUnits,
            |b| {
                b.units.push(Unit {
                    name: UnitName::new("a.service").unwrap(),
                    start: Start::BeforeGate,
                    brought: None,
                })
            },
            "+ a.service, started before the gate opens",
        ),
        (
            Consequence::RestartKubelet,
            |b| {
                b.files.retain(|file| file.path != "/etc/kubernetes/pki/ca.crt");
            },
            "- /etc/kubernetes/pki/ca.crt",
        ),
    ];
    for (expected, change, shown) in cases {
        let (found, text) = consequence(change);
        assert_eq!(found, expected, "{text}");
        assert!(text.contains(shown), "'{shown}' is not in:\n{text}");
    }
}

#[test]
fn the_weightiest_reason_comes_first_and_all_are_named() {
    let mut new = bundle();
    edit(&mut new, "/etc/kubernetes/kubelet.yaml", "maxPods: 110", "maxPods: 50");
    edit(&mut new, "/etc/containerd/config.toml", "pause:3.10.2", "pause:4");
    let diff = diff_bundles(&bundle(), &new);
    let consequences: Vec<Consequence> = diff.reasons.iter().map(|reason| reason.consequence).collect();
    assert_eq!(consequences, [Consequence::RestartRuntime, Consequence::RestartKubelet]);
    assert_eq!(diff.consequence, Consequence::RestartRuntime);
    assert!(Consequence::None < Consequence::RestartKubelet && Consequence::Reboot < Consequence::NewMachine);
}

#[test]
fn a_secret_is_only_said_to_have_changed() {
    for content in [format!("users: [{{user: {{token: {CANARY}}}}}]\n"), CANARY.to_owned()] {
        let (_, text) = consequence(|bundle| {
            let path = bundle.join.bootstrap_kubeconfig.clone();
            let file = bundle.files.iter_mut().find(|file| file.path == path).unwrap();
            file.content = content.into();
        });
        assert!(text.contains("(secret, not shown)") && !text.contains("canary"), "{text}");
    }
    // Secret on one side is secret.
    let mut old = bundle();
    add(&mut old, "/etc/a.yaml", &format!("a: {CANARY}\n"));
    let mut new = old.clone();
    let file = new.files.iter_mut().find(|file| file.path == "/etc/a.yaml").unwrap();
    (file.secrecy, file.mode, file.content) = (Secrecy::Secret, 0o600, b"a: other\n".into());
    for diff in [diff_bundles(&old, &new), diff_bundles(&new, &old)] {
        let all = format!("{diff} {diff:?} {}", serde_json::to_string(&diff).unwrap());
        assert!(!all.contains("canary"), "{all}");
    }
}

#[test]
fn a_mode_is_a_value_too() {
    let (found, text) = consequence(|bundle| bundle.files[0].mode = 0o640);
    assert_eq!(found, Consequence::RestartRuntime);
    assert!(text.contains("(mode): 0644 → 0640"), "{text}");
}
