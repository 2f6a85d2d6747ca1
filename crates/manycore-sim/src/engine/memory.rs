//! The protocol: what an access costs, and what it does to the line.
//!
//! ```text
//! access --> core holds the line? --yes--> hit (or l2_hit)
//!                  | no
//!                  v
//!            line busy? --yes--> wait; arbitration chooses the next request
//!                  | no                              |
//!                  +---------> grant: transfer <-----+
//! ```
//!
//! The rules. All times are cycles of the [`Machine`]:
//!
//! - A core that holds a line exclusively pays `hit`. For a read, a shared copy is enough.
//! - Any other core asks for the line. A line serves one request at a time.
//! - A grant takes the time of a transfer from the owner. A read of a shared line is served by the
//!   nearest copy on the core's own socket, or else by the last owner. A write of a shared line
//!   takes until the farthest copy is invalidated. If no core has the line, it comes from memory.
//! - The line is busy during the grant. For a read of a shared line it is busy for `read_occupancy`
//!   only.
//! - Requests for a busy line wait. The machine's arbitration chooses the next one.
//! - During a transfer the old holder may use the line for the first `linger` cycles. Within a
//!   complex it may for less time, in proportion to the shorter transfer.
//! - With a store buffer (`stores`), a store that misses asks for the line, and its core goes on.
//!   Other cores can read the stored value once the store has arrived.
//! - With `llsc`, a locked instruction is a load and a conditional store. It asks for the line
//!   twice, unless its core is the owner already. The conditional store never fails, as if the core
//!   kept the line in between.
//! - If caches have a limit, a line evicted from the first level but not from the second costs
//!   `l2_hit`. A line evicted from the second level leaves the core. When the last core loses it,
//!   it goes to the shared cache of that core's complex. From there it comes back in `l3_hit`;
//!   another complex gets it in the time of a transfer from there.
//! - A wide access asks for its lines one after the other, `parallel_misses` at a time.

use super::{
    Access, Engine, Outcome, ThreadId,
    cores::NO_CORE,
    hash::Map,
    line::Request,
    thread::{Drain, Op, State},
    timeline::Wait,
    wait::WaitFor,
};
use crate::machine::{Arbitration, Machine};

/// Memory behind the caches: the homes of pages, and until when each socket's memory is busy.
pub(super) struct Memory {
    latency: u64,
    per_hop: u64,
    /// In hundredths of a cycle.
    occupancy: u64,
    homes: Map<u64, u32>,
    /// In hundredths of a cycle.
    busy_until: Vec<u64>,
}

impl Memory {
    pub(super) fn new(machine: &Machine) -> Memory {
        Memory {
            latency: u64::from(machine.memory),
            per_hop: u64::from(machine.memory_hop),
            occupancy: u64::from(machine.memory_occupancy) * 100 + machine.bandwidth_occupancy(),
            homes: Map::default(),
            busy_until: vec![0; machine.sockets as usize],
        }
    }

    /// Returns the cycles until a line has come from memory to that socket.
    fn fetch(&mut self, machine: &Machine, line: u64, socket: u32, now: u64) -> u64 {
        if self.per_hop == 0 && self.occupancy == 0 {
            return self.latency;
        }
        let page = line >> 12_u32.saturating_sub(machine.line_shift);
        let home = *self.homes.entry(page).or_insert(socket);
        let busy = &mut self.busy_until[home as usize];
        let start = (100 * now).max(*busy);
        *busy = start + self.occupancy;
        let hops = u64::from(machine.hops_between(socket, home));
        start.div_ceil(100) - now + self.latency + hops * self.per_hop
    }
}

/// The progress of an access.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    /// It is complete.
    Done,
    /// Another thread is earlier.
    NotYet,
    /// The thread waits for a line or for its stores, and keeps its core.
    Stalled,
}

/// The answer of one line to an access.
pub(super) enum Answer {
    /// The core holds the line. The step costs that many cycles.
    Hit(u64),
    /// The line arrives at that time.
    Fetched(u64),
    /// The store is under way and the core goes on.
    Buffered,
    /// The access needs other bytes of a line for which a store of its own is waiting. The store
    /// arrives at that time.
    Depends(u32, u64),
    /// The request waits.
    Queued,
}

impl Engine {
    #[inline(never)]
    pub(super) fn access_slowly(
        &mut self,
        address: usize,
        len: usize,
        kind: Access,
        pc: usize,
    ) -> Outcome {
        if len == 0 {
            return Outcome::Continue;
        }
        self.totals.accesses[kind as usize] += 1;
        self.me().op = Some(Op::new(address, len, kind, pc, self.shift));
        match self.carry_on() {
            Progress::Done => Outcome::Continue,
            Progress::NotYet => self.give_way(),
            Progress::Stalled => self.dispatch(),
        }
    }

