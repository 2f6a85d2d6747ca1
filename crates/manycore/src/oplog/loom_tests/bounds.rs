//! Logs at their bounds (oplog.D6): no update is dropped under any policy.

use super::{Bag, List, builder, contents, push, spawn};
use crate::oplog::{Log, Publish, WhenFull};
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering, thread};
use std::sync::Arc;

fn tiny<L: Log<Vec<u32>>>(when_full: WhenFull) -> Arc<super::Deferred<Vec<u32>, L>> {
    let builder = builder(Publish::Locked).max_entries(1).when_full(when_full);
    let object = builder.build(Vec::new()).unwrap();
    assert!(object.promote());
    Arc::new(object)
}

/// An updater fills its log while another thread reads.
fn full_log_races_read(when_full: WhenFull) {
    model(2, move || {
        let list: Arc<List> = tiny(when_full);
        let updater = spawn(&list, |list| (1..=3).for_each(|number| list.append(push(number))));
        let seen = list.read().clone();
        assert!([1, 2, 3].starts_with(&seen), "{seen:?}");
        updater.join().unwrap();
        assert_eq!(*list.read(), [1, 2, 3]);
    });
}

#[test]
fn loom_full_log_drains_itself_or_grows_while_busy() {
    full_log_races_read(WhenFull::Drain { growth: 2 });
}

#[test]
fn loom_full_log_drains_itself_or_waits_while_busy() {
    full_log_races_read(WhenFull::Drain { growth: 1 });
}

#[test]
fn loom_full_log_grows_then_drains_itself() {
    full_log_races_read(WhenFull::Grow { growth: 2 });
}

/// Two updaters with full logs both want to be the reader.
#[test]
fn loom_two_full_logs_drain_at_once() {
    large_model(2, || {
        let bag: Arc<Bag> = tiny(WhenFull::Drain { growth: 1 });
        let other = spawn(&bag, |bag| (0..2).for_each(|number| bag.append(push(number))));
        (2..4).for_each(|number| bag.append(push(number)));
        other.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2, 3]);
    });
}

#[test]
fn loom_full_log_waits_for_a_reader() {
    model(2, || {
        let shared = Arc::new((tiny(WhenFull::Wait), AtomicBool::new(false)));
        let updater = spawn(&shared, |(list, first): &(Arc<List>, AtomicBool)| {
            list.append(push(1));
            first.store(true, Ordering::Release);
            list.append(push(2));
        });
        let (list, first) = &*shared;
        while !first.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // One read makes room; the updater then continues by itself.
        assert!(list.read().starts_with(&[1]));
        updater.join().unwrap();
        assert_eq!(*list.read(), [1, 2]);
    });
}
