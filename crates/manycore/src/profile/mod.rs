//! Which objects do a program's threads wait for? Look at this list before you make anything
//! scalable.
//!
//! ```
//! use manycore::lock::TicketLock;
//! use manycore::profile;
//! use std::thread;
//!
//! let orders = TicketLock::new(0);
//! let journal = TicketLock::new(0);
//! let _names = (profile::name(&orders, "orders"), profile::name(&journal, "journal"));
//! profile::start();
//! thread::scope(|scope| {
//!     let held = orders.lock();
//!     let waiter = scope.spawn(|| *orders.lock() += 1);
//!     *journal.lock() += 1; // uncontended
//!     thread::sleep(std::time::Duration::from_millis(20));
//!     drop(held);
//!     waiter.join().unwrap();
//! });
//! profile::stop();
//!
//! let profile = profile::read();
//! println!("{profile}");
//! let hottest = &profile.hottest(1)[0];
//! assert_eq!((hottest.name, hottest.kind), (Some("orders"), "TicketLock"));
//! assert_eq!(hottest.call_sites[0].location.unwrap().file(), file!());
//! ```
//!
//! The time waited decides, not the number of waits. `handoffs / waits` is the mean length of the
//! queue. If it is near one, threads meet now and then, and a shorter critical section helps. If it
//! is well above one, threads queue, and the object needs another form. `updates` and `reads` tell
//! which form, if the object counts them. [`Adaptive`](crate::cluster::Adaptive) always does, and
//! decides by the same events; [`Deferred`](crate::oplog::Deferred) does while it has logs.
//!
//! [`observe`] passes each wait on when it ends, and other things that objects do and that are
//! neither cheap nor frequent. A recorder of events (`manycore-trace`) shows them beside the
//! program's own events.
//!
//! # Laws
//!
//! Owns: the counts of waits, by object and by the line that waited, the report, and the observer.
//! Does not own: the waits, which every lock and object of the library reports.
//!
//! - profile.F1 Only a thread that waits anyway counts. The uncontended path is the same with the
//!   profile on or off; nothing is measured there. While the profile is off, a wait costs one more
//!   load.
//! - profile.F2 Counts are kept for each thread's slot, on lines of its own, under a lock that only
//!   [`read`] and [`start`] take besides.
//! - profile.F3 A slot keeps a bounded number of pairs of object and line; waits of further pairs
//!   are counted as left out. Nothing is dropped silently.
//! - profile.F4 A name has one label, from [`name`] until it is dropped.
//! - profile.F5 The observer runs where the library may hold a lock. Its panic ends there, and its
//!   own actions are not observed.
//!
//! Source: [LDU](crate#sources), section 2.2 of the thesis. Its authors used the kernel's lock
//! statistics to find what to change: the lock that cost most, and when that was fixed, the next
//! one.

mod observer;
mod report;

pub use observer::{Event, EventKind, observe};
pub(crate) use observer::{Timed, happened};
pub use report::{CallSite, HotObject, Profile};

use crate::config::{CACHE_LINE_BYTES, SMALL};
use crate::percpu;
use crate::percpu::segmented::Segmented;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Pairs of object and line that a slot keeps, at most (profile.F3).
const KEPT: usize = if SMALL { 4 } else { 4096 };

/// A waited-for object, and the line that waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of {
    pub(crate) kind: &'static str,
    pub(crate) address: usize,
    pub(crate) location: &'static Location<'static>,
}

impl Of {
    /// Describes the object at this address, for the line of the caller's caller.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn new<T: ?Sized>(kind: &'static str, object: &T) -> Self {
        Self::at(kind, object, Location::caller())
    }

    /// Describes the object at this address, for this line.
    #[inline(always)]
    pub(crate) fn at<T: ?Sized>(
        kind: &'static str,
        object: &T,
        location: &'static Location<'static>,
    ) -> Self {
        let address = std::ptr::from_ref(object).cast::<()>().addr();
        Self { kind, address, location }
    }
}

/// The counts' key: a pair of object and line. Without a line, it counts operations of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    kind: &'static str,
    address: usize,
    location: Option<&'static Location<'static>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    waits: u64,
    time: Duration,
    longest: Duration,
    handoffs: u64,
    updates: u64,
    reads: u64,
}

impl Counts {
    fn add_wait(&mut self, time: Duration, handoffs: u64) {
        self.waits += 1;
        self.time += time;
        self.longest = self.longest.max(time);
        self.handoffs += handoffs;
        debug_assert!(self.longest <= self.time, "profile.F2: {self:?} of one object and line");
    }

    fn add(&mut self, other: &Self) {
        self.waits += other.waits;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.handoffs += other.handoffs;
        self.updates += other.updates;
        self.reads += other.reads;
    }
}

#[derive(Default)]
struct Kept {
    counts: HashMap<Key, Counts>,
    uncounted: u64,
}

impl Kept {
    fn add(&mut self, key: Key, add: impl FnOnce(&mut Counts)) {
        if self.counts.len() >= KEPT && !self.counts.contains_key(&key) {
            self.uncounted += 1;
        } else {
            add(self.counts.entry(key).or_default());
        }
        debug_assert!(self.counts.len() <= KEPT, "profile.F3: {} pairs", self.counts.len());
    }

