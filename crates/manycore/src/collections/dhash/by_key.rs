//! Calls that find an element by its key, and calls about all elements.

use super::reentrancy::TableUse;
use super::{DHash, Lookup, enter, shard_of};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ptr;

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Runs `f` on the element's shared part and a local part: that of the calling thread's place
    /// if the table is distributed, else the part that all threads use. Returns `None` if there is
    /// no such element.
    ///
    /// # Panics
    /// If `f` does, or if it uses the table (see the type).
    #[inline]
    #[track_caller]
    pub fn with_local<Q, T>(&self, key: &Q, f: impl FnOnce(&Shared, &mut Local) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with_local_at(&mut Lookup::new(self.hash(key)), |_, own| own.borrow() == key, f)
    }

    /// Returns a clone of the element's shared part.
    ///
    /// # Panics
    /// From within an element of the table.
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Option<Shared>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with_local(key, |shared, _| shared.clone())
    }

    /// Returns true if there is such an element.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with_local(key, |_, _| ()).is_some()
    }

    /// Adds an element. If the key has an element, replaces its shared part and returns the old
    /// one; local parts stay.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn insert(&self, key: K, mut shared: Shared) -> Option<Shared> {
        let hash = self.hash(&key);
        let mut out = Vec::new(); // dhash.M4: as `key` and `shared`, it outlives the locks
        {
            enter!(self);
            let mut shard = self.shard_for(hash);
            let Some(element) = shard.table.find_mut(hash, |element| element.key == key) else {
                shard.add(hash, key, shared);
                return None;
            };
            self.hold_all(element).share(&mut element.shared, &mut shared, &mut out);
        }
        drop((key, out)); // dhash.M10
        Some(shared)
    }

    /// Adds an element.
    ///
    /// # Errors
    /// If there is an element with this key. It stays as it is, and `shared` comes back.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn try_insert(&self, key: K, shared: Shared) -> Result<(), Shared> {
        let hash = self.hash(&key);
        match self.add(hash, key, shared, false) {
            Ok(_) => Ok(()),
            Err((_, key, shared)) => {
                drop(key); // dhash.M10
                Err(shared)
            }
        }
    }

    /// Removes everything, one part of the table after the other.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn clear(&self) {
        for number in 0..self.shards() {
            let (mut nears, mut elements) = (Vec::new(), Vec::new()); // dhash.M4
            enter!(self);
            let mut shard = self.shard(number);
            let mut tables: Vec<_> =
                self.object.reps().map(|(_, place)| place.table.hold()).collect();
            for table in &mut tables {
                nears.push(table.take(|near| shard_of(near.tag.hash, self.shards()) == number));
            }
            elements.append(&mut shard.table.take(|_| true));
        }
    }
}
