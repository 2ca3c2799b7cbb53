//! The fuzz targets of `fuzz/` on a stable compiler: over every seed, and over a fixed number of broken ones. So they cannot
//! rot, and what `make fuzz` found once stays found. A failure names the file that reproduces it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;
#[allow(unreachable_pub, reason = "a crate of its own for the fuzzer")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use support::repository;

/// Enough to break what was never tried; `make fuzz` is for the rest, or this with more where there is no nightly compiler.
const BROKEN: usize = 400;

fn rounds() -> usize {
    std::env::var("NODESTRAP_FUZZ_ROUNDS").map_or(BROKEN, |rounds| rounds.parse().expect("a number of rounds"))
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let seeds = targets::seeds::seeds(&repository()).remove(target).unwrap_or_default();
    assert!(seeds.len() > 60, "{target} has {} seeds", seeds.len());
    seeds
}

/// Xorshift: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// What has broken parsers before.
const WORDS: [&[u8]; 24] = [
    b"\0",
    b"\n",
    b": ",
    b"- ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"&a ",
    b"*a ",
    b"!!binary ",
    b"---\n",
    b"...\n",
    b"\xff",
    b"\xef\xbb\xbf",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b"\x1b[31m",
    b"\xe2\x80\xae",
    b"\x1f\x8b",
];

fn broken(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut data = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(data.len() + 1);
        let end = (at + 1 + numbers.below(40)).min(data.len());
        match numbers.below(6) {
            0 if at < data.len() => data[at] ^= 1 << numbers.below(8),
            1 => drop(data.drain(at.min(end)..end)),
            2 => {
                let part = data[at.min(end)..end].repeat(1 + numbers.below(3));
                data.splice(at..at, part);
            }
            3 => drop(data.splice(at..at, WORDS[numbers.below(WORDS.len())].iter().copied())),
            4 => {
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len());
                let to = (from + numbers.below(200)).min(other.len());
                data.splice(at..at, other[from..to].iter().copied());
            }
            _ => data.truncate(at),
        }
    }
    data
}

#[track_caller]
fn holds(name: &str, target: fn(&[u8])) {
    let seeds = seeds(name);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let inputs = seeds.iter().cloned().chain(std::iter::repeat_with(|| broken(&seeds, &mut numbers)).take(rounds()));
    for (number, input) in inputs.enumerate() {
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{number}"));
            std::fs::write(&kept, &input).unwrap();
            panic!("{name} fails on {}", kept.display());
        }
    }
}

#[test]
fn specs() {
    holds("spec_text", targets::spec_text);
}

#[test]
fn user_data() {
    holds("user_data", targets::user_data);
}

#[test]
fn bundles() {
    holds("bundle", targets::bundle);
}

#[test]
fn files_of_a_node() {
    holds("node_files", targets::node_files);
}

#[test]
fn manifests() {
    holds("manifest", targets::manifest);
}

#[test]
fn signatures() {
    holds("signature", targets::signature);
}

#[test]
fn archives() {
    holds("tar", targets::tar);
}

#[test]
fn what_others_write_for_torcx() {
    holds("torcx", targets::torcx);
}

/// libFuzzer must run what is run here.
#[test]
fn every_target_is_a_program_for_the_fuzzer() {
    let manifest = support::text(repository().join("fuzz/Cargo.toml"));
    for name in ["spec_text", "user_data", "bundle", "node_files", "manifest", "signature", "tar", "torcx"] {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let program = support::text(repository().join(format!("fuzz/fuzz_targets/{name}.rs")));
        assert!(program.contains(&format!("fuzz::{name}(data)")), "{name}");
        assert!(support::text(repository().join("fuzz/run")).contains(name), "{name}");
    }
    assert_eq!(std::fs::read_dir(repository().join("fuzz/fuzz_targets")).unwrap().count(), 8);
}
