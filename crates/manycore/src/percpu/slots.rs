//! Slot numbers and announcement records; laws percpu.P1 to percpu.P4 of the parent module.

use super::announcement::{announce, announced, wait_forever_while, withdraw};
use super::call_stack::CallStack;
use super::segmented::{Location, Segmented};
#[cfg(manycore_loom)]
use super::token::Token;
use crate::sync::{self, AtomicU64, AtomicUsize, Ordering};
use std::cell::Cell;
use std::marker::PhantomData;

/// The announcement of a slot's owner: the object that it is inside of, if any.
#[repr(align(128))]
pub(crate) struct Record {
    index: usize,
    /// Zero, or the word that the owner has announced. Written only by the owner.
    active: AtomicUsize,
    /// The last collection that the owner answered (`oplog::gate`). Written only by the owner.
    answered: AtomicU64,
    /// The calls that the owner is inside of.
    calls: CallStack,
}

impl From<usize> for Record {
    fn from(index: usize) -> Self {
        Self {
            index,
            active: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            calls: CallStack::new(),
        }
    }
}

impl Record {
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Announces `word`. Loads after this call are ordered after the announcement, against a
    /// watcher that calls [`pass_barrier`](super::gate::pass_barrier) with the same bias between
    /// closing the object and looking at this record.
    #[inline(always)]
    pub(crate) fn announce(&self, word: usize, biased: bool) -> Announced<'_> {
        debug_assert!(word != 0, "percpu.P3: a record announces no object");
        announce(&self.active, word, biased);
        Announced { line: &self.active }
    }

    /// Replaces the announced word by another, without the bias. The [`Announced`] of the first
    /// word withdraws the second.
    fn announce_anew(&self, word: usize) {
        debug_assert!(word != 0 && self.is_busy(), "percpu.P3: an announcement begins unseen");
        announce(&self.active, word, false);
    }

    /// Returns the word that the owner announces now, or zero.
    pub(crate) fn announced(&self) -> usize {
        announced(&self.active)
    }

    /// Returns the calls that the owner is inside of.
    #[inline(always)]
    pub(super) fn calls(&self) -> &CallStack {
        &self.calls
    }

    /// Announces that the owner has seen `collection`, and has done all that came before it.
    pub(crate) fn answer(&self, collection: u64) {
        // ORDER: Release; pairs with the Acquire in `answered`: what the owner did before.
        self.answered.store(collection, Ordering::Release);
    }

    /// Returns the last collection that the owner answered.
    pub(crate) fn answered(&self) -> u64 {
        // ORDER: Acquire; see `answer`.
        self.answered.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn is_busy(&self) -> bool {
        // ORDER: Relaxed; the owner reads its own word.
        self.active.load(Ordering::Relaxed) != 0
    }
}

/// An announcement. Dropping this withdraws it, also when user code panics.
pub(crate) struct Announced<'a> {
    line: &'a AtomicUsize,
}

impl Drop for Announced<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        withdraw(self.line);
    }
}

/// Every record, and the bits that say which are taken.
pub(crate) struct Records {
    taken: Segmented<TakenWord>,
    records: Segmented<Record>,
    /// One past the highest slot ever handed out.
    high: AtomicUsize,
}

/// 64 slots' "taken" bits.
struct TakenWord(AtomicU64);

impl From<usize> for TakenWord {
    fn from(_: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Records {
    sync::const_fn! {
        pub(crate) const fn new() -> Self {
            Self { taken: Segmented::new(), records: Segmented::new(), high: AtomicUsize::new(0) }
        }
    }

    /// Takes the lowest free slot (percpu.P1).
    pub(crate) fn take(&self) -> &Record {
        for word in 0.. {
            let bits = &self.taken.get_or_init(word).0;
            // ORDER: Relaxed; the CAS below decides.
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // ORDER: Acquire; pairs with Release in `give_back` (percpu.P2).
                match bits.compare_exchange_weak(
                    seen,
                    seen | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let index = word * 64 + bit as usize;
                        let record = self.records.get_or_init(index);
                        // ORDER: SeqCst RMW before the owner's first announcement, so that a
                        // watcher that fences and then reads `high` covers every announced record.
                        self.high.fetch_max(index + 1, Ordering::SeqCst);
                        return record;
                    }
                    Err(now) => seen = now,
                }
            }
        }
        unreachable!("an endless range ended")
    }

