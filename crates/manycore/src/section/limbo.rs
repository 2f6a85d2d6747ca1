//! Limbo: the nodes that one thread retired and that are not freed yet.
//!
//! Owns: the way of a node from retired to freed: *open* batch, *sealed* batches in the order of
//! their stamps, *held* remains of sieved batches (E4), *ripe* nodes, *gated* ones (S8). Nothing in
//! here runs user code; ripe nodes are handed out to be freed.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::time::Instant;

/// A retired node.
pub(super) struct Node {
    pub(super) address: NonNull<()>,
    pub(super) free: unsafe fn(NonNull<()>),
    /// The era in which it was born; zero if nobody knows.
    pub(super) birth: u64,
}

// SAFETY: whoever retires a node says that it may be freed by any thread (`Section::retire`).
unsafe impl Send for Node {}

impl Node {
    /// Frees the node: runs user code.
    pub(super) fn free(self) {
        // SAFETY: the grace period is over (E1 to E4, kept by `Core`), and a node is retired once
        // (the duty of who retired it); `free` fits the address, as that duty says too.
        unsafe { (self.free)(self.address) }
    }
}

/// Nodes that were sealed together.
pub(super) struct Batch {
    pub(super) stamp: u64,
    sealed: Instant,
    nodes: Vec<Node>,
    /// What they occupied together when they were sealed.
    bytes: usize,
}

/// One thread's nodes in one domain.
pub(super) struct Limbo {
    open: Vec<Node>,
    open_bytes: usize,
    sealed: VecDeque<Batch>,
    held: VecDeque<Batch>,
    ripe: VecDeque<Batch>,
    gated: VecDeque<(Node, Instant)>,
    /// Nodes in all of these.
    waiting: usize,
    /// A buffer to fill next.
    spare: Vec<Node>,
    /// Of the batch that was sealed last; zero if there was none.
    last_stamp: u64,
}

/// Ripe batches from which a retire frees more nodes than one: after a stall, limbo shrinks.
const HURRY: [(usize, usize); 2] = [(8, 16), (2, 4)];
/// So many nodes before its turn a node's line is fetched.
const FETCHED: usize = 4;

