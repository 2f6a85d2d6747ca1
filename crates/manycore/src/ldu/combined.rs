//! One object whose members come and go through marks, and whose other updates go through logs in
//! the order of their stamps; one read merges both.
//!
//! Owns: the ordered updates of a [`Combined`], from their logs to the structure. The members are a
//! [`DeferredSet`]'s.
//!
//! Laws:
//! - **ldu.C1** An ordered update notes the set's epoch before it takes its stamp and goes to its
//!   log, as a member's change does. A read raises the epoch, then gathers queues and logs, and
//!   takes what noted the cut or less. The rest waits for the next read.
//! - **ldu.C2** So what ldu.U6 says of two changes holds for any two of either kind, by the
//!   argument in the header of `change`: the log's gathering stands in for the look at a queue.
//!   What a read misses was published after it had gathered, and what follows finds the raised
//!   epoch.
//! - **ldu.C3** A read applies updates in the order of their stamps. One with an earlier stamp than
//!   some that were applied before it was still under way when those were gathered, or had begun
//!   after the cut while they had begun before: they overlap, and may come in either order.
//! - **ldu.C4** Ordered updates don't see members: they and the members' comings and goings
//!   commute. (Where they do not, no two ways would do; log all of them, in a
//!   [`Deferred`](crate::oplog::Deferred).)
//!
//! Source: the LDU thesis leaves the combination with OpLog to future work; this is ours.

use super::builder::{BuildError, Builder};
use super::guard::ReadGuard;
use super::handle::Attached;
use super::links::{Element, Linked};
use super::set::DeferredSet;
use super::state::{Held, cannot_read};
use super::structure::Structure;
use crate::clock::{Clock, Stamp};
use crate::config;
use crate::lock::Refused;
use crate::lock::error::TryReadError;
use crate::oplog::{Commuting, Deferred, Op};
use crate::sync::{self, AtomicUsize, Ordering, seeded_bug};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Updates that wait outside of logs from which on the next one reads the object.
const WAITING: usize = config::DEFAULT_MAX_ENTRIES;

/// How far beyond that they go before an update waits for a reader.
const GROWTH: usize = config::DEFAULT_GROWTH;

/// A set of members that also has other updates, which are applied in their order.
///
/// For an object most of whose updates are members that come and go, and cancel each other, but
/// that has a few of another kind, whose order shows: connections and the limits that apply to
/// them, mappings and the file's size, subscribers and the topic's settings. `T` is what reads
/// want, `E` a member, `O` an ordered update of `T`.
///
/// Not where only one kind is needed: take [`DeferredSet`] or [`Deferred`]. Not where an ordered
/// update needs to know the members at that moment: it is applied at a read, after all
/// that came and went before that read. Not for one thread, or where reads are as frequent as
/// updates: two threads of an EPYC (a virtual machine) that subscribe to a topic, unsubscribe, and
/// rename it once in 16 times, make 19 million operations a second, as many with all updates in a
/// [`Deferred`] with [`Ordered`](crate::oplog::Ordered), and 8 million behind a mutex; with a read
/// after every 10 operations 10, 5.7 and 7.3 million; one thread makes 18, and 47 million with the
/// mutex (`manycore bench topic`).
///
/// ```
/// use manycore::ldu::{Combined, Element, Structure};
/// use manycore::oplog::Op;
/// use std::collections::BTreeSet;
///
/// #[derive(Default)]
/// struct Topic {
///     subscribers: BTreeSet<u32>,
///     title: String,
/// }
/// impl Structure<Element<u32>> for Topic {
///     fn insert(&mut self, who: &Element<u32>) {
///         self.subscribers.insert(**who);
///     }
///     fn remove(&mut self, who: &Element<u32>) {
///         self.subscribers.remove(who);
///     }
/// }
///
/// struct Rename(&'static str);
/// impl Op<Topic> for Rename {
///     fn apply(self, topic: &mut Topic) {
///         topic.title = self.0.to_owned();
///     }
/// }
///
/// let topic = Combined::new(Topic::default());
/// let one = topic.add(1);
/// topic.append(Rename("first"));
/// topic.append(Rename("second"));
/// drop(topic.add(2)); // came and went: no read hears of it
/// let seen = topic.read();
/// assert_eq!((seen.subscribers.len(), &*seen.title), (1, "second"));
/// # drop(seen);
/// drop(one);
/// ```
///
/// - Consistency: linearizable, the two kinds together: a read that sees a change, of whichever
///   kind, sees all that had returned before that one began.
/// - Progress: as [`DeferredSet`] and [`Deferred`].
/// - Cost: a member's change as in a [`DeferredSet`]. An ordered update reads the clock (some 15
///   ns), loads two lines that reads write, and goes to its thread's log, or takes a lock as long
///   as the object has no logs. A read costs both kinds' reads.
/// - Memory: that of a set and of a deferred object, and 16 bytes beside each ordered update that
///   waits. At most some thousands wait, unless a reader holds the object for long.
/// - Errors, panics: as [`DeferredSet`]; an ordered update that panics counts as made, and poisons
///   the object.
/// - Source: see the [module](super); LDU's future work.
pub struct Combined<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> {
    parts: ManuallyDrop<Parts<T, E, O>>,
}

