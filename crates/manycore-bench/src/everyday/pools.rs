//! Work given to pools of threads: rayon, tokio, and threads started by hand.

use std::{
    hint::black_box,
    sync::{Arc, Mutex},
    thread,
};

use rayon::prelude::*;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    row::Kind,
    runner::{Control, Subject, Tally},
    workload::Entry,
};

/// Words of a job.
const WORDS: u64 = 20_000;
const TASKS: u64 = 32;

/// Jobs, one after the other, each for a pool of so many threads.
struct Jobs<P> {
    pool: P,
    job: fn(&P),
}

impl<P: Sync> Subject for Jobs<P> {
    fn workers(&self, _: usize) -> usize {
        1
    }

    fn work(&self, _: usize, control: &Control) -> Tally {
        control.drive(|| {
            (self.job)(&self.pool);
            1
        })
    }
}

fn rayon_pool(threads: usize) -> rayon::ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads for a pool")
}

fn tokio_pool(threads: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).build().expect("threads for a runtime")
}

fn words() -> Vec<u32> {
    let mut random = super::Random::new(0);
    (0..WORDS).map(|_| random.below(1 << 30)).collect()
}

fn fibonacci(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (one, two) = rayon::join(|| fibonacci(n - 1), || fibonacci(n - 2));
    one + two
}

fn fibonacci_serial(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fibonacci_serial(n - 1) + fibonacci_serial(n - 2) }
}

fn sum_of(from: u64, to: u64) -> u64 {
    (from..to).map(|word| black_box(word) / 3).sum()
}

macro_rules! jobs {
    ($name:expr, $about:expr, $pool:expr, $job:expr) => {
        Entry::new(
            $name,
            Kind::Rival,
            $about,
            |threads| Box::new(Jobs { pool: $pool(threads), job: $job }),
            || {
                let jobs = Jobs { pool: $pool(2), job: $job };
                (jobs.job)(&jobs.pool);
                Ok(())
            },
        )
    };
}

/// The cases.
pub(super) static ENTRIES: &[Entry<usize>] = &[
    Entry {
        kind: Kind::Baseline,
        threads_max: 1,
        ..jobs!("sum-serial", "a sum, on one thread", |_| (), |()| {
            black_box(sum_of(0, WORDS));
        })
    },
    jobs!("sum-rayon", "a sum, rayon's parallel iterator", rayon_pool, |pool| {
        let sum = |()| (0..WORDS).into_par_iter().map(|word| black_box(word) / 3).sum::<u64>();
        black_box(pool.install(|| sum(())));
    }),
    jobs!("sum-scope", "a sum, threads that are started for it", |threads| threads, |&threads| {
        let part = WORDS / threads as u64;
        let sum: u64 = thread::scope(|scope| {
            let started: Vec<_> = (0..threads as u64)
                .map(|index| scope.spawn(move || sum_of(index * part, (index + 1) * part)))
                .collect();
            started.into_iter().map(|thread| thread.join().expect("a sum")).sum()
        });
        black_box(sum);
    }),
    jobs!("join-rayon", "rayon's join, 987 leaves", rayon_pool, |pool| {
        assert_eq!(pool.install(|| fibonacci(16)), 987);
    }),
    jobs!("join-serial", "... on one thread", |_| (), |()| {
        assert_eq!(fibonacci_serial(black_box(16)), 987);
    }),
    jobs!("sort-rayon", "rayon's sort", |threads| (rayon_pool(threads), words()), |(
        pool,
        words,
    )| {
        let mut copy = words.clone();
        pool.install(|| copy.par_sort_unstable());
        assert!(copy.is_sorted());
    }),
    jobs!("sort-serial", "... on one thread", |_| words(), |words| {
        let mut copy = words.clone();
        copy.sort_unstable();
        assert!(copy.is_sorted());
    }),
    jobs!("tasks-spawn", "tokio: 32 tasks", tokio_pool, |pool| {
        let count = pool.block_on(async {
            (0..TASKS).map(|_| async { 1 }).collect::<JoinSet<_>>().join_all().await.len()
        });
        assert_eq!(count as u64, TASKS);
    }),
    jobs!("tasks-rayon", "rayon: 32 tasks", rayon_pool, |pool| {
        pool.scope(|scope| {
            (0..TASKS).for_each(|n| scope.spawn(move |_| assert!(black_box(n) < TASKS)))
        });
    }),
    jobs!("tasks-std", "tokio: 32 tasks add under a std Mutex", tokio_pool, |pool| {
        let sum = Arc::new(Mutex::new(0));
        pool.block_on(async {
            let task = |_| {
                let sum = Arc::clone(&sum);
                async move { (0..10).for_each(|_| *sum.lock().unwrap() += 1) }
            };
            (0..TASKS).map(task).collect::<JoinSet<_>>().join_all().await
        });
        assert_eq!(*sum.lock().unwrap(), TASKS * 10);
    }),
    jobs!("tasks-tokio", "... under tokio's", tokio_pool, |pool| {
        let sum = Arc::new(tokio::sync::Mutex::new(0));
        pool.block_on(async {
            let task = |_| {
                let sum = Arc::clone(&sum);
                async move {
                    for _ in 0..10 {
                        *sum.lock().await += 1;
                    }
                }
            };
            (0..TASKS).map(task).collect::<JoinSet<_>>().join_all().await
        });
        assert_eq!(*pool.block_on(sum.lock()), TASKS * 10);
    }),
];
