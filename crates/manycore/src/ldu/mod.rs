//! Cancelling updates (update-side removing of LDU): insertions and removals of a member cancel in
//! a mark of its own, and only the difference reaches the structure.
//!
//! ```
//! use manycore::ldu::{DeferredSet, Element, Structure};
//! use std::collections::BTreeSet;
//!
//! /// What reads want: any sequential structure that is told of members.
//! #[derive(Default)]
//! struct Peers(BTreeSet<String>);
//! impl Structure<Element<String>> for Peers {
//!     fn insert(&mut self, peer: &Element<String>) {
//!         self.0.insert((**peer).clone());
//!     }
//!     fn remove(&mut self, peer: &Element<String>) {
//!         self.0.remove(&**peer);
//!     }
//! }
//!
//! let connected = DeferredSet::new(Peers::default());
//! let first = connected.add("10.0.0.1".into()); // a handle: in the set until it is dropped
//! let second = connected.add("10.0.0.2".into());
//! std::thread::scope(|s| {
//!     s.spawn(move || drop(second)); // cancels, on whichever thread
//! });
//! assert_eq!(connected.read().0, ["10.0.0.1".to_string()].into());
//! drop(first);
//! ```
//!
//! | You have | Take |
//! |---|---|
//! | a set whose members come and go, seldom read | [DeferredSet] |
//! | many small, short-lived sets | [SetDomain], with a [FreeList] for each busy thread |
//! | members of a type of your own that allocate nothing | [Linked], with [Links] among the fields |
//!
//! **Only for structures where operations on different members commute**: sets, registries, reverse
//! maps, interval trees. Not for queues, stacks, or anything in which the order of insertions is
//! visible. [`Registry`](crate::collections::Registry),
//! [`IntervalRegistry`](crate::collections::IntervalRegistry) and
//! [`ActiveSet`](crate::collections::ActiveSet) are ready-made.
//!
//! # How it works
//!
//! Every member carries one atomic word. An insertion or a removal changes that word, with one
//! atomic instruction, and is done; if the member is not in a queue already, it goes into one. A
//! read takes the set's lock, drains the queues, and applies to the structure what the words say. A
//! member that was inserted and removed since the last read has cancelled, on whichever threads
//! that happened; no clock is read, nothing is allocated, and no line is written but the member's.
//!
//! # Consistency
//!
//! Linearizable: a change takes effect, as far as any read can tell, at one moment between its call
//! and its return.
//!
//! # Threads, forks, panics, recursion
//!
//! - A thread that ends leaves its queue where it is; the next read takes it, and the next thread
//!   that takes the slot goes on with it.
//! - After `fork`, the child's copy of a set is whole, provided that no other thread was inside a
//!   change or a read of that set at that moment.
//! - The structure may change members of any set from within its `insert` and `remove`: the change
//!   is queued, and the next read applies it. A read of the same set there would wait for itself;
//!   it panics instead, before it takes anything. The same holds for a thread that has a guard of
//!   the set, exclusive or shared, whichever other readers wait; and neither of its changes waits
//!   for a reader, of this set or another ([`Builder::max_queued`]). Of threads that each
//!   hold a set (or another object of the library's) and *read* each other's in a cycle (deadlock),
//!   the last one panics with a message.
//! - A panic in a member's destructor reaches the reader or the owner that frees it, after all
//!   others have been dropped; in a thread that is unwinding, or in a change that drains, it is
//!   contained.
//! - A poisoned set's members that came and went are freed all the same: what a set keeps is
//!   bounded by what is in it.
//!
//! # Laws
//!
//! Owns: [`DeferredSet`], the marks ([`Links`]), the queues, and the handles.
//!
//! - **ldu.U1** Insertions and removals of one member alternate, each after the one before it has
//!   returned. Handles make that a rule of the compiler ([`Attached`], [`Detached`]); the raw calls
//!   check it and panic with the member's name.
//! - **ldu.U2** Operations on different members commute.
//! - **ldu.U3** A queued member's memory is held: an owner that drops it while it is queued
//!   leaves it to the next drain, which frees it. A drain reads where the queue goes on *before* it
//!   lets go of a member, and does not touch it afterwards.
//! - **ldu.U4** A member's own data stay as they are from its insertion until no queue has it. Only
//!   then does [`Detached::into_box`] give it back.
//! - **ldu.U5** One word (`word`) holds all marks: attached, queued, given up, applied, and the
//!   number of the last read that began before the last change.
//! - **ldu.U6** A read has a cut. It raises the set's *epoch* before it looks at the first queue.
//!   Every change notes the epoch that it found, and the member's state before its first change in
//!   that epoch; the read takes the state that each member had at the cut. So a read sees every
//!   change that returned before it began, and if it sees a change, then also all that came before
//!   that one. (The published form has no cut: a change can be missed while a later one is seen.)
//!   Changes do not wait for a read, but at a queue of four times its bound, and a read never waits
//!   for a change.
//!   (A set may also make changes *eagerly*: module `eager`.)
//! - **ldu.U7** A panic of the structure's reaches the reader that called it (a change that drained
//!   because its queue was full contains it). The set is poisoned until
//!   [`DeferredSet::clear_poison`]; what was not applied stays queued, and changes go on. The call
//!   that panicked counts as made.
//!
//! A gate, with which a reader excludes changes while it captures the words, would do for ldu.U6,
//! too. The epoch costs a change one load of a line that only reads write, where a gate costs an
//! announcement besides, and no thread waits for another.
//!
//! Source: [LDU](crate#sources), section 2.4 of the thesis, and its preliminary paper.

mod builder;
mod change;
mod drain;
mod eager;
mod guard;
mod handle;
mod links;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod pending;
mod queue;
mod retired;
mod set;
mod set_domain;
mod state;
mod structure;
mod untold;
mod word;

// Last: the page of `DeferredSet` shows methods in the order of the modules that have them.
mod raw;

pub use crate::lock::error::TryReadError;
pub use builder::{BuildError, Builder, Queue};
pub use guard::{ReadGuard, SharedGuard};
pub use handle::{Attached, Detached};
pub use links::{Element, Linked, Links};
pub(crate) use pending::Look;
pub use set::{DeferredSet, Stats};
pub use set_domain::{FreeList, SetDomain, SetId, SetMap, SetMember};
pub use structure::Structure;