/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> UnwindSafe for Combined<T, E, O> {}
/// As with a `Mutex` of `std`: an update that panics poisons the object.
impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> RefUnwindSafe for Combined<T, E, O> {}

struct Parts<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> {
    /// Its lock guards `T` and what waits for it.
    set: DeferredSet<CombinedState<T, O>, E>,
    log: Deferred<Inbox<O>, Commuting<Noted<O>>>,
    /// How many are in the inbox.
    waiting: Arc<AtomicUsize>,
}

/// A [`Combined`]'s structure, and updates that wait for its next read. Shows the structure.
///
/// See [`Combined`] for an example.
pub struct CombinedState<T, O> {
    value: T,
    /// Gathered, but after the last cut (ldu.C1).
    later: Vec<Noted<O>>,
}

/// An update, and what it noted when it began.
struct Noted<O> {
    epoch: u64,
    stamp: Stamp,
    op: O,
}

const _: () = assert!(size_of::<Noted<()>>() == 16, "the documentation says so");

/// What has been gathered.
struct Inbox<O> {
    ops: Vec<Noted<O>>,
    waiting: Arc<AtomicUsize>,
}

impl<O> Inbox<O> {
    fn take(&mut self) -> Vec<Noted<O>> {
        // ORDER: Relaxed; an estimate.
        self.waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.ops)
    }
}

impl<O> Op<Inbox<O>> for Noted<O> {
    fn apply(self, inbox: &mut Inbox<O>) {
        inbox.ops.push(self);
        // ORDER: Relaxed; an estimate.
        inbox.waiting.store(inbox.ops.len(), Ordering::Relaxed);
    }
}

impl<T: Structure<E>, E, O: Send> Structure<E> for CombinedState<T, O> {
    fn insert(&mut self, member: &E) {
        self.value.insert(member);
    }

    fn remove(&mut self, member: &E) {
        self.value.remove(member);
    }
}

impl<T, O: Op<T>> CombinedState<T, O> {
    /// Takes what was gathered, and applies what noted the cut or less (ldu.C1, ldu.C3). What it
    /// leaves began after the cut, so a later read takes it in order (ldu.C2). Whether members that
    /// came or went beside these are in yet makes no difference (ldu.C4).
    fn apply(&mut self, gathered: Vec<Noted<O>>, cut: u64) {
        self.later.extend(gathered);
        self.later.sort_by_key(|noted| noted.stamp);
        let all = std::mem::take(&mut self.later);
        // BUG: readers collect whatever they find, log after log: no cut in time, no gate for all
        // (oplog.D2).
        let is_due = |noted: &Noted<O>| noted.epoch <= cut || seeded_bug!("no-cut");
        let (due, later) = all.into_iter().partition(is_due);
        self.later = later;
        debug_assert!(due.is_sorted_by_key(|noted: &Noted<O>| noted.stamp), "ldu.C3: out of order");
        let mut rest = Rest { both: self, due };
        rest.due.reverse();
        while let Some(noted) = rest.due.pop() {
            noted.op.apply(&mut rest.both.value);
        }
    }
}

/// Updates that are being applied: those that a panic has kept from it wait on.
struct Rest<'a, T, O> {
    both: &'a mut CombinedState<T, O>,
    /// The last is the next.
    due: Vec<Noted<O>>,
}

impl<T, O> Drop for Rest<'_, T, O> {
    fn drop(&mut self) {
        self.both.later.append(&mut self.due); // sorted again by the next read
    }
}

impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> Combined<T, E, O> {
    /// An object around a structure that has no members yet, with the default queues and bounds.
    ///
    /// # Panics
    /// Never: the defaults are valid.
    #[must_use]
    pub fn new(structure: T) -> Self {
        Self::with_builder(&DeferredSet::builder(), structure).expect("the defaults are valid")
    }

    /// The same, with queues and bounds of a set's builder, for the members.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn with_builder(
        builder: &Builder<CombinedState<T, O>, E>,
        structure: T,
    ) -> Result<Self, BuildError> {
        let set = builder.build(CombinedState { value: structure, later: Vec::new() })?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox { ops: Vec::new(), waiting: Arc::clone(&waiting) };
        let parts = Parts { set, log: Deferred::new(inbox), waiting };
        Ok(Self { parts: ManuallyDrop::new(parts) })
    }

    /// Inserts a member. The next read sees it.
    #[inline]
    pub fn insert(&self, member: Box<E>) -> Attached<'_, CombinedState<T, O>, E> {
        self.parts.set.insert(member)
    }

    /// Makes an ordered update. The next read sees it, after all that returned before this call.
    #[inline]
    pub fn append(&self, op: O) {
        let clock = Clock::system();
        // ORDER: Acquire; as in `State::change` (ldu.C1).
        let epoch = self.parts.set.state.update_side.epoch.load(Ordering::Acquire);
        let stamp = clock.stamp();
        self.parts.log.append(Noted { epoch, stamp, op });
        clock.commit_wait(stamp);
        // ORDER: Relaxed; an estimate.
        let waiting = self.parts.waiting.load(Ordering::Relaxed);
        if waiting >= WAITING {
            self.relieve(waiting >= WAITING * GROWTH);
        }
    }

    /// Too much waits: this update becomes the reader. A panic of the structure's stays here; the
    /// poison tells the next reader.
    #[cold]
    fn relieve(&self, wait: bool) {
        if !self.parts.set.is_poisoned() {
            sync::contain(|| drop(self.hold(wait)));
        }
    }

    /// Holds the object, up to date unless it is poisoned.
    #[track_caller]
    fn hold(&self, wait: bool) -> Result<ReadGuard<'_, CombinedState<T, O>, E>, Refused> {
        let state = &*self.parts.set.state;
        state.lock(wait)?;
        let mut held = Held { state, poison: true };
        // SAFETY: the lock was taken just above.
        if let Some(cut) = unsafe { state.drain_to(true, true) } {
            let gathered = self.parts.log.read().take();
            // SAFETY: the lock is held, and guards the structure.
            state.value.with_mut(|both| unsafe { (*both).apply(gathered, cut) });
        }
        held.poison = false;
        Ok(ReadGuard::new(held))
    }

    /// The same for the object's owner, without waiting for the lock: a forgotten guard may hold
    /// it.
    fn bring_up_to_date(&mut self) {
        let Parts { set, log, .. } = &mut *self.parts;
        let state = &*set.state;
        let applied = sync::caught(|| {
            // SAFETY: `&mut self` is more than the lock.
            if let Some(cut) = unsafe { state.drain_to(true, true) } {
                let gathered = log.get_mut().take();
                // SAFETY: `&mut self` - no other thread and no guard reaches the structure.
                state.value.with_mut(|both| unsafe { (*both).apply(gathered, cut) });
            }
        });
        if let Err(panic) = applied {
            // ORDER: Relaxed; ours alone.
            state.read_side.poisoned.store(true, Ordering::Relaxed);
            resume_unwind(panic);
        }
    }

    /// Brings the structure up to date and holds it.
    ///
    /// # Panics
    /// As [`DeferredSet::read`]; also if an ordered update panics.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, CombinedState<T, O>, E> {
        let guard = self.read_poisoned();
        assert!(
            !guard.is_poisoned(),
            "manycore: the object is poisoned, because its structure panicked; repair it and call \
             clear_poison()"
        );
        guard
    }

    /// As [`read`](Self::read), also if the object is poisoned: then without the changes that wait.
    ///
    /// # Panics
    /// As [`read`](Self::read), poison apart.
    #[track_caller]
    pub fn read_poisoned(&self) -> ReadGuard<'_, CombinedState<T, O>, E> {
        self.hold(true).unwrap_or_else(|refused| cannot_read(refused, "object"))
    }

    /// As [`read`](Self::read), unless that would wait for another reader.
    ///
    /// # Errors
    /// [`TryReadError::Busy`] if a reader holds the object, [`TryReadError::Poisoned`] if the
    /// structure panicked.
    ///
    /// # Panics
    /// If the structure, or an ordered update, panics in this read.
    pub fn try_read(&self) -> Result<ReadGuard<'_, CombinedState<T, O>, E>, TryReadError> {
        let guard = self.hold(false).map_err(|_| TryReadError::Busy)?;
        if guard.is_poisoned() { Err(TryReadError::Poisoned) } else { Ok(guard) }
    }

    /// Applies what waits. The same as dropping a [`read`](Self::read) guard at once.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn synchronize(&self) {
        drop(self.read());
    }

    /// The structure, up to date. (A poisoned object's changes wait on.)
    ///
    /// # Panics
    /// If the structure, or an ordered update, panics.
    pub fn get_mut(&mut self) -> &mut T {
        self.bring_up_to_date();
        &mut self.parts.set.get_mut().value
    }

    /// The structure, up to date.
    ///
    /// # Panics
    /// As [`get_mut`](Self::get_mut).
    #[must_use]
    pub fn into_inner(mut self) -> T {
        self.bring_up_to_date();
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used or dropped after this.
        let Parts { set, .. } = unsafe { ManuallyDrop::take(&mut this.parts) };
        set.into_inner().value
    }

    /// Whether the structure, an ordered update, or a reader that held the object, panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.parts.set.is_poisoned()
    }

    /// Clears the poison flag. The next read applies what waits.
    pub fn clear_poison(&self) {
        self.parts.set.clear_poison();
    }

    /// Gives the ordered updates logs now, without waiting for contention. Returns whether they
    /// have them.
    pub fn promote(&self) -> bool {
        self.parts.log.promote()
    }

    /// Inserts a member by hand.
    ///
    /// # Panics
    /// As [`DeferredSet::insert_raw`].
    ///
    /// # Safety
    /// As [`DeferredSet::insert_raw`].
    #[inline]
    pub unsafe fn insert_raw(&self, member: NonNull<E>) {
        // SAFETY: the caller promises what `DeferredSet::insert_raw` asks for (# Safety): a live
        // member of no other set, whose calls follow each other (ldu.U1).
        unsafe { self.parts.set.insert_raw(member) };
    }

    /// Removes a member by hand.
    ///
    /// # Panics
    /// As [`DeferredSet::remove_raw`].
    ///
    /// # Safety
    /// As [`DeferredSet::remove_raw`].
    #[inline]
    pub unsafe fn remove_raw(&self, member: NonNull<E>) {
        // SAFETY: the caller promises what `DeferredSet::remove_raw` asks for (# Safety): a live
        // member that was inserted here, whose calls follow each other (ldu.U1).
        unsafe { self.parts.set.remove_raw(member) };
    }

    /// Sees to it that no queue has the member, as [`DeferredSet::dequeue_raw`].
    ///
    /// # Panics
    /// As [`DeferredSet::dequeue_raw`].
    ///
    /// # Safety
    /// As [`DeferredSet::dequeue_raw`].
    pub unsafe fn dequeue_raw(&self, member: NonNull<E>) {
        // SAFETY: the caller promises what `DeferredSet::dequeue_raw` asks for (# Safety): a live
        // member of this object, and no other call for it at this time (ldu.U1).
        unsafe { self.parts.set.dequeue_raw(member) };
    }
}

