//! Handles that keep their collection alive: they may outlive every other handle of it, on any
//! thread, and a timer's deadline may be moved while another thread fires timers.

use manycore::collections::{
    ActiveSet, IntervalRegistry, OwnedTimer, PageCache, PageStore, ScalableArc, Timer, TimerQueue,
};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;

/// Drops the last other handle, then uses and drops the owned one on another thread.
fn outlives<C: Send + Sync + 'static, H: Send + 'static>(
    collection: Arc<C>,
    make: impl FnOnce(&Arc<C>) -> H,
    check: impl FnOnce(&H) + Send + 'static,
) {
    let gone: Weak<C> = Arc::downgrade(&collection);
    let handle = make(&collection);
    drop(collection);
    assert!(gone.upgrade().is_some(), "the handle keeps the collection");
    thread::spawn(move || {
        check(&handle);
        drop(handle);
    })
    .join()
    .expect("no panic");
    assert!(gone.upgrade().is_none(), "and lets go of it");
}

struct Squares;

impl PageStore for Squares {
    type Key = u64;
    type Page = u64;
    type Error = Infallible;

    fn load(&self, number: &u64) -> Result<u64, Infallible> {
        Ok(number * number)
    }

    fn write_back(&self, _: &u64, _: &u64) -> Result<(), Infallible> {
        Ok(())
    }
}

#[test]
fn handles_outlive_what_they_were_made_with() {
    let value = String::from("a value with a destructor");
    outlives(
        Arc::new(TimerQueue::new()),
        |queue| TimerQueue::insert_owned(queue, 30, value.clone()),
        |timer| assert!(timer.is_pending() && timer.deadline() == 30),
    );
    outlives(
        Arc::new(ActiveSet::new()),
        |set| ActiveSet::register_owned(set, value.clone()),
        |active| assert_eq!(active.len(), 25),
    );
    outlives(
        Arc::new(IntervalRegistry::new()),
        |registry| IntervalRegistry::add_owned(registry, 10..20, value.clone()),
        |interval| assert_eq!((interval.range(), interval.len()), (&(10..20), 25)),
    );
    outlives(
        Arc::new(PageCache::new(Squares, 4)),
        |cache| PageCache::pin_owned(cache, &7).expect("it can't fail"),
        |page| assert_eq!((page.key(), **page), (&7, 49)),
    );
}

#[test]
fn owners_may_be_scalable_or_static() {
    static QUEUE: LazyLock<TimerQueue<u32>> = LazyLock::new(TimerQueue::new);
    let queue: &'static TimerQueue<u32> = &QUEUE;
    let timer = TimerQueue::insert_owned(&queue, 5, 1);
    assert_eq!(QUEUE.next_deadline(), Some(5));
    assert_eq!(timer.cancel(), Some(1));

    let set = ScalableArc::new(ActiveSet::new());
    let active = ActiveSet::register_owned(&set, 3_u64);
    assert_eq!(set.oldest(), Some(3));
    drop(set);
    assert_eq!((*active, active.set().oldest()), (3, Some(3)));
    active.leave();
}

#[test]
fn timer_of_a_queue_that_is_gone_elsewhere_is_detached_and_dropped_with_it() {
    let (queue, value) = (Arc::new(TimerQueue::new()), Arc::new(()));
    TimerQueue::insert_owned(&queue, 30, Arc::clone(&value)).detach();
    assert_eq!(queue.advance(30).len(), 1);
    let timer = TimerQueue::insert_owned(&queue, 40, Arc::clone(&value));
    drop(queue);
    timer.detach();
    assert_eq!(Arc::strong_count(&value), 1, "the queue went with the timer");
}

/// All that a reset needs of both kinds of timers.
trait Reset {
    fn reset(&mut self, deadline: u64) -> bool;
}

impl Reset for Timer<'_, u64> {
    fn reset(&mut self, deadline: u64) -> bool {
        Timer::reset(self, deadline)
    }
}

impl Reset for OwnedTimer<u64> {
    fn reset(&mut self, deadline: u64) -> bool {
        OwnedTimer::reset(self, deadline)
    }
}

/// Resets timers beside a thread that fires them. Each fires once: at its last deadline or later,
/// and only if no reset says that it had not fired.
fn resets_and_fires<R: Reset + Send>(queue: &TimerQueue<u64>, make: impl Fn(u64, u64) -> R + Sync) {
    const THREADS: u64 = 3;
    const TIMERS: u64 = 500;
    let (now, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let (now, ended, make) = (&now, &ended, &make);
    let fired = thread::scope(|scope| {
        let keeper = scope.spawn(move || {
            let mut fired = Vec::new();
            loop {
                let is_last = ended.load(Ordering::SeqCst) == THREADS;
                let time = now.fetch_add(1, Ordering::SeqCst) + 1;
                fired.extend(queue.advance(if is_last { u64::MAX } else { time }));
                if is_last {
                    return fired;
                }
            }
        });
        let resetters: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let timers: Vec<_> = (0..TIMERS)
                        .map(|number| {
                            let value = thread * TIMERS + number;
                            let mut deadline = now.load(Ordering::SeqCst) + number % 4;
                            let mut timer = make(deadline, value);
                            for more in 1..number % 7 {
                                let next = now.load(Ordering::SeqCst) + more;
                                if !timer.reset(next) {
                                    break;
                                }
                                deadline = next;
                            }
                            (timer, value, deadline)
                        })
                        .collect();
                    ended.fetch_add(1, Ordering::SeqCst);
                    timers
                })
            })
            .collect();
        // The handles stay until all have fired.
        let mut timers: Vec<_> =
            resetters.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        let mut fired = keeper.join().expect("no panic");
        fired.sort_unstable_by_key(|(_, value)| *value);
        for ((deadline, value), (timer, own, last)) in fired.iter().zip(&mut timers) {
            assert_eq!((deadline, value), (&*last, &*own), "at its last deadline");
            assert!(!timer.reset(u64::MAX), "it has fired");
        }
        fired
    });
    assert_eq!(fired.len() as u64, THREADS * TIMERS, "each once");
}

#[test]
fn timer_that_is_reset_fires_once_at_its_last_deadline() {
    let queue = TimerQueue::new();
    resets_and_fires(&queue, |deadline, value| queue.insert(deadline, value));
    let queue = Arc::new(TimerQueue::new());
    resets_and_fires(&queue, |deadline, value| TimerQueue::insert_owned(&queue, deadline, value));
}
