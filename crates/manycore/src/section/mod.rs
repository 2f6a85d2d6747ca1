//! Safe memory reclamation by read-side sections: readers traverse shared nodes without a lock, and
//! a retired node is freed after its grace period, when no reader can hold it.
//!
//! What to do, in a stack after Treiber: link nodes by [`Atomic`], follow them in a [`Section`],
//! and hand each node that was unlinked to [`retire`](Section::retire), once.
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
//! A section is what RCU calls a read-side critical section, and epoch-based reclamation a pin; the
//! paper calls it a parallel section. Unlike hazard pointers, one section protects all nodes. To
//! open and close one takes 2 ns and writes no shared line.
//!
//! | For | take |
//! |---|---|
//! | a section of the process's own domain | [`enter`] |
//! | a domain apart, for a large structure or one with long sections | [`Domain`] |
//! | links, what was loaded from one, a node of one's own | [`Atomic`], [`Shared`], [`Owned`] |
//! | slices and texts as nodes; no trait objects | [`Pointable`] |
//! | a section that is kept across an `.await` or moves to another thread | [`OwnedSection`] |
//! | a structure that no other thread has: its `Drop` | `unprotected`, [`Atomic::into_owned`] |
//! | a function to be run after the grace period | [`Section::defer`] |
//! | to wait for readers | [`Domain::synchronize`], [`Domain::quiesced`] |
//! | a lock in each node, whose acquisition fails once the node was freed | [`NodeLock`] |
//! | a say in when a node is freed | [`Gate`] |
//! | memory of other allocators; a node made in an old one's memory | [`Section::retire_raw`], [`Section::reuse_raw`] |
//! | statistics of what is done in sections | [`SectionCounts`] |
//! | how much waits, and what holds it up | [`Domain::backlog`] |
//!
//! When not: values that are read under a lock anyway; readers that rest inside for long (take
//! reference counts); a single value replaced as a whole, where an `Arc` behind a lock will do.
//!
//! # Memory
//!
//! A node of up to 512 bytes, header included, comes from slabs that all domains share, one for
//! each of 16 sizes; a larger one, or one aligned to more than 16, from the global allocator. So a
//! node that is replaced all the time is made in memory that its thread freed just before, and
//! nodes of two threads share no line. A thread keeps some 64 KiB of free nodes of each size that
//! it uses at hand, and up to 16 empty chunks of 64 KiB, or 256 if it fetched them again and again;
//! when it ends, one. Nodes that others freed come back to it when it makes new ones. A global
//! allocator that counts, or a tool that watches it, does not see those nodes.
//!
//! # Modes
//!
//! A domain has one of two ways to find out that a grace period is over:
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
//! - *Tags*: in a bounded domain, every link out of a node is tagged or null before the node is
//!   unlinked ([`Section::retire`] says it in full). A list after Harris and Michael does that
//!   anyway; Treiber's stack and the queue of Michael and Scott do not. Debug builds panic at the
//!   load of an untagged link of a retired node.
//! - *What it can have seen*: what was linked before it stalled.
//! - *The budget*: a bound in bytes; [`Domain`] has the formula.
//! - The second load is of a line that changes once a round, so it stays in the core's cache.
//! - Where there is no membarrier (it is Linux's), a section costs a locked instruction more.
//!
//! # Laws
//!
//! Owns: [`Domain`] (the threads inside, and the garbage), [`Section`] (the guard of a thread
//! inside), the typed pointers [`Atomic`], [`Shared`] and [`Owned`], and [`NodeLock`]. Does not
//! own: the memory of nodes (`slab::classes`).
//!
//! *Era*: a number that reclaimers advance and readers copy. *Batch*: nodes that one thread
//! retired, sealed with a stamp. *Round*: one thread, the leader, advances the era, pays the
//! membarrier for all threads, and looks at all of them. A batch is *expired* when its grace period
//! is over.
//!
//! section.S1 to section.S11 and section.S13 state what holds, section.S12 what other languages may
//! do, section.E1 to section.E4 why:
//! - section.S1 Enter and leave write the thread's own line and nothing else. They read the era,
//!   which changes once a round.
//! - section.S2 The unlink is visible *before* the batch is stamped: a full fence lies between
//!   them.
//! - section.S3 What a round publishes about the others is stamped before the others are looked at.
//! - section.S4 Enter stamp and "inside" are one word (`lower`; zero is outside).
//! - section.S5 Retire never waits: it appends, frees a few expired nodes, and at most once a batch
//!   leads a round or leaves it to the leader. For sections wait [`Domain::synchronize`] and, at
//!   the end of its outermost section, a thread that has sealed a batch while the domain is over
//!   its budget: for a limited time (section.S10). Rounds do not grow with the threads: a thread
//!   that saw four rounds since its last batch leads none, nor one that waits and saw another's.
//! - section.S6 Readers pay a compiler fence, the leader a membarrier; where there is none, readers
//!   pay a locked instruction and the leader a fence ([`crate::percpu::barrier`], law percpu.B1).
//! - section.S7 Taking the lock of a node that was freed fails; releasing and freeing is one step.
//! - section.S8 After the grace period a [`Gate`] may hold a node back.
//! - section.S9 The next leader adopts the garbage of a thread that ended, and the limbo of a
//!   thread that is idle: it announces that on the thread's line before the barrier that it pays
//!   anyway, and takes the limbo only if the thread is outside after it and has not refused. A
//!   thread looks at that word when it retires, after it has entered, so one of the two sees the
//!   other (percpu.B1); outside it claims the limbo by a compare-exchange. After `fork`, sections
//!   that were open in other threads stay open in the child, until it says that nothing relies on
//!   them: nothing retired there is freed.
//! - section.S10 Garbage counts bytes ([`Weight`]). The *charge* of a domain is what is sealed and
//!   not freed yet, and the limits of all open batches (`budget`). A limit is granted only within
//!   the budget. A thread adds a batch to the charge before it compares it with the budget; if the
//!   charge is greater, the thread closes no further batch until the charge is within the budget,
//!   all that it sealed itself is freed, or the time for which it waits is over. So at the last
//!   moment at which a thread went on within the budget, the charge was within it; since then each
//!   thread has added one batch, of its limit, which was charged, and what its last section
//!   retired. A batch that a leader took from a thread is not freed: that thread waits on. A batch
//!   is *urgent* if it has a node that is large, of unknown weight, or urgent: it is also closed
//!   100 us after the last one, or at once if there were few of late; its thread checks it at the
//!   end of each section, and frees it at once when it is expired. Closing a batch early shortens
//!   no grace period.
//! - section.S11 In a debug build, a load of an untagged link of a retired node panics in a bounded
//!   domain (`stray`).
//! - section.S12 Code that is not compiled with this crate may open and close sections by the three
//!   words of an [`OpenSection`], as `open_light` and the drop of a [`Section`] do. To open: if the
//!   announced word is zero, load the era with Acquire, store it there with Release, and let no
//!   access pass (a compiler fence is enough). To close: if the pending word is zero, store zero to
//!   the announced word with Release. In all other cases it calls. A signal handler may do both in
//!   a thread that has had a section of the domain, and skip the look at the pending word: whatever
//!   it interrupts finds both words as it left them. In a bounded domain it follows a pointer that
//!   it has loaded with Acquire only if the era, loaded after that, is at most the announced word
//!   or the raised one, which calls alone write; else it calls, and loads again (section.E4).
//! - section.S13 Memory is used again without being freed ([`Section::reuse_raw`]) only if it is
//!   expired, by the thread that would free it; a retire that follows frees one node less.
//!
//! # Why it is safe
//!
//! Why a batch stamped `s` may be freed once every open section has `lower >= s + 2`:
//! - section.E1 Let reader R hold a node of the batch. If the leader of a round that began after
//!   the seal does not see R's `lower`, then R's loads come after the leader's barrier (percpu.B1),
//!   hence after the unlink (section.S2): R does not hold the node. So the leader sees R.
//! - section.E2 Then `lower <= s + 1`. The sealer fenced (F) and read the era as `s`. The leader
//!   that made it `s + 1` fenced afterwards, inside the round, so after F; the one that made it `s
//!   + 2` came after that (leaders take turns) and released it; a reader of `s + 2` acquired it.
//!   All that R loads afterwards comes after the unlink. (What an earlier round published is as
//!   good: `s + 2` says that it began after `s + 1`.)
//! - section.E3 A leader may free its own sealed batches as soon as no section is open that entered
//!   before its round: a reader that entered later acquired the era from the leader, hence the
//!   leader's unlinks.
//! - section.E4 In [`Mode::Bounded`], a node born in era `b` cannot be held by a reader whose
//!   `upper < b`: `b` was read before the node was published; R returns a pointer only if an era
//!   read *after* the pointer was at most `upper`; so `b <= upper` by coherence. And R raises
//!   `upper` before it loads again (percpu.B1 as in section.E1). So a batch that one stalled
//!   section holds up is filtered (*filtered*): nodes younger than the section are freed. This
//!   needs that a pointer loaded from an unlinked node is not followed, which is why the links of a
//!   node are tagged before it is unlinked, and why [`Shared::as_ref`] refuses a tagged pointer in
//!   such a domain. (`upper` is the greater of `lower` and `raised`: what earlier sections raised
//!   is at most `lower`, because one thread reads the eras in order. So to enter is one store.)
//!
//! (The paper stamps sections and batches by the clock, with a full fence in each section. The
//! workload `smr` has that as a variant.)
//!
//! Source: Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), sections 2.2 and 3.1 to 3.5;
//! birth eras after Wen et al., "Interval-Based Memory Reclamation" (PPoPP 2018), with
//! asymmetric fences in place of the reader's.

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

/// The default domain, shared by all that need none of their own, in [`Mode::Epoch`].
///
/// A domain's garbage waits for every open section of that domain, so a structure whose sections
/// are long deserves a domain of its own.
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
