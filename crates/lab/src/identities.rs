//! Keys and certificates of a lab, as files in its `pki` folder.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use pki::{Authority, Credential, Kubeconfig, Leaf, LeafRequest, SubjectName, Usage, Validity};

use crate::network::{API_SERVER_URL, API_SERVICE, HUB};

/// A lab that is up for longer than this has been forgotten.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Clocks of test programs (faketime) may be behind.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// Where the files are; see [`create`] for what they hold.
#[derive(Debug, Clone)]
pub(crate) struct Identities {
    folder: PathBuf,
}

impl Identities {
    pub(crate) fn in_lab(lab: &Path) -> Self {
        Self { folder: lab.join("pki") }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.path("admin.kubeconfig")
    }

    pub(crate) fn kube_proxy_kubeconfig(&self) -> Result<String> {
        std::fs::read_to_string(self.path("kube-proxy.kubeconfig")).context("reading the kubeconfig of kube-proxy")
    }

    pub(crate) fn authority_pem(&self) -> Result<String> {
        std::fs::read_to_string(self.path("ca.crt")).context("reading the certificate of the lab's authority")
    }

    /// The authority, the API server (as server, and as client of kubelets), the service account key, an administrator, the
    /// service proxy.
    pub(crate) fn create(&self, lab: &str) -> Result<()> {
        std::fs::create_dir_all(&self.folder).context("creating the pki folder")?;
        let validity = Validity { start: SystemTime::now() - BACKDATE, lifetime: LIFETIME };
        let authority = Authority::create(&format!("lab-{lab}"), validity)?;
        self.write("ca.crt", authority.certificate_pem())?;
        self.write("ca.key", authority.key_pem().expose())?;
        let issue = |name: &str, group: Option<&str>, usage, names| {
            authority.issue(&LeafRequest {
                common_name: name.into(),
                organization: group.map(Into::into),
                names,
                usages: vec![usage],
                validity,
            })
        };
        let masters = Some("system:masters");
        self.write_leaf("apiserver", &issue("kube-apiserver", None, Usage::Server, api_server_names())?)?;
        self.write_leaf("kubelet-client", &issue("kube-apiserver-kubelet-client", masters, Usage::Client, vec![])?)?;
        // The API server takes the public key for service account tokens from a certificate as well as from a bare key.
        self.write_leaf("service-account", &issue("service-account", None, Usage::Client, vec![])?)?;
        for (file, user, group) in [("admin", "admin", masters), ("kube-proxy", "system:kube-proxy", None)] {
            let leaf = issue(user, group, Usage::Client, vec![])?;
            let kubeconfig = Kubeconfig {
                cluster_name: lab,
                server: API_SERVER_URL,
                authority_pem: authority.certificate_pem(),
                user_name: user,
                credential: Credential::Certificate(&leaf),
            };
            self.write(&format!("{file}.kubeconfig"), kubeconfig.render().expose())?;
        }
        Ok(())
    }

    fn write_leaf(&self, name: &str, leaf: &Leaf) -> Result<()> {
        self.write(&format!("{name}.crt"), &leaf.certificate_pem)?;
        self.write(&format!("{name}.key"), leaf.key_pem.expose())
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path(file);
        let mut open = std::fs::OpenOptions::new();
        let mut file = open
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
    }
}

fn api_server_names() -> Vec<SubjectName> {
    let dns = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let mut names: Vec<SubjectName> = dns.map(|name| SubjectName::Dns(name.into())).into();
    for addresses in [HUB, API_SERVICE] {
        names.extend([SubjectName::Ip(addresses.v4.into()), SubjectName::Ip(addresses.v6.into())]);
    }
    names
}
