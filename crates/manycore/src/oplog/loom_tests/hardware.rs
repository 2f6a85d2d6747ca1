//! Logs with stamps of the hardware counter: the fast path of updates (`push`), and clocks that
//! differ between cores (clock.C4, oplog.D1 to oplog.D3).
//!
//! Reading a hardware counter makes no store visible. So only the announcements, the gates, the
//! dirty bits and the fences can provide the order that these models demand.

use super::ordered::{
    append_or_store_is_seen, appends_race_a_read, appends_race_two_reads,
    one_of_two_readers_sees_the_other,
};
use super::races::{reader_ahead_sees_cause_before_effect, reader_sees_cause_before_effect};
use super::{Deferred, List, Log, Op, Ordered, Push, builder, push, spawn};
use crate::clock::{self, Clock, Stamp};
use crate::oplog::Publish;
use crate::oplog::hot_state::HotState;
use crate::oplog::promotion::{self, Inside};
use crate::percpu;
use crate::percpu::loom_tests::model;
use std::mem;
use std::sync::Arc;

/// Makes a hot list on this clock.
fn on<L: Log<Vec<u32>>>(publish: Publish, clock: Clock) -> Arc<Deferred<Vec<u32>, L>> {
    let list = builder(publish).clock(Arc::new(clock)).build(Vec::new()).unwrap();
    assert!(list.promote());
    Arc::new(list)
}

fn list(publish: Publish) -> Arc<List> {
    on(publish, Clock::synchronized())
}

/// A slot's second update takes the fast path: the models below run it.
#[test]
fn loom_stamped_second_update_goes_the_plain_way() {
    for publish in [Publish::Locked, Publish::Biased] {
        model(1, move || {
            let list = list(publish);
            list.append(push(1));
            let word = list.word.load();
            assert!(word.is_plain(), "updates are told not to try");
            let slot = percpu::idle_slot().unwrap();
            // SAFETY: this is the list's word.
            let hot = unsafe { promotion::enter_by(slot, list.word.raw(), word) };
            let hot: Inside<HotState<Vec<u32>, Ordered<Push>>> = hot.unwrap();
            // SAFETY: `enter_by` has announced the hot state.
            assert!(unsafe { hot.push(slot.index(), push(2)) }.is_ok());
            drop(hot);
            assert_eq!(*list.read(), [1, 2]);
        });
    }
}

#[test]
fn loom_stamped_locked_appends_race_reads_and_keep_their_order() {
    appends_race_a_read(|| list(Publish::Locked));
    appends_race_two_reads(|| list(Publish::Locked));
}

#[test]
fn loom_stamped_biased_appends_race_reads_and_keep_their_order() {
    appends_race_a_read(|| list(Publish::Biased));
    appends_race_two_reads(|| list(Publish::Biased));
}

#[test]
fn loom_stamped_locked_cause_comes_before_effect() {
    reader_sees_cause_before_effect(|| list(Publish::Locked));
}

#[test]
fn loom_stamped_biased_cause_comes_before_effect() {
    reader_sees_cause_before_effect(|| list(Publish::Biased));
}

#[test]
fn loom_stamped_locked_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(|| list(Publish::Locked));
}

#[test]
fn loom_stamped_biased_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(|| list(Publish::Biased));
}

#[test]
fn loom_stamped_locked_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(updates, || list(Publish::Locked)));
}

#[test]
fn loom_stamped_biased_append_or_later_store_is_seen() {
    (1..=2).for_each(|updates| append_or_store_is_seen(updates, || list(Publish::Biased)));
}

const SKEW: u64 = 2;

#[test]
fn loom_skewed_cause_ahead_comes_before_effect() {
    reader_ahead_sees_cause_before_effect(SKEW, 0, || {
        on::<Ordered<Push>>(Publish::Locked, Clock::bounded(SKEW))
    });
}

#[test]
fn loom_skewed_reader_ahead_sees_cause_before_effect() {
    reader_ahead_sees_cause_before_effect(0, SKEW, || {
        on::<Ordered<Push>>(Publish::Biased, Clock::bounded(SKEW))
    });
}

/// A log that asserts what the caller of [`Log::push`] promises.
#[derive(Default)]
struct Rising {
    log: Ordered<Push>,
    last: Stamp,
}

impl Log<Vec<u32>> for Rising {
    type Op = Push;
    const ORDERED: bool = true;

    fn apply(op: Push, list: &mut Vec<u32>) {
        op.apply(list);
    }

    fn push(&mut self, op: Push, stamp: Stamp) {
        assert!(stamp > self.last, "a stamp is not above the one before");
        self.last = stamp;
        self.log.add(op, stamp);
    }

    fn len(&self) -> usize {
        Log::<Vec<u32>>::len(&self.log)
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        self.log.take_until(cut, &mut into.log);
    }

    fn merge(logs: &mut [Self], list: &mut Vec<u32>) -> usize {
        let mut taken: Vec<_> = logs.iter_mut().map(|own| mem::take(&mut own.log)).collect();
        <Ordered<Push> as Log<Vec<u32>>>::merge(&mut taken, list)
    }
}

/// A thread is moved to a core with a clock that is behind, although the clock was judged
/// synchronized. Its own updates still keep their order.
#[test]
fn loom_stamped_thread_that_is_moved_to_a_slower_clock_keeps_its_order() {
    model(2, || {
        let list = on::<Rising>(Publish::Locked, Clock::synchronized());
        let moved = spawn(&list, |list| {
            clock::run_ahead(2);
            (1..=2).for_each(|number| list.append(push(number)));
            clock::run_ahead(0);
            list.append(push(3));
        });
        let seen = list.read().clone();
        assert!([1, 2, 3].starts_with(&seen), "{seen:?}");
        moved.join().unwrap();
        clock::run_ahead(4);
        assert_eq!(*list.read(), [1, 2, 3]);
    });
}
