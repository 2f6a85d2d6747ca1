//! The object lock: one word that names its owner and can be replaced by a pointer.
//!
//! Owns: the bit layout of the word. Does not own: the data behind it.
//!
//! ```text
//! free       [ 0     | SPIN? | WAITERS? ]
//! locked     [ token | SPIN? | WAITERS? | LOCKED ]
//! reserved   [ token | mark? ]                        see `reservation`
//! hot        [ pointer | HOT ]                        no lock: look again elsewhere
//! ```
//!
//! Waiters set the flags `WAITERS` and `SPIN`. A word with `HOT` set is no lock any more: the
//! object's state lives elsewhere now, and lockers must look again. They must also look again if
//! the word has a token without `LOCKED`: then it is reserved for that thread (`reservation`).
//! Tokens are [`thread_token`](crate::percpu::thread_token)s, so a thread that locks twice gets an
//! error instead of a deadlock with itself.
//!
//! Laws:
//! - lock_word.K1 Mutual exclusion: the CAS from unlocked (Acquire) reads the value of the
//!   unlocking instruction (Release), or of a read-modify-write in its release sequence.
//! - lock_word.K2 No lost wake-up: a thread that parks has set WAITERS in the word that it
//!   compared. A thread that unlocks a word with WAITERS wakes one waiter, unless SPIN says that a
//!   spinning waiter is there to do so.
//!   - A thread that was woken *owes* a wake-up, because other threads may still be parked. So it
//!     sets WAITERS in the word when it locks, when it sets SPIN, or before it parks. If the word
//!     has become HOT by then, it wakes all the others.
//!   - The waiter that set SPIN clears it when it locks or before it parks; WAITERS then stays in
//!     the word. SPIN may be gone earlier, if the word was HOT in between. If another waiter then
//!     sets it, it is cleared too early, and an unlock wakes one thread more.
//!   - If a free word has WAITERS without SPIN, that WAITERS is stale: the thread that unlocked the
//!     word has woken a waiter, and that waiter owes. The next locker clears the flag.
//! - lock_word.K3 The unlocking instruction is the last access to the word's memory, so the next
//!   owner may free the lock.
//!
//! A waiter looks at the word a few times. It then goes on spinning only if no other waiter spins
//! (SPIN) and none is parked, or if it has been parked itself. So on a machine with many cores, one
//! or two waiters poll the line. Newcomers do not overtake parked waiters; only a running thread
//! that locks again at once does. A look takes the line from the owner: 48 spinning waiters cost
//! the owner ten times as much as the critical section.
//!
//! The thread learns from its looks how long to pause between two of them (`pace`).
//!
//! Unfair, like the locks of the standard library: a running thread may barge past a parked one.
//!
//! This lock can be in the header of a node: it is one word, zero at the start. A node that is
//! freed under its lock unlocks to a HOT word, so every thread that waits for it is refused.
//! `unlock` may still be running when another thread can free the memory (lock_word.K3).

use super::pace::Pace;
use super::wait_graph::{self, Awaited, Waiting};
use super::{futex, held};
use crate::config::SMALL;
use crate::percpu::thread_token;
use crate::profile::{Of, Wait};
use crate::sync::{AtomicU32, AtomicUsize, Ordering, hint, seeded_bug};
use std::panic::Location;

pub(crate) const LOCKED: usize = 1;
pub(crate) const WAITERS: usize = 2;
pub(crate) const HOT: usize = 4;
/// A waiter spins on the word, and clears this flag before it parks (lock_word.K2).
const SPIN: usize = 8;
pub(super) const TOKEN: usize = !0xf;

/// Pause instructions that a locker spends before it parks.
const SPINS: u32 = if SMALL { 1 } else { 2048 };

/// Pause instructions before the first look of [`lock_soon`].
const PAUSES_BEFORE_SOON: u32 = if SMALL { 1 } else { 64 };

/// Number of looks before a waiter announces itself by `SPIN`: most waits are over by then.
const LOOKS_UNSAID: u32 = if SMALL { 0 } else { 3 };

/// Why a lock was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another thread holds it (only from [`try_lock`]).
    Busy,
    /// The calling thread holds it.
    HeldBySelf,
    /// The word is no lock any more, or is reserved: the caller looks again.
    Hot,
    /// The wait would be a deadlock: the holder waits for a lock that the calling thread holds
    /// (only from [`lock_nested`] and [`hold`]).
    Deadlock,
}

