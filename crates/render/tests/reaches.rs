//! What `spec::explain` says of whom a value reaches, against what is rendered: each setting is changed, and the groups for
//! which something else is rendered then are those that it names.

mod support;

use std::collections::BTreeSet;

use bundle::{Besides, Bundle, diff_rendered};
use render::render_group;
use serde_json::{Map, Value, json};
use spec::{CompleteSpec, Source};

const KEYS: &str = include_str!("../../../examples/artefacts-keys.asc");
const SHA256: &str = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
const OTHER_SHA256: &str = "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b";

/// A path, segment by segment (items of lists by their index), and what stands there instead.
type Change = (&'static [&'static str], Value);

/// A cluster and its groups.
struct Setting {
    cluster: Value,
    groups: Vec<(&'static str, Value)>,
    changes: Vec<Change>,
}

fn read(path: &str) -> Vec<u8> {
    let keys = support::keys::control_plane("https://10.0.0.10:6443");
    support::cases::file(path, &keys).unwrap_or_else(|error| panic!("{error}"))
}

fn source(setting: &Setting) -> Source {
    let document = |kind: &str, name: &str, spec: &Value| {
        let metadata = spec.get("name").cloned().unwrap_or_else(|| json!(name));
        let mut spec = spec.clone();
        spec.as_object_mut().expect("a spec is an object").remove("name");
        json!({
            "apiVersion": "nodestrap.io/v1alpha1", "kind": kind, "metadata": {"name": metadata}, "spec": spec,
        })
        .to_string()
    };
    let groups = setting.groups.iter().map(|(name, spec)| document("NodeGroup", name, spec));
    let documents: Vec<String> =
        std::iter::once(document("Cluster", "golden", &setting.cluster)).chain(groups).collect();
    Source::new("cluster.yaml", documents.join("\n---\n"))
}

/// Files of the folder `other` are like those of `pki`, and are not the same.
fn file(path: &str) -> Vec<u8> {
    match path {
        "other.json" => String::from_utf8_lossy(&read("artefacts.json")).replace("59876546", "1").into_bytes(),
        "other.json.asc" => Vec::new(),
        "both.crt" => [read("pki/pki/ca.crt"), read("ca.crt")].concat(),
        path if path.starts_with("other/pki/ca.crt") => read("pki/pki/ca.crt"),
        path => match path.strip_prefix("other/") {
            Some(below) => [read(&format!("pki/{below}")), b"\n".to_vec()].concat(),
            None => read(path),
        },
    }
}

/// Whether keys belong to the API server is no matter here.
fn complete(source: &Source, change: &str) -> CompleteSpec {
    let spec = spec::parse(std::slice::from_ref(source)).resolve(|reference| Ok(file(&reference.path)));
    let complete = spec.and_then(|spec| spec::complete_before_pki(&spec));
    complete.unwrap_or_else(|mistakes| {
        panic!("{change}:\n{}", spec::render_mistakes(&mistakes, spec::Colour::Plain));
    })
}

/// The bundle, what machines get besides, and their user data.
type Rendered = (Bundle, Besides, Vec<u8>);

fn rendered(spec: &CompleteSpec, group: &str) -> Rendered {
    let rendered = render_group(spec, group).unwrap_or_else(|error| panic!("{group}: {error:?}"));
    let user_data = rendered.format().map(|format| rendered.user_data(format).expect("it fits"));
    let besides = rendered.besides();
    (rendered.bundle, besides, user_data.map(|user_data| user_data.bytes).unwrap_or_default())
}

fn differ(old: &Rendered, new: &Rendered) -> bool {
    let diff = diff_rendered((&old.0, &old.1), (&new.0, &new.1));
    old.0 != new.0 || old.2 != new.2 || !diff.machine.is_empty()
}

fn put(value: &mut Value, at: &[&str], new: Value) {
    let Some((first, rest)) = at.split_first() else {
        *value = new;
        return;
    };
    match value {
        Value::Array(items) => put(&mut items[first.parse::<usize>().expect("an index")], rest, new),
        Value::Object(fields) => put(fields.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest, new),
        other => panic!("{other} has no {first}"),
    }
}

fn written_path(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments {
        match segment.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) => {
                let quoted = segment.contains(['.', '/']);
                let dot = if path.is_empty() { "" } else { "." };
                path.push_str(&if quoted { format!("{dot}\"{segment}\"") } else { format!("{dot}{segment}") });
            }
        }
    }
    path
}

