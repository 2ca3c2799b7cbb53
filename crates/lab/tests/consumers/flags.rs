//! Flags of the kubelet and of the static pods' programs, held against `--help` of the programs themselves.

use std::collections::BTreeMap;

use lab::consumers::{Asked, CommandLine, Flags, command_lines_of_pod, command_lines_of_unit};
use serde_json::Value;

use crate::support::{Report, cases, consumers};

#[test]
fn every_flag_and_feature_gate_is_known_to_the_program_of_that_minor() {
    let Some(consumers) = consumers() else { return };
    let mut flags = Flags::new(&consumers);
    let mut report = Report::default();
    let mut not_asked: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |case: &str, file: &str, of: String, outcome: anyhow::Result<Asked>| match outcome {
        Ok(Asked::NoSuchProgram) => *not_asked.entry(of).or_default() += 1,
        outcome => report.add(case, file, outcome.map(drop)),
    };
    for case in cases() {
        let Some(minor) = case.kubernetes_minor().expect("manifest") else { continue };
        for (name, value) in case.gate_environment().expect("manifest") {
            if name == "KUBELET_ARGS" {
                let arguments = value.split_whitespace().map(str::to_owned).collect();
                let line = CommandLine { program: "kubelet".into(), minor: minor.clone(), arguments };
                count(&case.name, "gate.env", format!("kubelet {minor}"), flags.check(&line));
            }
        }
        for pod in case.documents(&["Pod"]).expect("documents") {
            for line in command_lines_of_pod(&minor, &pod) {
                let of = format!("{} {}", line.program, line.minor);
                count(&case.name, &pod.file.display().to_string(), of, flags.check(&line));
            }
        }
        for unit in case.files_below("root/etc/systemd/system").expect("units") {
            let text = std::fs::read_to_string(&unit).expect("a unit");
            for line in command_lines_of_unit(&minor, &text) {
                let of = format!("{} {}", line.program, line.minor);
                count(&case.name, &unit.display().to_string(), of, flags.check(&line));
            }
        }
        for document in case.documents(&["KubeletConfiguration"]).expect("documents") {
            let gates = document.value.get("featureGates").and_then(Value::as_object);
            let gates = gates.into_iter().flat_map(|gates| gates.keys().map(String::as_str));
            let outcome = flags.check_gates("kubelet", &minor, gates);
            count(&case.name, &document.file.display().to_string(), format!("kubelet {minor}"), outcome);
        }
    }
    for (program, times) in not_asked {
        eprintln!("flags: {times} command lines not checked, there is no {program} here");
    }
    report.finish("flags", 5);
}

#[test]
fn a_flag_or_feature_gate_that_the_program_does_not_have_is_refused() {
    let Some(consumers) = consumers() else { return };
    let mut flags = Flags::new(&consumers);
    let mut check = |program: &str, minor: &str, arguments: &[&str]| {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        flags.check(&CommandLine { program: program.into(), minor: minor.into(), arguments })
    };
    for minor in ["1.30", "1.36"] {
        let right = ["--etcd-servers=x", "--v=2", "-v=2", "--authorization-mode", "Node"];
        assert_eq!(check("kube-apiserver", minor, &right).expect("known flags"), Asked::Yes);
        check("kube-apiserver", minor, &["--etcd-server=x"]).expect_err("an unknown flag");
        check("kube-apiserver", minor, &["--feature-gates=AllAlpha=true"]).expect("a known gate");
        check("kube-apiserver", minor, &["--feature-gates=AllAlpha=true,AllGamma=true"]).expect_err("an unknown gate");
    }
    // Deprecated for years and removed in 1.35.
    let sandbox_image = ["--pod-infra-container-image=x"];
    assert_eq!(check("kubelet", "1.30", &sandbox_image).expect("1.30 has it"), Asked::Yes);
    check("kubelet", "1.36", &sandbox_image).expect_err("1.36 does not have it");
    assert_eq!(check("kubelet", "1.33", &sandbox_image).expect("nobody to ask"), Asked::NoSuchProgram);
    for minor in ["3.6", "3.7"] {
        let right = ["--data-dir=/x", "--listen-client-urls=y", "--initial-cluster-state", "new"];
        assert_eq!(check("etcd", minor, &right).expect("known flags"), Asked::Yes);
        check("etcd", minor, &["--data-directory=/x"]).expect_err("an unknown flag");
    }
    let gates = flags.check_gates("kubelet", "1.36", ["AllAlpha", "NoSuchThing"].into_iter());
    assert!(gates.expect_err("an unknown gate").to_string().contains("NoSuchThing"));
}
