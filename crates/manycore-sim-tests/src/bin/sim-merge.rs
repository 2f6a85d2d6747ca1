//! How long a read of a deferred object takes while every other core updates it, by the way that
//! the read gets at the logs: `sim-merge flat|tree|auto`, the kind of log (`combining`,
//! `cancelling` or `ordered`), how many reads, and how many turns of an empty loop between updates.

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed},
    thread,
    time::Instant,
};

use manycore::{
    oplog::{
        Cancel, Cancelling, Combine, Combining, Deferred, Log, Logs, MergeStrategy, Op, Ordered,
    },
    percpu::pin,
};

/// Reads that do not count: threads set themselves up, and helpers find each other.
const WARM_UP: usize = 8;
/// Turns of an empty loop between reads.
const BETWEEN_READS: u64 = 20_000;

/// One of four sums.
struct Add(u64);

impl Op<[u64; 4]> for Add {
    fn apply(self, sums: &mut [u64; 4]) {
        sums[self.0 as usize % 4] += 1;
    }
}

struct Adds {
    which: u64,
    count: u64,
}

impl Op<[u64; 4]> for Adds {
    fn apply(self, sums: &mut [u64; 4]) {
        sums[self.which as usize] += self.count;
    }
}

impl Combine for Adds {
    type Key = u64;

    fn key(&self) -> u64 {
        self.which
    }

    fn combine(&mut self, other: Self) {
        self.count += other.count;
    }
}

/// An element comes or goes.
struct Toggle(u64, bool);

impl Op<BTreeSet<u64>> for Toggle {
    fn apply(self, set: &mut BTreeSet<u64>) {
        let fresh = if self.1 { set.insert(self.0) } else { set.remove(&self.0) };
        assert!(fresh, "{} was inserted or removed twice", self.0);
    }
}

impl Cancel for Toggle {
    type Key = u64;

    fn key(&self) -> u64 {
        self.0
    }

    fn inserts(&self) -> bool {
        self.1
    }
}

fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// What is asked for.
struct Plan {
    strategy: MergeStrategy,
    reads: usize,
    pause: u64,
}

impl Plan {
    fn measure<T: Default + Send + Sync + 'static, L: Log<T>>(
        &self,
        update: impl Fn(u64, u64) -> L::Op + Sync,
    ) {
        let builder = Deferred::<T, L>::builder().logs(Logs::Always).merge(self.strategy);
        let object = builder.build(T::default()).expect("settings that can work");
        let cores = thread::available_parallelism().expect("a number of cores").get();
        let (ready, done) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for core in 1..cores {
                let (object, ready, done, update) = (&object, &ready, &done, &update);
                scope.spawn(move || {
                    pin::pin_to(core).expect("a core of this machine");
                    object.append(update(core as u64, 0));
                    ready.fetch_add(1, AcqRel);
                    for number in 1.. {
                        object.append(update(core as u64, number));
                        spin(self.pause);
                        if done.load(Relaxed) {
                            return;
                        }
                    }
                });
            }
            pin::pin_to(0).expect("a core of this machine");
            while ready.load(Acquire) < cores as u64 - 1 {
                thread::yield_now();
            }
            self.read(&object);
            done.store(true, Relaxed);
        });
    }

    fn read<T: Send + 'static, L: Log<T>>(&self, object: &Deferred<T, L>) {
        let timed = |_| {
            spin(BETWEEN_READS);
            let begin = Instant::now();
            drop(object.read());
            begin.elapsed().as_nanos() as u64
        };
        (0..WARM_UP).map(timed).for_each(drop);
        let (before, begin) = (object.stats().appended, Instant::now());
        let times: Vec<u64> = (0..self.reads).map(timed).collect();
        let took = begin.elapsed().as_micros() as u64;
        let updates = object.stats().appended - before;
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        println!("a read takes {mean} ns; {} updates a microsecond", updates / took.max(1));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let strategy = match arguments.next().as_deref() {
        Some("flat") => MergeStrategy::Flat,
        Some("tree") => MergeStrategy::Tree,
        Some("auto") | None => MergeStrategy::Auto,
        Some(other) => panic!("{other} is none of flat, tree and auto"),
    };
    let kind = arguments.next().unwrap_or_else(|| "combining".to_owned());
    let mut number = |otherwise| match arguments.next() {
        Some(text) => text.parse().expect("a number"),
        None => otherwise,
    };
    let plan = Plan { strategy, reads: number(8) as usize, pause: number(100) };
    match kind.as_str() {
        "combining" => plan.measure::<[u64; 4], Combining<Adds>>(|core, number| Adds {
            which: (core + number) % 4,
            count: 1,
        }),
        "cancelling" => plan.measure::<BTreeSet<u64>, Cancelling<Toggle>>(|core, number| {
            Toggle(core * 64 + number / 2 % 4, number % 2 == 0)
        }),
        "ordered" => plan.measure::<[u64; 4], Ordered<Add>>(|core, number| Add(core + number)),
        other => panic!("{other} is none of combining, cancelling and ordered"),
    }
}