/// Of the whole table, so that all wrong rows are seen at once.
fn wrong_rows(setting: &Setting) -> Vec<String> {
    let original = source(setting);
    let before = complete(&original, "unchanged");
    let names: Vec<&str> = before.groups.iter().map(|group| group.name.value.as_str()).collect();
    let old: Vec<Rendered> = names.iter().map(|name| rendered(&before, name)).collect();
    let mut wrong = Vec::new();
    for (segments, new) in &setting.changes {
        let path = written_path(segments);
        let mut changed = Setting { cluster: setting.cluster.clone(), groups: setting.groups.clone(), changes: vec![] };
        match segments {
            ["cluster", below @ ..] => put(&mut changed.cluster, below, new.clone()),
            ["nodeGroups", name, below @ ..] => {
                let group = changed.groups.iter_mut().find(|(group, _)| group == name).expect("it is there");
                put(&mut group.1, below, new.clone());
            }
            _ => panic!("{path} is no path"),
        }
        let after = complete(&source(&changed), &path);
        let reached: Vec<&str> = names
            .iter()
            .zip(&old)
            .filter(|(name, old)| differ(old, &rendered(&after, name)))
            .map(|(name, _)| *name)
            .collect();
        let explained = spec::explain(&before, std::slice::from_ref(&original), &path);
        let explained = explained.unwrap_or_else(|error| panic!("{path}: {error}"));
        let said: BTreeSet<&str> =
            explained.iter().flat_map(|explanation| &explanation.reaches).map(String::as_str).collect();
        if said.iter().copied().ne(reached.iter().copied()) {
            wrong.push(format!("{path} reaches {reached:?}, and explain says {said:?}"));
        }
    }
    wrong
}

