//! Refcache (Clements, Kaashoek and Zeldovich, EuroSys 2013): each thread keeps its changes to
//! counts in a small cache of its own, and adds them to the counts now and then.
//!
//! Time is divided into epochs. An epoch ends when each thread has flushed its cache. A count that
//! a flush brings to zero may not really be zero, because another thread may hold an unflushed
//! change. The object is therefore reviewed two epochs later. If its count has stayed zero all that
//! time, there is no reference to it. In the paper a timer flushes every 10 ms. Here each thread
//! flushes after a number of changes.

use std::{
    hint::black_box,
    ptr::NonNull,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use super::super::{CountedHandle, CountedImpl, Value};

/// Entries of a thread's cache.
const WAYS: usize = 64;
/// Changes of a thread between two flushes.
const EVERY: u32 = 1 << 16;
/// Epochs from a count's zero to its review.
const WAIT: u64 = 2;

/// An object with its count.
struct Counted {
    value: Value,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: i64,
    /// It waits for its review.
    is_queued: bool,
    /// The count has not been zero all the time since it was queued.
    is_dirty: bool,
}

type Object = NonNull<Counted>;

/// What waits for its review, from which epoch on.
type Queue = Vec<(Object, u64)>;

/// What threads share.
#[derive(Default)]
struct Epochs {
    now: AtomicU64,
    /// Threads that take part, and how many of them have flushed in this epoch.
    members: Mutex<(usize, usize)>,
    /// Reviews that ended threads have left.
    left: Mutex<Queue>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Epochs {
    fn join(&self) {
        lock(&self.members).0 += 1;
    }

    /// A thread has flushed, and did so before in the epoch `last`; or it leaves. The epoch.
    fn flushed(&self, leaves: bool, last: Option<u64>) -> u64 {
        let mut members = lock(&self.members);
        // An epoch ends under the lock.
        let now = self.now.load(SeqCst);
        members.0 -= usize::from(leaves);
        match (leaves, last == Some(now)) {
            (true, true) => members.1 -= 1,
            (false, false) => members.1 += 1,
            _ => {}
        }
        if members.1 >= members.0 {
            members.1 = 0;
            self.now.fetch_add(1, SeqCst);
        }
        now
    }
}

/// One thread's changes.
struct Local<'a> {
    epochs: &'a Epochs,
    changes: [(Option<Object>, i64); WAYS],
    reviews: Queue,
    until_flush: u32,
    /// The epoch in which it flushed last.
    flushed_in: Option<u64>,
}

impl<'a> Local<'a> {
    fn new(epochs: &'a Epochs) -> Self {
        epochs.join();
        let changes = [(None, 0); WAYS];
        Self { epochs, changes, reviews: Vec::new(), until_flush: EVERY, flushed_in: None }
    }

    #[inline]
    fn change(&mut self, object: Object, by: i64) {
        let way = object.as_ptr().addr() / align_of::<Counted>() % WAYS;
        if self.changes[way].0 != Some(object) {
            self.evict(way);
            self.changes[way] = (Some(object), 0);
        }
        self.changes[way].1 += by;
        self.until_flush -= 1;
        if self.until_flush == 0 {
            self.flush();
        }
    }

    fn evict(&mut self, way: usize) {
        let (Some(object), by @ (..=-1 | 1..)) = std::mem::take(&mut self.changes[way]) else {
            return;
        };
        // SAFETY: an object is freed two epochs after the last change of its count at the earliest,
        // and a thread that has an unflushed change holds the epoch up.
        let mut state = lock(unsafe { &object.as_ref().state });
        state.count += by;
        if state.count != 0 {
            return;
        }
        if state.is_queued {
            state.is_dirty = true;
        } else {
            state.is_queued = true;
            state.is_dirty = false;
            self.reviews.push((object, self.epochs.now.load(SeqCst) + WAIT));
        }
    }

    /// Adds all changes to their counts, and reviews what is due.
    #[cold]
    fn flush(&mut self) {
        self.until_flush = EVERY;
        (0..WAYS).for_each(|way| self.evict(way));
        self.flushed_in = Some(self.epochs.flushed(false, self.flushed_in));
        self.review();
    }

    fn review(&mut self) {
        let now = self.epochs.now.load(SeqCst);
        for (object, due) in std::mem::take(&mut self.reviews) {
            if due > now {
                self.reviews.push((object, due));
                continue;
            }
            // SAFETY: queued, so no review has freed it.
            let mut state = lock(unsafe { &object.as_ref().state });
            state.is_queued = state.count == 0 && state.is_dirty;
            let is_gone = state.count == 0 && !state.is_dirty;
            state.is_dirty = false;
            let is_queued = state.is_queued;
            drop(state);
            if is_queued {
                self.reviews.push((object, now + WAIT));
            } else if is_gone {
                // SAFETY: made by `Box::leak`; its count was zero for two epochs, in which each
                // thread flushed, so no thread has a reference or an unflushed change.
                drop(unsafe { Box::from_raw(object.as_ptr()) });
            }
        }
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        (0..WAYS).for_each(|way| self.evict(way));
        self.epochs.flushed(true, self.flushed_in);
        lock(&self.epochs.left).append(&mut self.reviews);
    }
}

/// A value that is counted so.
pub(in super::super) struct Refcache {
    first: Object,
    epochs: Epochs,
    handles: AtomicUsize,
}

// SAFETY: the object is shared by its threads: its state is behind a lock, and its value is only
// read.
unsafe impl Send for Refcache {}
// SAFETY: no method gives more than shared access to the object: its state is behind a lock, and
// its value is only read.
unsafe impl Sync for Refcache {}

/// A thread's reference, and its cache.
pub(in super::super) struct RefcacheHandle<'a> {
    counted: &'a Refcache,
    local: Local<'a>,
}

