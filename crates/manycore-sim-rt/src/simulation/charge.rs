//! Charges what the program does to a virtual core. Other threads may run first.

use std::sync::atomic::Ordering;

use manycore_sim::{Access as Kind, ThreadId, Wakened};

use super::files::{Waiter, WaitsFor};
use super::schedule::follow;
use super::{Simulation, active, with};
use crate::code::Code;
use crate::pipeline;
use crate::thread::Thread;

/// Maximal bytes that one instruction moves.
const WIDEST: usize = 64;

/// Charges an access. Other threads may run first.
#[inline(always)]
pub(crate) fn access(address: usize, size: usize, kind: Kind, pc: usize) {
    if with(|sim| sim.mappings.has_common()) {
        access_in_parts(address, size, kind, pc);
        return;
    }
    follow(with(|sim| {
        let site = sim.path.site(pc) as usize;
        if size > WIDEST {
            sim.debt += pipeline::copied(&sim.pipeline, size);
        }
        sim.engine.access(address, size, kind, site)
    }));
}

/// Charges an access, part by part if it crosses from one mapping into another (mappings.M1).
#[cold]
#[inline(never)]
fn access_in_parts(address: usize, size: usize, kind: Kind, pc: usize) {
    let site = with(|sim| {
        if size > WIDEST {
            sim.debt += pipeline::copied(&sim.pipeline, size);
        }
        sim.path.site(pc) as usize
    });
    parts(address, size, kind, site);
}

fn parts(address: usize, size: usize, kind: Kind, site: usize) {
    let mut done = 0;
    while done < size {
        follow(with(|sim| {
            let (at, room) = sim.mappings.line_address(address + done);
            let here = room.min(size - done);
            done += here;
            sim.engine.access(at, here, kind, site)
        }));
    }
}

/// Charges a full fence.
pub(crate) fn fence() {
    follow(with(|sim| sim.engine.fence()));
}

/// Begins a basic block. `stack` is its stack pointer.
#[inline(always)]
pub(crate) fn block(pc: usize, stack: usize) {
    follow(with(|sim| {
        let cost = match sim.costs.known(pc) {
            Some(cost) => cost,
            None => {
                if let Some(pipeline) = &mut sim.pipeline
                    && pipeline.known(pc).is_none()
                {
                    pipeline.learn(pc, &sim.costs.instructions(&mut sim.code, pc));
                }
                let replace = |code: &mut Code, it: &_| sim.patches.replace(code, it);
                sim.costs.learn(&mut sim.code, pc, replace)
            }
        };
        let cost = match &mut sim.pipeline {
            None => u64::from(cost),
            Some(pipeline) => {
                let block = pipeline.known(pc).expect("it was learned with the cost");
                let registers = &mut sim.threads[sim.current].registers;
                pipeline.run(block, pc, stack, sim.engine.now(), registers)
            }
        };
        sim.block = pc;
        sim.ring_in_time();
        let debt = std::mem::take(&mut sim.debt);
        sim.engine.work(cost + debt)
    }));
}

/// Begins a function that returns to `caller`.
#[inline(always)]
pub(crate) fn enter(caller: usize) {
    with(|sim| {
        sim.frames.enter(&mut sim.path, caller);
        pipeline::enter(&sim.pipeline, &mut sim.threads[sim.current].registers);
    });
}

/// Ends a function.
#[inline(always)]
pub(crate) fn leave() {
    with(|sim| {
        sim.frames.leave(&mut sim.path);
        pipeline::leave(&sim.pipeline, &mut sim.threads[sim.current].registers);
    });
}

/// Returns the processor's clock and core number, as an instruction reads them. Without a
/// simulation, those of the real processor.
pub(crate) fn clock_reading() -> (u64, u64) {
    if !active() {
        let mut core = 0;
        // SAFETY: every x86-64 processor with these stubs has used the instruction before.
        let ticks = unsafe { std::arch::x86_64::__rdtscp(&mut core) };
        return (ticks, u64::from(core));
    }
    follow(with(|sim| sim.engine.read_clock()));
    with(|sim| {
        let (core, socket) = sim.where_now();
        (sim.engine.stamp(), u64::from(core | socket << 12))
    })
}

