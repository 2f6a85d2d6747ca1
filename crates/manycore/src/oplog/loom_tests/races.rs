//! Races that are the same for every kind of log and way of collecting it.

use super::{Bag, Deferred, Log, Push, contents, push, spawn};
use crate::clock;
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// Two updaters and a reader: at the end no update is lost or applied twice (oplog.D4).
pub(super) fn appends_race_a_read(make: impl Fn() -> Arc<Bag> + Sync + Send + 'static) {
    large_model(2, move || {
        let bag = make();
        bag.append(push(0));
        let other = spawn(&bag, |bag| bag.append(push(1)));
        let reader = spawn(&bag, |bag| {
            let seen = contents(bag);
            assert!(matches!(seen[..], [0] | [0, 1] | [0, 2] | [0, 1, 2]), "{seen:?}");
        });
        bag.append(push(2));
        other.join().unwrap();
        reader.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

/// One updater, two reads: what the first read saw stays, and the log still works after it was
/// emptied.
pub(super) fn appends_race_two_reads(
    preemptions: usize,
    make: impl Fn() -> Arc<Bag> + Sync + Send + 'static,
) {
    model(preemptions, move || {
        let bag = make();
        let other = spawn(&bag, |bag| (1..=3).for_each(|number| bag.append(push(number))));
        let first = contents(&bag);
        let second = contents(&bag);
        assert!((1..=3).collect::<Vec<_>>().starts_with(&second), "{second:?}");
        assert!(second.starts_with(&first), "{first:?} was taken back: {second:?}");
        other.join().unwrap();
        assert_eq!(contents(&bag), [1, 2, 3]);
    });
}

/// Y is appended only by a thread that knows that X was appended: no reader sees Y without X, and
/// in an ordered log X comes first (oplog.D2). Y's slot is dirty from the start, so a reader that
/// collected slots one by one would find Y first.
pub(super) fn reader_sees_cause_before_effect<L: Log<Vec<u32>, Op = Push>>(
    make: impl Fn() -> Arc<Deferred<Vec<u32>, L>> + Sync + Send + 'static,
) {
    reader_ahead_sees_cause_before_effect(0, 0, make);
}

/// The same, but the hardware counters of X's thread and of the reader are ahead of the counter of
/// Y's thread.
pub(super) fn reader_ahead_sees_cause_before_effect<L: Log<Vec<u32>, Op = Push>>(
    cause_ahead: u64,
    reader_ahead: u64,
    make: impl Fn() -> Arc<Deferred<Vec<u32>, L>> + Sync + Send + 'static,
) {
    model(2, move || {
        let shared = Arc::new((make(), AtomicBool::new(false)));
        let (list, happened) = &*shared;
        list.append(push(0));
        let cause = spawn(&shared, move |(list, happened)| {
            clock::run_ahead(cause_ahead);
            list.append(push(1));
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, move |(list, _)| {
            clock::run_ahead(reader_ahead);
            let seen = list.read().clone();
            assert!(seen.contains(&0), "what returned before the read began is missing");
            assert!(!seen.contains(&2) || seen.contains(&1), "effect without its cause: {seen:?}");
            assert!(!L::ORDERED || seen.is_sorted(), "effect before its cause: {seen:?}");
        });
        let knew = happened.load(Ordering::Acquire);
        if knew {
            list.append(push(2));
        }
        cause.join().unwrap();
        reader.join().unwrap();
        clock::run_ahead(cause_ahead);
        let all = if L::ORDERED { list.read().clone() } else { contents(list) };
        let expected = if knew { vec![0, 1, 2] } else { vec![0, 1] };
        assert_eq!(all, expected, "lost or doubled, or effect before its cause");
    });
}

/// A thread reads its own appends in place (no other thread has any), and its log stays dirty.
/// Another thread reads, too, and perhaps appends before. Nothing is lost, doubled or taken back.
pub(super) fn reads_of_own_updates_race_a_read<L: Log<Vec<u32>, Op = Push>>(
    appends: bool,
    make: impl Fn() -> Arc<Deferred<Vec<u32>, L>> + Sync + Send + 'static,
) {
    large_model(2, move || {
        let list = make();
        let other = spawn(&list, move |list| {
            if appends {
                list.append(push(9));
            }
            let seen = list.read().clone();
            assert!(!appends || seen.contains(&9), "what returned before the read is missing");
        });
        for number in 1..=2 {
            list.append(push(number));
            let seen = list.read().iter().copied().filter(|seen| *seen != 9).collect::<Vec<_>>();
            assert!((1..=number).eq(seen), "what returned before the read began is missing");
        }
        other.join().unwrap();
        let expected: &[u32] = if appends { &[1, 2, 9] } else { &[1, 2] };
        assert_eq!(contents(&list), expected, "lost or doubled");
    });
}
