//! A lock for objects that a reader must first bring up to date. The holder does that once, for all
//! waiters that arrived before it began; they then share the object without the lock.
//!
//! ```text
//! reader arrives --> is there anything to do? -- no --> share the object
//!                      | yes
//!                      v
//!                    lock free? -- yes --> wait until no sharer is left, HELD
//!                      | no                 --> round: begin, do all there is to do, end
//!                      v                    --> share the object, release the lock
//!                    wait: until a round that began later is done --> share the object
//!                          or the lock is free                    --> take it
//! ```
//!
//! Owns: the object's lock, the number of sharers, and the rounds. Does not own: what brings an
//! object up to date.
//!
//! Laws:
//! - rounds.V1 The lock holder sets `HELD`, and clears it before it releases the lock, unless the
//!   object is kept (rounds.V7). No thread enters while `HELD` is set. So the holder has the object
//!   exclusively once it has seen that no sharer is left ([`exclude`](Rounds::exclude)).
//! - rounds.V2 A round is counted, with a full fence, before its holder looks at what there is to
//!   do. The round is done when all of that is done. Let a thread note the last counted round when
//!   it arrives. If it then finds that a later round is done, it misses nothing that had returned
//!   before it arrived.
//! - rounds.V3 A thread that parks has set `SLEEPERS` or found it set. It has then seen that the
//!   lock is held (or, if it is the holder, that a sharer is left). A thread that releases the
//!   lock, or leaves as the last sharer under `HELD`, looks for `SLEEPERS` afterwards and wakes
//!   all. So does a thread that has set `SLEEPERS` and then finds the lock free. So a look follows
//!   each time that the flag is set, and no wake-up is lost.
//!   - The last of these looks is for other threads. Between a thread's look at the lock and its
//!     parking, the lock may be released, the flag cleared, and then set again. So the thread parks
//!     on a flag that was set after the release, and only the thread that set it can look for it.
//! - rounds.V4 If a thread has an object, exclusively or shared, and asks for the same object
//!   again, it is refused before it takes or changes anything. So it never waits for itself, nor
//!   holds the word that another thread needs for progress (`holding` keeps the list).
//! - rounds.V5 A thread that comes to share the object waits for its sharers only if there is
//!   something to do. So a thread that acquires the lock asks again, and joins the sharers if there
//!   is nothing. When it arrived, the lock may have been busy with the last of the work, in a round
//!   that had begun before. By rounds.V2 the thread cannot count on that round.
//! - rounds.V6 A thread that parks to wait for others is in the graph of `wait_graph`, with all
//!   that it holds. So a thread that would close a cycle is refused, and undoes what it has
//!   announced.
//! - rounds.V7 While the object is *kept*, `HELD` stays set when the lock is released. So no thread
//!   shares the object, and a thread that acquires the lock has the object exclusively at once, by
//!   one instruction. The lock holder starts and ends keeping the object. The lock guards `kept`;
//!   for all other threads, `kept` is a hint.
//!
//! Source: D. Hendler and others, *Flat combining and the synchronization-parallelism tradeoff*,
//! SPAA 2010, for one thread that does the work of its waiters.

use super::wait_graph::{self, Awaited, Waiting};
use super::word::{self, LOCKED, Refused};
use super::{futex, holding, spin_until};
use crate::config::SMALL;
use crate::percpu::{barrier, thread_token};
use crate::profile::{Of, Wait};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, hint, seeded_bug};

/// The lock holder wants the object exclusively, or has it.
const HELD: usize = 1;
/// A thread is parked (rounds.V3).
const SLEEPERS: usize = 2;
/// The count of one sharer.
const ONE: usize = 4;

/// Number of looks before a waiter parks. Each comes after twice as many pause instructions as the
/// one before.
const LOOKS: u32 = if SMALL { 0 } else { 9 };

/// A lock in rounds; the module header explains it.
pub(crate) struct Rounds {
    lock: AtomicUsize,
    state: AtomicUsize,
    begun: AtomicUsize,
    done: AtomicUsize,
    /// See rounds.V7.
    kept: AtomicBool,
}

/// The way in which a thread that wants to share the object entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The thread shares the object, which is up to date.
    Shared,
    /// The thread has the lock and the object exclusively. It brings the object up to date in a
    /// round, and then calls [`Rounds::share`].
    First,
}

