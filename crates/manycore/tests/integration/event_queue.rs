//! `EventQueue` from outside: order across threads, bounds, closing, waiting, waking.

use crate::common::env;
use crate::common::tasks::unparker;
use manycore::collections::{EventQueue, RecvError, SendError};
use manycore::oplog::{Logs, Publish};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a queue for every way to keep events, and one that chooses by itself.
pub fn queues<E: Send + 'static>() -> Vec<EventQueue<E>> {
    let build = |logs, publish| EventQueue::builder().logs(logs).publish(publish).build().unwrap();
    vec![
        build(Logs::Auto, Publish::Auto),
        build(Logs::Always, Publish::Locked),
        build(Logs::Always, Publish::Biased),
        build(Logs::Never, Publish::Auto),
    ]
}

#[test]
fn events_of_one_thread_come_in_order_by_every_way_to_receive() {
    for queue in queues() {
        (0..100).for_each(|i| queue.send(i).unwrap());
        assert_eq!(queue.len(), 100);
        assert_eq!(queue.try_recv(), Ok(0));
        assert_eq!(queue.recv(), Some(1));
        assert_eq!(queue.recv_timeout(Duration::ZERO), Ok(2));
        (100..110).for_each(|i| queue.send(i).unwrap());
        let mut rest = vec![2];
        assert_eq!(queue.drain_into(&mut rest), 107);
        assert!(rest.into_iter().eq(2..110));
        assert!(queue.is_empty());
        assert_eq!(queue.try_recv(), Err(RecvError::Empty));
        queue.send(110).unwrap();
        assert_eq!(queue.drain(), [110]);
    }
}

/// Threads pass a baton and send one event each time they hold it. Every event happens after the
/// previous event, on another thread.
fn relay(queue: &EventQueue<usize>, threads: usize, rounds: usize, drain_meanwhile: bool) {
    let turn = AtomicUsize::new(0);
    let mut received = Vec::new();
    thread::scope(|s| {
        for me in 0..threads {
            let turn = &turn;
            s.spawn(move || {
                for number in (me..rounds).step_by(threads) {
                    while turn.load(Ordering::Acquire) != number {
                        thread::yield_now();
                    }
                    queue.send(number).unwrap();
                    turn.store(number + 1, Ordering::Release);
                }
            });
        }
        while drain_meanwhile && turn.load(Ordering::Relaxed) < rounds {
            queue.drain_into(&mut received);
        }
    });
    queue.drain_into(&mut received);
    assert!(received.into_iter().eq(0..rounds), "an event overtook one that was sent before it");
}

#[test]
fn order_holds_across_threads() {
    for queue in queues() {
        relay(&queue, 2, 3_000, true);
        relay(&queue, 3, 1_500, false);
        relay(&queue, 5, 1_500, true);
    }
}

#[test]
fn second_sender_comes_after_what_the_sole_sender_sent() {
    for _ in 0..200 {
        let queue = EventQueue::builder().logs(Logs::Always).build().unwrap();
        (0..10).for_each(|i| queue.send(i).unwrap());
        thread::scope(|s| {
            s.spawn(|| (10..20).for_each(|i| queue.send(i).unwrap())).join().unwrap();
            (20..30).for_each(|i| queue.send(i).unwrap());
            s.spawn(|| (30..40).for_each(|i| queue.send(i).unwrap())).join().unwrap();
        });
        assert!(queue.drain().into_iter().eq(0..40));
    }
}

