//! Deadlock detection for loads: which loads run on the calling thread, and which load waits for
//! which. A request that would wait for itself panics instead.
//!
//! ```text
//! load 1 asks for the key of load 2:   1 --> 2
//! load 2 asks for the key of load 3:   1 --> 2 --> 3
//! load 3 asks for the key of load 1:   the edge would close a cycle, so this request panics
//! ```
//!
//! Laws:
//! - deadlock.C1 A thread records the loads that have their user code running on it, innermost
//!   last. A request for the key of one of these loads would wait for itself.
//! - deadlock.C2 A load that waits for another load, or runs it, has an edge to it. One graph
//!   serves all caches. An edge that would close a cycle is not added: its request panics, which
//!   ends that load, and the others go on.
//!
//! Requests outside of any load have no edge, and take no lock here.

#[cfg(not(manycore_loom))]
use manycore::percpu::AtFork;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of a load, among the loads of all caches.
pub(crate) type LoadId = u64;

pub(crate) fn next_id() -> LoadId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // ORDER: Relaxed; the numbers only have to differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    static RUNNING: RefCell<Vec<LoadId>> = const { RefCell::new(Vec::new()) };
}

/// The edges, from a load to the load that it waits for or runs, and how often each was added.
type Graph = BTreeMap<(LoadId, LoadId), u32>;

static GRAPH: Mutex<Graph> = Mutex::new(BTreeMap::new());

/// Holds the graph over a fork. Edges of loads that have no thread in the child stay: no path leads
/// back from them.
#[cfg(not(manycore_loom))]
static AT_FORK: AtFork = AtFork::new(|| Box::new(locked()), || ());

fn graph() -> MutexGuard<'static, Graph> {
    #[cfg(not(manycore_loom))]
    AT_FORK.list();
    locked()
}

fn locked() -> MutexGuard<'static, Graph> {
    GRAPH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the load's user code as running on this thread, until this is dropped (deadlock.C1).
pub(crate) struct Running(());

impl Running {
    pub(crate) fn new(load: LoadId) -> Self {
        let _gone = RUNNING.try_with(|running| running.borrow_mut().push(load));
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The call, or the poll, that made this drops it: so the innermost goes first.
        let _gone = RUNNING.try_with(|running| running.borrow_mut().pop());
    }
}

/// Returns true if this thread runs user code of this load.
pub(crate) fn is_running(load: LoadId) -> bool {
    RUNNING.try_with(|running| running.borrow().contains(&load)).unwrap_or(false)
}

fn innermost() -> Option<LoadId> {
    RUNNING.try_with(|running| running.borrow().last().copied()).unwrap_or(None)
}

/// An edge from the innermost load of a thread to another load, until this is dropped
/// (deadlock.C2).
#[derive(Default)]
pub(crate) struct Edge(Option<(LoadId, LoadId)>);

impl Edge {
    /// Makes this the edge to `target` from the load that the thread runs now, or no edge if it
    /// runs none.
    ///
    /// # Panics
    /// If the edge would close a cycle.
    pub(crate) fn lead_to(&mut self, target: LoadId) {
        let wanted = innermost().map(|load| (load, target));
        if self.0 == wanted {
            return;
        }
        self.remove();
        let Some(wanted) = wanted else { return };
        let closes = {
            let mut graph = graph();
            let closes = reaches(&graph, wanted.1, wanted.0);
            if !closes {
                *graph.entry(wanted).or_insert(0) += 1;
            }
            closes
        };
        assert!(!closes, "manycore: deadlock: loads of cached values wait for each other");
        self.0 = Some(wanted);
    }

    fn remove(&mut self) {
        let Some(edge) = self.0.take() else { return };
        let mut graph = graph();
        debug_assert!(graph.contains_key(&edge), "deadlock.C2: an edge is removed twice: {edge:?}");
        if let Some(count) = graph.get_mut(&edge) {
            *count -= 1;
            if *count == 0 {
                graph.remove(&edge);
            }
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.remove();
    }
}

fn reaches(graph: &Graph, from: LoadId, to: LoadId) -> bool {
    let (mut open, mut seen) = (vec![from], vec![from]);
    while let Some(load) = open.pop() {
        if load == to {
            return true;
        }
        for (_, next) in
            graph.range((load, LoadId::MIN)..=(load, LoadId::MAX)).map(|(edge, _)| edge)
        {
            if !seen.contains(next) {
                seen.push(*next);
                open.push(*next);
            }
        }
    }
    false
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_edge_that_closes_a_cycle_is_refused_and_the_rest_stays() {
        let [a, b, c] = [next_id(), next_id(), next_id()];
        let (mut first, mut second, mut third) = Default::default();
        let lead = |edge: &mut Edge, from, to| {
            let _running = Running::new(from);
            catch_unwind(AssertUnwindSafe(|| edge.lead_to(to))).is_ok()
        };
        assert!(lead(&mut first, a, b) && lead(&mut second, b, c));
        assert!(!lead(&mut third, c, a));
        drop(second);
        assert!(lead(&mut third, c, a), "the cycle is open again");
        assert!(!lead(&mut first, b, b), "a load that waits for itself");
        drop((first, third));
        assert!(graph().range((a, 0)..=(c, LoadId::MAX)).next().is_none());
    }
}
