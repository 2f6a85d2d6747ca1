//! Compares the engine with a slow, obvious model of the same rules, on random programs.

mod caches;
mod invariants;
mod program;
mod reference;
mod scheduling;
mod sharing;
mod shipped;

use program::{Done, Setup, Step};

use crate::engine::{Engine, Outcome, ThreadId};

/// Runs a program on the engine. Returns the same log as [`reference::run`].
fn run(setup: &Setup, verify: bool) -> Done {
    let machine = setup.machine.clone();
    let mut engine = Engine::new(machine, setup.cores, setup.seed).expect("a sound machine");
    // A caller that gets `Idle` and lets time pass sees no difference.
    engine.stop_when_idle(setup.seed % 2 == 1);
    let mut at = vec![0; setup.programs.len()];
    let mut log = Vec::new();
    let deadlocked = loop {
        let me = engine.running().0 as usize;
        if at[me] > 0 {
            log.push((
                me as u32,
                at[me] as u32 - 1,
                engine.now(),
                engine.core_of(engine.running()),
            ));
        }
        let step = setup.programs[me][at[me]];
        at[me] += 1;
        let mut outcome = make(&mut engine, step);
        while outcome == Outcome::Idle && engine.idle_until().is_some() {
            outcome = engine.go_on();
        }
        if verify {
            invariants::verify(&engine);
        }
        match outcome {
            Outcome::Continue => assert_eq!(engine.running().0 as usize, me),
            Outcome::Switch(to) => assert_eq!(engine.running(), to),
            Outcome::Finished => break false,
            Outcome::Deadlock | Outcome::Idle => break true,
        }
    };
    let totals = engine.totals();
    Done {
        log,
        deadlocked,
        misses: totals.misses,
        waited: totals.waited,
        shared_writes: totals.shared_writes,
        remote_reads: totals.remote_reads,
    }
}

/// Makes the call of one step.
fn make(engine: &mut Engine, step: Step) -> Outcome {
    match step {
        Step::Work(cycles) => engine.work(cycles),
        Step::Access { address, len, kind } => engine.access(address, len, kind, address),
        Step::Fence => engine.fence(),
        Step::Turn => engine.turn(),
        Step::Yield => engine.yield_now(),
        Step::Sleep(cycles) => engine.sleep_until(engine.now() + cycles, 0),
        Step::Wait { address, patience } => {
            let deadline = patience.map(|cycles| engine.now() + cycles);
            engine.futex_wait(address, u32::MAX, deadline, 0)
        }
        Step::Wake { address, count } => {
            engine.futex_wake(address, count, u32::MAX);
            engine.turn()
        }
        Step::Pin(core) => engine.set_affinity(core),
        Step::Spawn(core) => {
            engine.spawn(core, 0);
            engine.turn()
        }
        Step::Join(thread) => engine.join(ThreadId(thread), 0),
        Step::Exit => engine.exit(),
    }
}

fn first_difference(seed: u64, engine: &Done, model: &Done) {
    let pairs = engine.log.iter().zip(&model.log).enumerate();
    for (place, (a, b)) in pairs {
        assert_eq!(a, b, "seed {seed:#x}, entry {place} of (thread, step, time, core)");
    }
    assert_eq!(engine.log.len(), model.log.len(), "seed {seed:#x}");
    let counts = |done: &Done| {
        (done.deadlocked, done.misses, done.waited, done.shared_writes, done.remote_reads)
    };
    assert_eq!(counts(engine), counts(model), "seed {seed:#x}");
}

fn seeds() -> impl Iterator<Item = u64> {
    let given = std::env::var("MANYCORE_SEED").ok();
    let parse = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let one = given.as_deref().and_then(parse);
    let first = one.unwrap_or(1);
    first..first + if one.is_some() { 1 } else { 80 }
}

#[test]
fn random_programs_take_the_time_of_the_obvious_model() {
    for seed in seeds() {
        let setup = program::random(seed);
        first_difference(seed, &run(&setup, false), &reference::run(&setup));
    }
}

#[test]
fn invariants_hold_after_every_call() {
    for seed in seeds().take(10) {
        run(&program::random(seed), true);
    }
}

#[test]
fn the_same_program_twice_is_the_same_to_the_bit() {
    for seed in seeds().take(30) {
        let setup = program::random(seed);
        assert!(run(&setup, false) == run(&setup, false), "seed {seed:#x}");
    }
}

#[test]
fn recording_changes_no_time() {
    for seed in seeds().take(30) {
        let setup = program::random(seed);
        let machine = setup.machine.clone();
        let mut engine = Engine::new(machine, setup.cores, setup.seed).expect("a sound machine");
        engine.record(true);
        let mut plain = Engine::new(setup.machine.clone(), setup.cores, setup.seed).expect("sound");
        for step in setup.programs.iter().flatten().filter(|s| matches!(s, Step::Access { .. })) {
            assert_eq!(make(&mut engine, *step), make(&mut plain, *step), "seed {seed:#x}");
            assert_eq!(engine.now(), plain.now(), "seed {seed:#x}, {step:?}");
        }
    }
}
