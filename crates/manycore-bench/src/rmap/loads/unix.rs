//! The requests of the loads to a Unix system: processes, files in memory, a pipe.
//!
//! Owns: the trait [`Unix`]; [`Calls`], the system on virtual cores, where there are no processes;
//! and the times of real ones that it charges. Real processes are in `processes`.
//!
//! In both systems a process runs while its parent waits for it. The order of the work, and the
//! core that does it, are therefore the same.

use std::array;

use crate::ticks::{now, spin};

/// Bytes of a message's body, and of a block of a file.
pub(crate) const BLOCK: usize = 512;

/// Bytes of what is sent through a pipe.
pub(crate) const LETTER: usize = 64;

/// A file of the user's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A message that is not delivered yet.
    Spool,
    /// Messages that are.
    Mailbox,
    /// What a job writes.
    Scratch,
}

/// How many files a user can have.
pub(super) const NAMES: usize = 3;

/// Another program, which a process becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// One that ends at once.
    Nothing,
    /// A shell that starts one that ends at once.
    Shell,
}

/// One user of a system.
///
/// # Panics
/// All methods do if the system refuses what they ask for: a load's result would be wrong.
pub(crate) trait Unix: Sized + 'static {
    /// Ticks that pass after each mapping that a process adds or removes: the kernel's work for
    /// its pages, where the process itself does not make the kernel do it.
    const MAPPING: u64;

    /// User number `user`, without files.
    fn new(user: usize) -> Self;

    /// Runs `run` in a process, until it ends.
    fn process<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T;

    /// Runs `run` in a process, which then becomes another program; until that ends.
    fn execute<T>(&mut self, program: Program, run: impl FnOnce(&mut Self) -> T) -> T;

    /// Makes a file of this block alone.
    fn write(&mut self, name: Name, block: &[u8; BLOCK]);

    /// Adds a block at a file's end.
    fn append(&mut self, name: Name, block: &[u8; BLOCK]);

    /// A file's last block.
    fn read_last(&mut self, name: Name) -> [u8; BLOCK];

    /// Removes a file.
    fn remove(&mut self, name: Name);

    /// Sends something through the user's pipe, and takes it out.
    fn through_pipe(&mut self, letter: &[u8; LETTER]) -> [u8; LETTER];
}

/// Times of the real things, in nanoseconds, on one core of an AMD EPYC (Zen 4) in a virtual
/// machine, Linux 6.18: `manycore-bench bench syscalls` measures all but the first, which is that
/// of a small program in C (`manycore-bench bench spawn` tells, after its rows, that of the command
/// itself).
mod nanos {
    /// A process that is copied (`fork`), ends, and is waited for.
    pub(super) const FORK: u64 = 120_000;
    /// One that shares its parent's memory, as [`Processes`](super::super::processes) makes them.
    /// The difference is the copying and clearing of page tables.
    pub(super) const SHARING: u64 = 23_000;
    /// What a process takes longer that becomes another program, and what a shell adds.
    pub(super) const EXECUTE: u64 = 490_000;
    pub(super) const SHELL: u64 = 110_000;
    /// One of: write, add to, read, remove a file in memory.
    pub(super) const FILE: u64 = 4_500;
    /// There and back through a pipe.
    pub(super) const PIPE: u64 = 700;
}

/// Ticks in so many nanoseconds, of the thesis' machine (2.8 GHz).
const fn ticks(nanos: u64) -> u64 {
    nanos * 28 / 10
}

/// Mappings that a process adds and removes, as the loads' `Worker` does.
const UPDATES: u64 = 2 * super::MAPPINGS as u64;

/// A user whose processes are calls and whose files are in his own memory. Each takes as long as
/// the real one, times 0.5 to 1.5 at random, so that cores do not march in step.
pub(super) struct Calls {
    files: [Option<Vec<u8>>; NAMES],
    random: u32,
}

impl Calls {
    /// Does `work`, and goes on until all of it has taken about so many nanoseconds.
    fn charge<T>(&mut self, nanos: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (start, mean) = (now(), ticks(nanos));
        let about = mean / 2 + ((mean * u64::from(self.random >> 16)) >> 16);
        let result = work(self);
        spin(about.saturating_sub(now().wrapping_sub(start)));
        result
    }

    fn file(&mut self, name: Name) -> &mut Vec<u8> {
        self.files[name as usize].as_mut().unwrap_or_else(|| panic!("there is no {name:?}"))
    }
}

impl Unix for Calls {
    const MAPPING: u64 = ticks(nanos::FORK - nanos::SHARING) / UPDATES;

    fn new(user: usize) -> Self {
        let random = 0x9E37_79B9_u32.wrapping_mul(user as u32 + 1);
        Self { files: [const { None }; NAMES], random }
    }

    fn process<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        self.charge(nanos::SHARING / 2, |_| ());
        let result = run(self);
        self.charge(nanos::SHARING / 2, |_| ());
        result
    }

    fn execute<T>(&mut self, program: Program, run: impl FnOnce(&mut Self) -> T) -> T {
        self.process(|user| {
            let result = run(user);
            let shell = if program == Program::Shell { nanos::SHELL } else { 0 };
            user.charge(nanos::EXECUTE + shell, |_| ());
            result
        })
    }

    fn write(&mut self, name: Name, block: &[u8; BLOCK]) {
        self.charge(nanos::FILE, |user| {
            let file = user.files[name as usize].get_or_insert_default();
            file.clear();
            file.extend_from_slice(block);
        });
    }

    fn append(&mut self, name: Name, block: &[u8; BLOCK]) {
        self.charge(nanos::FILE, |user| user.file(name).extend_from_slice(block));
    }

    fn read_last(&mut self, name: Name) -> [u8; BLOCK] {
        self.charge(nanos::FILE, |user| {
            *user.file(name).last_chunk().expect("a file has a block at least")
        })
    }

    fn remove(&mut self, name: Name) {
        self.charge(nanos::FILE, |user| {
            user.file(name);
            user.files[name as usize] = None;
        });
    }

    fn through_pipe(&mut self, letter: &[u8; LETTER]) -> [u8; LETTER] {
        self.charge(nanos::PIPE, |_| array::from_fn(|at| letter[at]))
    }
}