    /// Gives a slot back; its next owner inherits what was kept under its number (percpu.P2).
    pub(crate) fn give_back(&self, record: &Record) {
        debug_assert!(
            !record.is_busy(),
            "percpu.P2: a slot is given back while its owner is inside of an object"
        );
        let (word, bit) = (record.index / 64, record.index % 64);
        // ORDER: Release; pairs with Acquire in `take` (percpu.P2).
        let taken = self.taken.get_or_init(word).0.fetch_and(!(1 << bit), Ordering::Release);
        debug_assert!(taken & 1 << bit != 0, "percpu.P2: a slot is given back that has no owner");
    }

    /// Runs `f` while the calling thread has this slot, if the slot is free: for what an ended
    /// thread left behind.
    #[inline]
    pub(crate) fn with_free(&self, index: usize, f: impl FnOnce()) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        let Some(TakenWord(bits)) = self.taken.get(word) else { return };
        // ORDER: Relaxed; the CAS below decides.
        let seen = bits.load(Ordering::Relaxed);
        if seen & bit == 0 {
            self.with_taken(index, bits, f);
        }
    }

    #[cold]
    #[inline(never)]
    fn with_taken(&self, index: usize, bits: &AtomicU64, f: impl FnOnce()) {
        struct GiveBack<'a>(&'a Records, usize);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                self.0.give_back(self.0.get(self.1));
            }
        }
        let bit = 1 << (index % 64);
        // BUG: a thread works on a free slot without taking it (percpu.P2).
        if sync::seeded_bug!("untaken-slot") {
            return f();
        }
        // ORDER: Acquire; pairs with Release in `give_back` (percpu.P2).
        if bits.fetch_or(bit, Ordering::Acquire) & bit == 0 {
            let _slot = GiveBack(self, index);
            f();
        }
    }

    /// Returns the record of a slot that has been handed out at least once.
    pub(crate) fn get(&self, index: usize) -> &Record {
        debug_assert!(
            cfg!(manycore_loom) || index < self.high(),
            "percpu.P1: slot {index} was never handed out"
        );
        self.records.get_or_init(index)
    }

    /// Returns true if every slot has been given back.
    #[cfg(all(test, manycore_loom))]
    pub(crate) fn is_unused(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `give_back`.
        self.taken.iter().all(|(_, word)| word.0.load(Ordering::Acquire) == 0)
    }

    /// Returns one past the highest slot ever handed out.
    pub(crate) fn high(&self) -> usize {
        // ORDER: SeqCst; see `take`.
        self.high.load(Ordering::SeqCst)
    }

    /// Withdraws every announcement for which `is_lost` returns true, in the child of a fork: its
    /// thread does not exist there.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(crate) fn withdraw_in_child(&self, is_lost: impl Fn(usize) -> bool) {
        for index in 0..self.high() {
            let record = self.get(index);
            if is_lost(record.announced()) {
                withdraw(&record.active);
            }
        }
    }

    /// Waits until no record announces a word for which `inside` holds.
    pub(crate) fn wait_until_none(&self, inside: impl Fn(usize) -> bool) {
        for index in 0..self.high() {
            self.wait_for(index, &inside);
        }
    }

    /// Waits until the record of one slot does not announce a word for which `inside` holds.
    #[inline]
    pub(crate) fn wait_for(&self, index: usize, inside: impl Fn(usize) -> bool) {
        let record = self.get(index);
        wait_forever_while(|| inside(record.announced()));
    }
}

sync::global! {
    /// The process's records.
    static RECORDS: Records = Records::new();
}