/// Takes the lock if it is free.
#[inline]
pub(crate) fn try_lock(word: &AtomicUsize, token: usize) -> Result<(), Refused> {
    debug_assert!(
        token != 0 && token & !TOKEN == 0,
        "lock_word.K1: {token:#x} is no thread's token"
    );
    // ORDER: Acquire; pairs with Release in `unlock` (lock_word.K1).
    match word.compare_exchange(0, token | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(seen) => try_lock_marked(word, token, seen),
    }
}

/// As [`try_lock`], but only if the word has no flags: one exchange, for the shortest paths.
#[inline(always)]
pub(crate) fn try_lock_plain(word: &AtomicUsize, token: usize) -> bool {
    debug_assert!(
        token != 0 && token & !TOKEN == 0,
        "lock_word.K1: {token:#x} is no thread's token"
    );
    // ORDER: Acquire; pairs with Release in `unlock` (lock_word.K1).
    word.compare_exchange(0, token | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// As [`try_lock`], for a word that is not 0.
#[cold]
fn try_lock_marked(word: &AtomicUsize, token: usize, mut seen: usize) -> Result<(), Refused> {
    while is_free(seen) {
        let locked = locked_from(seen, token);
        // ORDER: Acquire; pairs with Release in `unlock` (lock_word.K1).
        match word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => seen = now,
        }
    }
    Err(if seen & (HOT | LOCKED) != LOCKED {
        Refused::Hot
    } else if seen & TOKEN == token {
        Refused::HeldBySelf
    } else {
        Refused::Busy
    })
}

/// Returns true if any thread may lock the word.
#[inline(always)]
fn is_free(seen: usize) -> bool {
    seen & (LOCKED | HOT | TOKEN) == 0
}

/// Returns what a free word becomes when this thread locks it and has set no flag in it
/// (lock_word.K2).
#[inline(always)]
fn locked_from(seen: usize, token: usize) -> usize {
    token | LOCKED | if seen & SPIN != 0 { seen & (SPIN | WAITERS) } else { 0 }
}

/// Acquires the lock, waiting if it is held. Returns `Ok(true)` if it had to wait; the wait is
/// charged to `of`. `turns` is a word that each holder of the lock changes, if there is one
/// (`pace`).
#[inline]
pub(crate) fn lock(
    word: &AtomicUsize,
    token: usize,
    of: Of,
    turns: Option<&AtomicU32>,
) -> Result<bool, Refused> {
    match try_lock(word, token) {
        Ok(()) => Ok(false),
        Err(Refused::Busy) => {
            let Of { kind, address, location } = of;
            lock_slow::<false>(word, token, kind, address, location, turns).map(|()| true)
        }
        Err(refused) => Err(refused),
    }
}

/// Takes the lock if it is free, or becomes free within the pauses that a waiter makes before it
/// parks. At first the holder is left alone for longer. If every waiter took the lock at once, the
/// lock and the data that it guards would move from core to core for each change.
#[inline]
pub(super) fn lock_soon(word: &AtomicUsize, token: usize) -> bool {
    match try_lock(word, token) {
        Ok(()) => true,
        Err(Refused::Busy) => lock_soon_slow(word, token),
        Err(_) => false,
    }
}

#[cold]
fn lock_soon_slow(word: &AtomicUsize, token: usize) -> bool {
    let (mut spun, mut pauses) = (0, PAUSES_BEFORE_SOON);
    while spun + pauses <= SPINS {
        (0..pauses).for_each(|_| hint::spin_loop());
        // ORDER: Relaxed; `try_lock` decides.
        if is_free(word.load(Ordering::Relaxed)) && try_lock(word, token).is_ok() {
            return true;
        }
        (spun, pauses) = (spun + pauses, 2 * pauses);
    }
    false
}

/// As [`lock`], for object locks (`held`): a thread that holds other object locks is refused a wait
/// that would close a cycle.
#[inline]
pub(crate) fn lock_nested(
    word: &AtomicUsize,
    token: usize,
    of: Of,
    turns: Option<&AtomicU32>,
) -> Result<bool, Refused> {
    match try_lock(word, token) {
        Ok(()) => Ok(false),
        Err(Refused::Busy) => lock_nested_slow(word, token, of, turns).map(|()| true),
        Err(refused) => Err(refused),
    }
}

#[cold]
fn lock_nested_slow(
    word: &AtomicUsize,
    token: usize,
    of: Of,
    turns: Option<&AtomicU32>,
) -> Result<(), Refused> {
    let Of { kind, address, location } = of;
    if held::count() == 0 {
        // The thread may hold locks of collections, which are not counted.
        return lock_slow::<true>(word, token, kind, address, location, turns);
    }
    let _waiting = wait_graph::enter(word, token).map_err(|()| Refused::Deadlock)?;
    lock_slow::<false>(word, token, kind, address, location, turns)
}

/// As [`lock`], for locks under which user code runs and which are not counted: a thread that is
/// about to park is refused a wait that would close a cycle.
#[inline]
pub(super) fn lock_watched(word: &AtomicUsize, token: usize, of: Of) -> Result<bool, Refused> {
    match try_lock(word, token) {
        Ok(()) => Ok(false),
        Err(Refused::Busy) => {
            let Of { kind, address, location } = of;
            lock_slow::<true>(word, token, kind, address, location, None).map(|()| true)
        }
        Err(refused) => Err(refused),
    }
}

/// The guard of a lock; dropping it releases the lock, also when user code panics.
pub(crate) struct Hold<'a>(&'a AtomicUsize);

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `hold_told` makes the guard after it took the lock, on the same thread; `self`
        // keeps the word.
        unsafe { unlock(self.0, 0) };
    }
}

