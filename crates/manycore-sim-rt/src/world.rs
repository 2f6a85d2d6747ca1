//! The running simulation: the engine, and the runtime's own state.
//!
//! Owns: the one [`World`], and every call of the engine that may change threads. Such a call is
//! made under [`with`], its outcome is followed outside: no borrow of the world is alive while
//! another thread runs.
//!
//! Law sim_rt.S1 (kept in [`crate::threads`]): while a simulation is active, one kernel thread
//! runs. So the world needs no lock, and `ACTIVE` no ordering.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(crate) use manycore_sim::Access as Kind;
use manycore_sim::{Engine, LineCost, Outcome, ThreadId, Totals, Wakened};

use crate::blocks::Costs;
use crate::calls::Random;
use crate::code::Code;
use crate::frames::{Frames, Place};
use crate::patch::Patches;
use crate::threads::Thread;
use crate::{result, rseq, threads};

static ACTIVE: AtomicBool = AtomicBool::new(false);
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// The first virtual thread id of the operating system: above what a kernel gives.
const FIRST_ID: usize = 1 << 23;

/// Everything of one simulation.
pub(crate) struct World {
    pub(crate) engine: Engine,
    /// The thread whose stack is in use.
    pub(crate) current: usize,
    /// Where in the tree of calls it is.
    place: Place,
    /// Where its last block begins.
    block: usize,
    pub(crate) frames: Frames,
    costs: Costs,
    code: Code,
    /// Cycles to be charged with the next block.
    debt: u64,
    pub(crate) patches: Patches,
    #[expect(clippy::vec_box, reason = "a parked thread keeps its address")]
    pub(crate) threads: Vec<Box<Thread>>,
    /// A detached thread that has ended and whose real thread waits to be let go.
    pub(crate) leaving: Option<usize>,
    pub(crate) random: Random,
    pub(crate) measured: Measured,
    /// The real time when the simulation began, in nanoseconds.
    pub(crate) began: u64,
    pub(crate) out: String,
}

/// The part of the run that the program calls its measurement; the whole run if it calls none.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Operations that the program told of.
    pub(crate) operations: u64,
    /// Time and counts when the part under way began.
    pub(crate) since: Option<(u64, Totals)>,
    /// Cycles of the parts that are over.
    pub(crate) cycles: u64,
    /// Counts of the parts that are over.
    pub(crate) parts: Vec<Totals>,
    /// What lines had cost when the last part ended.
    pub(crate) lines: Vec<LineCost>,
}

/// Whether the calling thread is simulated.
#[inline(always)]
pub(crate) fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Acts on the world. Not to be nested, and nothing in `act` may change threads.
#[inline(always)]
pub(crate) fn with<R>(act: impl FnOnce(&mut World) -> R) -> R {
    // SAFETY: sim_rt.S1 - one thread is here; `start` set the pointer before the first call, and
    // nothing frees it. Borrows end with `act`, and no `act` calls back into this.
    act(unsafe { &mut *WORLD.load(Ordering::Relaxed) })
}

/// Acts while the simulation is off: for calls of libc that use what we stand before.
pub(crate) fn paused<R>(act: impl FnOnce() -> R) -> R {
    ACTIVE.store(false, Ordering::Relaxed);
    let result = act();
    ACTIVE.store(true, Ordering::Relaxed);
    result
}

/// Ends the simulation; whether one was under way.
pub(crate) fn stop() -> bool {
    ACTIVE.swap(false, Ordering::Relaxed)
}

/// Begins the simulation on the calling thread.
pub(crate) fn start(engine: Engine, seed: u64, out: String) {
    let machine = engine.machine();
    let costs = Costs::new(machine.instructions_per_10_cycles, machine.pause);
    let world = Box::new(World {
        engine,
        current: 0,
        place: Place::default(),
        block: 0,
        frames: Frames::new(),
        costs,
        code: Code::default(),
        debt: 0,
        patches: Patches::default(),
        threads: vec![Thread::first()],
        leaving: None,
        random: Random::new(seed),
        measured: Measured::default(),
        began: crate::host::nanoseconds(),
        out,
    });
    WORLD.store(Box::into_raw(world), Ordering::Relaxed);
    with(World::tell_place);
    ACTIVE.store(true, Ordering::Relaxed);
}

