//! Properties of `Deferred` under interleavings that the test chooses step by step.
//!
//! Real threads, each with its own slot, make one step at a time, so the expected result is known
//! exactly. A failure prints the shortest interleaving that fails.

use crate::common::kinds::{Add, List, Push, Set, SumLog, Toggle};
use crate::common::steps::Stepped;
use manycore::clock::{Clock, FakeClock, Stamp};
use manycore::oplog::*;
use manycore::percpu::current_slot;
use proptest::prelude::*;
use std::fmt::Debug;
use std::sync::Arc;

const THREADS: usize = 4;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

// ---- any interleaving equals the sequential replay ----

#[derive(Debug, Clone, Copy)]
enum Step {
    Update,
    Read,
    TryRead,
    Synchronize,
    Promote,
    Demote,
    Stats,
}

/// Generates steps with their threads; mostly updates and reads.
fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        12 => Just(Step::Update),
        4 => Just(Step::Read),
        1 => Just(Step::TryRead),
        1 => Just(Step::Synchronize),
        1 => Just(Step::Promote),
        1 => Just(Step::Demote),
        1 => Just(Step::Stats),
    ];
    prop::collection::vec((0..THREADS, step), 1..60)
}

/// Generates builders with every policy that must not affect results.
fn builder<T: Debug + Send + 'static, L: Log<T> + Debug>() -> impl Strategy<Value = Builder<T, L>> {
    let logs = prop_oneof![Just(Logs::Auto), Just(Logs::Always), Just(Logs::Never)];
    let publish = prop_oneof![Just(Publish::Auto), Just(Publish::Locked), Just(Publish::Biased)];
    let growth = prop_oneof![Just(1_usize), Just(4)];
    let entries = prop_oneof![1_usize..4, Just(4096)];
    (logs, publish, growth, entries).prop_map(|(logs, publish, growth, entries)| {
        let builder = Deferred::builder().logs(logs).publish(publish);
        builder.growth(growth).max_entries(entries)
    })
}

/// Makes the steps one after the other on an object and on a plain value. Both must agree.
fn replay<S, U, L>(
    threads: &Stepped,
    builder: &Builder<S, L>,
    steps: &[(usize, Step)],
    mut update: impl FnMut(usize) -> U,
) -> Result<(), TestCaseError>
where
    S: Clone + PartialEq + Debug + Default + Send + Sync + 'static,
    U: Op<S> + Copy + Send + 'static,
    L: Log<S, Op = U>,
{
    let object = Arc::new(builder.build(S::default()).expect("bounds that can work"));
    let mut plain = S::default();
    for (number, (thread, step)) in steps.iter().enumerate() {
        let object = Arc::clone(&object);
        match step {
            Step::Update => {
                let update = update(number);
                update.apply(&mut plain);
                threads.on(*thread, move || object.append(update));
            }
            Step::Read => {
                prop_assert_eq!(&threads.on(*thread, move || object.read().clone()), &plain)
            }
            Step::TryRead => {
                let seen =
                    threads.on(*thread, move || object.try_read().map(|guard| guard.clone()));
                prop_assert_eq!(seen.as_ref(), Ok(&plain));
            }
            Step::Synchronize => threads.on(*thread, move || object.synchronize()),
            Step::Promote => {
                threads.on(*thread, move || object.promote());
            }
            Step::Demote => {
                let logged = threads.on(*thread, move || {
                    object.demote();
                    object.is_hot()
                });
                prop_assert!(!logged);
            }
            Step::Stats => {
                let stats = threads.on(*thread, move || object.stats());
                let sum = stats.absorbed + stats.applied + stats.pending;
                prop_assert_eq!(stats.appended, sum, "{:?}", stats);
            }
        }
    }
    let object = Arc::into_inner(object).expect("every thread has let go of it");
    prop_assert_eq!(object.into_inner(), plain);
    Ok(())
}

fn test<S: Debug>(
    cases: u32,
    input: impl Strategy<Value = S>,
    test: impl Fn(S) -> Result<(), TestCaseError>,
) {
    let mut runner = proptest::test_runner::TestRunner::new(config(cases));
    runner.run(&input, test).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_interleaving_on_a_list_is_the_sequential_replay() {
    let threads = Stepped::new(THREADS);
    test(200, (builder::<List, Ordered<Push>>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, |number| Push(number as u8))
    });
}

/// Makes toggles: the step's number chooses the element, and inserts and removes alternate.
fn toggles() -> impl FnMut(usize) -> Toggle {
    let mut present = [false; 5];
    move |number| {
        let key = number * 7 % 5;
        present[key] = !present[key];
        Toggle { key: key as u8, insert: present[key] }
    }
}

