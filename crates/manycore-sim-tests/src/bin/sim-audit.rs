//! One hot path of the library on several virtual cores at once, for `ci/audit.sh`: what it writes
//! to lines that others use, what it reads from other cores, and its locked instructions.
//!
//! `sim-audit PATH`. Each thread has set itself up before the measured part begins.

use std::{
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
    collections::{Counter, HashMap, ScalableArc},
    namespace::IdSpace,
    oplog::{Commuting, Deferred, Op, Ordered},
    section::Domain,
};

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

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    match path.as_str() {
        // No path of the library's: shows that the audit sees what is there, in each column.
        "shared-word" => {
            let words = [const { Padded(AtomicU64::new(0)) }; 2];
            on_all_cores(|| {
                words[0].0.fetch_add(1, Relaxed);
                fence(SeqCst);
                words[1].0.store(words[1].0.load(Relaxed) + 1, Relaxed);
            });
        }
        "add" => {
            let counter = Counter::new(0);
            assert!(counter.promote());
            on_all_cores(|| counter.add(1));
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
            let domain = Domain::new();
            on_all_cores(|| drop(domain.enter()));
        }
        "map-get" => {
            let map = HashMap::new();
            for key in 0..100 {
                map.enter().insert(key, key);
            }
            on_all_cores(|| {
                black_box(map.enter().get(&7).copied());
            });
        }
        "id-lookup" => {
            let domain = Domain::new();
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
        _ => {
            eprintln!("sim-audit: no hot path '{path}'");
            std::process::exit(2);
        }
    }
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
    let until = |moment: Duration| thread::sleep(moment.saturating_sub(started.elapsed()));
    let act_at = |moment: Duration| {
        until(moment);
        (0..EACH).for_each(|_| act());
        assert!(started.elapsed() < moment + READY, "it took too long");
    };
    thread::scope(|scope| {
        for _ in 1..cores {
            scope.spawn(move || {
                act_at(READY);
                act_at(READY * 2);
                act_at(READY * 4);
                until(READY * 6);
                manycore_sim::operations(EACH);
            });
        }
        until(READY * 3);
        manycore_sim::measured(|| until(READY * 5));
    });
}