/// Makes threads send when told to, one after the other, and checks the order.
fn order_holds_in_phases(queue: &EventQueue<usize>, phases: &[&[usize]]) {
    let mut number = 0;
    let mut expected = 0;
    thread::scope(|s| {
        let (done, dones) = mpsc::channel();
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let (give, take) = mpsc::channel::<std::ops::Range<usize>>();
                let done = done.clone();
                s.spawn(move || {
                    for numbers in take {
                        numbers.into_iter().for_each(|number| queue.send(number).unwrap());
                        done.send(()).unwrap();
                    }
                });
                give
            })
            .collect();
        for phase in phases {
            let mut had_logs = false;
            for round in 0..150 {
                had_logs |= queue.stats().logs > 0;
                for sender in *phase {
                    senders[*sender].send(number..number + 20).unwrap();
                    number += 20;
                    dones.recv().unwrap();
                }
                if round % 3 == 0 {
                    for event in queue.drain() {
                        assert_eq!(event, expected);
                        expected += 1;
                    }
                }
            }
            if let [_] = phase {
                assert_eq!(queue.drain().len(), number - expected);
                expected = number;
                // Not at the end: another test's object may have taken its place in the table.
                assert!(had_logs, "a busy sole sender has a log");
            }
        }
    });
    assert!(queue.drain().into_iter().eq(expected..number));
}

#[test]
fn order_holds_while_the_number_of_senders_changes() {
    let phases: [&[usize]; 8] = [&[0], &[0, 1, 2], &[1], &[0, 2], &[2], &[2, 1], &[2], &[0]];
    order_holds_in_phases(&EventQueue::new(), &phases);
}

#[test]
fn parallel_senders_lose_nothing_and_keep_their_own_order() {
    const THREADS: usize = 6;
    const EVENTS: u64 = 20_000;
    for queue in queues() {
        let mut next = [0; THREADS];
        thread::scope(|s| {
            for me in 0..THREADS {
                let queue = &queue;
                s.spawn(move || (0..EVENTS).for_each(|i| queue.send((me, i)).unwrap()));
            }
            let mut left = THREADS as u64 * EVENTS;
            while left > 0 {
                let (me, number) = queue.recv().expect("open");
                assert_eq!(number, next[me]);
                next[me] += 1;
                left -= 1;
            }
        });
        assert_eq!(queue.try_recv(), Err(RecvError::Empty));
    }
}

/// Many logs with many events are merged while they are received. Events sent in between, or merged
/// by another thread, come after.
#[test]
fn order_holds_while_a_large_merge_is_received_in_portions() {
    const THREADS: usize = 5;
    const EVENTS: usize = 1_500;
    const ROUNDS: usize = 3;
    for queue in queues() {
        let turn = AtomicUsize::new(0);
        let wait_until = |mine| {
            while turn.load(Ordering::Acquire) < mine {
                thread::yield_now();
            }
        };
        thread::scope(|s| {
            for me in 0..THREADS {
                let (queue, turn) = (&queue, &turn);
                s.spawn(move || {
                    for round in 0..ROUNDS {
                        let mine = round * (THREADS + 1) + me;
                        wait_until(mine);
                        let first = (round * THREADS + me) * EVENTS;
                        (first..first + EVENTS).for_each(|i| queue.send(i).unwrap());
                        turn.store(mine + 1, Ordering::Release);
                    }
                });
            }
            let mut events = Vec::new();
            for round in 0..ROUNDS {
                wait_until(round * (THREADS + 1) + THREADS);
                assert_eq!(queue.drain_at_most(0, &mut events), 0);
                assert_eq!(queue.drain_at_most(7, &mut events), 7);
                events.push(queue.try_recv().unwrap());
                let all = (round + 1) * THREADS * EVENTS;
                if round == 1 {
                    events.push(queue.recv().unwrap());
                    queue.drain_into(&mut events);
                    assert_eq!(events.len(), all);
                }
                assert_eq!(queue.len() + events.len(), all);
                turn.fetch_add(1, Ordering::Release);
            }
            while queue.drain_at_most(1_000, &mut events) > 0 {}
            assert!(events.into_iter().eq(0..ROUNDS * THREADS * EVENTS));
        });
    }
}

#[test]
fn events_of_threads_that_ended_are_there() {
    for queue in queues() {
        for i in 0..50 {
            thread::scope(|s| s.spawn(|| queue.send(i).unwrap()).join().unwrap());
        }
        assert!(queue.drain().into_iter().eq(0..50));
    }
}

