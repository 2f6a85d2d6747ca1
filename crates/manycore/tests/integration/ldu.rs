//! Sets with marks, on one thread and on a few: what they keep, what they cost, and what they
//! report when they are used wrongly.

use crate::allocations;
use manycore::ldu::*;
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

/// A set of letters or numbers that rejects a member told twice, or taken away though absent.
#[derive(Debug, Default)]
struct Strict<V>(BTreeSet<V>);

impl<V: Copy + Ord + Send + Sync + std::fmt::Debug> Structure<Element<V>> for Strict<V> {
    fn insert(&mut self, member: &Element<V>) {
        assert!(self.0.insert(**member), "{:?} is told twice", **member);
    }

    fn remove(&mut self, member: &Element<V>) {
        assert!(self.0.remove(&**member), "{:?} was never told", **member);
    }
}

type Set<V> = DeferredSet<Strict<V>, Element<V>>;

fn set<V: Copy + Ord + Send + Sync + std::fmt::Debug + 'static>(queue: Queue) -> Set<V> {
    DeferredSet::builder().queue(queue).build(Strict(BTreeSet::new())).unwrap()
}

fn contents<V: Copy + Ord + Send + Sync + std::fmt::Debug + 'static>(set: &Set<V>) -> Vec<V> {
    set.read().0.iter().copied().collect()
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap().take()
}

/// Runs each function on its own thread, one after the other. The threads live at the same time, so
/// that each has its own slot and its own queue.
fn on_cores<const N: usize>(works: [&(dyn Fn() + Sync); N]) {
    thread::scope(|scope| {
        let mut alive = Vec::new();
        for work in works {
            let (done, is_done) = mpsc::channel();
            let (end, may_end) = mpsc::channel::<()>();
            alive.push(end);
            scope.spawn(move || {
                work();
                done.send(()).expect("the next one waits for it");
                let _ = may_end.recv(); // fails after the last one
            });
            is_done.recv().expect("the work has not panicked");
        }
    });
}

/// The example of the thesis, figure 2.2: {A, B}; then insert C, D, E, remove D, A, insert D,
/// remove E, on three cores. Four members are queued, and one of them is garbage. The tree becomes
/// {B, C, D}.
#[test]
fn worked_example_of_the_thesis() {
    for queue in QUEUES {
        let set = set(queue);
        let (a, b) = (set.add('A'), set.add('B'));
        assert_eq!(contents(&set), ['A', 'B']);
        (0..10).for_each(|_| set.synchronize()); // no thread is busy any more
        let before = set.stats();
        let [c, d, e] = [const { Mutex::new(None) }; 3];
        let [without_d, without_e] = [const { Mutex::new(None) }; 2];
        let put = |place: &Mutex<_>, member| *place.lock().unwrap() = Some(member);
        let a = Mutex::new(Some(a));
        on_cores([
            &|| put(&c, set.add('C')),
            &|| put(&d, set.add('D')),
            &|| put(&e, set.add('E')),
            &|| *without_d.lock().unwrap() = take(&d).map(Attached::remove),
            &|| drop(take(&a)),
            &|| *d.lock().unwrap() = take(&without_d).map(Detached::insert),
            &|| *without_e.lock().unwrap() = take(&e).map(Attached::remove),
        ]);
        assert_eq!(set.stats().queued - before.queued, 4, "{queue:?}: C, D, E, A");
        assert_eq!(contents(&set), ['B', 'C', 'D'], "{queue:?}");
        assert_eq!(set.stats().applied - before.applied, 3, "{queue:?}: E was garbage");
        drop((b, c, d, without_e));
        assert_eq!(contents(&set), []);
    }
}

#[test]
fn insert_here_and_remove_there_cancel() {
    for queue in QUEUES {
        let set = set(queue);
        for number in 0..100 {
            let member = set.add(number);
            thread::scope(|s| drop(s.spawn(|| drop(member))));
        }
        assert_eq!(contents(&set), []);
        let stats = set.stats();
        assert_eq!((stats.applied, stats.queued, stats.freed), (0, 100, 100), "{queue:?}");
    }
}

#[test]
fn toggling_queues_once_and_allocates_nothing() {
    for queue in QUEUES {
        let set = set(queue);
        let member = set.add(1);
        assert_eq!(contents(&set), [1]);
        let mut toggled = Some(member.remove().insert());
        let before = set.stats();
        let allocations = allocations::within(|| {
            for _ in 0..1000 {
                toggled = toggled.take().map(|member| member.remove().insert());
            }
        });
        assert_eq!(allocations, 0);
        assert_eq!(set.stats().queued, before.queued);
        assert_eq!(contents(&set), [1]);
        assert_eq!(set.stats().applied, 1);
        drop(toggled);
    }
}

