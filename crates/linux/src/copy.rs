//! `memcpy` and `memmove` for executables with musl on x86-64.
//!
//! musl copies with `rep movsq`, however few bytes there are (src/string/x86_64/memcpy.s). This instruction needs about thirty cycles to start.
//! An ADD makes thousands of copies, nearly all of less than 64 bytes. Up to 128 bytes are copied here by two to eight moves of at most 16 bytes,
//! which may overlap.

use std::arch::asm;
use std::ptr::{read_unaligned, write_unaligned};

/// Copies the first and the last values of a type, a pair of names for each. All are read before the first is written: the pieces of memory may
/// overlap.
macro_rules! ends {
    ($type:ty, $to:ident, $from:ident, $n:ident, $($at:literal: $first:ident $last:ident),+) => {{
        const SIZE: usize = size_of::<$type>();
        // SAFETY: all are within the `n` bytes, as the arm of the match says.
        unsafe {
            let (from_end, to_end) = ($from.add($n), $to.add($n));
            $(
                let $first = read_unaligned($from.add($at * SIZE).cast::<$type>());
                let $last = read_unaligned(from_end.sub(($at + 1) * SIZE).cast::<$type>());
            )+
            $(
                write_unaligned($to.add($at * SIZE).cast(), $first);
                write_unaligned(to_end.sub(($at + 1) * SIZE).cast(), $last);
            )+
        }
    }};
}

/// `n` bytes at `from` go to `to`.
///
/// # Safety
/// Both must have `n` bytes.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    match n {
        0 => {}
        1 => ends!(u8, to, from, n, 0: a b),
        2..=3 => ends!(u16, to, from, n, 0: a b),
        4..=7 => ends!(u32, to, from, n, 0: a b),
        8..=15 => ends!(u64, to, from, n, 0: a b),
        16..=32 => ends!(u128, to, from, n, 0: a b),
        33..=64 => ends!(u128, to, from, n, 0: a b, 1: c d),
        65..=128 => ends!(u128, to, from, n, 0: a b, 1: c d, 2: e f, 3: g h),
        // From the first byte to the last, which is safe if `to` is before `from` or behind its end.
        _ if to.addr().wrapping_sub(from.addr()) >= n => {
            // SAFETY: the caller has both pieces of memory. The ABI has the direction flag clear.
            unsafe {
                asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
            }
        }
        // SAFETY: the same, from the last byte to the first. `cld` clears the flag again.
        _ => unsafe {
            let (to, from) = (to.add(n - 1), from.add(n - 1));
            asm!("std", "rep movsb", "cld", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack));
        },
    }
}

/// C's `memmove`.
///
/// # Safety
/// Both must have `n` bytes.
#[cfg_attr(target_env = "musl", unsafe(no_mangle))]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: as the caller has promised.
    unsafe { copy(to, from, n) };
    to
}

/// C's `memcpy`: the same, where the two do not overlap.
///
/// # Safety
/// Both must have `n` bytes.
#[cfg_attr(target_env = "musl", unsafe(no_mangle))]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: as the caller has promised.
    unsafe { copy(to, from, n) };
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_bytes_arrives_and_no_more() {
        let from: Vec<u8> = (0..400).map(|n: u32| n.to_le_bytes()[0] ^ 0x5a).collect();
        for n in 0..300 {
            for (at, back) in [(0, 0), (1, 3), (7, 16)] {
                let mut to = vec![0xff; 400];
                // SAFETY: there are 400 of each.
                let end = unsafe { memcpy(to.as_mut_ptr().add(at), from.as_ptr().add(back), n) };
                assert_eq!(end, to[at..].as_mut_ptr());
                let expected = [&[0xff; 400][..at], &from[back..back + n], &[0xff; 400][at + n..]].concat();
                assert!(to == expected, "{n} bytes from {back} to {at}");
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved_as_a_whole() {
        let before: Vec<u8> = (0..400).map(|n: u32| n.to_le_bytes()[0] ^ 0x5a).collect();
        for n in 0..300 {
            for (to, from) in [(0, 1), (1, 0), (0, 17), (17, 0), (40, 3), (3, 40), (5, 5)] {
                let (mut moved, mut expected) = (before.clone(), before.clone());
                // SAFETY: there are 400 bytes.
                unsafe { memmove(moved.as_mut_ptr().add(to), moved.as_ptr().add(from), n) };
                expected.copy_within(from..from + n, to);
                assert!(moved == expected, "{n} bytes from {from} to {to}");
            }
        }
    }
}
