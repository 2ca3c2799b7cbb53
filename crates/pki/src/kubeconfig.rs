//! The kubeconfig of one identity in one cluster.

use data_encoding::BASE64;

use crate::{Leaf, Secret};

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
