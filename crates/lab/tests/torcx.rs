//! Container Linux as the lab has it, driven by hand: what nodestrap relies on, and what strands a node that nobody prepared.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;
use lab::consumers::IgnitionSpec;
use lab::flow::{AddonSite, Published};
use lab::update_engine::{self, Script};
use lab::{FIRST_OS_VERSION, Lab, LabOptions, NEXT_OS_VERSION, Node, NodeImage, NodeOptions, Partition, Patch};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use trust::openpgp::{Keyring, verify_detached};

const PATIENCE: Duration = Duration::from_secs(120);
const ADDON: &str = "18.06";
const SEAL: &str = "/run/metadata/torcx";

fn container_linux(lab: &Lab) -> Node {
    let engine = |root: &Path| update_engine::install(root, Path::new(env!("CARGO_BIN_EXE_lab")));
    let options = NodeOptions::named("n1").image(NodeImage::ContainerLinux).before_boot(engine);
    lab.add_node(options).expect("the node boots")
}

fn write(node: &Node, path: &str, text: impl AsRef<[u8]>) {
    let place = node.root().join(path);
    std::fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    std::fs::write(place, text).expect("written");
}

fn put_addon(lab: &Lab, node: &Node, os_version: &str) {
    let archive = lab.torcx_addon(os_version, ADDON).expect("an archive");
    let name = archive.file_name().expect("a name").to_string_lossy().into_owned();
    write(node, &format!("var/lib/torcx/store/{os_version}/{name}"), std::fs::read(&archive).expect("read"));
}

fn want_addon(node: &Node) {
    let images = format!("[{{\"name\":\"docker\",\"reference\":\"{ADDON}\"}}]");
    let profile = format!("{{\"kind\":\"profile-manifest-v0\",\"value\":{{\"images\":{images}}}}}");
    write(node, "etc/torcx/profiles/tectonic.json", profile);
    write(node, "etc/torcx/next-profile", "tectonic\n");
}

/// By update_engine, as whoever wants an update now asks for it.
fn update(node: &Node) {
    call_engine(node, "AttemptUpdate");
    node.wait_until("a staged update", PATIENCE, |node| {
        Ok(call_engine(node, "GetStatus").contains("UPDATE_STATUS_UPDATED_NEED_REBOOT"))
    })
    .expect("it is staged");
}

/// Over the system bus.
fn call_engine(node: &Node, method: &str) -> String {
    let method = format!("com.coreos.update1.Manager.{method}");
    let words = ["dbus-send", "--system", "--print-reply", "--dest=com.coreos.update1", "/com/coreos/update1", &method];
    node.run(&words).expect("it answers")
}

fn reboot(node: &Node) {
    node.reboot().expect("boots again");
    node.wait_booted(PATIENCE).expect("no unit failed");
}

fn is_there(node: &Node, path: &str) -> bool {
    node.exec(&["test", "-e", path]).expect("test runs").status.success()
}

fn version(node: &Node) -> String {
    node.run(&["sh", "-c", ". /etc/os-release; echo $VERSION_ID"]).expect("sh").trim().to_owned()
}

/// Why there are no addons.
fn torcx_said(node: &Node) -> String {
    node.read_file("/run/nodestrap-lab-torcx.log").expect("the generator has run")
}

#[track_caller]
fn assert_stranded(node: &Node, missing: &str) {
    assert!(!is_there(node, SEAL) && !is_there(node, "/run/torcx/profile.json"), "nothing is sealed");
    assert!(torcx_said(node).contains(missing), "{}", torcx_said(node));
    assert!(!node.exec(&["systemctl", "start", "containerd.service"]).expect("systemctl runs").status.success());
    assert!(!node.exec(&["systemctl", "start", "torcx.target"]).expect("systemctl runs").status.success());
}

/// Really from the addon, and for this version of the system.
#[track_caller]
fn assert_runs_addon_of(node: &Node, os_version: &str) {
    assert!(is_there(node, SEAL), "{}", torcx_said(node));
    node.run(&["systemctl", "start", "containerd.service"]).expect("containerd runs");
    let description = node.run(&["systemctl", "show", "-P", "Description", "containerd.service"]).expect("systemctl");
    assert_eq!(description.trim(), format!("containerd of the addon docker:{ADDON} for {os_version}"));
    let program = node.run(&["sh", "-c", "readlink /proc/$(pidof containerd)/exe"]).expect("it runs");
    assert_eq!(program.trim(), "/run/torcx/unpack/docker/bin/containerd");
    node.run(&["/run/torcx/bin/ctr", "version"]).expect("it answers");
}

