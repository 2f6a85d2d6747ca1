//! The bound of the pages, and the order in which a reclaimer looks at them. Laws page_cache.G5 and
//! page_cache.G8.

use super::super::dhash::Tag;
use std::collections::VecDeque;

/// The pages that count against the bound. One lock guards it, under which no user code runs.
pub(super) struct Room {
    /// The pages that are there; the front is looked at next. A page that has left the table stays
    /// in the queue until its contents are dropped.
    queue: VecDeque<Tag>,
    /// Number of pages that are there, are being loaded or are being dropped.
    taken: usize,
    bound: usize,
    /// How often room was given back. Wraps around.
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

    /// Takes room for a page, if there is room.
    ///
    /// # Errors
    /// If there is none: returns how often room was given back until now.
    pub(super) fn take(&mut self) -> Result<(), usize> {
        if self.taken < self.bound {
            self.taken += 1;
            debug_assert!(self.queue.len() < self.taken, "page_cache.G5: a page has no room");
            return Ok(());
        }
        Err(self.given_back)
    }

    /// Gives back the room of a page.
    pub(super) fn give_back(&mut self) {
        debug_assert!(self.taken > 0, "page_cache.G5: room is given back twice");
        self.taken -= 1;
        self.given_back = self.given_back.wrapping_add(1);
    }

    pub(super) fn given_back(&self) -> usize {
        self.given_back
    }

    /// Adds a page for which room was taken.
    pub(super) fn enqueue(&mut self, tag: Tag) {
        self.queue.push_back(tag);
        debug_assert!(self.queue.len() <= self.taken, "page_cache.G5: a page comes without room");
    }

    /// Returns the next page to look at, and moves it to the end of the queue.
    pub(super) fn next(&mut self) -> Option<Tag> {
        let tag = self.queue.pop_front()?;
        self.queue.push_back(tag);
        Some(tag)
    }

    /// Removes a page that has left the table and was dropped.
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
