//! Cancelling updates (update-side removing of LDU). Insertions and removals of a member cancel
//! each other in a mark inside the member, and only the difference reaches the structure.
//!
//! ```
//! use manycore::ldu::{DeferredSet, Element, Structure};
//! use std::collections::BTreeSet;
//!
//! /// The structure that readers see: any sequential type. It is told which members come and go.
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
//!     s.spawn(move || drop(second)); // cancels the insertion, on any thread
//! });
//! assert_eq!(connected.read().0, ["10.0.0.1".to_string()].into());
//! drop(first);
//! ```
//!
//! | You have | Take |
//! |---|---|
//! | a set with members that come and go, seldom read | [DeferredSet] |
//! | members of a type of yours, and no allocation per member | [Linked], with [Links] among the fields |
//!
//! **Only for structures where operations on different members commute**: sets, registries, reverse
//! maps, interval trees. Not for queues, stacks, or any structure that shows the order of
//! insertions. [`Registry`](crate::collections::Registry),
//! [`IntervalRegistry`](crate::collections::IntervalRegistry) and
//! [`ActiveSet`](crate::collections::ActiveSet) are ready-made.
//!
//! # How it works
//!
//! ```text
//! insert, remove --> change the member's word --> not queued yet? push it into a queue
//! read           --> lock --> raise the epoch (the cut) --> drain the queues
//!                    each member:  word at the cut = what the structure knows?  yes: cancelled
//!                                                                               no: tell it
//! ```
//!
//! Every member carries one atomic word. An insertion or a removal changes that word by one atomic
//! instruction, and is done. If the member is not in a queue already, the change also pushes it
//! into one. A read takes the set's lock, drains the queues, and applies to the structure what the
//! words say. If a member was inserted and removed since the last read, the two changes have
//! cancelled, even if different threads made them. A change reads no clock, allocates nothing, and
//! writes only the member's line.
//!
//! # Consistency
//!
//! Linearizable: for every read, a change takes effect at one moment between its call and its
//! return.
//!
//! # Threads, forks, panics, recursion
//!
//! - If a thread ends, its queue stays where it is. The next read empties it, and the next thread
//!   that takes the slot goes on with it.
//! - After `fork`, the child's copy of a set is whole if no other thread was inside a change or a
//!   read of that set at that moment.
//! - The structure may change members of any set from within its `insert` and `remove`: the change
//!   is queued, and the next read applies it. A read of the same set there would wait for itself,
//!   so it panics before it takes anything. The same holds for a thread that has a guard of the
//!   set, exclusive or shared, no matter which other readers wait. No change of such a thread waits
//!   for a reader, of this set or another ([`Builder::max_queued`]).
//! - Deadlock: if threads each hold a set (or another object of this library) and *read* one
//!   another's in a cycle, the last one panics with a message.
//! - A panic in a member's destructor reaches the reader or the owner that frees the member, after
//!   all other members have been dropped. In a thread that is unwinding, or in a change that
//!   drains, the panic is contained.
//! - Members that came and went in a poisoned set are freed all the same, so the memory of a set is
//!   bounded by the members in it.
//!
//! # Laws
//!
//! Owns: [`DeferredSet`], the marks ([`Links`]), the queues, and the handles.
//!
//! - **ldu.U1** Insertions and removals of one member alternate. Each begins after the previous one
//!   has returned. Handles make that a rule of the compiler ([`Attached`], [`Detached`]). The raw
//!   calls check it and panic with the member's name.
//! - **ldu.U2** Operations on different members commute.
//! - **ldu.U3** A queued member's memory is held. An owner that drops a queued member leaves it to
//!   the next drain, which frees it. A drain reads where the queue goes on *before* it lets go of a
//!   member, and does not touch the member afterwards.
//! - **ldu.U4** A member's own data do not change from its insertion until no queue has the member.
//!   Only then does [`Detached::into_box`] give it back.
//! - **ldu.U5** One word (`word`) holds all marks: attached, queued, given up, applied, and the
//!   number of the last read that began before the last change.
//! - **ldu.U6** A read has a cut. It raises the set's *epoch* before it looks at the first queue.
//!   Every change notes the epoch that it found, and the member's state before its first change in
//!   that epoch. The read takes the state that each member had at the cut. So a read sees every
//!   change that returned before the read began. If it sees a change, it also sees everything that
//!   came before that change. (The published form has no cut: a read can miss a change and see a
//!   later one.) A change waits for a read only if a queue has four times its bound. A read never
//!   waits for a change. (A set may also make changes *eagerly*: module `eager`.)
//! - **ldu.U7** If the structure panics, the panic reaches the reader that called it. (A change
//!   that drains because its queue is full contains the panic.) The set is poisoned until
//!   [`DeferredSet::clear_poison`]. What was not applied stays queued, and changes go on. The call
//!   that panicked counts as made.
//!
//! A gate, by which a reader excludes changes while it captures the words, would satisfy ldu.U6,
//! too. But with a gate, each change pays for an announcement. With the epoch, it pays for one load
//! of a line that only reads write, and no thread waits for another.
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
mod state;
mod structure;
mod untold;
mod word;

// Last, because the page of `DeferredSet` shows methods in the order of their modules.
mod raw;

pub use crate::lock::error::TryReadError;
pub use builder::{BuildError, Builder, Queue};
pub use guard::{ReadGuard, SharedGuard};
pub use handle::{Attached, Detached};
pub use links::{Element, Linked, Links};
pub(crate) use pending::Look;
pub use set::{DeferredSet, Stats};
pub use structure::Structure;
