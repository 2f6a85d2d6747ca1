//! Tasks that wait for an `EventQueue`: what the queue keeps for them, and wakers that run
//! arbitrary code.

use crate::common::tasks::unparker;
use crate::common::watchdog::{End, end_of};
use manycore::collections::{EventQueue, RecvError};
use manycore::oplog::Logs;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

fn queues<E: Send + 'static>() -> Vec<EventQueue<E>> {
    [Logs::Auto, Logs::Always, Logs::Never]
        .map(|logs| EventQueue::builder().logs(logs).build().unwrap())
        .into()
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a new waker, with a handle to its count of wake-ups. The handle also tells whether the
/// waker still exists.
fn counting() -> (Waker, Weak<Counting>) {
    let count = Arc::new(Counting::default());
    let weak = Arc::downgrade(&count);
    (Waker::from(count), weak)
}

#[test]
fn poll_recv_keeps_at_most_32_wakers_and_wakes_those_it_does_not_keep() {
    for queue in queues::<u8>() {
        let woken = Arc::new(AtomicUsize::new(0));
        struct Counts(Arc<AtomicUsize>);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut alive = Vec::new();
        for _ in 0..20_000 {
            let waker = Arc::new(Counts(Arc::clone(&woken)));
            alive.push(Arc::downgrade(&waker));
            let waker = Waker::from(waker);
            assert_eq!(queue.poll_recv(&mut Context::from_waker(&waker)), Poll::Pending);
        }
        let kept = alive.iter().filter(|waker| waker.strong_count() > 0).count();
        assert!((1..=32).contains(&kept), "{kept} wakers are kept");
        assert_eq!(woken.load(Ordering::SeqCst), 20_000 - kept, "one was dropped in silence");
        queue.send(1).unwrap();
        assert_eq!(woken.load(Ordering::SeqCst), 20_000);
        assert!(alive.iter().all(|waker| waker.strong_count() == 0));
    }
}

#[test]
fn future_keeps_its_last_waker_until_it_is_ready_or_dropped() {
    for queue in queues::<u8>() {
        let mut future = queue.recv_async();
        let mut seen = Vec::new();
        for _ in 0..100 {
            let (waker, alive) = counting();
            let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
            drop(waker);
            assert!(seen.iter().all(|before: &Weak<_>| before.strong_count() == 0));
            assert_eq!(alive.strong_count(), 1, "the last waker is kept");
            seen.push(alive);
        }
        // Dropped: nothing stays, and an event is there for others.
        drop(future);
        assert!(seen.iter().all(|waker| waker.strong_count() == 0));
        // Ready: nothing stays.
        let (waker, alive) = counting();
        let mut context = Context::from_waker(&waker);
        let mut future = queue.recv_async();
        assert_eq!(Pin::new(&mut future).poll(&mut context), Poll::Pending);
        assert_eq!(alive.strong_count(), 2);
        queue.send(1).unwrap();
        assert_eq!(alive.upgrade().unwrap().0.load(Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut future).poll(&mut context), Poll::Ready(Some(1)));
        assert_eq!(alive.strong_count(), 1, "the future is ready, and its waker is kept");
        queue.close();
        let mut last = queue.recv_async();
        assert_eq!(Pin::new(&mut last).poll(&mut context), Poll::Ready(None));
    }
}

/// Polls until the future is ready. Every poll has its own waker.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    loop {
        let waker = unparker();
        if let Poll::Ready(ready) = poll(&mut Context::from_waker(&waker)) {
            return ready;
        }
        thread::park();
    }
}

/// More tasks than `poll_recv` keeps wakers for, and as many futures, some of which are dropped
/// early.
#[test]
fn hundred_tasks_receive_every_event_once() {
    const EVENTS: usize = 500;
    let end = end_of("a hundred tasks", || {
        for queue in queues::<usize>() {
            let seen: Vec<AtomicUsize> = (0..EVENTS).map(|_| AtomicUsize::new(0)).collect();
            let note = |event: usize| assert_eq!(seen[event].fetch_add(1, Ordering::SeqCst), 0);
            thread::scope(|s| {
                for task in 0..100 {
                    let (queue, note) = (&queue, &note);
                    s.spawn(move || {
                        loop {
                            if task % 10 == 0 {
                                // Given up after one poll.
                                let waker = counting().0;
                                let polled =
                                    pin!(queue.recv_async()).poll(&mut Context::from_waker(&waker));
                                if let Poll::Ready(Some(event)) = polled {
                                    note(event);
                                }
                            }
                            let received = if task % 2 == 0 {
                                block_on(|context| queue.poll_recv(context))
                            } else {
                                let mut future = pin!(queue.recv_async());
                                block_on(|context| future.as_mut().poll(context))
                            };
                            match received {
                                Some(event) => note(event),
                                None => return,
                            }
                        }
                    });
                }
                for event in 0..EVENTS {
                    queue.send(event).unwrap();
                    if event % 16 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
                queue.close();
            });
            assert!(seen.iter().all(|times| times.load(Ordering::SeqCst) == 1));
        }
    });
    assert_eq!(end, End::Works);
}

// ---- wakers that use the queue ----

type Queue = EventQueue<u32>;

/// The function in which a waker acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Clone,
    Wake,
    Drop,
}

