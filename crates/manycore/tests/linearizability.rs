//! Random histories of real threads, checked for linearizability against the sequential type.
//!
//! Each program is short: two to four threads on one or two objects of some kind. Each thread notes
//! the times of its calls and returns, and an independent checker looks for an order that explains
//! the answers. The last tests run deliberately broken implementations, which the same checker must
//! reject.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the programs
//! of an earlier run again. The seed does not fix how the threads meet, so a repeat may need time.

mod common;

use common::broken::{Broken, Bug, Tally};
use common::history::{Done, Event, State, Update, is_linearizable};
use common::kinds::{Add, List, Push, Set, SumLog, Toggle};
use common::place::{SlowPath, on_side};
use common::plan::{Adds, Disturb, Plan, Pushes, Script, Shared, Size, Step, Toggles};
use common::rng::Rng;
use common::{env, run};
use manycore::clock::{Clock, Mode, Stamp};
use manycore::ldu;
use manycore::oplog::*;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(1_000);

/// Returns builders for every way to configure an object that the histories should cover.
fn builders<S: State, U: Update<S>, L: Log<S, Op = U>>() -> Vec<Builder<S, L>> {
    let place = Arc::new(LogTable::new(1));
    let counter = Arc::new(Clock::counter());
    let mut all = Vec::new();
    for publish in [Publish::Locked, Publish::Biased, Publish::Auto] {
        for logs in [Logs::Always, Logs::Auto] {
            let plain = Deferred::builder().publish(publish).logs(logs);
            let small = plain.clone().max_entries(2);
            all.push(plain.clone());
            all.push(plain.clone().merge(MergeStrategy::Tree));
            all.push(small.clone().merge(MergeStrategy::Tree).clock(Arc::clone(&counter)));
            all.push(plain.clone().clock(Arc::clone(&counter)));
            all.push(plain.clone().table(Arc::clone(&place)));
            all.push(small.clone().growth(1));
            all.push(small.clone().growth(2));
            all.push(small.clone().max_entries(1).clock(Arc::clone(&counter)));
            all.push(small.table(Arc::clone(&place)).max_delay(Duration::from_nanos(1)));
        }
    }
    all
}

fn histories_are_linearizable<S, P, L>(name: &str)
where
    S: State,
    P: Script<Update: Update<S>>,
    L: Log<S, Op = P::Update>,
{
    let _alone = env::alone();
    let builders = builders::<S, P::Update, L>();
    let until = env::soak(SHARE);
    let make = |rng: &mut Rng| {
        let object = rng.pick(&builders).build(S::default()).expect("bounds that can work");
        if rng.once_in(2) {
            object.promote();
        }
        object
    };
    match run::check::<S, P, Deferred<S, L>>(env::seed(), until, make) {
        Ok(histories) => println!("{name}: {histories} histories, {}", Clock::system().mode()),
        Err(violation) => panic!("{name}: {}", violation.report),
    }
}

#[test]
fn lists_with_ordered_logs_are_linearizable() {
    histories_are_linearizable::<List, Pushes, Ordered<Push>>("list, ordered");
}

#[test]
fn lists_with_slow_logs_are_linearizable() {
    histories_are_linearizable::<List, Pushes, Slow<Ordered<Push>>>("list, ordered, slow");
}

#[test]
fn sets_with_cancelling_logs_are_linearizable() {
    histories_are_linearizable::<Set, Toggles, Cancelling<Toggle>>("set, cancelling");
}

#[test]
fn sums_with_commuting_logs_are_linearizable() {
    histories_are_linearizable::<u64, Adds, Commuting<Add>>("sum, commuting");
}

#[test]
fn sums_with_combining_logs_are_linearizable() {
    histories_are_linearizable::<u64, Adds, Combining<Add>>("sum, combining");
}

#[test]
fn sums_with_a_log_of_the_users_own_are_linearizable() {
    histories_are_linearizable::<u64, Adds, Slow<SumLog>>("sum, own log, slow");
}

/// A set with marks in the form that histories need: any thread toggles any member.
struct Marks {
    set: ManuallyDrop<ldu::DeferredSet<Counts, ldu::Element<u8>>>,
    members: Vec<NonNull<ldu::Element<u8>>>,
}

// SAFETY: members may be used by any thread (`Linked`).
unsafe impl Send for Marks {}
// SAFETY: shared access gives out members, which are `Sync` (`Linked`).
unsafe impl Sync for Marks {}

#[derive(Default)]
struct Counts(Set);