impl CountedImpl for Refcache {
    type Handle<'a> = RefcacheHandle<'a>;

    fn new(value: Value) -> Self {
        let state = Mutex::new(State { count: 1, ..State::default() });
        let first = NonNull::from(Box::leak(Box::new(Counted { value, state })));
        Self { first, epochs: Epochs::default(), handles: AtomicUsize::new(0) }
    }

    fn handle(&self) -> RefcacheHandle<'_> {
        self.handles.fetch_add(1, SeqCst);
        let mut local = Local::new(&self.epochs);
        local.change(self.first, 1);
        RefcacheHandle { counted: self, local }
    }
}

impl CountedHandle for RefcacheHandle<'_> {
    #[inline]
    fn pair(&mut self) -> u64 {
        let object = self.counted.first;
        self.local.change(object, 1);
        // SAFETY: the handle's own reference keeps the object.
        let word = black_box(unsafe { &object.as_ref().value }).word;
        self.local.change(object, -1);
        word
    }
}

impl Drop for RefcacheHandle<'_> {
    fn drop(&mut self) {
        self.local.change(self.counted.first, -1);
        self.counted.handles.fetch_sub(1, SeqCst);
    }
}

impl Drop for Refcache {
    fn drop(&mut self) {
        debug_assert_eq!(self.handles.load(SeqCst), 0, "a handle borrows it");
        let mut last = Local::new(&self.epochs);
        last.reviews.append(&mut lock(&self.epochs.left));
        last.change(self.first, -1);
        // The first epoch may have begun before; each flush ends one, as no other thread takes
        // part.
        (0..=2 * WAIT).for_each(|_| last.flush());
        debug_assert!(last.reviews.is_empty(), "all has been reviewed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> (Value, &'static AtomicU64) {
        let ended: &'static AtomicU64 = Box::leak(Box::default());
        (Value::new(7, ended), ended)
    }

    #[test]
    fn pairs_stay_in_the_thread_s_cache_until_a_flush() {
        let (value, ended) = value();
        let counted = Refcache::new(value);
        // SAFETY: the first reference keeps the object.
        let count = || lock(unsafe { &counted.first.as_ref().state }).count;
        let mut handle = counted.handle();
        assert_eq!((handle.pair(), count()), (7, 1), "not yet the handle's own");
        handle.local.flush();
        assert_eq!(count(), 2);
        (0..EVERY / 2).for_each(|_| _ = handle.pair());
        drop(handle);
        assert_eq!((count(), ended.load(SeqCst)), (1, 0));
        drop(counted);
        assert_eq!(ended.load(SeqCst), 1);
    }

    #[test]
    fn zero_that_was_none_in_truth_frees_nothing() {
        let (value, ended) = value();
        let counted = Refcache::new(value);
        let object = counted.first;
        let (mut one, mut other) = (Local::new(&counted.epochs), Local::new(&counted.epochs));
        other.change(object, 1); // seen by no other thread yet
        one.change(object, -1);
        one.flush();
        assert_eq!(one.reviews.len(), 1, "the count is zero, wrongly");
        for _ in 0..10 {
            one.flush();
        }
        assert_eq!(ended.load(SeqCst), 0, "the other thread holds the epoch up");
        for _ in 0..5 {
            other.flush();
            one.flush();
        }
        assert_eq!((ended.load(SeqCst), one.reviews.len()), (0, 0), "reviewed, and kept");
        one.change(object, 1);
        other.change(object, -1);
        drop((one, other));
        drop(counted);
        assert_eq!(ended.load(SeqCst), 1);
    }
}
