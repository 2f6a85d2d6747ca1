//! Objects to borrow and give back, with a shelf near each thread.
//!
//! Owns: [`ObjectPool`], its handles, and the threads and tasks that wait for an object.
//!
//! ```text
//! shelf of thread 1   [ idle ]     take: own shelf -> back room -> create -> close, empty shelves
//! shelf of thread 2   [ idle ]     give back: the first waiter, or own shelf (a full shelf
//! back room           [ idle ]                gives half to the back room)
//!    with the count of created objects and the queue of waiters, under one lock
//! ```
//!
//! Laws:
//! - object_pool.P1 created = lent + on shelves + in the back room, and created is at most the
//!   bound.
//! - object_pool.P2 A thread takes an object from the shelf of its own slot and puts it back there.
//!   It announces itself on the shelf's line and finds the pool open (gate.E1); no other thread
//!   uses that shelf. A full shelf gives half to the back room.
//! - object_pool.P3 A thread that finds its shelf empty first tries the back room. Next it creates
//!   an object if the bound allows it, and last it closes the pool if a shelf has something. So no
//!   thread starves while objects are idle elsewhere. Closing empties all shelves into the back
//!   room (gate.E2). The pool opens after `TURNS` turns at the back room without a waiter. So
//!   objects that are too few for a shelf of each thread are shared under one lock.
//! - object_pool.P4 Objects are created, recycled and dropped with no lock held; wakers are woken
//!   with no lock held.
//! - object_pool.P5 No waiter misses what is given back. A waiter closes the pool before it enters
//!   the queue, under the pool's lock, and the pool stays closed while there is a waiter. So a
//!   thread that returns an object, or gives up a count, goes to the back room, and finds the
//!   waiter there.
//! - object_pool.P6 First come, first served. An object that comes back while others wait goes to
//!   the first of them, into its hands, and never to a place where a later thread might find it. So
//!   every place is empty while there is a waiter. A waiter that leaves with something in its hands
//!   (its time was up, or its future was dropped) uses it or passes it on.
//!
//! Source: K42's global page manager, section 4.2 of the paper (free lists in the representatives,
//! the second of its three steps). The paper says that it does not balance them; object_pool.P3
//! does.

mod back;
mod builder;
mod handle;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod shelf;
mod wait;

pub use builder::ObjectPoolBuilder;
pub use handle::{OwnedPooled, Pooled};
pub use wait::PoolFuture;

use super::Line;
use super::reentrancy_lock::ReentrancyLock;
use crate::cluster::{Clustered, Placement, Rep};
use crate::config::SMALL;
use crate::percpu;
use crate::sync::{self, seeded_bug};
use back::{Back, Found, Wakeup};
use shelf::{Doors, Shelf};
use std::fmt;
use std::mem::{self, ManuallyDrop};

/// Objects that a shelf keeps, by default.
const SHELF: usize = 16;

/// Turns at the back room without a waiter after which a closed pool opens. Closing costs a barrier
/// of some microseconds and a look at each shelf, and the pool stays closed for about as long as
/// that takes. So a pool that is short of objects only now and then is nearly always open.
const TURNS: usize = if SMALL { 2 } else { 128 };

type Make<T> = Box<dyn Fn() -> T + Send + Sync>;
type Recycle<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Root<T> {
    /// Apart from what every return of an object reads.
    back: Line<ReentrancyLock<Back<T>>>,
    doors: Doors,
    /// True if shelves are plain and there is no hook: giving back looks at nothing else.
    is_straight: bool,
    make: Make<T>,
    recycle: Option<Recycle<T>>,
    max: usize,
    shelf: usize,
}

impl<T: Send + 'static> Rep for Shelf<T> {
    type Root = Root<T>;

    fn create(_root: &Root<T>, _place: usize) -> Self {
        Self::new()
    }
}

