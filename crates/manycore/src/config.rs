//! Constants: what the types' builders begin with, and what bounds them.
//!
//! They can't be set; the builders can. Each says what it is for, in which unit.
//!
//! Owns: the tuning constants that are public, shared by several files, or thresholds of a
//! controller; and `SMALL`, by which constants shrink under loom, shuttle and miri, so that a
//! model reaches a full log or a second segment within few steps. A constant that one file alone
//! uses is beside its use.

/// True when a model checker or interpreter drives the code.
pub(crate) const SMALL: bool = cfg!(any(manycore_loom, manycore_shuttle, miri));

/// Size of the unit that cores exchange, doubled because x86 prefetches lines in pairs.
pub const CACHE_LINE_BYTES: usize = 128;

/// log2 of the first segment of a per-slot table (see `percpu::segmented`).
pub(crate) const SEGMENT_BITS: u32 = if SMALL { 1 } else { 5 };

/// Slots whose part of a hot state is one load away, in its own lines; nearly all in use.
pub(crate) const FIRST_SLOTS: usize = if SMALL { 1 } else { 8 };

/// Nested calls of exchangeable objects that a thread announces on its own line; deeper ones are
/// counted in the object.
pub(crate) const CALLS_DEEP: usize = if SMALL { 2 } else { 16 };

/// Updates that may be queued during a hot swap; the caller of a later one blocks.
pub(crate) const SWAP_LOG_MAX: usize = if SMALL { 2 } else { 1 << 16 };

/// Entries that one slot keeps of one object, by default.
pub const DEFAULT_MAX_ENTRIES: usize = if SMALL { 4 } else { 4096 };

/// Bytes that one slot keeps of one object, by default.
pub const DEFAULT_MAX_BYTES: usize = 1 << 20;

/// By what factor a log may exceed its bound while the object is busy, by default.
pub const DEFAULT_GROWTH: usize = 4;

/// The largest bound that a builder accepts.
pub const MAX_BOUND: usize = 1 << 40;

/// Objects that may have logs at the same time, in the table that all objects share by default.
/// (Under loom, one: which of several it would be depends on addresses, and models must not.)
pub const DEFAULT_TABLE_OBJECTS: usize = if cfg!(manycore_loom) {
    1
} else if SMALL {
    4
} else {
    4096
};

/// Updates per read from which a contended object gets logs. Below half as many, logs have stopped
/// paying; the gap keeps objects from flapping.
///
/// A read that merges costs some microseconds where it visits two slots, and some hundred
/// nanoseconds more for each further one; an update in a log saves its turn at the lock, which
/// takes some 20 ns where the same thread has it again, and more where many wait.
pub(crate) const RATIO_FOR_LOGS: u32 = if SMALL { 2 } else { 64 };

/// Contended updates that promote an object.
pub(crate) const CONTENDED_FOR_LOGS: u32 = if SMALL { 1 } else { 4 };

/// Updates or reads of a cold object, none of which had to wait, after which it is reserved for the
/// thread that makes the last one. An object is reserved once, and the other thread that
/// ends it pays for a barrier (2 us, and 1 us for each running thread): a bound on that share, and
/// no threshold of a load. (Models reserve what they need reserved.)
pub(crate) const USES_FOR_RESERVATION: u32 = if cfg!(manycore_shuttle) { 2 } else { 1024 };

/// How many more drops of a count's handles find that another thread has dropped one last than find
/// that the same has, before the count gets rows. In models, only failed compare-exchanges count.
pub(crate) const CHANGES_FOR_ROWS: u64 = if SMALL { 1 << 30 } else { 32 };

/// Reads in a row, each after too few updates, that demote an object.
pub(crate) const IDLE_READS: u32 = if SMALL { 2 } else { 8 };

/// Reads of a counter that a thread does not note behind one that has found it in use. (Fewer than
/// the reads of its tests.)
pub(crate) const READS_UNNOTED: u32 = if SMALL { 0 } else { 8 };

/// Sweeps without an update in between after which an object loses its logs.
pub(crate) const IDLE_SWEEPS: u32 = 2;

/// How often a requested demotion applies what is appended while it applies: updates that append
/// updates to their own object could go on for ever.
pub(crate) const ROUNDS_OF_DEMOTION: u32 = if SMALL { 2 } else { 16 };

/// Probes of a closed gate before an updater backs off: some microseconds.
pub(crate) const LOOKS_AT_GATE: u32 = if SMALL { 0 } else { 200 };

