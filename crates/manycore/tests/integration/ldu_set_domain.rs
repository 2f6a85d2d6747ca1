//! Many small sets in one domain: what reads see of each set, what a set costs that no read sees,
//! and the effects of panics and misuse.

use crate::allocations;
use manycore::ldu::*;
use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

/// A set of numbers that rejects a member told twice, or taken away though absent.
#[derive(Debug, Default)]
struct Strict(BTreeSet<usize>);

impl Structure<SetMember<usize>> for Strict {
    fn insert(&mut self, member: &SetMember<usize>) {
        assert!(self.0.insert(member.1), "{:?} is told twice", **member);
    }

    fn remove(&mut self, member: &SetMember<usize>) {
        assert!(self.0.remove(&member.1), "{:?} was never told", **member);
    }
}

type Domain = SetDomain<Strict, usize>;

fn domain(queue: Queue) -> Domain {
    DeferredSet::builder().queue(queue).build(SetMap::default()).unwrap()
}

fn contents(domain: &Domain, set: SetId) -> Vec<usize> {
    domain.read().get(set).iter().flat_map(|set| &set.0).copied().collect()
}

fn sets(domain: &Domain) -> usize {
    domain.read().iter().count()
}

/// The purpose of a domain: a set that no read sees costs only its members. Another thread holds
/// the domain's lock all the time, so a thread that took it would wait forever. The only
/// allocations are the members' boxes.
#[test]
fn set_that_lives_and_dies_between_two_reads_costs_its_members_alone() {
    const SETS: usize = 500;
    for queue in QUEUES {
        let domain = Arc::new(domain(queue));
        let root = SetId::new();
        std::mem::forget(domain.add((root, 0)));
        assert_eq!(sets(&domain), 1);
        let before = domain.stats();
        let (done, is_done) = mpsc::channel();
        let held = domain.read();
        let other = Arc::clone(&domain);
        let thread = thread::spawn(move || {
            drop(other.add((SetId::new(), 0))); // the thread's slot and queue
            let start = allocations::of_this_thread();
            for number in 1..=SETS {
                drop((other.add((SetId::new(), number)), other.add((root, number))));
            }
            done.send(allocations::of_this_thread() - start).unwrap();
        });
        let allocations = is_done.recv_timeout(Duration::from_secs(60)).expect("someone waits");
        assert_eq!(allocations, 2 * SETS, "{queue:?}");
        drop(held);
        thread.join().unwrap();
        assert_eq!((contents(&domain, root), sets(&domain)), (vec![0], 1));
        let stats = domain.stats();
        assert_eq!(stats.applied, before.applied, "{queue:?}: nothing reached a structure");
        assert_eq!((stats.drains, stats.freed), (before.drains + 1, 2 * SETS as u64 + 1));
    }
}

#[test]
fn set_is_in_the_map_from_its_first_member_to_its_last() {
    let domain = domain(Queue::PerThread);
    let (one, two) = (SetId::new(), SetId::new());
    assert!(domain.read().get(one).is_none());
    let (first, second, third) = (domain.add((one, 1)), domain.add((one, 2)), domain.add((two, 3)));
    assert_eq!((contents(&domain, one), sets(&domain)), (vec![1, 2], 2));
    drop((first, third));
    assert!(domain.read().get(two).is_none());
    let second = second.remove();
    assert_eq!(sets(&domain), 0);
    let mut second = second.insert().remove().into_box();
    second.0 = two; // taken back, and on to another set
    let second = domain.insert(second);
    assert_eq!((contents(&domain, one), contents(&domain, two)), (vec![], vec![2]));
    drop(second);
}

#[test]
fn numbers_are_given_once_on_all_threads() {
    let numbers = || (0..3000).map(|_| SetId::new()).collect::<Vec<_>>();
    let mut all = numbers();
    thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(numbers)).collect();
        threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
    });
    let count = all.len();
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), count);
}

#[test]
fn table_shrinks_after_a_burst() {
    const SETS: usize = 4000; // as many as a queue takes
    let domain = domain(Queue::Global);
    let burst = || {
        let members: Vec<_> = (0..SETS).map(|number| domain.add((SetId::new(), number))).collect();
        let allocations = allocations::within(|| domain.synchronize());
        drop(members);
        domain.synchronize();
        allocations
    };
    burst();
    assert!(burst() >= SETS + 5, "the table did not have to grow again");
}

// ---- panics and misuse ----

static MADE: AtomicUsize = AtomicUsize::new(1);

/// A structure that panics when it is told of a three, loses a four, or is made for the first time.
struct Moody(Vec<u8>);

impl Default for Moody {
    fn default() -> Self {
        assert!(MADE.fetch_add(1, SeqCst) != 0, "not this time");
        Self(Vec::new())
    }
}

impl Structure<SetMember<u8>> for Moody {
    fn insert(&mut self, member: &SetMember<u8>) {
        assert!(member.1 != 3, "no threes");
        self.0.push(member.1);
    }
    fn remove(&mut self, member: &SetMember<u8>) {
        assert!(member.1 != 4, "keeps fours");
        self.0.retain(|seen| *seen != member.1);
    }
}

