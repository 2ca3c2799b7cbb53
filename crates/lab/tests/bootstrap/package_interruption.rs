//! `kill -9` and power cuts while packages are fetched and installed: of nodestrap, and of dpkg or dnf, which systemd runs for it.
//! Each node ends as one that nobody disturbed, and after a reset as it was before.
//!
//! ```sh
//! NODESTRAP_INTERRUPTIONS=10 make booted     every point, not only a sample of them
//! ```

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use lab::flow::PackageSite;
use lab::{Lab, LabOptions, Node, NodeOptions, PackageManager, Patch};

use crate::interruption::{End, PROGRAM, Point, TRACE, settled, stop_at, wait_for_stop};
use crate::support::{files_below, lab, nodestrap, number};
use crate::{package, package_dnf};

/// On each commit, of ten in all.
const SAMPLE: u64 = 2;

/// Who is stopped.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// At the n-th call in a folder, or anywhere.
    Nodestrap(&'static str, Option<&'static str>, u32),
    /// In the run of the package manager that is told this, at the n-th call.
    Manager(&'static str, &'static str, u32),
}

/// What dnf is told when it installs.
const INSTALL: &str = "--setopt=localpkg_gpgcheck=True";
const POINTS_OF_DNF: [Victim; 10] = [
    Victim::Nodestrap("renameat", Some("/etc/yum.repos.d"), 1), // no repository is named yet
    Victim::Manager(INSTALL, "/^rename", 1),                    // nothing is unpacked
    Victim::Nodestrap("sendmsg", None, 4),                      // while systemd is asked for something
    Victim::Manager(INSTALL, "/^rename", 4),                    // in the middle of a package
    Victim::Nodestrap("sendmsg", None, 8),
    Victim::Manager(INSTALL, "/^rename", 8),
    Victim::Nodestrap("fsync", None, 2),
    Victim::Manager(INSTALL, "/^rename", 12),
    Victim::Nodestrap("syncfs", None, 1), // all installed, nothing durable
    Victim::Manager(INSTALL, "vfork", 1), // a script of a package is about to run
];

const POINTS_OF_APT: [Victim; 10] = [
    Victim::Nodestrap("renameat", Some("/etc/apt/sources.list.d"), 1), // no repository is named yet
    Victim::Manager("--unpack", "rename", 1),                          // nothing is unpacked
    Victim::Nodestrap("sendmsg", None, 4),                             // while systemd is asked for something
    Victim::Manager("--unpack", "rename", 40),                         // in the middle of a package
    Victim::Nodestrap("sendmsg", None, 8),
    Victim::Manager("--unpack", "unlink", 3), // between two packages
    Victim::Nodestrap("fsync", None, 2),
    Victim::Manager("--configure", "rename", 1), // all unpacked, nothing configured
    Victim::Nodestrap("syncfs", None, 1),        // all installed, nothing durable
    Victim::Manager("--configure", "rename", 6), // some are configured
];

/// What unpacks, as far as it is a program of its own.
fn program_of(manager: PackageManager) -> &'static str {
    match manager {
        PackageManager::Apt => "dpkg",
        PackageManager::Dnf => "dnf",
    }
}

/// Puts itself in the place of the package manager, for one run.
fn stop_manager_at(root: &Path, name: &str, run: &str, call: &str, count: u32, end: End) -> Result<()> {
    let signal = if matches!(end, End::Process) { "SIGKILL" } else { "SIGSTOP" };
    let program = root.join("usr/bin").join(name);
    std::fs::rename(&program, root.join(format!("usr/bin/{name}-itself")))?;
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" {run} \"*)\n\
         if [ ! -e /var/lib/interrupted ]; then\n: > /var/lib/interrupted\nsync\n\
         exec strace -f -o {TRACE} -e trace={call} -e inject={call}:signal={signal}:when={count} /usr/bin/{name}-itself \"$@\"\nfi;;\n\
         esac\nexec /usr/bin/{name}-itself \"$@\"\n"
    );
    std::fs::write(&program, script)?;
    Ok(std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?)
}

/// What a node ends in, with all its packages, their versions and holds.
fn outcome(lab: &Lab, machine: &Node, manager: PackageManager) -> Result<String> {
    let settled = settled(lab, machine)?;
    Ok(match manager {
        PackageManager::Apt => settled + &package::packages(machine),
        PackageManager::Dnf => settled + &package_dnf::packages(machine),
    })
}

