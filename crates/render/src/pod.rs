//! A static pod as data, and its manifest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use spec::render_yaml;

/// Variables that flags may use, and where the kubelet takes them from.
const VARIABLES: [(&str, &str); 2] = [("HOST_IP", "status.hostIP"), ("NODE_NAME", "spec.nodeName")];

/// Flags whose value looks like a path and is none.
const NOT_PATHS: [&str; 1] = ["etcd-prefix"];
/// Flags of files that the component itself writes, beside older ones.
const WRITTEN_FILES: [&str; 1] = ["audit-log-path"];
const PKI_FOLDERS: [&str; 2] = ["/etc/kubernetes/pki/etcd", "/etc/kubernetes/pki"];

/// One container in the network of its node.
pub(crate) struct Pod<'a> {
    name: &'static str,
    image: &'a str,
    command: Vec<String>,
    pub(crate) annotations: Vec<(&'static str, &'a str)>,
    pub(crate) resources: Option<Resources>,
    pub(crate) mounts: Mounts,
    pub(crate) liveness: Option<Probe<'a>>,
    pub(crate) readiness: Option<Probe<'a>>,
    pub(crate) startup: Option<Probe<'a>>,
    pub(crate) privileged: bool,
}

/// What is kept free for it.
pub(crate) struct Resources {
    pub(crate) cpu: &'static str,
    pub(crate) memory: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    host: &'a str,
    port: u16,
    /// Scheme and path; `None`: whether somebody listens.
    http: Option<(&'static str, &'static str)>,
}

impl<'a> Probe<'a> {
    pub(crate) fn http(scheme: &'static str, host: &'a str, port: u16, path: &'static str) -> Self {
        Self { host, port, http: Some((scheme, path)) }
    }

    pub(crate) fn tcp(host: &'a str, port: u16) -> Self {
        Self { host, port, http: None }
    }

    /// Limits in which a loaded machine does not lose its control plane, and a dead one is noticed within minutes.
    fn render(&self, failures: u32, initial_delay: u32, period: u32) -> Value {
        let mut fields = Map::from_iter([
            ("failureThreshold".to_owned(), json!(failures)),
            ("periodSeconds".to_owned(), json!(period)),
            ("timeoutSeconds".to_owned(), json!(15)),
        ]);
        if initial_delay > 0 {
            fields.insert("initialDelaySeconds".to_owned(), json!(initial_delay));
        }
        let (host, port) = (self.host, self.port);
        let (name, action) = match self.http {
            Some((scheme, path)) => ("httpGet", json!({ "host": host, "path": path, "port": port, "scheme": scheme })),
            None => ("tcpSocket", json!({ "host": host, "port": port })),
        };
        fields.insert(name.to_owned(), action);
        Value::Object(fields)
    }
}

/// Parts of the node that a pod sees, by their paths, which are the same inside.
#[derive(Default)]
pub(crate) struct Mounts(BTreeMap<String, Mount>);

#[derive(Clone, Copy)]
struct Mount {
    kind: &'static str,
    read_only: bool,
}

impl Mounts {
    fn add(&mut self, path: &str, kind: &'static str, read_only: bool) {
        self.0.insert(path.trim_end_matches('/').to_owned(), Mount { kind, read_only });
    }

    /// A folder to read.
    pub(crate) fn folder(&mut self, path: &str) {
        self.add(path, "DirectoryOrCreate", true);
    }

    /// A file that the node's programs share.
    pub(crate) fn lock(&mut self, path: &str) {
        self.add(path, "FileOrCreate", false);
    }

    /// A file to read; certificates come with their folder, so that a renewed one is seen.
    pub(crate) fn file(&mut self, path: &str) {
        let below = |folder: &&&str| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/'));
        match PKI_FOLDERS.iter().find(below) {
            Some(folder) => self.add(folder, "Directory", true),
            None => self.add(path, "File", true),
        }
    }

