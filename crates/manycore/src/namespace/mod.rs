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
//! assert_eq!(named(number), None); // for ever: no id is given twice
//! ```
//!
//! [`IdSpace`] has the methods, their costs and more examples; an [`Extent`] is a row of ids that
//! are used together. Lookups are made in a [`section`](crate::section), and store nothing.
//!
//! # How it works
//!
//! A node is stored in the trie's leaf itself, beside a word that is its id's bits as long as it is
//! live. The other form, a pointer in the leaf to a node elsewhere, would cost each lookup one more
//! load that depends on the one before, and each insert an allocation; what it would gain is
//! replacing a node under the same id, and for that `T` can be an [`Atomic`]. The price: a leaf is
//! as large as its nodes, and a node's memory is used again only for nodes of its namespace.
//!
//! # Laws
//!
//! Owns: [`IdSpace`], its trie and its free ids; [`Id`] and [`Extent`]. Does not own: the grace
//! period, which is the section's.
//!
//! - namespace.N1 A lookup stores nothing. It is one load for the root, one for each level of inner
//!   nodes (at most two up to 2^22 leaves, and three beyond), one for the slot's word, and one
//!   comparison, which checks place, generation and namespace at once.
//! - namespace.N2 A node of the trie, once linked, stays until the namespace's state goes; so do
//!   its slots. An inner node's children are one level lower, leaves are at level zero.
//! - namespace.N3 A slot's value is written by the exclusive owner of the slot, before the word
//!   becomes an id (Release), and read by threads that found that id in the word (Acquire).
//! - namespace.N4 The thread that changes the word from the id to dead has removed the node; no
//!   other has. The slot then goes through the section's limbo, and its value is dropped and its
//!   word changed again only when every section is over that was open at the removal (section.S2,
//!   section.E1, section.E2 of [`crate::section`]; it is retired with no known birth, so that a
//!   bounded domain holds it back for every stalled section).
//! - namespace.N5 The generation in the id is one more at each use of the slot. A slot that has had
//!   its last one (2^24 - 1) is never used again. So no id is ever given twice: a namespace has
//!   2^32 slots and 2^56 ids. At ten million inserts a second that is 228 years, and a slot of
//!   memory lost every 1.6 seconds at worst.
//! - namespace.N6 Free blocks (a block is an id's slot, or an extent's) are with one slot of
//!   [`crate::percpu`] or on a stack, never both. A slot keeps two magazines of each class, of
//!   single ids some full ones besides, so that what comes out of its limbo goes into its next
//!   inserts, and the rest of one chunk. (An insert takes a place straight out of the limbo if the
//!   next expired node there is one of its namespace, and without a destructor: section.S13.) What
//!   is beyond goes to the stack of its class, a magazine at a time, and is taken from there before
//!   the frontier moves: so ids that one thread frees and another one inserts go round and do not
//!   grow in number. The slot's next owner adopts what a thread leaves.
//! - namespace.N7 Blocks in limbo lead to the state, so it outlives the namespace until they have
//!   come back. Each slot counts its own (debit at the removal, credit at the return): a block that
//!   returns in the course of a removal, or into an insertion, by a load and a store, since that
//!   borrows the namespace, another one by an atomic addition. Dropping the namespace closes the
//!   accounts; a thread that finds its account closed settles with all, and the last one frees.
//!
//! Source: [ParSec](crate#sources), section 3.6. The paper's ids have no generations; ours may
//! leave their section.
//!
//! [`Atomic`]: crate::section::Atomic

// First: the page of `IdSpace` shows methods in the order of the modules that have them.
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

pub use id::{Extent, Id};
pub use space::{Full, IdSpace};

/// The most ids that one extent can have.
pub const MAX_EXTENT: usize = 1 << (trie::INDEX_BITS - 1);
