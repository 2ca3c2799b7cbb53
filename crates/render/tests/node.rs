//! The bundle of a node, from a spec: what goes where, and what cannot be written out.

use bundle::{
    ArtefactForm, Bundle, BundleError, Component, Consequence, Layout, NETWORK_SETTINGS_PATH, Necessity,
    NetworkSettings, NodeKind, Os, Provenance, Provider, Role, RuntimeSource, Secrecy, Slot, Start, Tree, diff_bundles,
};
use render::{RenderError, cloud_config, render_bundle};
use spec::{CompleteGroup, CompleteSpec, Origin, PodNetwork, Setting};

const TOKEN: &str = "canary.0123456789abcdef";

/// A spec whose cluster and group `workers` say what is given, besides what they must say. Keys of the test's PKI are
/// served by what they are called.
fn complete(cluster: &str, group: &str) -> CompleteSpec {
    let join = if cluster.contains("join:") {
        String::new()
    } else {
        format!("  join: {{bootstrapToken: {TOKEN}, certificateAuthority: {{file: ca.crt}}}}\n")
    };
    let text = format!(
        "apiVersion: nodestrap.io/v1alpha1\nkind: Cluster\nmetadata: {{name: lab}}\nspec:\n  \
         kubernetesVersion: 1.36.3\n  apiServer: https://10.0.0.1:6443\n{join}{cluster}---\n\
         apiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: gpu}}\n---\n\
         apiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: workers}}\nspec:\n  \
         labels: {{a: b, c: d}}\n{group}"
    );
    let parsed = spec::parse(&[spec::Source::new("test", text)]);
    let spec = parsed.resolve(|reference| match reference.path.as_str() {
        "ca.crt" => Ok(include_bytes!("../../../examples/ca.crt").to_vec()),
        "artefacts.json" => Ok(include_bytes!("../../../examples/artefacts.json").to_vec()),
        "artefacts.json.asc" => Ok(include_bytes!("../../../examples/artefacts.json.asc").to_vec()),
        "artefacts-keys.asc" => Ok(include_bytes!("../../../examples/artefacts-keys.asc").to_vec()),
        "pki/pki/ca.crt" => Ok(include_bytes!("../../../examples/ca.crt").to_vec()),
        path if path.starts_with("pki/") => Ok(format!("canary of {path}\n").into_bytes()),
        path => Err(format!("there is no {path}")),
    });
    let complete = spec.and_then(|spec| spec::complete_before_pki(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

fn render(cluster: &str, group: &str) -> Bundle {
    render_bundle(&complete(cluster, group), "workers").unwrap_or_else(|error| panic!("{error}"))
}

/// A complete spec that was changed by hand.
fn render_changed(change: impl FnOnce(&mut CompleteSpec)) -> Result<Bundle, RenderError> {
    let mut spec = complete("", "");
    change(&mut spec);
    render_bundle(&spec, "workers")
}

fn workers(spec: &mut CompleteSpec) -> &mut CompleteGroup {
    let group = spec.groups.iter_mut().find(|group| group.name.value.as_str() == "workers");
    &mut group.expect("the spec has the group").spec
}

fn set_flag(spec: &mut CompleteSpec, flag: &str, value: &str) {
    let setting = Setting { value: value.to_owned(), origin: Origin::Default { reason: "a test" } };
    workers(spec).kubelet.flags.insert(flag.to_owned(), setting);
}

fn text<'a>(bundle: &'a Bundle, path: &str) -> &'a str {
    let file = bundle.files.iter().find(|file| file.path == path);
    let file = file.unwrap_or_else(|| panic!("no {path} among {:?}", bundle.files));
    std::str::from_utf8(&file.content).expect("the file is text")
}

fn has(bundle: &Bundle, path: &str) -> bool {
    bundle.files.iter().any(|file| file.path == path)
}

/// As they lie on the node, made of what the bundle says.
fn network_settings(bundle: &Bundle) -> NetworkSettings {
    let files = bundle.all_files();
    let file = files.iter().find(|file| file.path == NETWORK_SETTINGS_PATH).expect("there is a pod network");
    NetworkSettings::parse(&file.content).expect("our own settings")
}

fn units(bundle: &Bundle) -> Vec<(&str, Start)> {
    bundle.units.iter().map(|unit| (unit.name.as_str(), unit.start)).collect()
}

#[test]
fn an_unknown_group_is_answered_with_the_known_ones() {
    let error = render_bundle(&complete("", ""), "masters").expect_err("there is no such group");
    assert_eq!(error.to_string(), "there is no group 'masters': the spec has 'gpu' and 'workers'");
}

#[test]
fn a_worker_gets_its_files_units_and_programs() {
    let bundle = render("", "");
    let all = bundle.all_files();
    let files: Vec<(&str, u32, Secrecy)> =
        all.iter().map(|file| (file.path.as_str(), file.mode, file.secrecy)).collect();
    assert_eq!(
        files,
        [
            ("/etc/containerd/config.toml", 0o644, Secrecy::Public),
            ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", 0o600, Secrecy::Secret),
            ("/etc/kubernetes/kubelet.yaml", 0o644, Secrecy::Public),
            ("/etc/kubernetes/pki/ca.crt", 0o644, Secrecy::Public),
            ("/etc/modules-load.d/nodestrap.conf", 0o644, Secrecy::Public),
            ("/etc/nodestrap/network.json", 0o644, Secrecy::Public),
            ("/etc/sysctl.d/90-nodestrap.conf", 0o644, Secrecy::Public),
            ("/etc/systemd/system/kubelet.service", 0o644, Secrecy::Public),
            ("/etc/systemd/system/nodestrap-gate.service", 0o644, Secrecy::Public),
            ("/etc/systemd/system/nodestrap-kernel.service", 0o644, Secrecy::Public),
            ("/etc/systemd/system/nodestrap-network.service", 0o644, Secrecy::Public),
            ("/etc/systemd/system/nodestrap-spend-credentials.service", 0o644, Secrecy::Public),
        ]
    );
    assert_eq!(
        units(&bundle),
        [
            ("nodestrap-kernel.service", Start::BeforeGate),
            ("containerd.service", Start::BeforeGate),
            ("kubelet.service", Start::AfterGate),
            ("nodestrap-gate.service", Start::ByOthers),
            ("nodestrap-spend-credentials.service", Start::ByOthers),
            ("nodestrap-network.service", Start::ByOthers),
        ]
    );
    assert_eq!(
        bundle.required_programs,
        [
            "/usr/bin/kubelet",
            "/usr/bin/containerd",
            "/opt/cni/bin/bridge",
            "/opt/cni/bin/host-local",
            "/opt/cni/bin/loopback",
            "/opt/cni/bin/portmap",
        ]
    );
    let node = NodeKind { role: Role::Worker, os: Os::Debian, provider: Provider::Metal, layout: Layout::Nodestrap };
    assert_eq!(bundle.node, node);
}

#[test]
fn units_start_from_the_system_up() {
    let cluster = "  ntpServers: [time.example.com]\n  trust: {certificateAuthorities: [{name: corp, certificate: \
                   {file: ca.crt}}]}\n  units: [{name: exporter.service, content: \"[Service]\\n\"}]\n";
    let names: Vec<_> = render(cluster, "").units.into_iter().map(|unit| unit.name).collect();
    assert_eq!(
        names,
        [
            "nodestrap-trust.service",
            "nodestrap-kernel.service",
            "systemd-timesyncd.service",
            "containerd.service",
            "exporter.service",
            "kubelet.service",
            "nodestrap-gate.service",
            "nodestrap-spend-credentials.service",
            "nodestrap-network.service",
        ]
    );
}

#[test]
fn a_unit_that_others_start_has_no_install_section_and_the_rest_of_ours_have_one() {
    let bundle = render("  trust: {certificateAuthorities: [{name: corp, certificate: {file: ca.crt}}]}\n", "");
    for unit in &bundle.units {
        assert_eq!(unit.brought.is_some(), bundle.unit_file(&unit.name).is_some(), "{}", unit.name);
        if let Some(file) = bundle.unit_file(&unit.name) {
            let content = String::from_utf8_lossy(&file.content);
            assert_eq!(content.contains("\n[Install]\n"), unit.start != Start::ByOthers, "{}", unit.name);
        }
    }
}

/// Debian's program looks at names alone: the links by which OpenSSL finds certificates would lead to the former one.
#[test]
fn an_authority_that_takes_the_place_of_another_has_another_name_on_debian() {
    let trust = "  trust: {certificateAuthorities: [{name: corp, certificate: {file: ca.crt}}]}\n";
    for (os, folder) in [("debian", "/usr/local/share/ca-certificates"), ("rhel", "/etc/pki/ca-trust/source/anchors")] {
        let bundle = render(trust, &format!("  os: {os}\n"));
        let [file] = bundle.files.iter().filter(|file| file.path.is_within(folder)).collect::<Vec<_>>()[..] else {
            panic!("one authority")
        };
        let expected = match os {
            "debian" => format!("{folder}/nodestrap-corp-{}.crt", &file.sha256()[..8]),
            _ => format!("{folder}/nodestrap-corp.pem"),
        };
        assert_eq!(file.path.as_str(), expected);
        assert!(file.read_by.units.contains("nodestrap-trust.service"));
    }
}

#[test]
fn without_a_pod_network_nothing_of_it_is_left() {
    let bundle = render_changed(|spec| spec.cluster.networking.pod_network.value = PodNetwork::None).unwrap();
    assert_eq!(bundle.units.len(), 5);
    assert_eq!(bundle.required_programs, ["/usr/bin/kubelet", "/usr/bin/containerd"]);
    assert!(bundle.pod_network.is_none() && !bundle.to_json().contains("nodestrap-network"));
    assert!(!bundle.all_files().iter().any(|file| file.path == NETWORK_SETTINGS_PATH));
}

#[test]
fn secrets_are_in_secret_files_alone() {
    let group = "  fileAssets: [{path: /etc/x, content: canary, secret: true}]\n";
    for bundle in [
        render("", group),
        render("  pki: {folder: pki}\n  kubeProxy: {kubeconfig: canary}\n", &format!("{group}  role: control-plane\n")),
    ] {
        for file in &bundle.files {
            let public_of_pki = [".crt", ".pub"].iter().any(|suffix| file.path.ends_with(suffix));
            let found = String::from_utf8_lossy(&file.content).contains("canary") && !public_of_pki;
            assert_eq!(found, file.secrecy == Secrecy::Secret, "{}", file.path);
        }
        assert!(!bundle.manifest_json().contains("canary"));
        assert!(!format!("{bundle:?}").contains("canary"));
        assert!(!cloud_config(&bundle).unwrap().contains("canary"));
        assert!(!bundle.gate.environment.values().any(|value| value.contains("canary")));
    }
}

#[test]
fn the_kubelet_is_told_where_its_files_are() {
    let arguments = |bundle: &Bundle| bundle.gate.environment["KUBELET_ARGS"].clone();
    assert_eq!(
        arguments(&render("", "")),
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.kubeconfig --config=/etc/kubernetes/kubelet.yaml \
         --kubeconfig=/var/lib/kubelet/kubeconfig --node-labels=a=b,c=d"
    );
    let moved = render_changed(|spec| {
        for (flag, value) in
            [("config", "/etc/k/c.yaml"), ("bootstrap-kubeconfig", "/etc/k/b"), ("kubeconfig", "/var/k")]
        {
            set_flag(spec, flag, value);
        }
    })
    .unwrap();
    assert!(
        arguments(&moved).starts_with("--bootstrap-kubeconfig=/etc/k/b --config=/etc/k/c.yaml --kubeconfig=/var/k")
    );
    assert!(text(&moved, "/etc/k/c.yaml").contains("kind: KubeletConfiguration\n"));
    assert!(text(&moved, "/etc/k/b").contains(TOKEN));
    assert_eq!((moved.join.bootstrap_kubeconfig.as_str(), moved.join.kubeconfig.as_str()), ("/etc/k/b", "/var/k"));
    assert_eq!(network_settings(&moved).kubeconfig, "/var/k");
}

#[test]
fn a_flag_that_says_where_a_file_lies_must_be_there() {
    for missing in ["bootstrap-kubeconfig", "config", "kubeconfig"] {
        let error = render_changed(|spec| {
            workers(spec).kubelet.flags.remove(missing);
        });
        assert!(matches!(error, Err(RenderError::MissingFlag { flag }) if flag == missing));
    }
}

#[test]
fn the_pod_network_looks_for_the_name_under_which_the_node_registers() {
    assert_eq!(network_settings(&render("", "")).node_name, None);
    let named = render_changed(|spec| set_flag(spec, "hostname-override", "n1"));
    assert_eq!(network_settings(&named.unwrap()).node_name.as_deref(), Some("n1"));
}

#[test]
fn flags_that_systemd_would_split_or_expand_are_refused_by_name() {
    for value in ["a b", "a\tb", "a\nb", "\"a\"", "'a'", "a\\b", "$HOME", "a\u{a0}b", "a\u{1}"] {
        let error = render_changed(|spec| set_flag(spec, "node-ip", value)).err().unwrap();
        assert!(matches!(&error, RenderError::FlagValue { flag, .. } if flag == "node-ip"), "{value:?}: {error}");
    }
    for flag in ["", "--v", "V", "node ip", "a=b"] {
        let error = render_changed(|spec| set_flag(spec, flag, "1"));
        assert!(matches!(error, Err(RenderError::FlagName { .. })), "{flag:?}");
    }
}

#[test]
fn two_files_for_one_path_are_refused() {
    let error = render_changed(|spec| set_flag(spec, "config", "/etc/kubernetes/pki/ca.crt"));
    assert!(matches!(error, Err(RenderError::Bundle { problem: BundleError::DuplicatePath { .. } })));
}

#[test]
fn nodestrap_is_called_where_it_lies() {
    let bundle = render("", "  delivery: {nodestrap: {path: /opt/bin/nodestrap}}\n");
    let unit = |name: &str| text(&bundle, &format!("/etc/systemd/system/{name}")).to_owned();
    assert!(unit("kubelet.service").contains("ExecStartPre=/opt/bin/nodestrap gate\n"));
    assert!(unit("nodestrap-network.service").contains("ExecStart=/opt/bin/nodestrap network\n"));
    assert!(unit("nodestrap-spend-credentials.service").contains("ExecStart=/opt/bin/nodestrap spend-credentials\n"));
}

#[test]
fn a_program_that_gives_credentials_takes_the_place_of_the_bootstrap() {
    let join = "  join: {exec: {command: /usr/bin/who, arguments: [token, '-i', lab], environment: {A: b}}, \
                certificateAuthority: {file: ca.crt}}\n";
    const KUBECONFIG: &str = "/etc/kubernetes/kubelet.kubeconfig";
    let bundle = render(join, "");
    assert!(!bundle.gate.environment["KUBELET_ARGS"].contains("bootstrap-kubeconfig"));
    assert!(!has(&bundle, "/etc/kubernetes/bootstrap-kubelet.kubeconfig"));
    let kubeconfig = text(&bundle, KUBECONFIG);
    for part in ["client.authentication.k8s.io/v1", "command: /usr/bin/who", "interactiveMode: Never", "value: b"] {
        assert!(kubeconfig.contains(part), "{part} in {kubeconfig}");
    }
    // Nobody waits for a certificate that never comes.
    assert_eq!(bundle.join.client_certificate, KUBECONFIG);
    assert_eq!(bundle.join.bootstrap_kubeconfig, KUBECONFIG);
    assert!(bundle.required_programs.iter().any(|program| program == "/usr/bin/who"));
}

#[test]
fn only_what_the_user_asks_of_the_kernel_can_stop_a_boot() {
    let unit = |bundle: &Bundle| text(bundle, "/etc/systemd/system/nodestrap-kernel.service").to_owned();
    let command = |bundle: &Bundle, path: &str| {
        let unit = unit(bundle);
        let line = unit.lines().find(|line| line.ends_with(path));
        line.unwrap_or_else(|| panic!("no {path} in {unit}")).to_owned()
    };
    let (own, users) = ("/etc/sysctl.d/90-nodestrap.conf", "/etc/sysctl.d/91-nodestrap-user.conf");
    let modules = "/etc/modules-load.d/nodestrap.conf";
    let ours = render("", "");
    assert!(command(&ours, modules).starts_with("ExecStart=-/lib/systemd/systemd-modules-load "));
    assert!(command(&ours, own).starts_with("ExecStart=-/lib/systemd/systemd-sysctl "));
    assert!(text(&ours, own).ends_with("\nnet.ipv4.ip_forward = 1\n"));
    assert!(!has(&ours, users));
    let theirs = render("  sysctls: {vm.max_map_count: '262144'}\n", "  kernelModules: [nf_conntrack]\n");
    // What nodestrap needs stays what may be missing, whatever else the user asks for.
    assert!(command(&theirs, modules).starts_with("ExecStart=-/lib/systemd/systemd-modules-load "));
    let users_modules = "/etc/modules-load.d/nodestrap-user.conf";
    assert!(command(&theirs, users_modules).starts_with("ExecStart=/lib/systemd/systemd-modules-load "));
    assert!(text(&theirs, users_modules).ends_with(".\nnf_conntrack\n"));
    assert!(command(&theirs, users).starts_with("ExecStart=/lib/systemd/systemd-sysctl "));
    assert!(text(&theirs, users).ends_with(".\nvm.max_map_count = 262144\n"));
    let other = render("  sysctls: {net.ipv4.ip_forward: '0'}\n", "");
    assert!(!has(&other, own));
    assert!(text(&other, users).ends_with(".\nnet.ipv4.ip_forward = 0\n"));
}

/// The manifest of the examples, and more about artefacts.
fn artefacts(more: &str) -> String {
    format!(
        "  artefacts:\n    store: https://a.example.com/nodes/\n    manifest: {{file: artefacts.json}}\n    \
         keyrings: [{{file: artefacts-keys.asc}}]\n{more}"
    )
}

fn tree(bundle: &Bundle, component: Component) -> &Tree {
    bundle.trees.iter().find(|tree| tree.component == component).unwrap_or_else(|| panic!("no tree of {component}"))
}

#[test]
fn trees_are_pinned_linked_and_read_by_who_runs_them() {
    let bundle =
        render(&artefacts("    mirrors: [s3://bucket, 'file:///srv']\n    s3: {region: here}\n"), "  source: tree\n");
    let components: Vec<Component> = bundle.trees.iter().map(|tree| tree.component).collect();
    use Component::{CniPlugins, Containerd, Kubectl, Kubelet, Runc};
    assert_eq!(components, [CniPlugins, Containerd, Kubectl, Kubelet, Runc], "crictl is not asked for");
    let kubelet = tree(&bundle, Kubelet);
    assert_eq!(kubelet.version, "1.36.3");
    let place = "kubelet/1.36.3/amd64/kubelet";
    let places = [
        format!("https://a.example.com/nodes/{place}"),
        format!("s3://bucket/{place}"),
        format!("file:///srv/{place}"),
    ];
    assert_eq!(kubelet.artefact.places, places);
    assert_eq!((kubelet.artefact.size, kubelet.artefact.form), (59_876_546, ArtefactForm::Program));
    let links = |component| {
        let links = tree(&bundle, component).links.iter();
        links.map(|(link, program)| format!("{link} {program}")).collect::<Vec<_>>()
    };
    assert_eq!(links(Kubelet), ["/usr/local/bin/kubelet kubelet"]);
    assert_eq!(links(Containerd)[1], "/usr/local/bin/containerd-shim-runc-v2 bin/containerd-shim-runc-v2");
    assert_eq!(links(CniPlugins)[1], "/opt/cni/bin/bridge bridge");
    let readers =
        |component| tree(&bundle, component).read_by.units.iter().map(|unit| unit.as_str()).collect::<Vec<_>>();
    assert_eq!(
        [readers(Kubelet), readers(Runc), readers(Containerd)].concat(),
        ["kubelet.service", "containerd.service", "containerd.service"]
    );
    assert!([readers(Kubectl), readers(CniPlugins)].concat().is_empty());
    let downloads = bundle.downloads.as_ref().expect("there are trees");
    let by = "046C0B0E42363094D7A806CD5A92AC5A59DC0099".to_owned();
    assert_eq!(downloads.provenance, Provenance::Signed { by, serial: 3 });
    assert_eq!(downloads.s3.as_ref().map(|s3| s3.region.as_str()), Some("here"));
}

#[test]
fn downloads_take_the_way_that_the_spec_names() {
    let cluster = "  proxy: {http: 'http://p:1', https: 'http://p:2', noProxy: [a.example.com]}\n  \
                   trust: {certificateAuthorities: [{name: a, certificate: {file: ca.crt}}]}\n";
    let downloads = |more: &str| {
        let unsigned = artefacts(more).replace("    keyrings: [{file: artefacts-keys.asc}]\n", "    unsigned: true\n");
        render(&format!("{cluster}{unsigned}"), "  components: {kubelet: {source: tree}}\n").downloads.expect("a tree")
    };
    let plain = downloads("");
    assert_eq!(plain.provenance, Provenance::Unsigned {}, "nobody was asked whose signature it is");
    assert_eq!(plain.proxy.as_ref().map(|proxy| proxy.expose()), Some("http://p:2"));
    assert!(plain.no_proxy.contains(&"a.example.com".to_owned()), "{:?}", plain.no_proxy);
    let authority = include_str!("../../../examples/ca.crt");
    assert_eq!(plain.certificate_authorities.as_deref(), Some(authority));
    let own = downloads("    certificateAuthority: {file: ca.crt}\n");
    assert_eq!(own.certificate_authorities, Some(authority.repeat(2)));
    assert!(render(&artefacts(""), "").downloads.is_none(), "without trees there is nothing to download");
}

#[test]
fn flatcar_has_its_links_where_it_looks_for_programs() {
    let bundle = render(&artefacts(""), "  os: flatcar\n  source: tree\n");
    assert!(tree(&bundle, Component::Runc).links.keys().any(|link| *link == *"/opt/bin/runc"));
    let unit = text(&bundle, "/etc/systemd/system/containerd.service");
    assert!(unit.contains("ExecStart=/opt/bin/containerd\n") && unit.contains("PATH=/opt/bin:"), "{unit}");
    assert!(text(&bundle, "/etc/systemd/system/kubelet.service").contains("ExecStart=/opt/bin/kubelet "));
}

/// Whatever brings the kubelet, it waits for the same.
#[test]
fn the_kubelet_of_a_tree_is_gated_as_one_of_the_image() {
    let unit = |group: &str| text(&render(&artefacts(""), group), "/etc/systemd/system/kubelet.service").to_owned();
    assert_eq!(unit("  source: tree\n").replace("/usr/local/bin/kubelet", "/usr/bin/kubelet"), unit(""));
}

#[test]
fn a_patch_version_up_is_another_tree_and_a_restart_of_the_kubelet() {
    let bundle = |version: &str| render(&artefacts(""), &format!("  kubernetesVersion: {version}\n  source: tree\n"));
    let diff = diff_bundles(&bundle("1.36.2"), &bundle("1.36.3"));
    let trees: Vec<&str> =
        diff.changes.iter().filter(|change| change.family == "tree").map(|change| change.subject.as_str()).collect();
    assert_eq!(trees, ["tree kubectl", "tree kubelet"]);
    assert_eq!(diff.consequence, Consequence::RestartKubelet, "{:?}", diff.changes);
}

#[test]
fn a_control_plane_has_its_static_pods_and_joins_by_its_own_authority() {
    let bundle = render("  pki: {folder: pki}\n", "  role: control-plane\n");
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let path = format!("/etc/kubernetes/manifests/{component}.yaml");
        let file = bundle.files.iter().find(|file| *file.path == *path).expect("a manifest");
        assert_eq!((file.mode, file.secrecy), (0o600, Secrecy::Public));
    }
    assert!(!has(&bundle, "/etc/kubernetes/manifests/kube-proxy.yaml"));
    assert!(!has(&bundle, "/etc/kubernetes/manifests/dns-controller.yaml"));
    assert_eq!(text(&bundle, "/etc/kubernetes/bootstrap-kubelet.kubeconfig"), "canary of pki/super-admin.conf\n");
    assert!(!has(&bundle, "/etc/kubernetes/super-admin.conf"), "nobody on the node reads it");
    assert_eq!(text(&bundle, "/etc/kubernetes/pki/etcd/ca.key"), "canary of pki/pki/etcd/ca.key\n");
    assert_eq!(text(&bundle, "/etc/kubernetes/pki/ca.crt"), include_str!("../../../examples/ca.crt"));
    let moved =
        render("  pki: {folder: pki}\n", "  role: control-plane\n  kubelet: {config: {staticPodPath: /etc/m}}\n");
    assert!(has(&moved, "/etc/m/etcd.yaml"));
}

