//! One program as a transient unit of a real systemd: run as root on a booted machine, with `--ignored`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use host::units::{SystemdUnits, Transient, UnitError, UnitName, Units as _};

fn transient(command: &[&str], output: &str) -> Transient {
    let _ = std::fs::remove_file(output);
    Transient {
        unit: UnitName("nodestrap-test-transient.service".to_owned()),
        description: "a test of nodestrap".to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        environment: BTreeMap::from([("SAID".to_owned(), "two words".to_owned())]),
        environment_file: None,
        output: PathBuf::from(output),
    }
}

#[test]
#[ignore = "needs root and a booted systemd"]
fn a_program_is_run_heard_and_waited_for_and_leaves_no_unit_behind() {
    let (units, output, minute) = (SystemdUnits::new(None), "/run/nodestrap-test.log", Duration::from_secs(60));
    for _ in 0..2 {
        units.run_transient(&transient(&["/usr/bin/printenv", "SAID"], output), minute, &mut || {}).unwrap();
        assert_eq!(std::fs::read_to_string(output).unwrap(), "two words\n");
    }
    let failed = units.run_transient(&transient(&["/bin/false"], output), minute, &mut || {}).unwrap_err();
    assert!(matches!(&failed, UnitError::Job { detail, .. } if detail.contains("status 1")), "{failed:?}");
    // Whoever gave up waiting finds it still at work, and the next one waits for it.
    let short = Duration::from_secs(1);
    let gave_up = units.run_transient(&transient(&["/bin/sleep", "4"], output), short, &mut || {}).unwrap_err();
    assert!(matches!(gave_up, UnitError::Deadline { .. }), "{gave_up:?}");
    let unit = UnitName("nodestrap-test-transient.service".to_owned());
    assert!(matches!(units.wait_until_ended(&unit, short), Err(UnitError::Deadline { .. })));
    units.run_transient(&transient(&["/bin/true"], output), minute, &mut || {}).unwrap();
    units.wait_until_ended(&unit, minute).unwrap();
    std::fs::remove_file(output).unwrap();
}
