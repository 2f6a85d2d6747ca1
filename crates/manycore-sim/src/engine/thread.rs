//! The engine's state of one virtual thread and of one virtual core.

use std::collections::VecDeque;

use super::{Access, WaitFor};

/// The scheduling state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It runs now: the caller executes its code.
    Running,
    /// It holds its core. An event lets it go on.
    Ready,
    /// It holds its core and waits for a line or for its store buffer.
    Stalled(WaitFor),
    /// It has been woken and is on its way to a core.
    Waking,
    /// It could run, but another thread has the core.
    Queued,
    /// It waits for another thread or for time.
    Blocked(WaitFor),
    /// It has ended.
    Done,
}

/// An access that is not finished: its lines from `line` to `last`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) line: u64,
    pub(super) last: u64,
    pub(super) address: usize,
    pub(super) len: usize,
    pub(super) kind: Access,
    /// With `llsc`: the load of a locked instruction is done.
    pub(super) loaded: bool,
    /// Lines that were requested together, and when the last of them arrives.
    pub(super) overlap: u32,
    pub(super) overlap_until: u64,
    pub(super) pc: usize,
}

impl Op {
    pub(super) fn new(address: usize, len: usize, kind: Access, pc: usize, shift: u32) -> Op {
        Op {
            line: address as u64 >> shift,
            last: address.saturating_add(len - 1) as u64 >> shift,
            address,
            len,
            kind,
            loaded: false,
            overlap: 0,
            overlap_until: 0,
            pc,
        }
    }

    /// Returns true if the next step writes.
    pub(super) fn writes(&self, llsc: bool) -> bool {
        match self.kind {
            Access::Read => false,
            Access::Write => true,
            Access::Rmw => !llsc || self.loaded,
        }
    }

    /// Returns the bytes of its present line, one bit for each of the first 128.
    pub(super) fn bytes(&self, shift: u32) -> u128 {
        let line = (self.line << shift) as usize;
        let from = self.address.max(line) - line;
        let to = (self.address.saturating_add(self.len) - line).min(1 << shift);
        let upto = |end: usize| if end >= 128 { u128::MAX } else { (1 << end) - 1 };
        upto(to) & !upto(from)
    }

    /// Returns what is left after the next step.
    pub(super) fn next(mut self, llsc: bool) -> Option<Op> {
        if self.kind == Access::Rmw && llsc && !self.loaded {
            self.loaded = true;
            return Some(self);
        }
        self.loaded = false;
        self.line += 1;
        (self.line <= self.last).then_some(self)
    }
}

/// Buffered stores to one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) line: u32,
    /// The bytes of the line, as in [`Op::bytes`].
    pub(super) bytes: u128,
    /// The core that made the stores.
    pub(super) unit: u16,
    /// The number of stores. Each has a place in the buffer.
    pub(super) count: u32,
    /// When they arrive. `u64::MAX` until the line is granted.
    pub(super) done: u64,
}

/// A wait of a thread for its own stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Drain {
    /// The line whose store the thread waits for. `None`: it waits for all stores.
    pub(super) line: Option<u32>,
    /// Cycles to add after the arrival.
    pub(super) extra: u64,
}

/// One virtual thread.
pub(super) struct Thread {
    pub(super) state: State,
    pub(super) clock: u64,
    pub(super) core: u16,
    /// True if the thread stays on that core.
    pub(super) pinned: bool,
    /// True if the thread's accesses are recorded.
    pub(super) recorded: bool,
    pub(super) op: Option<Op>,
    /// When its core goes to the next thread in the queue.
    pub(super) slice_end: u64,
    /// Buffered stores, oldest first: those under way, and some that have arrived.
    pub(super) stores: Vec<Store>,
    /// When the last of the granted stores arrives.
    pub(super) stores_done: u64,
    pub(super) drain: Option<Drain>,
    /// Counts waits, to tell an old timer from a new one.
    pub(super) waits: u32,
    pub(super) timed_out: bool,
    pub(super) joiners: Vec<u32>,
    pub(super) blocked_since: u64,
    pub(super) blocked_at: usize,
}

impl Thread {
    pub(super) fn new(core: u16, pinned: bool, clock: u64) -> Thread {
        Thread {
            state: State::Waking,
            clock,
            core,
            pinned,
            recorded: false,
            op: None,
            slice_end: u64::MAX,
            stores: Vec::new(),
            stores_done: 0,
            drain: None,
            waits: 0,
            timed_out: false,
            joiners: Vec::new(),
            blocked_since: 0,
            blocked_at: 0,
        }
    }

    /// Returns when the thread's stores have arrived. `u64::MAX` while any is under way.
    pub(super) fn stores_until(&self) -> u64 {
        let asks = self.stores.iter().any(|store| store.done == u64::MAX);
        if asks { u64::MAX } else { self.stores_done }
    }

    /// Returns true if a store of the thread waits for the line's grant.
    pub(super) fn is_asking_to_store(&self, line: u32) -> bool {
        self.stores.iter().any(|store| store.line == line && store.done == u64::MAX)
    }
}

/// One virtual core.
#[derive(Default)]
pub(super) struct Core {
    /// The thread that has the core.
    pub(super) thread: Option<u32>,
    /// Threads that want it.
    pub(super) queue: VecDeque<u32>,
    /// Live threads that have this core as their home.
    pub(super) assigned: u32,
    /// When a thread last gave it up.
    pub(super) free_at: u64,
    /// Cycles without a thread, until a thread last took it.
    pub(super) idle: u64,
}