impl ldu::Structure<ldu::Element<u8>> for Counts {
    fn insert(&mut self, key: &ldu::Element<u8>) {
        Op::apply(Toggle { key: **key, insert: true }, &mut self.0);
    }

    fn remove(&mut self, key: &ldu::Element<u8>) {
        Op::apply(Toggle { key: **key, insert: false }, &mut self.0);
    }
}

impl Marks {
    fn new(builder: &ldu::Builder<Counts, ldu::Element<u8>>) -> Self {
        let member = |key| NonNull::from(Box::leak(Box::new(ldu::Element::new(key))));
        let set = ManuallyDrop::new(builder.build(Counts::default()).expect("valid bounds"));
        Self { set, members: (0..110).map(member).collect() }
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // SAFETY: not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.set) };
        for member in self.members.drain(..) {
            // SAFETY: from a box, and the set that knew it is gone.
            drop(unsafe { Box::from_raw(member.as_ptr()) });
        }
    }
}

impl Shared<Set, Toggle> for Marks {
    fn update(&self, Toggle { key, insert }: Toggle) {
        let member = self.members[usize::from(key)];
        // SAFETY: the members outlive the set and are in no other, and the script toggles each in
        // turns that follow each other.
        unsafe { if insert { self.set.insert_raw(member) } else { self.set.remove_raw(member) } }
    }

    fn read(&self) -> Set {
        self.set.read().0.clone()
    }

    fn disturb(&self, how: Disturb) -> Option<Set> {
        match how {
            Disturb::TryRead => return self.set.try_read().ok().map(|guard| guard.0.clone()),
            _ => self.set.synchronize(),
        }
        None
    }
}

#[test]
fn sets_with_marks_are_linearizable() {
    let _alone = env::alone();
    let mut builders = Vec::new();
    for queue in [ldu::Queue::PerThread, ldu::Queue::Global] {
        let plain = ldu::DeferredSet::builder().queue(queue);
        builders.push(plain.clone().max_queued(1));
        builders.push(plain.clone().max_queued(3).max_delay(Duration::from_nanos(1)));
        builders.push(plain);
    }
    let make = |rng: &mut Rng| Marks::new(rng.pick(&builders));
    let until = env::soak(SHARE);
    match run::check::<Set, Toggles, Marks>(env::seed(), until, make) {
        Ok(histories) => println!("set, marks: {histories} histories, {}", Clock::system().mode()),
        Err(violation) => panic!("set, marks: {}", violation.report),
    }
}

/// A log that is slow wherever the library calls it: between an update's stamp and its publication,
/// and between the logs that a read collects.
#[derive(Debug, Default)]
struct Slow<L> {
    log: L,
    calls: u64,
}

