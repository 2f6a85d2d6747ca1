//! Things to borrow and give back, with a shelf near each thread.
//!
//! Owns: [`ObjectPool`], its handles, and those that wait for an object.
//!
//! Laws:
//! - object_pool.P1 created = lent + on shelves + in the back room, and created is at most the
//!   bound.
//! - object_pool.P2 A thing is taken from the shelf of the thread's slot and put back there, under
//!   a lock on a line of its own. A full shelf gives half to the back room.
//! - object_pool.P3 A thread that finds its shelf empty tries the back room, then creates an object
//!   if the bound allows it, then takes half of another shelf (work stealing). So no thread starves
//!   while objects are idle elsewhere.
//! - object_pool.P4 Things are created, recycled and dropped with no lock held, and wakers are
//!   woken so.
//! - object_pool.P5 No waiter misses what is given back. It raises `waiting`, then looks at every
//!   place once more under that place's lock; a thread that returns a thing, or gives up a count,
//!   reads `waiting` under the lock of the place that it goes to. Whichever comes second sees what
//!   the first did. A shelf that is made beside it has no lock that both had: so a waiter enters
//!   under the list lock of the shelves, under which they are made (law clustered.R2).
//! - object_pool.P6 First come, first served. What comes back while others wait goes to the first
//!   of them, into its hands, and never to a place where a later thread might find it; so every
//!   place is empty as long as one waits. A waiter that leaves with something in its hands (its
//!   time was up, or its future was dropped) uses it or passes it on.
//!
//! Source: K42's global page manager, section 4.2 of the paper (free lists in the representatives,
//! the second of its three steps). The paper says that it does not balance them; object_pool.P3
//! does.

mod back;
mod builder;
mod handle;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod wait;

pub use builder::ObjectPoolBuilder;
pub use handle::{OwnedPooled, Pooled};
pub use wait::PoolFuture;

use super::Line;
use super::reentrancy_lock::ReentrancyLock;
use crate::cluster::{Clustered, Rep};
use crate::sync::{self, AtomicUsize, Ordering, seeded_bug};
use back::{Back, Found, Wakeup};
use std::fmt;
use std::mem::ManuallyDrop;

/// Objects that one shelf keeps, by default.
const SHELF: usize = 16;

/// What lies idle near one place.
struct Shelf<T>(ReentrancyLock<Vec<T>>);

type Make<T> = Box<dyn Fn() -> T + Send + Sync>;
type Recycle<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Root<T> {
    /// Away from what every return of an object reads.
    back: Line<ReentrancyLock<Back<T>>>,
    /// How many wait (object_pool.P5).
    waiting: AtomicUsize,
    make: Make<T>,
    recycle: Option<Recycle<T>>,
    max: usize,
    shelf: usize,
}

impl<T: Send + 'static> Rep for Shelf<T> {
    type Root = Root<T>;

    fn create(_root: &Root<T>, _place: usize) -> Self {
        Self(ReentrancyLock::new(Vec::new()))
    }
}