#[test]
fn busy_members_stay_queued_and_idle_ones_leave() {
    let set = set(Queue::PerThread);
    let members: Vec<_> = (0..10).map(|number| set.add(number).remove()).collect();
    assert_eq!(contents(&set), []);
    assert_eq!(set.stats().waiting, 10, "all of them came and went since the last read");
    let busy = members.into_iter().map(|member| member.insert().remove());
    let members: Vec<_> = busy.collect();
    assert_eq!(set.stats().queued, 10, "none was brought again");
    (0..10).for_each(|_| set.synchronize());
    assert_eq!(set.stats().waiting, 0);
    drop(members);
}

#[test]
fn member_taken_back_can_change_and_move_to_another_set() {
    let (first, second) = (set(Queue::PerThread), set(Queue::Global));
    let mut member = first.add(1).remove().into_box();
    assert_eq!(first.stats().drains, 1, "it was queued");
    **member = 2;
    let member = second.insert(member);
    assert_eq!((contents(&first), contents(&second)), (vec![], vec![2]));
    let member = member.remove();
    assert_eq!(contents(&second), []);
    (0..10).for_each(|_| second.synchronize());
    let drains = second.stats().drains;
    assert_eq!(**member.into_box(), 2);
    assert_eq!(second.stats().drains, drains, "no queue had it");
}

#[test]
fn full_queue_is_drained_by_a_change() {
    for queue in QUEUES {
        let set: Set<u32> = DeferredSet::builder()
            .queue(queue)
            .max_queued(16)
            .build(Strict(BTreeSet::new()))
            .unwrap();
        for round in 0..100 {
            drop(set.add(round)); // given up while queued
        }
        let freed = set.stats().freed;
        assert!(freed >= 100 - 2 * 16, "{freed} of 100 were freed without a read");
        // A reader that queues members itself has to let the queue grow.
        let guard = set.read();
        let members: Vec<_> = (0..200).map(|number| set.add(number)).collect();
        assert!(guard.0.is_empty());
        drop(guard);
        assert_eq!(contents(&set).len(), 200);
        drop(members);
    }
}

#[test]
fn members_do_not_wait_longer_than_the_bound_in_time() {
    let set: Set<u32> = DeferredSet::builder()
        .max_delay(Duration::from_millis(1))
        .build(Strict(BTreeSet::new()))
        .unwrap();
    let one = set.add(1);
    thread::sleep(Duration::from_millis(20));
    let two = set.add(2);
    assert!(set.stats().applied >= 1, "overdue");
    drop((one, two));
}

#[test]
fn queue_of_a_thread_that_ended_is_read_and_gone_on_with() {
    let set = set(Queue::PerThread);
    for round in 0..5 {
        let member = thread::scope(|s| s.spawn(|| set.add(round)).join().unwrap());
        std::mem::forget(member);
    }
    assert_eq!(contents(&set), [0, 1, 2, 3, 4]);
}

#[test]
fn dropped_set_tells_its_structure_first() {
    struct Last<'a>(&'a AtomicUsize, usize);
    impl Structure<Element<u8>> for Last<'_> {
        fn insert(&mut self, _: &Element<u8>) {
            self.1 += 1;
        }
        fn remove(&mut self, _: &Element<u8>) {
            self.1 -= 1;
        }
    }
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            self.0.store(self.1, SeqCst);
        }
    }
    let seen = AtomicUsize::new(9);
    let set = DeferredSet::new(Last(&seen, 0));
    std::mem::forget(set.add(1)); // a leaked handle leaks its member and nothing else
    drop(set.add(2));
    drop(set);
    assert_eq!(seen.load(SeqCst), 1);
    let set = set_of_two();
    assert_eq!(set.into_inner().0, [1, 2].into());
}

fn set_of_two() -> Set<u8> {
    let mut set = set(Queue::Global);
    std::mem::forget((set.add(1), set.add(2)));
    assert_eq!(set.get_mut().0.len(), 2);
    set
}

// ---- members with links of their own, by hand ----

struct Session {
    id: u32,
    links: Links,
}

static FREED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the offset is the field's, which is used for this alone.
unsafe impl Linked for Session {
    const LINKS: usize = offset_of!(Session, links);

    fn name(&self) -> String {
        format!("session {}", self.id)
    }

    unsafe fn free(session: NonNull<Self>) {
        FREED.fetch_add(1, SeqCst);
        // SAFETY: from a box, and not used any more.
        drop(unsafe { Box::from_raw(session.as_ptr()) });
    }
}

#[derive(Default)]
struct Ids(Vec<u32>);

impl Structure<Session> for Ids {
    fn insert(&mut self, session: &Session) {
        self.0.push(session.id);
    }
    fn remove(&mut self, session: &Session) {
        self.0.retain(|id| *id != session.id);
    }
}

