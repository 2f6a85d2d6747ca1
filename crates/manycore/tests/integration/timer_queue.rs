//! `TimerQueue` from outside: compared with an ordered map, linearizability of one timer, and
//! threads that set, cancel, detach and fire.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{Timer, TimerQueue};
use manycore::ldu::Queue;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(300);

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Cancel(usize),
    Detach(usize),
    Advance(u64),
    Next,
}

fn step() -> impl Strategy<Value = Step> {
    let time = || prop_oneof![4 => 0..300_u64, 2 => 0..100_000_u64, 1 => any::<u64>()];
    prop_oneof![
        6 => time().prop_map(Step::Insert),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Detach),
        2 => (0..400_u64).prop_map(Step::Advance),
        1 => time().prop_map(Step::Advance),
        2 => Just(Step::Next),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Beside a map of what is set, by deadline and number.
    #[test]
    fn queue_fires_what_a_map_would(steps in prop::collection::vec(step(), 0..200)) {
        for kind in QUEUES {
            let queue = TimerQueue::with_queue(kind);
            let (mut set, mut now) = (BTreeMap::new(), 0);
            let mut handles: Vec<(usize, Timer<'_, Arc<usize>>)> = Vec::new();
            for (number, step) in steps.iter().enumerate() {
                match *step {
                    Step::Insert(at) => {
                        let value = Arc::new(number);
                        set.insert((at, number), Arc::clone(&value));
                        handles.push((number, queue.insert(at, value)));
                    }
                    Step::Cancel(which) if !handles.is_empty() => {
                        let (number, timer) = handles.swap_remove(which % handles.len());
                        let there = set.remove(&(timer.deadline(), number));
                        prop_assert_eq!(timer.is_pending(), there.is_some());
                        prop_assert_eq!(timer.cancel(), there);
                    }
                    Step::Detach(which) if !handles.is_empty() => {
                        handles.swap_remove(which % handles.len()).1.detach();
                    }
                    Step::Cancel(_) | Step::Detach(_) => {}
                    Step::Advance(to) => {
                        now = to.max(now);
                        let fired = queue.advance(to);
                        prop_assert!(fired.is_sorted_by_key(|(at, _)| *at));
                        let fired = fired.into_iter().map(|(at, number)| (at, *number));
                        let mut fired: Vec<_> = fired.collect();
                        fired.sort_unstable();
                        let later = set.split_off(&(now, usize::MAX));
                        let due = std::mem::replace(&mut set, later);
                        prop_assert!(fired.iter().eq(due.keys()), "{:?} of {:?}", fired, due);
                    }
                    Step::Next => {
                        let first = set.keys().next().map(|(at, _)| *at);
                        prop_assert_eq!(queue.next_deadline(), first);
                    }
                }
            }
            handles.into_iter().for_each(|(_, timer)| drop(timer));
            drop(queue);
            let gone = set.values().all(|value| Arc::strong_count(value) == 1);
            prop_assert!(gone, "a value outlived its queue");
        }
    }
}

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Set(u64),
    Cancel,
    Advance(u64),
    Next,
}

/// A model of one timer at a time: whether it is pending, and the time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct One {
    timer: Option<(u64, bool)>,
    now: u64,
}

impl Model for One {
    type Call = Call;
    type Answer = Option<u64>;

    fn call(rng: &mut Rng) -> Call {
        match rng.below(8) {
            0..=2 => Call::Set(rng.below(6) as u64),
            3 | 4 => Call::Cancel,
            5 => Call::Next,
            _ => Call::Advance(rng.below(6) as u64),
        }
    }

    fn answer(&mut self, call: &Call) -> Option<u64> {
        let pending = |timer: Option<(u64, bool)>| timer.filter(|(_, is)| *is).map(|(at, _)| at);
        match *call {
            // One that has fired must be cancelled, too, before another is set.
            Call::Set(at) => {
                let old = self.timer.map(|(at, _)| at);
                self.timer = self.timer.or(Some((at, true)));
                old
            }
            Call::Cancel => pending(self.timer.take()),
            Call::Advance(to) => {
                self.now = self.now.max(to);
                let due = pending(self.timer).filter(|at| *at <= self.now);
                self.timer = self.timer.map(|(at, is)| (at, is && due.is_none()));
                due
            }
            Call::Next => pending(self.timer),
        }
    }
}

/// A queue with a single handle that passes between threads.
struct Shared {
    handle: Mutex<Option<Timer<'static, u64>>>,
    /// From a box that this owns.
    queue: &'static TimerQueue<u64>,
}

