//! The kubeconfig of one identity in one cluster.

use data_encoding::BASE64;

use crate::scalars::scalars;
use crate::{Certificate, Error, Leaf, PrivateKey, Secret};

/// How the holder of the kubeconfig proves who it is.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    Certificate(&'a Leaf),
    /// A bootstrap or service account token.
    Token(&'a Secret),
}

/// What a kubeconfig says; [`Kubeconfig::render`] gives its text.
pub struct Kubeconfig<'a> {
    pub cluster_name: &'a str,
    /// The address of the API server, such as `https://10.99.0.1:6443`.
    pub server: &'a str,
    pub authority_pem: &'a str,
    pub user_name: &'a str,
    pub credential: Credential<'a>,
}

impl Kubeconfig<'_> {
    /// YAML with every value quoted. The same input gives the same bytes.
    pub fn render(&self) -> Secret {
        let authority = BASE64.encode(self.authority_pem.as_bytes());
        let credential = match self.credential {
            Credential::Certificate(leaf) => format!(
                "      client-certificate-data: {}\n      client-key-data: {}\n",
                BASE64.encode(leaf.certificate_pem.as_bytes()),
                BASE64.encode(leaf.key_pem.expose().as_bytes()),
            ),
            Credential::Token(token) => format!("      token: {}\n", quote(token.expose())),
        };
        let (cluster, user) = (quote(self.cluster_name), quote(self.user_name));
        Secret::new(format!(
            "apiVersion: v1\nkind: Config\nclusters:\n  - name: {cluster}\n    cluster:\n      server: {server}\n      \
             certificate-authority-data: {authority}\nusers:\n  - name: {user}\n    user:\n{credential}contexts:\n  \
             - name: {cluster}\n    context:\n      cluster: {cluster}\n      user: {user}\ncurrent-context: {cluster}\n",
            server = quote(self.server),
        ))
    }
}

/// What a kubeconfig carries inside itself for its current context.
pub(crate) struct Embedded {
    pub(crate) certificate: Option<Certificate>,
    pub(crate) key: Option<PrivateKey>,
    pub(crate) authorities: Vec<Certificate>,
    pub(crate) server: Option<String>,
    pub(crate) cluster_name: Option<String>,
}

/// The current context of a kubeconfig; everything else is somebody else's business.
struct Current {
    certificate: Option<String>,
    key: Option<String>,
    authority: Option<String>,
    server: Option<String>,
    cluster_name: Option<String>,
}

impl Current {
    /// No message of a parser is passed on: it could show the text around the mistake, which may be a key.
    fn parse(kubeconfig: &Secret) -> Result<Self, Error> {
        let texts = scalars(kubeconfig.expose()).map_err(|_| Error::ReadKubeconfig)?;
        let named = |list: &str, name: Option<&String>| {
            let name = name?;
            let paths = (0..)
                .map(|index| format!("{list}/{index}"))
                .take_while(|path| texts.contains_key(&format!("{path}/name")));
            paths.into_iter().find(|path| texts.get(&format!("{path}/name")) == Some(name))
        };
        let text = |at: Option<&String>, field: &str| at.and_then(|path| texts.get(&format!("{path}/{field}")));
        let context = named("contexts", texts.get("current-context"));
        let user = named("users", text(context.as_ref(), "context/user"));
        let cluster = named("clusters", text(context.as_ref(), "context/cluster"));
        Ok(Self {
            certificate: text(user.as_ref(), "user/client-certificate-data").cloned(),
            key: text(user.as_ref(), "user/client-key-data").cloned(),
            authority: text(cluster.as_ref(), "cluster/certificate-authority-data").cloned(),
            server: text(cluster.as_ref(), "cluster/server").cloned(),
            cluster_name: text(cluster.as_ref(), "name").cloned(),
        })
    }
}

pub(crate) fn embedded(kubeconfig: &Secret) -> Result<Embedded, Error> {
    let current = Current::parse(kubeconfig)?;
    let [certificate, key, authority] =
        [current.certificate, current.key, current.authority].map(|data| data.map(|data| decode(&data)).transpose());
    Ok(Embedded {
        certificate: certificate?.map(|pem| Certificate::parse(pem.expose())).transpose()?,
        key: key?.map(|pem| PrivateKey::parse(&pem)).transpose()?,
        authorities: authority?.and_then(|pem| Certificate::parse_all(pem.expose()).ok()).unwrap_or_default(),
        server: current.server,
        cluster_name: current.cluster_name,
    })
}

/// The same text with another certificate, and another key if one is given: whatever else people wrote into it stays.
pub(crate) fn replace_embedded(
    kubeconfig: &Secret,
    certificate_pem: &str,
    key: Option<&Secret>,
) -> Result<Secret, Error> {
    let current = Current::parse(kubeconfig)?;
    let swap = |text: String, old: Option<&str>, new: &str| match old {
        Some(old) if text.contains(old) => Ok(text.replace(old, &BASE64.encode(new.as_bytes()))),
        // Folded over several lines, which no tool does.
        _ => Err(Error::ReadKubeconfig),
    };
    let mut text = swap(kubeconfig.expose().to_owned(), current.certificate.as_deref(), certificate_pem)?;
    if let Some(key) = key {
        text = swap(text, current.key.as_deref(), key.expose())?;
    }
    Ok(Secret::new(text))
}

fn decode(base64: &str) -> Result<Secret, Error> {
    let bytes = BASE64.decode(base64.as_bytes()).map_err(|_| Error::ReadKubeconfig)?;
    String::from_utf8(bytes).map(Secret::new).map_err(|_| Error::ReadKubeconfig)
}

/// A JSON string is a YAML double-quoted scalar.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_identity_is_rendered_in_full_and_odd_characters_stay_quoted() {
        let token = Secret::new("abc\"def");
        let text = Kubeconfig {
            cluster_name: "lab: one",
            server: "https://10.99.0.1:6443",
            authority_pem: "pem",
            user_name: "bootstrap",
            credential: Credential::Token(&token),
        }
        .render();
        let expected = r#"apiVersion: v1
kind: Config
clusters:
  - name: "lab: one"
    cluster:
      server: "https://10.99.0.1:6443"
      certificate-authority-data: cGVt
users:
  - name: "bootstrap"
    user:
      token: "abc\"def"
contexts:
  - name: "lab: one"
    context:
      cluster: "lab: one"
      user: "bootstrap"
current-context: "lab: one"
"#;
        assert_eq!(text.expose(), expected);
    }

    #[test]
    fn a_certificate_identity_carries_certificate_and_key_as_base64() {
        let leaf = Leaf { certificate_pem: "certificate".into(), key_pem: Secret::new("key") };
        let text = Kubeconfig {
            cluster_name: "lab",
            server: "https://10.99.0.1:6443",
            authority_pem: "pem",
            user_name: "admin",
            credential: Credential::Certificate(&leaf),
        }
        .render();
        assert!(text.expose().contains("client-certificate-data: Y2VydGlmaWNhdGU=\n"));
        assert!(text.expose().contains("client-key-data: a2V5\n"));
    }
}
