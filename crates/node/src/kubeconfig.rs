//! Reads a kubeconfig of this node: the one it joins with, or the one that its kubelet wrote.
//!
//! In: a disk and a path. Out: an [`Access`] for the current context. Who names neither a current context nor its one context means
//! that one, as in the kubeconfigs of Tectonic and bootkube: both names are empty, as client-go has it. What only people's kubeconfigs have (several contexts to
//! choose from, proxies, trust in everybody) is either beside the point or refused.

use std::path::Path;

use cluster::{Access, ClusterError, Identity};
use data_encoding::BASE64;
use host::disk::{Disk, DiskError};
use serde::Deserialize;

/// No kubeconfig, certificate or key is near this size.
const LIMIT: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{path:?} is not there yet")]
    Absent { path: String },
    #[error("the kubeconfig {path:?} cannot be used: {reason}")]
    Unusable { path: String, reason: String },
    #[error(transparent)]
    Access(#[from] ClusterError),
}

pub fn read_access(disk: &dyn Disk, path: &str) -> Result<Access, KubeconfigError> {
    parse_access(path, &|path| disk.read(path, LIMIT))
}

/// How a file is read: from the disk, or as it will be there.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Result<Option<Vec<u8>>, DiskError>;

/// The same, with files that need not be on the disk yet.
pub(crate) fn parse_access(path: &str, read: ReadFile<'_>) -> Result<Access, KubeconfigError> {
    let reader = Reader { read, path };
    let bytes = reader.file(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| reader.unusable("it is no text"))?;
    let config: Config = bundle::read_yaml(text).ok_or_else(|| reader.unusable("it is no YAML of a kubeconfig"))?;
    if config.current_context.is_empty() && !config.contexts.iter().any(|context| context.name.is_empty()) {
        return Err(reader.unusable("it does not say which of its contexts is the current one"));
    }
    let context = reader.named(config.contexts, &config.current_context, "context")?.context;
    let cluster = reader.named(config.clusters, &context.cluster, "cluster")?.cluster;
    let user = reader.named(config.users, &context.user, "user")?.user;
    let server = cluster.server.as_deref().ok_or_else(|| reader.unusable("its cluster has no server"))?;
    if cluster.insecure_skip_tls_verify {
        return Err(reader.unusable("it trusts any server (insecure-skip-tls-verify), and nodestrap does not"));
    }
    let authority = reader.data_or_file(
        "certificate-authority",
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    )?;
    Ok(Access::new(server, authority.as_deref(), &reader.identity(&user)?)?)
}

/// The API server of a kubeconfig on this node; `None` if there is none, or it does not say.
pub fn read_server(disk: &dyn Disk, path: &str) -> Option<String> {
    let bytes = disk.read(Path::new(path), LIMIT).ok().flatten()?;
    current_cluster(std::str::from_utf8(&bytes).ok()?)?.server
}

/// Where a kubeconfig leads, and whom it trusts there.
pub(crate) struct Destination {
    pub(crate) server: String,
    /// PEM.
    pub(crate) authorities: Vec<u8>,
    /// They stand in the kubeconfig itself, not in a file that it names.
    pub(crate) embedded: bool,
}

/// Of the current context; `None` if it does not say. `file` reads a file that the kubeconfig names.
pub(crate) fn parse_destination(text: &str, file: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Destination> {
    let cluster = current_cluster(text)?;
    let embedded = cluster.certificate_authority_data.is_some();
    let authorities = match cluster.certificate_authority_data {
        Some(data) => BASE64.decode(data.as_bytes()).ok()?,
        None => file(&cluster.certificate_authority?)?,
    };
    Some(Destination { server: cluster.server?, authorities, embedded })
}

/// Whether it names a server at all; a kubelet takes one that does not for none.
pub(crate) fn names_a_server(text: &str) -> bool {
    current_cluster(text).is_some_and(|cluster| cluster.server.is_some())
}

fn current_cluster(text: &str) -> Option<Cluster> {
    let config: Config = bundle::read_yaml(text)?;
    let context = config.contexts.into_iter().find(|context| context.name == config.current_context)?.context;
    Some(config.clusters.into_iter().find(|cluster| cluster.name == context.cluster)?.cluster)
}

/// Typed to the end: a token of digits only would be a number to a reader that guesses.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    #[serde(default)]
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    exec: Option<Exec>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
}

#[derive(Deserialize)]
struct Exec {
    command: String,
}

trait Named {
    fn name(&self) -> &str;
}

impl Named for NamedContext {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedCluster {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedUser {
    fn name(&self) -> &str {
        &self.name
    }
}

struct Reader<'a> {
    read: ReadFile<'a>,
    path: &'a str,
}

impl Reader<'_> {
    fn identity(&self, user: &User) -> Result<Identity, KubeconfigError> {
        if let Some(Exec { command }) = &user.exec {
            let reason = format!("its credentials come from the program {command:?}, and nodestrap starts none");
            return Err(self.unusable(&reason));
        }
        if let Some(token) = &user.token {
            return Ok(Identity::Token(token.clone()));
        }
        if let Some(path) = &user.token_file {
            let token = String::from_utf8(self.file(path)?).map_err(|_| self.unusable("its token file is no text"))?;
            return Ok(Identity::Token(token.trim().to_owned()));
        }
        let (chain, key) = (user.client_certificate_data.as_deref(), user.client_key_data.as_deref());
        let chain = self.data_or_file("client-certificate", chain, user.client_certificate.as_deref())?;
        match (chain, self.data_or_file("client-key", key, user.client_key.as_deref())?) {
            (Some(chain), Some(key)) => Ok(Identity::Certificate { chain, key }),
            (None, None) => Ok(Identity::Nobody),
            _ => Err(self.unusable("it has a client certificate or its key, but not both")),
        }
    }

