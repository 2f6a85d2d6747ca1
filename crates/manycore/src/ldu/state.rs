//! The set's parts, and the way of a change.
//!
//! Owns: the layout. The reader's side is in `drain`. Laws ldu.U1 to ldu.U7 are in the parent
//! module.
//!
//! Why the epoch suffices for ldu.U6. A read raises it to `cut + 1`, passes a full fence, and then
//! looks at queues and words. A change loads the epoch, changes the word, perhaps pushes, passes a
//! full fence, and returns.
//! - *A change that the read misses.* The read looked at the word, or at the queue, before the
//!   change got there. So the read's fence comes before the change's, and whatever follows the
//!   change's return finds the raised epoch: it notes more than `cut`, and the read leaves it out.
//! - *A change that the read takes.* It found `cut` or less. So what had returned before it began
//!   has its fence before the read's, and the read looks after that.
//! - *A late change*, which loaded the epoch long ago: the first point has it if it is missed, the
//!   second if it is not. Its word may have more than it found, and then takes that (ldu.M3 of
//!   `word`).

use super::drain::Inner;
use super::links::{Linked, links_of};
use super::queue::{Queues, Stack};
use super::set::Structure;
use super::word::{Change, Word};
use crate::clock::Clock;
use crate::config::{DEFAULT_GROWTH, SMALL};
use crate::lock::error::would_wait_in_a_circle;
use crate::lock::{Entered, Refused, Rounds, held};
use crate::percpu::barrier;
use crate::profile::Of;
use crate::sync::{self, AtomicBool, AtomicU64, Ordering, UnsafeCell, seeded_bug};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// How far over its bound a queue grows while a reader holds the set.
pub(super) const GROWTH: u64 = if SMALL { 2 } else { DEFAULT_GROWTH as u64 };

/// What changes look at. Reads write the epoch, if something has changed, and nothing else here.
#[repr(align(128))]
pub(super) struct UpdateSide {
    pub(super) epoch: AtomicU64,
    max_queued: u64,
    /// Ticks; `u64::MAX` if there is no time bound.
    max_delay: u64,
    pub(super) queues: Queues,
}

/// What reads write.
#[repr(align(128))]
pub(super) struct ReadSide {
    pub(super) rounds: Rounds,
    /// Guarded by the lock, as the next one.
    pub(super) poisoned: AtomicBool,
    /// Whether members wait for the next read outside of queues.
    pub(super) is_clean: AtomicBool,
}

pub(super) struct State<T, E: Linked> {
    pub(super) update_side: UpdateSide,
    pub(super) read_side: ReadSide,
    /// Before `inner`, so that it is dropped before the members that were given up.
    pub(super) value: UnsafeCell<T>,
    pub(super) inner: UnsafeCell<Inner<E>>,
}

// SAFETY: a state that moves takes along the structure (`T: Send`) and members, which any thread may
// use and free (`Linked` is `Send + Sync`).
unsafe impl<T: Send, E: Linked> Send for State<T, E> {}
// SAFETY: shared, the state gives the structure and `inner` to the lock's holder alone (rounds.V1,
// kept by `State::lock`), so `T: Send` is enough. `&T` for several threads is given out by
// `read_shared` alone, which asks for `T: Sync`. Everything else is atomic.
unsafe impl<T: Send, E: Linked> Sync for State<T, E> {}

impl<T: Structure<E>, E: Linked> State<T, E> {
    pub(super) fn new(value: T, queues: Queues, max_queued: u64, max_delay: u64) -> Self {
        Self {
            update_side: UpdateSide { epoch: AtomicU64::new(0), max_queued, max_delay, queues },
            read_side: ReadSide {
                rounds: Rounds::new(),
                poisoned: AtomicBool::new(false),
                is_clean: AtomicBool::new(true),
            },
            value: UnsafeCell::new(value),
            inner: UnsafeCell::new(Inner::new()),
        }
    }

    /// Makes a change and returns the word, unless it is none: then `Err` has the word.
    ///
    /// # Safety
    /// ldu.U1, ldu.U3: `member` is alive, was in no other set while it is queued, its owner makes
    /// one change at a time, and its memory is held until a drain has let it go. If the change
    /// gives it up, it may be gone.
    #[inline(always)]
    pub(super) unsafe fn change(&self, member: NonNull<E>, change: Change) -> Result<Word, Word> {
        // ORDER: Acquire; pairs with the Release in `raise`. What makes it new enough are the
        // fences of the changes that came before this one (see the header).
        let epoch = self.update_side.epoch.load(Ordering::Acquire);
        // SAFETY: ldu.U3 - the caller promises that `member` is alive, and that its memory is held
        // until a drain has let it go (# Safety). After the change that gives it up, `marks` is not
        // used.
        let (links, marks) = unsafe {
            let links = links_of(member);
            (links, &*links.as_ptr())
        };
        let mut word = marks.load_for_change();
        let next = loop {
            if word.is_attached() == (change == Change::Insert) {
                return Err(word);
            }
            // Nearly always so: then the new word need not be computed before the instruction.
            if word.is_plain(epoch) && matches!(change, Change::Insert | Change::Remove) {
                word = marks.toggle(change == Change::Insert);
                let next = word.after(change, 0);
                if word.is_queued() {
                    break next;
                }
                // A drain let it go between the look and the toggle; no other thread has it now.
                let toggled = Word(word.0 ^ super::word::TOGGLE);
                let queued = marks.change(toggled, toggled.queued_again());
                debug_assert!(queued.is_ok(), "only its owner changes a member in no queue");
                break next;
            }
            let next = word.after(change, epoch);
            match marks.change(word, next) {
                Ok(()) => break next,
                Err(now) => word = now,
            }
        };
        // From here on the member may be gone, if it was queued and is given up.
        barrier::full_after_rmw();
        if !word.is_queued() {
            // SAFETY: ldu.Q1 - this change made it queued.
            unsafe { self.push(links) };
        }
        Ok(next)
    }

