//! A hierarchy of wheels: timers by their deadlines. Plain, sequential code.
//!
//! Owns: [`Wheel`]. Level 0 has a slot for each of 64 ticks, level 1 a slot for each 64 ticks,
//! level 2 for each 4,096, and so on for all of 64 bits. Source: G. Varghese, A. Lauck, *Hashed and
//! hierarchical timing wheels*, SOSP 1987, scheme 7.
//!
//! ```text
//! level 0   |0|1|2| ... |63|     1 tick a slot
//! level 1   |0|1|2| ... |63|     64 ticks a slot; an emptied slot goes to level 0 or fires
//! level 2   |0|1|2| ... |63|     4,096 ticks a slot; and so on
//! due       timers whose deadline has come
//! ```
//!
//! Laws:
//! - **wheel.V1** A timer is in the level of the highest digit (base 64) in which its
//!   deadline differs from the time, in the slot of that digit. A timer whose deadline has come is
//!   in the list `due`. So all timers of a level are before all of the next level, and its slots
//!   are in the order of time.
//! - **wheel.V2** A timer's `place` says where it is, or is [`OUT`].

/// The place of a timer that is in no wheel.
pub(super) const OUT: usize = usize::MAX;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 64_usize.div_ceil(BITS as usize);
/// Number of the list `due`, after the numbers of the slots.
const DUE: usize = LEVELS * SLOTS;
/// A place is the index in the slot times this, plus the slot's number.
const PLACES: usize = (DUE + 1).next_power_of_two();

/// A reference to a timer.
pub(super) trait Timed: Copy {
    /// When the timer is to fire. Never changes.
    fn deadline(self) -> u64;
    /// The timer's place (wheel.V2).
    fn place(self) -> usize;
    /// Notes where the timer is.
    fn put(self, place: usize);
}

struct Level<P> {
    /// A bit for each slot that has something.
    used: u64,
    slots: [Vec<P>; SLOTS],
}

type Levels<P> = [Option<Box<Level<P>>>; LEVELS];

/// See the module header.
pub(super) struct Wheel<P> {
    now: u64,
    due: Vec<P>,
    /// Levels that have been used; `None` before the first.
    levels: Option<Box<Levels<P>>>,
    /// Memory of the slot that was emptied last.
    spare: Vec<P>,
}

impl<P: Timed> Wheel<P> {
    pub(super) fn new() -> Self {
        Self { now: 0, due: Vec::new(), levels: None, spare: Vec::new() }
    }

    /// Adds a timer.
    #[inline]
    pub(super) fn insert(&mut self, timer: P) {
        if timer.deadline() <= self.now {
            push(&mut self.due, DUE, timer);
        } else {
            self.insert_later(timer);
        }
    }

    /// Adds a timer with a deadline in the future.
    fn insert_later(&mut self, timer: P) {
        let deadline = timer.deadline();
        let level = ((deadline ^ self.now).ilog2() / BITS) as usize;
        let slot = digit(deadline, level);
        debug_assert!(slot > digit(self.now, level), "wheel.V1: a slot that the hand has passed");
        let levels = self.levels.get_or_insert_with(|| Box::new(std::array::from_fn(|_| None)));
        let Level { used, slots } = &mut **levels[level].get_or_insert_with(new_level);
        *used |= 1 << slot;
        push(&mut slots[slot], level * SLOTS + slot, timer);
    }

    /// Removes a timer, if it is there.
    pub(super) fn remove(&mut self, timer: P) {
        let place = timer.place();
        if place == OUT {
            return;
        }
        timer.put(OUT);
        let (number, at) = (place % PLACES, place / PLACES);
        let levels = self.levels.as_deref_mut();
        let slot = match levels.and_then(|levels| levels.get_mut(number / SLOTS)) {
            Some(Some(level)) => {
                let slot = &mut level.slots[number % SLOTS];
                if slot.len() == 1 {
                    level.used &= !(1 << (number % SLOTS));
                }
                slot
            }
            _ => &mut self.due,
        };
        // `put(OUT)` above marks the timer; a stale place would name another one.
        debug_assert!(slot[at].place() == OUT, "timer_queue.T3: a place names another timer");
        slot.swap_remove(at);
        if let Some(moved) = slot.get(at) {
            moved.put(place);
        }
    }

    /// Returns the earliest deadline of the timers for which `counts` returns true.
    pub(super) fn next(&self, counts: impl Fn(P) -> bool) -> Option<u64> {
        let first = |slot: &[P]| {
            slot.iter().filter(|timer| counts(**timer)).map(|timer| timer.deadline()).min()
        };
        let later = self
            .levels
            .iter()
            .flat_map(|levels| levels.iter().flatten())
            .flat_map(|level| ones(level.used).map(|slot| level.slots[slot].as_slice()));
        std::iter::once(self.due.as_slice()).chain(later).find_map(first) // wheel.V1
    }

