//! The store buffer: stores that their core does not wait for, until something depends on them.
//!
//! A store that misses asks for its line, and its core goes on. Until the line has arrived, a load
//! of bytes that the core itself wrote finds them in the buffer; a load of other bytes of the line
//! needs the line, and waits for it. A locked instruction and a fence wait for all stores. Each
//! store to a line that is under way takes a place, too; a store that finds no place free waits for
//! the line of the oldest. Stores arrive as their lines do, not in the order of the program.
//!
//! A core runs ahead of its stores: a load finds what the core just wrote even if the line has come
//! and gone. So what arrived can be loaded from the buffer for as long as no other core can have
//! taken the line: the time of the shortest transfer.

use super::{
    Access, Engine, Outcome,
    line::Request,
    memory::{Answer, Progress},
    thread::{Drain, Op, State, Store},
    wait::WaitFor,
};

impl Engine {
    /// What the running thread's own buffer says to an access of the line, if it has it.
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

    /// A store of the running thread is under way.
    pub(super) fn store_leaves(&mut self, at: u32, op: &Op) {
        let bytes = op.bytes(self.shift);
        let unit = self.unit;
        self.me().stores.push(Store { line: at, bytes, unit, count: 1, done: u64::MAX });
        self.stores_until = u64::MAX;
        self.bar(at);
        self.lines[at].stores += 1;
    }

    /// Waits for the oldest store if there are more than the buffer has places for.
    pub(super) fn find_place(&mut self) -> Option<Progress> {
        let (clock, depth) = (self.clock, self.machine.store_buffer);
        let mut under_way = self.me().stores.iter().filter(|store| store.done > clock).copied();
        let oldest = under_way.next()?;
        let places = oldest.count + under_way.map(|store| store.count).sum::<u32>();
        (places > depth).then(|| self.await_line(oldest.line, oldest.done))?
    }

    /// The running thread waits until that store of its own has arrived; `None` if it is known when
    /// that is, and was waited for.
    pub(super) fn await_line(&mut self, line: u32, done: u64) -> Option<Progress> {
        if done == u64::MAX {
            return Some(self.await_stores(Drain { line: Some(line), extra: 0 }));
        }
        self.clock = self.clock.max(done);
        None
    }

    /// The running thread waits for its stores.
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

    /// An instruction that waits until all before it is done, as `cpuid`.
    pub fn serialize(&mut self) -> Outcome {
        self.settle(self.machine.serialize)
    }

    /// Waits until the thread's stores have arrived, and so many cycles more.
    fn settle(&mut self, extra: u32) -> Outcome {
        let extra = u64::from(extra);
        if self.stores_until == u64::MAX {
            self.await_stores(Drain { line: None, extra });
            return self.dispatch();
        }
        self.clock = self.clock.max(self.stores_until) + extra;
        Outcome::Continue
    }

    /// A buffered store has been granted; others see it at `done`.
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