#[test]
fn a_worker_has_nothing_of_the_control_plane() {
    let bundle = render("  pki: {folder: pki}\n  dnsController: {image: 'a/b:1'}\n", "");
    assert!(!bundle.files.iter().any(|file| file.path.contains("manifests") || file.path.ends_with(".key")));
}

#[test]
fn hooks_become_units_that_only_the_bootstrap_starts() {
    let group = "  hooks:\n    \
                 - {name: whole, slot: after-files, unit: \"[Service]\\nExecStart=/bin/true\\n\"}\n    \
                 - {name: body, slot: before-kubelet, unit: \"ExecStart=/bin/true\", timeout: 90s}\n    \
                 - {name: box, slot: after-runtime, necessity: optional, container: {image: 'a/b:1', command: [x, 'y z']}}\n";
    let bundle = render("", group);
    let entries: Vec<(&str, Slot, u64, Necessity)> =
        bundle.hooks.iter().map(|hook| (hook.name.as_str(), hook.slot, hook.timeout_seconds, hook.necessity)).collect();
    assert_eq!(
        entries,
        [
            ("body", Slot::BeforeKubelet, 90, Necessity::Required),
            ("box", Slot::AfterRuntime, 300, Necessity::Optional),
            ("whole", Slot::AfterFiles, 300, Necessity::Required)
        ]
    );
    let unit = |name: &str| text(&bundle, &format!("/etc/systemd/system/nodestrap-hook-{name}.service"));
    assert_eq!(unit("whole"), "[Service]\nExecStart=/bin/true\n");
    let output = "StandardOutput=append:/run/nodestrap/hooks/nodestrap-hook-body.service.log\nStandardError=inherit\n";
    let body = format!("[Service]\nType=oneshot\nTimeoutStartSec=90\n{output}ExecStart=/bin/true\n");
    assert!(unit("body").ends_with(&body), "{}", unit("body"));
    assert!(unit("box").contains("nodestrap-hook-box.service.log\nStandardError=inherit\n"));
    assert!(unit("box").contains("ExecStart=/usr/bin/ctr -n nodestrap run --rm --net-host a/b:1 box x \"y z\"\n"));
    assert!(!bundle.units.iter().any(|unit| unit.name.contains("hook")));
    // In later boots nobody else would make it, and systemd starts nothing whose output it cannot open.
    let folders = text(&bundle, "/etc/tmpfiles.d/nodestrap-hooks.conf");
    assert_eq!(folders, "d /run/nodestrap/hooks 0700 root root -\n");
    assert!(!render("", "").files.iter().any(|file| file.path.contains("tmpfiles")));
}