    /// Sets the time to `now`, unless it is later already, and calls `fire` with the timers that
    /// are due then.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: u64, mut fire: impl FnMut(P)) {
        if !self.due.is_empty() {
            self.fire_due(&mut fire);
        }
        // wheel.V1: what is in a slot is later than the last time.
        if now > self.now {
            if self.levels.is_some() {
                self.turn(now, fire);
            }
            self.now = now;
        }
    }

    /// Fires the timers that are due.
    fn fire_due(&mut self, fire: &mut impl FnMut(P)) {
        let now = self.now;
        self.due.drain(..).for_each(|timer| fire_one(timer, now, fire));
    }

    /// Fires the timers in the slots that are due at `now`.
    fn turn(&mut self, now: u64, mut fire: impl FnMut(P)) {
        while let Some((level, slot, start)) = self.first_slot().filter(|(.., at)| *at <= now) {
            // wheel.V1: no timer is before `start`, so the digits below it change for no
            // timer.
            debug_assert!(start >= self.now, "wheel.V1: the hand goes back");
            self.now = start;
            let mut timers = self.empty(level, slot);
            for timer in timers.drain(..) {
                if level == 0 || timer.deadline() <= now {
                    fire_one(timer, now, &mut fire);
                } else {
                    self.insert_later(timer); // to a lower level
                }
            }
            self.spare = timers;
        }
    }

    /// Returns the first slot that is not empty, and when its time begins.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let levels = self.levels.as_ref()?.iter().enumerate();
        let mut used = levels.filter_map(|(level, wheel)| Some((level, wheel.as_ref()?.used)));
        let (level, used) = used.find(|(_, used)| *used != 0)?;
        let slot = used.trailing_zeros() as usize;
        let shift = level as u32 * BITS;
        let above = self.now.checked_shr(shift + BITS).unwrap_or(0);
        let above = above.checked_shl(shift + BITS).unwrap_or(0);
        Some((level, slot, above | (slot as u64) << shift))
    }

    fn empty(&mut self, level: usize, slot: usize) -> Vec<P> {
        let spare = std::mem::take(&mut self.spare);
        let level = self.levels.as_mut().and_then(|levels| levels[level].as_mut());
        let Some(level) = level else { return spare };
        level.used &= !(1 << slot);
        std::mem::replace(&mut level.slots[slot], spare)
    }

    /// Takes out all timers. The wheel is empty then.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = P> {
        let all = std::mem::replace(self, Self::new());
        let levels = all.levels.into_iter().flat_map(|levels| levels.into_iter().flatten());
        let levels = levels.flat_map(|level| level.slots);
        levels.chain([all.due]).flatten()
    }
}

/// Fires a timer that was in the wheel.
#[inline(always)]
fn fire_one<P: Timed>(timer: P, now: u64, fire: &mut impl FnMut(P)) {
    debug_assert!(timer.place() != OUT, "timer_queue.T3: a timer in the wheel says it is out");
    debug_assert!(timer.deadline() <= now, "wheel.V1: a timer fires too early");
    timer.put(OUT);
    fire(timer);
}

#[cold]
fn new_level<P>() -> Box<Level<P>> {
    Box::new(Level { used: 0, slots: std::array::from_fn(|_| Vec::new()) })
}

#[inline(always)]
fn push<P: Timed>(slot: &mut Vec<P>, number: usize, timer: P) {
    timer.put(slot.len() * PLACES + number);
    slot.push(timer);
}

fn digit(deadline: u64, level: usize) -> usize {
    (deadline >> (level as u32 * BITS)) as usize % SLOTS
}

/// Returns the numbers of the set bits, from the lowest.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(bit)
    })
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    impl Timed for &(u64, Cell<usize>) {
        fn deadline(self) -> u64 {
            self.0
        }
        fn place(self) -> usize {
            self.1.get()
        }
        fn put(self, place: usize) {
            self.1.set(place);
        }
    }

    /// Random insertions, removals, queries and times, near and far, compared with an ordered set.
    #[test]
    fn wheel_fires_what_an_ordered_set_would() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 16
        };
        let far = |random: u64| random & (u64::MAX >> 16) >> (random % 47);
        let timers: Vec<_> = (0..4_000_u64)
            .map(|_| (far(next()).wrapping_mul(1 + (next() % 2) * 65_535), Cell::new(OUT)))
            .collect();
        let (mut wheel, mut set, mut now) = (Wheel::new(), BTreeSet::new(), 0_u64);
        for step in 0..40_000_usize {
            let number = next() as usize % timers.len();
            let timer = &timers[number];
            match next() % 8 {
                0..=3 if set.insert((timer.0, number)) => wheel.insert(timer),
                0..=5 => {
                    set.remove(&(timer.0, number));
                    wheel.remove(timer);
                }
                6 => {
                    let counts = |timer: &(u64, Cell<usize>)| timer.0 % 3 != 0;
                    let odd = set.iter().find(|(at, _)| at % 3 != 0).map(|(at, _)| *at);
                    assert_eq!(wheel.next(counts), odd, "step {step}");
                    assert_eq!(wheel.next(|_| true), set.first().map(|(at, _)| *at));
                }
                _ => {
                    now = match next() % 4 {
                        0 => now.saturating_add(next() % 200),
                        1 => now.saturating_sub(next() % 200),
                        2 => now.saturating_add(far(next())),
                        _ if step > 39_000 => u64::MAX,
                        _ => set.first().map_or(now, |(at, _)| *at),
                    };
                    let latest = wheel.now.max(now);
                    let mut fired = Vec::new();
                    wheel.advance(now, |timer| fired.push(timer.0));
                    let due: Vec<_> = set.range(..=(latest, usize::MAX)).copied().collect();
                    set.retain(|one| !due.contains(one));
                    fired.sort_unstable();
                    assert!(fired.iter().eq(due.iter().map(|(at, _)| at)), "step {step}");
                    if step % 5_000 < 8 {
                        wheel.take_all().for_each(|timer| timer.put(OUT));
                        set.clear();
                        now = 0;
                    }
                }
            }
        }
        assert_eq!(wheel.take_all().count(), set.len());
    }
}
