//! A revocable gate: readers enter by a store to a line of their own, and a closer closes the gate
//! and then looks at all lines.
//!
//! Owns: the [`Gate`], a word with a *lane* for each slot, for objects that are entered one at a
//! time (the big-reader lock and the adaptive object), and the laws of the protocol. The protocol's
//! steps are in `announcement`, also for users with lines of their own: the slots' records and the
//! stacks of calls. Does not own: which values of the word let readers in, where a refused reader
//! waits, what a reader without a lane does, which thread may close, and the bias (gate.E4). The
//! gate's user decides these.
//!
//! ```text
//! reader:  store "inside" to its lane; light barrier; load the word   open: inside
//!                                                                     closed: withdraw, wait
//! closer:  close the word; heavy barrier; look at every lane; wait until all are outside
//! ```
//!
//! Laws:
//! - gate.E1 *Enter*: a reader stores that it is inside, passes its half of the barrier, and loads
//!   the gate's word. It is inside if the word lets it in; otherwise it withdraws the announcement.
//! - gate.E2 *Close*: a closer changes the word so that it lets no reader in, passes its half of
//!   the barrier, and then looks at each line. By barrier.B1 a reader saw the word closed, or the
//!   closer sees it on its line.
//! - gate.E3 *Wait*: a reader withdraws by Release, and the closer looks by Acquire. A closer opens
//!   by Release, and a reader loads the word by Acquire. So what the closer does between the wait
//!   and the opening happens after all readers before it and before all readers after it. A user
//!   whose wait can fail opens the gate again, also when a panic unwinds.
//! - gate.E4 *Bias*: both sides use the same pair of barriers: a light one for readers and a heavy
//!   one for the closer (biased), or a full fence for both. A gate whose bias changes keeps it in
//!   its word, so a reader enters only by the word whose bias it announced itself with. A heavy
//!   barrier pairs with full fences as well: the bias may be set at any time, but is cleared only
//!   on a closed gate.
//! - gate.E5 *Lanes*: a lane belongs to the thread whose token it carries, and only that thread
//!   writes its count. The next owner of the slot takes the lane over when its count is zero. Until
//!   then that owner has no lane. (The count may be that of a guard of a thread that is ending, or
//!   of a forgotten guard.)
//! - gate.E6 The number of lanes that closers look at grows before a lane is used.
//! - gate.E7 A thread that is inside may enter again in the same lane without a look at the word:
//!   the closer waits for it anyway. To find that lane, [`Gate::inside`] looks at the count first
//!   and at the token second.
//!
//! Source: D. Dice, A. Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC 2019
//! (readers that bypass a lock, and their revocation); the barrier is that of [`super::barrier`].

#[cfg(all(test, manycore_loom))]
mod loom_tests;

pub(crate) use super::announcement::{
    announce, announced, pass_barrier, wait_forever_while, wait_while, withdraw,
};

use super::segmented::Segmented;
use super::{slots, thread_token};
use crate::sync::{AtomicUsize, LoadToChange, Ordering, const_fn, seeded_bug};

/// The count of one slot's reader, and what its user keeps beside it.
#[repr(align(128))]
pub(crate) struct Lane<D = ()> {
    /// The token of the thread that owns the lane (gate.E5).
    token: AtomicUsize,
    /// How many times that thread is inside. Written only by that thread.
    count: AtomicUsize,
    pub(crate) data: D,
}

impl<D: Default> From<usize> for Lane<D> {
    fn from(_: usize) -> Self {
        Self { token: AtomicUsize::new(0), count: AtomicUsize::new(0), data: D::default() }
    }
}

impl<D> Lane<D> {
    #[inline(always)]
    fn is_of(&self, token: usize) -> bool {
        // ORDER: Relaxed; a thread that finds its own token stored it itself, and a look at other
        // threads' lanes comes after one at the count (`inside`).
        self.token.load(Ordering::Relaxed) == token
    }

    /// Returns true if a reader is counted here.
    pub(crate) fn is_inside(&self) -> bool {
        announced(&self.count) != 0
    }

    /// Returns true if the thread with this token is counted here.
    pub(crate) fn is_held_by(&self, token: usize) -> bool {
        // The count before the token, as in `Gate::inside`.
        self.is_inside() && self.is_of(token)
    }

    /// Enters by gate.E1, if the calling thread owns the lane and is not counted in it.
    #[inline(always)]
    fn enter(&self, word: &AtomicUsize, open: usize, biased: bool) -> Option<&Self> {
        // ORDER: Relaxed; only the owner writes the count.
        if !self.is_of(thread_token()) || self.count.load_to_change(Ordering::Relaxed) != 0 {
            return None;
        }
        announce(&self.count, 1, biased);
        // ORDER: Acquire; pairs with the opening's Release (gate.E3): what the closer wrote.
        let seen = word.load(Ordering::Acquire);
        // BUG: a reader that announced itself by one bias enters by a word with another (gate.E4).
        if seen == open || seeded_bug!("stale-bias") && seen & 1 == open & 1 {
            return Some(self);
        }
        withdraw(&self.count);
        None
    }

