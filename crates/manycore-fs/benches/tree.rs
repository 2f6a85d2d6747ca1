//! What a fork, a file and an operation cost, beside a tree of maps under one lock.
//!
//! `cargo bench -p manycore-fs --bench tree` prints the table. A number behind it is how many
//! rounds each row runs (200,000 by default).

use manycore_fs::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts the bytes that are allocated.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static COUNTS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::Relaxed) {
            BYTES.fetch_add(layout.size().div_ceil(16) * 16 + 16, Ordering::Relaxed);
        }
        // SAFETY: the layout is what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTS.load(Ordering::Relaxed) {
            BYTES.fetch_sub(layout.size().div_ceil(16) * 16 + 16, Ordering::Relaxed);
        }
        // SAFETY: made by `alloc` with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FILE: New<'_> = New { content: Content::File, mode: 0o644, uid: 0, gid: 0 };

/// The operations that are measured.
trait Tree: Sync {
    fn make(&self, directory: u64, name: &str) -> u64;
    fn make_directory(&self, name: &str) -> u64;
    fn remove(&self, directory: u64, name: &str);
    fn look_up(&self, directory: u64, name: &str) -> u64;
    fn read(&self, file: u64, into: &mut [u8]) -> usize;
    fn write(&self, file: u64, bytes: &[u8]);
}

impl Tree for Branch {
    fn make(&self, directory: u64, name: &str) -> u64 {
        self.create(Ino(directory), OsStr::new(name), &FILE).unwrap().ino.0
    }

    fn make_directory(&self, name: &str) -> u64 {
        self.create_directories(name).unwrap().0
    }

    fn remove(&self, directory: u64, name: &str) {
        self.unlink(Ino(directory), OsStr::new(name)).unwrap();
    }

    fn look_up(&self, directory: u64, name: &str) -> u64 {
        self.lookup(Ino(directory), OsStr::new(name)).unwrap().size
    }

    fn read(&self, file: u64, into: &mut [u8]) -> usize {
        Branch::read(self, Ino(file), 0, into).unwrap()
    }

    fn write(&self, file: u64, bytes: &[u8]) {
        Branch::write(self, Ino(file), 0, bytes).unwrap();
    }
}

/// A tree of maps under one lock.
#[derive(Default)]
struct Locked(RwLock<Maps>);

#[derive(Default)]
struct Maps {
    next: u64,
    names: BTreeMap<(u64, OsString), u64>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

impl Tree for Locked {
    fn make(&self, directory: u64, name: &str) -> u64 {
        let mut maps = self.0.write().unwrap();
        maps.next += 1;
        let number = maps.next;
        maps.bytes.insert(number, Vec::new());
        maps.names.insert((directory, name.into()), number);
        number
    }

    fn make_directory(&self, name: &str) -> u64 {
        self.make(0, name)
    }

    fn remove(&self, directory: u64, name: &str) {
        let mut maps = self.0.write().unwrap();
        let number = maps.names.remove(&(directory, name.into())).unwrap();
        maps.bytes.remove(&number);
    }

    fn look_up(&self, directory: u64, name: &str) -> u64 {
        let maps = self.0.read().unwrap();
        maps.bytes[&maps.names[&(directory, name.into())]].len() as u64
    }

