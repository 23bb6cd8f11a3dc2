//! Small blocks of memory.
//!
//! ```text
//!   up to 512 bytes   a list of free blocks for each multiple of 16 bytes --empty--> the next bytes of a chunk --used up--> another chunk
//!   more              the allocator behind
//! ```
//!
//! An ADD asks for some thousand small blocks and gives most of them back at once. An allocator that joins and splits its blocks, behind a
//! lock of the C library, took a third of the instructions of a program that is executed for each call; and for sixteen threads at once it
//! cost a thousand system calls a pod, by which they waited for that lock. Here a block is taken and given back with a dozen. Blocks of one size
//! stay blocks of that size, so what is held is at most the sum of what was in use at once of each size.
//!
//! A program that ends with its call, and makes it with its first thread, can give that thread blocks of its own
//! ([`give_own_blocks`]), for which no lock is taken. What the thread gives back goes to its own lists, wherever it came from: in a
//! program that runs for long, blocks would gather there that other threads have asked for.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// Every block begins at a multiple of it, and has a multiple of it.
const UNIT: usize = 16;
/// The largest small block, in bytes.
const LARGEST: usize = 512;
/// What is asked for at once of the allocator behind, in bytes.
const CHUNK: usize = 32 * 1024;
/// How often a thread looks for another one's end before it lets others run: that one may have been stopped by the scheduler.
const LOOKS: u32 = 100;

/// An allocator that keeps small blocks, in front of another one (`#[global_allocator]`).
pub struct SmallBlocks<A> {
    behind: A,
    /// What is free of the one thread that has blocks of its own.
    own: UnsafeCell<Free>,
    /// Whether a thread is at work on what is free.
    busy: AtomicBool,
    free: UnsafeCell<Free>,
}

/// A block that is free holds the address of the next one.
struct Free {
    /// Of 16 bytes, of 32, ...
    lists: [*mut Block; LARGEST / UNIT],
    /// What nobody has had of the last chunk.
    rest: *mut u8,
    left: usize,
}

struct Block {
    next: *mut Block,
}

/// Whether a thread has blocks of its own.
static IS_GIVEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether it is this thread.
    static HAS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Gives the calling thread blocks of its own, for as long as the program runs. Does nothing if another thread has such ones.
pub fn give_own_blocks() {
    if !IS_GIVEN.swap(true, Ordering::Relaxed) {
        HAS_OWN.set(true);
    }
}

// SAFETY: a thread uses `free` only while it holds `busy`, one thread uses `own`, and all threads may use the allocator behind.
unsafe impl<A: Sync> Sync for SmallBlocks<A> {}

/// The number of the list for blocks of this layout; `None` if it is not for a small block.
fn list_of(layout: Layout) -> Option<usize> {
    let is_small = layout.align() <= UNIT && (1..=LARGEST).contains(&layout.size());
    is_small.then(|| (layout.size() - 1) / UNIT)
}

// === impl SmallBlocks ===

impl<A> SmallBlocks<A> {
    /// In front of an allocator; nothing is asked of it yet.
    pub const fn new(behind: A) -> Self {
        let (own, free) = (UnsafeCell::new(Free::nothing()), UnsafeCell::new(Free::nothing()));
        SmallBlocks { behind, own, busy: AtomicBool::new(false), free }
    }

    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut Free) -> T) -> T {
        if HAS_OWN.get() {
            // SAFETY: no other thread of the program has it set, and `f` neither allocates nor panics.
            return f(unsafe { &mut *self.own.get() });
        }
        self.with_lock(f)
    }

    fn with_lock<T>(&self, f: impl FnOnce(&mut Free) -> T) -> T {
        let mut looks = 0;
        while self.busy.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks % LOOKS == 0 { std::thread::yield_now() } else { hint::spin_loop() }
        }
        // SAFETY: `busy` was false, so no other thread is here, and `f` neither allocates nor panics.
        let done = f(unsafe { &mut *self.free.get() });
        self.busy.store(false, Ordering::Release);
        done
    }
}

