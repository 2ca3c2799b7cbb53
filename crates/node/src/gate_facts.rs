//! The part of a gate that only the node knows: its address, its instance, how many pods it may have.
//!
//! Pure: bundle and facts in, variables out. A value that is missing or cannot be what it should be is refused by name,
//! before anything is written; a page of an unwell metadata service never becomes a label of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bundle::{Bundle, GateFact, MAX_PODS_MAP_PATH};

use crate::facts::{Fact, Facts};
use crate::refusals::Refusal;

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
    // What the installer left for the kubelet is kept; the bundle has the last word.
    let mut environment = facts.followed.as_ref().map(|followed| followed.variables.clone()).unwrap_or_default();
    environment.extend(bundle.gate.environment.clone());
    let mut resolved = GateFacts { environment, refusals: Vec::new() };
    for fact in &bundle.gate.facts {
        match resolve_one(*fact, bundle, facts) {
            Ok(value) => drop(resolved.environment.insert(fact.to_string(), value)),
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
        (GateFact::InstanceType, "instanceType", facts.instance_type.value.as_str()),
        (GateFact::NodeIp, "localIpv4", facts.local_ipv4.value.as_str()),
    ];
    let asked = known.map(|(fact, input, value)| (bundle.gate.facts.contains(&fact), input, value));
    asked.into_iter().filter(|(is_asked, _, _)| *is_asked).map(|(_, input, value)| (input, value))
}

fn resolve_one(fact: GateFact, bundle: &Bundle, facts: &Facts) -> Result<String, Refusal> {
    match fact {
        GateFact::InstanceId => plain_word(fact, &facts.instance_id),
        GateFact::InstanceType => plain_word(fact, &facts.instance_type),
        GateFact::KubeletImageTag => match &facts.followed {
            Some(followed) => Ok(followed.release.value.tag()),
            None => Err(Refusal {
                reason: "the release of the cluster, which this bundle wants to be followed, is not known".to_owned(),
                advice: "render and deliver the bundle again".to_owned(),
            }),
        },
        GateFact::NodeIp => node_ip(&facts.local_ipv4),
        GateFact::MaxPods => max_pods(bundle, facts),
    }
}

fn node_ip(fact: &Fact<String>) -> Result<String, Refusal> {
    let address = present(GateFact::NodeIp, fact)?;
    match address.parse::<Ipv4Addr>() {
        Ok(parsed) if !parsed.is_unspecified() && !parsed.is_loopback() => Ok(address.to_owned()),
        _ => Err(malformed(GateFact::NodeIp, fact, "an IPv4 address of a node")),
    }
}

fn plain_word(name: GateFact, fact: &Fact<String>) -> Result<String, Refusal> {
    let word = present(name, fact)?;
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = word.as_bytes();
    let is_plain = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if is_plain && is_end(bytes.first()) && is_end(bytes.last()) && bytes.len() <= LONGEST_LABEL_VALUE {
        return Ok(word.to_owned());
    }
    Err(malformed(name, fact, "a word of letters, digits, '-', '_' and '.'"))
}

fn present(name: GateFact, fact: &Fact<String>) -> Result<&str, Refusal> {
    if !fact.value.is_empty() {
        return Ok(&fact.value);
    }
    Err(Refusal {
        reason: format!("the kubelet of this bundle needs {name}, and nothing here says it ({})", fact.source),
        advice: "boot the machine where the metadata service of AWS answers, or use layout: nodestrap".to_owned(),
    })
}

fn malformed(name: GateFact, fact: &Fact<String>, wanted: &str) -> Refusal {
    let quote: String = fact.value.chars().take(LONGEST_QUOTE).collect();
    let rest = if quote.len() < fact.value.len() { "…" } else { "" };
    Refusal {
        reason: format!("{name} should be {wanted}, but {} says {quote:?}{rest}", fact.source),
        advice: "look at what answers for the metadata service; apply again when it is well".to_owned(),
    }
}

/// A number that somebody chose comes first, then the map, as in eksctl.
fn max_pods(bundle: &Bundle, facts: &Facts) -> Result<String, Refusal> {
    if let Some(chosen) = bundle.gate.max_pods {
        return Ok(chosen.to_string());
    }
    let instance_type = plain_word(GateFact::InstanceType, &facts.instance_type)?;
    let map = bundle.file(MAX_PODS_MAP_PATH).map(|file| String::from_utf8_lossy(&file.content)).unwrap_or_default();
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