/// The thread that the outcome names; ends the process if none can run.
pub(crate) fn chosen(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Continue => with(|world| world.current),
        Outcome::Switch(ThreadId(next)) => next as usize,
        Outcome::Finished | Outcome::Deadlock => result::deadlock(),
    }
}

/// Runs the thread that the engine has chosen, and returns when it has chosen the caller again.
#[inline(always)]
fn follow(outcome: Outcome) {
    if outcome != Outcome::Continue {
        follow_away(outcome);
    }
}

#[cold]
#[inline(never)]
fn follow_away(outcome: Outcome) {
    let next = chosen(outcome);
    if next != with(|world| world.current) {
        threads::resume(next);
    }
}

/// Charges an access; others may run first.
#[inline(always)]
pub(crate) fn access(address: usize, size: usize, kind: Kind, pc: usize) {
    follow(with(|world| {
        let site = world.place.site(pc) as usize;
        world.engine.access(address, size, kind, site)
    }));
}

/// Charges a full fence.
pub(crate) fn fence() {
    follow(with(|world| world.engine.fence()));
}

/// A basic block begins.
#[inline(always)]
pub(crate) fn block(pc: usize) {
    follow(with(|world| {
        let cost = match world.costs.known(pc) {
            Some(cost) => cost,
            None => {
                let replace = |code: &mut Code, it: &_| world.patches.replace(code, it);
                world.costs.learn(&mut world.code, pc, replace)
            }
        };
        world.block = pc;
        let debt = std::mem::take(&mut world.debt);
        world.engine.work(u64::from(cost) + debt)
    }));
}

/// A function begins that returns to `caller`.
#[inline(always)]
pub(crate) fn enter(caller: usize) {
    with(|world| world.frames.enter(&mut world.place, caller));
}

/// A function ends.
#[inline(always)]
pub(crate) fn leave() {
    with(|world| world.frames.leave(&mut world.place));
}

/// The processor's clock and its core number, as an instruction reads them. Real time where no
/// simulation runs.
pub(crate) fn clock_reading() -> (u64, u64) {
    if !active() {
        let mut core = 0;
        // SAFETY: every x86-64 has the instruction and every one with our stubs has used it.
        let ticks = unsafe { std::arch::x86_64::__rdtscp(&mut core) };
        return (ticks, u64::from(core));
    }
    follow(with(|world| world.engine.read_clock()));
    with(|world| {
        let (core, socket) = world.where_now();
        (world.engine.stamp(), u64::from(core | socket << 12))
    })
}

/// What `cpuid` answers: what the host's does, but for the number of the core. Waits, as the
/// instruction does, until all that came before is done.
pub(crate) fn identity(leaf: u32, subleaf: u32) -> [u32; 4] {
    let found = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    let mut answer = [found.eax, found.ebx, found.ecx, found.edx];
    if active() {
        follow(with(|world| world.engine.serialize()));
        let core = with(|world| world.where_now().0);
        match leaf {
            1 => answer[1] = answer[1] & 0x00ff_ffff | core << 24,
            0xb | 0x1f => answer[3] = core,
            0x8000_001e => answer[0] = core,
            _ => {}
        }
    }
    answer
}

/// The time in nanoseconds since the start, after all earlier threads have run.
pub(crate) fn read_time() -> u64 {
    follow(with(|world| world.engine.read_clock()));
    with(|world| world.nanoseconds())
}

/// Charges a system call, and lets all earlier threads run.
pub(crate) fn system_call() {
    follow(with(|world| {
        let cost = u64::from(world.engine.machine().syscall);
        world.engine.work(cost)
    }));
    follow(with(|world| world.engine.turn()));
}

/// A system call that looks at a word of the program.
pub(crate) fn enter_kernel(word: usize) {
    let site = with(|world| world.call_site());
    follow(with(|world| world.engine.access(word, 4, Kind::Read, site)));
    system_call();
}

/// Waits at a futex word; whether the thread was woken.
pub(crate) fn wait(word: usize, until: Option<u64>, bits: u32) -> bool {
    follow(with(|world| {
        let site = world.call_site();
        let deadline = until.map(|ns| world.engine.machine().cycles(ns));
        world.engine.futex_wait(word, bits, deadline, site)
    }));
    with(|world| world.engine.wakened() == Wakened::ByThread)
}