impl Rounds {
    pub(crate) fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        let kept = AtomicBool::new(false);
        Self { lock: zero(), state: zero(), begun: zero(), done: zero(), kept }
    }

    /// Takes the lock, and waits until no thread shares the object.
    #[track_caller]
    pub(crate) fn lock(&self, of: Of) -> Result<(), Refused> {
        // BUG: a lock in rounds takes its word before it asks whether the caller shares the object
        // (rounds.V4).
        if self.is_mine() && !seeded_bug!("word-before-look") {
            return Err(Refused::HeldBySelf);
        }
        word::lock_watched(&self.lock, thread_token(), of)?;
        if seeded_bug!("word-before-look") && self.is_mine() {
            self.give_up_lock();
            return Err(Refused::HeldBySelf);
        }
        self.exclude()
    }

    /// Takes the lock if it is free and no thread shares the object.
    pub(crate) fn try_lock(&self) -> Result<(), Refused> {
        if self.is_mine() {
            return Err(Refused::HeldBySelf);
        }
        word::try_lock(&self.lock, thread_token())?;
        if self.is_kept() {
            holding::note(self.address());
            return Ok(());
        }
        // ORDER: Acquire; as in `exclude`.
        let seen = self.state.load(Ordering::Acquire);
        if seen < ONE && self.change(seen, seen | HELD) {
            holding::note(self.address());
            return Ok(());
        }
        self.give_up_lock();
        Err(Refused::Busy)
    }

    /// Gets the object exclusively (rounds.V1), or releases the lock. The caller holds the lock and
    /// does not share the object.
    fn exclude(&self) -> Result<(), Refused> {
        if self.is_kept() {
            holding::note(self.address());
            return Ok(());
        }
        // ORDER: Acquire (also of the loads below); pairs with Release in `leave`: what the last
        // sharer did with the object, before the holder changes it.
        let seen = self.state.fetch_or(HELD, Ordering::AcqRel);
        debug_assert!(seen & HELD == 0, "rounds.V1: two have set HELD");
        // BUG: the lock's holder does not wait for the threads that share the object (rounds.V1).
        if seen >= ONE && !seeded_bug!("hasty-closing") {
            let is_alone = || self.state.load(Ordering::Acquire) < ONE;
            let mut waiting = None;
            while !spin_until(1, is_alone) {
                if let Err(deadlock) = watch(&mut waiting, self) {
                    // ORDER: Release; as in `unlock`. A thread that has parked since is woken
                    // (rounds.V3).
                    self.state.fetch_and(!HELD, Ordering::Release);
                    self.give_up_lock();
                    return Err(deadlock);
                }
                let seen = self.state.load(Ordering::Acquire);
                if seen >= ONE && (seen & SLEEPERS != 0 || self.change(seen, seen | SLEEPERS)) {
                    futex::wait(&self.state, seen | SLEEPERS);
                }
            }
        }
        holding::note(self.address());
        Ok(())
    }

    /// Counts a round (rounds.V2). The caller has the object exclusively.
    pub(crate) fn begin(&self) -> usize {
        // ORDER: SeqCst, a full fence; pairs with the fences of the things that the holder looks
        // for.
        let round = self.begun.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        barrier::full_after_rmw();
        round
    }

    /// Notes that everything is done that there was to do when the round was counted. The caller
    /// counted it.
    pub(crate) fn end(&self, round: usize) {
        debug_assert!(
            cfg!(manycore_loom)
                || round.wrapping_sub(self.done.load(Ordering::Relaxed)) as isize > 0,
            "rounds.V2: rounds end out of order"
        );
        // ORDER: Release; pairs with Acquire in `is_served`: the object before the number.
        self.done.store(round, Ordering::Release);
    }

    fn is_served(&self, came: usize) -> bool {
        // ORDER: Acquire; pairs with Release in `end`.
        let done = self.done.load(Ordering::Acquire);
        // BUG: a waiter accepts the round that was under way when it arrived (`lock::rounds`,
        // rounds.V2).
        let later = if seeded_bug!("old-round") { 0 } else { 1 };
        done.wrapping_sub(came) as isize >= later
    }

    /// Releases the object and the lock.
    pub(crate) fn unlock(&self) {
        self.expect_mine();
        holding::forget(self.address());
        if !self.is_kept() {
            // ORDER: Release; pairs with Acquire in `join` and `exclude`.
            let seen = self.state.fetch_and(!HELD, Ordering::Release);
            debug_assert!(seen & HELD != 0, "rounds.V1: unlocked by a thread that holds it not");
        }
        self.give_up_lock();
    }

    /// Returns true if the object is kept (rounds.V7). A hint, unless the caller has the lock.
    #[inline(always)]
    pub(crate) fn is_kept(&self) -> bool {
        // ORDER: Relaxed; guarded by the lock.
        self.kept.load(Ordering::Relaxed)
    }

    /// Starts or ends keeping the object. The caller has the object exclusively.
    pub(crate) fn keep(&self, keep: bool) {
        self.expect_mine();
        // ORDER: Relaxed; guarded by the lock.
        self.kept.store(keep, Ordering::Relaxed);
    }

    /// Takes a kept object exclusively, if its lock is free or becomes free within some looks.
    /// Never parks. Also returns false if the calling thread has the object already.
    #[inline]
    pub(crate) fn lock_kept(&self) -> bool {
        if !word::lock_soon(&self.lock, thread_token()) {
            return false;
        }
        // BUG: a thread that acquires the lock of an object that is kept no longer does not wait
        // for the threads that share it (rounds.V7).
        if !self.is_kept() && !seeded_bug!("kept-no-longer") {
            self.give_up_lock();
            return false;
        }
        holding::note(self.address());
        true
    }

    /// Shares the object with other threads from here on, and releases the lock. If the object is
    /// kept, returns false, and the caller still has it exclusively. The caller has the object
    /// exclusively.
    #[must_use]
    pub(crate) fn share(&self) -> bool {
        self.expect_mine();
        if self.is_kept() {
            return false;
        }
        // ORDER: Release; as in `unlock`. HELD is set and there is no sharer: this clears HELD and
        // counts the caller in.
        let seen = self.state.fetch_add(ONE - HELD, Ordering::Release);
        debug_assert!(seen & HELD != 0, "rounds.V1: shared by a thread that does not hold it");
        self.give_up_lock();
        true
    }

    /// Asserts, in a debug build, that the calling thread has the lock, and the object in its list.
    fn expect_mine(&self) {
        debug_assert!(
            cfg!(manycore_loom) || self.is_locked_by_me(),
            "rounds.V1: the object is released by a thread that has not the lock"
        );
        debug_assert!(
            cfg!(manycore_loom) || holding::has(self.address()),
            "rounds.V4: the object is not in the list of its holder"
        );
    }

    fn give_up_lock(&self) {
        // SAFETY: lock_word.K1 - every caller in this file has taken the lock, by `word::lock` or
        // `try_lock`, and releases it here once; `self` keeps the word.
        unsafe { word::unlock(&raw const self.lock, 0) };
        // rounds.V3: the look comes after that.
        barrier::full_after_rmw();
        self.wake();
    }

    fn wake(&self) {
        // ORDER: Relaxed; the callers make the fences of rounds.V3.
        if self.state.load(Ordering::Relaxed) & SLEEPERS != 0 {
            self.state.fetch_and(!SLEEPERS, Ordering::Relaxed);
            futex::wake_all(&raw const self.state);
        }
    }

    fn change(&self, seen: usize, next: usize) -> bool {
        // ORDER: AcqRel; Acquire as in `exclude` and `join`; rounds.V3's fence follows the RMW.
        self.state.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Enters as a sharer unless a thread wants the object exclusively.
    fn join(&self) -> bool {
        // ORDER: Relaxed; the exchange decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & HELD == 0 {
            // ORDER: Acquire; pairs with Release in `unlock` and `share`: the object as it was
            // left. AcqRel with a fence, because the caller may look next at what there is to do.
            match self.state.compare_exchange(seen, seen + ONE, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => {
                    barrier::full_after_rmw();
                    holding::note(self.address());
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Enters to share the object, up to date. `is_current` returns true if there is nothing to do
    /// for the object. It is called when no other thread can change the object; before that, it is
    /// also called as a hint.
    #[track_caller]
    pub(crate) fn enter(&self, of: Of, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        if self.is_mine() {
            return Err(Refused::HeldBySelf);
        }
        // ORDER: Relaxed; every update that returned before passed a full fence. So the number read
        // here is not older than that of the last round that missed the update (rounds.V2).
        let came = self.begun.load(Ordering::Relaxed);
        if !self.is_kept() && is_current() && self.join() {
            if is_current() {
                return Ok(Entered::Shared);
            }
            self.leave();
        }
        match word::try_lock(&self.lock, thread_token()) {
            Ok(()) => self.come_first(came, is_current),
            Err(Refused::Busy) => {
                let wait = Wait::begin();
                let entered = self.enter_slow(came, is_current);
                wait.end(of, 1);
                entered
            }
            Err(refused) => Err(refused),
        }
    }

    /// Continues `enter` for a thread that has acquired the lock.
    fn come_first(&self, came: usize, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        // The caller may look next at what there is to do, as after `join`.
        barrier::full_after_rmw();
        if self.is_kept() {
            return self.exclude().map(|()| Entered::First);
        }
        // BUG: the thread that acquires a lock in rounds does a round though there is nothing to do
        // (rounds.V5).
        if self.is_served(came) || is_current() && !seeded_bug!("needless-round") {
            // The object is taken exclusively only under the lock, so it can be joined now.
            let joined = self.join();
            debug_assert!(joined, "rounds.V1: HELD is set, and its holder has not the lock");
            self.give_up_lock();
            return Ok(Entered::Shared);
        }
        self.exclude().map(|()| Entered::First)
    }

    #[cold]
    fn enter_slow(&self, came: usize, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        let (mut looks, mut waiting) = (0, None);
        loop {
            if self.is_served(came) && self.join() {
                return Ok(Entered::Shared);
            }
            // ORDER: Relaxed; a look, to leave the line alone while the lock is held.
            if self.lock.load(Ordering::Relaxed) & LOCKED == 0 {
                match word::try_lock(&self.lock, thread_token()) {
                    Ok(()) => return self.come_first(came, is_current),
                    Err(Refused::Busy) => {}
                    Err(refused) => return Err(refused),
                }
            }
            if looks < LOOKS {
                (0..1 << looks).for_each(|_| hint::spin_loop());
                looks += 1;
            } else {
                watch(&mut waiting, &self.lock)?;
                self.sleep();
            }
        }
    }

    /// Parks while the lock is held (rounds.V3).
    fn sleep(&self) {
        // ORDER: Relaxed; `change` decides. If another thread's SLEEPERS is there, the fence also
        // makes it visible to the holder that releases after the look at the lock below.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & SLEEPERS == 0 && !self.change(seen, seen | SLEEPERS) {
            return;
        }
        barrier::fence_full();
        // ORDER: Relaxed; after the fence (rounds.V3).
        let held = self.lock.load(Ordering::Relaxed) & LOCKED != 0;
        // BUG: a thread that was woken does not announce the other threads that may be parked
        // (lock_word.K2).
        if held || seeded_bug!("forgotten-sleepers") {
            futex::wait(&self.state, seen | SLEEPERS);
            return;
        }
        // BUG: a thread that finds the lock free leaves the `SLEEPERS` on which another one may
        // have parked (rounds.V3).
        if !seeded_bug!("flag-left-set") {
            self.wake();
        }
    }

    /// Leaves the object. The caller is the thread that entered.
    pub(crate) fn leave(&self) {
        holding::forget(self.address());
        // ORDER: AcqRel; Release pairs with Acquire in `exclude`; with a fence for rounds.V3.
        let seen = self.state.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert!(seen >= ONE, "rounds.V1: a sharer is counted out twice");
        if seen & HELD != 0 && seen < 2 * ONE {
            self.wake();
        }
    }

    /// Returns true if the calling thread has the lock.
    pub(crate) fn is_locked_by_me(&self) -> bool {
        word::is_held_by(&self.lock, thread_token())
    }

    /// Returns true if the calling thread has the object, exclusively or shared (rounds.V4).
    fn is_mine(&self) -> bool {
        // ORDER: Relaxed; a thread sees what it did itself.
        self.state.load(Ordering::Relaxed) & !SLEEPERS != 0 && holding::has(self.address())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

/// Enters the thread into the graph before it parks, unless it would never wake up (rounds.V6).
/// (Not in models, as in `word`.)
fn watch(waiting: &mut Option<Waiting>, awaited: &(impl Awaited + 'static)) -> Result<(), Refused> {
    if waiting.is_none() && !SMALL {
        let entered = wait_graph::enter(awaited, thread_token());
        *waiting = Some(entered.map_err(|()| Refused::Deadlock)?);
    }
    Ok(())
}

impl Awaited for Rounds {
    fn is_held_by(&self, _: usize, shared: &[usize]) -> bool {
        shared.contains(&self.address())
    }
}