impl Shared {
    fn new(rng: &mut Rng) -> Self {
        let queue = TimerQueue::with_queue(QUEUES[rng.below(2)]);
        if rng.below(4) == 0 {
            // Time that advances after each timer: from here on they are put on trial.
            (0..3000).for_each(|_| drop((queue.insert(1, 0), queue.advance(0))));
        }
        Self { handle: Mutex::default(), queue: Box::leak(Box::new(queue)) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.handle.get_mut().unwrap().take());
        // SAFETY: leaked in `new`, and its only handle is gone.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.queue).cast_mut()) });
    }
}

impl Subject<One> for Shared {
    fn answer(&self, call: &Call) -> Option<u64> {
        match *call {
            Call::Set(at) => {
                let mut handle = self.handle.lock().unwrap();
                let old = handle.as_ref().map(Timer::deadline);
                if old.is_none() {
                    *handle = Some(self.queue.insert(at, at));
                }
                old
            }
            Call::Cancel => self.handle.lock().unwrap().take().and_then(Timer::cancel),
            Call::Advance(to) => self.queue.advance(to).first().map(|(at, _)| *at),
            Call::Next => self.queue.next_deadline(),
        }
    }
}

#[test]
fn histories_of_one_timer_are_linearizable() {
    let _alone = env::alone();
    let until = env::soak(SHARE);
    match calls::check::<One, _>(env::seed(), until, Shared::new) {
        Ok(histories) => println!("{histories} histories"),
        Err(report) => panic!("{report}"),
    }
}

/// The checker notices a cancellation that wrongly claims it was in time.
#[test]
fn cancelling_that_boasts_is_not_linearizable() {
    let _alone = env::alone();
    struct Boastful(Shared);
    impl Subject<One> for Boastful {
        fn answer(&self, call: &Call) -> Option<u64> {
            let Call::Cancel = call else { return self.0.answer(call) };
            let timer = self.0.handle.lock().unwrap().take()?;
            let deadline = timer.deadline();
            timer.cancel().or(Some(deadline))
        }
    }
    let until = env::deadline("MANYCORE_SOAK", Duration::from_secs(20));
    let make = |rng: &mut Rng| Boastful(Shared::new(rng));
    assert!(calls::check::<One, _>(env::seed(), until, make).is_err());
}

/// A value that counts its drop, and knows the time it was set for.
struct Counted<'a>(u64, &'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

static DROPS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Threads set timers, cancel them, let them go or pass them on, while others advance. Exactly one
/// thread gets each value, none fires early, and none that was due stays.
#[test]
fn each_value_is_had_once_and_in_time() {
    let _alone = env::alone();
    for (kind, drops) in QUEUES.into_iter().zip(&DROPS) {
        let seed = env::seed();
        println!("MANYCORE_SEED={seed:#x}");
        let until = env::soak(SHARE);
        let queue = TimerQueue::with_queue(kind);
        let (now, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (set, had) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let hand_over = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for thread in 0..2 {
                let (queue, now, over, set, had, hand_over) =
                    (&queue, &now, &over, &set, &had, &hand_over);
                scope.spawn(move || {
                    let mut rng = Rng::part(seed, thread);
                    let mut mine: Vec<Timer<'_, Counted<'_>>> = Vec::new();
                    while !over.load(Relaxed) {
                        let far = if rng.once_in(8) { 5_000 } else { 40 };
                        let deadline = now.load(Relaxed) + rng.below(far) as u64;
                        mine.push(queue.insert(deadline, Counted(deadline, drops)));
                        set.fetch_add(1, Relaxed);
                        while mine.len() > rng.below(20) {
                            let timer = mine.swap_remove(rng.below(mine.len()));
                            match rng.below(6) {
                                0 => timer.detach(),
                                1 => hand_over.lock().unwrap().push(timer),
                                2 => mine.extend(hand_over.lock().unwrap().pop()),
                                _ => drop(timer.cancel().map(|_| had.fetch_add(1, Relaxed))),
                            }
                        }
                    }
                });
            }
            let fire = |to: u64| {
                for (deadline, value) in queue.advance(to) {
                    assert!(deadline <= to && value.0 == deadline, "{deadline} at {to}");
                    had.fetch_add(1, Relaxed);
                }
            };
            while std::time::Instant::now() < until {
                let to = now.fetch_add(7, Relaxed) + 7;
                fire(to);
                thread::yield_now();
            }
            over.store(true, Relaxed);
        });
        let left = hand_over.into_inner().unwrap();
        left.into_iter().for_each(|timer: Timer<'_, _>| timer.detach());
        had.fetch_add(queue.advance(u64::MAX).len(), Relaxed);
        assert_eq!(queue.next_deadline(), None);
        drop(queue);
        let (set, had) = (set.into_inner(), had.into_inner());
        assert_eq!(drops.load(Relaxed), set, "values were lost, or dropped twice");
        assert!(had <= set && had > 0);
    }
}

