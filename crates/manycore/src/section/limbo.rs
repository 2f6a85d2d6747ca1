//! Limbo: the nodes that one thread retired and that are not freed yet.
//!
//! A node passes through up to five kinds of batches on its way from retired to freed:
//!
//! ```text
//! retire --> open --seal--> sealed --grace period over--> expired --> freed
//!                             |                            ^   |
//!                      filter |                            |   | only with a gate (section.S8)
//!                (section.E4) +--> young nodes ------------+   |
//!                             |                            |   +--no--> gated --yes--> expired
//!                             +--> old nodes: held --------+
//!                                       grace period over
//! ```
//!
//! - *open*: the batch that the thread still adds to.
//! - *sealed*: stamped batches, in the order of their stamps, which wait for their grace period.
//! - *held*: the old nodes of a filtered batch. A section that stalled may hold them. Nodes that
//!   are younger than the section go straight to the expired batches.
//! - *expired*: batches after their grace period.
//! - *gated*: expired nodes that the gate holds back.
//!
//! A batch is *urgent* if it has a node that is large, urgent or of unknown weight (section.S10).
//! Nothing in here runs user code: expired nodes are handed out, and the caller frees them.

use crate::sync::{run_each, seeded_bug};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::time::Instant;

/// A retired node.
pub(super) struct RetiredNode {
    pub(super) address: NonNull<()>,
    pub(super) free: unsafe fn(NonNull<()>),
    /// The era in which the node was born; zero if unknown.
    pub(super) birth: u64,
    /// The node's weight.
    pub(super) bytes: usize,
}

// SAFETY: the caller of `Section::retire` promises that any thread may free the node.
unsafe impl Send for RetiredNode {}

impl RetiredNode {
    /// Frees the node: runs user code.
    #[inline(always)]
    pub(super) fn free(self) {
        self.expired().free();
    }

    /// Returns what is needed to free the node.
    #[inline(always)]
    pub(super) fn expired(self) -> ExpiredNode {
        ExpiredNode { address: self.address, free: self.free }
    }
}

/// An expired node that the limbo does not count any more. It is two words, which stay in registers
/// on the way from the limbo to the destructor.
pub(super) struct ExpiredNode {
    address: NonNull<()>,
    free: unsafe fn(NonNull<()>),
}

impl ExpiredNode {
    /// Frees the node: runs user code.
    #[inline(always)]
    pub(super) fn free(self) {
        // SAFETY: the grace period is over (section.E1 to section.E4, kept by `State`), and a node
        // is retired once (promised by the caller of `retire`); `free` fits the address, as
        // promised there, too.
        unsafe { (self.free)(self.address) }
    }
}

/// Nodes that were sealed together.
pub(super) struct Batch {
    pub(super) stamp: u64,
    sealed: Instant,
    nodes: Vec<RetiredNode>,
    /// Weight of the nodes when the batch was sealed.
    bytes: usize,
    is_urgent: bool,
    /// True if only stalled sections hold it back. Then it is not charged, and no thread waits for
    /// it.
    is_excused: bool,
}

/// Sums the weights of the nodes. The sum wraps, because a caller may state any weight.
fn total<'a>(nodes: impl IntoIterator<Item = &'a RetiredNode>) -> usize {
    nodes.into_iter().fold(0, |sum, node| sum.wrapping_add(node.bytes))
}

/// One thread's nodes in one domain.
///
/// The order of the counts matters. A retire stores some of them and loads them again just after.
/// If two such counts lie side by side, the compiler may load both by one wide instruction. That
/// load waits until the narrow stores have left the store buffer. So each of these counts lies
/// beside a count that a retire does not store.
#[repr(C)]
pub(super) struct Limbo {
    open: Vec<RetiredNode>,
    /// Bytes left until the open batch has `limit` bytes, minus one; below zero if it is full. (A
    /// push subtracts and compares at once.)
    room: isize,
    /// The open batch is full from this many bytes on.
    limit: isize,
    /// Weight of the nodes behind the open batch.
    behind_bytes: usize,
    /// Stamp of the last seal, whether or not it had anything to seal; zero if there was none.
    last_stamp: u64,
    /// Nodes behind the open batch.
    behind: usize,
    /// Weight of the nodes that were taken out together and are being freed.
    in_flight: usize,
    /// Weight of the excused batches.
    excused_bytes: usize,
    /// Urgent batches behind the open one.
    urgent: usize,
    open_is_urgent: bool,
    /// True if the owner is among the domain's writers (section.S10).
    is_counted: bool,
    /// True if a leader took over what was here, and the owner has since neither been within the
    /// budget nor waited.
    was_taken: bool,
    expired: VecDeque<Batch>,
    /// The nodes of the first expired batch. They are here and not in the batch, because each free
    /// writes here, and the queue's buffer may share a cache line with another thread's.
    first: Vec<RetiredNode>,
    sealed: VecDeque<Batch>,
    held: VecDeque<Batch>,
    gated: Gated,
    /// An empty buffer for the next batch.
    spare: Vec<RetiredNode>,
}

