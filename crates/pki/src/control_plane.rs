//! The keys, certificates and kubeconfigs of a control plane, under kubeadm's names: described first, then completed.
//!
//! [`complete_control_plane`] takes the files that are there and returns those that are missing. What is there is never
//! replaced: authorities go on signing, keys get the certificate that they lack, and what does not fit together is an
//! error that names both files.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use crate::kubeconfig::{Embedded, embedded};
use crate::{
    Authority, Certificate, Credential, Error, KeyAlgorithm, Kubeconfig, Leaf, LeafRequest, PrivateKey, Secret,
    SubjectName, Usage, Validity,
};

/// Administrators by a binding that can be taken away (kubeadm ≥ 1.29), unlike [`SUPER_ADMIN_GROUP`].
pub const ADMIN_GROUP: &str = "kubeadm:cluster-admins";
/// The API server lets it do everything and asks no rule: it works before any rule exists, and cannot be revoked.
pub const SUPER_ADMIN_GROUP: &str = "system:masters";

/// As whom the API server calls kubelets: a user without a group. Bind it to the role `system:kubelet-api-admin`, which is
/// all it needs (kubeadm 1.36 does so; older ones made it an administrator).
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

const HTTPS_PORT: u16 = 443;
/// Every cluster is called so by kubeadm, unless it is told otherwise.
const KUBEADM_CLUSTER: &str = "kubernetes";
const SECRET_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

/// The control plane that the files are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    pub cluster_name: String,
    /// Where everybody reaches the API server, such as `https://10.0.0.10:6443`.
    pub api_server: String,
    pub nodes: Vec<ControlPlaneNode>,
    /// The first address of each service range: the service `kubernetes`.
    pub service_addresses: Vec<IpAddr>,
    pub cluster_domain: String,
    /// Names that lead to the API server alone.
    pub aliases: Vec<SubjectName>,
    /// Further names of the API server and of etcd.
    pub extra_names: Vec<SubjectName>,
    pub algorithm: KeyAlgorithm,
    pub authority_validity: Validity,
    pub validity: Validity,
    /// What has expired by then signs nothing, and is named.
    pub now: SystemTime,
}

/// A machine of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneNode {
    pub name: String,
    pub addresses: Vec<IpAddr>,
}

/// A file below the folder of the control plane. No `Debug`: the content may be a key.
#[derive(Clone, PartialEq, Eq)]
pub struct PkiFile {
    pub path: String,
    /// 0600 for whatever holds a key, else 0644.
    pub mode: u32,
    pub content: Secret,
}

impl PkiFile {
    pub(crate) fn secret(path: impl Into<String>, content: Secret) -> Self {
        Self { path: path.into(), mode: SECRET_MODE, content }
    }

    pub(crate) fn public(path: impl Into<String>, content: &str) -> Self {
        Self { path: path.into(), mode: PUBLIC_MODE, content: Secret::new(content) }
    }
}

/// What is to be written, in this order, and what stays as it is.
#[derive(Default)]
pub struct Completed {
    /// A key comes before its certificate and an authority before what it signs, so that whatever is cut short can be
    /// completed later.
    pub new: Vec<PkiFile>,
    pub kept: Vec<String>,
    /// Those of the kept ones that nobody accepts any more.
    pub ended: Vec<Ended>,
}

/// A certificate that has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub path: String,
    /// An authority cannot be renewed.
    pub is_authority: bool,
}

/// One entry of the list that describes a control plane.
enum Item {
    Authority { stem: &'static str, common_name: &'static str },
    Leaf { stem: &'static str, authority: &'static str, request: LeafRequest },
    ServiceAccount,
    Kubeconfig { path: String, request: LeafRequest },
}

const CLUSTER_AUTHORITY: &str = "pki/ca";
const FRONT_PROXY_AUTHORITY: &str = "pki/front-proxy-ca";
const ETCD_AUTHORITY: &str = "pki/etcd/ca";
const SERVICE_ACCOUNT: &str = "pki/sa";

/// All files, new.
pub fn control_plane_files(wanted: &ControlPlane) -> Result<Vec<PkiFile>, Error> {
    complete_control_plane(wanted, &BTreeMap::new()).map(|completed| completed.new)
}

