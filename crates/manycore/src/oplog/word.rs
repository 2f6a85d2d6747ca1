//! An object's word: a lock while the object is cold, and the way to its hot state while it is hot.
//!
//! Owns: the bits of a hot word and of an announcement, and the transitions of the word of a
//! [`Deferred`](super::Deferred). The bits of a cold word are [`crate::lock`]'s, and the protocol
//! is `promotion`'s. `Counter` keeps its word itself, because its cold word is no lock.
//!
//! | from | to | by | by which thread |
//! |---|---|---|---|
//! | cold, locked | hot | [`publish`](StateWord::publish) | any (object.W2) |
//! | hot | hot, other bias | [`set_bias`](StateWord::set_bias) | the hot state's lock holder |
//! | hot | closing | [`close`](StateWord::close) | the same |
//! | closing | hot | [`Closing`]'s drop | the same |
//! | closing | cold, locked | [`make_cold`](StateWord::make_cold) | the same |
//! | any | cold, free | [`reset`](StateWord::reset) | the object's only user |

use crate::lock::{self, LOCKED};
use crate::sync::{AtomicUsize, Ordering, const_fn};
use std::ptr;

/// Announcements are plain stores, and the thread that closes the hot state pays the barrier.
const BIASED: usize = 8;
/// The hot state is not about to be freed. (Without this bit, updaters retry later.)
const OPEN: usize = 16;
/// In an announcement: no user code runs while the thread is inside (promotion.H6).
const LIBRARY_CODE: usize = OPEN; // as in the word of a `Counter`, which is announced whole
/// In an announcement: the thread is a waiter (promotion.H3).
const WAITING: usize = 32;
/// Updates must take the slow path.
const SLOW_PATH: usize = 64;
/// The bits of a word that is only open and biased.
const PLAIN_BIASED: usize = lock::HOT | BIASED | OPEN;
/// Hot states are aligned to 128 bytes.
const ADDRESS: usize = !0x7f;
const _: () = assert!(lock::HOT & ADDRESS == 0 && lock::HOT < BIASED);

/// An object's word, or what a record announces of it. While an object is cold, its word belongs to
/// the object: it is zero, or a lock word without [`lock::HOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(usize);

impl Word {
    /// Loads `word`.
    #[inline(always)]
    pub(crate) fn load(word: &AtomicUsize, order: Ordering) -> Self {
        // ORDER: as the caller says.
        Self(word.load(order))
    }

    /// Makes the word that leads to `hot`, the pointer that frees the hot state ([`freed_by`]).
    pub(crate) fn hot<H>(hot: *mut H, biased: bool, slow_path: bool) -> Self {
        debug_assert!(!hot.is_null() && hot as usize & !ADDRESS == 0, "hot states are aligned");
        let bias = if biased { BIASED } else { 0 };
        let address = hot.expose_provenance();
        Self(address | lock::HOT | OPEN | bias | if slow_path { SLOW_PATH } else { 0 })
    }

    /// Returns the word of the same hot state, with or without the bias.
    pub(super) fn with_bias(self, biased: bool) -> Self {
        debug_assert!(self.is_open(), "promotion.H2: the bias of {self:?} changes");
        Self(if biased { self.0 | BIASED } else { self.0 & !BIASED })
    }

    /// Returns the word of the same hot state, closed.
    pub(crate) fn closing(self) -> Self {
        debug_assert!(self.is_open(), "promotion.H2: {self:?} is closed by two threads");
        Self(self.0 & !OPEN)
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> usize {
        self.0
    }

    /// Returns true if there is a hot state, open or closing.
    #[inline(always)]
    pub(crate) fn is_hot(self) -> bool {
        self.0 & lock::HOT != 0
    }

    /// Returns true if there is a hot state and the word does not close it.
    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self.0 & (lock::HOT | OPEN) == lock::HOT | OPEN
    }

    /// As [`is_open`](Self::is_open), for an object with a word that is zero while it is cold.
    #[inline(always)]
    pub(crate) fn is_open_if_not_zero(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Returns true if both words lead to one hot state, with one bias.
    #[inline(always)]
    pub(super) fn has_state_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & (ADDRESS | lock::HOT | BIASED) == 0
    }

    fn is_closing(self) -> bool {
        self.0 & (lock::HOT | OPEN) == lock::HOT
    }

    /// Returns true if the fast path may be tried.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & (lock::HOT | OPEN | SLOW_PATH) == lock::HOT | OPEN
    }

    #[inline(always)]
    pub(crate) fn is_biased(self) -> bool {
        self.0 & BIASED != 0
    }

    /// Returns the hot state, if the word is only open and biased: nearly always so while it is
    /// hot.
    #[inline(always)]
    pub(crate) fn plain_biased<H>(self) -> Option<*mut H> {
        let address = self.0.wrapping_sub(PLAIN_BIASED);
        (address & !ADDRESS == 0).then(|| ptr::with_exposed_provenance_mut(address))
    }

    /// As [`plain_biased`](Self::plain_biased), for a caller that knows that it is so.
    #[inline(always)]
    pub(crate) fn state_of_plain_biased<H>(self) -> *mut H {
        debug_assert!(self.plain_biased::<H>().is_some(), "promotion.H1: {self:?} has other bits");
        ptr::with_exposed_provenance_mut(self.0.wrapping_sub(PLAIN_BIASED))
    }

    /// Returns the address of the hot state that the word leads to.
    #[inline(always)]
    pub(crate) fn state<H>(self) -> *mut H {
        ptr::with_exposed_provenance_mut(self.0 & ADDRESS)
    }
}

