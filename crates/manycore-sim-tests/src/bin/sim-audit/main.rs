//! One hot path of the library on several virtual cores at once, for `ci/audit.sh`: what it writes
//! to lines that others use, what it reads from other cores, and its locked instructions.
//!
//! `sim-audit PATH`. Each thread has set itself up before the measured part begins.

mod files;
mod objects;
mod pages;

use std::{
    cell::Cell,
    hint::black_box,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
    thread,
    time::{Duration, Instant},
};

use manycore::{
    collections::{BudgetTree, Counter, FlatHashMap, HashMap, Histogram, RangeMap, ScalableArc},
    namespace::IdSpace,
    oplog::{Commuting, Deferred, Op, Ordered},
    section::Domain,
};
use manycore_trace::{Class, Recorder, event, span};
use manycore_vm::{FileCache, MappingDb, MemoryFile, Null, PageManager, PagePool, Rights};

/// Operations of each thread: few enough that no log fills in between.
const EACH: u64 = 50;

/// Virtual time for each step, far more than it takes.
const READY: Duration = Duration::from_millis(2);

/// Something with its line and the one beside it for itself.
#[repr(align(128))]
struct Padded<T>(T);

struct Add;

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
    }
}

fn hot_histogram() -> Histogram {
    let histogram = Histogram::new();
    assert!(histogram.promote());
    histogram
}

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    match path.as_str() {
        // No path of the library's: shows that the audit sees what is there, in each column.
        "shared-word" => shared_word(),
        "add" => {
            let counter = Counter::new(0);
            assert!(counter.promote());
            on_all_cores(|| counter.add(1));
        }
        "record" => {
            let histogram = hot_histogram();
            on_all_cores(|| histogram.record(black_box(12_345)));
        }
        "append" => {
            let sum = Deferred::<u64, Commuting<Add>>::new(0);
            assert!(sum.promote());
            on_all_cores(|| sum.append(Add));
        }
        "append-ordered" => {
            let sum = Deferred::<u64, Ordered<Add>>::new(0);
            assert!(sum.promote());
            on_all_cores(|| sum.append(Add));
        }
        "enter-exit" => {
            let domain = Domain::bounded();
            on_all_cores(|| drop(domain.enter()));
        }
        "map-get" => map_get(),
        "flat-get" => flat_get(),
        "flat-update" => flat_update(),
        "range-get" => range_get(),
        "range-update" => range_update(),
        "pool-page" => pool_page(),
        "file-open" => file_open(),
        "grant-unmap" => grant_unmap(),
        "resolve" => resolve(),
        "alias-revoke" => alias_gone(true),
        "alias-unmap" => alias_gone(false),
        "id-lookup" => {
            let domain = Domain::bounded();
            let ids = IdSpace::new_in(&domain);
            let id = ids.insert(7, &domain.enter());
            on_all_cores(|| {
                black_box(ids.get(id, &domain.enter()).copied());
            });
        }
        "clone-drop" => {
            let value = ScalableArc::new(7);
            assert!(ScalableArc::promote(&value));
            on_all_cores(|| drop(black_box(value.clone())));
        }
        "trace-event" | "trace-span" | "trace-off" => traced(&path),
        _ if objects::run(&path) || pages::run(&path) || files::run(&path) => {}
        _ => {
            eprintln!("sim-audit: no hot path '{path}'");
            std::process::exit(2);
        }
    }
}

fn shared_word() {
    let words = [const { Padded(AtomicU64::new(0)) }; 2];
    on_all_cores(|| {
        words[0].0.fetch_add(1, Relaxed);
        fence(SeqCst);
        words[1].0.store(words[1].0.load(Relaxed) + 1, Relaxed);
    });
}

const TRACED: Class = Class::new(1, "traced");

/// An event, or a span, with 16 bytes of fields; off without a recording.
fn traced(path: &str) {
    let recorder = Recorder::new().ring_bytes(1 << 16).block_bytes(1 << 13);
    let _recording = (path != "trace-off").then(|| recorder.start().expect("the first recording"));
    if path == "trace-span" {
        on_all_cores(|| drop(span!(TRACED, Part { a: u64 = black_box(7), b: u64 = 8 })));
    } else {
        on_all_cores(|| event!(TRACED, Sample { a: u64 = black_box(7), b: u64 = 8 }));
    }
}

fn pool_page() {
    let pool = PagePool::new(1024).expect("there are addresses enough");
    on_all_cores(|| drop(black_box(pool.alloc(1).expect("a free page"))));
}

/// Makes a file within a page manager that all share, and drops it.
fn file_open() {
    let manager = PageManager::new(BudgetTree::new(1 << 30));
    on_all_cores(|| {
        let file = FileCache::builder(MemoryFile::default()).within(&manager).build();
        drop(file.expect("a file in memory knows its length"));
    });
}

