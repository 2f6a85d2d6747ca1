//! The constants: defaults of the builders, their bounds, and thresholds of the controllers. Each
//! says what it is for, and in which unit. What users have to know of them is in the documentation
//! of the builders.
//!
//! Owns: the tuning constants that are shared by several files, or thresholds of a controller. A
//! constant that only one file uses is in that file. `SMALL` shrinks the constants under loom,
//! shuttle and miri, so that a model reaches a full log or a second segment within a few steps.

/// True when a model checker or interpreter drives the code.
pub(crate) const SMALL: bool = cfg!(any(manycore_loom, manycore_shuttle, miri));

/// Unit of false sharing in bytes: a cache line, doubled because x86 prefetches lines in pairs.
pub(crate) const CACHE_LINE_BYTES: usize = 128;

/// log2 of the first segment of a per-slot table (see `percpu::segmented`).
pub(crate) const SEGMENT_BITS: u32 = if SMALL { 1 } else { 5 };

/// Slots that reach their part of a hot state by one load, each on its own cache lines. Nearly all
/// slots in use are among these.
pub(crate) const FIRST_SLOTS: usize = if SMALL { 1 } else { 8 };

/// Nested calls of exchangeable objects that a thread announces on its own line. Deeper calls are
/// counted in the object.
pub(crate) const CALLS_DEEP: usize = if SMALL { 2 } else { 16 };

/// Default limit of the entries that a slot keeps for an object.
pub(crate) const DEFAULT_MAX_ENTRIES: usize = if SMALL { 4 } else { 4096 };

/// Default limit of the bytes that a slot keeps for an object.
pub(crate) const DEFAULT_MAX_BYTES: usize = 1 << 20;

/// Default factor by which a log may exceed its bound while the object is busy.
pub(crate) const DEFAULT_GROWTH: usize = 4;

/// The largest bound that a builder accepts.
pub(crate) const MAX_BOUND: usize = 1 << 40;

/// Objects that may have logs at the same time, in the table that all objects share by default.
/// (Under loom, one object: with more, addresses would decide which object gets an entry, and a
/// model must not depend on addresses.)
pub(crate) const DEFAULT_TABLE_OBJECTS: usize = if cfg!(manycore_loom) {
    1
} else if SMALL {
    4
} else {
    4096
};

/// Updates per read from which a contended object gets logs. Below half as many, logs do not pay.
/// The gap keeps objects from flapping.
///
/// A read that merges two slots costs some microseconds, and some hundred nanoseconds more for each
/// further slot. An update in a log saves its turn at the lock. That turn takes some 20 ns if the
/// same thread had the lock last, and more if many threads wait.
pub(crate) const RATIO_FOR_LOGS: u32 = if SMALL { 2 } else { 64 };

/// Contended updates that promote an object.
pub(crate) const CONTENDED_FOR_LOGS: u32 = if SMALL { 1 } else { 4 };

/// Updates or reads of a cold object in a row without a wait, after which it is reserved for the
/// thread that makes the last one.
///
/// An object is reserved once. The other thread that ends the reservation pays for a barrier (2 us,
/// and 1 us for each running thread). So this constant bounds the barrier's share of the cost; it
/// is not a threshold of a load. (Models reserve what they need reserved.)
pub(crate) const USES_FOR_RESERVATION: u32 = if cfg!(manycore_shuttle) { 2 } else { 1024 };

/// Drops of a count's handles by a thread that did not make the last drop, less those by the thread
/// that did, after which the count gets rows. In models, only failed compare-exchanges count.
pub(crate) const CHANGES_FOR_ROWS: u64 = if SMALL { 1 << 30 } else { 32 };

/// Reads in a row that each follow too few updates, after which an object is demoted.
pub(crate) const IDLE_READS: u32 = if SMALL { 2 } else { 8 };

/// Reads of a counter that a thread does not note after a noted read has found the counter in use.
/// (Fewer than the reads of its tests.)
pub(crate) const READS_UNNOTED: u32 = if SMALL { 0 } else { 8 };

/// Sweeps in a row without an update, after which an object loses its logs.
pub(crate) const IDLE_SWEEPS: u32 = 2;

/// Rounds in which a requested demotion applies what was appended during the round before. The
/// bound is for updates that append updates to their own object, which could go on forever.
pub(crate) const ROUNDS_OF_DEMOTION: u32 = if SMALL { 2 } else { 16 };

/// Probes of a closed gate before an updater backs off: some microseconds in all.
pub(crate) const LOOKS_AT_GATE: u32 = if SMALL { 0 } else { 200 };

/// Probes for answers before a reader calls membarrier: about the cost of the call.
pub(crate) const LOOKS_FOR_ANSWER: u32 = if SMALL { 1 } else { 100 };

