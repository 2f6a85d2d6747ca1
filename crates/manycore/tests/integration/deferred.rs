//! `Deferred` as a user sees it: every law of `manycore::oplog` that a program can observe.

use crate::common::steps::Stepped;
use manycore::oplog::*;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// An update that appends to a list, where the order shows.
struct Push(u64);
impl Op<Vec<u64>> for Push {
    fn apply(self, list: &mut Vec<u64>) {
        assert_ne!(self.0, PANICS, "planned panic");
        list.push(self.0);
    }
}
const PANICS: u64 = u64::MAX;

struct Add(u64);
impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}
impl Combine for Add {
    type Key = ();
    fn key(&self) {}
    fn combine(&mut self, other: Self) {
        self.0 += other.0;
    }
}

type List = Deferred<Vec<u64>, Ordered<Push>>;
type Sum = Deferred<u64, Commuting<Add>>;

fn hot_list() -> List {
    List::builder().logs(Logs::Always).build(Vec::new()).unwrap()
}

/// Makes a table for objects with checked statistics. Other tests' objects then evict none of them;
/// an eviction would restart the statistics.
fn own_table() -> Arc<LogTable> {
    Arc::new(LogTable::new(64))
}

#[test]
fn cold_object_applies_at_once_and_costs_sixteen_bytes() {
    let list = List::new(Vec::new());
    list.append(Push(1));
    assert!(!list.is_hot());
    assert_eq!(*list.read(), [1]);
    assert_eq!(size_of::<Sum>(), size_of::<u64>() + 16);
    assert_eq!(list.stats(), Stats::default());
}

#[test]
fn promoted_object_logs_and_demoted_object_does_not() {
    let list = List::new(vec![0]);
    assert!(list.promote());
    assert!(list.is_hot());
    list.append(Push(1));
    list.append(Push(2));
    assert_eq!(list.stats().pending, 2);
    assert_eq!(*list.read(), [0, 1, 2]);
    let stats = list.stats();
    assert_eq!((stats.appended, stats.applied, stats.pending, stats.logs), (2, 2, 0, 1));
    list.append(Push(3));
    list.demote();
    assert!(!list.is_hot());
    assert_eq!(list.into_inner(), [0, 1, 2, 3]);
}

/// An update that lets other threads run while it is applied, so that they find the object in use.
struct SlowAdd(u64);
impl Op<u64> for SlowAdd {
    fn apply(self, sum: &mut u64) {
        thread::yield_now();
        *sum += self.0;
    }
}

#[test]
fn contention_promotes_and_idle_reads_demote() {
    let sum = Deferred::<u64, Ordered<SlowAdd>>::new(0);
    let total = AtomicUsize::new(0);
    let barrier = Barrier::new(2);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                barrier.wait();
                while !sum.is_hot() && total.fetch_add(1, SeqCst) < 10_000_000 {
                    sum.append(SlowAdd(1));
                }
            });
        }
    });
    assert!(sum.is_hot(), "two contending threads never promoted the object");
    assert_eq!(*sum.read(), total.load(SeqCst) as u64);
    for _ in 0..20 {
        sum.synchronize();
    }
    assert!(!sum.is_hot(), "twenty idle reads did not demote it");
    assert_eq!(sum.into_inner(), total.into_inner() as u64);
}

#[test]
fn reads_as_frequent_as_updates_never_promote() {
    let sum = Sum::new(0);
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..100_000 {
                    sum.append(Add(1));
                    std::hint::black_box(*sum.read());
                }
            });
        }
    });
    assert!(!sum.is_hot());
    assert_eq!(*sum.read(), 300_000);
}

#[test]
fn every_publication_counts_every_update() {
    for publish in [Publish::Auto, Publish::Locked, Publish::Biased] {
        let sum = Sum::builder().logs(Logs::Always).publish(publish).build(0).unwrap();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..200_000).for_each(|_| sum.append(Add(1))));
            }
            s.spawn(|| {
                let mut last = 0;
                for _ in 0..300 {
                    let now = *sum.read();
                    assert!(now >= last, "a later read saw less");
                    last = now;
                }
            });
        });
        assert_eq!(*sum.read(), 800_000, "{publish:?}");
    }
}

