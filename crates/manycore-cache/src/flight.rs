//! Who is loading which key: one load at a time for each.
//!
//! Laws:
//! - F1 A load is in the list from before its leader looks into the cache a second time until after
//!   it has put the value there, or has given up, by whatever way: returning, panicking, or being
//!   dropped as a future.
//! - F2 Who waits is woken when the load leaves the list, and then looks again; it may lead next.
//!
//! Keys are told apart by their hash: two keys of one hash take turns, which is slow and right.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct Flights {
    shards: [Mutex<Vec<Arc<Flight>>>; SHARDS],
}

/// A load under way.
pub(crate) struct Flight {
    hash: u64,
    /// Unless it is a future, which may move between threads.
    thread: Option<ThreadId>,
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    wakers: Vec<Waker>,
}

/// What to do about a key that is not there.
pub(crate) enum Turn<'a> {
    Lead(Lead<'a>),
    Wait(Arc<Flight>),
}

/// The right to load; dropping it ends the load.
pub(crate) struct Lead<'a> {
    flights: &'a Flights,
    flight: Arc<Flight>,
}

/// Nothing here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flights {
    fn shard(&self, hash: u64) -> &Mutex<Vec<Arc<Flight>>> {
        &self.shards[(hash >> 20) as usize % SHARDS]
    }

    pub(crate) fn join(&self, hash: u64, is_future: bool) -> Turn<'_> {
        let mut shard = lock(self.shard(hash));
        if let Some(flight) = shard.iter().find(|flight| flight.hash == hash) {
            return Turn::Wait(Arc::clone(flight));
        }
        let flight = Arc::new(Flight {
            hash,
            thread: (!is_future).then(|| thread::current().id()),
            state: Mutex::default(),
            landed: Condvar::new(),
        });
        shard.push(Arc::clone(&flight));
        Turn::Lead(Lead { flights: self, flight })
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let flight = &self.flight;
        lock(self.flights.shard(flight.hash)).retain(|other| !Arc::ptr_eq(other, flight));
        let mut state = lock(&flight.state);
        state.is_over = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        flight.landed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Flight {
    /// Waits until the load is over.
    ///
    /// # Panics
    /// If the calling thread leads it: it would wait for itself.
    pub(crate) fn wait(&self) {
        assert!(
            self.thread != Some(thread::current().id()),
            "manycore: the load of a key asks for the same key (or for one of the same hash)"
        );
        let mut state = lock(&self.state);
        while !state.is_over {
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ready when the load is over.
pub(crate) struct Landed(pub(crate) Arc<Flight>);

impl Future for Landed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0.state);
        if state.is_over {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