/// Returns what `cpuid` answers: the host's answer, except for the number of the core and the
/// processor's name. Waits until everything before is done, as the instruction does.
pub(crate) fn identity(leaf: u32, subleaf: u32) -> [u32; 4] {
    let found = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    let mut answer = [found.eax, found.ebx, found.ecx, found.edx];
    if active() {
        follow(with(|sim| sim.engine.serialize()));
        let core = with(|sim| sim.where_now().0);
        match leaf {
            1 => answer[1] = answer[1] & 0x00ff_ffff | core << 24,
            0xb | 0x1f => answer[3] = core,
            0x8000_001e => answer[0] = core,
            0x8000_0002..=0x8000_0004 => {
                let name = with(|sim| sim.engine.machine().processor());
                answer = part_of_name(&name, leaf as usize & 7);
            }
            _ => {}
        }
    }
    answer
}

/// Returns one of the three parts of a processor's name: part 2, 3 or 4.
fn part_of_name(name: &str, part: usize) -> [u32; 4] {
    let byte = |at: usize| name.as_bytes().get(at).copied().unwrap_or(0);
    let word = |at: usize| u32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
    let start = (part - 2) * 16;
    [0, 4, 8, 12].map(|offset| word(start + offset))
}

/// Returns the nanoseconds since the start, after all earlier threads have run.
pub(crate) fn read_time() -> u64 {
    follow(with(|sim| sim.engine.read_clock()));
    with(|sim| sim.nanoseconds())
}

/// Charges a system call, and lets all earlier threads run.
pub(crate) fn system_call() {
    follow(with(|sim| {
        let cost = u64::from(sim.engine.machine().syscall);
        sim.engine.work(cost)
    }));
    follow(with(|sim| sim.engine.turn()));
}

/// Charges a system call that reads a word of the program.
pub(crate) fn enter_kernel(word: usize) {
    let site = with(|sim| sim.call_site());
    follow(with(|sim| {
        let at = sim.line_address(word);
        sim.engine.access(at, 4, Kind::Read, site)
    }));
    system_call();
}

/// Waits at a futex word. Returns true if the thread was woken.
pub(crate) fn wait(word: usize, until: Option<u64>, bits: u32) -> bool {
    follow(with(|sim| {
        let site = sim.call_site();
        let deadline = until.map(|ns| sim.engine.machine().cycles(ns));
        let word = sim.line_address(word);
        sim.engine.futex_wait(word, bits, deadline, site)
    }));
    with(|sim| {
        sim.ring_in_time();
        sim.engine.wakened() == Wakened::ByThread
    })
}

/// Charges instructions of libc, which is not instrumented, and then its access to a word of the
/// program.
pub(crate) fn inside_libc(word: usize, kind: Kind, instructions: u32) {
    let site = with(|sim| sim.call_site());
    follow(with(|sim| {
        let rate = u64::from(sim.engine.machine().instructions_per_10_cycles);
        sim.engine.work(u64::from(instructions) * 10 / rate)
    }));
    follow(with(|sim| {
        let at = sim.line_address(word);
        sim.engine.access(at, 4, kind, site)
    }));
}

/// Charges what a processor waits in a spin loop.
pub(crate) fn pause() {
    follow(with(|sim| {
        let cost = u64::from(sim.engine.machine().pause);
        sim.engine.work(cost)
    }));
}

/// Returns true if a thread waits at a futex word with one of these bits.
pub(crate) fn any_waits(word: usize, bits: u32) -> bool {
    with(|sim| {
        let word = sim.line_address(word);
        sim.engine.any_waits(word, bits)
    })
}

/// Wakes the waiters at a futex word. Returns how many.
pub(crate) fn wake(word: usize, count: u32, bits: u32) -> usize {
    system_call();
    with(|sim| {
        let word = sim.line_address(word);
        sim.engine.futex_wake(word, count, bits) as usize
    })
}