#[test]
fn what_the_bootstrap_installs_is_not_asked_of_the_image() {
    let group =
        |slot: &str| format!("  source: tree\n  hooks: [{{name: box, slot: {slot}, container: {{image: 'a/b:1'}}}}]\n");
    let bundle = render(&artefacts(""), &group("after-runtime"));
    assert!(bundle.required_programs.is_empty(), "{:?}", bundle.required_programs);
    assert_eq!(bundle.runtime.source, RuntimeSource::Tree);
    let unit = text(&bundle, "/etc/systemd/system/containerd.service");
    assert!(unit.contains("ExecStart=/usr/local/bin/containerd\n") && !unit.contains("PATH="), "{unit}");
    assert!(text(&bundle, "/etc/systemd/system/nodestrap-hook-box.service").contains("=/usr/local/bin/ctr -n"));
    let only = render(&artefacts(""), "  components: {kubelet: {source: tree}}\n");
    assert_eq!((only.trees.len(), only.runtime.source), (1, RuntimeSource::Preinstalled));
    assert!(only.required_programs.iter().any(|program| *program == *"/usr/bin/containerd"));
    let error = render_bundle(&complete(&artefacts(""), &group("before-runtime")), "workers");
    assert!(matches!(error, Err(RenderError::HookBeforeRuntime { slot: "before-runtime", .. })));
}

