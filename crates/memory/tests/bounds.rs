//! Every length that takes another way, at every alignment, with pages on both sides that nobody may touch.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, clippy::unwrap_used, reason = "what is tested is unsafe to call, and a test may panic")]

use std::cmp::Ordering;

use proptest::prelude::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;
/// Past two blocks, and past a loop of several.
const LENGTHS: usize = 420;

/// A page between two that end the test with a signal when they are touched.
struct Guarded(*mut u8);

impl Guarded {
    fn new() -> Self {
        // SAFETY: a new mapping, of which only the page in the middle is used.
        unsafe {
            let pages = mmap_anonymous(std::ptr::null_mut(), 3 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE).unwrap();
            let middle = pages.cast::<u8>().add(PAGE);
            mprotect(middle.cast(), PAGE, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
            Self(middle)
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the page is ours and stays mapped as long as we do.
        unsafe { std::slice::from_raw_parts_mut(self.0, PAGE) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: these three pages were mapped together, and nobody else knows them.
        unsafe { munmap(self.0.sub(PAGE).cast(), 3 * PAGE).unwrap() };
    }
}

/// No two neighbours, and no two that are a power of two apart, are alike.
fn pattern(seed: usize) -> impl Iterator<Item = u8> {
    (0..PAGE).map(move |index| ((index + seed) * 167 % 251) as u8)
}

fn fill(page: &mut Guarded, seed: usize) {
    page.bytes().iter_mut().zip(pattern(seed)).for_each(|(byte, new)| *byte = new);
}

/// Places for so many bytes: the first and the last that there are, and one of each alignment.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let end = PAGE - length;
    (0..17).chain([end]).chain((1..17).map(move |back| end - back))
}

#[test]
fn every_length_is_copied_and_nothing_beside_it() {
    let (mut from, mut to) = (Guarded::new(), Guarded::new());
    fill(&mut from, 1);
    for length in 0..LENGTHS {
        for (source, target) in places(length).zip(places(length).skip(5).chain(places(length))) {
            fill(&mut to, 7);
            let mut expected = to.bytes().to_vec();
            expected[target..target + length].copy_from_slice(&from.bytes()[source..source + length]);
            // SAFETY: both lie within their pages.
            unsafe { memory::copy(to.0.add(target), from.0.add(source), length) };
            assert!(to.bytes() == expected, "{length} bytes from {source} to {target}");
        }
    }
}

#[test]
fn what_overlaps_is_moved() {
    let mut page = Guarded::new();
    for length in 0..LENGTHS {
        for distance in (0..20).chain([31, 32, 33, 63, 64, 65, 127, 128, 129, 200]) {
            for (source, target) in [(0, distance), (distance, 0)] {
                fill(&mut page, 3);
                let mut expected = page.bytes().to_vec();
                expected.copy_within(source..source + length, target);
                // SAFETY: both lie within the page.
                unsafe { memory::copy(page.0.add(target), page.0.add(source), length) };
                assert!(page.bytes() == expected, "{length} bytes from {source} to {target}");
            }
        }
    }
}

#[test]
fn the_first_byte_that_differs_decides() {
    let (mut one, mut other) = (Guarded::new(), Guarded::new());
    for length in 0..LENGTHS {
        for start in places(length).take(18) {
            fill(&mut one, 0);
            let copy = one.bytes()[start..start + length].to_vec();
            let beside = PAGE - length;
            other.bytes()[beside..].copy_from_slice(&copy);
            // SAFETY: both lie within their pages.
            let compare = |one: &Guarded, other: &Guarded| unsafe {
                memory::compare(one.0.add(start), other.0.add(beside), length)
            };
            assert_eq!(compare(&one, &other), Ordering::Equal, "{length} bytes");
            for differs in 0..length {
                let byte = &mut other.bytes()[beside + differs];
                let before = std::mem::replace(byte, byte.wrapping_add(128));
                // What comes behind says the opposite.
                let behind = differs + 1 < length;
                if behind {
                    let next = &mut other.bytes()[beside + differs + 1];
                    *next = if before >= 128 { 0 } else { 255 };
                }
                let expected = one.bytes()[start..start + length].cmp(&other.bytes()[beside..]);
                assert_eq!(compare(&one, &other), expected, "{length} bytes, the one at {differs}");
                other.bytes()[beside..].copy_from_slice(&copy);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn large_ones_too(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), cut in any::<prop::sample::Index>()) {
        let start = cut.index(bytes.len() + 1);
        let length = bytes.len() - start;
        let (mut forward, mut backward) = (bytes.clone(), bytes.clone());
        // SAFETY: both have `bytes.len()` bytes.
        unsafe {
            memory::copy(forward.as_mut_ptr(), forward.as_ptr().add(start), length);
            memory::copy(backward.as_mut_ptr().add(start), backward.as_ptr(), length);
        }
        prop_assert_eq!(&forward[..length], &bytes[start..]);
        prop_assert_eq!(&backward[start..], &bytes[..length]);
        // SAFETY: all have `length` bytes there.
        unsafe {
            prop_assert_eq!(memory::compare(bytes.as_ptr(), forward.as_ptr(), length), bytes[..length].cmp(&forward[..length]));
        }
    }
}
