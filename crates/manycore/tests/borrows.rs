//! Uses each collection once, in small: make it, change it on two threads, read it, drop it with
//! what leaked handles have left.
//!
//! `ci/miri.sh` interprets these tests. Miri sees a pointer that outlives its right to the memory;
//! elsewhere the tests are a quick look at the same things.

use manycore::cluster::{Clustered, Placement, Rep};
use manycore::collections::*;
use manycore::ldu::*;
use manycore::lock::{BrLock, McsLock, TicketLock};
use manycore::namespace::IdSpace;
use manycore::oplog::{Combine, Combining, Deferred, Logs, Op};
use manycore::section::{self, Atomic, Domain, Owned};
use manycore::slab::{Slab, SlabBox};
use std::collections::BTreeSet;
use std::future::Future;
use std::mem::forget;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::thread;

/// Returns a value that needs dropping and can be told from others.
fn text(number: u32) -> Arc<str> {
    number.to_string().into()
}

#[derive(Default)]
struct Texts(BTreeSet<Arc<str>>);

impl Structure<Element<Arc<str>>> for Texts {
    fn insert(&mut self, member: &Element<Arc<str>>) {
        assert!(self.0.insert(Arc::clone(member)));
    }

    fn remove(&mut self, member: &Element<Arc<str>>) {
        assert!(self.0.remove(&**member));
    }
}

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

#[test]
fn members_of_sets_come_and_go_on_two_threads() {
    for queue in QUEUES {
        let builder = DeferredSet::builder().queue(queue).max_queued(2);
        let set: DeferredSet<Texts, _> = builder.build(Texts::default()).unwrap();
        thread::scope(|scope| {
            let members: Vec<_> = (0..4).map(|number| set.add(text(number))).collect();
            scope.spawn(|| {
                for member in members {
                    let removed = member.remove();
                    drop(if removed.ends_with('3') {
                        Err(removed.into_box())
                    } else {
                        Ok(removed)
                    });
                }
            });
            (4..6).for_each(|number| drop(set.add(text(number)).remove().insert()));
            assert!(set.read_shared().0.len() <= 6);
            set.synchronize();
        });
        let kept = set.add(text(9));
        assert_eq!(set.read().0.len(), 1);
        drop(kept);
        assert_eq!(set.into_inner().0.len(), 0);
    }
}

#[derive(Default)]
struct Sum(u64);

#[derive(Clone, Copy)]
struct Add(u64);

impl Op<Sum> for Add {
    fn apply(self, sum: &mut Sum) {
        sum.0 += self.0;
    }
}

impl Combine for Add {
    type Key = ();

    fn key(&self) {}

    fn combine(&mut self, other: Self) {
        self.0 += other.0;
    }
}

#[test]
fn registries_free_what_leaked_entries_left() {
    let logs = |logs| Registry::builder().logs(logs).max_entries(2).build().unwrap();
    let mut all = vec![logs(Logs::Always), logs(Logs::Never)];
    all.extend(QUEUES.map(|queue| Registry::builder().marks(queue).build().unwrap()));
    for registry in all {
        thread::scope(|scope| {
            let entries: Vec<_> = (0..4).map(|number| registry.register(text(number))).collect();
            assert_eq!(registry.len(), 4);
            scope.spawn(|| drop(entries));
            let mine: Vec<_> = (0..3).map(|number| registry.register(text(number))).collect();
            registry.for_each(|value| assert_eq!(value.len(), 1));
            drop(mine);
        });
        let owned = registry.register_owned(text(7));
        forget(registry.register(text(8)));
        assert_eq!(registry.len(), 2);
        forget(registry.register(text(9)));
        drop(registry);
        assert_eq!(&**owned, "7");
    }
}

#[test]
fn intervals_and_keys_free_what_leaked_handles_left() {
    let range = |start| Box::new(start)..Box::new(start + 5);
    for form in 0..3 {
        let builder = IntervalRegistry::builder().max_entries(2);
        let builder = match form {
            0 => builder.marks(Queue::Global),
            1 => builder.logs(Logs::Always),
            _ => builder.logs(Logs::Never),
        };
        let intervals = builder.build().unwrap();
        thread::scope(|scope| {
            let handles: Vec<_> = (0..20).map(|at| intervals.add(range(at), text(at))).collect();
            assert!(intervals.len() == 20);
            scope.spawn(|| drop(handles));
            drop(intervals.add(range(1), text(3)));
        });
        let kept = intervals.add(range(1), text(3));
        assert_eq!(intervals.overlapping(range(2)), [text(3)]);
        if form == 0 {
            forget(kept); // the tree frees it; with logs, it has a reference of its own
        }
    }
    let keys = ActiveSet::with_queue(Queue::Global);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..4).map(|number| keys.register(text(number))).collect();
        assert_eq!(keys.oldest(), Some(text(0)));
        scope.spawn(|| drop(handles));
        drop(keys.register(text(2)));
    });
    let _kept = keys.register(text(5));
    assert_eq!(keys.snapshot(), [text(5)]);
}