    /// Counts a reader of this lane once more, without a look at the gate's word (gate.E7).
    #[inline(always)]
    pub(crate) fn enter_again(&self) {
        // ORDER: Relaxed load, as only the owner writes; Release, as in `announce`.
        let count = self.count.load_to_change(Ordering::Relaxed);
        debug_assert!(count > 0, "gate.E7: a thread that is outside enters without a look");
        self.count.store(count + 1, Ordering::Release);
    }

    /// Counts the owner out, also when its slot belongs to another thread by now (gate.E5).
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // ORDER: Relaxed load, as only the owner writes; Release, as in `withdraw`. It also passes
        // the lane on to its next owner (`claim`).
        let count = self.count.load_to_change(Ordering::Relaxed);
        debug_assert!(count > 0, "gate.E5: a reader is counted out twice");
        self.count.store(count - 1, Ordering::Release);
    }
}

/// A word that lets readers in or not, and a lane for each slot.
pub(crate) struct Gate<D: Default = ()> {
    /// Its meaning is defined by the user. A closer changes it, passes the barrier, and opens by
    /// Release (gate.E3).
    pub(crate) word: AtomicUsize,
    /// One more than the highest lane in use (gate.E6).
    high: AtomicUsize,
    lanes: Segmented<Lane<D>>,
}

impl<D: Default> Gate<D> {
    const_fn! {
        /// A gate without lanes.
        pub(crate) const fn new(word: usize) -> Self {
            Self {
                word: AtomicUsize::new(word),
                high: AtomicUsize::new(0),
                lanes: Segmented::new(),
            }
        }
    }

    /// Enters by the calling thread's lane, if it has a lane in which it is not counted, and if the
    /// gate's word is `open` (gate.E1).
    #[inline(always)]
    pub(crate) fn enter(&self, open: usize, biased: bool) -> Option<&Lane<D>> {
        match slots::known_slot().and_then(|slot| self.lanes.get_near(slot)) {
            Some(lane) => lane.enter(&self.word, open, biased),
            None => self.enter_far(open, biased),
        }
    }

    /// Same as [`enter`](Self::enter), if the thread's slot is not known yet or its lane is not in
    /// the first segment.
    #[inline(never)]
    fn enter_far(&self, open: usize, biased: bool) -> Option<&Lane<D>> {
        self.lanes.get(slots::own_slot()?.index())?.enter(&self.word, open, biased)
    }

    /// Enters once more if the calling thread is inside (gate.E7).
    #[inline]
    pub(crate) fn enter_again(&self) -> Option<&Lane<D>> {
        let lane = self.inside()?;
        lane.enter_again();
        Some(lane)
    }

    /// Returns the lane that counts the calling thread, whichever slot it belongs to.
    #[inline]
    pub(crate) fn inside(&self) -> Option<&Lane<D>> {
        let me = thread_token();
        // ORDER: the count before the token (gate.E7). `is_inside` is Acquire and pairs with the
        // Release stores of `announce`: the token seen then is that of the thread that is counted,
        // or a later one. A lane of an ended thread that had the same token passes to another
        // thread only that way. With the look at the token first, the ended thread's token would be
        // combined with the next owner's count. (An ended thread may have forgotten a guard: then
        // no other thread writes its lane.) The first look at the token, which proves nothing,
        // skips the lanes in which others count.
        // BUG: a thread looks whose a lane is before it looks whether it counts a reader (gate.E7).
        let unsure = seeded_bug!("token-before-count");
        let is_mine =
            |lane: &Lane<D>| lane.is_of(me) && lane.is_inside() && (unsure || lane.is_of(me));
        // Nearly always this is the lane of the thread's slot: the other lines are looked at only
        // if it is not.
        let own = slots::known_slot().and_then(|slot| self.lanes.get(slot));
        own.into_iter().chain(self.lanes()).find(|lane| is_mine(lane))
    }

