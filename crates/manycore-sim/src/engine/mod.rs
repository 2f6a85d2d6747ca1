//! The engine: virtual time, virtual cores, cache lines, and scheduling.
//!
//! One thread runs at a time ([`Engine::running`]), and all calls act for it. A call that may make
//! the thread wait returns an [`Outcome`]. It names the thread to run next, and the caller switches
//! to that thread. When the first thread runs again, its call is complete: the access has happened,
//! the lock may be tried, or the time is up.
//!
//! The parts, bottom up:
//!
//! ```text
//! cores    sets of cores                 memory    the protocol
//! events   what happens next             sharing,
//! line     copies and waiters             causes   why misses happen
//! filter   the fast path                 stores    the store buffer
//! caches   caches of limited size        sched     cores and turns
//! thread   state of threads and cores    wait      futex, join, sleep
//! stats, record, timeline: what is counted and kept
//! ```

pub(crate) mod caches;
mod causes;
mod cores;
mod events;
mod filter;
mod hash;
mod line;
mod memory;
pub(crate) mod record;
mod sched;
mod sharing;
pub(crate) mod stats;
mod stores;
#[cfg(test)]
mod tests;
mod thread;
pub(crate) mod timeline;
mod wait;

use crate::machine::{MAX_CORES, Machine, ModelError};
use events::Events;
use filter::Filter;
use hash::{Map, Random};
use line::Lines;
use thread::{Core, State, Thread};

pub use stats::Totals;
pub use wait::{Blocked, Deadlock, WaitFor, Wakened};

/// A virtual thread.
///
/// The program's first thread is [`ThreadId::MAIN`]. The others are numbered in the order of
/// [`Engine::spawn`], and no number is reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// The thread that runs when the engine is created.
    pub const MAIN: ThreadId = ThreadId(0);
}

/// The kind of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Access {
    /// A load.
    Read = 0,
    /// A store. With a store buffer, the core does not wait for it.
    Write = 1,
    /// A locked instruction. It waits for the line and for all earlier stores.
    Rmw = 2,
}

/// The caller's next action after a call.
#[must_use = "the thread to run may be another one"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The same thread goes on.
    Continue,
    /// This thread waits; switch to the named thread.
    Switch(ThreadId),
    /// The last thread has ended.
    Finished,
    /// All threads wait for each other, and nothing can go on. [`Engine::deadlock`] gives the
    /// reasons.
    Deadlock,
    /// All threads wait, and only time can end a wait. Returned only after
    /// [`Engine::stop_when_idle`]. The caller wakes threads or lets the time pass, and then calls
    /// [`Engine::go_on`].
    Idle,
}

/// A virtual machine that runs a program's threads in virtual time.
///
/// # Cost
///
/// An access that the core's own cache answers takes a few nanoseconds, unless another thread is
/// earlier. A miss or a change of thread takes some tens of nanoseconds.
///
/// Memory: about 140 bytes for each line that the program touches with its neighbours, 350 for a
/// line touched alone, 130 more for a line that several cores use, and 4 KiB for each core.
///
/// # Panics
///
/// Calls after [`Outcome::Finished`] or [`Outcome::Deadlock`] may panic.
pub struct Engine {
    // What every access needs, first.
    /// Clock of the running thread. Its entry in `threads` is stale while it runs.
    clock: u64,
    /// The fast path applies as long as the running thread's clock is not beyond this.
    fast_until: u64,
    core: u16,
    /// The core whose caches the running thread uses. The hardware threads of one core share them.
    unit: u16,
    running: u32,
    shift: u32,
    /// Cost of a hit by kind of access.
    hit: [u64; 3],
    /// When the running thread's buffered stores have arrived. `u64::MAX` while any is under way.
    stores_until: u64,
    totals: Totals,
    filter: Filter,

    /// No other thread is earlier up to this time. `fast_until` equals it, or 0 while recording.
    horizon: u64,
    /// The same limit for pure computation, which may run further ahead.
    patience: u64,
    machine: Machine,
    /// Cycles between complexes, row by row. A socket without complexes counts as one.
    distance: Vec<u32>,
    complexes: usize,
    /// The complex of each physical core.
    complex_of: Vec<u16>,
    socket_of: Vec<u16>,
    /// Hundredths of a cycle of slowed computation that are not charged yet.
    fraction: u64,
    lines: Lines,
    events: Events,
    threads: Vec<Thread>,
    cores: Vec<Core>,
    live: u32,
    queued: u32,
    futexes: Map<usize, wait::Waiters>,
    memory: memory::Memory,
    caches: caches::Caches,
    random: Random,
    sites: Map<stats::SiteKey, stats::Tally>,
    recorder: record::Recorder,
    timeline: timeline::Timeline,
    /// True if the caller is asked before time passes to the end of a wait.
    stops_when_idle: bool,
    /// True if the caller was asked and lets the next timer expire.
    may_pass: bool,
}

