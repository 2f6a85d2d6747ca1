//! Read-through with single flight: one load for each key (laws cache.F1 to cache.F5).

use crate::Cache;
use crate::guard::Guard;
use crate::node::Seed;
use crate::place::Place;
use crate::single_flight::{Landed, Lead, Turn};
use crate::update::Asked;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// The key's value, or what `load` makes, which is put in.
    ///
    /// Single flight: while one thread loads a key, others that want it by one of these methods
    /// wait, and then take its value. No lock is held, and other calls for the key are not held up.
    /// Keys are told apart by `Eq`: equal hashes do not make loads wait for each other. A thread
    /// does not wait for a *future's* load ([`get_or_insert_async`](Self::get_or_insert_async)),
    /// which may be its own to poll: it loads beside it, and the first value counts.
    ///
    /// A load never overwrites what is newer. If the key is inserted, replaced or removed after its
    /// load began (also a removal without effect, or by [`invalidate_all`](Self::invalidate_all) or
    /// [`retain`](Self::retain)), the load's value is not put in: the caller gets the newer
    /// entry, or, if there is none, the value it has loaded; waiters look again, and one of them
    /// loads. (An update of another key of the same hash may have the same effect.) Evictions and
    /// expirations do not count.
    ///
    /// If `load` panics, the panic is its caller's; the waiters go on, and one of them loads.
    ///
    /// # Panics
    /// If `load` asks for the same key in this way, itself or through the loads of other keys, also
    /// on other threads: it would wait for itself. (A load that waits by other means, as a channel,
    /// for a thread that waits for it is not detected.) If it is called under a lock of the cache:
    /// see the [crate's page](crate#re-entrancy).
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
    /// That of this caller's own `load`. The waiters go on, and one of them loads:
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
        self.begin_update();
        let mut seed = self.home.begin(key);
        let place = self.place(seed.key());
        loop {
            match self.join(place, seed, false) {
                Turn::Wait(flight, own) => {
                    flight.wait();
                    seed = own;
                }
                Turn::Lead(mut lead) => {
                    let running = lead.run();
                    // The load before this one may have ended between the look and the turn.
                    if let Some(found) = self.again(place, lead.key()) {
                        drop((running, lead));
                        return Ok(found);
                    }
                    let value = load()?;
                    let landed = self.land(&mut lead, place, value);
                    drop(running);
                    drop(lead);
                    return Ok(landed);
                }
            }
            if let Some(found) = self.again(place, seed.key()) {
                // Not after the result is made: where a destructor panics on the way out, a result
                // that is made already is leaked, and this one holds a section.
                drop(seed);
                return Ok(found);
            }
        }
    }

    fn join(&self, place: Place, seed: Seed<K, V>, is_future: bool) -> Turn<'_, K, V> {
        self.flights.join((&self.domain, &self.home), place, seed, is_future)
    }

    /// A look that is part of a read which was counted.
    fn again(&self, place: Place, key: &K) -> Option<Guard<'_, K, V>> {
        let section = self.domain.enter();
        let node = self.find(place, key, &section)?;
        // SAFETY: found in this section.
        (!self.is_expired(node)).then(|| unsafe { self.guard(node, section) })
    }

    /// Puts in what was loaded, unless the key was updated since (cache.F4).
    fn land(&self, lead: &mut Lead<'_, K, V>, place: Place, value: V) -> Guard<'_, K, V> {
        let section = self.domain.enter();
        let (fresh, flight) = lead.land(|seed| self.complete(seed, value));
        let node = fresh.as_ref().expect("just made").address();
        let asked = Asked::OfLoad;
        let linked = self.put(place, fresh, &section, asked, |old| {
            old.is_none() && !flight.is_stale() // asked once more under the lock
        });
        if linked.is_none() {
            if let Some(newer) = self.again(place, lead.key()) {
                return newer;
            }
        }
        // SAFETY: linked in this section, or to be retired while it is open, by the lead's end.
        unsafe { self.guard(node, section) }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher,
{
    /// [`get_or_insert_with`](Self::get_or_insert_with) for futures, of any runtime. Returns a
    /// clone, because a guard must not live across an `await`. It waits for threads' loads, too.
    ///
    /// If the future is dropped before it is done, so is its load, and one of the waiters loads.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with), when it is polled. A load that has
    /// *another task* ask for its key, and awaits that task, is not detected, and waits for ever.
    pub async fn get_or_insert_async(&self, key: K, load: impl Future<Output = V>) -> V {
        let load = async { Ok::<V, Infallible>(load.await) };
        let loaded = self.try_get_or_insert_async(key, load).await;
        loaded.unwrap_or_else(|never| match never {})
    }

    /// [`try_get_or_insert_with`](Self::try_get_or_insert_with) for futures, of any runtime.
    ///
    /// # Errors
    /// That of this caller's own `load`.
    ///
    /// # Panics
    /// As [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn try_get_or_insert_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        // Dropped after the lead: what its destructor asks for is not the load's any more.
        let mut load = pin!(load);
        if let Some(found) = self.get(&key).map(|found| found.value().clone()) {
            return Ok(found);
        }
        self.begin_update();
        let mut seed = self.home.begin(key);
        let place = self.place(seed.key());
        loop {
            match self.join(place, seed, true) {
                Turn::Wait(flight, own) => {
                    Landed::of(flight).await;
                    seed = own;
                }
                Turn::Lead(mut lead) => {
                    if let Some(found) = self.again_cloned(place, lead.key()) {
                        drop(lead);
                        return Ok(found);
                    }
                    let value = poll_fn(|context| {
                        let _running = lead.run();
                        load.as_mut().poll(context)
                    });
                    let value = value.await?;
                    let running = lead.run();
                    let landed = self.land(&mut lead, place, value).value().clone();
                    drop(running);
                    drop(lead);
                    return Ok(landed);
                }
            }
            if let Some(found) = self.again_cloned(place, seed.key()) {
                drop(seed); // as in `try_get_or_insert_with`
                return Ok(found);
            }
        }
    }

    fn again_cloned(&self, place: Place, key: &K) -> Option<V> {
        self.again(place, key).map(|found| found.value().clone())
    }
}
