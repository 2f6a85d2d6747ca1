//! Exchanges implementations while they are used: conformance of a family, linearizability and
//! stress while the object is swapped, wrappers, and errors of user code.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::family::{Brittle, Locked, Sharded, SharedTable, Table, make};
use crate::common::rng::Rng;
use manycore::cluster::{Family, SwapFailure, Swappable};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

fn ignore<T>(_: T) {}

const SHARE: Duration = Duration::from_millis(450);

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Get(u32),
    Insert(u32, u32),
    Remove(u32),
    Add(u32, u32),
    /// A look at the first key and then, from within that call, at the second.
    Nested(u32, u32),
    /// To another implementation.
    Swap(usize),
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Values(BTreeMap<u32, u32>);

impl Model for Values {
    type Call = Call;
    type Answer = Option<u32>;

    fn call(rng: &mut Rng) -> Call {
        let (key, number) = (rng.below(2) as u32, rng.below(100) as u32);
        match rng.below(9) {
            0 | 1 => Call::Get(key),
            2 => Call::Insert(key, number),
            3 => Call::Remove(key),
            4 | 5 => Call::Add(key, number),
            6 => Call::Nested(key, rng.below(2) as u32),
            _ => Call::Swap(rng.below(4)),
        }
    }

    fn answer(&mut self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) | Call::Nested(_, key) => self.0.get(&key).copied(),
            Call::Insert(key, number) => self.0.insert(key, number),
            Call::Remove(key) => self.0.remove(&key),
            Call::Add(key, more) => {
                *self.0.entry(key).or_default() += more;
                None
            }
            Call::Swap(_) => None,
        }
    }
}

impl Subject<Values> for SharedTable {
    fn answer(&self, call: &Call) -> Option<u32> {
        match *call {
            Call::Get(key) => self.get(key),
            Call::Insert(key, number) => self.insert(key, number),
            Call::Remove(key) => self.remove(key),
            Call::Add(key, more) => {
                self.add(key, more);
                None
            }
            Call::Nested(first, second) => self.call(|table| {
                table.get(first);
                self.get(second)
            }),
            Call::Swap(which) => {
                match self.swap(make(which)) {
                    Ok(_) => (),
                    Err(error) => assert!(matches!(error, SwapFailure::Busy), "{error}"),
                }
                None
            }
        }
    }
}

