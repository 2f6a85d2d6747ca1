//! Builder of a set, and the checks of its options.

use super::links::Linked;
use super::queue::Queues;
use super::set::DeferredSet;
use super::state::State;
use super::structure::Structure;
use crate::clock::Clock;
use crate::config;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Where changed members wait for the next read.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Queue, Structure};
///
/// # #[derive(Default)]
/// # struct Sum(u64);
/// # impl Structure<Element<u64>> for Sum {
/// #     fn insert(&mut self, number: &Element<u64>) {
/// #         self.0 += **number;
/// #     }
/// #     fn remove(&mut self, number: &Element<u64>) {
/// #         self.0 -= **number;
/// #     }
/// # }
/// // A hundred sets, none of them busy: one queue each is enough.
/// let builder = DeferredSet::builder().queue(Queue::Global);
/// let sets: Vec<_> = (0..100).map(|_| builder.build(Sum(0)).unwrap()).collect();
/// let member = sets[7].add(3);
/// assert_eq!(sets.iter().map(|set| set.read().0).sum::<u64>(), 3);
/// drop(member);
/// assert_eq!(sets[7].read().0, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Queue {
    /// In a per-thread queue, which only its thread and the draining read write. Some 4 KiB for a
    /// set that is in use. The default.
    #[default]
    PerThread,
    /// In one queue for all threads. It takes a quarter of a KiB, and a read need not look at each
    /// thread's queue. But threads that bring members at the same time meet at its head. That is
    /// seldom, since most changes find their member queued already.
    Global,
}

/// A configuration that cannot work.
///
/// See [`Builder`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A bound is zero: no member would ever fit. Holds the field's name.
    Zero(&'static str),
    /// A bound is beyond what any machine holds. Holds the field's name.
    TooLarge(&'static str),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(field) => write!(f, "{field} must not be zero: no member would fit"),
            Self::TooLarge(field) => {
                write!(f, "{field} is beyond {} and can't be meant", config::MAX_BOUND)
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Builder for a [`DeferredSet`].
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Queue, Structure};
///
/// #[derive(Default)]
/// struct Sum(u64);
/// impl Structure<Element<u64>> for Sum {
///     fn insert(&mut self, number: &Element<u64>) {
///         self.0 += **number;
///     }
///     fn remove(&mut self, number: &Element<u64>) {
///         self.0 -= **number;
///     }
/// }
///
/// let set = DeferredSet::builder().queue(Queue::Global).max_queued(64).build(Sum(0)).unwrap();
/// let seven = set.add(7);
/// assert_eq!(set.read().0, 7);
/// drop(seven);
///
/// let error = DeferredSet::builder().max_queued(0).build(Sum(0)).map(drop).unwrap_err();
/// assert_eq!(error.to_string(), "max_queued must not be zero: no member would fit");
/// ```
pub struct Builder<T, E> {
    queue: Queue,
    max_queued: usize,
    max_delay: Option<Duration>,
    set: PhantomData<fn(T) -> E>,
}

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    /// Makes a set around a structure that has no members yet, with the default queues and bounds.
    ///
    /// # Panics
    /// Never: the defaults are valid.
    #[must_use]
    pub fn new(structure: T) -> Self {
        Self::builder().build(structure).expect("the defaults are valid")
    }

    /// Returns a builder for a set with other queues and bounds.
    #[must_use]
    pub fn builder() -> Builder<T, E> {
        Builder::new()
    }
}

impl<T: Structure<E>, E: Linked> Builder<T, E> {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            max_queued: config::DEFAULT_MAX_ENTRIES,
            max_delay: None,
            set: PhantomData,
        }
    }

    /// Sets where changed members wait (default: [`Queue::PerThread`]).
    #[must_use]
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the bound of one queue in members (default 4,096). A change that brings one more member
    /// drains the set.
    ///
    /// If a reader holds the set just then, the queue grows, up to four times its bound. Beyond
    /// that, the change waits for the reader. If its thread holds or shares a set itself, it does
    /// not wait, because the reader may be waiting for this thread. Then the queue grows on.
    #[must_use]
    pub fn max_queued(mut self, members: usize) -> Self {
        self.max_queued = members;
        self
    }

    /// Sets how long a member may wait in a queue before a change drains the set (default: any
    /// time). The check is made when a change appends a member to the same queue, so a set without
    /// changes is not drained by itself. Costs a clock read for each member that is appended.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }

    /// Makes a set around this structure, which has no members yet.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large.
    pub fn build(&self, structure: T) -> Result<DeferredSet<T, E>, BuildError> {
        match self.max_queued {
            0 => return Err(BuildError::Zero("max_queued")),
            config::MAX_BOUND.. => return Err(BuildError::TooLarge("max_queued")),
            _ => {}
        }
        let queues = match self.queue {
            Queue::PerThread => Queues::per_thread(),
            Queue::Global => Queues::global(),
        };
        let delay = self.max_delay.map_or(u64::MAX, |d| Clock::system().duration_to_ticks(d));
        Ok(DeferredSet::around(State::new(structure, queues, self.max_queued as u64, delay)))
    }
}

impl<T, E> Clone for Builder<T, E> {
    fn clone(&self) -> Self {
        Self { set: PhantomData, ..*self }
    }
}

impl<T, E> fmt::Debug for Builder<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("queue", &self.queue)
            .field("max_queued", &self.max_queued)
            .field("max_delay", &self.max_delay)
            .finish()
    }
}