/// The files that are missing, given those that are there (by [`ControlPlane::paths`]).
pub fn complete_control_plane(wanted: &ControlPlane, there: &BTreeMap<String, Secret>) -> Result<Completed, Error> {
    let mut workshop = Workshop { wanted, there, authorities: BTreeMap::new(), completed: Completed::default() };
    for item in wanted.items()? {
        workshop.complete(item)?;
    }
    Ok(workshop.completed)
}

impl ControlPlane {
    /// Every file that there will be, keys before certificates.
    pub fn paths(&self) -> Result<Vec<String>, Error> {
        let paths = self.items()?.into_iter().flat_map(|item| match item {
            Item::Authority { stem, .. } | Item::Leaf { stem, .. } => vec![key_path(stem), certificate_path(stem)],
            Item::ServiceAccount => vec![key_path(SERVICE_ACCOUNT), public_path(SERVICE_ACCOUNT)],
            Item::Kubeconfig { path, .. } => vec![path],
        });
        Ok(paths.collect())
    }

    fn items(&self) -> Result<Vec<Item>, Error> {
        use Usage::{Client, Server};
        let leaf = |stem, authority, common_name: &str, organization: Option<&str>, usages: &[Usage], names| {
            Item::Leaf { stem, authority, request: self.request(common_name, organization, usages, names) }
        };
        let conf = |name: &str, common_name: &str, organization: Option<&str>| Item::Kubeconfig {
            path: format!("{name}.conf"),
            request: self.request(common_name, organization, &[Client], vec![]),
        };
        let mut items = vec![
            Item::Authority { stem: CLUSTER_AUTHORITY, common_name: "kubernetes" },
            Item::Authority { stem: FRONT_PROXY_AUTHORITY, common_name: "front-proxy-ca" },
            Item::Authority { stem: ETCD_AUTHORITY, common_name: "etcd-ca" },
            leaf("pki/apiserver", CLUSTER_AUTHORITY, "kube-apiserver", None, &[Server], self.api_server_names()?),
            leaf("pki/apiserver-kubelet-client", CLUSTER_AUTHORITY, KUBELET_CLIENT, None, &[Client], vec![]),
            leaf("pki/apiserver-etcd-client", ETCD_AUTHORITY, "kube-apiserver-etcd-client", None, &[Client], vec![]),
            leaf("pki/front-proxy-client", FRONT_PROXY_AUTHORITY, "front-proxy-client", None, &[Client], vec![]),
            // etcd calls itself and its peers with the certificate that it serves with.
            leaf("pki/etcd/server", ETCD_AUTHORITY, "etcd-server", None, &[Client, Server], self.etcd_names()),
            leaf("pki/etcd/peer", ETCD_AUTHORITY, "etcd-peer", None, &[Client, Server], self.etcd_names()),
            leaf(
                "pki/etcd/healthcheck-client",
                ETCD_AUTHORITY,
                "kube-etcd-healthcheck-client",
                None,
                &[Client],
                vec![],
            ),
            Item::ServiceAccount,
            conf("admin", "kubernetes-admin", Some(ADMIN_GROUP)),
            conf("super-admin", "kubernetes-super-admin", Some(SUPER_ADMIN_GROUP)),
            conf("controller-manager", "system:kube-controller-manager", None),
            conf("scheduler", "system:kube-scheduler", None),
            conf("kube-proxy", "system:kube-proxy", None),
        ];
        for ControlPlaneNode { name, .. } in &self.nodes {
            let user = format!("system:node:{name}");
            items.push(conf(&format!("nodes/{name}/kubelet"), &user, Some("system:nodes")));
        }
        Ok(items)
    }

    fn request(&self, name: &str, group: Option<&str>, usages: &[Usage], names: Vec<SubjectName>) -> LeafRequest {
        LeafRequest {
            common_name: name.to_owned(),
            organization: group.map(str::to_owned),
            names,
            usages: usages.to_vec(),
            validity: self.validity,
        }
    }

    fn api_server_names(&self) -> Result<Vec<SubjectName>, Error> {
        let service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
        let mut names: Vec<SubjectName> = service.into_iter().map(SubjectName::Dns).collect();
        names.push(SubjectName::Dns(format!("kubernetes.default.svc.{}", self.cluster_domain)));
        names.push(host_of(&self.api_server)?);
        names.extend(self.service_addresses.iter().copied().map(SubjectName::Ip));
        names.extend(self.machine_names());
        names.extend(self.aliases.iter().chain(&self.extra_names).cloned());
        Ok(sorted(names))
    }

