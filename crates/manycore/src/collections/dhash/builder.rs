//! How a table is made.

use super::super::Line;
use super::super::reentrancy_lock::ReentrancyLock;
use super::replication::{Form, Spread};
use super::{DHash, Root, SHARDS, Shard};
use crate::cluster::{Clustered, Placement};
use std::hash::{BuildHasher, Hash, RandomState};

/// Settings of a [`DHash`], or of a [`PageCache`](super::super::PageCache).
///
/// ```
/// use manycore::cluster::Placement;
/// use manycore::collections::{DHashBuilder, Spread};
///
/// let eager = DHashBuilder::new().placement(Placement::PerLlc).spread(Spread::Always);
/// let table = eager.build::<u64, String, bool>();
/// assert!(table.stats().is_spread);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct DHashBuilder<S = RandomState> {
    placement: Placement,
    spread: Spread,
    hasher: S,
}

impl DHashBuilder {
    /// The defaults: in one until threads wait for each other, and then a part for each thread.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Default for DHashBuilder {
    fn default() -> Self {
        let (placement, spread) = (Placement::default(), Spread::default());
        Self { placement, spread, hasher: RandomState::new() }
    }
}

impl<S> DHashBuilder<S> {
    /// The threads that share a local table once it is spread.
    ///
    /// With [`Placement::Shared`] it does not spread by itself: the same lock would be waited for.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// When it spreads.
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// What hashes the keys.
    pub fn hasher<T>(self, hasher: T) -> DHashBuilder<T> {
        let Self { placement, spread, .. } = self;
        DHashBuilder { placement, spread, hasher }
    }

    /// Makes the table, empty.
    #[must_use]
    pub fn build<K, Shared, Local>(self) -> DHash<K, Shared, Local, S>
    where
        K: Eq + Hash + Clone + Send + Sync + 'static,
        Shared: Clone + Send + Sync + 'static,
        Local: Default + Send + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        let Self { placement, spread, hasher } = self;
        let is_pointless = placement == Placement::Shared && spread != Spread::Always;
        let form = Form::new(if is_pointless { Spread::Never } else { spread });
        let shards =
            (0..SHARDS).map(|number| Line(ReentrancyLock::new(Shard::new(number)))).collect();
        DHash { object: Clustered::new(placement, Root { shards, form, hasher }) }
    }
}
