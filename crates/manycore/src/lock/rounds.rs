//! A lock whose holder may have done what others wait for, and who then go on side by side.
//!
//! For objects that a reader has to bring up to date first. Whoever gets the lock does that; all
//! who had come before it began share what it has done, without the lock.
//!
//! Owns: the object's lock, the number of those who share the object, and the rounds. Does not own:
//! what brings an object up to date.
//!
//! Laws:
//! - rounds.V1 `HELD` is set by who has the lock, and taken away by the same before it gives the
//!   lock up. Nobody comes in while it is set, so that the holder has the object alone when it has
//!   seen that nobody is in ([`exclude`](Rounds::exclude)).
//! - rounds.V2 A round is counted, with a full fence, before its holder looks at what there is to
//!   do, and is done when all of that is. So who finds a later round done than was counted when it
//!   came misses nothing that had returned before it came.
//! - rounds.V3 Whoever goes to sleep has set `SLEEPERS`, and then has seen that the lock is held
//!   (or, if it is the holder, that somebody is in). Whoever gives the lock up (or leaves as the
//!   last one under `HELD`) looks for `SLEEPERS` after that, and wakes all. So no wake-up is lost.
//! - rounds.V4 A thread that has an object, alone or shared, is told so when it asks for the same
//!   again, before it takes or changes anything. So it never waits for itself, nor holds the word
//!   that another thread needs to get on (`holding` keeps the list).
//! - rounds.V5 A thread that comes to share the object waits for those who share it only if there
//!   is something to do. So whoever gets the lock asks again, and joins them if there is nothing:
//!   the lock may have been busy with the last of it when the thread came, in a round that had
//!   begun before (which rounds.V2 does not let it count on).
//! - rounds.V6 A thread that goes to sleep for others is in the graph of `held`, with all that it
//!   has. So who closes a circle is told, and takes back what it has said.
//!
//! Source: D. Hendler and others, *Flat combining and the synchronization-parallelism tradeoff*,
//! SPAA 2010, for one who does what others wait for.

use super::held::{self, Awaited, Waiting};
use super::word::{self, LOCKED, Refused};
use super::{futex, holding, spin_until};
use crate::config::SMALL;
use crate::percpu::{barrier, thread_token};
use crate::profile::{Of, Wait};
use crate::sync::{AtomicUsize, Ordering, hint, seeded_bug};

/// The lock's holder wants the object alone, or has it.
const HELD: usize = 1;
/// Somebody sleeps (rounds.V3).
const SLEEPERS: usize = 2;
/// One who shares.
const ONE: usize = 4;

/// Looks before a waiter sleeps, each after twice as many pause instructions as the one before.
const LOOKS: u32 = if SMALL { 0 } else { 9 };

/// See the module header.
pub(crate) struct Rounds {
    lock: AtomicUsize,
    state: AtomicUsize,
    begun: AtomicUsize,
    done: AtomicUsize,
}

/// How somebody came in who wants to share the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is up to date.
    Shared,
    /// The caller has the lock and the object alone, brings it up to date in a round, and then
    /// calls [`Rounds::share`].
    First,
}

