//! `EventQueue` as two halves, with senders that wait. Tests disconnection with events inside,
//! deadlines, dropped futures, and wakers that panic or use the queue.

use crate::common::tasks::block_on;
use crate::common::watchdog::ends;
use manycore::collections::{EventQueue, RecvError, SendError, Sender};
use manycore::oplog::Logs;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_millis(20);

fn queues<E: Send + 'static>(max_events: usize) -> Vec<EventQueue<E>> {
    [Logs::Auto, Logs::Always, Logs::Never]
        .map(|logs| EventQueue::builder().logs(logs).max_events(max_events).build().unwrap())
        .into()
}

/// Sends to a queue until it is full, and returns how many events it took.
fn fill(queue: &EventQueue<u32>) -> u32 {
    (0..).find(|number| queue.try_send(*number).is_err()).unwrap()
}

/// A waker that runs a function once, or only counts.
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

fn hook(act: Option<Box<dyn FnOnce() + Send>>) -> (Waker, Weak<Hook>) {
    let hook = Arc::new(Hook { woken: AtomicUsize::new(0), act: Mutex::new(act) });
    let weak = Arc::downgrade(&hook);
    (Waker::from(hook), weak)
}

fn counting() -> (Waker, Weak<Hook>) {
    hook(None)
}

fn woken(hook: &Weak<Hook>) -> usize {
    hook.upgrade().map_or(0, |hook| hook.woken.load(SeqCst))
}

// ---- disconnection ----