/// Probes for answers before a reader calls membarrier: about the cost of the call.
pub(crate) const LOOKS_FOR_ANSWER: u32 = if SMALL { 1 } else { 100 };

/// Updates per read above which the reader's membarrier is cheaper than one locked instruction in
/// every update. The call takes about 2 us, and it interrupts the other threads for longer than
/// that: on two cores, locked updates win at 2,000 updates a read (1.3x) and biased ones without
/// reads (1.6x). Below it, a trial decides.
pub(crate) const RATIO_FOR_BIAS: u64 = if SMALL { 1 } else { 6000 };

/// Dirty slots from which a read uses a combining tree.
pub(crate) const TREE_SLOTS_MIN: usize =
    if cfg!(any(manycore_loom, manycore_shuttle)) { usize::MAX } else { 16 };

/// Branches that a machine must have for that, and the most that it may have: the reader visits one
/// after the other.
pub(crate) const TREE_BRANCHES_MIN: usize = 2;

/// See above.
pub(crate) const TREE_BRANCHES_MAX: usize = match () {
    () if SMALL => 2,
    () => 16,
};

/// CPUs of one branch: their logs are collected one after the other.
pub(crate) const TREE_CPUS_MAX: usize = 16;

/// Entries of a log that a helper absorbs while others wait; a longer log is passed on unchanged.
pub(crate) const TREE_ABSORB_MAX: usize = 64;

/// Probes of a helper for the answers of its branch's members.
pub(crate) const LOOKS_AT_MEMBERS: u32 = if SMALL { 1 } else { 700 };

/// Probes of a reader at its branches before it goes on without helpers.
pub(crate) const LOOKS_AT_BRANCHES: u32 = if SMALL { 1 } else { 400 };

/// Collections with a tree before one can count as failed: the first ones find out which threads
/// help.
pub(crate) const TREE_TRIES: u32 = 4;

/// Reads for which a member of a `ldu` set stays queued although it did not change: visiting it
/// costs less than queueing it again.
pub(crate) const READS_KEPT: u64 = if SMALL { 0 } else { 4 };

/// Nodes that a thread retires before it seals them and reclaims what it may, by default: enough to
/// amortize the round's barrier (some 2 us) to about a nanosecond a node.
pub const DEFAULT_BATCH_NODES: usize = if SMALL { 2 } else { 2048 };

/// Bytes that a thread retires before it seals them, by default.
pub const DEFAULT_BATCH_BYTES: usize = 1 << 18;

/// Bytes that may wait to be freed in a domain, by default: up to 21 threads have batches of the
/// full size.
pub const DEFAULT_BUDGET_BYTES: usize = 1 << 25;

/// The same in a map's own domain for each core, if that is less. It also bounds what entries of
/// unknown weight keep: with values of 1 KiB, three times as much.
pub(crate) const CORE_BUDGET_BYTES: usize = 1 << 21;

/// What a retired node with drop glue counts as beside its own size, if its weight is not given.
pub const ASSUMED_HEAP_BYTES: usize = 256;

/// Nodes of at least so many bytes are freed as soon as they may be, not in order.
pub const LARGE_NODE_BYTES: usize = 1 << 14;

/// A batch with a large or urgent node, or one of unknown weight, is sealed when the last one is so
/// old. A round each time costs its thread some 2 % (2 us), and a core that writes 10 GB/s can have
/// filled a megabyte.
pub const URGENT_MICROS: u64 = 100;

/// So many such batches in a row are sealed at once if none was for a while: one a removal. At 2 us
/// each, the burst is over after some 60 us.
pub const URGENT_BURST: u32 = 32;

/// A section that has been met for so long counts as stalled: threads over the budget of a domain
/// no longer wait for it. A thread that was switched out in a section is back by then, unless the
/// machine is overcommitted by far.
pub const STALLED_MILLIS: u64 = 100;

/// How often that time is doubled while nothing can be freed: up to a tenth of a second.
pub(crate) const URGENT_DOUBLED: u32 = 10;

/// Sections that close with such a node between two clock reads, at most.
pub(crate) const CLOSES_PER_LOOK: u32 = 128;

/// Such nodes that are retired between two clock reads, at most.
pub(crate) const RETIRES_PER_LOOK: u32 = 32;

/// A thread's garbage that has not changed for so long is adopted by a leader.
pub(crate) const IDLE_MILLIS: u64 = 10;

