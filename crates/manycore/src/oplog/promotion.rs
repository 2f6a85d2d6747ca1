//! Promotion: how an object gets a *hot state* for many threads, and how the hot state is folded
//! and freed.
//!
//! Owns: the protocol that [`Deferred`](super::Deferred), `Counter` and `ScalableArc` share. It
//! covers the entry of a thread into the hot state, the wait of a thread that closes it, and the
//! membership in the [`LogTable`]. Does not own: the bits of an object's word (`word`), the
//! contents of the hot state, and how they are folded into the object.
//!
//! An object is *cold* while its word leads to no hot state.
//! - A *promotion* allocates the hot state, enters it in the table, and publishes its address in
//!   the word.
//! - Threads *enter*: they announce the address in their slot's record, load the word once more,
//!   and work on their own part of the hot state.
//! - A *demotion* closes the word, leaves the table, waits until the updaters have left, and
//!   *folds* their parts into the object. Then it makes the word cold, and frees the hot state when
//!   no thread announces it.
//! - An *eviction* does the same on behalf of another object, without access to the word. It closes
//!   a gate inside the hot state, folds into a base beside it, and leaves the rest to the object's
//!   next use.
//!
//! | state | the word | the hot state |
//! |---|---|---|
//! | cold | leads to none | none |
//! | hot | [`Word::hot`] | open, a member of the table or not (oplog_table.T1) |
//! | closing | [`Word::closing`] | being folded; it becomes cold, or hot again |
//! | evicted | as hot | its own gate is closed; a use of the object demotes it |
//!
//! Laws:
//! - promotion.H1 A thread reaches the hot state only between an announcement and its withdrawal.
//!   *After* the announcement, it has seen that the word still leads there ([`enter`]). It changes
//!   its own part only if, after the announcement, it has also seen the hot state open, or has
//!   found the part there. (A folding thread first takes the part out.)
//! - promotion.H2 One thread folds the hot state. It has closed the hot state, has passed the
//!   barrier, and has then seen no record that announces the hot state as an updater
//!   ([`wait_for_updaters`]). With promotion.H1 this is the store-buffering race that
//!   `percpu::barrier` decides: the updater sees the hot state closed, or the folding thread sees
//!   the announcement.
//! - promotion.H3 A thread that only reads, or that waits for a lock or a fold, announces the hot
//!   state as a waiter ([`look_on`]). It uses the bias in the word, as an updater does. It accesses
//!   no updater's part, so a fold does not wait for it. (The waiter may itself be waiting for the
//!   fold.)
//! - promotion.H4 The thread that took the hot state out of the word frees it. Before that, the hot
//!   state has left the table ([`Membership::leave`]), and no record announces it any more, not
//!   even as a waiter ([`wait_until_left`]).
//! - promotion.H5 An evictor finds the hot state in the table and claims it there, under the mutex
//!   of its place, and so takes it out of the table. A thread that leaves the table either finds
//!   the hot state there, or waits until the evictor has ended its claim, which is the evictor's
//!   last access. The hot state also enters the table again only after that, so at most one claim
//!   is open.
//! - promotion.H6 In the child of a fork, no record announces a hot state without user code
//!   ([`State`]) for a thread that does not exist there: the child withdraws such announcements
//!   first. What the thread was adding is in its part or not, so the part can be folded. (The
//!   thread that forks has no such announcement, because it is in user code.) Nor is such a hot
//!   state half folded: a fork waits for that ([`Folding`](super::table::Folding)).
//!
//! Two parts differ between the types. `Deferred` also waits for single slots, and accepts a slot's
//! answer in place of the wait (`gate`); its word is a lock while it is cold (object.W1).
//! `ScalableArc` keeps flags, count and period in one word, which decides when it is freed
//! (count.A3), so that word has its own bits. And it is not in the table: only the owner of
//! a handle may fold (count.A5), and an evictor has no handle.

