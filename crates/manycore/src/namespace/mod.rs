//! Namespaces: ids with generations that may be kept anywhere, and the nodes they name (a slot
//! map).
//!
//! ```
//! use manycore::{namespace::IdSpace, section};
//!
//! let files = IdSpace::new();
//! let section = section::enter();
//! let id = files.insert("/etc/passwd", &section);
//! let number = id.to_bits(); // may go to a client, or into a file
//!
//! let named = |bits| files.get(files.check(bits)?, &section);
//! assert_eq!(named(number), Some(&"/etc/passwd"));
//! files.remove(id, &section);
//! // never again: no id is given twice
//! ```
//!
//! [`IdSpace`] has the methods, their costs and more examples. An [`Extent`] is a row of ids that
//! are used together. Lookups are made in a [`section`](crate::section), and store nothing.
//!
//! # How it works
//!
//! A node is stored in the trie's leaf itself, beside a word that holds its id's bits as long as
//! the node is live. The other form is a pointer in the leaf to a node elsewhere. It would cost
//! each lookup one more load that depends on the one before, and each insert an allocation. It
//! would gain the replacement of a node under the same id; for that `T` can be an [`Atomic`]. The
//! price of storing nodes in leaves: a leaf is as large as its nodes, and a node's memory is reused
//! only for nodes of its namespace.
//!
//! ```text
//! id:    tag of the namespace | generation | index
//!                                              |
//! trie:  root -> inner nodes -> leaf [ word | node ][ word | node ] ...
//!                                      = id while the node is live
//! ```
//!
//! # Laws
//!
//! Owns: [`IdSpace`], its views, its trie and its free ids; [`Id`] and [`Extent`]. Does not own:
//! the grace period, which is the section's.
//!
//! - namespace.N1 A lookup stores nothing. It is one load for the root, one for each level of inner
//!   nodes (at most two up to 2^22 leaves, and three beyond), and one for the slot's word. Then one
//!   comparison checks place, generation and namespace at once.
//! - namespace.N2 A node of the trie, once linked, stays until the namespace's state goes; so do
//!   its slots. An inner node's children are one level lower; leaves are at level zero.
//! - namespace.N3 The exclusive owner of a slot writes its value before the word becomes an id
//!   (Release). Threads read the value only after they found that id in the word (Acquire).
//! - namespace.N4 The thread that changes the word from the id to dead has removed the node, and no
//!   other thread has. The slot then goes through the section's limbo. Its value is dropped, and
//!   its word changed again, only when every section that was open at the removal is over
//!   (section.S2, section.E1, section.E2 of [`crate::section`]). It is retired with no known birth,
//!   so that a bounded domain holds it back for every stalled section.
//! - namespace.N5 The generation in the id grows by one at each use of the slot. A slot that has
//!   had its last generation (2^24 - 1) is never used again. So no id is ever given twice: a
//!   namespace has 2^32 slots and 2^56 ids. At ten million inserts a second that is 228 years, and
//!   a slot of memory lost every 1.6 seconds at worst.
//! - namespace.N6 Free blocks (a block is the slot of an id, or of an extent) are with one slot of
//!   [`crate::percpu`] or on a stack, never both. A slot keeps two magazines of each class, some
//!   more full ones of single ids, and the rest of one chunk. So what comes out of its limbo goes
//!   into its next inserts. (An insert takes a place straight out of the limbo if the next expired
//!   node there is of its namespace and has no destructor: section.S13.) Blocks beyond that go to
//!   the stack of their class, a magazine at a time, and are taken from there before the frontier
//!   moves. So ids that one thread frees and another inserts go round and do not grow in number.
//!   The slot's next owner adopts what a thread leaves.
//! - namespace.N7 Blocks in limbo lead to the state, so it outlives the namespace until they have
//!   come back. Each slot counts its own blocks (debit at the removal, credit at the return). If a
//!   block returns during a removal, or into an insertion, the credit is a load and a store,
//!   because the call borrows the namespace. Otherwise it is an atomic addition. Dropping the
//!   namespace closes the accounts. A thread that finds its account closed settles with all, and
//!   the last one frees.
//!
//! Source: [ParSec](crate#sources), section 3.6. The paper's ids have no generations; ours may
//! leave their section.
//!
//! [`Atomic`]: crate::section::Atomic

// First, because the page of `IdSpace` shows methods in the order of the modules.
mod space;

mod extent;
mod id;
mod local;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod pool;
mod state;
#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests;
mod trie;
mod view;

pub use id::{Extent, Id};
pub use space::{Full, IdSpace};
pub use view::IdSpaceView;

/// The most ids that an extent can have.
pub const MAX_EXTENT: usize = 1 << (trie::INDEX_BITS - 1);
