//! Construction of caches: [`Cache::new`] and [`Builder`].

use crate::node::{Extra, Home, InBytes, Kind, Node};
use crate::node_memory::NodeMemory;
use crate::segment::{Eviction, Segment};
use crate::single_flight::Flights;
use crate::stats::Counts;
use crate::table::Table;
use crate::{Cache, Cause, Line};
use manycore::section::{Domain, Mode};
use std::fmt;
use std::hash::RandomState;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::{Duration, Instant};

/// Tenths of entries for each bucket of seven links: the load that a new table is sized for.
const LOAD_TENTHS: usize = 56;
/// Approximate number of entries for each segment.
const SEGMENT_ENTRIES: usize = 1024;
/// Maximum number of segments, as in the paper: more did not help.
const SEGMENTS_MAX: usize = 64;
/// Default initial size of the tables, in entries.
const ROOM: usize = 1 << 20;
/// The default if the capacity is a weight, which does not tell the number of entries.
const ROOM_BY_WEIGHT: usize = 1 << 12;
/// The default for a cache of few entries. Programs make such caches by the thousand, and most of
/// them stay nearly empty.
const ROOM_OF_FEW: usize = 16;

/// Bytes of table for each entry, if the table has just grown.
const TABLE_BYTES: usize = 24;

/// Budget for the garbage of all threads: this part of the capacity in bytes, within these bounds.
/// With less than half a megabyte, reclamation would cost insertions of small entries more than the
/// memory is worth: a batch of two threads that replace nodes of 24 bytes has some 1,800 nodes.
const GARBAGE_PART: usize = 8;
const GARBAGE_MIN: usize = 512 << 10;
const GARBAGE_MAX: usize = 32 << 20;

/// Maximum number of entries in a batch of garbage. With entries of 64 bytes or more, a batch is
/// full by its bytes first. Smaller batches would take more barriers, each of which interrupts all
/// other cores.
const BATCH_ENTRIES: usize = 4096;

/// Backpressure: the longest time that an update waits at its end while there is too much garbage.
/// The thread that holds the garbage back was most often preempted, and needs a core.
const GARBAGE_WAIT: Duration = Duration::from_micros(200);

pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;
pub(crate) type Expiry<K, V> = Box<dyn Fn(&K, &V) -> Option<Duration> + Send + Sync>;
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, Cause) + Send + Sync>;
pub(crate) type Time = Box<dyn Fn() -> Duration + Send + Sync>;

impl<K, V> Cache<K, V> {
    /// Makes a cache for this number of entries, with the default settings.
    ///
    /// # Panics
    /// If the capacity is zero.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self::builder(capacity).build().unwrap_or_else(|error| panic!("manycore: {error}"))
    }

    /// Returns a builder for a cache of this capacity: a number of entries, or a weight if there is
    /// a weigher.
    pub fn builder(capacity: u64) -> Builder<K, V> {
        Builder::new(capacity)
    }
}

