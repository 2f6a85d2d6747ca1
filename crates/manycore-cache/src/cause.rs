//! Why entries leave the cache.

use crate::node::Found;

/// Why an entry left the cache: an argument of the [listener](crate::Builder::listener).
///
/// ```
/// use manycore_cache::{Cache, Cause};
/// use std::sync::{Arc, Mutex};
///
/// let told = Arc::new(Mutex::new(Vec::new()));
/// let heard = told.clone();
/// let cache = Cache::builder(10)
///     .listener(move |key: &u32, _: &char, cause| heard.lock().unwrap().push((*key, cause)))
///     .build()?;
/// cache.insert(1, 'a');
/// cache.insert(1, 'b');
/// cache.remove(&1);
/// assert_eq!(*told.lock().unwrap(), [(1, Cause::Replaced), (1, Cause::Removed)]);
/// # Ok::<(), manycore_cache::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Another value replaced it.
    Replaced,
    /// It was removed.
    Removed,
    /// It made room for another entry, or was too heavy to be let in.
    Evicted,
    /// It had expired when it left. This cause comes before the others: an expired entry that makes
    /// room, is replaced or is removed leaves as expired.
    Expired,
}

impl Cause {
    /// Returns the bit of this cause in a set of causes.
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns the cause of an entry that another value replaces. `is_over`: the entry has expired.
    #[inline(always)]
    pub(crate) fn of_replaced(is_over: bool) -> Self {
        if is_over { Self::Expired } else { Self::Replaced }
    }
}

/// An entry that leaves: it was unlinked, or is about to be.
pub(crate) struct Departed<K, V> {
    pub(crate) node: Found<K, V>,
    /// The weight that the entry was counted with.
    pub(crate) weight: i64,
    pub(crate) cause: Cause,
}
