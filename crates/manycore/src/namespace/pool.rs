//! Transfer of free ids between threads: law namespace.N6 of the parent module.
//!
//! Owns: magazines (arrays of free blocks of one class) and the stacks on which full and empty ones
//! lie. A magazine that is on no stack belongs to the thread that popped it.

use crate::config::{self, ID_LEAF_BYTES, ID_MAGAZINE};
use crate::percpu::segmented::{CAPACITY, Segmented};
use crate::sync::{AtomicU32, AtomicU64, LoadToChange, Ordering, UnsafeCell};
use std::ptr::NonNull;

/// Number of classes of extents. The size of a class is a power of two.
pub(super) const CLASSES: usize = super::trie::INDEX_BITS as usize;

/// Full magazines of small blocks hold as many ids as the magazine has places; those of large
/// blocks hold more. So even if all ids were free, half of the numbers would be left for magazines
/// that are not full, of which a thread has two a class. (Models have few ids.)
const _: () =
    assert!(cfg!(manycore_loom) || 2 * ((1 << super::trie::INDEX_BITS) / ID_MAGAZINE) <= CAPACITY);

/// Free blocks of one class, by the address of their first slot.
pub(super) struct Blocks {
    len: usize,
    at: [*mut (); ID_MAGAZINE],
}

impl Blocks {
    /// Adds a block if there are fewer than `capacity`.
    #[inline(always)]
    pub(super) fn push(&mut self, capacity: usize, block: *mut ()) -> bool {
        let has_room = self.len < capacity;
        if has_room {
            self.at[self.len] = block;
            self.len += 1;
        }
        has_room
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<*mut ()> {
        self.len = self.len.checked_sub(1)?;
        Some(self.at[self.len])
    }
}

/// Alone on its lines, because its holder writes it all the time.
#[repr(align(128))]
struct Magazine {
    number: u32,
    /// One more than the number of the magazine below it on a stack, or zero.
    below: AtomicU32,
    blocks: UnsafeCell<Blocks>,
}

impl From<usize> for Magazine {
    fn from(number: usize) -> Self {
        let blocks = Blocks { len: 0, at: [std::ptr::null_mut(); ID_MAGAZINE] };
        let number = number as u32; // of 2^28 at most (`Segmented`)
        Self { number, below: AtomicU32::new(0), blocks: UnsafeCell::new(blocks) }
    }
}

/// A stack of magazines: one more than the number of the topmost, and above it a count of changes.
/// The count keeps a slow thread from taking a changed stack with the same top for an unchanged one
/// (ABA). (It fails only if the count wraps, 2^32 changes, within one attempt.)
#[derive(Default)]
struct Stack(AtomicU64);

/// A magazine that its holder has to itself. It belongs to a pool, which outlives this.
pub(super) struct OwnedMagazine(NonNull<Magazine>);

/// A value apart from what is read often.
#[repr(align(128))]
struct Apart<T>(T);

/// The magazines of a namespace.
pub(super) struct Pool {
    full: Apart<[Stack; CLASSES]>,
    empty: Apart<Stack>,
    made: Apart<AtomicU32>,
    magazines: Segmented<Magazine>,
    /// Full magazines of single ids that a slot keeps for itself.
    pub(super) kept: usize,
    /// Blocks of single ids that a magazine takes. It is fewer for large nodes, so that bytes bound
    /// what a slot keeps. (A process that has 2^28 such magazines at a time has 16 TiB.)
    ones: usize,
}

// SAFETY: a magazine's blocks are touched by its holder alone (`OwnedMagazine`), and pass from
// holder to holder by the stacks' Release and Acquire. The addresses in them are numbers to this
// module.
unsafe impl Send for Pool {}
// SAFETY: a shared pool gives out atomics, and a magazine's blocks by `with` to its holder alone: a
// number is in one `OwnedMagazine` or on one stack (namespace.N6).
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes a pool for nodes of `node` bytes.
    pub(super) fn new(node: usize) -> Self {
        let ones = (ID_LEAF_BYTES / node.max(1)).clamp(1, ID_MAGAZINE);
        let kept = (config::ID_KEPT_BYTES / node.max(1) / ones).min(config::ID_KEPT);
        Self {
            kept,
            ones,
            full: Apart(std::array::from_fn(|_| Stack::default())),
            empty: Apart(Stack::default()),
            made: Apart(AtomicU32::new(0)),
            magazines: Segmented::new(),
        }
    }