#[test]
fn any_interleaving_on_a_set_is_the_sequential_replay() {
    let threads = Stepped::new(THREADS);
    test(100, (builder::<Set, Ordered<Toggle>>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, toggles())
    });
    test(100, (builder::<Set, Cancelling<Toggle>>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, toggles())
    });
}

#[test]
fn any_interleaving_on_a_sum_is_the_sequential_replay() {
    let threads = Stepped::new(THREADS);
    let add = |number: usize| Add(number as u64 * number as u64 + 1);
    test(100, (builder::<u64, Commuting<Add>>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, add)
    });
    test(100, (builder::<u64, Combining<Add>>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, add)
    });
    test(100, (builder::<u64, SumLog>(), steps()), |(builder, steps)| {
        replay(&threads, &builder, &steps, add)
    });
}

// ---- the order of a merge is (stamp, slot, place in the log) ----

#[derive(Debug, Clone, Copy)]
enum Tick {
    Append,
    Read,
    Advance(u64),
}

/// A model of one slot's log, as the laws describe it.
#[derive(Debug, Default)]
struct ModelLog {
    slot: usize,
    last: u64,
    /// Stamp and value.
    entries: Vec<(u64, u8)>,
}

/// Tests the merge with clocks that are wrong by a different amount on every thread. Stamps tie,
/// and go backwards between slots. The merge must do exactly what its law says.
fn merges_by_stamp_slot_and_place(
    threads: &Stepped,
    skews: [i64; THREADS],
    ticks: &[(usize, Tick)],
) -> Result<(), TestCaseError> {
    let time = FakeClock::new();
    let clock = Arc::new(Clock::fake(&time, 0));
    // A table of its own: an object of another test that took its place would have it collected to
    // the end, whatever the cut.
    let table = Arc::new(LogTable::new(1));
    let builder = Deferred::<List, Ordered<Push>>::builder().logs(Logs::Always).clock(clock);
    let object = builder.table(table).build(List::new()).expect("the default bounds");
    let object = Arc::new(object);
    prop_assert!(object.promote());
    let mut logs: Vec<ModelLog> = Vec::new();
    for (thread, skew) in skews.into_iter().enumerate() {
        let time = time.clone();
        let slot = threads.on(thread, move || {
            time.with_skew_on_this_thread(skew);
            current_slot()
        });
        logs.push(ModelLog { slot, ..ModelLog::default() });
    }
    let mut expected = List::new();
    for (number, (thread, tick)) in ticks.iter().enumerate() {
        let (object, now) = (Arc::clone(&object), time.time());
        let reading = now.saturating_add_signed(skews[*thread]);
        match tick {
            Tick::Advance(ticks) => {
                time.advance(*ticks);
            }
            Tick::Append => {
                let log = &mut logs[*thread];
                log.last = reading.max(log.last + 1);
                log.entries.push((log.last, number as u8));
                threads.on(*thread, move || object.append(Push(number as u8)));
            }
            Tick::Read => {
                let mut batch = Vec::new();
                for log in &mut logs {
                    let taken = log.entries.partition_point(|(stamp, _)| *stamp <= reading);
                    let entries = log.entries.drain(..taken).enumerate();
                    batch.extend(
                        entries.map(|(place, (stamp, value))| (stamp, log.slot, place, value)),
                    );
                }
                batch.sort_unstable();
                expected.extend(batch.into_iter().map(|(.., value)| value));
                prop_assert_eq!(&threads.on(*thread, move || object.read().clone()), &expected);
            }
        }
    }
    Ok(())
}

#[test]
fn merge_is_by_stamp_slot_and_place_whatever_the_clocks_say() {
    let threads = Stepped::new(THREADS);
    let tick = prop_oneof![
        6 => Just(Tick::Append),
        2 => Just(Tick::Read),
        1 => (1_u64..12).prop_map(Tick::Advance),
    ];
    let ticks = prop::collection::vec((0..THREADS, tick), 1..60);
    let skews = [(); THREADS].map(|()| -15_i64..15);
    test(300, (skews, ticks), |(skews, ticks)| {
        merges_by_stamp_slot_and_place(&threads, skews, &ticks)
    });
}

// ---- counters lose and invent nothing, over every interleaving of reads (law oplog.D4) ----

const ADDERS: usize = 2;
const ADDS_EACH: usize = 3;
const READS: usize = 3;

/// Returns every order in which the adders and a reader (the last thread) can make their steps.
fn interleavings() -> Vec<Vec<usize>> {
    fn extend(left: &mut Vec<usize>, so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|steps| *steps == 0) {
            all.push(so_far.clone());
        }
        for thread in 0..left.len() {
            if left[thread] > 0 {
                left[thread] -= 1;
                so_far.push(thread);
                extend(left, so_far, all);
                so_far.pop();
                left[thread] += 1;
            }
        }
    }
    let mut left = vec![ADDS_EACH; ADDERS];
    left.push(READS);
    let mut all = Vec::new();
    extend(&mut left, &mut Vec::new(), &mut all);
    all
}

