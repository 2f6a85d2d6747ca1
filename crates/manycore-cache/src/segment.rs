//! Segments: which entries go when room is wanted.
//!
//! Owns: the table of a segment, its hands, its part of the capacity. A segment holds the keys of
//! some hashes, and evicts among them alone, so that nobody waits for a list of all (K15: local
//! decisions instead of a global policy).
//!
//! Laws:
//! - G1 Capacity is in one place: in the common pool, spare in a segment, reserved by a thread that
//!   is about to link, or used by linked entries. Who links has reserved before, but for E1.
//! - G2 Nobody holds two buckets' locks, except who replaces a table, who holds all of that table.
//! - G3 The hands are hints: two evictors at one hand may look at a bucket twice.
//!
//! Source: CLOCK in shards as in Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016),
//! section 5.2; the scan-resistant policy after Yang et al., "FIFO queues are all you need for
//! cache eviction" (SOSP 2023), with hands over the table in place of queues.

use crate::node::Node;
use crate::table::{AGED, Locked, MAIN, Slot, Table};
use manycore::section::Section;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Which entry goes when room is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Eviction {
    /// The CLOCK of the ParSec paper, in shards: an entry that was used since the hand came by
    /// stays for another round. The cheapest; a scan over many keys that are used once empties it.
    Clock,
    /// New entries are on trial: a twentieth of the entries at most, while others have proved to be
    /// used again. A scan passes through the trial and leaves the rest alone. Keys that were
    /// evicted not long ago are remembered, and are not tried again. After S3-FIFO.
    #[default]
    ScanResistant,
}

/// Of how many entries one may be on trial.
const TRIAL_SHARE: usize = 20;
/// How often a used entry is passed over.
const HEAT_MAX: u8 = 3;
/// Uses with which an entry has proved itself.
const HEAT_PROVED: u8 = 1;

impl Eviction {
    #[inline(always)]
    pub(crate) fn heat_max(self) -> u8 {
        if self == Eviction::Clock { 1 } else { HEAT_MAX }
    }
}

/// Where a hand stands: the bucket, and the place in its chain.
#[derive(Default)]
struct Hand(AtomicU64);

impl Hand {
    fn get(&self, buckets: usize) -> (usize, usize) {
        // ORDER: Relaxed; a hint (G3).
        let at = self.0.load(Ordering::Relaxed);
        ((at >> 16) as usize % buckets, at as usize & 0xffff)
    }

    fn set(&self, bucket: usize, place: usize) {
        // ORDER: Relaxed; a hint (G3).
        self.0.store((bucket as u64) << 16 | place as u64 & 0xffff, Ordering::Relaxed);
    }
}

#[repr(align(128))]
pub(crate) struct Segment<K, V> {
    /// Read by everybody, written when the table is replaced.
    table: AtomicPtr<Table<K, V>>,
    changing: Changing,
}

/// What updates write.
#[repr(align(128))]
struct Changing {
    entries: AtomicUsize,
    /// Entries on trial.
    young: AtomicUsize,
    /// Capacity that was made free here and is not used yet.
    spare: AtomicI64,
    main: Hand,
    trial: Hand,
    broom: Hand,
    growing: AtomicBool,
}

impl<K, V> Segment<K, V> {
    pub(crate) fn new(buckets: usize, eviction: Eviction) -> Self {
        let table = Table::new(buckets, eviction == Eviction::ScanResistant);
        Self {
            table: AtomicPtr::new(Box::into_raw(Box::new(table))),
            changing: Changing {
                entries: AtomicUsize::new(0),
                young: AtomicUsize::new(0),
                spare: AtomicI64::new(0),
                main: Hand::default(),
                trial: Hand::default(),
                broom: Hand::default(),
                growing: AtomicBool::new(false),
            },
        }
    }

