//! Logs that were collected and whose updates have not been applied, and emptied logs, which are
//! kept for their buffers.
//!
//! Owns: law oplog.C5 (header of `hot_state`): the logs are in the order in which they must be
//! applied. User code that panics in here leaves each update in one log, which stays.

use super::log::Log;
use crate::clock::Stamp;
use crate::lock::held;
use std::mem;

/// See the module header.
pub(super) struct CollectedLogs<L> {
    logs: Vec<L>,
    /// Some of `logs` may be empty, because user code panicked.
    untidy: bool,
    spares: Vec<L>,
}

impl<L> CollectedLogs<L> {
    /// Logs that were collected before.
    pub(super) fn of(logs: Vec<L>) -> Self {
        Self { untidy: !logs.is_empty(), logs, spares: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &L> {
        self.logs.iter()
    }

    /// Takes the logs out, without the spare ones.
    pub(super) fn take(&mut self) -> Vec<L> {
        self.untidy = false;
        mem::take(&mut self.logs)
    }

    /// Takes all logs out, one by one.
    pub(super) fn drain(&mut self, each: impl FnMut(L)) {
        self.logs.drain(..).chain(self.spares.drain(..)).for_each(each);
    }

    /// Begins a log behind the others. It may stay empty.
    pub(super) fn begin(&mut self) -> &mut L
    where
        L: Default,
    {
        self.untidy = true;
        let spare = self.spares.pop().unwrap_or_default();
        self.logs.push(spare);
        let last = self.logs.len() - 1;
        &mut self.logs[last]
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
            self.spares.extend(self.logs.pop());
        }
        self.untidy = was_untidy;
    }

    /// Takes over what a branch of the tree has collected, and gives as many buffers back. Runs no
    /// user code. Logs may be empty if user code `panicked`.
    pub(super) fn take_over(
        &mut self,
        first: &mut Option<L>,
        more: &mut Vec<L>,
        spares: &mut Vec<L>,
        panicked: bool,
    ) {
        let logs = usize::from(first.is_some()) + more.len();
        let before = self.logs.len();
        if logs != 0 {
            let kept = self.spares.len().saturating_sub(logs);
            spares.extend(self.spares.drain(kept..));
            self.logs.extend(first.take());
            self.logs.append(more);
        }
        self.untidy |= panicked;
        debug_assert_eq!(self.logs.len(), before + logs, "oplog.D4: a branch's logs stay there");
    }

    /// Drops out logs that a panic has left empty.
    pub(super) fn tidy<T>(&mut self)
    where
        L: Log<T>,
    {
        if self.untidy {
            self.logs.retain(|log| !log.is_empty());
            self.untidy = false;
        }
    }

    /// Applies all updates, and returns their number. A panic leaves those that were not applied.
    pub(super) fn merge<T>(&mut self, value: &mut T) -> usize
    where
        L: Log<T>,
    {
        debug_assert!(!self.untidy, "oplog.C5: empty logs are merged");
        self.untidy = true;
        L::merge(&mut self.logs, value)
    }

    /// After a merge: keeps the buffers of the logs that it has emptied.
    ///
    /// In reverse, so that each slot gets its own buffers back as long as the same slots are dirty.
    /// Updates that a merge leaves behind stay queued.
    pub(super) fn keep_buffers<T>(&mut self)
    where
        L: Log<T>,
    {
        while self.logs.last().is_some_and(|log| log.is_empty()) {
            self.spares.extend(self.logs.pop());
        }
        self.untidy = !self.logs.is_empty();
    }
}
