//! Many small sets in one domain: what reads see of each, what a set costs that no read sees, and
//! what happens to members that outlive the name of their set, to panics, and to misuse.

use crate::allocations;
use manycore::ldu::*;
use std::collections::{BTreeSet, HashSet};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

/// A set of letters or numbers that is strict about what it is told.
#[derive(Debug, Default)]
struct Strict<V>(BTreeSet<V>);

impl<V: Copy + Ord + Send + Sync + std::fmt::Debug> Structure<SetElement<V>> for Strict<V> {
    fn insert(&mut self, member: &SetElement<V>) {
        assert!(self.0.insert(**member), "{:?} is told twice", **member);
    }

    fn remove(&mut self, member: &SetElement<V>) {
        assert!(self.0.remove(&**member), "{:?} was never told", **member);
    }
}

type Domain<V> = SetDomain<Strict<V>, SetElement<V>>;
type One<'d, V> = Set<'d, Strict<V>, SetElement<V>>;

trait Value: Copy + Ord + Send + Sync + std::fmt::Debug + Default + 'static {}
impl<V: Copy + Ord + Send + Sync + std::fmt::Debug + Default + 'static> Value for V {}

fn domain<V: Value>(queue: Queue) -> Domain<V> {
    DeferredSet::builder().queue(queue).build(SetMap::default()).unwrap()
}

fn contents<V: Value>(set: One<'_, V>) -> Vec<V> {
    set.read().0.iter().copied().collect()
}

/// The thesis, figure 2.2, in one of two sets of a domain: {A, B}; then insert C, D, E, remove D,
/// A, insert D, remove E, on threads of their own. Four members are queued, of which one is
/// garbage; the tree becomes {B, C, D}, and the other set stays as it is.
#[test]
fn worked_example_of_the_thesis_in_a_domain() {
    for queue in QUEUES {
        let domain = domain(queue);
        let (set, other) = (domain.new_set(), domain.new_set());
        let (a, b, twin) = (set.add('A'), set.add('B'), other.add('A'));
        assert_eq!((contents(set), contents(other)), (vec!['A', 'B'], vec!['A']));
        (0..10).for_each(|_| domain.synchronize()); // no thread is busy any more
        let before = domain.stats();
        let on_core = |f: &mut (dyn FnMut() + Send)| thread::scope(|s| drop(s.spawn(f).join()));
        let (mut c, mut d, mut e) = (None, None, None);
        on_core(&mut || c = Some(set.add('C')));
        on_core(&mut || d = Some(set.add('D')));
        on_core(&mut || e = Some(set.add('E')));
        let mut without_d = None;
        on_core(&mut || without_d = d.take().map(Attached::remove));
        let mut a = Some(a);
        on_core(&mut || drop(a.take()));
        on_core(&mut || d = without_d.take().map(Detached::insert));
        let mut without_e = None;
        on_core(&mut || without_e = e.take().map(Attached::remove));
        assert_eq!(domain.stats().queued - before.queued, 4, "{queue:?}: C, D, E, A");
        assert_eq!(contents(set), ['B', 'C', 'D'], "{queue:?}");
        assert_eq!(domain.stats().applied - before.applied, 3, "{queue:?}: E was garbage");
        assert_eq!(contents(other), ['A']);
        drop((b, c, d, without_e, twin));
        assert_eq!((contents(set), contents(other)), (vec![], vec![]));
        assert!(domain.read().is_empty());
    }
}

/// The point of a domain. Another thread holds its lock all the time, so a thread that took it
/// would wait for ever; the only allocations are the members' boxes.
#[test]
fn set_that_lives_and_dies_between_two_reads_costs_its_members_alone() {
    const SETS: usize = 500;
    for queue in QUEUES {
        let domain: Arc<Domain<usize>> = Arc::new(domain(queue));
        let root = domain.new_set().id();
        std::mem::forget(domain.set(root).add(0));
        assert_eq!(domain.read().created(), 1);
        let before = domain.stats();
        let (done, is_done) = mpsc::channel();
        let held = domain.read();
        let other = Arc::clone(&domain);
        let thread = thread::spawn(move || {
            drop((other.new_set().add(0), other.new_set())); // the thread's slot and queue
            let start = allocations::of_this_thread();
            for number in 1..=SETS {
                let set = other.new_set();
                let links = (set.add(number), other.set(root).add(number));
                drop(links);
            }
            done.send(allocations::of_this_thread() - start).unwrap();
        });
        let allocations = is_done.recv_timeout(Duration::from_secs(60)).expect("someone waits");
        assert_eq!(allocations, 2 * SETS, "{queue:?}");
        drop(held);
        thread.join().unwrap();
        assert_eq!(contents(domain.set(root)), [0]);
        let (stats, seen) = (domain.stats(), domain.read());
        assert_eq!(stats.applied, before.applied, "{queue:?}: nothing reached a structure");
        assert_eq!((stats.drains, stats.freed), (before.drains + 1, 2 * SETS as u64 + 1));
        assert_eq!((seen.created(), seen.len()), (1, 1), "{queue:?}: no set was made");
    }
}