/// Returns the process's records.
#[inline]
pub(crate) fn records() -> &'static Records {
    &RECORDS
}

/// A slot, as its owner has it. The number is beside the reference, so that a lookup by slot does
/// not wait for the record.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    record: &'static Record,
    index: usize,
}

impl Slot {
    fn of(record: &'static Record) -> Self {
        Self { record, index: record.index }
    }

    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.index
    }

    /// See [`Record::calls`].
    #[inline(always)]
    pub(super) fn calls(self) -> &'static CallStack {
        self.record.calls()
    }

    /// See [`Record::announce`].
    #[inline(always)]
    pub(crate) fn announce(self, word: usize, biased: bool) -> Announced<'static> {
        self.record.announce(word, biased)
    }

    /// See [`Record::announce_anew`].
    pub(crate) fn announce_anew(self, word: usize) {
        self.record.announce_anew(word);
    }

    /// See [`Record::answer`].
    pub(crate) fn answer(self, collection: u64) {
        self.record.answer(collection);
    }
}

/// The fast half of a thread's identity: no destructor, so reading it is one load.
#[repr(align(16))]
struct Fast {
    slot: Cell<Option<Slot>>,
    /// The slot's number, or `usize::MAX` without a slot. So one comparison with the length of a
    /// table checks both.
    index: Cell<usize>,
    /// Address of the announced word of the slot's record if announcements may be plain stores,
    /// else [`NO_LINE`].
    biased: Cell<*const AtomicUsize>,
    /// Location of the slot in a table by slots, if `biased` has its record.
    location: Cell<Location>,
    /// Number of [`WithLog`]s of the thread.
    with_log: Cell<usize>,
}

impl Fast {
    fn set(&self, slot: Option<Slot>) {
        self.slot.set(slot);
        self.index.set(slot.map_or(usize::MAX, Slot::index));
        self.biased.set(NO_LINE);
    }

    #[cold]
    fn note_biased(&self, line: *const AtomicUsize, index: usize) {
        self.location.set(Location::of(index));
        self.biased.set(line);
    }

    /// Returns the word at `biased`, if it is that of an idle record.
    #[inline(always)]
    fn idle(line: *const AtomicUsize) -> Option<&'static AtomicUsize> {
        if cfg!(any(manycore_loom, manycore_shuttle)) && line.is_null() {
            return None;
        }
        // SAFETY: a static, or the word of a record, and records are never freed (segmented.G1).
        let line = unsafe { &*line };
        // ORDER: Relaxed; the owner reads its own word, or one that never changes.
        (line.load(Ordering::Relaxed) == 0).then_some(line)
    }
}

/// A word that is never zero, like that of a record that is always busy. So the check whether the
/// thread's record is idle also checks whether the thread has one.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static BUSY: AtomicUsize = AtomicUsize::new(usize::MAX);

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
const NO_LINE: *const AtomicUsize = &raw const BUSY;
/// (In models this is null: their atomics are not made at compile time.)
#[cfg(any(manycore_loom, manycore_shuttle))]
const NO_LINE: *const AtomicUsize = std::ptr::null();

/// The slow half: gives the slot back when the thread ends.
struct Owner {
    /// `None` after [`end_thread`].
    record: Cell<Option<&'static Record>>,
    on_exit: Cell<Option<OnExit>>,
    /// Dropped with the slot, or later.
    #[cfg(manycore_loom)]
    _token: std::rc::Rc<Token>,
}

/// Called with a slot that its thread is about to give back, to retire what the thread keeps there.
/// Returns false if some of that is still in use: the slot stays taken forever then.
pub(crate) type OnExit = fn(Slot) -> bool;

impl Owner {
    fn new(record: &'static Record) -> Self {
        Self {
            record: Cell::new(Some(record)),
            on_exit: Cell::new(None),
            #[cfg(manycore_loom)]
            _token: TOKEN.with(std::rc::Rc::clone),
        }
    }

    fn slot(&self) -> Option<Slot> {
        self.record.get().map(Slot::of)
    }

