//! A lock word that is reserved for one thread, the *owner*, which locks it by plain stores.
//!
//! Owns: the reservation, its revocation, and what the owner does. Does not own: which words are
//! reserved, and when.
//!
//! ```text
//! owner     flag = 1; light barrier; word still reserved? --> inside
//!           flag = 0; light barrier; word still reserved? --> out
//! revoker   mark the word; heavy barrier; load the flag
//!             flag is 0: word = free        flag is 1: word = locked by the owner
//! ```
//!
//! A reserved word is the owner's token without `LOCKED`; [`word`](super::word) refuses it to all
//! lockers. The owner has a flag beside the word that says "inside". To enter, it sets the flag,
//! and then looks whether the word is still reserved. To leave, it clears the flag, and looks
//! again. Any other locker *revokes* the reservation: it marks the word, passes the barrier, and
//! loads the flag. Then it makes the word free or, if the flag was set, a word that the owner has
//! locked.
//!
//! Laws:
//! - reservation.N1 The owner is inside only after it has set the flag and has then found the word
//!   reserved and unmarked. Only the owner writes the flag. The owner sets or clears the flag and
//!   then looks; the revoker marks and then loads. This is the store-buffering race that
//!   `percpu::barrier` decides: the owner sees the mark, or the revoker sees the flag as the owner
//!   left it before its look.
//! - reservation.N2 A marked word is made free by a thread that loaded the flag after the barrier
//!   and found it clear, or by the owner itself, from outside. It becomes a word that the owner has
//!   locked if the flag was set. One exchange decides, however many threads revoke.
//! - reservation.N3 If an owner clears the flag and then finds the word still marked, or locked in
//!   its name, it releases the word as if it had locked it ([`leave_changed`]). It does so even if
//!   it was never inside, because a revoker may have seen the flag of its attempt.
//! - reservation.N4 A word is reserved only once: a slow revoker would take a second reservation
//!   for the first. The caller remembers that.
//! - reservation.N5 Words are reserved only where barriers are asymmetric. If membarrier is denied
//!   later, the revoker's barrier is the slow one (`percpu::barrier`).
//!
//! An owner that ends leaves its words reserved. The next thread with its token has seen all that
//! the owner did, and is the new owner.
//!
//! Source: K. Kawachiya, A. Koseki, T. Onodera, *Lock reservation: Java locks can mostly do without
//! atomic operations*, OOPSLA 2002; with an asymmetric fence in place of a suspended owner.

use super::word::{HOT, LOCKED, TOKEN, WAITERS, unlock_marked};
use crate::percpu::barrier;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, const_fn, seeded_bug};

/// Marks a reserved word that is being revoked. (`SPIN` would not do: a waiter that gives up clears
/// it without looking.)
const MARK: usize = WAITERS;

/// A flag beside a reserved word: the owner is inside.
#[derive(Debug)]
pub(crate) struct Inside(AtomicBool);

impl Inside {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self(AtomicBool::new(false))
        }
    }
}

/// Returns the owner of a reserved word, marked or not.
fn owner(seen: usize) -> Option<usize> {
    (seen & (LOCKED | HOT) == 0 && seen & TOKEN != 0).then_some(seen & TOKEN)
}

/// Returns true if the word is reserved, so that lockers have to [`revoke`] that first.
#[inline]
pub(crate) fn is_reserved(word: &AtomicUsize) -> bool {
    // ORDER: Relaxed; a hint, `revoke` loads it again.
    owner(word.load(Ordering::Relaxed)).is_some()
}

/// Returns true if the thread with `token` is inside a word that is reserved for it.
pub(crate) fn is_inside(word: &AtomicUsize, inside: &Inside, token: usize) -> bool {
    // ORDER: Relaxed (both); the owner sees its own stores, and for any other thread the word is
    // not reserved for `token`.
    owner(word.load(Ordering::Relaxed)) == Some(token) && inside.0.load(Ordering::Relaxed)
}

