//! The second half of the slow model: the cost of an access, and its effect on the line.

use std::collections::BTreeSet;

use super::{Event, Model, Request, Then};
use crate::{Access, Arbitration};

impl Model<'_> {
    pub(super) fn transfer(&self, a: u32, b: u32) -> u64 {
        let machine = self.machine;
        let same = machine.complex(a) == machine.complex(b) && machine.cores_per_complex > 0;
        if same {
            return u64::from(machine.same_complex);
        }
        u64::from(machine.transfer(machine.socket(a), machine.socket(b)))
    }

    /// Returns how long cores that lose a line to `core` may use it.
    fn linger(&self, core: u32, owner: Option<u32>, copies: &BTreeSet<u32>) -> u64 {
        let machine = self.machine;
        let linger = u64::from(machine.linger);
        let mut losers = copies.iter().chain(&owner).filter(|loser| **loser != core);
        let near = u64::from(machine.same_complex.min(machine.same_socket));
        if machine.cores_per_complex > 0
            && losers.all(|loser| machine.complex(*loser) == machine.complex(core))
        {
            return linger * near / u64::from(machine.same_socket);
        }
        linger
    }

    /// Returns the core whose caches a thread uses.
    fn unit(&self, core: u32) -> u32 {
        core % self.machine.physical_cores()
    }

    fn stores_on_way(&self, line: u64, but: Option<usize>) -> bool {
        let others = self.threads.iter().enumerate().filter(|(id, _)| Some(*id) != but);
        others
            .into_iter()
            .any(|(_, thread)| thread.stores.iter().any(|s| s.0 == line && s.3.is_none()))
    }

    /// Returns the bytes of the current line that the access touches.
    fn bytes(&self, thread: usize, line: u64) -> BTreeSet<usize> {
        let size = 1 << self.machine.line_shift;
        let first = line as usize * size;
        self.threads[thread].range.clone().filter(|b| (first..first + size).contains(b)).collect()
    }

    /// Returns true if the bytes come from the store buffer: no other core can have taken the line
    /// since.
    fn wrote_lately(&self, thread: usize, number: u64, bytes: &BTreeSet<usize>) -> bool {
        let me = &self.threads[thread];
        let core = self.unit(me.core);
        let near = self.transfer(core, core);
        me.stores.iter().any(|(line, known, _, done, by)| {
            let there =
                done.is_none_or(|done| done > me.clock || done + near > me.clock && *by == core);
            *line == number && there && bytes.is_subset(known)
        })
    }

    /// Makes the thread wait for one of its stores.
    fn await_store(&mut self, thread: usize, line: u64, done: Option<u64>) -> Option<Then> {
        let me = &mut self.threads[thread];
        match done {
            Some(done) => me.clock = me.clock.max(done),
            None => me.drain = Some((Some(line), 0)),
        }
        done.is_none().then_some(Then::Stop)
    }

    /// Continues after a store into the buffer.
    fn buffered(&mut self, thread: usize) -> Option<Then> {
        let hit = u64::from(self.machine.hit);
        self.threads[thread].clock += hit;
        self.step_done(thread);
        let depth = self.machine.store_buffer;
        let me = &self.threads[thread];
        let under_way =
            || me.stores.iter().filter(|store| store.3.is_none_or(|done| done > me.clock));
        if under_way().map(|store| store.2).sum::<u32>() > depth {
            let (line, _, _, done, _) = under_way().next().expect("some are under way").clone();
            if let Some(stop) = self.await_store(thread, line, done) {
                return Some(stop);
            }
        }
        self.threads[thread].lines.is_empty().then_some(Then::GoOn)
    }

    /// Carries an access on as far as possible.
    pub(super) fn carry_on(&mut self, thread: usize) -> Then {
        loop {
            let quantum = u64::from(self.machine.quantum);
            let limit = self.next_at().saturating_add(quantum);
            let me = &mut self.threads[thread];
            if me.clock > limit.min(me.slice_end) {
                return Then::GiveWay;
            }
            if me.lines.is_empty() {
                return Then::GoOn;
            }
            if me.kind == Access::Rmw {
                if me.stores.iter().any(|store| store.3.is_none()) {
                    me.drain = Some((None, 0));
                    return Then::Stop;
                }
                if me.stores_done > me.clock {
                    me.clock = me.stores_done;
                    continue;
                }
            }
            match self.touch(thread) {
                Some(then) => return then,
                None => continue,
            }
        }
    }

    /// Does one line of an access. Returns `None` if the caller must first check for earlier
    /// threads.
    pub(super) fn touch(&mut self, thread: usize) -> Option<Then> {
        let me = &self.threads[thread];
        let (number, now, kind) = (me.lines[0], me.clock, me.kind);
        let core = self.unit(me.core);
        let (hit, rmw) = (u64::from(self.machine.hit), u64::from(self.machine.rmw));
        let loads = kind == Access::Rmw && self.machine.llsc && !me.loaded;
        let write = kind != Access::Read && !loads;
        let cost = hit + if kind == Access::Rmw && !loads { rmw } else { 0 };
        let line = self.lines.entry(number).or_default();
        let own = line.owner == Some(core);
        if loads && own {
            self.threads[thread].clock += 2 * hit + rmw + self.level(number, core);
            self.threads[thread].lines.pop_front();
            return self.after_hit(thread);
        }
        let lingers = now < line.linger_until
            && (line.past_owner == Some(core) || !write && line.past_copies.contains(&core));
        let holds = own || !write && line.copies.contains(&core);
        let in_sight = write || (now >= line.visible_at || own);
        let in_sight = in_sight && (write || !self.stores_on_way(number, Some(thread)));
        let buffers = self.machine.store_buffer > 0 && kind != Access::Rmw;
        let bytes = self.bytes(thread, number);
        let in_buffer = buffers && !write && self.wrote_lately(thread, number, &bytes);
        let mine = &mut self.threads[thread].stores;
        let under_way = |done: Option<u64>| done.is_none_or(|done| done > now);
        let own = mine.iter_mut().find(|store| store.0 == number && under_way(store.3));
        if let Some((line, known, count, done, _)) = own.filter(|_| buffers && !in_buffer) {
            if write {
                known.extend(bytes);
                *count += 1;
                return self.buffered(thread);
            }
            let (line, done) = (*line, *done);
            return self.await_store(thread, line, done);
        }
        if (holds || lingers) && in_sight || in_buffer {
            let level = if in_buffer { 0 } else { self.level(number, core) };
            self.threads[thread].clock += cost + level;
            self.step_done(thread);
            return self.after_hit(thread);
        }
        let buffered = buffers && write;
        if buffered {
            self.threads[thread].stores.push((number, bytes, 1, None, core));
        }
        let request = Request { thread, core, write, buffered, arrived: now, late: true };
        let granted = self.ask(number, request);
        if buffered {
            return self.buffered(thread);
        }
        let Some(done) = granted else {
            return Some(Then::Stop);
        };
        let me = &mut self.threads[thread];
        me.overlap += 1;
        me.overlap_until = me.overlap_until.max(done);
        let more = me.lines.len() > 1 && me.kind != Access::Rmw;
        if more && me.overlap < self.machine.parallel_misses {
            me.clock += cost;
        } else {
            me.clock = me.clock.max(me.overlap_until) + cost;
            me.overlap = 0;
        }
        self.step_done(thread);
        None
    }

    fn after_hit(&mut self, thread: usize) -> Option<Then> {
        let me = &mut self.threads[thread];
        if !me.lines.is_empty() {
            return None;
        }
        if me.overlap > 0 {
            me.clock = me.clock.max(me.overlap_until);
        }
        Some(Then::GoOn)
    }

    fn step_done(&mut self, thread: usize) {
        let llsc = self.machine.llsc;
        let me = &mut self.threads[thread];
        if me.kind == Access::Rmw && llsc && !me.loaded {
            me.loaded = true;
        } else {
            me.loaded = false;
            me.lines.pop_front();
        }
    }

    /// Grants the line at once, or queues the request.
    fn ask(&mut self, number: u64, request: Request) -> Option<u64> {
        let line = self.lines.get_mut(&number).expect("touched");
        if line.waiting.is_empty() && line.busy_until <= request.arrived {
            return Some(self.grant(number, request, request.arrived));
        }
        let first = line.waiting.is_empty();
        let ready = line.busy_until;
        line.waiting.push(request);
        if first {
            self.post(ready, Event::Serve(number));
        }
        None
    }

    fn grant(&mut self, number: u64, request: Request, now: u64) -> u64 {
        let core = request.core;
        let machine_jitter = self.machine.jitter as usize;
        let line = &self.lines[&number];
        let (owner, copies, supplier) = (line.owner, line.copies.clone(), line.supplier);
        let mut busy = None;
        let latency = if owner == Some(core) {
            0
        } else if let Some(owner) = owner {
            self.transfer(owner, core)
        } else if copies.is_empty() {
            self.memory(number, core, now)
        } else if request.write {
            let others = copies.iter().filter(|copy| **copy != core);
            others.map(|copy| self.transfer(*copy, core)).max().unwrap_or(0)
        } else {
            let near =
                copies.iter().filter(|c| self.machine.socket(**c) == self.machine.socket(core));
            let near = near.map(|copy| self.transfer(*copy, core)).min();
            let far = self.transfer(supplier.expect("shared lines have one"), core);
            let latency = near.map_or(far, |near| far.min(near));
            busy = Some(latency.min(u64::from(self.machine.read_occupancy)));
            latency
        };
        let most = if latency > 0 { machine_jitter } else { 0 };
        let late = if most > 0 { self.random.below(most + 1) as u64 } else { 0 };
        let done = now + latency + late;
        if owner != Some(core) && (owner.is_some() || !copies.is_empty()) {
            let counter = if request.write {
                &mut self.done.shared_writes
            } else {
                &mut self.done.remote_reads
            };
            *counter += 1;
        }
        self.done.misses += 1;
        self.done.waited += done - request.arrived;
        let linger = now + self.linger(core, owner, &copies).min(latency);
        let line = self.lines.get_mut(&number).expect("touched");
        if request.write || owner != Some(core) {
            line.busy_until = now + busy.unwrap_or(latency);
        }
        if request.write {
            (line.past_owner, line.past_copies, line.linger_until) = (owner, copies, linger);
            (line.owner, line.supplier) = (Some(core), Some(core));
            line.copies.clear();
        } else if let Some(owner) = owner.filter(|owner| *owner != core) {
            (line.past_owner, line.linger_until) = (Some(owner), linger);
            line.past_copies.clear();
            line.copies.extend([owner, core]);
            (line.owner, line.supplier) = (None, Some(owner));
        } else if owner.is_none() && copies.is_empty() {
            (line.owner, line.supplier) = (Some(core), Some(core));
        } else if owner.is_none() {
            line.copies.insert(core);
        }
        self.line_came(number, core);
        if request.buffered {
            self.store_arrives(number, request, done);
        }
        done
    }

    /// Handles the grant of a buffered store.
    fn store_arrives(&mut self, number: u64, request: Request, done: u64) {
        let line = self.lines.get_mut(&number).expect("touched");
        line.visible_at = line.visible_at.max(done);
        let me = &mut self.threads[request.thread];
        let asked = me.stores.iter_mut().find(|store| store.0 == number && store.3.is_none());
        asked.expect("it asked").3 = Some(done);
        me.stores_done = me.stores_done.max(done);
        let all = me.stores.iter().all(|store| store.3.is_some());
        let over = |line: Option<u64>| line.map_or(all, |line| line == number);
        if let Some((line, extra)) = me.drain.filter(|(line, _)| over(*line)) {
            me.drain = None;
            me.clock = me.clock.max(line.map_or(me.stores_done, |_| done)) + extra;
            let at = me.clock;
            self.post(at, Event::Go(request.thread));
        }
    }

    fn memory(&mut self, number: u64, core: u32, now: u64) -> u64 {
        let machine = self.machine;
        let latency = u64::from(machine.memory);
        if let Some(there) = self.lines.get_mut(&number).and_then(|line| line.shared_in.take()) {
            let own = machine.complex(core);
            return u64::from(if there == own {
                machine.l3_hit
            } else {
                machine.complex_transfer(there, own)
            });
        }
        let occupancy = 100 * u64::from(machine.memory_occupancy) + machine.bandwidth_occupancy();
        let per_hop = machine.memory_hop;
        if per_hop == 0 && occupancy == 0 {
            return latency;
        }
        let socket = machine.socket(core);
        let home = *self.homes.entry(number >> (12 - machine.line_shift)).or_insert(socket);
        let busy = self.memory_busy.entry(home).or_default();
        let start = (100 * now).max(*busy);
        *busy = start + occupancy;
        start.div_ceil(100) - now
            + latency
            + u64::from(machine.hops_between(socket, home) * per_hop)
    }

    pub(super) fn serve(&mut self, number: u64, now: u64) {
        let request = self.pick(number);
        let now = now.max(request.arrived);
        let (hit, rmw) = (u64::from(self.machine.hit), u64::from(self.machine.rmw));
        let done = self.grant(number, request, now);
        if !request.buffered {
            let me = &mut self.threads[request.thread];
            let locked = me.kind == Access::Rmw && request.write;
            me.clock = done.max(me.overlap_until) + hit + if locked { rmw } else { 0 };
            let at = me.clock;
            self.step_done(request.thread);
            self.post(at, Event::Go(request.thread));
        }
        let line = &self.lines[&number];
        if !line.waiting.is_empty() {
            self.post(line.busy_until, Event::Serve(number));
        }
    }

    fn pick(&mut self, number: u64) -> Request {
        let machine = self.machine;
        let line = self.lines.get_mut(&number).expect("touched");
        let from = line.supplier.unwrap_or(0);
        let round_over = line.waiting.iter().all(|request| request.late);
        if round_over {
            line.waiting.iter_mut().for_each(|request| request.late = false);
            line.first = machine.complex(from) + 1;
        }
        let all = 0..line.waiting.len();
        let (waiting, first) = (line.waiting.clone(), line.first);
        let in_round = all.clone().filter(|i| !waiting[*i].late);
        let near = |i: &usize| self.transfer(from, waiting[*i].core);
        let ahead = |i: &usize| {
            let complex = machine.complex(waiting[*i].core);
            (0..).find(|step| (first + step) % machine.complexes() == complex)
        };
        let place = match machine.arbitration {
            Arbitration::Fifo => Some(0),
            Arbitration::Random => Some(self.random.below(waiting.len())),
            Arbitration::Nearest => all.min_by_key(near),
            Arbitration::Rounds => in_round.min_by_key(near),
            Arbitration::Turns => in_round.min_by_key(ahead),
        };
        let line = self.lines.get_mut(&number).expect("touched");
        line.waiting.remove(place.expect("a request waits"))
    }
}
