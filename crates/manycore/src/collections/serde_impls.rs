//! serde's traits on the maps and sets of this module: feature `serde`.
//!
//! A map is written as a map and a set as a sequence: the entries that an iteration finds, which is
//! weakly consistent. Their number is written before them, so they are gathered first (two words
//! each); they stay valid as long as the view is open, which it is while user code writes them.
//! Those of a flat map are copies.

use super::{FlatHashMap, HashMap, HashSet, OrderedMap, Plain};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// Bytes of entries that are allocated for what a document says, before it has shown them.
const TRUSTED: usize = 1 << 20;

/// The entries to make room for.
fn capacity<T>(said: Option<usize>) -> usize {
    said.unwrap_or(0).min(TRUSTED / size_of::<T>().max(1))
}

/// As a map, of the entries that are there: no snapshot, as `iter` of a view.
impl<K, V, S> Serialize for HashMap<K, V, S>
where
    K: Serialize + Hash + Eq + Send + Sync,
    V: Serialize + Send + Sync,
    S: BuildHasher,
{
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let view = self.enter();
        let entries: Vec<_> = view.iter().collect();
        serializer.collect_map(entries)
    }
}

/// As a map, of the entries that are there, in order: no snapshot, as `iter` of a view.
impl<K: Serialize + Ord, V: Serialize> Serialize for OrderedMap<K, V> {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let view = self.enter();
        let entries: Vec<_> = view.iter().collect();
        serializer.collect_map(entries)
    }
}

/// As a map, of copies of the entries that are there: no snapshot, as [`FlatHashMap::iter`].
impl<K, V, S> Serialize for FlatHashMap<K, V, S>
where
    K: Serialize + Plain + Hash + Eq,
    V: Serialize + Plain,
    S: BuildHasher,
{
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let entries: Vec<_> = self.iter().collect();
        serializer.collect_map(entries)
    }
}

/// As a sequence, of the members that are there: no snapshot, as `iter` of a view.
impl<T, S> Serialize for HashSet<T, S>
where
    T: Serialize + Hash + Eq + Send + Sync,
    S: BuildHasher,
{
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let view = self.enter();
        let members: Vec<_> = view.iter().collect();
        serializer.collect_seq(members)
    }
}

/// Of two entries with one key the last one counts.
impl<'de, K, V, S> Deserialize<'de> for HashMap<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + Sync,
    V: Deserialize<'de> + Send + Sync,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries {
            make: |capacity| HashMap::with_capacity_and_hasher(capacity, S::default()),
            _entry: PhantomData::<(K, V)>,
        })
    }
}

/// Of two entries with one key the last one counts.
impl<'de, K, V, S> Deserialize<'de> for FlatHashMap<K, V, S>
where
    K: Deserialize<'de> + Plain + Hash + Eq,
    V: Deserialize<'de> + Plain,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries {
            make: |capacity| FlatHashMap::with_capacity_and_hasher(capacity, S::default()),
            _entry: PhantomData::<(K, V)>,
        })
    }
}

/// Makes a map of this capacity, and fills it.
struct Entries<F, K, V> {
    make: F,
    _entry: PhantomData<(K, V)>,
}

impl<'de, F, M, K, V> Visitor<'de> for Entries<F, K, V>
where
    F: FnOnce(usize) -> M,
    M: Extend<(K, V)>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<M, A::Error> {
        let mut map = (self.make)(capacity::<(K, V)>(entries.size_hint()));
        while let Some(entry) = entries.next_entry()? {
            map.extend([entry]);
        }
        Ok(map)
    }
}

/// Of two entries with one key the last one counts.
impl<'de, K, V> Deserialize<'de> for OrderedMap<K, V>
where
    K: Deserialize<'de> + Ord + Clone,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

struct InOrder<K, V>(PhantomData<(K, V)>);

impl<'de, K, V> Visitor<'de> for InOrder<K, V>
where
    K: Deserialize<'de> + Ord + Clone,
    V: Deserialize<'de>,
{
    type Value = OrderedMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::with_capacity(capacity::<(K, V)>(entries.size_hint()));
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(all.into_iter().collect())
    }
}

/// Of equal members one counts.
impl<'de, T, S> Deserialize<'de> for HashSet<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + Sync,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Members(PhantomData))
    }
}

struct Members<T, S>(PhantomData<(T, S)>);

impl<'de, T, S> Visitor<'de> for Members<T, S>
where
    T: Deserialize<'de> + Hash + Eq + Send + Sync,
    S: BuildHasher + Default,
{
    type Value = HashSet<T, S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let capacity = capacity::<T>(members.size_hint());
        let set = HashSet::with_capacity_and_hasher(capacity, S::default());
        while let Some(member) = members.next_element()? {
            set.insert(member);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_promise_too_much_allocate_little() {
        assert_eq!(capacity::<u64>(Some(usize::MAX)), TRUSTED / 8);
        assert_eq!((capacity::<u64>(Some(3)), capacity::<u64>(None)), (3, 0));
        assert_eq!(capacity::<()>(Some(usize::MAX)), TRUSTED);
    }
}
