//! Kubeconfigs: where the API server is, and who asks.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};
use spec::{ExecCredential, render_yaml};

/// Who a client says that it is.
pub(crate) enum Credential<'a> {
    Token(&'a str),
    /// A program that gives credentials whenever they are needed.
    Exec(&'a ExecCredential),
}

/// A secret: it carries what a client joins with.
pub(crate) fn render_kubeconfig(
    cluster: &str,
    server: &str,
    authority_pem: &str,
    user: &str,
    credential: &Credential<'_>,
) -> Vec<u8> {
    let authority = BASE64.encode(authority_pem.as_bytes());
    let identity = match credential {
        Credential::Token(token) => json!({ "token": token }),
        Credential::Exec(program) => json!({ "exec": exec(program) }),
    };
    let fields = [
        ("apiVersion", json!("v1")),
        ("kind", json!("Config")),
        (
            "clusters",
            json!([{"name": cluster, "cluster": {"certificate-authority-data": authority, "server": server}}]),
        ),
        ("users", json!([{"name": user, "user": identity}])),
        ("contexts", json!([{"name": cluster, "context": {"cluster": cluster, "user": user}}])),
        ("current-context", json!(cluster)),
    ];
    let fields: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    render_yaml(&fields).into_bytes()
}

fn exec(program: &ExecCredential) -> Value {
    let arguments: Vec<&str> = program.arguments.iter().map(|argument| argument.as_str()).collect();
    let environment: Vec<Value> = program
        .environment
        .iter()
        .map(|(name, value)| json!({ "name": name.as_str(), "value": value.as_str() }))
        .collect();
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": program.command.as_str(),
        "args": arguments,
        // A kubelet has no terminal to ask anybody.
        "interactiveMode": "Never",
    });
    if let (false, Some(fields)) = (environment.is_empty(), exec.as_object_mut()) {
        fields.insert("env".to_owned(), Value::from(environment));
    }
    exec
}
