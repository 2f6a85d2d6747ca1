//! The settings of a [`Deferred`](super::Deferred) object, and their validation.

use super::table::LogTable;
use crate::clock::Clock;
use crate::config;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// When an object has logs.
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, Logs, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// type Sum = Deferred<u64, Commuting<Add>>;
///
/// let logged = Sum::builder().logs(Logs::Always).build(0)?;
/// let plain = Sum::builder().logs(Logs::Never).build(0)?;
/// logged.append(Add(1)); // waits in this thread's log
/// plain.append(Add(1)); // applied at once, under the lock
/// assert_eq!((logged.stats().pending, plain.stats().pending), (1, 0));
/// assert_eq!(*logged.read(), *plain.read());
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Logs {
    /// The object has logs while its lock is contended and there are many updates per read.
    #[default]
    Auto,
    /// The object has logs from the first update on, unless a busier object has its place in the
    /// table of logs.
    Always,
    /// The object never has logs: it is a plain locked object.
    Never,
}

/// How an update orders its log entry before its own later loads: law oplog.D1 of the
/// [module](super).
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, Logs, Op, Publish};
/// use manycore::percpu::barrier::is_asymmetric;
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// // Updates are far more frequent than reads: the reads shall pay.
/// let sum = Deferred::<u64, Commuting<Add>>::builder()
///     .logs(Logs::Always)
///     .publish(Publish::Biased)
///     .build(0)?;
/// sum.append(Add(1));
/// assert_eq!(sum.stats().biased, is_asymmetric()); // as far as this kernel lets them
/// assert_eq!(*sum.read(), 1);
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Publish {
    /// Chosen by the ratio of updates to reads; if that does not decide, by trials of both ways.
    #[default]
    Auto,
    /// One locked instruction in every update.
    Locked,
    /// Plain stores. A read waits until every thread with updates in its log has answered, which
    /// busy threads do within their next update. If one does not answer, the read pays a
    /// `membarrier`. If the kernel has no `membarrier`, this is `Locked`.
    Biased,
}

/// How a read collects the logs.
///
/// ```
/// use manycore::oplog::{BuildError, Commuting, Deferred, MergeStrategy, Op};
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// type Sum = Deferred<u64, Commuting<Add>>;
///
/// // Updaters with deadlines: none of them shall work for a reader.
/// let sum = Sum::builder().merge(MergeStrategy::Flat).build(0)?;
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| sum.append(Add(1)));
///     }
/// });
/// assert_eq!(*sum.read(), 4);
/// # Ok::<(), BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MergeStrategy {
    /// `Tree` if many slots have updates without stamps, the machine has several last-level caches,
    /// and the updaters are busy enough to help; else `Flat`. The default.
    #[default]
    Auto,
    /// The reader collects each log itself, one after the other. For objects with updaters that
    /// must not spend time on a reader, beyond waiting for it.
    Flat,
    /// The logs are collected in a tree, as section 8 of the OpLog paper proposes. Among the
    /// updaters that the read keeps waiting, the first of each last-level cache collects the logs
    /// of the threads there, absorbing one into the other ([`Log::absorb`](super::Log::absorb)).
    /// The reader collects from these updaters, and collects the remaining logs itself.
    ///
    /// For tests, and where `Auto` does not detect that it pays. Costs up to 6 KiB per object from
    /// its first such read on. The first such read of a process reads the map of the machine
    /// ([`Topology`](crate::percpu::topology::Topology)).
    Tree,
}

/// Why a configuration was rejected.
///
/// See [`Builder`](super::Builder) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A bound of zero: no update would ever fit. Holds the setting's name.
    Zero(&'static str),
    /// A bound beyond the memory of any machine. Holds the setting's name.
    TooLarge(&'static str),
    /// The byte bound is smaller than one update.
    BytesBelowOneEntry {
        /// The bound that was set.
        max_bytes: usize,
        /// The size of one update.
        entry: usize,
    },
    /// Objects with 65,535 different configurations exist at this time. Two configurations differ
    /// if a setting does; a configuration that no object uses does not count.
    TooManyConfigurations,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(field) => write!(f, "{field} must not be zero: no update would fit"),
            Self::TooLarge(field) => {
                write!(f, "{field} is beyond {} and can't be meant", config::MAX_BOUND)
            }
            Self::BytesBelowOneEntry { max_bytes, entry } => {
                write!(f, "max_bytes {max_bytes} does not hold one update of {entry} bytes")
            }
            Self::TooManyConfigurations => {
                write!(
                    f,
                    "objects with {} different configurations exist, and there can be no more at \
                     a time; give objects that may be alike the same settings",
                    u16::MAX
                )
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// A reference that equals only references to the same value.
#[derive(Debug)]
pub(crate) struct ByAddress<T>(pub(crate) Arc<T>);

impl<T> Clone for ByAddress<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for ByAddress<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for ByAddress<T> {}

impl<T> Hash for ByAddress<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// All settings of an object; objects with equal settings share them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Config {
    pub(crate) max_entries: usize,
    pub(crate) max_bytes: usize,
    pub(crate) max_delay: Option<Duration>,
    pub(crate) growth: usize,
    pub(crate) logs: Logs,
    pub(crate) publish: Publish,
    pub(crate) merge: MergeStrategy,
    pub(crate) clock: Option<ByAddress<Clock>>,
    pub(crate) table: Option<ByAddress<LogTable>>,
    /// The number of consecutive reads, each with too few updates before it, after which an object
    /// is demoted.
    pub(crate) idle_reads: u32,
    /// Above this many updates per read, a reader pays for the updaters' fences; below half of it,
    /// each updater pays for its own.
    pub(crate) ratio_for_bias: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_entries: config::DEFAULT_MAX_ENTRIES,
            max_bytes: config::DEFAULT_MAX_BYTES,
            max_delay: None,
            growth: config::DEFAULT_GROWTH,
            logs: Logs::default(),
            publish: Publish::default(),
            merge: MergeStrategy::default(),
            clock: None,
            table: None,
            idle_reads: config::IDLE_READS,
            ratio_for_bias: config::RATIO_FOR_BIAS,
        }
    }
}

impl Config {
    pub(super) fn validate(&self, entry: usize) -> Result<(), BuildError> {
        for (field, bound) in [
            ("max_entries", self.max_entries),
            ("max_bytes", self.max_bytes),
            ("growth", self.growth),
        ] {
            if bound == 0 {
                return Err(BuildError::Zero(field));
            }
            if bound > config::MAX_BOUND {
                return Err(BuildError::TooLarge(field));
            }
        }
        if self.max_delay == Some(Duration::ZERO) {
            return Err(BuildError::Zero("max_delay"));
        }
        if self.max_bytes < entry {
            return Err(BuildError::BytesBelowOneEntry { max_bytes: self.max_bytes, entry });
        }
        Ok(())
    }
}