#[test]
fn values_appended_in_turn_on_many_slots_keep_their_order() {
    const THREADS: usize = 40;
    let list = Arc::new(hot_list());
    // The second round's threads take over the slots, and the logs, of the first one's.
    for round in 0..2 {
        let threads = Stepped::new(THREADS);
        let turn = |turn| {
            let list = Arc::clone(&list);
            // In neither order of the slots.
            threads.on(turn * 7 % THREADS, move || {
                list.append(Push((round * THREADS + turn) as u64));
                manycore::percpu::current_slot()
            })
        };
        let slots: HashSet<usize> = (0..THREADS).map(turn).collect();
        assert_eq!(slots.len(), THREADS, "each thread has a slot of its own");
    }
    assert_eq!(*list.read(), (0..2 * THREADS as u64).collect::<Vec<_>>());
}

#[test]
fn threads_that_exit_leave_their_full_logs_behind() {
    let list = List::builder().logs(Logs::Always).max_entries(8).build(Vec::new()).unwrap();
    for chunk in 0..10 {
        thread::scope(|s| {
            s.spawn(|| (0..8).for_each(|i| list.append(Push(chunk * 8 + i))));
        });
    }
    assert_eq!(*list.read(), (0..80).collect::<Vec<_>>());
}

#[test]
fn many_more_threads_than_cores() {
    let sum = Sum::builder().logs(Logs::Always).build(0).unwrap();
    thread::scope(|s| {
        for _ in 0..300 {
            s.spawn(|| (0..100).for_each(|_| sum.append(Add(1))));
        }
    });
    assert_eq!(*sum.read(), 30_000);
}

#[test]
fn full_log_drains_grows_or_waits() {
    let drains =
        Sum::builder().logs(Logs::Always).table(own_table()).max_entries(10).build(0).unwrap();
    (0..1000).for_each(|_| drains.append(Add(1)));
    let stats = drains.stats();
    assert!(stats.pending <= 10 && stats.merges >= 99, "{stats:?}");
    assert_eq!(*drains.read(), 1000);
}

#[test]
fn byte_bound_and_time_bound_hold() {
    let bytes =
        Sum::builder().logs(Logs::Always).table(own_table()).max_bytes(80).build(0).unwrap();
    (0..100).for_each(|_| bytes.append(Add(1)));
    assert!(bytes.stats().pending <= 10);

    let time = Sum::builder()
        .logs(Logs::Always)
        .table(own_table())
        .max_delay(Duration::from_millis(5))
        .build(0)
        .unwrap();
    time.append(Add(1));
    thread::sleep(Duration::from_millis(20));
    time.append(Add(1));
    assert_eq!(time.stats().pending, 1, "the overdue update was not applied");
}

#[test]
fn busy_object_lets_logs_grow_and_loses_nothing() {
    let sum = Sum::builder().logs(Logs::Always).max_entries(10).growth(3).build(0).unwrap();
    sum.append(Add(1));
    let guard = sum.read();
    let count = AtomicUsize::new(1);
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..40 {
                sum.append(Add(1));
                count.fetch_add(1, SeqCst);
            }
        });
        while count.load(SeqCst) < 31 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count.load(SeqCst), 31, "the log grew past three times its bound");
        drop(guard);
    });
    assert_eq!(*sum.read(), 41);
}

#[test]
fn panic_in_apply_reaches_the_reader_and_keeps_the_rest() {
    let list = hot_list();
    for value in [1, 2, PANICS, 3, 4] {
        list.append(Push(value));
    }
    let panic = catch_unwind(AssertUnwindSafe(|| drop(list.read())));
    assert!(panic.is_err());
    assert!(list.is_poisoned());
    thread::scope(|s| {
        s.spawn(|| list.append(Push(5))); // another thread's update is kept too
    });
    assert!(matches!(list.try_read(), Err(TryReadError::Poisoned)));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(list.read()))).is_err());
    assert_eq!(*list.read_poisoned(), [1, 2]);
    list.clear_poison();
    assert_eq!(*list.read(), [1, 2, 3, 4, 5]);
}

