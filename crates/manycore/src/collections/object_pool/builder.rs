//! The builder of pools.

use super::back::Back;
use super::shelf::Doors;
use super::{Line, Make, ObjectPool, Recycle, Root, SHELF};
use crate::cluster::{Clustered, Placement};
use crate::collections::reentrancy_lock::ReentrancyLock;
use std::fmt;

/// Builder for an [`ObjectPool`]: [`ObjectPool::builder`].
///
/// ```
/// use manycore::collections::ObjectPool;
///
/// let buffers = ObjectPool::builder(|| Vec::with_capacity(4096))
///     .max(64)
///     .recycle(|buffer: &mut Vec<u8>| {
///         buffer.clear();
///         buffer.capacity() <= 1 << 20 // those that have grown large are not kept
///     })
///     .build();
/// buffers.get().extend_from_slice(b"a request");
/// assert!(buffers.get().is_empty());
/// ```
pub struct ObjectPoolBuilder<T> {
    make: Make<T>,
    recycle: Option<Recycle<T>>,
    max: usize,
    placement: Placement,
    shelf: usize,
}

impl<T: Send + 'static> ObjectPoolBuilder<T> {
    pub(super) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let (placement, shelf) = (Placement::default(), SHELF);
        Self { make: Box::new(make), recycle: None, max: usize::MAX, placement, shelf }
    }

    /// Sets how many objects there may be at a time, lent or idle (default: no bound).
    #[must_use]
    pub fn max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Sets a hook that looks at each object that is given back, on the thread that gives it back.
    /// It cleans the object and returns `true`, or returns `false` if the object must not be lent
    /// again. That object is dropped, and makes room for a new one.
    ///
    /// The hook runs without a lock, so it may use the pool. If it panics, the object is dropped,
    /// and then the panic continues (unless the thread is unwinding already).
    /// [Detached](super::Pooled::detach) objects do not pass the hook.
    ///
    /// ```
    /// use manycore::collections::ObjectPool;
    ///
    /// let buffers = ObjectPool::builder(Vec::<u8>::new)
    ///     .max(8)
    ///     .recycle(|buffer| {
    ///         buffer.clear();
    ///         buffer.capacity() < 1 << 20 // a huge one is not kept
    ///     })
    ///     .build();
    /// buffers.take().unwrap().extend(b"hello");
    /// assert!(buffers.take().unwrap().is_empty());
    /// assert_eq!(buffers.created(), 1);
    /// buffers.take().unwrap().reserve(1 << 21);
    /// assert_eq!(buffers.created(), 0);
    /// ```
    #[doc(alias = "hook")]
    #[doc(alias = "reset")]
    #[must_use]
    pub fn recycle(mut self, recycle: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.recycle = Some(Box::new(recycle));
        self
    }

    /// Sets which threads share a shelf of idle objects (default: each has its own).
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets how many idle objects a shelf keeps (default 16). Further objects are available to all
    /// threads.
    #[must_use]
    pub fn shelf(mut self, objects: usize) -> Self {
        self.shelf = objects;
        self
    }

    /// Makes the pool.
    #[must_use]
    pub fn build(self) -> ObjectPool<T> {
        let Self { make, recycle, max, placement, shelf } = self;
        let back = Line(ReentrancyLock::new(Back::new()));
        let doors = Doors::new(placement);
        let is_straight = doors.are_plain && recycle.is_none();
        let root = Root { back, doors, is_straight, make, recycle, max, shelf };
        ObjectPool { shelves: Clustered::new(placement, root) }
    }
}

impl<T> fmt::Debug for ObjectPoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPoolBuilder")
            .field("max", &self.max)
            .field("recycles", &self.recycle.is_some())
            .field("placement", &self.placement)
            .field("shelf", &self.shelf)
            .finish_non_exhaustive()
    }
}