/// From this many expired batches on, a retire frees this many nodes: limbo shrinks after a stall.
const HURRY: [(usize, usize); 2] = [(8, 16), (2, 4)];
/// A node's line is prefetched this many nodes before its turn.
const FETCHED: usize = 4;

impl Limbo {
    pub(super) fn new(limit: usize) -> Self {
        let mut limbo = Self {
            open: Vec::new(),
            open_is_urgent: false,
            sealed: VecDeque::new(),
            held: VecDeque::new(),
            expired: VecDeque::new(),
            first: Vec::new(),
            gated: Gated(None),
            behind: 0,
            behind_bytes: 0,
            in_flight: 0,
            excused_bytes: 0,
            urgent: 0,
            limit: 0,
            room: -1,
            is_counted: false,
            was_taken: false,
            spare: Vec::new(),
            last_stamp: 0,
        };
        limbo.set_limit(limit);
        limbo
    }

    /// Number of nodes in all of these lists.
    #[inline(always)]
    pub(super) fn waiting(&self) -> usize {
        self.open.len() + self.behind
    }

    /// Weight of the nodes in all of these lists.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        self.open_bytes().wrapping_add(self.behind_bytes)
    }

    /// Returns the nodes and bytes in the open batch.
    #[inline(always)]
    pub(super) fn open(&self) -> (usize, usize) {
        (self.open.len(), self.open_bytes())
    }

    /// Weight of the nodes in the open batch.
    #[inline(always)]
    fn open_bytes(&self) -> usize {
        self.limit.wrapping_sub(1).wrapping_sub(self.room) as usize
    }

    /// True if the open batch has this many nodes, or its limit of bytes.
    #[inline(always)]
    pub(super) fn is_open_full(&self, nodes: usize) -> bool {
        self.room < 0 || self.open.len() >= nodes
    }

    /// Returns what the domain counts for this limbo (section.S10).
    pub(super) fn charge(&self) -> usize {
        let behind = self.behind_bytes.wrapping_add(self.in_flight);
        let behind = behind.wrapping_sub(self.excused_bytes);
        behind.wrapping_add(self.open_bytes().max(self.limit as usize))
    }

    /// True if something waits for a section that is not stalled, or if a leader took over the
    /// limbo and its nodes may still wait.
    pub(super) fn is_blocked(&self) -> bool {
        let held = || self.held.iter().any(|batch| !batch.is_excused);
        self.was_taken || !self.sealed.is_empty() || held()
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// True if anything waits, here or with the leader that took it over.
    pub(super) fn had_some(&self) -> bool {
        self.was_taken || self.waiting() != 0
    }

    pub(super) fn set_taken(&mut self, was_taken: bool) {
        self.was_taken = was_taken;
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        let limit = isize::try_from(bytes).unwrap_or(isize::MAX);
        self.room = self.room.wrapping_add(limit.wrapping_sub(self.limit));
        self.limit = limit;
    }

    /// Sets whether the owner is counted among the writers; returns whether it was counted before.
    pub(super) fn set_counted(&mut self, is_counted: bool) -> bool {
        std::mem::replace(&mut self.is_counted, is_counted)
    }

    /// True if a node waits that is large, urgent or of unknown weight.
    pub(super) fn is_urgent(&self) -> bool {
        self.open_is_urgent || self.urgent != 0
    }

    #[inline(always)]
    pub(super) fn push(&mut self, node: RetiredNode, is_urgent: bool) {
        let bytes = node.bytes;
        if is_urgent {
            self.open_is_urgent = true;
        }
        self.open.push(node);
        self.room = self.room.wrapping_sub_unsigned(bytes);
    }

    pub(super) fn expired_batches(&self) -> usize {
        self.expired.len()
    }

    /// Weight of the nodes in expired batches: what lies behind the open batch, less the sealed,
    /// held and gated nodes.
    pub(super) fn expired_bytes(&self) -> usize {
        let unexpired = self.sealed.iter().chain(&self.held);
        let unexpired = unexpired.fold(0, |sum: usize, batch| sum.wrapping_add(batch.bytes));
        let gated = total(self.gated.nodes());
        self.behind_bytes.wrapping_sub(unexpired).wrapping_sub(gated)
    }

    /// Returns how many expired nodes a retire should free.
    #[inline(always)]
    pub(super) fn share(&self) -> usize {
        let batches = self.expired.len();
        if batches < 2 {
            return batches;
        }
        HURRY.iter().find(|(from, _)| batches >= *from).map_or(1, |(_, nodes)| *nodes)
    }

    /// Takes out an expired node, which the caller frees.
    #[inline(always)]
    pub(super) fn pop_expired(&mut self) -> Option<RetiredNode> {
        let node = self.first.pop();
        let Some(taken) = &node else { return self.next_batch() };
        self.note_taken(taken.bytes);
        node
    }

    /// Takes the memory of the next expired node, if `free` would free it. Only looks into the
    /// batch that is being freed already.
    #[inline(always)]
    pub(super) fn pop_expired_of(&mut self, free: unsafe fn(NonNull<()>)) -> Option<NonNull<()>> {
        // BUG: memory is used again whose grace period is not over (section.S13).
        if seeded_bug!("reused-unexpired") {
            self.expire(usize::MAX, |_| true);
        }
        let next = self.first.last()?;
        if !ptr::fn_addr_eq(next.free, free) {
            return None;
        }
        let (address, bytes) = (next.address, next.bytes);
        self.first.pop();
        self.note_taken(bytes);
        Some(address)
    }

    /// Counts off a node of `bytes` bytes that was taken out of the first expired batch.
    #[inline(always)]
    fn note_taken(&mut self, bytes: usize) {
        self.behind -= 1;
        self.behind_bytes = self.behind_bytes.wrapping_sub(bytes);
        // The node was out of sight for a thousand retires, and freeing it writes to its memory.
        let later = self.first.len().checked_sub(FETCHED);
        if let Some(later) = later.and_then(|at| self.first.get(at)) {
            crate::sync::prefetch_for_write(later.address.as_ptr());
        }
    }

    /// Takes out up to `most` expired nodes, as far as the handful has room.
    pub(super) fn pop_handful(&mut self, most: usize, handful: &mut Handful) {
        debug_assert!(handful.is_empty(), "section.S10: nodes are dropped that were to be freed");
        (handful.next, handful.len) = (0, 0);
        self.in_flight = 0; // the nodes of the last handful have been freed
        while handful.len < most.min(HANDFUL) {
            let Some(node) = self.pop_expired() else { break };
            self.in_flight = self.in_flight.wrapping_add(node.bytes);
            handful.nodes[handful.len] = Some(node);
            handful.len += 1;
        }
    }

    /// Notes that the nodes that were taken out together have been freed.
    pub(super) fn landed(&mut self) {
        self.in_flight = 0;
    }

    /// Puts back the nodes of a handful that are left after a panic.
    #[cold]
    pub(super) fn put_handful_back(&mut self, handful: &mut Handful) {
        self.landed();
        let nodes: Vec<_> = std::iter::from_fn(|| handful.pop()).collect();
        self.put_back(nodes, VecDeque::new());
    }

    #[cold]
    fn next_batch(&mut self) -> Option<RetiredNode> {
        loop {
            if let Some(node) = self.first.pop() {
                self.behind -= 1;
                self.behind_bytes = self.behind_bytes.wrapping_sub(node.bytes);
                return Some(node);
            }
            self.urgent -= usize::from(self.expired.pop_front()?.is_urgent);
            let next = self.expired.front_mut().map(|next| std::mem::take(&mut next.nodes));
            let emptied = std::mem::replace(&mut self.first, next.unwrap_or_default());
            if emptied.capacity() > self.spare.capacity() {
                self.spare = emptied;
            }
        }
    }

    /// Closes the open batch. `stamp` was taken after a fence that followed the batch's last unlink
    /// (section.S2). Returns the stamp of the seal before, or zero if there was none.
    pub(super) fn seal(&mut self, stamp: u64, sealed: Instant) -> u64 {
        // A leader may have sealed what was here since an owner took its stamp: then it is empty.
        let last = self.last_stamp;
        self.last_stamp = last.max(stamp);
        if self.open.is_empty() {
            return last;
        }
        let room = self.open.len();
        let mut fresh = std::mem::take(&mut self.spare);
        fresh.reserve(room);
        let nodes = std::mem::replace(&mut self.open, fresh);
        let bytes = self.open_bytes();
        self.room = self.limit.wrapping_sub(1);
        let is_urgent = std::mem::take(&mut self.open_is_urgent);
        self.behind += room;
        self.behind_bytes = self.behind_bytes.wrapping_add(bytes);
        self.urgent += usize::from(is_urgent);
        self.sealed.push_back(Batch { stamp, sealed, nodes, bytes, is_urgent, is_excused: false });
        self.check();
        last
    }

    /// Moves batches to the expired ones if `is_expired` is true of their stamp. The stamps of
    /// sealed batches rise, so this stops at the first that is not expired. Held batches are in no
    /// order, so this looks at up to `most` of them.
    pub(super) fn expire(&mut self, most: usize, is_expired: impl Fn(u64) -> bool) {
        while self.sealed.front().is_some_and(|batch| is_expired(batch.stamp)) {
            let batch = self.sealed.pop_front().expect("there was a front");
            self.put_expired(batch);
        }
        for _ in 0..self.held.len().min(most) {
            let mut batch = self.held.pop_front().expect("it was counted");
            if is_expired(batch.stamp) {
                self.admit(&mut batch);
                self.put_expired(batch);
            } else {
                self.held.push_back(batch);
            }
        }
    }

    /// Charges a batch again that may have been excused.
    fn admit(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut batch.is_excused) {
            self.excused_bytes = self.excused_bytes.wrapping_sub(batch.bytes);
        }
    }

    fn put_expired(&mut self, mut batch: Batch) {
        if self.expired.is_empty() {
            self.first = std::mem::take(&mut batch.nodes);
        }
        self.expired.push_back(batch);
    }

    /// Puts the nodes of the first expired batch back into it.
    fn put_first_back(&mut self) {
        let nodes = std::mem::take(&mut self.first);
        if let Some(first) = self.expired.front_mut() {
            first.nodes = nodes;
        }
    }

    /// Number of held batches.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Makes the held batch that waited longest for a look the next batch to filter, and returns
    /// its stamp.
    pub(super) fn next_held(&mut self) -> Option<u64> {
        let mut batch = self.held.pop_front()?;
        self.admit(&mut batch);
        let stamp = batch.stamp;
        self.sealed.push_front(batch);
        Some(stamp)
    }

    /// Takes out every expired node, so that a gate can be asked about them.
    pub(super) fn take_expired(&mut self) -> VecDeque<(RetiredNode, Instant)> {
        let mut nodes = self.gated.take();
        self.put_first_back();
        for Batch { sealed, nodes: expired, is_urgent, .. } in self.expired.drain(..) {
            self.urgent -= usize::from(is_urgent);
            nodes.extend(expired.into_iter().map(|node| (node, sealed)));
        }
        // They count again when they are put back: until then, a leader may take over the rest.
        self.behind -= nodes.len();
        let taken = total(nodes.iter().map(|(node, _)| node));
        self.behind_bytes = self.behind_bytes.wrapping_sub(taken);
        nodes
    }

    /// Puts back what [`take_expired`](Self::take_expired) took: the nodes to `free`, and the
    /// `rest`.
    pub(super) fn put_back(
        &mut self,
        free: Vec<RetiredNode>,
        rest: VecDeque<(RetiredNode, Instant)>,
    ) {
        self.behind += free.len() + rest.len();
        let back = free.iter().chain(rest.iter().map(|(node, _)| node));
        self.behind_bytes = self.behind_bytes.wrapping_add(total(back));
        if !free.is_empty() {
            let sealed = Instant::now();
            self.urgent += 1; // all that a gate let wait is freed at once
            let bytes = total(&free);
            let (stamp, is_urgent, is_excused) = (0, true, false);
            self.put_expired(Batch { stamp, sealed, nodes: free, bytes, is_urgent, is_excused });
        }
        self.gated.extend(rest.into_iter());
        self.check();
    }

    /// Stamp of the oldest sealed batch, if more than `keep` are sealed.
    pub(super) fn overdue(&self, keep: usize) -> Option<u64> {
        (self.sealed.len() > keep).then(|| self.sealed[0].stamp)
    }

    /// Splits the oldest sealed batch. Nodes born after `youngest` are expired; the others are held
    /// in a buffer of their own size (section.E4). They are excused if only stalled sections hold
    /// them.
    pub(super) fn filter(&mut self, youngest: u64, is_excused: bool) {
        let Some(batch) = self.sealed.pop_front() else { return };
        let Batch { stamp, sealed, mut nodes, bytes, is_urgent, .. } = batch;
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
        let held_bytes = total(&held);
        let bytes = bytes.wrapping_sub(held_bytes);
        self.urgent -= usize::from(is_urgent);
        if !nodes.is_empty() {
            self.urgent += usize::from(is_urgent);
            self.put_expired(Batch { stamp, sealed, nodes, bytes, is_urgent, is_excused: false });
        }
        if !held.is_empty() {
            self.urgent += usize::from(is_urgent);
            self.excused_bytes =
                self.excused_bytes.wrapping_add(if is_excused { held_bytes } else { 0 });
            let (nodes, bytes) = (held, held_bytes);
            self.held.push_back(Batch { stamp, sealed, nodes, bytes, is_urgent, is_excused });
        }
        self.check();
    }

    /// Takes out everything except the open batch, for another thread to take over (section.S9).
    pub(super) fn take_all(&mut self) -> Orphans {
        (self.behind, self.behind_bytes, self.urgent, self.excused_bytes) = (0, 0, 0, 0);
        self.put_first_back();
        // Some of its nodes have been freed.
        self.expired.iter_mut().take(1).for_each(|batch| batch.bytes = total(&batch.nodes));
        let mut batches: Vec<Batch> = self.sealed.drain(..).collect();
        batches.extend(self.held.drain(..));
        batches.extend(self.expired.drain(..));
        Orphans { batches, gated: self.gated.take().into() }
    }

    /// Takes over what another thread left.
    pub(super) fn adopt(&mut self, mut orphans: Orphans) {
        self.behind += orphans.len();
        self.behind_bytes = self.behind_bytes.wrapping_add(orphans.bytes());
        self.urgent += orphans.batches.iter().filter(|batch| batch.is_urgent).count();
        orphans.batches.iter_mut().for_each(|batch| batch.is_excused = false);
        self.sealed.extend(orphans.batches.drain(..));
        self.sealed.make_contiguous().sort_by_key(|batch| batch.stamp);
        self.gated.extend(orphans.gated.drain(..));
        self.check();
    }

    /// Calls `f` with each node that waits here.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn for_each(&self, f: &mut dyn FnMut(&RetiredNode)) {
        let batches = self.expired.iter().chain(&self.sealed).chain(&self.held);
        let nodes = self.open.iter().chain(&self.first).chain(self.gated.nodes());
        nodes.chain(batches.flat_map(|batch| &batch.nodes)).for_each(f);
    }

    /// Asserts in a debug build that the counts match the lists.
    fn check(&self) {
        let batches = || self.sealed.iter().chain(&self.held).chain(&self.expired);
        debug_assert_eq!(
            self.gated.nodes().count()
                + self.first.len()
                + batches().map(|b| b.nodes.len()).sum::<usize>(),
            self.behind,
            "section.S10: another number of nodes waits than is counted"
        );
        debug_assert_eq!(
            batches().filter(|batch| batch.is_urgent).count(),
            self.urgent,
            "section.S10: another number of urgent batches than is counted"
        );
    }
}