/// Bytes that a leaf of a namespace's trie may have, unless one node has more; and a magazine of
/// free nodes. The memory of a namespace with few nodes.
pub(crate) const ID_LEAF_BYTES: usize = 1 << 16;

/// log2 of the most ids in one leaf of a namespace's trie.
pub(crate) const ID_LEAF_BITS: u32 = if SMALL { 1 } else { 10 };

/// log2 of the fan-out of its inner nodes: two levels of them reach 2^22 leaves.
pub(crate) const ID_FAN_BITS: u32 = if SMALL { 2 } else { 11 };

/// log2 of the ids that a slot takes from a namespace's frontier at once. At most a leaf.
pub(crate) const ID_CHUNK_BITS: u32 = if SMALL { 1 } else { 6 };

/// Freed ids that travel between threads together.
pub(crate) const ID_MAGAZINE: usize = if SMALL { 1 } else { 32 };

/// Bytes of free nodes that a slot keeps in full magazines before it passes one on: two batches, so
/// that nodes reclaimed on a core are reused there. And the most magazines.
pub(crate) const ID_KEPT_BYTES: usize = if SMALL { 0 } else { 2 * DEFAULT_BATCH_BYTES };

/// See above.
pub(crate) const ID_KEPT: usize = 2 * DEFAULT_BATCH_NODES / ID_MAGAZINE;

/// Buckets of a `HashMap` without a given capacity.
pub(crate) const MAP_BUCKETS: usize = if SMALL { 1 } else { 4 };

/// Entries for each bucket, of seven places, beyond which a `HashMap` grows: an eighth of the
/// buckets is then a chain of two.
pub(crate) const MAP_LOAD: usize = if SMALL { 1 } else { 5 };

/// The part of its entries to which a `HashMap` may shrink before its table does: so one that
/// varies by less keeps its table.
pub(crate) const MAP_SPARSE: usize = 8;

/// Buckets below which no table shrinks by itself.
pub(crate) const MAP_SHRINKS_TO: usize = if SMALL { 4 } else { 32 };

/// Removals that leave a bucket empty, for one that looks whether the table should shrink.
pub(crate) const MAP_REMOVALS_PER_LOOK: u64 = if SMALL { 1 } else { 4 };

/// Buckets that an update moves while a `HashMap` grows, beside its own. Growth is over after a
/// sixteenth as many updates as there are buckets, long before the next can begin.
pub(crate) const MAP_CHUNK: usize = if SMALL { 1 } else { 16 };

/// Branches of a `RangeMap` that a thread has found empty and leaves where they are: what is
/// inserted and removed again and again makes its way once.
pub const RANGE_BRANCHES_KEPT: usize = if SMALL { 0 } else { 64 };

/// Slots of the first array of a layer of a `PrivatePages`; half of them are used.
pub(crate) const LAYER_SLOTS: usize = if SMALL { 2 } else { 16 };

/// How many times larger a layer may be than the one above it, if both are shared, for them to be
/// joined: chains have a logarithm of layers to this base.
pub(crate) const LAYER_RATIO: usize = 4;

/// Pages or lists of layers that a thread replaces in a `PrivatePages` before it reclaims. Few,
/// because each may be the last reference to many pages.
pub(crate) const PRIVATE_BATCH: usize = if SMALL { 2 } else { 8 };

/// Replacements after which it frees all that can be freed.
pub(crate) const PRIVATE_BOUND: usize = 4 * PRIVATE_BATCH;

/// Updates between two decisions in shared mode.
pub(crate) const SHARED_UPDATES_PER_LOOK: u32 = if SMALL { 1 } else { 32 };

/// Reads of one thread between two decisions in shared mode; a power of two.
pub(crate) const SHARED_READS_PER_LOOK: usize = if SMALL { 2 } else { 1 << 14 };

/// Reads for each update from which it admits parallel readers; it stops below half.
pub(crate) const SHARED_FROM: u32 = 24;

/// Reads for each update from which a `membarrier` in each update costs less than a locked
/// instruction in each read.
pub(crate) const BIASED_FROM: u32 = 2000;

/// Decisions in a row that must want the same change.
pub(crate) const PATIENCE: u32 = if SMALL { 1 } else { 2 };

/// Hits of a shard of a centralized `DHash` between two decisions whether to distribute it.
pub(crate) const HITS_PER_LOOK: u32 = if SMALL { 2 } else { 1024 };

/// How many of them must have waited, by default.
pub(crate) const DISTRIBUTION_WAITS: u32 = if SMALL { 1 } else { 16 };
