//! Every file in `examples/` works: it checks, completes to itself, and renders in its own form of delivery. Together they
//! have every field of a spec.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;

use bundle::{Payload, read_user_data};
use render::render_group;
use serde_json::{Map, Value};
use spec::CompleteSpec;
use support::{nodestrap, repository, text};

/// The examples in a folder where the files that they name are.
struct Examples(tempfile::TempDir);

impl Examples {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        // As control-plane.yaml says in its comment.
        let told = text(folder.path().join("control-plane.yaml"));
        let command = told.lines().find_map(|line| line.strip_prefix("#   nodestrap ")).unwrap();
        let out = folder.path().join("control-plane").display().to_string();
        let spec = folder.path().join("control-plane.yaml").display().to_string();
        let command =
            command.replace("--out control-plane", &format!("--out {out}")).replace("control-plane.yaml", &spec);
        nodestrap(command.split_whitespace()).expect(0);
        Self(folder)
    }

    fn specs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut specs: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
        specs.sort();
        assert!(specs.len() >= 9, "{specs:?}");
        specs
    }

    fn complete(&self, path: &PathBuf) -> CompleteSpec {
        let parsed = spec::parse(&[spec::Source::new(path.display().to_string(), text(path))]);
        let read = |reference: &spec::FileReference| {
            std::fs::read(self.0.path().join(&reference.path)).map_err(|error| error.to_string())
        };
        let complete = parsed.resolve(read).and_then(|spec| spec::complete(&spec));
        complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
    }
}

#[test]
fn every_example_checks_and_completes_to_itself() {
    let examples = Examples::open();
    for path in examples.specs() {
        let name = path.display().to_string();
        nodestrap(["check", &name]).expect(0);
        let once = nodestrap(["complete", &name, "--show-secrets"]).expect(0).out;
        let again = path.with_extension("complete");
        std::fs::write(&again, &once).unwrap();
        let twice = nodestrap(["complete", &again.display().to_string(), "--show-secrets"]).expect(0).out;
        assert_eq!(once, twice, "{name}");
    }
}

#[test]
fn every_group_of_every_example_is_rendered_and_its_own_delivery_carries_it() {
    let examples = Examples::open();
    for path in examples.specs() {
        let spec = examples.complete(&path);
        for group in spec.groups.iter().map(|group| group.name.value.as_str()) {
            let name = path.display().to_string();
            let rendered = render_group(&spec, group).unwrap_or_else(|error| panic!("{name}, {group}: {error}"));
            let out = examples.0.path().join(format!("{group}.rendered")).display().to_string();
            nodestrap(["render", &name, "--group", group, "--out", &out, "--format", "bundle"]).expect(0);
            assert_eq!(text(&out), rendered.bundle.to_json(), "{name}, {group}");
            let Some(format) = rendered.format() else { continue };
            let user_data = rendered.user_data(format).unwrap_or_else(|error| panic!("{name}, {group}: {error}"));
            match read_user_data(&user_data.bytes) {
                Ok(Payload::Bundle(bundle)) => assert_eq!(*bundle, rendered.bundle, "{name}, {group}"),
                Ok(Payload::Stub(stub)) => assert_eq!(stub.digest, rendered.bundle.digest(), "{name}, {group}"),
                Err(error) => panic!("{name}, {group}: {error}"),
            }
        }
    }
}

/// What cannot stand in full.yaml, and the example that has it.
const ELSEWHERE: [(&str, &str); 20] = [
    ("Cluster.pki", "control-plane.yaml"),
    ("Cluster.kubeProxy.kubeconfig", "control-plane.yaml"),
    ("Cluster.join.exec", "gce-exec.yaml"),
    ("Cluster.tectonic.forceKubernetesVersion", "tectonic-today.yaml"),
    ("Cluster.tectonic", "tectonic.yaml"),
    ("Cluster.eksctl", "aws-eksctl.yaml"),
    ("Cluster.artefacts", "private-bucket.yaml"),
    ("Cluster.delivery.store.s3", "private-bucket.yaml"),
    ("NodeGroup.delivery.store.s3", "private-bucket.yaml"),
    ("NodeGroup.architecture", "private-bucket.yaml"),
    ("NodeGroup.source", "private-bucket.yaml"),
    ("Cluster.packages", "packages-debian.yaml"),
    ("NodeGroup.packages", "packages-debian.yaml"),
    ("NodeGroup.components.kubelet.package", "packages-debian.yaml"),
    ("NodeGroup.components.kubectl.package", "packages-debian.yaml"),
    ("NodeGroup.components.containerd.package", "packages-debian.yaml"),
    ("NodeGroup.components.runc.package", "packages-debian.yaml"),
    ("NodeGroup.components.cniPlugins.package", "packages-debian.yaml"),
    ("NodeGroup.components.crictl.package", "packages-debian.yaml"),
    ("NodeGroup.components", "private-bucket.yaml"),
];

#[test]
fn the_full_example_has_every_field() {
    let schema = spec::json_schema();
    let mut known = BTreeSet::new();
    for document in schema["oneOf"].as_array().unwrap() {
        let kind = document["properties"]["kind"]["const"].as_str().unwrap();
        fields_of_schema(document["properties"]["spec"].as_object().unwrap(), kind, &mut known);
    }
    assert!(known.len() > 150, "{}", known.len());
    let examples = repository().join("examples");
    let full = fields_of_file(&text(examples.join("full.yaml")));
    for field in known.difference(&full) {
        // The kinds share these lists: a field of one kind of document is one of the other, too.
        let shared = ["Cluster", "NodeGroup"].map(|kind| format!("{kind}{}", &field[field.find('.').unwrap()..]));
        if field.contains("[]") && shared.iter().any(|field| full.contains(field)) {
            continue;
        }
        let elsewhere = ELSEWHERE.iter().find(|(prefix, _)| field.starts_with(prefix));
        let (_, file) = elsewhere.unwrap_or_else(|| panic!("examples/full.yaml does not have {field}"));
        assert!(fields_of_file(&text(examples.join(file))).contains(field), "examples/{file} does not have {field}");
    }
}

fn is_of_a_program(name: &str) -> bool {
    ["config", "flags"].contains(&name)
}

fn fields_of_schema(schema: &Map<String, Value>, prefix: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{prefix}.{name}");
        found.insert(path.clone());
        if let (false, Some(field)) = (is_of_a_program(name), field.as_object()) {
            fields_of_schema(field, &path, found);
            if let Some(items) = field.get("items").and_then(Value::as_object) {
                fields_of_schema(items, &format!("{path}[]"), found);
            }
        }
    }
}

fn fields_of_file(content: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for document in content.split("\n---\n") {
        let document: Value = serde_saphyr::from_str(document).unwrap();
        fields_of_value(&document["spec"], document["kind"].as_str().unwrap(), &mut found);
    }
    found
}

fn fields_of_value(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                let path = format!("{prefix}.{name}");
                if !is_of_a_program(name) {
                    fields_of_value(below, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields_of_value(item, &format!("{prefix}[]"), found)),
        _ => {}
    }
}

#[test]
fn no_example_has_a_secret_that_could_be_real() {
    for path in Examples::open().specs() {
        let text = text(&path);
        assert!(!text.contains("PRIVATE KEY"), "{}", path.display());
        for token in text.split("bootstrapToken: ").skip(1).filter(|rest| !rest.starts_with('{')) {
            assert!(token.starts_with("abcdef.0123456789abcdef"), "{}", path.display());
        }
    }
}
