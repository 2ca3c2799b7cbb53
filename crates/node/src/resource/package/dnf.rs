//! What dnf and rpm are asked, word by word. Pure.

use std::collections::BTreeMap;

use host::packages::rpm::{FILES_FORMAT, LIST_FORMAT};

use super::apt::ARCHIVES;

const DNF: &str = "/usr/bin/dnf";
const RPM: &str = "/usr/bin/rpm";

/// Scripts of packages start, stop and restart nothing: units are down until they are configured.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let variables = [
        ("SYSTEMD_OFFLINE", "1"),
        ("LC_ALL", "C.UTF-8"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Locks keep others from changing our versions, not us.
fn install(more: &[&str], packages: &[String]) -> Vec<String> {
    let options = ["-y", "-q", "--setopt=install_weak_deps=False", "--disableplugin=versionlock"];
    let words = [DNF, "install"].iter().chain(&options).chain(more).map(|word| (*word).to_owned());
    words.chain(packages.iter().cloned()).collect()
}

/// With everything that they depend on. Signatures are checked, for which dnf takes the keys of the repositories in.
pub(crate) fn download(packages: &[String]) -> Vec<String> {
    install(&["--refresh", "--downloadonly", &format!("--downloaddir={ARCHIVES}")], packages)
}

/// Of what was downloaded, without asking anybody, and with its signatures checked once more.
pub(crate) fn install_downloaded(archives: &[String]) -> Vec<String> {
    install(&["--cacheonly", "--disablerepo=*", "--setopt=localpkg_gpgcheck=True"], &paths(archives))
}

pub(crate) fn install_from_repositories(packages: &[String]) -> Vec<String> {
    install(&[], packages)
}

/// The same versions once more: files of them are gone.
pub(crate) fn reinstall(packages: &[String]) -> Vec<String> {
    let words = [DNF, "reinstall", "-y", "-q", "--disableplugin=versionlock"].map(str::to_owned);
    [words.to_vec(), packages.to_vec()].concat()
}

/// After an interruption: all files of these are put into their places, whatever rpm believes to be there.
pub(crate) fn install_again(archives: &[String]) -> Vec<String> {
    let words = [RPM, "--upgrade", "--replacepkgs", "--replacefiles", "--oldpackage"].map(str::to_owned);
    [words.to_vec(), paths(archives)].concat()
}

fn paths(archives: &[String]) -> Vec<String> {
    archives.iter().map(|archive| format!("{ARCHIVES}/{archive}")).collect()
}

/// Lines of the list of locks. No repository is asked, and none has to be known: what is cached of them may be gone.
pub(crate) fn lock(lines: &[String]) -> Vec<String> {
    let words = [DNF, "-q", "--disablerepo=*", "versionlock", "add", "--raw"].map(str::to_owned);
    [words.to_vec(), lines.to_vec()].concat()
}

pub(crate) fn unlock(lines: &[String]) -> Vec<String> {
    let words = [DNF, "-q", "--disablerepo=*", "versionlock", "delete", "--raw"].map(str::to_owned);
    [words.to_vec(), lines.to_vec()].concat()
}

/// rpm itself, which refuses where dnf would remove what depends on them.
pub(crate) fn erase(packages: &[String]) -> Vec<String> {
    [vec![RPM.to_owned(), "--erase".to_owned()], packages.to_vec()].concat()
}

pub(crate) fn list() -> Vec<String> {
    [RPM, "-qa", "--qf", LIST_FORMAT].map(str::to_owned).to_vec()
}

/// Of packages that are installed.
pub(crate) fn files(packages: &[String]) -> Vec<String> {
    [[RPM, "-q", "--qf", FILES_FORMAT].map(str::to_owned).to_vec(), packages.to_vec()].concat()
}

/// `kubelet-1.36.3-150500.1.1`, with the epoch if there is one.
pub(crate) fn exact(name: &str, version: &str) -> String {
    format!("{name}-{version}")
}
