//! Addresses in loom's models: two runs of one interleaving agree on whether a block is memory that
//! was freed before.
//!
//! Owns: the allocator of loom's models. A word that leads to a state distinguishes an old state
//! from a new one by its address, so reuse of an address is a case that a model explores. libc's
//! malloc reuses an address or not, depending on what the process has freed before. The same
//! interleaving would then have more or fewer loads, and loom would give up ("Is the model fully
//! deterministic?").
//!
//! So for a block with a state's alignment, this allocator returns the block of the same size and
//! alignment that the OS thread freed last, if one is left. loom runs a model on one OS thread and
//! allocates nothing of that alignment itself. So a model gets back what it freed, and otherwise
//! only new memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// States have lines of their own. Blocks with a smaller alignment come from libc.
const ALIGN_OF_STATES: usize = 64;
/// Number of size and alignment pairs for which a thread keeps freed blocks.
const KINDS: usize = 64;

/// The freed blocks of one layout: the first word of each leads to the one freed before it.
struct Kind {
    layout: Cell<Option<Layout>>,
    last: Cell<*mut u8>,
}

impl Kind {
    const fn new() -> Self {
        Self { layout: Cell::new(None), last: Cell::new(ptr::null_mut()) }
    }
}

std::thread_local! {
    static KEPT: [Kind; KINDS] = const { [const { Kind::new() }; KINDS] };
}

struct Keeping;

#[global_allocator]
static KEEPING: Keeping = Keeping;

impl Keeping {
    /// Calls `f` with the thread's blocks of this layout. Returns `None` for blocks that come from
    /// libc.
    fn with_kind<R>(layout: Layout, f: impl FnOnce(&Kind) -> R) -> Option<R> {
        if layout.align() < ALIGN_OF_STATES || layout.size() < layout.align() {
            return None;
        }
        let found = KEPT.try_with(|kinds| {
            let is_it = |kind: &&Kind| kind.layout.get().is_none_or(|other| other == layout);
            let kind = kinds.iter().find(is_it).unwrap_or_else(|| std::process::abort());
            kind.layout.set(Some(layout));
            f(kind)
        });
        found.ok()
    }
}

// SAFETY: a block is libc's for its layout, and is in no list while it is allocated: `alloc` takes
// it out and `dealloc` puts it in. Lists are their thread's alone and neither allocate nor unwind.
unsafe impl GlobalAlloc for Keeping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let kept = Self::with_kind(layout, |kind| {
            let last = kind.last.get();
            if !last.is_null() {
                // SAFETY: `dealloc` has written the first word of each block in a list.
                kind.last.set(unsafe { *last.cast::<*mut u8>() });
            }
            last
        });
        match kept {
            Some(block) if !block.is_null() => block,
            // SAFETY: the caller's promise is passed on.
            _ => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let is_kept = Self::with_kind(layout, |kind| {
            // SAFETY: the caller has no further use for the block, which is as large as its
            // alignment or larger, and so has room for a word.
            unsafe { *block.cast::<*mut u8>() = kind.last.get() };
            kind.last.set(block);
        });
        if is_kept.is_none() {
            // SAFETY: the caller's promise is passed on; the block is libc's.
            unsafe { System.dealloc(block, layout) }
        }
    }
}