/// Takes a lock with a word that is never HOT.
///
/// # Errors
/// `HeldBySelf`, or `Deadlock` if the wait would never end.
#[inline]
pub(crate) fn hold(word: &AtomicUsize, of: Of) -> Result<Hold<'_>, Refused> {
    hold_told(word, of).map(|(hold, _)| hold)
}

/// As [`hold`]; also returns whether it had to wait.
#[inline]
pub(crate) fn hold_told(word: &AtomicUsize, of: Of) -> Result<(Hold<'_>, bool), Refused> {
    let locked = lock_watched(word, thread_token(), of);
    debug_assert!(
        locked != Err(Refused::Hot),
        "lock_word.K2: a word is HOT that has a guard alone"
    );
    // `map`, so that no guard is made and dropped on the way, which would release the lock.
    locked.map(|waited| (Hold(word), waited))
}

/// A thread that waits for the lock.
struct Waiter<'a> {
    token: usize,
    /// Number of looks since it arrived.
    looks: u32,
    /// Pause instructions since it arrived, or since it was last parked.
    spun: u32,
    pace: Pace<'a>,
    /// `SPIN` while this is the waiter that set the flag, else 0.
    spin: usize,
    /// `WAITERS` if it was woken and has not set the flag again yet, else 0 (lock_word.K2).
    owes: usize,
    /// True if it was parked, or tried to park.
    slept: bool,
    /// If it is watched: its entry in the graph of waiting threads, from its first park on.
    watched: Option<Waiting>,
}

impl<'a> Waiter<'a> {
    fn new(token: usize, pace: Pace<'a>) -> Self {
        Self { token, looks: 0, spun: 0, pace, spin: 0, owes: 0, slept: false, watched: None }
    }

