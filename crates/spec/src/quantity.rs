//! Kubernetes' quantities (`500m`, `1Gi`, `1e3`), exactly, and what a node keeps back from its pods.
//!
//! Parsed and printed as the API server does (`resource.Quantity`), but nothing is rounded: what it would round or cap
//! is refused.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::values::Invalid;

/// The finest that Kubernetes keeps: 10⁻⁹.
const NANO: i128 = 1_000_000_000;
/// The largest that Kubernetes keeps with a binary suffix, in nano; no resource of a node is larger.
const LARGEST: i128 = i64::MAX as i128 * NANO;
/// Bounds the arithmetic; the longest exact quantity has 19 digits before the point and 9 behind it.
const LONGEST: usize = 64;

const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: &[(&str, i32)] =
    &[("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// How a quantity was written, and so how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// An amount of a resource. Compared by amount: `1000m` equals `1`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    pub(crate) fn from_milli(milli: u32) -> Self {
        Self { nano: i128::from(milli) * (NANO / 1000), format: Format::Decimal }
    }

    pub(crate) fn from_mebibytes(mebibytes: u32) -> Self {
        Self { nano: (i128::from(mebibytes) << 20) * NANO, format: Format::Binary }
    }

    /// In whole units, if that is exact: bytes of a memory.
    pub(crate) fn whole(self) -> Option<i128> {
        (self.nano % NANO == 0).then_some(self.nano / NANO)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

/// Canonical: no fraction, and the largest suffix that allows it.
impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Format::Binary, Some(whole)) = (self.format, self.whole())
            && whole.abs() >= 1024
            // 62.5Ki is no whole number of them, and goes on as 64k.
            && let Some((suffix, shift)) = BINARY.iter().rev().find(|(_, shift)| whole % (1i128 << shift) == 0)
        {
            return write!(formatter, "{}{suffix}", whole >> shift);
        }
        if self.nano == 0 {
            return formatter.write_str("0");
        }
        let scale = |exponent: i32| 10i128.pow((exponent + 9).unsigned_abs());
        let largest = DECIMAL.iter().rev().find(|(_, exponent)| self.nano % scale(*exponent) == 0);
        let (suffix, exponent) = largest.copied().unwrap_or(("n", -9));
        write!(formatter, "{}", self.nano / scale(exponent))?;
        match self.format {
            Format::Exponent if exponent != 0 => write!(formatter, "e{exponent}"),
            _ => formatter.write_str(suffix),
        }
    }
}

impl FromStr for Quantity {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let not_a_quantity = || Invalid::new(format!("\"{text}\" is not a quantity"));
        const SHAPE: &str = "write a number and a suffix, for example 500m, 2, 512Mi or 1Gi";
        if text.len() > LONGEST {
            return Err(Invalid::new(format!("a quantity cannot be longer than {LONGEST} characters")).advise(SHAPE));
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(not_a_quantity().advise(SHAPE));
        }
        let Some(unit) = parse_suffix(suffix) else {
            return Err(not_a_quantity().advise(advise_suffix(number, suffix).unwrap_or_else(|| SHAPE.to_owned())));
        };
        let fraction = fraction.trim_end_matches('0');
        let nano = in_nano(whole, fraction, unit).map_err(|problem| match problem {
            OutOfBounds::TooLarge => not_a_quantity().advise(format!("it is too large: {} is the largest", i64::MAX)),
            OutOfBounds::TooFine => not_a_quantity().advise("it is too fine: 1n is the finest"),
        })?;
        let format = match unit {
            Unit::Binary(_) => Format::Binary,
            Unit::Decimal(_) => Format::Decimal,
            Unit::Exponent(_) => Format::Exponent,
        };
        Ok(Self { nano: if negative { -nano } else { nano }, format })
    }
}

#[derive(Clone, Copy)]
enum Unit {
    /// Power of 2.
    Binary(u32),
    /// Power of 10.
    Decimal(i32),
    Exponent(i32),
}

fn parse_suffix(suffix: &str) -> Option<Unit> {
    if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some(Unit::Binary(*shift));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(Unit::Decimal(*exponent));
    }
    suffix.strip_prefix(['e', 'E'])?.parse().ok().map(Unit::Exponent)
}

fn advise_suffix(number: &str, suffix: &str) -> Option<String> {
    if suffix == "%" {
        return Some("a percentage is not an amount: write one, for example 500m or 1Gi".to_owned());
    }
    let without_space = suffix.trim();
    if without_space != suffix && parse_suffix(without_space).is_some() {
        return Some(format!("write {number}{without_space}, without the space"));
    }
    // `KB`, `gb`, `g`, `MiB`: the unit is clear, whether it counts in 1000 or 1024 is not.
    let lower = suffix.to_lowercase();
    let stem = lower.trim_end_matches('b').trim_end_matches('i');
    BINARY.iter().zip(["k", "M", "G", "T", "P", "E"]).find(|(_, decimal)| decimal.to_lowercase() == stem).map(
        |((binary, _), decimal)| {
            format!("write {number}{binary} for powers of 1024, or {number}{decimal} for powers of 1000")
        },
    )
}

