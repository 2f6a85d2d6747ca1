//! Three programs that fork, around the reverse map: `aim`, `mail` and `spawn` (LDU, sections 2.6.2
//! to 2.6.5; `mail` also OpLog, section 7.1).
//!
//! Owns: what one operation of each does. Its requests to the system are a trait (`unix`). On a
//! machine's own cores these are real processes, files in memory and pipes, made by system calls
//! (`processes`). On virtual cores they are calls that take as long as the real ones did where they
//! were measured (`Calls`).
//!
//! A thread stands for a core with a user on it, so users are in proportion to cores, as in the
//! papers. Threads share only the files' reverse maps and, with real processes, the kernel. The
//! papers, too, gave each user a private mail area and a file system in memory. The reverse map
//! under test belongs to this program, in memory that all processes share. A process adds its eight
//! mappings of shared files when it begins, and removes them before it ends (`Worker::create`,
//! `Worker::exit`). There is no reverse map of anonymous memory, and no page is cleared.
//!
//! - `spawn` (lmbench, process creation): a process is made and ends. In `spawn-exec` it becomes
//!   another program before it ends, in `spawn-shell` a shell that starts one.
//! - `mail` (Exim): a message makes three processes. One is for the connection, and spools the body
//!   in the user's private area. Under it two processes deliver: one reads the spool, one appends
//!   to the user's mailbox. Then the spool file is deleted and the connection's process ends.
//! - `aim` (AIM7, multiuser): a job is a process that writes and reads a private file, touches
//!   memory, sends messages back and forth through a pipe of its own, and computes.
//!
//! The thesis' numbers are 8 sockets of 15 cores. Stock's speed grows up to 45 (lmbench), 60 (Exim)
//! and 75 cores (AIM7). OpLog's number is three processes a message. The other numbers were chosen
//! here: eight mappings, sixteen files and their skew (those of `rmap-fork`), the sizes of bodies,
//! files and messages, and how long a job computes.
//!
//! **The time that the parts between updates take decides how much a better reverse map gains**,
//! and the papers do not state it. Here it is the time that these programs took where they ran
//! (`unix` lists the times). These times were not chosen for their consequences. The papers'
//! programs do more: Exim reads its configuration and checks addresses, and a real AIM7 has forty
//! kinds of jobs. Stock therefore stops growing sooner here than there, and falls behind farther.

#[cfg(target_os = "linux")]
pub(crate) mod processes;
pub(crate) mod unix;

use std::hint::black_box;

use self::unix::{BLOCK, Calls, LETTER, Name, Program, Unix};
use super::{
    Load, ReverseMap, entries, share_word,
    worker::{MAPPINGS, Worker},
};
use crate::{
    runner::{Group, Metric, Tally, total_rate},
    workload::{Entry, Options, Shape, UnknownImpl, groups_by_reads},
};

/// Blocks of a file before it begins anew: 64 KB.
const BLOCKS: u64 = 128;

/// Bytes of the memory that a job touches, and of a page.
const AREA: usize = 64 * 1024;
const PAGE: usize = 4096;

/// Times that something goes through a pipe and back in one job.
const ROUNDS: u8 = 8;

/// Square roots of a job: about 30 us, a choice of ours.
const ROOTS: u32 = 8_000;

/// lmbench: a process that ends (0), becomes another program (1) or a shell (2).
struct Spawn<U, const PROGRAM: usize> {
    user: U,
}

impl<U: Unix, const PROGRAM: usize> Load for Spawn<U, PROGRAM> {
    const PROCESSES: usize = 1;
    const MAKES: usize = if PROGRAM == 0 { 1 } else { 2 };

    fn new(user: usize) -> Self {
        Self { user: U::new(user) }
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let program = match PROGRAM {
            0 => {
                return self.user.process(|_| {
                    let process = worker.create(0, U::MAPPING);
                    worker.exit(process, U::MAPPING);
                });
            }
            1 => Program::Nothing,
            _ => Program::Shell,
        };
        let replaced = self.user.execute(program, |_| {
            let forked = worker.create(0, U::MAPPING);
            worker.exit(forked, U::MAPPING);
            worker.create(0, U::MAPPING)
        });
        worker.exit(replaced, U::MAPPING);
    }
}

/// Exim.
struct Mail<U> {
    user: U,
    received: u64,
}

impl<U: Unix> Load for Mail<U> {
    const PROCESSES: usize = 2;
    const MAKES: usize = 3;

