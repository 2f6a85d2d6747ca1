//! Models of the queue's laws event_queue.Q2 to event_queue.Q11. What loom can and can't show is in
//! the header of [`crate::percpu::loom_tests`].

use super::signals::Signals;
use super::waiter::Waiter;
use super::{EventQueue, RecvError};
use crate::oplog::{Logs, Publish};
use crate::percpu::loom_tests::{RACE, huge_model, large_model, model, must_catch};
use crate::sync::{AtomicBool, Ordering, thread};
use loom::sync::Notify;
use std::future::Future;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

type Queue = EventQueue<Box<u32>>;

/// A queue that has logs already, in the shared table of this execution.
fn hot(publish: Publish) -> Arc<Queue> {
    let queue = Queue::builder().logs(Logs::Always).publish(publish).build().unwrap();
    assert!(queue.full().inbox.promote());
    Arc::new(queue)
}

fn spawn(queue: &Arc<Queue>, f: impl FnOnce(&Queue) + 'static) -> thread::JoinHandle<()> {
    let queue = Arc::clone(queue);
    thread::spawn(move || f(&queue))
}

fn send(queue: &Queue, number: u32) {
    assert!(queue.send(Box::new(number)).is_ok());
}

/// A receiver that goes to sleep while the event is being sent (event_queue.Q4). A lost wake-up is
/// a deadlock.
fn sleeper_is_woken(publish: Publish) {
    model(2, move || {
        let queue = hot(publish);
        let sender = spawn(&queue, |queue| send(queue, 1));
        assert_eq!(receive(&queue), Some(Box::new(1)));
        sender.join().unwrap();
    });
}

#[test]
fn loom_event_queue_wakes_the_sleeper_with_locked_logs() {
    sleeper_is_woken(Publish::Locked);
}

#[test]
fn loom_event_queue_wakes_the_sleeper_with_biased_logs() {
    sleeper_is_woken(Publish::Biased);
}

/// Set in the process of a test of the test: receivers do not look again after arming.
const BUG: &str = "MANYCORE_NO_SECOND_LOOK";

fn receive(queue: &Queue) -> Option<Box<u32>> {
    if std::env::var_os(BUG).is_none() {
        return queue.recv();
    }
    loop {
        match queue.try_recv() {
            Err(RecvError::Empty) => {}
            received => return received.ok(),
        }
        queue.full().signals().arm(Waiter::Thread(thread::current()));
        thread::park();
    }
}

/// A queue in its small form, which the receiver promotes to wait, and the sender if it meets the
/// receiver (event_queue.Q11).
#[test]
fn loom_event_queue_wakes_the_sleeper_that_finds_it_small() {
    model(2, || {
        let queue = Arc::new(Queue::new());
        let sender = spawn(&queue, |queue| {
            send(queue, 1);
            send(queue, 2);
        });
        assert_eq!(queue.recv(), Some(Box::new(1)));
        assert_eq!(queue.recv(), Some(Box::new(2)));
        sender.join().unwrap();
    });
}

/// Events stay in order, of the thread that promotes and of the other sender (event_queue.Q11).
#[test]
fn loom_event_queue_keeps_the_order_across_its_promotion() {
    model(2, || {
        let queue = Arc::new(Queue::new());
        let sender = spawn(&queue, |queue| {
            send(queue, 1);
            send(queue, 2);
        });
        send(&queue, 11);
        queue.full();
        send(&queue, 12);
        sender.join().unwrap();
        send(&queue, 13);
        let events: Vec<u32> = queue.drain().into_iter().map(|event| *event).collect();
        assert_eq!(events.last(), Some(&13), "an earlier event is behind a later one: {events:?}");
        let of = |from: std::ops::Range<u32>| {
            events.iter().copied().filter(|event| from.contains(event)).collect::<Vec<_>>()
        };
        assert_eq!((of(1..10), of(11..20)), (vec![1, 2], vec![11, 12, 13]), "{events:?}");
    });
}

const SLEEPER: &str =
    "collections::event_queue::loom_tests::loom_event_queue_wakes_the_sleeper_with_locked_logs";