#[test]
fn panic_in_a_cold_update_reaches_its_caller_and_later_updates_are_queued() {
    let list = List::new(vec![]);
    assert!(catch_unwind(AssertUnwindSafe(|| list.append(Push(PANICS)))).is_err());
    assert!(list.is_poisoned());
    list.append(Push(1));
    assert!(matches!(list.try_read(), Err(TryReadError::Poisoned)));
    list.clear_poison();
    assert_eq!(*list.read(), [1]);
}

#[test]
fn read_while_another_thread_clears_poison_misses_nothing() {
    let list = hot_list();
    let cleared = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..300 {
                list.append(Push(PANICS));
                thread::yield_now();
                list.clear_poison();
            }
            cleared.store(true, SeqCst);
        });
        let mut value = 0;
        while !cleared.load(SeqCst) {
            value += 1;
            list.append(Push(value));
            // Fails while the object is poisoned; if it does not, it must show the update.
            if let Ok(guard) = catch_unwind(AssertUnwindSafe(|| list.read())) {
                assert_eq!(guard.last(), Some(&value), "a read without an update before it");
            }
        }
    });
    // Dropped as it is, it would apply what is queued and panic once more.
    while catch_unwind(AssertUnwindSafe(|| list.synchronize())).is_err() {
        list.clear_poison();
    }
}

#[test]
fn panicking_reader_poisons() {
    for logs in [Logs::Auto, Logs::Always] {
        let list = List::builder().logs(logs).build(vec![]).unwrap();
        list.append(Push(1));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = list.read();
            guard.clear();
            panic!("reader");
        }));
        assert!(panic.is_err());
        assert!(list.is_poisoned(), "{logs:?}");
        list.append(Push(2));
        list.clear_poison();
        assert_eq!(*list.read(), [2]);
    }
}

#[test]
fn append_from_within_apply_is_applied_by_the_next_read() {
    type Update = Box<dyn FnOnce(&mut Vec<u64>) + Send>;
    type Echoes = Deferred<Vec<u64>, Ordered<Update>>;
    fn echo(list: Arc<Echoes>, value: u64) -> Update {
        Box::new(move |target| {
            target.push(value);
            if value < 3 {
                list.append(echo(Arc::clone(&list), value + 1));
            }
        })
    }
    for logs in [Logs::Auto, Logs::Always] {
        let list: Arc<Echoes> = Arc::new(Deferred::builder().logs(logs).build(vec![]).unwrap());
        list.append(echo(Arc::clone(&list), 0));
        let lengths: Vec<usize> = (0..4).map(|_| list.read().len()).collect();
        assert!(lengths.is_sorted(), "{lengths:?}");
        assert_eq!(*list.read(), [0, 1, 2, 3], "{logs:?}");
    }
}

#[test]
fn append_under_a_guard_is_logged() {
    for logs in [Logs::Auto, Logs::Always, Logs::Never] {
        let list = List::builder().logs(logs).build(vec![]).unwrap();
        let mut guard = list.read();
        guard.push(7);
        list.append(Push(8));
        assert_eq!(*guard, [7]);
        drop(guard);
        assert_eq!(*list.read(), [7, 8], "{logs:?}");
    }
}

#[test]
fn read_under_a_guard_panics_instead_of_waiting() {
    for logs in [Logs::Auto, Logs::Always] {
        let list = List::builder().logs(logs).build(vec![]).unwrap();
        list.append(Push(1));
        let guard = list.read();
        assert!(matches!(list.try_read(), Err(TryReadError::Busy)));
        let panic = catch_unwind(AssertUnwindSafe(|| drop(list.read()))).unwrap_err();
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap();
        assert!(message.contains("holds the object already"), "{message}");
        assert_eq!(guard.len(), 1);
    }
}

#[test]
fn drop_applies_what_is_pending() {
    struct Probe(Arc<AtomicUsize>);
    impl Op<Vec<Probe>> for Probe {
        fn apply(self, list: &mut Vec<Probe>) {
            self.0.fetch_add(100, SeqCst);
            list.push(self);
        }
    }
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let builder = Deferred::<Vec<Probe>, Ordered<Probe>>::builder().logs(Logs::Always);
    let list = builder.build(vec![]).unwrap();
    (0..5).for_each(|_| list.append(Probe(Arc::clone(&count))));
    assert_eq!(count.load(SeqCst), 0);
    drop(list);
    assert_eq!(count.load(SeqCst), 505, "five applied, five dropped, once each");
}