/// Returns the pointer that frees `hot`: the pointer that [`Word::hot`] was given. A pointer made
/// from a reference would be good for no more than the reference was.
pub(crate) fn freed_by<H>(hot: *const H) -> *mut H {
    ptr::with_exposed_provenance_mut(hot.addr())
}

/// A hot state, as threads enter it.
pub(crate) trait State {
    /// Whether user code may run while a thread is inside.
    const RUNS_USER_CODE: bool;
}

/// Returns what a record announces for a thread in `hot` that waits there (promotion.H3) or
/// updates.
#[inline(always)]
pub(super) fn announcement<H: State>(hot: *const H, waits: bool) -> usize {
    debug_assert!(hot.addr() & !ADDRESS == 0, "promotion.H1: {hot:?} is no hot state");
    let library_code = if H::RUNS_USER_CODE { 0 } else { LIBRARY_CODE };
    hot as usize | library_code | if waits { WAITING } else { 0 }
}

/// Returns what a record announces for an updater in `hot`, for an object that keeps it in place of
/// the address: so the straight path has nothing to add to it. [`announced_state`] is its inverse.
pub(crate) fn updater<H: State>(hot: *mut H) -> usize {
    announcement(ptr::with_exposed_provenance::<H>(hot.expose_provenance()), false)
}

/// Returns the hot state of an [`updater`].
#[inline(always)]
pub(crate) fn announced_state<H: State>(updater: usize) -> *mut H {
    ptr::with_exposed_provenance_mut(updater.wrapping_sub(announcement::<H>(ptr::null(), false)))
}

/// Returns true if an announced word is that of a thread that runs no user code inside.
#[inline(always)]
pub(super) fn runs_library_code(announced: usize) -> bool {
    announced & LIBRARY_CODE != 0
}

/// Returns true if an announced word is that of an updater in `hot`.
#[inline(always)]
pub(crate) fn updates<H>(announced: usize, hot: *const H) -> bool {
    announced & (ADDRESS | WAITING) == hot as usize
}

/// Returns true if an announced word is that of a thread in `hot`, updater or waiter.
pub(super) fn names<H>(announced: usize, hot: *const H) -> bool {
    announced & ADDRESS == hot as usize
}

/// The word of a [`Deferred`](super::Deferred).
pub(super) struct StateWord(AtomicUsize);

impl StateWord {
    const_fn! {
        /// Makes a word that is cold and free.
        pub(super) const fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    /// Returns the raw word, for [`crate::lock`], which is refused if the object is hot, and for
    /// `promotion`, which only loads it.
    #[inline(always)]
    pub(super) fn raw(&self) -> &AtomicUsize {
        &self.0
    }

    /// Loads the word, for a thread that may follow it.
    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // ORDER: Acquire; pairs with Release in `publish`: the hot state's contents before its
        // address.
        Word::load(&self.0, Ordering::Acquire)
    }

    /// Loads the word, for a thread that has the lock, or that only wants a hint.
    #[inline(always)]
    pub(super) fn hint(&self) -> Word {
        // ORDER: Relaxed; taking either lock orders what follows.
        Word::load(&self.0, Ordering::Relaxed)
    }

    /// Makes a cold word that is locked lead to `hot`; before that, `in_name_of` gets the holder's
    /// token. Does nothing and returns false if the word is free or hot (object.W2).
    pub(super) fn publish(&self, hot: Word, in_name_of: impl FnMut(usize)) -> bool {
        debug_assert!(hot.is_open(), "object.W2: {hot:?} is published");
        lock::redirect(&self.0, hot.raw(), in_name_of)
    }

    /// Changes the bias. For the holder of the hot state's lock.
    pub(super) fn set_bias(&self, biased: bool) {
        let word = self.hint();
        debug_assert!(word.is_biased() != biased, "promotion.H2: the bias becomes what it is");
        // ORDER: Release; an updater that enters by the new word reads it with Acquire.
        self.0.store(word.with_bias(biased).raw(), Ordering::Release);
    }

    /// Closes the word to updaters, until the result is dropped without
    /// [`stay_closed`](Closing::stay_closed). For the holder of the lock of `hot`.
    pub(super) fn close<H>(&self, hot: *const H) -> Closing<'_> {
        let open = self.hint();
        debug_assert!(ptr::eq(open.state(), hot), "object.W1: the object has another hot state");
        // ORDER: Release; the caller passes the barrier before it looks at the updaters.
        self.0.store(open.closing().raw(), Ordering::Release);
        Closing { word: self, open }
    }

    /// Makes a closed word cold, and locked by the thread with `token`.
    pub(super) fn make_cold(&self, token: usize) {
        debug_assert!(self.hint().is_closing(), "object.W3: {:?} becomes cold", self.hint());
        // ORDER: Release; the value before the word that makes it inline.
        self.0.store(token | LOCKED, Ordering::Release);
    }

    /// Makes the word cold and free, whatever a guard that was leaked has left.
    pub(super) fn reset(&mut self) {
        // ORDER: Relaxed; `&mut self`.
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A word that is closed.
#[must_use]
pub(super) struct Closing<'a> {
    word: &'a StateWord,
    open: Word,
}

impl Closing<'_> {
    /// Leaves the word closed: the hot state is going to be freed.
    pub(super) fn stay_closed(self) {
        std::mem::forget(self);
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        debug_assert!(self.word.hint() == self.open.closing(), "object.W3: reopened by another");
        // ORDER: Release; as in `set_bias`.
        self.word.0.store(self.open.raw(), Ordering::Release);
    }
}