/// Expired nodes that are taken out at a time. Each look into the limbo from outside a section
/// takes an atomic instruction, so a thread takes several.
const HANDFUL: usize = if crate::config::SMALL { 2 } else { 16 };

/// Expired nodes that were taken out, in the order in which they are freed.
pub(super) struct Handful {
    nodes: [Option<RetiredNode>; HANDFUL],
    next: usize,
    len: usize,
}

impl Handful {
    pub(super) const EMPTY: Self = Self { nodes: [const { None }; HANDFUL], next: 0, len: 0 };

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<RetiredNode> {
        let node = self.nodes[..self.len].get_mut(self.next)?.take();
        self.next += 1;
        node
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.len
    }

    pub(super) fn len(&self) -> usize {
        self.len - self.next
    }

    /// Calls `f` with each node.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn for_each(&self, f: &mut dyn FnMut(&RetiredNode)) {
        self.nodes[..self.len].iter().flatten().for_each(f);
    }
}

/// What a thread left behind for others to free.
#[derive(Default)]
pub(super) struct Orphans {
    batches: Vec<Batch>,
    gated: Vec<(RetiredNode, Instant)>,
}

impl Orphans {
    pub(super) fn len(&self) -> usize {
        self.gated.len() + self.batches.iter().map(|batch| batch.nodes.len()).sum::<usize>()
    }

