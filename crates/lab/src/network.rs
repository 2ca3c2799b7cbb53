//! The network of a lab, in namespaces of its own: a hub with a bridge and the control plane, one namespace per node.
//!
//! Every lab uses the same addresses; namespaces keep them apart. Both ends of each link are made inside namespaces, so the
//! machine's own network is never touched, and the hub has no way out.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{run, stdout_of};

/// Where the API server of every lab is, seen from its hub and its nodes.
pub const API_SERVER_URL: &str = "https://10.99.0.1:6443";
pub(crate) const HUB: Addresses =
    Addresses { v4: Ipv4Addr::new(10, 99, 0, 1), v6: Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1) };
/// The first service address, which is the API server seen from pods.
pub(crate) const API_SERVICE: Addresses =
    Addresses { v4: Ipv4Addr::new(10, 98, 0, 1), v6: Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 1) };
const POD_RANGES: [&str; 2] = ["10.97.0.0/16", "fd97::/48"];
const SERVICE_RANGES: [&str; 2] = ["10.98.0.0/24", "fd98::/112"];
/// The first node gets 10.99.0.11, as in 10.99.0.(10 + index).
const NODE_ADDRESS_OFFSET: u8 = 10;
const LARGEST_INDEX: u8 = 200;
const PREFIX: &str = "nslab";

/// The addresses of one machine; the second is used only in a dual-stack lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

impl Addresses {
    pub(crate) fn of_node(index: u8) -> Self {
        let last = NODE_ADDRESS_OFFSET + index;
        Self { v4: Ipv4Addr::new(10, 99, 0, last), v6: Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, u16::from(last)) }
    }

    /// The one to which traffic for a range of the same family is sent.
    fn for_range(&self, range: &str) -> IpAddr {
        if range.contains(':') { self.v6.into() } else { self.v4.into() }
    }
}

/// Ranges as the flags of Kubernetes want them: one, or two with a comma.
pub(crate) fn pod_ranges(dual_stack: bool) -> String {
    POD_RANGES[..if dual_stack { 2 } else { 1 }].join(",")
}

pub(crate) fn service_ranges(dual_stack: bool) -> String {
    SERVICE_RANGES[..if dual_stack { 2 } else { 1 }].join(",")
}

/// The lowest number that no node of the lab has.
pub(crate) fn free_index(taken: impl Iterator<Item = u8>) -> Result<u8> {
    let taken: Vec<u8> = taken.collect();
    (1..=LARGEST_INDEX).find(|index| !taken.contains(index)).context("the lab has no address left for another node")
}

/// A dot separates lab and node: neither name may contain one, so no lab owns a namespace of another.
pub(crate) fn namespace_name(lab: &str, member: &str) -> String {
    format!("{PREFIX}.{lab}.{member}")
}

pub(crate) fn namespace_path(lab: &str, member: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace_name(lab, member))
}

/// The name of the hub among the members; a node may not have it.
pub(crate) const HUB_MEMBER: &str = "hub";

pub(crate) fn create_hub(lab: &str, dual_stack: bool) -> Result<()> {
    let hub = namespace_name(lab, HUB_MEMBER);
    run("ip", &["netns", "add", &hub])?;
    let ip = |arguments: &[&str]| run("ip", &[&["-n", hub.as_str()], arguments].concat());
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "br0", "type", "bridge"])?;
    ip(&["addr", "add", &format!("{}/24", HUB.v4), "dev", "br0"])?;
    let mut settings = vec![
        ("net/ipv4/ip_forward", "1"),
        // Traffic between nodes enters and leaves by the same bridge; the hub is the router there, not a mistake.
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/br0/send_redirects", "0"),
    ];
    if dual_stack {
        ip(&["addr", "add", &format!("{}/64", HUB.v6), "dev", "br0", "nodad"])?;
        settings.push(("net/ipv6/conf/all/forwarding", "1"));
    }
    ip(&["link", "set", "br0", "up"])?;
    set_kernel_settings(lab, HUB_MEMBER, &settings)
}

/// `/proc/sys/net` shows the namespace of whoever opens it.
fn set_kernel_settings(lab: &str, member: &str, settings: &[(&str, &str)]) -> Result<()> {
    let script: String =
        settings.iter().map(|(name, value)| format!("echo {value} > /proc/sys/{name} || exit 1\n")).collect();
    stdout_of(inside(lab, member, "sh").args(["-c", &script])).map(drop)
}

