//! Safe memory reclamation by read-side sections, like RCU or `crossbeam-epoch`. Readers traverse
//! shared nodes without a lock; a retired node is freed after its grace period, when no reader can
//! still hold it.
//!
//! A stack after Treiber shows the three steps: link nodes by [`Atomic`], follow them inside a
//! [`Section`], and pass each unlinked node to [`retire`](Section::retire), once.
//!
//! ```
//! use manycore::section::{self, Atomic, Owned};
//!
//! struct Node { value: u32, next: Atomic<Node> }
//! static TOP: Atomic<Node> = Atomic::null();
//!
//! fn push(value: u32) {
//!     let section = section::enter();
//!     let linked = TOP.fetch_update(&section, |top| {
//!         Some(Owned::new(Node { value, next: Atomic::from(top) }))
//!     });
//!     assert!(linked.is_ok());
//! }
//!
//! fn pop() -> Option<u32> {
//!     let section = section::enter();
//!     let top = TOP.fetch_update(&section, |top| Some(top.as_ref()?.next.load(&section))).ok()?;
//!     let value = top.as_ref()?.value;
//!     // SAFETY: unlinked just now, by this thread alone; all sections are of the global domain.
//!     unsafe { section.retire(top) };
//!     Some(value)
//! }
//!
//! push(1);
//! push(2);
//! assert_eq!((pop(), pop(), pop()), (Some(2), Some(1), None));
//! ```
//!
//! A section is RCU's read-side critical section, `crossbeam-epoch`'s pinned guard, and the
//! parallel section of the paper (see the source below). Unlike a hazard pointer, one section
//! protects all nodes of its domain. Opening and closing a section takes 2 ns and writes no shared
//! line.
//!
//! | In `crossbeam-epoch` | here |
//! |---|---|
//! | `Collector`, `default_collector` | [`Domain`], [`global`] |
//! | `pin`, `Guard` | [`enter`], [`Section`] |
//! | `Guard::defer_destroy`, `Guard::defer` | [`Section::retire`], [`Section::defer`] |
//! | `Guard::repin`, `Guard::repin_after` | [`Section::refresh`], [`Section::refresh_after`] |
//! | `Guard::flush` | [`Domain::collect`], after the section is closed |
//! | `Atomic`, `Shared`, `Owned`, `Pointable`, `unprotected` | the same names |
//!
//! | For | take |
//! |---|---|
//! | a section of the process's own domain | [`enter`] |
//! | a separate domain, for a large structure or for long sections | [`Domain`] |
//! | links, loaded pointers, nodes that are not linked yet | [`Atomic`], [`Shared`], [`Owned`] |
//! | slices and texts as nodes; no trait objects | [`Pointable`] |
//! | a section that is kept across an `.await` or moves to another thread | [`OwnedSection`] |
//! | a structure that no other thread has: its `Drop` | `unprotected`, [`Atomic::into_owned`] |
//! | a function that runs after the grace period | [`Section::defer`] |
//! | to wait for readers, or ask if they are done | [`Domain::synchronize`], [`Domain::quiesced`] |
//! | a lock in each node that cannot be taken once the node was freed | [`NodeLock`] |
//! | to hold one node back after its grace period | [`Gate`] |
//! | memory of other allocators; making a node in the memory of an old one | [`Section::retire_raw`], [`Section::reuse_raw`] |
//! | statistics of what is done in sections | [`SectionCounts`] |
//! | how much garbage waits, and what holds it up | [`Domain::backlog`] |
//!
//! Do not use it for values that are read under a lock anyway, or for readers that stay inside for
//! long (use reference counts). For a single value that is replaced as a whole, an `Arc` behind a
//! lock will do.
//!
//! # Memory
//!
//! A node of up to 512 bytes, header included, comes from slabs that all domains share. There is
//! one slab for each of 16 sizes. A larger node, or one aligned to more than 16 bytes, comes from
//! the global allocator.
//!
//! So a node that is replaced all the time is made in memory that its thread freed just before, and
//! the nodes of two threads share no cache line. For each size that it uses, a thread keeps about
//! 64 KiB of free nodes. It also keeps up to 16 empty chunks of 64 KiB, or 256 if it fetched chunks
//! again and again. When the thread ends, one empty chunk of each size stays. Nodes that other
//! threads freed come back to the thread when it makes new ones. A counting global allocator, or a
//! tool that watches the allocator, does not see these nodes.
//!
//! # Modes
//!
//! A domain finds out in one of two ways that a grace period is over:
//!
//! | | [`Mode::Epoch`] | [`Mode::Bounded`] |
//! |---|---|---|
//! | made by | [`Domain::new`], [`global`] | [`Domain::bounded`] |
//! | textbook code is | right | wrong without tags |
//! | a stalled section holds back | all retired since | what it can have seen |
//! | other garbage | within the budget | within the budget |
//! | a section costs | 2 ns | 2 ns |
//! | a load of a link costs | one load | two loads |
//! | safety rests on | laws of `retire` | the same, and tags |
//!
//! - *Tags*: in a bounded domain, every link out of a node must be tagged or null before the node
//!   is unlinked ([`Section::retire`] has the exact rule). Lists after Harris and Michael do that
//!   anyway. Treiber's stack and the queue of Michael and Scott do not. A debug build panics when
//!   it loads an untagged link of a retired node.
//! - *What it can have seen*: nodes that were linked before the section stalled.
//! - *The budget*: a bound in bytes; [`Domain`] has the formula.
//! - The second load reads a line that changes once a round, so the line stays in the core's cache.
//! - Without membarrier (a Linux system call), a section costs one more locked instruction.
//!
//! # Laws
//!
//! Owns: [`Domain`] (the threads inside, and the garbage), [`Section`] (the guard of a thread that
//! is inside), the typed pointers [`Atomic`], [`Shared`] and [`Owned`], and [`NodeLock`]. Does not
//! own: the memory of nodes (`slab::classes`).
//!
//! ```text
//! writer   unlink, retire --> open batch --fence, stamp s--> sealed batch --expired--> freed
//! leader   round: era s -> s+1, one membarrier for all, then look at every thread's `lower`
//! reader   enter: lower = era        leave: lower = 0
//! expired  every open section has lower >= s+2
//! ```
//!
//! - *Era*: a number that leaders advance and readers copy.
//! - *Batch*: nodes that one thread retired, sealed with a stamp. A batch is *expired* when its
//!   grace period is over.
//! - *Round*: one thread, the leader, advances the era, pays the membarrier for all threads, and
//!   looks at all of them.
//!
//! section.S1 to section.S11 and section.S13 say what holds, section.S12 says what code in other
//! languages may do, and section.E1 to section.E4 say why freeing is safe:
//! - section.S1 Enter and leave write the thread's own line and nothing else. They read the era,
//!   which changes once a round.
//! - section.S2 The unlink is visible *before* the batch is stamped: a full fence lies between
//!   them.
//! - section.S3 A round takes its stamp before it looks at the other threads, and publishes what it
//!   saw under that stamp.
//! - section.S4 The stamp of entering and the mark "inside" are one word (`lower`; zero means
//!   outside).
//! - section.S5 Retire never waits. It appends the node, frees a few expired nodes, and at most
//!   once a batch leads a round or leaves the round to another leader. Two callers do wait for
//!   sections: [`Domain::synchronize`], and a thread that has sealed a batch while the domain is
//!   over its budget. That thread waits at the end of its outermost section, for a limited time
//!   (section.S10). The number of rounds does not grow with the threads. A thread leads none if it
//!   saw four rounds since its last batch, or if it waits and saw another thread's round.
//! - section.S6 Readers pay a compiler fence, and the leader pays a membarrier. Where there is no
//!   membarrier, readers pay a locked instruction and the leader a fence
//!   ([`crate::percpu::barrier`], law barrier.B1).
//! - section.S7 Taking the lock of a freed node fails. Releasing the lock and freeing are one step.
//! - section.S8 After the grace period, a [`Gate`] may still hold a node back.
//! - section.S9 The next leader adopts the garbage of a thread that ended, and the limbo of an idle
//!   thread. The leader announces this on the thread's line before the barrier that it pays anyway.
//!   After the barrier it takes the limbo only if the thread is outside and has not refused. A
//!   thread that retires looks at the announcement after it has entered, so the leader or the
//!   thread sees the other (barrier.B1). A thread that is outside claims its limbo by a
//!   compare-exchange. After `fork`, sections that were open in other threads stay open in the
//!   child until the child says that nothing relies on them. Nothing retired there is freed before
//!   that.
//! - section.S10 Garbage is counted in bytes ([`Weight`]). The *charge* of a domain is the bytes
//!   that are sealed and not freed yet, plus the limits of all open batches (`budget`). A limit is
//!   granted only within the budget. A thread adds its sealed batch to the charge before it
//!   compares the charge with the budget. If the charge is greater, the thread closes no further
//!   batch for now. It goes on when the charge is within the budget, when every batch that it
//!   sealed itself is freed, or when its waiting time is over. So at the last moment at which a
//!   thread went on within the budget, the charge was within the budget. Since then each thread has
//!   added at most one batch: the batch's limit was charged already, and only what the thread's
//!   last section retired comes on top. A batch that a leader took from a thread is not freed yet,
//!   so the thread goes on waiting. A batch is *urgent* if it has a node that is large, of unknown
//!   weight, or urgent. An urgent batch is also closed 100 us after the last one, or at once if
//!   there were few of late. Its thread checks it at the end of each section, and frees it as soon
//!   as it is expired. Closing a batch early shortens no grace period.
//! - section.S11 In a debug build, loading an untagged link of a retired node panics in a bounded
//!   domain (`stray`).
//! - section.S12 Code that is not compiled with this crate may open and close sections through the
//!   three words of an [`OpenSection`]. It does what `open_light` and the drop of a [`Section`] do.
//!   To open: if the announced word is zero, load the era with Acquire and store it to the
//!   announced word with Release. Let no later access move up past the store (a compiler fence is
//!   enough). To close: if the pending word is zero, store zero to the announced word with Release.
//!   In all other cases the code calls the library. A signal handler may do both in a thread that
//!   has had a section of the domain. It may skip the look at the pending word, because the code
//!   that it interrupts finds both words unchanged. In a bounded domain, the code loads a pointer
//!   with Acquire, then loads the era. It follows the pointer only if that era is at most the
//!   announced word or the raised word, which only the library writes. Otherwise it calls the
//!   library and loads again (section.E4).
//! - section.S13 The memory of a node is reused without being freed ([`Section::reuse_raw`]) only
//!   if the node is expired, and only by the thread that would free it. The next retire then frees
//!   one node less.
//!
//! # Why it is safe
//!
//! A batch stamped `s` may be freed once every open section has `lower >= s + 2`. The reasons:
//! - section.E1 Let reader R hold a node of the batch. Suppose that the leader of a round that
//!   began after the seal does not see R's `lower`. Then R's loads come after the leader's barrier
//!   (barrier.B1), hence after the unlink (section.S2), and R does not hold the node. So the leader
//!   sees R.
//! - section.E2 Then `lower <= s + 1`. The sealer fenced (F) and read the era as `s`. The leader
//!   that made it `s + 1` fenced afterwards, inside the round, so after F. The leader that made it
//!   `s + 2` came after that (leaders take turns) and released it. A reader with `lower = s + 2`
//!   acquired it, so all that this reader loads afterwards comes after the unlink. (A result that
//!   an earlier round published is just as good: `s + 2` says that the round began after `s + 1`.)
//! - section.E3 A leader may free its own sealed batches as soon as no open section entered before
//!   its round. A reader that entered later acquired the era from the leader, hence the leader's
//!   unlinks.
//! - section.E4 In [`Mode::Bounded`], a node born in era `b` cannot be held by a reader with `upper
//!   < b`. The era `b` was read before the node was published. Reader R returns a pointer only if
//!   an era that it read *after* the pointer was at most `upper`, so `b <= upper` by coherence. R
//!   raises `upper` before it loads again (barrier.B1 as in section.E1). So a batch that one
//!   stalled section holds up is *filtered*: the nodes younger than the section are freed. This
//!   needs that no reader follows a pointer that it loaded from an unlinked node. That is why the
//!   links of a node are tagged before it is unlinked, and why [`Shared::as_ref`] refuses a tagged
//!   pointer in such a domain. (`upper` is the greater of `lower` and `raised`. The values that
//!   earlier sections raised are at most `lower`, because a thread reads the eras in order. So
//!   entering is one store.)
//!
//! (The paper stamps sections and batches by the clock, with a full fence in each section. The
//! workload `smr` of `manycore-bench` has the paper's scheme as a variant.)
//!
//! Source: Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), sections 2.2 and 3.1 to 3.5;
//! birth eras after Wen et al., "Interval-Based Memory Reclamation" (PPoPP 2018), with asymmetric
//! fences in place of the reader's.

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod after_fork;
mod budget;
mod builder;
mod counts;
mod domain;
mod domain_list;
mod enter;
mod gate;
mod grace_period;
mod guard;
mod home;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod inline;
mod leave;
mod limbo;
mod local;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod node_lock;
mod owned;
mod parts;
mod pointer;
mod reclaim;
mod report;
mod retire;
mod settings;
mod state;
#[cfg_attr(any(manycore_loom, manycore_shuttle), allow(dead_code))] // not held for a fork there
mod stray;
mod unprotected;
mod weight;

