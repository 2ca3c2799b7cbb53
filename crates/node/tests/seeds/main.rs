//! A node that crashes, fails and is damaged in any way that a seed can think of, thousands of times.
//!
//! A seed picks a story: a bundle or an upgrade between two, an image, one to three runs of `apply` with trouble in each
//! (death of the process or the machine before, in the middle of or after any effect; a full, failing, read-only or lost
//! disk from any effect on; units that fail, hang or have no bus), damage to the journal and the gate in between, and
//! every time another order of the workers. What is un-synced when the power goes is lost, kept or torn name by name.
//!
//! After *every* effect the whole set of states that a power loss could leave is looked at, not one of them: a gate that
//! could be found open must vouch for bytes that are right and durable. In the end a run without trouble makes the same
//! tree as one on a new machine, and leaves no temporary file.
//!
//! ```text
//! NODESTRAP_SEEDS=1000000 cargo test -p node --test seeds many    more seeds
//! NODESTRAP_SEED=4711 cargo test -p node --test seeds replay -- --nocapture    one, with all that it does
//! ```
#![allow(clippy::disallowed_methods, reason = "the test reads which seeds are wanted")]

#[path = "../../../bundle/tests/generator/mod.rs"]
mod generator;
mod scenario;
#[path = "../support/mod.rs"]
mod support;
mod watch;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use scenario::{Cast, Seen, play};
use watch::Defect;

/// In every `make test`; a hundred thousand in `make soak`.
const SEEDS: u64 = 20_000;

/// A protocol that is broken on purpose must be found out within so many seeds.
const SEEDS_TO_FIND_A_DEFECT: u64 = 2_000;

fn wanted(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// The lowest failing seed with what went wrong, or what all of them have seen.
fn play_all(cast: &Cast, seeds: Range<u64>, defect: Defect) -> Result<Seen, (u64, String)> {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let seen = Mutex::new(Seen::default());
    let work = || {
        let mut own = Seen::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Err(reason) = play_one(cast, seed, defect, &mut own) {
                stop.store(true, Ordering::Relaxed);
                let mut failure = failure.lock().expect("nobody panics with it");
                if failure.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                    *failure = Some((seed, reason));
                }
            }
        }
        seen.lock().expect("nobody panics with it").add(&own);
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    match failure.into_inner().expect("nobody panics with it") {
        Some(failure) => Err(failure),
        None => Ok(seen.into_inner().expect("nobody panics with it")),
    }
}

fn play_one(cast: &Cast, seed: u64, defect: Defect, seen: &mut Seen) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| play(cast, seed, defect, seen, &|_| {}))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

#[test]
fn many_seeds_end_in_the_same_node_or_a_shut_gate() {
    let cast = Cast::new();
    let seeds = wanted("NODESTRAP_SEEDS").unwrap_or(SEEDS);
    // A sample of its own for each commit; the same for everybody who tests that commit.
    let start = wanted("NODESTRAP_SAMPLE").unwrap_or(0) << 20;
    match play_all(&cast, start..start + seeds, Defect::None) {
        Ok(seen) => {
            println!("{seeds} seeds from {start}: {seen:?}");
            seen.assert_all_happened(seeds);
        }
        Err((seed, reason)) => panic!(
            "seed {seed}: {reason}\nreplay: NODESTRAP_SEED={seed} cargo test -p node --test seeds replay -- --nocapture"
        ),
    }
}

/// One seed, told step by step.
#[test]
fn replay() {
    let Some(seed) = wanted("NODESTRAP_SEED") else { return };
    let tell = |line: String| println!("{line}");
    play(&Cast::new(), seed, Defect::None, &mut Seen::default(), &tell).unwrap_or_else(|reason| panic!("{reason}"));
}

/// The same stories on protocols that are each broken in one place: a harness that does not see them is worth nothing.
#[test]
fn every_defect_that_is_put_in_is_found() {
    let cast = Cast::new();
    for defect in Defect::ALL {
        match play_all(&cast, 0..SEEDS_TO_FIND_A_DEFECT, defect) {
            Ok(_) => panic!("{SEEDS_TO_FIND_A_DEFECT} seeds did not find {defect:?}"),
            Err((seed, reason)) => println!("{defect:?}: seed {seed}: {reason}"),
        }
    }
}