    /// Gives the calling thread the lane of its slot. Returns true if the thread has the lane now
    /// (gate.E5).
    pub(crate) fn claim(&self) -> bool {
        let Some(slot) = slots::own_slot() else { return false };
        let lane = self.lanes.get_or_init(slot.index());
        let me = thread_token();
        if lane.is_of(me) {
            return true;
        }
        // BUG: a slot's next owner takes the lane over while it counts the one before (gate.E5).
        if lane.is_inside() && !seeded_bug!("counted-lane") {
            return false;
        }
        // ORDER: Relaxed; slots pass from thread to thread by Release and Acquire (percpu.P2), a
        // late `leave` is ordered by `is_inside`, and `announce` publishes the token (`inside`).
        lane.token.store(me, Ordering::Relaxed);
        // ORDER: AcqRel; the barrier of the next `announce` orders it as it does the announcement
        // (gate.E6). If a closer does not see this lane in the number, the reader sees the closer.
        // BUG: a lane is used that closers do not look at (gate.E6).
        if !seeded_bug!("unlisted-lane") {
            self.high.fetch_max(slot.index() + 1, Ordering::AcqRel);
        }
        true
    }

    /// Waits until no lane counts a reader (gate.E3). The caller is a closer that has passed the
    /// barrier and is not inside. If the wait for a lane is long, `stuck` is called once and
    /// decides whether to go on; what it returns lives as long as that wait.
    pub(crate) fn wait<W, E>(&self, stuck: impl Fn(&Lane<D>) -> Result<W, E>) -> Result<(), E> {
        debug_assert!(
            cfg!(manycore_loom) || self.inside().is_none(),
            "gate.E3: a closer is inside of its gate, and waits for itself"
        );
        for lane in self.lanes() {
            let mut waiting = None;
            wait_while(
                || lane.is_inside(),
                |backoff| {
                    // never in a model
                    if backoff.is_long() && waiting.is_none() {
                        waiting = Some(stuck(lane)?);
                    }
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    /// Returns true if no lane counts a reader now.
    pub(crate) fn is_empty(&self) -> bool {
        !self.lanes().any(Lane::is_inside)
    }

    /// Returns the lanes that have been used.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane<D>> {
        // ORDER: Acquire; pairs with AcqRel in `claim` (gate.E6).
        let high = self.high.load(Ordering::Acquire);
        (0..high).filter_map(|index| self.lanes.get(index))
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::thread;
    #[cfg(debug_assertions)]
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    const OPEN: usize = 1;

    fn gate() -> Gate {
        Gate::new(OPEN)
    }

    #[test]
    fn thread_without_a_lane_is_turned_away_until_it_has_one() {
        let gate = gate();
        assert!(gate.enter(OPEN, false).is_none() && gate.is_empty());
        assert!(gate.claim());
        let lane = gate.enter(OPEN, false).unwrap();
        assert!(!gate.is_empty() && gate.inside().is_some());
        assert!(gate.enter(OPEN, false).is_none(), "it is inside already");
        lane.leave();
        assert!(gate.is_empty() && gate.inside().is_none());
    }

    #[test]
    fn closed_gate_lets_only_those_inside_enter_again() {
        let gate = gate();
        assert!(gate.claim() && gate.enter_again().is_none());
        let lane = gate.enter(OPEN, false).unwrap();
        gate.word.store(0, Ordering::Relaxed);
        assert!(gate.enter(OPEN, false).is_none());
        gate.enter_again().unwrap().leave();
        assert!(!gate.is_empty(), "one count is left");
        thread::scope(|scope| {
            scope.spawn(|| assert!(gate.claim() && gate.enter(OPEN, false).is_none()));
        });
        lane.leave();
        assert!(gate.is_empty() && gate.enter_again().is_none());
    }

    /// A lane with a forgotten count is not taken over (gate.E5).
    #[test]
    fn forgotten_count_keeps_its_lane_from_the_slots_next_owner() {
        let gate = gate();
        assert!(gate.claim());
        let lane = gate.enter(OPEN, false).unwrap();
        // As if an ended thread had owned this slot.
        lane.token.store(8, Ordering::Relaxed);
        assert!(!gate.claim() && gate.inside().is_none());
        lane.leave();
        assert!(gate.claim());
    }

    #[test]
    fn wait_that_may_not_go_on_ends_with_an_error() {
        let gate = gate();
        let (entered, leave) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|s| {
            s.spawn(|| {
                assert!(gate.claim());
                let lane = gate.enter(OPEN, false).unwrap();
                entered.wait();
                leave.wait();
                lane.leave();
            });
            entered.wait();
            assert_eq!(gate.wait(|_| Err::<(), _>("a cycle")), Err("a cycle"));
            assert_eq!(wait_while(|| !gate.is_empty(), |_| Err("over")), Err("over"));
            leave.wait();
        });
        assert_eq!(gate.wait(|_| Err::<(), _>("a cycle")), Ok(()));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn closer_that_is_inside_of_its_gate_is_reported() {
        let gate = gate();
        assert!(gate.claim());
        let lane = gate.enter(OPEN, false).unwrap();
        let waits = catch_unwind(AssertUnwindSafe(|| gate.wait(|_| Err::<(), _>("a cycle"))));
        assert!(waits.is_err(), "it would wait for itself");
        lane.leave();
    }
}