/// Grants a page and unmaps it, of a space that all share.
fn grant_unmap() {
    let domain = Domain::bounded();
    let db = MappingDb::new(Null::new(1 << 16), &domain);
    let space = db.space(1 << 16).expect("there are addresses enough");
    on_all_cores(|| {
        let page = db.grant(space, 1, Rights::WRITE).expect("a free page");
        db.unmap(space, page, 1).expect("it was granted");
    });
}

/// Looks up a page that all threads look up.
fn resolve() {
    let domain = Domain::new();
    let db = MappingDb::new(Null::new(1), &domain);
    let space = db.space(1).expect("there are addresses enough");
    let page = db.grant(space, 1, Rights::READ).expect("a free page");
    on_all_cores(|| {
        black_box(db.resolve(space, page, &domain.enter())).expect("it was granted");
    });
}

/// Derives a mapping from a page of each thread's own, in a space that all share, and revokes it
/// there, or unmaps it.
fn alias_gone(is_revoked: bool) {
    thread_local! {
        static PAGE: Cell<usize> = const { Cell::new(0) };
    }
    let domain = Domain::new();
    let db = MappingDb::new(Null::new(1 << 16), &domain);
    let space = || db.space(1 << 16).expect("there are addresses enough");
    let (from, to) = (space(), space());
    on_all_cores(|| {
        if PAGE.get() == 0 {
            PAGE.set(db.grant(from, 1, Rights::WRITE).expect("a free page"));
        }
        let page = PAGE.get();
        let alias = db.alias_anywhere(from, page, to, 1, Rights::READ).expect("a free address");
        let gone = if is_revoked { db.revoke(from, page, 1) } else { db.unmap(to, alias, 1) };
        assert_eq!(gone.expect("it was derived"), 1);
    });
}

fn map_get() {
    let map = HashMap::new();
    for key in 0..100 {
        map.enter().insert(key, key);
    }
    on_all_cores(|| {
        black_box(map.enter().get(&7).copied());
    });
}

fn flat_get() {
    let map: FlatHashMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
    on_all_cores(|| {
        black_box(map.get(&7));
    });
}

fn flat_update() {
    // A key for each thread, in a bucket of its own.
    let map = FlatHashMap::<u64, u64>::with_capacity(10_000);
    let next = Padded(AtomicU64::new(1));
    on_all_cores(|| {
        thread_local! {
            static KEY: Cell<u64> = const { Cell::new(0) };
        }
        if KEY.get() == 0 {
            KEY.set(next.0.fetch_add(1, Relaxed));
        }
        map.insert(KEY.get(), 1);
    });
}

fn range_get() {
    let map = RangeMap::new();
    for page in 0..100 {
        map.enter().insert(page * 4096..(page + 1) * 4096, page).expect("a free page");
    }
    on_all_cores(|| {
        black_box(map.enter().get(7 * 4096 + 7).copied());
    });
}

/// Inserts and removes a range of each thread's own, beside another one that stays.
/// What is counted is the updates alone: each thread's first batch of removed entries, for which it
/// leads a round of its domain, is closed before, and the next one after.
fn range_update() {
    // Two ranges in one branch for each thread, one of which stays, far from others'.
    let map = RangeMap::new();
    let place = |thread: u64| (thread + 1) << 30;
    for thread in 0..64 {
        map.enter().insert(place(thread)..place(thread) + 4096, 0).expect("a free page");
    }
    let next = Padded(AtomicU64::new(0));
    on_all_cores(|| {
        thread_local! {
            static PLACE: Cell<u64> = const { Cell::new(0) };
        }
        if PLACE.get() == 0 {
            PLACE.set(place(next.0.fetch_add(1, Relaxed)) + (9 << 12));
        }
        let (first, view) = (PLACE.get(), map.enter());
        view.insert(first..first + 4096, 1).expect("a free page");
        view.remove(first..first + 4096).expect("a range with keys");
    });
}

/// Measures `act` on all cores but one at once.
///
/// The threads meet by the clock, which writes to no memory, have gone the same way twice before
/// (a row or a log that one of them makes at its first turn is entered on a line that the others
/// read), and wake up on the core that they slept on, because the first thread has one too: nothing
/// but `act` is counted.
fn on_all_cores(act: impl Fn() + Sync) {
    let cores = thread::available_parallelism().expect("a number of cores").get();
    // What the threads read here is never written, nor is anything on the same line.
    let read_only = Padded((Instant::now(), act));
    let (started, act) = &read_only.0;
    let sleep = |moment: Duration| thread::sleep(moment.saturating_sub(started.elapsed()));
    let until = &Padded(sleep).0;
    let act_at = &Padded(|moment: Duration| {
        until(moment);
        (0..EACH).for_each(|_| act());
        assert!(started.elapsed() < moment + READY, "it took too long");
    })
    .0;
    thread::scope(|scope| {
        for _ in 1..cores {
            scope.spawn(move || {
                // In a loop, so that the compiler gives the measured turn no stack of its own.
                [1, 2, 4].into_iter().for_each(|turn| act_at(READY * turn));
                until(READY * 6);
                manycore_sim::operations(EACH);
            });
        }
        until(READY * 3);
        manycore_sim::measured(|| until(READY * 5));
    });
}
