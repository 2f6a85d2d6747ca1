//! Loads that wait for loads: which run on the calling thread, and which wait for which.
//!
//! Laws:
//! - deadlock.C1 A thread notes the loads whose user code it is running, innermost last. A request
//!   for a key whose load is among them would wait for itself.
//! - deadlock.C2 A load that waits for another, or runs another, has an edge to it, in one graph
//!   for all caches. An edge that would close a cycle is not added: its request panics, which ends
//!   that load, and the others go on.
//!
//! Requests that no load makes have no edge, and take no lock here.

#[cfg(not(manycore_loom))]
use manycore::percpu::AtFork;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A load, among those of all caches.
pub(crate) type LoadId = u64;

pub(crate) fn next_id() -> LoadId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // ORDER: Relaxed; only that no two loads get the same number matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    static RUNNING: RefCell<Vec<LoadId>> = const { RefCell::new(Vec::new()) };
}

/// Which load waits for, or runs, which, and how many times over.
type Graph = BTreeMap<(LoadId, LoadId), u32>;

static GRAPH: Mutex<Graph> = Mutex::new(BTreeMap::new());

/// Holds the graph over a fork. The edges of loads that the child has no thread for stay: nothing
/// comes back from them.
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

/// The load's user code runs on this thread as long as this lives (deadlock.C1).
pub(crate) struct Running(());

impl Running {
    pub(crate) fn new(load: LoadId) -> Self {
        let _gone = RUNNING.try_with(|running| running.borrow_mut().push(load));
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Each is dropped by the call, or the poll, that made it: the innermost goes first.
        let _gone = RUNNING.try_with(|running| running.borrow_mut().pop());
    }
}

/// Whether this thread runs user code of this load.
pub(crate) fn is_running(load: LoadId) -> bool {
    RUNNING.try_with(|running| running.borrow().contains(&load)).unwrap_or(false)
}

fn innermost() -> Option<LoadId> {
    RUNNING.try_with(|running| running.borrow().last().copied()).unwrap_or(None)
}

/// That the innermost load of a thread depends on another (deadlock.C2), as long as this lives.
#[derive(Default)]
pub(crate) struct Edge(Option<(LoadId, LoadId)>);

impl Edge {
    /// Makes this the edge from the load that the thread runs now to `target`; none if it runs
    /// none.
    ///
    /// # Panics
    /// If that would close a cycle.
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