    fn new(user: usize) -> Self {
        Self { user: U::new(user), received: 0 }
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let body = [self.received as u8; BLOCK];
        let is_first = self.received.is_multiple_of(BLOCKS);
        self.user.process(|user| {
            let connection = worker.create(0, U::MAPPING);
            user.write(Name::Spool, &body);
            let read = user.process(|user| {
                let reader = worker.create(1, U::MAPPING);
                let read = user.read_last(Name::Spool);
                worker.exit(reader, U::MAPPING);
                read
            });
            user.process(|user| {
                let writer = worker.create(1, U::MAPPING);
                if is_first {
                    user.write(Name::Mailbox, &read);
                } else {
                    user.append(Name::Mailbox, &read);
                }
                worker.exit(writer, U::MAPPING);
            });
            user.remove(Name::Spool);
            worker.exit(connection, U::MAPPING);
        });
        self.received += 1;
    }
}

/// AIM7.
struct Aim<U> {
    user: U,
    memory: Box<[u8]>,
    jobs: u64,
    sum: u64,
}

impl<U: Unix> Aim<U> {
    fn write_and_read(user: &mut U, jobs: u64) -> u64 {
        let block = [jobs as u8; BLOCK];
        if jobs.is_multiple_of(BLOCKS) {
            user.write(Name::Scratch, &block);
        } else {
            user.append(Name::Scratch, &block);
        }
        user.read_last(Name::Scratch).iter().map(|&byte| u64::from(byte)).sum()
    }

    fn touch(memory: &mut [u8]) {
        for page in memory.chunks_mut(PAGE) {
            page[0] = page[0].wrapping_add(1);
        }
    }

    /// A number that goes there and comes back with one more, over and over.
    fn ping_pong(user: &mut U) -> u64 {
        let mut number = 0;
        for _ in 0..ROUNDS {
            let there = user.through_pipe(&[number; LETTER]);
            let back = user.through_pipe(&[there[LETTER - 1] + 1; LETTER]);
            number = back[0];
        }
        u64::from(number)
    }

    fn compute() -> u64 {
        (1..=ROOTS).map(|n| f64::from(black_box(n)).sqrt()).sum::<f64>() as u64
    }
}

impl<U: Unix> Load for Aim<U> {
    const PROCESSES: usize = 1;
    const MAKES: usize = 1;

    fn new(user: usize) -> Self {
        Self { user: U::new(user), memory: vec![0; AREA].into(), jobs: 0, sum: 0 }
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let Self { user, memory, jobs, sum } = self;
        *sum += user.process(|user| {
            let process = worker.create(0, U::MAPPING);
            let read = Self::write_and_read(user, *jobs);
            Self::touch(memory);
            let answered = Self::ping_pong(user);
            let computed = Self::compute();
            worker.exit(process, U::MAPPING);
            read + answered + computed
        });
        *jobs += 1;
        black_box(*sum);
    }
}

/// What a user's system is on a machine's own cores.
#[cfg(target_os = "linux")]
type Own = processes::Processes;
#[cfg(not(target_os = "linux"))]
type Own = Calls;

/// A program that forks, as a workload.
pub struct Forks {
    name: &'static str,
    unit: &'static str,
    /// Whether the time of a thousand is a figure too.
    in_thousands: bool,
    /// The implementations on the machine's own cores, and on virtual ones.
    tables: [&'static [Entry<Shape>]; 2],
}

/// AIM7.
pub static AIM: Forks = Forks {
    name: "aim",
    unit: "jobs/ms",
    in_thousands: false,
    tables: [&entries::<Aim<Own>>(), &entries::<Aim<Calls>>()],
};

/// Exim.
pub static MAIL: Forks = Forks {
    name: "mail",
    unit: "messages/ms",
    in_thousands: false,
    tables: [&entries::<Mail<Own>>(), &entries::<Mail<Calls>>()],
};

/// lmbench: a process is made and ends.
pub static SPAWN: Forks = Forks {
    name: "spawn",
    unit: "processes/ms",
    in_thousands: true,
    tables: [&entries::<Spawn<Own, 0>>(), &entries::<Spawn<Calls, 0>>()],
};

/// lmbench: a process becomes another program.
pub static EXECUTE: Forks = Forks {
    name: "spawn-exec",
    tables: [&entries::<Spawn<Own, 1>>(), &entries::<Spawn<Calls, 1>>()],
    ..SPAWN
};

/// lmbench: a process becomes a shell, which starts a program.
pub static SHELL: Forks = Forks {
    name: "spawn-shell",
    tables: [&entries::<Spawn<Own, 2>>(), &entries::<Spawn<Calls, 2>>()],
    ..SPAWN
};

/// What the thesis plots for lmbench, with its 1000 processes.
const TIME: Metric = Metric { name: "time", unit: "us/1000 processes", of: micros_per_1000 };

fn micros_per_1000(tallies: &[Tally]) -> f64 {
    1e9 / total_rate(tallies)
}

impl Forks {
    /// The implementations on the cores that there are.
    pub fn entries(&self) -> &'static [Entry<Shape>] {
        self.tables[usize::from(manycore_sim::is_simulated())]
    }