#[test]
fn loom_event_queue_receiver_that_looks_once_is_caught() {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", SLEEPER, "--nocapture", "--test-threads=1"])
        .env(BUG, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{SLEEPER} is no test:\n{said}");
    assert!(!run.status.success() && said.contains("deadlock"), "it was not caught:\n{said}");
}

/// A second event, sent to a log that has one already: no dirty bit is set then, and everything
/// depends on the announcement.
fn merge_races_a_send_to_a_dirty_log(publish: Publish) {
    large_model(2, move || {
        let queue = hot(publish);
        let sender = spawn(&queue, |queue| (1..3).for_each(|number| send(queue, number)));
        for number in 1..3 {
            assert_eq!(queue.recv(), Some(Box::new(number)));
        }
        sender.join().unwrap();
    });
}

#[test]
fn loom_event_queue_merge_races_a_send_to_a_dirty_log_with_locked_logs() {
    merge_races_a_send_to_a_dirty_log(Publish::Locked);
}

#[test]
fn loom_event_queue_merge_races_a_send_to_a_dirty_log_with_biased_logs() {
    merge_races_a_send_to_a_dirty_log(Publish::Biased);
}

const DIRTY: &str = "collections::event_queue::loom_tests::\
     loom_event_queue_merge_races_a_send_to_a_dirty_log_with_locked_logs";

/// event_queue.Q4 stands on law oplog.D1: without it, the event is missed or its log is torn.
#[test]
fn loom_event_queue_wake_up_lost_to_a_plain_publish_is_caught() {
    must_catch("plain-publish", DIRTY, &["deadlock", RACE[0], RACE[1], RACE[2]]);
}

/// One thread sends and then reads a word; another writes the word and then polls the cold queue
/// (event_queue.Q9). One of the two finds what the other did.
#[test]
fn loom_event_queue_poll_misses_no_event_sent_before() {
    model(2, || {
        let queue = Arc::new(Queue::builder().logs(Logs::Never).build().unwrap().promoted());
        let word = Arc::new(AtomicBool::new(false));
        let unseen = Arc::new(AtomicBool::new(false));
        let (looked_at, told) = (Arc::clone(&word), Arc::clone(&unseen));
        let sender = spawn(&queue, move |queue| {
            send(queue, 1);
            // ORDER: SeqCst; after the send. The other one is read after the join.
            told.store(!looked_at.load(Ordering::SeqCst), Ordering::Relaxed);
        });
        // ORDER: SeqCst; before the poll.
        word.store(true, Ordering::SeqCst);
        let missed = queue.try_recv() == Err(RecvError::Empty);
        sender.join().unwrap();
        assert!(!(missed && unseen.load(Ordering::Relaxed)), "the poll missed an event");
    });
}

const POLLS: &str =
    "collections::event_queue::loom_tests::loom_event_queue_poll_misses_no_event_sent_before";

#[test]
fn loom_event_queue_poll_without_its_fence_is_caught() {
    must_catch("unfenced-poll", POLLS, &["the poll missed an event"]);
}

/// One event goes through the ring, and another is logged after it (event_queue.Q10), while the
/// receiver polls.
#[test]
fn loom_event_queue_ring_comes_before_what_is_logged_later() {
    large_model(2, || {
        let queue = Arc::new(Queue::builder().build().unwrap().promoted());
        assert!(queue.try_recv().is_err()); // asks
        let sender = spawn(&queue, |queue| {
            send(queue, 1);
            queue.full().inbox.promote();
            send(queue, 2);
        });
        let mut next = 1;
        for _ in 0..2 {
            if let Ok(event) = queue.try_recv() {
                assert_eq!(*event, next, "an event has overtaken the ring's");
                next += 1;
            }
        }
        sender.join().unwrap();
        let rest: Vec<u32> = queue.drain().into_iter().map(|event| *event).collect();
        assert!(rest.into_iter().eq(next..3), "an event has overtaken the ring's");
    });
}

const RING: &str = "collections::event_queue::loom_tests::\
     loom_event_queue_ring_comes_before_what_is_logged_later";

#[test]
fn loom_event_queue_merge_that_forgets_the_ring_is_caught() {
    must_catch("ring-after-merge", RING, &["an event has overtaken the ring's"]);
}

/// Two events in a row, each through the ring of one place if the receiver is quick
/// (event_queue.Q10).
#[test]
fn loom_event_queue_place_of_the_ring_is_used_again() {
    model(2, || {
        let queue = Arc::new(Queue::builder().logs(Logs::Never).build().unwrap().promoted());
        assert!(queue.try_recv().is_err()); // asks
        let sender = spawn(&queue, |queue| (1..3).for_each(|number| send(queue, number)));
        let polled = (0..2).filter_map(|_| queue.try_recv().ok()).count() as u32;
        sender.join().unwrap();
        assert!(queue.drain().into_iter().map(|event| *event).eq(polled + 1..3));
    });
}

const PLACE: &str = "collections::event_queue::loom_tests::\
     loom_event_queue_place_of_the_ring_is_used_again";

#[test]
fn loom_event_queue_ring_that_overruns_is_caught() {
    must_catch("ring-overrun", PLACE, &[RACE[0], RACE[1], RACE[2], "assertion"]);
}

/// What was accepted is received before the end (event_queue.Q3).
fn close_races_a_send(publish: Publish) {
    model(2, move || {
        let queue = hot(publish);
        let accepted = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&accepted);
        let sender = spawn(&queue, move |queue| {
            // ORDER: Relaxed; read after the join.
            told.store(queue.send(Box::new(1)).is_ok(), Ordering::Relaxed);
        });
        queue.close();
        let received = queue.recv().is_some();
        assert!(queue.recv().is_none());
        sender.join().unwrap();
        assert_eq!(received, accepted.load(Ordering::Relaxed));
        assert_eq!(queue.try_recv(), Err(RecvError::Closed), "an event came after the end");
    });
}