#[test]
fn set_is_in_the_map_from_its_first_member_to_its_last() {
    let domain = domain(Queue::PerThread);
    let (one, two) = (domain.new_set(), domain.new_set());
    assert!(domain.read().get(one.id()).is_none() && one.read().0.is_empty());
    let members = (one.add(1), one.add(2), two.add(3));
    {
        let seen = domain.read();
        let mut sets: Vec<_> = seen.iter().map(|(id, set)| (id, set.0.len())).collect();
        sets.sort_unstable();
        assert_eq!(sets, [(one.id(), 2), (two.id(), 1)]);
        assert_eq!(seen.get_or_empty(one.id()).0, [1, 2].into());
    }
    let (first, second, third) = members;
    drop((first, third));
    assert!(domain.read().get(two.id()).is_none());
    let second = second.remove();
    assert!(domain.read().is_empty());
    let again = second.insert();
    assert_eq!(contents(one), [2]);
    let seen = domain.read();
    assert_eq!((seen.created(), seen.len()), (3, 1), "made anew");
    drop(seen);
    drop(again);
}

#[test]
fn members_outlive_the_name_of_their_set_and_others_join_them() {
    let domain = domain(Queue::Global);
    let (id, link) = {
        let set = domain.new_set();
        (set.id(), set.add(1))
    };
    assert_eq!(link.set(), id, "a member says its set");
    let sibling = domain.set(link.set()).add(2);
    drop(link);
    assert_eq!(contents(domain.set(id)), [2]);
    drop(sibling);
    assert_eq!(contents(domain.set(id)), []);
}

#[test]
fn member_taken_back_may_move_to_another_set() {
    let domain = domain(Queue::PerThread);
    let (one, two) = (domain.new_set(), domain.new_set());
    let mut member = one.add(1).remove().into_box();
    let refused =
        catch_unwind(AssertUnwindSafe(|| drop(two.insert(one.add(5).remove().into_box()))));
    let said = *refused.unwrap_err().downcast::<&str>().unwrap();
    assert!(said.contains("another set"), "{said}");
    member.move_to(two.id());
    **member += 1;
    let member = two.insert(member);
    assert_eq!((contents(one), contents(two)), (vec![], vec![2]));
    assert_eq!(member.remove().into_box().into_value(), 2);
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
fn readers_of_sets_may_share_the_domain() {
    let domain = domain(Queue::PerThread);
    let (one, two) = (domain.new_set(), domain.new_set());
    let members = (one.add(1), two.add(2));
    let held = one.read_shared();
    let seen = thread::scope(|s| {
        s.spawn(|| two.read_shared().0.iter().copied().collect::<Vec<_>>()).join().unwrap()
    });
    assert_eq!((held.0.len(), &seen[..]), (1, &[2][..]));
    assert_eq!(held.into_domain().len(), 2, "one moment of all sets");
    drop(members);
}

#[test]
fn table_shrinks_after_a_burst() {
    let domain = domain(Queue::Global);
    let members: Vec<_> = (0..10_000).map(|number| domain.new_set().add(number)).collect();
    assert_eq!(domain.read().len(), 10_000);
    drop(members);
    assert_eq!(domain.read().len(), 0);
    let allocations = allocations::of_this_thread();
    let one = domain.new_set().add(1);
    assert_eq!(domain.read().len(), 1);
    assert!(allocations::of_this_thread() - allocations < 10, "the table grows by itself again");
    drop(one);
}

#[test]
fn dropped_domain_drops_its_sets_with_what_leaked_in_them() {
    let counted = Arc::new(());
    struct Holds(Arc<()>);
    impl Structure<SetElement<u8>> for Holds {
        fn insert(&mut self, _: &SetElement<u8>) {}
        fn remove(&mut self, _: &SetElement<u8>) {}
    }
    let held = Arc::clone(&counted);
    let domain = DeferredSet::new(SetMap::new(move || Holds(Arc::clone(&held))));
    std::mem::forget((domain.new_set().add(1), domain.new_set().add(2)));
    let last = domain.new_set().add(3);
    assert_eq!(domain.read().iter().map(|(_, set)| Arc::strong_count(&set.0)).max(), Some(6));
    drop(last);
    assert_eq!(domain.read().len(), 2);
    assert_eq!(domain.into_inner().len(), 2);
    assert_eq!(Arc::strong_count(&counted), 1);
}

// ---- panics, and calls from within ----

/// Refuses threes, and to let go of fours.
#[derive(Default)]
struct Moody(Vec<u8>);

impl Structure<SetElement<u8>> for Moody {
    fn insert(&mut self, member: &SetElement<u8>) {
        assert!(**member != 3, "no threes");
        self.0.push(**member);
    }
    fn remove(&mut self, member: &SetElement<u8>) {
        assert!(**member != 4, "keeps fours");
        self.0.retain(|seen| *seen != **member);
    }
}

fn poisoned(domain: &SetDomain<Moody, SetElement<u8>>) {
    assert!(catch_unwind(AssertUnwindSafe(|| domain.synchronize())).is_err());
    assert!(domain.is_poisoned());
    assert!(matches!(domain.try_read(), Err(TryReadError::Poisoned)));
    domain.clear_poison();
}

#[test]
fn panic_in_one_set_poisons_the_domain_and_loses_nothing() {
    for queue in QUEUES {
        let domain: SetDomain<Moody, _> =
            DeferredSet::builder().queue(queue).build(SetMap::default()).unwrap();
        let (one, two) = (domain.new_set(), domain.new_set());
        let members = [one.add(1), one.add(3), two.add(2), two.add(5)];
        poisoned(&domain);
        let later = one.add(6); // changes go on
        let mut seen = one.read().0.clone();
        seen.sort_unstable();
        assert_eq!((seen, two.read().0.len()), (vec![1, 6], 2), "{queue:?}");
        drop((members, later));
        assert!(domain.read().is_empty(), "the one that panicked was counted, and left like all");
    }
}

#[test]
fn set_whose_last_removal_panics_is_gone() {
    let domain = SetDomain::<Moody, _>::default();
    let (one, two) = (domain.new_set(), domain.new_set());
    let kept = two.add(1);
    let four = one.add(4);
    assert_eq!(domain.read().len(), 2);
    drop(four);
    poisoned(&domain);
    let seen = domain.read();
    assert!(seen.get(one.id()).is_none() && seen.len() == 1);
    drop(seen);
    drop(kept);
}

#[test]
fn set_whose_structure_cannot_be_made_keeps_its_count() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let map = SetMap::new(move || {
        assert!(count.fetch_add(1, SeqCst) != 1, "not this time");
        Moody::default()
    });
    let domain = DeferredSet::new(map);
    let set = domain.new_set();
    let unlucky = set.add(1);
    poisoned(&domain);
    assert!(set.read().0.is_empty() && domain.read().len() == 1, "a member, and no structure");
    let second = set.add(2);
    assert_eq!(set.read().0, [2]);
    drop(unlucky);
    assert_eq!(set.read().0, [2], "there are members still");
    drop(second);
    assert!(domain.read().is_empty());
}

