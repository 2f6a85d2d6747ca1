//! The gate: dead mappings wait here and are unmapped together.
//!
//! ```text
//! killed, queued with label L      label raised to L + 1,         those sections over
//! in an open section               the moment is noted            and a tick passed
//!        |                                |                              |
//!   -----+--------------------------------+------------------------------+---> time
//!                                                                        unmap, then free
//! ```
//!
//! Laws:
//! - mapping_db_gate.Q1 A dead node is queued in a section, with the current label. A flush raises
//!   the label, notes the moment, and waits until the sections that were open at that moment are
//!   over. Then it takes everything with the old label or an older one. So everything queued with
//!   these labels is there, and a root comes with all mappings derived from it (tree.M6).
//! - mapping_db_gate.Q2 A flush unmaps everything that it took in one call of the backing, with
//!   adjacent pages joined. Only then are addresses, frames and nodes free. If the backing refuses,
//!   the flush asks it for each span alone. A span that it refuses again waits for the next flush,
//!   and so does a frame as long as one of its mappings waits.
//! - mapping_db_gate.Q3 Queued nodes are taken at the earliest a tick after the label was raised,
//!   or at once by [`flush`](super::MappingDb::flush). Until then, a thread that checks reads a
//!   line that is written once in a tick, and writes no line that others use.
//!
//! Source: ParSec, sections 3.7 and 5.3 (10 ms between flushes of the TLBs).

use super::failed::{Failed, attempt};
use super::tree::{Chain, Node, Space, SpaceRef};
use crate::backing::{Backing, Frames, Span};
use crate::runs::Runs;
use crate::sync::{AtomicU64, Line, Mutex, MutexGuard, Ordering, lock, seeded_bug};
use crate::{Error, PAGE_BYTES};
use manycore::percpu::current_slot;
use manycore::section::{Domain, Moment};
use manycore::slab::Slab;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// How many nodes a thread queues between two checks whether a flush is due.
const LOOK: usize = if cfg!(manycore_loom) { usize::MAX } else { 64 };

/// The nodes that the threads of one slot have queued: chains by label, oldest first.
#[derive(Default)]
struct Pending {
    chains: Vec<(u64, Chain)>,
    since_look: usize,
}

/// A flush that has begun.
struct Closing {
    label: u64,
    moment: Moment,
}

#[derive(Default)]
struct State {
    closing: Option<Closing>,
    /// Nodes that the backing has refused to unmap.
    refused: Vec<*mut Node>,
    ended: Vec<(u64, SpaceRef)>,
}

pub(super) struct Gate {
    label: Line<AtomicU64>,
    pending: Box<[Line<Mutex<Pending>>]>,
    state: Line<Mutex<State>>,
    /// The earliest time of the next flush, in nanoseconds since `made` (mapping_db_gate.Q3).
    due: Line<AtomicU64>,
    made: Instant,
    tick: Duration,
}

// SAFETY: tree.M6 - queued nodes belong to the gate, which hands them to one flush.
unsafe impl Send for Gate {}
// SAFETY: tree.M6 - the chains of queued nodes are touched only under locks.
unsafe impl Sync for Gate {}

/// The place to which a flush returns what it frees.
pub(super) struct Stores<'a> {
    pub(super) backing: &'a dyn Backing,
    pub(super) domain: &'a Domain,
    pub(super) frames: &'a Runs,
    pub(super) nodes: &'a Slab<Node>,
}

impl Gate {
    pub(super) fn new(tick: Duration) -> Self {
        Self {
            label: Line(AtomicU64::new(1)),
            pending: (0..crate::sync::parts()).map(|_| Line(Mutex::default())).collect(),
            state: Line(Mutex::default()),
            due: Line(AtomicU64::new(0)),
            made: Instant::now(),
            tick,
        }
    }

    /// Queues dead nodes, in the section in which they were killed (mapping_db_gate.Q1). Returns
    /// true if it is time to check for a flush.
    #[inline]
    pub(super) fn queue(&self, dead: Chain) -> bool {
        // ORDER: Acquire; pairs with `raise`: a label that is read later is not older.
        let label = self.label.0.load(Ordering::Acquire);
        let mut pending = lock(&self.pending[current_slot() % self.pending.len()].0);
        pending.since_look += dead.length;
        match pending.chains.iter_mut().find(|chain| chain.0 == label) {
            // SAFETY: tree.M6 - the new nodes belong to the caller, the others to the gate.
            Some((_, chain)) => unsafe { chain.prepend(&dead) },
            None => pending.chains.push((label, dead)),
        }
        let is_time = pending.since_look >= LOOK;
        if is_time {
            pending.since_look = 0;
        }
        is_time
    }

    /// Queues a space that has ended.
    pub(super) fn queue_space(&self, space: SpaceRef) {
        let mut state = lock(&self.state.0);
        // ORDER: Acquire; as in `queue`.
        state.ended.push((self.label.0.load(Ordering::Acquire), space));
    }