    /// The table. A replaced one is kept by the section.
    #[inline(always)]
    pub(crate) fn table<'s>(&'s self, _section: &'s Section<'_>) -> &'s Table<K, V> {
        // ORDER: Acquire; pairs with Release in `grow`: the table before its link.
        // SAFETY: never null; replaced tables are retired through the section's domain.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    pub(crate) fn entries(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.changing.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn spare(&self) -> i64 {
        // ORDER: Relaxed; a count.
        self.changing.spare.load(Ordering::Relaxed)
    }

    /// An entry more, in this state.
    #[inline]
    pub(crate) fn count(&self, state: usize) {
        // ORDER: Relaxed; a count.
        self.changing.entries.fetch_add(1, Ordering::Relaxed);
        if state & MAIN == 0 {
            // ORDER: Relaxed; a count.
            self.changing.young.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_less(&self, entries: usize) {
        // ORDER: Relaxed; a count.
        self.changing.entries.fetch_sub(entries, Ordering::Relaxed);
    }

    /// Unlinks; the counts of entries are the caller's.
    pub(crate) fn unlink<'t>(&self, locked: &Locked<'t, K, V>, slot: Slot<'t, K, V>) {
        if slot.state() & MAIN == 0 {
            self.less_young();
        }
        locked.clear(slot);
    }

    fn less_young(&self) {
        // ORDER: Relaxed; a count.
        self.changing.young.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes up to so much of the spare capacity.
    pub(crate) fn take_spare(&self, wanted: i64) -> i64 {
        take(&self.changing.spare, wanted)
    }

    pub(crate) fn add_spare(&self, capacity: i64) {
        // ORDER: Relaxed; a count.
        self.changing.spare.fetch_add(capacity, Ordering::Relaxed);
    }

    /// Unlinks the entry that is worth the least; the caller counts it and retires it. `None` if
    /// nothing was found.
    pub(crate) fn evict(
        &self,
        eviction: Eviction,
        section: &Section<'_>,
    ) -> Option<NonNull<Node<K, V>>> {
        let trial = || {
            // ORDER: Relaxed; a count, which may pass zero downwards for a moment.
            let young = self.changing.young.load(Ordering::Relaxed) as isize;
            young > (self.entries() / TRIAL_SHARE).max(1) as isize
        };
        if eviction == Eviction::ScanResistant && trial() {
            let rounds = |slot: Slot<'_, K, V>| slot.state() & MAIN == 0;
            if let Some(node) = self.sweep(&self.changing.trial, 3, section, rounds, judge_young) {
                return Some(node);
            }
        }
        let proved = |slot: Slot<'_, K, V>| slot.state() & MAIN != 0;
        self.sweep(&self.changing.main, 2, section, proved, judge)
            .or_else(|| self.sweep(&self.changing.main, 2, section, |_| true, judge_hard))
    }

    /// Turns a hand until a verdict is to evict, at most so many times round.
    fn sweep<'s>(
        &'s self,
        hand: &Hand,
        rounds: usize,
        section: &'s Section<'_>,
        concerns: impl Fn(Slot<'s, K, V>) -> bool,
        verdict: impl Fn(&Locked<'s, K, V>, Slot<'s, K, V>) -> Verdict,
    ) -> Option<NonNull<Node<K, V>>> {
        let table = self.table(section);
        let buckets = table.buckets();
        let (mut index, mut from) = hand.get(buckets.len());
        for _ in 0..=rounds * buckets.len() {
            let bucket = &buckets[index];
            let next = (index + 1) % buckets.len();
            crate::table::prefetch(&buckets[next]);
            let candidate = |slot: &Slot<'s, K, V>| slot.node().is_some() && concerns(*slot);
            if bucket.slots().skip(from).any(|slot| candidate(&slot)) {
                let Some(locked) = bucket.lock() else {
                    return self.sweep(hand, rounds, section, concerns, verdict);
                };
                for (at, slot) in locked.slots().enumerate().skip(from) {
                    let Some(node) = slot.node().filter(|_| concerns(slot)) else { continue };
                    match verdict(&locked, slot) {
                        Verdict::Stay => {}
                        Verdict::Proved => self.less_young(),
                        Verdict::Go => {
                            if slot.state() & MAIN == 0 {
                                table.remember(index, slot);
                            }
                            self.unlink(&locked, slot);
                            hand.set(index, at + 1);
                            return Some(node);
                        }
                    }
                }
            }
            (index, from) = (next, 0);
        }
        hand.set(index, 0);
        None
    }

    /// Calls `look` with the bucket after the one of last time.
    pub(crate) fn next_bucket(&self, buckets: usize) -> usize {
        let (index, _) = self.changing.broom.get(buckets);
        self.changing.broom.set((index + 1) % buckets, 0);
        index
    }

    /// Replaces the table by one of so many buckets, unless somebody does (T4, G2).
    pub(crate) fn grow(
        &self,
        buckets: usize,
        section: &Section<'_>,
        place_of: impl Fn(&Node<K, V>) -> crate::table::Place,
    ) where
        K: Send + Sync,
        V: Send + Sync,
    {
        unsafe fn free<K, V>(table: NonNull<()>) {
            // SAFETY: made by `Box::into_raw`, retired once.
            drop(unsafe { Box::from_raw(table.cast::<Table<K, V>>().as_ptr()) });
        }
        // ORDER: Acquire and Release; the next one to grow sees the table of the last.
        if self.changing.growing.swap(true, Ordering::Acquire) {
            return;
        }
        let _grown = Grown(&self.changing.growing);
        let old = self.table(section);
        if old.buckets().len() >= buckets {
            return;
        }
        let next = Box::new(Table::new(buckets, old.has_ghosts()));
        let locks: Vec<_> = old
            .buckets()
            .iter()
            .map(|bucket| bucket.lock().expect("only who grows replaces the table"))
            .collect();
        next.take_over(&locks, place_of);
        // ORDER: Release; pairs with Acquire in `table`.
        self.table.store(Box::into_raw(next), Ordering::Release);
        locks.into_iter().for_each(Locked::give_up);
        let bytes = old.bytes();
        // SAFETY: unlinked just now by the only one who may; what it leads to stays linked.
        unsafe { section.retire_raw(NonNull::from(old).cast(), bytes, free::<K, V>) };
    }
}

/// Growth is over, also if a hash panicked.
struct Grown<'a>(&'a AtomicBool);