#[test]
fn evicting_a_victim_whose_update_panics_does_not_hurt_the_newcomer() {
    let table = Arc::new(LogTable::new(1));
    let builder = List::builder().logs(Logs::Always).table(table);
    let (victim, newcomer) = (builder.build(vec![]).unwrap(), builder.build(vec![]).unwrap());
    for value in [1, PANICS, 2] {
        victim.append(Push(value));
    }
    newcomer.append(Push(9));
    assert_eq!(*newcomer.read(), [9]);
    assert!(victim.is_poisoned());
    victim.append(Push(3));
    assert!(matches!(victim.try_read(), Err(TryReadError::Poisoned)));
    victim.clear_poison();
    assert_eq!(*victim.read(), [1, 2, 3]);
}

#[test]
fn combining_log_keeps_one_entry() {
    let sum = Deferred::<u64, Combining<Add>>::builder()
        .logs(Logs::Always)
        .table(own_table())
        .build(0)
        .unwrap();
    (0..1000).for_each(|_| sum.append(Add(1)));
    assert_eq!(sum.stats().pending, 1000);
    assert_eq!(*sum.read(), 1000);
    assert_eq!((sum.stats().absorbed, sum.stats().applied), (999, 1));
}

#[test]
fn objects_move_while_they_have_logs() {
    let sum = Sum::builder().logs(Logs::Always).build(0).unwrap();
    sum.append(Add(1));
    let mut moved = Box::new(sum);
    moved.append(Add(1));
    assert_eq!(*moved.get_mut(), 2);
    moved.append(Add(1));
    assert_eq!(moved.into_inner(), 3);
}

#[test]
fn builder_refuses_what_cannot_work() {
    assert_eq!(
        Sum::builder().max_entries(0).build(0).unwrap_err(),
        BuildError::Zero("max_entries")
    );
    assert_eq!(Sum::builder().max_bytes(0).build(0).unwrap_err(), BuildError::Zero("max_bytes"));
    assert_eq!(
        Sum::builder().max_delay(Duration::ZERO).build(0).unwrap_err(),
        BuildError::Zero("max_delay")
    );
    assert_eq!(
        Sum::builder().max_entries(usize::MAX).build(0).unwrap_err(),
        BuildError::TooLarge("max_entries")
    );
    assert_eq!(
        Sum::builder().max_bytes(7).build(0).unwrap_err(),
        BuildError::BytesBelowOneEntry { max_bytes: 7, entry: 8 }
    );
    let growth = |growth| Sum::builder().growth(growth).build(0);
    assert_eq!(growth(0).unwrap_err(), BuildError::Zero("growth"));
    assert!(growth(1).is_ok());
}

/// A log that updates its own object again from its push.
#[derive(Default)]
struct Echoing {
    kept: u64,
}
static ECHOING: std::sync::OnceLock<Deferred<u64, Echoing>> = std::sync::OnceLock::new();
impl Log<u64> for Echoing {
    type Op = bool;
    const ORDERED: bool = false;
    fn apply(_: bool, sum: &mut u64) {
        *sum += 1;
    }
    fn push(&mut self, again: bool, _: manycore::clock::Stamp) {
        self.kept += 1;
        if again {
            ECHOING.get().unwrap().append(false);
        }
    }
    fn len(&self) -> usize {
        self.kept as usize
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        let all: u64 = logs.iter_mut().map(|log| std::mem::take(&mut log.kept)).sum();
        *sum += all;
        all as usize
    }
}

#[test]
fn update_from_within_a_push_goes_to_another_log() {
    let builder = Deferred::builder().logs(Logs::Always).table(own_table());
    let object = ECHOING.get_or_init(|| builder.build(0).unwrap());
    (0..10).for_each(|_| object.append(true));
    assert_eq!(*object.read(), 20);
    assert_eq!(object.stats().logs, 2);
}
