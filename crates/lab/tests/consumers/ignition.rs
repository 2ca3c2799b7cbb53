//! Ignition's validator for each config, then Ignition itself: what it puts into an empty folder is what was rendered.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lab::Consumers;
use lab::consumers::{FileKind, IgnitionSpec, check_delivered};

use crate::support::{Report, cases, consumers, file_with, files_of};

const BUNDLE: &str = "etc/nodestrap/bundle.json";
const PRESETS: &str = "etc/systemd/system-preset/20-ignition.preset";

pub(crate) fn check(consumers: &Consumers, spec: IgnitionSpec, config: &Path) -> Result<()> {
    consumers.check_ignition(spec, config)?;
    let root = tempfile::tempdir().context("temporary folder")?;
    consumers.run_ignition(spec, config, root.path())?;
    let bundle = std::fs::read_to_string(root.path().join(BUNDLE)).context("Ignition writes no bundle")?;
    let mode = std::fs::metadata(root.path().join(BUNDLE))?.permissions().mode() & 0o7777;
    ensure!(mode == 0o600, "the bundle has secrets and gets the mode {mode:o}");
    let presets = std::fs::read_to_string(root.path().join(PRESETS)).context("Ignition enables no unit")?;
    ensure!(presets.lines().any(|line| line == "enable k8s-node-bootstrap.service"), "Ignition enables {presets:?}");
    consumers.check_units(root.path())?;
    check_delivered(&cases(), &bundle)
}

fn check_golden(spec: IgnitionSpec, at_least: usize) {
    let Some(consumers) = consumers() else { return };
    let mut report = Report::default();
    for (case, file, config) in files_of(FileKind::Ignition(spec)) {
        report.add(&case.name, &file, check(&consumers, spec, &config));
    }
    report.finish(&format!("Ignition, spec {spec:?}"), at_least);
}

#[test]
fn every_config_of_spec_3_is_valid_and_carried_out() {
    check_golden(IgnitionSpec::Three, 10);
}

#[test]
fn every_config_of_spec_2_is_valid_and_carried_out() {
    check_golden(IgnitionSpec::Two, 2);
}

fn config(spec: IgnitionSpec) -> String {
    let (version, file_system) = match spec {
        IgnitionSpec::Two => ("2.3.0", r#""filesystem":"root","#),
        IgnitionSpec::Three => ("3.4.0", ""),
    };
    format!(
        r#"{{"ignition":{{"version":"{version}"}},"storage":{{"files":[{{{file_system}"path":"/etc/x","mode":384,"contents":{{"source":"data:,hello"}}}}]}},"systemd":{{"units":[{{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}}]}}}}"#
    )
}

#[test]
fn a_wrong_config_is_refused_by_the_validator() {
    let Some(consumers) = consumers() else { return };
    for spec in [IgnitionSpec::Two, IgnitionSpec::Three] {
        let right = config(spec);
        consumers.check_ignition(spec, file_with(&right).path()).expect("a valid config");
        for (from, to) in
            [("\"mode\"", "\"moed\""), ("384", "\"0600\""), ("/etc/x", "etc/x"), ("[Service]", "[Service")]
        {
            let wrong = right.replace(from, to);
            assert_ne!(wrong, right);
            assert!(consumers.check_ignition(spec, file_with(&wrong).path()).is_err(), "{spec:?} takes {wrong}");
        }
    }
}

#[test]
fn ignition_does_to_a_folder_what_it_does_to_a_machine_and_fails_on_bytes_that_differ_from_their_digest() {
    let Some(consumers) = consumers() else { return };
    for spec in [IgnitionSpec::Two, IgnitionSpec::Three] {
        let root = tempfile::tempdir().expect("temporary folder");
        let right = config(spec);
        consumers.run_ignition(spec, file_with(&right).path(), root.path()).expect("Ignition");
        assert_eq!(std::fs::read_to_string(root.path().join("etc/x")).expect("written"), "hello");
        let presets = std::fs::read_to_string(root.path().join(PRESETS));
        assert_eq!(presets.expect("written").trim(), "enable a.service");

        let digest = "0".repeat(128);
        let source = r#""source":"data:,hello""#;
        let wrong = right.replace(source, &format!(r#"{source},"verification":{{"hash":"sha512-{digest}"}}"#));
        let root = tempfile::tempdir().expect("temporary folder");
        let error = consumers.run_ignition(spec, file_with(&wrong).path(), root.path()).expect_err("a wrong digest");
        assert!(format!("{error:#}").contains("hash"), "{error:#}");
    }
}
