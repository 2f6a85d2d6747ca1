//! Threads and tasks that wait for an object of a pool: their order, deadlines, and dropped
//! futures. Also hooks and wakers that panic or use the pool, and owned handles.

use crate::common::tasks::block_on;
use crate::common::watchdog::{ends, message};
use manycore::cluster::Placement;
use manycore::collections::{ObjectPool, OwnedPooled, Pooled};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(20);

/// Returns a pool for each place where an object can lie: the back room, one shelf for all, one for
/// each thread.
fn pools(max: usize) -> Vec<Arc<ObjectPool<usize>>> {
    [(Placement::PerThread, 0), (Placement::Shared, 4), (Placement::PerThread, 16)]
        .map(|(placement, shelf)| {
            let made = AtomicUsize::new(0);
            let builder = ObjectPool::builder(move || made.fetch_add(1, SeqCst));
            Arc::new(builder.max(max).placement(placement).shelf(shelf).build())
        })
        .into()
}

struct Hook {
    woken: AtomicUsize,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Wake for Hook {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, SeqCst);
        let act = self.act.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
    }
}

fn hook(act: Option<Box<dyn FnOnce() + Send>>) -> (Waker, Arc<Hook>) {
    let hook = Arc::new(Hook { woken: AtomicUsize::new(0), act: Mutex::new(act) });
    (Waker::from(Arc::clone(&hook)), hook)
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn deadline_ends_a_wait_and_a_return_ends_it_before() {
    ends("deadlines", || {
        for pool in pools(1) {
            let lent = pool.get();
            let began = Instant::now();
            assert!(pool.get_timeout(SOON).is_none());
            assert!(began.elapsed() >= SOON);
            assert!(pool.get_deadline(began).is_none());
            assert!(pool.get_timeout(Duration::ZERO).is_none());
            thread::scope(|s| {
                s.spawn(|| assert_eq!(*pool.get_timeout(Duration::MAX).unwrap(), 0));
                s.spawn(|| assert!(pool.get_deadline(Instant::now() + SOON * 1000).is_some()));
                s.spawn(|| assert_eq!(*pool.get(), 0));
                thread::sleep(SOON);
                drop(lent);
            });
            assert_eq!((pool.created(), pool.idle()), (1, 1));
        }
    });
}

/// A thread that returns and takes objects all the time does not pass the waiting ones.
#[test]
fn waiters_are_served_in_the_order_of_their_coming() {
    ends("an order", || {
        for pool in pools(1) {
            let lent = pool.get();
            let wakers: Vec<_> = (0..5).map(|_| hook(None)).collect();
            let mut futures: Vec<_> = (0..5).map(|_| pool.get_async()).collect();
            for (future, (waker, _)) in futures.iter_mut().zip(&wakers) {
                assert!(poll(future, waker).is_pending());
            }
            drop(lent);
            for (at, (waker, hook)) in wakers.iter().enumerate() {
                assert!(pool.take().is_none(), "what is handed over is passed by");
                assert!(pool.get_timeout(Duration::ZERO).is_none());
                let woken: Vec<_> =
                    wakers.iter().map(|(_, hook)| hook.woken.load(SeqCst)).collect();
                assert_eq!(woken.iter().sum::<usize>(), at + 1);
                assert_eq!(hook.woken.load(SeqCst), 1);
                // Polls of later ones change nothing.
                for (future, (waker, _)) in futures.iter_mut().zip(&wakers).skip(at + 1) {
                    assert!(poll(future, waker).is_pending());
                }
                let Poll::Ready(thing) = poll(&mut futures[at], waker) else { panic!("{at}") };
                assert_eq!(pool.created(), 1);
                drop(thing);
            }
            assert_eq!(pool.idle(), 1);
        }
    });
}

#[test]
fn busy_borrower_does_not_starve_a_waiter() {
    ends("a busy borrower", || {
        for pool in pools(1) {
            let (tell, told) = mpsc::channel();
            let other = Arc::clone(&pool);
            let busy = thread::spawn(move || {
                while told.try_recv().is_err() {
                    // As long as it has the object, and at once again.
                    let lent = other.get();
                    (0..100).for_each(|_| thread::yield_now());
                    drop(lent);
                }
            });
            for _ in 0..20 {
                assert!(pool.get_timeout(Duration::from_secs(50)).is_some());
            }
            tell.send(()).unwrap();
            busy.join().unwrap();
        }
    });
}

#[test]
fn threads_and_tasks_share_few_objects_and_none_is_lost() {
    ends("few objects", || {
        for pool in pools(2) {
            let uses = AtomicUsize::new(0);
            let lent = AtomicUsize::new(0);
            thread::scope(|s| {
                for me in 0..8 {
                    let (pool, uses, lent) = (&pool, &uses, &lent);
                    s.spawn(move || {
                        for round in 0..200 {
                            let taken = match (me + round) % 4 {
                                0 => Some(pool.get()),
                                1 => Some(block_on(pool.get_async())),
                                2 => pool.get_timeout(Duration::from_micros(20)),
                                _ => {
                                    // Given up after a poll or two.
                                    let (waker, _) = hook(None);
                                    let mut future = pool.get_async();
                                    (0..2).find_map(|_| match poll(&mut future, &waker) {
                                        Poll::Ready(taken) => Some(taken),
                                        Poll::Pending => None,
                                    })
                                }
                            };
                            let Some(taken) = taken else { continue };
                            assert!(lent.fetch_add(1, SeqCst) < 2, "more than the bound");
                            uses.fetch_add(1, SeqCst);
                            thread::yield_now();
                            lent.fetch_sub(1, SeqCst);
                            if round % 16 == 0 {
                                taken.detach();
                            }
                        }
                    });
                }
            });
            assert!(uses.load(SeqCst) >= 8 * 100);
            assert_eq!(pool.created(), pool.idle());
            let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(all.len(), 2);
        }
    });
}

#[test]
fn dropped_future_passes_on_what_it_was_handed() {
    for pool in pools(1) {
        let lent = pool.get();
        let ((one, first), (other, second)) = (hook(None), hook(None));
        let (mut early, mut late) = (pool.get_async(), pool.get_async());
        assert!(poll(&mut early, &one).is_pending());
        assert!(poll(&mut late, &other).is_pending());
        drop(lent);
        assert_eq!((first.woken.load(SeqCst), second.woken.load(SeqCst)), (1, 0));
        drop(early);
        assert_eq!(second.woken.load(SeqCst), 1);
        assert!(poll(&mut late, &other).is_ready());
        assert_eq!(pool.idle(), 1);
        // One that only waits leaves nothing behind.
        let lent = pool.get();
        let mut waits = pool.get_async();
        assert!(poll(&mut waits, &one).is_pending());
        let (newer, hook_of_newer) = hook(None);
        assert!(poll(&mut waits, &newer).is_pending());
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&hook_of_newer)), (2, 3));
        assert!(format!("{waits:?}").contains("waits: true"));
        drop(waits);
        assert_eq!(Arc::strong_count(&hook_of_newer), 2);
        drop(lent);
        assert_eq!(pool.idle(), 1);
    }
}

