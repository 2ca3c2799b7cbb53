//! Whether this machine can run a lab, so that a test can be skipped aloud instead of failing on a laptop.

use std::path::Path;
use std::process::{Command, Stdio};

/// Why there can be no lab here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// A program or file that shows that a package is there, and the package.
const PACKAGES: [(&str, &str); 25] = [
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("tar", "tar"),
    ("openssl", "openssl"),
    ("debootstrap", "debootstrap"),
    ("gcc", "gcc"),
    ("pkg-config", "pkg-config"),
    ("musl-gcc", "musl-tools"),
    ("strace", "strace"),
    ("mkfs.xfs", "xfsprogs"),
    ("dbus-daemon", "dbus-daemon"),
    // gpg alone makes no keys; it asks its agent.
    ("gpg-agent", "gnupg"),
    ("gpgv", "gpgv"),
    ("dpkg-deb", "dpkg"),
    ("apt-ftparchive", "apt-utils"),
    ("rpmbuild", "rpm"),
    ("createrepo_c", "createrepo-c"),
    ("mksquashfs", "squashfs-tools"),
    ("/usr/include/seccomp.h", "libseccomp-dev"),
    ("/usr/include/blkid/blkid.h", "libblkid-dev"),
    // The program python3 is there without it, and then makes no virtual environment.
    ("/var/lib/dpkg/info/python3-venv.list", "python3-venv"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
];
/// Those that a lab needs once the cache is filled.
const PROGRAMS_TO_RUN: [&str; 3] = ["systemd-nspawn", "ip", "nsenter"];

/// Debian packages that the tests of this repository need and this machine lacks.
pub fn missing_packages() -> Vec<&'static str> {
    let is_missing = |sign: &str| if sign.starts_with('/') { !Path::new(sign).exists() } else { !has_program(sign) };
    PACKAGES.iter().filter(|(sign, _)| is_missing(sign)).map(|(_, package)| *package).collect()
}

pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    in_path || ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(name).is_file())
}

/// Root, namespaces, overlay mounts and nspawn.
pub fn support() -> Result<(), Unsupported> {
    let no = |reason: &str| Err(Unsupported(reason.to_owned()));
    if !rustix::process::geteuid().is_root() {
        return no("needs root (nspawn, network namespaces, mounts)");
    }
    if let Some(program) = PROGRAMS_TO_RUN.iter().find(|program| !has_program(program)) {
        return no(&format!("the program '{program}' is missing; `cargo run -p lab -- prepare --install` installs it"));
    }
    let file_systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !file_systems.lines().any(|line| line.ends_with("\toverlay")) {
        return no("the kernel has no overlay file system");
    }
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--net", "--mount", "--pid", "--fork", "--cgroup", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !unshare.status().is_ok_and(|status| status.success()) {
        return no("namespaces cannot be made here (inside an unprivileged container?)");
    }
    Ok(())
}

/// For the first line of a test: `if !lab::require() { return; }`. Where CI=true a missing lab is an error, so that no test is
/// skipped there for months without anybody noticing.
///
/// # Panics
/// If there can be no lab here and CI is `true`.
pub fn require() -> bool {
    let Err(reason) = support() else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run every test, but there can be no lab: {reason}");
    eprintln!("SKIPPED: no lab on this machine: {reason}");
    false
}
