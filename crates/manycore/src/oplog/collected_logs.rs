//! Logs that were collected but not applied yet, and emptied logs, which are kept for their
//! buffers.
//!
//! Owns: law hot_state.C5 (header of `hot_state`): the logs are in the order in which they must be
//! applied. If user code panics in here, each update is in one log, and that log stays.

use super::log::Log;
use crate::clock::Stamp;
use crate::lock::held;
use std::mem;

/// Collected and emptied logs; the module header explains them.
pub(super) struct CollectedLogs<L> {
    /// The collected logs, and behind them emptied logs. The slot that a collection visits first
    /// always gets the first log. So each slot keeps its buffers as long as the same slots are
    /// dirty.
    logs: Vec<L>,
    /// The number of logs that were collected.
    used: usize,
    /// True if some of the collected logs may be empty, because user code panicked.
    untidy: bool,
}

impl<L> CollectedLogs<L> {
    /// Starts with logs that were collected before.
    pub(super) fn of(logs: Vec<L>) -> Self {
        Self { used: logs.len(), untidy: !logs.is_empty(), logs }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes the logs out, without the emptied ones.
    pub(super) fn take(&mut self) -> Vec<L> {
        self.untidy = false;
        self.logs.drain(..mem::take(&mut self.used)).collect()
    }

    /// Takes all logs out, one by one.
    pub(super) fn drain(&mut self, each: impl FnMut(L)) {
        self.used = 0;
        self.logs.drain(..).for_each(each);
    }

    /// Begins a log behind the others, which may stay empty.
    pub(super) fn begin(&mut self) -> &mut L
    where
        L: Default,
    {
        if self.used == self.logs.len() {
            self.logs.push(L::default());
        }
        self.untidy = true;
        self.used += 1;
        &mut self.logs[self.used - 1]
    }

    /// Moves the entries of `log` up to `cut` here.
    pub(super) fn collect<T>(&mut self, log: &mut L, cut: Stamp)
    where
        L: Log<T>,
    {
        held::assert_no_leaf();
        // Marked first, so that entries moved before a panic stay here.
        let was_untidy = self.untidy;
        let into = self.begin();
        log.collect(cut, into);
        if into.is_empty() {
            self.used -= 1;
        }
        self.untidy = was_untidy;
    }

    /// Takes over what a branch of the tree has collected, and gives as many buffers back. Runs no
    /// user code. Some logs may be empty if user code `panicked`.
    pub(super) fn take_over(
        &mut self,
        first: &mut Option<L>,
        more: &mut Vec<L>,
        spares: &mut Vec<L>,
        panicked: bool,
    ) {
        for log in first.take().into_iter().chain(more.drain(..)) {
            match self.logs.get_mut(self.used) {
                Some(spare) => spares.push(mem::replace(spare, log)),
                None => self.logs.push(log),
            }
            self.used += 1;
        }
        self.untidy |= panicked;
    }

    /// Moves logs that a panic has left empty behind the others.
    #[cold]
    fn tidy<T>(&mut self)
    where
        L: Log<T>,
    {
        let mut kept = 0;
        for place in 0..self.used {
            if !self.logs[place].is_empty() {
                self.logs.swap(kept, place);
                kept += 1;
            }
        }
        (self.used, self.untidy) = (kept, false);
    }

    /// Applies all updates, and returns their number. After a panic, the updates that were not
    /// applied stay queued. So do updates that a merge leaves behind.
    pub(super) fn merge<T>(&mut self, value: &mut T) -> usize
    where
        L: Log<T>,
    {
        if self.untidy {
            self.tidy();
        }
        self.untidy = true;
        let applied = L::merge(&mut self.logs[..self.used], value);
        while self.used != 0 && self.logs[self.used - 1].is_empty() {
            self.used -= 1;
        }
        self.untidy = self.used != 0;
        applied
    }
}
