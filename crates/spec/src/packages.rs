//! Values of the section `packages`: repositories, and names and versions as package managers know them.

use bundle::PackageManager;

use crate::contents::PublicKeys;
use crate::record::item;
use crate::texts::{Name, Suite, SuiteComponent, WebUrl};
use crate::values::{CertificatePem, Invalid};

item!(
    "a repository",
    /// Where packages come from, and whose signature nodes believe.
    PackageRepository {
        /// Names its files on the nodes.
        name: Name = "name",
        /// Its address: https, or http, which the signature makes bearable.
        url: WebUrl = "url",
        /// apt only. Ends with a slash if the repository is flat; else components belong to it. Default: ./
        suite: Option<Suite> = "suite" or None,
        /// apt only, of a suite that is not flat.
        components: Option<Vec<SuiteComponent>> = "components" or None,
        /// OpenPGP keys (ASCII armour, or `{file: …}`), by one of which its packages are signed.
        key: PublicKeys = "key",
        /// Whom to believe that it is the repository; the image's authorities do not count then.
        certificate_authority: Option<CertificatePem> = "certificateAuthority" or None,
    }
);

const FLAT: &str = "./";

impl PackageRepository {
    /// As apt reads it.
    pub fn suite(&self) -> &str {
        self.suite.as_ref().map_or(FLAT, Suite::as_str)
    }

    pub fn is_flat(&self) -> bool {
        self.suite().ends_with('/')
    }

    /// Without a port.
    pub fn host(&self) -> &str {
        let rest = self.url.as_str().split_once("://").map_or("", |(_, rest)| rest);
        let host = rest.split('/').next().unwrap_or_default();
        match host.strip_prefix('[') {
            Some(address) => address.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        }
    }
}

pub(crate) fn validate_package_name(text: &str) -> Result<(), Invalid> {
    match PackageManager::is_name(text) {
        true => Ok(()),
        false => Err(Invalid::new(format!("\"{text}\" is not the name of a package"))
            .advise("write the name alone, without a version: letters, digits and \".+_-\"")),
    }
}

/// Of a tree or a package; which letters are possible hangs on which of them it is.
pub(crate) fn validate_version(text: &str) -> Result<(), Invalid> {
    match PackageManager::is_version(text) {
        true => Ok(()),
        false => Err(Invalid::new(format!("\"{text}\" is not a version"))
            .advise("write it as the manifest or the repository does, for example 2.4.2 or 1.36.3-1.1")),
    }
}

pub(crate) fn validate_suite(text: &str) -> Result<(), Invalid> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"./_+~-".contains(&byte);
    match !text.is_empty() && text.bytes().all(harmless) && !text.split('/').any(|part| part == "..") {
        true => Ok(()),
        false => Err(Invalid::new(format!("\"{text}\" is not a suite")).advise("write ./ or, for example, bookworm")),
    }
}

pub(crate) fn validate_suite_component(text: &str) -> Result<(), Invalid> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"./_+-".contains(&byte);
    match !text.is_empty() && text.bytes().all(harmless) {
        true => Ok(()),
        false => Err(Invalid::new(format!("\"{text}\" is not a part of a suite")).advise("write, for example, main")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_those_of_package_managers() {
        for good in ["kubelet", "containerd.io", "libstdc++6", "cri-tools"] {
            assert_eq!(validate_package_name(good), Ok(()), "{good}");
        }
        for bad in ["", "-y", "a b", "a=1", "kubelet:amd64", "../a.deb"] {
            assert!(validate_package_name(bad).is_err(), "{bad}");
        }
        for good in ["1.36.3-1.1", "1:2.4~rc1-0ubuntu1", "2.4.2-3.1.el9", "1.36.3+example.1", "1.0^git1-2"] {
            assert_eq!(validate_version(good), Ok(()), "{good}");
        }
        for bad in ["", "-1", "1 2", "1*", "1/2"] {
            assert!(validate_version(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_has_no_port() {
        let host = |url: &str| {
            let (name, url, key) = ("a".parse().unwrap(), url.parse().unwrap(), PublicKeys(String::new()));
            let (suite, components, certificate_authority) = (None, None, None);
            let place = crate::record::Place(None);
            PackageRepository { name, url, suite, components, key, certificate_authority, place }.host().to_owned()
        };
        assert_eq!(host("https://packages.example.com:8443/deb/"), "packages.example.com");
        assert_eq!(host("https://[fd00::1]:8443"), "fd00::1");
    }
}