/// A pool of objects that are expensive to create: buffers, connections, parsers.
///
/// What for: objects that many threads borrow for a moment and give back all the time, with a bound
/// on how many there are. When not: for plain memory, take a [`Slab`](crate::slab::Slab) or the
/// allocator; for one object for each thread, a thread-local.
///
/// Two threads of an EPYC that take and return make 167 million pairs a second. A bounded lock-free
/// queue makes 87 million, a `Vec` behind a mutex 13 (`manycore-bench bench object-pool`).
///
/// - Consistency: never more objects than the bound. [`take`](Self::take) is refused if it found
///   none idle anywhere. While others give objects back, it may miss the last of them.
/// - Progress: blocking, for moments: no user code runs under a lock. Threads and tasks that wait
///   for an object ([`get`](Self::get), [`get_async`](Self::get_async)) are served first come,
///   first served.
/// - Cost: while the thread's shelf has an object, a `Vec`'s `pop` for taking, a `push` for giving
///   back, and no locked instruction. Otherwise the pool's lock, or the making of an object. If
///   objects are idle only on other threads' shelves, or a thread begins to wait, a barrier
///   (`membarrier`, some microseconds) collects them. While others wait, and for the next 128
///   calls, each call takes the pool's lock.
/// - Memory: the objects, 512 bytes, 256 for every 32 threads of the process once it is used, and
///   128 for each thread that uses it. Objects stay until the pool is dropped, or
///   [`shrink`](Self::shrink) is called.
/// - Panics: if making an object does, or the [`recycle`](ObjectPoolBuilder::recycle) hook. The
///   count is right again before the panic continues, and a waiter gets its turn. A panic of a
///   waiter's waker stays within the return that woke it.
/// - Source: K42's page manager, section 4.2.
///
/// ```
/// use manycore::collections::ObjectPool;
///
/// let buffers = ObjectPool::new(2, || Vec::<u8>::with_capacity(1 << 16));
/// let mut first = buffers.take().unwrap();
/// first.extend(b"hello");
/// let second = buffers.take().unwrap();
/// assert!(buffers.take().is_none(), "two are all there are");
/// drop((first, second));
/// assert_eq!((buffers.created(), buffers.idle()), (2, 2));
/// ```
#[doc(alias = "connection pool")]
#[doc(alias = "deadpool")]
#[doc(alias = "free list")]
#[doc(alias = "semaphore")]
pub struct ObjectPool<T: Send + 'static> {
    shelves: Clustered<Shelf<T>>,
}