#[test]
fn room_is_handed_over_as_objects_are() {
    ends("room", || {
        for pool in pools(1) {
            let lent = pool.get();
            thread::scope(|s| {
                s.spawn(|| assert_eq!(*pool.get(), 1, "a new one"));
                thread::sleep(SOON);
                assert_eq!(lent.detach(), 0);
            });
            assert_eq!(pool.created(), 1);
        }
    });
}

/// A constructor that panics for a waiter leaves room for the next waiter.
#[test]
fn constructor_that_panics_for_a_waiter_serves_the_next() {
    ends("a constructor", || {
        let calls = AtomicUsize::new(0);
        let make = move || match calls.fetch_add(1, SeqCst) {
            1 => panic!("planned"),
            call => call,
        };
        let pool = ObjectPool::new(1, make);
        let lent = pool.get();
        let ((one, _), (other, second)) = (hook(None), hook(None));
        let (mut early, mut late) = (pool.get_async(), pool.get_async());
        assert!(poll(&mut early, &one).is_pending() && poll(&mut late, &other).is_pending());
        lent.detach();
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut early, &one).is_ready())).is_err());
        assert_eq!(second.woken.load(SeqCst), 1);
        assert!(matches!(poll(&mut late, &other), Poll::Ready(thing) if *thing == 2));
        assert_eq!(pool.created(), 1);
    });
}

// ---- hooks ----

#[test]
fn recycle_hook_cleans_or_rejects_what_comes_back() {
    let dropped = Arc::new(());
    let alive = Arc::clone(&dropped);
    let pool = ObjectPool::builder(move || (0, Arc::clone(&alive)))
        .max(1)
        .recycle(|(uses, _)| {
            *uses += 100;
            *uses < 250
        })
        .build();
    assert_eq!(pool.get().0, 0);
    assert_eq!(pool.get().0, 100);
    assert_eq!(pool.get().0, 200);
    assert_eq!((pool.created(), Arc::strong_count(&dropped)), (0, 2), "300 is rejected");
    assert_eq!(pool.get().0, 0);
    assert_eq!(pool.get().detach().0, 100, "detached as it is");
    assert!(format!("{:?}", ObjectPool::builder(|| 1).max(3)).contains("max: 3"));
}