#[test]
fn events_are_dropped_once_wherever_the_queue_left_them() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for queue in queues() {
        let drops = Arc::new(AtomicUsize::new(0));
        let event = || Counted(Arc::clone(&drops));
        (0..10).for_each(|_| assert!(queue.send(event()).is_ok()));
        thread::scope(|s| {
            s.spawn(|| (0..10).for_each(|_| assert!(queue.send(event()).is_ok())));
        });
        drop(queue.try_recv()); // the others of this merge are in the receivers' hands now
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        (0..10).for_each(|_| assert!(queue.send(event()).is_ok()));
        queue.close();
        drop(queue.send(event()));
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        drop(queue);
        assert_eq!(drops.load(Ordering::Relaxed), 31);
    }
}

#[test]
fn full_queue_refuses_and_takes_again_at_half() {
    for logs in [Logs::Never, Logs::Always] {
        let queue = EventQueue::builder().max_events(100).logs(logs).build().unwrap();
        let mut sent = 0;
        while queue.try_send(sent).is_ok() {
            sent += 1;
            assert!(sent <= 112, "the bound and one log's share");
        }
        assert!(sent >= 100);
        assert_eq!(queue.try_send(sent), Err(SendError::Full(sent)));
        let mut received = 0;
        while queue.try_send(sent).is_err() {
            assert_eq!(queue.try_recv(), Ok(received));
            received += 1;
        }
        assert!((50..70).contains(&received), "{received}");
        assert!(queue.drain().into_iter().eq(received..=sent));
    }
}

#[test]
fn full_queue_makes_senders_wait_for_the_receiver() {
    for logs in [Logs::Never, Logs::Always, Logs::Auto] {
        let queue = EventQueue::builder().max_events(8).logs(logs).build().unwrap();
        let most = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..5_000).for_each(|i| queue.send(i).unwrap()));
            }
            for _ in 0..15_000 {
                queue.recv().expect("open");
                most.fetch_max(queue.len(), Ordering::Relaxed);
            }
        });
        let most = most.into_inner();
        // The bound, and for each sender a log and the event that it was about to send.
        assert!(most <= 8 + 3 * (2 + 1), "{most} events in a queue of 8");
        assert!(queue.is_empty());
    }
}

#[test]
fn absurd_bounds_are_refused() {
    let build = |events| EventQueue::<u8>::builder().max_events(events).build();
    assert!(build(0).unwrap_err().to_string().contains("max_events"));
    assert!(build(usize::MAX).unwrap_err().to_string().contains("max_events"));
    let unbounded = EventQueue::unbounded();
    (0..10_000).for_each(|i| unbounded.try_send(i).unwrap());
    assert_eq!(unbounded.len(), 10_000);
}

#[test]
fn closed_queue_refuses_senders_and_serves_receivers() {
    for queue in queues() {
        queue.send(1).unwrap();
        assert!(!queue.is_closed() && queue.close() && !queue.close() && queue.is_closed());
        assert_eq!(queue.send(2), Err(SendError::Closed(2)));
        assert_eq!(queue.try_send(3), Err(SendError::Closed(3)));
        assert_eq!(queue.recv(), Some(1));
        assert_eq!(queue.recv(), None);
        assert_eq!(queue.try_recv(), Err(RecvError::Closed));
        assert_eq!(queue.recv_timeout(Duration::from_secs(60)), Err(RecvError::Closed));
    }
}

#[test]
fn close_wakes_waiting_senders_and_receivers() {
    let queue = EventQueue::<u8>::builder().max_events(1).build().unwrap();
    thread::scope(|s| {
        let receiver = s.spawn(|| queue.recv());
        thread::sleep(Duration::from_millis(5));
        assert!(queue.close());
        assert_eq!(receiver.join().unwrap(), None);
    });
    let queue = EventQueue::builder().max_events(1).build().unwrap();
    queue.send(0).unwrap();
    thread::scope(|s| {
        let sender = s.spawn(|| (1..100).find_map(|i| queue.send(i).err()));
        thread::sleep(Duration::from_millis(5));
        assert!(queue.close());
        assert!(matches!(sender.join().unwrap(), Some(SendError::Closed(_))));
    });
}

