//! EC2's instance types and the max pods that follow from them, known without asking EC2.
//!
//! Reads: `data/instance-types.txt`, part of the binary; `tools/instance-types/generate` writes it. Gives: [`find`],
//! [`require`], [`max_pods`] and the file that eksctl's bootstrap reads, [`max_pods_map`].

use std::fmt::Write;
use std::sync::LazyLock;

use crate::nearest::nearest;
use crate::values::Invalid;

const TABLE: &str = include_str!("../data/instance-types.txt");

/// Pods with host networking that need no address of their own: the CNI's and kube-proxy's (EKS' eni-max-pods.txt).
const HOST_NETWORK_PODS: u32 = 2;
/// The VPC CNI asks for prefixes of /28.
const ADDRESSES_PER_PREFIX: u32 = 16;
/// What EKS recommends as most pods of a node, from its max-pods-calculator.sh.
const PODS_OF_SMALL: u32 = 110;
const PODS_OF_LARGE: u32 = 250;
/// From how many vCPUs on a machine counts as large (EKS' user guide; no type has exactly 30).
const CPUS_OF_LARGE: u32 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hypervisor {
    Nitro,
    Xen,
    /// None: the whole machine.
    Metal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstanceType {
    pub(crate) name: &'static str,
    /// Of the default network card: the VPC CNI gives pods no addresses of the others.
    pub(crate) interfaces: u32,
    pub(crate) addresses_per_interface: u32,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) hypervisor: Hypervisor,
    pub(crate) architecture: Architecture,
}

/// How the VPC CNI gives addresses to interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressMode {
    /// One by one; the CNI's default.
    Secondary,
    /// Prefixes of 16 (`ENABLE_PREFIX_DELEGATION`).
    Prefixes,
}

pub(crate) fn find(name: &str) -> Option<InstanceType> {
    let types = all();
    types.binary_search_by(|candidate| candidate.name.cmp(name)).ok().map(|at| types[at])
}

/// The type, or what to write in its place.
pub(crate) fn require(name: &str) -> Result<InstanceType, Invalid> {
    find(name).ok_or_else(|| {
        let invalid = Invalid::new(format!("\"{name}\" is not an EC2 instance type that this version knows"));
        match nearest(name, all().iter().map(|candidate| candidate.name)) {
            Some(near) => {
                invalid.advise(format!("did you mean \"{near}\"? For a newer type, write max pods as a number"))
            }
            None => invalid.advise("write it as in m5.large; for a newer type, write max pods as a number"),
        }
    })
}

/// How many pods have an address.
///
/// One by one: interfaces × (addresses − 1) + 2, as in EKS' eni-max-pods.txt and nodeadm: the first address of an
/// interface is the node's own. With prefixes: 16 times the addresses, but no more than EKS recommends. A type that
/// cannot have prefixes gets addresses one by one, as the CNI itself falls back.
pub(crate) fn max_pods(instance: &InstanceType, mode: AddressMode) -> u32 {
    let for_pods = instance.interfaces * (instance.addresses_per_interface - 1);
    match mode {
        AddressMode::Prefixes if supports_prefixes(instance) => {
            let most = if instance.cpus < CPUS_OF_LARGE { PODS_OF_SMALL } else { PODS_OF_LARGE };
            (for_pods * ADDRESSES_PER_PREFIX + HOST_NETWORK_PODS).min(most)
        }
        AddressMode::Prefixes | AddressMode::Secondary => for_pods + HOST_NETWORK_PODS,
    }
}

/// The VPC CNI's own rule: nitro, or the whole machine. (EKS' calculator asks for nitro only and is too low for metal.)
pub(crate) fn supports_prefixes(instance: &InstanceType) -> bool {
    matches!(instance.hypervisor, Hypervisor::Nitro | Hypervisor::Metal)
}

/// `/etc/eksctl/max_pods.map`: a line `TYPE PODS` for each type, sorted, nothing else.
pub fn max_pods_map() -> String {
    all().iter().fold(String::new(), |mut map, instance| {
        // Writing to a String cannot fail.
        let _ = writeln!(map, "{} {}", instance.name, max_pods(instance, AddressMode::Secondary));
        map
    })
}

/// Sorted by name.
fn all() -> &'static [InstanceType] {
    static TYPES: LazyLock<Vec<InstanceType>> = LazyLock::new(|| rows().filter_map(parse_row).collect());
    &TYPES
}

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