    /// Tries to lock a word that was free.
    fn take(&self, word: &AtomicUsize, seen: usize) -> bool {
        let locked = (locked_from(seen, self.token) & !self.spin) | self.owes;
        // ORDER: Acquire; pairs with Release in `unlock` (lock_word.K1).
        word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Checks, before a watched thread parks for the first time, that the wait would end. (Not in
    /// models: one process-wide mutex in each lock is too much for them.)
    fn watch(&mut self, word: &AtomicUsize) -> Result<(), Refused> {
        if self.watched.is_none() && !SMALL {
            let waiting = wait_graph::enter(word, self.token);
            self.watched = Some(waiting.map_err(|()| self.give_up(word))?);
        }
        Ok(())
    }

    /// Clears the flag that it has set in the word (lock_word.K2). It was never parked, so it owes
    /// nothing.
    fn give_up(&self, word: &AtomicUsize) -> Refused {
        debug_assert_eq!(self.owes, 0, "lock_word.K2: a thread gives up that owes a wake-up");
        // ORDER: Relaxed; only a flag changes.
        if self.spin != 0
            && word.fetch_and(!SPIN, Ordering::Relaxed) & (LOCKED | WAITERS) == WAITERS
        {
            futex::wake_one(word); // the unlocker left that to this thread
        }
        Refused::Deadlock
    }

    /// Lets some time pass before the next look at a locked word.
    fn wait<const WATCHED: bool>(
        &mut self,
        word: &AtomicUsize,
        seen: usize,
    ) -> Result<(), Refused> {
        let is_behind = seen & WAITERS != 0 && self.spin == 0 && !self.slept;
        if self.spun < SPINS && !is_behind {
            let is_alone = seen & SPIN == 0 && self.spin == 0;
            if self.looks >= LOOKS_UNSAID && is_alone {
                if swap(word, seen, seen | SPIN | self.owes) {
                    (self.spin, self.owes) = (SPIN, 0);
                }
                return Ok(());
            }
            if self.looks < LOOKS_UNSAID || self.spin != 0 || self.slept {
                self.pause();
                return Ok(());
            }
        }
        if WATCHED {
            self.watch(word)?;
        }
        // BUG: the waiter that spins on a lock parks and leaves its SPIN flag in the word
        // (lock_word.K2).
        let gone = if seeded_bug!("silent-spinner") { 0 } else { self.spin };
        let expected = (seen | WAITERS) & !gone;
        if expected != seen && !swap(word, seen, expected) {
            return Ok(());
        }
        let woken = futex::wait(word, expected) && !seeded_bug!("forgotten-sleepers");
        self.owes = if woken { WAITERS } else { 0 };
        // A waiter that was parked need not hurry: while no other waiter spins, the owner keeps the
        // line.
        (self.spin, self.spun, self.slept) = (0, 0, true);
        Ok(())
    }

    fn pause(&mut self) {
        (self.looks, self.spun) = (self.looks + 1, self.spun + self.pace.pause());
    }
}

fn swap(word: &AtomicUsize, seen: usize, next: usize) -> bool {
    // ORDER: Relaxed; only the flags of a locked word change.
    word.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Waits for the lock. Takes `Of` in parts: they fit into registers, so acquiring a free lock costs
/// no store.
#[cold]
fn lock_slow<const WATCHED: bool>(
    word: &AtomicUsize,
    token: usize,
    kind: &'static str,
    address: usize,
    location: &'static Location<'static>,
    turns: Option<&AtomicU32>,
) -> Result<(), Refused> {
    let of = Of { kind, address, location };
    let wait = Wait::begin();
    let (mut holder, mut handoffs) = (0, 0);
    let mut waiter = Waiter::new(token, Pace::learned(turns));
    loop {
        // ORDER: Relaxed; the CAS decides.
        let seen = word.load(Ordering::Relaxed);
        waiter.pace.looked(seen & LOCKED != 0, seen & WAITERS != 0);
        if seen & (HOT | LOCKED) != LOCKED && !is_free(seen) {
            if waiter.owes != 0 {
                // The wake-up that came here was for all of them (lock_word.K2).
                futex::wake_all(word);
            }
            return Err(Refused::Hot);
        }
        if seen & LOCKED == 0 {
            if waiter.take(word, seen) {
                waiter.pace.keep();
                wait.end(of, handoffs);
                return Ok(());
            }
            continue;
        }
        if seen & TOKEN != holder {
            holder = seen & TOKEN;
            handoffs += 1; // to another thread, or to this one
        }
        if seen & TOKEN == token {
            return Err(Refused::HeldBySelf);
        }
        waiter.wait::<WATCHED>(word, seen)?;
    }
}

/// Releases the lock, leaving `next` in the word: 0, or a HOT word that sends lockers elsewhere.
///
/// # Safety
/// The caller holds the lock. `word` is valid until the instruction inside that releases it
/// (lock_word.K3).
#[inline]
pub(crate) unsafe fn unlock(word: *const AtomicUsize, next: usize) {
    // ORDER (both): Release; pairs with the Acquire CAS of the next owner (lock_word.K1).
    if next != 0 {
        debug_assert!(
            next & (HOT | LOCKED) == HOT,
            "lock_word.K2: {next:#x} sends lockers nowhere"
        );
        // SAFETY: lock_word.K3 - the caller promises (# Safety) that the word is valid until it is
        // released, which this swap does; afterwards only its address is used.
        let old = unsafe { (*word).swap(next, Ordering::Release) };
        debug_assert!(
            old & (HOT | LOCKED) == LOCKED,
            "lock_word.K1: a word is left that is not locked"
        );
        if old & WAITERS != 0 {
            futex::wake_all(word);
        }
        return;
    }
    // Other threads change only the flags, so the subtraction leaves what they have set.
    // SAFETY: lock_word.K3 - the caller promises that the word is valid until it is released (#
    // Safety), which this subtraction does; afterwards only its address is used.
    let old = unsafe { (*word).fetch_sub(thread_token() | LOCKED, Ordering::Release) };
    debug_assert_eq!(
        old & (TOKEN | LOCKED | HOT),
        thread_token() | LOCKED,
        "lock_word.K1: a lock is released by another thread than its holder"
    );
    if old & (WAITERS | SPIN) == WAITERS {
        futex::wake_one(word);
    }
}

/// As [`unlock_unless_hot`], but only if the word has no flags and is not HOT: one exchange, for
/// the shortest paths. Returns true if the lock was released.
#[inline(always)]
pub(crate) fn unlock_plain(word: &AtomicUsize, token: usize) -> bool {
    if seeded_bug!("blind-unlock") {
        return false; // the bug is in `unlock_unless_hot`
    }
    // ORDER: Release; pairs with the Acquire CAS of the next owner (lock_word.K1).
    word.compare_exchange(token | LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Releases the lock of a word that becomes HOT only while it is locked. Returns false if the word
/// has become HOT: then the caller owns the object to which it leads, with a lock in the caller's
/// name.
///
/// # Safety
/// `token` is that of the calling thread, which holds the lock or held it when the word became HOT.
pub(crate) unsafe fn unlock_unless_hot(word: &AtomicUsize, token: usize) -> bool {
    // BUG: a cold object's lock is released after a look whether the word has become HOT, not by
    // the same instruction (object.W2).
    if seeded_bug!("blind-unlock") {
        if word.load(Ordering::Acquire) & HOT != 0 {
            return false;
        }
        // SAFETY: lock_word.K3 - the caller promises that it holds the lock (# Safety), unless the
        // word has become HOT since the look: that is the bug. `word` is borrowed.
        unsafe { unlock(word, 0) };
        return true;
    }
    unlock_marked(word, token | LOCKED)
}

/// Releases the lock of a word that is `locked` beside its flags. Returns false if the word is HOT.
pub(super) fn unlock_marked(word: &AtomicUsize, locked: usize) -> bool {
    // ORDER: Acquire; pairs with Release in `redirect`: what the HOT word leads to.
    let mut seen = word.load(Ordering::Acquire);
    loop {
        if seen & HOT != 0 {
            return false;
        }
        debug_assert_eq!(
            seen & (TOKEN | LOCKED),
            locked,
            "lock_word.K1: a lock is released by another thread than its holder"
        );
        // ORDER: Release as above; Acquire as above.
        let next = seen - locked;
        match word.compare_exchange_weak(seen, next, Ordering::Release, Ordering::Acquire) {
            Ok(_) => break,
            Err(now) => seen = now,
        }
    }
    if seen & (WAITERS | SPIN) == WAITERS {
        futex::wake_one(word);
    }
    true
}

/// Makes a locked word HOT, whichever thread holds it. Before each attempt, `prepare` gets the
/// holder's token, and locks the object to which `next` leads in the holder's name. Returns true if
/// the word was changed; it is not if it is free or HOT.
pub(crate) fn redirect(word: &AtomicUsize, next: usize, mut prepare: impl FnMut(usize)) -> bool {
    // ORDER: Relaxed; the CAS decides.
    let mut seen = word.load(Ordering::Relaxed);
    while seen & (LOCKED | HOT) == LOCKED {
        debug_assert!(
            next & (HOT | LOCKED) == HOT,
            "lock_word.K2: {next:#x} sends lockers nowhere"
        );
        prepare(seen & TOKEN);
        // ORDER: Release; pairs with Acquire in `unlock_marked` and wherever a HOT word is read.
        match word.compare_exchange_weak(seen, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                if seen & WAITERS != 0 {
                    futex::wake_all(word);
                }
                return true;
            }
            Err(now) => seen = now,
        }
    }
    false
}

impl Awaited for AtomicUsize {
    fn is_held_by(&self, token: usize, _: &[usize]) -> bool {
        holder(self) == Some(token)
    }
}

/// Returns the token of the thread that holds the lock.
fn holder(word: &AtomicUsize) -> Option<usize> {
    // ORDER: Relaxed; the place that uses it argues what it proves (`wait_graph`, wait_graph.G2).
    let seen = word.load(Ordering::Relaxed);
    (seen & (HOT | LOCKED) == LOCKED).then_some(seen & TOKEN)
}

/// Returns true if the thread with `token` holds the lock.
pub(crate) fn is_held_by(word: &AtomicUsize, token: usize) -> bool {
    // ORDER: Relaxed; a thread sees its own CAS.
    let seen = word.load(Ordering::Relaxed);
    seen & (HOT | LOCKED) == LOCKED && seen & TOKEN == token
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn wait_without_end_parks_after_a_bounded_number_of_pauses() {
        for turns in [None, Some(&AtomicU32::new(0))] {
            let mut waiter = Waiter::new(TOKEN, Pace::learned(turns));
            while waiter.spun < SPINS {
                waiter.pause();
                waiter.pace.looked(true, false);
            }
            assert!(waiter.spun < 2 * SPINS, "{} pauses", waiter.spun);
        }
    }
}