    /// One group for each thread count and reading rate.
    ///
    /// # Errors
    /// If an implementation is unknown.
    pub fn groups(&self, options: &Options) -> Result<Vec<Group>, UnknownImpl> {
        let of = |tallies: &[Tally]| total_rate(tallies) / 1e3;
        let metric = Metric { name: "throughput", unit: self.unit, of };
        let mut groups = groups_by_reads(self.name, self.entries(), metric, options, share_word)?;
        if self.in_thousands {
            groups.iter_mut().for_each(|group| group.metrics.push(TIME));
        }
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        rmap::rivals::{Locked, StdMutex},
        ticks::now,
        workload::ReadEvery,
    };

    const OPERATIONS: u64 = 30;

    /// Runs a load by itself.
    fn run<L: Load>() -> L {
        let files: Vec<Locked<StdMutex>> = (0..16).map(|_| ReverseMap::new()).collect();
        let shape = Shape { threads: 1, read_every: ReadEvery::Never, spin: 0 };
        let mut worker = Worker::new(&files, shape, 0, L::PROCESSES);
        let mut load = L::new(0);
        (0..OPERATIONS).for_each(|_| load.run(&mut worker));
        load
    }

    fn message_is_in_the_mailbox<U: Unix>() {
        let mut mail = run::<Mail<U>>();
        assert_eq!(mail.received, OPERATIONS);
        assert_eq!(mail.user.read_last(Name::Mailbox), [OPERATIONS as u8 - 1; BLOCK]);
    }

    fn job_does_each_kind_of_work<U: Unix>() {
        let mut aim = run::<Aim<U>>();
        assert!(aim.memory.iter().step_by(PAGE).all(|&first| first == OPERATIONS as u8));
        let written: u64 = (0..OPERATIONS).map(|job| job as u8 as u64 * BLOCK as u64).sum();
        let root = (1..=ROOTS).map(|n| f64::from(n).sqrt()).sum::<f64>() as u64;
        assert_eq!(aim.sum, written + OPERATIONS * (u64::from(ROUNDS) + root));
        assert_eq!(aim.user.read_last(Name::Scratch), [OPERATIONS as u8 - 1; BLOCK]);
    }

    #[test]
    fn loads_do_their_work_by_calls() {
        message_is_in_the_mailbox::<Calls>();
        job_does_each_kind_of_work::<Calls>();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn loads_do_their_work_in_processes() {
        message_is_in_the_mailbox::<processes::Processes>();
        job_does_each_kind_of_work::<processes::Processes>();
    }

    #[test]
    fn loads_leave_no_mapping_on_virtual_cores() {
        for load in [&AIM, &MAIL, &SPAWN, &EXECUTE, &SHELL] {
            for entry in load.tables[1] {
                (entry.conform)().unwrap_or_else(|error| panic!("{}, {error}", load.name));
            }
        }
    }

    #[test]
    fn calls_take_as_long_as_the_real_ones() {
        let ticks = |mut once: Box<dyn FnMut()>| {
            let start = now();
            (0..100).for_each(|_| once());
            now().wrapping_sub(start) / 100
        };
        let (mut user, mut other) = (Calls::new(0), Calls::new(1));
        let process = ticks(Box::new(move || user.process(|_| ())));
        let file = ticks(Box::new(move || other.write(Name::Spool, &[1; BLOCK])));
        // So many draws from 0.5 to 1.5 are 1 within a tenth; a busy machine may take longer.
        assert!(process > 23 * 2_800 * 9 / 10 && file > 4_500 * 28 / 10 * 9 / 10);
    }

    #[test]
    fn time_is_of_a_thousand_processes_by_all_threads() {
        let one = Tally { ops: 500, elapsed: Duration::from_millis(1), ticks: 0 };
        assert!((micros_per_1000(&[one, one]) - 1000.0).abs() < 1e-6);
    }
}
