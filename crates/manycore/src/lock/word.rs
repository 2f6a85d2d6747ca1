//! The object lock: one word that knows its owner and can give way to a pointer.
//!
//! Owns: the bit layout of the word. Does not own: the data behind it.
//!
//! A word is `owner token | LOCKED`, or free without these two, in either case with `WAITERS` and
//! `SPIN` beside them if there is something to say; or, with `HOT` set, something that is no lock
//! at all: the object has moved on and lockers must look again. Tokens are
//! [`thread_token`](crate::percpu::thread_token)s, so that a thread that locks twice is told
//! instead of waiting for itself.
//!
//! Laws:
//! - K1 Mutual exclusion: the CAS from unlocked (Acquire) reads the unlock's instruction (Release),
//!   or what others made of its word by read-modify-writes.
//! - K2 No lost wake-up: whoever sleeps has set WAITERS in the word it compared, and whoever
//!   unlocks a word with WAITERS wakes one, unless SPIN says that somebody looks who is to do so.
//!   - A thread that was woken *owes*: it sets WAITERS in the word, because others may sleep still,
//!     be it when it locks, when it sets SPIN or before it sleeps; or, if the word has become HOT
//!     meanwhile, it wakes them all.
//!   - SPIN is taken away by who set it, when it locks or before it sleeps; WAITERS stays in the
//!     word then.
//!   - A free word's WAITERS without SPIN is old: who unlocked it has woken one, and that one owes.
//!     Who locks takes it away.
//! - K3 The unlocking instruction is the last access to the word's memory, so a lock may be freed
//!   by whoever takes it next.
//!
//! Who waits looks at the word some times, and then goes on looking only if nobody else does (SPIN)
//! and nobody sleeps; or if it has slept itself. So on a machine with many cores one or two look
//! at the line, and newcomers do not overtake those who sleep, but for the thread that runs and
//! locks again at once. A look takes the line from the owner: 48 that look cost it ten times what
//! the critical section does.
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
use crate::sync::{AtomicUsize, Bug, Ordering, hint, seeded_bug};
use std::panic::Location;

pub(crate) const LOCKED: usize = 1;
pub(crate) const WAITERS: usize = 2;
pub(crate) const HOT: usize = 4;
/// Somebody looks at the word again and again, and will not sleep without a word (K2).
const SPIN: usize = 8;
const TOKEN: usize = !0xf;

/// Pause instructions before the first look, as a power of two. Every look takes the line from the
/// owner, who waits some 200 ns for it between two cores of an EPYC, and then the one from the
/// other: two threads that do nothing but lock make 1.5 to 1.8 times the progress with 16 as with
/// one.
const FIRST: u32 = if SMALL { 0 } else { 4 };

/// Looks at the word before a locker sleeps, each after twice as many pause instructions as the one
/// before.
const LOOKS: u32 = if SMALL { 1 } else { 7 };

/// How many of them everybody takes, before it says so in the word: most waits are over by then.
const LOOKS_UNSAID: u32 = if SMALL { 0 } else { 3 };

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
        Err(seen) => try_lock_marked(word, token, seen),
    }
}

/// The same of a word that is not 0.
#[cold]
fn try_lock_marked(word: &AtomicUsize, token: usize, mut seen: usize) -> Result<(), Refused> {
    while seen & (LOCKED | HOT) == 0 {
        let locked = locked_from(seen, token);
        // ORDER: Acquire; pairs with Release in `unlock` (K1).
        match word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => seen = now,
        }
    }
    Err(if seen & HOT != 0 {
        Refused::Hot
    } else if seen & TOKEN == token {
        Refused::HeldBySelf
    } else {
        Refused::Busy
    })
}

/// What a free word becomes that this thread locks without having said anything in it (K2).
#[inline(always)]
fn locked_from(seen: usize, token: usize) -> usize {
    token | LOCKED | if seen & SPIN != 0 { seen & (SPIN | WAITERS) } else { 0 }
}