/// Why a builder's settings were refused.
///
/// ```
/// use manycore_cache::Cache;
///
/// let error = Cache::<u32, u32>::builder(0).build().unwrap_err();
/// assert!(error.to_string().starts_with("the cache's capacity must be at least 1"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The setting must be at least 1, and at most this number.
    OutOfRange(&'static str, u64),
    /// The setting must be longer than zero.
    NoTime(&'static str),
    /// The setting needs data that a cache without metadata does not keep.
    NoMetadata(&'static str),
    /// The setting is for caches without metadata only.
    OnlyWithoutMetadata(&'static str),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(what, most) => {
                write!(f, "the cache's {what} must be at least 1 and at most {most}")
            }
            Self::NoTime(what) => write!(f, "the cache's {what} must be longer than zero"),
            Self::NoMetadata(what) => write!(f, "a cache without metadata has no {what}"),
            Self::OnlyWithoutMetadata(what) => {
                write!(f, "only a cache without metadata has {what}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Builder for a [`Cache`], from [`Cache::builder`].
///
/// ```
/// use manycore_cache::{Cache, Cause, Eviction};
/// use std::time::Duration;
///
/// let pages: Cache<String, Vec<u8>> = Cache::builder(64 << 20) // bytes
///     .byte_weigher(|url: &String, page: &Vec<u8>| url.capacity() + page.capacity())
///     .initial_entries(10_000)
///     .time_to_live(Duration::from_secs(600))
///     .eviction(Eviction::ScanResistant)
///     .listener(|url: &String, _page: &Vec<u8>, cause| {
///         if cause == Cause::Evicted {
///             println!("no room for {url}");
///         }
///     })
///     .build()?;
/// # Ok::<(), manycore_cache::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K, V, S = RandomState> {
    capacity: u64,
    initial: Option<usize>,
    hasher: S,
    eviction: Eviction,
    weigher: Option<Weigher<K, V>>,
    live: Option<Duration>,
    idle: Option<Duration>,
    pub(crate) expiry: Option<Expiry<K, V>>,
    idle_each: Option<Expiry<K, V>>,
    ahead: Option<Duration>,
    ends: Option<Expiry<K, V>>,
    listener: Option<Listener<K, V>>,
    /// A bit for each cause that the listener is called for.
    told: u8,
    time: Option<Time>,
    counts_reads: bool,
    in_bytes: Option<bool>,
    memory: Option<Arc<dyn NodeMemory>>,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            initial: None,
            hasher: RandomState::new(),
            eviction: Eviction::default(),
            weigher: None,
            live: None,
            idle: None,
            expiry: None,
            idle_each: None,
            ahead: None,
            ends: None,
            listener: None,
            told: u8::MAX,
            time: None,
            counts_reads: false,
            in_bytes: None,
            memory: None,
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Sets the hasher of the keys. The default resists hash flooding by an attacker; a faster
    /// hasher makes reads notably faster.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        let Self {
            capacity, initial, eviction, weigher, live, idle, expiry, listener, told, ..
        } = self;
        let (time, counts_reads, in_bytes) = (self.time, self.counts_reads, self.in_bytes);
        let (ends, memory, idle_each) = (self.ends, self.memory, self.idle_each);
        let ahead = self.ahead;
        Builder {
            capacity,
            initial,
            hasher,
            eviction,
            weigher,
            live,
            idle,
            expiry,
            idle_each,
            ahead,
            ends,
            listener,
            told,
            time,
            counts_reads,
            in_bytes,
            memory,
        }
    }

    /// Sets the initial size of the tables, in entries, so that no table has to grow. The default
    /// is the capacity, but at most a million. It is 4,096 if the capacity is a weight, and 16 if
    /// the capacity is at most 1,024 entries.
    pub fn initial_entries(mut self, entries: usize) -> Self {
        self.initial = Some(entries);
        self
    }

    /// Sets the eviction policy.
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Sets the weigher, which returns the weight of an entry; the capacity is then a total weight.
    /// It is called once for each entry, when the entry is inserted. The least weight is 1. Unused
    /// entries make room for entries that are far lighter.
    ///
    /// For a capacity in bytes use [`byte_weigher`](Self::byte_weigher). A weigher that returns the
    /// length of a value ignores what the cache needs for the entry, and the unused capacity of the
    /// value. Then 8 MiB of values of four bytes, counted by their length, take 215 MiB.
    pub fn weigher(mut self, weigh: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigh));
        self
    }

    /// Makes the capacity a number of bytes. An entry weighs what it takes in the cache, its table
    /// included, and what `owned` returns: the bytes of heap that its key and value own. `owned` is
    /// called as a [`weigher`](Self::weigher) is. This also sets
    /// [`weight_in_bytes`](Self::weight_in_bytes).
    ///
    /// The memory of the process then grows by at most the capacity, the allocator's overhead for
    /// its blocks, and [garbage](crate#memory); a test measures it. glibc's allocator needs 8 bytes
    /// for each block, and rounds blocks up to a multiple of 16 bytes, at least 32. If values own a
    /// few bytes each, `owned` should count that. Count a buffer by its `capacity()`, not by its
    /// `len()`.
    ///
    /// ```
    /// use manycore_cache::Cache;
    ///
    /// let pages: Cache<String, Vec<u8>> = Cache::builder(8 << 20) // bytes
    ///     .byte_weigher(|url: &String, page: &Vec<u8>| url.capacity() + page.capacity())
    ///     .build()?;
    /// for n in 0..20_000 {
    ///     pages.insert(format!("/{n}"), vec![1; 1000]);
    /// }
    /// assert!(pages.weight() <= 8 << 20);
    /// assert!((7_000..8_000).contains(&pages.len()), "with some 100 bytes beside each page");
    /// # Ok::<(), manycore_cache::BuildError>(())
    /// ```
    #[doc(alias = "memory limit")]
    #[doc(alias = "max_bytes")]
    pub fn byte_weigher(self, owned: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        let entry = size_of::<Node<K, V, Extra>>() + TABLE_BYTES;
        let weigh = move |key: &K, value: &V| {
            u32::try_from(owned(key, value).saturating_add(entry)).unwrap_or(u32::MAX)
        };
        self.weigher(weigh).weight_in_bytes(true)
    }

    /// Says whether weights are the bytes that an entry holds. If they are, garbage is counted by
    /// them: see [memory](crate#memory).
    ///
    /// By default weights are assumed to be bytes, but garbage is also reclaimed early in case they
    /// are not: an updating thread reclaims every 100 us. With `true` it reclaims when there is
    /// enough garbage. With `false` an entry counts as its key and value, and an estimate of heap.
    /// Keys and values without destructors own no heap, and count as their size.
    pub fn weight_in_bytes(mut self, yes: bool) -> Self {
        self.in_bytes = Some(yes);
        self
    }

    /// Sets the time to live (TTL) of entries, from their insertion or replacement.
    #[doc(alias = "TTL")]
    #[doc(alias = "expire_after_write")]
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.live = Some(time);
        self
    }

    /// Sets the time to idle of entries, from their last use. A use is recorded only if the last
    /// record is older than a sixteenth of this time, so an entry may expire up to 1/16 early.
    #[doc(alias = "TTI")]
    #[doc(alias = "expire_after_access")]
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Sets a function that returns the TTL of an entry, or `None` for no end. It is called when
    /// the entry is inserted. The shortest of this time, the time to live and the time to idle
    /// counts. A cache that gives entries a TTL only by [`Cache::insert_for`] uses `|_, _| None`
    /// here.
    #[doc(alias = "TTL")]
    pub fn expire_after(
        mut self,
        time: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.expiry = Some(Box::new(time));
        self
    }

    /// Sets a function that returns the time to idle of an entry, from its last use. `None` means
    /// the cache's [`time_to_idle`](Self::time_to_idle), or no end if there is none. It is called
    /// when the entry is inserted. The time is kept in milliseconds, at least 1 ms and at most 49
    /// days. The shortest of this and the cache's other times counts. A read gives the entry its
    /// whole time again, as with `time_to_idle`.
    ///
    /// ```
    /// use manycore_cache::{BuildError, Cache};
    /// use std::time::Duration;
    ///
    /// struct Session { user: String, is_admin: bool }
    /// let sessions: Cache<u64, Session> = Cache::builder(1000)
    ///     .time_to_idle(Duration::from_secs(1800))
    ///     .idle_after(|_, session: &Session| session.is_admin.then_some(Duration::from_secs(60)))
    ///     .build()?;
    /// sessions.insert(1, Session { user: "ann".into(), is_admin: true });
    /// assert_eq!(sessions.get(&1).unwrap().user, "ann");
    /// # Ok::<(), BuildError>(())
    /// ```
    #[doc(alias = "TTI")]
    #[doc(alias = "expire_after_read")]
    pub fn idle_after(
        mut self,
        time: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.idle_each = Some(Box::new(time));
        self
    }

    /// Refresh ahead: loads an entry again before it expires. A request by
    /// [`Cache::get_or_insert_with`] or one of its variants runs its load if the entry has at most
    /// this time to live left. Until that load ends, all other requests get the present value,
    /// which is still valid. So no request waits at the end of an entry that is requested often
    /// enough. There are no helper threads: one of the callers waits for the load.
    ///
    /// If that load fails, its caller gets the present value, too, and the next request tries again
    /// (see [`Stats::load_failures`](crate::Stats::load_failures)). A value that is inserted during
    /// the load wins, as always. [`Cache::get`] loads nothing. A time to idle plays no part in
    /// this.
    ///
    /// ```
    /// use manycore_cache::{BuildError, Cache};
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let seconds = Arc::new(AtomicU64::new(0));
    /// let clock = seconds.clone();
    /// let rates: Cache<&str, u32> = Cache::builder(100)
    ///     .time_to_live(Duration::from_secs(60))
    ///     .refresh_ahead(Duration::from_secs(10))
    ///     .clock(move || Duration::from_secs(clock.load(Relaxed)))
    ///     .build()?;
    /// assert_eq!(*rates.get_or_insert_with("EUR", || 1), 1);
    /// seconds.store(49, Relaxed);
    /// assert_eq!(*rates.get_or_insert_with("EUR", || 2), 1);
    /// seconds.store(50, Relaxed);
    /// let mut seen = 0;
    /// let fresh = rates.get_or_insert_with("EUR", || {
    ///     seen = *rates.get_or_insert_with("EUR", || 3); // as any other request now
    ///     2
    /// });
    /// assert_eq!((seen, *fresh), (1, 2));
    /// # Ok::<(), BuildError>(())
    /// ```
    #[doc(alias = "stale while revalidate")]
    #[doc(alias = "refresh_after_write")]
    pub fn refresh_ahead(mut self, time: Duration) -> Self {
        self.ahead = Some(time);
        self
    }

    /// Keeps nothing of an entry besides its key and value. Other caches keep 8 bytes more, or 32
    /// if they weigh or expire. For keys or values that know their own weight and time.
    ///
    /// `ends` returns the time of the cache's clock (see [`clock`](Self::clock)) at which an entry
    /// expires, or `None` for never. It and the weigher are called at each access, not once. The
    /// weight of an entry must never change, or the total weight is wrong for good. Its expiration
    /// may change ([`Cache::get_locked_if`]). There are no versions: `version` is 0, and
    /// [`Cache::compare_and_swap`], [`Cache::insert_for`] and [`Cache::expire_if`] panic.
    ///
    /// ```
    /// use manycore_cache::{BuildError, Cache};
    /// use std::time::Duration;
    ///
    /// struct Page(Vec<u8>, Option<Duration>);
    /// let pages: Cache<u64, Page> = Cache::builder(1 << 20)
    ///     .weigher(|_, page: &Page| page.0.len() as u32)
    ///     .without_metadata(|_, page| page.1)
    ///     .clock(|| Duration::from_secs(100))
    ///     .build()?;
    /// pages.insert(1, Page(vec![1], Some(Duration::from_secs(101))));
    /// pages.insert(2, Page(vec![2], Some(Duration::from_secs(99))));
    /// assert!(pages.get(&1).is_some() && pages.get(&2).is_none());
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn without_metadata(
        mut self,
        ends: impl Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.ends = Some(Box::new(ends));
        self
    }

    /// Keeps the entries of a cache [without metadata](Self::without_metadata) in this memory: see
    /// [`NodeMemory`].
    pub fn memory(mut self, memory: Arc<dyn NodeMemory>) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets the eviction listener, which is called with each entry that was removed, and the cause.
    /// It runs on the thread that removed the entry, after the removal, with no lock held. It may
    /// use the cache. If it panics, so does the call that removed the entry; an insertion that was
    /// making room is then not done.
    #[doc(alias = "on_evict")]
    #[doc(alias = "removal listener")]
    pub fn listener(mut self, listen: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self {
        self.listener = Some(Box::new(listen));
        self
    }

    /// Calls the listener for these causes alone. A removal for another cause then costs as much as
    /// without a listener.
    ///
    /// ```
    /// use manycore_cache::{Cache, Cause};
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::sync::Arc;
    ///
    /// let told = Arc::new(AtomicUsize::new(0));
    /// let count = told.clone();
    /// let cache: Cache<u32, u32> = Cache::builder(100)
    ///     .listener(move |_, _, _| drop(count.fetch_add(1, Ordering::Relaxed)))
    ///     .listener_causes(&[Cause::Evicted])
    ///     .build()?;
    /// for n in 0..200 {
    ///     cache.insert(n, n);
    /// }
    /// let evicted = told.load(Ordering::Relaxed);
    /// assert!(evicted >= 100);
    /// cache.invalidate_all();
    /// assert_eq!(told.load(Ordering::Relaxed), evicted);
    /// # Ok::<(), manycore_cache::BuildError>(())
    /// ```
    pub fn listener_causes(mut self, causes: &[Cause]) -> Self {
        self.told = causes.iter().fold(0, |told, cause| told | cause.bit());
        self
    }

    /// Sets the clock, for tests. It returns the time since a fixed moment, and must be monotonic.
    pub fn clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.time = Some(Box::new(now));
        self
    }

    /// Says whether [`Cache::stats`] counts hits and misses, which costs some 2 ns for each read.
    pub fn count_reads(mut self, yes: bool) -> Self {
        self.counts_reads = yes;
        self
    }

    /// Refuses settings that contradict each other or are out of range.
    fn check(&self) -> Result<(), BuildError> {
        const MOST: u64 = 1 << 62;
        if !(1..=MOST).contains(&self.capacity) {
            return Err(BuildError::OutOfRange("capacity", MOST));
        }
        for (what, time) in [
            ("time to live", self.live),
            ("time to idle", self.idle),
            ("time to refresh ahead", self.ahead),
        ] {
            if time == Some(Duration::ZERO) {
                return Err(BuildError::NoTime(what));
            }
        }
        for (what, is_set) in [
            ("time to live", self.live.is_some()),
            ("time to idle", self.idle.is_some()),
            ("time of each entry (`expire_after`)", self.expiry.is_some()),
            ("time to idle of each entry (`idle_after`)", self.idle_each.is_some()),
        ] {
            if is_set && self.ends.is_some() {
                return Err(BuildError::NoMetadata(what));
            }
        }
        if self.memory.is_some() && self.ends.is_none() {
            return Err(BuildError::OnlyWithoutMetadata("memory of its owner's"));
        }
        Ok(())
    }

    /// Builds the cache.
    ///
    /// # Errors
    /// If the capacity is zero or above 2^62, a time is zero, times are set for a cache without
    /// metadata, or memory is set for a cache with metadata.
    pub fn build(self) -> Result<Cache<K, V, S>, BuildError> {
        self.check()?;
        let by_weight = self.weigher.is_some();
        let most = usize::try_from(self.capacity).unwrap_or(usize::MAX);
        let is_small = !by_weight && most <= SEGMENT_ENTRIES;
        let room = match () {
            () if by_weight => ROOM_BY_WEIGHT,
            () if is_small => ROOM_OF_FEW,
            () => ROOM,
        };
        let room = self.initial.unwrap_or(room).min(most).max(1);
        let segments = (most / SEGMENT_ENTRIES).clamp(1, SEGMENTS_MAX);
        let segments = 1_usize << segments.ilog2();
        let buckets = buckets_for(room.div_ceil(segments));
        let has_idle = self.idle.is_some() || self.idle_each.is_some();
        let has_times = self.live.is_some() || has_idle || self.expiry.is_some();
        let is_timed = has_times || self.ends.is_some();
        let kind = match () {
            () if self.memory.is_some() => Kind::Lent,
            () if self.ends.is_some() => Kind::Bare,
            () if by_weight => Kind::Full,
            () if is_small && is_timed => Kind::SharedFull,
            () if is_small => Kind::Shared,
            () if is_timed => Kind::Full,
            () => Kind::Plain,
        };
        let tables = Table::some(segments, buckets, self.eviction == Eviction::ScanResistant);
        let in_bytes = match self.in_bytes {
            None if by_weight => InBytes::Perhaps,
            Some(true) if by_weight => InBytes::Yes,
            _ => InBytes::No,
        };
        let home = Home::new(kind, in_bytes, self.memory);
        // The capacity and the garbage count an entry alike, so garbage is an eighth of the
        // entries, whatever they own.
        let entry = if in_bytes == InBytes::No { home.garbage_bytes() } else { 1 };
        let domain = garbage_domain(most.saturating_mul(entry));
        let is_watched = is_timed || self.counts_reads;
        let start = Instant::now();
        Ok(Cache {
            segments: tables.map(|table| Segment::new(table, kind)).collect(),
            segment_mask: segments - 1,
            pool: Line(AtomicI64::new(self.capacity as i64)),
            capacity: AtomicI64::new(self.capacity as i64),
            pinned: AtomicI64::new(0),
            hasher: self.hasher,
            eviction: self.eviction,
            frequency_max: self.eviction.frequency_max(),
            is_simple: kind.is_plain() && self.listener.is_none(),
            traceless_from: if is_watched { u8::MAX } else { self.eviction.frequency_max() },
            is_watched,
            weigher: self.weigher,
            live: self.live.map(nanos),
            idle: self.idle.map(nanos),
            expiry: self.expiry,
            idle_each: self.idle_each,
            ahead: self.ahead.map(nanos),
            ends: self.ends,
            listener: self.listener,
            told: self.told,
            time: self.time.unwrap_or_else(|| Box::new(move || start.elapsed())),
            is_timed,
            may_end: AtomicBool::new(self.live.is_some() || self.idle.is_some()),
            counts: Counts::new(self.counts_reads),
            flights: Flights::new(is_small),
            domain: domain.expect("the settings are in range"),
            home,
            kind,
            budgeted: None,
        })
    }
}

