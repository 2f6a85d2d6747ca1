//! An object's configuration, with its table and its clock, lives as long as some object uses it.

use crate::common::kinds::Add;
use crate::common::process::in_own_process;
use manycore::clock::Clock;
use manycore::oplog::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

type Sum = Deferred<u64, Commuting<Add>>;
type OrderedSum = Deferred<u64, Ordered<Add>>;

/// Two handles that tell whether the table and the clock of a builder are alive.
struct Watch(Weak<LogTable>, Weak<Clock>);

impl Watch {
    fn alive(&self) -> (bool, bool) {
        (self.0.strong_count() > 0, self.1.strong_count() > 0)
    }
}

const GONE: (bool, bool) = (false, false);
const THERE: (bool, bool) = (true, true);

fn builder<L: Log<u64>>(logs: Logs) -> (Builder<u64, L>, Watch) {
    let (table, clock) = (Arc::new(LogTable::new(64)), Arc::new(Clock::counter()));
    let watch = Watch(Arc::downgrade(&table), Arc::downgrade(&clock));
    (Deferred::builder().table(table).clock(clock).logs(logs), watch)
}

#[test]
fn table_and_clock_go_with_the_last_object_and_builder() {
    for logs in [Logs::Auto, Logs::Always, Logs::Never] {
        let (builder, watch) = builder::<Ordered<Add>>(logs);
        let first = builder.build(0).unwrap();
        let second = builder.clone().build(0).unwrap();
        drop(builder);
        first.append(Add(1));
        drop(first);
        assert_eq!(watch.alive(), THERE, "the second object uses them");
        second.append(Add(1));
        assert_eq!(second.into_inner(), 1);
        assert_eq!(watch.alive(), GONE, "{logs:?}");
    }
}

#[test]
fn builder_without_objects_keeps_its_table_and_gives_it_up() {
    let (builder, watch) = builder::<Ordered<Add>>(Logs::Always);
    drop(builder.build(0).unwrap());
    assert_eq!(watch.alive(), THERE);
    assert!(builder.build(7).unwrap().into_inner() == 7, "a number is used again");
    drop(builder);
    assert_eq!(watch.alive(), GONE);
}

#[test]
fn object_whose_update_panics_at_its_end_gives_its_configuration_up() {
    struct Fails;
    impl Op<u64> for Fails {
        fn apply(self, _: &mut u64) {
            panic!("expected by the test");
        }
    }
    type Failing = Deferred<u64, Commuting<Fails>>;
    for end in [drop::<Failing>, |object: Failing| assert_eq!(object.into_inner(), 0)] {
        let (builder, watch) = builder::<Commuting<Fails>>(Logs::Always);
        let object = builder.build(0).unwrap();
        drop(builder);
        assert!(object.promote());
        object.append(Fails);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(object)));
        assert!(ended.is_err(), "the update's panic is told");
        assert_eq!(watch.alive(), GONE);
    }
}

/// Uses more configurations over time than there are numbers for them.
fn many_configurations_one_after_the_other() {
    let mut watches = Vec::new();
    for number in 0..70_000_usize {
        let builder = OrderedSum::builder().max_entries(number + 1).logs(Logs::Always);
        if number % 100 == 0 {
            let (table, clock) = (Arc::new(LogTable::new(64)), Arc::new(Clock::counter()));
            watches.push(Watch(Arc::downgrade(&table), Arc::downgrade(&clock)));
            let object = builder.table(table).clock(clock).build(0).unwrap();
            object.append(Add(1));
            assert_eq!(object.into_inner(), 1);
        } else {
            drop(builder.build(0).unwrap());
        }
    }
    assert!(watches.iter().all(|watch| watch.alive() == GONE));
}

#[test]
fn more_configurations_than_numbers_work_one_after_the_other() {
    in_own_process(
        "more_configurations_than_numbers_work_one_after_the_other",
        many_configurations_one_after_the_other,
    );
}

fn too_many_at_a_time() {
    const MOST: usize = u16::MAX as usize;
    // One byte more than the default: none of them is the default configuration.
    let with = |entries: usize| Sum::builder().max_entries(entries).max_bytes((1 << 20) + 1);
    let mut objects: Vec<Sum> = (1..=MOST).map(|n| with(n).build(n as u64).unwrap()).collect();
    let error = with(MOST + 1).build(0).unwrap_err();
    assert_eq!(error, BuildError::TooManyConfigurations);
    assert_eq!(
        error.to_string(),
        "objects with 65535 different configurations exist, and there can be no more at a time; \
         give objects that may be alike the same settings"
    );
    // A known one and the default are no new ones.
    assert_eq!(with(9).build(5).unwrap().into_inner(), 5);
    assert_eq!(Sum::new(6).into_inner(), 6);
    // One that goes makes room for one.
    drop(objects.swap_remove(77));
    objects.push(with(MOST + 1).build(0).unwrap());
    assert!(with(MOST + 2).build(0).is_err());
    // An object's number leads to its own configuration, also where a number was used again.
    for (at, entries) in [(0, 1), (77, MOST), (1000, 1001), (MOST - 1, MOST + 1)] {
        let object = &objects[at];
        assert!(object.promote());
        (0..entries).for_each(|_| object.append(Add(1)));
        assert_eq!(object.stats().pending, entries as u64, "its log has room for so many");
        object.append(Add(1));
        assert_eq!(object.stats().applied, entries as u64, "and for no more");
    }
}

#[test]
fn configurations_beyond_65535_at_a_time_are_an_error() {
    in_own_process("configurations_beyond_65535_at_a_time_are_an_error", too_many_at_a_time);
}

/// Threads build and drop objects of equal and of different configurations at the same time. Each
/// object must find its own bound, whichever thread frees and takes numbers.
#[test]
fn numbers_that_threads_take_and_free_lead_to_their_own_configuration() {
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4_usize {
            let made = &made;
            scope.spawn(move || {
                for round in 0..2_000_usize {
                    let (builder, watch) = builder::<Commuting<Add>>(Logs::Always);
                    let entries = 1 + (thread + round) % 3;
                    let own = builder.max_entries(entries).build(0).unwrap();
                    let shared = Sum::builder().max_entries(entries).build(0).unwrap();
                    assert!(own.promote(), "its table has no other object");
                    assert_eq!(watch.0.upgrade().unwrap().hot_objects(), 1, "another's table");
                    own.append(Add(1));
                    drop((own, shared));
                    assert_eq!(watch.alive(), GONE);
                    made.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 16_000);
}
