//! `memcpy`, `memmove` and `memcmp` for the static binary on x86-64.
//!
//! musl's are written to be small: they copy up to the next word byte after byte, then start a `rep movsq`, which takes
//! longer than all the copying of a short text, and compare byte after byte. What renders a fleet, and what reads and
//! checks a spec, is made of short texts; a fifth of its time was spent in `memcpy`. Other targets keep what they have.
//!
//! A program gets them by naming this crate (`use memory as _;`): they are linked before those of the C library.
#![no_std]
// Without it the compiler may make a call of `memcpy` out of a loop that copies.
#![no_builtins]
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "memory is what this is about; tests/bounds.rs runs every length against guard pages")]

use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_storeu_si128};
use core::cmp::Ordering;

/// How many bytes the processor's first vectors, which every x86-64 has, hold.
const VECTOR: usize = 16;
/// As many as a loop handles in one go.
const BLOCK: usize = 4 * VECTOR;

// Without optimisation the functions below would call what they are to be.
#[cfg(all(target_env = "musl", not(debug_assertions)))]
mod c_library {
    use core::cmp::Ordering;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `memcpy`, which are stricter.
        unsafe { super::copy(to, from, length) };
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: the rules of `memmove` are ours.
        unsafe { super::copy(to, from, length) };
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
        // SAFETY: the rules of `memcmp` are ours.
        match unsafe { super::compare(one, other, length) } {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
        // SAFETY: the same.
        unsafe { memcmp(one, other, length) }
    }
}

/// Copies; the two may overlap.
///
/// Everything up to two blocks is loaded before anything is stored, from both ends towards the middle, where the pieces
/// overlap unless the length fits: no length needs a loop over single bytes, and no direction is wrong.
///
/// # Safety
/// `from` can be read and `to` be written for `length` bytes.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: in every branch offsets are at most `length` less the size of what is loaded or stored there.
    unsafe {
        match length {
            0 => {}
            1 => *to = *from,
            2..4 => copy_ends::<u16>(to, from, length),
            4..8 => copy_ends::<u32>(to, from, length),
            8..=16 => copy_ends::<u64>(to, from, length),
            17..=32 => {
                let (first, last) = (load(from), load(from.add(length - VECTOR)));
                store(to, first);
                store(to.add(length - VECTOR), last);
            }
            33..=64 => {
                let last = length - 2 * VECTOR;
                let (a, b) = (load(from), load(from.add(VECTOR)));
                let (c, d) = (load(from.add(last)), load(from.add(last + VECTOR)));
                store(to, a);
                store(to.add(VECTOR), b);
                store(to.add(last), c);
                store(to.add(last + VECTOR), d);
            }
            65..=128 => {
                let (first, last) = (load_block(from), load_block(from.add(length - BLOCK)));
                store_block(to, first);
                store_block(to.add(length - BLOCK), last);
            }
            // Wraps to a large number where `to` lies before `from`.
            _ if (to as usize).wrapping_sub(from as usize) >= length => copy_forward(to, from, length),
            _ => copy_backward(to, from, length),
        }
    }
}

/// The first and the last bytes, as many as a `T` has.
#[inline(always)]
unsafe fn copy_ends<T>(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller has at least one `T` and at most two, and none of them needs to be aligned.
    unsafe {
        let last = length - size_of::<T>();
        let first_piece = from.cast::<T>().read_unaligned();
        let last_piece = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(first_piece);
        to.add(last).cast::<T>().write_unaligned(last_piece);
    }
}

/// More than a block, to where it does not overlap or lies before.
unsafe fn copy_forward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: `at` stays below `last`, and a block from there on is within `length`.
    unsafe {
        let last = length - BLOCK;
        // Before the loop, which may write over it.
        let last_block = load_block(from.add(last));
        let mut at = 0;
        while at < last {
            store_block(to.add(at), load_block(from.add(at)));
            at += BLOCK;
        }
        store_block(to.add(last), last_block);
    }
}