#[test]
fn an_addon_runs_if_profile_and_store_name_it_and_an_update_without_one_leaves_no_runtime_until_it_is_rolled_back() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let node = container_linux(&lab);
    node.wait_booted(PATIENCE).expect("no unit failed");
    assert_eq!(version(&node), FIRST_OS_VERSION);
    assert!(!node.exec(&["touch", "/usr/mine"]).expect("touch runs").status.success(), "/usr is read-only");
    assert_stranded(&node, "docker:com.coreos.cl");
    put_addon(&lab, &node, FIRST_OS_VERSION);
    want_addon(&node);
    node.run(&["systemctl", "daemon-reload"]).expect("generators run");
    assert_stranded(&node, "docker:com.coreos.cl");

    reboot(&node);
    assert_runs_addon_of(&node, FIRST_OS_VERSION);
    let seal = node.read_file(SEAL).expect("sealed");
    assert!(seal.contains("TORCX_LOWER_PROFILES=\"vendor\"\nTORCX_UPPER_PROFILE=\"tectonic\"\n"), "{seal}");
    let running = node.read_file("/run/torcx/profile.json").expect("sealed");
    assert!(running.contains(&format!("{{\"name\":\"docker\",\"reference\":\"{ADDON}\"}}")), "{running}");
    let write = node.exec(&["touch", "/run/torcx/unpack/docker/mine"]).expect("touch runs");
    assert!(!write.status.success(), "what is unpacked is read-only");

    call_engine(&node, "AttemptUpdate");
    node.wait_until("a check that found nothing", PATIENCE, |node| {
        Ok(call_engine(node, "GetStatus").contains("UPDATE_STATUS_IDLE"))
    })
    .expect("nothing is offered");
    update_engine::write_script(&node.root(), &Script::that_finds(NEXT_OS_VERSION)).expect("offered");
    update(&node);
    assert!(call_engine(&node, "GetStatus").contains(NEXT_OS_VERSION));
    assert_eq!(version(&node), FIRST_OS_VERSION, "until the next boot");
    node.run(&["systemctl", "kill", "--signal=KILL", "update-engine.service"]).expect("killed");
    node.wait_until("an engine that has forgotten the version", PATIENCE, |node| {
        let words =
            ["busctl", "call", "com.coreos.update1", "/com/coreos/update1", "com.coreos.update1.Manager", "GetStatus"];
        Ok(lab::output_text(&node.exec(&words)?).contains("\"UPDATE_STATUS_UPDATED_NEED_REBOOT\" \"0.0.0\""))
    })
    .expect("it is started again");
    call_engine(&node, "ResetStatus");
    assert_eq!(node.usr_partitions().next().expect("a partition"), Partition::A, "the update is forgotten");
    update(&node);
    reboot(&node);
    assert_eq!(version(&node), NEXT_OS_VERSION);
    assert_eq!(node.usr_partitions().booted().expect("one runs"), Partition::B);
    assert_stranded(&node, &format!("/var/lib/torcx/store/{NEXT_OS_VERSION}"));
    assert!(call_engine(&node, "GetStatus").contains("UPDATE_STATUS_IDLE"), "a boot ends what was staged");

    node.usr_partitions().boot_next(Partition::A).expect("chosen");
    reboot(&node);
    assert_eq!(version(&node), FIRST_OS_VERSION);
    assert_runs_addon_of(&node, FIRST_OS_VERSION);

    put_addon(&lab, &node, NEXT_OS_VERSION);
    node.usr_partitions().boot_next(Partition::B).expect("chosen");
    reboot(&node);
    assert_eq!(version(&node), NEXT_OS_VERSION);
    assert_runs_addon_of(&node, NEXT_OS_VERSION);
}

#[test]
fn the_wrapper_starts_the_kubelet_of_its_tag_and_names_a_tag_that_it_does_not_know() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let node = container_linux(&lab);
    node.wait_booted(PATIENCE).expect("no unit failed");
    let run = |environment: &[&str]| {
        let words = [&["env"], environment, &["/usr/lib/coreos/kubelet-wrapper", "--version"]].concat();
        node.exec(&words).expect("it runs")
    };
    for patch in [Patch::Newest, Patch::Earlier] {
        let tag = format!("KUBELET_IMAGE_TAG=v{}", patch.kubernetes_version());
        let said = lab::output_text(&run(&["KUBELET_IMAGE_URL=registry.example/hyperkube", &tag]));
        assert_eq!(said, format!("Kubernetes v{}", patch.kubernetes_version()));
    }
    let image = format!("KUBELET_IMAGE=registry.example:5000/kubelet:v{}", Patch::Earlier.kubernetes_version());
    let said = lab::output_text(&run(&[&image, "KUBELET_IMAGE_TAG=v0.0.0"]));
    assert_eq!(said, format!("Kubernetes v{}", Patch::Earlier.kubernetes_version()), "the image has precedence");
    for environment in [&["KUBELET_IMAGE_TAG=v1.9.6_coreos.0"], &["KUBELET_IMAGE_URL=registry.example/hyperkube"]] {
        assert!(!run(environment).status.success(), "{environment:?}");
    }
    let said = lab::output_text(&run(&["KUBELET_IMAGE_TAG=v1.9.6_coreos.0"]));
    assert!(said.contains("'v1.9.6_coreos.0'"), "{said}");
    let locksmith = node.run(&["systemctl", "is-active", "locksmithd.service"]).expect("it runs");
    assert_eq!(locksmith.trim(), "active", "as the image has it");
}

