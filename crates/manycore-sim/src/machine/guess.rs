//! The values that a model starts from. They are guesses until the model gives them a source.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Arbitration, Machine, Topology};

/// A parameter's name and the source of its value.
type Sources<'a> = &'a [(&'static str, &'static str)];

pub(super) fn guessed(name: &str) -> Machine {
    Machine {
        name: name.to_string(),
        about: "guessed values".to_string(),
        sockets: 1,
        cores_per_socket: 4,
        cores_per_complex: 0,
        threads_per_core: 1,
        thread_share: 100,
        mhz: 2400,
        topology: Topology::Full,
        same_complex: 124,
        same_socket: 124,
        hops: [266, 408, 550],
        hit: 2,
        rmw: 20,
        llsc: false,
        memory: 250,
        memory_hop: 0,
        memory_occupancy: 0,
        memory_bandwidth: 0,
        l1_kib: 0,
        l2_kib: 0,
        l3_kib: 0,
        l2_hit: 14,
        l3_hit: 50,
        read_occupancy: 40,
        linger: 62,
        jitter: 0,
        arbitration: Arbitration::Rounds,
        store_buffer: 0,
        parallel_misses: 1,
        line_shift: 6,
        quantum: 0,
        drift: 2000,
        slice: 7_200_000,
        spawn: 0,
        context_switch: 3000,
        syscall: 500,
        wake: 3000,
        malloc: 60,
        pause: 40,
        clock_read: 20,
        serialize: 62,
        clock_skew: 0,
        instructions_per_10_cycles: 20,
        window: 0,
        load: 4,
        mispredict: 15,
        division: 0,
        square_root: 0,
        vector: 0,
        sources: BTreeMap::new(),
    }
}

pub(super) fn with(mut machine: Machine, about: &str, sources: Sources<'_>) -> Machine {
    machine.about = about.to_string();
    machine.sources = sources.iter().map(|(name, why)| (*name, Cow::Borrowed(*why))).collect();
    machine
}
