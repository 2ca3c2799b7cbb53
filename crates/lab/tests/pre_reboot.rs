//! The pre-reboot hook against what the update operators of Container Linux and Flatcar write on Nodes, on a real API server; and from a
//! pod without rights to its host.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Downloads, Extension, ExtensionName,
    ExtensionRelease, Provenance, Readers, sha256_hex,
};
use lab::reboot_operator::{Agent, Marks, Operator, Protocol};
use lab::update_engine::{self, Script};
use lab::{Lab, LabOptions, Node, WorkerSpec, output_text, repository, wait_until};
use pki::{Authority, Credential, Kubeconfig, LeafRequest, Secret, Usage, Validity};
use serde_json::{Value, json};

const READY: &str = "nodestrap.io/next-boot-ready";
const ABOUT: &str = "nodestrap.io/next-boot-ready-for";
const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const IMAGE: &[u8] = b"as it was published";
const PATIENCE: Duration = Duration::from_secs(120);
const NOW: &str = "4230.2.1";

fn nodestrap() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// All Nodes, as an operator sees them.
fn nodes(lab: &Lab) -> BTreeMap<String, Marks> {
    let list = lab.kubectl_json(&["get", "nodes"]).expect("the API server answers");
    let map = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let marks = |node: Value| {
        let metadata = &node["metadata"];
        let name = metadata["name"].as_str().expect("a name").to_owned();
        (name, Marks { labels: map(&metadata["labels"]), annotations: map(&metadata["annotations"]) })
    };
    items.into_iter().map(marks).collect()
}

/// Only what has changed, as operators and agents do it.
fn write(lab: &Lab, before: &BTreeMap<String, Marks>, after: &BTreeMap<String, Marks>) {
    let changes = |old: &BTreeMap<String, String>, new: &BTreeMap<String, String>| {
        let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
        let set = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
        Value::Object(gone.chain(set.map(|(key, value)| (key.clone(), json!(value)))).collect())
    };
    for (name, after) in after {
        let before = &before[name];
        let labels = changes(&before.labels, &after.labels);
        let annotations = changes(&before.annotations, &after.annotations);
        if before != after {
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}}).to_string();
            lab.kubectl(&["patch", "node", name, "--type=merge", "--patch", &patch]).expect("written");
        }
    }
}

fn change(lab: &Lab, act: impl FnOnce(&mut BTreeMap<String, Marks>)) -> BTreeMap<String, Marks> {
    let before = nodes(lab);
    let mut after = before.clone();
    act(&mut after);
    write(lab, &before, &after);
    after
}

/// Its agent has seen that update_engine needs a reboot, and says so.
fn ask_for_reboot(lab: &Lab, protocol: Protocol, node: &str) {
    change(lab, |nodes| {
        let marks = nodes.get_mut(node).expect("it is registered");
        let begun = Agent::default().turn(protocol, true, marks).turn(protocol, true, marks);
        assert_eq!(begun.turn(protocol, true, marks), Agent::Asks);
    });
}

fn operator(protocol: Protocol) -> Operator {
    Operator { protocol, before: vec![READY.to_owned()], after: Vec::new() }
}

fn turn(lab: &Lab, protocol: Protocol) -> BTreeMap<String, Marks> {
    change(lab, |nodes| operator(protocol).turn(nodes))
}

fn annotation(lab: &Lab, node: &str, key: &str) -> Option<String> {
    nodes(lab)[node].annotations.get(key).cloned()
}

/// What a node of Flatcar has from nodestrap, with the kubelet's own credential.
struct Folder {
    root: tempfile::TempDir,
    image: PathBuf,
}