fn manifest_path(site: &AddonSite) -> String {
    let board = if cfg!(target_arch = "aarch64") { "arm64-usr" } else { "amd64-usr" };
    let url = site.manifest_url().replace("{{.Board}}", board).replace("{{.OSVersion}}", FIRST_OS_VERSION);
    url.strip_prefix(&site.server.url()).expect("an address of the site").to_owned()
}

/// Of a manifest for the first version: whether the key of the site has signed it, and whether each archive has the digest that it says.
fn holds(site: &AddonSite) -> (bool, bool) {
    let read = |path: &str| std::fs::read(site.server.folder().join(path.trim_start_matches('/'))).expect("published");
    let path = manifest_path(site);
    let (manifest, signature) = (read(&path), read(&format!("{path}.asc")));
    let keyring = Keyring::parse(&std::fs::read(&site.key.keyring).expect("read")).expect("a keyring");
    let is_signed = verify_detached(&manifest, &signature, &[keyring], None).is_ok();

    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["kind"], "torcx-package-list-v0");
    let versions = manifest["value"]["packages"][0]["versions"].as_array().expect("versions").clone();
    let names: Vec<&Value> = versions.iter().map(|version| &version["version"]).collect();
    assert_eq!(names, [ADDON, "17.03"]);
    let has_digest = |version: &Value| {
        let url = version["locations"][0]["url"].as_str().expect("an address");
        let archive = read(url.strip_prefix(&site.server.url()).expect("an address of the site"));
        version["hash"] == format!("sha512-{}", HEXLOWER.encode(&Sha512::digest(archive)))
    };
    (is_signed, versions.iter().all(has_digest))
}

/// The first line, or nothing.
fn ask(lab: &Lab, site: &AddonSite, path: &str) -> String {
    let address = site.server.url().replace("http://", "").replace(':', "/");
    let request = format!("exec 3<>/dev/tcp/{address} && printf 'GET {path} HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3");
    let said = lab.hub_command("bash").args(["-c", &request]).output().expect("bash runs");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[test]
fn a_site_of_addons_signs_for_what_it_has_lies_when_told_to_and_comes_back_after_an_outage() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let site = AddonSite::start(&lab).expect("a site");
    for (published, held) in [
        (Published::Rightly, (true, true)),
        (Published::WithOtherArchives, (true, false)),
        (Published::ByAStranger, (false, true)),
    ] {
        site.publish(FIRST_OS_VERSION, &[ADDON, "17.03"], published).expect("published");
        assert_eq!(holds(&site), held, "{published:?}");
    }
    let path = manifest_path(&site);
    assert!(ask(&lab, &site, &path).contains("200"));
    site.server.go_down().expect("down");
    assert_eq!(ask(&lab, &site, &path), "");
    site.server.come_back().expect("back");
    assert!(ask(&lab, &site, &path).contains("200"));
    site.withdraw(FIRST_OS_VERSION).expect("withdrawn");
    assert!(ask(&lab, &site, &path).contains("404"));
}

/// A file, a unit that needs it, and no locksmithd.
fn ignition_config(spec: IgnitionSpec) -> Value {
    let unit = "[Service]\nType=oneshot\nRemainAfterExit=true\nExecStart=/usr/bin/test -e /etc/mine\n\n\
                [Install]\nWantedBy=multi-user.target\n";
    let mut file = json!({"path": "/etc/mine", "mode": 0o644, "contents": {"source": "data:,mine"}});
    let version = match spec {
        IgnitionSpec::Two => {
            file["filesystem"] = json!("root");
            "2.3.0"
        }
        IgnitionSpec::Three => "3.4.0",
    };
    let units = json!([
        {"name": "mine.service", "enabled": true, "contents": unit},
        {"name": "locksmithd.service", "mask": true},
    ]);
    json!({"ignition": {"version": version}, "storage": {"files": [file]}, "systemd": {"units": units}})
}