use super::table::{Denied, Evictable, Eviction, LogTable};
use super::word;
pub(crate) use super::word::{State, Word, announced_state, freed_by, updater, updates};
use crate::lock::held;
use crate::percpu::{self, Announced, BiasedSlot, Slot, gate};
use crate::sync::{
    self, AtomicBool, AtomicUsize, Backoff, Ordering, UnsafeCell, panicking, seeded_bug,
};
use std::marker::PhantomData;
use std::ops::Deref;

/// A thread's stay in a hot state (promotion.H1). Dropping this withdraws the announcement, also
/// when user code panics.
pub(crate) struct Inside<H> {
    // Not a reference: the hot state may be freed as soon as the announcement is withdrawn.
    hot: *const H,
    _announced: Announced<'static>,
    not_send: PhantomData<*mut ()>,
}

impl<H> Deref for Inside<H> {
    type Target = H;

    #[inline(always)]
    fn deref(&self) -> &H {
        // SAFETY: promotion.H1 - announced, and checked after that. The thread that frees the hot
        // state waits for the withdrawal (promotion.H4).
        unsafe { &*self.hot }
    }
}

/// Announces `hot` in `slot`'s record, and then checks that the object still leads there
/// (promotion.H1). `is_current` loads with Acquire.
///
/// # Safety
/// `hot` was the object's hot state when the caller loaded the word. It is freed as promotion.H4
/// says, and only after `is_current` would return false. The threads that fold or free it use the
/// same `biased`.
#[inline(always)]
pub(crate) unsafe fn enter<H: State>(
    slot: Slot,
    hot: *const H,
    biased: bool,
    is_current: impl FnOnce() -> bool,
) -> Option<Inside<H>> {
    let announced = slot.announce(word::announcement(hot, false), biased);
    // BUG: a thread enters a hot state that the object may no longer lead to (promotion.H1).
    (is_current() || seeded_bug!("unchecked-entry")).then_some(Inside {
        hot,
        _announced: announced,
        not_send: PhantomData,
    })
}

/// As [`enter`] with the bias, for the shortest paths. `announcement` is that of an updater in
/// `hot` ([`updater`]), or the open word that leads there.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
pub(crate) unsafe fn enter_straight<H: State>(
    slot: BiasedSlot,
    hot: *const H,
    announcement: usize,
    is_current: impl FnOnce() -> bool,
) -> Option<Inside<H>> {
    debug_assert!(updates(announcement, hot), "promotion.H2: {announcement:#x} in {hot:?}");
    debug_assert!(!H::RUNS_USER_CODE && word::runs_library_code(announcement), "promotion.H6");
    let announced = slot.announce(announcement);
    (is_current() || seeded_bug!("unchecked-entry")).then_some(Inside {
        hot,
        _announced: announced,
        not_send: PhantomData,
    })
}

/// [`enter`]s, as an updater, the hot state that `seen` leads to; `seen` was the object's word a
/// moment ago.
///
/// # Safety
/// As for [`enter`]; the hot state is an `H`.
#[inline(always)]
pub(crate) unsafe fn enter_by<H: State>(
    slot: Slot,
    word: &AtomicUsize,
    seen: Word,
) -> Option<Inside<H>> {
    debug_assert!(seen.is_hot(), "promotion.H1: {seen:?} leads to no hot state");
    // ORDER: Acquire; after the announcement (promotion.H1). Pairs with Release at promotion.
    let is_current = || Word::load(word, Ordering::Acquire) == seen;
    // SAFETY: the caller promises that an object's word led to it, and that the word loses it
    // before it is freed (# Safety).
    unsafe { enter(slot, seen.state(), seen.is_biased(), is_current) }
}