impl Drop for Grown<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

enum Verdict {
    Stay,
    Proved,
    Go,
}

/// The main hand: who was used stays, and is a degree colder.
fn judge<K, V>(_: &Locked<'_, K, V>, slot: Slot<'_, K, V>) -> Verdict {
    match slot.heat_now() {
        0 => Verdict::Go,
        heat => {
            slot.set_heat(heat - 1);
            Verdict::Stay
        }
    }
}

/// The hand over those on trial: who was used has proved itself, who was not goes when the hand
/// comes again.
fn judge_young<'t, K, V>(locked: &Locked<'t, K, V>, slot: Slot<'t, K, V>) -> Verdict {
    if slot.heat_now() >= HEAT_PROVED {
        slot.set_heat(0);
        locked.mark(slot, MAIN);
        Verdict::Proved
    } else if slot.state() & AGED == 0 {
        locked.mark(slot, AGED);
        Verdict::Stay
    } else {
        Verdict::Go
    }
}

/// Everybody is in use: the first one goes.
fn judge_hard<K, V>(_: &Locked<'_, K, V>, _: Slot<'_, K, V>) -> Verdict {
    Verdict::Go
}

/// Takes up to so much from a count that may be below zero.
pub(crate) fn take(from: &AtomicI64, wanted: i64) -> i64 {
    // ORDER: Relaxed; counts of capacity, which order nothing.
    let mut there = from.load(Ordering::Relaxed);
    loop {
        let taken = wanted.min(there);
        if taken <= 0 {
            return 0;
        }
        let left = there - taken;
        match from.compare_exchange_weak(there, left, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return taken,
            Err(now) => there = now,
        }
    }
}

impl<K, V> Drop for Segment<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and `&mut self`: nobody else has it.
        let table = unsafe { Box::from_raw(*self.table.get_mut()) };
        for node in table.buckets().iter().flat_map(|bucket| bucket.slots()).filter_map(Slot::node)
        {
            // SAFETY: linked, so not retired, and nobody else sees it any more.
            drop(unsafe { crate::node::Fresh::adopt(node) });
        }
    }
}
