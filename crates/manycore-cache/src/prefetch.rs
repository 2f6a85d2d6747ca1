//! Prefetch hints: a cache line that is needed soon is loaded early.

use crate::key_hash::KeyHash;
use crate::{BATCH, Cache};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// Loads the cache line of an address that will be read.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As `prefetch`, for an address that will be written.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction changes nothing and never faults. Processors that do not know it do
    // nothing (Intel SDM volume 2, PREFETCHW; AMD APM volume 3).
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Tells the processor that these keys, sixteen at most, will be looked up next: their cache
    /// lines are fetched together. For look-ups that [`get_many`](Self::get_many) does not fit.
    /// Changes nothing in the cache.
    ///
    /// ```
    /// let cache = manycore_cache::Cache::new(100);
    /// cache.insert("a", 1);
    /// cache.prefetch(["a", "b"]);
    /// assert!(cache.get("a").is_some());
    /// ```
    pub fn prefetch<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'q,
    {
        let section = self.domain.enter();
        let (mut hashes, mut count) = ([KeyHash::of(0); BATCH], 0);
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key);
            count += 1;
        }
        // In a loop of its own, as in `visit_many`.
        for hash in &hashes[..count] {
            prefetch(self.segment(*hash).table(&section).bucket(*hash));
        }
        for hash in &hashes[..count] {
            self.segment(*hash).table(&section).bucket(*hash).probe(*hash);
        }
    }
}