fn session(id: u32) -> NonNull<Session> {
    NonNull::from(Box::leak(Box::new(Session { id, links: Links::new() })))
}

fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it must panic");
    panic.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn misuse_by_hand_panics_with_the_members_name() {
    let sessions = DeferredSet::new(Ids::default());
    let (seven, eight) = (session(7), session(8));
    // SAFETY: the members are in this set alone, on one thread, and live until it is done.
    unsafe {
        sessions.insert_raw(seven);
        let said = message(|| sessions.insert_raw(seven));
        assert_eq!(said, "manycore: session 7 is inserted, but is in the set already");
        let said = message(|| sessions.dequeue_raw(seven));
        assert_eq!(said, "manycore: session 7 is settled, but is in the set");
        sessions.remove_raw(seven);
        let said = message(|| sessions.remove_raw(seven));
        assert_eq!(said, "manycore: session 7 is removed, but is not in the set");
        let said = message(|| sessions.retire_raw(eight));
        assert_eq!(said, "manycore: session 8 is removed, but is not in the set");
        assert!(sessions.read().0.is_empty(), "misuse changes nothing");
        sessions.insert_raw(seven);
        sessions.insert_raw(eight);
        assert_eq!(sessions.read().0.len(), 2);
        let before = FREED.load(SeqCst);
        sessions.retire_raw(seven);
        assert_eq!(FREED.load(SeqCst), before, "not while it is queued");
        assert_eq!(sessions.read().0, [8]);
        assert_eq!(FREED.load(SeqCst), before + 1);
        sessions.remove_raw(eight);
        sessions.dequeue_raw(eight);
        drop(Box::from_raw(eight.as_ptr()));
    }
}

// ---- panics ----

#[derive(Default)]
struct Moody {
    seen: Vec<u8>,
}

impl Structure<Element<u8>> for Moody {
    fn insert(&mut self, member: &Element<u8>) {
        assert!(**member != 3, "no threes");
        self.seen.push(**member);
    }
    fn remove(&mut self, member: &Element<u8>) {
        self.seen.retain(|seen| *seen != **member);
    }
}

#[test]
fn panic_of_the_structure_poisons_and_loses_nothing() {
    for queue in QUEUES {
        let set = DeferredSet::builder().queue(queue).build(Moody::default()).unwrap();
        let members: Vec<_> = (1..=5).map(|number| set.add(number)).collect();
        assert!(catch_unwind(AssertUnwindSafe(|| set.synchronize())).is_err());
        assert!(set.is_poisoned());
        assert!(matches!(set.try_read(), Err(TryReadError::Poisoned)));
        assert!(message_of_read(&set).contains("poisoned"));
        let six = set.add(6); // changes go on
        assert!(set.read_poisoned().seen.len() < 5);
        set.clear_poison();
        let mut seen = set.read().seen.clone();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 4, 5, 6], "{queue:?}: only the call that panicked is gone");
        drop((members, six));
        assert!(set.read().seen.is_empty(), "the member that panicked was removed like all");
    }
}

fn message_of_read(set: &DeferredSet<Moody, Element<u8>>) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(set.read()))).expect_err("poisoned");
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn panic_in_a_change_that_drains_stays_there() {
    let set = DeferredSet::builder().max_queued(1).build(Moody::default()).unwrap();
    let three = set.add(3);
    assert!(set.is_poisoned(), "the change drained, and told the set alone");
    drop(three);
    set.clear_poison();
    assert!(set.read().seen.is_empty());
}

#[test]
fn poisoned_set_that_is_dropped_frees_its_members() {
    let counted = std::sync::Arc::new(());
    struct Refuses;
    impl Structure<Element<std::sync::Arc<()>>> for Refuses {
        fn insert(&mut self, _: &Element<std::sync::Arc<()>>) {
            panic!("refused");
        }
        fn remove(&mut self, _: &Element<std::sync::Arc<()>>) {}
    }
    let set = DeferredSet::new(Refuses);
    let first = set.add(counted.clone());
    assert!(catch_unwind(AssertUnwindSafe(|| set.synchronize())).is_err());
    drop((first, set.add(counted.clone())));
    drop(set);
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
}

#[test]
fn reading_a_set_that_this_thread_holds_panics() {
    let set = set::<u8>(Queue::PerThread);
    let guard = set.read();
    assert!(matches!(set.try_read(), Err(TryReadError::Busy)));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(set.read()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| set.stats())).is_err());
    drop(guard);
    assert_eq!(contents(&set), []);
}

#[test]
fn bounds_that_cannot_work_are_refused() {
    let refused = |members| Set::<u8>::builder().max_queued(members).build(Strict(BTreeSet::new()));
    assert_eq!(refused(0).unwrap_err(), BuildError::Zero("max_queued"));
    assert_eq!(refused(usize::MAX).unwrap_err(), BuildError::TooLarge("max_queued"));
}