/// Wakes the waiters at a futex word; how many.
pub(crate) fn wake(word: usize, count: u32, bits: u32) -> usize {
    system_call();
    with(|world| world.engine.futex_wake(word, count, bits)) as usize
}

/// Sleeps until a time in nanoseconds since the start.
pub(crate) fn sleep_until(until: u64) {
    system_call();
    follow(with(|world| {
        let site = world.call_site();
        let at = world.engine.machine().cycles(until);
        world.engine.sleep_until(at, site)
    }));
}

/// Gives the core to another thread that wants it.
pub(crate) fn give_way() {
    system_call();
    follow(with(|world| world.engine.yield_now()));
}

/// A barrier in every core that runs a thread of ours.
pub(crate) fn interrupt_all() {
    system_call();
    follow(with(|world| world.engine.fence()));
    follow(with(|world| {
        let cost = u64::from(world.engine.machine().wake);
        world.engine.work(cost)
    }));
}

/// Keeps the running thread to those cores.
pub(crate) fn restrict(cores: Vec<u32>) {
    system_call();
    let all = with(|world| world.engine.cores()) as usize;
    let here = with(|world| world.where_now().0);
    let pin = (cores.len() == 1).then(|| cores[0]);
    if pin.is_some() || !cores.contains(&here) {
        follow(with(|world| world.engine.set_affinity(Some(cores[0]))));
    }
    if pin.is_none() {
        follow(with(|world| world.engine.set_affinity(None)));
    }
    with(|world| {
        world.threads[world.current].allowed = (cores.len() < all).then_some(cores);
        world.tell_place();
    });
}

/// A new thread is parked and can run.
pub(crate) fn begin(mut thread: Box<Thread>) {
    system_call();
    with(|world| {
        thread.allowed = world.threads[world.current].allowed.clone();
        let pinned = thread.allowed.as_ref().filter(|cores| cores.len() == 1);
        let id = world.engine.spawn(pinned.map(|cores| cores[0]), world.engine.now());
        assert_eq!(id.0 as usize, world.threads.len(), "the engine numbers as we do");
        world.threads.push(thread);
    });
}

/// Waits for the end of a thread.
pub(crate) fn join(number: usize) {
    follow(with(|world| {
        let site = world.call_site();
        world.engine.join(ThreadId(number as u32), site)
    }));
}

impl World {
    /// Makes `next` the thread whose stack is in use; returns what the change needs: where to save
    /// the old place, the new place, the new thread pointer.
    pub(crate) fn change_to(&mut self, next: usize) -> (*mut usize, usize, usize) {
        let old = &mut self.threads[self.current];
        old.frame = (self.place, self.block);
        let save = &raw mut old.place;
        self.current = next;
        (self.place, self.block) = self.threads[next].frame;
        self.tell_place();
        let new = &self.threads[next];
        (save, new.place, new.pointer)
    }

    /// Writes where the running thread is to where it may look.
    pub(crate) fn tell_place(&mut self) {
        let (core, socket) = self.where_now();
        rseq::write(self.threads[self.current].pointer, core, socket);
    }

    /// Core and socket of the running thread.
    pub(crate) fn where_now(&self) -> (u32, u32) {
        let core = self.engine.core_of(self.engine.running());
        (core, self.engine.machine().socket(core))
    }

    /// Nanoseconds since the start.
    pub(crate) fn nanoseconds(&self) -> u64 {
        self.engine.machine().nanos(self.engine.now())
    }

    /// The cores that the running thread may use.
    pub(crate) fn allowed(&self) -> Vec<u32> {
        let allowed = self.threads[self.current].allowed.clone();
        allowed.unwrap_or_else(|| (0..self.engine.cores()).collect())
    }

    /// What the running thread is for the operating system.
    pub(crate) fn thread_id(&self) -> usize {
        FIRST_ID + self.current
    }

    /// Where the running thread is, for calls that carry no address: in its last block.
    fn call_site(&self) -> usize {
        self.place.site(self.block) as usize
    }

    /// Charges a call of the allocator, with the next block: libc may hold a lock of its own here,
    /// so no other thread may run.
    pub(crate) fn charge_malloc(&mut self) {
        self.debt += u64::from(self.engine.machine().malloc);
    }
}
