//! User-defined logs that misbehave: a read from within a push, at any depth, and a panic in
//! `collect`.

use manycore::clock::Stamp;
use manycore::oplog::{Deferred, Log, Logs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// A log that runs each update within `push`.
#[derive(Default)]
struct Meddling(usize);

type Object = Deferred<usize, Meddling>;
type Meddle = Box<dyn FnOnce() + Send>;

impl Log<usize> for Meddling {
    type Op = Meddle;
    const ORDERED: bool = false;

    fn apply(meddle: Meddle, count: &mut usize) {
        meddle();
        *count += 1;
    }
    fn push(&mut self, meddle: Meddle, _: Stamp) {
        meddle();
        self.0 += 1;
    }
    fn len(&self) -> usize {
        self.0
    }
    fn merge(logs: &mut [Self], count: &mut usize) -> usize {
        logs.iter_mut().map(|log| std::mem::take(&mut log.0)).inspect(|more| *count += more).sum()
    }
}

/// A log that relies on every promise in its documentation.
#[derive(Default)]
struct Trusting(Vec<usize>);

impl Log<usize> for Trusting {
    type Op = usize;
    const ORDERED: bool = false;

    fn apply(more: usize, sum: &mut usize) {
        *sum += more;
    }
    fn push(&mut self, more: usize, _: Stamp) {
        self.0.push(more);
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn merge(logs: &mut [Self], sum: &mut usize) -> usize {
        logs.iter_mut().fold(0, |merged, log| {
            assert!(!log.0.is_empty(), "a log of a slot that had no updates");
            *sum += log.0.iter().sum::<usize>();
            merged + std::mem::take(&mut log.0).len()
        })
    }
}

#[test]
fn merge_gets_no_empty_log_whatever_threads_read() {
    let sum = Deferred::<usize, Trusting>::builder().logs(Logs::Always).build(0).unwrap();
    for round in 1..=3 {
        (0..3).for_each(|_| assert_eq!(*sum.read(), 2 * (round - 1)));
        sum.append(1);
        (0..3).for_each(|_| assert_eq!(*sum.read(), 2 * round - 1));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(*sum.read(), 2 * round - 1);
                sum.append(1);
                (0..3).for_each(|_| assert_eq!(*sum.read(), 2 * round));
            });
        });
    }
}

fn nothing() -> Meddle {
    Box::new(|| ())
}

fn logged<L: Log<usize>>() -> Arc<Deferred<usize, L>> {
    Arc::new(Deferred::builder().logs(Logs::Always).build(0).expect("settings that can work"))
}

#[test]
fn read_from_within_a_push_within_a_push_is_reported() {
    let (outer, inner): (Arc<Object>, Arc<Object>) = (logged(), logged());
    outer.append(nothing());
    inner.append(nothing());
    let read = {
        let inner = Arc::clone(&inner);
        move || drop(inner.read())
    };
    let append = {
        let inner = Arc::clone(&inner);
        move || inner.append(Box::new(read))
    };
    let said = catch_unwind(AssertUnwindSafe(|| outer.append(Box::new(append))));
    let said = said.expect_err("the read would wait for its own update");
    assert!(said.downcast::<&str>().expect("a text").contains("from within Log::push"));
    outer.append(nothing());
    assert_eq!((*outer.read(), *inner.read()), (2, 1));
}

static FAILS: AtomicBool = AtomicBool::new(false);

/// A log that the library treats as ordered. Its `collect` panics when told to.
#[derive(Default)]
struct Failing(usize);

impl Log<usize> for Failing {
    type Op = usize;
    const ORDERED: bool = true;

    fn apply(more: usize, count: &mut usize) {
        *count += more;
    }
    fn push(&mut self, more: usize, _: Stamp) {
        self.0 += more;
    }
    fn len(&self) -> usize {
        usize::from(self.0 != 0)
    }
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        assert!(!FAILS.swap(false, SeqCst), "planned");
        std::mem::swap(self, into);
    }
    fn merge(logs: &mut [Self], count: &mut usize) -> usize {
        logs.iter_mut().for_each(|log| *count += std::mem::take(&mut log.0));
        1
    }
}

#[test]
fn updates_go_on_after_a_collection_that_panicked() {
    const THREADS: usize = 4;
    let object: Arc<Deferred<usize, Failing>> = logged();
    let (barrier, (done, finished)) = (Arc::new(Barrier::new(THREADS + 1)), mpsc::channel());
    for _ in 0..THREADS {
        let (object, barrier, done) = (Arc::clone(&object), Arc::clone(&barrier), done.clone());
        thread::spawn(move || {
            object.append(1);
            barrier.wait(); // all logs have something: the first one's collection panics
            barrier.wait();
            object.append(1);
            done.send(()).expect("the test waits");
        });
    }
    barrier.wait();
    FAILS.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(object.read()))).is_err());
    barrier.wait();
    for _ in 0..THREADS {
        let said = finished.recv_timeout(Duration::from_secs(20));
        assert!(said.is_ok(), "an update waits for a collection that is over");
    }
    assert_eq!(*object.read(), 2 * THREADS);
}
