//! `systemd-analyze verify` for the units and drop-ins of each case.

use std::path::Path;

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
