//! Helpers for the cores that a test's threads run on, and for memory that is slow to read.

use super::manycore::percpu::pin;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Pins the calling thread to one of its allowed CPUs: number `side`, modulo their number. Does
/// nothing if that is not possible; tests then race less often, but stay correct.
pub fn on_side(side: usize) {
    if let Ok(cpus) = pin::allowed() {
        let _ = pin::pin_to(cpus[side % cpus.len()]);
    }
}

/// A chain of memory cells that a load must follow before it knows its address. Each cell is
/// fetched from main memory. So anything that the processor may do before that load happens some
/// hundred nanoseconds earlier.
#[derive(Debug)]
pub struct SlowPath {
    cells: [Link; LINKS],
}

const LINKS: usize = 3;

/// A cell alone on its page, so that no prefetcher guesses it.
#[derive(Debug)]
#[repr(align(4096))]
struct Link(AtomicUsize);

impl SlowPath {
    pub fn new() -> Self {
        Self { cells: std::array::from_fn(|place| Link(AtomicUsize::new(place + 1))) }
    }

    /// Drops the cells from every cache.
    pub fn forget(&self) {
        #[cfg(target_arch = "x86_64")]
        for cell in &self.cells {
            // SAFETY: every x86-64 processor has the instruction; it changes no memory, and the
            // address is that of a live cell.
            unsafe { core::arch::x86_64::_mm_clflush(std::ptr::from_ref(cell).cast()) };
        }
        fence(Ordering::SeqCst);
    }

    /// Writes to the cells what they hold. These stores wait for main memory, and where stores
    /// leave a core in order, as on x86, so do all that come after them.
    #[inline(always)]
    pub fn clog(&self) {
        for (place, cell) in self.cells.iter().enumerate() {
            cell.0.store(place + 1, Ordering::Relaxed);
        }
    }

    /// `&items[0]`, by the slow path.
    #[inline(always)]
    pub fn follow<'a, T>(&self, items: &'a [T; 1]) -> &'a T {
        let mut place = 0;
        while place < LINKS {
            place = self.cells[place].0.load(Ordering::Relaxed);
        }
        &items[place - LINKS]
    }
}
