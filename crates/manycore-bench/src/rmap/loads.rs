//! Three programs that fork, around the reverse map: `aim`, `mail` and `spawn` (LDU, sections 2.6.2
//! to 2.6.5; `mail` also OpLog, section 7.1).
//!
//! Owns: what one operation of each does, and how long its parts take.
//!
//! What stands for what. A thread is a core with a user on it, so that users are in proportion to
//! cores, as in the papers; it shares nothing with others but the files' reverse maps, as the
//! papers gave each user his own mail area and a file system in memory. A process is its eight
//! mappings of shared files (`Worker::create`, `Worker::exit`); the kernel's work for each of
//! them (copying and clearing page tables) is time that passes after it. There is no anonymous
//! memory's reverse map, no scheduler, no page zeroing, and no file system: what else limits the
//! papers' programs (Exim's page faults from 105 cores on) does not limit these.
//!
//! - `spawn` (lmbench, process creation): a process is made, runs, ends.
//! - `mail` (Exim): a message makes three processes: one for the connection, which spools the body
//!   in the user's private area, and under it two that deliver: one reads the spool, one appends to
//!   the user's mailbox. Then the spool file is deleted and the connection's process ends.
//! - `aim` (AIM7, multiuser): a job is a process that writes and reads a private file, touches
//!   memory, sends messages back and forth between two ends of a pipe of its own, and computes.
//!
//! The thesis' numbers: 8 sockets of 15 cores; stock's speed grows up to 45 (lmbench), 60 (Exim)
//! and 75 cores (AIM7). OpLog's: three processes a message. Ours: eight mappings, sixteen files and
//! their skew (those of `rmap-fork`), the sizes of bodies, files and messages, and the ticks.
//!
//! **The ticks decide how much a better reverse map gains**, and the papers do not say them. So
//! they were computed, once, from stock alone, before any implementation had run under these loads,
//! and stay as they are. `K` cores saturate stock if each makes an update every `K / rate` ticks,
//! where `rate` is the most that stock can do. For `K` we take the core count at which the thesis
//! says that stock stops growing, and for the rate what `rwlock` does under `rmap-fork` on 120
//! virtual cores of `xeon-8x15`, at 2,800 ticks a microsecond: 111 forks, which are 1,776 updates,
//! in a millisecond (with 40,000 ticks between updates; 116 and 100 with 10,000 and 100,000).
//!
//! So the place where stock's curve bends is put in, and with it most of stock's distance from what
//! scales, about 120 / `K` on 120 cores. What these loads can show is the rest: whether ours
//! scales, how far stock falls behind its own peak, and how a lock-free list and ours differ. The
//! kernel's work for a mapping is taken from `spawn`, which does little else, and is the same in
//! all three. Each part takes its ticks times 0.5 to 1.5, at random, so that cores do not march in
//! step; the copying and computing inside is done once, and then the part's time is waited for.

use std::{collections::VecDeque, hint::black_box};

use super::{
    Load, ReverseMap, entries, share_word,
    worker::{MAPPINGS, Worker},
};
use crate::{
    runner::{Group, Metric, Tally, total_rate},
    workload::{Entry, Options, Shape, UnknownImpl, groups_by_reads},
};

/// Updates of one process.
const UPDATES: u64 = 2 * MAPPINGS as u64;

/// Cores from which on stock falls behind.
struct Knee {
    cores: u64,
}

impl Knee {
    /// Ticks of a core from one update to the next.
    const fn ticks(&self) -> u64 {
        self.cores * TICKS_PER_MS / STOCK_UPDATES_PER_MS
    }
}

const TICKS_PER_MS: u64 = 2_800_000;
const STOCK_UPDATES_PER_MS: u64 = 1_776;
const LMBENCH: Knee = Knee { cores: 45 };
const EXIM: Knee = Knee { cores: 60 };
const AIM7: Knee = Knee { cores: 75 };

/// Ticks of a process of `spawn`. A fifth of them it runs, a choice of ours; the rest is the
/// kernel's work for its mappings.
const PROCESS: u64 = LMBENCH.ticks() * UPDATES;
const RUN: u64 = PROCESS / 5;
const KERNEL: u64 = (PROCESS - RUN) / UPDATES;

/// Ticks of each of the four parts of a message: spooling, reading, appending, deleting.
const MAIL_PART: u64 = (EXIM.ticks() - KERNEL) * UPDATES * 3 / 4;

