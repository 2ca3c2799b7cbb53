//! The documents say what the program does: every field, command and option is there, and what they show really works.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;
use support::{BINARY, example, finish, nodestrap, program, repository, text};

const COMMANDS: [&str; 24] = [
    "verify-image",
    "try",
    "check",
    "complete",
    "explain",
    "render",
    "pki",
    "plan",
    "apply",
    "status",
    "timeline",
    "facts",
    "verify",
    "reset",
    "hook",
    "gate",
    "network",
    "spend-credentials",
    "schema",
    "completions",
    "publish",
    "artefacts",
    "push",
    "receive",
];

fn document(name: &str) -> String {
    text(repository().join("docs").join(name))
}

#[test]
fn the_generated_parts_are_what_the_code_says() {
    for (name, generated) in pages::reference(&text(example("minimal.yaml"))).unwrap() {
        let written = document(&format!("reference/{name}"));
        let wanted = pages::with_generated(&written, &generated).expect("it has marks");
        assert!(written == wanted, "docs/reference/{name} is out of date; to write it again: cargo run -p pages");
    }
}

#[test]
fn every_command_has_a_manual_page_that_man_can_read() {
    let pages = pages::manual();
    for command in
        COMMANDS.iter().filter(|command| !["gate", "network", "spend-credentials", "receive"].contains(command))
    {
        assert!(pages.iter().any(|(name, _)| *name == format!("nodestrap-{command}.1")), "{command}");
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in &pages {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        if support::can_run("groff") {
            let mut groff = program("groff");
            groff.args(["-man", "-Kutf8", "-Tutf8", "-ww", "-z"]).arg(&path);
            let ran = finish(groff).expect(0);
            assert_eq!(ran.err, "", "{name}");
        }
    }
}

/// Mappings whose keys are the user's, not ours.
const FREE: [&str; 9] =
    ["labels", "config", "flags", "environment", "sysctls", "tags", "registryMirrors", "dropIns", "headers"];

fn field_names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                found.insert(name.clone());
                if !FREE.contains(&name.as_str()) {
                    field_names(below, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| field_names(item, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_spec_is_described() {
    let described = document("reference/spec.md");
    let mut names = BTreeSet::new();
    for document in text(example("full.yaml")).split("\n---\n") {
        field_names(&serde_saphyr::from_str(document).unwrap(), &mut names);
    }
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let known = described.contains(&format!("`{name}`"))
            || described.contains(&format!(".{name}`"))
            || described.contains(&format!("`{name}."));
        assert!(known, "docs/reference/spec.md does not describe {name:?}");
    }
}

#[test]
fn every_default_of_a_spec_is_described_as_it_is() {
    let described = document("reference/spec.md");
    let file = example("minimal.yaml").display().to_string();
    let values = nodestrap(["explain", &file, "-o", "json"]).expect(0).json();
    for view in values.as_array().unwrap() {
        let (path, value) = (view["path"].as_str().unwrap(), &view["value"]);
        // The image changes with every release of Kubernetes.
        if !view["origin"].as_str().unwrap().starts_with("default: ") || path.ends_with("sandboxImage") {
            continue;
        }
        let written = match value {
            Value::String(text) => text.clone(),
            Value::Array(items) if !items.is_empty() => items[0].as_str().unwrap().to_owned(),
            other => other.to_string(),
        };
        assert!(
            described.contains(&written),
            "docs/reference/spec.md does not know that {path} is {written} by default"
        );
    }
}

#[test]
fn every_command_and_option_is_described() {
    let described = document("reference/commands.md");
    let listed = nodestrap(["help"]).expect(0).out;
    for line in listed.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        assert!(command == "help" || COMMANDS.contains(&command), "{command} is new: add it to COMMANDS");
    }
    for command in COMMANDS {
        assert!(described.contains(&format!("### `nodestrap {command}")), "no section for {command}");
        let help = nodestrap(["help", command]).expect(0).out;
        let usage_and_options = help.split("Example").next().unwrap();
        let options = usage_and_options.split([' ', '\n', ',']).filter(|word| word.starts_with("--"));
        for option in options {
            assert!(described.contains(option), "docs/reference/commands.md does not describe {command} {option}");
        }
    }
    for value in ["cloud-config", "bundle", "folder", "auto", "bar", "plain", "json", "none"] {
        assert!(described.contains(&format!("`{value}`")), "docs/reference/commands.md does not describe {value}");
    }
    let by_hand = described.split_once("## Off the node").and_then(|(_, rest)| rest.split_once("## Every argument"));
    for line in by_hand.expect("both headings").0.lines() {
        assert!(!line.starts_with("| `-"), "the generated part of docs/reference/commands.md has this too: {line}");
    }
}

/// A folder where the examples of documents work, with `nodestrap` on the way.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(desk.path("bin")).unwrap();
        std::os::unix::fs::symlink(BINARY, desk.path("bin/nodestrap")).unwrap();
        std::os::unix::fs::symlink(repository().join("examples"), desk.path("examples")).unwrap();
        std::fs::copy(example("minimal.yaml"), desk.path("cluster.yaml")).unwrap();
        let key = support::openpgp::make_key(1);
        std::fs::write(desk.path("release-secret.asc"), support::openpgp::secret(&key)).unwrap();
        std::fs::write(desk.path("release.asc"), support::openpgp::public(&key)).unwrap();
        std::fs::write(desk.path("kubelet"), "a program").unwrap();
        desk.stand_in_for_ssh();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What examples push goes into a folder, whatever host they name.
    fn stand_in_for_ssh(&self) {
        std::fs::create_dir_all(self.path("assets")).unwrap();
        std::fs::create_dir_all(self.path("node")).unwrap();
        std::fs::write(self.path("assets/bootkube.sh"), "#!/usr/bin/bash\n").unwrap();
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nif [ \"$1\" = sudo ]; then shift 2; fi\nshift\n\
             exec {BINARY} \"$@\" --root {}\n",
            self.path("node").display()
        );
        std::fs::write(self.path("bin/ssh"), script).unwrap();
        std::fs::set_permissions(self.path("bin/ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[track_caller]
    fn run(&self, line: &str) {
        let mut shell = program("sh");
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        shell.args(["-ec", line]).current_dir(self.folder.path()).env("PATH", path);
        shell.env("TMPDIR", self.folder.path());
        let ran = finish(shell);
        assert_eq!(ran.code, Some(0), "{line}\n{}", ran.err);
    }
}

/// Whether a line would look at the machine that runs the tests.
fn is_about_this_machine(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let command = words.next().unwrap_or_default();
    let of_a_node =
        ["facts", "plan", "apply", "status", "timeline", "verify", "verify-image", "reset", "hook", "gate", "network"];
    // Nor is there a bucket.
    line.contains("s3://") || (of_a_node.contains(&command) && !words.any(|word| word == "--root"))
}

/// The lines of all blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("```") {
            inside = name == language;
        } else if inside {
            found.push(line.to_owned());
        }
    }
    found
}

#[test]
fn the_examples_of_help_work() {
    let desk = Desk::new();
    let mut count = 0;
    let pages = [vec!["help"]].into_iter().chain(COMMANDS.map(|command| vec!["help", command]));
    for page in pages {
        let help = nodestrap(page).expect(0).out;
        let shown =
            help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("nodestrap "));
        for line in shown {
            let line = line.split("   ").next().unwrap();
            if !is_about_this_machine(line) {
                desk.run(line);
                count += 1;
            }
        }
    }
    assert!(count >= 14, "{count}");
}