    /// Calls `f` with the blocks of a magazine.
    #[inline(always)]
    pub(super) fn with<R>(&self, held: &OwnedMagazine, f: impl FnOnce(&mut Blocks) -> R) -> R {
        // SAFETY: segmented.G1 - made by this pool (`held` stays with its namespace's state), so it
        // is there as long as the pool.
        let magazine = unsafe { held.0.as_ref() };
        // SAFETY: its holder's alone (namespace.N6), and `f` runs no user code.
        magazine.blocks.with_mut(|blocks| f(unsafe { &mut *blocks }))
    }

    /// Returns how many blocks a magazine of this class takes: fewer of the large ones.
    #[inline(always)]
    fn capacity(&self, class: usize) -> usize {
        if class == 0 {
            return self.ones; // one at least
        }
        (self.ones >> class.min(usize::BITS as usize - 1)).max(1)
    }

    /// Adds a block to a magazine if there is room.
    #[inline(always)]
    pub(super) fn push_to(&self, held: &OwnedMagazine, class: usize, block: *mut ()) -> bool {
        let capacity = self.capacity(class);
        self.with(held, |blocks| blocks.push(capacity, block))
    }

    /// Takes an empty magazine.
    pub(super) fn take_empty(&self) -> OwnedMagazine {
        self.pop(&self.empty.0).unwrap_or_else(|| {
            // ORDER: Relaxed; only the number counts.
            let number = self.made.0.fetch_add(1, Ordering::Relaxed);
            OwnedMagazine(self.magazines.get_or_init(number as usize).into())
        })
    }

    /// Takes a magazine with blocks of this class.
    pub(super) fn take_full(&self, class: usize) -> Option<OwnedMagazine> {
        self.pop(&self.full.0[class])
    }

    fn is_empty(&self, held: &OwnedMagazine) -> bool {
        self.with(held, |blocks| blocks.len == 0)
    }

    pub(super) fn give_empty(&self, held: OwnedMagazine) {
        debug_assert!(self.is_empty(&held), "namespace.N6: free blocks are dropped");
        self.push(&self.empty.0, held);
    }

    pub(super) fn give_full(&self, class: usize, held: OwnedMagazine) {
        debug_assert!(!self.is_empty(&held), "namespace.N6: a full magazine has no blocks");
        self.push(&self.full.0[class], held);
    }

    fn push(&self, stack: &Stack, OwnedMagazine(held): OwnedMagazine) {
        // SAFETY: segmented.G1 - made by this pool, which is there and frees no magazine before.
        let Magazine { number, below, .. } = unsafe { held.as_ref() };
        // ORDER: Relaxed; the CAS decides.
        let mut head = stack.0.load_to_change(Ordering::Relaxed);
        loop {
            // ORDER: Relaxed; published below.
            below.store(head as u32, Ordering::Relaxed);
            let new = changed(head) | u64::from(*number + 1);
            // ORDER: Release; pairs with Acquire in `pop`: the blocks, and the words of their
            // slots, before the thread that pops them.
            match stack.0.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, stack: &Stack) -> Option<OwnedMagazine> {
        // ORDER: Acquire here and on failure; pairs with Release in `push`: `below` of the one on
        // top, and what the magazine holds. Changes in between leave the release sequence whole.
        let mut head = stack.0.load_to_change(Ordering::Acquire);
        loop {
            let number = (head as u32).checked_sub(1)?;
            let magazine = self.magazines.get(number as usize).expect("it was made");
            // ORDER: Relaxed; if it changes, so has the head.
            let new = changed(head) | u64::from(magazine.below.load(Ordering::Relaxed));
            match stack.0.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(OwnedMagazine(magazine.into())),
                Err(now) => head = now,
            }
        }
    }
}

/// Returns the count of changes after one more change.
fn changed(head: u64) -> u64 {
    ((head >> 32) + 1) << 32
}