impl<A: GlobalAlloc> SmallBlocks<A> {
    /// A block of the list's size; null if there is no memory.
    fn take(&self, list: usize) -> *mut u8 {
        let size = (list + 1) * UNIT;
        let found = self.with(|free| free.take(list, size));
        if !found.is_null() {
            return found;
        }
        // SAFETY: the layout has a size, and an alignment that is a power of two.
        let chunk = unsafe { self.behind.alloc(Layout::from_size_align_unchecked(CHUNK, UNIT)) };
        if chunk.is_null() {
            return chunk;
        }
        // Another thread may have brought one meanwhile: what is left of that is not used.
        self.with(|free| {
            (free.rest, free.left) = (chunk, CHUNK);
            free.take(list, size)
        })
    }
}

// SAFETY: a block is in one place at a time: with its owner, in its list, or not yet cut from a chunk. It begins at a multiple of `UNIT`, as
// its chunk does, has at least the size asked for, and no chunk is given back.
unsafe impl<A: GlobalAlloc> GlobalAlloc for SmallBlocks<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match list_of(layout) {
            Some(list) => self.take(list),
            // SAFETY: as the caller has it.
            None => unsafe { self.behind.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match list_of(layout) {
            Some(list) => self.with(|free| free.give(list, at)),
            // SAFETY: as the caller has it: a block of this layout came from there.
            None => unsafe { self.behind.dealloc(at, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(list) = list_of(layout) else {
            // SAFETY: as the caller has it.
            return unsafe { self.behind.alloc_zeroed(layout) };
        };
        let block = self.take(list);
        if !block.is_null() {
            // SAFETY: the block has at least so many bytes, and nobody else has it.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for the size, and the alignment is that of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (list_of(layout), list_of(wanted)) {
            // SAFETY: as the caller has it.
            (None, None) => unsafe { self.behind.realloc(at, layout, size) },
            (Some(has), Some(wants)) if has == wants => at,
            // SAFETY: the new block is another one, and both have the bytes that are copied.
            _ => unsafe {
                let block = self.alloc(wanted);
                if !block.is_null() {
                    ptr::copy_nonoverlapping(at, block, layout.size().min(size));
                    self.dealloc(at, layout);
                }
                block
            },
        }
    }
}

// === impl Free ===

impl Free {
    const fn nothing() -> Self {
        Free { lists: [ptr::null_mut(); LARGEST / UNIT], rest: ptr::null_mut(), left: 0 }
    }

    /// A block of this list, which has this size: one that was given back, else of the chunk; null if that has too little left.
    fn take(&mut self, list: usize, size: usize) -> *mut u8 {
        if let Some(first) = self.lists.get_mut(list).filter(|first| !first.is_null()) {
            let block = *first;
            // SAFETY: what is in a list is a block that nobody has, and holds the next one.
            *first = unsafe { (*block).next };
            return block.cast();
        }
        if self.left < size {
            return ptr::null_mut();
        }
        let block = self.rest;
        // SAFETY: the chunk has that many bytes more.
        self.rest = unsafe { block.add(size) };
        self.left -= size;
        block
    }

    fn give(&mut self, list: usize, at: *mut u8) {
        if let Some(first) = self.lists.get_mut(list) {
            let block: *mut Block = at.cast();
            // SAFETY: the block is nobody's any more, begins at a multiple of 16 and has at least 16 bytes.
            unsafe { block.write(Block { next: *first }) };
            *first = block;
        }
    }
}

/// Has the program's allocator take `bytes` of the kernel at once, and the kernel map the first `used` of them: for a program that soon needs so
/// much. Otherwise each page is an exception, and each further piece a system call. To be called early: what is allocated before it has pieces of
/// its own.
pub fn reserve(bytes: usize, used: usize) {
    const PAGE: usize = 4096;
    let Ok(layout) = Layout::from_size_align(bytes, PAGE) else { return };
    if layout.size() == 0 {
        return;
    }
    // SAFETY: the layout has a size. The range is within the block, and that its pages are there changes nothing for who has them next. Where the
    // kernel does not know the advice (before Linux 5.14), pages come one by one.
    unsafe {
        let block = std::alloc::alloc(layout);
        if !block.is_null() {
            // What it answers does not matter: then pages come one by one.
            libc::madvise(block.cast(), used.min(bytes), libc::MADV_POPULATE_WRITE);
            std::alloc::dealloc(hint::black_box(block), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    /// Counts what it is asked for.
    struct Counted(std::sync::atomic::AtomicUsize);

    // SAFETY: it is the system's.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller has it.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            // SAFETY: as the caller has it.
            unsafe { System.dealloc(at, layout) }
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn what_is_given_back_is_taken_again() {
        let memory = SmallBlocks::new(Counted(0.into()));
        // SAFETY: every block is given back with the layout it was taken with, and not used after that.
        unsafe {
            for round in 0..1000 {
                let blocks: Vec<_> = (1..=LARGEST).map(|size| (memory.alloc(layout(size, 8)), size)).collect();
                for (at, size) in &blocks {
                    assert!(at.is_aligned_to_unit(), "{round}");
                    at.write_bytes(*size as u8, *size);
                }
                for (at, size) in blocks {
                    assert!((0..size).all(|i| *at.add(i) == size as u8), "{round}, {size}");
                    memory.dealloc(at, layout(size, 8));
                }
            }
            // 131 KiB are in use at once.
            assert_eq!(memory.behind.0.load(Ordering::Relaxed), 5);
            // What is not small goes to the allocator behind.
            for (size, align) in [(LARGEST + 1, 8), (64, 64)] {
                let at = memory.alloc(layout(size, align));
                assert!(at.addr().is_multiple_of(align));
                memory.dealloc(at, layout(size, align));
            }
            assert_eq!(memory.behind.0.load(Ordering::Relaxed), 7);
        }
    }

    trait Unit {
        fn is_aligned_to_unit(&self) -> bool;
    }

    impl Unit for *mut u8 {
        fn is_aligned_to_unit(&self) -> bool {
            self.addr().is_multiple_of(UNIT)
        }
    }

    #[test]
    fn no_two_threads_have_one_block() {
        let memory = &SmallBlocks::new(System);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    // One of them gets it.
                    give_own_blocks();
                    let (mut held, mut random) = (Vec::new(), thread + 1);
                    for step in 0..20_000_u64 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let (size, mark) = ((random >> 33) as usize % 700 + 1, (step ^ thread) as u8);
                        // SAFETY: as above; the mark is read within the block's size.
                        unsafe {
                            match (random >> 60, held.pop()) {
                                (0..6, Some((at, was, mark))) => {
                                    check(at, was, mark);
                                    memory.dealloc(at, layout(was, 8));
                                }
                                (6..10, Some((at, was, mark))) => {
                                    let at = memory.realloc(at, layout(was, 8), size);
                                    check(at, was.min(size), mark);
                                    at.write_bytes(mark, size);
                                    held.push((at, size, mark));
                                }
                                (_, last) => {
                                    held.extend(last);
                                    let at = memory.alloc_zeroed(layout(size, 8));
                                    check(at, size, 0);
                                    at.write_bytes(mark, size);
                                    held.push((at, size, mark));
                                    let other = random as usize % held.len();
                                    let last = held.len() - 1;
                                    held.swap(other, last);
                                }
                            }
                        }
                    }
                    for (at, size, mark) in held {
                        // SAFETY: as above.
                        unsafe {
                            check(at, size, mark);
                            memory.dealloc(at, layout(size, 8));
                        }
                    }
                });
            }
        });
    }

    /// # Safety
    /// There are so many bytes.
    unsafe fn check(at: *mut u8, size: usize, mark: u8) {
        // SAFETY: as the caller has it.
        assert!((0..size).all(|i| unsafe { *at.add(i) } == mark), "{size} bytes at {at:?} are not {mark}");
    }
}