#[test]
fn the_examples_of_the_reference_work() {
    let desk = Desk::new();
    let lines = blocks(&document("reference/commands.md"), "sh");
    assert!(lines.len() > 15);
    for line in lines {
        assert!(!is_about_this_machine(&line), "{line}: show it on a sandbox, so that it can be tested");
        desk.run(&line);
    }
}

#[test]
fn the_reference_shows_a_difference_as_it_is_printed() {
    let document = document("reference/commands.md");
    let (_, section) = document.split_once("### `nodestrap render --diff OLD NEW`").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let desk = Desk::new();
    let [change, compare] = blocks(section, "sh").try_into().unwrap();
    desk.run(&change);
    desk.run(&format!("{compare} > printed"));
    assert_eq!(text(desk.path("printed")).trim_end(), blocks(section, "text").join("\n"));
    for consequence in
        ["none", "restartUnits", "restartKubelet", "restartRuntime", "restartStaticPods", "reboot", "newMachine"]
    {
        assert!(section.contains(&format!("| `{consequence}` |")), "{consequence}");
    }
}

/// Runs the lines of a guide that do not need another machine; how many there were.
fn follow(desk: &Desk, guide: &str) -> usize {
    std::fs::write(desk.path("cluster.yaml"), blocks(guide, "yaml").join("\n")).unwrap();
    std::fs::write(desk.path("token"), "abcdef.0123456789abcdef\n").unwrap();
    let image = desk.path("image").display().to_string();
    let lines = blocks(guide, "sh");
    let runs_here = |line: &&String| line.starts_with("nodestrap ") || line.starts_with("find ");
    let lines = lines.iter().filter(runs_here).filter(|line| !is_about_this_machine(line));
    lines.map(|line| desk.run(&line.replace("/srv/image", &image))).count()
}

