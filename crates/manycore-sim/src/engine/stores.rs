//! The store buffer: a core goes on while its stores are under way, until something depends on
//! them.
//!
//! - A store that misses asks for its line, and its core goes on.
//! - A load of bytes that the core itself stored finds them in the buffer. A load of other bytes of
//!   that line waits for the line.
//! - A locked instruction and a fence wait for all stores.
//! - Each store takes a place, including a further store to a line that is under way. If there is
//!   no free place, the store waits for the line of the oldest store.
//! - Stores arrive as their lines do, not in program order.
//!
//! A core runs ahead of its stores: a load finds what the core just wrote even if the line has come
//! and gone. So a store that has arrived stays readable in the buffer for the time of the shortest
//! transfer. In that time no other core can have taken the line.

use super::{
    Access, Engine, Outcome,
    line::Request,
    memory::{Answer, Progress},
    thread::{Drain, Op, State, Store},
    wait::WaitFor,
};

impl Engine {
    /// Returns the answer of the running thread's own store buffer to an access, if it has the
    /// line.
    pub(super) fn in_buffer(&mut self, at: u32, op: &Op) -> Option<Answer> {
        let (clock, bytes) = (self.clock, op.bytes(self.shift));
        let unit = self.unit;
        let (near, cost) = (self.transfer(unit, unit), self.hit[op.kind as usize]);
        let stores = &mut self.me().stores;
        stores.retain(|store| store.done.saturating_add(near) > clock);
        let here = |store: &&mut Store| store.line == at;
        if op.kind == Access::Write {
            let store = stores.iter_mut().filter(here).find(|store| store.done > clock)?;
            store.bytes |= bytes;
            store.count += 1;
            return Some(Answer::Buffered);
        }
        let is_near = |store: &Store| store.done > clock || store.unit == unit;
        if stores.iter_mut().filter(here).any(|s| bytes & !s.bytes == 0 && is_near(s)) {
            return Some(Answer::Hit(cost));
        }
        let store = stores.iter_mut().filter(here).find(|store| store.done > clock)?;
        Some(Answer::Depends(store.line, store.done))
    }

    /// Puts a store of the running thread under way.
    pub(super) fn store_leaves(&mut self, at: u32, op: &Op) {
        let bytes = op.bytes(self.shift);
        let unit = self.unit;
        self.me().stores.push(Store { line: at, bytes, unit, count: 1, done: u64::MAX });
        self.stores_until = u64::MAX;
        self.bar(at);
        self.lines[at].stores += 1;
    }

    /// Waits for the oldest store if there are more stores than the buffer has places.
    pub(super) fn find_place(&mut self) -> Option<Progress> {
        let (clock, depth) = (self.clock, self.machine.store_buffer);
        let mut under_way = self.me().stores.iter().filter(|store| store.done > clock).copied();
        let oldest = under_way.next()?;
        let places = oldest.count + under_way.map(|store| store.count).sum::<u32>();
        (places > depth).then(|| self.await_line(oldest.line, oldest.done))?
    }

    /// Makes the running thread wait until a store of its own has arrived.
    ///
    /// Returns `None` if the arrival time `done` is known: the clock then moves there.
    pub(super) fn await_line(&mut self, line: u32, done: u64) -> Option<Progress> {
        if done == u64::MAX {
            return Some(self.await_stores(Drain { line: Some(line), extra: 0 }));
        }
        self.clock = self.clock.max(done);
        None
    }

    /// Makes the running thread wait for its stores.
    pub(super) fn await_stores(&mut self, drain: Drain) -> Progress {
        self.me().drain = Some(drain);
        self.leave(State::Stalled(WaitFor::Stores));
        Progress::Stalled
    }

    /// A full fence: waits until the thread's stores have arrived.
    pub fn fence(&mut self) -> Outcome {
        self.totals.fences += 1;
        self.settle(self.machine.rmw)
    }

    /// A serializing instruction such as `cpuid`: waits until everything before it is done.
    pub fn serialize(&mut self) -> Outcome {
        self.settle(self.machine.serialize)
    }

    /// Waits until the thread's stores have arrived, and `extra` cycles more.
    fn settle(&mut self, extra: u32) -> Outcome {
        let extra = u64::from(extra);
        if self.stores_until == u64::MAX {
            self.await_stores(Drain { line: None, extra });
            return self.dispatch();
        }
        self.clock = self.clock.max(self.stores_until) + extra;
        Outcome::Continue
    }

    /// Handles the grant of a buffered store. Other cores see the store at `done`.
    pub(super) fn store_arrives(&mut self, at: u32, request: &Request, done: u64) {
        let line = &mut self.lines[at];
        line.stores -= 1;
        line.visible_at = line.visible_at.max(done);
        let thread = &mut self.threads[request.thread as usize];
        let under_way = |store: &&mut Store| store.line == at && store.done == u64::MAX;
        let store = thread.stores.iter_mut().find(under_way);
        store.expect("a store that arrives is under way").done = done;
        thread.stores_done = thread.stores_done.max(done);
        let through = thread.stores_until();
        let is_over = |drain: &Drain| match drain.line {
            Some(line) => line == at,
            None => through != u64::MAX,
        };
        if let Some(drain) = thread.drain.filter(is_over) {
            thread.drain = None;
            let until = if drain.line.is_some() { done } else { through };
            thread.clock = thread.clock.max(until) + drain.extra;
            self.goes_on(request.thread);
        }
        if request.thread == self.running {
            self.stores_until = through;
        }
    }
}