#[test]
fn receiver_gets_what_was_sent_before_the_last_sender_went() {
    ends("the last sender goes", || {
        for queue in queues(1 << 10) {
            queue.send((9, 9)).unwrap(); // what was inside before the queue was divided
            let (sender, receiver) = queue.into_channel();
            let threads: Vec<_> = (0..4)
                .map(|me| {
                    let sender: Sender<_> = sender.clone();
                    thread::spawn(move || (0..500).for_each(|i| sender.send((me, i)).unwrap()))
                })
                .collect();
            drop(sender);
            let mut next = [0; 4];
            assert_eq!(receiver.recv(), Some((9, 9)));
            for (me, number) in &receiver {
                assert_eq!(number, next[me]);
                next[me] += 1;
            }
            assert_eq!(next, [500; 4]);
            assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
            assert_eq!(receiver.recv_timeout(SOON), Err(RecvError::Closed));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    });
}

#[test]
fn clone_of_a_sender_keeps_the_queue_open() {
    let (sender, receiver) = EventQueue::channel();
    let other = sender.clone();
    assert!(other.same_channel(&sender));
    drop(sender);
    assert!(!receiver.is_closed());
    other.send(1).unwrap();
    assert_eq!((other.len(), other.is_empty(), receiver.len()), (1, false, 1));
    drop(other);
    assert!(receiver.is_closed());
    assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn sleeping_receivers_hear_that_the_last_sender_went() {
    ends("receivers sleep", || {
        for queue in queues::<u32>(8) {
            let (sender, receiver) = queue.into_channel();
            thread::scope(|s| {
                s.spawn(|| assert_eq!(receiver.recv(), None));
                s.spawn(|| assert_eq!(block_on(receiver.recv_async()), None));
                s.spawn(|| assert_eq!(receiver.iter().count(), 0));
                thread::sleep(SOON);
                drop(sender);
            });
        }
    });
}

/// A counted event that may refer to its own queue.
struct Event {
    _alive: Arc<()>,
    _reply: Option<Sender<Event>>,
    panics: bool,
}

impl Drop for Event {
    fn drop(&mut self) {
        assert!(!self.panics, "planned");
    }
}

#[test]
fn dropped_receiver_drops_what_is_inside_and_sends_return_their_event() {
    for queue in queues(1 << 10) {
        let alive = Arc::new(());
        let (sender, receiver) = queue.into_channel();
        let event =
            |panics| Event { _alive: Arc::clone(&alive), _reply: Some(sender.clone()), panics };
        for number in 0..20 {
            assert!(sender.send(event(number % 5 == 0)).is_ok());
        }
        assert!(
            receiver
                .try_recv()
                .is_ok_and(|event| catch_unwind(AssertUnwindSafe(|| { drop(event) })).is_err())
        );
        assert_eq!(Arc::strong_count(&alive), 20);
        // Four destructors panic, and one panic comes out.
        assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
        assert_eq!(Arc::strong_count(&alive), 1, "events that hold a sender are kept");
        assert!(sender.is_closed());
        let refused = sender.send(event(false)).unwrap_err();
        assert_eq!(format!("{refused:?}: {refused}"), "Closed(..): the queue is closed");
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(refused.into_inner());
        assert!(matches!(sender.try_send(event(false)), Err(SendError::Closed(_))));
        assert!(matches!(sender.send_timeout(event(false), SOON), Err(SendError::Closed(_))));
        assert!(matches!(block_on(sender.send_async(event(false))), Err(SendError::Closed(_))));
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn senders_that_wait_hear_that_the_receiver_went() {
    ends("senders wait", || {
        for queue in queues(4) {
            let (sender, receiver) = queue.into_channel();
            while sender.try_send(0).is_ok() {}
            assert!(sender.is_full() && receiver.is_full());
            thread::scope(|s| {
                s.spawn(|| assert_eq!(sender.send(1), Err(SendError::Closed(1))));
                s.spawn(|| assert_eq!(sender.send_timeout(2, HOUR), Err(SendError::Closed(2))));
                s.spawn(|| {
                    assert_eq!(block_on(sender.send_async(3)), Err(SendError::Closed(3)));
                });
                thread::sleep(SOON);
                drop(receiver);
            });
            assert!(!sender.is_full(), "a closed queue is not full: a send does not wait");
        }
    });
}

#[test]
fn receiver_may_close_and_take_the_rest() {
    let (sender, receiver) = EventQueue::channel();
    (0..5).for_each(|event| sender.send(event).unwrap());
    assert!(receiver.close());
    assert!(!receiver.close());
    assert_eq!(sender.send(5), Err(SendError::Closed(5)));
    assert_eq!(receiver.try_iter().take(2).collect::<Vec<_>>(), [0, 1]);
    let mut rest = Vec::new();
    assert_eq!(receiver.drain_at_most(1, &mut rest), 1);
    assert_eq!(receiver.drain_into(&mut rest), 2);
    assert_eq!((rest, receiver.drain()), (vec![2, 3, 4], vec![]));
    assert_eq!(receiver.recv(), None);
}

/// An event sent while the receiver goes is dropped or comes back; it never stays in the queue.
#[test]
fn events_sent_beside_the_receivers_end_are_all_dropped() {
    ends("the receiver goes", || {
        for _ in 0..100 {
            for queue in queues(1 << 10) {
                let alive = Arc::new(());
                let (sender, receiver) = queue.into_channel();
                thread::scope(|s| {
                    for _ in 0..2 {
                        let (sender, alive) = (sender.clone(), &alive);
                        s.spawn(move || while sender.send(Arc::clone(alive)).is_ok() {});
                    }
                    drop(receiver.recv());
                    drop(receiver);
                });
                assert_eq!(Arc::strong_count(&alive), 1);
            }
        }
    });
}

// ---- deadlines ----

#[test]
fn send_with_a_deadline_returns_its_event_in_time_or_gets_its_room() {
    ends("deadlines", || {
        for queue in queues(4) {
            let taken = fill(&queue);
            let began = Instant::now();
            assert_eq!(queue.send_timeout(7, SOON), Err(SendError::Full(7)));
            assert!(began.elapsed() >= SOON);
            assert_eq!(queue.send_deadline(7, Instant::now()), Err(SendError::Full(7)));
            assert_eq!(queue.send_timeout(7, Duration::ZERO), Err(SendError::Full(7)));
            assert_eq!(queue.len(), taken as usize, "a refused event was sent");
            thread::scope(|s| {
                s.spawn(|| queue.send_timeout(8, Duration::MAX).unwrap());
                s.spawn(|| queue.send_deadline(8, Instant::now() + SOON * 1000).unwrap());
                thread::sleep(SOON);
                assert_eq!(queue.drain().len(), taken as usize);
            });
            assert_eq!(queue.drain(), [8, 8]);
        }
    });
}

#[test]
fn receive_with_a_deadline_ends_in_time_or_with_an_event() {
    ends("deadlines", || {
        for queue in queues::<u32>(4) {
            let until = Instant::now() + SOON;
            assert_eq!(queue.recv_deadline(until), Err(RecvError::Empty));
            assert!(Instant::now() >= until);
            assert_eq!(queue.recv_deadline(until), Err(RecvError::Empty));
            queue.send(1).unwrap();
            assert_eq!(queue.recv_deadline(until), Ok(1), "there already");
            thread::scope(|s| {
                s.spawn(|| {
                    let far = Instant::now() + SOON * 1000;
                    assert_eq!(queue.recv_deadline(far), Ok(2));
                    assert_eq!(queue.recv_deadline(far), Err(RecvError::Closed));
                });
                thread::sleep(SOON);
                queue.send(2).unwrap();
                thread::sleep(SOON);
                queue.close();
            });
        }
    });
}

// ---- tasks that send ----

#[test]
fn full_queue_keeps_a_task_waiting_until_half_is_received() {
    for queue in queues(4) {
        let taken = fill(&queue);
        let (waker, count) = counting();
        let mut context = Context::from_waker(&waker);
        let mut future = queue.send_async(100);
        for _ in 0..3 {
            assert_eq!(Pin::new(&mut future).poll(&mut context), Poll::Pending);
        }
        assert_eq!(count.strong_count(), 2, "one waker is kept, whatever the polls");
        assert_eq!(woken(&count), 0);
        assert!((0..taken).all(|number| queue.try_recv() == Ok(number)));
        assert_eq!((woken(&count), count.strong_count()), (1, 1));
        assert_eq!(Pin::new(&mut future).poll(&mut context), Poll::Ready(Ok(())));
        assert_eq!(queue.drain(), [100]);
        let again = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future).poll(&mut context)));
        assert!(again.is_err(), "it was ready");
        assert_eq!(future.into_inner(), None);
    }
}

#[test]
fn dropped_send_leaves_no_waker_and_loses_no_event_of_others() {
    for queue in queues(4) {
        fill(&queue);
        let (waker, count) = counting();
        let (other, others) = counting();
        let mut dropped = queue.send_async(100);
        let mut kept = queue.send_async(101);
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Pin::new(&mut kept).poll(&mut Context::from_waker(&other)).is_pending());
        // The last waker counts.
        let (later, laters) = counting();
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(&later)).is_pending());
        assert_eq!((count.strong_count(), laters.strong_count()), (1, 2));
        assert_eq!(dropped.into_inner(), Some(100), "the event is the caller's again");
        assert_eq!(laters.strong_count(), 1);
        // One that is woken and then dropped takes no one's wake-up with it.
        let mut woken_and_dropped = queue.send_async(102);
        assert!(
            Pin::new(&mut woken_and_dropped).poll(&mut Context::from_waker(&later)).is_pending()
        );
        drop(queue.drain());
        drop(woken_and_dropped);
        assert_eq!((woken(&count), woken(&laters), woken(&others)), (0, 1, 1));
        assert!(Pin::new(&mut kept).poll(&mut Context::from_waker(&other)).is_ready());
        assert_eq!(queue.drain(), [101]);
        // Never polled: nothing was sent.
        drop(queue.send_async(103));
        assert!(queue.is_empty());
    }
}