    fn waits(&self) -> u64 {
        self.counts.values().map(|counts| counts.waits).sum()
    }

    /// Adds the counts of a slot, however many pairs that makes.
    fn add_slot(&mut self, slot: &Self) {
        let before = self.waits();
        self.uncounted += slot.uncounted;
        for (key, counts) in &slot.counts {
            self.counts.entry(*key).or_default().add(counts);
        }
        debug_assert_eq!(
            self.waits(),
            before + slot.waits(),
            "profile.F3: waits are lost where slots are added up"
        );
    }
}

/// The counts of one slot (profile.F2).
#[repr(align(128))]
struct Cell(Mutex<Kept>);

const _: () = assert!(align_of::<Cell>() >= CACHE_LINE_BYTES);

impl From<usize> for Cell {
    fn from(_: usize) -> Self {
        Self(Mutex::new(Kept::default()))
    }
}

/// A name for an object. The object has it as long as this is kept: see [`name`].
///
/// See [`name`] for an example.
#[derive(Debug)]
#[must_use = "the name is gone when this is dropped"]
pub struct Named<'a> {
    id: u64,
    object: PhantomData<&'a ()>,
}

#[derive(Debug, Clone, Copy)]
struct Label {
    id: u64,
    start: usize,
    bytes: usize,
    name: &'static str,
}

#[derive(Default)]
struct Book {
    labels: Vec<Label>,
    next: u64,
    started: Option<Instant>,
    /// Duration for which the profile was on, once it is off again.
    lasted: Duration,
}

/// Bits of [`State::on`]: waits are counted; waits are observed.
const COUNTED: u32 = 1;
const OBSERVED: u32 = 2;

struct State {
    on: AtomicU32,
    cells: Segmented<Cell>,
    book: Mutex<Book>,
}

crate::sync::global! {
    static STATE: State = State {
        on: AtomicU32::new(0),
        cells: Segmented::new(),
        book: Mutex::new(Book {
            labels: Vec::new(),
            next: 0,
            started: None,
            lasted: Duration::ZERO,
        }),
    };
}

/// Held over a fork: the book, and the counts of each slot.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: percpu::AtFork = percpu::AtFork::new(
    || {
        let book = held(&STATE.book);
        let cells = STATE.cells.iter().map(|(_, cell)| held(&cell.0)).collect::<Vec<_>>();
        Box::new((cells, book))
    },
    || (),
);

/// Registers the locks for forks. Called before one of these locks is taken.
fn at_fork() {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count from zero, for the whole program.
///
/// Cost while it is on: a wait takes some 100 ns longer, and so does a read of an object with logs.
/// Operations that do not wait cost what they always do, with one exception: an
/// [`Adaptive`](crate::cluster::Adaptive) object is reserved for no thread, because that thread's
/// uses would not be counted. Memory: some 100 bytes for each combination of a waited-for object, a
/// waiting line and a waiting thread; at most half a megabyte a thread. Starting and stopping is no
/// barrier: a wait that is under way may be missed.
///
/// See [the module](self) for an example.
pub fn start() {
    at_fork();
    let mut book = held(&STATE.book);
    for (_, cell) in STATE.cells.iter() {
        *held(&cell.0) = Kept::default();
    }
    *book = Book {
        started: Some(Instant::now()),
        lasted: Duration::ZERO,
        ..std::mem::take(&mut *book)
    };
    // ORDER: Relaxed; a hint to waits, and locks pass the counts on.
    STATE.on.fetch_or(COUNTED, Ordering::Relaxed);
}

/// Stops counting. The counts stay until the next [`start`].
///
/// See [the module](self) for an example.
pub fn stop() {
    at_fork();
    let mut book = held(&STATE.book);
    // ORDER: Relaxed; as in `start`.
    STATE.on.fetch_and(!COUNTED, Ordering::Relaxed);
    if let Some(started) = book.started.take() {
        book.lasted = started.elapsed();
    }
}

/// Returns true if waits are counted now. Only a thread that waits asks (profile.F1).
///
/// ```
/// use manycore::profile;
///
/// assert!(!profile::is_on());
/// profile::start();
/// assert!(profile::is_on());
/// profile::stop();
/// assert!(!profile::is_on());
/// ```
#[must_use]
pub fn is_on() -> bool {
    // ORDER: Relaxed; a hint.
    STATE.on.load(Ordering::Relaxed) & COUNTED != 0
}

/// Returns true if waits are counted or observed.
#[inline]
pub(crate) fn counts() -> bool {
    // ORDER: Relaxed; a hint. (A model has no time.)
    !SMALL && STATE.on.load(Ordering::Relaxed) != 0
}

/// Returns what was counted since [`start`]. Counting goes on.
///
/// See [the module](self) for an example.
#[must_use]
pub fn read() -> Profile {
    at_fork();
    let book = held(&STATE.book);
    let mut all = Kept::default();
    STATE.cells.iter().for_each(|(_, cell)| all.add_slot(&held(&cell.0)));
    let time = book.started.map_or(book.lasted, |started| started.elapsed());
    Profile::new(all, &book.labels, time)
}

/// Gives the object a name in reports, as long as the returned value is kept. (For objects that
/// live forever, [`std::mem::forget`] it.)
///
/// Whatever lies within the object counts as the object, so a struct with several locks can have
/// one name. What the object keeps on the heap is listed separately.
///
/// ```
/// static CONFIG: manycore::lock::BrLock<u32> = manycore::lock::BrLock::new(1);
/// std::mem::forget(manycore::profile::name(&CONFIG, "config"));
/// ```
pub fn name<'a, T: ?Sized>(object: &'a T, name: &'static str) -> Named<'a> {
    at_fork();
    let mut book = held(&STATE.book);
    book.next += 1;
    let id = book.next;
    let start = std::ptr::from_ref(object).cast::<()>().addr();
    debug_assert!(book.labels.iter().all(|label| label.id < id), "profile.F4: an id is used twice");
    book.labels.push(Label { id, start, bytes: size_of_val(object).max(1), name });
    Named { id, object: PhantomData }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        at_fork();
        let mut book = held(&STATE.book);
        let before = book.labels.len();
        book.labels.retain(|label| label.id != self.id);
        debug_assert_eq!(book.labels.len() + 1, before, "profile.F4: a name that no object has");
    }
}