impl<L> Slow<L> {
    fn dawdle(&mut self) {
        self.calls += 1;
        let mut rng = Rng::part(std::ptr::from_ref(self) as u64, self.calls);
        match rng.below(16) {
            0 => std::thread::yield_now(),
            1..8 => (0..rng.below(60)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

impl<T, L: Log<T>> Log<T> for Slow<L> {
    type Op = L::Op;
    const ORDERED: bool = L::ORDERED;

    fn apply(op: L::Op, target: &mut T) {
        L::apply(op, target);
    }

    fn push(&mut self, op: L::Op, stamp: Stamp) {
        self.dawdle();
        self.log.push(op, stamp);
    }

    fn len(&self) -> usize {
        self.log.len()
    }

    fn bytes(&self) -> usize {
        self.log.bytes()
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        self.dawdle();
        self.log.collect(cut, &mut into.log);
        self.dawdle();
    }

    fn merge(logs: &mut [Self], target: &mut T) -> usize {
        let mut inner: Vec<L> = logs.iter_mut().map(|slow| std::mem::take(&mut slow.log)).collect();
        let applied = L::merge(&mut inner, target);
        logs.iter_mut().zip(inner).for_each(|(slow, log)| slow.log = log);
        applied
    }
}

// ---- tests of the test ----

/// Runs histories of a broken list until the checker rejects one, and returns its number. `None` if
/// none is rejected within the limit.
fn histories_until_rejected(bug: Bug, limit: Duration) -> Option<u64> {
    let make = |_: &mut Rng| Broken::list(bug);
    let until = Instant::now() + limit;
    let result = run::check::<List, Pushes, Broken<List>>(env::seed(), until, make);
    result.err().map(|violation| violation.number)
}

#[test]
fn checker_accepts_the_small_list_without_a_bug() {
    let _alone = env::alone();
    let rejected = histories_until_rejected(Bug::None, Duration::from_millis(500));
    assert_eq!(rejected, None, "the small list must be right, or its bugs prove nothing");
}

#[test]
fn checker_rejects_reads_without_a_cut() {
    let _alone = env::alone();
    let rejected = histories_until_rejected(Bug::NoCut, Duration::from_secs(60));
    println!("no cut: rejected after {:?} histories", rejected.expect("no history was rejected"));
}

/// Makes a plan of two threads and two objects: each thread updates its own object and reads the
/// other's.
fn crosswise(size: Size, rng: &mut Rng) -> Plan<Add> {
    let thread = |mine: usize, rng: &mut Rng| {
        let pair = [Step::Update { object: mine, update: Add(1) }, Step::Read { object: 1 - mine }];
        (0..size.steps * 2).map(|at| (rng.below(2) as u16, pair[at % 2].clone())).collect()
    };
    let threads = (0..2).map(|mine| thread(mine, rng)).collect();
    Plan { threads, flags: 0, objects: 2 }
}

fn tallies_until_rejected(plain: bool, limit: Duration) -> Option<u64> {
    let until = Instant::now() + limit;
    let size = |_: &mut Rng| Size { threads: 2, steps: 4, objects: 2 };
    let make = |_: &mut Rng| Tally::new(plain);
    let result = run::check_plans::<u64, Add, Tally>(env::seed(), until, size, crosswise, make);
    result.err().map(|violation| violation.number)
}

/// Needs cores with synchronized time stamps: the counter used otherwise would empty the store
/// buffers.
#[test]
fn checker_rejects_publication_by_plain_store() {
    let _alone = env::alone();
    assert_eq!(tallies_until_rejected(false, Duration::from_millis(500)), None);
    if !env::has_two_cores() || Clock::system().mode() != Mode::Synchronized {
        println!("plain store: skipped, needs two cores with synchronized time stamps");
        return;
    }
    match tallies_until_rejected(true, env::UNSEEN) {
        Some(number) => println!("plain store: rejected after {number} histories"),
        None => env::was_not_seen("plain store: it was not caught"),
    }
}

/// Runs rounds of: A by one thread, a flag, B by another thread that learns of the flag as late as
/// possible. Returns how many of `rounds` histories the checker rejects.
///
/// The order is known, so no times are recorded. Recording would take a fenced stamp just before
/// the unfenced one.
fn chains_rejected(bug: Bug, rounds: usize) -> usize {
    let lists: Vec<_> = (0..rounds).map(|_| Broken::list(bug)).collect();
    let (a_is_done, b_is_ready) = ([AtomicUsize::new(0)], AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on_side(0);
            let path = SlowPath::new();
            for (round, list) in lists.iter().enumerate() {
                path.forget();
                b_is_ready.store(round + 1, Ordering::Release);
                while path.follow(&a_is_done).load(Ordering::Acquire) <= round {
                    std::thread::yield_now();
                    path.forget();
                }
                list.update(Push(2));
            }
        });
        scope.spawn(|| {
            on_side(1);
            for (round, list) in lists.iter().enumerate() {
                run::spin_until(|| b_is_ready.load(Ordering::Acquire) > round);
                list.update(Push(1));
                a_is_done[0].store(round + 1, Ordering::Release);
            }
        });
    });
    let event = |thread, call, done| Event { object: 0, thread, call, ret: call + 1, done };
    let history = |list: &Broken<List>| {
        let (first, second) = (Done::Updated(Push(1)), Done::Updated(Push(2)));
        [event(0, 1, first), event(1, 3, second), event(2, 5, Done::Saw(list.read()))]
    };
    lists.iter().filter(|list| !is_linearizable(&history(list))).count()
}

#[test]
fn checker_rejects_unfenced_stamps() {
    let _alone = env::alone();
    assert_eq!(chains_rejected(Bug::None, 500), 0);
    if !env::has_two_cores() || Clock::system().mode() != Mode::Synchronized {
        println!("unfenced stamp: skipped, needs two cores with synchronized time stamps");
        return;
    }
    if cfg!(target_arch = "x86_64") {
        let until = Instant::now() + env::UNSEEN;
        let mut batches = (0..).take_while(|_| Instant::now() < until);
        let found = batches.find_map(|batch| {
            let rejected = chains_rejected(Bug::UnfencedStamp, 500);
            (rejected > 0).then_some((batch, rejected))
        });
        match found {
            Some((batch, rejected)) => {
                println!("unfenced stamp: {rejected} of 500 histories rejected in batch {batch}");
            }
            None => env::was_not_seen("unfenced stamp: it was not caught"),
        }
    }
}