/// Counts the interleavings after which a read did not see the sum of all updates before it.
fn interleavings_that_miscount<L: Log<u64, Op = Add>>() -> usize {
    let threads = Stepped::new(ADDERS + 1);
    let builder = Deferred::<u64, L>::builder().logs(Logs::Always);
    let miscounts = |order: &&Vec<usize>| {
        let counter = Arc::new(builder.build(0).expect("the default bounds"));
        let mut total = 0;
        order.iter().enumerate().any(|(number, thread)| {
            let counter = Arc::clone(&counter);
            if *thread == ADDERS {
                return threads.on(ADDERS, move || *counter.read()) != total;
            }
            total += 1 << number;
            threads.on(*thread, move || counter.append(Add(1 << number)));
            false
        })
    };
    interleavings().iter().filter(miscounts).count()
}

#[test]
fn counters_are_exact_in_every_interleaving_of_updates_and_reads() {
    assert_eq!(interleavings().len(), 1680);
    assert_eq!(interleavings_that_miscount::<Commuting<Add>>(), 0);
    assert_eq!(interleavings_that_miscount::<Combining<Add>>(), 0);
    assert_eq!(interleavings_that_miscount::<SumLog>(), 0);
}

/// The paper's Figure 8 as printed: the merge adds a log's sum and does not take it out.
#[derive(Debug, Default)]
struct Figure8 {
    sum: u64,
}

impl Log<u64> for Figure8 {
    type Op = Add;
    const ORDERED: bool = false;

    fn apply(add: Add, total: &mut u64) {
        add.apply(total);
    }
    fn push(&mut self, add: Add, _: Stamp) {
        self.sum += add.0;
    }
    fn len(&self) -> usize {
        0 // nothing that would have to be gone after a merge
    }
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        into.sum = self.sum;
    }
    fn merge(logs: &mut [Self], total: &mut u64) -> usize {
        *total += logs.iter().map(|log| log.sum).sum::<u64>();
        logs.len()
    }
}

#[test]
fn figure_8_as_printed_is_caught_counting_twice() {
    assert!(interleavings_that_miscount::<Figure8>() > 0);
}

// ---- the kinds of log by themselves ----

/// Spreads updates over `logs` logs, and merges them where `spread` says so, up to the stamp of the
/// previous update. The target must then have the result of the updates so far.
fn logs_give_the_plain_value<S, U, L>(
    logs: usize,
    spread: &[(usize, bool)],
    mut update: impl FnMut(usize) -> U,
) -> Result<(), TestCaseError>
where
    S: PartialEq + Debug + Default,
    U: Op<S> + Copy,
    L: Log<S, Op = U>,
{
    let mut logs: Vec<L> = (0..logs).map(|_| L::default()).collect();
    let (mut target, mut plain) = (S::default(), S::default());
    for (number, (log, merges)) in spread.iter().enumerate() {
        let update = update(number);
        update.apply(&mut plain);
        let stamp = Stamp::from_ticks(number as u64 + 1);
        let place = log % logs.len();
        logs[place].push(update, stamp);
        if *merges {
            let mut taken: Vec<L> = logs.iter().map(|_| L::default()).collect();
            logs.iter_mut().zip(&mut taken).for_each(|(log, into)| log.collect(stamp, into));
            prop_assert!(logs.iter().all(|log| log.is_empty()));
            L::merge(&mut taken, &mut target);
            prop_assert!(taken.iter().all(|log| log.is_empty()));
            prop_assert_eq!(&target, &plain);
        }
    }
    Ok(())
}

#[test]
fn every_kind_of_log_gives_the_plain_value() {
    // Up to 14 logs: merges go by scanning heads up to eight, and by sorting beyond.
    let input =
        (1_usize..14, prop::collection::vec((0_usize..14, prop::bool::weighted(0.1)), 1..200));
    let add = |number: usize| Add(number as u64 + 1);
    test(100, input, |(logs, spread)| {
        let push = |number| Push(number as u8);
        logs_give_the_plain_value::<List, _, Ordered<Push>>(logs, &spread, push)?;
        logs_give_the_plain_value::<Set, _, Ordered<Toggle>>(logs, &spread, toggles())?;
        logs_give_the_plain_value::<Set, _, Cancelling<Toggle>>(logs, &spread, toggles())?;
        logs_give_the_plain_value::<u64, _, Commuting<Add>>(logs, &spread, add)?;
        logs_give_the_plain_value::<u64, _, Combining<Add>>(logs, &spread, add)?;
        logs_give_the_plain_value::<u64, _, SumLog>(logs, &spread, add)
    });
}