pub use builder::{BuildError, Builder};
pub use counts::SectionCounts;
pub(crate) use domain::DomainMark;
pub use domain::{Domain, Moment};
pub use gate::{Gate, Retired};
pub use guard::Section;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub use inline::OpenSection;
pub use node_lock::{NodeGuard, NodeLock, TryLockError};
pub use owned::OwnedSection;
pub(crate) use pointer::Look;
pub use pointer::{Atomic, CompareExchangeError, Owned, Pointable, Pointer, Shared};
pub use report::{Backlog, Stalled};
pub use settings::Mode;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub use unprotected::unprotected;
pub use weight::Weight;

/// The default domain, in [`Mode::Epoch`], for all structures that need no domain of their own.
///
/// A domain's garbage waits for every open section of that domain. So a structure with long
/// sections should have a domain of its own.
///
/// ```
/// use manycore::section;
///
/// let section = section::enter();
/// assert!(section.is_of(section::global()));
/// ```
pub fn global() -> &'static Domain {
    &GLOBAL
}

/// Opens a section of the [`global`] domain.
///
/// ```
/// use manycore::section::{self, Atomic};
///
/// let config = Atomic::new(String::from("old"));
/// let section = section::enter();
/// let old = config.swap(section::Owned::new(String::from("new")), &section);
/// assert_eq!(config.load(&section).as_ref().unwrap(), "new");
/// // SAFETY: the swap unlinked the node, and nothing else leads to it.
/// unsafe { section.retire(old) };
/// # drop(section);
/// # // SAFETY: no other thread has `config`.
/// # drop(unsafe { config.into_owned() });
/// ```
#[doc(alias = "pin")]
#[doc(alias = "rcu_read_lock")]
#[inline]
pub fn enter() -> Section<'static> {
    GLOBAL.enter()
}

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static GLOBAL: Domain = Domain::new();
#[cfg(any(manycore_loom, manycore_shuttle))]
crate::sync::global! {
    static GLOBAL: Domain = Domain::new();
}