/// What a reset gives back: the whole list of packages with versions and holds, and files. Nobody need run there.
fn left(root: &Path, manager: PackageManager) -> [String; 2] {
    match manager {
        PackageManager::Apt => [package::packages_below(root), files_below(root, &package::TOUCHED)],
        PackageManager::Dnf => [package_dnf::packages_below(root), files_below(root, &package_dnf::TOUCHED)],
    }
}

fn interrupted(
    lab: &Lab,
    options: NodeOptions<'static>,
    manager: PackageManager,
    victim: Victim,
    end: End,
) -> Result<String> {
    let machine = lab.add_node(options.not_started())?;
    let (root, program) = (
        machine.root(),
        match victim {
            Victim::Nodestrap(call, at, count) => {
                stop_at(&machine.root(), PROGRAM, &Point { call, at: at.map(str::to_owned), count }, end)?;
                "nodestrap".to_owned()
            }
            Victim::Manager(run, call, count) => {
                stop_manager_at(&machine.root(), program_of(manager), run, call, count, end)?;
                format!("{}-itself", program_of(manager))
            }
        },
    );
    let before = left(&root, manager);
    machine.start()?;
    if matches!(end, End::Machine) {
        wait_for_stop(&machine, &program)?;
        machine.kill()?;
        machine.start()?;
    }
    let found = outcome(lab, &machine, manager)?;
    if matches!(end, End::Process) {
        let trace = std::fs::read_to_string(root.join(TRACE.trim_start_matches('/')))?;
        anyhow::ensure!(trace.contains("killed by SIGKILL"), "it was never interrupted:\n{trace}");
    }
    machine.run(&["nodestrap", "reset", "--yes", "--kubelet-state"])?;
    let after = left(&root, manager);
    anyhow::ensure!(after == before, "a reset left\n{}\nof\n{}", after.concat(), before.concat());
    machine.poweroff()?;
    Ok(found)
}

fn run(manager: PackageManager, points: [Victim; 10], end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let site = PackageSite::start(&lab, manager).expect("repositories");
    let options = |name: &str| site.node(&lab, name, Patch::Newest, &nodestrap()).expect("a bundle");
    let machine = lab.add_node(options("clean")).expect("boots");
    let expected = outcome(&lab, &machine, manager).expect("Ready");
    let held = match manager {
        PackageManager::Apt => "hold ok installed".to_owned(),
        PackageManager::Dnf => format!("kubelet-0:{}", manager.kubernetes_version(Patch::Newest)),
    };
    assert!(expected.contains(&held), "{expected}");
    machine.poweroff().expect("off");
    // Others for each commit; three has no factor in common with ten, so none comes twice.
    let first = number("NODESTRAP_SAMPLE").unwrap_or(0) % 10;
    for index in 0..number("NODESTRAP_INTERRUPTIONS").unwrap_or(SAMPLE).min(10) {
        let victim = points[usize::try_from((first + 3 * index) % 10).expect("below ten")];
        let found = interrupted(&lab, options(&format!("n{index}")), manager, victim, end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at {victim:?}: {error:#}"));
        assert_eq!(found, expected, "{end:?} at {victim:?}");
        println!("{end:?} at {victim:?}: Ready, same tree, same packages; after a reset as before");
    }
}

#[test]
fn ready_with_the_same_packages_after_kill_9_of_nodestrap_or_of_dpkg_while_they_are_installed() {
    run(PackageManager::Apt, POINTS_OF_APT, End::Process);
}

#[test]
fn ready_with_the_same_packages_after_a_power_cut_while_they_are_installed() {
    run(PackageManager::Apt, POINTS_OF_APT, End::Machine);
}

#[test]
fn ready_with_the_same_rpms_after_kill_9_of_nodestrap_or_of_dnf_while_they_are_installed() {
    run(PackageManager::Dnf, POINTS_OF_DNF, End::Process);
}

#[test]
fn ready_with_the_same_rpms_after_a_power_cut_while_they_are_installed() {
    run(PackageManager::Dnf, POINTS_OF_DNF, End::Machine);
}
