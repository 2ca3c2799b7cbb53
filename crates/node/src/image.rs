//! What an image lacks of what a bundle counts on, for people who bake images. Reads only.
//!
//! In: a bundle, the disk of an image (a machine that is being made, or a folder), and somebody who can ask its programs for
//! their version. Out: an [`ImageReport`]. Fails only where the image cannot be looked at.
//!
//! | looked at | wrong if |
//! |---|---|
//! | os-release | the bundle is for another system; an extension of the bundle does not fit it |
//! | programs that the bundle does not bring | missing, not executable, or of a version that does not fit |
//! | units that the bundle starts and does not bring | there is no such file |
//! | `mount`, `umount` | missing: the kubelet runs them for each volume of a pod |
//! | `iptables` or `nft`, `conntrack` | told of, if the bundle does not install them |
//! | `systemd-sysext.service` | missing, and the bundle brings extensions; so is another extension of the same name |
//! | dnf's plug-in versionlock | missing, and the bundle has dnf install packages |
//! | nodestrap's own unit | there, and not enabled |
//! | what a bootstrap leaves | there: every machine of this image would take itself for that node |

use std::path::Path;

use bundle::{BOOTSTRAP_UNIT, Bundle, Component, Start, Unit};
use host::disk::{Disk, DiskError, Kind, follow};
use host::machine::{Machine, MachineError};
use serde::Serialize;

use crate::checks::program_problem;
use crate::complete::COMPLETE_PATH;
use crate::facts::Os;
use crate::prerequisites::{self, is_in_path};
use crate::refusals;
use crate::resource::package;

