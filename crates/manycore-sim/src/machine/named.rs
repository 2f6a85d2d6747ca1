//! The shipped models.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Arbitration, Machine, Topology};

/// The models that [`Machine::named`] knows.
const SHIPPED: [fn() -> Machine; 4] = [opteron, xeon_8x15, xeon_4x10, power];

const OPLOG: &str = "OpLog (MIT-CSAIL-TR-2014-019) section 3.1";

/// A parameter's name and the source of its value.
type Sources<'a> = &'a [(&'static str, &'static str)];

pub(super) fn named(name: &str) -> Option<Machine> {
    shipped().find(|machine| machine.name == name)
}

/// The shipped models.
pub(super) fn shipped() -> impl Iterator<Item = Machine> {
    SHIPPED.iter().map(|model| model())
}

pub(super) fn guessed(name: &str) -> Machine {
    Machine {
        name: name.to_string(),
        about: "guessed values".to_string(),
        sockets: 1,
        cores_per_socket: 4,
        mhz: 2400,
        topology: Topology::Full,
        same_socket: 124,
        hops: [266, 408, 550],
        hit: 2,
        rmw: 20,
        llsc: false,
        memory: 250,
        memory_hop: 0,
        memory_occupancy: 0,
        read_occupancy: 40,
        linger: 62,
        arbitration: Arbitration::Rounds,
        store_buffer: 0,
        parallel_misses: 1,
        line_shift: 6,
        quantum: 0,
        drift: 2000,
        slice: 7_200_000,
        context_switch: 3000,
        syscall: 500,
        wake: 3000,
        malloc: 60,
        pause: 40,
        clock_read: 20,
        serialize: 62,
        clock_skew: 0,
        instructions_per_10_cycles: 20,
        sources: BTreeMap::new(),
    }
}

fn with(mut machine: Machine, about: &str, sources: Sources<'_>) -> Machine {
    machine.about = about.to_string();
    machine.sources = sources.iter().map(|(name, why)| (*name, Cow::Borrowed(*why))).collect();
    machine
}

/// Calibrated with Figure 4 of OpLog.
fn opteron() -> Machine {
    let shape = Machine {
        sockets: 8,
        cores_per_socket: 6,
        topology: Topology::Hypercube,
        arbitration: Arbitration::Turns,
        ..guessed("opteron-8x6")
    };
    with(
        shape,
        "eight 6-core AMD Opteron 8431 at 2.4 GHz, the machine of the OpLog paper",
        &[
            ("sockets", "OpLog section 3"),
            ("cores_per_socket", "OpLog section 3"),
            ("mhz", "data sheet of the Opteron 8431"),
            ("topology", "guess: three links a chip and three hops at most make a cube"),
            ("same_socket", OPLOG),
            ("hop1", "guess: on the line from 124 to 550"),
            ("hop2", "guess: on the line from 124 to 550"),
            ("hop3", OPLOG),
            (
                "serialize",
                "calibrated: OpLog Figure 4, two transfers less 182 for a store and its loop",
            ),
            (
                "arbitration",
                "calibrated: OpLog Figure 4, the cost at 48 cores and a straight line to it",
            ),
            ("linger", "guess: half a transfer on one chip, seen on two cores of another machine"),
        ],
    )
}

/// The machine of the LDU papers has no published transfer times.
fn xeon_8x15() -> Machine {
    let shape = Machine {
        sockets: 8,
        cores_per_socket: 15,
        mhz: 2800,
        topology: Topology::Hypercube,
        same_socket: 110,
        hops: [300, 400, 400],
        memory: 350,
        memory_hop: 120,
        arbitration: Arbitration::Turns,
        ..guessed("xeon-8x15")
    };
    with(
        shape,
        "eight 15-core Intel Xeons, 120 cores as in the LDU papers",
        &[("sockets", "LDU papers: 120 cores"), ("cores_per_socket", "LDU papers: 120 cores")],
    )
}

/// The machine of the ParSec paper.
fn xeon_4x10() -> Machine {
    let shape = Machine {
        sockets: 4,
        cores_per_socket: 10,
        mhz: 2000,
        same_socket: 110,
        hops: [300, 400, 400],
        memory: 350,
        memory_hop: 120,
        arbitration: Arbitration::Turns,
        ..guessed("xeon-4x10")
    };
    let paper = "ParSec section 5";
    with(
        shape,
        "four 10-core Intel Xeon E7-4850 at 2.0 GHz, the machine of the ParSec paper",
        &[("sockets", paper), ("cores_per_socket", paper), ("mhz", paper)],
    )
}

/// One bus: every processor is as far from every other.
fn power() -> Machine {
    let shape = Machine {
        sockets: 24,
        cores_per_socket: 1,
        mhz: 600,
        hops: [250, 250, 250],
        llsc: true,
        arbitration: Arbitration::Fifo,
        line_shift: 7,
        read_occupancy: 100,
        linger: 0,
        ..guessed("power-24")
    };
    let paper = "K42 section 5";
    with(
        shape,
        "24 PowerPC RS64-IV at 600 MHz on a bus, the machine of the K42 paper",
        &[
            ("sockets", paper),
            ("cores_per_socket", paper),
            ("mhz", paper),
            ("topology", "K42 section 5: bus-based"),
            ("llsc", "PowerPC architecture"),
            ("line_shift", "guess: 128-byte lines"),
            (
                "hop1",
                "guess; simulated, K42 Figure 4 is x19 locked, x7.5 atomic, x6.2 unpadded \
                 (published: 19, 12, 6)",
            ),
            ("hop2", "not used: one bus"),
            ("hop3", "not used: one bus"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::{named, shipped};

    #[test]
    fn every_shipped_model_is_whole_and_found_by_its_name() {
        for machine in shipped() {
            machine.check().expect(&machine.name);
            let found = named(&machine.name).map(|found| found.about);
            assert_eq!(found.as_ref(), Some(&machine.about), "{}: another's name", machine.name);
        }
    }
}