/// Charges the kernel's copy from or to the program's memory.
pub(crate) fn copied(address: usize, size: usize, kind: Kind) {
    let site = with(|sim| sim.call_site());
    parts(address, size, kind, site);
}

/// Waits until `what` may have come, or until a time in nanoseconds since the start. Returns true
/// if it may have come.
///
/// `call` is for messages. If several threads wait `alone` for one file, one of them is woken.
pub(crate) fn wait_outside(
    call: &'static str,
    what: WaitsFor,
    is_alone: bool,
    until: Option<u64>,
) -> bool {
    // files.O1: added in the same turn in which the call would have blocked.
    let (word, until) = with(|sim| {
        let waiter = Waiter { thread: sim.current, call, site: sim.call_site(), what, is_alone };
        sim.add_waiter(waiter);
        if sim.engine.keeps_waits() {
            sim.calls.insert((sim.current, sim.engine.now()), call);
        }
        // The thread may be waiting for a timer that is a file.
        let timers = [sim.files.next_timer(), sim.alarms.next()].into_iter().flatten();
        (sim.waiting_word(sim.current), until.into_iter().chain(timers).min())
    });
    let is_woken = wait(word, until, u32::MAX);
    with(Simulation::remove_waiter);
    is_woken
}

/// After a call that may have made files ready: wakes the threads that wait for them.
pub(crate) fn files_changed() {
    with(|sim| {
        if sim.files.any_waits() {
            sim.wake_ready(0);
        }
    });
}

/// Sleeps until a time in nanoseconds since the start, or until a timer sends its signal. Returns
/// true if a timer did.
pub(crate) fn sleep_until(until: u64) -> bool {
    system_call();
    let alarm = with(|sim| sim.alarms.next()).filter(|alarm| *alarm < until);
    follow(with(|sim| {
        let site = sim.call_site();
        let at = sim.engine.machine().cycles(alarm.unwrap_or(until));
        sim.engine.sleep_until(at, site)
    }));
    with(Simulation::ring_in_time);
    alarm.is_some()
}

/// Gives the core to another thread that wants it.
pub(crate) fn give_way() {
    system_call();
    follow(with(|sim| sim.engine.yield_now()));
}

/// Executes a barrier in every core that runs a thread of the program.
pub(crate) fn interrupt_all() {
    system_call();
    follow(with(|sim| sim.engine.fence()));
    follow(with(|sim| {
        let cost = u64::from(sim.engine.machine().wake);
        sim.engine.work(cost)
    }));
}

/// Restricts the running thread to those cores.
pub(crate) fn restrict(cores: Vec<u32>) {
    system_call();
    let all = with(|sim| sim.engine.cores()) as usize;
    let here = with(|sim| sim.where_now().0);
    let pin = (cores.len() == 1).then(|| cores[0]);
    if pin.is_some() || !cores.contains(&here) {
        follow(with(|sim| sim.engine.set_affinity(Some(cores[0]))));
    }
    if pin.is_none() {
        follow(with(|sim| sim.engine.set_affinity(None)));
    }
    with(|sim| {
        sim.threads[sim.current].allowed = (cores.len() < all).then_some(cores);
        sim.publish_core();
    });
}

/// Adds a new thread, which is parked and can run.
pub(crate) fn begin(mut thread: Box<Thread>) {
    system_call();
    follow(with(|sim| {
        let cost = u64::from(sim.engine.machine().spawn);
        sim.engine.work(cost)
    }));
    with(|sim| {
        thread.allowed = sim.threads[sim.current].allowed.clone();
        let pinned = thread.allowed.as_ref().filter(|cores| cores.len() == 1);
        let id = sim.engine.spawn(pinned.map(|cores| cores[0]), sim.engine.now());
        assert_eq!(id.0 as usize, sim.threads.len(), "the engine numbers as we do");
        debug_assert_eq!(thread.parked.load(Ordering::Relaxed), 1, "threads.S1: not parked");
        sim.threads.push(thread);
    });
}

/// Waits for the end of a thread.
pub(crate) fn join(number: usize) {
    follow(with(|sim| {
        let site = sim.call_site();
        sim.engine.join(ThreadId(number as u32), site)
    }));
}
