//! Who a node is to its proxy.

use serde_json::Value;

use crate::complete::CompleteProxy;
use crate::items::SecretText;
use crate::record::{Context, SpecValue, item};
use crate::texts::Line;
use crate::tree::Node;
use crate::values::{Invalid, Secret};
use crate::view::Look;

/// Kept apart from the address, which many a command prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyCredentials {
    user: String,
    password: Secret,
}

item!(
    "credentials",
    /// What a proxy asks for.
    Login {
        /// The user's name.
        user: Line = "user",
        /// In place or as `{file: …}`.
        password: SecretText = "password",
    }
);

impl ProxyCredentials {
    /// The address with these in it, for programs that take them from there.
    fn url(&self, address: &str) -> String {
        let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
        format!("{scheme}://{}:{}@{rest}", percent_encoded(&self.user), percent_encoded(self.password.expose()))
    }
}

impl CompleteProxy {
    pub fn for_http(&self) -> Option<String> {
        self.http.as_ref().map(|url| self.with_credentials(url.value.as_str()))
    }

    pub fn for_https(&self) -> Option<String> {
        self.https.as_ref().map(|url| self.with_credentials(url.value.as_str()))
    }

    fn with_credentials(&self, address: &str) -> String {
        match &self.credentials {
            Some(credentials) => credentials.value.url(address),
            None => address.to_owned(),
        }
    }
}

/// All but what no part of an address can misread.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

impl SpecValue for ProxyCredentials {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let login = Login::decode(context, node)?;
        let refuse = |invalid| context.drafts.report_invalid(node.span, invalid);
        let (user, password) = (login.user.as_str(), login.password.0.expose());
        // A file ends with a line break, which is no part of the password.
        let password = password.trim_end_matches(['\n', '\r']);
        if user.contains(':') {
            refuse(Invalid::new("a user name for a proxy cannot have a colon: the password would begin there"));
            return None;
        }
        if password.is_empty() || password.chars().any(char::is_control) {
            refuse(Invalid::new("a password for a proxy is one line of text, which this is not"));
            return None;
        }
        Some(Self { user: user.to_owned(), password: Secret::new(password) })
    }

    fn to_json(&self, look: Look) -> Value {
        let password = SecretText(self.password.clone()).to_json(look);
        serde_json::json!({ "user": self.user, "password": password })
    }

    fn schema() -> Value {
        Login::schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_an_address_is_written_so_that_it_does_not() {
        let credentials = ProxyCredentials { user: "me@work".into(), password: Secret::new("p:a/s%s ü") };
        assert_eq!(
            credentials.url("http://proxy.example.com:3128"),
            "http://me%40work:p%3Aa%2Fs%25s%20%C3%BC@proxy.example.com:3128"
        );
    }
}