impl Engine {
    /// Creates an engine in which [`ThreadId::MAIN`] runs on core 0.
    ///
    /// The program uses the machine's first `cores` cores. The seed matters only for what the
    /// machine declares random.
    ///
    /// # Errors
    ///
    /// The machine has a parameter out of bounds, or fewer than `cores` cores.
    pub fn new(machine: Machine, cores: u32, seed: u64) -> Result<Engine, ModelError> {
        machine.check()?;
        let most = machine.cores().min(MAX_CORES);
        if cores == 0 || cores > most {
            return Err(ModelError::TooManyCores { wanted: cores, cores: most });
        }
        let complexes = machine.complexes();
        let pairs = (0..complexes).flat_map(|a| (0..complexes).map(move |b| (a, b)));
        let units = cores.min(machine.physical_cores());
        let hit = u64::from(machine.hit);
        let locked = hit * (1 + u64::from(machine.llsc)) + u64::from(machine.rmw);
        let mut engine = Engine {
            clock: 0,
            fast_until: 0,
            core: 0,
            unit: 0,
            running: 0,
            shift: machine.line_shift,
            hit: [hit, hit, locked],
            stores_until: 0,
            totals: Totals::default(),
            filter: Filter::new(units),
            horizon: 0,
            patience: 0,
            distance: pairs.map(|(a, b)| machine.complex_transfer(a, b)).collect(),
            complexes: complexes as usize,
            complex_of: (0..units).map(|core| machine.complex(core) as u16).collect(),
            socket_of: (0..units).map(|core| machine.socket(core) as u16).collect(),
            fraction: 0,
            lines: Lines::new(),
            events: Events::new(),
            threads: Vec::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            live: 1,
            queued: 0,
            futexes: Map::default(),
            memory: memory::Memory::new(&machine),
            caches: caches::Caches::new(&machine, units as usize),
            random: Random::new(seed),
            sites: Map::default(),
            recorder: record::Recorder::default(),
            timeline: timeline::Timeline::default(),
            stops_when_idle: false,
            may_pass: false,
            machine,
        };
        let mut main = Thread::new(0, false, 0);
        main.state = State::Running;
        main.slice_end = u64::from(engine.machine.slice);
        engine.threads.push(main);
        engine.cores[0].thread = Some(0);
        engine.cores[0].assigned = 1;
        engine.refresh();
        Ok(engine)
    }

    /// Returns the modelled machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the number of virtual cores in use.
    pub fn cores(&self) -> u32 {
        self.cores.len() as u32
    }

    /// Returns the thread that runs now.
    #[inline]
    pub fn running(&self) -> ThreadId {
        ThreadId(self.running)
    }

    /// Returns the time of the running thread, in cycles since the start.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// Returns the core that a thread has or had last.
    pub fn core_of(&self, thread: ThreadId) -> u32 {
        u32::from(self.thread(thread).core)
    }

    fn thread(&self, thread: ThreadId) -> &Thread {
        &self.threads[thread.0 as usize]
    }

    #[inline]
    fn me(&mut self) -> &mut Thread {
        &mut self.threads[self.running as usize]
    }

    /// The running thread reads or writes `len` bytes at `address`.
    ///
    /// `pc` is any number that identifies the place in the program. The engine keeps its statistics
    /// by `pc`. After this call (or after the switch back) the caller does the access itself. Zero
    /// bytes are no access.
    #[inline]
    pub fn access(&mut self, address: usize, len: usize, kind: Access, pc: usize) -> Outcome {
        let line = address as u64 >> self.shift;
        let last = (address.wrapping_add(len.wrapping_sub(1))) as u64 >> self.shift;
        let settled = kind != Access::Rmw || self.stores_until <= self.clock;
        if line == last
            && len != 0
            && self.clock <= self.fast_until
            && settled
            && self.filter.allows(self.unit, line, kind != Access::Read)
        {
            self.totals.accesses[kind as usize] += 1;
            self.clock += self.hit[kind as usize];
            return Outcome::Continue;
        }
        self.access_slowly(address, len, kind, pc)
    }

    /// The running thread computes for `cycles` cycles.
    ///
    /// Other threads cannot see computation, so the thread may run ahead of them by the machine's
    /// `drift`. Beyond that the outcome can be a switch. So a thread that spins without a visible
    /// access cannot hang the others.
    #[inline]
    pub fn work(&mut self, cycles: u64) -> Outcome {
        let slow = self.machine.threads_per_core > 1 && self.shares_its_core();
        self.clock += if slow { self.slowed(cycles) } else { cycles };
        if self.clock <= self.patience { Outcome::Continue } else { self.give_way() }
    }

    /// Returns true if another hardware thread of the running thread's core is in use.
    fn shares_its_core(&self) -> bool {
        let step = self.machine.physical_cores() as usize;
        let siblings = self.cores.iter().skip(usize::from(self.unit)).step_by(step);
        siblings.filter(|sibling| sibling.thread.is_some()).count() > 1
    }

    /// Returns how long `cycles` of computation take on a core that two threads share.
    fn slowed(&mut self, cycles: u64) -> u64 {
        let share = u64::from(self.machine.thread_share);
        let hundredths = cycles * 100 + self.fraction;
        self.fraction = hundredths % share;
        hundredths / share
    }

    /// Lets all earlier threads run first, even if the machine has a quantum.
    ///
    /// Call this before an effect that other threads see but the engine does not: a system call, or
    /// a comparison of a value.
    #[inline]
    pub fn turn(&mut self) -> Outcome {
        if self.clock <= self.events.next_at() { Outcome::Continue } else { self.give_way() }
    }

    /// Charges a read of the clock and puts it in the order of time. [`Engine::stamp`] is its
    /// result.
    pub fn read_clock(&mut self) -> Outcome {
        self.clock += u64::from(self.machine.clock_read);
        self.turn()
    }

    /// Returns the time stamp counter of the running thread's core.
    pub fn stamp(&self) -> u64 {
        let socket = u64::from(self.socket_of[usize::from(self.unit)]);
        self.clock + socket * u64::from(self.machine.clock_skew)
    }
}
