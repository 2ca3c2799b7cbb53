//! Flags of a component that a user may add.

use std::collections::BTreeMap;

use crate::catalog::{Component, FlagKind, Target};
use crate::decode::{Drafts, place};
use crate::nearest::nearest;
use crate::origin::Setting;
use crate::record::Context;
use crate::source::Span;
use crate::syntax;
use crate::tree::Node;
use crate::values::Invalid;

/// Flags of the kubelet that nodestrap sets; `complete` compares them with what it would set.
pub(crate) const OWNED: &[&str] = &["bootstrap-kubeconfig", "config", "kubeconfig", "node-labels"];

pub(crate) fn decode_flags(
    context: Context<'_>,
    node: &Node,
    component: Component,
) -> Option<BTreeMap<String, Setting<String>>> {
    let (drafts, target) = (context.drafts, context.release.target(component));
    let mut flags = BTreeMap::new();
    for entry in drafts.entries(node)? {
        check_name(drafts, entry.key_span, &entry.key, target);
        let Some(value) = drafts.text(&entry.value) else { continue };
        if value.chars().any(char::is_control) {
            drafts.report(entry.value.span, "the value of a flag must be one line");
        } else if let Some(flag) = target.component.flags().iter().find(|flag| flag.name == entry.key)
            && let Err(invalid) = check_value(value, flag.kind)
        {
            drafts.report_invalid(entry.value.span, invalid);
        }
        flags.insert(entry.key.clone(), Setting { value: value.to_owned(), origin: drafts.user(place(entry)) });
    }
    Some(flags)
}

/// As far as every reader of the flag would agree.
fn check_value(text: &str, kind: FlagKind) -> Result<(), Invalid> {
    let wanted = match kind {
        FlagKind::Bool if !matches!(text, "true" | "false") => "true or false",
        FlagKind::Int if text.parse::<i64>().is_err() => "a whole number",
        FlagKind::Float if text.parse::<f64>().is_err() => "a number",
        FlagKind::Duration => return syntax::validate_go_duration(text),
        _ => return Ok(()),
    };
    Err(Invalid::new(format!("this flag takes {wanted}, not \"{text}\"")))
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
        let report = drafts.report(span, format!("the flag --{name} belongs into the kubelet's configuration"));
        report.advise(match name {
            "register-with-taints" => "write it as taints of the NodeGroup".to_owned(),
            "cluster-dns" => "write it as networking.clusterDNS of the Cluster".to_owned(),
            "cluster-domain" => "write it as networking.clusterDomain of the Cluster".to_owned(),
            _ => format!("write it as kubelet.config.{field}"),
        });
        return;
    }
    let report = drafts.report(span, format!("{title} of this release has no flag --{name}"));
    let here = known.iter().filter(|flag| target.has(flag.available)).map(|flag| flag.name);
    if let Some(known) = nearest(name, here) {
        report.advise(format!("did you mean \"{known}\"?"));
    }
}

/// The field of the configuration that does what a flag of the kubelet does; most are named alike. Other components are
/// configured by flags as well as by fields.
fn field_of(flag: &str, component: Component) -> Option<&'static str> {
    if component != Component::Kubelet {
        return None;
    }
    if let Some((_, field)) = component.flag_fields().iter().find(|(name, _)| *name == flag) {
        return Some(field);
    }
    let joined = flag.replace('-', "");
    component.config()?.iter().map(|field| field.name).find(|name| name.eq_ignore_ascii_case(&joined))
}