    fn read(&self, file: u64, into: &mut [u8]) -> usize {
        let maps = self.0.read().unwrap();
        let bytes = &maps.bytes[&file];
        into[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    fn write(&self, file: u64, bytes: &[u8]) {
        self.0.write().unwrap().bytes.insert(file, bytes.to_vec());
    }
}

/// The processor time of the calling thread, as Linux counts it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Runs `work(thread, round)` on each thread. Returns the time of a round and the processor time of
/// a round, each the least of five.
fn time(threads: usize, rounds: usize, work: impl Fn(usize, usize) + Sync) -> [Duration; 2] {
    let once = || {
        let begin = Instant::now();
        let all = std::thread::scope(|scope| {
            let run = |thread| {
                let work = &work;
                scope.spawn(move || {
                    let before = processor_time();
                    (0..rounds).for_each(|round| work(thread, round));
                    processor_time() - before
                })
            };
            let threads: Vec<_> = (0..threads).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<Duration>()
        });
        [begin.elapsed() / rounds as u32, all / (rounds * threads) as u32]
    };
    let times: Vec<_> = (0..5).map(|_| once()).collect();
    [0, 1].map(|which| times.iter().map(|times| times[which]).min().unwrap_or_default())
}

fn row(what: &str, threads: usize, [each, processor]: [Duration; 2]) {
    let (each, processor) = (each.as_nanos(), processor.as_nanos());
    println!("{what:<45} {threads} thread(s) {each:>7} ns, {processor:>7} ns of a processor");
}

fn operations(name: &str, tree: &dyn Tree, rounds: usize) {
    const NAMES: usize = 1000;
    let directories: Vec<u64> =
        (0..2).map(|thread| tree.make_directory(&format!("d{thread}"))).collect();
    let names: Vec<String> = (0..NAMES).map(|number| format!("file-{number}")).collect();
    let mut files = Vec::new();
    for directory in &directories {
        files.push(names.iter().map(|name| tree.make(*directory, name)).collect::<Vec<_>>());
    }
    files.iter().for_each(|files| tree.write(files[0], &[7; 4096]));
    for threads in [1, 2] {
        row(
            &format!("{name}: look up"),
            threads,
            time(threads, rounds, |_, round| {
                tree.look_up(directories[0], &names[round % NAMES]);
            }),
        );
        row(
            &format!("{name}: read 4 KiB, one file"),
            threads,
            time(threads, rounds, |_, _| {
                let mut bytes = [0; 4096];
                assert_eq!(tree.read(files[0][0], &mut bytes), 4096);
            }),
        );
        row(
            &format!("{name}: write 4 KiB, own file"),
            threads,
            time(threads, rounds, |thread, _| {
                tree.write(files[thread][0], &[7; 4096]);
            }),
        );
        row(
            &format!("{name}: create and unlink, own directory"),
            threads,
            time(threads, rounds / 4, |thread, round| {
                let name = format!("new-{round}");
                tree.make(directories[thread], &name);
                tree.remove(directories[thread], &name);
            }),
        );
    }
}

fn forks() {
    for count in [1, 100_000] {
        let main = FileSystem::new().main();
        for number in 0..count {
            main.create(Ino::ROOT, OsStr::new(&format!("file-{number}")), &FILE).unwrap();
        }
        let times: Vec<Duration> = (0..1000)
            .map(|number| {
                let name = format!("b{number}");
                let begin = Instant::now();
                let branch = main.fork(&name).unwrap();
                let time = begin.elapsed();
                // So that there is something to freeze again.
                branch.create(Ino::ROOT, OsStr::new("one"), &FILE).unwrap();
                main.write_file("file-0", b"x").unwrap();
                time
            })
            .collect();
        let mut sorted = times;
        sorted.sort_unstable();
        row(&format!("fork of {count} file(s), median"), 1, [sorted[500]; 2]);
        row(&format!("fork of {count} file(s), 99 of 100"), 1, [sorted[990]; 2]);
    }
}

fn memory() {
    const FILES: usize = 1_000_000;
    COUNTS.store(true, Ordering::Relaxed);
    let before = BYTES.load(Ordering::Relaxed);
    let main = FileSystem::new().main();
    for directory in 0..FILES / 100 {
        let parent = main.create_directories(format!("directory-{directory}")).unwrap();
        for number in 0..100 {
            main.create(parent, OsStr::new(&format!("file-{number}.rs")), &FILE).unwrap();
        }
    }
    main.usage();
    let bytes = BYTES.load(Ordering::Relaxed) - before;
    COUNTS.store(false, Ordering::Relaxed);
    println!("bytes for each of a million empty files, 100 in a directory: {}", bytes / FILES);
}

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(200_000);
    forks();
    operations("manycore-fs", &FileSystem::new().main(), rounds);
    operations("one lock", &Locked::default(), rounds);
    if rounds >= 100_000 {
        memory();
    }
}