impl<T: Structure<Element<V>>, V, O> Combined<T, Element<V>, O>
where
    V: Send + Sync + 'static,
    O: Op<T> + Send + 'static,
{
    /// Inserts a value, in a box with links: [`insert`](Self::insert) for types that have none.
    #[inline]
    pub fn add(&self, value: V) -> Attached<'_, CombinedState<T, O>, Element<V>> {
        self.parts.set.add(value)
    }
}

impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> Drop for Combined<T, E, O> {
    /// Applies what waits, then drops the structure.
    fn drop(&mut self) {
        let applied = sync::caught(|| self.bring_up_to_date());
        // SAFETY: dropped here alone, and not used afterwards.
        let dropped = sync::caught(|| unsafe { ManuallyDrop::drop(&mut self.parts) });
        sync::resume_first([applied, dropped]);
    }
}

impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> From<T> for Combined<T, E, O> {
    fn from(structure: T) -> Self {
        Self::new(structure)
    }
}

impl<T: Structure<E> + Default, E: Linked, O: Op<T> + Send + 'static> Default
    for Combined<T, E, O>
{
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Structure<E>, E: Linked, O: Op<T> + Send + 'static> fmt::Debug for Combined<T, E, O> {
    /// Prints the state, not the structure: that would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined").field("set", &self.parts.set).finish_non_exhaustive()
    }
}

impl<T, O> Deref for CombinedState<T, O> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, O> DerefMut for CombinedState<T, O> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug, O> fmt::Debug for CombinedState<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
