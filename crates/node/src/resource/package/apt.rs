//! What apt and dpkg are asked, word by word. Pure.

use std::collections::BTreeMap;

/// Where the archives of one transaction lie. Not among what only root may see: apt downloads as a user without rights.
pub(crate) const ARCHIVES: &str = "/var/cache/nodestrap-packages";

/// Whoever waited for a lock before us may take it once more.
const LOCK_SECONDS: u64 = 60;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Nothing asks, and nothing is started, stopped or restarted: units are down until they are configured.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let variables = [
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("DEBCONF_NONINTERACTIVE_SEEN", "true"),
        ("SYSTEMD_OFFLINE", "1"),
        ("NEEDRESTART_SUSPEND", "1"),
        ("UCF_FORCE_CONFFOLD", "1"),
        ("LC_ALL", "C.UTF-8"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The lists of one repository of ours: that it does not answer is an error.
pub(crate) fn update_one(repository: &str) -> Vec<String> {
    let list = format!("Dir::Etc::sourcelist={repository}");
    let mut command = words(&["/usr/bin/apt-get", "update", "-q", "-o", &list, "-o", "Dir::Etc::sourceparts=-"]);
    command.extend(words(&["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"]));
    command.extend(words(&["-o", &lock_timeout()]));
    command
}

/// The lists of everybody. One that does not answer is an error, so that nobody takes what is missing for what there is not.
pub(crate) fn update_all() -> Vec<String> {
    words(&["/usr/bin/apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any", "-o", &lock_timeout()])
}

fn lock_timeout() -> String {
    format!("DPkg::Lock::Timeout={LOCK_SECONDS}")
}

/// Nothing is ever removed on the way: what would be in the way is for people to decide.
fn install(more: &str, packages: &[String]) -> Vec<String> {
    let archives = format!("Dir::Cache::archives={ARCHIVES}");
    let mut command =
        words(&["/usr/bin/apt-get", "install", more, "-y", "-q", "--no-install-recommends", "--no-remove"]);
    command.extend(words(&["--allow-downgrades", "--allow-change-held-packages", "-o", &archives]));
    command.extend(words(&["-o", "DPkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-confdef"]));
    command.extend(words(&["-o", "DPkg::Use-Pty=0", "-o", &lock_timeout()]));
    command.extend_from_slice(packages);
    command
}

/// With everything that they depend on.
pub(crate) fn download(packages: &[String]) -> Vec<String> {
    install("--download-only", packages)
}

/// Of what was downloaded, without asking anybody.
pub(crate) fn install_downloaded(packages: &[String]) -> Vec<String> {
    install("--no-download", packages)
}

pub(crate) fn install_from_repositories(packages: &[String]) -> Vec<String> {
    install("--fix-missing", packages)
}

/// The same version once more: files of it are gone.
pub(crate) fn reinstall(packages: &[String]) -> Vec<String> {
    install("--reinstall", packages)
}

/// After an interruption: what is unpacked becomes installed.
pub(crate) fn configure_all() -> Vec<String> {
    words(&["/usr/bin/dpkg", "--force-confold", "--force-confdef", "--configure", "-a"])
}

pub(crate) fn hold(names: &[String]) -> Vec<String> {
    [words(&["/usr/bin/apt-mark", "hold"]), names.to_vec()].concat()
}

pub(crate) fn unhold(names: &[String]) -> Vec<String> {
    [words(&["/usr/bin/apt-mark", "unhold"]), names.to_vec()].concat()
}

/// dpkg itself, which refuses where apt would remove what depends on them.
pub(crate) fn purge(names: &[String]) -> Vec<String> {
    [words(&["/usr/bin/dpkg", "--purge"]), names.to_vec()].concat()
}

/// What was removed before and not purged has its configuration still.
pub(crate) fn remove(names: &[String]) -> Vec<String> {
    [words(&["/usr/bin/dpkg", "--remove"]), names.to_vec()].concat()
}

/// `kubelet=1.36.3-1.1`.
pub(crate) fn exact(name: &str, version: &str) -> String {
    format!("{name}={version}")
}