fn parse_row(row: &'static str) -> Option<InstanceType> {
    let mut words = row.split(' ');
    let name = words.next()?;
    let mut number = || words.next()?.parse::<u32>().ok();
    let mut instance = InstanceType {
        name,
        interfaces: number()?,
        addresses_per_interface: number().filter(|addresses| *addresses > 0)?,
        cpus: number()?,
        memory_mib: number()?,
        hypervisor: Hypervisor::Nitro,
        architecture: Architecture::Amd64,
    };
    for word in words {
        match word {
            "xen" => instance.hypervisor = Hypervisor::Xen,
            "metal" => instance.hypervisor = Hypervisor::Metal,
            "arm64" => instance.architecture = Architecture::Arm64,
            _ => return None,
        }
    }
    Some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_sorted() {
        assert_eq!(all().len(), rows().count());
        assert!(all().is_sorted_by(|one, next| one.name < next.name));
        for instance in all() {
            assert_eq!(find(instance.name).as_ref(), Some(instance));
            assert!(instance.interfaces > 0 && instance.cpus > 0 && instance.memory_mib > 0, "{}", instance.name);
            // Far from overflow: max_pods multiplies without checks.
            assert!(instance.interfaces <= 1000 && instance.addresses_per_interface <= 1000, "{}", instance.name);
        }
    }

    #[test]
    fn a_row_says_what_the_machine_is() {
        let expected = InstanceType {
            name: "a1.metal",
            interfaces: 8,
            addresses_per_interface: 30,
            cpus: 16,
            memory_mib: 32768,
            hypervisor: Hypervisor::Metal,
            architecture: Architecture::Arm64,
        };
        assert_eq!(find("a1.metal"), Some(expected));
        for bad in ["m5.large", "m5.large 3 10 2", "m5.large 3 0 2 8192", "m5.large 3 10 2 8192 kvm", ""] {
            assert_eq!(parse_row(bad), None, "{bad}");
        }
    }

    /// The numbers are those of EKS' eni-max-pods.txt; p5 and c6in have several network cards, of which one counts.
    #[test]
    fn max_pods_is_what_eks_gives() {
        for (name, pods) in [
            ("m5.large", 29),
            ("t3.nano", 4),
            ("m5.4xlarge", 234),
            ("c6in.32xlarge", 394),
            ("p5.48xlarge", 100),
            ("trn1.32xlarge", 247),
            ("hpc6id.32xlarge", 51),
            ("g5.48xlarge", 345),
            ("u7in-32tb.224xlarge", 394),
        ] {
            assert_eq!(max_pods(&find(name).unwrap(), AddressMode::Secondary), pods, "{name}");
        }
    }

    #[test]
    fn prefixes_give_more_pods_up_to_what_is_recommended() {
        for (name, pods) in [
            ("m5.large", 110),
            ("t3.nano", 34),      // 2 × 1 × 16 + 2
            ("m5.8xlarge", 250),  // 32 vCPUs
            ("m5.4xlarge", 110),  // 16 vCPUs: fewer than without prefixes, as EKS recommends
            ("a1.metal", 110),    // no hypervisor
            ("t2.micro", 4),      // xen: one by one
            ("p3.16xlarge", 234), // xen, 64 vCPUs
        ] {
            assert_eq!(max_pods(&find(name).unwrap(), AddressMode::Prefixes), pods, "{name}");
        }
    }

    #[test]
    fn an_unknown_type_is_answered_with_the_nearest() {
        let invalid = require("m5.lagre").unwrap_err();
        assert!(invalid.message.contains("\"m5.lagre\""));
        assert!(invalid.advice.unwrap().contains("\"m5.large\""));
        assert!(require("Standard_D4s_v5").unwrap_err().advice.unwrap().contains("as in m5.large"));
        assert_eq!(find(""), None);
    }

    /// eksctl's bootstrap reads the map with bash's `read` into two words and wants the second to be a number.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the reader of the map is a bash script")]
    fn bash_finds_a_types_pods_in_the_map() {
        const READER: &str = r#"
            for wanted in "$@"; do
                answer=
                while read type pods; do
                    if [[ $type == "$wanted" && $pods =~ ^[0-9]+$ ]]; then answer=$pods; break; fi
                done < "$MAP"
                echo "$wanted=$answer"
            done"#;
        let map = std::env::temp_dir().join(format!("nodestrap-max-pods-{}.map", std::process::id()));
        std::fs::write(&map, max_pods_map()).unwrap();
        let output = std::process::Command::new("bash")
            .args(["-c", READER, "reader", "m5.large", "a1.2xlarge", "z1d.xlarge", "m5.larg", "p5.48xlarge"])
            .env("MAP", &map)
            .output()
            .unwrap();
        std::fs::remove_file(&map).unwrap();
        let answers = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answers, "m5.large=29\na1.2xlarge=58\nz1d.xlarge=58\nm5.larg=\np5.48xlarge=100\n");
    }
}