    /// What the value of a flag names, if it names paths: `/a`, or `/a,/b:name` as for certificates by name.
    pub(crate) fn flag(&mut self, flag: &str, value: &str) {
        if NOT_PATHS.contains(&flag) {
            return;
        }
        for part in value.split(',') {
            let path = part.split(':').next().unwrap_or(part);
            if !path.starts_with('/') || path.contains('$') {
                continue;
            }
            let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
            match parent {
                _ if flag.ends_with("-dir") => self.add(path, "DirectoryOrCreate", false),
                Some(parent) if WRITTEN_FILES.contains(&flag) => self.add(parent, "DirectoryOrCreate", false),
                _ => self.file(path),
            }
        }
    }

    /// Without what lies in a folder that is there already.
    fn outermost(&self) -> impl Iterator<Item = (&str, Mount)> {
        let covered = |path: &str| {
            path.rmatch_indices('/').any(|(at, _)| self.0.get(&path[..at]).is_some_and(|mount| mount.kind != "File"))
        };
        self.0.iter().filter(move |(path, _)| !covered(path)).map(|(path, mount)| (path.as_str(), *mount))
    }

    /// Volumes, and where the container sees them.
    fn render(&self) -> (Vec<Value>, Vec<Value>) {
        let mut names = BTreeSet::new();
        let mut volumes = Vec::new();
        let mut mounts = Vec::new();
        for (index, (path, mount)) in self.outermost().enumerate() {
            let mut name = volume_name(path);
            if name.len() > 63 || !names.insert(name.clone()) {
                name = format!("path-{index}");
            }
            volumes.push(json!({ "name": name, "hostPath": { "path": path, "type": mount.kind } }));
            let mut seen = json!({ "name": name, "mountPath": path });
            if let (true, Some(fields)) = (mount.read_only, seen.as_object_mut()) {
                fields.insert("readOnly".to_owned(), json!(true));
            }
            mounts.push(seen);
        }
        (volumes, mounts)
    }
}

/// `/etc/kubernetes/pki` → `etc-kubernetes-pki`.
fn volume_name(path: &str) -> String {
    let letter = |character: char| match character.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    };
    path.trim_matches('/').chars().map(letter).collect::<String>().trim_matches('-').to_owned()
}