    /// Gives the slot back.
    fn end(&self) {
        let Some(record) = self.record.take() else { return };
        // This never fails on std, because the thread-local has no destructor. Loom drops all of a
        // thread's locals before it runs the first destructor.
        let _ = FAST.try_with(|fast| fast.set(None));
        if self.on_exit.get().is_none_or(|on_exit| on_exit(Slot::of(record))) {
            records().give_back(record);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        self.end();
    }
}

sync::thread_local! {
    static FAST: Fast = const {
        Fast {
            slot: Cell::new(None),
            index: Cell::new(usize::MAX),
            biased: Cell::new(NO_LINE),
            location: Cell::new(Location::FIRST),
            with_log: Cell::new(0),
        }
    };
    static OWNER: Owner = Owner::new(records().take());
}

/// Returns the calling thread's slot if it has a slot that announces nothing: nearly always.
#[inline(always)]
pub(crate) fn idle_slot() -> Option<Slot> {
    FAST.with(|fast| fast.slot.get()).filter(|slot| !slot.record.is_busy())
}

/// An idle slot, in a process where announcements are plain stores: what the short paths know of
/// it.
#[derive(Clone, Copy)]
pub(crate) struct BiasedSlot {
    line: &'static AtomicUsize,
    index: usize,
    location: Location,
}

impl BiasedSlot {
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.index
    }

    /// Returns where a table by slots has the slot's part.
    #[inline(always)]
    pub(crate) fn location(self) -> Location {
        self.location
    }

    /// See [`Record::announce`]; with the bias.
    #[inline(always)]
    pub(crate) fn announce(self, word: usize) -> Announced<'static> {
        debug_assert!(word != 0, "percpu.P3: a record announces no object");
        announce(self.line, word, true);
        Announced { line: self.line }
    }
}

/// Returns the calling thread's slot, if it is idle, and [`note_biased`] was called for it in this
/// thread.
#[inline(always)]
pub(crate) fn biased_slot() -> Option<BiasedSlot> {
    FAST.with(|fast| {
        let line = Fast::idle(fast.biased.get())?;
        Some(BiasedSlot { line, index: fast.index.get(), location: fast.location.get() })
    })
}

/// Notes that announcements may be plain stores in this process. From here on, the thread that has
/// this slot finds it as a [`biased_slot`].
#[inline]
pub(crate) fn note_biased(slot: Slot) {
    debug_assert!(super::barrier::is_asymmetric(), "barrier.B1: no barrier for a plain store");
    FAST.with(|fast| {
        let line = &raw const slot.record.active;
        // Not a spare slot.
        if fast.biased.get() != line && fast.index.get() == slot.index {
            fast.note_biased(line, slot.index);
        }
    });
}

/// Returns the calling thread's slot, whatever it announces: for what is kept by slot and needs no
/// announcement. Returns `None` after the thread's own destructors have run.
#[inline(always)]
pub(crate) fn own_slot() -> Option<Slot> {
    let known = FAST.with(|fast| fast.slot.get());
    if known.is_some() { known } else { own_slot_slow() }
}

#[cold]
fn own_slot_slow() -> Option<Slot> {
    let slot = OWNER.try_with(Owner::slot).ok().flatten()?;
    FAST.with(|fast| fast.set(Some(slot)));
    Some(slot)
}

/// Runs `f` with a slot of this thread, whatever that slot announces. After the thread's
/// destructors, runs it with a slot that the thread owns during the call.
#[inline(always)]
pub(crate) fn with_own_slot<R>(f: impl FnOnce(Slot) -> R) -> R {
    match own_slot() {
        Some(slot) => f(slot),
        None => with_slot_slow(f),
    }
}

/// Runs `f` with a slot that this thread owns and that announces nothing. That works at a thread's
/// first use, from within an update (percpu.P3), and after the thread's own destructors have run,
/// too.
pub(crate) fn with_slot<R>(f: impl FnOnce(Slot) -> R) -> R {
    match idle_slot() {
        Some(slot) => f(slot),
        None => with_slot_slow(f),
    }
}