    /// # Safety
    /// As [`Queues::push`].
    #[inline(never)]
    unsafe fn push(&self, links: NonNull<super::links::Links>) {
        // SAFETY: ldu.Q1 - the caller promises that it made the member queued (# Safety); its
        // memory lives until a drain has let it go.
        let (pushed, overdue) = unsafe {
            self.update_side.queues.push(links, |stack, first| self.is_overdue(stack, first))
        };
        if pushed.len >= self.update_side.max_queued || overdue {
            self.relieve(pushed.len >= self.update_side.max_queued.saturating_mul(GROWTH));
        }
    }

    #[inline(always)]
    fn is_overdue(&self, stack: &Stack, first: bool) -> bool {
        if self.update_side.max_delay == u64::MAX {
            return false;
        }
        let now = Clock::system().ticks_now();
        if first {
            // ORDER: Relaxed (both); an estimate.
            stack.since.store(now, Ordering::Relaxed);
            return false;
        }
        now.saturating_sub(stack.since.load(Ordering::Relaxed)) > self.update_side.max_delay
    }

    /// The structure, and what is to be freed after it. No queue has a member any more.
    pub(super) fn dismantle(self) -> (T, Vec<super::drain::Given<E>>) {
        let Self { value, inner, .. } = self;
        (value.into_inner(), inner.into_inner().garbage)
    }

    /// A queue is at its bound: this change becomes the reader. A panic of the structure's stays
    /// here; the poison tells the next reader.
    ///
    /// A thread that holds an object, or holds or shares a set, this one or another, does not wait:
    /// the reader that it would wait for may wait for it. Its queue grows instead.
    #[cold]
    fn relieve(&self, wait: bool) {
        // BUG: a change of a set waits for the set's reader although its thread holds another set
        // (`ldu`).
        let wait = wait && (!held::is_inside() || seeded_bug!("waiting-holder"));
        if self.lock(wait).is_err() {
            return; // busy, or this thread's own: the queue grows
        }
        let mut held = Held { state: self, poison: false };
        sync::contain(|| {
            // SAFETY: the lock is held.
            unsafe { self.drain(true) };
        });
        let garbage = held.garbage();
        drop(held);
        sync::contain(|| sync::drop_each(garbage));
    }

    /// Takes the set's lock, and has the structure alone.
    #[track_caller]
    pub(super) fn lock(&self, wait: bool) -> Result<(), Refused> {
        if wait { self.read_side.rounds.lock(self.of()) } else { self.read_side.rounds.try_lock() }
    }

    #[track_caller]
    fn of(&self) -> Of {
        Of::new("DeferredSet", self)
    }

    /// Comes in to share the structure, up to date; `First` if the caller has to see to that.
    #[track_caller]
    pub(super) fn enter(&self) -> Result<Entered, Refused> {
        self.read_side.rounds.enter(self.of(), || self.is_current())
    }

    /// Whether the structure knows of every change that has returned; if a change has not, or if
    /// the caller neither has the lock nor shares the structure, a guess.
    pub(super) fn is_current(&self) -> bool {
        // ORDER: Relaxed; guarded by the lock.
        self.read_side.is_clean.load(Ordering::Relaxed) && self.update_side.queues.is_empty()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        // ORDER: Relaxed; callers that need more hold the lock.
        self.read_side.poisoned.load(Ordering::Relaxed)
    }
}

/// The set's lock, given up on the way out.
pub(super) struct Held<'a, T, E: Linked> {
    pub(super) state: &'a State<T, E>,
    pub(super) poison: bool,
}

impl<T, E: Linked> Held<'_, T, E> {
    /// What is to be freed after the lock is given up.
    pub(super) fn garbage(&mut self) -> Vec<super::drain::Given<E>> {
        // SAFETY: the lock is held, and guards `inner`.
        self.state.inner.with_mut(|inner| unsafe { std::mem::take(&mut (*inner).garbage) })
    }
}

impl<T, E: Linked> Held<'_, T, E> {
    /// Gives the lock up and goes on sharing the structure. What is to be freed comes back.
    pub(super) fn share(mut self) -> Vec<super::drain::Given<E>> {
        let garbage = self.garbage();
        ManuallyDrop::new(self).state.read_side.rounds.share();
        garbage
    }
}

impl<T, E: Linked> Drop for Held<'_, T, E> {
    fn drop(&mut self) {
        if self.poison {
            // ORDER: Relaxed; guarded by the lock.
            self.state.read_side.poisoned.store(true, Ordering::Relaxed);
        }
        self.state.read_side.rounds.unlock();
    }
}

/// Says why a read has no guard. `what` is what the readers call the object.
#[cold]
#[track_caller]
pub(super) fn cannot_read(refused: Refused, what: &str) -> ! {
    if refused == Refused::Circle {
        would_wait_in_a_circle();
    }
    panic!(
        "manycore: this thread reads the {what} already; drop the guard before reading again, and \
         do not read it from within its own structure"
    )
}
