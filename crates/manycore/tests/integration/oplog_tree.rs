//! The combining tree (`MergeStrategy::Tree`): the same results as the flat merge, whichever thread
//! collects. Also the errors that user code in `absorb` may make.

use manycore::clock::Stamp;
use manycore::oplog::*;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = 6;
const TIME: Duration = Duration::from_millis(300);

fn tree<T: Send + 'static, L: Log<T>>(value: T) -> Deferred<T, L> {
    let builder = Deferred::builder().merge(MergeStrategy::Tree).logs(Logs::Always);
    let object = builder.build(value).expect("settings that can work");
    assert!(object.promote());
    object
}

/// Updates on several threads, each with its own updates, while one more thread reads and checks.
/// Returns how many operations each thread did.
fn race<T: Send + 'static, L: Log<T>>(
    object: &Deferred<T, L>,
    update: impl Fn(u64, u64) -> L::Op + Sync,
    mut check: impl FnMut(&T),
) -> Vec<u64> {
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let updaters: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (done, update) = (&done, &update);
                s.spawn(move || {
                    let mut number = 0;
                    while !done.load(SeqCst) {
                        object.append(update(thread, number));
                        number += 1;
                    }
                    number
                })
            })
            .collect();
        let end = Instant::now() + TIME;
        while Instant::now() < end {
            thread::sleep(Duration::from_micros(500));
            check(&object.read());
        }
        done.store(true, SeqCst);
        updaters.into_iter().map(|updater| updater.join().unwrap()).collect()
    })
}

#[derive(Clone, Copy)]
struct Add(u64, u64);
impl Op<Vec<u64>> for Add {
    fn apply(self, sums: &mut Vec<u64>) {
        sums[self.0 as usize] += self.1;
    }
}
impl Combine for Add {
    type Key = u64;
    fn key(&self) -> u64 {
        self.0
    }
    fn combine(&mut self, other: Self) {
        self.1 += other.1;
    }
}

fn sums_are_complete<L: Log<Vec<u64>, Op = Add>>() {
    let object = tree::<_, L>(vec![0; 40]);
    let mut before = 0;
    let done = race(
        &object,
        |thread, number| Add((thread + number) % 40, 1),
        |sums| {
            let now = sums.iter().sum::<u64>();
            assert!(now >= before, "an update was taken back");
            before = now;
        },
    );
    let stats = object.stats();
    assert_eq!(stats.appended, done.iter().sum::<u64>());
    assert_eq!(stats.appended, stats.applied + stats.absorbed + stats.pending);
    assert_eq!(object.into_inner().iter().sum::<u64>(), done.iter().sum::<u64>());
}

#[test]
fn combined_sums_are_complete() {
    sums_are_complete::<Combining<Add>>();
}

#[test]
fn commuting_sums_are_complete() {
    sums_are_complete::<Commuting<Add>>();
}

#[test]
fn ordered_sums_are_complete() {
    sums_are_complete::<Ordered<Add>>();
}

/// An update that checks that each thread's updates come in their order.
struct Next(u64, u64);
impl Op<Vec<u64>> for Next {
    fn apply(self, next: &mut Vec<u64>) {
        let place = &mut next[self.0 as usize];
        assert_eq!(*place, self.1, "thread {}: lost, twice, or out of order", self.0);
        *place += 1;
    }
}

#[test]
fn ordered_updates_keep_their_order() {
    let object = tree::<_, Ordered<Next>>(vec![0; THREADS as usize]);
    let done = race(&object, Next, |_| ());
    assert_eq!(object.into_inner(), done);
}

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

fn sets_are_right<L: Log<BTreeSet<u64>, Op = Toggle>>() {
    let object = tree::<_, L>(BTreeSet::new());
    let done = race(
        &object,
        |thread, number| Toggle(thread * 100 + number / 2 % 7, number % 2 == 0),
        |set| {
            let of = |thread| set.range(thread * 100..thread * 100 + 100).count();
            assert!((0..THREADS).all(|thread| of(thread) <= 1), "one is there at a time: {set:?}");
        },
    );
    let left = done.iter().filter(|count| *count % 2 == 1).count();
    assert_eq!(object.into_inner().len(), left);
}

#[test]
fn cancelling_sets_are_right() {
    sets_are_right::<Cancelling<Toggle>>();
}

/// A count that, when it is absorbed, runs `ON_ABSORB`.
#[derive(Default)]
struct Count<const N: usize>(u64);

type OnAbsorb = Box<dyn Fn() + Send + Sync>;
static ON_ABSORB: [OnceLock<OnAbsorb>; 3] = [const { OnceLock::new() }; 3];