#[cold]
fn with_slot_slow<R>(f: impl FnOnce(Slot) -> R) -> R {
    if let Some(slot) = own_slot_slow() {
        if !slot.record.is_busy() {
            return f(slot);
        }
    }
    let spare = Spare { record: records().take() };
    f(Slot::of(spare.record))
}

/// Returns the calling thread's own slot, whatever it announces, for something that stays open
/// across other calls. `on_exit` is called when the thread ends. After the thread's own
/// destructors, returns `Err` with a slot that the caller gives back.
#[cold]
pub(crate) fn home_slot(on_exit: OnExit) -> Result<Slot, Slot> {
    OWNER
        .try_with(|owner| {
            owner.on_exit.set(Some(on_exit));
            owner.slot()
        })
        .ok()
        .flatten()
        .ok_or_else(|| Slot::of(records().take()))
}

/// Returns a slot for something that stays open and belongs to no thread. The caller gives it back.
#[cold]
pub(crate) fn spare_slot() -> Slot {
    Slot::of(records().take())
}

/// Runs `f` while the calling thread has this slot, which was handed out once, if it is free now.
#[inline]
pub(crate) fn with_free_slot(index: usize, f: impl FnOnce()) {
    records().with_free(index, f);
}

/// Gives back a slot of [`spare_slot`], or a slot that [`home_slot`] returned as an error.
pub(crate) fn give_back(slot: usize) {
    records().give_back(records().get(slot));
}

/// A second slot during one call.
struct Spare {
    record: &'static Record,
}

impl Drop for Spare {
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        records().give_back(self.record);
    }
}

/// Returns the calling thread's slot: dense, recycled, and no other thread's while this thread
/// lives.
///
/// A thread keeps one slot from its first call to its end, with two exceptions: within an update of
/// an [`oplog`](crate::oplog) object, and after its thread-local destructors have run. In these two
/// cases the result may be the number of another slot, which the thread has only during this call
/// and which another thread may get next. So what is kept by this number is not private to the
/// thread then.
///
/// Cost: one thread-local load. A thread takes its slot at its first call.
///
/// ```
/// let mine = manycore::percpu::current_slot();
/// let other = std::thread::spawn(manycore::percpu::current_slot).join().unwrap();
/// assert_ne!(mine, other);
/// ```
pub fn current_slot() -> usize {
    with_slot(Slot::index)
}

/// Gives the calling thread's slot back, as its thread-local destructors do: everything that the
/// thread leaves in any domain passes to others. From then on the thread is as after its
/// destructors.
///
/// What for: a thread that first used the library in the destructor of a pthread key, after its
/// thread-local destructors had run, so that none runs any more. When not: in a thread that goes
/// on. Sections that are open stay open, and keep the slot.
///
/// # Safety
/// The thread is not inside of a call of this library, such as an update, a key's `Hash` or a
/// destructor that the library called. And nothing relies any more on the number that
/// [`current_slot`] gave the thread being its own.
///
/// ```
/// use manycore::percpu::{current_slot, end_thread};
///
/// std::thread::spawn(|| {
///     current_slot();
///     // SAFETY: the thread is in no call of the library's, and keeps nothing by its number.
///     unsafe { end_thread() }; // from here on, each call takes a slot and gives it back
///     current_slot();
/// })
/// .join()
/// .unwrap();
/// ```
pub unsafe fn end_thread() {
    debug_assert!(!has_log(), "percpu.P2: a thread is ended inside of an object");
    let _ = OWNER.try_with(Owner::end);
}

/// Returns one past the highest slot number handed out so far: the length that a per-slot table
/// needs.
///
/// ```
/// use manycore::percpu::{current_slot, slot_count};
///
/// let mine = current_slot();
/// assert!(mine < slot_count());
/// std::thread::spawn(|| assert!(current_slot() < slot_count())).join().unwrap();
/// ```
pub fn slot_count() -> usize {
    records().high()
}

