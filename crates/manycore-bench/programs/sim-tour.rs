//! What the tour runs both on this machine and on virtual cores: the same program, once built as
//! usual and once for the simulator.
//!
//! `sim-tour MICROSECONDS` prints, for each structure, a line with its name and operations a
//! microsecond: with one thread, and with all cores. Threads begin and end by the clock, so that
//! nothing else is shared.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use manycore::{
    collections::Counter,
    oplog::{Cancel, Cancelling, Deferred, Op},
};

/// From making the threads until they are set up, on any machine.
const READY: Duration = Duration::from_micros(200);

/// Operations between two looks at the clock.
const BATCH: u64 = 16;

/// An element comes into the set, or goes.
#[derive(Clone, Copy)]
enum Change {
    Add(u64),
    Remove(u64),
}

impl Op<BTreeSet<u64>> for Change {
    fn apply(self, set: &mut BTreeSet<u64>) {
        match self {
            Change::Add(element) => set.insert(element),
            Change::Remove(element) => set.remove(&element),
        };
    }
}

impl Cancel for Change {
    type Key = u64;

    fn key(&self) -> u64 {
        let (Change::Add(element) | Change::Remove(element)) = self;
        *element
    }

    fn inserts(&self) -> bool {
        matches!(self, Change::Add(_))
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [micros] = &words[..] else {
        eprintln!("sim-tour: a number of microseconds is needed");
        std::process::exit(2);
    };
    let time = Duration::from_micros(micros.parse().expect("a number of microseconds"));

    let word = AtomicU64::new(0);
    tell("shared-counter", time, |_| {
        word.fetch_add(1, Relaxed);
    });
    let counter = Counter::new(0);
    counter.promote();
    tell("our-counter", time, |_| counter.add(1));

    let locked = Mutex::new(BTreeSet::new());
    tell("locked-set", time, |me| {
        locked.lock().expect("no thread panics").insert(me);
        locked.lock().expect("no thread panics").remove(&me);
    });
    let deferred = Deferred::<BTreeSet<u64>, Cancelling<Change>>::new(BTreeSet::new());
    deferred.promote();
    tell("our-set", time, |me| {
        deferred.append(Change::Add(me));
        deferred.append(Change::Remove(me));
    });
    assert!(deferred.read().is_empty(), "what came went again");
}

/// Runs with one thread and with all, and prints the rates.
fn tell(name: &str, time: Duration, act: impl Fn(u64) + Sync) {
    let cores = thread::available_parallelism().expect("a number of cores").get() as u64;
    let (one, all) = (rate(1, time, &act), rate(cores, time, &act));
    println!("{name} {one:.3} {all:.3}");
}

/// Operations a microsecond of so many threads.
fn rate(threads: u64, time: Duration, act: &(impl Fn(u64) + Sync)) -> f64 {
    let begin = Instant::now() + READY;
    let end = begin + time;
    let work = |me: u64| {
        act(me); // each thread sets itself up
        thread::sleep(begin.saturating_duration_since(Instant::now()));
        let (started, mut done) = (Instant::now(), 0);
        while Instant::now() < end {
            (0..BATCH).for_each(|_| act(me));
            done += BATCH;
        }
        done as f64 / (started.elapsed().as_secs_f64() * 1e6)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|me| scope.spawn(move || work(me))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no thread panics")).sum()
    })
}