    /// Raises the label (mapping_db_gate.Q1). Returns the old label.
    fn raise(&self) -> u64 {
        // ORDER: AcqRel; pairs with `queue`.
        self.label.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Runs `unmap` while no flush runs.
    pub(super) fn alone<T>(&self, unmap: impl FnOnce() -> T) -> T {
        let _state = lock(&self.state.0);
        unmap()
    }

    /// Returns true if a tick has passed since the last flush began, or none has begun.
    fn is_due(&self) -> bool {
        // ORDER: Relaxed; a flush checks again under the state's lock, under which `due` is
        // written.
        self.made.elapsed().as_nanos() as u64 >= self.due.0.load(Ordering::Relaxed)
    }

    /// Flushes what is due and begins the next flush, unless another thread does. Never waits.
    pub(super) fn tick(&self, stores: &Stores<'_>) -> Result<usize, Error> {
        if !self.is_due() {
            return Ok(0);
        }
        let Ok(mut state) = self.state.0.try_lock() else { return Ok(0) };
        let mut freed = Ok(0);
        if let Some(closing) = &state.closing {
            // BUG: a flush does not wait for the sections that were open (mapping_db_gate.Q1).
            let is_over = seeded_bug!("vm-early-gate")
                || self.is_due() && stores.domain.quiesced(closing.moment);
            if !is_over {
                return Ok(0);
            }
            let label = closing.label;
            state.closing = None;
            freed = self.collect(&mut state, label, stores);
        }
        if freed.is_ok() {
            let label = self.raise();
            let moment = stores.domain.now();
            state.closing = Some(Closing { label, moment });
            let due = self.made.elapsed().saturating_add(self.tick);
            // ORDER: Relaxed; as in `is_due`.
            let due = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
            self.due.0.store(due, Ordering::Relaxed);
        }
        drop(state);
        freed.map_err(Failed::into_error)
    }

    /// Waits for the open sections and flushes everything that was queued before.
    pub(super) fn flush(&self, stores: &Stores<'_>) -> Result<usize, Error> {
        let label = self.raise();
        // Without the lock, so that a flush that waits for a section stops no tick.
        stores.domain.synchronize();
        let mut state = lock(&self.state.0);
        if state.closing.as_ref().is_some_and(|closing| closing.label <= label) {
            state.closing = None;
            // ORDER: Relaxed; as in `is_due`.
            self.due.0.store(0, Ordering::Relaxed);
        }
        let freed = self.collect(&mut state, label, stores);
        drop(state);
        freed.map_err(Failed::into_error)
    }

    /// Frees everything that was queued up to `label` (mapping_db_gate.Q2).
    fn collect(
        &self,
        state: &mut MutexGuard<'_, State>,
        label: u64,
        stores: &Stores<'_>,
    ) -> Result<usize, Failed> {
        let mut nodes = std::mem::take(&mut state.refused);
        for pending in &self.pending {
            let mut pending = lock(&pending.0);
            pending.chains.retain(|(at, chain)| {
                // BUG: nodes that were queued after the moment are taken with the rest
                // (mapping_db_gate.Q1).
                let is_due = *at <= label || seeded_bug!("vm-newer-label-taken");
                if is_due {
                    // SAFETY: tree.M6 - queued nodes belong to the gate.
                    nodes.extend(unsafe { chain.nodes() });
                }
                !is_due
            });
        }
        let mut freed = Ok(nodes.len());
        if !nodes.is_empty() {
            match attempt(|| release(&nodes, stores)) {
                Ok(None) => {}
                Ok(Some((waiting, refused))) => {
                    state.refused = waiting;
                    freed = Err(Failed::Refused(refused));
                }
                // The backing is called before anything is freed, so after its panic nothing is
                // free.
                Err(failed) => {
                    state.refused = nodes;
                    return Err(failed);
                }
            }
        }
        let (over, rest): (Vec<_>, Vec<_>) = state.ended.drain(..).partition(|(at, space)| {
            // SAFETY: space.A4 - a space is not freed before it is taken out of this list.
            *at <= label && unsafe { (*space.0).is_free() }
        });
        state.ended = rest;
        for (_, space) in over {
            let released = attempt(|| {
                // SAFETY: space.A4 - the space has ended, its sections are over, its slots are
                // free, and the list has it no more.
                unsafe { free_space(space, stores.backing) };
                Ok(())
            });
            freed = released.and(freed);
        }
        freed
    }

    /// Returns how many mappings wait.
    pub(super) fn pending(&self) -> usize {
        let chains = |pending: &Line<Mutex<Pending>>| -> usize {
            lock(&pending.0).chains.iter().map(|(_, chain)| chain.length).sum()
        };
        let refused = lock(&self.state.0).refused.len();
        self.pending.iter().map(chains).sum::<usize>() + refused
    }

    /// Takes the spaces that have ended and are not freed yet.
    pub(super) fn take_ended(&mut self) -> Vec<SpaceRef> {
        std::mem::take(&mut lock(&self.state.0).ended).into_iter().map(|(_, space)| space).collect()
    }
}

/// Frees a space and its addresses.
///
/// # Safety
/// No other thread has the space any more.
pub(super) unsafe fn free_space(space: SpaceRef, backing: &dyn Backing) {
    // SAFETY: it comes from a box, and the caller is the last to have it (# Safety).
    let space = unsafe { Box::from_raw(space.0.cast_mut()) };
    backing.release(space.base(), space.pages() as usize);
}

/// Joins adjacent entries of a sorted list. Calls `each` with the first and the count.
fn joined(sorted: &[usize], step: usize, mut each: impl FnMut(usize, u32)) {
    let mut rest = sorted;
    while let Some(&first) = rest.first() {
        let follows = |(index, at): (usize, &usize)| *at == first + index * step;
        let n = rest.iter().enumerate().take_while(|pair| follows(*pair)).count();
        each(first, n as u32);
        rest = &rest[n..];
    }
}

/// Unmaps the spans, all together if the backing permits. Leaves in `spans` those that it refuses
/// one by one, and returns its reason.
fn unmap(spans: &mut Vec<Span>, backing: &dyn Backing) -> Result<(), Error> {
    let Err(mut refused) = backing.unmap(spans) else {
        spans.clear();
        return Ok(());
    };
    // One span may need what another span gives back, so each span gets a second turn.
    for _ in 0..2 {
        spans.retain(|span| match backing.unmap(std::slice::from_ref(span)) {
            Ok(()) => false,
            Err(error) => {
                refused = error;
                true
            }
        });
    }
    if spans.is_empty() { Ok(()) } else { Err(refused) }
}

/// Unmaps the nodes' pages, then frees the pages, frames and nodes (mapping_db_gate.Q2). Returns
/// the nodes that must wait, and the reason.
fn release(
    nodes: &[*mut Node],
    stores: &Stores<'_>,
) -> Result<Option<(Vec<*mut Node>, Error)>, Error> {
    // SAFETY: tree.M6 - these are queued nodes after their grace period, so they belong to the
    // gate.
    let all = || nodes.iter().map(|node| (*node, unsafe { &**node }));
    let address = |node: &Node| node.space().address(node.page());
    let mut addresses: Vec<usize> = all().map(|(_, node)| address(node)).collect();
    addresses.sort_unstable();
    let mut spans = Vec::new();
    joined(&addresses, PAGE_BYTES, |address, pages| spans.push(Span { address, pages }));
    let refused = unmap(&mut spans, stores.backing).err();
    let (waiting, rest) =
        if refused.is_some() { divided(all(), &spans) } else { Default::default() };
    let gone = if refused.is_some() { &rest } else { nodes };

    // SAFETY: tree.M6 - some of the nodes above.
    let leaving = gone.iter().map(|node| unsafe { &**node });
    let mut roots: Vec<usize> =
        leaving.filter(|node| node.is_root()).map(|node| node.frame() as usize).collect();
    roots.sort_unstable();
    let mut frames = Vec::new();
    joined(&roots, 1, |first, count| frames.push(Frames { first: first as u32, count }));
    if !frames.is_empty() {
        stores.backing.flush(&frames)?;
        stores.frames.free_all(frames.iter().map(|run| (run.first, run.count)));
    }
    for node in gone {
        // SAFETY: tree.M6 - the node's grace period is over and its lock is freed, so nothing leads
        // to it.
        unsafe {
            let space: *const Space = (**node).space();
            let page = (**node).page();
            stores.nodes.free_raw(NonNull::new_unchecked(*node));
            (*space).free(page);
        }
    }
    Ok(refused.map(|error| (waiting, error)))
}

/// Splits the nodes into those that must wait and the others. A node waits if its span does, or if
/// its frame is still mapped by such a span.
fn divided<'n>(
    all: impl Iterator<Item = (*mut Node, &'n Node)> + Clone,
    spans: &[Span],
) -> (Vec<*mut Node>, Vec<*mut Node>) {
    let is_mapped = |node: &Node| {
        let address = node.space().address(node.page());
        let before = spans.partition_point(|span| span.address <= address);
        let span = before.checked_sub(1).map(|last| spans[last]);
        span.is_some_and(|span| address - span.address < span.pages as usize * PAGE_BYTES)
    };
    let mapped = all.clone().filter(|(_, node)| is_mapped(node));
    let frames: HashSet<u32> = mapped.map(|(_, node)| node.frame()).collect();
    let (waiting, gone): (Vec<_>, Vec<_>) = all
        .partition(|(_, node)| is_mapped(node) || node.is_root() && frames.contains(&node.frame()));
    let nodes = |row: Vec<(*mut Node, &Node)>| row.into_iter().map(|pair| pair.0).collect();
    (nodes(waiting), nodes(gone))
}