    /// Carries the running thread's access on as far as possible.
    pub(super) fn carry_on(&mut self) -> Progress {
        loop {
            if self.clock > self.horizon {
                return Progress::NotYet;
            }
            let Some(op) = self.me().op else {
                return Progress::Done;
            };
            if op.kind == Access::Rmw && self.stores_until > self.clock {
                if self.stores_until == u64::MAX {
                    return self.await_stores(Drain { line: None, extra: 0 });
                }
                self.clock = self.stores_until;
                continue;
            }
            let plain = !self.recorder.is_on()
                && op.line == op.last
                && op.overlap == 0
                && !op.loaded
                && self.filter.allows(self.unit, op.line, op.kind != Access::Read);
            if plain {
                self.clock += self.hit[op.kind as usize];
                self.me().op = None;
                return Progress::Done;
            }
            match self.touch(&op) {
                Answer::Hit(cost) => {
                    self.clock += cost;
                    if op.line == op.last && op.overlap > 0 {
                        self.clock = self.clock.max(op.overlap_until);
                    }
                    if self.step_done() {
                        return Progress::Done;
                    }
                }
                Answer::Fetched(done) => self.fetched(&op, done),
                Answer::Buffered => {
                    self.clock += self.hit[Access::Write as usize];
                    let finished = self.step_done();
                    if let Some(progress) = self.find_place() {
                        return progress;
                    }
                    if finished {
                        return Progress::Done;
                    }
                }
                Answer::Depends(line, done) => {
                    if let Some(progress) = self.await_line(line, done) {
                        return progress;
                    }
                }
                Answer::Queued => {
                    let line = op.line << self.shift;
                    self.leave(State::Stalled(WaitFor::Line { address: line as usize }));
                    return Progress::Stalled;
                }
            }
        }
    }

    /// Handles a line that was granted to the running thread at once. Wide accesses overlap.
    fn fetched(&mut self, op: &Op, done: u64) {
        let cost = self.step_cost(op);
        let parallel = self.machine.parallel_misses;
        let more = op.line < op.last && op.kind != Access::Rmw;
        let mine = self.me().op.as_mut().expect("an access is under way");
        mine.overlap += 1;
        mine.overlap_until = mine.overlap_until.max(done);
        if more && mine.overlap < parallel {
            self.clock += cost;
        } else {
            let until = mine.overlap_until;
            mine.overlap = 0;
            self.clock = self.clock.max(until) + cost;
        }
        self.step_done();
    }

    fn step_cost(&self, op: &Op) -> u64 {
        let hit = self.hit[Access::Read as usize];
        let loads = op.kind == Access::Rmw && self.machine.llsc && !op.loaded;
        let locked = op.kind == Access::Rmw && !loads;
        hit + if locked { u64::from(self.machine.rmw) } else { 0 }
    }

    /// Finishes one line, or one half of a locked instruction. Returns true if it was the last.
    fn step_done(&mut self) -> bool {
        let llsc = self.machine.llsc;
        let op = &mut self.me().op;
        *op = op.and_then(|op| op.next(llsc));
        op.is_none()
    }

    /// One step of an access at one line.
    fn touch(&mut self, op: &Op) -> Answer {
        let at = self.lines.index_of(op.line);
        if self.recorder.is_on() && self.threads[self.running as usize].recorded {
            self.recorder.note(op, self.running, self.core, self.shift);
        }
        let write = op.writes(self.machine.llsc);
        if op.kind == Access::Rmw && !write && self.lines[at].owner == self.unit {
            self.me().op.as_mut().expect("an access is under way").loaded = true;
            self.can_use(at, op.line, true);
            self.watch(at, op, true);
            let level = self.level(at, op.line);
            return Answer::Hit(self.hit[Access::Rmw as usize] + level); // both halves at once
        }
        let buffers = self.machine.store_buffer > 0 && op.kind != Access::Rmw;
        if buffers && let Some(answer) = self.in_buffer(at, op) {
            return answer;
        }
        if self.can_use(at, op.line, write) {
            self.watch(at, op, write);
            return Answer::Hit(self.step_cost(op) + self.level(at, op.line));
        }
        let buffered = buffers && write;
        let request = Request {
            thread: self.running,
            core: self.unit,
            write,
            kind: op.kind,
            buffered,
            arrived: self.clock,
            pc: op.pc,
        };
        if buffered {
            self.store_leaves(at, op);
        }
        self.ask(at, request)
    }