/// Takes the lock, waiting if need be. `Ok(true)` says that it had to wait: for what `of` says.
#[inline]
pub(crate) fn lock(word: &AtomicUsize, token: usize, of: Of) -> Result<bool, Refused> {
    match try_lock(word, token) {
        Ok(()) => Ok(false),
        Err(Refused::Busy) => {
            let Of { kind, address, place } = of;
            lock_slow(word, token, kind, address, place).map(|()| true)
        }
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
    hold_told(word, of).map(|(hold, _)| hold)
}

/// The same; says whether it had to wait.
#[inline]
pub(crate) fn hold_told(word: &AtomicUsize, of: Of) -> Option<(Hold<'_>, bool)> {
    let locked = lock(word, thread_token(), of);
    debug_assert!(locked != Err(Refused::Hot), "such a word needs more than a guard");
    if locked == Err(Refused::HeldBySelf) {
        return None; // without a guard made and dropped, which would give the lock up
    }
    Some((Hold(word), locked == Ok(true)))
}

/// A thread on its way to the lock.
struct Waiter {
    token: usize,
    /// Looks since it came, or since it last slept.
    looks: u32,
    /// `SPIN` while it is the one whom the word tells of.
    spin: usize,
    /// `WAITERS` if it was woken and has not said so yet (K2).
    owes: usize,
    /// Whether it has slept, or tried to.
    slept: bool,
}

impl Waiter {
    /// Tries to lock a word that was free.
    fn take(&self, word: &AtomicUsize, seen: usize) -> bool {
        let locked = (locked_from(seen, self.token) & !self.spin) | self.owes;
        // ORDER: Acquire; pairs with Release in `unlock` (K1).
        word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets some time pass before the next look at a locked word.
    fn wait(&mut self, word: &AtomicUsize, seen: usize) {
        let is_behind = seen & WAITERS != 0 && self.spin == 0 && !self.slept;
        if self.looks < LOOKS && !is_behind {
            let is_alone = seen & SPIN == 0 && self.spin == 0;
            if self.looks >= LOOKS_UNSAID && is_alone {
                if swap(word, seen, seen | SPIN | self.owes) {
                    (self.spin, self.owes) = (SPIN, 0);
                }
                return;
            }
            if self.looks < LOOKS_UNSAID || self.spin != 0 || self.slept {
                (0..1 << (FIRST + self.looks)).for_each(|_| hint::spin_loop());
                self.looks += 1;
                return;
            }
        }
        let gone = if seeded_bug(Bug::SilentSpinner) { 0 } else { self.spin };
        let expected = (seen | WAITERS) & !gone;
        if expected != seen && !swap(word, seen, expected) {
            return;
        }
        let woken = futex::wait(word, expected) && !seeded_bug(Bug::ForgottenSleepers);
        self.owes = if woken { WAITERS } else { 0 };
        // Who has slept need not hurry: while nobody else looks, the owner keeps the line.
        (self.spin, self.looks, self.slept) = (0, LOOKS_UNSAID, true);
    }
}

fn swap(word: &AtomicUsize, seen: usize, next: usize) -> bool {
    // ORDER: Relaxed; only the flags of a locked word change.
    word.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Waits. What for comes in parts: they fit into registers, so a lock that is free costs no store.
#[cold]
fn lock_slow(
    word: &AtomicUsize,
    token: usize,
    kind: &'static str,
    address: usize,
    place: &'static Location<'static>,
) -> Result<(), Refused> {
    let of = Of { kind, address, place };
    let wait = Wait::begin();
    let (mut holder, mut handoffs) = (0, 0);
    let mut waiter = Waiter { token, looks: 0, spin: 0, owes: 0, slept: false };
    loop {
        // ORDER: Relaxed; the CAS decides.
        let seen = word.load(Ordering::Relaxed);
        if seen & HOT != 0 {
            if waiter.owes != 0 {
                futex::wake_all(word); // the wake that came here was for all of them (K2)
            }
            return Err(Refused::Hot);
        }
        if seen & LOCKED == 0 {
            if waiter.take(word, seen) {
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
        waiter.wait(word, seen);
    }
}

/// Gives the lock up, leaving `next` in the word: 0, or a HOT word that sends lockers elsewhere.
///
/// # Safety
/// The caller holds the lock, and `word` is valid until the instruction inside that gives it up
/// (K3).
#[inline]
pub(crate) unsafe fn unlock(word: *const AtomicUsize, next: usize) {
    // ORDER (both): Release; pairs with the Acquire CAS of the next owner (K1).
    if next != 0 {
        // SAFETY: the caller's duty; afterwards the memory is not touched again.
        if unsafe { (*word).swap(next, Ordering::Release) } & WAITERS != 0 {
            futex::wake_all(word);
        }
        return;
    }
    // Others change the flags alone, so this leaves what they have set.
    // SAFETY: as above.
    let old = unsafe { (*word).fetch_sub(thread_token() | LOCKED, Ordering::Release) };
    debug_assert_eq!(old & (TOKEN | LOCKED), thread_token() | LOCKED, "unlocked by another");
    if old & (WAITERS | SPIN) == WAITERS {
        futex::wake_one(word);
    }
}

/// Whether somebody waits who has said so: nobody who looks at the lock for the first few times.
pub(crate) fn is_waited_for(word: &AtomicUsize) -> bool {
    // ORDER: Relaxed; a hint.
    let seen = word.load(Ordering::Relaxed);
    seen & (HOT | LOCKED) == LOCKED && seen & (WAITERS | SPIN) != 0
}

/// Whether `token`'s thread holds the lock.
pub(crate) fn is_held_by(word: &AtomicUsize, token: usize) -> bool {
    // ORDER: Relaxed; a thread sees its own CAS.
    let seen = word.load(Ordering::Relaxed);
    seen & (HOT | LOCKED) == LOCKED && seen & TOKEN == token
}