/// Whoever is on a machine may ask systemd for a unit's environment and read its files.
#[test]
fn the_password_of_a_proxy_is_in_a_file_of_roots_and_in_no_unit() {
    let proxy = "  proxy: {http: 'http://p.example.com:3128', credentials: {user: me, password: 'canary@1'}}\n";
    let hook = |slot: &str| format!("  hooks: [{{name: box, slot: {slot}, container: {{image: 'a/b:1'}}}}]\n");
    let group = format!("  source: tree\n{}", hook("after-runtime"));
    let bundle = render(&format!("{proxy}{}", artefacts("")), &group);
    let (open, hidden): (Vec<_>, Vec<_>) = bundle.files.iter().partition(|file| file.secrecy == Secrecy::Public);
    assert!(open.iter().all(|file| !String::from_utf8_lossy(&file.content).contains("canary%40")));
    let file = hidden.iter().find(|file| file.path == "/etc/nodestrap/proxy.env").expect("a file of the proxy");
    assert_eq!(file.mode, 0o600);
    let variables = String::from_utf8_lossy(&file.content);
    assert!(variables.contains("https_proxy=\"http://me:canary%401@p.example.com:3128\"\n"), "{variables}");
    for unit in ["containerd.service", "kubelet.service"] {
        let drop_in = text(&bundle, &format!("/etc/systemd/system/{unit}.d/10-proxy.conf"));
        assert!(drop_in.ends_with("\n[Service]\nEnvironmentFile=/etc/nodestrap/proxy.env\n"), "{drop_in}");
        assert!(file.read_by.units.iter().any(|reader| *reader == *unit), "a new password restarts {unit}");
    }
    assert!(text(&bundle, "/etc/systemd/system/nodestrap-hook-box.service").contains("=/etc/nodestrap/proxy.env\n"));
    let downloads = bundle.downloads.as_ref().and_then(|downloads| downloads.proxy.as_ref()).map(|url| url.expose());
    assert_eq!(downloads, Some("http://me:canary%401@p.example.com:3128"));
    let error = render_bundle(&complete(proxy, &hook("before-files")), "workers");
    assert!(matches!(error, Err(RenderError::HookBeforeProxy { .. })));
}

