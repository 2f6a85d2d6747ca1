//! An object: one word that is a lock while the object is cold, and leads to a hot state while it
//! is hot.
//!
//! ```text
//! cold   [ lock word ] [ value ]
//! hot    [ address | HOT ] [ - ]  --> hot state: [ lock ] [ value ] [ logs ... ]
//! ```
//!
//! Owns: the layout, and the laws of the value's place. What threads do with an object is in the
//! modules above: `guard`, `lifecycle`, `acquire`, `append`, and the public interface in
//! `deferred`.
//!
//! The word is a lock word of [`crate::lock`], or with `HOT` it leads to a hot state (`word`,
//! `promotion`).
//! - object.W1 Without `HOT`, the value is inline and guarded by the word. With `HOT`, the value is
//!   in the hot state and guarded by the hot state's lock (for an exception, see object.W2).
//! - object.W2 A promotion publishes the hot state locked in the name of the word's holder, with
//!   the value still inline. The holder moves the value when it releases the lock. So any thread
//!   may promote while a guard points to the value: the holder itself, or a thread that must not
//!   wait for the holder. Only a locked word becomes HOT. A word that is reserved for one thread
//!   ([`crate::lock::reservation`]) is not locked. A thread that promotes in the owner's name has
//!   first revoked the reservation, and has been refused the lock.
//! - object.W3 Before a hot state is freed, the word has stopped leading to it, and it has left the
//!   table. Its updaters and its lock's waiters have left, and an evictor that had claimed it is
//!   done.
//! - object.W4 If the last owner of an object is one of its own updates or logs, an eviction of the
//!   object may drop it further down the same stack. The evictor has the hot state's lock, and
//!   perhaps the value borrowed, so it frees both when it is done. Other calls that take the object
//!   by value or `&mut` panic there.

use super::configurations::ConfigId;
use super::contention::AtomicContention;
use super::hot_state::HotState;
use super::log::Log;
use super::promotion;
use super::word::StateWord;
use crate::lock;
use crate::lock::reservation::{self, Inside};
use crate::percpu::{self, Slot};
use crate::sync::{AtomicUsize, UnsafeCell, const_fn};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A value with updates that are deferred until the next read.
///
/// For structures that many threads update often and that are read rarely: registries, reverse
/// maps, statistics, recency lists, queues of events. `T` is any single-threaded type; `L` is the
/// kind of log that keeps its updates (the [module](super) has a table of them).
///
/// Not for updates that return something. Not for structures that are read about as often as they
/// are updated: below about ten updates per read, a lock is better. (In
/// [`Logs::Auto`](super::Logs::Auto) mode, such an object stays a plain locked object.)
///
/// ```
/// use manycore::oplog::{Deferred, Op, Ordered};
///
/// enum Update {
///     Add(u32),
///     Remove(u32),
/// }
/// impl Op<Vec<u32>> for Update {
///     fn apply(self, list: &mut Vec<u32>) {
///         match self {
///             Update::Add(x) => list.push(x),
///             Update::Remove(x) => list.retain(|y| *y != x),
///         }
///     }
/// }
///
/// let list = Deferred::<Vec<u32>, Ordered<Update>>::new(Vec::new());
/// std::thread::scope(|s| {
///     for i in 0..4 {
///         let list = &list;
///         s.spawn(move || {
///             list.append(Update::Add(i));
///             list.append(Update::Remove(i));
///         });
///     }
/// });
/// assert!(list.read().is_empty());
/// ```
///
/// - Consistency: linearizable.
/// - Progress: an update of a hot object waits only for a reader that is collecting this slot's
///   log, or at its log's bound ([`Builder::growth`](super::Builder::growth)). An update of a cold
///   object waits for the lock. Reads wait for each other.
/// - Cost while cold: the lock, two locked instructions. An object that only one thread has used
///   for some thousands of updates and reads is reserved for that thread, which then needs no
///   locked instruction. The first other thread pays for a `membarrier` (2 us, and 1 us for each
///   running thread), once in the object's life.
/// - Cost of an update while hot: no write to a shared line, no lock, no read-modify-write when
///   biased and one when not, and a clock read if the log is ordered.
/// - Cost of a read while hot: the object's lock, one to three cache misses per slot that was
///   written since the last read, and the updates themselves. (On many cores, three misses for each
///   group of cores: [`MergeStrategy`].) When biased, the read also pays one `membarrier` (2 us,
///   and 1 us for each other running thread) if a thread with updates in its log has stopped
///   updating. Each thread that goes on updating waits for the read once, from some hundred
///   nanoseconds to some microseconds, and may collect other threads' logs while it waits. If a
///   read finds updates only in its own thread's log, it costs the lock, a load of the dirty bits,
///   and these updates.
/// - Memory: the value plus 16 bytes while cold. While hot, about 1.2 KB more, and one log per slot
///   that updates it. After an eviction, 256 bytes more until the object is next used (plus the
///   size of a value of over 8 bytes, which stays in the hot state). While an object is poisoned,
///   its updates are kept without bound.
/// - Source: [OpLog](crate#sources), sections 4 to 6, and section 8 for [`MergeStrategy`].
///
/// [`MergeStrategy`]: super::MergeStrategy
#[doc(alias = "batching")]
#[doc(alias = "combining")]
#[doc(alias = "OpLog")]
pub struct Deferred<T: Send + 'static, L: Log<T>> {
    pub(super) word: StateWord,
    pub(super) config: ConfigId,
    /// The flag of the word's reservation.
    pub(super) inside: Inside,
    pub(super) contention: AtomicContention,
    pub(super) value: Inline<T>,
    log: PhantomData<fn() -> L>,
}