/// [`enter`]s, as a waiter (promotion.H3), the hot state that `seen` leads to; `seen` was the
/// object's word a moment ago.
///
/// # Safety
/// As for [`enter`]; the hot state is an `H`.
#[inline(always)]
pub(crate) unsafe fn enter_to_look<H: State>(
    slot: Slot,
    word: &AtomicUsize,
    seen: Word,
) -> Option<Inside<H>> {
    let hot: *const H = seen.state();
    let announced = slot.announce(word::announcement(hot, true), seen.is_biased());
    // ORDER: Acquire; after the announcement (promotion.H1). Pairs with Release at promotion.
    let is_current = Word::load(word, Ordering::Acquire).has_state_of(seen);
    (is_current || seeded_bug!("unchecked-entry")).then_some(Inside {
        hot,
        _announced: announced,
        not_send: PhantomData,
    })
}

/// Runs `look` on the hot state that `word` leads to, if any, announced as a waiter (promotion.H3).
///
/// # Safety
/// The word's hot states are of type `H`, and are freed as promotion.H4 says.
pub(crate) unsafe fn look_on<H: State, R>(
    word: &AtomicUsize,
    look: impl FnOnce(&Inside<H>, Slot) -> R,
) -> Option<R> {
    // ORDER: Acquire; pairs with Release at promotion: the contents before the address.
    let load = || Some(Word::load(word, Ordering::Acquire)).filter(|seen| seen.is_hot());
    load()?;
    percpu::with_slot(|slot| {
        loop {
            // SAFETY: the caller promises that the word's hot states are freed like that (#
            // Safety).
            if let Some(inside) = unsafe { enter_to_look(slot, word, load()?) } {
                return Some(look(&inside, slot));
            }
        }
    })
}

/// Changes an announcement from updater to waiter or back, for the rest of its [`Inside`]. The
/// caller then repeats its checks.
pub(crate) fn announce_again<H: State>(slot: Slot, hot: *const H, waits: bool) {
    // The `Inside` withdraws the announcement in either form.
    slot.announce_anew(word::announcement(hot, waits));
}

/// Waits until no updater is in the hot state, which the caller has closed (promotion.H2).
pub(crate) fn wait_for_updaters<H>(hot: *const H, biased: bool) {
    gate::pass_barrier(biased);
    // BUG: a hot state is folded while its updaters may still be inside (promotion.H2).
    if !seeded_bug!("unwaited-updaters") {
        percpu::records().wait_until_none(|announced| updates(announced, hot));
    }
}

/// Waits until no record announces the hot state. No word leads to it any more (promotion.H4); when
/// one did, it had this bias.
pub(crate) fn wait_until_left<H>(hot: *const H, biased: bool) {
    gate::pass_barrier(biased);
    // BUG: a hot state is freed while a thread may wait for its lock (promotion.H4).
    if !seeded_bug!("unwaited-waiters") {
        percpu::records().wait_until_none(|announced| word::names(announced, hot));
    }
}

/// A hot state's membership in a [`LogTable`].
pub(crate) struct Membership {
    /// True if it is in the table. Guarded by the place's mutex, or written before it is entered.
    is_placed: AtomicBool,
    /// Set under the place's mutex by an evictor; clearing it is the evictor's last access.
    is_claimed: AtomicBool,
    /// A canary of promotion.H4 for loom; nothing elsewhere.
    life: UnsafeCell<()>,
}

// SAFETY: the canary is a cell of nothing, and only `drop`, which has `&mut self`, changes it.
unsafe impl Sync for Membership {}

impl Membership {
    pub(crate) fn new() -> Self {
        Self {
            is_placed: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
            life: UnsafeCell::new(()),
        }
    }

    /// Tells loom that the hot state is in use here, so that freeing it concurrently is a race.
    #[inline(always)]
    pub(crate) fn in_use(&self) {
        self.life.with(|_| ());
    }