/// Reserves the word for the thread that holds its lock, and releases the lock. Returns false, with
/// the lock still held, if the word has flags or is HOT. Must not be called twice for the same word
/// (reservation.N4).
pub(crate) fn reserve(word: &AtomicUsize, token: usize) -> bool {
    debug_assert!(
        barrier::is_asymmetric(),
        "reservation.N5: a word is reserved without membarrier"
    );
    // ORDER: Release; pairs with the mark in `revoke`, for a revoker that finds the flag never set.
    word.compare_exchange(token | LOCKED, token, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// As [`reserve`], for a thread that stays inside.
pub(crate) fn reserve_inside(word: &AtomicUsize, inside: &Inside, token: usize) -> bool {
    // ORDER: Relaxed; published by the exchange in `reserve`.
    inside.0.store(true, Ordering::Relaxed);
    let reserved = reserve(word, token);
    if !reserved {
        // ORDER: Relaxed; the word was never reserved, so no thread looks at the flag.
        inside.0.store(false, Ordering::Relaxed);
    }
    reserved
}

/// The outcome of the owner's attempt to enter.
pub(crate) enum Entry {
    Inside,
    /// The word is not reserved for this thread, or the thread is inside already.
    Refused,
    /// Another thread revokes the reservation: this thread is not inside, and must
    /// [`leave_changed`].
    Changed,
}

/// Enters the word if it is reserved for the thread with `token`.
#[inline(always)]
pub(crate) fn enter(word: &AtomicUsize, inside: &Inside, token: usize) -> Entry {
    // ORDER: Relaxed (all): if the word is reserved, no other thread has been inside since it
    // became reserved. `light` orders the store before the second load (reservation.N1); pairs with
    // `heavy` in `revoke`.
    if word.load(Ordering::Relaxed) != token || inside.0.load(Ordering::Relaxed) {
        return Entry::Refused;
    }
    inside.0.store(true, Ordering::Relaxed);
    barrier::light();
    if word.load(Ordering::Relaxed) == token {
        return Entry::Inside;
    }
    // ORDER: Release; as in `leave`.
    inside.0.store(false, Ordering::Release);
    Entry::Changed
}

/// Leaves the word. Returns false if the reservation was revoked since the thread entered: then the
/// thread must [`leave_changed`].
#[inline(always)]
pub(crate) fn leave(word: &AtomicUsize, inside: &Inside, token: usize) -> bool {
    debug_assert!(
        cfg!(manycore_loom) || inside.0.load(Ordering::Relaxed),
        "reservation.N1: left without being inside"
    );
    // ORDER: Release; pairs with Acquire in `revoke`: what the owner did inside.
    inside.0.store(false, Ordering::Release);
    barrier::light();
    // ORDER: Relaxed; `light` orders the store before it (reservation.N1). `leave_changed` loads
    // the word again.
    word.load(Ordering::Relaxed) == token
}

/// Releases a word that was revoked while its owner was or seemed inside, if the revoker left that
/// to the owner (reservation.N3). Returns false if the word is HOT: then the object to which it
/// leads may be locked in this thread's name.
#[cold]
pub(crate) fn leave_changed(word: &AtomicUsize, token: usize) -> bool {
    loop {
        // ORDER: Acquire; pairs with Release in `redirect`: what the HOT word leads to.
        let seen = word.load(Ordering::Acquire);
        if seen == token | MARK {
            // ORDER: Release; pairs with the Acquire CAS of the next locker (lock_word.K1).
            let freed = word.compare_exchange(seen, 0, Ordering::Release, Ordering::Relaxed);
            if freed.is_ok() {
                return true;
            }
        } else if seen & (HOT | LOCKED | TOKEN) == token | LOCKED {
            return unlock_marked(word, token | LOCKED);
        } else {
            return seen & HOT == 0;
        }
    }
}

/// Turns a reserved word that its owner is inside into a word that the owner has locked, whether
/// the reservation was revoked or not.
#[cold]
pub(crate) fn give_up(word: &AtomicUsize, inside: &Inside, token: usize) {
    // ORDER: Relaxed (all); the thread goes on holding the word. A revoker's exchange finds the
    // word changed.
    let mut seen = word.load(Ordering::Relaxed);
    while owner(seen) == Some(token) {
        let locked = token | LOCKED;
        match word.compare_exchange(seen, locked, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => seen = now,
        }
    }
    // ORDER: Release; a revoker that finds the flag clear also finds the word changed
    // (reservation.N2).
    inside.0.store(false, Ordering::Release);
}

/// Ends the reservation of the word, if it has one: the word becomes free, or locked by its owner.
#[cold]
pub(crate) fn revoke(word: &AtomicUsize, inside: &Inside) {
    // ORDER: Relaxed; the exchanges decide.
    let mut seen = word.load(Ordering::Relaxed);
    while let Some(token) = owner(seen) {
        if seen & MARK == 0 {
            // ORDER: Acquire; pairs with Release in `reserve`.
            let marked =
                word.compare_exchange(seen, token | MARK, Ordering::Acquire, Ordering::Relaxed);
            if let Err(now) = marked {
                seen = now;
                continue;
            }
        }
        // BUG: a revoker looks at the owner's flag without the barrier (reservation.N1).
        if !seeded_bug!("unfenced-revocation") {
            barrier::heavy();
        }
        // ORDER: Acquire; pairs with Release in `leave`: what the owner did inside.
        let next = if inside.0.load(Ordering::Acquire) { token | LOCKED } else { 0 };
        // ORDER: AcqRel; Release pairs with the Acquire CAS of the next locker (lock_word.K1). One
        // exchange decides (reservation.N2).
        let ended = word.compare_exchange(token | MARK, next, Ordering::AcqRel, Ordering::Relaxed);
        match ended {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}
