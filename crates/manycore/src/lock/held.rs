//! Deadlock detection: what the calling thread holds, and the graph of which threads wait for
//! which.
//!
//! Owns: the count of object locks that a thread holds, the graph of the threads that wait for a
//! lock under which user code runs, and in debug builds the check of the lock order below. Does not
//! own: the locks.
//!
//! Three levels, from the outside in. A thread takes a lock only at a level above those it has:
//! - *Object*: the lock of an object, under which user code runs. A thread may hold several, and
//!   wait for one while it holds others, because such a wait is entered into the graph.
//! - *Updater*: a log in use by the thread (announced in a record of [`percpu`]), with user code.
//!   No object lock is taken at this level: its holder may wait for this very thread, which no
//!   graph shows.
//! - *Leaf*: an internal mutex, under which no user code runs and no thread waits.
//!
//! Laws:
//! - held.Q1 [`enter`] and [`leave`] pair: [`count`] is how many object locks the thread holds,
//!   guards that were forgotten included.
//! - held.Q2 A thread parks for a lock under which user code runs only as a [`Waiting`] in the
//!   graph: of an object, of a collection, of a representative that is being created. It enters the
//!   graph before it parks for the first time; or at once if it holds an object lock, which is
//!   counted. (Locks of collections are not: their fast paths pay nothing.) A thread that enters
//!   looks for a cycle under the graph's mutex, so the thread that closes a cycle finds it.
//! - held.Q3 A cycle in the graph is a deadlock, not an accident of timing. A cycle through this
//!   thread ends with a thread that waits for a lock of this thread's; this thread has held that
//!   lock during the whole search, so that thread has waited during the whole search, so it has
//!   held the lock that leads to it, and so on back. The same is true of what a thread shares, and
//!   of the lane that counts it: while it waits, it stays.
//! - held.Q4 A lock in the graph is alive: its waiter leaves the graph before it releases the lock.

use super::{holding, word};
use crate::percpu;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::fork::AtFork;
use crate::sync::{self, AtomicUsize, Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::PoisonError;

sync::thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

// loom drops a thread's locals when the thread ends; elsewhere `try_with` never fails.

/// The calling thread has taken an object lock (held.Q1).
#[inline(always)]
pub(crate) fn enter() {
    let _ = HELD.try_with(|held| held.set(held.get() + 1));
}

/// The calling thread has released an object lock.
#[inline(always)]
pub(crate) fn leave() {
    let _ = HELD.try_with(|held| {
        debug_assert!(held.get() > 0, "a lock was released that was not counted (held.Q1)");
        held.set(held.get().wrapping_sub(1));
    });
}

/// Object locks that the calling thread holds (held.Q1).
#[inline(always)]
pub(crate) fn count() -> usize {
    HELD.try_with(Cell::get).unwrap_or(0)
}

/// Whether the calling thread holds an object lock, holds or shares a set, or uses a log: then
/// other threads may wait for it, and it must not wait for what they hold.
#[inline]
pub(crate) fn is_inside() -> bool {
    may_be_waited_for(0)
}

/// As [`is_inside`], for a thread that holds `own` object locks for the call that asks.
#[inline]
pub(crate) fn may_be_waited_for(own: usize) -> bool {
    count() > own || percpu::is_announcing() || holding::is_any()
}

/// What a thread waits for: a word, the lane of a reader, the sharers of an object.
pub(crate) trait Awaited {
    /// Whether the thread that has this token and shares these objects (`holding`) holds it.
    fn is_held_by(&self, token: usize, shared: &[usize]) -> bool;
}

impl Awaited for AtomicUsize {
    fn is_held_by(&self, token: usize, _: &[usize]) -> bool {
        word::holder(self) == Some(token)
    }
}

/// A thread that waits.
struct Waiter {
    token: usize,
    awaited: *const dyn Awaited,
    /// What it shares with others; unchanged while the thread waits.
    shared: Vec<usize>,
}

// SAFETY: what is awaited is used only under the graph's mutex, and is alive then (held.Q4).
unsafe impl Send for Waiter {}

sync::global! {
    static GRAPH: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());
}

