//! [`unprotected`]: a section that protects nothing.

use super::limbo::RetiredNode;
use std::ptr::NonNull;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub use unmodelled::unprotected;

/// Frees a node that was retired in an unprotected section. (Takes the node in parts: as a whole,
/// it would have to be in memory for every retire.)
#[cold]
#[inline(never)]
pub(super) fn free(address: NonNull<()>, free: unsafe fn(NonNull<()>)) {
    RetiredNode { address, free, birth: 0, bytes: 0 }.free();
}

/// Model checkers have no use for it, because only one thread exists.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod unmodelled {
    use super::super::domain::Domain;
    use super::super::guard::Section;
    use super::super::home::NOWHERE;
    use super::super::local::Local;
    use crate::sync::Raced;
    use std::mem::ManuallyDrop;

    /// The section; never dropped.
    struct Unprotected(ManuallyDrop<Section<'static>>);

    // SAFETY: all threads may have the reference, because nothing writes what it leads to. Loads
    // and stores write only the link, in a domain that is not bounded. Retiring looks at the slot
    // first, and reusing memory looks at the claim; neither ever changes. The methods that write
    // the section's words need `&mut` or ownership.
    unsafe impl Sync for Unprotected {}
    // SAFETY: made for all by the thread that comes first; it is not tied to that thread.
    unsafe impl Send for Unprotected {}

    static UNPROTECTED: Raced<Unprotected> = Raced::new(|| {
        static DOMAIN: Domain = Domain::new();
        static LOCAL: Raced<Local> = Raced::new(|| Local::from(NOWHERE).claimed_for_good());
        Unprotected(ManuallyDrop::new(Section::opened(DOMAIN.state(), &LOCAL)))
    });

    /// Returns a section that protects nothing and costs nothing: what is retired in it is freed at
    /// once, and what is deferred runs at once.
    ///
    /// What for: building or taking apart a structure that no other thread has, with the methods
    /// that the structure has anyway. For example in its `Drop`, where a real section would make
    /// the nodes wait for other sections. It belongs to no domain, and serves for the nodes of any
    /// domain. When not: everywhere else; a section costs 2 ns.
    ///
    /// # Safety
    /// As long as the section, or what was loaded by it, is used on a structure:
    /// - no other thread uses the structure;
    /// - after a node was retired in it, no reference to the node and no
    ///   [`Shared`](super::super::Shared) of it is used, although the lifetimes of both allow that.
    ///
    /// ```
    /// use manycore::section::{Atomic, Section, unprotected};
    ///
    /// struct Stack(Atomic<Node>);
    /// struct Node(Atomic<Node>);
    ///
    /// impl Stack {
    ///     fn pop(&self, section: &Section<'_>) -> bool {
    ///         let head = self.0.load(section);
    ///         let Some(node) = head.as_ref() else { return false };
    ///         let next = node.0.load(section);
    ///         if self.0.compare_exchange(head, next, section).is_ok() {
    ///             // SAFETY: unlinked just now, and nothing else leads to it.
    ///             unsafe { section.retire(head) };
    ///         }
    ///         true
    ///     }
    /// }
    ///
    /// impl Drop for Stack {
    ///     fn drop(&mut self) {
    ///         // SAFETY: `&mut self`: no other thread has it; `pop` keeps no node.
    ///         while self.pop(unsafe { unprotected() }) {}
    ///     }
    /// }
    /// drop(Stack(Atomic::new(Node(Atomic::null()))));
    /// ```
    pub unsafe fn unprotected() -> &'static Section<'static> {
        &UNPROTECTED.0
    }
}