impl Limbo {
    pub(super) fn new() -> Self {
        Self {
            open: Vec::new(),
            open_bytes: 0,
            sealed: VecDeque::new(),
            held: VecDeque::new(),
            ripe: VecDeque::new(),
            gated: VecDeque::new(),
            waiting: 0,
            spare: Vec::new(),
            last_stamp: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Nodes and bytes in the open batch.
    pub(super) fn open(&self) -> (usize, usize) {
        (self.open.len(), self.open_bytes)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, node: Node, bytes: usize) {
        self.open.push(node);
        self.open_bytes += bytes;
        self.waiting += 1;
    }

    pub(super) fn ripe_batches(&self) -> usize {
        self.ripe.len()
    }

    /// How many ripe nodes a retire should free.
    #[inline(always)]
    pub(super) fn share(&self) -> usize {
        let batches = self.ripe.len();
        if batches < 2 {
            return batches;
        }
        HURRY.iter().find(|(from, _)| batches >= *from).map_or(1, |(_, nodes)| *nodes)
    }

    /// Takes a ripe node, which the caller frees.
    #[inline(always)]
    pub(super) fn pop_ripe(&mut self) -> Option<Node> {
        let nodes = &mut self.ripe.front_mut()?.nodes;
        let node = nodes.pop();
        match node {
            Some(_) => self.waiting -= 1,
            None => return self.next_batch(),
        }
        // It was out of sight for a thousand retires, and its memory is written when it is freed.
        if let Some(later) = nodes.len().checked_sub(FETCHED).and_then(|at| nodes.get(at)) {
            crate::sync::prefetch_for_write(later.address.as_ptr());
        }
        node
    }

    #[cold]
    fn next_batch(&mut self) -> Option<Node> {
        loop {
            let node = self.ripe.front_mut()?.nodes.pop();
            if node.is_some() {
                self.waiting -= 1;
                return node;
            }
            let emptied = self.ripe.pop_front().expect("there was a front").nodes;
            if emptied.capacity() > self.spare.capacity() {
                self.spare = emptied;
            }
        }
    }

    /// Closes the open batch; `stamp` was taken after a fence that followed its last unlink (S2).
    /// Returns the stamp of the batch before; zero if there was none.
    pub(super) fn seal(&mut self, stamp: u64, sealed: Instant) -> u64 {
        let last = self.last_stamp;
        if self.open.is_empty() {
            return last;
        }
        self.last_stamp = stamp;
        let room = self.open.len();
        let mut fresh = std::mem::take(&mut self.spare);
        fresh.reserve(room);
        let nodes = std::mem::replace(&mut self.open, fresh);
        let bytes = std::mem::take(&mut self.open_bytes);
        self.sealed.push_back(Batch { stamp, sealed, nodes, bytes });
        last
    }

    /// Declares ripe what `is_ripe` says of its stamp. The stamps of sealed batches rise, so it
    /// stops at the first no; of those held back, which are in no order, it asks for `most`.
    pub(super) fn ripen(&mut self, most: usize, is_ripe: impl Fn(u64) -> bool) {
        while self.sealed.front().is_some_and(|batch| is_ripe(batch.stamp)) {
            self.ripe.extend(self.sealed.pop_front());
        }
        for _ in 0..self.held.len().min(most) {
            let batch = self.held.pop_front().expect("it was counted");
            let to = if is_ripe(batch.stamp) { &mut self.ripe } else { &mut self.held };
            to.push_back(batch);
        }
    }

    /// How many batches are held back.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The stamp of the batch that has been held back longest without a look; it is the next to be
    /// sieved.
    pub(super) fn next_held(&mut self) -> Option<u64> {
        let batch = self.held.pop_front()?;
        let stamp = batch.stamp;
        self.sealed.push_front(batch);
        Some(stamp)
    }

    /// Takes out every node whose grace period is over, for a gate to be asked about it.
    pub(super) fn take_ripe(&mut self) -> VecDeque<(Node, Instant)> {
        let mut nodes = std::mem::take(&mut self.gated);
        for Batch { sealed, nodes: ripe, .. } in self.ripe.drain(..) {
            nodes.extend(ripe.into_iter().map(|node| (node, sealed)));
        }
        nodes
    }

    /// Puts back what [`take_ripe`](Self::take_ripe) took: what may be freed, and the rest.
    pub(super) fn put_back(&mut self, free: Vec<Node>, rest: VecDeque<(Node, Instant)>) {
        if !free.is_empty() {
            let sealed = Instant::now();
            self.ripe.push_back(Batch { stamp: 0, sealed, nodes: free, bytes: 0 });
        }
        self.gated.extend(rest);
    }

    /// Stamps of the sealed batches that come before the newest `keep`.
    pub(super) fn overdue(&self, keep: usize) -> Option<u64> {
        (self.sealed.len() > keep).then(|| self.sealed[0].stamp)
    }

    /// Splits the oldest sealed batch: what was born after `youngest` is ripe, the rest is held in
    /// a buffer of its own size (E4).
    pub(super) fn sieve(&mut self, youngest: u64) {
        let Some(Batch { stamp, sealed, mut nodes, bytes }) = self.sealed.pop_front() else {
            return;
        };
        let all = nodes.len();
        let mut held = Vec::new();
        let mut next = 0;
        while let Some(node) = nodes.get(next) {
            if node.birth <= youngest {
                held.push(nodes.swap_remove(next));
            } else {
                next += 1;
            }
        }
        held.shrink_to_fit();
        let each = bytes / all.max(1);
        if !nodes.is_empty() {
            self.ripe.push_back(Batch { stamp, sealed, bytes: each * nodes.len(), nodes });
        }
        if !held.is_empty() {
            self.held.push_back(Batch { stamp, sealed, bytes: each * held.len(), nodes: held });
        }
    }

    /// Everything that is sealed or further, to be taken over by another thread (S9).
    pub(super) fn take_all(&mut self) -> Legacy {
        self.waiting = self.open.len();
        let mut batches: Vec<Batch> = self.sealed.drain(..).collect();
        batches.extend(self.held.drain(..));
        batches.extend(self.ripe.drain(..));
        Legacy { batches, gated: self.gated.drain(..).collect() }
    }

    /// Takes over what another thread left.
    pub(super) fn inherit(&mut self, mut legacy: Legacy) {
        self.waiting += legacy.len();
        self.sealed.extend(legacy.batches.drain(..));
        self.sealed.make_contiguous().sort_by_key(|batch| batch.stamp);
        self.gated.extend(legacy.gated.drain(..));
    }
}

/// What a thread left behind.
#[derive(Default)]
pub(super) struct Legacy {
    batches: Vec<Batch>,
    gated: Vec<(Node, Instant)>,
}

impl Legacy {
    pub(super) fn len(&self) -> usize {
        self.gated.len() + self.batches.iter().map(|batch| batch.nodes.len()).sum::<usize>()
    }

    /// What its batches occupied when they were sealed.
    pub(super) fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes).sum()
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.batches.append(&mut other.batches);
        self.gated.append(&mut other.gated);
    }
}

impl Drop for Limbo {
    /// The domain goes, so no section is open: frees everything.
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        self.ripen(usize::MAX, |_| true);
        let open = std::mem::take(&mut self.open);
        let gated = std::mem::take(&mut self.gated);
        let batches = std::mem::take(&mut self.ripe);
        let nodes = open.into_iter().chain(gated.into_iter().map(|(node, _)| node));
        nodes.chain(batches.into_iter().flat_map(|batch| batch.nodes)).for_each(Node::free);
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        let batches = std::mem::take(&mut self.batches).into_iter().flat_map(|batch| batch.nodes);
        let gated = std::mem::take(&mut self.gated).into_iter().map(|(node, _)| node);
        batches.chain(gated).for_each(Node::free);
    }
}