    /// Enters `hot` in the table; arguments and result are those of [`LogTable::enter`].
    pub(crate) fn enter<R: Evictable + 'static>(
        &self,
        table: &LogTable,
        hot: *const R,
        insist: bool,
        own: usize,
    ) -> Result<Eviction, Denied> {
        self.place();
        table.enter(hot, insist, own).inspect_err(|Denied| self.displace())
    }

    /// Enters `hot`, which an eviction may have taken out, in the table if its place there is free.
    /// The caller holds its lock, so at most the end of that eviction's claim is left to wait for.
    pub(crate) fn enter_if_free<R: Evictable + 'static>(
        &self,
        table: &LogTable,
        hot: *const R,
    ) -> bool {
        // BUG: a hot state can be claimed again before the first claim has ended (promotion.H5).
        if !seeded_bug!("unfinished-claim") {
            self.wait_for_evictor();
        }
        self.place();
        let placed = table.enter_if_free(hot);
        if !placed {
            self.displace();
        }
        placed
    }

    /// Returns true if it is in the table. For the only thread that may enter or claim it: the
    /// holder of its lock.
    #[inline]
    pub(crate) fn is_placed(&self) -> bool {
        // ORDER: Relaxed; guarded by the lock.
        self.is_placed.load(Ordering::Relaxed)
    }

    fn place(&self) {
        debug_assert!(
            cfg!(manycore_loom) || !self.is_placed(),
            "promotion.H5: a hot state is entered twice"
        );
        // ORDER: Relaxed; the place's mutex passes it on to an evictor.
        self.is_placed.store(true, Ordering::Relaxed);
    }

    fn displace(&self) {
        // ORDER: Relaxed; guarded by the lock.
        self.is_placed.store(false, Ordering::Relaxed);
    }

    /// Claims the hot state for an eviction (promotion.H5). It counts as an object that the calling
    /// thread holds until the thread ends the claim. The caller has the mutex of its place, and its
    /// lock if it has one.
    pub(crate) fn claim(&self) {
        debug_assert!(
            cfg!(manycore_loom) || !self.is_claimed(),
            "promotion.H5: a hot state is claimed twice"
        );
        debug_assert!(self.is_placed(), "promotion.H5: a claim outside of the table");
        held::enter();
        self.displace();
        // ORDER: Relaxed; the place's mutex, held here and by `leave`, orders it.
        self.is_claimed.store(true, Ordering::Relaxed);
    }

    /// Ends a claim; this is the evictor's last access.
    ///
    /// # Safety
    /// The calling thread has claimed the hot state that `this` is in.
    pub(crate) unsafe fn end_claim(this: *const Self) {
        held::leave();
        // SAFETY: promotion.H5 - claimed by this thread, so the hot state is not freed before the
        // store below.
        unsafe {
            debug_assert!(
                cfg!(manycore_loom) || (*this).is_claimed(),
                "promotion.H5: a claim ends twice"
            );
            (*this).in_use();
            // ORDER: Release; pairs with Acquire in `wait_for_evictor`.
            (*this).is_claimed.store(false, Ordering::Release);
        }
    }

    /// Returns true if an evictor has claimed it, for that evictor.
    pub(crate) fn is_claimed(&self) -> bool {
        // ORDER: Relaxed; a thread sees its own claim.
        self.is_claimed.load(Ordering::Relaxed)
    }

    /// Leaves the table, and waits for an evictor that has claimed the hot state before
    /// (promotion.H5). A thread that frees a hot state calls this first.
    pub(crate) fn leave<R>(&self, table: &LogTable, hot: *const R) {
        table.leave(hot);
        // BUG: a hot state is freed while an evictor uses it (promotion.H5).
        if !seeded_bug!("unwaited-evictor") {
            self.wait_for_evictor();
        }
        self.displace();
    }

    fn wait_for_evictor(&self) {
        let mut backoff = Backoff::new();
        // ORDER: Acquire; pairs with Release in `end_claim`.
        while self.is_claimed.load(Ordering::Acquire) {
            backoff.pause();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        let is_placed = self.is_placed();
        debug_assert!(!is_placed || panicking(), "promotion.H4: freed while in the table");
        self.life.with_mut(|_| ());
    }
}