/// If an event was accepted while the queue was being closed, the receiver gets it before it hears
/// of the end.
#[test]
fn race_of_send_and_close_loses_nothing() {
    let rounds = env::rounds(5_000);
    for (logs, publish) in [(Logs::Always, Publish::Biased), (Logs::Always, Publish::Locked)] {
        let (give, take) = mpsc::sync_channel::<Arc<EventQueue<u32>>>(1);
        let (answer, answers) = mpsc::sync_channel::<u32>(1);
        let sender = thread::spawn(move || {
            for queue in take {
                let mut sent = 0;
                while queue.send(sent).is_ok() {
                    sent += 1;
                }
                answer.send(sent).unwrap();
            }
        });
        for round in 0..rounds {
            let queue = EventQueue::builder().logs(logs).publish(publish).build().unwrap();
            let queue = Arc::new(queue);
            give.send(Arc::clone(&queue)).unwrap();
            (0..round % 50).for_each(|_| std::hint::spin_loop());
            queue.close();
            let mut received = 0;
            while let Some(event) = queue.recv() {
                assert_eq!(event, received);
                received += 1;
            }
            assert_eq!(answers.recv().unwrap(), received, "accepted and received differ");
            assert_eq!(queue.try_recv(), Err(RecvError::Closed), "not the end after all");
        }
        drop(give);
        sender.join().unwrap();
    }
}

/// Sleep and wake, over and over. A lost wake-up would leave the receiver waiting forever, and the
/// watchdog would report it.
#[test]
fn no_wake_up_is_lost() {
    let rounds = env::rounds(10_000) as u32;
    for queue in queues::<u32>() {
        let done = AtomicBool::new(false);
        let served = AtomicUsize::new(0);
        thread::scope(|s| {
            let sender = s.spawn(|| {
                for i in 0..rounds {
                    queue.send(i).unwrap();
                    // Wait for the receiver, so that it is often just going to sleep.
                    while served.load(Ordering::Acquire) + 1 < i as usize {
                        thread::yield_now();
                    }
                }
            });
            s.spawn(|| {
                let mut last = (Instant::now(), 0);
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(100));
                    let now = served.load(Ordering::Relaxed);
                    if now != last.1 {
                        last = (Instant::now(), now);
                    }
                    if last.0.elapsed() > Duration::from_secs(20) {
                        eprintln!("a wake-up was lost at event {now}: {queue:?}");
                        std::process::abort();
                    }
                }
            });
            for i in 0..rounds {
                assert_eq!(queue.recv(), Some(i));
                served.store(i as usize, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
            sender.join().unwrap();
        });
    }
}

#[test]
fn every_waiting_receiver_is_served() {
    for queue in queues::<u32>() {
        let sum = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while let Some(event) = queue.recv() {
                        sum.fetch_add(event as usize, Ordering::Relaxed);
                    }
                });
            }
            for i in 0..5_000 {
                queue.send(i).unwrap();
                if i % 16 == 0 {
                    thread::yield_now();
                }
            }
            queue.close();
        });
        assert_eq!(sum.into_inner(), 5_000 * 4_999 / 2);
    }
}

#[test]
fn timeout_ends_a_wait() {
    let queue = EventQueue::<u8>::new();
    let start = Instant::now();
    assert_eq!(queue.recv_timeout(Duration::from_millis(20)), Err(RecvError::Empty));
    assert!(start.elapsed() >= Duration::from_millis(20));
    queue.send(1).unwrap();
    assert_eq!(queue.recv_timeout(Duration::MAX), Ok(1));
}

