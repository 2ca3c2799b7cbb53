//! `lab node add --flow`, as a person types it: the command ends with 0 when the node is Ready, and leaves the lab up.

// Tests are all effects.
#![allow(clippy::disallowed_methods)]

use std::process::{Command, Output, Stdio};

use lab::output_text;

/// Those that no other test goes all the way, and those that need a service which outlives the command.
const FLOWS: [(&str, &str); 3] = [("n1", "image"), ("n2", "store"), ("n3", "eksctl-al2")];
/// Those that bring what the image lacks, each with where nodestrap lies.
const BRINGING: [(&str, &str); 4] = [
    ("package", "nodestrap"),
    ("package-dnf", "nodestrap"),
    ("sysext", "/opt/bin/nodestrap"),
    ("torcx", "/opt/bin/nodestrap"),
];

/// One lab for a test, down when this is dropped.
struct Commands {
    name: String,
}

fn lab(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(words).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

impl Commands {
    fn run(&self, words: &[&str]) -> Output {
        lab(&[&["--name", &self.name], words].concat())
    }

    /// What a command said that must succeed.
    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", output_text(&output));
        output_text(&output)
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let output = self.run(&["down"]);
        if !output.status.success() {
            eprintln!("lab down: {}", output_text(&output));
        }
    }
}

#[test]
fn each_flow_ends_in_a_ready_node_whose_services_outlive_the_command() {
    if !lab::require() {
        return;
    }
    let lab = Commands { name: format!("flows{}", std::process::id() % 100_000) };
    let without = lab.run(&["node", "add", "n1", "--flow", "image"]);
    assert!(!without.status.success());
    assert!(output_text(&without).contains("up`"), "it says how to start a lab: {}", output_text(&without));

    lab.done(&["up"]);
    for (node, flow) in FLOWS {
        let said = lab.done(&["node", "add", node, "--flow", flow]);
        assert!(said.contains(&format!("{node} is Ready")), "{said}");
        assert!(lab.done(&["shell", node, "--", "nodestrap", "status"]).contains("Ready"));
    }
    let ready = lab.done(&["kubectl", "get", "nodes", "--no-headers"]);
    assert_eq!(ready.lines().filter(|line| line.split_whitespace().nth(1) == Some("Ready")).count(), FLOWS.len());

    let status = lab.done(&["status"]);
    for service in ["site-1", "metadata-n3"] {
        let line = status.lines().find(|line| line.trim_start().starts_with(service));
        assert!(line.is_some_and(|line| line.contains("runs as process")), "{service}: {status}");
    }
}

#[test]
fn each_flow_that_brings_what_the_image_lacks_ends_in_a_ready_node() {
    if !lab::require() {
        return;
    }
    let lab = Commands { name: format!("brings{}", std::process::id() % 100_000) };
    lab.done(&["up"]);
    for (flow, program) in BRINGING {
        let said = lab.done(&["node", "add", flow, "--flow", flow]);
        assert!(said.contains(&format!("{flow} is Ready")), "{said}");
        assert!(lab.done(&["shell", flow, "--", program, "status"]).contains("Ready"));
        // The machine has so many inotify instances, which nodes share.
        lab.done(&["node", "poweroff", flow]);
    }
}

#[test]
fn a_flow_that_there_is_not_is_refused_with_those_that_there_are() {
    for flow in ["bare-metal", "torx"] {
        let refused = lab(&["node", "add", "n1", "--flow", flow]);
        let said = output_text(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let by_image = ["user-data", "image", "mime", "ignition", "store", "eksctl-al2", "eksctl-ubuntu"];
        let brought = ["tree", "package", "package-dnf", "sysext", "torcx"];
        for known in by_image.iter().chain(&brought) {
            assert!(said.contains(known), "{known} is not in: {said}");
        }
    }
}