/// Holds the graph's mutex over a `fork`, so that no other thread holds it in the child, and clears
/// the graph there: entries of other threads would stay, and their words may be freed (held.Q4).
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

/// Before a wait for the lock in `word`: an entry in the graph, if the thread holds an object lock.
/// `Err` says that the wait would never end (held.Q2, held.Q3).
pub(super) fn wait_for(word: &AtomicUsize, token: usize) -> Result<Option<Waiting>, ()> {
    if count() == 0 {
        return Ok(None);
    }
    wait_for_any(word, token).map(Some)
}

/// As [`wait_for`], for a thread whose locks are not counted: it may hold some.
pub(crate) fn wait_for_any(
    awaited: &(impl Awaited + 'static),
    token: usize,
) -> Result<Waiting, ()> {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
    let waiter = Waiter { token, awaited, shared: holding::all() };
    let mut graph = graph();
    if closes_circle(&graph, &waiter) {
        return Err(());
    }
    graph.push(waiter);
    Ok(Waiting { token })
}

/// Whether a holder of what `new` waits for itself waits for `new`'s thread, directly or through
/// others.
fn closes_circle(graph: &[Waiter], new: &Waiter) -> bool {
    let mut open = vec![new.awaited];
    let mut seen = vec![false; graph.len()];
    while let Some(awaited) = open.pop() {
        // SAFETY: what the caller waits for, or another one of the graph (held.Q4).
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

/// A held leaf lock: in debug builds, user code that begins under it panics.
#[must_use]
pub(crate) struct Leaf(());

#[cfg(debug_assertions)]
sync::thread_local! {
    static LEAVES: Cell<usize> = const { Cell::new(0) };
}

/// Counts a leaf lock as held.
#[inline(always)]
pub(crate) fn leaf() -> Leaf {
    #[cfg(debug_assertions)]
    let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get() + 1));
    Leaf(())
}

impl Drop for Leaf {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get() - 1));
    }
}

/// Called before user code: in debug builds, checks that the thread holds no leaf lock.
#[inline(always)]
pub(crate) fn assert_no_leaf() {
    #[cfg(debug_assertions)]
    let _ = LEAVES.try_with(|leaves| {
        assert!(leaves.get() == 0, "manycore: user code runs under a lock that is no object's");
    });
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::lock::{LOCKED, Of, lock_nested, try_lock, unlock};
    use crate::percpu::thread_token;
    use crate::sync::thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Barrier};

    #[test]
    fn threads_that_wait_in_a_circle_are_told_and_the_others_go_on() {
        const THREADS: usize = 3;
        let words: Arc<[AtomicUsize; THREADS]> = Arc::new(std::array::from_fn(|_| 0.into()));
        let barrier = Arc::new(Barrier::new(THREADS));
        let each = (0..THREADS).map(|own| {
            let (words, barrier) = (Arc::clone(&words), Arc::clone(&barrier));
            thread::spawn(move || {
                let token = thread_token();
                try_lock(&words[own], token).unwrap();
                enter();
                barrier.wait();
                let next = &words[(own + 1) % THREADS];
                let taken = lock_nested(next, token, Of::new("test", &words)).is_ok();
                if taken {
                    // SAFETY: taken above.
                    unsafe { unlock(next, 0) };
                }
                // SAFETY: taken above.
                unsafe { unlock(&words[own], 0) };
                leave();
                taken
            })
        });
        let each: Vec<_> = each.collect();
        let taken = each.into_iter().filter(|_| true).map(|thread| thread.join().unwrap());
        assert_eq!(taken.filter(|taken| *taken).count(), THREADS - 1);
        assert!(words.iter().all(|word| word.load(crate::sync::Ordering::Relaxed) & LOCKED == 0));
        assert!(graph().iter().all(|waiter| waiter.token != thread_token()));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn user_code_under_a_leaf_lock_is_reported() {
        assert_no_leaf();
        let leaf = leaf();
        assert!(catch_unwind(AssertUnwindSafe(assert_no_leaf)).is_err());
        drop(leaf);
        assert_no_leaf();
    }
}
