//! The running simulation: the engine and the runtime's own state.
//!
//! This module owns the one [`Simulation`], and every call of the engine that may change threads.
//! Such a call is made inside [`with`] (`charge`), and its outcome is followed outside
//! (`schedule`). So no borrow of the simulation is alive while another thread runs. `result` writes
//! the file that a run leaves.
//!
//! Law threads.S1 (in [`crate::threads`]): while a simulation is active, one kernel thread runs. So
//! the simulation needs no lock, and `ACTIVE` no ordering.

mod alarms;
mod charge;
mod files;
mod outside;
pub(crate) mod result;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(crate) use manycore_sim::Access as Kind;
use manycore_sim::symbols::{Module, Symbols};
use manycore_sim::{Engine, LineCost, Totals};

pub(crate) use self::alarms::{Alarm, Clock, OF_PROCESS, Signal, has_rung};
pub(crate) use self::charge::{
    access, any_waits, begin, block, clock_reading, copied, enter, enter_kernel, fence,
    files_changed, give_way, identity, inside_libc, interrupt_all, join, leave, pause, read_time,
    restrict, sleep_until, system_call, wait, wait_outside, wake,
};
pub(crate) use self::files::{Poll, Timer, WaitsFor, interrupt, is_reminded, remind};
pub(crate) use self::schedule::{arrive, chosen, collect};
use crate::allocations::Allocations;
use crate::blocks::{Costs, Prices};
use crate::code::Code;
use crate::frames::{self, CallPath, Frames};
use crate::mappings::Mappings;
use crate::patch::{Patches, Targets};
use crate::pipeline::{self, Pipeline};
use crate::random::Random;
use crate::rseq;
use crate::thread::Thread;
use crate::uninstrumented;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static SIMULATION: AtomicPtr<Simulation> = AtomicPtr::new(std::ptr::null_mut());

#[cfg(debug_assertions)]
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The first virtual thread id: above the ids that a kernel gives.
const FIRST_ID: usize = 1 << 23;

/// Bytes of the first thread's stack, which can grow.
const FIRST_STACK: usize = 16 << 20;

/// The state of one simulation.
pub(crate) struct Simulation {
    pub(crate) engine: Engine,
    /// The thread that is using its stack.
    pub(crate) current: usize,
    /// The current thread's place in the tree of calls.
    path: CallPath,
    /// The address of its last block.
    block: usize,
    pub(crate) frames: Frames,
    pub(crate) costs: Costs,
    /// Set if the machine's cores run instructions out of order.
    pipeline: Option<Pipeline>,
    code: Code,
    /// Cycles to charge with the next block.
    debt: u64,
    pub(crate) patches: Patches,
    #[expect(clippy::vec_box, reason = "a parked thread keeps its address")]
    pub(crate) threads: Vec<Box<Thread>>,
    /// A detached thread that has ended; its real thread waits to be released.
    pub(crate) leaving: Option<usize>,
    pub(crate) random: Random,
    pub(crate) allocations: Allocations,
    pub(crate) mappings: Mappings,
    /// An address of the first thread's stack.
    pub(crate) stack: usize,
    /// Threads that wait for files or child processes, and timers that are files.
    pub(crate) files: files::Files,
    /// Timers that send signals.
    pub(crate) alarms: alarms::Alarms,
    /// libc's mutexes whose release has to wake a thread.
    pub(crate) contended: BTreeSet<usize>,
    /// The controls of functions that run once, while they run.
    pub(crate) at_once: BTreeSet<usize>,
    /// If waits are kept: the calls in which threads began to wait for files and child processes,
    /// by thread and time.
    calls: BTreeMap<(usize, u64), &'static str>,
    pub(crate) measured: Measured,
    /// The real time at the start, in nanoseconds.
    pub(crate) began: u64,
    pub(crate) out: String,
}

/// The part of the run that the program measures; the whole run if it marks none.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Operations that the program reported.
    pub(crate) operations: u64,
    /// Time and counts when the current part began.
    pub(crate) since: Option<(u64, Totals)>,
    /// Cycles of the finished parts.
    pub(crate) cycles: u64,
    /// Counts of the finished parts.
    pub(crate) parts: Vec<Totals>,
    /// The costs of lines when the last part ended.
    pub(crate) lines: Vec<LineCost>,
}

