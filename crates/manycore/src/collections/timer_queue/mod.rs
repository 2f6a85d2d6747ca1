//! Timers that are nearly always cancelled.
//!
//! Owns: [`TimerQueue`], [`Timer`], and the ownership of a timer's value. `wheel` has the timers
//! that were present at the last look (an `advance` or a `next_deadline`). Built on values with
//! marks ([`MemberPool`](crate::collections::member_pool::MemberPool)). `watch` tells a timekeeper
//! of an earlier deadline. Source: LDU, section 2.4 (marks); G. Varghese, A. Lauck, *Hashed and
//! hierarchical timing wheels*, SOSP 1987 (the wheel).
//!
//! ```text
//! state:  0 --cancel--> TAKEN          the handle takes the value and frees the item
//!         0 --fire----> TAKEN          the queue takes the value; the handle frees the item
//!         0 --detach--> LOOSE --fire--> LOOSE | TAKEN    the queue takes the value, frees the item
//! ```
//!
//! Laws:
//! - **timer_queue.T1** A timer's value is taken once: by the first to set TAKEN in its state. That
//!   is its handle when it cancels, or the queue when it fires. A value that is not taken is
//!   dropped with the item.
//! - **timer_queue.T2** An item's memory is given back once, by its *owner*: the handle until it
//!   detaches, then the thread that fires the timer. Detaching (LOOSE) and firing (TAKEN) are one
//!   instruction each on the state, so the later one finds the other's bit. A handle that finds the
//!   timer fired is still its owner. A firing that finds it loose has become the owner.
//! - **timer_queue.T3** The wheel has an item from the first look after its insertion until the
//!   first look after its owner gave it back. So a look may touch all that is in the wheel. If an
//!   item is to be taken out and is in no wheel, because it fired, it is left alone.
//! - **timer_queue.T4** No user code runs under the queue's lock: values are moved there, and
//!   dropped elsewhere.

#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod watch;
mod wheel;

use self::watch::Watch;
use self::wheel::{Timed, Wheel};
use crate::collections::member_pool::{FewMembers, Member, MemberStore, Store};
use crate::collections::owned::{Kept, Owner};
use crate::ldu::Queue;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, model_failed, run_each, seeded_bug};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit, forget};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// The value was taken (timer_queue.T1).
const TAKEN: usize = 1;
/// There is no handle (timer_queue.T2).
const LOOSE: usize = 2;

/// Initial capacity of the vector of fired timers: the capacity that a growing vector starts with,
/// which would cost forty instructions more.
const FIRED: usize = 4;

/// A timer.
struct Item<T> {
    deadline: u64,
    state: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: timer_queue.T1 - the value is reached by one thread, which moves it (`Send`).
unsafe impl<T: Send> Sync for Item<T> {}
// SAFETY: owned data.
unsafe impl<T: Send> Send for Item<T> {}

impl<T> Item<T> {
    /// Takes the value, unless it is taken (timer_queue.T1). Also returns true if there was no
    /// handle (timer_queue.T2). Only moves the value, because a look calls this under the queue's
    /// lock (timer_queue.T4).
    #[inline]
    fn take(&self) -> Option<(T, bool)> {
        // ORDER: AcqRel; the value before its item was shown by the insertion. Release lets a
        // thread that finds TAKEN go on from here (timer_queue.T2), Acquire is its other half.
        let before = self.state.fetch_or(TAKEN, Ordering::AcqRel);
        // BUG: a timer's value is taken without a look whether it is there (timer_queue.T1).
        if before & TAKEN != 0 && !seeded_bug!("timer-taken-twice") {
            return None;
        }
        // SAFETY: timer_queue.T1 - this call set the bit.
        let value = self.value.with_mut(|value| unsafe { (*value).assume_init_read() });
        // BUG: the thread that fires a timer looks for its handle after it took the value
        // (timer_queue.T2 of timers).
        let late = seeded_bug!("timer-late-look");
        let found = if late { self.state.load(Ordering::Acquire) } else { before };
        Some((value, found & LOOSE != 0))
    }

    /// Same as [`take`](Self::take), for the queue, under its lock.
    #[inline]
    fn fire(&self) -> Option<(T, bool)> {
        // ORDER: Acquire; pairs with the instruction that detaches (timer_queue.T2).
        if self.state.load(Ordering::Acquire) != LOOSE {
            return self.take();
        }
        // ORDER: Relaxed; no handle is left, so a thread that reads it holds the queue's lock.
        self.state.store(LOOSE | TAKEN, Ordering::Relaxed);
        // SAFETY: timer_queue.T1 - no handle is left, and this call set the bit.
        Some((self.value.with_mut(|value| unsafe { (*value).assume_init_read() }), true))
    }