    fn etcd_names(&self) -> Vec<SubjectName> {
        // Members may have names of their own, which stay when a machine is replaced.
        sorted(self.machine_names().into_iter().chain(self.extra_names.iter().cloned()).collect())
    }

    fn machine_names(&self) -> Vec<SubjectName> {
        let mut names = vec![
            SubjectName::Dns("localhost".into()),
            SubjectName::Ip(Ipv4Addr::LOCALHOST.into()),
            SubjectName::Ip(Ipv6Addr::LOCALHOST.into()),
        ];
        for node in &self.nodes {
            names.push(SubjectName::Dns(node.name.clone()));
            names.extend(node.addresses.iter().copied().map(SubjectName::Ip));
        }
        names
    }
}

fn sorted(mut names: Vec<SubjectName>) -> Vec<SubjectName> {
    names.sort();
    names.dedup();
    names
}

/// The host of `https://HOST[:PORT]`.
fn host_of(url: &str) -> Result<SubjectName, Error> {
    endpoint_of(url).map(|(host, _)| host)
}

/// Host and port of `https://HOST[:PORT]`: two spellings of one address are equal.
pub(crate) fn endpoint_of(url: &str) -> Result<(SubjectName, u16), Error> {
    let wrong = || Error::ApiServer { url: url.to_owned() };
    let rest = url.strip_prefix("https://").ok_or_else(wrong)?.split('/').next().unwrap_or_default();
    let (host, port) = match rest.strip_prefix('[') {
        Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let port = port.strip_prefix(':').map_or(Ok(HTTPS_PORT), |port| port.parse().map_err(|_| wrong()))?;
    match host.parse() {
        Ok(address) => Ok((SubjectName::Ip(address), port)),
        Err(_) if host.is_empty() => Err(wrong()),
        Err(_) => Ok((SubjectName::Dns(host.to_ascii_lowercase()), port)),
    }
}

/// Whether a kubeconfig with this server reaches the API server. What runs beside an API server may ask that one, by any
/// name that its certificate has: so kubeadm writes it.
pub(crate) fn reaches(path: &str, server: &str, api_server: &str, names: &[SubjectName]) -> bool {
    let is_local = path.ends_with("controller-manager.conf")
        || path.ends_with("scheduler.conf")
        || path.ends_with("/kubelet.conf");
    match (endpoint_of(server), endpoint_of(api_server)) {
        (Ok(found), Ok(wanted)) => found == wanted || is_local && names.contains(&found.0),
        _ => false,
    }
}

pub(crate) fn key_path(stem: &str) -> String {
    format!("{stem}.key")
}

pub(crate) fn certificate_path(stem: &str) -> String {
    format!("{stem}.crt")
}

fn public_path(stem: &str) -> String {
    format!("{stem}.pub")
}

/// An authority that is there; without its key it cannot sign, which is how some people keep it.
struct Signer {
    certificate_pem: String,
    certificate: Certificate,
    authority: Option<Authority>,
}

struct Workshop<'a> {
    wanted: &'a ControlPlane,
    there: &'a BTreeMap<String, Secret>,
    authorities: BTreeMap<&'static str, Signer>,
    completed: Completed,
}