    fn ask(&mut self, at: u32, request: Request) -> Answer {
        let now = self.clock;
        let line = &mut self.lines[at];
        if !line.is_contended() && line.busy_until <= now {
            let done = self.grant(at, &request, now);
            if request.buffered {
                self.store_arrives(at, &request, done);
                return Answer::Buffered;
            }
            return Answer::Fetched(done);
        }
        let first = !line.is_contended();
        let ready = line.busy_until;
        line.enqueue(request);
        if first {
            self.post(ready, super::events::Event::Serve(at));
        }
        self.totals.queued += 1;
        if request.buffered { Answer::Buffered } else { Answer::Queued }
    }

    /// Returns true if the running thread's core may use the line without asking, and tells the
    /// filter.
    fn can_use(&mut self, at: u32, number: u64, write: bool) -> bool {
        let (core, now) = (self.unit, self.clock);
        let line = &self.lines[at];
        let holds = line.holds(core, write);
        if !holds && !line.lingers(core, write, now) {
            return false;
        }
        let mine = self.threads[self.running as usize].is_asking_to_store(at);
        let foreign_store = line.stores > u16::from(mine);
        let not_arrived = now < line.visible_at && line.owner != core;
        if !write && (foreign_store || not_arrived) {
            return false;
        }
        if holds && line.stores == 0 && line.visible_at <= now && !self.is_watched(at) {
            let may_write = line.owner == core;
            self.filter.put(core, number, may_write);
        }
        true
    }

    /// Removes the line from the fast path of all its holders.
    pub(super) fn bar(&mut self, at: u32) {
        let (line, number) = (&self.lines[at], self.lines.number(at));
        if line.owner != NO_CORE {
            self.filter.take(line.owner, number);
        }
        for core in line.copies().iter() {
            self.filter.take(core, number);
        }
    }

    pub(super) fn transfer(&self, from: u16, to: u16) -> u64 {
        let row = usize::from(self.complex_of[usize::from(from)]) * self.complexes;
        u64::from(self.distance[row + usize::from(self.complex_of[usize::from(to)])])
    }

    /// Grants the line to a request at `now`. Returns when the line arrives.
    fn grant(&mut self, at: u32, request: &Request, now: u64) -> u64 {
        self.bar(at);
        let cause = self.cause(at, request);
        let latency = if request.write {
            self.grant_write(at, request, now)
        } else {
            self.grant_read(at, request, now)
        };
        let latency = latency + self.jitter(latency);
        let line = &self.lines[at];
        debug_assert!(line.owner == NO_CORE || line.copies().is_empty(), "a writer beside readers");
        debug_assert!(line.holds(request.core, request.write), "granted, but not held");
        debug_assert!(now >= request.arrived, "granted before it was asked for");
        self.line_came(at, request.core);
        let done = now + latency;
        let waited = done - request.arrived;
        self.totals.misses += 1;
        self.totals.waited += waited;
        self.count(at, request, cause, done);
        done
    }

    /// Returns the random delay of a line, drawn from the seed.
    fn jitter(&mut self, latency: u64) -> u64 {
        match self.machine.jitter {
            0 => 0,
            _ if latency == 0 => 0,
            most => self.random.below(most as usize + 1) as u64,
        }
    }

    fn grant_read(&mut self, at: u32, request: &Request, now: u64) -> u64 {
        let core = request.core;
        let line = &self.lines[at];
        let (owner, supplier) = (line.owner, line.supplier);
        let is_shared = !line.copies().is_empty();
        if owner == core {
            return 0;
        }
        let latency;
        let mut busy = u64::from(self.machine.read_occupancy);
        if owner != NO_CORE {
            latency = self.transfer(owner, core);
            busy = latency;
            self.totals.remote_reads += 1;
        } else if is_shared {
            latency = self.nearest_copy(at, core).min(self.transfer(supplier, core));
            busy = busy.min(latency);
            self.totals.remote_reads += 1;
        } else {
            latency = self.memory_latency(at, core, now);
            busy = latency;
        }
        let linger = now + self.machine.linger_of(latency);
        let line = &mut self.lines[at];
        line.busy_until = now + busy;
        if owner != NO_CORE {
            line.linger(linger);
            line.share(owner, core);
        } else if is_shared {
            line.add_copy(core);
        } else {
            line.own(core);
        }
        latency
    }

    /// Returns the cycles from a copy in the core's own complex, or else from a copy on its socket.
    fn nearest_copy(&self, at: u32, core: u16) -> u64 {
        let copies = || self.lines[at].copies().iter().map(usize::from);
        let (socket, complex) =
            (self.socket_of[usize::from(core)], self.complex_of[usize::from(core)]);
        if copies().any(|copy| self.complex_of[copy] == complex) {
            return self.transfer(core, core);
        }
        let near = copies().any(|copy| self.socket_of[copy] == socket);
        if near { u64::from(self.machine.same_socket) } else { u64::MAX }
    }

