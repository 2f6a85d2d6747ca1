//! The state of one thread in one domain: the words that other threads read, and its limbo.

use super::limbo::{Handful, Limbo, Orphans};
use crate::config::{CLOSES_PER_LOOK, URGENT_BURST, URGENT_DOUBLED};
use crate::config::{RETIRES_PER_LOOK, URGENT_MICROS};
use crate::policy::Doubling;
use crate::sync::{AtomicU64, AtomicUsize, Backoff, MutPtr, Ordering, UnsafeCell, seeded_bug};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

/// Bits of `extra` beside the count. FULL: a batch is full and must be sealed when the outermost
/// section closes.
pub(super) const FULL: u32 = 1 << 30;
/// The slot must be given back when the outermost section closes: it was taken for this section
/// alone, or its thread ended inside. The bit holds the slot until that is done.
pub(super) const SPARE: u32 = 1 << 31;
/// An urgent node waits (section.S10), and the end of the section should look whether its batch is
/// due.
pub(super) const URGENT: u32 = 1 << 29;
/// The bits that count.
pub(super) const COUNT: u32 = URGENT - 1;

/// States of `claim`, the word that says which thread may access the limbo. The owner may access it
/// while it has a section open, or after it has set the word to `OWNED`. A leader sets `WANTED`
/// before its barrier. It takes over only if it finds the owner outside after the barrier, and the
/// word unchanged.
const UNCLAIMED: usize = 0;
const WANTED: usize = 1;
const TAKING: usize = 2;
const OWNED: usize = 3;

/// One slot's part of one domain. Only the slot's owner writes it, and the next owner continues
/// from there (law percpu.P2).
#[repr(C, align(128))]
pub(super) struct Local {
    /// Zero outside; inside, the stamp at which the outermost section was entered (section.S4).
    pub(super) lower: OwnWord,
    /// The latest era that a section had to catch up with when it loaded a pointer (section.E4).
    /// The value of an older section is less than `lower`, so opening a section need not reset it.
    pub(super) raised: OwnWord,
    pub(super) slot: usize,
    /// Number of sections open beyond the first, and the flags above; nearly always zero. Only the
    /// owner touches it.
    pub(super) extra: Cell<u32>,
    /// Whether the owner took an expired node to use it again: the next retire frees one less
    /// (section.S13). Until then, `waiting` and `bytes` count that node.
    pub(super) reused: Cell<bool>,
    /// Not null while the owner frees a node: then it points to the nodes that the owner frees
    /// next, on its stack ([`Local::ONE`] if there are none). What is retired meanwhile only waits.
    /// So a chain of nodes that retire one another in their destructors needs no deep stack.
    pub(super) freeing: Cell<*const Handful>,
    /// Nodes that wait here, for reports.
    pub(super) waiting: AtomicUsize,
    /// Weight of these nodes, for reports.
    pub(super) bytes: AtomicUsize,
    /// This limbo's part of the domain's charge (section.S10); written by the thread that `claim`
    /// allows.
    pub(super) charged: AtomicUsize,
    /// The stamp of the last section here that counts as stalled (section.S10); written by leaders.
    pub(super) stalled: AtomicU64,
    /// Says which thread may touch the limbo while no section is open.
    claim: AtomicUsize,
    /// Index in the list of the slot's parts; guarded by that list's lock.
    pub(super) place: Cell<usize>,
    /// Says when an urgent batch is due.
    pub(super) pace: Pace,
    /// Accessed by the thread that `claim` allows.
    limbo: UnsafeCell<Limbo>,
}

