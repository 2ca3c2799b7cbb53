//! What a change of a spec means for the nodes of a group: said truly, whatever the layout, and never "nothing".

mod support;

use bundle::Consequence::{self, NewMachine, Reboot, RestartKubelet, RestartRuntime, RestartStaticPods, RestartUnits};
use bundle::{Besides, Bundle, BundleDiff, GateFact, Payload, diff_rendered, read_user_data};
use render::delivery::Format;
use render::{besides_of_user_data, render_group};
use support::cases::spec_text as spec_of;

fn complete(text: String) -> spec::CompleteSpec {
    support::cases::complete_text("case", text)
}

fn rendered(text: String) -> (Bundle, Besides) {
    let spec = complete(text);
    let group = render_group(&spec, spec.groups[0].name.value.as_str()).expect("it renders");
    let besides = group.besides();
    (group.bundle, besides)
}

fn diff_texts(old: String, new: String) -> BundleDiff {
    let (old, new) = (rendered(old), rendered(new));
    diff_rendered((&old.0, &old.1), (&new.0, &new.1))
}

/// The last document of each golden spec is the group, the first one the cluster.
enum Edit {
    Replace(&'static str, &'static str),
    Cluster(&'static str),
    Group(&'static str),
}

use Edit::{Cluster, Group, Replace};

fn edited(text: &str, edit: &Edit) -> String {
    match edit {
        Replace(from, to) => {
            assert!(text.contains(from), "the spec has no '{from}'");
            text.replacen(from, to, 1)
        }
        Cluster(line) => text.replacen("\n---\n", &format!("\n  {line}\n---\n"), 1),
        Group(line) => match text.rsplit_once("---\n").is_some_and(|(_, group)| group.contains("\nspec:")) {
            true => format!("{text}  {line}\n"),
            false => format!("{text}spec:\n  {line}\n"),
        },
    }
}

fn assert_all(cases: &[(&str, Edit, Consequence, &str)]) {
    for (case, edit, expected, shown) in cases {
        let old = spec_of(case);
        let new = edited(&old, edit);
        let diff = diff_texts(old, new);
        let text = diff.to_string();
        assert_eq!(diff.consequence, *expected, "{case}:\n{text}");
        assert!(text.contains(shown), "{case}: '{shown}' is not in:\n{text}");
    }
}

const OTHER_AUTHORITY: Edit = Replace("{file: ca.crt}", "{file: pki/pki/front-proxy-ca.crt}");

#[test]
fn every_field_of_a_bundle_is_compared() {
    assert_all(&[
        (
            "programs-from-trees",
            Replace("artefacts.example.com", "other.example.com"),
            Consequence::None,
            "https://other.example.com/nodes/",
        ),
        ("programs-from-trees", Replace("eu-west-1", "eu-west-2"), Consequence::None, "downloads"),
        (
            "programs-from-trees",
            Replace("sVersion: 1.36.3", "sVersion: 1.36.2"),
            RestartKubelet,
            "version: 1.36.3 → 1.36.2",
        ),
        (
            "hooks-and-files",
            Replace("necessity: optional", "necessity: required"),
            Consequence::None,
            "hooks.register.necessity: optional → required",
        ),
        (
            "hooks-and-files",
            Replace("slot: after-runtime", "slot: before-runtime"),
            Consequence::None,
            "hooks.warm-cache.slot: after-runtime → before-runtime",
        ),
        ("hooks-and-files", Replace("tune --all", "tune --some"), Consequence::None, "ExecStart: --all → --some"),
    ]);
}

#[test]
fn facts_of_the_gate_are_compared() {
    let (old, besides) = rendered(spec_of("eksctl-al2"));
    let mut new = old.clone();
    new.gate.facts.retain(|fact| *fact != GateFact::InstanceType);
    let diff = diff_rendered((&old, &besides), (&new, &besides));
    assert_eq!(diff.consequence, RestartKubelet, "{diff}");
    assert!(diff.to_string().contains("gate.facts: removed INSTANCE_TYPE"), "{diff}");
}

#[test]
fn what_machines_get_besides_the_bundle_is_compared() {
    assert_all(&[
        (
            "eksctl-al2",
            Group("machines: {instanceType: m5.large}"),
            NewMachine,
            "machines.instanceType: added m5.large",
        ),
        ("minimal", Group("machines: {image: ami-1}"), NewMachine, "machines.image: added ami-1"),
        ("minimal", Group("machines: {max: 7}"), Consequence::None, "machines.max: 1 → 7"),
        (
            "minimal",
            Group("additionalUserData: [{name: a.sh, type: text/x-shellscript, content: canary}]"),
            NewMachine,
            "additionalUserData.a.sh: added text/x-shellscript sha256:",
        ),
    ]);
}

#[test]
fn additional_parts_of_two_messages_are_compared_and_not_shown() {
    let with = |parts: &str| {
        let part = "{name: a.sh, type: text/x-shellscript, content: \"#!/bin/sh\\necho canary\\n\"}";
        let parts = parts.replace("PART", part);
        edited(&spec_of("minimal"), &Group("delivery: {format: mime}")) + &format!("  additionalUserData: [{parts}]\n")
    };
    let message = |text: &str| {
        let spec = complete(text.to_owned());
        render_group(&spec, "workers").unwrap().user_data(Format::Mime).unwrap().bytes
    };
    let (without, one) = (with(""), with("PART"));
    let other = with("PART").replace("echo", "printf");
    for (old, new, same) in [(&without, &one, false), (&one, &other, false), (&one, &one, true)] {
        let [old, new] = [old, new].map(|text| {
            let bytes = message(text);
            let Payload::Bundle(bundle) = read_user_data(&bytes).unwrap() else { panic!("it is a bundle") };
            (*bundle, besides_of_user_data(&bytes), rendered(text.clone()).1)
        });
        // A message against a message, and against a spec.
        for (one, other) in [(&old.1, &new.1), (&old.1, &new.2), (&old.2, &new.1)] {
            let diff = diff_rendered((&old.0, one), (&new.0, other));
            let text = diff.to_string();
            assert_eq!(diff.consequence, if same { Consequence::None } else { NewMachine }, "{text}");
            assert_eq!(text.contains("additionalUserData.a.sh"), !same, "{text}");
            assert!(!format!("{text}{diff:?}").contains("canary"));
        }
    }
}

#[test]
fn flags_and_configuration_of_the_kubelet_are_found_in_every_layout() {
    let new_label = || Replace("example.com/pool: general", "example.com/pool: special");
    let group_file = "cgroupRoot: added /pods";
    assert_all(&[
        ("eksctl-al2", new_label(), NewMachine, "/etc/eksctl/kubelet.env --node-labels: a new machine"),
        ("eksctl-al2", Replace("value: batch", "value: web"), NewMachine, "--register-with-taints: a new machine"),
        ("eksctl-al2", Group("kubelet: {config: {cgroupRoot: /pods}}"), NewMachine, group_file),
        (
            "eksctl-al2",
            Group("kubelet: {config: {cpuManagerPolicy: static, kubeReserved: {cpu: 1}}}"),
            NewMachine,
            "cpuManagerPolicy",
        ),
        ("eksctl-al2", Group("kubelet: {config: {providerID: \"aws:///a/i-1\"}}"), NewMachine, "providerID"),
        (
            "eksctl-al2",
            Group("kubelet: {flags: {root-dir: /data/kubelet}}"),
            NewMachine,
            "ExecStart[1] --root-dir: added /data/kubelet",
        ),
        ("eksctl-al2", Group("kubelet: {flags: {v: 4}}"), RestartKubelet, "ExecStart[1] --v: added 4"),
        ("eksctl-al2", Group("maxPods: 50"), RestartKubelet, "MAX_PODS: added 50"),
        ("eksctl-ubuntu", new_label(), NewMachine, "--node-labels: a new machine"),
        ("eksctl-ubuntu", Replace("flags: {v: 2}", "flags: {v: 4}"), RestartKubelet, "v: 2 → 4"),
        (
            "eksctl-ubuntu",
            Replace("flags: {v: 2}", "flags: {v: 2, root-dir: /data}"),
            NewMachine,
            "--root-dir: a new machine",
        ),
        ("eksctl-ubuntu", Replace("flags: {v: 2}", "config: {cgroupRoot: /pods}"), NewMachine, group_file),
        (
            "tectonic-worker",
            new_label(),
            NewMachine,
            "ExecStart --node-labels: example.com/pool=general → example.com/pool=special",
        ),
        ("tectonic-worker", Group("taints: [{key: a, effect: NoSchedule}]"), NewMachine, "--register-with-taints"),
        ("tectonic-worker", Group("kubelet: {flags: {cgroup-root: /pods}}"), NewMachine, "--cgroup-root: added /pods"),
        (
            "tectonic-worker",
            Group("kubelet: {flags: {cpu-manager-policy: static}}"),
            NewMachine,
            "--cpu-manager-policy: added static",
        ),
        ("tectonic-worker", Group("kubelet: {flags: {root-dir: /data}}"), NewMachine, "--root-dir: added /data"),
        ("tectonic-worker", Group("kubelet: {flags: {v: 4}}"), RestartKubelet, "--v: added 4"),
        ("tectonic-today-worker", new_label(), NewMachine, "ExecStart --node-labels"),
        ("tectonic-today-worker", Group("kubelet: {flags: {v: 4}}"), RestartKubelet, "--v: added 4"),
        ("tectonic-today-worker", Group("kubelet: {config: {cgroupRoot: /pods}}"), NewMachine, group_file),
    ]);
}

#[test]
fn a_folder_of_kubelet_configurations_counts_as_one() {
    let spec = |root: &str| {
        let text = edited(&spec_of("minimal"), &Group("kubelet: {flags: {config-dir: /etc/kubernetes/kubelet.d}}"));
        let asset = format!("{{path: /etc/kubernetes/kubelet.d/a.yaml, content: \"cgroupRoot: {root}\\n\"}}");
        format!("{text}  fileAssets: [{asset}]\n")
    };
    let diff = diff_texts(spec("/a"), spec("/b"));
    assert_eq!(diff.consequence, NewMachine, "{diff}");
}

#[test]
fn a_kubelet_that_joined_keeps_what_it_joined_with() {
    assert_all(&[
        ("programs-from-trees", OTHER_AUTHORITY, NewMachine, "join.certificateAuthority: a new machine"),
        ("programs-from-trees", Replace("10.0.0.10", "10.0.0.11"), NewMachine, "join.apiServer: a new machine"),
        (
            "programs-from-trees",
            Replace("0123456789abcdef", "fedcba9876543210"),
            Consequence::None,
            "(secret, not shown)",
        ),
        // With a credential program there is no other kubeconfig than the bundle's.
        ("eksctl-al2", Replace("0123456789abcdef.gr7", "fedcba9876543210.gr7"), RestartKubelet, "join.apiServer"),
    ]);
}

#[test]
fn static_pods_do_not_notice_files_that_change() {
    let case = "three-members-control-plane";
    assert_all(&[
        (
            case,
            Cluster("kubeScheduler: {config: {parallelism: 8}}"),
            RestartStaticPods,
            "read at the start of kube-scheduler; the kubelet starts a static pod anew only with another manifest",
        ),
        (
            "kube-proxy-worker",
            Replace("mode: nftables", "mode: iptables"),
            RestartStaticPods,
            "read at the start of kube-proxy",
        ),
        // Another image is another manifest.
        (
            "kube-proxy-worker",
            Replace(
                "config: {mode: nftables}",
                "config: {mode: iptables}\n    image: registry.example.com/kube-proxy:1",
            ),
            Consequence::None,
            "mode: nftables → iptables",
        ),
    ]);
    let (old, besides) = rendered(spec_of(case));
    for (path, expected, reader) in [
        ("/etc/kubernetes/pki/apiserver.crt", RestartStaticPods, "kube-apiserver"),
        ("/etc/kubernetes/pki/etcd/peer.key", RestartStaticPods, "etcd"),
        ("/etc/kubernetes/scheduler.conf", RestartStaticPods, "kube-scheduler"),
        ("/etc/kubernetes/admin.conf", RestartStaticPods, "dns-controller"),
        // The kubelet reads it too.
        ("/etc/kubernetes/pki/ca.crt", RestartStaticPods, "a restart of the kubelet"),
    ] {
        let mut new = old.clone();
        new.files.iter_mut().find(|file| file.path == path).unwrap().content = "renewed\n".into();
        let diff = diff_rendered((&old, &besides), (&new, &besides));
        assert_eq!(diff.consequence, expected, "{diff}");
        assert!(diff.to_string().contains(reader), "{reader}: {diff}");
    }
}

#[test]
fn etcd_does_not_move_by_itself() {
    let case = "three-members-control-plane";
    assert_all(&[
        (case, Replace("/mnt/etcd/data", "/mnt/other"), NewMachine, "command --data-dir: /mnt/etcd/data → /mnt/other"),
        (case, Replace("/mnt/etcd/data", "/mnt/other"), NewMachine, "etcd would start with an empty folder"),
        (case, Replace("cp-3]", "cp-3, cp-4]"), NewMachine, "cp-4=https://cp-4.internal.golden:2380"),
        (case, Replace("cp-3]", "cp-3, cp-4]"), NewMachine, "etcdctl member"),
    ]);
}

#[test]
fn services_below_kubernetes_are_restarted() {
    let corporate = || {
        Replace("corporate, certificate: {file: ca.crt}", "corporate, certificate: {file: pki/pki/front-proxy-ca.crt}")
    };
    let added = "trust: {certificateAuthorities: [{name: corporate, certificate: {file: ca.crt}}]}";
    assert_all(&[
        ("azure-rhel-trust", corporate(), RestartRuntime, "nodestrap-trust.service hands it on"),
        (
            "gce-flatcar-trust",
            corporate(),
            RestartRuntime,
            "/etc/ssl/certs/nodestrap-corporate.pem: a restart of the container runtime",
        ),
        ("minimal", Cluster(added), RestartRuntime, "+ nodestrap-trust.service"),
        (
            "azure-rhel-trust",
            Replace("\n      - {name: corporate, certificate: {file: ca.crt}}", " []"),
            NewMachine,
            "the system still trusts it",
        ),
        (
            "openstack-debian-time",
            Replace("ntp2.", "ntp3."),
            RestartUnits,
            "ntp2.example.com → NTP=ntp1.example.com ntp3.example.com",
        ),
        ("metal-rhel-time", Replace("ntp1.", "ntp3."), RestartUnits, "the time client reads it when it starts"),
        (
            "openstack-debian-time",
            Replace("[ntp1.example.com, ntp2.example.com]", "[]"),
            RestartUnits,
            "the time client starts anew with its own servers",
        ),
        ("minimal", Cluster("ntpServers: [ntp.example.com]"), RestartUnits, "systemd-timesyncd.service"),
        ("minimal", Cluster("sysctls: {vm.swappiness: 1}"), Reboot, "91-nodestrap-user.conf"),
    ]);
}

#[test]
fn it_says_what_apply_does_of_it() {
    let told = |case: &str, edit: Edit| diff_texts(spec_of(case), edited(&spec_of(case), &edit)).to_string();
    let ends =
        |text: String, end: &str| assert!(text.ends_with(&format!("\n\nnodestrap apply restarts {end}\n")), "{text}");
    ends(told("minimal", Group("maxPods: 50")), "kubelet.service, which is all that it takes");
    ends(told("minimal", Group("labels: {a: b}")), "kubelet.service; the rest is left to you");
    ends(
        told("minimal", Cluster("registryMirrors: {docker.io: ['https://m.example.com']}")),
        "containerd.service, which is all that it takes",
    );
    ends(told("kube-proxy-worker", Replace("mode: nftables", "mode: iptables")), "nothing; the rest is left to you");
    // Hooks run for every new bundle, and who starts after them starts anew.
    let hook = Replace("necessity: optional", "necessity: required");
    ends(
        told("hooks-and-files", hook),
        "containerd.service, kubelet.service and nodestrap-kernel.service, which is all that it takes",
    );
    assert!(!told("minimal", Group("machines: {image: ami-1}")).contains("apply"), "the bundle is the same");
}