/// Brings two members to a new set when it gets one itself, and reads when it loses one.
struct Inside(Arc<Mutex<Option<&'static Around>>>);

type Around = SetDomain<Inside, SetElement<u8>>;

impl Structure<SetElement<u8>> for Inside {
    fn insert(&mut self, member: &SetElement<u8>) {
        if **member == 1 {
            let domain = self.0.lock().unwrap().expect("there is one");
            let new = domain.new_set();
            std::mem::forget((new.add(2), domain.set(member.set()).add(3)));
        }
    }
    fn remove(&mut self, _: &SetElement<u8>) {
        let domain = self.0.lock().unwrap().expect("there is one");
        let refused = catch_unwind(AssertUnwindSafe(|| drop(domain.new_set().read())));
        assert!(refused.is_err(), "a read would wait for itself");
        assert!(matches!(domain.try_read(), Err(TryReadError::Busy)));
    }
}

#[test]
fn structures_may_change_their_domain_and_not_read_it() {
    let there = Arc::new(Mutex::new(None));
    let own = Arc::clone(&there);
    let map = SetMap::new(move || Inside(Arc::clone(&own)));
    // Leaked, so that its structures may know it.
    let domain: &'static Around = Box::leak(Box::new(DeferredSet::new(map)));
    *there.lock().unwrap() = Some(domain);
    let one = domain.new_set().add(1);
    assert_eq!(domain.read().len(), 1, "what it brought is the next read's");
    assert_eq!(domain.read().len(), 2);
    drop(one);
    domain.synchronize();
    assert_eq!(domain.read().len(), 2, "3 is in the first set still");
}

// ---- members with links of their own, by hand ----

struct Link {
    links: Links,
    set: SetId,
    pid: u32,
}

// SAFETY: the offset is the field's, which is used for this alone.
unsafe impl Linked for Link {
    const LINKS: usize = offset_of!(Link, links);

    fn name(&self) -> String {
        format!("link {}", self.pid)
    }
}

// SAFETY: the test changes the number only when `recycle_raw` has allowed it.
unsafe impl SetMember for Link {
    fn set(&self) -> SetId {
        self.set
    }
}

#[derive(Default)]
struct Pids(Vec<u32>);

impl Structure<Link> for Pids {
    fn insert(&mut self, link: &Link) {
        self.0.push(link.pid);
    }
    fn remove(&mut self, link: &Link) {
        self.0.retain(|pid| *pid != link.pid);
    }
}

/// What queues for each set cannot have: a link that waits in a queue serves another set.
#[test]
fn recycled_link_serves_set_after_set_without_being_queued_again() {
    let domain = SetDomain::<Pids, Link>::default();
    let root = domain.new_set();
    let link = Link { links: Links::new(), set: root.id(), pid: 7 };
    let link = NonNull::from(Box::leak(Box::new(link)));
    // SAFETY: the link is in this domain alone, on one thread; its number changes when it is idle.
    unsafe {
        for _ in 0..1000 {
            domain.insert_raw(link);
            assert!(domain.recycle_raw(link), "it came and went");
            (&raw mut (*link.as_ptr()).set).write(domain.new_set().id());
        }
        assert_eq!((domain.stats().queued, domain.stats().applied), (1, 0));
        domain.insert_raw(link);
        let own = link.as_ref().set;
        assert_eq!(root.read().0, []);
        assert_eq!(domain.set(own).read().0, [7]);
        assert!(!domain.recycle_raw(link), "a read saw it, so the domain frees it");
    }
    assert!(domain.read().is_empty());
}

#[test]
fn free_list_serves_set_after_set_without_memory_or_queue() {
    for queue in QUEUES {
        let domain = domain(queue);
        let root = domain.new_set();
        let mut free = FreeList::new(&domain);
        let member = free.add(root.id(), 0);
        assert_eq!(free.remove(member), Some(0));
        let allocations = allocations::of_this_thread();
        for number in 1..1000 {
            let member = free.add(domain.new_set().id(), number);
            assert_eq!((**member, free.remove(member)), (number, Some(number)));
        }
        assert_eq!(allocations::of_this_thread(), allocations);
        assert_eq!((domain.stats().queued, domain.stats().applied), (1, 0), "{queue:?}");
        let seen = free.add(root.id(), 7);
        assert_eq!(contents(root), [7]);
        assert_eq!(free.remove(seen), None, "a read saw it, so the domain frees it");
        assert_eq!(contents(root), []);
        // More than a list keeps; the rest and what it keeps go back.
        let members: Vec<_> = (0..200).map(|number| free.add(root.id(), number)).collect();
        members.into_iter().for_each(|member| assert!(free.remove(member).is_some()));
        drop(free);
        (0..10).for_each(|_| domain.synchronize());
        let stats = domain.stats();
        assert_eq!((stats.freed, stats.waiting), (201, 0), "{queue:?}");
    }
}

#[test]
fn free_list_takes_values_out_at_once_and_drops_each_once() {
    struct Deaf;
    impl Structure<SetElement<Arc<()>>> for Deaf {
        fn insert(&mut self, _: &SetElement<Arc<()>>) {}
        fn remove(&mut self, _: &SetElement<Arc<()>>) {}
    }
    let counted = Arc::new(());
    let domain = DeferredSet::new(SetMap::new(|| Deaf));
    let mut free = FreeList::new(&domain);
    for round in 0..10 {
        let id = domain.new_set().id();
        let members: Vec<_> = (0..5).map(|_| free.add(id, Arc::clone(&counted))).collect();
        assert_eq!(Arc::strong_count(&counted), 6);
        if round % 3 == 2 {
            domain.synchronize();
        }
        let back = members.into_iter().filter_map(|member| free.remove(member)).count();
        assert_eq!(back, if round % 3 == 2 { 0 } else { 5 });
        domain.synchronize();
        assert_eq!(Arc::strong_count(&counted), 1);
    }
    let last = free.add(domain.new_set().id(), Arc::clone(&counted));
    drop(free);
    drop(last);
    drop(domain);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn member_of_another_domain_is_refused_by_a_free_list() {
    let (one, two) = (domain::<u8>(Queue::PerThread), domain(Queue::PerThread));
    let mut free = FreeList::new(&one);
    let member = two.new_set().add(1);
    let panic = catch_unwind(AssertUnwindSafe(|| free.remove(member))).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("another domain"));
    assert!(two.read().is_empty(), "the handle removed it");
}

#[test]
fn link_that_leaves_an_exchanged_map_is_named() {
    let domain = SetDomain::<Pids, Link>::default();
    let set = domain.new_set();
    let link = set.insert(Box::new(Link { links: Links::new(), set: set.id(), pid: 7 }));
    drop(std::mem::take(&mut *domain.read())); // what a reader must not do
    drop(link);
    let panic = catch_unwind(AssertUnwindSafe(|| domain.synchronize())).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("link 7 leaves a set that the map does not have"), "{said}");
}
