//! A second implementation of the rules, slow and obvious: linear searches, sets, no fast path.

mod caches;
mod lines;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::program::{Done, Setup, Step};
use crate::{Access, Machine, engine::hash::Random};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Go(usize),
    Serve(u64),
    Wake(usize),
    Timer(usize, u32),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum ThreadState {
    OnCore,
    InQueue,
    Blocked,
    Ended,
}

/// Buffered stores: line, bytes, count, time of arrival, core.
type Store = (u64, BTreeSet<usize>, u32, Option<u64>, u32);

struct Thread {
    clock: u64,
    core: u32,
    pinned: bool,
    state: ThreadState,
    step: usize,
    /// The rest of an access: lines, kind, whether the load of LL/SC is done, overlap.
    lines: VecDeque<u64>,
    kind: Access,
    loaded: bool,
    overlap: u32,
    overlap_until: u64,
    /// The place in the program.
    range: std::ops::Range<usize>,
    stores: Vec<Store>,
    stores_done: u64,
    /// Waits for its store to that line, or for all stores; then for so many cycles more.
    drain: Option<(Option<u64>, u64)>,
    slice_end: u64,
    waits: u32,
    futex: Option<usize>,
    joiners: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Request {
    thread: usize,
    core: u32,
    write: bool,
    buffered: bool,
    arrived: u64,
    late: bool,
}

#[derive(Default)]
struct Line {
    owner: Option<u32>,
    supplier: Option<u32>,
    copies: BTreeSet<u32>,
    past_owner: Option<u32>,
    past_copies: BTreeSet<u32>,
    linger_until: u64,
    busy_until: u64,
    visible_at: u64,
    waiting: Vec<Request>,
    /// The complex whose shared cache has the line.
    shared_in: Option<u32>,
    /// The complex that has the first turn of this round.
    first: u32,
}

struct Model<'a> {
    setup: &'a Setup,
    machine: &'a Machine,
    threads: Vec<Thread>,
    lines: BTreeMap<u64, Line>,
    events: Vec<(u64, u64, Event)>,
    posted: u64,
    on_core: Vec<Option<usize>>,
    queues: Vec<VecDeque<usize>>,
    free_at: Vec<u64>,
    futexes: BTreeMap<usize, VecDeque<usize>>,
    homes: BTreeMap<u64, u32>,
    memory_busy: BTreeMap<u32, u64>,
    random: Random,
    fraction: u64,
    /// For each level, cache and set: the lines in the order in which they came.
    caches: BTreeMap<(u32, u32, u64), VecDeque<u64>>,
    done: Done,
}

/// The outcome of a part of a step.
#[derive(PartialEq)]
enum Then {
    /// The step is complete and the thread's code goes on.
    GoOn,
    /// Other threads come first.
    GiveWay,
    /// The thread stops until something else lets it go on.
    Stop,
}

pub(super) fn run(setup: &Setup) -> Done {
    let cores = setup.cores as usize;
    let mut model = Model {
        setup,
        machine: &setup.machine,
        threads: Vec::new(),
        lines: BTreeMap::new(),
        events: Vec::new(),
        posted: 0,
        on_core: vec![None; cores],
        queues: vec![VecDeque::new(); cores],
        free_at: vec![0; cores],
        futexes: BTreeMap::new(),
        homes: BTreeMap::new(),
        memory_busy: BTreeMap::new(),
        random: Random::new(setup.seed),
        fraction: 0,
        caches: BTreeMap::new(),
        done: Done {
            log: Vec::new(),
            deadlocked: false,
            misses: 0,
            waited: 0,
            shared_writes: 0,
            remote_reads: 0,
        },
    };
    model.add_thread(0, false, 0);
    model.threads[0].state = ThreadState::OnCore;
    model.threads[0].slice_end = u64::from(setup.machine.slice);
    model.on_core[0] = Some(0);
    model.run_thread(0);
    model.run_events();
    model.done
}