impl Rounds {
    pub(crate) fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        Self { lock: zero(), state: zero(), begun: zero(), done: zero() }
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
        // ORDER: Acquire; as in `exclude`.
        let seen = self.state.load(Ordering::Acquire);
        if seen < ONE && self.change(seen, seen | HELD) {
            holding::note(self.address());
            return Ok(());
        }
        self.give_up_lock();
        Err(Refused::Busy)
    }

    /// Has the object alone from here on (rounds.V1), or gives the lock up. For the holder of the
    /// lock, which does not share the object.
    fn exclude(&self) -> Result<(), Refused> {
        // ORDER: Acquire (also of the loads below); pairs with Release in `leave`: what the last
        // one did with the object, before the holder changes it.
        let seen = self.state.fetch_or(HELD, Ordering::AcqRel);
        debug_assert!(seen & HELD == 0, "rounds.V1: two have set HELD");
        // BUG: the lock is taken from those who share the object, and they are not waited for
        // (rounds.V1).
        if seen >= ONE && !seeded_bug!("hasty-closing") {
            let is_alone = || self.state.load(Ordering::Acquire) < ONE;
            let mut waiting = None;
            while !spin_until(1, is_alone) {
                if let Err(circle) = watch(&mut waiting, self) {
                    // ORDER: Release; as in `unlock`. Who sleeps since is woken (rounds.V3).
                    self.state.fetch_and(!HELD, Ordering::Release);
                    self.give_up_lock();
                    return Err(circle);
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

    /// Counts a round (rounds.V2). For who has the object alone.
    pub(crate) fn begin(&self) -> usize {
        // ORDER: SeqCst, a full fence; pairs with the fences of what the holder looks for.
        let round = self.begun.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        barrier::full_after_rmw();
        round
    }

    /// All is done that there was to do when the round was counted. For who counted it.
    pub(crate) fn end(&self, round: usize) {
        // ORDER: Release; pairs with Acquire in `is_served`: the object before the number.
        self.done.store(round, Ordering::Release);
    }

    fn is_served(&self, came: usize) -> bool {
        // ORDER: Acquire; pairs with Release in `end`.
        let done = self.done.load(Ordering::Acquire);
        // BUG: a waiter takes the round under way when it came for its own (`lock::rounds`,
        // rounds.V2).
        let later = if seeded_bug!("old-round") { 0 } else { 1 };
        done.wrapping_sub(came) as isize >= later
    }

    /// Gives up the object and the lock.
    pub(crate) fn unlock(&self) {
        holding::forget(self.address());
        // ORDER: Release; pairs with Acquire in `join` and `exclude`.
        let seen = self.state.fetch_and(!HELD, Ordering::Release);
        debug_assert!(seen & HELD != 0, "rounds.V1: unlocked by a thread that does not hold it");
        self.give_up_lock();
    }

    /// Shares the object with others from here on, and gives the lock up. For who has it alone.
    pub(crate) fn share(&self) {
        // ORDER: Release; as in `unlock`. HELD is set and nobody is in: this clears it, and counts
        // the caller in.
        let seen = self.state.fetch_add(ONE - HELD, Ordering::Release);
        debug_assert!(seen & HELD != 0, "rounds.V1: shared by a thread that does not hold it");
        self.give_up_lock();
    }

    fn give_up_lock(&self) {
        // SAFETY: lock.K1 - every caller in this file has taken the lock, by `word::lock` or
        // `try_lock`, and gives it up here once; `self` keeps the word.
        unsafe { word::unlock(&raw const self.lock, 0) };
        // rounds.V3: the look comes after that.
        barrier::full_after_rmw();
        self.wake();
    }

    fn wake(&self) {
        // ORDER: Relaxed; rounds.V3's fences are its callers'.
        if self.state.load(Ordering::Relaxed) & SLEEPERS != 0 {
            self.state.fetch_and(!SLEEPERS, Ordering::Relaxed);
            futex::wake_all(&raw const self.state);
        }
    }

    fn change(&self, seen: usize, next: usize) -> bool {
        // ORDER: AcqRel; Acquire as in `exclude` and `join`; rounds.V3's fence follows the RMW.
        self.state.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Comes in unless somebody wants the object alone.
    fn join(&self) -> bool {
        // ORDER: Relaxed; the exchange decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & HELD == 0 {
            // ORDER: Acquire; pairs with Release in `unlock` and `share`: the object as it was
            // left. AcqRel with a fence, because the caller may look then at what there is to do.
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

    /// Comes in to share the object, up to date. `is_current` says whether there is nothing to do
    /// for it; it is asked when nobody else can change the object, and before, in vain.
    #[track_caller]
    pub(crate) fn enter(&self, of: Of, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        if self.is_mine() {
            return Err(Refused::HeldBySelf);
        }
        // ORDER: Relaxed; what returned before has passed a full fence, after which no older number
        // is seen than that of the last round that missed it (rounds.V2).
        let came = self.begun.load(Ordering::Relaxed);
        if is_current() && self.join() {
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

    /// For who has got the lock.
    fn come_first(&self, came: usize, is_current: impl Fn() -> bool) -> Result<Entered, Refused> {
        // The caller may look then at what there is to do, as after `join`.
        barrier::full_after_rmw();
        // BUG: whoever gets a lock in rounds does a round though there is nothing to do
        // (rounds.V5).
        if self.is_served(came) || is_current() && !seeded_bug!("needless-round") {
            // Nobody has the object alone but by the lock, so it can be joined now.
            let joined = self.join();
            debug_assert!(joined, "HELD without the lock");
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

    /// Sleeps while the lock is held (rounds.V3).
    fn sleep(&self) {
        // ORDER: Relaxed; `change` decides. If another one's SLEEPERS is there, the fence makes the
        // holder see that, too, who gives up the lock that is seen held below.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & SLEEPERS == 0 && !self.change(seen, seen | SLEEPERS) {
            return;
        }
        barrier::fence_full();
        // ORDER: Relaxed; after the fence (rounds.V3).
        let held = self.lock.load(Ordering::Relaxed) & LOCKED != 0;
        // BUG: a thread that was woken says nothing of the others that may sleep (lock.K2).
        if held || seeded_bug!("forgotten-sleepers") {
            futex::wait(&self.state, seen | SLEEPERS);
        }
    }

    /// Goes out again. For who came in, on the same thread.
    pub(crate) fn leave(&self) {
        holding::forget(self.address());
        // ORDER: AcqRel; Release pairs with Acquire in `exclude`; with a fence for rounds.V3.
        let seen = self.state.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert!(seen >= ONE, "rounds.V1: a sharer is counted out twice");
        if seen & HELD != 0 && seen < 2 * ONE {
            self.wake();
        }
    }

    /// Whether the calling thread has the lock.
    pub(crate) fn is_locked_by_me(&self) -> bool {
        word::is_held_by(&self.lock, thread_token())
    }

    /// Whether the calling thread has the object, alone or shared (rounds.V4).
    fn is_mine(&self) -> bool {
        // ORDER: Relaxed; a thread sees what it did itself.
        self.state.load(Ordering::Relaxed) & !SLEEPERS != 0 && holding::has(self.address())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

/// Before a sleep: the calling thread is in the graph, unless it would never wake up (rounds.V6).
/// (Not in models, as in `word`.)
fn watch(waiting: &mut Option<Waiting>, awaited: &(impl Awaited + 'static)) -> Result<(), Refused> {
    if waiting.is_none() && !SMALL {
        let entered = held::wait_for_any(awaited, thread_token());
        *waiting = Some(entered.map_err(|()| Refused::Circle)?);
    }
    Ok(())
}

impl Awaited for Rounds {
    fn is_held_by(&self, _: usize, shared: &[usize]) -> bool {
        shared.contains(&self.address())
    }
}
