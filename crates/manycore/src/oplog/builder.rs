//! [`Builder`]: makes a [`Deferred`] object with the user's settings.

use super::configurations::ConfigId;
use super::log::Log;
use super::object::Deferred;
use super::settings::{BuildError, ByAddress, Config, Logs, MergeStrategy, Publish};
use super::table::LogTable;
use crate::clock::Clock;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Builder for [`Deferred`] objects.
///
/// Bounds hold per slot (thread) and object. Objects built from one builder share one
/// configuration, which lives as long as an object uses it. A process may use up to 65,535
/// different configurations at a time.
///
/// ```
/// use manycore::oplog::{BuildError, Commuting, Deferred, Op};
/// use std::time::Duration;
///
/// struct Add(u64);
/// impl Op<u64> for Add {
///     fn apply(self, sum: &mut u64) {
///         *sum += self.0;
///     }
/// }
/// type Sum = Deferred<u64, Commuting<Add>>;
///
/// let sum = Sum::builder()
///     .max_entries(10_000)
///     .max_delay(Duration::from_millis(100))
///     .growth(2)
///     .build(0)?;
/// sum.append(Add(1));
/// assert_eq!(*sum.read(), 1);
///
/// let error = Sum::builder().max_entries(0).build(0).unwrap_err();
/// assert_eq!(error.to_string(), "max_entries must not be zero: no update would fit");
/// # Ok::<(), BuildError>(())
/// ```
#[derive(Debug)]
pub struct Builder<T, L> {
    config: Config,
    object: PhantomData<fn() -> (T, L)>,
}

impl<T, L> Clone for Builder<T, L> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), object: PhantomData }
    }
}

impl<T: Send + 'static, L: Log<T>> Builder<T, L> {
    pub(super) fn new() -> Self {
        Self { config: Config::default(), object: PhantomData }
    }

    /// Sets how many entries one slot's log keeps (default 4,096).
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> Self {
        self.config.max_entries = entries;
        self
    }

    /// Sets how many bytes one slot's log keeps, by [`Log::bytes`] (default 1 MiB).
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.config.max_bytes = bytes;
        self
    }

    /// Sets how long an update may stay in a log before a later update of the same slot applies it
    /// (default: no time bound).
    ///
    /// [`append`](Deferred::append) makes the check. If a slot stops appending, its last updates
    /// wait for a read; if that matters, call [`synchronize`](Deferred::synchronize) from a timer.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.config.max_delay = Some(delay);
        self
    }

    /// Sets up to which multiple of its bounds a log grows while another thread reads the object
    /// (default 4). An update that finds its log full becomes the reader, and applies the updates
    /// that wait. If the object is busy, the log grows; beyond this multiple, the update waits for
    /// the object. No update is ever dropped.
    #[must_use]
    pub fn growth(mut self, multiple: usize) -> Self {
        self.config.growth = multiple;
        self
    }

    /// Sets when the object has logs (default: [`Logs::Auto`]).
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.config.logs = logs;
        self
    }

    /// Sets how an update publishes its entry (default: [`Publish::Auto`]).
    #[must_use]
    pub fn publish(mut self, publish: Publish) -> Self {
        self.config.publish = publish;
        self
    }

    /// Sets how a read collects the logs (default: [`MergeStrategy::Auto`]).
    #[must_use]
    pub fn merge(mut self, strategy: MergeStrategy) -> Self {
        self.config.merge = strategy;
        self
    }

    /// Sets the clock that stamps updates: for tests of clocks that differ between cores.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.config.clock = Some(ByAddress(clock));
        self
    }

    /// Sets the table that decides which objects may have logs: for tests of evictions.
    #[doc(hidden)]
    #[must_use]
    pub fn table(mut self, table: Arc<LogTable>) -> Self {
        self.config.table = Some(ByAddress(table));
        self
    }

    /// Sets the number of consecutive reads, each with too few updates before it, after which an
    /// object is demoted. For types that are often read when nothing was updated.
    pub(crate) fn idle_reads(mut self, reads: u32) -> Self {
        self.config.idle_reads = reads;
        self
    }

    /// Sets the updates per read above which publication is biased, in `Auto` mode. For types with
    /// expensive updates, or with reads that are far apart.
    pub(crate) fn ratio_for_bias(mut self, updates: u64) -> Self {
        self.config.ratio_for_bias = updates;
        self
    }

    /// Builds an object with this value.
    ///
    /// # Errors
    /// If a bound is zero, too large, or contradicts another bound; or if 65,535 other
    /// configurations are in use ([`BuildError::TooManyConfigurations`]).
    pub fn build(&self, value: T) -> Result<Deferred<T, L>, BuildError> {
        self.check().map(|config| Deferred::with_config(value, config))
    }

    /// Checks the settings, for an object that is built later.
    pub(crate) fn check(&self) -> Result<ConfigId, BuildError> {
        self.config.validate(size_of::<L::Op>())?;
        ConfigId::of(self.config.clone())
    }
}

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Returns a builder for an object with other bounds and policies.
    #[must_use]
    pub fn builder() -> Builder<T, L> {
        Builder::new()
    }
}