/// Returns true if the calling thread is simulated.
#[inline(always)]
pub(crate) fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Calls `act` with the simulation. Calls must not nest, and `act` must not change threads.
#[inline(always)]
pub(crate) fn with<R>(act: impl FnOnce(&mut Simulation) -> R) -> R {
    #[cfg(debug_assertions)]
    let _entered = Entered::now();
    // SAFETY: threads.S1 - one thread is here. `start` set the pointer before the first call, and
    // nothing frees it. Borrows end with `act`, and no `act` calls this again.
    act(unsafe { &mut *SIMULATION.load(Ordering::Relaxed) })
}

/// A borrow of the simulation. There is at most one.
#[cfg(debug_assertions)]
struct Entered;

#[cfg(debug_assertions)]
impl Entered {
    fn now() -> Self {
        debug_assert!(!IS_ENTERED.swap(true, Ordering::Relaxed), "`with` within `with`");
        Self
    }
}

#[cfg(debug_assertions)]
impl Drop for Entered {
    fn drop(&mut self) {
        IS_ENTERED.store(false, Ordering::Relaxed);
    }
}

/// Returns true if the running code is charged by the call and not by its instructions. Signal
/// handlers call this, and may interrupt the runtime anywhere.
fn is_charged_as_a_whole() -> bool {
    // ORDER: Relaxed; stored once, by this thread.
    let simulation = SIMULATION.load(Ordering::Relaxed);
    // SAFETY: `start` set the pointer, and nothing frees it. The word is read as a whole, whatever
    // the interrupted code is doing with it.
    !simulation.is_null() && unsafe { (&raw const (*simulation).debt).read_volatile() } > 0
}

/// Runs `act` with the simulation off, for calls of libc that use functions which we replace.
pub(crate) fn paused<R>(act: impl FnOnce() -> R) -> R {
    ACTIVE.store(false, Ordering::Relaxed);
    let result = act();
    ACTIVE.store(true, Ordering::Relaxed);
    result
}

/// Ends the simulation. Returns true if one was running.
pub(crate) fn stop() -> bool {
    ACTIVE.swap(false, Ordering::Relaxed)
}

/// The runtime's functions that the program's code reaches.
pub(crate) struct Hooks {
    /// The function that a block calls at its beginning.
    pub(crate) block_callback: usize,
    /// The routines behind replaced instructions.
    pub(crate) replaced: Targets,
}

/// Starts the simulation on the calling thread.
pub(crate) fn start(engine: Engine, seed: u64, out: String, hooks: Hooks) {
    let costs = Costs::new(Prices::of(engine.machine()), hooks.block_callback);
    let pipeline = Pipeline::of(engine.machine());
    let simulation = Box::new(Simulation {
        pipeline,
        engine,
        current: 0,
        path: CallPath::default(),
        block: 0,
        frames: Frames::new(),
        costs,
        code: Code::default(),
        debt: 0,
        patches: Patches::new(hooks.replaced),
        threads: vec![Thread::first()],
        leaving: None,
        random: Random::new(seed),
        allocations: Allocations::default(),
        mappings: Mappings::default(),
        stack: std::ptr::from_ref(&seed) as usize,
        files: files::Files::default(),
        alarms: alarms::Alarms::default(),
        contended: BTreeSet::new(),
        at_once: BTreeSet::new(),
        calls: BTreeMap::new(),
        measured: Measured::default(),
        began: crate::host::nanoseconds(),
        out,
    });
    SIMULATION.store(Box::into_raw(simulation), Ordering::Relaxed);
    with(Simulation::publish_core);
    uninstrumented::begin(|| active() && !is_charged_as_a_whole());
    ACTIVE.store(true, Ordering::Relaxed);
}

impl Simulation {
    /// Makes `next` the thread that uses its stack. Returns what the switch needs: where to save
    /// the old place, the new place, and the new thread pointer.
    pub(crate) fn change_to(&mut self, next: usize) -> (*mut usize, usize, usize) {
        debug_assert_ne!(next, self.current, "a thread gives way to itself");
        let old = &mut self.threads[self.current];
        old.frame = (self.path, self.block);
        let save = &raw mut old.place;
        self.current = next;
        (self.path, self.block) = self.threads[next].frame;
        self.publish_core();
        self.look_for_its_signals();
        let new = &mut self.threads[next];
        debug_assert!(!new.ended, "an ended thread runs");
        // threads.S2: used once.
        let to = std::mem::take(&mut new.place);
        debug_assert_ne!(to, 0, "a thread runs that has not given way");
        (save, to, new.pointer)
    }

