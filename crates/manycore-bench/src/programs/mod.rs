//! Programs of a Unix system, in user space (K42, section 1, figures 1 to 3, and appendix A). The
//! loads make the requests that SDET, PostMark and a parallel `make` send to files, to their pages
//! and to the list of processes.
//!
//! Owns: the trait that every system implements, the loads, and the tables of implementations.
//!
//! As in the paper, each thread runs an instance of its own in a directory of its own. Nothing
//! reaches a disk. The instances share the files of the programs or the sources. A file is a
//! `FileCache` in every implementation. The implementations differ in how they find files and
//! processes, and in how they give out pages. They use one lock for each, or this library's
//! collections.
//!
//! A program's computing is replaced by spinning; the duration is chosen here (`COMMAND`,
//! `COMPILER`).

mod systems;

use std::{marker::PhantomData, thread};

use manycore_vm::FileCache;

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks,
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// A directory and a file in it.
type Name = (u32, u32);

/// The directory that all share; a thread's own is its number and one.
const SHARED: u32 = 0;

/// Ticks that a command of SDET computes.
const COMMAND: u64 = 2_000;
/// Ticks that a compiler computes.
const COMPILER: u64 = 20_000;

/// Commands of SDET, and sources of a make.
const PROGRAMS: u32 = 8;
/// Headers that a source includes, of all.
const INCLUDED: u32 = 4;
const HEADERS: u32 = 16;
/// Files of an instance of PostMark.
const FILES: u32 = 200;
/// Bytes of a shared file, and the most that are added to one at once.
const BYTES: usize = 4096;

/// What programs use of a system.
trait System: Send + Sync + Sized + 'static {
    /// A process in the system's list, until it is dropped.
    type Process<'s>;

    fn new() -> Self;

    /// Lists a process.
    fn start(&self, program: u32) -> Self::Process<'_>;

    /// Makes an empty file; false if there is one of that name.
    fn create(&self, name: Name) -> bool;

    /// What `f` makes of the file of that name.
    fn with<R>(&self, name: Name, f: impl FnOnce(&FileCache) -> R) -> Option<R>;

    /// Removes a file; false if there is none of that name.
    fn remove(&self, name: Name) -> bool;

    /// Processes in the list.
    fn processes(&self) -> usize;
}

/// Adds bytes at a file's end.
fn append<S: System>(system: &S, name: Name, bytes: &[u8]) {
    let added = system.with(name, |file| {
        let end = file.length();
        file.extend(end + bytes.len() as u64);
        file.write(end, bytes).expect("there are pages enough");
    });
    added.expect("a file of the own directory");
}

/// Reads all of a file; the sum of its bytes.
fn read<S: System>(system: &S, name: Name, into: &mut Vec<u8>) -> u64 {
    let is_read = system.with(name, |file| {
        into.resize(file.length() as usize, 0);
        file.read(0, into).expect("all of it is there");
    });
    is_read.expect("a file that stays");
    into.iter().map(|&byte| u64::from(byte)).sum()
}

/// What an instance does again and again.
trait Load: Send + Sync + 'static {
    /// In the shared directory, beforehand.
    fn share<S: System>(system: &S);
    /// In the instance's own directory, beforehand.
    fn new<S: System>(system: &S, directory: u32) -> Self;
    /// One operation.
    fn run<S: System>(&mut self, system: &S);
}

fn shared_files<S: System>(system: &S, count: u32) {
    for file in 0..count {
        assert!(system.create((SHARED, file)));
        append(system, (SHARED, file), &[file as u8; BYTES]);
    }
}

/// A script of SDET: commands one after the other.
struct Sdet {
    directory: u32,
    buffer: Vec<u8>,
}

impl Load for Sdet {
    fn share<S: System>(system: &S) {
        shared_files(system, PROGRAMS);
    }

    fn new<S: System>(_: &S, directory: u32) -> Self {
        Self { directory, buffer: Vec::new() }
    }

