//! Deadlock detection: the graph of the threads that wait, and of what each of them waits for.
//!
//! Owns: the wait-for graph of the threads that wait for a lock under which user code runs. Does
//! not own: the locks, and what a thread holds (`held`, `holding`).
//!
//! ```text
//! thread A --waits for--> lock 2 --held by--> thread B --waits for--> lock 1 --held by--> thread A
//! ```
//!
//! Laws:
//! - wait_graph.G1 A thread parks for a lock under which user code runs only as a [`Waiting`] in
//!   the graph. Such a lock is that of an object, of a collection, or of a representative that is
//!   being created. A thread enters the graph before it parks for the first time; it enters at once
//!   if it holds an object lock, which is counted. (Locks of collections are not counted: their
//!   fast paths pay nothing.) A thread that enters looks for a cycle under the graph's mutex, so
//!   the thread that closes a cycle finds it.
//! - wait_graph.G2 A cycle in the graph is a deadlock, not an accident of timing. Let thread A hold
//!   lock 1 and search, and let the cycle end with thread B, which waits for lock 1. A holds lock 1
//!   during the whole search, so B waits during the whole search. So B holds during the whole
//!   search the lock that leads to B, and so on back around the cycle. The same is true of what a
//!   thread shares, and of the lane that counts it: they do not change while the thread waits.
//! - wait_graph.G3 A lock in the graph is alive: its waiter leaves the graph before it releases the
//!   lock.

use super::holding;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::AtFork;
use crate::sync::{self, Mutex, MutexGuard};
use std::sync::PoisonError;

/// Something that a thread waits for: a word, the lane of a reader, the sharers of an object.
pub(crate) trait Awaited {
    /// Returns true if the thread with this token, which shares these objects (`holding`), holds
    /// it.
    fn is_held_by(&self, token: usize, shared: &[usize]) -> bool;
}

/// A thread that waits.
struct Waiter {
    token: usize,
    awaited: *const dyn Awaited,
    /// The objects that the thread shares with others; unchanged while it waits.
    shared: Vec<usize>,
}

// SAFETY: the awaited lock is used only under the graph's mutex, and is alive then (wait_graph.G3).
unsafe impl Send for Waiter {}

sync::global! {
    static GRAPH: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());
}

/// Holds the graph's mutex over a `fork`, so that no other thread holds it in the child. Clears the
/// graph there: the entries of other threads would stay, and their words may be freed
/// (wait_graph.G3).
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: AtFork = AtFork::new(|| Box::new(graph()), || graph().clear());

fn graph() -> MutexGuard<'static, Vec<Waiter>> {
    // Nothing that can panic runs under it.
    GRAPH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of the graph; dropping it removes it.
pub(crate) struct Waiting {
    token: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut graph = graph();
        if let Some(at) = graph.iter().rposition(|waiter| waiter.token == self.token) {
            graph.swap_remove(at);
        }
    }
}

/// Enters a wait into the graph, before the thread waits. Returns `Err` if the wait would be a
/// deadlock, because it would close a cycle (wait_graph.G1, wait_graph.G2).
pub(crate) fn enter(awaited: &(impl Awaited + 'static), token: usize) -> Result<Waiting, ()> {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
    let waiter = Waiter { token, awaited, shared: holding::all() };
    let mut graph = graph();
    if closes_cycle(&graph, &waiter) {
        return Err(());
    }
    graph.push(waiter);
    Ok(Waiting { token })
}

/// Returns true if a holder of what `new` waits for waits for `new`'s thread, directly or through
/// others.
fn closes_cycle(graph: &[Waiter], new: &Waiter) -> bool {
    let mut open = vec![new.awaited];
    let mut seen = vec![false; graph.len()];
    while let Some(awaited) = open.pop() {
        // SAFETY: what the caller waits for, or a lock of the graph (wait_graph.G3).
        let awaited = unsafe { &*awaited };
        if awaited.is_held_by(new.token, &new.shared) {
            return true;
        }
        for (waiter, seen) in graph.iter().zip(&mut seen) {
            if !*seen && awaited.is_held_by(waiter.token, &waiter.shared) {
                *seen = true;
                open.push(waiter.awaited);
            }
        }
    }
    false
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::lock::{LOCKED, Of, held, lock_nested, try_lock, unlock};
    use crate::percpu::thread_token;
    use crate::sync::{AtomicUsize, thread};
    use std::sync::{Arc, Barrier};

    #[test]
    fn thread_that_would_close_a_cycle_is_refused_and_the_others_go_on() {
        const THREADS: usize = 3;
        let words: Arc<[AtomicUsize; THREADS]> = Arc::new(std::array::from_fn(|_| 0.into()));
        let barrier = Arc::new(Barrier::new(THREADS));
        let each = (0..THREADS).map(|own| {
            let (words, barrier) = (Arc::clone(&words), Arc::clone(&barrier));
            thread::spawn(move || {
                let token = thread_token();
                try_lock(&words[own], token).unwrap();
                held::enter();
                barrier.wait();
                let next = &words[(own + 1) % THREADS];
                let taken = lock_nested(next, token, Of::new("test", &words), None).is_ok();
                if taken {
                    // SAFETY: taken above.
                    unsafe { unlock(next, 0) };
                }
                // SAFETY: taken above.
                unsafe { unlock(&words[own], 0) };
                held::leave();
                taken
            })
        });
        let each: Vec<_> = each.collect();
        let taken = each.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(taken.filter(|taken| *taken).count(), THREADS - 1);
        assert!(words.iter().all(|word| word.load(crate::sync::Ordering::Relaxed) & LOCKED == 0));
        assert!(graph().iter().all(|waiter| waiter.token != thread_token()));
    }
}