    fn is_pending(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `take`: what follows the answer follows the taking.
        self.state.load(Ordering::Acquire) & TAKEN == 0
    }
}

impl<T> Drop for Item<T> {
    fn drop(&mut self) {
        // ORDER: Relaxed; ours alone.
        if self.state.load(Ordering::Relaxed) & TAKEN == 0 && !model_failed() {
            // SAFETY: timer_queue.T1 - it is not taken, and cannot be any more.
            self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

/// An item in a wheel.
struct InWheel<T>(NonNull<Member<Item<T>>>);

impl<T> Clone for InWheel<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for InWheel<T> {}

impl<T> InWheel<T> {
    fn item<'a>(self) -> &'a Item<T> {
        // SAFETY: timer_queue.T3 - the wheel has it.
        unsafe { Member::value(self.0) }
    }

    /// Returns the word in which its place is noted.
    fn note<'a>(self) -> &'a AtomicUsize {
        // SAFETY: timer_queue.T3 - the wheel has the node, so it is alive; the place is atomic.
        unsafe { &(*self.0.as_ptr()).place }
    }
}

impl<T> Timed for InWheel<T> {
    fn deadline(self) -> u64 {
        self.item().deadline
    }

    fn place(self) -> usize {
        // ORDER: Relaxed (both); guarded by the set's lock.
        self.note().load(Ordering::Relaxed)
    }

    fn put(self, place: usize) {
        self.note().store(place, Ordering::Relaxed);
    }
}

/// The wheel, as a look sees it.
struct Timers<T>(Wheel<InWheel<T>>);

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self(Wheel::new())
    }
}

// SAFETY: items are taken on any thread (`Send`).
unsafe impl<T: Send> Send for Timers<T> {}

impl<T: Send + 'static> MemberStore<Item<T>> for Timers<T> {
    const AT_PACE: bool = true;

    unsafe fn insert(&mut self, node: NonNull<Member<Item<T>>>) {
        self.0.insert(InWheel(node));
    }

    unsafe fn remove(&mut self, node: NonNull<Member<Item<T>>>) {
        self.0.remove(InWheel(node)); // none, if it fired (timer_queue.T3)
    }
}

impl<T: Send + 'static> Store<Item<T>> for Timers<T> {
    /// A hook, set before the queue is shared. (A queue with a hook is large.)
    type Beside = OnceLock<Watch>;

    fn runs_users_code(&self, _: usize) -> bool {
        false // timer_queue.T4
    }
}

impl<T> Drop for Timers<T> {
    /// Frees the timers without a handle that have not fired. (The thread that fires a timer frees
    /// it.)
    fn drop(&mut self) {
        // SAFETY: timer_queue.T3 - the wheel has them, and goes with its set.
        run_each(self.0.take_all(), |timer| unsafe { Member::free_left(timer.0) });
    }
}

