//! Order under bad luck: updates with an early stamp and a late publication, threads that move
//! between cores, clocks that disagree.

use crate::common::env;
use crate::common::kinds::{Set, Toggle};
use crate::common::race::{Mark, Marks, Outcome, Racer, Writers, two_cores};
use manycore::clock::{Clock, FakeClock, Mode, Stamp};
use manycore::oplog::*;
use manycore::percpu::pin::{self, Pinned};
use std::sync::{Arc, Barrier};
use std::thread;

// ---- stamped early, published late (law oplog.D3) ----

/// An update of a list that may stop between its stamp and its publication.
struct Late {
    value: u32,
    /// Waited for twice: when the update has its stamp, and when it may go on.
    stop: Option<Arc<Barrier>>,
}

impl Late {
    fn now(value: u32) -> Self {
        Self { value, stop: None }
    }
}

impl Op<Vec<u32>> for Late {
    fn apply(self, list: &mut Vec<u32>) {
        list.push(self.value);
    }
}

#[derive(Default)]
struct LateLog(Ordered<Late>);

impl Log<Vec<u32>> for LateLog {
    type Op = Late;
    const ORDERED: bool = true;

    fn apply(update: Late, list: &mut Vec<u32>) {
        update.apply(list);
    }

    fn push(&mut self, update: Late, stamp: Stamp) {
        if let Some(stop) = &update.stop {
            stop.wait();
            stop.wait();
        }
        self.0.add(update, stamp);
    }

    fn len(&self) -> usize {
        Log::<Vec<u32>>::len(&self.0)
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        self.0.take_until(cut, &mut into.0);
    }

    fn merge(logs: &mut [Self], list: &mut Vec<u32>) -> usize {
        let mut inner: Vec<_> = logs.iter_mut().map(|log| std::mem::take(&mut log.0)).collect();
        Ordered::merge(&mut inner, list)
    }
}

fn comes_before(list: &[u32], first: u32, second: u32) -> bool {
    let place = |value| list.iter().position(|seen| *seen == value).expect("it is there");
    place(first) < place(second)
}

#[test]
fn update_stamped_early_and_published_late_is_out_of_order_with_concurrent_ones_only() {
    const BEFORE: u32 = 1;
    const LATE: u32 = 2;
    const MEANWHILE: [u32; 3] = [3, 4, 5];
    const AFTER: u32 = 6;
    for publish in [Publish::Locked, Publish::Biased] {
        let builder = Deferred::<Vec<u32>, LateLog>::builder().logs(Logs::Always);
        let list = builder.publish(publish).build(Vec::new()).unwrap();
        let stop = Arc::new(Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| list.append(Late::now(BEFORE))).join().unwrap();
            let late = Late { value: LATE, stop: Some(Arc::clone(&stop)) };
            let slow = scope.spawn(|| list.append(late));
            stop.wait(); // it has its stamp
            for value in MEANWHILE {
                // Each by another thread, and done before the next.
                let list = &list;
                scope.spawn(move || list.append(Late::now(value))).join().unwrap();
            }
            let reader = scope.spawn(|| list.read().clone());
            thread::yield_now();
            stop.wait(); // it may go on
            slow.join().unwrap();
            list.append(Late::now(AFTER));
            let early = reader.join().unwrap();
            let all = list.read().clone();

            assert!(all.starts_with(&early), "{early:?} was seen, then {all:?}");
            assert!([BEFORE, 3, 4, 5].iter().all(|value| early.contains(value)), "{early:?}");
            assert_eq!(all.len(), 6);
            assert!(comes_before(&all, BEFORE, LATE) && comes_before(&all, LATE, AFTER), "{all:?}");
            let others: Vec<u32> = all.iter().copied().filter(|value| *value != LATE).collect();
            assert_eq!(others, [BEFORE, 3, 4, 5, AFTER]);
        });
    }
}

// ---- from core to core (requirement O-03) ----

fn moves_between_cores<L: Log<Set, Op = Toggle>>() {
    let Ok(cpus) = pin::allowed() else {
        println!("skipped: this system does not say where threads run");
        return;
    };
    let builder = Deferred::<Set, L>::builder().logs(Logs::Always);
    let set = builder.build(Set::new()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2_000 {
                let (here, there) = (cpus[round % cpus.len()], cpus[(round + 1) % cpus.len()]);
                let key = (round % 7) as u8;
                let pinned = Pinned::to(here).unwrap();
                set.append(Toggle { key, insert: true });
                drop(pinned);
                let _pinned = Pinned::to(there).unwrap();
                if round % 3 == 0 {
                    assert_eq!(set.read().get(&key), Some(&1));
                }
                set.append(Toggle { key, insert: false });
                if round % 2 == 0 {
                    assert_eq!(*set.read(), Set::new(), "round {round}");
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..500 {
                let seen = set.read().clone();
                assert!(seen.len() <= 1 && seen.values().all(|count| *count == 1), "{seen:?}");
                thread::yield_now();
            }
        });
    });
    assert!(set.into_inner().is_empty());
}

#[test]
fn insert_on_one_core_and_remove_on_another_leave_nothing() {
    let _alone = env::alone();
    moves_between_cores::<Ordered<Toggle>>();
    moves_between_cores::<Cancelling<Toggle>>();
}

// ---- clocks that disagree (requirement O-16) ----

/// The largest difference between the clocks of two threads.
const SKEW: u64 = 100;

/// An object with a clock that is fast where A is made and slow where B is made. Where the object
/// is read, the clock lies in between, a little fast or slow.
struct Skewed {
    object: Deferred<Marks, Ordered<Mark>>,
    time: FakeClock,
}

impl Skewed {
    fn new(declared: u64) -> Arc<Self> {
        let time = FakeClock::new();
        let clock = Arc::new(Clock::fake(&time, declared));
        assert_eq!(clock.mode(), Mode::Fake { skew_ticks: declared });
        let object = Deferred::builder().logs(Logs::Always).clock(clock).build(Marks::default());
        Arc::new(Self { object: object.unwrap(), time })
    }
}

impl Racer for Skewed {
    fn update(&self, mark: Mark) {
        let half = (SKEW / 2) as i64;
        let skew = if matches!(mark, Mark::A(_)) { half } else { -half };
        self.time.with_skew_on_this_thread(skew);
        self.object.append(mark);
    }

    fn look(&self) -> Marks {
        let skew = self.time.time() as i64 % (SKEW as i64 + 1) - (SKEW / 2) as i64;
        self.time.with_skew_on_this_thread(skew);
        *self.object.read()
    }
}

fn race_with_skew(declared: u64, writers: Writers) -> Outcome {
    let outcome = two_cores(&Skewed::new(declared), 500, writers, true);
    println!("skew {SKEW}, declared {declared}, {writers:?}: {outcome:?}");
    outcome
}

#[test]
fn declared_skew_is_waited_out_and_undeclared_skew_is_caught() {
    let _alone = env::alone();
    for writers in [Writers::TwoThreads, Writers::TwoSlots] {
        assert_eq!(race_with_skew(SKEW, writers).violations, 0, "{writers:?}");
        assert!(race_with_skew(0, writers).violations > 0, "{writers:?}");
        assert!(race_with_skew(SKEW / 10, writers).violations > 0, "{writers:?}");
    }
}