    /// Weight of the nodes.
    pub(super) fn bytes(&self) -> usize {
        let gated = total(self.gated.iter().map(|(node, _)| node));
        self.batches.iter().fold(gated, |sum, batch| sum.wrapping_add(batch.bytes))
    }

    /// Calls `f` with each node.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn for_each(&self, f: &mut dyn FnMut(&RetiredNode)) {
        let gated = self.gated.iter().map(|(node, _)| node);
        gated.chain(self.batches.iter().flat_map(|batch| &batch.nodes)).for_each(f);
    }

    /// True if another thread should take this over soon.
    pub(super) fn is_urgent(&self) -> bool {
        self.batches.iter().any(|batch| batch.is_urgent)
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.batches.append(&mut other.batches);
        self.gated.append(&mut other.gated);
    }
}

/// Nodes that a gate holds back. Few domains have a gate, so the others pay for a pointer only.
#[allow(clippy::box_collection, reason = "it is small while it is empty")]
struct Gated(Option<Box<VecDeque<(RetiredNode, Instant)>>>);

impl Gated {
    fn nodes(&self) -> impl Iterator<Item = &RetiredNode> {
        self.0.iter().flat_map(|all| all.iter()).map(|(node, _)| node)
    }

    fn take(&mut self) -> VecDeque<(RetiredNode, Instant)> {
        self.0.take().map(|all| *all).unwrap_or_default()
    }

