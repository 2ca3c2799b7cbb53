//! `pki create`: completes the files of a control plane.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use pki::{Certificate, Completed, ControlPlane, KeyAlgorithm, PkiFile, SubjectName, complete_control_plane};
use serde::Serialize;

use crate::documents::{complete_before_pki, load_sources};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::pki::args::CreateArguments;
use crate::pki::files::{Exposed, PkiFolder, now, validity};
use crate::show::{Paint, Screen};

const AUTHORITY: &str = "pki/ca.crt";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateView {
    folder: String,
    written: Vec<String>,
    kept: Vec<String>,
    /// Those of the kept ones that have expired.
    expired: Vec<String>,
    /// Those of the kept ones that are private keys and that everybody may read: a warning, not a fault.
    exposed: Vec<Exposed>,
    /// What joining nodes compare the authority with.
    authority_pin: Option<String>,
}

pub(crate) fn run(arguments: &CreateArguments, screen: &Screen) -> Outcome {
    let wanted = describe(arguments, now(), screen)?;
    let paths = wanted.paths().or_fail(Code::WrongInput)?;
    let folder = PkiFolder::open(&arguments.out)?;
    let mut there = BTreeMap::new();
    for path in paths {
        if let Some(content) = folder.read(&path)? {
            there.insert(path, content);
        }
    }
    let completed = complete_control_plane(&wanted, &there).or_fail(Code::NeedsPerson)?;
    folder.write(&completed.new)?;
    let new = completed.new.iter().find(|file| file.path == AUTHORITY).map(|file| &file.content);
    let authority = new.or_else(|| there.get(AUTHORITY)).and_then(|pem| Certificate::parse(pem.expose()).ok());
    let view = CreateView {
        folder: arguments.out.display().to_string(),
        written: completed.new.iter().map(|file| file.path.clone()).collect(),
        kept: completed.kept.clone(),
        expired: completed.ended.iter().map(|ended| ended.path.clone()).collect(),
        exposed: folder.exposed(&completed.kept),
        authority_pin: authority.map(|authority| authority.pin),
    };
    screen.result(&view, || text(&view, &completed, screen))?;
    Ok(if completed.ended.is_empty() { Code::Done } else { Code::NeedsPerson })
}

fn text(view: &CreateView, completed: &Completed, screen: &Screen) -> String {
    let tick = screen.paint(Paint::Good, "✓");
    let mut lines = vec![format!("{tick} {}: {} files written", view.folder, completed.new.len())];
    if !view.kept.is_empty() {
        lines[0].push_str(&format!(", {} kept as they are", view.kept.len()));
    }
    lines.extend(view.written.iter().map(|path| format!("  new   {path}")));
    lines.extend(view.kept.iter().map(|path| format!("  {}  {path}", screen.paint(Paint::Quiet, "kept"))));
    lines.extend(view.authority_pin.iter().map(|pin| format!("  pin of {AUTHORITY}: {pin}")));
    let mut text = lines.join("\n") + "\n";
    view.exposed.iter().for_each(|exposed| text.push_str(&exposed.line(screen)));
    for ended in &completed.ended {
        text.push_str(&format!("{} {} has expired\n", screen.paint(Paint::Bad, "✗"), ended.path));
    }
    if completed.ended.iter().any(|ended| ended.is_authority) {
        text.push_str("  make new authorities in another folder (--out), and give every machine what is in it\n");
    } else if !completed.ended.is_empty() {
        text.push_str(&format!("  `nodestrap pki renew {}` issues them again\n", view.folder));
    }
    text
}

fn describe(arguments: &CreateArguments, now: SystemTime, screen: &Screen) -> Result<ControlPlane, Failure> {
    let mut extra_names = arguments.names.clone();
    let mut aliases = Vec::new();
    let (cluster_name, api_server, networks, cluster_domain) = match (&arguments.cluster, &arguments.api_server) {
        (Some(cluster), Some(url)) => (
            cluster.to_string(),
            url.as_str().to_owned(),
            if arguments.service_cidr.is_empty() { vec![default_services()] } else { arguments.service_cidr.clone() },
            arguments.domain.as_ref().map_or("cluster.local".to_owned(), ToString::to_string),
        ),
        _ => {
            // The spec may name what this command is about to make. It is decided with a set of another cluster in its
            // place, of which nothing is kept; only then is one made.
            let nobody = OnceCell::new();
            let stand_in = |path: &Path, reason| {
                let files = nobody.get_or_init(|| nobodys_files(now)).as_ref().map_err(String::clone)?;
                let file = files.iter().find(|file| path.ends_with(&file.path)).ok_or(reason)?;
                Ok(file.content.expose().as_bytes().to_vec())
            };
            let spec = complete_before_pki(&load_sources(&arguments.files, screen)?, stand_in, screen)?;
            let networking = spec.cluster.networking;
            let etcd = spec.cluster.etcd;
            let member = |name| SubjectName::Dns(format!("{name}.{}", etcd.domain.value));
            extra_names.extend(etcd.members.value.iter().map(member));
            // Pods are annotated with them, and DNS leads there.
            let api_server = spec.cluster.kube_apiserver;
            let published = [api_server.internal_name, api_server.external_name];
            aliases.extend(published.into_iter().flatten().map(|name| SubjectName::Dns(name.value.to_string())));
            (
                spec.name.value.to_string(),
                spec.cluster.api_server.value.as_str().to_owned(),
                networking.service_cidrs.value.0,
                networking.cluster_domain.value.to_string(),
            )
        }
    };
    Ok(ControlPlane {
        cluster_name,
        api_server,
        nodes: arguments.nodes.clone(),
        service_addresses: networks.iter().filter_map(first_address).collect(),
        cluster_domain,
        aliases,
        extra_names,
        algorithm: arguments.algorithm.into(),
        authority_validity: validity(now, arguments.ca_lifetime),
        validity: validity(now, arguments.lifetime),
        now,
    })
}

fn nobodys_files(now: SystemTime) -> Result<Vec<PkiFile>, String> {
    let nobody = ControlPlane {
        cluster_name: "nobody".to_owned(),
        api_server: "https://nobody.invalid:6443".to_owned(),
        nodes: Vec::new(),
        service_addresses: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        aliases: Vec::new(),
        extra_names: Vec::new(),
        algorithm: KeyAlgorithm::EcdsaP256,
        authority_validity: validity(now, Duration::from_secs(1)),
        validity: validity(now, Duration::from_secs(1)),
        now,
    };
    complete_control_plane(&nobody, &BTreeMap::new()).map(|made| made.new).map_err(|error| error.to_string())
}

/// 10.96.0.0/12, as in a spec that names none.
fn default_services() -> IpNet {
    IpNet::from(ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12))
}

/// The address after that of the network: the service `kubernetes` has it in every cluster.
fn first_address(network: &IpNet) -> Option<IpAddr> {
    let first = match network.network() {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from(u32::from(address).checked_add(1)?)),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address).checked_add(1)?)),
    };
    network.contains(&first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_a_service_range_is_the_one_after_the_network() {
        let first = |network: &str| first_address(&network.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(first("10.96.0.0/12").as_deref(), Some("10.96.0.1"));
        assert_eq!(first("10.97.3.4/12").as_deref(), Some("10.96.0.1"));
        assert_eq!(first("fd00:96::/112").as_deref(), Some("fd00:96::1"));
        assert_eq!(first("10.96.0.0/32"), None);
    }
}
