//! Page faults of a process with many threads, in user space (K42, sections 4.1 and 4.2).
//!
//! Each thread maps its own file into its own region, touches each page and unmaps the file, again
//! and again.
//!
//! Owns: the trait that every process implements, the loop, and the tables of implementations.
//!
//! In `faults` the file is open, and its pages are in memory. A touch is a look-up of the region
//! and of the page (figure 8, the process object). In `file-open` each round opens a file and
//! closes it. Each touch then takes a page of memory from the page manager, and closing gives the
//! pages back (figure 10, the global page manager). The paper's workload for figure 10 is SDET;
//! this is the part of it that reaches the page manager. A file has 64 pages of 4 KiB.
//!
//! The implementations differ in one thing at a time. `list-lock` and `tree-lock` have the
//! library's file cache and page manager below another table of regions. `one-manager` has the
//! library's table and file cache above another page manager. All run in this process, except
//! `mmap`, which is the kernel's.

mod ours;
mod rivals;

use std::thread;

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of a file.
const PAGES: usize = 64;
/// Addresses of a thread, as an allocator's arena: regions that are neighbours would share lines of
/// the table.
const STRIDE: usize = 64 << 20;

/// A process with its memory.
trait Process: Sync + Sized + 'static {
    /// An open file.
    type File;
    /// A region.
    type Region;

    /// Whether several threads may use one.
    const SHARED: bool = true;

    /// One whose files have at most so many pages in memory.
    fn new(pages_max: usize) -> Self;

    /// Opens a file, of which no page is in memory: each begins with `number` and its own.
    fn open(&self, number: u64) -> Self::File;

    /// Maps all of a file.
    fn map(&self, at: usize, file: &Self::File) -> Self::Region;

    /// The first word of a page, if the region is mapped.
    fn touch(&self, region: &Self::Region, page: usize) -> Option<u64>;

    /// Unmaps a region.
    fn unmap(&self, region: &Self::Region);
}

/// The first word of a page.
fn word(number: u64, page: usize) -> u64 {
    number << 32 | page as u64
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
}

struct FaultSubject<P, const OPEN: bool>(P);

impl<P: Process, const OPEN: bool> FaultSubject<P, OPEN> {
    fn new(shape: Shape) -> Self {
        // Room for files that were closed and wait for the grace period of their regions.
        Self(P::new(128 * shape.threads * PAGES))
    }

    /// One round of a thread: panics if a page is another's.
    fn round(&self, index: usize, number: u64, file: &P::File) {
        let region = self.0.map((index + 1) * STRIDE, file);
        for page in 0..PAGES {
            let found = self.0.touch(&region, page);
            assert_eq!(found, Some(word(number, page)), "a page of another file");
        }
        self.0.unmap(&region);
    }
}

impl<P: Process, const OPEN: bool> Subject for FaultSubject<P, OPEN> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let number = index as u64;
        let file = self.0.open(number);
        if !OPEN {
            self.round(index, number, &file);
        }
        control.drive(|| {
            if OPEN {
                self.round(index, number, &self.0.open(number));
            } else {
                self.round(index, number, &file);
            }
            PAGES as u64
        })
    }
}

/// The table's row for an implementation.
const fn entry<P: Process, const OPEN: bool>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(FaultSubject::<P, OPEN>::new(shape)),
        conform::<P>,
    )
}

/// The implementations under `faults`.
pub static FAULTS: &[Entry<Shape>] = &[
    entry::<rivals::Unshared, false>("unshared", Kind::Baseline, "vectors, owned by one thread"),
    entry::<rivals::ListLock, false>(
        "list-lock",
        Kind::Rival,
        "a list of regions under std's Mutex, above our files: a stand-in for K42's process object \
         that is not distributed",
    ),
    entry::<rivals::TreeLock, false>(
        "tree-lock",
        Kind::Rival,
        "a BTreeMap of regions under std's RwLock, above our files",
    ),
    #[cfg(target_os = "linux")]
    entry::<rivals::Kernel, false>("mmap", Kind::Rival, "the kernel: mmap of a memory file"),
    entry::<ours::Space, false>(
        "address-space",
        Kind::Ours,
        "AddressSpace of FileCaches within a PageManager",
    ),
];

/// The implementations under `file-open`.
pub static OPEN: &[Entry<Shape>] = &[
    entry::<rivals::Unshared, true>("unshared", Kind::Baseline, "vectors, owned by one thread"),
    entry::<rivals::OneManager, true>(
        "one-manager",
        Kind::Rival,
        "free pages and attached files under std's Mutex, below our files: a stand-in for K42's \
         global page manager that is not distributed",
    ),
    #[cfg(target_os = "linux")]
    entry::<rivals::Kernel, true>("mmap", Kind::Rival, "the kernel: mmap of a memory file"),
    entry::<ours::Space, true>(
        "address-space",
        Kind::Ours,
        "AddressSpace of FileCaches within a PageManager",
    ),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "Mpages/s", of: |tallies| total_rate(tallies) / 1e6 };

/// The groups of `faults`: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_for(("faults", FAULTS), options)
}

/// The groups of `file-open`.
///
/// # Errors
/// If an implementation is unknown.
pub fn open_groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_for(("file-open", OPEN), options)
}

fn groups_for(
    (bench, entries): (&'static str, &'static [Entry<Shape>]),
    options: &Options,
) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        (bench, entries, &[METRIC]),
        options,
        &[()],
        |()| (String::new(), [("pages", PAGES.into())]),
        |threads, ()| Shape { threads },
    )
}

/// Each thread finds its own file in its own region, and nothing once that is unmapped.
fn conform<P: Process>() -> Result<(), String> {
    let threads = if P::SHARED { 3 } else { 1 };
    let subject = &FaultSubject::<P, true>::new(Shape { threads });
    thread::scope(|scope| {
        let start = |index: usize| {
            scope.spawn(move || {
                for round in 0..20 {
                    let number = (round * threads + index) as u64;
                    let file = subject.0.open(number);
                    subject.round(index, number, &file);
                    let region = subject.0.map((index + 1) * STRIDE, &file);
                    assert_eq!(subject.0.touch(&region, 3), Some(word(number, 3)));
                    subject.0.unmap(&region);
                    assert_eq!(subject.0.touch(&region, 3), None, "an unmapped page");
                }
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".into()))
    })
}
