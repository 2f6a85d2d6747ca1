//! Why entries leave.

use crate::node::Found;

/// Why an entry left the cache: for a [listener](crate::Builder::listener).
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
    /// Another value took its place.
    Replaced,
    /// It was removed.
    Removed,
    /// Room was wanted, or it was too heavy to be let in.
    Evicted,
    /// Its time was over when it left, whatever it left for: an entry that makes room, is replaced
    /// or is removed after its end has expired.
    Expired,
}

impl Cause {
    /// A bit of its own.
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Of an entry that another value replaces, whose time is over or not.
    #[inline(always)]
    pub(crate) fn of_replaced(is_over: bool) -> Self {
        if is_over { Self::Expired } else { Self::Replaced }
    }
}

/// An entry that the caller has unlinked.
pub(crate) struct Departed<K, V> {
    pub(crate) node: Found<K, V>,
    /// What it was counted with.
    pub(crate) weight: i64,
    pub(crate) cause: Cause,
}