enum OutOfBounds {
    TooLarge,
    TooFine,
}

/// `whole.fraction` times its unit.
fn in_nano(whole: &str, fraction: &str, unit: Unit) -> Result<i128, OutOfBounds> {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let mantissa: i128 = digits.parse().map_err(|_| OutOfBounds::TooLarge)?;
    let (shift, exponent) = match unit {
        Unit::Binary(shift) => (shift, 0),
        Unit::Decimal(exponent) | Unit::Exponent(exponent) => (0, exponent),
    };
    let fraction_length = i64::try_from(fraction.len()).map_err(|_| OutOfBounds::TooFine)?;
    // Nano: nine places to the left.
    let places = i64::from(exponent) + 9 - fraction_length;
    let scaled = mantissa.checked_mul(1i128 << shift).ok_or(OutOfBounds::TooLarge)?;
    let power = u32::try_from(places.unsigned_abs()).ok().and_then(|places| 10i128.checked_pow(places));
    let nano = match (places >= 0, power) {
        (true, power) => power.and_then(|power| scaled.checked_mul(power)).ok_or(OutOfBounds::TooLarge)?,
        (false, Some(power)) if scaled % power == 0 => scaled / power,
        (false, _) => return Err(OutOfBounds::TooFine),
    };
    if nano <= LARGEST { Ok(nano) } else { Err(OutOfBounds::TooLarge) }
}

/// What the kubelet keeps back for itself and the runtime: its field `kubeReserved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) cpu: Quantity,
    pub(crate) memory: Quantity,
    pub(crate) ephemeral_storage: Quantity,
}