#[test]
fn histories_of_a_swapped_object_are_linearizable() {
    let _alone = env::alone();
    let until = env::soak(SHARE);
    let make = |_: &mut Rng| SharedTable::new(Locked::default());
    match calls::check::<Values, _>(env::seed(), until, make) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// The checker notices an object that loses its content in an exchange.
#[test]
fn exchange_that_forgets_is_not_linearizable() {
    let _alone = env::alone();
    struct Forgetful(SharedTable);
    impl Subject<Values> for Forgetful {
        fn answer(&self, call: &Call) -> Option<u32> {
            if let Call::Swap(_) = call {
                (0..2).for_each(|key| ignore(self.0.remove(key)));
                return None;
            }
            Subject::answer(&self.0, call)
        }
    }
    let until = env::deadline("MANYCORE_SOAK", Duration::from_secs(20));
    let make = |_: &mut Rng| Forgetful(SharedTable::new(Locked::default()));
    assert!(calls::check::<Values, _>(env::seed(), until, make).is_err());
}

/// Runs one suite on each implementation, alone and exchanged for each other while it runs (K42,
/// section 4.4).
#[test]
fn every_implementation_conforms_alone_and_exchanged() {
    for first in 0..4 {
        for second in [None, Some(0), Some(1), Some(2), Some(3)] {
            let object = Swappable::new(make(first));
            let (mut model, mut rng) = (Values::default(), Rng::new(7));
            for step in 0..400 {
                let call = Values::call(&mut rng);
                let answer = object.call(|table| match call {
                    Call::Insert(key, number) => table.insert(key, number),
                    Call::Remove(key) => table.remove(key),
                    Call::Add(key, more) => {
                        table.add(key, more);
                        None
                    }
                    Call::Get(key) | Call::Nested(_, key) => table.get(key),
                    Call::Swap(_) => None,
                });
                let expected = model.answer(&call);
                assert_eq!(answer, expected, "{first}, {second:?}, step {step}: {call:?}");
                if let Some(second) = second.filter(|_| step % 16 == 0) {
                    object.swap(make(if step % 32 == 0 { second } else { first })).unwrap();
                }
            }
        }
    }
}

/// Threads add by calls and nested calls while the object is swapped every millisecond.
/// Nothing is lost or done twice.
#[test]
fn nothing_is_lost_while_the_object_is_swapped_every_millisecond() {
    const THREADS: usize = 3;
    const KEYS: u32 = 4;
    let _alone = env::alone();
    let until = env::soak(SHARE);
    let table = SharedTable::new(Locked::default());
    let other = SharedTable::new(Sharded::default());
    let over = AtomicBool::new(false);
    let mut swaps = 0;
    let work = |thread: usize| {
        let mut rng = Rng::part(env::seed(), thread as u64);
        let mut done = 0;
        while !over.load(Relaxed) {
            let key = rng.below(KEYS as usize) as u32;
            match rng.below(3) {
                0 => table.add(key, 1),
                1 => table.call(|_| table.call(|table| table.add(key, 1))),
                _ => other.call(|other| {
                    other.get(key);
                    table.add(key, 1);
                }),
            }
            done += 1;
        }
        done
    };
    let done: u32 = thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        while std::time::Instant::now() < until {
            table.swap(make(swaps)).unwrap();
            swaps += 1;
            if swaps % 4 == 0 {
                other.swap(make(swaps / 4)).unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    println!("{done} updates, {swaps} swaps");
    assert_eq!((0..KEYS).filter_map(|key| table.get(key)).sum::<u32>(), done);
}

/// Two objects call each other while both are swapped.
#[test]
fn objects_that_call_each_other_are_swapped_without_a_standstill() {
    let _alone = env::alone();
    let until = env::soak(SHARE);
    let tables = [SharedTable::new(Locked::default()), SharedTable::new(Sharded::default())];
    let over = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    let swapper = |table: &SharedTable| {
        let mut swaps = 0;
        while std::time::Instant::now() < until {
            table.swap(make(swaps)).unwrap();
            swaps += 1;
        }
    };
    thread::scope(|scope| {
        for thread in 0..3 {
            let (tables, over, calls) = (&tables, &over, &calls);
            scope.spawn(move || {
                let (mine, other) = (&tables[thread % 2], &tables[(thread + 1) % 2]);
                while !over.load(Relaxed) {
                    mine.call(|_| other.call(|_| mine.call(|table| table.add(0, 1))));
                    calls.fetch_add(1, Relaxed);
                }
            });
        }
        let second = scope.spawn(|| swapper(&tables[1]));
        swapper(&tables[0]);
        second.join().unwrap();
        over.store(true, Relaxed);
    });
    let sum: u32 = tables.iter().filter_map(|table| table.get(0)).sum();
    assert_eq!(sum as usize, calls.load(Relaxed));
}

fn refused<T>(result: Result<T, SwapFailure>) -> SwapFailure {
    result.err().expect("refused")
}

#[test]
fn swap_from_within_a_call_is_refused() {
    let table = SharedTable::new(Locked::default());
    let other = SharedTable::new(Locked::default());
    table.insert(1, 2);
    for object in [&table, &other] {
        let reason = table.call(|_| refused(object.swap(make(1))));
        assert!(matches!(reason, SwapFailure::InsideCall), "{reason}");
    }
    assert!(table.call(|_| table.watch(|_| ())).is_err());
    table.swap(make(1)).unwrap();
    assert_eq!(table.get(1), Some(2));
}

#[test]
fn second_swapper_is_told_and_a_long_call_is_not_waited_for_in_vain() {
    let table = SharedTable::new(Locked::default());
    let (enter, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel();
    thread::scope(|scope| {
        let table = &table;
        scope.spawn(move || {
            table.call(|table| {
                enter.send(()).unwrap();
                left.recv().unwrap();
                table.insert(1, 1);
            });
        });
        entered.recv().unwrap();
        let patience = Duration::from_millis(5);
        assert!(matches!(refused(table.swap_within(make(1), patience)), SwapFailure::TimedOut));
        assert_eq!(table.insert(2, 2), None, "the old implementation goes on");
        let swapper = scope.spawn(move || table.swap(make(1)).unwrap());
        while !format!("{table:?}").contains("is_closed: true") {
            thread::yield_now();
        }
        assert!(matches!(refused(table.swap(make(2))), SwapFailure::Busy));
        leave.send(()).unwrap();
        swapper.join().unwrap();
    });
    let numbers: Vec<_> = (1..=2).map(|key| table.get(key)).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
}

#[test]
fn transfer_that_panics_leaves_the_old_implementation_open() {
    let first = Brittle::default();
    first.in_export.store(true, Relaxed);
    let table = SharedTable::new(first);
    table.insert(1, 10);
    for which in 0..3 {
        match refused(table.swap(make(which))) {
            SwapFailure::Panicked(payload) => {
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"brittle in export"));
            }
            other => panic!("{other}"),
        }
        table.add(1, 1);
    }
    assert_eq!(table.get(1), Some(13));

    let table = SharedTable::new(Sharded::default());
    table.insert(1, 10);
    let new = Brittle::default();
    new.in_import.store(true, Relaxed);
    let reason = refused(table.swap(Arc::new(new)));
    assert!(reason.to_string().contains("brittle in import"), "{reason}");
    assert_eq!(table.get(1), Some(10));
    table.swap(make(0)).unwrap();
    assert_eq!(table.get(1), Some(10));
}

#[test]
fn call_that_panics_changes_nothing() {
    let table = SharedTable::new(Locked::default());
    let call = || table.call(|_| table.call(|_| panic!("inside")));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    table.swap(make(1)).unwrap();
}

#[test]
fn transfer_that_calls_is_told() {
    struct Calling(Arc<Swappable<dyn Table>>);
    impl Family for Calling {
        type Part = Vec<(u32, u32)>;
        fn export(&self, _: usize) -> Self::Part {
            self.0.call(|table| table.export(0))
        }
        fn import(&self, _: Self::Part) {}
    }
    impl Table for Calling {
        fn get(&self, key: u32) -> Option<u32> {
            self.0.call(|table| table.get(key))
        }
        fn insert(&self, key: u32, number: u32) -> Option<u32> {
            self.0.call(|table| table.insert(key, number))
        }
        fn remove(&self, key: u32) -> Option<u32> {
            self.0.call(|table| table.remove(key))
        }
        fn add(&self, key: u32, more: u32) {
            self.0.call(|table| table.add(key, more));
        }
    }
    let inner = Arc::new(Swappable::new(make(0)));
    let table = SharedTable::new(Calling(inner));
    assert_eq!(table.insert(1, 2), None, "a call may call");
    let reason = refused(table.swap(make(0)));
    assert!(reason.to_string().contains("would wait for itself"), "{reason}");
    assert_eq!(table.get(1), Some(2));
}

#[test]
fn watcher_sees_every_call_until_it_is_removed() {
    let table = SharedTable::new(Locked::default());
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let watch = |count: &Arc<AtomicUsize>| {
        let count = Arc::clone(count);
        table.watch(move |_| ignore(count.fetch_add(1, Relaxed))).unwrap()
    };
    let rounds = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    table.insert(1, 1);
                    table.add(2, 1);
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        let let_them_call = || {
            let before = rounds.load(Relaxed);
            while rounds.load(Relaxed) < before + 100 {
                thread::yield_now();
            }
        };
        watch(&counts[0]);
        let_them_call();
        table.swap(make(1)).unwrap();
        let before = counts[0].load(Relaxed);
        let_them_call();
        assert!(counts[0].load(Relaxed) >= before + 150, "the new implementation is not watched");
        watch(&counts[1]);
        let seen = counts[0].load(Relaxed);
        assert!(seen >= 200, "{seen}");
        let_them_call();
        assert_eq!(counts[0].load(Relaxed), seen, "replaced, and still watching");
        table.withdraw().unwrap();
        let seen = counts[1].load(Relaxed);
        assert!(seen >= 100, "{seen}");
        let_them_call();
        assert_eq!(counts[1].load(Relaxed), seen, "removed, and still watching");
        over.store(true, Relaxed);
        table.withdraw().unwrap();
    });
    let before = counts[1].load(Relaxed);
    watch(&counts[1]);
    (0..10).for_each(|key| ignore(table.get(key)));
    table.withdraw().unwrap();
    table.get(0);
    assert_eq!(counts[1].load(Relaxed), before + 10, "neither more nor less");
}