/// Updates per read above which the reader's membarrier costs less than one locked instruction in
/// every update.
///
/// The call takes about 2 us, and interrupts the other threads for longer than that. On two cores,
/// locked updates win at 2,000 updates a read (1.3x), and biased updates win without reads (1.6x).
/// Below this ratio, a trial decides.
pub(crate) const RATIO_FOR_BIAS: u64 = if SMALL { 1 } else { 6000 };

/// Dirty slots from which a read uses a combining tree.
pub(crate) const TREE_SLOTS_MIN: usize =
    if cfg!(any(manycore_loom, manycore_shuttle)) { usize::MAX } else { 16 };

/// Branches that a machine must have for a combining tree, at least.
pub(crate) const TREE_BRANCHES_MIN: usize = 2;

/// Branches that a machine may have for a combining tree, at most: the reader visits them one after
/// the other.
pub(crate) const TREE_BRANCHES_MAX: usize = match () {
    () if SMALL => 2,
    () => 16,
};

/// CPUs in one branch, at most: their logs are collected one after the other.
pub(crate) const TREE_CPUS_MAX: usize = 16;

/// Entries of a log that a helper absorbs while others wait. A longer log is passed on unchanged.
pub(crate) const TREE_ABSORB_MAX: usize = 64;

/// Probes that a helper makes for the answers of its branch's members.
pub(crate) const LOOKS_AT_MEMBERS: u32 = if SMALL { 1 } else { 700 };

/// Probes that a reader makes at its branches before it goes on without helpers.
pub(crate) const LOOKS_AT_BRANCHES: u32 = if SMALL { 1 } else { 400 };

/// Reads for which a member of a `ldu` set stays queued although it did not change. Visiting it
/// costs less than queueing it again.
pub(crate) const READS_KEPT: u64 = if SMALL { 0 } else { 4 };

/// Default of the nodes that a thread retires before it seals them and reclaims what it may. The
/// number amortizes the round's barrier (some 2 us) to about a nanosecond a node.
pub(crate) const DEFAULT_BATCH_NODES: usize = if SMALL { 2 } else { 2048 };

/// Default of the bytes that a thread retires before it seals them.
pub(crate) const DEFAULT_BATCH_BYTES: usize = 1 << 18;

/// Default of the bytes that may wait to be freed in a domain. Up to 21 threads have batches of the
/// full size then.
pub(crate) const DEFAULT_BUDGET_BYTES: usize = 1 << 25;

/// Bytes for each core that may wait to be freed in a map's own domain, if that is less than
/// [`DEFAULT_BUDGET_BYTES`]. It also bounds what entries of unknown weight keep: with values of 1
/// KiB, three times as much.
pub(crate) const CORE_BUDGET_BYTES: usize = 1 << 21;

/// Bytes that a retired node with drop glue counts as, beside its own size, if its weight is not
/// given.
pub(crate) const ASSUMED_HEAP_BYTES: usize = 256;

/// Bytes from which a node is freed as soon as it may be, not in order.
pub(crate) const LARGE_NODE_BYTES: usize = 1 << 14;

/// Age of the last batch, in microseconds, at which a batch with a large or urgent node, or one of
/// unknown weight, is sealed.
///
/// A round each time costs its thread some 2 % (2 us). In that time, a core that writes 10 GB/s can
/// fill a megabyte.
pub(crate) const URGENT_MICROS: u64 = 100;

/// Urgent batches in a row that are sealed at once if there was none for a while: one for each
/// removal. At 2 us each, the burst is over after some 60 us.
pub(crate) const URGENT_BURST: u32 = 32;

/// Time for which a section may hold up reclamation before it counts as stalled, in milliseconds.
/// Threads over the budget of a domain do not wait for a stalled section. A thread that was
/// switched out in a section is back by then, unless the machine is overcommitted by far.
pub(crate) const STALLED_MILLIS: u64 = 100;

/// Doublings of [`URGENT_MICROS`] while nothing can be freed: up to a tenth of a second.
pub(crate) const URGENT_DOUBLED: u32 = 10;

/// Sections that close with an urgent node between two clock reads, at most.
pub(crate) const CLOSES_PER_LOOK: u32 = 128;

/// Urgent nodes that are retired between two clock reads, at most.
pub(crate) const RETIRES_PER_LOOK: u32 = 32;

/// Milliseconds without a change after which a leader adopts a thread's garbage.
pub(crate) const IDLE_MILLIS: u64 = 10;

/// Bytes of a leaf of a namespace's trie, and of a magazine of free nodes, at most, unless one node
/// is larger. This is the memory of a namespace with few nodes.
pub(crate) const ID_LEAF_BYTES: usize = 1 << 16;