    /// The part of that name in one of the three lists.
    fn named<T: Named>(&self, list: Vec<T>, name: &str, part: &str) -> Result<T, KubeconfigError> {
        let found = list.into_iter().find(|item| item.name() == name);
        found.ok_or_else(|| self.unusable(&format!("it has no {part} {name:?}")))
    }

    fn data_or_file(
        &self,
        name: &str,
        data: Option<&str>,
        path: Option<&str>,
    ) -> Result<Option<Vec<u8>>, KubeconfigError> {
        if let Some(data) = data {
            let broken = |_| self.unusable(&format!("{name}-data is not base64"));
            return BASE64.decode(data.as_bytes()).map(Some).map_err(broken);
        }
        path.map(|path| self.file(path)).transpose()
    }

    fn file(&self, path: &str) -> Result<Vec<u8>, KubeconfigError> {
        // As client-go has it: a name that is not absolute is meant beside the kubeconfig.
        let folder = Path::new(self.path).parent().unwrap_or(Path::new("/"));
        let bytes = (self.read)(&folder.join(path))?;
        bytes.ok_or_else(|| KubeconfigError::Absent { path: path.to_owned() })
    }

    fn unusable(&self, reason: &str) -> KubeconfigError {
        KubeconfigError::Unusable { path: self.path.to_owned(), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use host::fake::FakeDisk;

    use super::*;

    const PATH: &str = "/var/lib/kubelet/kubeconfig";

    fn read(user: &str, files: &[(&str, &str)]) -> Result<Access, KubeconfigError> {
        let disk = FakeDisk::new();
        disk.make_folder(Path::new("/var/lib/kubelet"), 0o755).unwrap();
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: 'https://10.0.0.1:6443'}}\n\
             contexts:\n- {{name: x, context: {{cluster: c, user: u}}}}\ncurrent-context: x\n\
             users:\n- name: u\n  user: {user}\n"
        );
        disk.create(Path::new(PATH), 0o600, text.as_bytes()).unwrap();
        for (path, content) in files {
            disk.create(Path::new(path), 0o600, content.as_bytes()).unwrap();
        }
        read_access(&disk, PATH)
    }

    fn refusal(user: &str) -> String {
        read(user, &[]).err().expect("it is refused").to_string()
    }

    #[test]
    fn tokens_are_taken_from_the_text_or_from_a_file_beside_it() {
        assert!(read("{token: abcdef.0123456789abcdef}", &[]).is_ok());
        assert!(read("{token: 123456.1234567890123456}", &[]).is_ok());
        assert!(read("{tokenFile: token}", &[("/var/lib/kubelet/token", "abc\n")]).is_ok());
        assert!(refusal("{tokenFile: token}").contains("\"token\" is not there yet"));
    }

    /// As Tectonic's installer wrote it.
    fn unnamed_context(context: &str, current: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: tectonic\n  cluster:\n    server: https://10.0.0.1:443\n    \
             certificate-authority-data: Y2E=\nusers:\n- name: kubelet\n  user: {{token: s3cret}}\ncontexts:\n\
             {context}{current}"
        )
    }

    #[test]
    fn a_kubeconfig_that_names_no_context_has_one_and_that_is_current() {
        let unnamed = "- context: {cluster: tectonic, user: kubelet}\n";
        let destination = |context: &str, current: &str| {
            let text = unnamed_context(context, current);
            let found = parse_destination(&text, |_| None).map(|found| found.server);
            assert_eq!(names_a_server(&text), found.is_some());
            found
        };
        let server = Some("https://10.0.0.1:443".to_owned());
        assert_eq!(destination(unnamed, ""), server);
        assert_eq!(destination(unnamed, "current-context: ''\n"), server);
        assert_eq!(destination("- name: ''\n  context: {cluster: tectonic, user: kubelet}\n", ""), server);
        // Of several, the one without a name is meant, as client-go has it.
        let other = "- {name: other, context: {cluster: other, user: kubelet}}\n";
        assert_eq!(destination(&format!("{other}{unnamed}"), ""), server);
        assert_eq!(destination(unnamed, "current-context: other\n"), None);

        let disk = FakeDisk::new();
        disk.make_folder(Path::new("/etc/kubernetes"), 0o755).unwrap();
        let read = |path: &str, text: String| {
            let text = text.replace("    certificate-authority-data: Y2E=\n", "");
            disk.create(Path::new(path), 0o600, text.as_bytes()).unwrap();
            read_access(&disk, path)
        };
        let access = read("/etc/kubernetes/kubeconfig", unnamed_context(unnamed, "")).unwrap();
        assert!(access.is_for("https://10.0.0.1:443"));
        // One that has a name is not meant by nobody's name.
        let named = "- {name: tectonic, context: {cluster: tectonic, user: kubelet}}\n";
        let error = read("/etc/kubernetes/named", unnamed_context(named, "")).err().unwrap().to_string();
        assert!(error.contains("does not say which of its contexts is the current one"), "{error}");
    }

    #[test]
    fn what_is_missing_or_not_for_a_node_is_named() {
        assert!(refusal("{exec: {command: aws}}").contains("come from the program \"aws\""));
        assert!(refusal("{client-certificate-data: '!'}").contains("client-certificate-data is not base64"));
        assert!(refusal("{client-certificate-data: YQ==}").contains("but not both"));
        // The kubelet writes its kubeconfig before it has the certificate that it names.
        let file = "{client-certificate: /pki/current.pem, client-key: /pki/current.pem}";
        assert!(matches!(read(file, &[]), Err(KubeconfigError::Absent { .. })));
        let disk = FakeDisk::new();
        assert!(matches!(read_access(&disk, "/x"), Err(KubeconfigError::Absent { .. })));
    }
}