#[test]
fn wrapper_that_panics_is_not_put_in() {
    let table = SharedTable::new(Locked::default());
    table.insert(1, 2);
    let wrap = |_: Arc<dyn Table>| -> Arc<dyn Table> { panic!("no wrapper") };
    assert!(matches!(table.interpose(wrap), Err(SwapFailure::Panicked(_))));
    assert_eq!(table.get(1), Some(2));
    table.swap(make(2)).unwrap();
    assert_eq!(table.get(1), Some(2));
}

/// Calls from a thread-local's destructor, when the thread no longer has a slot.
#[test]
fn thread_that_is_ending_still_calls() {
    struct AtEnd(Option<Arc<SharedTable>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some(table) = self.0.take() {
                table.call(|_| table.add(1, 1));
            }
        }
    }
    thread_local!(static END: std::cell::RefCell<AtEnd> = const {
        std::cell::RefCell::new(AtEnd(None))
    });
    let table = Arc::new(SharedTable::new(Locked::default()));
    thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            for which in 0..50 {
                table.swap(make(which)).unwrap();
            }
        });
        for _ in 0..20 {
            let table = Arc::clone(&table);
            let body = move || END.with(|end| end.borrow_mut().0 = Some(table));
            thread::spawn(body).join().unwrap();
        }
        swapper.join().unwrap();
    });
    assert_eq!(table.get(1), Some(20));
}