/// The action of the waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Send,
    TrySend,
    TryRecv,
    RecvTimeout,
    Poll,
    PollFuture,
    DropFuture,
    Drain,
    Close,
    Look,
    DropLastHandle,
    Panic,
}

const ACTS: [Act; 12] = [
    Act::Send,
    Act::TrySend,
    Act::TryRecv,
    Act::RecvTimeout,
    Act::Poll,
    Act::PollFuture,
    Act::DropFuture,
    Act::Drain,
    Act::Close,
    Act::Look,
    Act::DropLastHandle,
    Act::Panic,
];

struct Hostile {
    hook: Hook,
    act: Act,
    queue: Mutex<Option<Arc<Queue>>>,
    /// Not within its own action, and not before the test begins.
    armed: AtomicBool,
    acted: AtomicUsize,
}

impl Hostile {
    fn at(&self, hook: Hook) {
        if hook != self.hook || !self.armed.swap(false, Ordering::SeqCst) {
            return;
        }
        self.acted.fetch_add(1, Ordering::SeqCst);
        let mut held = self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let queue = held.as_ref().map(Arc::clone).expect("it acts once");
        let other = counting().0;
        let mut context = Context::from_waker(&other);
        match self.act {
            Act::Send => drop(queue.send(7)),
            Act::TrySend => drop(queue.try_send(7)),
            Act::TryRecv => drop(queue.try_recv()),
            Act::RecvTimeout => drop(queue.recv_timeout(Duration::from_millis(1))),
            Act::Poll => (0..40).for_each(|_| {
                let waker = counting().0;
                let _ = queue.poll_recv(&mut Context::from_waker(&waker));
            }),
            Act::PollFuture => drop(pin!(queue.recv_async()).poll(&mut context)),
            Act::DropFuture => drop(queue.recv_async()),
            Act::Drain => drop(queue.drain()),
            Act::Close => drop(queue.close()),
            Act::Look => drop((queue.len(), queue.stats(), format!("{queue:?}"))),
            Act::DropLastHandle => drop((held.take(), queue)),
            Act::Panic => panic!("planned"),
        }
    }
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: `data` came from `Arc::into_raw`, and the waker at hand keeps a count of it.
        let hostile = unsafe { &*data.cast::<Hostile>() };
        hostile.at(Hook::Clone);
        // SAFETY: the waker at hand keeps a count of `data`, so there is one to be raised.
        unsafe { Arc::increment_strong_count(data.cast::<Hostile>()) };
        RawWaker::new(data, &VTABLE)
    },
    |data| {
        // SAFETY: `data` came from `Arc::into_raw`, and this waker's count of it comes here.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.at(Hook::Wake);
    },
    |data| {
        // SAFETY: `data` came from `Arc::into_raw`, and the waker keeps its count of it.
        let hostile = unsafe { &*data.cast::<Hostile>() };
        hostile.at(Hook::Wake);
    },
    |data| {
        // SAFETY: `data` came from `Arc::into_raw`, and this waker's count of it comes here.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.at(Hook::Drop);
    },
);

/// How the waker's hook is reached, and what the waker waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Sent,
    Closed,
    Displaced,
    PolledAgain,
    FuturePolledAgain,
    FutureDropped,
    FutureReady,
    QueueDropped,
}

const WAYS: [Way; 8] = [
    Way::Sent,
    Way::Closed,
    Way::Displaced,
    Way::PolledAgain,
    Way::FuturePolledAgain,
    Way::FutureDropped,
    Way::FutureReady,
    Way::QueueDropped,
];

/// Returns whether a panic of the hook in this way leaves the queue's call or ends within it. The
/// table in the module's documentation has the same answers.
fn tells(hook: Hook, way: Way) -> bool {
    match hook {
        Hook::Wake => matches!(way, Way::Sent | Way::Closed | Way::FutureReady),
        Hook::Clone => true,
        Hook::Drop => way == Way::QueueDropped,
    }
}

