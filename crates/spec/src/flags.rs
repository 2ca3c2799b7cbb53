//! Flags of a component that a user may add.

use std::collections::BTreeMap;

use crate::catalog::{Component, Flag, FlagKind, Form, Schema, Target, flag_schema};
use crate::decode::{Drafts, place};
use crate::nearest::nearest;
use crate::origin::Setting;
use crate::source::Span;
use crate::syntax;
use crate::tree::Node;
use crate::values::Invalid;

/// Flags of the kubelet that nodestrap sets; `complete` compares them with what it would set.
pub(crate) const OWNED: &[&str] = &["bootstrap-kubeconfig", "config", "kubeconfig", "node-labels"];

pub(crate) fn decode_flags(
    drafts: &Drafts<'_>,
    node: &Node,
    target: Target,
) -> Option<BTreeMap<String, Setting<String>>> {
    let mut flags = BTreeMap::new();
    for entry in drafts.entries(node)? {
        check_name(drafts, entry.key_span, &entry.key, target);
        let Some(value) = drafts.scalar(&entry.value) else { continue };
        if value.chars().any(char::is_control) {
            drafts.report(entry.value.span, "the value of a flag must be one line");
        } else if let Some(flag) = target.component.flags().iter().find(|flag| flag.name == entry.key) {
            drafts.checked(&entry.value, check_value(flag, value, target));
        }
        flags.insert(entry.key.clone(), Setting { value: value.to_owned(), origin: drafts.user(place(entry)) });
    }
    Some(flags)
}

fn check_name(drafts: &Drafts<'_>, span: Span, name: &str, target: Target) {
    if name.starts_with('-') {
        let bare = name.trim_start_matches('-');
        drafts.report(span, "flags are written without dashes").advise(format!("write {bare}"));
        return;
    }
    let well_formed = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if name.is_empty() || !well_formed {
        drafts
            .report(span, format!("\"{name}\" is not the name of a flag"))
            .advise("lower-case letters, digits and \"-\"");
        return;
    }
    let (title, known) = (target.component.title(), target.component.flags());
    if let Some(flag) = known.iter().find(|flag| flag.name == name) {
        if let Some((why, advice)) = target.unavailable(flag.available) {
            drafts.report(span, format!("{title} has no flag --{name} {why}")).advise(advice);
        }
        return;
    }
    if let Some(field) = field_of(name, target.component) {
        let message = match target.component {
            Component::Kubelet => format!("the flag --{name} belongs into the kubelet's configuration"),
            _ => format!("{title} ignores the flag --{name} when it has a configuration file, as it has here"),
        };
        drafts.report(span, message).advise(match name {
            "register-with-taints" => "write it as taints of the NodeGroup".to_owned(),
            "cluster-dns" => "write it as networking.clusterDNS of the Cluster".to_owned(),
            "cluster-domain" => "write it as networking.clusterDomain of the Cluster".to_owned(),
            _ => format!("write it as {}.config.{field}", target.component.place()),
        });
        return;
    }
    let report = drafts.report(span, format!("{title} of this release has no flag --{name}"));
    let here = known.iter().filter(|flag| target.has(flag.available)).map(|flag| flag.name);
    if let Some(known) = nearest(name, here) {
        report.advise(format!("did you mean \"{known}\"?"));
    }
}

fn check_value(flag: &Flag, value: &str, target: Target) -> Result<(), Invalid> {
    let needed = |is_one: bool, what: &str| match is_one {
        true => Ok(()),
        false => Err(Invalid::new(format!("{what} is needed here, not \"{value}\""))),
    };
    // A variable of the pod: what it will be only the node knows.
    if value.contains("$(") {
        return Ok(());
    }
    match flag.kind {
        FlagKind::Bool => needed(matches!(value, "true" | "false"), "true or false"),
        FlagKind::Int => needed(value.parse::<i64>().is_ok(), "a whole number"),
        FlagKind::Int32 => needed(value.parse::<i32>().is_ok(), "a whole number of 32 bits"),
        FlagKind::Natural => needed(value.parse::<u64>().is_ok(), "a whole number that is not negative"),
        FlagKind::Float => needed(value.parse::<f64>().is_ok_and(f64::is_finite), "a number"),
        FlagKind::Duration => syntax::validate_go_duration(value),
        FlagKind::Address => Form::Address.check(value, target),
        FlagKind::PortRange => Form::PortRange.check(value, target),
        _ if flag.name == "feature-gates" => syntax::validate_feature_gates(value),
        FlagKind::Text | FlagKind::List | FlagKind::Map => Ok(()),
    }?;
    match flag_schema(target.component, flag.name) {
        Some(schema) => check_refined(schema, value, target),
        None => Ok(()),
    }
}

