//! The shipped models. Those of the papers' machines are defined here.

use super::{
    Arbitration, Machine, Topology,
    guess::{guessed, with},
    servers,
};

/// The models that [`Machine::named`] knows.
const SHIPPED: [fn() -> Machine; 8] = [
    opteron,
    xeon_8x15,
    xeon_4x10,
    power,
    servers::epyc_9654,
    servers::epyc_9965,
    servers::xeon_6972p,
    servers::graviton4,
];

const OPLOG: &str = "OpLog (MIT-CSAIL-TR-2014-019) section 3.1";

const UNCALIBRATED: &str = "left out, as when the model was calibrated with OpLog Figure 4";

pub(super) fn named(name: &str) -> Option<Machine> {
    shipped().find(|machine| machine.name == name)
}

/// The shipped models.
pub(super) fn shipped() -> impl Iterator<Item = Machine> {
    SHIPPED.iter().map(|model| model())
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
            ("store_buffer", UNCALIBRATED),
            ("l1_kib", UNCALIBRATED),
            ("l2_kib", UNCALIBRATED),
            ("l3_kib", UNCALIBRATED),
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
    use crate::{Access, Engine, MAX_CORES, Outcome};

    /// Returns the cycles for moving a line from a core that wrote it to a core that reads it.
    fn passed(name: &str, from: u32, to: u32) -> u64 {
        let machine = named(name).expect("a shipped model");
        let mut engine = Engine::new(machine.clone(), machine.cores(), 1).expect("sound");
        let pinned = engine.set_affinity(Some(from));
        assert_eq!(pinned, Outcome::Continue);
        assert_eq!(engine.access(64, 8, Access::Write, 1), Outcome::Continue);
        assert_eq!(engine.fence(), Outcome::Continue);
        assert_eq!(engine.set_affinity(Some(to)), Outcome::Continue);
        let before = engine.now();
        assert_eq!(engine.access(64, 8, Access::Read, 1), Outcome::Continue);
        engine.now() - before
    }

    #[test]
    fn every_model_grows_to_the_most_cores() {
        for machine in shipped() {
            let grown = machine.clone().grown_to(MAX_CORES);
            let name = machine.name.clone();
            assert!(grown.cores() >= MAX_CORES, "{name}");
            Engine::new(grown, MAX_CORES, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
            let error = Engine::new(machine.grown_to(2 * MAX_CORES), MAX_CORES + 1, 1).err();
            assert!(error.is_some(), "{name}: more cores than the engine has bits for");
        }
    }

    #[test]
    fn a_line_takes_longer_the_farther_it_goes() {
        // The other core is the sibling thread, or in the same complex, another complex, or another
        // socket.
        for (name, cores, [sibling, complex, socket, far]) in [
            ("epyc-9654", [192, 7, 95, 191], [0, 60, 380, 699]),
            ("epyc-9965", [384, 15, 191, 383], [0, 67, 358, 660]),
            ("xeon-6972p", [192, 31, 95, 191], [0, 179, 280, 483]),
        ] {
            let took = cores.map(|core| passed(name, 0, core));
            assert_eq!(took, [sibling, complex, socket, far], "{name}");
        }
        assert_eq!([95, 96].map(|core| passed("graviton4", 0, core)), [126, 389]);
    }

    #[test]
    fn the_largest_model_runs_on_all_its_hardware_threads() {
        let machine = named("epyc-9965").expect("a shipped model");
        let write = || -> crate::drive::Actor<'static> {
            let mut left = 4;
            Box::new(move |engine| {
                left -= 1;
                if left == 0 { engine.exit() } else { engine.access(64, 8, Access::Rmw, 1) }
            })
        };
        let mut engine = Engine::new(machine, 768, 1).expect("it has 768");
        crate::drive::run(&mut engine, (0..768).map(|_| write()).collect(), 0).expect("no lock");
        assert_eq!(engine.totals().accesses, [0, 0, 3 * 768]);
    }

    #[test]
    fn every_shipped_model_is_whole_and_found_by_its_name() {
        for machine in shipped() {
            machine.check().expect(&machine.name);
            let found = named(&machine.name).map(|found| found.about);
            assert_eq!(found.as_ref(), Some(&machine.about), "{}: another's name", machine.name);
        }
    }
}