/// Says when a thread looks after urgent nodes: once in `URGENT_MICROS`, and less often while that
/// frees nothing. After a pause, the thread may do so up to `URGENT_BURST` times in a row at once.
/// So a few removals are freed right away, and many removals pay at most one round in that time.
/// Only the owner touches it.
///
/// Reading the clock at the end of each section would cost more than the section. So closes and
/// retires are counted down, and the clock is read at zero. A retire counts for more than a close,
/// because garbage grows with it.
#[derive(Default)]
pub(super) struct Pace {
    /// What is left to count down before the next look at the time (`left`), and the start value
    /// (`of`).
    left: Cell<u32>,
    of: Cell<u32>,
    looked: Cell<Option<Instant>>,
    /// When the next batch would be sealed if batches came evenly. It may come `BURST` earlier.
    next: Cell<Option<Instant>>,
    doubled: Cell<Doubling>,
}

/// How many closes a retire counts for.
const RETIRE: u32 = CLOSES_PER_LOOK / RETIRES_PER_LOOK;

/// A batch may be sealed this much earlier than evenly.
const BURST: Duration = Duration::from_micros((URGENT_BURST as u64 - 1) * URGENT_MICROS);

impl Pace {
    /// Counts down the end of a section. Returns true if the time need not be looked at.
    #[inline(always)]
    pub(super) fn passes(&self) -> bool {
        let left = self.left.get();
        if left == 0 || cfg!(any(manycore_loom, manycore_shuttle)) {
            return false; // models have no time
        }
        self.left.set(left - 1);
        true
    }

    /// Counts down the retire of an urgent node.
    #[inline(always)]
    pub(super) fn retired(&self) {
        self.left.set(self.left.get().saturating_sub(RETIRE));
    }

    /// Returns true if an urgent batch is due at the end of a section.
    pub(super) fn is_due(&self) -> bool {
        if cfg!(any(manycore_loom, manycore_shuttle)) {
            return true; // models have no time
        }
        !self.passes() && self.look(Instant::now())
    }

    #[cold]
    fn look(&self, now: Instant) -> bool {
        const FIRST: u64 = URGENT_MICROS * 1000;
        let nanos = |passed: Duration| u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let since = |last: Option<Instant>| match last {
            Some(last) => nanos(now.duration_since(last)),
            None => FIRST,
        };
        // As many closes as pass in a sixteenth of the time, until the next look.
        let each = since(self.looked.replace(Some(now))) / (u64::from(self.of.get()) + 1);
        let next = (FIRST / 16 / each.max(1)).min(CLOSES_PER_LOOK.into()) as u32;
        self.left.set(next.saturating_sub(1));
        self.of.set(next.saturating_sub(1));
        self.may_seal(now)
    }

    /// Returns true if the next batch may be sealed.
    pub(super) fn may_seal(&self, now: Instant) -> bool {
        self.next.get().is_none_or(|next| now + BURST >= next)
    }

    /// Returns true if none of the burst is used up. (Always false in models, which have no time.)
    pub(super) fn has_saved(&self, now: Instant) -> bool {
        cfg!(not(any(manycore_loom, manycore_shuttle)))
            && self.next.get().is_none_or(|next| now >= next)
    }

    /// Notes that a batch was sealed. It was `in_vain` if nothing urgent could be freed.
    pub(super) fn sealed(&self, now: Instant, in_vain: bool) {
        let mut doubled = if in_vain { self.doubled.get() } else { Doubling::NONE };
        if in_vain {
            doubled.double(URGENT_DOUBLED);
        }
        self.doubled.set(doubled);
        let last = now + BURST + self.pause(); // as if the burst were used up
        let evenly = self.next.get().unwrap_or(now).max(now) + self.pause();
        self.next.set(Some(if in_vain { last } else { evenly.min(last) }));
        if self.may_seal(now) {
            self.left.set(0); // the next section's end may be followed by a batch, too
            self.of.set(0);
        }
    }

    /// Returns the time between two batches.
    fn pause(&self) -> Duration {
        Duration::from_micros(self.doubled.get().of(URGENT_MICROS as u32).into())
    }
}

/// A word that the slot's owner writes and others read. loom remembers only an object's last
/// access, so the owner's own load would hide another thread's. Under loom the owner therefore
/// reads a copy.
pub(super) struct OwnWord {
    word: AtomicU64,
    #[cfg(manycore_loom)]
    copy: Cell<u64>,
}