/// Timers that many threads set and cancel all the time, and that a timekeeping thread fires:
/// timeouts of requests, leases, retries.
///
/// [`insert`](Self::insert) returns a [`Timer`]; cancelling or dropping it takes the value back.
/// The timekeeping thread calls [`advance`](Self::advance) and gets the values that are due. A
/// timer that is inserted and cancelled between two such calls never reaches the wheel and never
/// takes its lock, whichever threads do it. (If time advances so often that few timers do this, the
/// queue runs a trial. If the trial finds it faster, timers are set and cancelled *eagerly*: in the
/// wheel, under its lock.)
///
/// Deadlines are numbers in a unit that you choose; the queue looks at no clock and has no thread.
/// A thread that sleeps until the next deadline is woken for an earlier one by
/// [`on_earlier`](Self::on_earlier). Call `advance(now)` before the first insertion if your time
/// does not begin near zero.
///
/// When not: if most timers fire, or if each thread advances after every hundred insertions or so.
/// Then a wheel behind a lock is better (`manycore-bench bench timers` shows where the line is).
/// For events in the order in which they came, see [`EventQueue`](super::EventQueue).
///
/// ```
/// use manycore::collections::TimerQueue;
///
/// let timeouts = TimerQueue::new();
/// timeouts.advance(1_000);
/// let quick = timeouts.insert(1_030, "request 1");
/// let slow = timeouts.insert(1_030, "request 2");
/// timeouts.insert(1_500, "look at the cache").detach();
/// assert_eq!(quick.cancel(), Some("request 1")); // the answer came
/// assert_eq!(timeouts.next_deadline(), Some(1_030));
/// assert_eq!(timeouts.advance(1_040), [(1_030, "request 2")]);
/// assert_eq!(slow.cancel(), None); // too late
/// assert_eq!(timeouts.advance(2_000), [(1_500, "look at the cache")]);
/// ```
///
/// - Consistency: each timer is linearizable: it fires once or is cancelled. An advance to its
///   deadline or later that begins after its insertion fires it, unless it was cancelled before.
///   Several timers do not fire at one moment, but each at its own between the call of `advance`
///   and its return. So of two due timers, one may have fired while the other can still be
///   cancelled.
/// - Progress, small queue: inserting and cancelling wait for the queue's lock.
/// - Progress, large queue: they do not wait, unless a thread's queue of changes is at its bound.
///   At 4,096 changes the thread drains it into the wheel itself if no other thread does. At four
///   times as many it waits for the thread that drains. Eager changes spin for the wheel's lock for
///   some microseconds at most, and are deferred then.
/// - Progress of looks ([`advance`](Self::advance), [`next_deadline`](Self::next_deadline)): they
///   wait for each other.
/// - Cost of inserting and cancelling: one atomic instruction each on the timer's own line, and one
///   more for the ownership of the value. A timer's first change after a look takes one or two
///   more. No allocation in a steady state.
/// - Cost of a look: the lock, and a few steps in the wheel for each timer that has come since and
///   is still there, or was there and has gone. Finding the next deadline reads all timers of one
///   slot. A timer is moved to a finer wheel at most ten times.
/// - Memory: 128 bytes and up to 64 free timers for a small queue. When threads meet at its lock it
///   becomes large, for good: 1.8 KiB, and for every 32 threads of the process 8 KiB and up to 64
///   free timers each. In either case each timer takes its value and 48 bytes, and 8 bytes in the
///   wheel once a look has found it. Each of up to eleven wheels in use takes 1.5 KiB.
/// - Errors: none. Panics: none of its own. Values are dropped in the caller's hands, or when the
///   queue is.
/// - A forgotten handle's timer still fires, but its memory is lost then; see [`Timer::detach`].
#[doc(alias = "timeout")]
#[doc(alias = "timer wheel")]
#[doc(alias = "TTL")]
pub struct TimerQueue<T: Send + 'static> {
    timers: FewMembers<Item<T>, Timers<T>>,
}

