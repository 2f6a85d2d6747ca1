//! Which of a program's objects do its threads wait for? The list to look at before anything is
//! made scalable.
//!
//! Owns: the counts of waits, by object and by the line that waited, and the report. Does not own:
//! the waits, which every lock and object of the library tells of.
//!
//! The papers' authors found what to change by the kernel's lock statistics: the lock that cost
//! most, and when that was fixed, the next one. This module is that, for this library's objects.
//!
//! Laws:
//! - profile.F1 Only a thread that waits anyway counts. The uncontended path is the same with the
//!   profile on or off; nothing is measured there. While it is off, a wait costs one load
//!   more.
//! - profile.F2 Counts are kept for each thread's slot, on lines of its own, under a lock that only
//!   [`read`] and [`start`] want besides.
//! - profile.F3 A slot keeps so many pairs of object and line; waits of others are counted as left
//!   out. Nothing is dropped silently.
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
//! What decides is the time that was waited, not how often. `handoffs / waits` is the mean length
//! of the queue: near one, threads meet now and then, and a shorter critical section helps; well
//! above, they queue, and the object wants another form. Which one, `updates` and `reads` tell,
//! where the object counts them: [`Adaptive`](crate::cluster::Adaptive) does all the time, and
//! decides by the same events; [`Deferred`](crate::oplog::Deferred) while it has logs.
//!
//! Source: LDU, section 2.2 and figure 2.1 of the thesis.

mod report;

pub use report::{CallSite, Hot, Profile};

use crate::config::{CACHE_LINE_BYTES, SMALL};
use crate::percpu;
use crate::percpu::segmented::Segmented;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Pairs of object and line that a slot keeps (profile.F3).
const KEPT: usize = if SMALL { 4 } else { 4096 };

/// What is waited for: an object, and the line that wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of {
    pub(crate) kind: &'static str,
    pub(crate) address: usize,
    pub(crate) location: &'static Location<'static>,
}

impl Of {
    /// The object at this address, wanted by the caller's caller.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn new<T: ?Sized>(kind: &'static str, object: &T) -> Self {
        Self::at(kind, object, Location::caller())
    }

    /// The object at this address, wanted by that line.
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

/// What is counted for a pair of object and line. Without a line: operations of the object.
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

#[derive(Default)]
struct Kept {
    counts: HashMap<Key, Counts>,
    left_out: u64,
}

impl Kept {
    fn add(&mut self, key: Key, add: impl FnOnce(&mut Counts)) {
        if self.counts.len() >= KEPT && !self.counts.contains_key(&key) {
            self.left_out += 1;
        } else {
            add(self.counts.entry(key).or_default());
        }
    }
}

/// What one slot counts (profile.F2).
#[repr(align(128))]
struct Cell(Mutex<Kept>);

const _: () = assert!(align_of::<Cell>() >= CACHE_LINE_BYTES);

impl From<usize> for Cell {
    fn from(_: usize) -> Self {
        Self(Mutex::new(Kept::default()))
    }
}

/// A name for an object, as long as this is kept: see [`name`].
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
    /// How long it was on, if it is off again.
    lasted: Duration,
}

struct State {
    on: AtomicBool,
    cells: Segmented<Cell>,
    book: Mutex<Book>,
}

crate::sync::global! {
    static STATE: State = State {
        on: AtomicBool::new(false),
        cells: Segmented::new(),
        book: Mutex::new(Book::default()),
    };
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing of the user's runs under it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count, for the whole program, from nothing.
///
/// Cost while it is on: a wait takes some 100 ns longer, a read of an object with logs as well.
/// What does not wait costs what it always does. Memory: some 100 bytes for each object that is
/// waited for, each line that waits for it and each thread that does; at most half a megabyte a
/// thread. Starting and stopping is no barrier: a wait that is under way may be missed.
pub fn start() {
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
    STATE.on.store(true, Ordering::Relaxed);
}

/// Stops counting. What was counted stays until the next [`start`].
pub fn stop() {
    let mut book = held(&STATE.book);
    // ORDER: Relaxed; as in `start`.
    STATE.on.store(false, Ordering::Relaxed);
    if let Some(started) = book.started.take() {
        book.lasted = started.elapsed();
    }
}

/// Whether waits are counted now. Only a thread that waits asks (profile.F1).
#[must_use]
pub fn is_on() -> bool {
    // ORDER: Relaxed; a hint.
    STATE.on.load(Ordering::Relaxed)
}

/// Whether there is a reason to find out what could be counted.
#[inline]
pub(crate) fn counts() -> bool {
    !SMALL && is_on() // a model has no time
}

/// What was counted since [`start`]. Counting goes on.
#[must_use]
pub fn read() -> Profile {
    let book = held(&STATE.book);
    let mut all = Kept::default();
    for (_, cell) in STATE.cells.iter() {
        let kept = held(&cell.0);
        all.left_out += kept.left_out;
        for (key, counts) in &kept.counts {
            let sum = all.counts.entry(*key).or_default();
            sum.waits += counts.waits;
            sum.time += counts.time;
            sum.longest = sum.longest.max(counts.longest);
            sum.handoffs += counts.handoffs;
            sum.updates += counts.updates;
            sum.reads += counts.reads;
        }
    }
    let time = book.started.map_or(book.lasted, |started| started.elapsed());
    Profile::new(all, &book.labels, time)
}

/// Gives the object a name in reports, as long as what is returned is kept. (Kept for ever:
/// [`std::mem::forget`] it, for objects that live as long.)
///
/// Whatever has its place within the object counts as the object, so a struct with several locks
/// can have one name. What the object keeps on the heap does not; it is listed by itself.
///
/// ```
/// static CONFIG: manycore::lock::BrLock<u32> = manycore::lock::BrLock::new(1);
/// std::mem::forget(manycore::profile::name(&CONFIG, "config"));
/// ```
pub fn name<'a, T: ?Sized>(object: &'a T, name: &'static str) -> Named<'a> {
    let mut book = held(&STATE.book);
    book.next += 1;
    let id = book.next;
    let start = std::ptr::from_ref(object).cast::<()>().addr();
    book.labels.push(Label { id, start, bytes: size_of_val(object).max(1), name });
    Named { id, object: PhantomData }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        held(&STATE.book).labels.retain(|label| label.id != self.id);
    }
}

/// A wait that is under way, if the profile is on.
#[derive(Debug)]
#[must_use = "a wait counts when it ends"]
pub(crate) struct Wait(Option<Instant>);

impl Wait {
    /// From now.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(counts().then(Instant::now))
    }

    /// It is over, after so many hand-offs of the object between holders.
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
    count(Key { kind, address, location: Some(location) }, |counts| {
        counts.waits += 1;
        counts.time += time;
        counts.longest = counts.longest.max(time);
        counts.handoffs += handoffs;
    });
}

/// So many operations of the object are over: for objects that count them anyway.
#[inline]
pub(crate) fn operations<T: ?Sized>(kind: &'static str, object: &T, updates: u64, reads: u64) {
    if counts() {
        count_operations(kind, std::ptr::from_ref(object).cast::<()>().addr(), updates, reads);
    }
}

#[cold]
fn count_operations(kind: &'static str, address: usize, updates: u64, reads: u64) {
    count(Key { kind, address, location: None }, |counts| {
        counts.updates += updates;
        counts.reads += reads;
    });
}

fn count(key: Key, add: impl FnOnce(&mut Counts)) {
    // A thread whose locals are gone counts with the first slot.
    let slot = percpu::own_slot().map_or(0, percpu::Slot::index);
    held(&STATE.cells.get_or_init(slot).0).add(key, add);
}