impl<T: Send + 'static> ObjectPool<T> {
    /// Makes an empty pool that makes up to `max` objects when they are needed.
    #[must_use]
    pub fn new(max: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::builder(make).max(max).build()
    }

    /// Starts a builder for a pool with a hook for returned objects, or other shelves.
    #[must_use]
    pub fn builder(make: impl Fn() -> T + Send + Sync + 'static) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder::new(make)
    }

    /// Borrows an object: an idle one, near by if possible, or a new one. Returns `None` if the
    /// pool is at its bound and all objects are lent; [`get`](Self::get) waits then.
    #[doc(alias = "try_get")]
    #[inline]
    pub fn take(&self) -> Option<Pooled<'_, T>> {
        match self.near_shelf(Vec::pop) {
            Some(thing) => Some(Pooled::new(thing, self)),
            None => self.fetch(),
        }
    }

    /// Returns what `f`, which is no user code and does not panic, does with the calling thread's
    /// shelf (object_pool.P2). Also returns `None` if the pool is closed, and in the cases that are
    /// left to [`shelf`](Self::shelf).
    #[inline(always)]
    fn near_shelf<R>(&self, f: impl FnOnce(&mut Vec<T>) -> Option<R>) -> Option<R> {
        let doors = &self.shelves.root().doors;
        if !doors.are_plain {
            return None;
        }
        // SAFETY: the shelf of the calling thread's own slot, and biased. `f` is no user code, so
        // the thread is not inside already.
        self.shelves.near_slot().and_then(|shelf| unsafe { shelf.with(doors, true, f) })
    }

    /// Same as [`near_shelf`](Self::near_shelf), wherever the shelf is, and for shared shelves.
    /// Also returns `None` if the thread's slot is gone.
    fn shelf<R>(&self, f: impl FnOnce(&mut Vec<T>) -> Option<R>) -> Option<R> {
        let doors = &self.shelves.root().doors;
        let biased = doors.are_biased();
        if self.shelves.placement() == Placement::PerThread {
            percpu::own_slot()?; // after the thread's destructors, its slot may be another's
            // SAFETY: the shelf of the calling thread's own slot; as above.
            return unsafe { self.shelves.local().with(doors, biased, f) };
        }
        let shelf = self.shelves.local();
        // SAFETY: this thread holds the shelf's lock.
        shelf.shared.with(|()| unsafe { shelf.with(doors, biased, f) })
    }

    /// Borrows an object from farther away (object_pool.P3).
    #[cold]
    #[inline(never)]
    fn fetch(&self) -> Option<Pooled<'_, T>> {
        if let Some(thing) = self.shelf(Vec::pop) {
            return Some(Pooled::new(thing, self));
        }
        let found = self.back(|back| {
            self.turn(back);
            let found = self.search(back);
            debug_assert!(
                found.is_none() || !back.has_waiters(),
                "object_pool.P6: a thread takes what others wait for"
            );
            found
        });
        Some(self.lend(found?))
    }

    /// Runs `f` under the pool's lock.
    fn back<R>(&self, f: impl FnOnce(&mut Back<T>) -> R) -> R {
        self.shelves.root().back.0.with(f)
    }

    fn search(&self, back: &mut Back<T>) -> Option<Found<T>> {
        if let Some(thing) = back.idle.pop() {
            return Some(Found::Idle(thing));
        }
        if back.created < self.shelves.root().max {
            // BUG: a pool's new thing is counted after the lock was given up (object_pool.P1).
            back.created += usize::from(!seeded_bug!("late-count"));
            return Some(Found::Room);
        }
        if !self.shelves.reps().any(|(_, shelf)| shelf.count() > 0) {
            return None;
        }
        self.close(back);
        back.idle.pop().map(Found::Idle)
    }

    /// Closes the pool, if it is open, and moves what is on the shelves into the back room
    /// (object_pool.P3). The caller has the pool's lock.
    fn close(&self, back: &mut Back<T>) {
        if mem::replace(&mut back.turns, TURNS) == 0 {
            self.shelves.root().doors.close();
            // SAFETY: closed, under the pool's lock. A shelf that is made beside this and not seen
            // here is announced on later than the barrier, so its user finds the pool closed.
            self.shelves.reps().for_each(|(_, shelf)| unsafe { shelf.empty(&mut back.idle) });
        }
    }

    /// Counts a turn at the back room; the last turn opens the pool (object_pool.P3).
    fn turn(&self, back: &mut Back<T>) {
        if back.turns != 0 && !back.has_waiters() {
            back.turns -= 1;
            if back.turns == 0 {
                self.shelves.root().doors.open();
            }
        }
    }

    /// Lends what was found; makes an object if need be.
    fn lend(&self, found: Found<T>) -> Pooled<'_, T> {
        let thing = match found {
            Found::Idle(thing) => thing,
            Found::Room => {
                if seeded_bug!("late-count") {
                    self.back(|back| back.created += 1);
                }
                let room = Room(self);
                let thing = (self.shelves.root().make)();
                mem::forget(room);
                thing
            }
        };
        Pooled::new(thing, self)
    }

    /// Puts an object on the shelf of the thread that gives it back (object_pool.P2), unless the
    /// hook rejects it or others wait.
    ///
    /// # Safety
    /// The object is not used afterwards.
    #[inline]
    unsafe fn give_back(&self, thing: &mut ManuallyDrop<T>) {
        let root = self.shelves.root();
        let shelf = if root.is_straight { self.shelves.near_slot() } else { None };
        // SAFETY: the shelf of the calling thread's own slot, and biased; `put` is no user code.
        // The thing is taken out once, as the caller promises (# Safety): `put` says when.
        let is_put = shelf.and_then(|shelf| unsafe {
            shelf.with(&root.doors, true, |things| self.put(things, thing))
        });
        if is_put.is_none() {
            // SAFETY: as the caller promises (# Safety); it was not taken above.
            unsafe { self.give_far(thing) };
        }
    }

    /// Same as [`give_back`](Self::give_back): with the hook, to any shelf.
    ///
    /// # Safety
    /// The object is not used afterwards.
    #[inline(never)]
    unsafe fn give_far(&self, thing: &mut ManuallyDrop<T>) {
        if let Some(recycle) = &self.shelves.root().recycle {
            // SAFETY: the caller does not use the thing afterwards (# Safety), and if the hook
            // rejects it, this returns.
            if !unsafe { self.recycle(thing, recycle) } {
                return;
            }
        }
        // SAFETY: taken out once, as the caller promises (# Safety): `put` says when.
        let is_put = self.shelf(|things| unsafe { self.put(things, thing) });
        if is_put.is_none() {
            // SAFETY: as the caller promises (# Safety); it was not taken above.
            self.make_room(unsafe { ManuallyDrop::take(thing) });
        }
    }

    /// Moves the object to a shelf that has room for it, without calling the allocator.
    ///
    /// # Safety
    /// If it returns `Some`, the object is not used afterwards.
    #[inline(always)]
    unsafe fn put(&self, things: &mut Vec<T>, thing: &mut ManuallyDrop<T>) -> Option<()> {
        let has_room = things.len() < things.capacity() && things.len() < self.shelves.root().shelf;
        // SAFETY: as the caller promises (# Safety).
        has_room.then(|| things.push(unsafe { ManuallyDrop::take(thing) }))
    }

    /// Makes room on the shelf, or gives the object to a waiter or to the back room.
    #[cold]
    #[inline(never)]
    fn make_room(&self, thing: T) {
        let root = self.shelves.root();
        if root.shelf == 0 || root.doors.is_closed() {
            return self.give([thing]);
        }
        // This thread has the objects in its hands while the allocator is called.
        let mut things = self.shelf(|shelf| Some(mem::take(shelf))).unwrap_or_default();
        things.push(thing);
        let others =
            if things.len() > root.shelf { things.split_off(root.shelf / 2) } else { Vec::new() };
        self.shelf(|shelf| shelf.is_empty().then(|| mem::swap(shelf, &mut things)));
        // If the swap was refused, the pool was closed, or another thread that shares the shelf
        // came.
        things.extend(others);
        if !things.is_empty() {
            self.give(things);
        }
    }

    /// Returns true if the hook leaves the object in the pool; otherwise drops it.
    ///
    /// # Safety
    /// The object is not used afterwards if this returns `false` or panics.
    unsafe fn recycle(&self, thing: &mut ManuallyDrop<T>, recycle: &Recycle<T>) -> bool {
        let fit = sync::caught(|| recycle(thing));
        if matches!(fit, Ok(true)) {
            return true;
        }
        let room = Room(self);
        // SAFETY: the caller does not use it afterwards (# Safety).
        let dropped = sync::caught(|| unsafe { ManuallyDrop::drop(thing) });
        drop(room); // after the thing, so that there are never more than the bound
        sync::resume_first([fit.map(drop), dropped]);
        false
    }

    /// Gives the objects to waiters, or to the back room.
    #[cold]
    fn give(&self, things: impl IntoIterator<Item = T>) {
        let mut woken = Vec::new();
        self.back(|back| {
            for thing in things {
                match back.hand(Found::Idle(thing)) {
                    Ok(wakeup) => woken.push(wakeup),
                    Err(Found::Idle(thing)) => back.idle.push(thing),
                    Err(Found::Room) => unreachable!("it was a thing"),
                }
            }
            self.turn(back);
        });
        wake(woken);
    }

    /// Gives a count up, to a waiter or for whichever thread comes next.
    fn give_room(&self) {
        let woken = self.back(|back| {
            debug_assert!(back.created > 0, "object_pool.P1: a thing is uncounted twice");
            let handed = back.hand(Found::Room);
            back.created -= usize::from(handed.is_err());
            handed.ok()
        });
        wake(woken);
    }

    /// Passes on what was handed to a waiter that does not need it any more.
    fn pass_on(&self, found: Found<T>) {
        match found {
            Found::Idle(thing) => self.give([thing]),
            Found::Room => self.give_room(),
        }
    }

    /// Returns the number of objects, lent or idle.
    pub fn created(&self) -> usize {
        self.back(|back| back.created)
    }

    /// Returns the number of idle objects: an estimate while threads take and give back.
    pub fn idle(&self) -> usize {
        let shelved = self.shelves.gather(0, |sum, shelf| sum + shelf.count());
        shelved + self.back(|back| back.idle.len())
    }

    /// Drops the idle objects, which are created again when needed. Returns how many it dropped.
    pub fn shrink(&self) -> usize {
        let dropped = self.back(|back| {
            self.close(back);
            let all = mem::take(&mut back.idle);
            debug_assert!(
                all.len() <= back.created,
                "object_pool.P1: more idle things than were created"
            );
            back.created -= all.len();
            all
        });
        dropped.len() // dropped with no lock held (object_pool.P4)
    }
}