#[test]
fn timers_fire_detached_cancelled_and_left() {
    for queue in QUEUES {
        let timers = TimerQueue::with_queue(queue);
        thread::scope(|scope| {
            let mine: Vec<_> = (0..4).map(|at| timers.insert(at, text(at as u32))).collect();
            assert_eq!(timers.next_deadline(), Some(0));
            scope.spawn(|| mine.into_iter().for_each(|timer| drop(timer.cancel())));
            timers.insert(70, text(70)).detach();
            timers.insert(1, text(1)).detach();
            assert!(!timers.advance(2).is_empty());
        });
        timers.insert(5_000, text(71)).detach();
        assert_eq!(timers.advance(100), [(70, text(70))]);
        timers.insert(6_000, text(72)).detach();
    }
}

#[test]
fn ranges_are_divided_locked_and_removed() {
    let map = Arc::new(RangeMap::new());
    thread::scope(|scope| {
        let work = |from: u64| {
            let view = map.enter();
            view.insert(from..from + 5_000, text(1)).unwrap();
            let removed = view.remove(from + 10..from + 20).unwrap();
            assert_eq!(removed.map(|(_, value)| value.len()).sum::<usize>(), text(1).len());
            assert!(view.split(from + 4_097).unwrap());
            let mut guard = view.lock(from..=from + 5).unwrap();
            guard.replace(from + 1..from + 2, text(2)).unwrap();
            assert_eq!(guard.iter().count(), 3);
            drop(guard);
            assert_eq!(view.range(from..from + 5_000).unwrap().count(), 5);
        };
        scope.spawn(move || work(0));
        work(1 << 40);
    });
    let view = map.enter();
    assert_eq!(view.iter().count(), 10);
    std::mem::forget(view.lock(3..4).unwrap());
    assert_eq!(view.get(2), Some(&text(1)));
}

#[test]
fn entries_of_a_flat_map_go_in_and_out_by_words() {
    let map = FlatHashMap::new();
    thread::scope(|scope| {
        for thread in 0..2_u16 {
            let map = &map;
            scope.spawn(move || {
                for number in 0..20_u16 {
                    map.insert([number; 3], number + thread);
                    map.update(&[number; 3], |value| value + 1);
                    map.remove(&[number + 10; 3]);
                }
            });
        }
    });
    assert!(map.iter().all(|(key, value)| map.get(&key) == Some(value)));
    let few: FlatHashMap<char, Option<NonZero<u8>>> =
        ('a'..='z').map(|letter| (letter, NonZero::new(letter as u8))).collect();
    few.retain(|letter, _| *letter < 'c');
    few.shrink_to_fit();
    assert_eq!((few.len(), few.get(&'b')), (2, Some(NonZero::new(b'b'))));
}

#[test]
fn entries_of_an_ordered_map_are_found_moved_and_taken() {
    let (inline, apart) = (OrderedMap::new(), OrderedMap::new());
    thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (inline, apart) = (&inline, &apart);
            scope.spawn(move || {
                for number in 0..12 {
                    inline.insert(number * 2 + thread, (number as u8, true));
                    apart.insert(text(number), text(thread));
                    let view = apart.enter();
                    let first = view.first().map(|(key, _)| key);
                    apart.remove(&text(number / 2));
                    assert!(first.is_none_or(|key| !key.is_empty()));
                    inline.update(&(number + thread), |value| (value.0, !value.1));
                }
            });
        }
    });
    let keys: Vec<u32> = inline.enter().keys().copied().collect();
    assert!(keys.into_iter().eq(0..24));
    let view = apart.enter();
    let held: Vec<_> = view.range(text(3)..=text(8)).rev().collect();
    apart.clear();
    assert!(held.iter().all(|(key, value)| !key.is_empty() && !value.is_empty()));
    drop(held);
    drop(view);
    assert_eq!((apart.len(), inline.pop_last_cloned()), (0, Some((23, (11, true)))));
    assert!(inline.into_iter().rev().map(|(key, _)| key).eq((0..23).rev()));
}