#[test]
fn mirrors_reach_containerd_unless_the_user_leads_it_elsewhere() {
    let cluster = "  registryMirrors: {docker.io: ['https://m.example.com'], 'r.example.com:5000': \
                   ['https://m.example.com/v2/r', 'http://n']}\n";
    let bundle = render(cluster, "");
    assert!(text(&bundle, "/etc/containerd/config.toml").contains("config_path = \"/etc/containerd/certs.d\""));
    let docker = text(&bundle, "/etc/containerd/certs.d/docker.io/hosts.toml");
    assert!(docker.contains("server = \"https://registry-1.docker.io\"\n"), "{docker}");
    let other = text(&bundle, "/etc/containerd/certs.d/r.example.com:5000/hosts.toml");
    let (first, second) = (other.find("override_path = true"), other.find("[host.\"http://n\"]"));
    assert!(first.is_some() && first < second, "{other}");
    let config =
        "  containerRuntime: {config: {plugins: {io.containerd.cri.v1.images: {registry: {config_path: /etc/m}}}}}\n";
    let moved = render(cluster, config);
    assert!(has(&moved, "/etc/m/docker.io/hosts.toml"));
    assert!(!text(&moved, "/etc/containerd/config.toml").contains("certs.d"));
}

#[test]
fn a_port_that_the_time_client_cannot_use_is_refused() {
    let cluster = "  ntpServers: ['time.example.com:124']\n";
    let error = render_bundle(&complete(cluster, ""), "workers");
    assert!(matches!(error, Err(RenderError::TimeServerPort { .. })));
    let bundle = render(cluster, "  os: rhel\n");
    assert!(text(&bundle, "/etc/chrony.conf").contains("server time.example.com iburst port 124\n"));
}

#[test]
fn rendering_twice_gives_equal_bytes() {
    let (one, other) = (render("", ""), render("", ""));
    assert_eq!(one.to_json(), other.to_json());
    assert_eq!(one.manifest_json(), other.manifest_json());
    assert_eq!(cloud_config(&one).unwrap(), cloud_config(&other).unwrap());
}