/// Runs one case. Returns how often the hook acted and how the calls ended.
fn case(logs: Logs, hook: Hook, act: Act, way: Way) -> (usize, bool) {
    let queue = Arc::new(Queue::builder().logs(logs).build().unwrap());
    let hostile = Arc::new(Hostile {
        hook,
        act,
        queue: Mutex::new(Some(Arc::clone(&queue))),
        armed: AtomicBool::new(hook == Hook::Clone),
        acted: AtomicUsize::new(0),
    });
    // SAFETY: the vtable's functions take what `Arc::into_raw` gave, and count it.
    let waker = unsafe {
        Waker::from_raw(RawWaker::new(Arc::into_raw(Arc::clone(&hostile)).cast(), &VTABLE))
    };
    let (bystander, woken) = counting();
    let woken = woken.upgrade().unwrap();
    let told = catch_unwind(AssertUnwindSafe(|| {
        go(&queue, &hostile, &waker, &bystander, way);
    }));
    hostile.armed.store(false, Ordering::SeqCst);
    let acted = hostile.acted.load(Ordering::SeqCst);
    // The waiters beside the hostile one have been woken.
    let wakes = matches!(way, Way::Sent | Way::Closed);
    if wakes && (acted == 0 || act != Act::Close) && hook != Hook::Clone {
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "{hook:?} {act:?} {way:?}: left asleep");
    }
    // And the queue works.
    drop(queue.drain());
    match queue.send(9) {
        Ok(()) => assert_eq!(queue.recv(), Some(9)),
        Err(_) => assert_eq!(queue.try_recv(), Err(RecvError::Closed)),
    }
    *hostile.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    if way == Way::QueueDropped {
        hostile.armed.store(hook == Hook::Drop && acted == 0, Ordering::SeqCst);
    }
    drop(waker);
    (acted, told.is_err())
}

fn go(queue: &Queue, hostile: &Hostile, waker: &Waker, bystander: &Waker, way: Way) {
    let mut context = Context::from_waker(waker);
    let mut others = Context::from_waker(bystander);
    let arm = || {
        if hostile.hook != Hook::Clone {
            hostile.armed.store(true, Ordering::SeqCst);
        }
    };
    match way {
        Way::Sent | Way::Closed => {
            let _ = queue.poll_recv(&mut context);
            let _ = queue.poll_recv(&mut others);
            arm();
            if way == Way::Sent {
                let _ = queue.send(1);
            } else {
                queue.close();
            }
        }
        Way::Displaced => {
            let _ = queue.poll_recv(&mut context);
            arm();
            for _ in 0..40 {
                let waker = counting().0;
                let _ = queue.poll_recv(&mut Context::from_waker(&waker));
            }
        }
        Way::PolledAgain => {
            let _ = queue.poll_recv(&mut context);
            arm();
            let _ = queue.poll_recv(&mut context);
        }
        Way::FuturePolledAgain | Way::FutureDropped | Way::FutureReady => {
            let mut future = queue.recv_async();
            let _ = Pin::new(&mut future).poll(&mut context);
            arm();
            match way {
                Way::FuturePolledAgain => {
                    let _ = Pin::new(&mut future).poll(&mut others);
                }
                Way::FutureDropped => drop(future),
                _ => {
                    let _ = queue.send(1);
                    let _ = Pin::new(&mut future).poll(&mut context);
                }
            }
        }
        Way::QueueDropped => {
            let own = Queue::new();
            let _ = own.poll_recv(&mut context);
            arm();
            drop(own);
        }
    }
}

#[test]
fn wakers_may_use_the_queue_wherever_the_queue_calls_them() {
    let mut acted = 0;
    for logs in [Logs::Auto, Logs::Always] {
        for hook in [Hook::Clone, Hook::Wake, Hook::Drop] {
            for act in ACTS {
                for way in WAYS {
                    let name = format!("{logs:?}: at {hook:?} {act:?}, {way:?}");
                    let (tell, told) = std::sync::mpsc::channel();
                    let end = end_of(&name, move || tell.send(case(logs, hook, act, way)).unwrap());
                    assert_eq!(end, End::Works, "{name}");
                    let (times, panicked) = told.recv().unwrap();
                    let expected = act == Act::Panic && times > 0 && tells(hook, way);
                    assert_eq!(panicked, expected, "{name}: the panic's way");
                    acted += times;
                }
            }
        }
    }
    assert!(acted > 200, "the hooks were called {acted} times only");
}

/// A value that, when dropped, sends to another queue, and panics if told to.
struct Ends(Arc<EventQueue<u32>>, bool);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.send(1).unwrap();
        assert!(!self.1, "planned");
    }
}

#[test]
fn events_that_send_at_their_end_are_all_dropped_and_all_heard() {
    for logs in [Logs::Auto, Logs::Always] {
        for fails in [false, true] {
            let heard = Arc::new(EventQueue::builder().logs(logs).build().unwrap());
            let said = Arc::clone(&heard);
            let end = end_of("events that send at their end", move || {
                let queue = EventQueue::builder().logs(logs).build().unwrap();
                for number in 0..10 {
                    let event = Ends(Arc::clone(&said), fails && number == 4);
                    assert!(queue.send(event).is_ok());
                }
                queue.close();
                // A refused event comes back and ends with its sender.
                drop(queue.send(Ends(Arc::clone(&said), false)));
                drop(queue.try_recv());
                drop(queue);
            });
            assert_eq!(end == End::Works, !fails, "{end:?}");
            assert!(fails == end.panics_with("planned"), "{end:?}");
            assert_eq!(heard.drain().len(), 11);
        }
    }
}