impl Folder {
    fn new(lab: &Lab, node: &str) -> Self {
        let mut spec = WorkerSpec::of(lab);
        spec.group = "os: flatcar\n".to_owned();
        let rendered = spec.render(&nodestrap(), &["--format", "bundle"]).expect("rendered");
        let mut bundle = Bundle::parse(&rendered.bytes).expect("a bundle");
        let extension = extension();
        let (place, link) = (extension.image(), extension.name.link());
        bundle.extensions = vec![extension];
        bundle.downloads = Some(Downloads {
            provenance: Provenance::Unsigned {},
            certificate_authorities: None,
            proxy: None,
            no_proxy: Vec::new(),
            s3: None,
        });
        assert_eq!(bundle.join.kubeconfig.to_string(), KUBECONFIG);
        let root = tempfile::tempdir().expect("a folder");
        let folder = Self { image: root.path().join(place.trim_start_matches('/')), root };
        folder.put("etc/nodestrap/bundle.json", bundle.to_json().as_bytes());
        folder.put("etc/os-release", os_release(NOW).as_bytes());
        folder.put(KUBECONFIG.trim_start_matches('/'), kubelets_kubeconfig(lab, node).expose().as_bytes());
        folder.put("opt/extensions/kubernetes/.keep", b"");
        folder.put("etc/extensions/.keep", b"");
        std::os::unix::fs::symlink(place, folder.root.path().join(link.trim_start_matches('/'))).expect("linked");
        folder
    }

    fn put(&self, path: &str, content: &[u8]) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    fn hook(&self, lab: &Lab, node: &str, protocol: Protocol) -> (Option<i32>, String) {
        let mut command = lab.hub_command(nodestrap());
        command.args(["hook", "pre-reboot", "--root"]).arg(self.root.path());
        command.args(["--node-name", node, "--node-annotation", READY]);
        command.args(["--while-label", &protocol.key("before-reboot")]);
        ended(&command.output().expect("it runs"))
    }

    /// Under the name of the old program.
    fn old_hook(&self, lab: &Lab, node: &str) -> (Option<i32>, String) {
        let link = self.root.path().join("tectonic-torcx-hook-pre");
        std::os::unix::fs::symlink(nodestrap(), &link).expect("linked");
        let mut command = lab.hub_command(&link);
        command.env("NODE", node).arg("--root").arg(self.root.path());
        command.args([&format!("--kubeconfig={KUBECONFIG}"), &format!("--node-annotation={READY}"), "--verbose=debug"]);
        ended(&command.output().expect("it runs"))
    }
}

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), output_text(output))
}

fn os_release(version: &str) -> String {
    format!("ID=flatcar\nVERSION=\"{version}\"\nVERSION_ID=\"{version}\"\nSYSEXT_LEVEL=\"1.0\"\n")
}

fn extension() -> Extension {
    Extension {
        name: ExtensionName::Kubernetes,
        version: "1.36.3".to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(IMAGE))).expect("a digest"),
            size: IMAGE.len() as u64,
            form: ArtefactForm::Sysext,
            places: vec!["https://store.example/kubernetes.raw".to_owned()],
        },
        release: ExtensionRelease {
            id: "flatcar".to_owned(),
            sysext_level: Some("1.0".to_owned()),
            version_id: None,
            architecture: None,
        },
        programs: [AbsolutePath::new("/usr/bin/kubelet").expect("a path")].into(),
        read_by: Readers::default(),
    }
}

/// As the cluster signs it for the kubelet of that node.
fn kubelets_kubeconfig(lab: &Lab, node: &str) -> Secret {
    let key = std::fs::read_to_string(lab.folder().join("pki/ca.key")).expect("the lab's own");
    let authority = Authority::parse(lab.ca_pem(), &Secret::new(key)).expect("an authority");
    let validity =
        Validity { start: SystemTime::now() - Duration::from_secs(600), lifetime: Duration::from_secs(86_400) };
    let leaf = authority.issue(&LeafRequest {
        common_name: format!("system:node:{node}"),
        organization: Some("system:nodes".to_owned()),
        names: Vec::new(),
        usages: vec![Usage::Client],
        validity,
    });
    Kubeconfig {
        cluster_name: "lab",
        server: lab.api_server_url(),
        authority_pem: lab.ca_pem(),
        user_name: "kubelet",
        credential: Credential::Certificate(&leaf.expect("a certificate")),
    }
    .render()
}