/// log2 of the ids in one leaf of a namespace's trie, at most.
pub(crate) const ID_LEAF_BITS: u32 = if SMALL { 1 } else { 10 };

/// log2 of the fan-out of the inner nodes of a namespace's trie: two levels of them reach 2^22
/// leaves.
pub(crate) const ID_FAN_BITS: u32 = if SMALL { 2 } else { 11 };

/// log2 of the ids that a slot takes from a namespace's frontier at once. At most as many as a leaf
/// has.
pub(crate) const ID_CHUNK_BITS: u32 = if SMALL { 1 } else { 6 };

/// Freed ids that travel between threads together.
pub(crate) const ID_MAGAZINE: usize = if SMALL { 1 } else { 32 };

/// Bytes of free nodes that a slot keeps in full magazines before it passes a magazine on. Two
/// batches, so that nodes reclaimed on a core are reused there.
pub(crate) const ID_KEPT_BYTES: usize = if SMALL { 0 } else { 2 * DEFAULT_BATCH_BYTES };

/// Full magazines of free nodes that a slot keeps, at most.
pub(crate) const ID_KEPT: usize = 2 * DEFAULT_BATCH_NODES / ID_MAGAZINE;

/// Buckets of a `HashMap` without a given capacity.
pub(crate) const MAP_BUCKETS: usize = if SMALL { 1 } else { 4 };

/// Entries for each bucket (of seven places) beyond which a `HashMap` grows. An eighth of the
/// buckets are chains of two then.
pub(crate) const MAP_LOAD: usize = if SMALL { 1 } else { 5 };

/// Factor by which a `HashMap`'s entries must fall before its table shrinks. A map whose size
/// varies by less keeps its table.
pub(crate) const MAP_SPARSE: usize = 8;

/// Buckets below which no table shrinks by itself.
pub(crate) const MAP_SHRINKS_TO: usize = if SMALL { 4 } else { 32 };

/// Removals that leave a bucket empty, for each removal that checks whether the table should
/// shrink.
pub(crate) const MAP_REMOVALS_PER_LOOK: u64 = if SMALL { 1 } else { 4 };

/// Buckets that an update moves while a `HashMap` grows, if its own has moved. Growth is over after
/// about a fifth as many updates as there are buckets, long before the next growth can begin.
pub(crate) const MAP_CHUNK: usize = if SMALL { 1 } else { 16 };

/// Empty branches of a `RangeMap` that a thread leaves in place. A range that is inserted and
/// removed again and again builds its branches once.
pub(crate) const RANGE_BRANCHES_KEPT: usize = if SMALL { 0 } else { 64 };

/// Slots in the first array of a layer of a `PrivatePages`. Half of them are used.
pub(crate) const LAYER_SLOTS: usize = if SMALL { 2 } else { 16 };

/// Layers are joined if both are shared and the lower is at most this many times larger than the
/// upper. A chain has a logarithm of layers to this base.
pub(crate) const LAYER_RATIO: usize = 4;

/// Pages or lists of layers that a thread replaces in a `PrivatePages` before it reclaims. The
/// number is small because each may be the last reference to many pages.
pub(crate) const PRIVATE_BATCH: usize = if SMALL { 2 } else { 8 };

/// Replacements after which a `PrivatePages` frees all that can be freed.
pub(crate) const PRIVATE_BOUND: usize = 4 * PRIVATE_BATCH;

/// Updates between two decisions of an object in shared mode.
pub(crate) const SHARED_UPDATES_PER_LOOK: u32 = if SMALL { 1 } else { 32 };

/// Reads of one thread between two decisions of an object in shared mode; a power of two.
pub(crate) const SHARED_READS_PER_LOOK: usize = if SMALL { 2 } else { 1 << 14 };

/// Reads per update from which an object in shared mode admits parallel readers. It stops below
/// half.
pub(crate) const SHARED_FROM: u32 = 24;

/// Reads per update from which a `membarrier` in each update costs less than a locked instruction
/// in each read.
pub(crate) const BIASED_FROM: u32 = 2000;

/// Decisions in a row that must ask for the same change before it is made.
pub(crate) const PATIENCE: u32 = if SMALL { 1 } else { 2 };

/// Hits of a shard of a centralized `DHash` between two decisions whether to distribute the table.
pub(crate) const HITS_PER_LOOK: u32 = if SMALL { 2 } else { 1024 };

/// Hits among those of `HITS_PER_LOOK` that must have waited, by default.
pub(crate) const DISTRIBUTION_WAITS: u32 = if SMALL { 1 } else { 16 };