#[test]
fn hook_is_told_of_earlier_deadlines_only() {
    for kind in QUEUES {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&told);
        let queue =
            TimerQueue::with_queue(kind).on_earlier(move |at| hook.lock().unwrap().push(at));
        let told = || std::mem::take(&mut *told.lock().unwrap());
        let mut first = queue.insert(50, 'a');
        assert_eq!(told(), [50], "there was none");
        queue.insert(50, 'b').detach();
        queue.insert(70, 'c').detach();
        assert_eq!(told(), []);
        assert_eq!(queue.next_deadline(), Some(50));
        assert!(told().is_empty(), "a look sets no timer");
        queue.insert(60, 'd').detach();
        queue.insert(40, 'e').detach();
        queue.insert(45, 'f').detach(); // 40 is known, though nobody has looked since
        queue.insert(30, 'g').detach();
        assert_eq!(told(), [40, 30]);
        assert!(first.reset(20));
        assert_eq!(told(), [20]);
        assert_eq!(queue.advance(100).len(), 7);
        assert_eq!(queue.next_deadline(), None);
        queue.insert(u64::MAX, 'h').detach();
        assert_eq!(told(), [u64::MAX]);
    }
}

#[test]
fn hook_may_panic_and_may_use_the_queue() {
    let queue = Arc::new_cyclic(|weak: &std::sync::Weak<TimerQueue<&str>>| {
        let weak = weak.clone();
        TimerQueue::new().on_earlier(move |at| {
            let queue = weak.upgrade().unwrap();
            match at {
                7 => panic!("as planned"),
                20 => {
                    queue.insert(10, "by the hook").detach();
                    assert_eq!(queue.next_deadline(), Some(10));
                }
                _ => {}
            }
        })
    });
    queue.insert(20, "by hand").detach();
    let tried = std::panic::catch_unwind(|| queue.insert(7, "lost").detach());
    assert!(tried.is_err());
    assert_eq!(queue.advance(30), [(10, "by the hook"), (20, "by hand")]);
}

/// A timekeeper that sleeps when there is no timer. It must be woken for each that comes then.
#[test]
fn timekeeper_sleeps_through_no_timer() {
    for kind in QUEUES {
        let until = env::soak(SHARE);
        let (send, wake) = std::sync::mpsc::channel();
        let send = Mutex::new(send);
        let queue = TimerQueue::with_queue(kind).on_earlier(move |_| {
            send.lock().unwrap().send(()).unwrap();
        });
        let (set, fired) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let setters = AtomicUsize::new(2);
        thread::scope(|scope| {
            for first in 0..2_u64 {
                let (queue, set, fired, setters) = (&queue, &set, &fired, &setters);
                scope.spawn(move || {
                    let mut rng = Rng::part(env::seed(), first);
                    for base in 0.. {
                        if Instant::now() > until {
                            break;
                        }
                        set.fetch_add(1, Relaxed);
                        let at = 100 * base + rng.below(1_000) as u64;
                        queue.insert(at, ()).detach();
                        while set.load(Relaxed) > fired.load(Relaxed) + 3 && Instant::now() < until
                        {
                            thread::yield_now();
                        }
                    }
                    setters.fetch_sub(1, Relaxed);
                });
            }
            while setters.load(Relaxed) != 0 || set.load(Relaxed) > fired.load(Relaxed) {
                // Its time flies: what is next is due at once.
                if let Some(next) = queue.next_deadline() {
                    fired.fetch_add(queue.advance(next).len(), Relaxed);
                } else if wake.recv_timeout(Duration::from_millis(20)).is_err()
                    && queue.next_deadline().is_some()
                {
                    // It was set just now, or nobody told of it.
                    let told = wake.recv_timeout(Duration::from_secs(60));
                    assert!(told.is_ok(), "a timer was set and not told of");
                }
            }
        });
        assert!(fired.into_inner() > 2);
    }
}