#[test]
fn objects_with_logs_are_updated_and_read() {
    let object = Deferred::<Sum, Combining<Add>>::builder().logs(Logs::Always).build(Sum(0));
    let object = object.unwrap();
    let (lru, events, counter) = (Lru::new(), EventQueue::new(), Counter::new(0));
    let map = Arc::new(HashMap::new());
    counter.promote();
    thread::scope(|scope| {
        let work = |from: u32| {
            for number in from..from + 4 {
                object.append(Add(1));
                lru.touch(text(number % 3));
                events.send(text(number)).unwrap();
                counter.inc();
                map.enter().insert(text(number % 5), text(number));
                map.enter().remove(&text((number + 1) % 5));
            }
        };
        scope.spawn(move || work(0));
        work(2);
        assert!(object.read().0 <= 8);
    });
    assert_eq!((object.read().0, lru.len(), events.drain().len()), (8, 3, 8));
    assert_eq!((lru.evict(2).len(), counter.sum()), (2, 8));
    assert!(map.len() <= 5);
}

#[test]
fn events_of_many_logs_are_merged_received_and_left() {
    for received in [0, 2, 9] {
        let queue = EventQueue::builder().logs(Logs::Always).build().unwrap();
        let all_have_logs = Barrier::new(3);
        thread::scope(|scope| {
            for sender in 0..3 {
                let (queue, all_have_logs) = (&queue, &all_have_logs);
                scope.spawn(move || {
                    (0..3).for_each(|number| queue.send((sender, text(number))).unwrap());
                    all_have_logs.wait();
                });
            }
        });
        let mut next = [0; 3];
        for _ in 0..received {
            let (sender, number) = queue.try_recv().unwrap();
            assert_eq!(number, text(next[sender]));
            next[sender] += 1;
        }
        if received == 9 {
            assert!(queue.try_recv().is_err());
            (0..3).for_each(|number| queue.send((0, text(number))).unwrap());
            assert_eq!(queue.len(), 3);
        }
    }
}

#[test]
fn halves_of_a_queue_outlive_each_other() {
    let queue = EventQueue::builder().max_events(2).build().unwrap();
    let (sender, receiver) = queue.into_channel();
    let mut context = Context::from_waker(Waker::noop());
    thread::scope(|scope| {
        let sender = sender.clone();
        scope.spawn(move || (0..6).for_each(|number| sender.send(text(number)).unwrap()));
        for number in 0..6 {
            assert_eq!(receiver.recv(), Some(text(number)));
        }
    });
    while sender.try_send(text(1)).is_ok() {}
    let mut kept = sender.send_async(text(2));
    let mut dropped = sender.send_async(text(3));
    assert!(Pin::new(&mut kept).poll(&mut context).is_pending());
    assert!(Pin::new(&mut dropped).poll(&mut context).is_pending());
    assert_eq!(dropped.into_inner(), Some(text(3)));
    drop(receiver);
    assert!(Pin::new(&mut kept).poll(&mut context).is_ready());
}

#[test]
fn objects_of_a_pool_are_handed_over() {
    let pool = ObjectPool::builder(|| text(0)).max(1).recycle(|thing| thing.len() == 1).build();
    let pool = Arc::new(pool);
    let mut context = Context::from_waker(Waker::noop());
    let owned = Pooled::into_owned(pool.get(), &pool);
    let mut futures = [pool.get_async(), pool.get_async()];
    assert!(futures.iter_mut().all(|future| Pin::new(future).poll(&mut context).is_pending()));
    thread::scope(|scope| {
        scope.spawn(|| drop(owned));
        scope.spawn(|| drop(futures));
        drop(pool.get());
    });
    assert_eq!((pool.created(), pool.get().detach()), (1, text(0)));
}

#[test]
fn shared_things_are_given_back() {
    let pool = ObjectPool::new(2, || Box::new(1_u8));
    let tree = BudgetTree::new(8);
    let shared = ScalableArc::new(text(1));
    ScalableArc::promote(&shared);
    let map = ReplicatedMap::new();
    let weak = ScalableArc::downgrade(&shared);
    thread::scope(|scope| {
        let work = || {
            drop(pool.take());
            drop(tree.charge(2));
            let own = shared.clone();
            drop((own, weak.clone()));
            map.insert(text(1), text(2));
            map.remove(&*text(1));
        };
        scope.spawn(work);
        work();
    });
    assert_eq!((tree.used(), pool.created() <= 2), (0, true));
    assert_eq!(ScalableArc::into_inner(shared), Some(text(1)));
    drop(weak);
}

