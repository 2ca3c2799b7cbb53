//! What an image brings, or does not: programs, and units that only others start.

mod support;

use std::path::Path;

use engine::{ErrorClass, RunOutcome};
use host::disk::Disk as _;
use host::files::write_durable;
use host::units::UnitName;

use support::{FakeNode, bundle, clock, expect_converged, rich_bundle};

/// What stands at the place of the first program that the bundle counts on.
enum Program<'a> {
    Link(&'a str),
    Mode(u32),
    Folder,
    Nothing,
}

/// A node whose image has this, with the path that it is at.
fn with_program(program: &Program<'_>) -> (FakeNode, String) {
    let node = FakeNode::new(&bundle());
    let path = bundle().required_programs[0].to_string();
    let at = Path::new(&path);
    write_durable(&node.disk, Path::new("/opt/bin/program"), 0o755, b"", None).expect("a disk");
    write_durable(&node.disk, Path::new("/opt/bin/text"), 0o644, b"", None).expect("a disk");
    node.disk.remove(at).expect("a disk");
    match program {
        Program::Link(target) => node.disk.symlink(target, at),
        Program::Mode(mode) => node.disk.create(at, *mode, b""),
        Program::Folder => node.disk.make_folder(at, 0o755),
        Program::Nothing => Ok(()),
    }
    .expect("a disk");
    (node, path)
}

#[test]
fn a_program_that_cannot_be_run_is_found_before_anything_changes() {
    for (program, why) in [
        (Program::Nothing, "is not there"),
        (Program::Folder, "is not a file"),
        (Program::Mode(0o644), "is not executable (mode 0644)"),
        (Program::Link("/opt/bin/gone"), "is a link to \"/opt/bin/gone\", which leads nowhere"),
        (Program::Link("/opt/bin/text"), "is not executable (mode 0644)"),
        (Program::Link("/opt/bin"), "is not a file"),
        (Program::Link("kubelet"), "leads nowhere"),
    ] {
        let (node, path) = with_program(&program);
        let report = node.apply(&bundle(), 1).expect("runs");
        let RunOutcome::Failed { step, class, message, .. } = report.outcome else { panic!("{why}") };
        assert_eq!((step.0.as_str(), class), ("check-programs", ErrorClass::NeedsOperator));
        assert!(message.contains(&format!("{path} {why}")) || message.contains(why), "{message}");
        assert!(message.contains(&path), "{message}");
    }
}

#[test]
fn a_program_that_is_linked_to_its_place_is_as_good_as_one_there() {
    for program in [
        Program::Link("/opt/bin/program"),
        Program::Link("../../opt/bin/program"),
        Program::Mode(0o555),
        Program::Mode(0o700),
    ] {
        let (node, _) = with_program(&program);
        expect_converged(&node.apply(&bundle(), 1).expect("runs"), "linked");
    }
}

#[test]
fn a_unit_of_the_image_that_cannot_be_enabled_restarts_nothing_on_a_rerun_and_is_no_drift() {
    for install in ["", "[Install]\n", "[Install]\nAlso=containerd.socket\n"] {
        let bundle = rich_bundle();
        let node = FakeNode::new(&bundle);
        let content = format!("[Service]\nExecStart=/usr/bin/containerd\n{install}");
        let path = Path::new("/usr/lib/systemd/system/containerd.service");
        write_durable(&node.disk, path, 0o644, content.as_bytes(), None).expect("a disk");
        expect_converged(&node.apply(&bundle, 1).expect("runs"), "first");
        let runs = || {
            let units = bundle.units.iter().map(|unit| &unit.name).chain(bundle.hooks.iter().map(|hook| &hook.unit));
            units.map(|unit| (unit.to_string(), node.units.runs(&UnitName(unit.to_string())))).collect::<Vec<_>>()
        };
        let before = runs();
        let report = node.apply(&bundle, 1).expect("runs");
        assert_eq!(report.outcome, RunOutcome::NothingToDo, "{install:?}");
        assert_eq!(runs(), before, "{install:?}");
        let verified = node::verify(&node.host(), &bundle, &clock()).expect("looks");
        assert!(verified.drift.is_empty(), "{install:?}: {:?}", verified.drift);
    }
}