/// Events about a node that a hook has written.
fn events(lab: &Lab, node: &str) -> Vec<String> {
    let selector = format!("--field-selector=involvedObject.name={node},reason=NextBootRefused");
    let events = lab.kubectl_json(&["get", "events", "--namespace=default", &selector]).expect("events");
    let items = events["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// One round of an operator that waits for the hook of n1.
fn round(lab: &Lab, folder: &Folder, protocol: Protocol) {
    let [before, ok] = ["before-reboot", "reboot-ok"].map(|word| protocol.key(word));
    let says = |key: &str| annotation(lab, "n1", key).as_deref() == Some("true");
    let _ = std::fs::remove_file(&folder.image);
    // Of an earlier round, and nobody waits yet.
    lab.kubectl(&["annotate", "node", "n1", &format!("{READY}=true")]).expect("annotated");
    let (code, said) = folder.hook(lab, "n1", protocol);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nobody waits for n1") && !says(READY), "{said}");
    // It comes back, and the operator takes it away before it waits.
    lab.kubectl(&["annotate", "node", "n1", &format!("{READY}=true")]).expect("annotated");
    ask_for_reboot(lab, protocol, "n1");
    assert!(turn(lab, protocol)["n1"].labels.contains_key(&before) && !says(READY) && !says(&ok));

    for _ in 0..2 {
        // What was said in between is not true any more.
        lab.kubectl(&["annotate", "--overwrite", "node", "n1", &format!("{READY}=true")]).expect("annotated");
        let (code, said) = folder.hook(lab, "n1", protocol);
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains("kubernetes 1.36.3") && said.contains("is not there"), "{said}");
        assert_eq!((annotation(lab, "n1", READY), annotation(lab, "n1", ABOUT)), (None, None));
        assert_ne!(turn(lab, protocol)["n1"].annotations.get(&ok).map(String::as_str), Some("true"));
    }
    std::fs::write(&folder.image, IMAGE).expect("written");
    for _ in 0..2 {
        let (code, said) = folder.hook(lab, "n1", protocol);
        assert_eq!(code, Some(0), "{said}");
        assert!(says(READY));
        assert_eq!(annotation(lab, "n1", ABOUT).as_deref(), Some("the-running-system"));
    }

    lab.kubectl(&["annotate", "node", "n1", &format!("{}=true", protocol.key("reboot-paused"))]).expect("paused");
    assert!(!turn(lab, protocol)["n1"].labels.contains_key(&before) && !says(READY));
    let (code, said) = folder.hook(lab, "n1", protocol);
    assert!(code == Some(0) && said.contains("nobody waits") && !says(READY), "{said}");
    lab.kubectl(&["annotate", "node", "n1", &format!("{}-", protocol.key("reboot-paused"))]).expect("goes on");
    assert!(turn(lab, protocol)["n1"].labels.contains_key(&before));

    assert_eq!(folder.hook(lab, "n1", protocol).0, Some(0));
    let nodes = turn(lab, protocol);
    assert_eq!(nodes["n1"].annotations.get(&ok).map(String::as_str), Some("true"));
    assert!(!nodes["n1"].labels.contains_key(&before) && !says(READY));
    // A hook that is late says nothing into the next round.
    assert_eq!(folder.hook(lab, "n1", protocol).0, Some(0));
    assert!(!says(READY));
    change(lab, |nodes| {
        let node = nodes.get_mut("n1").expect("it is registered");
        assert_eq!(Agent::Asks.turn(protocol, true, node), Agent::Reboots);
    });
    change(lab, |nodes| {
        let node = nodes.get_mut("n1").expect("it is registered");
        assert_eq!(Agent::Begins.turn(protocol, false, node), Agent::WaitsForTheEnd);
    });
    turn(lab, protocol);
    let nodes = turn(lab, protocol);
    assert_eq!(nodes["n1"].annotations.get(&ok).map(String::as_str), Some("false"), "the round is over");
}

#[test]
fn both_operators_get_their_answer_from_the_kubelets_own_credential_which_reaches_no_other_node() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("lab");
    for name in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string();
        lab.kubectl_with_input(&["create", "-f", "-"], &node).expect("registered");
    }
    let folder = Folder::new(&lab, "n1");
    for protocol in Protocol::ALL {
        round(&lab, &folder, protocol);
    }
    let told = events(&lab, "n1");
    let [told] = told.as_slice() else { panic!("the same again is the same event: {told:?}") };
    assert!(told.starts_with("kubernetes 1.36.3: /opt/extensions/kubernetes/"), "{told}");

    let protocol = Protocol::Flatcar;
    for name in ["n1", "n2"] {
        lab.kubectl(&["label", "node", name, &format!("{}=true", protocol.key("before-reboot"))]).expect("labelled");
    }
    let (code, said) = folder.hook(&lab, "n2", protocol);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("the Node \"n2\"") && said.contains("(403)"), "{said}");
    assert_eq!(annotation(&lab, "n2", READY), None);
    let (code, said) = folder.hook(&lab, "n3", protocol);
    assert_eq!(code, Some(4), "{said}");

    let (code, said) = folder.old_hook(&lab, "n1");
    assert_eq!((code, annotation(&lab, "n1", READY).as_deref()), (Some(0), Some("true")), "{said}");

    lab.stop_apiserver().expect("stopped");
    let (code, said) = folder.hook(&lab, "n1", protocol);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the API server cannot be reached"), "{said}");
}

