//! Logs at their bounds (oplog.D6): no update is dropped, however far they may grow.

use super::{Bag, List, builder, contents, push, spawn};
use crate::oplog::{Log, Publish};
use crate::percpu::loom_tests::{large_model, model};
use std::sync::Arc;

fn tiny<L: Log<Vec<u32>>>(growth: usize) -> Arc<super::Deferred<Vec<u32>, L>> {
    let builder = builder(Publish::Locked).max_entries(1).growth(growth);
    let object = builder.build(Vec::new()).unwrap();
    assert!(object.promote());
    Arc::new(object)
}

/// An updater fills its log while another thread reads.
fn full_log_races_read(growth: usize) {
    model(2, move || {
        let list: Arc<List> = tiny(growth);
        let updater = spawn(&list, |list| (1..=3).for_each(|number| list.append(push(number))));
        let seen = list.read().clone();
        assert!([1, 2, 3].starts_with(&seen), "{seen:?}");
        updater.join().unwrap();
        assert_eq!(*list.read(), [1, 2, 3]);
    });
}

#[test]
fn loom_full_log_drains_itself_or_grows_while_busy() {
    full_log_races_read(2);
}

#[test]
fn loom_full_log_drains_itself_or_waits_while_busy() {
    full_log_races_read(1);
}

/// Two updaters with full logs both want to be the reader.
#[test]
fn loom_two_full_logs_drain_at_once() {
    large_model(2, || {
        let bag: Arc<Bag> = tiny(1);
        let other = spawn(&bag, |bag| (0..2).for_each(|number| bag.append(push(number))));
        (2..4).for_each(|number| bag.append(push(number)));
        other.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2, 3]);
    });
}
