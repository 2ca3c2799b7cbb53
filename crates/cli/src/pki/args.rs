//! The arguments of `nodestrap pki`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use pki::{ControlPlaneNode, KeyAlgorithm, SubjectName};
use spec::{ApiServerUrl, ClusterName, DomainName};

#[derive(Args)]
pub(crate) struct PkiArguments {
    #[command(subcommand)]
    pub(crate) command: PkiCommand,
}

#[derive(Subcommand)]
pub(crate) enum PkiCommand {
    /// Make the authorities, certificates, keys and kubeconfigs that are missing; replace nothing.
    #[command(
        after_help = "Examples:\n  nodestrap pki create cluster.yaml --out ./control-plane --node cp-1=10.0.0.10\n  \
                      nodestrap pki create --cluster demo --api-server https://10.0.0.10:6443 --out ./other-cluster"
    )]
    Create(Box<CreateArguments>),
    /// Show every certificate with its end, and whether it fits to its key and its authority.
    #[command(after_help = "Examples:\n  nodestrap pki inspect ./control-plane\n  \
                      nodestrap pki inspect ./control-plane/pki/apiserver.crt -o json")]
    Inspect(InspectArguments),
    /// Issue certificates that end soon again, by the authorities in the folder.
    #[command(after_help = "Examples:\n  nodestrap pki renew ./control-plane\n  \
                      nodestrap pki renew ./control-plane apiserver admin.conf --new-key")]
    Renew(RenewArguments),
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Files with the Cluster; or name it with --cluster and --api-server.
    #[arg(value_name = "FILE", required_unless_present = "cluster", conflicts_with_all = ["cluster", "api_server", "service_cidr", "domain"])]
    pub(crate) files: Vec<PathBuf>,
    /// The folder, in the layout of /etc/kubernetes.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The name of the cluster, where there is no spec yet.
    #[arg(long, value_name = "NAME", requires = "api_server")]
    pub(crate) cluster: Option<ClusterName>,
    /// Where everybody reaches the API server.
    #[arg(long, value_name = "URL", requires = "cluster")]
    pub(crate) api_server: Option<ApiServerUrl>,
    /// A range of service addresses (repeatable) [default: 10.96.0.0/12].
    #[arg(long, value_name = "CIDR", requires = "cluster")]
    pub(crate) service_cidr: Vec<IpNet>,
    /// The DNS domain of services [default: cluster.local].
    #[arg(long, value_name = "DOMAIN", requires = "cluster")]
    pub(crate) domain: Option<DomainName>,
    /// A machine of the control plane (repeatable).
    #[arg(long = "node", value_name = "NAME[=ADDRESS,…]", value_parser = parse_node)]
    pub(crate) nodes: Vec<ControlPlaneNode>,
    /// A further name or address of the API server (repeatable).
    #[arg(long = "name", value_name = "NAME", value_parser = parse_name)]
    pub(crate) names: Vec<SubjectName>,
    #[arg(long, value_enum, default_value_t = Algorithm::EcdsaP256)]
    pub(crate) algorithm: Algorithm,
    /// How long authorities are valid (s, m, h, d, y).
    #[arg(long, value_name = "TIME", default_value = "10y", value_parser = parse_lifetime)]
    pub(crate) ca_lifetime: Duration,
    /// How long everything else is valid.
    #[arg(long, value_name = "TIME", default_value = "1y", value_parser = parse_lifetime)]
    pub(crate) lifetime: Duration,
}

#[derive(Args)]
pub(crate) struct InspectArguments {
    /// Folders, certificates or kubeconfigs.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct RenewArguments {
    /// The folder with certificates and their authorities.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Only these, whenever they end: `apiserver`, `etcd/peer`, `admin.conf`.
    #[arg(value_name = "NAME", conflicts_with_all = ["within", "all"])]
    pub(crate) names: Vec<String>,
    /// Those that end within this time.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_lifetime)]
    pub(crate) within: Duration,
    /// All of them.
    #[arg(long, conflicts_with = "within")]
    pub(crate) all: bool,
    /// How long the new ones are valid.
    #[arg(long, value_name = "TIME", default_value = "1y", value_parser = parse_lifetime)]
    pub(crate) lifetime: Duration,
    /// Make new keys too; the old ones are kept as `.old`.
    #[arg(long)]
    pub(crate) new_key: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    EcdsaP256,
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

impl From<Algorithm> for KeyAlgorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::EcdsaP256 => Self::EcdsaP256,
            Algorithm::Rsa2048 => Self::Rsa2048,
            Algorithm::Rsa3072 => Self::Rsa3072,
            Algorithm::Rsa4096 => Self::Rsa4096,
        }
    }
}

/// Whole numbers with one unit; a year has 365 days, as everywhere with certificates.
pub(crate) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a time: write a number and s, m, h, d or y, such as 90d");
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "y" => 365 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let total = number.checked_mul(seconds).filter(|total| *total > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(total))
}

fn parse_node(text: &str) -> Result<ControlPlaneNode, String> {
    let (name, addresses) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
    // The same rule as for a domain.
    name.parse::<DomainName>().map_err(|invalid| invalid.to_string())?;
    let parse = |address: &str| address.parse::<IpAddr>().map_err(|_| format!("\"{address}\" is not an IP address"));
    let addresses = addresses.map(|list| list.split(',').map(parse).collect::<Result<_, _>>()).transpose()?;
    Ok(ControlPlaneNode { name: name.to_owned(), addresses: addresses.unwrap_or_default() })
}

fn parse_name(text: &str) -> Result<SubjectName, String> {
    if let Ok(address) = text.parse() {
        return Ok(SubjectName::Ip(address));
    }
    text.strip_prefix("*.").unwrap_or(text).parse::<DomainName>().map_err(|invalid| invalid.to_string())?;
    Ok(SubjectName::Dns(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_number_and_a_unit() {
        assert_eq!(parse_lifetime("10y"), Ok(Duration::from_secs(10 * 365 * 86_400)));
        assert_eq!(parse_lifetime("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_lifetime("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "10", "y", "0d", "-1d", "1w", "1d2h", "99999999999999999y", "1.5d"] {
            assert!(parse_lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_has_a_name_and_any_number_of_addresses() {
        let node = parse_node("cp-1=10.0.0.10,fd00::10").unwrap();
        assert_eq!((node.name.as_str(), node.addresses.len()), ("cp-1", 2));
        assert!(parse_node("cp-1").unwrap().addresses.is_empty());
        for wrong in ["", "Upper", "a b", "cp=", "cp=10.0.0", "../x", "cp=10.0.0.1,"] {
            assert!(parse_node(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_an_address_or_a_dns_name_or_a_wildcard() {
        assert!(matches!(parse_name("fd00::1"), Ok(SubjectName::Ip(_))));
        assert!(matches!(parse_name("*.example.com"), Ok(SubjectName::Dns(_))));
        assert!(parse_name("*").is_err() && parse_name("a..b").is_err());
    }
}