/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + 'static, L: Log<T>> UnwindSafe for Deferred<T, L> {}
/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Send + 'static, L: Log<T>> RefUnwindSafe for Deferred<T, L> {}

/// The value's place in the object. Its `Send` and `Sync` impls decide those of the object. An
/// `impl` for the object itself would have to repeat `L: Log<T>`. Then a type that refers to an
/// object of its own kind could not be proved `Send` (E0275; `tests/own_type.rs`). Logs and updates
/// may cross because every `Log<T>` and its `Op` are `Send`.
pub(super) struct Inline<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: a shared object gives its value only to the lock's holder (object.W1), one thread at a
// time. A shared guard requires `T: Sync`, and so does an `Adaptive`, which admits readers through
// lanes (readers.A1).
unsafe impl<T: Send> Sync for Inline<T> {}
// SAFETY: an object that moves takes its value along (`T: Send`); its logs and updates are `Send`
// by `Log`'s own bounds.
unsafe impl<T: Send> Send for Inline<T> {}

impl<T> Deref for Inline<T> {
    type Target = UnsafeCell<MaybeUninit<T>>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    const_fn! {
        pub(crate) const fn with_config(value: T, config: ConfigId) -> Self {
            Self {
                word: StateWord::new(),
                inside: Inside::new(),
                contention: AtomicContention::new(config.always_logs()),
                config,
                value: Inline(UnsafeCell::new(MaybeUninit::new(value))),
                log: PhantomData,
            }
        }
    }

    const_fn! {
        /// Makes an object with readers that may enter through lanes.
        pub(super) const fn new_with_readers(value: T) -> Self {
            Self::with_config(value, ConfigId::with_readers())
        }
    }

    /// Returns the type's name, for the profile.
    pub(super) fn kind(&self) -> &'static str {
        if self.config.has_readers() { "Adaptive" } else { "Deferred" }
    }

    /// Runs `f` on the object's hot state, if it has one, without taking its lock.
    pub(super) fn with_hot_state<R>(
        &self,
        f: impl FnOnce(&HotState<T, L>, Slot) -> R,
    ) -> Option<R> {
        let look = |hot: &promotion::Inside<HotState<T, L>>, slot| {
            hot.in_use();
            f(hot, slot)
        };
        let _log = percpu::WithLog::new();
        // SAFETY: object.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        unsafe { promotion::look_on(self.word.raw(), look) }
    }

    /// Returns true if this thread holds the lock of `hot`, or the object's own lock if `hot` is
    /// null; the object may have become HOT meanwhile (object.W2). For assertions; always true
    /// under loom, where a load is a step of the schedule.
    pub(super) fn is_held_through(&self, hot: *const HotState<T, L>) -> bool {
        if cfg!(manycore_loom) {
            return true;
        }
        let token = percpu::thread_token();
        // SAFETY: object.W3 - the caller has taken the lock of `hot`, so the hot state is alive.
        match unsafe { hot.as_ref() } {
            Some(hot) => lock::is_held_by(&hot.lock, token),
            None => self.is_word_held_by(token) || self.word.hint().is_hot(),
        }
    }

    /// Returns true if the thread with `token` holds the word's own lock.
    pub(super) fn is_word_held_by(&self, token: usize) -> bool {
        let word = self.word.raw();
        // In this order, because the owner may be inside. A revoker may then turn the word into one
        // that is locked in the owner's name, between the two looks.
        reservation::is_inside(word, &self.inside, token) || lock::is_held_by(word, token)
    }

    /// Returns the word, for a thread that locks it. It is not reserved, or was reserved only a
    /// moment ago: then the lock refuses it as if it were HOT.
    pub(super) fn lockable_word(&self) -> &AtomicUsize {
        let word = self.word.raw();
        if reservation::is_reserved(word) {
            reservation::revoke(word, &self.inside);
        }
        word
    }

    /// Returns true if the object that this thread holds through `hot` is poisoned.
    pub(super) fn is_poisoned_held(&self, hot: *const HotState<T, L>) -> bool {
        // SAFETY: object.W3 - the caller, a guard or the keeper of its lock, holds the lock of
        // `hot` if that is not null, so the hot state is alive.
        self.contention.load().is_poisoned()
            || unsafe { hot.as_ref() }.is_some_and(HotState::is_poisoned)
    }
}