/// An extension of somebody else's, as a folder, that fits these systems.
fn put_tool(node: &Node, fits: &str) {
    let folder = node.root().join("var/lib/extensions/tool/usr/lib/extension-release.d");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("extension-release.tool"), format!("ID=flatcar\n{fits}\n")).expect("written");
}

/// A node with a bundle, nodestrap, and an update_engine on its system bus.
fn node_with_engine(lab: &Lab) -> Node {
    let node = lab.add_plain_node("n1").expect("node");
    let put = |path: &str, content: &[u8]| {
        let path = node.root().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    };
    let bundle = WorkerSpec::of(lab).render(&nodestrap(), &["--format", "bundle"]).expect("rendered");
    put("etc/nodestrap/bundle.json", &bundle.bytes);
    put("usr/lib/os-release", os_release(NOW).as_bytes());
    put("etc/dbus-1/system.d/com.coreos.update1.conf", update_engine::BUS_POLICY.as_bytes());
    // Where it is not looked for first.
    std::fs::copy(nodestrap(), node.root().join("usr/bin/nodestrap")).expect("copied");
    update_engine::install(&node.root(), Path::new(env!("CARGO_BIN_EXE_lab"))).expect("installed");
    node.run(&["systemctl", "reload", "dbus.service"]).expect("it reads its policy");
    let script = "/var/lib/nodestrap-lab/update-engine.json";
    let program = "/var/lib/nodestrap-lab/bin/lab";
    node.run(&["systemd-run", "--unit=update-engine", program, "update-engine", "--script", script]).expect("begun");
    node
}

fn call_engine(node: &Node, method: &str) -> anyhow::Result<String> {
    let method = format!("com.coreos.update1.Manager.{method}");
    node.run(&["dbus-send", "--system", "--print-reply", "--dest=com.coreos.update1", "/com/coreos/update1", &method])
}

/// An update to this version is staged, in place of any other.
fn stage(node: &Node, version: &str) {
    wait_until("update_engine", PATIENCE, || call_engine(node, "ResetStatus").map(Some)).expect("it answers");
    update_engine::write_script(&node.root(), &Script::that_finds(version)).expect("offered");
    call_engine(node, "AttemptUpdate").expect("it looks");
    wait_until("a staged update", PATIENCE, || {
        Ok(call_engine(node, "GetStatus")?.contains("UPDATE_STATUS_UPDATED_NEED_REBOOT").then_some(()))
    })
    .expect("it is staged");
}

/// The shipped manifest, with an image that the node has, and less patience.
fn deploy(lab: &Lab, node: &Node) {
    const NAME: &str = "nodestrap.local/nodestrap:1";
    let archive = node.root().join("var/tmp/nodestrap.tar");
    lab::image_of_program(&nodestrap(), "nodestrap", NAME, &archive).expect("an image");
    node.run(&["ctr", "--namespace=k8s.io", "images", "import", "/var/tmp/nodestrap.tar"]).expect("imported");
    let manifest = std::fs::read_to_string(repository().join("dist/kubernetes/pre-reboot-hook.yaml")).expect("shipped");
    let manifest = manifest.replace("image: nodestrap\n", &format!("image: {NAME}\n"));
    let manifest = manifest.replace("--sleep=60", "--sleep=2");
    lab.kubectl_with_input(&["apply", "-f", "-"], &manifest).expect("the manifest is one");
}