fn assert_said_truly(setting: &Setting) {
    let wrong = wrong_rows(setting);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn unit(name: &str, text: &str) -> Value {
    json!({"name": name, "content": format!("[Service]\nExecStart=/bin/{text}\n")})
}

fn hook(name: &str, text: &str) -> Value {
    json!({"name": name, "slot": "before-kubelet", "unit": format!("ExecStart=/bin/{text}\n")})
}

fn part(name: &str, text: &str) -> Value {
    json!({"name": name, "type": "text/x-shellscript", "content": format!("#!/bin/sh\necho {text}\n")})
}

fn asset(path: &str, text: &str) -> Value {
    json!({"path": path, "content": text})
}

/// A control plane and workers of all kinds, with what is optional left out: a group that overrides what it can, one with
/// another runtime, one that unpacks its runtime, one without user data.
fn sparing() -> Setting {
    let cluster = json!({
        "kubernetesVersion": "1.36.3",
        "region": "here",
        "apiServer": "https://10.0.0.10:6443",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "pki/pki/ca.crt"}},
        "pki": {"folder": "pki"},
        "artefacts": {
            "store": "https://artefacts.example.com", "manifest": {"file": "artefacts.json"}, "keyrings": [KEYS],
            "certificateAuthority": {"file": "ca.crt"},
        },
        "packages": {
            "prerequisites": ["iptables"],
            "repositories": [{"name": "a", "url": "https://a.example.com", "key": KEYS}],
        },
        "sysctls": {"vm.max_map_count": "1", "vm.swappiness": "1"},
        "kernelModules": ["ip_vs"],
        "fileAssets": [asset("/etc/a", "1"), asset("/etc/b", "1")],
        "hooks": [hook("a", "1"), hook("b", "1")],
        "units": [unit("a.service", "1"), unit("b.service", "1")],
        "additionalUserData": [part("a.sh", "1"), part("b.sh", "1")],
        "delivery": {"nodestrap": {"path": "/usr/bin/nodestrap"}, "store": {"urls": ["https://store.example.com/a"]}},
    });
    let overriding = json!({
        "kubernetesVersion": "1.35.4",
        "sysctls": {"vm.max_map_count": "2"},
        "fileAssets": [asset("/etc/a", "2")],
        "hooks": [hook("a", "2")],
        "units": [unit("a.service", "2")],
        "additionalUserData": [part("a.sh", "2")],
        "kubelet": {"config": {"clusterDNS": ["10.96.0.11"], "clusterDomain": "other.local"}},
        "containerRuntime": {"sandboxImage": "registry.example.com/pause:1"},
        "delivery": {
            "compression": "never",
            "nodestrap": {"path": "/opt/nodestrap"},
            "store": {"urls": ["https://store.example.com/b"]},
        },
    });
    let unpacking = json!({"source": "tree", "components": {"runc": {"source": "preinstalled"}}});
    let changes: Vec<Change> = vec![
        (&["cluster", "name"], json!("other")),
        (&["cluster", "kubernetesVersion"], json!("1.36.2")),
        (&["cluster", "provider"], json!("openstack")),
        (&["cluster", "region"], json!("there")),
        (&["cluster", "apiServer"], json!("https://10.0.0.11:6443")),
        (&["cluster", "join", "bootstrapToken"], json!("abcdef.0123456789abcdee")),
        (&["cluster", "join", "certificateAuthority"], json!({"file": "both.crt"})),
        (&["cluster", "networking", "podNetwork"], json!("none")),
        (&["cluster", "networking", "podCIDRs"], json!(["10.244.0.0/16", "fd00:10:244::/56"])),
        (&["cluster", "networking", "serviceCIDRs"], json!(["10.96.0.0/12", "fd00:10:96::/112"])),
        (&["cluster", "networking", "clusterDNS"], json!(["10.96.0.12"])),
        (&["cluster", "networking", "clusterDomain"], json!("k8s.example")),
        (&["cluster", "proxy", "noProxy"], json!([".example.com"])),
        (&["cluster", "trust", "certificateAuthorities"], json!([{"name": "a", "certificate": {"file": "ca.crt"}}])),
        (&["cluster", "trust", "keyrings"], json!([{"name": "a", "keys": KEYS}])),
        (&["cluster", "assets", "containerRegistry"], json!("registry.example.com")),
        (&["cluster", "packages", "prerequisites"], json!(["ethtool"])),
        (
            &["cluster", "packages", "repositories"],
            json!([{"name": "a", "url": "https://packages.example.com", "key": KEYS}]),
        ),
        (&["cluster", "artefacts", "store"], json!("https://other.example.com")),
        (&["cluster", "artefacts", "mirrors"], json!(["file:///srv/artefacts"])),
        (&["cluster", "artefacts", "keyrings"], json!([KEYS, KEYS])),
        (&["cluster", "artefacts", "unsigned"], json!(true)),
        (&["cluster", "artefacts", "minimumSerial"], json!(1)),
        (&["cluster", "artefacts", "certificateAuthority"], json!({"file": "pki/pki/ca.crt"})),
        (&["cluster", "registryMirrors"], json!({"docker.io": ["https://mirror.example.com"]})),
        (&["cluster", "ntpServers"], json!(["time.example.com"])),
        (&["cluster", "sysctls", "vm.max_map_count"], json!("3")),
        (&["cluster", "sysctls", "vm.swappiness"], json!("3")),
        (&["cluster", "kernelModules"], json!(["nf_conntrack"])),
        (&["cluster", "kernelModules", "0"], json!("nf_conntrack")),
        (&["cluster", "fileAssets", "0", "content"], json!("3")),
        (&["cluster", "fileAssets", "1"], asset("/etc/b", "3")),
        (&["cluster", "hooks", "0", "timeout"], json!("9m")),
        (&["cluster", "hooks", "1", "timeout"], json!("9m")),
        (&["cluster", "units", "0"], unit("a.service", "3")),
        (&["cluster", "units", "1"], unit("b.service", "3")),
        (&["cluster", "additionalUserData", "0", "content"], json!("#!/bin/sh\n")),
        (&["cluster", "additionalUserData", "1", "content"], json!("#!/bin/sh\n")),
        (&["cluster", "delivery", "nodestrap", "path"], json!("/usr/local/bin/nodestrap")),
        (&["cluster", "delivery", "store", "urls"], json!(["https://store.example.com/c"])),
        (&["cluster", "delivery", "store", "urls", "0"], json!("https://store.example.com/c")),
        (&["cluster", "pki", "folder"], json!("other")),
        (&["cluster", "kubeApiserver", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeApiserver", "flags", "max-requests-inflight"], json!("801")),
        (&["cluster", "kubeControllerManager", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeControllerManager", "flags", "node-monitor-grace-period"], json!("41s")),
        (&["cluster", "kubeScheduler", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeScheduler", "config", "parallelism"], json!(17)),
        (&["cluster", "kubeScheduler", "flags", "bind-address"], json!("0.0.0.0")),
        (&["cluster", "etcd", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "etcd", "members"], json!(["a", "b", "c"])),
        (&["cluster", "etcd", "domain"], json!("etcd.example.com")),
        (&["cluster", "etcd", "dataFolder"], json!("/var/lib/etcd-data")),
        (&["cluster", "etcd", "flags", "snapshot-count"], json!("20000")),
        (&["cluster", "kubeProxy", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeProxy", "config", "mode"], json!("nftables")),
        (&["cluster", "kubeProxy", "flags", "hostname-override"], json!("a")),
        (&["cluster", "dnsController", "command"], json!(["/dns-controller"])),
        (&["nodeGroups", "crio", "containerRuntime", "sandboxImage"], json!("registry.example.com/pause:2")),
        (&["nodeGroups", "crio", "containerRuntime", "cniBinaries"], json!("/usr/lib/cni")),
        (&["nodeGroups", "folder", "delivery", "compression"], json!("never")),
        (&["nodeGroups", "folder", "delivery", "store", "urls"], json!(["https://store.example.com/c"])),
        (&["nodeGroups", "plain", "containerRuntime", "sandboxImage"], json!("registry.example.com/pause:2")),
        (&["nodeGroups", "plain", "labels"], json!({"example.com/a": "b"})),
        (&["nodeGroups", "plain", "taints"], json!([{"key": "a", "effect": "NoSchedule"}])),
        (&["nodeGroups", "plain", "maxPods"], json!(111)),
        (&["nodeGroups", "plain", "machines", "prefixDelegation"], json!(true)),
        (&["nodeGroups", "plain", "machines", "desired"], json!(2)),
        (&["nodeGroups", "plain", "kubelet", "config", "registryPullQPS"], json!(6)),
        (&["nodeGroups", "plain", "architecture"], json!("arm64")),
        (&["nodeGroups", "plain", "source"], json!("tree")),
        (&["nodeGroups", "plain", "components", "kubectl", "source"], json!("tree")),
        (&["nodeGroups", "unpacking", "source"], json!("preinstalled")),
        (&["nodeGroups", "unpacking", "components", "kubectl", "version"], json!("1.36.2")),
        (&["nodeGroups", "unpacking", "components", "runc", "source"], json!("tree")),
        (&["nodeGroups", "unpacking", "containerRuntime", "cniBinaries"], json!("/usr/lib/cni")),
    ];
    Setting {
        cluster,
        groups: vec![
            ("crio", json!({"containerRuntime": {"name": "cri-o"}})),
            ("folder", json!({"delivery": {"format": "folder"}})),
            ("masters", json!({"role": "control-plane"})),
            ("overriding", overriding),
            ("plain", json!({})),
            ("unpacking", unpacking),
        ],
        changes,
    }
}

/// The same with everything that is optional, on a provider whose user data is too small for it: bundles are in a store.
fn lavish() -> Setting {
    let authority = json!({"file": "ca.crt"});
    // It cannot be compressed.
    let large: String = (0..9000_u32).map(|index| format!("{:x}", index.wrapping_mul(2_654_435_761))).collect();
    let cluster = json!({
        "provider": "aws",
        "apiServer": "https://10.0.0.10:6443",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "pki/pki/ca.crt"}},
        "networking": {"podCIDRs": ["10.244.0.0/16"], "clusterDNS": ["10.96.0.10", "10.96.0.11"]},
        "proxy": {"http": "http://proxy.example.com:3128", "noProxy": [".example.com"],
            "credentials": {"user": "nodes", "password": "example"}},
        "trust": {
            "certificateAuthorities": [{"name": "a", "certificate": authority}],
            "keyrings": [{"name": "a", "keys": KEYS}],
        },
        "registryMirrors": {"docker.io": ["https://a.example.com", "https://b.example.com"]},
        "ntpServers": ["time.example.com"],
        "fileAssets": [asset("/etc/large", &large)],
        "report": {"webhook": "https://hooks.example.com", "certificateAuthority": authority, "headers": {"A": "b"}},
        "pki": {"folder": "pki"},
        "kubeApiserver": {"internalName": "a.example.com", "externalName": "b.example.com"},
        "etcd": {"members": ["a", "b", "c"]},
        "kubeProxy": {"kubeconfig": {"file": "pki/kube-proxy.conf"}},
        "dnsController": {"image": "registry.example.com/dns:1", "command": ["/dns"]},
        "delivery": {
            "format": "mime",
            "compression": "auto",
            "nodestrap": {
                "installation": "download", "urls": ["https://a.example.com/nodestrap"], "sha256": SHA256,
                "sha512": SHA256.repeat(2),
            },
            "store": {"urls": ["https://a.example.com"], "certificateAuthority": authority},
        },
    });
    let sized = json!({"maxPods": "map", "machines": {"instanceType": "m5.large", "tags": {"a": "b"}}});
    let in_image = json!({
        "delivery": {
            "compression": "never", "nodestrap": {"installation": "image"}, "store": {"urls": ["https://b.example.com"]},
        },
    });
    let changes: Vec<Change> = vec![
        (&["cluster", "networking", "podCIDRs", "0"], json!("10.240.0.0/16")),
        (&["cluster", "networking", "clusterDNS", "1"], json!("10.96.0.12")),
        (&["cluster", "proxy", "http"], json!("http://other.example.com:3128")),
        (&["cluster", "proxy", "https"], json!("http://other.example.com:3128")),
        (&["cluster", "proxy", "noProxy"], json!([".example.org"])),
        (&["cluster", "proxy", "credentials", "user"], json!("others")),
        (&["cluster", "trust", "certificateAuthorities", "0", "name"], json!("b")),
        (&["cluster", "trust", "keyrings", "0", "keys"], json!(KEYS.replace("\n\n", "\nComment: another\n\n"))),
        (&["cluster", "registryMirrors", "docker.io"], json!(["https://c.example.com"])),
        (&["cluster", "registryMirrors", "docker.io", "1"], json!("https://c.example.com")),
        (&["cluster", "ntpServers", "0"], json!("other.example.com")),
        (&["cluster", "report", "webhook"], json!("https://other.example.com")),
        (&["cluster", "report", "certificateAuthority"], json!({"file": "pki/pki/ca.crt"})),
        (&["cluster", "report", "headers", "A"], json!("c")),
        (&["cluster", "kubeApiserver", "internalName"], json!("c.example.com")),
        (&["cluster", "kubeApiserver", "externalName"], json!("c.example.com")),
        (&["cluster", "etcd", "members"], json!(["a", "b", "d"])),
        (&["cluster", "etcd", "domain"], json!("etcd.example.com")),
        (&["cluster", "kubeProxy", "kubeconfig"], json!("x")),
        (&["cluster", "kubeProxy", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeProxy", "config", "mode"], json!("nftables")),
        (&["cluster", "kubeProxy", "flags", "hostname-override"], json!("a")),
        (&["cluster", "dnsController", "image"], json!("registry.example.com/dns:2")),
        (&["cluster", "dnsController", "command"], json!(["/dns", "--all"])),
        (&["cluster", "delivery", "format"], json!("folder")),
        (&["cluster", "delivery", "compression"], json!("never")),
        (&["cluster", "delivery", "nodestrap", "installation"], json!("image")),
        (&["cluster", "delivery", "nodestrap", "urls"], json!(["https://b.example.com/nodestrap"])),
        (&["cluster", "delivery", "nodestrap", "sha256"], json!(OTHER_SHA256)),
        (&["cluster", "delivery", "nodestrap", "sha512"], json!(OTHER_SHA256.repeat(2))),
        (&["cluster", "delivery", "store", "urls"], json!(["https://c.example.com"])),
        (&["cluster", "delivery", "store", "certificateAuthority"], json!({"file": "pki/pki/ca.crt"})),
        (&["nodeGroups", "sized", "machines", "prefixDelegation"], json!(true)),
        (&["nodeGroups", "sized", "machines", "instanceType"], json!("m5.xlarge")),
        (&["nodeGroups", "sized", "machines", "tags", "a"], json!("c")),
        (&["nodeGroups", "sized", "reservation"], json!("none")),
        (&["nodeGroups", "in-image", "delivery", "compression"], json!("auto")),
    ];
    let groups = vec![("in-image", in_image), ("masters", json!({"role": "control-plane"})), ("sized", sized)];
    Setting { cluster, groups, changes }
}

/// Nodes that have their credentials from a program.
fn with_exec() -> Setting {
    let exec = json!({"command": "/bin/a", "arguments": ["b"], "environment": {"C": "d"}});
    let cluster = json!({
        "apiServer": "https://10.0.0.10:6443",
        "join": {"exec": exec, "certificateAuthority": {"file": "pki/pki/ca.crt"}},
        "pki": {"folder": "pki"},
    });
    let changes: Vec<Change> = vec![
        (&["cluster", "join", "exec", "command"], json!("/bin/b")),
        (&["cluster", "join", "exec", "arguments"], json!([])),
        (&["cluster", "join", "exec", "arguments", "0"], json!("c")),
        (&["cluster", "join", "exec", "environment", "C"], json!("e")),
    ];
    let groups = vec![("masters", json!({"role": "control-plane"})), ("workers", json!({}))];
    Setting { cluster, groups, changes }
}

/// Artefacts in a bucket that nobody vouches for.
fn unsigned() -> Setting {
    let cluster = json!({
        "kubernetesVersion": "1.36.3",
        "apiServer": "https://10.0.0.10:6443",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "ca.crt"}},
        "artefacts": {
            "store": "s3://bucket", "manifest": {"file": "artefacts.json"}, "unsigned": true, "s3": {"region": "here"},
        },
    });
    let changes: Vec<Change> = vec![
        (&["cluster", "artefacts", "manifest"], json!({"file": "other.json"})),
        (&["cluster", "artefacts", "keyrings"], json!([KEYS])),
        (&["cluster", "artefacts", "s3", "region"], json!("there")),
        (&["cluster", "artefacts", "s3", "pathStyle"], json!(true)),
    ];
    let trees = json!({"components": {"kubelet": {"source": "tree"}}});
    Setting { cluster, groups: vec![("plain", json!({})), ("trees", trees)], changes }
}

fn eksctl() -> Setting {
    let cluster = json!({
        "provider": "aws",
        "region": "eu-west-1",
        "layout": "eksctl",
        "apiServer": "https://api.example.com",
        "kubernetesVersion": "1.34.4",
        "join": {"certificateAuthority": {"file": "ca.crt"}},
    });
    let changes: Vec<Change> = vec![
        (&["cluster", "name"], json!("other")),
        (&["cluster", "region"], json!("eu-west-2")),
        (&["cluster", "kubernetesVersion"], json!("1.34.3")),
        (&["cluster", "join", "certificateAuthority"], json!({"file": "pki/pki/ca.crt"})),
        (&["cluster", "networking", "podCIDRs"], json!(["10.244.0.0/16", "fd00:10:244::/56"])),
        (&["cluster", "networking", "serviceCIDRs"], json!(["10.97.0.0/16"])),
        (&["cluster", "networking", "clusterDNS"], json!(["10.96.0.12"])),
        (&["cluster", "assets", "containerRegistry"], json!("registry.example.com")),
        (&["cluster", "eksctl", "ecrAccount"], json!("1")),
        (&["cluster", "kubeApiserver", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeProxy", "image"], json!("registry.example.com/a:1")),
        (&["nodeGroups", "snaps", "kubelet", "binary"], json!("/opt/kubelet")),
        (&["nodeGroups", "plain", "kubelet", "binary"], json!("/opt/kubelet")),
        (&["nodeGroups", "newer", "containerRuntime", "sandboxImage"], json!("registry.example.com/pause:1")),
    ];
    let older = json!({"kubernetesVersion": "1.33.0"});
    let groups = vec![("newer", json!({})), ("plain", older), ("snaps", json!({"os": "ubuntu"}))];
    Setting { cluster, groups, changes }
}

/// What another layout takes as well.
fn of_any_layout() -> Setting {
    let cluster = json!({
        "provider": "aws",
        "region": "eu-west-1",
        "layout": "eksctl",
        "apiServer": "https://api.example.com",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "ca.crt"}},
    });
    let groups = vec![("one", json!({"maxPods": 110})), ("other", json!({"maxPods": 110, "os": "ubuntu"}))];
    Setting { cluster, groups, changes: vec![(&["cluster", "layout"], json!("nodestrap"))] }
}

fn tectonic() -> Setting {
    let cluster = json!({
        "layout": "tectonic",
        "apiServer": "https://api.example.com",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "ca.crt"}},
        "trust": {"keyrings": [{"name": "addons", "keys": KEYS}]},
        "tectonic": {
            "manifestURL": "https://torcx.example.com/{{.Board}}/{{.OSVersion}}",
            "forceKubernetesVersion": "v1.9.6",
        },
    });
    let mut changes: Vec<Change> = vec![
        (&["cluster", "kubernetesVersion"], json!("1.9.5")),
        (&["cluster", "tectonic", "kubeletImageTag"], json!("v1.9.1")),
        (&["cluster", "tectonic", "forceKubernetesVersion"], json!("v1.9.6+coreos.1")),
        (&["cluster", "tectonic", "minors"], json!(["1.9", "1.10"])),
        (&["cluster", "tectonic", "runtimeMappings"], json!({"1.9": ["1.12"]})),
    ];
    changes.extend(of_tectonic());
    let groups = vec![
        ("baked", json!({"source": "preinstalled"})),
        ("masters", json!({"role": "control-plane"})),
        ("workers", json!({})),
    ];
    Setting { cluster, groups, changes }
}

/// What nodes of every release have.
fn of_tectonic() -> Vec<Change> {
    vec![
        (&["cluster", "apiServer"], json!("https://other.example.com")),
        (&["cluster", "join", "bootstrapToken"], json!("abcdef.0123456789abcdee")),
        (&["cluster", "join", "certificateAuthority"], json!({"file": "pki/pki/ca.crt"})),
        (&["cluster", "networking", "podCIDRs"], json!(["10.240.0.0/16"])),
        (&["cluster", "networking", "clusterDNS"], json!(["10.96.0.12"])),
        (&["cluster", "assets", "containerRegistry"], json!("registry.example.com")),
        (&["cluster", "tectonic", "kubeletImage"], json!("docker://example.com/hyperkube")),
        (&["cluster", "tectonic", "seedFallback"], json!("never")),
        (&["cluster", "tectonic", "mappingsConfigMap", "namespace"], json!("kube-system")),
        (&["cluster", "tectonic", "mappingsConfigMap", "name"], json!("mappings")),
        (&["cluster", "tectonic", "mappingsConfigMap", "key"], json!("mappings")),
        (&["cluster", "tectonic", "manifestURL"], json!("https://example.com/manifest")),
        (&["cluster", "tectonic", "verifySignatures"], json!(false)),
        (&["cluster", "tectonic", "torcxProfile"], json!("mine")),
        (&["cluster", "tectonic", "upgradeOS"], json!(false)),
        (&["cluster", "tectonic", "bootkube"], json!(false)),
        (&["cluster", "etcd", "dataFolder"], json!("/var/lib/etcd-data")),
        (&["cluster", "kubeControllerManager", "image"], json!("registry.example.com/a:1")),
    ]
}

fn tectonic_of_today() -> Setting {
    let cluster = json!({
        "layout": "tectonic",
        "kubernetesVersion": "1.36.3",
        "apiServer": "https://api.example.com",
        "join": {"bootstrapToken": "abcdef.0123456789abcdef", "certificateAuthority": {"file": "ca.crt"}},
        "trust": {"keyrings": [{"name": "addons", "keys": KEYS}]},
        "kubeProxy": {"kubeconfig": "a"},
        "proxy": {"http": "http://10.0.0.1:3128"},
        "tectonic": {
            "kubeletImage": "registry.example.com/kubelet",
            "forceKubernetesVersion": "v1.36.3",
            "manifestURL": "https://torcx.example.com/{{.Board}}/{{.OSVersion}}",
            "runtimeMappings": {"1.35": ["18.06"], "1.36": ["18.06"]},
        },
    });
    let mut changes: Vec<Change> = vec![
        (&["cluster", "kubernetesVersion"], json!("1.36.0")),
        (&["cluster", "networking", "podNetwork"], json!("none")),
        (&["cluster", "networking", "serviceCIDRs"], json!(["10.97.0.0/16"])),
        (&["cluster", "registryMirrors"], json!({"docker.io": ["https://mirror.example.com"]})),
        (&["cluster", "kubeProxy", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "kubeProxy", "kubeconfig"], json!("b")),
        (&["cluster", "kubeApiserver", "image"], json!("registry.example.com/a:1")),
        (&["cluster", "proxy", "http"], json!("http://proxy.example.com:3128")),
        (&["cluster", "trust", "keyrings"], json!([{"name": "others", "keys": KEYS}])),
        (&["cluster", "tectonic", "kubeletImageTag"], json!("v1.36.1")),
        (&["cluster", "tectonic", "forceKubernetesVersion"], json!("v1.36.1")),
        (&["cluster", "tectonic", "minors"], json!(["1.35", "1.36"])),
        (&["cluster", "tectonic", "runtimeMappings"], json!({"1.36": ["17.03"]})),
        (&["nodeGroups", "workers", "kubelet", "config", "resolvConf"], json!("/etc/resolv.conf")),
        (&["nodeGroups", "workers", "containerRuntime", "sandboxImage"], json!("registry.example.com/pause:1")),
        (&["nodeGroups", "workers", "containerRuntime", "binary"], json!("/opt/bin/containerd")),
        (&["nodeGroups", "baked", "containerRuntime", "binary"], json!("/opt/bin/containerd")),
        (&["nodeGroups", "workers", "containerRuntime", "cniBinaries"], json!("/opt/bin")),
    ];
    changes.extend(of_tectonic());
    let groups = vec![
        ("baked", json!({"source": "preinstalled"})),
        ("masters", json!({"role": "control-plane"})),
        ("workers", json!({})),
    ];
    Setting { cluster, groups, changes }
}

#[test]
fn a_value_reaches_those_groups_for_which_something_else_is_rendered_when_it_changes() {
    assert_said_truly(&sparing());
}

#[test]
fn the_same_with_all_that_is_optional() {
    assert_said_truly(&lavish());
}

#[test]
fn the_same_with_credentials_of_a_program_and_with_artefacts_of_nobody() {
    assert_said_truly(&with_exec());
    assert_said_truly(&unsigned());
}

#[test]
fn the_same_in_other_layouts() {
    assert_said_truly(&eksctl());
    assert_said_truly(&tectonic());
    assert_said_truly(&tectonic_of_today());
    assert_said_truly(&of_any_layout());
}

/// A new setting of the cluster is new to `explain`, too.
#[test]
fn every_setting_of_a_cluster_is_changed_once() {
    let settings =
        [sparing(), lavish(), with_exec(), unsigned(), eksctl(), tectonic(), tectonic_of_today(), of_any_layout()];
    let changed: BTreeSet<String> =
        settings.iter().flat_map(|setting| &setting.changes).map(|(path, _)| path[1..].join(".")).collect();
    let schema = spec::json_schema();
    let mut fields = BTreeSet::new();
    for (name, field) in schema["oneOf"][0]["properties"]["spec"]["properties"].as_object().expect("it has fields") {
        match field["properties"].as_object() {
            Some(below) => fields.extend(below.keys().map(|below| format!("{name}.{below}"))),
            None => drop(fields.insert(name.clone())),
        }
    }
    let is_changed = |field: &&String| {
        let below = format!("{field}.");
        !changed.iter().any(|path| path == *field || path.starts_with(&below))
    };
    // It changes only together with what stands in `join`.
    fields.remove("tectonic.kubeconfig");
    let missing: Vec<&String> = fields.iter().filter(is_changed).collect();
    assert!(fields.len() > 50 && missing.is_empty(), "{missing:?}");
}
