//! Pins the times of the models that published figures are compared with. A new feature of the
//! engine must not change a machine that does not use it.

use super::{
    program::{Done, of_machine},
    run,
};
use crate::Machine;

/// Returns a hash of all results of a run.
fn digest(done: &Done) -> u64 {
    let log = done.log.iter().flat_map(|(thread, step, time, core)| {
        [u64::from(*thread), u64::from(*step), *time, u64::from(*core)]
    });
    let counts = [done.misses, done.waited, done.shared_writes, done.remote_reads];
    log.chain(counts).fold(u64::from(done.deadlocked), |hash, value| {
        (hash.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

/// Taken before models had complexes, hardware threads and limited caches.
const TAKEN: [(&str, u64); 4] = [
    ("opteron-8x6", 0xd9ca_bcab_b390_fcda),
    ("xeon-8x15", 0x1047_8fb7_0567_ee44),
    ("xeon-4x10", 0x688e_b15b_b879_12cc),
    ("power-24", 0xa162_bedb_5ee8_4355),
];

#[test]
fn the_papers_machines_take_the_times_that_they_took() {
    for (name, taken) in TAKEN {
        let machine = Machine::named(name).expect("a shipped model");
        let runs = (1..=12).map(|seed| run(&of_machine(machine.clone(), seed), false));
        let found = runs.fold(0_u64, |sum, done| sum.wrapping_mul(31).wrapping_add(digest(&done)));
        assert_eq!(found, taken, "{name}: {found:#x}");
    }
}