#[test]
fn the_guide_to_a_first_node_works() {
    let desk = Desk::new();
    std::fs::copy(example("ca.crt"), desk.path("ca.crt")).unwrap();
    desk.run("nodestrap try --keep ./sandbox");
    let count = follow(&desk, &document("guide/first-node.md"));
    assert!(count >= 9, "{count}");
    assert!(desk.path("image/etc/nodestrap/bundle.json").is_file());
    assert!(text(repository().join("Makefile")).contains("\ninstall:"), "the guide shows make install");
}

#[test]
fn the_guide_to_a_bare_machine_works() {
    let desk = Desk::new();
    std::fs::copy(example("ca.crt"), desk.path("ca.crt")).unwrap();
    desk.run("printf runc > runc.amd64; printf kubectl > kubectl; mkdir -p bin-of/bin");
    desk.run(
        "cd bin-of; for name in bin/containerd bin/containerd-shim-runc-v2 bin/ctr bridge host-local loopback portmap; do \
         printf program > $name; chmod 0755 $name; done; \
         tar -czf ../containerd-2.4.2-linux-amd64.tar.gz bin; \
         tar -czf ../cni-plugins-linux-amd64-v1.9.1.tgz bridge host-local loopback portmap",
    );
    let count = follow(&desk, &document("guide/bare-machine.md"));
    assert!(count >= 10, "{count}");
    assert!(text(desk.path("user-data")).contains("nodestrap"));
}

#[test]
fn the_guide_to_packages_works() {
    let desk = Desk::new();
    std::fs::copy(example("ca.crt"), desk.path("ca.crt")).unwrap();
    std::fs::copy(example("artefacts-keys.asc"), desk.path("kubernetes.asc")).unwrap();
    let count = follow(&desk, &document("guide/packages.md"));
    assert!(count >= 5, "{count}");
    assert!(text(desk.path("user-data")).starts_with("#cloud-config"));
    let spec = text(desk.path("cluster.yaml")).replace("1.36.3", "1.36.4");
    std::fs::write(desk.path("cluster.yaml"), spec).unwrap();
    desk.run("nodestrap render --diff old.json cluster.yaml --group workers > difference");
    let difference = text(desk.path("difference"));
    assert!(difference.contains("1.36.3-1.1") && difference.contains("1.36.4-1.1"), "{difference}");
}

impl Desk {
    /// Laid out as an image has them.
    fn with_programs_of_kubernetes() -> Self {
        let desk = Self::new();
        std::fs::copy(example("ca.crt"), desk.path("ca.crt")).unwrap();
        desk.run(
            "mkdir -p kubernetes/usr/bin kubernetes/usr/libexec/cni; cd kubernetes/usr; for name in bin/kubelet bin/kubectl \
             libexec/cni/bridge libexec/cni/host-local libexec/cni/loopback libexec/cni/portmap; do printf program > $name; \
             chmod 0755 $name; done",
        );
        desk
    }
}

#[test]
fn the_guide_to_flatcar_works() {
    let desk = Desk::with_programs_of_kubernetes();
    let count = follow(&desk, &document("guide/flatcar.md"));
    assert!(count >= 4, "{count}");
    let config: Value = serde_json::from_str(&text(desk.path("config.ign"))).unwrap();
    assert!(config["ignition"]["version"].is_string(), "{config}");
}

#[test]
fn the_guide_to_updates_of_flatcar_works() {
    let desk = Desk::with_programs_of_kubernetes();
    follow(&desk, &document("guide/flatcar.md"));
    let count = follow(&desk, &document("guide/flatcar-updates.md"));
    assert!(count >= 2, "{count}");
    let config: Value = serde_json::from_str(&text(desk.path("config.ign"))).unwrap();
    let units = config["systemd"]["units"].as_array().unwrap();
    let locksmith = units.iter().find(|unit| unit["name"] == "locksmithd.service").expect("it is said");
    assert_eq!(locksmith["mask"], true, "{locksmith}");
    // What the guide names is in what is shipped; it runs on a booted node in crates/lab/tests/pre_reboot.rs.
    let guide = document("guide/flatcar-updates.md");
    let shipped = text(repository().join("dist/kubernetes/pre-reboot-hook.yaml"));
    for name in ["nodestrap-pre-reboot-hook-flatcar", "nodestrap.io/next-boot-ready"] {
        assert!(guide.contains(name) && shipped.contains(name), "{name}");
    }
}