#[test]
fn tasks_and_threads_send_through_a_small_queue_and_each_event_comes_once() {
    const EACH: usize = 300;
    ends("a small queue", || {
        for queue in queues(2) {
            let (sender, receiver) = queue.into_channel();
            for me in 0..6 {
                let sender = sender.clone();
                thread::spawn(move || {
                    for number in 0..EACH {
                        let event = (me, number);
                        match me % 3 {
                            0 => sender.send(event).unwrap(),
                            1 => block_on(sender.send_async(event)).unwrap(),
                            _ => {
                                // Given up and begun again, many times.
                                let waker = counting().0;
                                let mut future = sender.send_async(event);
                                let mut context = Context::from_waker(&waker);
                                match Pin::new(&mut future).poll(&mut context) {
                                    Poll::Ready(sent) => sent.unwrap(),
                                    Poll::Pending => {
                                        let event = future.into_inner().unwrap();
                                        let tiny = Duration::from_micros(10);
                                        let refused = sender.send_timeout(event, tiny).err();
                                        if let Some(refused) = refused {
                                            sender.send(refused.into_inner()).unwrap();
                                        }
                                    }
                                }
                            }
                        }
                    }
                });
            }
            drop(sender);
            let seen: Vec<_> = block_on(async {
                let mut seen = Vec::new();
                while let Some(event) = receiver.recv_async().await {
                    seen.push(event);
                }
                seen
            });
            assert_eq!(seen.len(), 6 * EACH);
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 6 * EACH);
        }
    });
}

// ---- wakers ----

