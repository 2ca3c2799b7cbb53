//! The part of a gate that only the node knows: its address, its instance, how many pods it may have.
//!
//! Pure: bundle and facts in, variables out. A value that is missing or cannot be what it should be is refused by name,
//! before anything is written; a page of an unwell metadata service never becomes a label of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use render::bundle::Bundle;
use render::{KUBELET_ENV_PATH, MAX_PODS_MAP_PATH, parse_environment};

use crate::facts::{Fact, Facts};
use crate::refusals::Refusal;

const INSTANCE_ID: &str = "INSTANCE_ID";
const INSTANCE_TYPE: &str = "INSTANCE_TYPE";
const NODE_IP: &str = "NODE_IP";
const MAX_PODS: &str = "MAX_PODS";

/// The value becomes one of a label, which Kubernetes lets have so many characters.
const LONGEST_LABEL_VALUE: usize = 63;
/// Enough to recognise a page of HTML.
const LONGEST_QUOTE: usize = 40;

/// What stands in the gate, as far as it is known, and why the rest is not.
pub(crate) struct GateFacts {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) refusals: Vec<Refusal>,
}

pub(crate) fn resolve(bundle: &Bundle, facts: &Facts) -> GateFacts {
    let mut resolved = GateFacts { environment: bundle.gate.environment.clone(), refusals: Vec::new() };
    for name in &bundle.gate.facts {
        match resolve_one(name, bundle, facts) {
            Ok(value) => drop(resolved.environment.insert(name.clone(), value)),
            // One missing fact may be the reason of two variables.
            Err(refusal) if resolved.refusals.contains(&refusal) => {}
            Err(refusal) => resolved.refusals.push(refusal),
        }
    }
    resolved
}

/// The facts that this bundle asks for, by the names that a plan gives its inputs. Others do not touch the plan.
pub(crate) fn named<'f>(bundle: &Bundle, facts: &'f Facts) -> impl Iterator<Item = (&'static str, &'f str)> {
    let known = [
        (INSTANCE_TYPE, "instanceType", facts.instance_type.value.as_str()),
        (NODE_IP, "localIpv4", facts.local_ipv4.value.as_str()),
    ];
    let asked =
        known.map(|(variable, input, value)| (bundle.gate.facts.iter().any(|fact| fact == variable), input, value));
    asked.into_iter().filter(|(is_asked, _, _)| *is_asked).map(|(_, input, value)| (input, value))
}

fn resolve_one(name: &str, bundle: &Bundle, facts: &Facts) -> Result<String, Refusal> {
    match name {
        INSTANCE_ID => plain_word(name, &facts.instance_id),
        INSTANCE_TYPE => instance_type(facts),
        NODE_IP => node_ip(&facts.local_ipv4),
        MAX_PODS => max_pods(bundle, facts),
        _ => Err(Refusal {
            reason: format!("this version of nodestrap cannot find out {name} on a node"),
            advice: "render the bundle with the nodestrap that the node has, or use layout: nodestrap".to_owned(),
        }),
    }
}

fn instance_type(facts: &Facts) -> Result<String, Refusal> {
    plain_word(INSTANCE_TYPE, &facts.instance_type)
}

fn node_ip(fact: &Fact<String>) -> Result<String, Refusal> {
    let address = present(NODE_IP, fact)?;
    match address.parse::<Ipv4Addr>() {
        Ok(parsed) if !parsed.is_unspecified() && !parsed.is_loopback() => Ok(address.to_owned()),
        _ => Err(malformed(NODE_IP, fact, "an IPv4 address of a node")),
    }
}

fn plain_word(name: &str, fact: &Fact<String>) -> Result<String, Refusal> {
    let word = present(name, fact)?;
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = word.as_bytes();
    let is_plain = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if is_plain && is_end(bytes.first()) && is_end(bytes.last()) && bytes.len() <= LONGEST_LABEL_VALUE {
        return Ok(word.to_owned());
    }
    Err(malformed(name, fact, "a word of letters, digits, '-', '_' and '.'"))
}

fn present<'f>(name: &str, fact: &'f Fact<String>) -> Result<&'f str, Refusal> {
    if !fact.value.is_empty() {
        return Ok(&fact.value);
    }
    Err(Refusal {
        reason: format!("the kubelet of this bundle needs {name}, and nothing here says it ({})", fact.source),
        advice: "boot the machine where the metadata service of AWS answers, or use layout: nodestrap".to_owned(),
    })
}

fn malformed(name: &str, fact: &Fact<String>, wanted: &str) -> Refusal {
    let quote: String = fact.value.chars().take(LONGEST_QUOTE).collect();
    let rest = if quote.len() < fact.value.len() { "…" } else { "" };
    Refusal {
        reason: format!("{name} should be {wanted}, but {} says {quote:?}{rest}", fact.source),
        advice: "look at what answers for the metadata service; apply again when it is well".to_owned(),
    }
}

/// A number that somebody chose comes first, then the map, as in eksctl.
fn max_pods(bundle: &Bundle, facts: &Facts) -> Result<String, Refusal> {
    let broken = |path: &str, problem: &str| Refusal {
        reason: format!("{path:?} of the bundle cannot be used: {problem}"),
        advice: "render the bundle again".to_owned(),
    };
    if let Some(bytes) = content(bundle, KUBELET_ENV_PATH) {
        let variables = parse_environment(bytes)
            .map_err(|(line, problem)| broken(KUBELET_ENV_PATH, &format!("line {line} {problem}")))?;
        if let Some(chosen) = variables.get(MAX_PODS).filter(|chosen| !chosen.is_empty()) {
            let is_number = chosen.parse::<u32>().is_ok_and(|number| number > 0);
            let wrong = || broken(KUBELET_ENV_PATH, "its MAX_PODS is no number of pods");
            return is_number.then(|| chosen.clone()).ok_or_else(wrong);
        }
    }
    let instance_type = instance_type(facts)?;
    let map = String::from_utf8_lossy(content(bundle, MAX_PODS_MAP_PATH).unwrap_or_default());
    let look_up = |line: &str| {
        let mut words = line.split_whitespace();
        let pods = (words.next() == Some(&instance_type)).then(|| words.next()).flatten()?;
        pods.bytes().all(|byte| byte.is_ascii_digit()).then(|| pods.to_owned())
    };
    map.lines().find_map(look_up).ok_or_else(|| Refusal {
        reason: format!(
            "how many pods fit on a machine of type {instance_type:?} is not known: {MAX_PODS_MAP_PATH} does not have it"
        ),
        advice: "write maxPods: NUMBER into the NodeGroup, render and deliver again; or use a type that the map has"
            .to_owned(),
    })
}

pub(crate) fn content<'b>(bundle: &'b Bundle, path: &str) -> Option<&'b [u8]> {
    bundle.files.iter().find(|file| file.path == path).map(|file| &*file.content)
}