impl Model<'_> {
    fn add_thread(&mut self, core: u32, pinned: bool, clock: u64) {
        self.threads.push(Thread {
            clock,
            core,
            pinned,
            state: ThreadState::Blocked,
            step: 0,
            lines: VecDeque::new(),
            kind: Access::Read,
            loaded: false,
            overlap: 0,
            overlap_until: 0,
            range: 0..0,
            stores: Vec::new(),
            stores_done: 0,
            drain: None,
            slice_end: u64::MAX,
            waits: 0,
            futex: None,
            joiners: Vec::new(),
        });
    }

    fn post(&mut self, at: u64, event: Event) {
        self.posted += 1;
        self.events.push((at, self.posted, event));
    }

    fn next_at(&self) -> u64 {
        self.events.iter().map(|(at, ..)| *at).min().unwrap_or(u64::MAX)
    }

    fn run_events(&mut self) {
        while self.threads.iter().any(|thread| thread.state != ThreadState::Ended) {
            let first =
                (0..self.events.len()).min_by_key(|i| (self.events[*i].0, self.events[*i].1));
            let Some(first) = first else {
                self.done.deadlocked = true;
                return;
            };
            let (at, _, event) = self.events.remove(first);
            match event {
                Event::Go(thread) => self.resume(thread),
                Event::Serve(line) => self.serve(line, at),
                Event::Wake(thread) => self.arrive(thread, at),
                Event::Timer(thread, waits) => {
                    let me = &self.threads[thread];
                    if me.state == ThreadState::Blocked && me.waits == waits {
                        if let Some(address) = me.futex {
                            let waiters = self.futexes.get_mut(&address).expect("it waits");
                            waiters.retain(|waiter| *waiter != thread);
                        }
                        self.wake(thread, at + u64::from(self.machine.wake));
                    }
                }
            }
        }
    }

    fn resume(&mut self, thread: usize) {
        let core = self.threads[thread].core as usize;
        let clock = self.threads[thread].clock;
        if clock >= self.threads[thread].slice_end {
            if !self.queues[core].is_empty() {
                self.threads[thread].state = ThreadState::InQueue;
                self.queues[core].push_back(thread);
                self.leave_core(core, clock);
                return;
            }
            self.threads[thread].slice_end = clock + u64::from(self.machine.slice);
        }
        match self.carry_on(thread) {
            Then::GoOn => self.run_thread(thread),
            Then::GiveWay => self.post(self.threads[thread].clock, Event::Go(thread)),
            Then::Stop => {}
        }
    }

    /// Runs a thread's code until it has to stop.
    fn run_thread(&mut self, thread: usize) {
        loop {
            let me = &self.threads[thread];
            if me.step > 0 {
                self.done.log.push((thread as u32, me.step as u32 - 1, me.clock, me.core));
            }
            let step = self.setup.programs[thread][me.step];
            self.threads[thread].step += 1;
            match self.step(thread, step) {
                Then::GoOn => {}
                Then::GiveWay => return self.post(self.threads[thread].clock, Event::Go(thread)),
                Then::Stop => return,
            }
        }
    }

    fn turn(&self, thread: usize) -> Then {
        if self.threads[thread].clock <= self.next_at() { Then::GoOn } else { Then::GiveWay }
    }

    fn step(&mut self, thread: usize, step: Step) -> Then {
        let now = self.threads[thread].clock;
        match step {
            Step::Work(cycles) => {
                self.threads[thread].clock += self.work(thread, cycles);
                let drift = u64::from(self.machine.drift);
                let limit = self.next_at().saturating_add(drift);
                let limit = limit.min(self.threads[thread].slice_end);
                if self.threads[thread].clock <= limit { Then::GoOn } else { Then::GiveWay }
            }
            Step::Access { address, len, kind } => {
                if len == 0 {
                    return Then::GoOn;
                }
                let shift = self.machine.line_shift;
                let me = &mut self.threads[thread];
                me.lines =
                    (address as u64 >> shift..=(address + len - 1) as u64 >> shift).collect();
                me.kind = kind;
                me.range = address..address + len;
                me.loaded = false;
                me.overlap = 0;
                me.overlap_until = 0;
                self.carry_on(thread)
            }
            Step::Fence => {
                let extra = u64::from(self.machine.rmw);
                if self.threads[thread].stores.iter().all(|store| store.3.is_some()) {
                    self.threads[thread].clock = now.max(self.threads[thread].stores_done) + extra;
                    return Then::GoOn;
                }
                self.threads[thread].drain = Some((None, extra));
                Then::Stop
            }
            Step::Turn => self.turn(thread),
            Step::Yield => {
                self.threads[thread].slice_end = 0;
                Then::GiveWay
            }
            Step::Pin(core) => self.pin(thread, core),
            Step::Spawn(core) => {
                let threads = |core: usize| {
                    let live = self.threads.iter().filter(|t| t.state != ThreadState::Ended);
                    live.filter(|t| t.core as usize == core).count()
                };
                let fewest = (0..self.on_core.len()).min_by_key(|core| threads(*core));
                let home = core.unwrap_or(fewest.expect("a core") as u32);
                self.add_thread(home, core.is_some(), now);
                self.post(now, Event::Wake(self.threads.len() - 1));
                self.turn(thread)
            }
            other => self.waiting_step(thread, other),
        }
    }

    /// Returns the cycles of computation, which are more while another hardware thread of the core
    /// is busy.
    fn work(&mut self, thread: usize, cycles: u64) -> u64 {
        let cores = self.machine.physical_cores();
        let own = self.threads[thread].core;
        let busy = (0..self.on_core.len() as u32)
            .filter(|core| core % cores == own % cores && *core != own)
            .any(|core| self.on_core[core as usize].is_some());
        if !busy {
            return cycles;
        }
        let share = u64::from(self.machine.thread_share);
        let hundredths = cycles * 100 + self.fraction;
        self.fraction = hundredths % share;
        hundredths / share
    }

    fn pin(&mut self, thread: usize, core: Option<u32>) -> Then {
        let me = &mut self.threads[thread];
        let from = me.core;
        me.pinned = core.is_some();
        let to = core.unwrap_or(from);
        if to == from {
            return Then::GoOn;
        }
        me.core = to;
        me.state = ThreadState::Blocked;
        let now = me.clock;
        self.leave_core(from as usize, now);
        self.post(now, Event::Wake(thread));
        Then::Stop
    }

    fn waiting_step(&mut self, thread: usize, step: Step) -> Then {
        let now = self.threads[thread].clock;
        let wake = u64::from(self.machine.wake);
        match step {
            Step::Sleep(cycles) => {
                self.post(now + cycles, Event::Timer(thread, self.threads[thread].waits));
                self.block(thread, None)
            }
            Step::Wait { address, patience } => {
                self.futexes.entry(address).or_default().push_back(thread);
                if let Some(cycles) = patience {
                    self.post(now + cycles, Event::Timer(thread, self.threads[thread].waits));
                }
                self.block(thread, Some(address))
            }
            Step::Wake { address, count } => {
                for _ in 0..count {
                    let waiters = self.futexes.entry(address).or_default();
                    if let Some(waiter) = waiters.pop_front() {
                        self.wake(waiter, now + wake);
                    }
                }
                self.turn(thread)
            }
            Step::Join(other) => {
                let other = other as usize;
                if self.threads[other].state == ThreadState::Ended {
                    self.threads[thread].clock = now.max(self.threads[other].clock);
                    return self.turn(thread);
                }
                self.threads[other].joiners.push(thread);
                self.block(thread, None)
            }
            Step::Exit => {
                self.threads[thread].state = ThreadState::Ended;
                for joiner in std::mem::take(&mut self.threads[thread].joiners) {
                    self.wake(joiner, now + wake);
                }
                self.leave_core(self.threads[thread].core as usize, now);
                Then::Stop
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn block(&mut self, thread: usize, futex: Option<usize>) -> Then {
        let me = &mut self.threads[thread];
        me.state = ThreadState::Blocked;
        me.futex = futex;
        let (core, now) = (me.core as usize, me.clock);
        self.leave_core(core, now);
        Then::Stop
    }

    fn wake(&mut self, thread: usize, at: u64) {
        let me = &mut self.threads[thread];
        me.waits += 1;
        me.futex = None;
        me.clock = me.clock.max(at);
        let at = me.clock;
        self.post(at, Event::Wake(thread));
    }

    fn arrive(&mut self, thread: usize, at: u64) {
        let home = self.threads[thread].core as usize;
        if self.on_core[home].is_some() && !self.threads[thread].pinned {
            let idle = (0..self.on_core.len())
                .filter(|core| self.on_core[*core].is_none() && self.queues[*core].is_empty());
            if let Some(core) = idle.min_by_key(|core| self.transfer(home as u32, *core as u32)) {
                self.threads[thread].core = core as u32;
            }
        }
        let core = self.threads[thread].core as usize;
        if self.on_core[core].is_some() {
            self.threads[thread].state = ThreadState::InQueue;
            self.queues[core].push_back(thread);
        } else {
            self.start(thread, core, at.max(self.free_at[core]));
        }
    }

    fn start(&mut self, thread: usize, core: usize, at: u64) {
        self.on_core[core] = Some(thread);
        let me = &mut self.threads[thread];
        me.state = ThreadState::OnCore;
        me.clock = me.clock.max(at);
        me.slice_end = me.clock + u64::from(self.machine.slice);
        let at = me.clock;
        self.post(at, Event::Go(thread));
    }

    fn leave_core(&mut self, core: usize, at: u64) {
        self.on_core[core] = None;
        self.free_at[core] = at;
        let next = self.queues[core].pop_front().or_else(|| {
            let free =
                |queue: &VecDeque<usize>| queue.iter().position(|t| !self.threads[*t].pinned);
            let some = (0..self.queues.len()).filter(|core| free(&self.queues[*core]).is_some());
            // The longest queue. Of equal ones, the first.
            let longest = some.rev().max_by_key(|core| self.queues[*core].len())?;
            let state = free(&self.queues[longest])?;
            self.queues[longest].remove(state)
        });
        if let Some(next) = next {
            self.threads[next].core = core as u32;
            let at = at.max(self.threads[next].clock);
            self.start(next, core, at + u64::from(self.machine.context_switch));
        }
    }
}
