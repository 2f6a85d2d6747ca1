//! Private pages that threads share: a fork copies all pages at one moment, and does not change by
//! itself.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::private::{Key, Numbers, View, alive, base, read, view, write};
use crate::common::rng::Rng;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(350);

/// Threads fork, write, read and drop shared views. A fork never changes by itself.
#[test]
fn forks_under_load_stay_as_they_were() {
    const KEYS: u32 = 12;
    let _alone = env::alone();
    let seed = env::seed();
    let until = env::soak(SHARE);
    let first = view(4);
    let alive = alive(&first);
    let views: Vec<_> = (0..3).map(|_| Mutex::new(Arc::new(first.fork()))).collect();
    drop(first);
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (views, barrier) = (&views, &barrier);
            scope.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                barrier.wait();
                let mut number = 0;
                while Instant::now() < until {
                    let at = rng.below(views.len());
                    let view = Arc::clone(&views[at].lock().unwrap());
                    let key = rng.below(KEYS as usize) as u32;
                    number += 1;
                    match rng.below(12) {
                        0 => {
                            let fork = view.fork();
                            let look = || (0..KEYS).map(|key| read(&fork, key)).collect();
                            let seen: Vec<_> = look();
                            write(&view, key, number);
                            thread::yield_now();
                            assert_eq!(seen, look(), "MANYCORE_SEED={seed:#x}");
                            assert!(fork.depth() <= 8);
                            if rng.once_in(2) {
                                *views[rng.below(views.len())].lock().unwrap() = Arc::new(fork);
                            }
                        }
                        1 | 2 => {
                            let page = view.read(&Key(key));
                            let seen = page.as_ref().map(|page| page.number());
                            write(&view, key, number);
                            assert_eq!(seen, page.as_ref().map(|page| page.number()));
                        }
                        3..=6 => _ = read(&view, key),
                        7 => view.for_each(|_, page| _ = page.number()),
                        _ => _ = write(&view, key, number),
                    }
                }
            });
        }
    });
    drop(views);
    assert_eq!(alive.load(SeqCst), 0, "MANYCORE_SEED={seed:#x}");
}

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Read(u32),
    Write(u32, u64),
    Fork,
}

const KEYS: u32 = 3;

/// The numbers of a view.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Pages(Numbers);

impl Model for Pages {
    type Call = Call;
    type Answer = Vec<u64>;

    fn call(rng: &mut Rng) -> Call {
        let (key, value) = (rng.below(KEYS as usize) as u32, rng.below(100) as u64);
        match rng.below(7) {
            0 | 1 => Call::Read(key),
            2..=4 => Call::Write(key, value),
            _ => Call::Fork,
        }
    }

    fn answer(&mut self, call: &Call) -> Vec<u64> {
        let number = |numbers: &Self, key| numbers.0.get(&key).copied().unwrap_or(base(key));
        match *call {
            Call::Read(key) => vec![number(self, key)],
            Call::Write(key, value) => vec![self.0.insert(key, value).unwrap_or(base(key))],
            Call::Fork => (0..KEYS).map(|key| number(self, key)).collect(),
        }
    }
}

impl Subject<Pages> for View {
    /// A fork's answer is all that is in it, looked at later.
    fn answer(&self, call: &Call) -> Vec<u64> {
        match *call {
            Call::Read(key) => vec![read(self, key)],
            Call::Write(key, value) => vec![write(self, key, value)],
            Call::Fork => {
                let fork = self.fork();
                (0..KEYS).map(|key| read(&fork, key)).collect()
            }
        }
    }
}

#[test]
fn histories_are_linearizable() {
    let _alone = env::alone();
    let until = env::soak(2 * SHARE);
    let make = |rng: &mut Rng| {
        let view = view(2);
        (0..KEYS).filter(|_| rng.once_in(2)).for_each(|key| _ = write(&view, key, base(key)));
        if rng.once_in(2) { view.fork() } else { view }
    };
    match calls::check::<Pages, _>(env::seed(), until, make) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}
