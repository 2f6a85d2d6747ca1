//! Random programs for random machines.

use crate::{Access, Arbitration, Machine, Topology, engine::hash::Random};

/// One call of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Work(u64),
    Access { address: usize, len: usize, kind: Access },
    Fence,
    Turn,
    Yield,
    Sleep(u64),
    Wait { address: usize, patience: Option<u64> },
    Wake { address: usize, count: u32 },
    Pin(Option<u32>),
    Spawn(Option<u32>),
    Join(u32),
    Exit,
}

/// A machine and the programs of its threads. The first program is the main thread's.
pub(super) struct Setup {
    pub(super) machine: Machine,
    pub(super) cores: u32,
    pub(super) seed: u64,
    pub(super) programs: Vec<Vec<Step>>,
}

/// The result of a run.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// The thread, the step, the time after it, and the core.
    pub(super) log: Vec<(u32, u32, u64, u32)>,
    pub(super) deadlocked: bool,
    pub(super) misses: u64,
    pub(super) waited: u64,
    pub(super) shared_writes: u64,
    pub(super) remote_reads: u64,
}

pub(super) fn random(seed: u64) -> Setup {
    let mut random = Random::new(seed);
    let machine = random_machine(&mut random);
    let cores = 1 + random.below(machine.cores() as usize) as u32;
    programs_for(machine, cores, seed, random)
}

/// Returns random programs for the whole of a machine.
pub(super) fn of_machine(machine: Machine, seed: u64) -> Setup {
    let cores = machine.cores();
    programs_for(machine, cores, seed, Random::new(seed))
}

fn programs_for(machine: Machine, cores: u32, seed: u64, mut random: Random) -> Setup {
    let threads = 1 + random.below(2 * cores as usize + 2).min(20);
    let mut programs = vec![Vec::new()];
    for thread in 1..=threads {
        let pinned = random.below(2) == 0;
        let core = pinned.then(|| thread as u32 % cores);
        programs[0].push(Step::Spawn(core));
        programs.push(random_program(&mut random, cores));
    }
    programs[0].extend((1..=threads as u32).map(Step::Join));
    programs[0].push(Step::Exit);
    Setup { machine, cores, seed, programs }
}

fn random_machine(random: &mut Random) -> Machine {
    let mut machine = Machine::guessed("random");
    machine.sockets = [1, 2, 4, 8][random.below(4)];
    machine.cores_per_socket = 1 + random.below(6) as u32;
    machine.cores_per_complex = [0, 0, 1, 2, 3][random.below(5)].min(machine.cores_per_socket);
    machine.same_complex = [30, 124][random.below(2)];
    machine.threads_per_core = [1, 1, 2, 3][random.below(4)];
    machine.thread_share = [100, 60, 33][random.below(3)];
    machine.topology = [Topology::Full, Topology::Hypercube, Topology::Ring][random.below(3)];
    let choices = [
        Arbitration::Fifo,
        Arbitration::Rounds,
        Arbitration::Turns,
        Arbitration::Nearest,
        Arbitration::Random,
    ];
    machine.arbitration = choices[random.below(5)];
    machine.linger = [0, 40, 62, 200][random.below(4)];
    machine.store_buffer = [0, 0, 1, 2, 8][random.below(5)];
    machine.parallel_misses = [1, 1, 2, 4][random.below(4)];
    machine.llsc = random.below(4) == 0;
    machine.memory_hop = [0, 90][random.below(2)];
    machine.memory_occupancy = [0, 30][random.below(2)];
    machine.jitter = [0, 0, 13][random.below(3)];
    machine.memory_bandwidth = [0, 5000, 77_777][random.below(3)];
    machine.l1_kib = [0, 0, 1][random.below(3)];
    machine.l2_kib = [0, 0, 1, 3][random.below(4)];
    machine.l3_kib = [0, 2, 20][random.below(3)];
    machine.read_occupancy = [0, 40, 400][random.below(3)];
    machine.quantum = [0, 0, 50, 300][random.below(4)];
    machine.drift = [0, 100, 2000][random.below(3)];
    machine.slice = [1000, 2500, 1_000_000][random.below(3)];
    machine
}

fn random_program(random: &mut Random, cores: u32) -> Vec<Step> {
    let lines = [2, 12, 600][random.below(3)];
    let steps = (0..20 + random.below(120)).map(|_| match random.below(40) {
        0..=5 => Step::Work([1, 30, 66, 700, 4000][random.below(5)]),
        6 => Step::Fence,
        7 => Step::Turn,
        8 => Step::Yield,
        9 => Step::Sleep([0, 100, 5000, 40_000][random.below(4)]),
        10 => {
            let patience = [Some(300), Some(9000), Some(9000), Some(50_000)][random.below(4)];
            let endless = random.below(60) == 0;
            Step::Wait { address: random.below(2), patience: patience.filter(|_| !endless) }
        }
        11 => Step::Wake { address: random.below(2), count: 1 + random.below(3) as u32 },
        12 => Step::Pin([None, Some(random.below(cores as usize) as u32)][random.below(2)]),
        kind => {
            let wide = random.below(10) == 0;
            Step::Access {
                address: (1 + random.below(lines)) * 64 + random.below(56),
                len: if wide { random.below(400) } else { 8 },
                kind: [Access::Read, Access::Write, Access::Rmw][[0, 0, 1, 2][kind % 4]],
            }
        }
    });
    let mut steps: Vec<Step> = steps.collect();
    steps.push(Step::Exit);
    steps
}
