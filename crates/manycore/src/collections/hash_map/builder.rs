//! How a map is made.

use super::super::Counter;
use super::super::growth::{Growing, Growth, Root, buckets_for};
use super::table::Table;
use super::{HashMap, MapDomain};
use crate::config::MAP_LOAD;
use crate::section::{Domain, Owned};
use crate::sync::const_fn;
use std::fmt;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;

/// Settings of a [`HashMap`].
///
/// ```
/// use manycore::collections::HashMap;
/// use manycore::section::Domain;
/// use std::sync::Arc;
///
/// // Two maps whose views are short: their garbage can wait for both.
/// let domain = Arc::new(Domain::new());
/// let users = HashMap::builder().domain(Arc::clone(&domain)).capacity(1_000).build();
/// let names = HashMap::builder().domain(domain).build();
/// names.enter().insert(7, String::from("ann"));
/// users.enter().insert(String::from("ann"), 7);
/// ```
///
/// Entries of a map in a shared domain may be dropped long after the map, so they can't borrow:
/// ```compile_fail
/// use manycore::{collections::HashMap, section::Domain};
/// use std::sync::Arc;
///
/// let domain = Arc::new(Domain::new());
/// let text = String::from("gone soon");
/// let map = HashMap::<u32, &str>::builder().domain(Arc::clone(&domain)).build();
/// map.enter().insert(1, text.as_str());
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct HashMapBuilder<K, V, S = RandomState> {
    capacity: usize,
    hasher: S,
    domain: Option<Arc<Domain>>,
    weigher: Option<fn(&K, &V) -> usize>,
    /// Invariant: `domain` asks for types that outlive everything, and none may be shortened before
    /// `build`, because what waits in that domain may outlive the map.
    _map: PhantomData<Invariant<K, V>>,
}

impl<K, V> HashMap<K, V> {
    /// An empty map with a domain of its own. Allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        HashMapBuilder::new().build()
    }

    /// An empty map that takes so many entries before it grows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        HashMapBuilder::new().capacity(capacity).build()
    }

    /// Starts a map with other settings: capacity, hasher, domain.
    pub fn builder() -> HashMapBuilder<K, V> {
        HashMapBuilder::new()
    }
}

impl<K, V, S> HashMap<K, V, S> {
    const_fn! {
        /// An empty map that hashes by `hasher`. Allocates nothing until the first insertion.
        ///
        /// The way to a `static` map, with a hasher that can be made at compile time. That of
        /// [`new`](HashMap::new) draws a random number: such a map goes into a `LazyLock`.
        ///
        /// ```
        /// use manycore::collections::HashMap;
        /// use std::hash::{BuildHasherDefault, DefaultHasher};
        ///
        /// static PORTS: HashMap<u16, &str, BuildHasherDefault<DefaultHasher>> =
        ///     HashMap::with_hasher(BuildHasherDefault::new());
        ///
        /// PORTS.insert(80, "http");
        /// assert_eq!(PORTS.get_cloned(&80), Some("http"));
        /// ```
        #[must_use]
        pub const fn with_hasher(hasher: S) -> Self {
            Self {
                root: Root::new(),
                hasher,
                count: Counter::new(0),
                weigher: None,
                domain: MapDomain::own(),
            }
        }
    }

    /// An empty map that hashes by `hasher` and takes so many entries before it grows.
    #[must_use]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        HashMapBuilder::new().capacity(capacity).hasher(hasher).build()
    }
}

impl<K, V> HashMapBuilder<K, V> {
    pub(super) fn new() -> Self {
        let hasher = RandomState::new();
        Self { capacity: 0, hasher, domain: None, weigher: None, _map: PhantomData }
    }
}

impl<K, V, S> HashMapBuilder<K, V, S> {
    /// Entries that the map takes before it grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// What hashes the keys.
    pub fn hasher<T>(self, hasher: T) -> HashMapBuilder<K, V, T> {
        let Self { capacity, domain, weigher, .. } = self;
        HashMapBuilder { capacity, hasher, domain, weigher, _map: PhantomData }
    }

    /// Tells the bytes that an entry owns on the heap, so that the domain's budget counts removed
    /// and replaced entries as what they are: see [`Weight`](crate::section::Weight). Without it,
    /// entries with drop glue are of unknown weight. It does not change when entries are dropped.
    ///
    /// Called once for each entry that leaves, without a lock. If it panics, the update has been
    /// done, and the entry counts as one of unknown weight.
    ///
    /// ```
    /// use manycore::collections::HashMap;
    ///
    /// let pages: HashMap<u32, Vec<u8>> =
    ///     HashMap::builder().weigher(|_, page: &Vec<u8>| page.capacity()).build();
    /// pages.enter().insert(1, vec![0; 1 << 20]);
    /// ```
    pub fn weigher(mut self, heap_bytes: fn(&K, &V) -> usize) -> Self {
        self.weigher = Some(heap_bytes);
        self
    }

    /// Whose sections the map uses, in place of a domain of its own: maps with a common domain cost
    /// less memory, a thread that is in views of both enters once, and a long view of one keeps
    /// what was removed from the other.
    ///
    /// Entries wait in the domain and may be dropped after the map; hence `'static`.
    pub fn domain(mut self, domain: Arc<Domain>) -> Self
    where
        K: 'static,
        V: 'static,
    {
        self.domain = Some(domain);
        self
    }

    /// Makes the map. Allocates the table, if a [`capacity`](Self::capacity) was asked for; else
    /// the first insertion does.
    ///
    /// # Panics
    /// If so many buckets need more memory than there can be.
    pub fn build(self) -> HashMap<K, V, S> {
        let mut map = HashMap::with_hasher(self.hasher);
        map.weigher = self.weigher;
        map.domain = self.domain.map_or_else(MapDomain::own, MapDomain::Shared);
        if self.capacity > 0 {
            let buckets = buckets_for(self.capacity, MAP_LOAD);
            map.root.set_floor(self.capacity);
            map.root.put(Owned::new(Table::with_buckets(buckets, Growth::none())));
        }
        map
    }
}

impl<K, V, S> fmt::Debug for HashMapBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMapBuilder")
            .field("capacity", &self.capacity)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

/// What a type parameter in it can neither be shortened nor lengthened by.
type Invariant<K, V> = fn(K, V) -> (K, V);