#[test]
fn loom_event_queue_ends_after_what_it_accepted() {
    close_races_a_send(Publish::Locked);
    close_races_a_send(Publish::Biased);
}

/// The sole sender's last event before a second sender's first one (event_queue.Q2).
fn second_sender_follows_the_first(publish: Publish) {
    model(2, move || {
        let queue = hot(publish);
        let sent = Arc::new(AtomicBool::new(false));
        send(&queue, 0); // this thread is the sole sender
        let seen = Arc::clone(&sent);
        let second = spawn(&queue, move |queue| {
            // ORDER: Acquire; pairs with the store below.
            let after = seen.load(Ordering::Acquire);
            send(queue, if after { 2 } else { 3 });
        });
        send(&queue, 1);
        // ORDER: Release; the send before the word of it.
        sent.store(true, Ordering::Release);
        second.join().unwrap();
        let events: Vec<u32> = queue.drain().into_iter().map(|event| *event).collect();
        assert!(matches!(events[..], [0, 1, 2] | [0, 1, 3] | [0, 3, 1] | [3, 0, 1]), "{events:?}");
    });
}

#[test]
fn loom_event_queue_keeps_the_order_when_a_second_sender_comes() {
    second_sender_follows_the_first(Publish::Locked);
    second_sender_follows_the_first(Publish::Biased);
}

/// Wakes a task that is a thread. Not by `unpark`: in loom, that lets a thread go on that waits for
/// a mutex, and is forgotten then.
struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Polls to the end. A lost wake-up is a deadlock.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let task = Arc::new(Task(Notify::new()));
    let waker = Waker::from(Arc::clone(&task));
    loop {
        if let Poll::Ready(ready) = poll(&mut Context::from_waker(&waker)) {
            return ready;
        }
        task.0.wait();
    }
}

/// The waker of a task that no thread waits for.
fn other_waker() -> Waker {
    Waker::from(Arc::new(Task(Notify::new())))
}

/// Two callers of `poll_recv`, where the queue keeps one waker (event_queue.Q6). One polls once and
/// is gone, so the other is woken by the end or by the first one's poll.
#[test]
fn loom_event_queue_wakes_the_poller_that_makes_room() {
    large_model(2, || {
        let queue = hot(Publish::Locked);
        let passes = spawn(&queue, |queue| {
            let _ = queue.poll_recv(&mut Context::from_waker(&other_waker()));
        });
        let closes = spawn(&queue, |queue| {
            let _ = queue.close();
        });
        assert!(block_on(|context| queue.poll_recv(context)).is_none());
        passes.join().unwrap();
        closes.join().unwrap();
    });
}

const POLLERS: &str =
    "collections::event_queue::loom_tests::loom_event_queue_wakes_the_poller_that_makes_room";

#[test]
fn loom_event_queue_poller_displaced_in_silence_is_caught() {
    must_catch("silent-displacement", POLLERS, &["deadlock"]);
}

/// A future that is dropped while another receiver waits and events are being sent
/// (event_queue.Q6). It may have received one, so there are two.
#[test]
fn loom_event_queue_dropped_future_leaves_no_other_asleep() {
    huge_model(2, || {
        let queue = hot(Publish::Locked);
        let leaves = spawn(&queue, |queue| {
            let mut future = pin!(queue.recv_async());
            let _ = future.as_mut().poll(&mut Context::from_waker(&other_waker()));
        });
        let sends = spawn(&queue, |queue| {
            send(queue, 1);
            send(queue, 2);
        });
        let mut future = pin!(queue.recv_async());
        assert!(block_on(|context| future.as_mut().poll(context)).is_some());
        leaves.join().unwrap();
        sends.join().unwrap();
    });
}