/// Ticks of each of the four parts of a job: file, memory, pipe, arithmetic.
const JOB_PART: u64 = (AIM7.ticks() - KERNEL) * UPDATES / 4;

/// Bytes of a message's body, and of a block of a file.
const BLOCK: usize = 512;

/// Bytes of a user's mailbox or file, and of the memory that a job touches.
const AREA: usize = 64 * 1024;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Times that two ends of a pipe answer each other in one job.
const ROUNDS: usize = 8;

/// Words of a pipe's message.
const WORDS: usize = 8;

/// lmbench.
struct Spawn;

impl Load for Spawn {
    const PROCESSES: usize = 1;
    const MAKES: usize = 1;

    fn new() -> Self {
        Self
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let process = worker.create(0, KERNEL);
        worker.work(RUN, || ());
        worker.exit(process, KERNEL);
    }
}

/// A file that one user alone has: written at its end, from the start again when it is full.
struct File {
    bytes: Box<[u8]>,
    end: usize,
}

impl File {
    fn new() -> Self {
        Self { bytes: vec![0; AREA].into(), end: 0 }
    }

    fn append(&mut self, block: &[u8; BLOCK]) {
        self.bytes[self.end..self.end + BLOCK].copy_from_slice(block);
        self.end = (self.end + BLOCK) % AREA;
    }

    fn last(&self) -> [u8; BLOCK] {
        let end = if self.end == 0 { AREA } else { self.end };
        std::array::from_fn(|at| self.bytes[end - BLOCK + at])
    }
}

/// Exim.
struct Mail {
    spool: Option<Box<[u8; BLOCK]>>,
    mailbox: File,
    received: u64,
}

impl Load for Mail {
    const PROCESSES: usize = 2;
    const MAKES: usize = 3;

    fn new() -> Self {
        Self { spool: None, mailbox: File::new(), received: 0 }
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let connection = worker.create(0, KERNEL);
        self.received += 1;
        let body = [self.received as u8; BLOCK];
        worker.work(MAIL_PART, || self.spool = Some(Box::new(black_box(body))));

        let reader = worker.create(1, KERNEL);
        let read = worker.work(MAIL_PART, || self.spool.as_deref().copied().unwrap_or([0; BLOCK]));
        worker.exit(reader, KERNEL);

        let writer = worker.create(1, KERNEL);
        worker.work(MAIL_PART, || self.mailbox.append(&read));
        worker.exit(writer, KERNEL);

        worker.work(MAIL_PART, || self.spool = None);
        worker.exit(connection, KERNEL);
    }
}

/// AIM7.
struct Aim {
    file: File,
    memory: Box<[u8]>,
    /// What each end of the pipe has been sent.
    pipe: [VecDeque<[u64; WORDS]>; 2],
    jobs: u64,
    sum: u64,
}

impl Aim {
    fn write_and_read(&mut self) {
        self.file.append(&[self.jobs as u8; BLOCK]);
        self.sum += self.file.last().iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }

    fn touch(&mut self) {
        for page in self.memory.chunks_mut(PAGE) {
            page[0] = page[0].wrapping_add(1);
        }
    }

    /// One end sends a number, the other sends it back with one more.
    fn ping_pong(&mut self) {
        let [here, there] = &mut self.pipe;
        let mut number = 0;
        for _ in 0..ROUNDS {
            there.push_back([number; WORDS]);
            let ping = there.pop_front().map_or(0, |message| message[WORDS - 1]);
            here.push_back([ping + 1; WORDS]);
            number = here.pop_front().map_or(0, |message| message[0]);
        }
        self.sum += number;
    }

    fn compute(&mut self) {
        let root = (1..=64).map(|n| f64::from(black_box(n)).sqrt()).sum::<f64>();
        self.sum += root as u64;
    }
}

impl Load for Aim {
    const PROCESSES: usize = 1;
    const MAKES: usize = 1;

    fn new() -> Self {
        let pipe = [VecDeque::with_capacity(ROUNDS), VecDeque::with_capacity(ROUNDS)];
        Self { file: File::new(), memory: vec![0; AREA].into(), pipe, jobs: 0, sum: 0 }
    }

    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let process = worker.create(0, KERNEL);
        self.jobs += 1;
        worker.work(JOB_PART, || self.write_and_read());
        worker.work(JOB_PART, || self.touch());
        worker.work(JOB_PART, || self.ping_pong());
        worker.work(JOB_PART, || self.compute());
        worker.exit(process, KERNEL);
        black_box(self.sum);
    }
}

