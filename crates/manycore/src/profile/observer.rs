//! The observer of what objects do: waits, changes of their form, merges, grace periods.

use super::{Key, OBSERVED, STATE, counts};
use crate::sync::{self, Ordering, Raced};
use std::cell::Cell;
use std::panic::Location;
use std::time::Instant;

/// A change that an object made.
///
/// See [`observe`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A thread waited for the object; the amount is in nanoseconds.
    Waited,
    /// The object got logs or cells for each thread.
    Promoted,
    /// The object gave its logs or cells up.
    Demoted,
    /// A read merged the object's logs; the amount is the updates since the last look, if the
    /// object counts them.
    Merged,
    /// A domain of sections ended a round of a grace period; the amount is in nanoseconds.
    GracePeriod,
}

/// An event of an object, as [`observe`] passes it on.
///
/// See [`observe`] for an example.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event {
    /// The change that the object made.
    pub what: EventKind,
    /// The object's type.
    pub kind: &'static str,
    /// The object's address, or that of its shared part.
    pub address: usize,
    /// The line that waited.
    pub location: Option<&'static Location<'static>>,
    /// Nanoseconds or a count; see [`EventKind`].
    pub amount: u64,
}

static OBSERVER: Raced<fn(&Event), ()> = Raced::unmade();

thread_local! {
    /// True while this thread runs the observer (profile.F5).
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Passes on from now on what objects do, to the first observer of the process, which stays.
/// Returns true if this call set it.
///
/// ```
/// use manycore::collections::Counter;
/// use manycore::profile::{self, Event, EventKind};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// static PROMOTED: AtomicU64 = AtomicU64::new(0);
/// fn note(event: &Event) {
///     if event.what == EventKind::Promoted {
///         PROMOTED.fetch_add(1, Relaxed);
///     }
/// }
/// assert!(profile::observe(note));
/// let counter = Counter::new(0);
/// counter.promote();
/// assert_eq!(PROMOTED.load(Relaxed), 1);
/// ```
///
/// The observer must be short, must not block, and must not use the library's objects. It runs in
/// the thread that waited or changed the object, and this thread may hold a lock of the object. If
/// it panics, the panic ends there (profile.F5).
///
/// Cost: two reads of the clock and the observer, for a thread that waits anyway; see
/// [`start`](super::start). Operations that do not wait cost what they always do.
pub fn observe(observer: fn(&Event)) -> bool {
    let (_, is_first) = OBSERVER.set(observer);
    // ORDER: Relaxed; a hint, and the observer is read through its own lock.
    STATE.on.fetch_or(OBSERVED, Ordering::Relaxed);
    is_first
}

/// Calls the observer, if there is one.
#[cold]
pub(super) fn tell(what: EventKind, key: Key, amount: u64) {
    let Some(observer) = OBSERVER.get() else { return };
    let Key { kind, address, location } = key;
    // In a thread's last destructors the flag is still there: it has none of its own.
    if IS_INSIDE.replace(true) {
        return;
    }
    sync::contain(|| observer(&Event { what, kind, address, location, amount }));
    IS_INSIDE.set(false);
}

/// Reports that the object has done this.
#[inline]
pub(crate) fn happened<T: ?Sized>(what: EventKind, kind: &'static str, object: &T, amount: u64) {
    if counts() {
        let address = std::ptr::from_ref(object).cast::<()>().addr();
        tell(what, Key { kind, address, location: None }, amount);
    }
}

/// An event under way. Its time is reported when it ends, if there is an observer.
#[derive(Debug)]
#[must_use = "it counts when it ends"]
pub(crate) struct Timed(Option<Instant>);

impl Timed {
    /// Begins now.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(counts().then(Instant::now))
    }

    /// Ends the event.
    #[inline]
    pub(crate) fn end<T: ?Sized>(self, what: EventKind, kind: &'static str, object: &T) {
        if let Some(since) = self.0 {
            happened(what, kind, object, since.elapsed().as_nanos() as u64);
        }
    }
}