impl Workshop<'_> {
    fn complete(&mut self, item: Item) -> Result<(), Error> {
        match item {
            Item::Authority { stem, common_name } => self.complete_authority(stem, common_name),
            Item::Leaf { stem, authority, request } => self.complete_leaf(stem, authority, &request),
            Item::ServiceAccount => self.complete_service_account(),
            Item::Kubeconfig { path, request } => self.complete_kubeconfig(path, &request),
        }
    }

    fn complete_authority(&mut self, stem: &'static str, common_name: &str) -> Result<(), Error> {
        let (key, certificate) = (self.there.get(&key_path(stem)), self.there.get(&certificate_path(stem)));
        let signer = match (key, certificate) {
            (key, None) => {
                let key = self.key_or_new(stem, key)?;
                let authority = Authority::create_for(key, common_name, self.wanted.authority_validity)?;
                self.write_public(certificate_path(stem), authority.certificate_pem());
                signer(authority)
            }
            (Some(key), Some(certificate)) => {
                self.keep([key_path(stem), certificate_path(stem)]);
                check_pair(stem, key, certificate)?;
                let authority = Authority::parse(certificate.expose(), key);
                signer(authority.map_err(|error| error.within(certificate_path(stem)))?)
            }
            (None, Some(pem)) => {
                self.keep([certificate_path(stem)]);
                let certificate = read_certificate(&certificate_path(stem), pem)?;
                Signer { certificate_pem: pem.expose().to_owned(), certificate, authority: None }
            }
        };
        self.note_end(certificate_path(stem), &signer.certificate);
        self.authorities.insert(stem, signer);
        Ok(())
    }

    fn complete_leaf(&mut self, stem: &str, authority: &str, request: &LeafRequest) -> Result<(), Error> {
        let (key, certificate) = (self.there.get(&key_path(stem)), self.there.get(&certificate_path(stem)));
        match (key, certificate) {
            (key, None) => {
                let key = self.key_or_new(stem, key)?;
                let leaf = self.issue(authority, &key, request, &certificate_path(stem))?;
                self.write_public(certificate_path(stem), &leaf.certificate_pem);
            }
            (Some(key), Some(certificate)) => {
                check_pair(stem, key, certificate)?;
                let path = certificate_path(stem);
                let certificate = read_certificate(&path, certificate)?;
                self.check_issuer(authority, &path, &certificate)?;
                check_covers(&path, &certificate, request)?;
                self.note_end(path.clone(), &certificate);
                self.keep([key_path(stem), path]);
            }
            (None, Some(_)) => {
                return Err(Error::KeyMissing { certificate: certificate_path(stem), key: key_path(stem) });
            }
        }
        Ok(())
    }

    fn complete_service_account(&mut self) -> Result<(), Error> {
        let (key, public) = (key_path(SERVICE_ACCOUNT), public_path(SERVICE_ACCOUNT));
        match (self.there.get(&key), self.there.get(&public)) {
            (None, Some(_)) => return Err(Error::KeyMissing { certificate: public, key }),
            (found, None) => {
                let pair = self.key_or_new(SERVICE_ACCOUNT, found)?;
                self.write_public(public, &pair.public_pem());
            }
            (Some(found), Some(half)) => {
                let pair = PrivateKey::parse(found).map_err(|error| error.within(key.clone()))?;
                if !same_public_key(&pair, half) {
                    return Err(Error::KeyMismatch { certificate: public, key });
                }
                self.keep([key, public]);
            }
        }
        Ok(())
    }

    fn complete_kubeconfig(&mut self, path: String, request: &LeafRequest) -> Result<(), Error> {
        let Some(found) = self.there.get(&path) else {
            let key = PrivateKey::generate(self.wanted.algorithm)?;
            let leaf = self.issue(CLUSTER_AUTHORITY, &key, request, &path)?;
            let kubeconfig = Kubeconfig {
                cluster_name: &self.wanted.cluster_name,
                server: &self.wanted.api_server,
                authority_pem: &self.authorities[CLUSTER_AUTHORITY].certificate_pem,
                user_name: &request.common_name,
                credential: Credential::Certificate(&leaf),
            };
            self.completed.new.push(PkiFile::secret(path, kubeconfig.render()));
            return Ok(());
        };
        let inside = embedded(found).map_err(|error| error.within(path.clone()))?;
        let (Some(certificate), Some(key)) = (&inside.certificate, &inside.key) else {
            return Err(Error::NothingEmbedded { path });
        };
        if !certificate.belongs_to(key) {
            return Err(Error::KeyMismatch { certificate: path.clone(), key: path });
        }
        self.check_issuer(CLUSTER_AUTHORITY, &path, certificate)?;
        self.check_target(&path, &inside)?;
        self.note_end(path.clone(), certificate);
        self.keep([path]);
        Ok(())
    }

    /// A kubeconfig of another cluster looks whole, and its holder knocks at the wrong door.
    fn check_target(&self, path: &str, inside: &Embedded) -> Result<(), Error> {
        let (path, wanted) = (path.to_owned(), self.wanted);
        let found = inside.server.clone().unwrap_or_default();
        if !reaches(&path, &found, &wanted.api_server, &wanted.api_server_names()?) {
            return Err(Error::OtherServer { path, found, wanted: wanted.api_server.clone() });
        }
        match &inside.cluster_name {
            Some(found) if *found != wanted.cluster_name && found != KUBEADM_CLUSTER => {
                Err(Error::OtherCluster { path, found: found.clone(), wanted: wanted.cluster_name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn key_or_new(&mut self, stem: &str, found: Option<&Secret>) -> Result<PrivateKey, Error> {
        if let Some(found) = found {
            self.keep([key_path(stem)]);
            return PrivateKey::parse(found).map_err(|error| error.within(key_path(stem)));
        }
        let key = PrivateKey::generate(self.wanted.algorithm)?;
        self.completed.new.push(PkiFile::secret(key_path(stem), key.pem()));
        Ok(key)
    }

    fn issue(&self, authority: &str, key: &PrivateKey, request: &LeafRequest, path: &str) -> Result<Leaf, Error> {
        let Some(signer) = &self.authorities[authority].authority else {
            return Err(Error::AuthorityKeyMissing { wanted: path.to_owned(), key: key_path(authority) });
        };
        check_alive(signer.certificate(), &certificate_path(authority), path, self.wanted.now)?;
        signer.issue_for(key, request).map_err(|error| error.within(path))
    }

    fn check_issuer(&self, authority: &str, path: &str, certificate: &Certificate) -> Result<(), Error> {
        if certificate.is_issued_by(&self.authorities[authority].certificate) {
            return Ok(());
        }
        Err(Error::NotIssuedBy { certificate: path.to_owned(), authority: certificate_path(authority) })
    }

    fn note_end(&mut self, path: String, certificate: &Certificate) {
        if certificate.has_ended(self.wanted.now) {
            self.completed.ended.push(Ended { path, is_authority: certificate.is_authority });
        }
    }

    fn write_public(&mut self, path: String, content: &str) {
        self.completed.new.push(PkiFile::public(path, content));
    }

    fn keep<const N: usize>(&mut self, paths: [String; N]) {
        self.completed.kept.extend(paths);
    }
}

/// What an ended authority signs is dead, whatever dates it has.
pub(crate) fn check_alive(
    authority: &Certificate,
    authority_path: &str,
    wanted: &str,
    now: SystemTime,
) -> Result<(), Error> {
    if !authority.has_ended(now) {
        return Ok(());
    }
    Err(Error::AuthorityExpired { wanted: wanted.to_owned(), authority: authority_path.to_owned() })
}

fn signer(authority: Authority) -> Signer {
    Signer {
        certificate_pem: authority.certificate_pem().to_owned(),
        certificate: authority.certificate().clone(),
        authority: Some(authority),
    }
}

fn read_certificate(path: &str, pem: &Secret) -> Result<Certificate, Error> {
    Certificate::parse(pem.expose()).map_err(|error| error.within(path))
}

fn check_pair(stem: &str, key: &Secret, certificate: &Secret) -> Result<(), Error> {
    let (key_path, certificate_path) = (key_path(stem), certificate_path(stem));
    let key = PrivateKey::parse(key).map_err(|error| error.within(key_path.clone()))?;
    if read_certificate(&certificate_path, certificate)?.belongs_to(&key) {
        return Ok(());
    }
    Err(Error::KeyMismatch { certificate: certificate_path, key: key_path })
}

/// Kept certificates must do for what is wanted now: a name that is missing shows up as a failed handshake much later.
/// The loopback may be missing, as it is for kubeadm's API server.
fn check_covers(path: &str, certificate: &Certificate, request: &LeafRequest) -> Result<(), Error> {
    let is_missing = |name: &&SubjectName| !certificate.names.contains(name) && !is_loopback(name);
    let names = request.names.iter().filter(is_missing).map(ToString::to_string);
    let usages = request.usages.iter().filter(|usage| !certificate.usages.contains(usage));
    let missing: Vec<String> = names.chain(usages.map(|usage| format!("the usage as {usage}"))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Uncovered { certificate: path.to_owned(), missing: missing.join(", ") })
}

fn is_loopback(name: &SubjectName) -> bool {
    match name {
        SubjectName::Dns(name) => name == "localhost",
        SubjectName::Ip(address) => address.is_loopback(),
    }
}

pub(crate) fn same_public_key(key: &PrivateKey, public: &Secret) -> bool {
    let half = crate::pem::blocks(public.expose()).ok().and_then(|blocks| blocks.into_iter().next());
    half.is_some_and(|half| half.content == key.public_info())
}
