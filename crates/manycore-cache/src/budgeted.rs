//! Caches that share one limit: the capacity of each cache is charged to a common budget. A cache
//! charges more when it needs room, and gives back when the budget asks.
//!
//! ```text
//!        budget: one limit for all its caches
//!          ^                          |
//!          | charge                   | asks for memory
//!          | (the pool is empty)      v
//!   insertion                  gives: the pool, spare capacity, then entries
//!
//!   granted = pool + spare + reserved + linked entries
//! ```
//!
//! Laws:
//! - budgeted.S1 In a budgeted cache, segment.G1 holds of the *granted* capacity, which is the
//!   capacity that the cache has charged. It grows by a batch when an insertion finds the pool
//!   empty, and shrinks when the budget asks. The builder's capacity bounds it.
//! - budgeted.S2 A cache gives capacity back only in a thread that holds no bucket's lock. Within a
//!   callback under a lock of any cache, it gives nothing back.

use crate::builder::{BuildError, Builder};
use crate::departure::Back;
use crate::reentrancy;
use crate::segment::take;
use crate::{Cache, Line};
use manycore::collections::BudgetTree;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// A cache charges this part of the budget's limit ahead: one in `BATCHES`.
const BATCHES: u64 = 1024;

/// A cache's part of a budget.
pub(crate) struct Budgeted {
    level: BudgetTree,
    batch: i64,
    /// Capacity that is charged to `level` (budgeted.S1).
    granted: Line<AtomicI64>,
    /// The segment that gives first next time.
    next: AtomicUsize,
}

impl Budgeted {
    pub(crate) fn granted(&self) -> i64 {
        // ORDER: Relaxed; a count.
        self.granted.0.load(Ordering::Relaxed)
    }

    /// Charges `wanted`, and a batch more if the budget has it. Returns the amount charged.
    fn charge(&self, wanted: i64) -> i64 {
        let charged = [wanted.saturating_add(self.batch), wanted]
            .into_iter()
            .find(|amount| self.level.try_charge(amount.unsigned_abs()).is_ok());
        let charged = charged.unwrap_or(0);
        // ORDER: Relaxed; a count.
        self.granted.0.fetch_add(charged, Ordering::Relaxed);
        charged
    }

    fn release(&self, capacity: i64) {
        // ORDER: Relaxed; a count.
        let before = self.granted.0.fetch_sub(capacity, Ordering::Relaxed);
        debug_assert!(capacity <= before, "budgeted.S1: {capacity} given back of {before}");
        self.level.release(capacity.unsigned_abs());
    }
}

impl Drop for Budgeted {
    fn drop(&mut self) {
        self.level.release(self.granted.0.get_mut().unsigned_abs());
    }
}

impl<K, V, S> Builder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds a cache that charges the weight of its entries to `budget`, and gives back when
    /// others need it. Caches that are built within one budget share its limit. The cache with the
    /// fewest recent hits for what it holds gives first. The builder's capacity is the most that
    /// this cache may take of the budget; at first it has nothing.
    ///
    /// - The weight that [`weigher`](Self::weigher) returns is charged (in bytes, if the budget
    ///   counts bytes). Up to a 1,024th of the limit is charged ahead, and the weight of removed
    ///   entries stays charged until the budget asks for it. Tables and [garbage](crate#memory)
    ///   come on top, and so does one entry of each thread that is inserting and got nothing.
    /// - An insertion that finds the limit reached asks the budget's users, this cache included. It
    ///   evicts entries here or in other caches, and the listeners of those run in the inserting
    ///   thread. It may wait for an eviction in another thread, as
    ///   [`on_reclaim`](BudgetTree::on_reclaim) says. If it gets nothing, it evicts here.
    /// - A request asks for a batch of the budget more than is missing. So give the budget a small
    ///   batch, as in the example.
    /// - Within a callback that runs under a cache's lock, caches give nothing to each other.
    /// - Reads are counted, as by [`count_reads`](Self::count_reads).
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// ```
    /// use manycore::collections::BudgetTree;
    /// use manycore_cache::{BuildError, Cache};
    ///
    /// let bytes = BudgetTree::with_batch(1 << 20, 1 << 10);
    /// let weigh = |_: &u64, page: &Vec<u8>| page.len() as u32;
    /// let pages = Cache::builder(1 << 20).weigher(weigh).build_within(&bytes)?;
    /// let thumbnails = Cache::builder(1 << 18).weigher(weigh).build_within(&bytes)?;
    /// for n in 0..2000 {
    ///     pages.insert(n, vec![0; 1024]);
    /// }
    /// for n in 0..100 {
    ///     thumbnails.insert(n, vec![0; 1024]);
    ///     assert!(thumbnails.get(&n).is_some());
    /// }
    /// assert!(pages.weight() + thumbnails.weight() <= bytes.used());
    /// assert!(bytes.used() <= 1 << 20 && thumbnails.len() == 100);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn build_within(self, budget: &BudgetTree) -> Result<Arc<Cache<K, V, S>>, BuildError> {
        let mut cache = self.count_reads(true).build()?;
        let level = budget.child_with_batch(cache.capacity(), 0);
        let batch = i64::try_from(budget.limit() / BATCHES).unwrap_or(i64::MAX);
        cache.pool = Line(AtomicI64::new(0));
        cache.is_simple = false;
        Ok(Arc::new_cyclic(|cyclic| {
            let weak = cyclic.clone();
            let reclaimer = level.on_reclaim(move |wanted| {
                weak.upgrade().map_or(0, |cache: Arc<Cache<K, V, S>>| cache.shrink_by(wanted))
            });
            cache.counts.note_hits_to(reclaimer);
            let granted = Line(AtomicI64::new(0));
            let next = AtomicUsize::new(0);
            cache.budgeted = Some(Box::new(Budgeted { level, batch, granted, next }));
            cache
        }))
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Charges more capacity. The caller gets up to `wanted` of it, and the pool gets the rest.
    #[cold]
    pub(crate) fn grow_within(&self, budgeted: &Budgeted, wanted: i64) -> i64 {
        let charged = budgeted.charge(wanted);
        let own = charged.min(wanted);
        self.give_back(charged - own);
        own
    }

    /// Sets the most that a budgeted cache may have. The budget asks the cache for what exceeds it.
    pub(crate) fn set_capacity_within(budgeted: &Budgeted, capacity: u64) {
        budgeted.level.set_limit(capacity);
    }

    /// Gives about `wanted` of the granted capacity back to the budget: unused capacity first, then
    /// one entry of each segment in turn, so that all segments lose alike. Returns how much it
    /// gave.
    fn shrink_by(&self, wanted: u64) -> u64 {
        let Some(budgeted) = &self.budgeted else { return 0 };
        if reentrancy::is_under_lock() {
            return 0; // budgeted.S2
        }
        let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
        let mut held = Back { cache: self, capacity: take(&self.pool.0, wanted) };
        for segment in &self.segments {
            held.capacity += segment.take_spare(wanted - held.capacity);
        }
        let mut empty = 0;
        while held.capacity < wanted && empty < self.segments.len() {
            // ORDER: Relaxed; a hint.
            let next = budgeted.next.fetch_add(1, Ordering::Relaxed) % self.segments.len();
            // A section for each entry: a long one would hold reclamation back.
            let section = self.domain.enter();
            match self.evict(&self.segments[next], None, None, &section) {
                Some(weight) => (held.capacity, empty) = (held.capacity + weight, 0),
                None => empty += 1,
            }
        }
        let given = held.capacity;
        std::mem::forget(held);
        budgeted.release(given);
        given.unsigned_abs()
    }
}
