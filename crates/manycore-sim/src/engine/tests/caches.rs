//! The cost of a pointer chase by working set, and the bandwidth of memory.

use crate::{Access, Engine, Machine, Outcome, drive};

fn machine() -> Machine {
    let mut machine = Machine::guessed("limited");
    for (name, value) in [
        ("l1_kib", "32"),
        ("l2_kib", "1024"),
        ("l3_kib", "8192"),
        ("l2_hit", "14"),
        ("l3_hit", "50"),
    ] {
        machine.set(name, value, "test").unwrap();
    }
    machine
}

/// Returns the cycles a load of a chase that goes around `kib` KiB again and again.
fn chase(machine: &Machine, kib: usize) -> u64 {
    let mut engine = Engine::new(machine.clone(), 1, 1).unwrap();
    let lines = kib * 16;
    let mut before = 0;
    for at in 0..3 * lines {
        if at == 2 * lines {
            before = engine.now();
        }
        let outcome = engine.access(0x10_0000 + at % lines * 64, 8, Access::Read, 1);
        assert_eq!(outcome, Outcome::Continue);
    }
    (engine.now() - before) / lines as u64
}

#[test]
fn a_chase_costs_what_the_cache_that_holds_it_costs() {
    let machine = machine();
    let sizes = [16, 32, 64, 1024, 2048, 8192, 16_384];
    let memory = u64::from(machine.memory + machine.hit);
    assert_eq!(sizes.map(|kib| chase(&machine, kib)), [2, 2, 14, 14, 52, 52, memory]);
    let boundless = Machine::guessed("boundless");
    assert_eq!(sizes.map(|kib| chase(&boundless, kib)), [2; 7]);
}

#[test]
fn a_line_that_a_core_gave_up_comes_from_its_complex() {
    let mut machine = machine();
    machine.cores_per_complex = 1;
    machine.l2_kib = 1;
    machine.l1_kib = 0;
    let mut engine = Engine::new(machine.clone(), 2, 1).unwrap();
    // The cache has room for sixteen lines.
    for line in 0..40 {
        assert_eq!(engine.access(0x1000 + line * 64, 8, Access::Write, 1), Outcome::Continue);
    }
    assert_eq!(engine.set_affinity(Some(1)), Outcome::Continue);
    let mut cost = |line: usize| {
        let before = engine.now();
        assert_eq!(engine.access(0x1000 + line * 64, 8, Access::Read, 1), Outcome::Continue);
        engine.now() - before
    };
    let far = u64::from(machine.same_socket + machine.hit);
    assert_eq!(cost(0), far, "given up, and taken from the other complex");
    assert_eq!(cost(39), far, "in the other core's cache");
    assert_eq!(cost(0), 2, "it is here now");
}

#[test]
fn memory_delivers_no_more_than_its_bandwidth() {
    let mut machine = Machine::guessed("narrow");
    machine.memory_bandwidth = 4800; // 64 bytes in 32 cycles at 2.4 GHz
    machine.cores_per_socket = 16;
    let mut engine = Engine::new(machine, 16, 1).unwrap();
    let stream = |me: usize| -> drive::Actor<'static> {
        let mut line = 0;
        Box::new(move |engine| {
            line += 1;
            if line > 1000 {
                return engine.exit();
            }
            engine.access((me << 24) + line * 64, 8, Access::Read, 1)
        })
    };
    let before = engine.now();
    drive::run(&mut engine, (1..17).map(stream).collect(), 0).unwrap();
    let each = (engine.now() - before) / 16_000;
    assert!((31..=33).contains(&each), "a line in {each} cycles; without a limit in 15");
}