impl<'a> Pod<'a> {
    pub(crate) fn new(name: &'static str, image: &'a str) -> Self {
        Self {
            name,
            image,
            command: Vec::new(),
            annotations: Vec::new(),
            resources: None,
            mounts: Mounts::default(),
            liveness: None,
            readiness: None,
            startup: None,
            privileged: false,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Empty: the entry point of the image.
    pub(crate) fn command(&mut self, words: Vec<String>) {
        self.command = words;
    }

    /// The probes of controllers, which serve nobody and so are never "not ready".
    pub(crate) fn healthz(&mut self, (host, port): (&'a str, u16)) {
        self.liveness = Some(Probe::http("HTTPS", host, port, "/healthz"));
        self.startup = self.liveness;
    }

    pub(crate) fn render(&self) -> String {
        let (volumes, mounts) = self.mounts.render();
        let mut container = Map::new();
        let mut set = |name: &str, value: Value| container.insert(name.to_owned(), value);
        set("name", json!(self.name));
        set("image", json!(self.image));
        set("imagePullPolicy", json!("IfNotPresent"));
        if !self.command.is_empty() {
            set("command", json!(self.command));
        }
        let environment = self.environment();
        if !environment.is_empty() {
            set("env", Value::Array(environment));
        }
        if let Some(resources) = &self.resources {
            let mut requests = json!({ "cpu": resources.cpu });
            if let (Some(memory), Some(fields)) = (resources.memory, requests.as_object_mut()) {
                fields.insert("memory".to_owned(), json!(memory));
            }
            set("resources", json!({ "requests": requests }));
        }
        if self.privileged {
            set("securityContext", json!({ "privileged": true }));
        }
        let probes = [
            ("livenessProbe", &self.liveness, (8, 10, 10)),
            ("readinessProbe", &self.readiness, (3, 0, 1)),
            ("startupProbe", &self.startup, (24, 10, 10)),
        ];
        for (name, probe, (failures, initial_delay, period)) in probes {
            if let Some(probe) = probe {
                set(name, probe.render(failures, initial_delay, period));
            }
        }
        if !mounts.is_empty() {
            set("volumeMounts", Value::Array(mounts));
        }
        self.manifest(container, volumes)
    }

    fn manifest(&self, container: Map<String, Value>, volumes: Vec<Value>) -> String {
        let mut metadata = json!({
            "name": self.name,
            "namespace": "kube-system",
            "labels": { "component": self.name, "tier": if self.privileged { "node" } else { "control-plane" } },
        });
        if let (false, Some(fields)) = (self.annotations.is_empty(), metadata.as_object_mut()) {
            let annotations = self.annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
            fields.insert("annotations".to_owned(), Value::Object(annotations.collect()));
        }
        let mut spec = json!({
            "containers": [container],
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
        });
        if let (false, Some(fields)) = (volumes.is_empty(), spec.as_object_mut()) {
            fields.insert("volumes".to_owned(), Value::Array(volumes));
        }
        let fields = [("apiVersion", json!("v1")), ("kind", json!("Pod")), ("metadata", metadata), ("spec", spec)];
        render_yaml(&fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Only what the command uses.
    fn environment(&self) -> Vec<Value> {
        let used = |name: &str| {
            let reference = ["$(", name, ")"].concat();
            self.command.iter().any(|word| word.contains(&reference))
        };
        VARIABLES
            .into_iter()
            .filter(|(name, _)| used(name))
            .map(|(name, field)| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(flags: &[(&str, &str)]) -> Vec<(String, &'static str, bool)> {
        let mut mounts = Mounts::default();
        for (flag, value) in flags {
            mounts.flag(flag, value);
        }
        mounts.outermost().map(|(path, mount)| (path.to_owned(), mount.kind, mount.read_only)).collect()
    }

    #[test]
    fn flags_mount_what_they_name_and_nothing_else() {
        assert_eq!(
            paths(&[
                ("advertise-address", "$(HOST_IP)"),
                ("audit-log-path", "/var/log/kubernetes/audit.log"),
                ("audit-policy-file", "/etc/kubernetes/audit.yaml"),
                ("data-dir", "/var/lib/etcd/"),
                ("etcd-prefix", "/registry"),
                ("service-cluster-ip-range", "10.96.0.0/12"),
                ("tls-sni-cert-key", "/etc/tls/a.crt,/etc/tls/a.key:a.example.com"),
            ]),
            [
                ("/etc/kubernetes/audit.yaml".to_owned(), "File", true),
                ("/etc/tls/a.crt".to_owned(), "File", true),
                ("/etc/tls/a.key".to_owned(), "File", true),
                ("/var/lib/etcd".to_owned(), "DirectoryOrCreate", false),
                ("/var/log/kubernetes".to_owned(), "DirectoryOrCreate", false),
            ]
        );
    }

    #[test]
    fn etcd_sees_its_own_certificates_only_and_the_api_server_a_folder_once() {
        let folder = |path: &str| (path.to_owned(), "Directory", true);
        assert_eq!(
            paths(&[("cert-file", "/etc/kubernetes/pki/etcd/server.crt")]),
            [folder("/etc/kubernetes/pki/etcd")]
        );
        let both = [("a", "/etc/kubernetes/pki/etcd/ca.crt"), ("b", "/etc/kubernetes/pki/ca.crt")];
        assert_eq!(paths(&both), [folder("/etc/kubernetes/pki")]);
    }

    #[test]
    fn volumes_have_names_of_their_own() {
        let mut mounts = Mounts::default();
        let long = format!("/{}", "a".repeat(70));
        for path in ["/a.b", "/a-b", &long] {
            mounts.file(path);
        }
        let (volumes, _) = mounts.render();
        let names: Vec<&str> = volumes.iter().filter_map(|volume| volume["name"].as_str()).collect();
        assert_eq!(names, ["a-b", "path-1", "path-2"]);
    }
}