impl<T: Send + 'static> TimerQueue<T> {
    /// Makes an empty queue at time zero, with a queue of changes for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_queue(Queue::PerThread)
    }

    /// Makes an empty queue at time zero. With [`Queue::Global`] it takes less memory.
    #[must_use]
    pub fn with_queue(queue: Queue) -> Self {
        Self { timers: FewMembers::new(queue) }
    }

    /// Has a hook called when a timer is set that is due before all that
    /// [`next_deadline`](Self::next_deadline) has found, so that a thread which sleeps until then
    /// can be woken. Without timers, the first one calls it.
    ///
    /// The hook gets the deadline, on the thread that sets the timer, after it is set and under no
    /// lock. Wake the timekeeper in it. That has to call `next_deadline` again before it sleeps
    /// again; until it does, only still earlier deadlines call the hook. It may be called without
    /// need, at a deadline that has been told of or is past. If it panics, the timer is cancelled.
    /// Cost: the queue is large from the beginning, and setting a timer takes a fence more. A queue
    /// without a hook pays nothing while it is small, and a branch when it is large.
    ///
    /// # Panics
    /// If the queue has a hook.
    ///
    /// ```
    /// use manycore::collections::TimerQueue;
    /// use std::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let begin = Instant::now();
    /// let now = || begin.elapsed().as_millis() as u64;
    /// let keeper = thread::current(); // the thread that calls `advance`, here this one
    /// let timeouts = TimerQueue::new().on_earlier(move |_| keeper.unpark());
    /// timeouts.insert(60_000, "late").detach();
    /// thread::scope(|scope| {
    ///     scope.spawn(|| timeouts.insert(now() + 5, "soon").detach());
    ///     loop {
    ///         let fired = timeouts.advance(now());
    ///         if let Some((_, value)) = fired.first() {
    ///             assert_eq!(*value, "soon");
    ///             break;
    ///         }
    ///         // `unpark` before `park_timeout` is not lost.
    ///         let Some(next) = timeouts.next_deadline() else {
    ///             thread::park();
    ///             continue;
    ///         };
    ///         thread::park_timeout(Duration::from_millis(next.saturating_sub(now())));
    ///     }
    /// });
    /// ```
    ///
    /// In asynchronous code, let the hook notify a task that sleeps until the next deadline or the
    /// notice, whichever is first.
    #[must_use]
    pub fn on_earlier(self, hook: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let is_first = self.timers.promote().beside.set(Watch::new(Box::new(hook))).is_ok();
        assert!(is_first, "manycore: this TimerQueue has a hook already");
        self
    }

    /// Sets a timer. If its deadline is past, it fires at the next advance.
    ///
    /// The timer borrows the queue. If it must not, because a struct is to hold it, use
    /// [`insert_owned`](Self::insert_owned).
    #[inline]
    pub fn insert(&self, deadline: u64, value: T) -> Timer<'_, T> {
        Timer { item: self.enter(deadline, value), queue: self }
    }

    /// Same as [`insert`](Self::insert), with a timer that keeps the queue alive. [`Owner`] says
    /// what it costs.
    #[inline]
    pub fn insert_owned<Q: Owner<Target = Self>>(
        queue: &Q,
        deadline: u64,
        value: T,
    ) -> OwnedTimer<T, Q> {
        OwnedTimer { kept: Kept::new(queue, |queue| queue.insert(deadline, value)) }
    }

    #[inline]
    fn enter(&self, deadline: u64, value: T) -> NonNull<Item<T>> {
        let value = UnsafeCell::new(MaybeUninit::new(value));
        let item = Item { deadline, state: AtomicUsize::new(0), value };
        self.timers.enter_then(item, |item, many| {
            if let Some(watch) = many.beside.get() {
                self.tell(watch, item, deadline);
            }
        })
    }

    /// Tells the hook of a new timer, which is cancelled if it panics.
    #[cold]
    fn tell(&self, watch: &Watch, item: NonNull<Item<T>>, deadline: u64) {
        let timer = Timer { item, queue: self };
        watch.inserted(deadline);
        forget(timer);
    }

    /// Sets the time to `now` and fires what is due. Returns the values of all timers with this or
    /// an earlier deadline, ordered by deadline. Time does not go back: an advance to an earlier
    /// time counts as an advance to the latest time.
    pub fn advance(&self, now: u64) -> Vec<(u64, T)> {
        let mut fired = Vec::new();
        // In the small form this closure runs twice. Between the runs, the wheel is told of the
        // timers that came since the last look; those that are due by now never reach it.
        self.timers.change_and_free(|timers, gone| {
            timers.0.advance(now, |timer| {
                let item = timer.item();
                if let Some((value, is_loose)) = item.fire() {
                    if fired.is_empty() {
                        fired = Vec::with_capacity(FIRED);
                    }
                    fired.push((item.deadline, value));
                    // timer_queue.T2 - this call is the item's owner, and the value was taken.
                    if is_loose {
                        gone.push(timer.0);
                    }
                }
            });
        });
        fired.sort_by_key(|(deadline, _)| *deadline);
        fired
    }

    /// Returns the earliest deadline of the timers that are set.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let next = |timers: &Timers<T>| timers.0.next(|timer| timer.item().is_pending());
        let watched = self.timers.many().and_then(|many| Some((many, many.beside.get()?)));
        match watched {
            Some((many, watch)) => {
                many.pool.read_cut(|| watch.raise(), |timers, _| watch.lower(next(timers)))
            }
            None => self.timers.change(|timers| next(timers)),
        }
    }
}

impl<T: Send + 'static> Default for TimerQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> fmt::Debug for TimerQueue<T> {
    /// Prints no timers: that would take a look.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerQueue").finish_non_exhaustive()
    }
}

/// A timer that is set, or has fired. Dropping it cancels it. May be used on any thread.
///
/// See [`TimerQueue`] for an example.
#[must_use = "dropping the timer cancels it; detach it to let it fire"]
pub struct Timer<'a, T: Send + 'static> {
    item: NonNull<Item<T>>,
    queue: &'a TimerQueue<T>,
}

// SAFETY: through a handle the value is moved to its thread, or dropped there (`Send`); the queue
// may be used from any thread.
unsafe impl<T: Send> Send for Timer<'_, T> {}
// SAFETY: shared, a handle gives no access to the value.
unsafe impl<T: Send> Sync for Timer<'_, T> {}

impl<T: Send + 'static> Timer<'_, T> {
    fn item(&self) -> &Item<T> {
        // SAFETY: timer_queue.T2 - the handle is the item's owner.
        unsafe { self.item.as_ref() }
    }