impl Reserved {
    /// Sorted by name.
    pub(crate) fn entries(&self) -> [(&'static str, Quantity); 3] {
        [("cpu", self.cpu), ("ephemeral-storage", self.ephemeral_storage), ("memory", self.memory)]
    }
}

/// The rule of EKS (bootstrap.sh, nodeadm), whose share of the cpu is GKE's: 6 % of the first core, 1 % of the second,
/// 0.5 % of the next two, 0.25 % of the rest; 11 Mi of memory per pod and 255 Mi; 1 Gi of the disk.
///
/// `max_pods` is the effective one, whoever decided it: the kubelet's memory grows with the pods that it may really run.
pub(crate) fn reserved(cpus: u32, memory_mib: u32, max_pods: u32) -> Result<Reserved, Invalid> {
    const PER_POD_MIB: u32 = 11;
    const BASE_MIB: u32 = 255;
    let memory = max_pods.saturating_mul(PER_POD_MIB).saturating_add(BASE_MIB);
    // A kubelet that keeps back more than there is does not start.
    if memory >= memory_mib {
        let invalid = Invalid::new(format!(
            "the {memory}Mi of memory to keep back for {max_pods} pods are not less than the node's {memory_mib}Mi"
        ));
        let most = memory_mib.saturating_sub(BASE_MIB + 1) / PER_POD_MIB;
        return Err(match most {
            0 => invalid.advise("use a larger machine, or set kubeReserved yourself"),
            most => invalid.advise(format!("lower max pods to at most {most}, or set kubeReserved yourself")),
        });
    }
    Ok(Reserved {
        cpu: Quantity::from_milli(reserved_millicores(cpus)),
        memory: Quantity::from_mebibytes(memory),
        ephemeral_storage: Quantity::from_mebibytes(1024),
    })
}

/// Whole millicores, rounded down as EKS does: 2.5 for each core behind the fourth.
fn reserved_millicores(cpus: u32) -> u32 {
    let cores = |from: u32, to: u32| cpus.min(to).saturating_sub(from);
    let beyond = u64::from(cores(4, u32::MAX)) * 5 / 2;
    60 * cores(0, 1) + 10 * cores(1, 2) + 5 * cores(2, 4) + u32::try_from(beyond).unwrap_or(u32::MAX - 1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    /// Canonical as in k8s.io/apimachinery 0.37.2, with which a grid of 1176 texts was compared.
    #[test]
    fn quantities_are_printed_as_kubernetes_prints_them() {
        for (text, canonical) in [
            ("500m", "500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("0.5Ki", "512"),
            ("1.0009765625Ki", "1025"),
            ("1025Ki", "1025Ki"),
            ("1.1Ki", "1126400m"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-1", "1200e-3"),
            ("1000e3", "1e6"),
            ("1e0", "1"),
            ("1E", "1E"),
            ("100u", "100u"),
            ("1000n", "1u"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1.5Gi", "-1536Mi"),
            ("+2", "2"),
            ("-0.5", "-500m"),
            ("0001", "1"),
            ("9223372036854775807", "9223372036854775807"),
        ] {
            assert_eq!(quantity(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn amounts_are_exact() {
        assert_eq!(quantity("1.5Ki").whole(), Some(1536));
        assert_eq!(quantity("1.5").whole(), None);
        assert_eq!(quantity("1000m"), quantity("1"));
        assert!(quantity("999Mi") < quantity("1Gi") && quantity("1G") < quantity("1Gi"));
    }

    #[test]
    fn what_is_no_quantity_says_what_to_write() {
        for (text, advice) in [
            ("", "a number and a suffix"),
            ("Gi", "a number and a suffix"),
            (".", "a number and a suffix"),
            ("1.2.3", "a number and a suffix"),
            ("10%", "a percentage is not an amount"),
            ("1 Gi", "write 1Gi, without the space"),
            ("1GB", "1Gi for powers of 1024, or 1G"),
            ("2g", "2Gi for powers of 1024, or 2G"),
            ("4K", "4Ki for powers of 1024, or 4k"),
            ("4MiB", "4Mi for powers of 1024, or 4M"),
            ("1e", "1Ei for powers of 1024, or 1E"),
            ("1x", "a number and a suffix"),
            ("1e1.5", "a number and a suffix"),
            ("--1", "a number and a suffix"),
            ("1ä", "a number and a suffix"),
            ("9223372036854775808", "too large"),
            ("8Ei", "too large"),
            ("1e2147483647", "too large"),
            ("0.1n", "too fine"),
            ("1e-2147483648", "too fine"),
            ("0.0000000001Ki", "too fine"),
        ] {
            let invalid = text.parse::<Quantity>().unwrap_err();
            assert!(invalid.advice.as_deref().is_some_and(|given| given.contains(advice)), "{text}: {invalid:?}");
        }
    }

    #[test]
    fn what_is_kept_back_follows_the_effective_max_pods() {
        let entries = |cpus, memory_mib, max_pods| {
            let reserved = reserved(cpus, memory_mib, max_pods).unwrap();
            reserved.entries().map(|(name, amount)| format!("{name}={amount}")).join(" ")
        };
        assert_eq!(entries(2, 8192, 29), "cpu=70m ephemeral-storage=1Gi memory=574Mi");
        assert_eq!(entries(2, 8192, 110), "cpu=70m ephemeral-storage=1Gi memory=1465Mi");
        assert_eq!(entries(1, 2048, 8), "cpu=60m ephemeral-storage=1Gi memory=343Mi");
        assert_eq!(entries(4, 16384, 58), "cpu=80m ephemeral-storage=1Gi memory=893Mi");
        assert_eq!(entries(5, 16384, 58), "cpu=82m ephemeral-storage=1Gi memory=893Mi");
        assert_eq!(entries(96, 393_216, 737), "cpu=310m ephemeral-storage=1Gi memory=8362Mi");
    }

    #[test]
    fn a_node_does_not_keep_back_more_than_it_has() {
        let invalid = reserved(2, 512, 110).unwrap_err();
        assert!(invalid.message.contains("1465Mi") && invalid.message.contains("512Mi"), "{invalid:?}");
        assert!(invalid.advice.unwrap().contains("at most 23"));
        assert!(reserved(2, 512, 23).is_ok() && reserved(2, 512, 24).is_err());
        assert!(reserved(2, 200, 1).unwrap_err().advice.unwrap().contains("larger machine"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,70}", shaped in "[-+]?[0-9.]{0,30}[a-zA-Z%]{0,3}[-+]?[0-9]{0,12}") {
            let _ = text.parse::<Quantity>();
            let _ = shaped.parse::<Quantity>();
        }

        #[test]
        fn what_is_printed_is_the_same_amount_and_stays_as_it_is(
            number in "[0-9]{1,6}(\\.[0-9]{1,6})?",
            suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "e-2"]),
        ) {
            if let Ok(quantity) = format!("{number}{suffix}").parse::<Quantity>() {
                let printed = quantity.to_string();
                prop_assert_eq!(printed.parse::<Quantity>().unwrap(), quantity);
                prop_assert_eq!(printed.parse::<Quantity>().unwrap().to_string(), printed);
            }
        }

        #[test]
        fn reservations_never_overflow(cpus: u32, memory_mib: u32, max_pods: u32) {
            if let Ok(reserved) = reserved(cpus, memory_mib, max_pods) {
                prop_assert!(reserved.memory < Quantity::from_mebibytes(memory_mib));
            }
        }
    }
}