    fn run<S: System>(&mut self, system: &S) {
        let output = (self.directory, 0);
        for program in 0..PROGRAMS {
            let process = system.start(program);
            let code = read(system, (SHARED, program), &mut self.buffer);
            assert_eq!(code, u64::from(program) * BYTES as u64, "another program");
            ticks::spin(COMMAND);
            assert!(system.create(output));
            append(system, output, &[1; 600]);
            assert_eq!(read(system, output, &mut self.buffer), 600, "another file's bytes");
            assert!(system.remove(output));
            drop(process);
        }
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % bound
    }
}

/// An instance of PostMark: a transaction is a file made or removed, and one read or added to.
struct PostMark {
    directory: u32,
    /// How many bytes each file has; none that is not there.
    files: Vec<Option<usize>>,
    random: Random,
    buffer: Vec<u8>,
}

impl PostMark {
    /// A file that is there, or one that is not.
    fn choose(&mut self, is_there: bool) -> Option<u32> {
        let start = self.random.below(FILES);
        let mut around = (start..FILES).chain(0..start);
        around.find(|&file| self.files[file as usize].is_some() == is_there)
    }

    fn create<S: System>(&mut self, system: &S, file: u32) {
        let name = (self.directory, file);
        assert!(system.create(name));
        let bytes = 500 + self.random.below(9_500) as usize;
        append(system, name, &vec![1; bytes]);
        self.files[file as usize] = Some(bytes);
    }
}

impl Load for PostMark {
    fn share<S: System>(_: &S) {}

    fn new<S: System>(system: &S, directory: u32) -> Self {
        let random = Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(directory) << 17);
        let files = vec![None; FILES as usize];
        let mut instance = Self { directory, files, random, buffer: Vec::new() };
        (0..FILES / 2).for_each(|file| instance.create(system, file));
        instance
    }

    fn run<S: System>(&mut self, system: &S) {
        let made = self.random.below(2) == 0;
        match self.choose(!made) {
            Some(file) if made => self.create(system, file),
            Some(file) => {
                assert!(system.remove((self.directory, file)));
                self.files[file as usize] = None;
            }
            None => {}
        }
        let Some(file) = self.choose(true) else { return };
        let (name, bytes) = ((self.directory, file), self.files[file as usize].unwrap_or(0));
        // A file that grew for ever would be another load.
        if self.random.below(2) == 0 || bytes > 20_000 {
            let sum = read(system, name, &mut self.buffer);
            assert_eq!(sum, bytes as u64, "another file's bytes");
        } else {
            let more = 1 + self.random.below(BYTES as u32) as usize;
            append(system, name, &vec![1; more]);
            self.files[file as usize] = Some(bytes + more);
        }
    }
}

/// A build: a compiler for each source, then a linker.
struct Make {
    directory: u32,
    buffer: Vec<u8>,
}

impl Load for Make {
    fn share<S: System>(system: &S) {
        shared_files(system, PROGRAMS + HEADERS);
    }

    fn new<S: System>(_: &S, directory: u32) -> Self {
        Self { directory, buffer: Vec::new() }
    }

    fn run<S: System>(&mut self, system: &S) {
        for source in 0..PROGRAMS {
            let process = system.start(source);
            read(system, (SHARED, source), &mut self.buffer);
            for header in 0..INCLUDED {
                let header = PROGRAMS + (source + header) % HEADERS;
                read(system, (SHARED, header), &mut self.buffer);
            }
            ticks::spin(COMPILER);
            assert!(system.create((self.directory, source)));
            append(system, (self.directory, source), &[1; BYTES / 2]);
            drop(process);
        }
        let linker = system.start(PROGRAMS);
        let all = (self.directory, PROGRAMS);
        assert!(system.create(all));
        for source in 0..PROGRAMS {
            let object = (self.directory, source);
            assert_eq!(read(system, object, &mut self.buffer), BYTES as u64 / 2);
            append(system, all, &self.buffer);
            assert!(system.remove(object));
        }
        assert!(system.remove(all));
        drop(linker);
    }
}

