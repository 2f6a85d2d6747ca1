//! How many pages there may be, and in which order a reclaimer looks at them. Laws page_cache.G5
//! and page_cache.G8.

use super::super::dhash::Tag;
use std::collections::VecDeque;

/// The pages that count against the bound. Lives behind one lock, under which no code of the user's
/// runs.
pub(super) struct Room {
    /// The pages that are there, the next to be looked at in front. A page that has left the table
    /// stays until its contents are dropped.
    queue: VecDeque<Tag>,
    /// Pages that are there, are being loaded or are being dropped.
    taken: usize,
    bound: usize,
    /// How often room was given back. It wraps around.
    given_back: usize,
}

impl Room {
    pub(super) fn new(bound: usize) -> Self {
        Self { queue: VecDeque::new(), taken: 0, bound, given_back: 0 }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Counts a page, if there is room.
    ///
    /// # Errors
    /// If there is none: how often room was given back until now.
    pub(super) fn take(&mut self) -> Result<(), usize> {
        if self.taken < self.bound {
            self.taken += 1;
            debug_assert!(self.queue.len() < self.taken, "page_cache.G5: a page has no room");
            return Ok(());
        }
        Err(self.given_back)
    }

    /// Counts a page no longer.
    pub(super) fn give_back(&mut self) {
        debug_assert!(self.taken > 0, "page_cache.G5: room is given back twice");
        self.taken -= 1;
        self.given_back = self.given_back.wrapping_add(1);
    }

    pub(super) fn given_back(&self) -> usize {
        self.given_back
    }

    /// A page has come, for which room was taken.
    pub(super) fn enqueue(&mut self, tag: Tag) {
        self.queue.push_back(tag);
        debug_assert!(self.queue.len() <= self.taken, "page_cache.G5: a page comes without room");
    }

    /// The next page to look at. It goes to the end of the queue.
    pub(super) fn next(&mut self) -> Option<Tag> {
        let tag = self.queue.pop_front()?;
        self.queue.push_back(tag);
        Some(tag)
    }

    /// A page has left the table and was dropped.
    pub(super) fn leave(&mut self, tag: Tag) {
        // From the end, where `next` has just put it, unless its write-back took long.
        let at = self.queue.iter().rposition(|queued| *queued == tag);
        debug_assert!(at.is_some(), "page_cache.G8: a page leaves that is not queued");
        at.map(|at| self.queue.remove(at));
        self.give_back();
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn tags(&self) -> Vec<Tag> {
        self.queue.iter().copied().collect()
    }
}