/// Wakes waiters, without a lock. Panics are contained, because the caller has nothing to do with
/// those that wait.
fn wake(woken: impl IntoIterator<Item = Wakeup>) {
    sync::contain(|| sync::run_each(woken, Wakeup::wake));
}

/// The count of an object that does not exist (yet, or any more). Dropping this gives the count up.
struct Room<'a, T: Send + 'static>(&'a ObjectPool<T>);

impl<T: Send + 'static> Drop for Room<'_, T> {
    fn drop(&mut self) {
        self.0.give_room();
    }
}

impl<T: Send + 'static> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (created, idle) = (self.created(), self.idle());
        f.debug_struct("ObjectPool").field("created", &created).field("idle", &idle).finish()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// object_pool.P3, object_pool.P5.
    #[test]
    fn closed_pool_opens_after_some_turns_unless_others_wait() {
        let pool = ObjectPool::new(2, || 7);
        let is_closed = || pool.shelves.root().doors.is_closed();
        drop(pool.take());
        assert!(!is_closed());
        assert_eq!(pool.shrink(), 1);
        assert!(is_closed());
        (0..TURNS).for_each(|_| drop(pool.take()));
        assert!(!is_closed(), "it opens when it was used for a while");
        drop(pool.take());
        assert_eq!((pool.created(), pool.idle()), (1, 1));
        let lent = (pool.get(), pool.get());
        {
            let mut waits = pin!(pool.get_async());
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            (0..2 * TURNS).for_each(|_| assert!(pool.take().is_none()));
            assert!(is_closed(), "what comes back goes to the one that waits");
        }
        drop(lent);
        (0..TURNS).for_each(|_| drop(pool.take()));
        assert!(!is_closed());
        assert_eq!((pool.created(), pool.idle()), (2, 2));
    }
}