    /// Writes the running thread's core and socket to its rseq record.
    pub(crate) fn publish_core(&mut self) {
        let (core, socket) = self.where_now();
        rseq::write(self.threads[self.current].pointer, core, socket);
    }

    /// Returns core and socket of the running thread.
    pub(crate) fn where_now(&self) -> (u32, u32) {
        let core = self.engine.core_of(self.engine.running());
        (core, self.engine.machine().socket(core))
    }

    /// Returns the nanoseconds since the start.
    pub(crate) fn nanoseconds(&self) -> u64 {
        self.engine.machine().nanos(self.engine.now())
    }

    /// Returns the cores that the running thread may use.
    pub(crate) fn allowed(&self) -> Vec<u32> {
        let allowed = self.threads[self.current].allowed.clone();
        allowed.unwrap_or_else(|| (0..self.engine.cores()).collect())
    }

    /// Returns the running thread's id for the operating system.
    pub(crate) fn thread_id(&self) -> usize {
        FIRST_ID + self.current
    }

    /// Returns the thread with this id of the operating system, if it has not ended.
    pub(crate) fn thread_of_id(&self, id: usize) -> Option<usize> {
        let number = id.checked_sub(FIRST_ID)?;
        self.threads.get(number).filter(|thread| !thread.ended).map(|_| number)
    }

    /// Returns the running thread's site for calls without an address: its last block.
    fn call_site(&self) -> usize {
        self.path.site(self.block) as usize
    }

    /// Returns the running thread's location in the program's source.
    pub(crate) fn place(&self) -> String {
        self.place_of(self.call_site() as u64)
    }

    /// Returns a site's location in the program's source. Reads the program's file.
    fn place_of(&self, site: u64) -> String {
        // This reads files and maps them, which the program does not do here.
        let read = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            let mut addresses = vec![frames::pc(site)];
            addresses.extend(self.frames.stack(site));
            Symbols::new().place(&Module::parse(&maps), &addresses)
        };
        if active() { paused(read) } else { read() }
    }

    /// Records a block that the program's allocator returned.
    pub(crate) fn allocated(&mut self, block: usize, bytes: usize) {
        let place = (self.call_site() as u64, self.current, self.engine.now());
        self.allocations.add(block, bytes, place);
    }

    /// Records a block that the program freed.
    pub(crate) fn freed(&mut self, block: usize) {
        self.allocations.remove(block, self.engine.now());
    }

    /// Returns the thread that owns the stack of an address, and how far the address is below its
    /// thread pointer. Thread-locals lie directly below that pointer.
    pub(crate) fn stack_of(&self, address: usize) -> Option<(usize, usize)> {
        let below = |(number, thread): (usize, &Thread)| {
            let below = thread.pointer.checked_sub(address)?;
            (below <= thread.stack).then_some((number, below))
        };
        // If threads had the same stack one after the other, the last one.
        let threads = self.threads.iter().map(|thread| &**thread);
        let found = threads.enumerate().filter_map(below);
        let found = found.min_by_key(|(number, below)| (*below, usize::MAX - number));
        let is_first = self.stack.abs_diff(address) < FIRST_STACK;
        found.or_else(|| is_first.then_some((0, usize::MAX)))
    }

    /// Forgets what is mapped at the addresses of a range. Threads that wait at words there look
    /// again, because the engine may know these words by other addresses from now on (mappings.M1).
    pub(crate) fn unmapped(&mut self, start: usize, bytes: usize) {
        if self.mappings.has_common() {
            let range = start..start.saturating_add(bytes);
            self.contended.retain(|word| !range.contains(word));
            self.engine.wake_waiters_in(range);
        }
        self.mappings.remove(start, bytes);
    }

    /// Returns the address at which the engine knows a word (mappings.M1).
    pub(crate) fn line_address(&self, word: usize) -> usize {
        self.mappings.line_address(word).0
    }

    /// Charges a call of the allocator with the next block. No other thread may run here, because
    /// libc may hold a lock of its own.
    pub(crate) fn charge_malloc(&mut self) {
        self.debt += u64::from(self.engine.machine().malloc);
    }

    /// Charges a fill by libc with the next block.
    pub(crate) fn charge_fill(&mut self, bytes: usize) {
        self.debt += pipeline::copied(&self.pipeline, bytes);
    }
}
