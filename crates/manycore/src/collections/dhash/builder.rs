//! Builder and constructors of [`DHash`].

use super::super::Line;
use super::super::reentrancy_lock::ReentrancyLock;
use super::distribution::{Distribution, Form};
use super::{DHash, Root, SHARDS, SHARDS_MAX, Shard};
use crate::cluster::{Clustered, Placement};
use std::hash::{BuildHasher, Hash, RandomState};

/// Settings of a [`DHash`], or of a [`PageCache`](super::super::PageCache).
///
/// ```
/// use manycore::cluster::Placement;
/// use manycore::collections::{DHashBuilder, Distribution};
///
/// let eager = DHashBuilder::new().placement(Placement::PerLlc).distribution(Distribution::Always);
/// let table = eager.build::<u64, String, bool>();
/// assert!(table.stats().is_distributed);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct DHashBuilder<S = RandomState> {
    placement: Placement,
    distribution: Distribution,
    shards: usize,
    hasher: S,
}

impl<K, Shared, Local> DHash<K, Shared, Local>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
{
    /// Makes an empty, centralized table. Once distributed, it has a local table for each thread.
    #[must_use]
    pub fn new() -> Self {
        DHashBuilder::new().build()
    }

    /// Makes an empty, centralized table. Once distributed, its local tables have this placement.
    #[must_use]
    pub fn with_placement(placement: Placement) -> Self {
        DHashBuilder::new().placement(placement).build()
    }
}

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes an empty table that hashes by `hasher`. [`DHashBuilder`] has more settings.
    #[must_use]
    pub fn with_hasher(placement: Placement, hasher: S) -> Self {
        DHashBuilder::new().placement(placement).hasher(hasher).build()
    }
}

impl DHashBuilder {
    /// Starts with the defaults: centralized until threads wait for each other, then a part for
    /// each thread.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Default for DHashBuilder {
    fn default() -> Self {
        let (placement, distribution) = (Placement::default(), Distribution::default());
        Self { placement, distribution, shards: SHARDS, hasher: RandomState::new() }
    }
}

impl<S> DHashBuilder<S> {
    /// Sets which threads share a local table once the table is distributed.
    ///
    /// With [`Placement::Shared`] the table does not distribute by itself: threads would wait for
    /// the same lock.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets when the table is distributed.
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// Sets the number of locks that the elements are divided among: 16 by default, rounded up to a
    /// power of two, at most 1,024.
    ///
    /// A shard takes 128 bytes, and some hundred more once it has an element. One shard is enough
    /// if a program has thousands of tables with a few elements each.
    ///
    /// ```
    /// use manycore::collections::DHashBuilder;
    ///
    /// let small = DHashBuilder::new().shards(1).build::<u64, String, bool>();
    /// small.insert(1, "one".into());
    /// assert_eq!(small.len(), 1);
    /// ```
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        self
    }

    /// Sets the hasher of the keys.
    pub fn hasher<T>(self, hasher: T) -> DHashBuilder<T> {
        let Self { placement, distribution, shards, .. } = self;
        DHashBuilder { placement, distribution, shards, hasher }
    }

    /// Makes the empty table.
    #[must_use]
    pub fn build<K, Shared, Local>(self) -> DHash<K, Shared, Local, S>
    where
        K: Eq + Hash + Clone + Send + Sync + 'static,
        Shared: Clone + Send + Sync + 'static,
        Local: Default + Send + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        let Self { placement, distribution, shards, hasher } = self;
        let is_pointless = placement == Placement::Shared && distribution != Distribution::Always;
        let form = Form::new(if is_pointless { Distribution::Never } else { distribution });
        let shard = |number| Line(ReentrancyLock::new(Shard::new(number, shards)));
        let shards = (0..shards).map(shard).collect();
        DHash { object: Clustered::new(placement, Root { shards, form, hasher }) }
    }
}