/// The implementations under `aim`.
pub static AIM: &[Entry<Shape>] = &entries::<Aim>();

/// The implementations under `mail`.
pub static MAIL: &[Entry<Shape>] = &entries::<Mail>();

/// The implementations under `spawn`.
pub static SPAWN: &[Entry<Shape>] = &entries::<Spawn>();

const fn throughput(unit: &'static str) -> Metric {
    Metric { name: "throughput", unit, of: |tallies| total_rate(tallies) / 1e3 }
}

/// What the thesis plots for lmbench, with its 1000 processes.
const TIME: Metric = Metric { name: "time", unit: "us/1000 processes", of: micros_per_1000 };

fn micros_per_1000(tallies: &[Tally]) -> f64 {
    1e9 / total_rate(tallies)
}

/// The groups of `aim`: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn aim(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("aim", AIM, throughput("jobs/ms"), options, share_word)
}

/// The groups of `mail`.
///
/// # Errors
/// If an implementation is unknown.
pub fn mail(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("mail", MAIL, throughput("messages/ms"), options, share_word)
}

/// The groups of `spawn`, with the time too.
///
/// # Errors
/// If an implementation is unknown.
pub fn spawn(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let metric = throughput("processes/ms");
    let mut groups = groups_by_reads("spawn", SPAWN, metric, options, share_word)?;
    groups.iter_mut().for_each(|group| group.metrics.push(TIME));
    Ok(groups)
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

    /// Runs a load by itself; the load, and ticks for each operation.
    fn run<L: Load>() -> (L, u64) {
        let files: Vec<Locked<StdMutex>> = (0..16).map(|_| ReverseMap::new()).collect();
        let shape = Shape { threads: 1, read_every: ReadEvery::Never, spin: 0 };
        let mut worker = Worker::new(&files, shape, 0, L::PROCESSES);
        let mut load = L::new();
        let start = now();
        (0..OPERATIONS).for_each(|_| load.run(&mut worker));
        let ticks = now().wrapping_sub(start) / OPERATIONS;
        (load, ticks)
    }

    #[test]
    fn operation_takes_the_ticks_that_its_knee_says() {
        // A busy machine may take longer. So many draws from 0.5 to 1.5 are 1 within a tenth.
        let at_least = |ticks: u64, knee: &Knee, processes: u64| {
            let said = knee.ticks() * UPDATES * processes;
            assert!(ticks > said * 9 / 10, "{ticks} ticks, {said} were to be");
        };
        at_least(run::<Spawn>().1, &LMBENCH, 1);
        at_least(run::<Mail>().1, &EXIM, 3);
        at_least(run::<Aim>().1, &AIM7, 1);
    }

    #[test]
    fn message_is_in_the_mailbox_and_not_in_the_spool() {
        let mail = run::<Mail>().0;
        assert_eq!(mail.received, OPERATIONS);
        assert!(mail.spool.is_none());
        assert_eq!(mail.mailbox.last(), [OPERATIONS as u8; BLOCK]);
        assert_eq!(mail.mailbox.end, (OPERATIONS as usize * BLOCK) % AREA);
    }

    #[test]
    fn job_does_each_kind_of_work() {
        let aim = run::<Aim>().0;
        assert!(aim.memory.iter().step_by(PAGE).all(|&first| first == OPERATIONS as u8));
        let written: u64 = (1..=OPERATIONS).map(|job| job as u8 as u64 * BLOCK as u64).sum();
        let root = (1..=64).map(|n| f64::from(n).sqrt()).sum::<f64>() as u64;
        assert_eq!(aim.sum, written + OPERATIONS * (ROUNDS as u64 + root));
        assert!(aim.pipe.iter().all(VecDeque::is_empty));
    }

    #[test]
    fn time_is_of_a_thousand_processes_by_all_threads() {
        let one = Tally { ops: 500, elapsed: Duration::from_millis(1), ticks: 0 };
        assert!((micros_per_1000(&[one, one]) - 1000.0).abs() < 1e-6);
    }
}