    fn grant_write(&mut self, at: u32, request: &Request, now: u64) -> u64 {
        let core = request.core;
        let line = &self.lines[at];
        let (owner, is_shared) = (line.owner, !line.copies().is_empty());
        let latency = if owner == core {
            0
        } else if owner != NO_CORE {
            self.transfer(owner, core)
        } else if is_shared {
            let others = line.copies().iter().filter(|c| *c != core);
            others.map(|c| self.transfer(core, c)).max().unwrap_or(0)
        } else {
            self.memory_latency(at, core, now)
        };
        let shared = owner != core && (owner != NO_CORE || is_shared);
        self.totals.shared_writes += u64::from(shared);
        let linger = now + self.machine.linger_of(latency);
        let line = &mut self.lines[at];
        line.busy_until = now + latency;
        line.linger(linger);
        line.own(core);
        latency
    }

    fn memory_latency(&mut self, at: u32, core: u16, now: u64) -> u64 {
        if let Some(near) = self.take_from_shared(at, core) {
            return near;
        }
        self.totals.memory_fetches += 1;
        let socket = u32::from(self.socket_of[usize::from(core)]);
        self.memory.fetch(&self.machine, self.lines.number(at), socket, now)
    }

    /// Serves one waiter of a line that has become free.
    pub(super) fn serve(&mut self, at: u32, now: u64) {
        let request = self.pick(at);
        // With a quantum, a thread may have asked ahead of the line's time.
        let now = now.max(request.arrived);
        let done = self.grant(at, &request, now);
        if request.buffered {
            self.store_arrives(at, &request, done);
        } else {
            self.stalled_thread_goes_on(&request, done);
        }
        let line = &self.lines[at];
        if line.is_contended() {
            let next = line.busy_until;
            self.events.post(next, super::events::Event::Serve(at));
        }
    }

    /// Removes the request that is to be served next.
    fn pick(&mut self, at: u32) -> Request {
        let arbitration = self.machine.arbitration;
        let rounds = matches!(arbitration, Arbitration::Rounds | Arbitration::Turns);
        let line = &mut self.lines[at];
        let fresh = (!rounds || line.round().is_empty()) && line.admit_late();
        if fresh && arbitration == Arbitration::Turns {
            self.sort_by_turn(at);
        }
        let from = self.supplier_of(at);
        let (complex_of, distance) = (&self.complex_of, &self.distance);
        let row = usize::from(complex_of[usize::from(from)]) * self.complexes;
        let waiting = self.lines[at].round();
        let place = match arbitration {
            Arbitration::Fifo => 0,
            Arbitration::Turns => waiting.len() - 1,
            Arbitration::Random => self.random.below(waiting.len()),
            Arbitration::Rounds | Arbitration::Nearest => {
                let far = |core: u16| distance[row + usize::from(complex_of[usize::from(core)])];
                let nearest = waiting.iter().enumerate().min_by_key(|(_, r)| far(r.core));
                nearest.map_or(0, |(place, _)| place)
            }
        };
        waiting.remove(place)
    }

    fn supplier_of(&self, at: u32) -> u16 {
        let supplier = self.lines[at].supplier;
        if supplier == NO_CORE { 0 } else { supplier }
    }

    /// Sorts a round so that the first turn is last. Turns begin with the complex after the
    /// supplier's (a socket without complexes counts as one). Requests of one complex keep their
    /// order.
    fn sort_by_turn(&mut self, at: u32) {
        let all = self.complexes;
        let first = usize::from(self.complex_of[usize::from(self.supplier_of(at))]) + 1;
        let complex_of = &self.complex_of;
        let waiting = self.lines[at].round();
        waiting.reverse();
        waiting.sort_by_key(|request| {
            let complex = usize::from(complex_of[usize::from(request.core)]);
            std::cmp::Reverse((complex + 2 * all - first) % all)
        });
    }

    /// Lets a stalled thread go on once its line has arrived.
    fn stalled_thread_goes_on(&mut self, request: &Request, done: u64) {
        let thread = &self.threads[request.thread as usize];
        let op = thread.op.expect("a stalled thread has an access under way");
        let cost = self.step_cost(&op);
        let llsc = self.machine.llsc;
        let thread = &mut self.threads[request.thread as usize];
        thread.op = op.next(llsc);
        let begin = std::mem::replace(&mut thread.clock, done.max(op.overlap_until) + cost);
        self.timeline.note(|| Wait {
            thread: ThreadId(request.thread),
            core: u32::from(thread.core),
            waits_for: WaitFor::Line { address: (op.line << self.shift) as usize },
            begin,
            end: thread.clock,
            pc: op.pc,
        });
        self.goes_on(request.thread);
    }
}