/// The same from the end, to where it lies behind.
unsafe fn copy_backward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: `at` is more than a block, and at most `length`, when a block before it is copied.
    unsafe {
        let first_block = load_block(from);
        let mut at = length;
        while at > BLOCK {
            at -= BLOCK;
            store_block(to.add(at), load_block(from.add(at)));
        }
        store_block(to, first_block);
    }
}

#[inline(always)]
unsafe fn load(from: *const u8) -> __m128i {
    // SAFETY: the caller has a vector there, which need not be aligned.
    unsafe { _mm_loadu_si128(from.cast()) }
}

#[inline(always)]
unsafe fn store(to: *mut u8, vector: __m128i) {
    // SAFETY: the caller has room for a vector there, which need not be aligned.
    unsafe { _mm_storeu_si128(to.cast(), vector) };
}

/// Not an array: it would be put together in memory.
type Block = (__m128i, __m128i, __m128i, __m128i);

#[inline(always)]
unsafe fn load_block(from: *const u8) -> Block {
    // SAFETY: the caller has a block there.
    unsafe { (load(from), load(from.add(VECTOR)), load(from.add(2 * VECTOR)), load(from.add(3 * VECTOR))) }
}

#[inline(always)]
unsafe fn store_block(to: *mut u8, block: Block) {
    // SAFETY: the caller has room for a block there.
    unsafe {
        store(to, block.0);
        store(to.add(VECTOR), block.1);
        store(to.add(2 * VECTOR), block.2);
        store(to.add(3 * VECTOR), block.3);
    }
}

/// Which of two is the greater one, by the first byte that differs.
///
/// # Safety
/// Both can be read for `length` bytes.
#[inline]
pub unsafe fn compare(one: *const u8, other: *const u8, length: usize) -> Ordering {
    // SAFETY: in every branch offsets are at most `length` less the size of what is loaded there. Where the last piece
    // overlaps the one before, the bytes that are compared twice are equal.
    unsafe {
        match length {
            0 => Ordering::Equal,
            1 => (*one).cmp(&*other),
            2..4 => {
                let first = compare_words(one.cast::<u16>(), other.cast(), u16::to_be);
                first.then_with(|| (*one.add(length - 1)).cmp(&*other.add(length - 1)))
            }
            4..8 => compare_words(one.cast::<u32>(), other.cast(), u32::to_be).then_with(|| {
                let last = length - 4;
                compare_words(one.add(last).cast::<u32>(), other.add(last).cast(), u32::to_be)
            }),
            8..=16 => compare_words(one.cast::<u64>(), other.cast(), u64::to_be).then_with(|| {
                let last = length - 8;
                compare_words(one.add(last).cast::<u64>(), other.add(last).cast(), u64::to_be)
            }),
            _ => compare_vectors(one, other, length),
        }
    }
}

/// The first byte weighs most.
#[inline(always)]
unsafe fn compare_words<T: Ord>(one: *const T, other: *const T, to_big_endian: impl Fn(T) -> T) -> Ordering {
    // SAFETY: the caller has a `T` in both places.
    unsafe { to_big_endian(one.read_unaligned()).cmp(&to_big_endian(other.read_unaligned())) }
}

unsafe fn compare_vectors(one: *const u8, other: *const u8, length: usize) -> Ordering {
    let last = length - VECTOR;
    let mut at = 0;
    loop {
        // SAFETY: `at` is `last` at most.
        let differing = unsafe {
            let same = _mm_cmpeq_epi8(load(one.add(at)), load(other.add(at)));
            !_mm_movemask_epi8(same) & 0xffff
        };
        if differing != 0 {
            let byte = at + differing.trailing_zeros() as usize;
            // SAFETY: it is one of the sixteen that were compared.
            return unsafe { (*one.add(byte)).cmp(&*other.add(byte)) };
        }
        if at == last {
            return Ordering::Equal;
        }
        at = last.min(at + VECTOR);
    }
}
