//! `systemd-analyze verify` for the units and drop-ins of each case.

use std::path::Path;
use std::process::Command;

use lab::stdout_of;

use crate::support::{Report, cases, consumers};

#[test]
fn systemd_reads_every_unit_without_a_complaint() {
    let Some(consumers) = consumers() else { return };
    let mut report = Report::default();
    for case in cases() {
        let Some(root) = case.root() else { continue };
        match consumers.check_units(&root) {
            Ok(0) => {}
            outcome => report.add(&case.name, "root/etc/systemd/system", outcome.map(drop)),
        }
    }
    report.finish("units", 5);
}

#[test]
fn systemd_reads_every_shipped_unit_without_a_complaint() {
    let Some(consumers) = consumers() else { return };
    let root = tempfile::tempdir().expect("temporary folder");
    let mut shipped = 0;
    for entry in std::fs::read_dir(lab::repository().join("dist/systemd")).expect("dist/systemd") {
        let unit = entry.expect("a unit");
        let text = std::fs::read_to_string(unit.path()).expect("a unit");
        write(root.path(), &format!("etc/systemd/system/{}", unit.file_name().to_string_lossy()), &text);
        shipped += 1;
    }
    assert_ne!(shipped, 0);
    assert_eq!(consumers.check_units(root.path()).expect("the shipped units"), shipped);
}

/// What systemd says of how much a unit could do, from 0 to 10.
fn exposure(unit: &str) -> String {
    let folder = tempfile::tempdir().expect("temporary folder");
    write(folder.path(), "k8s-node-bootstrap.service", unit);
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager", "k8s-node-bootstrap.service"]).current_dir(folder.path());
    let said = stdout_of(&mut analyze).expect("systemd-analyze");
    let (_, rest) = said.split_once("Overall exposure level for k8s-node-bootstrap.service: ").expect("a verdict");
    rest.split(' ').next().expect("a number").to_owned()
}

/// The numbers of another release of systemd are others.
const JUDGE: &str = "systemd 252 ";

#[test]
fn the_docs_tell_how_exposed_the_bootstrap_unit_is_and_was() {
    if !stdout_of(Command::new("systemd-analyze").arg("--version")).is_ok_and(|said| said.starts_with(JUDGE)) {
        return;
    }
    let path = lab::repository().join("dist/systemd/k8s-node-bootstrap.service");
    let shipped = std::fs::read_to_string(path).expect("the unit");
    // From the first line that confines it to the last.
    let (before, rest) = shipped.split_once("LimitCORE=0\n").expect("where it begins");
    let (_, after) = rest.split_once("\n\n").expect("where it ends");
    let unconfined = format!("{before}\n{after}");
    let docs = std::fs::read_to_string(lab::repository().join("docs/reference/node.md")).expect("the docs");
    let words = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = format!("an exposure of {}, where it was {} before", exposure(&shipped), exposure(&unconfined));
    assert!(words.contains(&told), "docs/reference/node.md does not say: {told}");
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("making the folder");
    std::fs::write(path, text).expect("writing the unit");
}

#[test]
fn a_wrong_unit_or_drop_in_is_refused() {
    let Some(consumers) = consumers() else { return };
    let unit = "[Unit]\nDescription=A\nAfter=containerd.service\n\n[Service]\nExecStart=/opt/a --b\nRestart=always\n";
    let judge = |files: &[(&str, &str)]| {
        let root = tempfile::tempdir().expect("temporary folder");
        for (path, text) in files {
            write(root.path(), &format!("etc/systemd/system/{path}"), text);
        }
        consumers.check_units(root.path())
    };
    assert_eq!(judge(&[("a.service", unit)]).expect("a right unit"), 1);
    for (from, to) in [
        ("Restart=always", "Restart=sometimes"),
        ("Restart=", "Restrat="),
        ("[Service]", "[Servcie]"),
        ("/opt/a", "opt/a"),
    ] {
        let wrong = unit.replace(from, to);
        assert!(judge(&[("a.service", &wrong)]).is_err(), "systemd takes {wrong}");
    }
    let drop_in = "a.service.d/10-b.conf";
    assert_eq!(judge(&[("a.service", unit), (drop_in, "[Service]\nRestartSec=2\n")]).expect("a right drop-in"), 1);
    assert!(
        judge(&[("a.service", unit), (drop_in, "[Service]\nRestartSek=2\n")]).is_err(),
        "systemd takes the drop-in"
    );
    // For a unit of the image.
    assert_eq!(judge(&[(drop_in, "[Service]\nExecStart=\nExecStart=/opt/b\n")]).expect("a right drop-in"), 1);
    assert!(judge(&[(drop_in, "[Service]\nExecStrat=/opt/b\n")]).is_err(), "systemd takes the drop-in");
    assert_eq!(judge(&[("masked.service", ""), ("a.service", unit)]).expect("a right unit"), 1);
}