/// Returns the number of buckets of a table for this number of entries.
pub(crate) fn buckets_for(entries: usize) -> usize {
    entries.saturating_mul(10).div_ceil(LOAD_TENTHS).max(1)
}

/// Returns the reclamation domain of a cache of this capacity in bytes.
fn garbage_domain(capacity: usize) -> Result<Domain, manycore::section::BuildError> {
    let garbage = (capacity / GARBAGE_PART).clamp(GARBAGE_MIN, GARBAGE_MAX);
    let domain = Domain::builder().mode(Mode::Epoch).batch_nodes(BATCH_ENTRIES);
    domain.budget(garbage).backpressure(GARBAGE_WAIT).build()
}

/// Converts a time to nanoseconds. More than 500 years means for ever.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

// As for the cache, closures are trusted. A builder has no keys and values yet.
impl<K, V, S: UnwindSafe> UnwindSafe for Builder<K, V, S> {}
impl<K, V, S: RefUnwindSafe> RefUnwindSafe for Builder<K, V, S> {}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("capacity", &self.capacity)
            .field("eviction", &self.eviction)
            .field("by_weight", &self.weigher.is_some())
            .field("time_to_live", &self.live)
            .field("time_to_idle", &self.idle)
            .finish_non_exhaustive()
    }
}