/// A wait under way, if the profile is on.
#[derive(Debug)]
#[must_use = "a wait counts when it ends"]
pub(crate) struct Wait(Option<Instant>);

impl Wait {
    /// Begins a wait now.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(counts().then(Instant::now))
    }

    /// Ends the wait, after `handoffs` hand-overs of the object between holders.
    #[inline]
    pub(crate) fn end(self, of: Of, handoffs: u64) {
        if let Some(since) = self.0 {
            count_wait(of, since.elapsed(), handoffs);
        }
    }
}

#[cold]
fn count_wait(of: Of, time: Duration, handoffs: u64) {
    let Of { kind, address, location } = of;
    let key = Key { kind, address, location: Some(location) };
    if is_on() {
        count(key, |counts| counts.add_wait(time, handoffs));
    }
    observer::tell(EventKind::Waited, key, time.as_nanos() as u64);
}

/// Counts operations of the object, for objects that count them anyway.
#[inline]
pub(crate) fn operations<T: ?Sized>(kind: &'static str, object: &T, updates: u64, reads: u64) {
    if counts() {
        count_operations(kind, std::ptr::from_ref(object).cast::<()>().addr(), updates, reads);
    }
}

#[cold]
fn count_operations(kind: &'static str, address: usize, updates: u64, reads: u64) {
    if is_on() {
        count(Key { kind, address, location: None }, |counts| {
            counts.updates += updates;
            counts.reads += reads;
        });
    }
}

fn count(key: Key, add: impl FnOnce(&mut Counts)) {
    // A thread without locals (they are gone) counts with the first slot.
    let slot = percpu::own_slot().map_or(0, percpu::Slot::index);
    at_fork();
    held(&STATE.cells.get_or_init(slot).0).add(key, add);
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    fn key(address: usize) -> Key {
        Key { kind: "Lock", address, location: None }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A slot with waits for the object, of these times in milliseconds.
    fn slot(address: usize, waits: &[u64]) -> Kept {
        let mut kept = Kept::default();
        for wait in waits {
            kept.add(key(address), |counts| counts.add_wait(millis(*wait), 2));
        }
        kept
    }

    #[test]
    fn waits_of_a_pair_are_added_up_and_the_longest_stays() {
        let counts = slot(1, &[3, 1, 2]).counts[&key(1)];
        let found = (counts.waits, counts.time, counts.longest, counts.handoffs);
        assert_eq!(found, (3, millis(6), millis(3), 6));
    }

    #[test]
    fn full_slot_counts_waits_for_pairs_it_knows_and_leaves_out_the_others() {
        let mut kept = Kept::default();
        let wait = |kept: &mut Kept, address| {
            kept.add(key(address), |counts| counts.add_wait(millis(1), 1));
        };
        (0..KEPT + 3).for_each(|address| wait(&mut kept, address));
        wait(&mut kept, 0);
        assert_eq!((kept.counts.len(), kept.uncounted), (KEPT, 3));
        assert_eq!((kept.counts[&key(0)].waits, kept.waits()), (2, KEPT as u64 + 1));
    }

    #[test]
    fn counts_of_several_slots_are_added_up_by_pair() {
        let mut all = Kept::default();
        let mut third = slot(2, &[4]);
        third.uncounted = 5;
        third.add(key(1), |counts| (counts.updates, counts.reads) = (7, 8));
        for each in [slot(1, &[3, 1]), slot(1, &[2]), third] {
            all.add_slot(&each);
        }
        let counts = all.counts[&key(1)];
        assert_eq!((counts.waits, counts.time, counts.longest), (3, millis(6), millis(3)));
        assert_eq!((counts.handoffs, counts.updates, counts.reads), (6, 7, 8));
        assert_eq!((all.counts[&key(2)].waits, all.uncounted, all.waits()), (1, 5, 4));
    }
}
