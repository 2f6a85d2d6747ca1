//! Things to borrow and give back, with a shelf near each thread.
//!
//! Owns: [`ObjectPool`] and [`Pooled`].
//!
//! Laws:
//! - object_pool.P1 created = lent + on shelves + in the back room, and created is at most the
//!   bound.
//! - object_pool.P2 A thing is taken from the shelf of the thread's slot and put back there, under
//!   a lock on a line of its own. A full shelf gives half to the back room.
//! - object_pool.P3 A thread that finds its shelf empty tries the back room, then creates an object
//!   if the bound allows it, then takes half of another shelf (work stealing). So no thread starves
//!   while objects are idle elsewhere.
//! - object_pool.P4 Things are created and dropped with no lock held.
//!
//! Source: K42's global page manager, section 4.2 of the paper (free lists in the representatives,
//! the second of its three steps). The paper says that it does not balance them; object_pool.P3
//! does.

#[cfg(all(test, manycore_loom))]
mod loom_tests;

use super::reentrancy_lock::ReentrancyLock;
use crate::cluster::{Clustered, Placement, Rep};
use crate::sync::seeded_bug;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Objects that one shelf keeps, by default.
const SHELF: usize = 16;

/// What lies idle near one place.
struct Shelf<T>(ReentrancyLock<Vec<T>>);

struct Back<T> {
    idle: Vec<T>,
    created: usize,
}

struct Root<T> {
    back: ReentrancyLock<Back<T>>,
    make: Box<dyn Fn() -> T + Send + Sync>,
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
/// - Progress: blocking, for moments: no code of the user's runs under a lock.
/// - Cost: while the thread's shelf has something, an uncontended lock and a `Vec`'s
///   `pop` for taking, as much for giving back, and no shared line written. Otherwise the pool's
///   lock, a look at the other shelves, or the making of a thing.
/// - Memory: the things, 280 bytes, 256 for every 32 threads of the process once it is used, and
///   128
///   for each thread that uses it. What was created stays until the pool is
///   dropped, or [`shrink`](Self::shrink) is called.
/// - Panics: if making a thing does; the pool stays as it was.
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
#[doc(alias = "free list")]
pub struct ObjectPool<T: Send + 'static> {
    shelves: Clustered<Shelf<T>>,
}

impl<T: Send + 'static> ObjectPool<T> {
    /// An empty pool that makes up to `max` things when they are needed.
    #[must_use]
    pub fn new(max: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::with_shelves(max, Placement::default(), SHELF, make)
    }

    /// As [`new`](Self::new), with shelves of this placement that keep up to `shelf` things each.
    #[must_use]
    pub fn with_shelves(
        max: usize,
        placement: Placement,
        shelf: usize,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        let back = ReentrancyLock::new(Back { idle: Vec::new(), created: 0 });
        let root = Root { back, make: Box::new(make), max, shelf };
        Self { shelves: Clustered::new(placement, root) }
    }

    /// Borrows a thing: one that lies idle, near by if possible, or a new one. `None` if all that
    /// there may be are lent.
    #[inline]
    pub fn take(&self) -> Option<Pooled<'_, T>> {
        let thing = self.shelves.local().0.with(Vec::pop);
        Some(self.lent(thing.or_else(|| self.fetch())?))
    }

    fn lent(&self, thing: T) -> Pooled<'_, T> {
        Pooled { thing: ManuallyDrop::new(thing), pool: self }
    }

    /// From farther away (object_pool.P3).
    #[cold]
    fn fetch(&self) -> Option<T> {
        let root = self.shelves.root();
        let found = root.back.with(|back| {
            if let Some(thing) = back.idle.pop() {
                return Found::Idle(thing);
            }
            if back.created < root.max {
                // BUG: a pool's new thing is counted after the lock was given up (object_pool.P1).
                back.created += usize::from(!seeded_bug!("late-count"));
                return Found::Room;
            }
            self.steal(back).map_or(Found::Nothing, Found::Idle)
        });
        match found {
            Found::Idle(thing) => Some(thing),
            Found::Nothing => None,
            Found::Room => {
                if seeded_bug!("late-count") {
                    root.back.with(|back| back.created += 1);
                }
                let room = Room(self);
                let thing = (root.make)();
                std::mem::forget(room);
                Some(thing)
            }
        }
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

    /// Puts a thing on the shelf of the thread that gives it back (object_pool.P2).
    #[inline]
    fn put(&self, thing: T) {
        let max = self.shelves.root().shelf;
        let surplus = self.shelves.local().0.with(|things| {
            things.push(thing);
            (things.len() > max).then(|| things.split_off(max / 2))
        });
        if let Some(surplus) = surplus {
            self.shelves.root().back.with(|back| back.idle.extend(surplus));
        }
    }

    /// How many things there are, lent or idle.
    pub fn created(&self) -> usize {
        self.shelves.root().back.with(|back| back.created)
    }

    /// How many lie idle now. Beside threads that take and give back, an estimate.
    pub fn idle(&self) -> usize {
        let shelved = self.shelves.gather(0, |sum, shelf| sum + shelf.0.with(|t| t.len()));
        shelved + self.shelves.root().back.with(|back| back.idle.len())
    }

    /// Drops what lies idle; it is created again when it is needed. Returns how many.
    pub fn shrink(&self) -> usize {
        let dropped = self.shelves.root().back.with(|back| {
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

/// What a look beyond the own shelf came to.
enum Found<T> {
    Idle(T),
    /// A place for one more, which is counted as created already.
    Room,
    Nothing,
}

/// Takes the place back if making panics.
struct Room<'a, T: Send + 'static>(&'a ObjectPool<T>);

impl<T: Send + 'static> Drop for Room<'_, T> {
    fn drop(&mut self) {
        self.0.shelves.root().back.with(|back| {
            debug_assert!(back.created > 0, "object_pool.P1: a thing is uncounted twice");
            back.created -= 1;
        });
    }
}

impl<T: Send + 'static> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (created, idle) = (self.created(), self.idle());
        f.debug_struct("ObjectPool").field("created", &created).field("idle", &idle).finish()
    }
}

/// A thing borrowed from an [`ObjectPool`]; dropping it gives it back, as it is.
#[must_use = "the thing is given back when this is dropped"]
pub struct Pooled<'a, T: Send + 'static> {
    thing: ManuallyDrop<T>,
    pool: &'a ObjectPool<T>,
}

impl<T: Send + 'static> Pooled<'_, T> {
    /// Keeps the thing; the pool may make another in its place.
    pub fn detach(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, here, and `this` is not dropped.
        let thing = unsafe { ManuallyDrop::take(&mut this.thing) };
        drop(Room(this.pool)); // one fewer
        thing
    }
}

impl<T: Send + 'static> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T: Send + 'static> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.thing
    }
}

impl<T: Send + 'static> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not looked at again.
        let thing = unsafe { ManuallyDrop::take(&mut self.thing) };
        self.pool.put(thing);
    }
}

impl<T: fmt::Debug + Send + 'static> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