impl<const N: usize> Log<u64> for Count<N> {
    type Op = u64;
    const ORDERED: bool = false;

    fn apply(add: u64, sum: &mut u64) {
        *sum += add;
    }
    fn push(&mut self, add: u64, _: Stamp) {
        self.0 += add;
    }
    fn len(&self) -> usize {
        usize::from(self.0 != 0)
    }
    /// Slow, so that others run into the closed gate and answer, on however few cores.
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        thread::sleep(Duration::from_millis(2));
        std::mem::swap(self, into);
    }
    fn absorb(&mut self, other: &mut Self) {
        if let Some(f) = ON_ABSORB[N].get() {
            f();
        }
        self.0 += std::mem::take(&mut other.0);
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        logs.iter_mut().map(|log| *sum += std::mem::take(&mut log.0)).count()
    }
}

/// Returns whether a thread can help a reading thread. On one processor it does not run at that
/// time.
fn are_several_processors() -> bool {
    thread::available_parallelism().map_or(1, NonZero::get) > 1
}

/// Updates on several threads until a read panics, and returns its message. No update may be lost.
fn panic_of_a_read<const N: usize>(object: &Deferred<u64, Count<N>>) -> String {
    let done = AtomicBool::new(false);
    let added = AtomicU64::new(0);
    let panic = thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                while !done.load(SeqCst) {
                    object.append(1);
                    added.fetch_add(1, SeqCst);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(60);
        let mut panic = None;
        while panic.is_none() && Instant::now() < until {
            // Updates come between reads, so that several threads have some.
            thread::sleep(Duration::from_millis(1));
            panic = catch_unwind(AssertUnwindSafe(|| drop(object.read()))).err();
        }
        done.store(true, SeqCst);
        panic.expect("no thread absorbed anything in a minute")
    });
    assert!(object.is_poisoned());
    object.clear_poison();
    assert_eq!(*object.read(), added.load(SeqCst));
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| {
        panic.downcast_ref::<&str>().map_or_else(String::new, |said| (*said).to_owned())
    })
}

#[test]
fn panic_in_absorb_reaches_the_reader_and_loses_nothing() {
    if !are_several_processors() {
        return;
    }
    let panicked = AtomicBool::new(false);
    let once = move || assert!(panicked.swap(true, SeqCst), "planned");
    assert!(ON_ABSORB[0].set(Box::new(once)).is_ok());
    assert_eq!(panic_of_a_read(&tree::<_, Count<0>>(0)), "planned");
}

#[test]
fn update_from_within_absorb_is_queued() {
    if !are_several_processors() {
        return;
    }
    let object = Arc::new(tree::<_, Count<1>>(0));
    let again = Arc::downgrade(&object);
    static TRIED: AtomicBool = AtomicBool::new(false);
    let update = move || {
        if !TRIED.swap(true, SeqCst) {
            again.upgrade().expect("it is there").append(1);
        }
    };
    assert!(ON_ABSORB[1].set(Box::new(update)).is_ok());
    let until = Instant::now() + Duration::from_secs(60);
    let mut updates = 0;
    while !TRIED.load(SeqCst) && Instant::now() < until {
        updates += race(&object, |_, _| 1, |_| ()).iter().sum::<u64>();
    }
    assert!(TRIED.load(SeqCst), "no helper absorbed anything in a minute");
    assert_eq!(*object.read(), updates + 1);
}

#[test]
fn helpers_absorb_in_a_tree_and_not_in_a_flat_merge() {
    static ABSORBED: AtomicU64 = AtomicU64::new(0);
    let count = || {
        ABSORBED.fetch_add(1, SeqCst);
    };
    assert!(ON_ABSORB[2].set(Box::new(count)).is_ok());
    let flat = Deferred::<u64, Count<2>>::builder().merge(MergeStrategy::Flat).logs(Logs::Always);
    let flat = flat.build(0).expect("settings that can work");
    let done = race(&flat, |_, _| 1, |_| ());
    assert_eq!(flat.into_inner(), done.iter().sum::<u64>());
    assert_eq!(ABSORBED.load(SeqCst), 0, "the reader collects by itself");
    let until = Instant::now() + Duration::from_secs(60);
    while ABSORBED.load(SeqCst) == 0 && are_several_processors() && Instant::now() < until {
        let tree = tree::<_, Count<2>>(0);
        let done = race(&tree, |_, _| 1, |_| ());
        assert_eq!(tree.into_inner(), done.iter().sum::<u64>());
    }
    let helped = ABSORBED.load(SeqCst) != 0;
    assert!(helped || !are_several_processors(), "no thread has helped");
}