#[test]
fn recycle_hook_that_panics_or_rejects_serves_those_that_wait() {
    ends("a hook", || {
        for panics in [false, true] {
            let made = AtomicUsize::new(0);
            let pool = ObjectPool::builder(move || made.fetch_add(1, SeqCst))
                .max(1)
                .recycle(move |thing| {
                    assert!(!panics || *thing > 0, "the hook's own");
                    *thing > 0
                })
                .build();
            let (waker, waits) = hook(None);
            let mut future = pool.get_async();
            let lent = pool.get();
            assert!(poll(&mut future, &waker).is_pending());
            if panics {
                assert!(message(|| drop(lent)).contains("the hook's own"));
            } else {
                drop(lent);
            }
            assert_eq!(waits.woken.load(SeqCst), 1);
            assert!(matches!(poll(&mut future, &waker), Poll::Ready(thing) if *thing == 1));
            assert_eq!((pool.created(), pool.idle()), (1, 1));
        }
    });
}

/// A thread that is already unwinding must not abort because of a hook, or of an object that the
/// hook rejects.
#[test]
fn hook_that_panics_while_its_thread_unwinds_does_not_abort() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            assert!(thread::panicking(), "its end");
        }
    }
    let pool = ObjectPool::builder(|| Bad).max(2).recycle(|_| panic!("the hook's")).build();
    let said = message(|| {
        let _lent = (pool.get(), pool.get());
        panic!("the first");
    });
    assert_eq!((said.as_str(), pool.created()), ("the first", 0));
    assert!(message(|| drop(pool.get())).contains("the hook's"));
    assert_eq!(pool.created(), 0);
}

#[test]
fn hooks_and_wakers_may_use_the_pool() {
    type Act = fn(&ObjectPool<usize>);
    let acts: [Act; 6] = [
        |pool| drop(pool.take()),
        |pool| drop(pool.get_timeout(Duration::from_millis(1))),
        |pool| drop(pin!(pool.get_async()).poll(&mut Context::from_waker(Waker::noop()))),
        |pool| assert!(pool.shrink() <= 1),
        |pool| assert!(pool.created() <= 1 && pool.idle() <= 1),
        |pool| _ = pool.take().map(Pooled::detach),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        ends(&format!("act {number}"), move || {
            // In the hook.
            thread_local! {
                static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
            }
            let pool = Arc::new_cyclic(|weak: &std::sync::Weak<ObjectPool<usize>>| {
                let weak = weak.clone();
                let recycle = move |_: &mut usize| {
                    if !INSIDE.replace(true) {
                        act(&weak.upgrade().unwrap());
                        INSIDE.set(false);
                    }
                    true
                };
                ObjectPool::builder(|| 7).max(1).recycle(recycle).build()
            });
            (0..10).for_each(|_| drop(pool.get()));
            assert_eq!(pool.created(), pool.idle());
            // In a waker.
            for pool in pools(1) {
                let lent = pool.get();
                let inner = Arc::clone(&pool);
                let (waker, hook) = hook(Some(Box::new(move || act(&inner))));
                let mut future = pool.get_async();
                assert!(poll(&mut future, &waker).is_pending());
                drop(lent);
                assert_eq!(hook.woken.load(SeqCst), 1);
                assert!(poll(&mut future, &waker).is_ready());
                assert_eq!(pool.created(), pool.idle());
            }
        });
    }
}

#[test]
fn panic_of_a_waker_stays_within_the_return() {
    for pool in pools(1) {
        let lent = pool.get();
        let (bad, _) = hook(Some(Box::new(|| panic!("planned"))));
        let mut future = pool.get_async();
        assert!(poll(&mut future, &bad).is_pending());
        drop(lent);
        assert!(poll(&mut future, &bad).is_ready());
        assert_eq!(pool.idle(), 1);
    }
}

// ---- owned handles ----

#[test]
fn owned_handle_keeps_the_pool_and_gives_its_object_back() {
    for pool in pools(2) {
        let mut owned = Pooled::into_owned(pool.get(), &pool);
        *owned += 10;
        assert_eq!((*owned, format!("{owned:?}").as_str()), (10, "10"));
        assert_eq!(pool.idle(), 0);
        let back: OwnedPooled<usize> = thread::spawn(move || owned).join().unwrap();
        drop(back);
        assert_eq!((pool.idle(), *pool.get()), (1, 10));
        let kept = Pooled::into_owned(pool.get(), &pool);
        assert_eq!((kept.detach(), pool.created(), Arc::strong_count(&pool)), (10, 0, 1));
        let last = Pooled::into_owned(pool.get(), &pool);
        let weak = Arc::downgrade(&pool);
        drop(pool);
        assert_eq!(weak.strong_count(), 1);
        drop(last);
        assert_eq!(weak.strong_count(), 0);
    }
    let [one, other] = [(); 2].map(|()| Arc::new(ObjectPool::new(1, || ())));
    let said = message(|| drop(Pooled::into_owned(one.get(), &other)));
    assert!(said.contains("another pool"));
    assert_eq!((one.idle(), other.created()), (1, 0));
}

#[test]
fn handles_and_futures_may_go_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    let pool = Arc::new(ObjectPool::new(2, || std::cell::Cell::new(1)));
    is_send(&pool.get_async());
    is_send(&pool.get());
    is_send(&Pooled::into_owned(pool.get(), &pool));
}
