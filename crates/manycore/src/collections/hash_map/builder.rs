//! Construction of maps: the constructors and the builder.

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

/// Builder for a [`HashMap`]: capacity, hasher, domain and weigher.
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
/// Entries of a map in a shared domain may be dropped long after the map, so they cannot borrow:
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
    /// Makes `K` and `V` invariant. `domain` requires `'static` types, and no lifetime in them may
    /// be shortened before `build`, because entries that wait in that domain may outlive the map.
    _map: PhantomData<Invariant<K, V>>,
}

impl<K, V> HashMap<K, V> {
    /// Makes an empty map with a domain of its own. Allocates nothing until the first insertion.
    #[must_use]
    pub fn new() -> Self {
        HashMapBuilder::new().build()
    }

    /// Makes an empty map with room for `capacity` entries.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        HashMapBuilder::new().capacity(capacity).build()
    }

    /// Returns a builder for a map with another capacity, hasher, domain or weigher.
    pub fn builder() -> HashMapBuilder<K, V> {
        HashMapBuilder::new()
    }
}

impl<K, V, S> HashMap<K, V, S> {
    const_fn! {
        /// Makes an empty map that hashes with `hasher`. Allocates nothing until the first
        /// insertion.
        ///
        /// Use this for a `static` map, with a hasher that can be made at compile time. The hasher
        /// of [`new`](HashMap::new) draws a random number, so a map with it needs a `LazyLock`.
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

    /// Makes an empty map that hashes with `hasher` and has room for `capacity` entries.
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
    /// Sets the number of entries that the map takes before it grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// Sets the hasher of the keys.
    pub fn hasher<T>(self, hasher: T) -> HashMapBuilder<K, V, T> {
        let Self { capacity, domain, weigher, .. } = self;
        HashMapBuilder { capacity, hasher, domain, weigher, _map: PhantomData }
    }

    /// Sets the function that returns the bytes that an entry owns on the heap. The domain's budget
    /// then counts removed and replaced entries by their true size: see
    /// [`Weight`](crate::section::Weight). Without a weigher, entries with drop glue are of unknown
    /// weight. A weigher does not change when entries are dropped.
    ///
    /// It is called once for each entry that leaves, without a lock. If it panics, the update has
    /// been done, and the entry counts as an entry of unknown weight.
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

    /// Sets the domain whose sections the map uses, in place of a domain of its own. Maps with a
    /// common domain need less memory, and a thread that has views of several of them enters once.
    /// But a long view of one map keeps entries alive that were removed from another.
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

    /// Builds the map. Allocates the table now if a [`capacity`](Self::capacity) was set. Otherwise
    /// the first insertion does.
    ///
    /// # Panics
    /// If the buckets for that capacity need more memory than there can be.
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

/// Makes type parameters invariant: lifetimes in them can be neither shortened nor lengthened.
type Invariant<K, V> = fn(K, V) -> (K, V);