#[test]
fn ignition_of_both_specs_configures_it_before_the_first_boot() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    for (name, spec) in [("two", IgnitionSpec::Two), ("three", IgnitionSpec::Three)] {
        let config = ignition_config(spec).to_string();
        let options = NodeOptions::named(name).image(NodeImage::ContainerLinux).ignition(spec, config);
        let node = lab.add_node(options).expect("the node boots");
        node.wait_booted(PATIENCE).expect("no unit failed");
        let is = |unit: &str| lab::output_text(&node.exec(&["systemctl", "is-active", unit]).expect("it runs"));
        assert_eq!((is("mine.service").as_str(), is("locksmithd.service").as_str()), ("active", "inactive"), "{name}");
    }
}

/// What this kind of machine needs; the README of this crate says why.
const KUBELET_CONFIGURATION: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
authentication: {x509: {clientCAFile: /etc/kubernetes/ca.crt}}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
";
const CONTAINERD_SETTINGS: &str = "version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'nodestrap.local/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
";
const KUBELET_UNIT: &str = "[Unit]
Wants=containerd.service
After=containerd.service

[Service]
EnvironmentFile=/etc/kubernetes/kubelet.env
ExecStart=/usr/lib/coreos/kubelet-wrapper --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/var/lib/kubelet/kubeconfig \
--bootstrap-kubeconfig=/etc/kubernetes/kubeconfig
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
";

/// By hand, as the units of Tectonic have it: a gate, and a kubelet in its wrapper.
fn put_kubelet(lab: &Lab, node: &Node, patch: Patch) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {
            "server": lab.api_server_url(), "certificate-authority": "/etc/kubernetes/ca.crt",
        }}],
        "users": [{"name": "bootstrap", "user": {"token": lab.bootstrap_token()}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "bootstrap"}}],
    });
    write(node, "etc/kubernetes/kubeconfig", kubeconfig.to_string());
    write(node, "etc/kubernetes/ca.crt", lab.ca_pem());
    write(node, "etc/kubernetes/kubelet.yaml", KUBELET_CONFIGURATION);
    write(node, "etc/containerd/config.toml", CONTAINERD_SETTINGS);
    let tag = format!("KUBELET_IMAGE_TAG=v{}", patch.kubernetes_version());
    write(node, "etc/kubernetes/kubelet.env", format!("KUBELET_IMAGE_URL=registry.example/hyperkube\n{tag}\n"));
    write(node, "etc/systemd/system/kubelet.service", KUBELET_UNIT);
    write(node, "etc/systemd/system-preset/20-kubelet.preset", "enable kubelet.service\n");
}

/// The plug-ins are the image's.
fn put_pod_network(lab: &Lab, node: &Node) {
    node.wait_until("a range of addresses", PATIENCE, |node| {
        let range = lab.kubectl_json(&["get", "node", node.name()])?["spec"]["podCIDR"].clone();
        let addresses = json!({"type": "host-local", "ranges": [[{"subnet": range}]]});
        let bridge = json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": addresses});
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]});
        write(node, "etc/cni/net.d/10-bridge.conflist", network.to_string());
        Ok(range.is_string())
    })
    .expect("it has joined");
}

#[test]
fn a_container_linux_is_a_ready_node_by_its_addon_and_the_kubelet_of_its_gate_before_and_after_an_update() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let options = NodeOptions::named("n1").image(NodeImage::ContainerLinux).not_started();
    let node = lab.add_node(options).expect("a node");
    put_kubelet(&lab, &node, Patch::Earlier);
    for version in [FIRST_OS_VERSION, NEXT_OS_VERSION] {
        put_addon(&lab, &node, version);
    }
    want_addon(&node);
    node.start().expect("it boots");
    put_pod_network(&lab, &node);
    lab.wait_ready_in_this_boot(&node, PATIENCE).expect("Ready");
    let pod = lab.run_pod("before", "n1").expect("a pod runs");
    assert_eq!(lab.pod_connect(&pod.name, "127.0.0.1").expect("it answers"), "before");

    let partitions = node.usr_partitions();
    partitions.write(Partition::B, NEXT_OS_VERSION).expect("written");
    partitions.boot_next(Partition::B).expect("chosen");
    node.reboot().expect("boots again");
    lab.wait_ready_in_this_boot(&node, PATIENCE).expect("Ready");
    let seen = lab.kubectl_json(&["get", "node", "n1"]).expect("seen")["status"]["nodeInfo"].take();
    assert_eq!(seen["kubeletVersion"], format!("v{}", Patch::Earlier.kubernetes_version()));
    assert!(seen["osImage"].as_str().expect("a name").contains(NEXT_OS_VERSION), "{seen}");
}
