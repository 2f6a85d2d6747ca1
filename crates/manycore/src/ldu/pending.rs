//! The members that wait for the next read outside of queues, and the members that are to be freed.

use super::links::{Linked, Links, member_of};
use super::retired::Retired;
use std::ptr::NonNull;

/// Counts when the set's owner is asked for the pace. The set's lock guards it, and lies beside it:
/// every read and every eager change writes it, and has that line.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Reads since the owner was asked (`reads`), and the number from which it is asked again
    /// (`next`).
    pub(super) reads: u32,
    pub(super) next: u32,
    /// Eager changes since the last read.
    pub(super) unread: u32,
}

/// The evidence for the owner that sets the pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Reads since the last look.
    pub(crate) reads: u32,
    /// Number of members that all reads have looked at.
    pub(crate) visited: u64,
    pub(crate) is_eager: bool,
}

/// The data, beside the structure, that belong to the lock's holder.
pub(super) struct Pending<E: Linked> {
    /// Queued members that the next read looks at: those that changed after the last cut, and those
    /// of drain.R3.
    pub(super) carry: Vec<NonNull<Links>>,
    /// The `carry` of the read before, while this read looks at it. Empty between reads, except for
    /// what a panic left.
    pub(super) old: Vec<NonNull<Links>>,
    /// The queues' contents, while this read looks at them; also empty between reads, except after
    /// a panic.
    pub(super) chains: Vec<NonNull<Links>>,
    /// Members to free when the lock has been released.
    pub(super) garbage: Vec<Retired<E>>,
    pub(super) drains: u64,
    pub(super) applied: u64,
    pub(super) freed: u64,
    /// Number of members that drains have looked at.
    pub(super) visited: u64,
}

impl<E: Linked> Pending<E> {
    pub(super) const fn new() -> Self {
        Self {
            carry: Vec::new(),
            old: Vec::new(),
            chains: Vec::new(),
            garbage: Vec::new(),
            drains: 0,
            applied: 0,
            freed: 0,
            visited: 0,
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.carry.is_empty() && self.old.is_empty() && self.chains.is_empty()
    }

    /// Number of members that wait here.
    pub(super) fn waiting(&self) -> usize {
        self.carry.len() + self.old.len()
    }

    /// # Safety
    /// The member is dead, and in no list.
    pub(super) unsafe fn free(&mut self, links: NonNull<Links>) {
        debug_assert!(
            // SAFETY: ldu_word.M4 - dead, so this drain alone has the member.
            unsafe { links.as_ref() }.load().is_dead(),
            "ldu_word.M4: a drain frees a member that was not given up"
        );
        self.freed += 1;
        // SAFETY: ldu_word.M4 - the caller promises that the member is dead and in no list (#
        // Safety). So only this drain has it, and makes a `Retired` of it once.
        self.garbage.push(unsafe { Retired::new(member_of(links)) });
    }
}