/// A thread without sections asks whether it is in one, beside sections of others.
#[test]
fn outsiders_look_at_the_sections_of_others() {
    let domain = Domain::new();
    thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|_| drop(domain.enter())));
        scope.spawn(|| (0..10).for_each(|_| assert!(!domain.is_inside())));
    });
}

#[test]
fn nodes_are_retired_while_others_look() {
    let domain = Domain::new();
    let node = Atomic::new(text(0));
    let ids = IdSpace::new_in(&domain);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..4 {
                let section = domain.enter();
                let old = node.swap(Owned::new(text(number)), &section);
                // SAFETY: swapped out here alone, and every reader is in a section of the domain.
                unsafe { section.retire(old) };
                let id = ids.insert(text(number), &section);
                assert_eq!(ids.remove(id, &section), Some(&text(number)));
            }
        });
        for _ in 0..3 {
            let section = domain.enter();
            assert_eq!(node.load(&section).as_ref().unwrap().len(), 1);
        }
    });
    domain.synchronize();
    let section = section::enter();
    section.defer(|| drop(text(1)));
    drop(section);
    // SAFETY: no thread has the pointer any more.
    drop(unsafe { node.into_owned() });
}

#[test]
fn nodes_by_id_are_removed_while_views_look() {
    let domain = Arc::new(Domain::bounded());
    let ids = IdSpace::with_domain(Arc::clone(&domain));
    drop(domain);
    let mut view = ids.enter();
    let id = view.insert(text(1));
    let kept = view.get(id).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let view = ids.enter();
            view.insert_extent(2, |_, _| text(2));
            view.retain(|_, value| value.len() != 1);
            view.insert(text(3));
        });
        assert_eq!(kept, &text(1));
    });
    assert_eq!((view.get(id), kept, view.iter().count()), (None, &text(1), 3));
    view.refresh();
    ids.domain().collect();
}

#[test]
fn sections_and_views_move_between_threads() {
    let domain = Arc::new(Domain::bounded());
    let map = HashMap::from([(1, text(1)), (2, text(2))]);
    let node = Atomic::new(text(7));
    let (section, view) = (domain.enter_arc(), map.enter_owned());
    let seven = node.load(&section).as_ref().unwrap();
    let kept = view.get(&1).unwrap();
    thread::scope(|scope| {
        let change = || {
            assert!(map.remove(&1));
            let section = domain.enter();
            let old = node.swap(Owned::new(text(8)), &section);
            // SAFETY: swapped out here alone, and every reader is in a section of the domain.
            unsafe { section.retire(old) };
        };
        scope.spawn(change).join().unwrap();
    });
    (0..3).for_each(|_| domain.collect());
    (0..3).for_each(|_| map.domain().collect());
    assert_eq!((&**seven, &**kept), ("7", "1"));
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(view.remove(&2).map(|two| &**two), Some("2"));
            section.defer(|| drop(text(3)));
            drop((section, view));
        });
    });
    assert!(map.is_empty());
    // SAFETY: no thread has the pointer any more.
    drop(unsafe { node.into_owned() });
}

#[test]
fn slabs_take_back_what_others_free() {
    let slab = Slab::new();
    thread::scope(|scope| {
        let mut boxes: Vec<_> = (0..20).map(|number| slab.alloc(text(number))).collect();
        let others = boxes.split_off(10);
        scope.spawn(|| drop(others));
        assert_eq!(&*SlabBox::into_inner(boxes.swap_remove(0)), "0");
    });
    drop(slab.alloc(text(1)));
    slab.trim();
}

struct Part(AtomicUsize);

impl Rep for Part {
    type Root = usize;

    fn create(_: &usize, _: usize) -> Self {
        Self(AtomicUsize::new(0))
    }
}

#[test]
fn locks_and_clusters_are_used_by_two() {
    let (ticket, mcs, big) = (TicketLock::new(0), McsLock::new(0), BrLock::new(0));
    let parts = Clustered::<Part>::new(Placement::PerThread, 1);
    thread::scope(|scope| {
        let work = || {
            for _ in 0..3 {
                *ticket.lock() += 1;
                *mcs.lock() += 1;
                let seen = *big.read();
                *big.write() += usize::from(seen < 9);
                parts.with(|part| part.0.fetch_add(1, SeqCst));
            }
        };
        scope.spawn(work);
        work();
    });
    assert_eq!((*ticket.lock(), *mcs.lock(), *big.read()), (6, 6, 6));
    assert_eq!(parts.gather(0, |sum, part| sum + part.0.load(SeqCst)), 6);
}