    fn extend(&mut self, nodes: impl ExactSizeIterator<Item = (RetiredNode, Instant)>) {
        if nodes.len() != 0 {
            self.0.get_or_insert_default().extend(nodes);
        }
    }
}

impl Drop for Limbo {
    /// Frees everything: the domain is being dropped, so no section is open.
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        self.expire(usize::MAX, |_| true);
        self.put_first_back();
        let open = std::mem::take(&mut self.open);
        let gated = self.gated.take();
        let batches = std::mem::take(&mut self.expired);
        let nodes = open.into_iter().chain(gated.into_iter().map(|(node, _)| node));
        let nodes = nodes.chain(batches.into_iter().flat_map(|batch| batch.nodes));
        run_each(nodes, RetiredNode::free);
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        let batches = std::mem::take(&mut self.batches).into_iter().flat_map(|batch| batch.nodes);
        let gated = std::mem::take(&mut self.gated).into_iter().map(|(node, _)| node);
        run_each(batches.chain(gated), RetiredNode::free);
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;

    fn node(bytes: usize) -> RetiredNode {
        fn free(_: NonNull<()>) {}
        RetiredNode { address: NonNull::dangling(), free, birth: 0, bytes }
    }

    #[test]
    fn nodes_that_a_gate_is_asked_about_count_once_when_the_rest_is_taken_over() {
        let mut limbo = Limbo::new(usize::MAX);
        (1..=3).for_each(|bytes| limbo.push(node(bytes), false));
        limbo.seal(1, Instant::now());
        limbo.expire(usize::MAX, |_| true);
        let mut asked = limbo.take_expired();
        limbo.push(node(10), false);
        limbo.seal(2, Instant::now());
        assert_eq!((limbo.waiting(), limbo.bytes()), (1, 10));
        // By a leader, while the gate is asked.
        assert_eq!(limbo.take_all().len(), 1);
        let yes = asked.pop_front().map(|(node, _)| node);
        limbo.put_back(yes.into_iter().collect(), asked);
        assert_eq!((limbo.waiting(), limbo.bytes()), (3, 6));
        while limbo.pop_expired().is_some() {}
        assert_eq!((limbo.waiting(), limbo.take_expired().len()), (2, 2));
    }
}