impl OwnWord {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            #[cfg(manycore_loom)]
            copy: Cell::new(0),
        }
    }

    /// Returns the value, for the owner. Other threads [`load`](Self::load).
    #[inline(always)]
    pub(super) fn own(&self) -> u64 {
        #[cfg(manycore_loom)]
        return self.copy.get();
        // SAFETY: the owner alone stores, and only the owner calls this, so no thread stores
        // meanwhile. (The compiler compares a word in memory with zero at once, but not after an
        // atomic load.)
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        return unsafe { *self.word.as_ptr() };
        // ORDER: Relaxed; the owner's own word.
        #[cfg(all(manycore_shuttle, not(manycore_loom)))]
        self.word.load(Ordering::Relaxed)
    }

    /// Returns the value, for other threads.
    #[inline(always)]
    pub(super) fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    #[inline(always)]
    pub(super) fn store(&self, value: u64, order: Ordering) {
        #[cfg(manycore_loom)]
        self.copy.set(value);
        self.word.store(value, order);
    }

    /// Stores the value by a locked instruction.
    #[inline(always)]
    pub(super) fn swap(&self, value: u64, order: Ordering) {
        #[cfg(manycore_loom)]
        self.copy.set(value);
        self.word.swap(value, order);
    }
}

// SAFETY: only the slot's owner touches `extra`, `freeing`, `reused`, `pace` and the copies
// (percpu.P2 of `percpu`: one owner at a time, handed over by Release and Acquire), or the owner of
// the domain. `place` is touched under a lock, and `limbo` by the thread that `claim` allows, one
// at a time. Any thread may free the nodes in it: the caller of `Section::retire` or `retire_raw`
// promises it.
unsafe impl Sync for Local {}
// SAFETY: a `Local` is not tied to a thread. Its cells are plain data. Any thread may free the
// nodes in its limbo: the caller of `Section::retire` or `retire_raw` promises it.
unsafe impl Send for Local {}

/// The limbo, while the thread that `claim` allows works on it. Dropping this publishes the counts
/// that other threads read.
pub(super) struct TouchedLimbo<'a> {
    local: &'a Local,
    limbo: MutPtr<Limbo>,
}

impl Deref for TouchedLimbo<'_> {
    type Target = Limbo;

    #[inline(always)]
    fn deref(&self) -> &Limbo {
        // SAFETY: the caller of `touch_limbo` is the only one that `claim` allows it, and runs no
        // user code, which could come here again.
        unsafe { self.limbo.deref() }
    }
}

impl DerefMut for TouchedLimbo<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Limbo {
        // SAFETY: only one thread is allowed here, as above, and `self` is borrowed exclusively.
        unsafe { self.limbo.deref() }
    }
}

impl Drop for TouchedLimbo<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.local.publish(self.waiting(), self.bytes());
    }
}

impl From<usize> for Local {
    fn from(slot: usize) -> Self {
        Self {
            lower: OwnWord::new(),
            raised: OwnWord::new(),
            slot,
            extra: Cell::new(0),
            freeing: Cell::new(ptr::null()),
            reused: Cell::new(false),
            waiting: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            charged: AtomicUsize::new(0),
            stalled: AtomicU64::new(0),
            claim: AtomicUsize::new(UNCLAIMED),
            place: Cell::new(usize::MAX),
            pace: Pace::default(),
            limbo: UnsafeCell::new(Limbo::new(usize::MAX)),
        }
    }
}

