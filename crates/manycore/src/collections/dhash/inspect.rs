//! A table's content and form, counted and cloned from one part after the other.

use super::distribution::DHashStats;
use super::element::LocalElement;
use super::reentrancy::TableUse;
use super::table::Table;
use super::{DHash, enter};
use std::hash::{BuildHasher, Hash};
use std::ptr;

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the number of elements, counted in one part of the table after the other.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn len(&self) -> usize {
        enter!(self);
        (0..self.shards()).map(|shard| self.shard(shard).table.len()).sum()
    }

    /// Returns true if there is no element.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns clones of all keys and shared parts, from one part of the table after the other.
    ///
    /// # Panics
    /// From within an element of the table, and if cloning does.
    #[track_caller]
    pub fn snapshot(&self) -> Vec<(K, Shared)> {
        let mut clones = Vec::new();
        enter!(self);
        for shard in 0..self.shards() {
            let shard = self.shard(shard);
            clones.extend(shard.table.iter().map(|own| (own.key.clone(), own.shared.clone())));
        }
        clones
    }

    /// Returns clones of all keys, from one part of the table after the other.
    ///
    /// # Panics
    /// From within an element of the table, and if cloning does.
    #[track_caller]
    pub fn keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        enter!(self);
        for shard in 0..self.shards() {
            keys.extend(self.shard(shard).table.iter().map(|element| element.key.clone()));
        }
        keys
    }

    /// Returns the number of local parts in all places now. The central parts, used while the table
    /// is centralized, do not count.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn replicas(&self) -> usize {
        enter!(self);
        self.sizes(Table::len)
    }

    /// Returns the number of elements that fit into all tables, master and local, at their present
    /// size.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn capacity(&self) -> usize {
        enter!(self);
        let masters: usize =
            (0..self.shards()).map(|shard| self.shard(shard).table.capacity()).sum();
        masters + self.sizes(Table::capacity)
    }

    fn sizes(&self, size: impl Fn(&Table<LocalElement<K, Shared, Local>>) -> usize) -> usize {
        self.object.gather(0, |sum, place| sum + size(&place.table.hold()))
    }

    /// Returns whether the table is distributed, and why.
    ///
    /// ```
    /// use manycore::collections::{DHash, DistributionReason};
    ///
    /// let table = DHash::<u32, &str, u32>::new();
    /// assert!(!table.stats().is_distributed, "no thread waits");
    /// assert!(table.distribute());
    /// assert_eq!(table.stats().reason, DistributionReason::Asked);
    /// println!("{}", table.stats());
    /// ```
    pub fn stats(&self) -> DHashStats {
        self.object.root().form.stats()
    }
}
