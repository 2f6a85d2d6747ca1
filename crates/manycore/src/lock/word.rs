//! The object lock: one word that knows its owner and can give way to a pointer.
//!
//! Owns: the bit layout of the word. Does not own: the data behind it.
//!
//! A word is 0 (free), `owner token | LOCKED [| WAITERS]`, or, with `HOT` set, something that is no
//! lock at all: the object has moved on and lockers must look again. Tokens are
//! [`thread_token`](crate::percpu::thread_token)s, so that a thread that locks twice is told
//! instead of waiting for itself.
//!
//! Laws:
//! - K1 Mutual exclusion: the CAS from unlocked (Acquire) reads the swap of the last unlock
//!   (Release).
//! - K2 No lost wake-up: whoever sleeps has set WAITERS in the word it compared, and whoever
//!   unlocks a word with WAITERS wakes. A woken thread locks with WAITERS set, because others may
//!   sleep still; or, if the word has become HOT meanwhile, wakes them all.
//! - K3 The unlocking swap is the last access to the word's memory, so a lock may be freed by
//!   whoever takes it next.
//!
//! Unfair, like the locks of the standard library: a running thread may overtake a sleeping one.
//!
//! For the header of a node: one word, zero at the start. A node that is freed under its lock
//! unlocks to a HOT word, and everybody who waits for it is refused. `unlock` may run when others
//! can free the memory already (K3).

use super::futex;
use crate::config::SMALL;
use crate::percpu::thread_token;
use crate::profile::{Of, Wait};
use crate::sync::{AtomicUsize, Ordering, hint};

pub(crate) const LOCKED: usize = 1;
pub(crate) const WAITERS: usize = 2;
pub(crate) const HOT: usize = 4;
const TOKEN: usize = !0xf;

/// Looks at the word before a locker sleeps, each after twice as many pause instructions as the one
/// before: every look takes the line from the owner, which may lock again meanwhile.
const LOOKS: u32 = if SMALL { 1 } else { 11 };

/// Why a lock was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody else holds it (only from [`try_lock`]).
    Busy,
    /// The calling thread holds it.
    HeldBySelf,
    /// The word is no lock any more.
    Hot,
}

/// Takes the lock if it is free.
#[inline]
pub(crate) fn try_lock(word: &AtomicUsize, token: usize) -> Result<(), Refused> {
    // ORDER: Acquire; pairs with Release in `unlock` (K1).
    match word.compare_exchange(0, token | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(seen) if seen & HOT != 0 => Err(Refused::Hot),
        Err(seen) if seen & TOKEN == token => Err(Refused::HeldBySelf),
        Err(_) => Err(Refused::Busy),
    }
}

/// Takes the lock, waiting if need be. `Ok(true)` says that it had to wait: for what `of` says.
#[inline]
pub(crate) fn lock(word: &AtomicUsize, token: usize, of: Of) -> Result<bool, Refused> {
    match try_lock(word, token) {
        Ok(()) => Ok(false),
        Err(Refused::Busy) => lock_slow(word, token, of).map(|()| true),
        Err(refused) => Err(refused),
    }
}

/// Holds a lock; dropping it gives the lock up, also when user code panics.
pub(crate) struct Hold<'a>(&'a AtomicUsize);

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made by who took the lock, on its thread; `self` keeps the word.
        unsafe { unlock(self.0, 0) };
    }
}

/// Takes a lock whose word is never HOT. `None` if the calling thread holds it already.
#[inline]
pub(crate) fn hold(word: &AtomicUsize, of: Of) -> Option<Hold<'_>> {
    let refused = lock(word, thread_token(), of);
    debug_assert!(refused != Err(Refused::Hot), "such a word needs more than a guard");
    if refused == Err(Refused::HeldBySelf) {
        return None; // without a guard made and dropped, which would give the lock up
    }
    Some(Hold(word))
}

#[cold]
fn lock_slow(word: &AtomicUsize, token: usize, of: Of) -> Result<(), Refused> {
    let wait = Wait::begin();
    let (mut holder, mut handoffs) = (0, 0);
    let mut looks = 0;
    let mut slept = 0;
    loop {
        // ORDER: Relaxed; the CAS decides.
        let seen = word.load(Ordering::Relaxed);
        if seen & HOT != 0 {
            if slept != 0 {
                futex::wake_all(word); // the wake that came here was for all of them (K2)
            }
            return Err(Refused::Hot);
        }
        if seen & LOCKED == 0 {
            let locked = token | LOCKED | (seen & WAITERS) | slept;
            // ORDER: Acquire; pairs with Release in `unlock` (K1).
            if word
                .compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                wait.end(of, handoffs);
                return Ok(());
            }
            continue;
        }
        if seen & TOKEN != holder {
            holder = seen & TOKEN;
            handoffs += 1; // to the next one, or to this thread
        }
        if seen & TOKEN == token {
            return Err(Refused::HeldBySelf);
        }
        if looks < LOOKS {
            for _ in 0..1 << looks {
                hint::spin_loop();
            }
            looks += 1;
            continue;
        }
        if seen & WAITERS == 0
            && word
                .compare_exchange_weak(seen, seen | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        futex::wait(word, seen | WAITERS);
        slept = WAITERS;
        looks = 0;
    }
}

/// Gives the lock up, leaving `next` in the word: 0, or a HOT word that sends lockers elsewhere.
///
/// # Safety
/// The caller holds the lock, and `word` is valid until the swap inside (K3).
#[inline]
pub(crate) unsafe fn unlock(word: *const AtomicUsize, next: usize) {
    // ORDER: Release; pairs with the Acquire CAS of the next owner (K1).
    // SAFETY: the caller's duty; afterwards the memory is not touched again.
    let old = unsafe { (*word).swap(next, Ordering::Release) };
    if old & WAITERS != 0 {
        if next == 0 { futex::wake_one(word) } else { futex::wake_all(word) }
    }
}

/// Whether `token`'s thread holds the lock.
pub(crate) fn is_held_by(word: &AtomicUsize, token: usize) -> bool {
    // ORDER: Relaxed; a thread sees its own CAS.
    let seen = word.load(Ordering::Relaxed);
    seen & (HOT | LOCKED) == LOCKED && seen & TOKEN == token
}
