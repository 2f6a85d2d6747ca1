//! The nodes that are published, read and retired, and their counts.
//!
//! Owns: the node of 64 bytes, the words in it that distinguish a live node from a freed one, and
//! the counts of nodes allocated and dropped. The memory not yet reclaimed follows from the counts.
//!
//! A count costs the thread that makes or drops a node about a nanosecond, the same for every
//! implementation. Each thread that works on a table has a line of its own to count on. A node
//! dropped by any other thread (a helper of the implementation) is counted on a shared line.

use std::{
    cell::Cell,
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crossbeam_utils::CachePadded;

use super::SLOTS;

/// Bytes of a node, with what the implementation makes its users embed.
pub const NODE_BYTES: usize = 64;

/// What the check word holds once the node is dropped.
const DROPPED: u64 = 0xDEAD_DEAD_DEAD_DEAD;

/// The words of a node that the benchmark uses.
#[derive(Debug)]
#[repr(C)]
pub struct Payload {
    value: u64,
    check: u64,
    counts: &'static Counts,
}

impl Payload {
    /// A living payload, counted.
    #[inline]
    pub fn new(value: u64, counts: &'static Counts) -> Self {
        counts.note(|lane| &lane.made);
        Self { value, check: !value, counts }
    }

    /// The value: the one word that a read reads.
    #[inline(always)]
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Whether the node has not been dropped. Looks at both words, each read anew.
    pub fn is_alive(&self) -> bool {
        // SAFETY: both are fields behind a reference; volatile, so that two looks are two looks.
        let (value, check) = unsafe {
            (ptr::read_volatile(&raw const self.value), ptr::read_volatile(&raw const self.check))
        };
        check == !value
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        assert_eq!(self.check, !self.value, "a node was dropped twice or written over");
        // SAFETY: a field of our own; volatile, so that the store to dying memory stays.
        unsafe { ptr::write_volatile(&raw mut self.check, DROPPED) };
        self.counts.note(|lane| &lane.dropped);
    }
}

/// A node for implementations that need nothing embedded, or embed up to `HEAD` words.
#[derive(Debug)]
#[repr(C)]
pub struct Node<H = (), const PAD: usize = 5> {
    head: H,
    payload: Payload,
    pad: [u64; PAD],
}

impl<H: Default, const PAD: usize> Node<H, PAD> {
    /// A node with that value.
    #[inline]
    pub fn new(value: u64, counts: &'static Counts) -> Self {
        Self::with_head(H::default(), value, counts)
    }
}

impl<H, const PAD: usize> Node<H, PAD> {
    const SIZE: () = assert!(size_of::<Self>() == NODE_BYTES);

    /// A node with that value and the words that the implementation makes.
    #[inline]
    pub fn with_head(head: H, value: u64, counts: &'static Counts) -> Self {
        const { Self::SIZE };
        Self { head, payload: Payload::new(value, counts), pad: [0; PAD] }
    }

    /// The words that the benchmark uses.
    #[inline(always)]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }
}

/// The counts of one thread.
#[derive(Debug, Default)]
struct Lane {
    made: AtomicU64,
    dropped: AtomicU64,
}

/// How many nodes of one table were made and dropped.
#[derive(Debug)]
pub struct Counts {
    /// One for each thread that works on the table.
    lanes: Box<[CachePadded<Lane>]>,
    /// For all other threads.
    strangers: CachePadded<Lane>,
}

thread_local! {
    /// On whose counts this thread has a lane, and which.
    static OWN: Cell<(*const Counts, usize)> = const { Cell::new((ptr::null(), 0)) };
}

impl Counts {
    /// Counts for this many threads. They live as long as the process: an implementation may
    /// drop nodes when their table is long gone.
    pub fn leak(threads: usize) -> &'static Self {
        let lanes = (0..threads).map(|_| CachePadded::default()).collect();
        Box::leak(Box::new(Self { lanes, strangers: CachePadded::default() }))
    }

    /// Gives lane `index` to the calling thread until the result is dropped.
    pub fn enlist(&'static self, index: usize) -> Enlisted {
        assert!(index < self.lanes.len(), "a table has a lane for each of its threads");
        Enlisted { before: OWN.replace((self, index)) }
    }

    /// Nodes dropped so far.
    pub fn dropped(&self) -> u64 {
        self.sum(|lane| &lane.dropped)
    }

    /// Nodes made so far.
    pub fn made(&self) -> u64 {
        self.sum(|lane| &lane.made)
    }

    /// Nodes made and not dropped, those in the table among them. While threads work it is off by
    /// what they do in the meantime.
    pub fn living(&self) -> u64 {
        let dropped = self.dropped();
        self.made().saturating_sub(dropped)
    }

    /// Nodes that were taken out of the full table and are not dropped yet.
    pub fn unreclaimed(&self) -> u64 {
        self.living().saturating_sub(SLOTS as u64)
    }

    fn sum(&self, of: impl Fn(&Lane) -> &AtomicU64) -> u64 {
        let lanes = self.lanes.iter().chain([&self.strangers]);
        // ORDER: Relaxed; a figure to report. Exact counts are read after the threads' join.
        lanes.map(|lane| of(lane).load(Relaxed)).sum()
    }

    #[inline(always)]
    fn note(&self, of: impl Fn(&Lane) -> &AtomicU64) {
        let (counts, lane) = OWN.get();
        if ptr::eq(counts, self) {
            let count = of(&self.lanes[lane]);
            // ORDER: Relaxed load and store; only the lane's thread writes it.
            count.store(count.load(Relaxed) + 1, Relaxed);
        } else {
            // ORDER: Relaxed; a count orders nothing.
            of(&self.strangers).fetch_add(1, Relaxed);
        }
    }
}

/// A thread's hold on its lane.
#[derive(Debug)]
pub struct Enlisted {
    before: (*const Counts, usize),
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        OWN.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, NODE_BYTES, Node};

    type Plain = Node;

    #[test]
    fn nodes_are_counted_on_the_lane_and_off_it() {
        let counts = Counts::leak(1);
        let stranger = Plain::new(1, counts);
        let own = {
            let _lane = counts.enlist(0);
            let own = Plain::new(2, counts);
            drop(stranger);
            own
        };
        assert_eq!((counts.made(), counts.dropped(), counts.living()), (2, 1, 1));
        assert!(own.payload().is_alive() && own.payload().value() == 2);
        drop(own);
        assert_eq!((counts.dropped(), counts.living()), (2, 0));
        assert_eq!(size_of::<Plain>(), NODE_BYTES);
    }

    #[test]
    #[should_panic(expected = "dropped twice")]
    fn a_node_dropped_twice_is_noticed() {
        let mut node = std::mem::ManuallyDrop::new(Plain::new(1, Counts::leak(1)));
        // SAFETY: the second drop is the fault looked for; it stops before it touches anything
        // but the words themselves, which are still there.
        unsafe {
            std::mem::ManuallyDrop::drop(&mut node);
            std::mem::ManuallyDrop::drop(&mut node);
        }
    }
}