/// The value is of the flag's own kind already.
fn check_refined(schema: Schema, value: &str, target: Target) -> Result<(), Invalid> {
    match schema {
        Schema::Form(form) => form.check(value, target),
        // The program's own choice.
        _ if value.is_empty() => Ok(()),
        Schema::Choice(choices) if !choices.contains(&value) => Err(syntax::unknown_choice(value, choices)),
        Schema::List(of) => value.split(',').try_for_each(|item| check_refined(*of, item, target)),
        Schema::Int { min, max } if !value.parse().is_ok_and(|number: i64| (min..=max).contains(&number)) => {
            Err(Invalid::new(format!("{value} is out of range: {min} to {max}")))
        }
        Schema::Number { min, max } => syntax::validate_number_within(value.parse().unwrap_or(f64::NAN), min, max),
        _ => Ok(()),
    }
}

/// The field of the configuration that does what a flag does; most of the kubelet's are named alike.
fn field_of(flag: &str, component: Component) -> Option<&'static str> {
    if let Some((_, field)) = component.flag_fields().iter().find(|(name, _)| *name == flag) {
        return Some(field);
    }
    if component != Component::Kubelet {
        return None;
    }
    let joined = flag.replace('-', "");
    component.config()?.iter().map(|field| field.name).find(|name| name.eq_ignore_ascii_case(&joined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Source, Sources};
    use crate::tree::read_documents;

    fn messages(component: Component, minor: u32, yaml: &str) -> Vec<String> {
        let sources = Sources::new(&[Source { name: "flags.yaml".to_owned(), text: yaml.to_owned() }]);
        let drafts = Drafts::new(&sources);
        let documents = read_documents(0, &sources.files()[0], &drafts);
        decode_flags(&drafts, &documents[0], Target { component, minor: Some(minor) });
        drafts.finish().into_iter().map(|mistake| mistake.message).collect()
    }

    #[test]
    fn a_flag_is_taken_by_the_versions_that_have_it() {
        let flag = "service-account-signing-endpoint: /run/signer.sock\n";
        assert_eq!(messages(Component::KubeApiserver, 32, flag), Vec::<String>::new());
        assert_eq!(
            messages(Component::KubeApiserver, 31, flag),
            [
                "kube-apiserver has no flag --service-account-signing-endpoint before Kubernetes 1.32; this cluster runs \
              Kubernetes 1.31"
            ]
        );
        assert_eq!(messages(Component::Etcd, 5, "discovery: x\n"), Vec::<String>::new());
        assert_eq!(
            messages(Component::Etcd, 7, "discovery: x\n"),
            ["etcd has no flag --discovery since etcd 3.7; this cluster runs etcd 3.7"]
        );
    }

    #[test]
    fn a_flag_that_the_configuration_says_belongs_there() {
        assert_eq!(
            messages(Component::Kubelet, 36, "max-pods: 5\n"),
            ["the flag --max-pods belongs into the kubelet's configuration"]
        );
        assert_eq!(
            messages(Component::KubeProxy, 36, "proxy-mode: ipvs\nmaster: https://a\nv: 2\n"),
            ["kube-proxy ignores the flag --proxy-mode when it has a configuration file, as it has here"]
        );
        assert_eq!(
            messages(Component::KubeScheduler, 30, "kube-api-qps: 3\nleader-elect: false\n"),
            ["kube-scheduler ignores the flag --kube-api-qps when it has a configuration file, as it has here"]
        );
    }

    #[test]
    fn a_value_is_of_the_kind_that_the_flag_takes() {
        let good = "profiling: false\nsecure-port: 6443\nrequest-timeout: 1m\ngoaway-chance: 0.01\n";
        assert_eq!(messages(Component::KubeApiserver, 36, good), Vec::<String>::new());
        let bad = "profiling: off\nsecure-port: https\nrequest-timeout: 60\ngoaway-chance: rare\n";
        assert_eq!(messages(Component::KubeApiserver, 36, bad).len(), 4);
        let variable = "advertise-address: $(HOST_IP)\nbind-address: \"::\"\ntls-min-version: \"\"\n";
        assert_eq!(messages(Component::KubeApiserver, 36, variable), Vec::<String>::new());
    }
}