struct ProgramSubject<S, L> {
    system: S,
    load: PhantomData<L>,
}

impl<S: System, L: Load> ProgramSubject<S, L> {
    fn new() -> Self {
        let system = S::new();
        L::share(&system);
        Self { system, load: PhantomData }
    }
}

impl<S: System, L: Load> Subject for ProgramSubject<S, L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut load = L::new(&self.system, index as u32 + 1);
        control.drive(|| {
            load.run(&self.system);
            1
        })
    }
}

/// The table's row for an implementation.
const fn entry<S: System, L: Load>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<()> {
    Entry::new(name, kind, about, |()| Box::new(ProgramSubject::<S, L>::new()), conform::<S, L>)
}

/// Every implementation, under one load.
const fn entries<L: Load>() -> [Entry<()>; 5] {
    [
        Entry {
            threads_max: 1,
            ..entry::<systems::OneLock, L>(
                "unshared",
                Kind::Baseline,
                "one-lock, which only one thread uses",
            )
        },
        entry::<systems::OneLock, L>(
            "one-lock",
            Kind::Rival,
            "a table of files, a list of processes and free pages, each under std's Mutex",
        ),
        entry::<systems::Sharded, L>(
            "dashmap",
            Kind::Rival,
            "DashMap of files; processes and free pages as in one-lock",
        ),
        entry::<systems::OneAllocator, L>(
            "one-allocator",
            Kind::Rival,
            "the library's, but free pages under std's Mutex, as K42's file system had then",
        ),
        entry::<systems::Own, L>(
            "library",
            Kind::Ours,
            "HashMap of files, Registry of processes, FileCaches within a PageManager",
        ),
    ]
}

/// The implementations under SDET.
pub static SDET: &[Entry<()>] = &entries::<Sdet>();
/// The implementations under PostMark.
pub static POSTMARK: &[Entry<()>] = &entries::<PostMark>();
/// The implementations under parallel make.
pub static MAKE: &[Entry<()>] = &entries::<Make>();

const fn rate(unit: &'static str) -> Metric {
    Metric { name: "throughput", unit, of: |tallies| total_rate(tallies) / 1e3 }
}

/// The groups of `sdet`.
///
/// # Errors
/// If an implementation is unknown.
pub fn sdet(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups(("sdet", SDET, &[rate("scripts/ms")]), options)
}

/// The groups of `postmark`.
///
/// # Errors
/// If an implementation is unknown.
pub fn postmark(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups(("postmark", POSTMARK, &[rate("transactions/ms")]), options)
}

/// The groups of `make`.
///
/// # Errors
/// If an implementation is unknown.
pub fn make(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups(("make", MAKE, &[rate("builds/ms")]), options)
}

fn groups(
    table: (&'static str, &'static [Entry<()>], &[Metric]),
    options: &Options,
) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(table, options, &[()], |()| (String::new(), []), |_, ()| ())
}

/// Instances side by side find their own files as they left them (each load looks), no process is
/// left in the list, and names are taken once.
fn conform<S: System, L: Load>() -> Result<(), String> {
    let subject = &ProgramSubject::<S, L>::new();
    thread::scope(|scope| {
        let start = |index: u32| {
            scope.spawn(move || {
                let mut load = L::new(&subject.system, index + 1);
                (0..10).for_each(|_| load.run(&subject.system));
            })
        };
        let started: Vec<_> = (0..3).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked"))
    })?;
    let system = &subject.system;
    let name = (77, 7);
    let is_there = || system.with(name, |_| ()).is_some();
    let as_said = !is_there()
        && !system.remove(name)
        && system.create(name)
        && !system.create(name)
        && is_there()
        && system.remove(name)
        && !is_there();
    if !as_said {
        return Err("a name is not taken once".to_owned());
    }
    let process = system.start(0);
    let listed = system.processes();
    drop(process);
    match (listed, system.processes()) {
        (1, 0) => Ok(()),
        (one, none) => Err(format!("{one} and {none} processes, there were 1 and 0")),
    }
}