fn pods(lab: &Lab) -> Vec<Value> {
    let all = lab.kubectl_json(&["get", "pods", "--namespace=kube-system"]).expect("pods");
    all["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until the Node says this of the next boot.
fn wait_for(lab: &Lab, node: &Node, ready: Option<&str>, about: Option<&str>) {
    let wanted = (ready.map(str::to_owned), about.map(str::to_owned));
    wait_until(&format!("the annotations {wanted:?}"), PATIENCE, || {
        let found = (annotation(lab, "n1", READY), annotation(lab, "n1", ABOUT));
        anyhow::ensure!(found == wanted, "it says {found:?}");
        Ok(Some(()))
    })
    .unwrap_or_else(|error| {
        let log = lab.kubectl(&["logs", "--namespace=kube-system", "--selector=app=nodestrap-pre-reboot-hook-flatcar"]);
        panic!("{error:#}\n{}\n{}", log.unwrap_or_default(), node.diagnosis(&[]))
    });
}

/// What the process in the pod may do.
fn assert_powerless(node: &Node, pod: &Value) {
    assert_eq!(pod["metadata"]["labels"]["app"], "nodestrap-pre-reboot-hook-flatcar");
    let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
    assert_eq!(volumes.len(), 1, "no token: {volumes:?}");
    let find = "for p in $(pidof nodestrap); do tr '\\0' ' ' < /proc/$p/cmdline | grep -q -- --in-pod && \
                grep -E '^(CapEff|CapBnd|NoNewPrivs|Uid):' /proc/$p/status; done";
    let status = node.run(&["sh", "-c", find]).expect("it runs");
    let word = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {status}"));
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    let words = ["CapEff", "CapBnd", "NoNewPrivs", "Uid"].map(word);
    assert_eq!(words, ["0000000000000000", "0000000000000000", "1", "0"]);
}

#[test]
fn a_pod_without_rights_has_its_host_answer_and_what_was_said_before_a_second_update_goes() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("lab");
    let node = node_with_engine(&lab);
    deploy(&lab, &node);
    let protocol = Protocol::Flatcar;
    stage(&node, "4459.0.0");
    put_tool(&node, &format!("VERSION_ID={NOW}"));
    ask_for_reboot(&lab, protocol, "n1");
    assert!(pods(&lab).is_empty(), "nobody waits yet");
    turn(&lab, protocol);

    wait_until("an Event", PATIENCE, || Ok((!events(&lab, "n1").is_empty()).then_some(())))
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnosis(&[])));
    let told = events(&lab, "n1");
    let why = "the system extension tool: it does not fit what boots next, so systemd would leave it out: it is for \
               VERSION_ID=4230.2.1, and this system has \"4459.0.0\"";
    assert!(told.len() == 1 && told[0].starts_with(why), "{told:?}");
    assert_eq!(annotation(&lab, "n1", READY), None);
    let [pod]: [Value; 1] = pods(&lab).try_into().expect("one pod, of the operator that waits");
    assert_powerless(&node, &pod);

    put_tool(&node, "SYSEXT_LEVEL=1.0");
    wait_for(&lab, &node, Some("true"), Some("4459.0.0"));
    stage(&node, "4500.0.0");
    wait_for(&lab, &node, Some("true"), Some("4500.0.0"));
    put_tool(&node, "VERSION_ID=4500.0.0");
    // Not in use now: it is no reason to stay, nor to go.
    wait_for(&lab, &node, Some("true"), Some("4500.0.0"));
    put_tool(&node, &format!("VERSION_ID={NOW}"));
    wait_for(&lab, &node, None, None);
    put_tool(&node, "SYSEXT_LEVEL=1.0");
    wait_for(&lab, &node, Some("true"), Some("4500.0.0"));

    let nodes = turn(&lab, protocol);
    assert_eq!(nodes["n1"].annotations.get(&protocol.key("reboot-ok")).map(String::as_str), Some("true"));
    wait_until("the end of the pod", PATIENCE, || Ok(pods(&lab).is_empty().then_some(()))).expect("it goes");
    assert_eq!(annotation(&lab, "n1", READY), None, "nobody has said it once more");
    wait_until("the end of the unit", PATIENCE, || {
        let listed =
            node.run(&["systemctl", "list-units", "--all", "--plain", "--no-legend", "nodestrap-pre-reboot*"])?;
        Ok(listed.trim().is_empty().then_some(()))
    })
    .expect("nothing of it stays");
}