/// A pool of objects that are expensive to create: buffers, connections, parsers.
///
/// What for: objects that many threads borrow for a moment and give back all the time, with a bound
/// on how many there are. When not: for plain memory, a [`Slab`](crate::slab::Slab) or the
/// allocator; for one thing for each thread, a thread-local. Two threads of an EPYC that take and
/// return make 167 million pairs a second, by a bounded queue without a lock 87, by a `Vec`
/// behind a mutex 13 (`manycore bench object-pool`).
///
/// - Consistency: never more things than the bound. [`take`](Self::take) is refused if it found
///   none idle anywhere; beside things that are given back it may miss the last of them.
/// - Progress: blocking, for moments: no code of the user's runs under a lock. Threads and tasks
///   that wait for an object ([`get`](Self::get), [`get_async`](Self::get_async)) are served first
///   come, first served.
/// - Cost: while the thread's shelf has something, an uncontended lock and a `Vec`'s
///   `pop` for taking, as much for giving back, and no shared line written. Otherwise the pool's
///   lock, a look at the other shelves, or the making of a thing. While others wait, each return
///   takes the pool's lock.
/// - Memory: the things, 512 bytes, 256 for every 32 threads of the process once it is used, and
///   128 for each thread that uses it. What was created stays until the pool is dropped, or
///   [`shrink`](Self::shrink) is called.
/// - Panics: if making a thing does, or the [`recycle`](ObjectPoolBuilder::recycle) hook: the count
///   is right again before the panic goes on, and one that waits gets its turn. A panic of a
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
    /// An empty pool that makes up to `max` things when they are needed.
    #[must_use]
    pub fn new(max: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::builder(make).max(max).build()
    }

    /// Starts a pool with a hook for objects that come back, or other shelves.
    #[must_use]
    pub fn builder(make: impl Fn() -> T + Send + Sync + 'static) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder::new(make)
    }

    /// Borrows a thing: one that lies idle, near by if possible, or a new one. `None` if all that
    /// there may be are lent; [`get`](Self::get) waits then.
    #[doc(alias = "try_get")]
    #[inline]
    pub fn take(&self) -> Option<Pooled<'_, T>> {
        match self.shelves.local().0.with(Vec::pop) {
            Some(thing) => Some(Pooled::new(thing, self)),
            None => self.fetch(),
        }
    }

    /// From farther away (object_pool.P3).
    #[cold]
    fn fetch(&self) -> Option<Pooled<'_, T>> {
        let found = self.back(|back| {
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
        self.steal(back).map(Found::Idle)
    }

    /// What was found, made if need be.
    fn lend(&self, found: Found<T>) -> Pooled<'_, T> {
        let thing = match found {
            Found::Idle(thing) => thing,
            Found::Room => {
                if seeded_bug!("late-count") {
                    self.back(|back| back.created += 1);
                }
                let room = Room(self);
                let thing = (self.shelves.root().make)();
                std::mem::forget(room);
                thing
            }
        };
        Pooled::new(thing, self)
    }

    /// Half of the first shelf that has something: one to take, the rest to the back room, whose
    /// lock the caller has (the order is back room, then shelf).
    fn steal(&self, back: &mut Back<T>) -> Option<T> {
        self.shelves.reps().find_map(|(_, shelf)| {
            shelf.0.with(|things| {
                let half = things.len() / 2;
                back.idle.extend(things.drain(half..));
            });
            back.idle.pop()
        })
    }

    /// Puts a thing on the shelf of the thread that gives it back (object_pool.P2), unless the hook
    /// rejects it or others wait.
    ///
    /// It is taken out where it lies, and not before the lock is held: read earlier, in other parts
    /// than it was written in a moment ago, it would wait for those stores (5 ns).
    ///
    /// # Safety
    /// The thing is not used afterwards.
    #[inline]
    unsafe fn give_back(&self, thing: &mut ManuallyDrop<T>) {
        let root = self.shelves.root();
        if let Some(recycle) = &root.recycle {
            // SAFETY: the caller does not use the thing afterwards (# Safety), and if the hook
            // rejects it, this returns.
            if !unsafe { self.recycle(thing, recycle) } {
                return;
            }
        }
        let mut things = self.shelves.local().0.hold();
        // SAFETY: taken once, here, and the caller does not use it afterwards (# Safety).
        let mut thing = || unsafe { ManuallyDrop::take(thing) };
        // ORDER: Relaxed; written before the writer took this lock, if it took it before this
        // thread did (object_pool.P5).
        let others = if root.waiting.load(Ordering::Relaxed) == 0 {
            things.push(thing());
            if things.len() <= root.shelf {
                return;
            }
            things.split_off(root.shelf / 2)
        } else {
            vec![thing()]
        };
        drop(things);
        self.give(others);
    }

    /// Whether the hook leaves the thing in the pool; otherwise it is dropped.
    ///
    /// # Safety
    /// The thing is not used afterwards if this returns `false` or panics.
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

    /// To those that wait, or to the back room.
    #[cold]
    fn give(&self, things: Vec<T>) {
        let waiting = &self.shelves.root().waiting;
        let mut woken = Vec::new();
        self.back(|back| {
            for thing in things {
                match back.hand(Found::Idle(thing), waiting) {
                    Ok(wakeup) => woken.push(wakeup),
                    Err(Found::Idle(thing)) => back.idle.push(thing),
                    Err(Found::Room) => unreachable!("it was a thing"),
                }
            }
        });
        wake(woken);
    }

    /// Gives a count up, to one that waits or for whichever thread comes next.
    fn give_room(&self) {
        let woken = self.back(|back| {
            debug_assert!(back.created > 0, "object_pool.P1: a thing is uncounted twice");
            let handed = back.hand(Found::Room, &self.shelves.root().waiting);
            back.created -= usize::from(handed.is_err());
            handed.ok()
        });
        wake(woken);
    }

    /// What was handed to one that does not want it any more.
    fn pass_on(&self, found: Found<T>) {
        match found {
            Found::Idle(thing) => self.give(vec![thing]),
            Found::Room => self.give_room(),
        }
    }

    /// How many things there are, lent or idle.
    pub fn created(&self) -> usize {
        self.back(|back| back.created)
    }

    /// How many lie idle now. Beside threads that take and give back, an estimate.
    pub fn idle(&self) -> usize {
        let shelved = self.shelves.gather(0, |sum, shelf| sum + shelf.0.with(|t| t.len()));
        shelved + self.back(|back| back.idle.len())
    }

    /// Drops what lies idle; it is created again when it is needed. Returns how many.
    pub fn shrink(&self) -> usize {
        let dropped = self.back(|back| {
            let mut all = std::mem::take(&mut back.idle);
            for (_, shelf) in self.shelves.reps() {
                shelf.0.with(|things| all.append(things));
            }
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

/// Without a lock. Contained, because the caller has nothing to do with those that wait.
fn wake(woken: impl IntoIterator<Item = Wakeup>) {
    sync::contain(|| sync::run_each(woken, Wakeup::wake));
}

/// The count of a thing that is not there; given up at its end.
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