/// A waker that wakes no task, and counts.
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn poll_recv_wakes_the_task_once_for_each_time_it_waited() {
    for queue in queues() {
        let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        assert_eq!(queue.poll_recv(&mut context), Poll::Pending);
        assert_eq!(queue.poll_recv(&mut context), Poll::Pending);
        queue.send(1).unwrap();
        queue.send(2).unwrap();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(queue.poll_recv(&mut context), Poll::Ready(Some(1)));
        assert_eq!(queue.poll_recv(&mut context), Poll::Ready(Some(2)));
        assert_eq!(queue.poll_recv(&mut context), Poll::Pending);
        queue.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert_eq!(queue.poll_recv(&mut context), Poll::Ready(None));
    }
}

#[test]
fn task_receives_what_threads_send() {
    const EVENTS: u32 = 20_000;
    for queue in queues() {
        let received = thread::scope(|s| {
            let receiver = s.spawn(|| {
                let waker = unparker();
                let mut context = Context::from_waker(&waker);
                let mut received = Vec::new();
                loop {
                    match queue.poll_recv(&mut context) {
                        Poll::Ready(Some(event)) => received.push(event),
                        Poll::Ready(None) => return received,
                        Poll::Pending => thread::park(),
                    }
                }
            });
            for i in 0..EVENTS {
                queue.send(i).unwrap();
                if i % 64 == 0 {
                    thread::yield_now();
                }
            }
            queue.close();
            receiver.join().unwrap()
        });
        assert!(received.into_iter().eq(0..EVENTS));
    }
}

#[test]
fn event_may_refer_to_its_own_queue() {
    struct Request {
        number: u32,
        answer_to: Option<Arc<EventQueue<Request>>>,
    }
    let (asked, answered) = (Arc::new(EventQueue::new()), Arc::new(EventQueue::new()));
    asked.send(Request { number: 1, answer_to: Some(Arc::clone(&answered)) }).ok().unwrap();
    let server = thread::spawn(move || {
        let request = asked.recv().unwrap();
        let answer = Request { number: request.number + 1, answer_to: None };
        request.answer_to.unwrap().send(answer).ok().unwrap();
    });
    assert_eq!(answered.recv().unwrap().number, 2);
    server.join().unwrap();
}

#[test]
fn large_and_small_events_survive_the_merge() {
    let queue = EventQueue::builder().logs(Logs::Always).build().unwrap();
    let start = Barrier::new(4);
    thread::scope(|s| {
        for me in 0..4_u64 {
            let (queue, start) = (&queue, &start);
            s.spawn(move || {
                start.wait();
                (0..500).for_each(|i| queue.send(([me; 60], i.to_string())).unwrap());
            });
        }
    });
    let mut expected: Vec<VecDeque<String>> =
        (0..4).map(|_| (0..500).map(|i| i.to_string()).collect()).collect();
    for (filler, text) in queue.drain() {
        assert!(filler.iter().all(|word| *word == filler[0]));
        assert_eq!(expected[filler[0] as usize].pop_front(), Some(text));
    }
    assert!(expected.iter().all(VecDeque::is_empty));

    let units = EventQueue::builder().logs(Logs::Always).build().unwrap();
    thread::scope(|s| {
        (0..3).for_each(|_| drop(s.spawn(|| (0..100).for_each(|_| units.send(()).unwrap()))));
    });
    assert_eq!(units.drain().len(), 300);
}

/// An event that panics, as user code may.
struct FailingWaker;

impl Wake for FailingWaker {
    fn wake(self: Arc<Self>) {
        panic!("planned");
    }
}

#[test]
fn panicking_waker_keeps_nobody_asleep() {
    for queue in queues() {
        for closes in [false, true] {
            let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
            for waker in [Waker::from(Arc::new(FailingWaker)), Waker::from(Arc::clone(&count))] {
                let polled = queue.poll_recv(&mut Context::from_waker(&waker));
                assert_eq!(polled, Poll::Pending);
            }
            let woken = catch_unwind(AssertUnwindSafe(|| match closes {
                true => queue.close(),
                false => queue.send(1).is_ok(),
            }));
            assert!(woken.is_err());
            assert_eq!(count.0.load(Ordering::SeqCst), 1, "closes: {closes}");
            assert_eq!(queue.try_recv().ok(), (!closes).then_some(1));
        }
    }
}
