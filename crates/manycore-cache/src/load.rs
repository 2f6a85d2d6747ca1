//! Reading through: one load for each key, however many ask (laws F1 and F2 of `flight`).

use crate::Cache;
use crate::flight::{Landed, Turn};
use crate::guard::Guard;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, Hash};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// The key's value, or what `load` makes, which is put in.
    ///
    /// Single flight: while one thread loads a key, others that want it by one of these methods
    /// wait, and then take its value. No lock is held meanwhile, and other calls for the key are
    /// not held up: an [`insert`](Self::insert) counts, until the load ends and replaces it.
    ///
    /// If `load` panics, the panic is its caller's; those who wait go on, and one of them loads.
    /// There are never two loads of a key at once.
    ///
    /// # Panics
    /// If `load` asks for the same key in this way.
    ///
    /// ```
    /// let squares = manycore_cache::Cache::new(100);
    /// assert_eq!(*squares.get_or_insert_with(7, || 7 * 7), 49);
    /// assert_eq!(*squares.get_or_insert_with(7, || unreachable!()), 49);
    /// ```
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> Guard<'_, K, V> {
        let loaded = self.try_get_or_insert_with(key, || Ok::<V, Infallible>(load()));
        loaded.unwrap_or_else(|never| match never {})
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a load that may fail.
    ///
    /// # Errors
    /// That of this caller's own `load`. Others who waited for it go on, and one of them loads:
    /// an error is not shared, and not kept.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub fn try_get_or_insert_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Guard<'_, K, V>, E> {
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        let hash = self.place(&key).whole();
        loop {
            match self.flights.join(hash, false) {
                Turn::Wait(flight) => flight.wait(),
                Turn::Lead(lead) => {
                    // The load before this one may have ended between the look and the turn.
                    if let Some(found) = self.again(&key) {
                        return Ok(found);
                    }
                    let value = load()?;
                    let inserted = self.insert_guarded(key, value);
                    drop(lead);
                    return Ok(inserted);
                }
            }
            if let Some(found) = self.again(&key) {
                return Ok(found);
            }
        }
    }

    /// A look that is part of a read which was counted.
    fn again(&self, key: &K) -> Option<Guard<'_, K, V>> {
        let section = self.domain.enter();
        let node = self.find(self.place(key), key, &section)?;
        // SAFETY: found in this section.
        (!self.is_expired(node)).then(|| unsafe { self.guard(node, section) })
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher,
{
    /// [`get_or_insert_with`](Self::get_or_insert_with) for futures, of any runtime. Returns a
    /// clone, because a guard must not live across an `await`.
    ///
    /// If the future is dropped before it is done, so is its load, and one of those who wait loads.
    pub async fn get_or_insert_async(&self, key: K, load: impl Future<Output = V>) -> V {
        let load = async { Ok::<V, Infallible>(load.await) };
        let loaded = self.try_get_or_insert_async(key, load).await;
        loaded.unwrap_or_else(|never| match never {})
    }

    /// [`try_get_or_insert_with`](Self::try_get_or_insert_with) for futures, of any runtime.
    ///
    /// # Errors
    /// That of this caller's own `load`.
    pub async fn try_get_or_insert_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        if let Some(found) = self.get(&key).map(|found| found.value().clone()) {
            return Ok(found);
        }
        let hash = self.place(&key).whole();
        loop {
            match self.flights.join(hash, true) {
                Turn::Wait(flight) => Landed(flight).await,
                Turn::Lead(lead) => {
                    if let Some(found) = self.again(&key).map(|found| found.value().clone()) {
                        return Ok(found);
                    }
                    let value = load.await?;
                    let inserted = self.insert_guarded(key, value).value().clone();
                    drop(lead);
                    return Ok(inserted);
                }
            }
            if let Some(found) = self.again(&key).map(|found| found.value().clone()) {
                return Ok(found);
            }
        }
    }
}
