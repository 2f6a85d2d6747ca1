//! How fast the engine is: accesses a second for a few shapes of work; and how much memory it
//! takes.
//!
//! `cargo run --release -p manycore-sim --example engine_speed [SHAPE]`

use std::{sync::LazyLock, time::Instant};

use manycore_sim::{Access, Engine, Machine, drive};

/// A way to choose the next access: the actor's number and how many it has made.
type Pattern = fn(usize, u64) -> (usize, Access);

/// Each actor works on 16 lines of its own, one store in four.
fn private(me: usize, at: u64) -> (usize, Access) {
    let kind = if at & 3 == 0 { Access::Write } else { Access::Read };
    ((me << 20) + (((at * 7) & 15) << 6) as usize, kind)
}

/// Each actor goes through 4096 lines of its own again and again: a million lines for 240 cores.
fn wide(me: usize, at: u64) -> (usize, Access) {
    ((me << 24) + ((at & 4095) << 6) as usize, Access::Write)
}

/// Like `private`, and every 64th access is to one of 8 lines that all write.
fn mixed(me: usize, at: u64) -> (usize, Access) {
    if at & 63 == 63 {
        return ((((at >> 6) as usize + me) & 7) << 6, Access::Rmw);
    }
    private(me, at)
}

/// All cores write one line.
fn contended(_: usize, _: u64) -> (usize, Access) {
    (64, Access::Rmw)
}

/// Time that this thread has had a processor, as Linux counts it: other programs may want it too.
/// Elsewhere, time that has passed.
fn busy_nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let busy = statistics.split(' ').next().and_then(|nanos| nanos.parse().ok());
    busy.unwrap_or_else(|| START.elapsed().as_nanos() as u64)
}

fn measure(name: &str, cores: u32, quantum: u32, accesses: u64, pattern: Pattern) {
    let machine = Machine::named("opteron-8x6").expect("a shipped machine");
    measure_on(machine, name, cores, quantum, accesses, pattern);
}

/// The same on a machine whose caches have a limit.
fn limited() -> Machine {
    let mut machine = Machine::named("opteron-8x6").expect("a shipped machine");
    (machine.l1_kib, machine.l2_kib, machine.l3_kib) = (64, 512, 6144);
    machine
}

fn measure_on(
    machine: Machine,
    name: &str,
    cores: u32,
    quantum: u32,
    accesses: u64,
    pattern: Pattern,
) {
    if std::env::args().nth(1).is_some_and(|only| only != name) {
        return;
    }
    let mut machine = machine.grown_to(240);
    machine.quantum = quantum;
    let mut engine = Engine::new(machine, cores, 1).expect("a sound machine");
    let each = accesses / u64::from(cores);
    let actor = |me: usize| -> drive::Actor<'static> {
        let mut at = 0;
        Box::new(move |engine| {
            at += 1;
            if at > each {
                return engine.exit();
            }
            let (address, kind) = pattern(me, at);
            engine.access(address, 8, kind, 1)
        })
    };
    let actors = (0..cores as usize).map(|me| actor(me + 1)).collect();
    let start = busy_nanos();
    drive::run(&mut engine, actors, 0).expect("actors that do not wait");
    let took = (busy_nanos() - start) as f64 / 1e9;
    let made = engine.totals().all_accesses() as f64;
    println!(
        "{name:10} {cores:4} cores, quantum {quantum:3}: {:6.1} M accesses/s, {:5.1} ns each",
        made / took / 1e6,
        took * 1e9 / made
    );
}

fn main() {
    measure("private", 1, 0, 40_000_000, private);
    for cores in [48, 240] {
        for quantum in [0, 50] {
            measure("private", cores, quantum, 8_000_000, private);
            measure("mixed", cores, quantum, 8_000_000, mixed);
            measure("contended", cores, quantum, 2_000_000, contended);
        }
    }
    measure("wide", 240, 0, 8_000_000, wide);
    for quantum in [0, 50] {
        measure_on(limited(), "limited", 48, quantum, 8_000_000, private);
    }
    // What Linux says; nothing elsewhere.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("peak memory: {}", peak.trim());
    }
}