/// Where systemd looks for units, and below which it looks for the links of enabled ones.
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const KUBELET_CREDENTIALS: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// The first release that talks with containerd 2 and later only.
const MINOR_WITHOUT_CONTAINERD_1: u64 = 36;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageReport {
    /// How many of the image were looked at.
    pub programs: usize,
    pub units: usize,
    pub findings: Vec<ImageFinding>,
    /// What need not be wrong, or could not be looked at.
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFinding {
    /// A path, a unit, or the system.
    pub subject: String,
    pub problem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("the image cannot be looked at")]
    Disk(#[from] DiskError),
    #[error("the system of the image is not known")]
    System(#[from] MachineError),
}

/// Asks a program of the image for its version: what it printed, or why it could not be asked.
pub type AskVersion<'a> = &'a dyn Fn(&str) -> Result<String, String>;

pub fn verify_image(
    disk: &dyn Disk,
    machine: &dyn Machine,
    bundle: &Bundle,
    ask: AskVersion<'_>,
) -> Result<ImageReport, ImageError> {
    let units: Vec<&Unit> = bundle.units.iter().filter(|unit| is_of_image(unit)).collect();
    let programs = bundle.required_programs.len();
    let mut report = ImageReport { programs, units: units.len(), findings: Vec::new(), remarks: Vec::new() };
    let os = Os::from(machine.os_release()?);
    let architecture = machine.architecture()?.unwrap_or_default();
    let refused = refusals::os(bundle, &os).into_iter().chain(refusals::extensions(bundle, &os, &architecture));
    refused.for_each(|refusal| report.find("os-release", refusal.reason));
    for path in &bundle.required_programs {
        match program_problem(disk, Path::new(path.as_str()))? {
            Some(problem) => report.find(path, problem),
            None => check_version(bundle, path, ask, &mut report),
        }
    }
    for unit in units {
        if !is_in_folders(disk, &unit.name)? {
            report.find(&unit.name, "is not there, and the bundle starts it".to_owned());
        }
    }
    for program in ["mount", "umount"] {
        if !is_in_path(disk, program)? {
            report.find(program, "is not there, and the kubelet runs it for each volume of a pod".to_owned());
        }
    }
    report.remarks.extend(prerequisites::missed_later(disk, bundle)?);
    for obstacle in prerequisites::sysext_obstacles(disk, bundle)? {
        report.find("systemd-sysext", obstacle);
    }
    if let Some(problem) = package::missing_plugin(disk, bundle.packages.as_ref())? {
        report.find("dnf", problem.to_owned());
    }
    check_bootstrap_unit(disk, &mut report)?;
    check_traces(disk, bundle, &mut report)?;
    Ok(report)
}

impl ImageReport {
    fn find(&mut self, subject: &str, problem: String) {
        self.findings.push(ImageFinding { subject: subject.to_owned(), problem });
    }
}

fn is_of_image(unit: &Unit) -> bool {
    unit.brought.is_none() && unit.start != Start::ByOthers
}

fn is_in_folders(disk: &dyn Disk, unit: &str) -> Result<bool, DiskError> {
    for folder in UNIT_FOLDERS {
        if follow(disk, &Path::new(folder).join(unit))?.is_some_and(|stat| stat.kind == Kind::File) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_bootstrap_unit(disk: &dyn Disk, report: &mut ImageReport) -> Result<(), DiskError> {
    if !is_in_folders(disk, BOOTSTRAP_UNIT)? {
        report.remarks.push(format!(
            "there is no {BOOTSTRAP_UNIT} in this image: user data has to bring nodestrap (delivery.nodestrap.installation)"
        ));
        return Ok(());
    }
    for folder in UNIT_FOLDERS {
        let link = format!("{folder}/multi-user.target.wants/{BOOTSTRAP_UNIT}");
        if disk.stat(Path::new(&link))?.is_some() {
            return Ok(());
        }
    }
    report.find(BOOTSTRAP_UNIT, "is not enabled, so nothing would apply a bundle at boot".to_owned());
    Ok(())
}

/// A disk that was a node once makes machines that take themselves for it.
fn check_traces(disk: &dyn Disk, bundle: &Bundle, report: &mut ImageReport) -> Result<(), DiskError> {
    for path in [COMPLETE_PATH, bundle.gate.path.as_str(), KUBELET_CREDENTIALS] {
        if disk.stat(Path::new(path))?.is_some() {
            report.find(path, "is of a node that this image was: nodestrap reset --yes --kubelet-state".to_owned());
        }
    }
    Ok(())
}

fn check_version(bundle: &Bundle, path: &str, ask: AskVersion<'_>, report: &mut ImageReport) {
    let wanted = match path.rsplit('/').next() {
        Some("kubelet") => Wanted::Exactly(bundle.kubernetes_version.clone()),
        Some("containerd") if needs_containerd_2(bundle) => Wanted::FromMajor(2),
        _ => return,
    };
    let said = match ask(path) {
        Ok(said) => said,
        Err(why) => {
            report.remarks.push(format!("{path} could not be asked for its version: {why}"));
            return;
        }
    };
    match version_in(&said) {
        Some(found) if wanted.fits(found) => {}
        Some(found) => report.find(path, format!("is of version {found}, wanted is {wanted}")),
        None => report.find(path, format!("says nothing about its version, wanted is {wanted}")),
    }
}

/// The kubelet may need it, or else the way in which the configuration is written.
fn needs_containerd_2(bundle: &Bundle) -> bool {
    if bundle.brings(Component::Containerd) {
        return false;
    }
    let minor = bundle.kubernetes_version.split('.').nth(1).and_then(|minor| minor.parse::<u64>().ok());
    let config = bundle.file(CONTAINERD_CONFIG).and_then(|file| file.content.text()).unwrap_or_default();
    minor.is_some_and(|minor| minor >= MINOR_WITHOUT_CONTAINERD_1) || config.lines().any(|line| line == "version = 3")
}

enum Wanted {
    Exactly(String),
    FromMajor(u64),
}

impl Wanted {
    fn fits(&self, found: &str) -> bool {
        match self {
            // Vendors put their own word behind it: 1.36.3-eks-1a2b3c4.
            Self::Exactly(wanted) => found.split(['-', '+']).next() == Some(wanted),
            Self::FromMajor(major) => {
                found.split('.').next().and_then(|found| found.parse::<u64>().ok()).is_some_and(|found| found >= *major)
            }
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(version) => f.write_str(version),
            Self::FromMajor(major) => write!(f, "{major}.0 or later"),
        }
    }
}

/// `Kubernetes v1.36.3`, `containerd github.com/containerd/containerd/v2 v2.2.1 1a2b3c4`.
fn version_in(said: &str) -> Option<&str> {
    said.lines().next()?.split_whitespace().map(|word| word.strip_prefix('v').unwrap_or(word)).find(|word| {
        let mut numbers = word.split('.');
        let mut is_next_number =
            || numbers.next().is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()));
        is_next_number() && is_next_number()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, version) in [
            ("Kubernetes v1.36.3\n", Some("1.36.3")),
            ("Kubernetes v1.30.0-eks-036c24b\n", Some("1.30.0-eks-036c24b")),
            ("containerd github.com/containerd/containerd/v2 v2.2.1 dea7da592f5d\n", Some("2.2.1")),
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n", Some("1.6.20~ds1")),
            ("command not found: 127\n", None),
            ("", None),
        ] {
            assert_eq!(version_in(said), version, "{said}");
        }
        assert!(Wanted::Exactly("1.30.0".into()).fits("1.30.0-eks-036c24b"));
        assert!(!Wanted::Exactly("1.30.0".into()).fits("1.30.01"));
        assert!(Wanted::FromMajor(2).fits("10.1") && !Wanted::FromMajor(2).fits("1.7.0"));
    }
}