pub(crate) fn connect_node(lab: &str, node: &str, index: u8, dual_stack: bool) -> Result<()> {
    let (hub, member) = (namespace_name(lab, HUB_MEMBER), namespace_name(lab, node));
    let addresses = Addresses::of_node(index);
    let port = format!("p{index}");
    run("ip", &["netns", "add", &member])?;
    run("ip", &["link", "add", &port, "netns", &hub, "type", "veth", "peer", "name", "eth0", "netns", &member])?;
    run("ip", &["-n", &hub, "link", "set", &port, "master", "br0", "up"])?;
    let ip = |arguments: &[&str]| run("ip", &[&["-n", member.as_str()], arguments].concat());
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{}/24", addresses.v4), "dev", "eth0"])?;
    if dual_stack {
        ip(&["addr", "add", &format!("{}/64", addresses.v6), "dev", "eth0", "nodad"])?;
    }
    ip(&["link", "set", "eth0", "up"])?;
    ip(&["route", "add", "default", "via", &HUB.v4.to_string()])?;
    if dual_stack {
        ip(&["-6", "route", "add", "default", "via", &HUB.v6.to_string()])?;
    }
    Ok(())
}

/// What a cloud's route table does: traffic for a node's pods goes to that node.
pub(crate) fn route_pods(lab: &str, range: &str, node: &Addresses) -> Result<()> {
    if !range.bytes().all(|b| b.is_ascii_hexdigit() || b".:/".contains(&b)) {
        bail!("'{range}' is no address range");
    }
    let hub = namespace_name(lab, HUB_MEMBER);
    run("ip", &["-n", &hub, "route", "replace", range, "via", &node.for_range(range).to_string()])
}

/// A program in a namespace of the lab, and in nothing else of it.
pub(crate) fn inside(lab: &str, member: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace_path(lab, member).display())).arg(program);
    command
}

/// A socket stays in the namespace in which it was made; a thread of its own enters that, and this process stays outside.
pub(crate) fn listen_inside(lab: &str, member: &str, address: SocketAddr) -> Result<TcpListener> {
    within(lab, member, move || TcpListener::bind(address).with_context(|| format!("listening at {address}")))
}

/// Likewise.
pub(crate) fn connect_inside(lab: &str, member: &str, address: SocketAddr) -> Result<TcpStream> {
    within(lab, member, move || TcpStream::connect(address).with_context(|| format!("connecting to {address}")))
}

/// On a thread of its own, which is in the namespace for as long as it lasts.
pub(crate) fn within<T: Send + 'static>(
    lab: &str,
    member: &str,
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = namespace_path(lab, member);
    let enter = move || -> Result<T> {
        let namespace = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("entering {}", path.display()))?;
        act()
    };
    std::thread::spawn(enter).join().map_err(|_| anyhow!("the thread that enters a namespace panicked"))?
}

/// Where every platform has its metadata service. It is an address of the node's own, so that nothing leaves the lab.
pub(crate) fn listen_as_metadata_service(lab: &str, node: &str) -> Result<TcpListener> {
    const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
    let member = namespace_name(lab, node);
    run("ip", &["-n", &member, "addr", "replace", &format!("{METADATA}/32"), "dev", "lo"])?;
    listen_inside(lab, node, (METADATA, 80).into())
}

/// All namespaces of a lab, by name.
pub(crate) fn namespaces(lab: &str) -> Vec<String> {
    let prefix = format!("{PREFIX}.{lab}.");
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

pub(crate) fn delete_namespace(name: &str) -> Result<()> {
    run("ip", &["netns", "del", name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_routed_to_the_address_of_its_family() {
        let node = Addresses::of_node(1);
        assert_eq!(node.for_range("10.97.0.0/24").to_string(), "10.99.0.11");
        assert_eq!(node.for_range("fd97::/64").to_string(), "fd99::b");
    }

    #[test]
    fn a_freed_index_is_given_out_again() {
        assert_eq!(free_index([1, 3].into_iter()).expect("free"), 2);
        assert!(free_index(1..=LARGEST_INDEX).is_err());
    }
}
