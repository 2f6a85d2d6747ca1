//! Models of the shared counter: clock.C1 and clock.C2 are its modification order, and nothing more
//! is needed.

use std::sync::Arc;

use super::{Clock, FakeClock};
use crate::percpu::loom_tests::model;
use crate::sync::{AtomicU64, Ordering, thread};

#[test]
fn loom_counter_keeps_the_order_of_messages() {
    model(3, || {
        let shared = Arc::new((Clock::counter(), AtomicU64::new(0)));
        let other = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            let (clock, word) = &*other;
            word.store(clock.stamp().ticks(), Ordering::Release);
        });
        let (clock, word) = &*shared;
        let sent = word.load(Ordering::Acquire);
        assert!(sent < clock.stamp().ticks());
        sender.join().unwrap();
    });
}

#[test]
fn loom_counter_cut_sees_what_was_before_an_earlier_stamp() {
    model(3, || {
        let shared = Arc::new((Clock::counter(), AtomicU64::new(0)));
        let other = Arc::clone(&shared);
        let updater = thread::spawn(move || {
            let (clock, data) = &*other;
            data.store(1, Ordering::Relaxed);
            clock.stamp()
        });
        let (clock, data) = &*shared;
        let cut = clock.cut();
        let seen = data.load(Ordering::Relaxed);
        let stamp = updater.join().unwrap();
        assert!(stamp > cut || seen == 1, "{stamp:?} is below {cut:?} and its past is not seen");
    });
}

#[test]
fn loom_fake_settles_between_skewed_threads() {
    model(3, || {
        let time = FakeClock::new();
        let shared = Arc::new((Clock::fake(&time, 2), AtomicU64::new(0)));
        let (other, fast) = (Arc::clone(&shared), time.clone());
        let sender = thread::spawn(move || {
            fast.with_skew_on_this_thread(2);
            let (clock, word) = &*other;
            let stamp = clock.stamp();
            clock.commit_wait(stamp);
            word.store(stamp.ticks(), Ordering::Release);
        });
        let (clock, word) = &*shared;
        let sent = word.load(Ordering::Acquire);
        assert!(sent < clock.stamp().ticks());
        sender.join().unwrap();
    });
}

#[test]
fn loom_system_clock_is_one_per_execution() {
    model(3, || {
        let first = Clock::system().stamp();
        let second = thread::spawn(|| Clock::system().stamp()).join().unwrap();
        assert!(first < second && second.ticks() < 10, "made anew for each execution");
    });
}