fn poisoned(domain: &SetDomain<Moody, u8>) {
    assert!(catch_unwind(AssertUnwindSafe(|| domain.synchronize())).is_err());
    assert!(matches!(domain.try_read(), Err(TryReadError::Poisoned)));
    domain.clear_poison();
}

#[test]
fn panic_in_one_set_poisons_the_domain_and_loses_nothing() {
    for queue in QUEUES {
        let builder = DeferredSet::builder().queue(queue);
        let domain: SetDomain<Moody, u8> = builder.build(SetMap::default()).unwrap();
        let (one, two) = (SetId::new(), SetId::new());
        let add = |set, number| domain.add((set, number));
        let members = [add(one, 1), add(one, 3), add(two, 2), add(two, 5)];
        poisoned(&domain);
        let later = add(one, 6); // changes go on
        let seen = |set| domain.read().get(set).map_or(0, |set| set.0.len());
        assert_eq!((seen(one), seen(two)), (2, 2), "{queue:?}");
        drop((members, later));
        assert!(domain.read().iter().next().is_none(), "the one that panicked was counted");
        // The last removal panics: the set is gone.
        let four = add(one, 4);
        domain.synchronize();
        drop(four);
        poisoned(&domain);
        assert!(domain.read().get(one).is_none());
        // The structure can't be made: the member counts all the same.
        MADE.store(0, SeqCst);
        let unlucky = add(one, 1);
        poisoned(&domain);
        assert!(domain.read().get(one).is_none(), "a member, and no structure");
        let second = add(one, 2);
        assert_eq!(domain.read().get(one).unwrap().0, [2]);
        drop(unlucky);
        assert_eq!(domain.read().get(one).unwrap().0, [2], "there are members still");
        drop(second);
        assert!(domain.read().get(one).is_none());
    }
}

#[test]
fn exchanged_map_is_noticed() {
    let domain = domain(Queue::PerThread);
    let member = domain.add((SetId::new(), 7));
    drop(std::mem::take(&mut *domain.read())); // what a reader must not do
    drop(member);
    let panic = catch_unwind(AssertUnwindSafe(|| domain.synchronize())).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("exchanged the map"));
}

// ---- free lists ----

#[test]
fn free_list_serves_set_after_set_without_memory_or_queue() {
    for queue in QUEUES {
        let domain = domain(queue);
        let root = SetId::new();
        let mut free = FreeList::new(&domain);
        let member = free.add(root, 0);
        free.remove(member);
        let allocations = allocations::of_this_thread();
        for number in 1..1000 {
            let set = SetId::new();
            let member = free.add(set, number);
            assert_eq!(**member, (set, number));
            free.remove(member);
        }
        assert_eq!(allocations::of_this_thread(), allocations);
        assert_eq!((domain.stats().queued, domain.stats().applied), (1, 0), "{queue:?}");
        let seen = free.add(root, 7);
        assert_eq!(contents(&domain, root), [7]);
        free.remove(seen); // a read saw it, so the domain frees it
        assert_eq!(contents(&domain, root), []);
        // More than a list keeps; the rest and what it keeps go back.
        let members: Vec<_> = (0..200).map(|number| free.add(root, number)).collect();
        members.into_iter().for_each(|member| free.remove(member));
        drop(free);
        (0..10).for_each(|_| domain.synchronize());
        let stats = domain.stats();
        assert_eq!((stats.freed, stats.waiting), (201, 0), "{queue:?}");
    }
}

#[test]
fn free_list_drops_each_value_once() {
    #[derive(Default)]
    struct Deaf;
    impl Structure<SetMember<Arc<()>>> for Deaf {
        fn insert(&mut self, _: &SetMember<Arc<()>>) {}
        fn remove(&mut self, _: &SetMember<Arc<()>>) {}
    }
    let counted = Arc::new(());
    let domain = SetDomain::<Deaf, _>::default();
    let mut free = FreeList::new(&domain);
    for round in 0..10 {
        let id = SetId::new();
        let members: Vec<_> = (0..5).map(|_| free.add(id, Arc::clone(&counted))).collect();
        assert_eq!(Arc::strong_count(&counted), 6, "those of idle members are exchanged");
        if round % 3 == 2 {
            domain.synchronize();
        }
        members.into_iter().for_each(|member| free.remove(member));
        domain.synchronize();
        assert_eq!(Arc::strong_count(&counted), if round % 3 == 2 { 1 } else { 6 });
    }
    let last = free.add(SetId::new(), Arc::clone(&counted));
    drop(free);
    drop(last);
    drop(domain);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn member_of_another_domain_is_refused_by_a_free_list() {
    let (one, two) = (domain(Queue::PerThread), domain(Queue::PerThread));
    let mut free = FreeList::new(&one);
    let member = two.add((SetId::new(), 1));
    let panic = catch_unwind(AssertUnwindSafe(|| free.remove(member))).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("another domain"));
    assert_eq!(sets(&two), 0, "the handle removed it");
}
