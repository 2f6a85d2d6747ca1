//! The cost of four system calls (OpLog, figure 5), which the paper compares with one contended
//! write. Also the calls of the programs that fork (`rmap::loads`): on virtual cores those programs
//! use the times measured here.
//!
//! Owns: the calls. Each of the four is timed in batches, without the calls that undo it. The
//! figures describe the machine and its system: no row is the library's or a rival's.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    ptr,
    time::{Duration, Instant},
};

use crate::{
    coherence::ticks_per_op,
    counter::nanos_per_op,
    rmap::loads::{
        processes::Processes,
        unix::{BLOCK, LETTER, Name, Program, Unix},
    },
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally},
    ticks,
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Calls that are timed together.
const BATCH: usize = 64;

/// Bytes of a mapping: a page.
const BYTES: usize = 4096;

/// A call, and how it is undone.
trait Call: Default + Send + Sync + 'static {
    /// What a call needs.
    type From;
    /// What a call leaves.
    type To;

    fn prepare(file: &File) -> io::Result<Self::From>;
    fn call(file: &File, from: Self::From) -> io::Result<Self::To>;
}

/// Opens a file that is there.
#[derive(Default)]
struct Open;

impl Call for Open {
    type From = PathBuf;
    type To = File;

    fn prepare(_: &File) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    #[inline]
    fn call(_: &File, path: PathBuf) -> io::Result<File> {
        File::open(&path)
    }
}

/// Closes a file.
#[derive(Default)]
struct Close;

impl Call for Close {
    type From = OwnedFd;
    type To = ();

    fn prepare(file: &File) -> io::Result<OwnedFd> {
        file.as_fd().try_clone_to_owned()
    }

    #[inline]
    fn call(_: &File, file: OwnedFd) -> io::Result<()> {
        drop(file);
        Ok(())
    }
}

/// Maps a page of a file.
#[derive(Default)]
struct Map;

/// A mapping; unmapped when dropped.
struct Mapped(*mut libc::c_void);

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `Map::call` mapped this page, and nothing refers to it.
        unsafe { libc::munmap(self.0, BYTES) };
    }
}

impl Call for Map {
    type From = ();
    type To = Mapped;

    fn prepare(_: &File) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn call(file: &File, (): ()) -> io::Result<Mapped> {
        use std::os::fd::AsRawFd;
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, which replaces none.
        let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, file.as_raw_fd(), 0) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapped(page)) }
    }
}

/// Duplicates a descriptor, by `fcntl`, as std does.
#[derive(Default)]
struct Duplicate;

impl Call for Duplicate {
    type From = ();
    type To = OwnedFd;

    fn prepare(_: &File) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn call(file: &File, (): ()) -> io::Result<OwnedFd> {
        file.as_fd().try_clone_to_owned()
    }
}

/// This program's own file, which is there.
fn file() -> io::Result<File> {
    File::open(std::env::current_exe()?)
}

/// One batch: how long its calls took, and their ticks.
fn batch<C: Call>(file: &File) -> io::Result<(Duration, u64)> {
    let prepared: Vec<C::From> = (0..BATCH).map(|_| C::prepare(file)).collect::<Result<_, _>>()?;
    let mut left = Vec::with_capacity(BATCH);
    let (start, ticks) = (Instant::now(), ticks::now());
    for from in prepared {
        left.push(C::call(file, from)?);
    }
    Ok((start.elapsed(), ticks::now().wrapping_sub(ticks)))
}

impl<C: Call> Subject for Calls<C> {
    fn work(&self, _: usize, control: &Control) -> Tally {
        let file = file().expect("a program can open its own file");
        let mut measured = Tally::default();
        let driven = control.drive(|| {
            let (elapsed, ticks) = batch::<C>(&file).expect("calls that succeed alone");
            measured.elapsed += elapsed;
            measured.ticks += ticks;
            BATCH as u64
        });
        Tally { ops: driven.ops, ..measured }
    }
}

/// A call on each thread.
struct Calls<C>(C);

const fn entry<C: Call>(name: &'static str, about: &'static str) -> Entry<()> {
    let build = |()| -> Box<dyn Subject> { Box::new(Calls(C::default())) };
    let conform = || {
        let tried = file().and_then(|file| batch::<C>(&file));
        tried.map(|_| ()).map_err(|error| error.to_string())
    };
    Entry::new(name, Kind::Floor, about, build, conform)
}

/// What a program asks, on each thread.
struct Asked(fn(&mut Processes));

impl Subject for Asked {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut user = Processes::new(index);
        control.drive(|| {
            (self.0)(&mut user);
            1
        })
    }
}

macro_rules! asked {
    ($name:expr, $about:expr, $once:expr) => {
        Entry::new(
            $name,
            Kind::Floor,
            $about,
            |()| Box::new(Asked($once)),
            || {
                let once: fn(&mut Processes) = $once;
                once(&mut Processes::new(0));
                Ok(())
            },
        )
    };
}

/// A file written, read, added to and removed.
fn file_cycle(user: &mut Processes) {
    user.write(Name::Scratch, &[1; BLOCK]);
    assert_eq!(user.read_last(Name::Scratch), [1; BLOCK]);
    user.append(Name::Scratch, &[2; BLOCK]);
    user.remove(Name::Scratch);
}

/// Every call.
pub static ENTRIES: &[Entry<()>] = &[
    Entry {
        kind: Kind::Baseline,
        threads_max: 1,
        ..entry::<Duplicate>("unshared", "dup on one thread")
    },
    entry::<Open>("open", "open of a file that is there; the paper: 2618 cycles"),
    entry::<Close>("close", "close; the paper: 770 cycles"),
    entry::<Map>("mmap", "mmap of a page of a file; the paper: 849 cycles"),
    entry::<Duplicate>("dup", "dup, by fcntl; the paper: 387 cycles"),
    asked!("process", "a process that shares memory ends, and is waited for", |user| {
        user.process(|_| ());
    }),
    asked!("exec", "... becomes another program before", |user| {
        user.execute(Program::Nothing, |_| ());
    }),
    asked!("shell", "... becomes a shell, which starts a program", |user| {
        user.execute(Program::Shell, |_| ());
    }),
    asked!("file", "a file in memory is written, read, added to and removed: 12 calls", file_cycle),
    asked!("pipe", "64 bytes there and back through a pipe", |user| {
        assert_eq!(user.through_pipe(&[7; LETTER]), [7; LETTER]);
    }),
];

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
    Metric { name: "cycles", unit: "ticks/op", of: ticks_per_op },
];

/// The groups for some options: one for each number of threads.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let describe = |()| (" calling".to_owned(), []);
    groups_of(("syscalls", ENTRIES, &METRICS), options, &[()], describe, |_, ()| ())
}
