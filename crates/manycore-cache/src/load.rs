//! Read-through with single flight: one load for each key (laws single_flight.F1 to
//! single_flight.F7).

use crate::Cache;
use crate::guard::Guard;
use crate::key_hash::KeyHash;
use crate::node::{NEVER, Seed};
use crate::single_flight::{Asks, Failure, Landed, Lead, Turn};
use crate::update::Asked;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;

/// The error of a load that found nothing: see [`Cache::optionally_get_or_insert_with`].
struct Absent;

/// Returns a load's error, if it has the type that the waiter expects.
fn shared<E: Send + Sync + 'static>(failure: Option<Failure>) -> Option<Arc<E>> {
    failure?.downcast().ok()
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Returns the key's value, or the value that `load` makes, which is then put in.
    ///
    /// Single flight: while one thread loads a key, other threads that request it by one of these
    /// methods wait, and then take its value. No lock is held, and other calls for the key are not
    /// delayed. Keys are told apart by `Eq`: loads of keys with equal hashes do not wait for each
    /// other. A thread does not wait for a *future's* load
    /// ([`get_or_insert_async`](Self::get_or_insert_async)), because it may have to poll that
    /// future itself. It loads beside the future, and the first value counts.
    ///
    /// A load never overwrites newer data. The load's value is not put in if the key is inserted,
    /// replaced or removed after the load began. This includes removals that find nothing,
    /// [`invalidate_all`](Self::invalidate_all) and [`retain`](Self::retain). The caller then gets
    /// the newer entry or, if there is none, the value that it has loaded. Waiters look again, and
    /// one of them loads. (An update of another key with the same hash may have the same effect.)
    /// Evictions and expirations do not count as updates.
    ///
    /// If `load` panics, its caller panics. The waiters go on, and one of them loads.
    ///
    /// [`Guard::is_fresh`] says whether this call has loaded the value.
    ///
    /// With [`Builder::refresh_ahead`](crate::Builder::refresh_ahead), an entry is loaded again
    /// before it expires.
    ///
    /// # Panics
    /// If `load` requests the same key in this way, itself or through the loads of other keys, also
    /// on other threads: it would wait for itself. (This is not detected if the load waits by other
    /// means, such as a channel, for a thread that waits for the load.) Also if this is called
    /// under a lock of the cache: see the [crate's page](crate#re-entrancy).
    ///
    /// ```
    /// let squares = manycore_cache::Cache::new(100);
    /// assert_eq!(*squares.get_or_insert_with(7, || 7 * 7), 49);
    /// assert_eq!(*squares.get_or_insert_with(7, || unreachable!()), 49);
    /// ```
    #[doc(alias = "single flight")]
    #[doc(alias = "memoize")]
    #[doc(alias = "read-through")]
    #[doc(alias = "get_with")]
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> Guard<'_, K, V> {
        let loaded = self.try_get_or_insert_with(key, || Ok::<V, Infallible>(load()));
        loaded.unwrap_or_else(|never| match *never {})
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a load that may fail.
    ///
    /// The error of a load reaches all callers that wait for it, so it is behind an `Arc`. If fifty
    /// threads request a key and its load times out after 20 ms, all of them have the error after
    /// 20 ms, and not one after the other. The error is not kept: the next request loads again. (To
    /// keep errors for a while, keep them as values: [`Builder::error_time_to_live`].)
    ///
    /// # Errors
    /// Returns the error of the load that this call made or waited for. A waiter that expects
    /// another type of error, because its load is another function, looks again and loads itself.
    /// So does a waiter of a load whose key was updated after the load began.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// let parsed = cache.try_get_or_insert_with("7", || "7".parse::<u32>()).unwrap();
    /// assert_eq!(*parsed, 7);
    /// let error = cache.try_get_or_insert_with("x", || "x".parse::<u32>()).unwrap_err();
    /// assert_eq!(*error, "x".parse::<u32>().unwrap_err());
    /// assert!(cache.get("x").is_none());
    /// ```
    ///
    /// [`Builder::error_time_to_live`]: crate::Builder::error_time_to_live
    #[doc(alias = "try_get_with")]
    pub fn try_get_or_insert_with<E: Send + Sync + 'static>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Guard<'_, K, V>, Arc<E>> {
        let mut asks = Asks::Thread;
        if let Some(found) = self.get(&key) {
            if !self.is_due(&found) {
                return Ok(found);
            }
            asks = Asks::Refresh;
        }
        self.begin_update();
        let mut seed = self.home.begin(key);
        let hash = self.hash(seed.key());
        loop {
            match self.join(hash, seed, asks) {
                Turn::Wait(flight, own) => {
                    let failure = if asks == Asks::Thread { flight.wait() } else { None };
                    seed = own;
                    if let Some(error) = shared(failure) {
                        return Err(error);
                    }
                }
                Turn::Lead(lead) => return self.lead(lead, hash, load, asks == Asks::Refresh),
            }
            if let Some(found) = self.look(hash, seed.key()) {
                // Dropped before the result is made: if a destructor panicked after that, the
                // result would be leaked, and with it an open section.
                drop(seed);
                return Ok(found);
            }
            asks = Asks::Thread; // the entry to refresh is gone
        }
    }

    /// Loads on this thread, unless the key has an entry meanwhile.
    fn lead<E: Send + Sync + 'static>(
        &self,
        mut lead: Lead<'_, K, V>,
        hash: KeyHash,
        load: impl FnOnce() -> Result<V, E>,
        is_refresh: bool,
    ) -> Result<Guard<'_, K, V>, Arc<E>> {
        let running = lead.run();
        // The load before this one may have ended between this request's look and its turn.
        if let Some(found) = self.settled(hash, lead.key(), is_refresh) {
            drop((running, lead));
            return Ok(found);
        }
        let meter = self.counts.loads.begin();
        match load() {
            Ok(value) => {
                let value = meter.succeed(value);
                let landed = self.land(&mut lead, hash, value, is_refresh);
                drop(running);
                drop(lead);
                Ok(landed)
            }
            Err(error) => {
                drop(meter);
                let error = Arc::new(error);
                let kept = self.give_up(&mut lead, hash, &error, is_refresh);
                drop((running, lead));
                kept.ok_or(error)
            }
        }
    }

    /// Returns the key's entry, unless it has to be loaded.
    fn settled(&self, hash: KeyHash, key: &K, is_refresh: bool) -> Option<Guard<'_, K, V>> {
        self.look(hash, key).filter(|found| !is_refresh || !self.is_due(found))
    }

    /// Ends a load that has failed: its waiters get the error. An entry that was to be refreshed is
    /// returned if it is still there: it is as good as it was.
    fn give_up<E: Send + Sync + 'static>(
        &self,
        lead: &mut Lead<'_, K, V>,
        hash: KeyHash,
        error: &Arc<E>,
        is_refresh: bool,
    ) -> Option<Guard<'_, K, V>> {
        lead.fail(Arc::clone(error) as Failure);
        if is_refresh { self.look(hash, lead.key()) } else { None }
    }

    /// Returns true if an entry is to be loaded again, ahead of its end.
    fn is_due(&self, found: &Guard<'_, K, V>) -> bool {
        let Some(ahead) = self.ahead else { return false };
        let expires = self.expires_of(found.address());
        expires != NEVER && expires.saturating_sub(ahead) <= self.now()
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a load that may find nothing. If
    /// it finds nothing, nothing is put in, and all callers that wait for the load get `None`.
    ///
    /// To remember missing keys for a while, keep an `Option` as the value:
    /// [`Builder::missing_time_to_live`](crate::Builder::missing_time_to_live).
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// ```
    /// let names = manycore_cache::Cache::new(100);
    /// let find = |id: u32| (id < 10).then(|| id.to_string());
    /// let ask = |id| names.optionally_get_or_insert_with(id, || find(id));
    /// assert_eq!(*ask(7).unwrap(), "7");
    /// assert!(ask(70).is_none() && names.len() == 1);
    /// ```
    #[doc(alias = "optionally_get_with")]
    pub fn optionally_get_or_insert_with(
        &self,
        key: K,
        load: impl FnOnce() -> Option<V>,
    ) -> Option<Guard<'_, K, V>> {
        self.try_get_or_insert_with(key, || load().ok_or(Absent)).ok()
    }

    fn join(&self, hash: KeyHash, seed: Seed<K, V>, asks: Asks) -> Turn<'_, K, V> {
        self.flights.join((&self.domain, &self.home), hash, seed, asks)
    }

    /// Puts the loaded value in, unless the key was updated since the load began
    /// (single_flight.F4).
    fn land(
        &self,
        lead: &mut Lead<'_, K, V>,
        hash: KeyHash,
        value: V,
        is_refresh: bool,
    ) -> Guard<'_, K, V> {
        let section = self.domain.enter();
        let (fresh, flight) = lead.land(|seed| self.complete(seed, value));
        let node = fresh.as_ref().expect("just made").address();
        let asked = Asked::OfLoad;
        let linked = self.put(hash, fresh, &section, asked, |old| {
            (is_refresh || old.is_none()) && !flight.is_stale() // asked once more under the lock
        });
        if linked.is_none() {
            if let Some(newer) = self.look(hash, lead.key()) {
                return newer;
            }
        }
        // SAFETY: the node was linked in this section, or it is retired while this section is open,
        // at the end of the lead.
        unsafe { self.guard(node, section) }.fresh()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Clone + Send + Sync,
    S: BuildHasher,
{
    /// [`get_or_insert_with`](Self::get_or_insert_with) for futures, of any runtime. Returns a
    /// clone, because a guard must not live across an `await`. It also waits for loads of threads.
    ///
    /// If the future is dropped before it is done, its load is dropped, too, and one of the waiters
    /// loads.
    ///
    /// # Panics
    /// As [`get_or_insert_with`](Self::get_or_insert_with), when it is polled. A load that has
    /// *another task* request its key, and awaits that task, is not detected, and waits for ever.
    #[doc(alias = "single flight")]
    #[doc(alias = "memoize")]
    pub async fn get_or_insert_async(&self, key: K, load: impl Future<Output = V>) -> V {
        let load = async { Ok::<V, Infallible>(load.await) };
        let loaded = self.try_get_or_insert_async(key, load).await;
        loaded.unwrap_or_else(|never| match *never {})
    }

    /// [`optionally_get_or_insert_with`](Self::optionally_get_or_insert_with) for futures, of any
    /// runtime.
    ///
    /// # Panics
    /// As [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn optionally_get_or_insert_async(
        &self,
        key: K,
        load: impl Future<Output = Option<V>>,
    ) -> Option<V> {
        let load = async { load.await.ok_or(Absent) };
        self.try_get_or_insert_async(key, load).await.ok()
    }

    /// [`try_get_or_insert_with`](Self::try_get_or_insert_with) for futures, of any runtime.
    ///
    /// # Errors
    /// As [`try_get_or_insert_with`](Self::try_get_or_insert_with).
    ///
    /// # Panics
    /// As [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn try_get_or_insert_async<E: Send + Sync + 'static>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>> {
        // Dropped after the lead: the requests of its destructor do not belong to the load any
        // more.
        let mut load = pin!(load);
        let mut is_refresh = false;
        if let Some(found) = self.get(&key) {
            if !self.is_due(&found) {
                return Ok(found.value().clone());
            }
            is_refresh = true;
        }
        self.begin_update();
        let mut seed = self.home.begin(key);
        let hash = self.hash(seed.key());
        loop {
            match self.join(hash, seed, Asks::Future) {
                Turn::Wait(flight, own) => {
                    let failure = if is_refresh { None } else { Landed::of(flight).await };
                    seed = own;
                    if let Some(error) = shared(failure) {
                        return Err(error);
                    }
                }
                Turn::Lead(mut lead) => {
                    if let Some(found) = self.settled(hash, lead.key(), is_refresh) {
                        let found = found.value().clone();
                        drop(lead);
                        return Ok(found);
                    }
                    let meter = self.counts.loads.begin();
                    let value = poll_fn(|context| {
                        let _running = lead.run();
                        load.as_mut().poll(context)
                    });
                    let value = match value.await {
                        Ok(value) => meter.succeed(value),
                        Err(error) => {
                            drop(meter);
                            let error = Arc::new(error);
                            let kept = self.give_up(&mut lead, hash, &error, is_refresh);
                            let kept = kept.map(|kept| kept.value().clone());
                            drop(lead);
                            return kept.ok_or(error);
                        }
                    };
                    let running = lead.run();
                    let landed = self.land(&mut lead, hash, value, is_refresh).value().clone();
                    drop(running);
                    drop(lead);
                    return Ok(landed);
                }
            }
            if let Some(found) = self.look(hash, seed.key()) {
                let found = found.value().clone();
                drop(seed); // as in `try_get_or_insert_with`
                return Ok(found);
            }
            is_refresh = false; // the entry to refresh is gone
        }
    }
}
