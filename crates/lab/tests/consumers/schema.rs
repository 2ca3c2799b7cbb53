//! The JSON schema that editors get, by a validator that is not ours: what is a spec passes, what is misspelt does not.

use std::path::PathBuf;
use std::process::Command;

use lab::Consumers;

use crate::support::consumers;

/// For each document of each file: its name, and the first complaint if there is one, with a tab between them.
const VALIDATE: &str = r#"
import json, sys, yaml
from jsonschema import Draft202012Validator

class Reader(yaml.SafeLoader):
    "YAML 1.2: no dates, and only true and false are booleans."

Reader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool", ":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
import re
Reader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
Reader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("^[-+]?[0-9]+$"), list("-+0123456789"))
Reader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
for name in sys.argv[2:]:
    for document in yaml.load_all(open(name), Reader):
        # Each kind by its own schema, so that the complaint is about the field and not about "oneOf".
        kind = [one for one in schema["oneOf"] if one["properties"]["kind"]["const"] == document.get("kind")]
        whole = list(Draft202012Validator(schema).iter_errors(document))
        parts = list(Draft202012Validator(kind[0]).iter_errors(document)) if kind else whole
        assert bool(whole) == bool(parts), name
        complaint = f"{parts[0].json_path}: {parts[0].message[:200]}" if parts else ""
        print(name, complaint.replace("\n", " "), sep="\t")
"#;

fn binary() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// The documents that the validator refuses, and how many there were.
fn refused(consumers: &Consumers, files: &[PathBuf]) -> (Vec<String>, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = folder.path().join("schema.json");
    let printed = Command::new(binary()).arg("schema").output().expect("nodestrap runs");
    std::fs::write(&schema, printed.stdout).expect("the schema is written");
    let mut python = Command::new(consumers.python().expect("Python"));
    let output = python.args(["-c", VALIDATE]).arg(&schema).args(files).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let count = lines.len();
    (lines.into_iter().filter(|line| !line.ends_with('\t')).collect(), count)
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn specs() -> Vec<PathBuf> {
    let list = |folder: PathBuf| {
        std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("an entry").path())
    };
    let examples = list(repository().join("examples")).filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    let goldens = list(repository().join("crates/render/tests/golden")).map(|case| case.join("spec.yaml"));
    let completed =
        ["minimal.yaml", "full.yaml"].map(|name| repository().join("crates/spec/tests/golden/complete").join(name));
    let mut specs: Vec<PathBuf> = examples.chain(goldens.filter(|spec| spec.is_file())).chain(completed).collect();
    specs.sort();
    specs
}

#[test]
fn every_example_and_every_golden_spec_fits_to_the_schema() {
    let Some(consumers) = consumers() else { return };
    let specs = specs();
    let (refused, documents) = refused(&consumers, &specs);
    assert!(documents >= 2 * specs.len() && specs.len() > 15, "{documents} documents of {} specs", specs.len());
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn what_is_misspelt_missing_or_of_another_type_does_not() {
    let Some(consumers) = consumers() else { return };
    let minimal = std::fs::read_to_string(repository().join("examples/minimal.yaml")).expect("the example");
    let workers = "metadata: {name: workers}";
    let cases = [
        (minimal.replace("apiServer:", "apiserver:"), "apiserver"),
        (minimal.replace("bootstrapToken:", "bootstrapTokn:"), "bootstrapTokn"),
        (minimal.replace("kind: NodeGroup", "kind: NodeGruop"), "oneOf\\|not valid under any"),
        (minimal.replace("metadata: {name: demo}\n", ""), "metadata"),
        (minimal.replace("https://10.99", "http://10.99"), "http"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{role: master}}")), "master"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{taints: [{{key: a, effect: Never}}]}}")), "Never"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{config: {{maxPod: 5}}}}}}")), "maxPod"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{config: {{maxPods: many}}}}}}")), "many"),
        (
            minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{flags: {{no-such-flag: a}}}}}}")),
            "no-such-flag",
        ),
    ];
    for (text, word) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spec.yaml");
        std::fs::write(&file, &text).expect("the spec is written");
        let (refused, documents) = refused(&consumers, &[file]);
        assert_eq!((refused.len(), documents), (1, 2), "{word}: {refused:?}");
        assert!(word.split("\\|").any(|word| refused[0].contains(word)), "{word}: {refused:?}");
    }
}