#[test]
fn the_guide_to_a_first_cluster_works() {
    let desk = Desk::new();
    let guide = document("guide/first-cluster.md");
    let count = follow(&desk, &guide);
    assert!(count >= 18, "{count}");
    assert!(desk.path("files/root/etc/kubernetes/manifests/kube-apiserver.yaml").is_file());
    std::fs::write(desk.path("join.yaml"), blocks(&guide, "yml").join("\n")).unwrap();
    let lines = blocks(&guide, "sh");
    for line in lines
        .iter()
        .filter(|line| line.contains("/dev/urandom") || line.contains("join.yaml") && line.starts_with("sed "))
    {
        desk.run(line);
    }
    let manifests = text(desk.path("join.yaml"));
    let documents: Vec<Value> =
        manifests.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    let secret = &documents[0]["stringData"];
    let token = format!("{}.{}\n", secret["token-id"].as_str().unwrap(), secret["token-secret"].as_str().unwrap());
    assert_eq!(text(desk.path("token")), token, "the cluster is told the token of the spec");
    // Text in RFC 3339 sorts as time does.
    let day = |from_now: &str| {
        let mut date = program("date");
        date.args(["-u", "-d", from_now, "+%FT%TZ"]);
        finish(date).expect(0).out.trim().to_owned()
    };
    let expires = secret["expiration"].as_str().expect("tokens expire").to_owned();
    assert!(day("now") < expires && expires < day("48 hours"), "{expires}");
}

/// What stands in its step is run on a booted machine (`cargo test -p lab --test bootstrap image`).
#[test]
fn the_guide_to_an_image_works() {
    let desk = Desk::new();
    let lines = blocks(&document("guide/baked-image.md"), "sh");
    assert!(!lines.is_empty());
    lines.iter().for_each(|line| desk.run(line));
}

/// Everybody knows the token of the examples, so no guide shows it as one to be used.
#[test]
fn the_guides_make_tokens_that_expire() {
    let first_node = document("guide/first-node.md");
    assert!(blocks(&first_node, "sh").iter().any(|line| line.starts_with("kubeadm token create --ttl ")));
    for guide in [first_node, document("guide/first-cluster.md")] {
        for language in ["yaml", "yml", "sh"] {
            assert!(!blocks(&guide, language).join("\n").contains("0123456789abcdef"));
        }
    }
}

/// Each step of a node's plan with its needs; steps that are there for each component once.
fn steps_of(sandbox: &support::Sandbox) -> Vec<(String, Vec<String>)> {
    let plan = sandbox.run("plan", &["-o", "json"]).expect(0).json();
    let general = |id: &Value| {
        let id = id.as_str().unwrap();
        match id.split_once('-') {
            Some((verb @ ("fetch" | "unpack"), _)) => format!("{verb}-COMPONENT"),
            _ => id.to_owned(),
        }
    };
    let mut steps = Vec::new();
    for step in plan["plan"]["steps"].as_array().unwrap() {
        let mut needs: Vec<String> = step["needs"].as_array().unwrap().iter().map(general).collect();
        needs.dedup();
        steps.push((general(&step["id"]), needs));
    }
    steps.dedup();
    steps
}

#[test]
fn the_reference_of_the_node_knows_every_file_unit_and_step() {
    let described = document("reference/node.md");
    let bundle: Value = serde_json::from_str(support::bundle()).unwrap();
    let names = |list: &Value, field: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
    };
    let mut known = names(&bundle["bundle"]["files"], "path");
    known.extend(names(&bundle["bundle"]["units"], "name"));
    let sandbox = support::Sandbox::applied();
    let steps = steps_of(&sandbox);
    // The document has the plan with programs. Without them, what they need is not needed.
    let with_programs = support::Sandbox::image();
    support::trees::deliver(&with_programs, "1.36.3");
    let all = steps_of(&with_programs);
    let row = |(id, needs): &(String, Vec<String>)| {
        format!("| `{id}` | {}| ", needs.iter().map(|need| format!("`{need}` ")).collect::<String>())
    };
    let missing: Vec<String> = all.iter().map(row).filter(|row| !described.contains(row)).collect();
    assert!(missing.is_empty(), "docs/reference/node.md has no rows that begin like these: {missing:#?}");
    for (id, needs) in &steps {
        let (_, among_all) = all.iter().find(|(other, _)| other == id).unwrap();
        let there = |need: &&String| steps.iter().any(|(other, _)| other == *need);
        assert!(among_all.iter().filter(there).eq(needs), "{id} needs {needs:?}, and with programs {among_all:?}");
    }
    let events = sandbox.run("timeline", &["-o", "json"]).expect(0).json();
    known.extend(names(&events, "kind"));
    for name in known {
        assert!(described.contains(&format!("`{name}`")), "docs/reference/node.md does not know {name}");
    }
    for line in text(sandbox.path(support::GATE)).lines().skip(1) {
        let variable = line.split('=').next().unwrap();
        assert!(described.contains(variable), "docs/reference/node.md does not know {variable}");
    }
}

#[test]
fn links_lead_somewhere() {
    let folder = repository().join("docs");
    let mut todo = vec![folder];
    let mut count = 0;
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            for link in text(&path).split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()) {
                let target = link.split('#').next().unwrap();
                let there =
                    target.is_empty() || target.starts_with("https://") || path.parent().unwrap().join(target).exists();
                assert!(there, "{}: {link}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 5);
}