    /// Returns when the timer is to fire.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.item().deadline
    }

    /// Returns true if the timer has not fired yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.item().is_pending()
    }

    /// Cancels the timer. Returns the value, unless the timer has fired.
    #[inline]
    pub fn cancel(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: once, because the handle is not dropped.
        unsafe { this.give_back() }
    }

    /// Sets another deadline. Returns false if the timer has fired, which changes nothing.
    ///
    /// Costs as much as cancelling and setting a timer.
    ///
    /// ```
    /// use manycore::collections::TimerQueue;
    ///
    /// let timeouts = TimerQueue::new();
    /// let mut timer = timeouts.insert(30, "idle");
    /// assert!(timer.reset(50)); // there was traffic
    /// assert!(timeouts.advance(40).is_empty());
    /// assert_eq!(timeouts.advance(50), [(50, "idle")]);
    /// assert!(!timer.reset(90));
    /// ```
    pub fn reset(&mut self, deadline: u64) -> bool {
        let Some((value, _)) = self.item().take() else { return false };
        let before = std::mem::replace(&mut self.item, self.queue.enter(deadline, value));
        // SAFETY: timer_queue.T2 - the handle was this item's owner, and is another's now.
        unsafe { self.queue.timers.leave(before) };
        true
    }

    /// Takes the value, if it is there, and gives the item back.
    ///
    /// # Safety
    /// Called once, and the handle is not used afterwards.
    #[inline]
    unsafe fn give_back(&mut self) -> Option<T> {
        let taken = self.item().take();
        // SAFETY: timer_queue.T2 - the handle is the owner, and goes.
        unsafe { self.queue.timers.leave(self.item) };
        taken.map(|(value, _)| value)
    }

    /// Lets the timer fire without a handle.
    #[inline]
    pub fn detach(self) {
        // ORDER: AcqRel; timer_queue.T2 - pairs with `take` of the firing thread, which comes
        // before it or after it. (Only the handle's end sets the bit, so that an addition does,
        // which takes no loop.)
        let before = self.item().state.fetch_add(LOOSE, Ordering::AcqRel);
        if before & TAKEN == 0 {
            forget(self);
        }
    }
}

impl<T: Send + 'static> Drop for Timer<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: once, here.
        drop(unsafe { self.give_back() });
    }
}

impl<T: Send + 'static> fmt::Debug for Timer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("deadline", &self.deadline())
            .field("is_pending", &self.is_pending())
            .finish()
    }
}

/// Same as [`Timer`], without borrowing the queue; see [`TimerQueue::insert_owned`].
///
/// ```
/// use manycore::collections::{OwnedTimer, TimerQueue};
/// use std::sync::Arc;
///
/// struct Session {
///     timeout: OwnedTimer<u32>,
/// }
///
/// let timeouts = Arc::new(TimerQueue::new());
/// let mut session = Session { timeout: TimerQueue::insert_owned(&timeouts, 30, 7) };
/// assert!(session.timeout.reset(50));
/// assert_eq!(timeouts.advance(60), [(50, 7)]);
/// assert_eq!(session.timeout.cancel(), None);
/// ```
#[must_use = "dropping the timer cancels it; detach it to let it fire"]
pub struct OwnedTimer<T: Send + 'static, Q: Owner<Target = TimerQueue<T>> = Arc<TimerQueue<T>>> {
    kept: Kept<Timer<'static, T>, Q>,
}

impl<T: Send + 'static, Q: Owner<Target = TimerQueue<T>>> OwnedTimer<T, Q> {
    /// Returns the queue.
    #[must_use]
    pub fn queue(&self) -> &Q {
        &self.kept.owner
    }

    /// Returns when the timer is to fire.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.kept.handle.deadline()
    }

    /// Returns true if the timer has not fired yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.kept.handle.is_pending()
    }

    /// Sets another deadline. Returns false if the timer has fired; see [`Timer::reset`].
    pub fn reset(&mut self, deadline: u64) -> bool {
        self.kept.handle.reset(deadline)
    }

    /// Cancels the timer. Returns the value, unless the timer has fired.
    pub fn cancel(self) -> Option<T> {
        let Kept { handle, owner: _owner } = self.kept;
        handle.cancel()
    }

    /// Lets the timer fire without a handle, if somebody else keeps the queue.
    pub fn detach(self) {
        let Kept { handle, owner: _owner } = self.kept;
        handle.detach();
    }
}

impl<T: Send + 'static, Q: Owner<Target = TimerQueue<T>>> fmt::Debug for OwnedTimer<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.handle.fmt(f)
    }
}