const DROPPED: &str =
    "collections::event_queue::loom_tests::loom_event_queue_dropped_future_leaves_no_other_asleep";

#[test]
fn loom_event_queue_future_whose_drop_silences_others_is_caught() {
    must_catch("deaf-disarm", DROPPED, &["deadlock"]);
}

/// A queue that is full with one event.
fn full() -> Arc<Queue> {
    let queue = Queue::builder().logs(Logs::Never).max_events(1).build().unwrap().promoted();
    send(&queue, 0);
    assert!(queue.is_full());
    Arc::new(queue)
}

/// A task that finds the queue full while the receiver makes room (event_queue.Q7). A lost wake-up
/// is a deadlock.
#[test]
fn loom_event_queue_sender_hears_of_room() {
    model(2, || {
        let queue = full();
        let receives = spawn(&queue, |queue| assert_eq!(queue.try_recv(), Ok(Box::new(0))));
        let mut future = pin!(queue.send_async(Box::new(1)));
        assert_eq!(block_on(|context| future.as_mut().poll(context)), Ok(()));
        receives.join().unwrap();
        assert_eq!(queue.try_recv(), Ok(Box::new(1)));
    });
}

const ROOM: &str = "collections::event_queue::loom_tests::loom_event_queue_sender_hears_of_room";

#[test]
fn loom_event_queue_sender_that_enters_the_list_late_is_caught() {
    must_catch("late-sender", ROOM, &["deadlock"]);
}

/// One send is given up while another waits, room is made and the queue is closed.
#[test]
fn loom_event_queue_dropped_send_leaves_no_other_asleep() {
    large_model(2, || {
        let queue = full();
        let leaves = spawn(&queue, |queue| {
            let mut future = pin!(queue.send_async(Box::new(7)));
            let _ = future.as_mut().poll(&mut Context::from_waker(&other_waker()));
        });
        let closes = spawn(&queue, |queue| {
            let _ = queue.try_recv();
            queue.close();
        });
        let mut future = pin!(queue.send_async(Box::new(1)));
        let _ = block_on(|context| future.as_mut().poll(context));
        leaves.join().unwrap();
        closes.join().unwrap();
    });
}

/// The last sender goes while the receiver is about to park (event_queue.Q8).
#[test]
fn loom_event_queue_receiver_hears_that_the_last_sender_went() {
    model(2, || {
        let queue = Queue::builder().logs(Logs::Never).build().unwrap().promoted();
        let (sender, receiver) = queue.into_channel();
        let other = sender.clone();
        let one = thread::spawn(move || assert!(sender.send(Box::new(1)).is_ok()));
        let two = thread::spawn(move || drop(other));
        assert_eq!(receiver.recv(), Some(Box::new(1)));
        assert_eq!(receiver.recv(), None);
        one.join().unwrap();
        two.join().unwrap();
    });
}

/// A receiver forgets the senders while a thread logs an event, in an object that was promoted in
/// the receiver's hands (event_queue.Q2). What is sent afterwards has a higher key.
#[test]
fn loom_event_queue_event_logged_while_senders_are_forgotten_stays_first() {
    model(3, || {
        let signals = Arc::new(Signals::new(8));
        let key = |signals: &Signals| {
            assert!(signals.accepts_logged());
            signals.key()
        };
        key(&signals);
        let other = {
            let signals = Arc::clone(&signals);
            thread::spawn(move || key(&signals))
        };
        let first = other.join().unwrap(); // from a second thread, so there are many
        assert!(signals.has_many_senders() && signals.note_cold());
        let other = {
            let signals = Arc::clone(&signals);
            thread::spawn(move || key(&signals))
        };
        signals.forget_senders();
        let second = other.join().unwrap();
        assert!(second < key(&signals), "{LATE}");
        assert!(first > 1);
    });
}

const LATE: &str = "an event was logged, and a later one has a lower key";

#[test]
fn loom_event_queue_senders_that_are_forgotten_at_once_are_caught() {
    let name = "loom_event_queue_event_logged_while_senders_are_forgotten_stays_first";
    must_catch("forget-at-once", &format!("collections::event_queue::loom_tests::{name}"), &[LATE]);
}