/// A receive must not lose its event to a sender's waker, nor leave another sender asleep.
#[test]
fn panic_of_a_senders_waker_costs_the_receiver_no_event() {
    for queue in queues(4) {
        let taken = fill(&queue);
        let (bad, _) = hook(Some(Box::new(|| panic!("planned"))));
        let (good, count) = counting();
        let mut futures = [queue.send_async(100), queue.send_async(101)];
        for (future, waker) in futures.iter_mut().zip([&bad, &good]) {
            assert!(Pin::new(future).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert!((0..taken).all(|number| queue.try_recv() == Ok(number)));
        assert_eq!(woken(&count), 1);
        // A close tells, as it does of receivers' wakers.
        fill(&queue);
        let (bad, _) = hook(Some(Box::new(|| panic!("planned"))));
        for (future, waker) in futures.iter_mut().zip([&bad, &good]) {
            assert!(Pin::new(future).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| queue.close())).is_err());
        assert_eq!(woken(&count), 2);
        assert!(queue.is_closed());
    }
}

type Act = fn(Arc<EventQueue<u32>>);

#[test]
fn senders_wakers_may_use_the_queue() {
    let acts: [Act; 8] = [
        |queue| _ = queue.try_recv(),
        |queue| _ = queue.try_send(7),
        |queue| _ = queue.send_timeout(7, Duration::from_millis(1)),
        |queue| drop(queue.drain()),
        |queue| drop(format!("{queue:?} {}", queue.len())),
        |queue| {
            let waker = counting().0;
            let _ = pin!(queue.send_async(7)).poll(&mut Context::from_waker(&waker));
        },
        |queue| assert!(queue.close() || queue.is_closed()),
        drop,
    ];
    for (number, act) in acts.into_iter().enumerate() {
        for closes in [false, true] {
            ends(&format!("act {number}, closes: {closes}"), move || {
                for queue in queues(4) {
                    let queue = Arc::new(queue);
                    fill(&queue);
                    let inner = Arc::clone(&queue);
                    let (waker, count) = hook(Some(Box::new(move || act(inner))));
                    let mut future = Box::pin(queue.send_async(100));
                    let mut context = Context::from_waker(&waker);
                    assert!(future.as_mut().poll(&mut context).is_pending());
                    if closes {
                        queue.close();
                    } else {
                        queue.drain();
                    }
                    assert_eq!(woken(&count), 1);
                    drop(queue.drain());
                    let sent = future.as_mut().poll(&mut context);
                    assert!(
                        sent.is_ready()
                            && sent.map(|sent| sent.is_ok() != queue.is_closed())
                                == Poll::Ready(true)
                    );
                }
            });
        }
    }
}

#[test]
fn iterators_end_where_they_say() {
    for queue in queues(64) {
        (0..4).for_each(|event| queue.send(event).unwrap());
        assert!(queue.try_iter().eq(0..4));
        assert_eq!(queue.try_iter().next(), None);
        (4..6).for_each(|event| queue.send(event).unwrap());
        queue.close();
        assert_eq!((&queue).into_iter().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(queue.iter().next(), None);
    }
}

#[test]
fn halves_may_go_to_other_threads_and_cross_a_catch() {
    fn is_free<T: Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}
    let (sender, receiver) = EventQueue::<std::cell::Cell<u8>>::channel();
    is_free(&sender);
    is_free(&receiver);
    is_send(&sender.send_async(std::cell::Cell::new(1)));
    is_send(&receiver.recv_async());
    assert!(format!("{sender:?} {receiver:?}").starts_with("Sender(EventQueue { closed: false"));
}

#[cfg(feature = "futures-core")]
mod futures_core_stream {
    use super::*;
    use futures_core::Stream;
    use manycore::collections::Receiver;
    use std::future::poll_fn;

    #[test]
    fn receiver_is_a_stream_that_ends_with_the_last_sender() {
        ends("a stream", || {
            for queue in queues(2) {
                let (sender, mut receiver) = queue.into_channel();
                thread::spawn(move || (0..100).for_each(|event| sender.send(event).unwrap()));
                for expected in (0..100).map(Some).chain([None, None]) {
                    let next = poll_fn(|context| Pin::new(&mut receiver).poll_next(context));
                    assert_eq!(block_on(next), expected);
                }
            }
        });
    }

    /// What `select!` does: the future of one `next` is dropped, and the stream goes on.
    #[test]
    fn stream_keeps_one_waker_and_cancelled_polls_lose_nothing() {
        let (sender, mut receiver): (_, Receiver<u8>) = EventQueue::channel();
        let mut wakers = Vec::new();
        for _ in 0..50 {
            let (waker, count) = counting();
            let mut context = Context::from_waker(&waker);
            assert!(Pin::new(&mut receiver).poll_next(&mut context).is_pending());
            wakers.push(count);
        }
        assert_eq!(wakers.iter().filter(|waker| waker.strong_count() > 0).count(), 1);
        sender.send(1).unwrap();
        assert!(wakers.iter().all(|waker| waker.strong_count() == 0));
        let waker = counting().0;
        let mut context = Context::from_waker(&waker);
        assert_eq!(Pin::new(&mut receiver).poll_next(&mut context), Poll::Ready(Some(1)));
        assert!(Pin::new(&mut receiver).poll_next(&mut context).is_pending());
        drop((receiver, sender));
        assert_eq!(Arc::strong_count(&Arc::new(waker)), 1);
    }
}