/// Returns the calling thread's slot, if it has one already.
#[inline(always)]
pub(crate) fn known_slot() -> Option<usize> {
    let index = FAST.with(|fast| fast.index.get());
    (index != usize::MAX).then_some(index)
}

/// The calling thread has a log in hand, from here until this is dropped: an announcement under
/// which user code runs.
#[must_use]
pub(crate) struct WithLog {
    before: usize,
    not_send: PhantomData<*mut ()>,
}

impl WithLog {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self::beside(FAST.try_with(|fast| fast.with_log.get()).unwrap_or(0))
    }

    /// Same as [`new`](Self::new), for a thread with an idle slot: it has no other log in hand.
    #[inline(always)]
    pub(crate) fn only() -> Self {
        debug_assert!(!has_log(), "percpu.P3: a thread whose slot is idle has a log in hand");
        Self::beside(0)
    }

    #[inline(always)]
    fn beside(before: usize) -> Self {
        Self::set(before + 1);
        Self { before, not_send: PhantomData }
    }

    #[inline(always)]
    fn set(count: usize) {
        // Fails only in models, which drop a thread's locals when it ends.
        let _ = FAST.try_with(|fast| fast.with_log.set(count));
    }
}

impl Drop for WithLog {
    #[inline(always)]
    fn drop(&mut self) {
        Self::set(self.before);
    }
}

/// Returns true if the calling thread has a log in hand: others may wait for it then.
#[inline(always)]
pub(crate) fn has_log() -> bool {
    FAST.with(|fast| fast.with_log.get() != 0)
}

/// Returns a number that no other live thread has: a multiple of 16, never zero.
///
/// ```
/// use manycore::percpu::thread_token;
///
/// let mine = thread_token();
/// assert!(mine != 0 && mine % 16 == 0); // four bits are free for marks, and 0 says "none"
/// assert_ne!(std::thread::spawn(thread_token).join().unwrap(), mine);
/// ```
#[cfg(not(manycore_loom))]
#[inline(always)]
pub fn thread_token() -> usize {
    FAST.with(|fast| std::ptr::from_ref(fast) as usize)
}

/// In a model, returns the lowest free multiple: a thread may get the token of an ended thread.
#[cfg(manycore_loom)]
pub fn thread_token() -> usize {
    TOKEN.with(|token| token.value())
}

#[cfg(manycore_loom)]
sync::thread_local! {
    static TOKEN: std::rc::Rc<Token> = std::rc::Rc::new(Token::take());
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_and_recycled() {
        let records = Records::new();
        let taken: Vec<_> = (0..200).map(|_| records.take()).collect();
        assert!(taken.iter().enumerate().all(|(i, r)| r.index() == i));
        records.give_back(taken[70]);
        records.give_back(taken[3]);
        assert_eq!(records.take().index(), 3);
        assert_eq!(records.take().index(), 70);
        assert_eq!(records.high(), 200);
    }

    #[test]
    fn ten_thousand_threads_need_few_slots() {
        let before = slot_count();
        for _ in 0..1000 {
            let threads: Vec<_> = (0..10).map(|_| sync::thread::spawn(current_slot)).collect();
            for thread in threads {
                thread.join().unwrap();
            }
        }
        // Other tests of this process take slots too; what must not happen is growth by thousands.
        assert!(slot_count() < before + 200, "slots were not recycled");
    }

    #[test]
    fn busy_record_gets_a_second_slot() {
        with_slot(|outer| {
            let _announced = outer.announce(16, false);
            with_slot(|inner| assert_ne!(outer.index(), inner.index()));
        });
        let first = current_slot();
        assert_eq!(first, current_slot());
    }

    #[test]
    fn panic_withdraws_the_announcement() {
        let mine = current_slot();
        let result = std::panic::catch_unwind(|| {
            with_slot(|slot| {
                let _announced = slot.announce(16, true);
                panic!("user code");
            })
        });
        assert!(result.is_err());
        assert_eq!(records().get(mine).announced(), 0);
    }
}