/// A value that a wrapper keeps. When it is dropped, it calls the table, and then may panic.
struct Keepsake {
    table: Arc<SharedTable>,
    panics: bool,
}

impl Drop for Keepsake {
    fn drop(&mut self) {
        self.table.call(|table| table.add(9, 1));
        self.table.swap(make(1)).unwrap(); // no other thread swaps any more
        assert!(!self.panics, "in the wrapper's drop");
    }
}

#[test]
fn removed_wrapper_is_dropped_when_calls_go_on() {
    let table = Arc::new(SharedTable::new(Locked::default()));
    table.insert(1, 2);
    let interpose = |panics, fails: bool| {
        let keepsake = Keepsake { table: Arc::clone(&table), panics };
        table.interpose(move |inner| {
            assert!(!fails && Arc::strong_count(&keepsake.table) > 1, "no wrapper");
            inner
        })
    };
    interpose(false, false).unwrap();
    table.withdraw().unwrap();
    assert_eq!(table.get(9), Some(1));
    assert!(interpose(false, true).is_err());
    assert_eq!(table.get(9), Some(2));

    interpose(true, false).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| table.withdraw())).is_err());
    table.withdraw().unwrap(); // it is gone: nothing is dropped again
    table.swap(make(2)).unwrap();
    assert_eq!((table.get(1), table.get(9)), (Some(2), Some(3)), "the object goes on");
}