impl Local {
    /// Makes this a part with a limbo that no thread may ever touch.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn claimed_for_good(self) -> Self {
        // ORDER: Relaxed; not shared yet.
        self.claim.store(OWNED, Ordering::Relaxed);
        self
    }

    /// Runs `f` on the owner's limbo. `f` runs no user code.
    pub(super) fn with_limbo<R>(&self, f: impl FnOnce(&mut Limbo) -> R) -> R {
        if self.is_inside() {
            return f(&mut self.limbo_inside());
        }
        let _owned = self.own_limbo();
        f(&mut self.touch_limbo())
    }

    /// The limbo of an owner that has a section open. This is no closure, because the compiler
    /// might not inline one.
    #[inline(always)]
    pub(super) fn limbo_inside(&self) -> TouchedLimbo<'_> {
        TouchedLimbo { local: self, limbo: self.limbo_unpublished() }
    }

    /// As [`limbo_inside`](Self::limbo_inside), but publishes nothing: for a change that leaves the
    /// published counts right. The caller drops this before any user code runs.
    #[inline(always)]
    pub(super) fn limbo_unpublished(&self) -> MutPtr<Limbo> {
        debug_assert!(self.is_inside(), "section.S9: a thread outside touches its limbo unclaimed");
        // ORDER: Acquire; pairs with Release in `take_over`. Either a leader that has announced
        // itself sees the section, or its announcement is seen here. The reason: the store of
        // `lower` and a light barrier lie before this load, and the announcement and a heavy
        // barrier lie before the leader's look (barrier.B1).
        if self.claim.load(Ordering::Acquire) != UNCLAIMED {
            self.refuse();
        }
        self.limbo.get_mut()
    }

    /// Publishes how much waits here.
    #[inline(always)]
    fn publish(&self, waiting: usize, bytes: usize) {
        // ORDER: Relaxed; reports.
        self.waiting.store(waiting, Ordering::Relaxed);
        if cfg!(not(manycore_loom)) {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the memory of an expired node that `free` would free, for an owner that has a
    /// section open. Returns `None` while a leader wants the limbo, and in a section that protects
    /// nothing.
    #[inline(always)]
    pub(super) fn reuse(&self, free: unsafe fn(NonNull<()>)) -> Option<NonNull<()>> {
        // ORDER: Acquire; as in `limbo_inside`.
        if self.claim.load(Ordering::Acquire) != UNCLAIMED {
            return None;
        }
        debug_assert!(self.is_inside(), "section.S9: a thread outside touches its limbo unclaimed");
        let limbo = self.limbo.get_mut();
        // SAFETY: `claim` allows it to the owner, which is inside, and no user code runs.
        let limbo = unsafe { limbo.deref() };
        if self.reused.get() {
            return self.reuse_another(limbo, free);
        }
        let node = limbo.pop_expired_of(free)?;
        self.reused.set(true);
        Some(node)
    }

    /// As [`reuse`](Self::reuse), for an owner that has retired nothing since it last reused a
    /// node.
    #[inline(never)]
    fn reuse_another(
        &self,
        limbo: &mut Limbo,
        free: unsafe fn(NonNull<()>),
    ) -> Option<NonNull<()>> {
        let (waiting, bytes) = (limbo.waiting(), limbo.bytes());
        let node = limbo.pop_expired_of(free)?;
        self.publish(waiting, bytes); // with this node, and without the last one
        Some(node)
    }

    /// For a caller that `claim` allows: it has a section open and the word is unclaimed, or it
    /// changed the word itself. It runs no user code before it drops this.
    #[inline(always)]
    fn touch_limbo(&self) -> TouchedLimbo<'_> {
        TouchedLimbo { local: self, limbo: self.limbo.get_mut() }
    }

    /// Refuses a leader that wants to take over the limbo of an owner that is inside. If the leader
    /// has begun already, waits for it: that takes a few instructions.
    #[cold]
    fn refuse(&self) {
        let mut backoff = Backoff::new();
        // ORDER: Acquire; as in `limbo_inside`. Relaxed on success: nothing was touched.
        while let Err(found) =
            self.claim.compare_exchange(WANTED, UNCLAIMED, Ordering::Relaxed, Ordering::Acquire)
        {
            if found == UNCLAIMED {
                return;
            }
            backoff.pause();
        }
    }

    /// Claims the limbo for an owner that is outside.
    fn own_limbo(&self) -> impl Drop + '_ {
        struct Owned<'a>(&'a Local);
        impl Drop for Owned<'_> {
            fn drop(&mut self) {
                debug_assert!(
                    cfg!(manycore_loom) || self.0.claim.load(Ordering::Relaxed) == OWNED,
                    "section.S9: the owner's claim was taken from it"
                );
                // ORDER: Release; pairs with Acquire in `want` and `take_over`.
                self.0.claim.store(UNCLAIMED, Ordering::Release);
            }
        }
        let mut backoff = Backoff::new();
        let mut expected = UNCLAIMED;
        // ORDER: Acquire; pairs with Release in `take_over`.
        while let Err(found) =
            self.claim.compare_exchange(expected, OWNED, Ordering::Acquire, Ordering::Relaxed)
        {
            expected = if found == WANTED { WANTED } else { UNCLAIMED };
            if found == TAKING {
                backoff.pause();
            }
        }
        Owned(self)
    }

    /// Announces that a leader would take over the limbo. The leader calls this before its barrier.
    pub(super) fn want(&self) {
        // ORDER: Acquire; pairs with Release in `own_limbo`. Failure: the owner is using its limbo.
        let _ =
            self.claim.compare_exchange(UNCLAIMED, WANTED, Ordering::Acquire, Ordering::Relaxed);
    }

    /// Takes over the limbo, if this leader announced it and the owner has neither been inside nor
    /// claimed the limbo since. The leader calls this after its barrier; `is_inside` is what it
    /// then saw of the owner.
    pub(super) fn take_over(
        &self,
        is_inside: bool,
        take: impl FnOnce(&mut Limbo) -> Orphans,
    ) -> Option<Orphans> {
        // ORDER: Relaxed; only leaders write WANTED, one after the other.
        if self.claim.load(Ordering::Relaxed) != WANTED {
            return None;
        }
        // BUG: a leader takes over the limbo of a thread that is inside of a section (section.S9).
        let to = if is_inside && !seeded_bug!("taken-inside") { UNCLAIMED } else { TAKING };
        // ORDER: Acquire; as in `want`, and the owner's leaving was read with Acquire. Failure: the
        // owner has come.
        let claimed = self.claim.compare_exchange(WANTED, to, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_err() || to == UNCLAIMED {
            return None;
        }
        let orphans = take(&mut self.touch_limbo());
        debug_assert!(
            cfg!(manycore_loom) || self.claim.load(Ordering::Relaxed) == TAKING,
            "section.S9: a leader's claim was taken from it"
        );
        // ORDER: Release; pairs with Acquire in `limbo_inside` and `own_limbo`.
        self.claim.store(UNCLAIMED, Ordering::Release);
        Some(orphans)
    }

    /// Marks an owner that frees one node and has no others at hand.
    pub(super) const ONE: *const Handful = NonNull::<Handful>::dangling().as_ptr().cast_const();

    /// Calls `f` with each node that waits here, or that the owner has at hand and frees next.
    /// Returns whether the owner is counted among the writers.
    ///
    /// # Safety
    /// No other thread exists. The caller is in no function of this module, except in the
    /// destructor of a node.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) unsafe fn for_each_waiting(
        &self,
        f: &mut dyn FnMut(&super::limbo::RetiredNode),
    ) -> bool {
        let limbo = self.touch_limbo();
        limbo.for_each(f);
        let hand = self.freeing.get();
        if !hand.is_null() && hand != Self::ONE {
            // SAFETY: on the stack of the owner, the calling thread, which takes nodes out between
            // two destructors only.
            unsafe { &*hand }.for_each(f);
        }
        limbo.is_counted()
    }

    /// Ends an owner that the child of a fork does not have: closes its sections. If the owner was
    /// inside a section, or was changing its limbo, the limbo may be in any state, and its nodes
    /// are leaked.
    ///
    /// # Safety
    /// No other thread exists, the owner is not the calling thread, and nothing that its sections
    /// protected is used any more.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) unsafe fn abandon(&self) {
        // ORDER: Relaxed, here and below; there is one thread.
        if self.is_inside() || self.claim.load(Ordering::Relaxed) == OWNED {
            let mut limbo = self.touch_limbo();
            // Not dropped: a buffer of it may have been freed.
            std::mem::forget(std::mem::replace(&mut *limbo, Limbo::new(usize::MAX)));
        }
        self.claim.store(UNCLAIMED, Ordering::Relaxed);
        self.lower.store(0, Ordering::Relaxed);
        self.extra.set(0);
        self.freeing.set(ptr::null());
        self.reused.set(false);
    }

    /// Whether the owner has a section open.
    #[inline(always)]
    pub(super) fn is_inside(&self) -> bool {
        self.lower.own() != 0
    }

    /// Whether a section holds the slot beyond the owner's end; for the owner.
    pub(super) fn is_spare(&self) -> bool {
        self.extra.get() & SPARE != 0
    }

    /// Returns the latest era with nodes that the open section may hold (section.E4); for the
    /// owner.
    #[inline(always)]
    pub(super) fn upper(&self) -> u64 {
        self.lower.own().max(self.raised.own())
    }

    /// Counts one more section of an owner that is inside.
    #[cold]
    pub(super) fn nest(&self) {
        let extra = self.extra.get();
        assert!(extra & COUNT != COUNT, "manycore: sections nested half a billion deep");
        self.extra.set(extra + 1);
    }

    /// Closes the outermost section.
    #[inline(always)]
    pub(super) fn leave(&self) {
        debug_assert!(self.is_inside(), "section.S4: a section is closed that is not open");
        // ORDER: Release; pairs with Acquire in `State::look` and `State::youngest_held`: what the
        // section did with its nodes before they are freed.
        self.lower.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// Of each batch: whether it was in vain, and the microseconds until the next may be sealed.
    const RECORDED: [(bool, u64); 16] = [
        (true, 200),
        (true, 400),
        (false, 100),
        (true, 200),
        (true, 400),
        (true, 800),
        (true, 1_600),
        (true, 3_200),
        (true, 6_400),
        (true, 12_800),
        (true, 25_600),
        (true, 51_200),
        (true, 102_400),
        (true, 102_400), // ten doublings at most
        (false, 100),
        (true, 200),
    ];

    #[test]
    fn recorded_batches_in_vain_double_the_pause_up_to_its_bound() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut at = 0;
        assert!(pace.look(start), "the first is due at once");
        for (in_vain, pause) in RECORDED {
            let after = |micros: u64| start + Duration::from_micros(at + micros);
            pace.sealed(after(0), in_vain);
            assert!(!pace.look(after(pause - 1)), "{at}: early");
            assert!(pace.look(after(pause)), "{at}: late");
            at += pause;
        }
    }

    #[test]
    fn few_batches_in_a_row_may_be_sealed_at_once_and_one_in_each_pause_after_them() {
        let (pace, start) = (Pace::default(), Instant::now());
        let after = |micros: u64| start + Duration::from_micros(micros);
        for number in 0..URGENT_BURST {
            assert_eq!(pace.has_saved(start), number == 0);
            assert!(pace.left.get() == 0 && pace.look(start), "{number}");
            pace.sealed(start, false);
        }
        assert!(!pace.look(after(URGENT_MICROS - 1)));
        assert!(pace.look(after(URGENT_MICROS)));
        pace.sealed(after(URGENT_MICROS), false);
        assert!(!pace.look(after(2 * URGENT_MICROS - 1)));
        let later = after(URGENT_MICROS * u64::from(URGENT_BURST + 1));
        assert!(pace.has_saved(later), "it is not saved up again");
    }
}
