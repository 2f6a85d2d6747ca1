//! Relocation: moves entries to other memory, against fragmentation.

use crate::table::Slot;
use crate::{Cache, Cursor, Entry};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Replaces each entry for which `copy` returns a copy. For the owner of the
    /// [memory](crate::NodeMemory), to free some of it.
    ///
    /// Visits the entries of some buckets from the cursor on, as [`scan`](Self::scan) does. An
    /// entry that is inserted in the course of a walk may be missed.
    ///
    /// A copy must be equal to its entry, and end when it does. It keeps the entry's place in the
    /// order of eviction, and no listener is called. `copy` runs without a lock. Then `settle` runs
    /// under the bucket's lock, with the entry and its copy: it may take over what has changed in
    /// the entry since.
    ///
    /// # Panics
    /// If the cache keeps metadata, because an entry's version and times would be lost.
    pub fn relocate(
        &self,
        cursor: Cursor,
        buckets: usize,
        mut copy: impl FnMut(Entry<'_, K, V>) -> Option<(K, V)>,
        mut settle: impl FnMut(Entry<'_, K, V>, Entry<'_, K, V>),
    ) -> Option<Cursor> {
        assert!(self.ends.is_some(), "manycore: only entries without metadata can be relocated");
        self.begin_update();
        let section = self.domain.enter();
        let (table, step, next) = self.step(cursor, buckets, &section)?;
        for index in step {
            let bucket = &table.buckets()[index];
            if let Some(next) = table.buckets().get(index + 1) {
                crate::prefetch::prefetch(next);
            }
            for node in bucket.slots().filter_map(Slot::node) {
                // SAFETY: the node was linked a moment ago, so the section keeps it.
                let entry = || unsafe { self.entry(node) };
                let Some((key, value)) = copy(entry()) else { continue };
                let none = |_: &K, _: &V| unreachable!("it has no metadata");
                let fresh = self.home.make(self.kind(), key, value, &section, none);
                let weight = self.weight_of(fresh.address());
                let old_weight = self.weight_of(node);
                let Some(locked) = table.lock(bucket) else { break };
                let Some(slot) = locked.slot_of(node) else { continue };
                // SAFETY: node.N1 - the node is not linked yet, so only this call has it, and
                // `fresh` keeps it until `publish`. `settle` cannot keep the entry longer.
                let new = unsafe { self.entry(fresh.address()) };
                self.under_lock(|| settle(entry(), new));
                if locked.replace(slot, node, fresh.address()) == Some(true) {
                    locked.set_pinned(slot, true);
                }
                drop(locked);
                fresh.publish();
                // ORDER: Relaxed; counts of capacity order nothing. If the pool falls below zero,
                // later updates pay it back.
                self.pool.0.fetch_add(old_weight - weight, Ordering::Relaxed);
                // SAFETY: node.N1 - the node was unlinked above, under its bucket's lock.
                unsafe {
                    crate::Node::retire(node, &self.home, self.kind(), &section, old_weight);
                }
            }
        }
        next
    }
}
