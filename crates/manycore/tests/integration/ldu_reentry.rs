//! Sets with marks that are used from within their own readers, walkers and structures. Each call
//! works, is refused or panics with a message; none waits for what its own thread holds.

use crate::common::watchdog::{ends, message};
use manycore::collections::{ActiveSet, IntervalRegistry, Registry, TimerQueue};
use manycore::ldu::*;
use manycore::oplog::{Commuting, Deferred};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Count(usize);

impl<E> Structure<E> for Count {
    fn insert(&mut self, _: &E) {
        self.0 += 1;
    }

    fn remove(&mut self, _: &E) {
        self.0 -= 1;
    }
}

type Update = Box<dyn FnOnce(&mut u32) + Send>;
type Set = DeferredSet<Count, Element<u32>>;

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

/// Makes a set with queues that each change fills to the bound, and that the fourth change takes
/// far beyond it.
fn tight(queue: Queue) -> Arc<Set> {
    Arc::new(DeferredSet::builder().queue(queue).max_queued(1).build(Count::default()).unwrap())
}

/// Waits long enough for another thread to reach its waiting point. (If it does not, the test tests
/// less.)
fn let_others_come() {
    thread::sleep(Duration::from_millis(50));
}

fn add_ten<T: Structure<Element<u32>>>(set: &DeferredSet<T, Element<u32>>) {
    (0..10).for_each(|number| std::mem::forget(set.add(number)));
}

#[test]
fn sharer_changes_its_set_while_another_reader_waits() {
    for queue in QUEUES {
        ends("a sharer that changes its set", move || {
            let set = tight(queue);
            let shared = set.read_shared();
            let others = [(); 2].map(|()| {
                let set = Arc::clone(&set);
                thread::spawn(move || set.read().0)
            });
            let_others_come();
            add_ten(&set);
            assert_eq!(shared.0, 0, "the structure changed under a reader");
            drop(shared);
            others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), 10));
        });
    }
}

#[test]
fn sharer_that_would_wait_for_itself_is_told_whoever_else_waits() {
    type Way = (&'static str, fn(&Set));
    let ways: [Way; 6] = [
        ("read", |set| drop(set.read())),
        ("read_poisoned", |set| drop(set.read_poisoned())),
        ("read_shared", |set| drop(set.read_shared())),
        ("synchronize", Set::synchronize),
        ("stats", |set| assert_eq!(set.stats().applied, 0)),
        ("into_box", |set| drop(set.add(1).remove().into_box())),
    ];
    for (name, way) in ways {
        for waits in [false, true] {
            ends(name, move || {
                let set = tight(Queue::PerThread);
                let shared = set.read_shared();
                let other = waits.then(|| {
                    let set = Arc::clone(&set);
                    thread::spawn(move || set.synchronize())
                });
                if waits {
                    let_others_come();
                }
                let said = message(|| way(&set));
                assert!(said.starts_with("manycore: "), "{name}: {said}");
                assert!(matches!(set.try_read(), Err(TryReadError::Busy)));
                set.clear_poison();
                assert_eq!(shared.0, 0);
                drop(shared);
                other.into_iter().for_each(|other| other.join().unwrap());
                assert_eq!(set.read().0, 0, "{name}: the member was dropped");
            });
        }
    }
}

#[test]
fn sharers_and_holders_that_change_each_others_sets_do_not_wait() {
    for (queue, alone) in [(Queue::PerThread, false), (Queue::Global, false), (Queue::Global, true)]
    {
        ends("two sets that wait for each other", move || {
            let sets = Arc::new([tight(queue), tight(queue)]);
            let both = Arc::new(Barrier::new(2));
            let change = |own: usize| {
                let (sets, both) = (Arc::clone(&sets), Arc::clone(&both));
                thread::spawn(move || {
                    let (held, shared) = match alone {
                        true => (Some(sets[own].read()), None),
                        false => (None, Some(sets[own].read_shared())),
                    };
                    both.wait();
                    add_ten(&sets[1 - own]);
                    both.wait();
                    drop((held, shared));
                })
            };
            [change(0), change(1)].into_iter().for_each(|other| other.join().unwrap());
            sets.iter().for_each(|set| assert_eq!(set.read().0, 10));
        });
    }
}

/// A thread that shares a set updates an object, and an update of that object changes the set.
#[test]
fn sharer_and_update_of_an_object_do_not_wait_for_each_other() {
    ends("a set and an object that wait for each other", || {
        let set = tight(Queue::Global);
        let object = Arc::new(Deferred::<u32, Commuting<Update>>::new(0));
        let both = Arc::new(Barrier::new(2));
        let sharer = {
            let (set, object, both) = (Arc::clone(&set), Arc::clone(&object), Arc::clone(&both));
            thread::spawn(move || {
                let shared = set.read_shared();
                both.wait();
                object.append(Box::new(|sum| *sum += 1));
                both.wait();
                drop(shared);
            })
        };
        let inside = Arc::clone(&set);
        object.append(Box::new(move |sum| {
            both.wait();
            add_ten(&inside);
            both.wait();
            *sum += 1;
        }));
        sharer.join().expect("no panic gets so far");
        assert_eq!((set.read().0, *object.read()), (10, 2));
    });
}

#[test]
fn walker_registers_and_leaves_while_others_register() {
    for queue in QUEUES {
        ends("a walk that registers", move || {
            let registry = Arc::new(Registry::builder().marks(queue).max_entries(2).build());
            let registry = Arc::new(Arc::into_inner(registry).unwrap().unwrap());
            let _one = registry.register(0);
            let stop = Arc::new(AtomicBool::new(false));
            let others = [(); 3].map(|()| {
                let (registry, stop) = (Arc::clone(&registry), Arc::clone(&stop));
                thread::spawn(move || {
                    let mut entries = Vec::new();
                    while !stop.load(SeqCst) && entries.len() < 10_000 {
                        entries.push(registry.register(1));
                    }
                    entries.len()
                })
            });
            let mut walked = 0;
            registry.for_each(|_| {
                if walked == 0 {
                    let_others_come(); // their queue is full, and one waits for this walk
                    let mine: Vec<_> = (0..20).map(|number| registry.register(number)).collect();
                    assert!(message(|| registry.for_each(|_| ())).contains("reads the set"));
                    assert!(message(|| assert!(!registry.is_empty())).contains("reads the set"));
                    drop(mine);
                }
                walked += 1;
            });
            assert!(walked > 0);
            stop.store(true, SeqCst);
            others.into_iter().for_each(|other| assert!(other.join().unwrap() > 0));
            assert_eq!(registry.len(), 1);
        });
    }
}

#[test]
fn question_about_intervals_adds_and_drops_some() {
    for queue in QUEUES {
        ends("a question that adds", move || {
            let intervals =
                IntervalRegistry::builder().marks(queue).max_entries(1).build().unwrap();
            let intervals = Arc::new(intervals);
            let _one = intervals.add(0..9, 0);
            let other = {
                let intervals = Arc::clone(&intervals);
                let add = move |at| std::mem::forget(intervals.add(at..99, at));
                move || thread::spawn(move || (0..20).for_each(add))
            };
            let (mut added, mut threads) = (Vec::new(), Vec::new());
            intervals.for_overlapping(0..9, |_, _| {
                threads.push(other.clone()()); // waits for this question
                let_others_come();
                added.extend((0..10).map(|at| intervals.add(at..99, at)));
                drop(intervals.add(0..1, 1));
                assert!(message(|| assert!(!intervals.is_empty())).contains("reads the set"));
            });
            threads.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(intervals.len(), 31);
        });
    }
}

thread_local! {
    static AT_EXIT: Cell<Option<AtExit>> = const { Cell::new(None) };
}

/// Shares a set and reads it again, when most of the thread's locals are gone.
struct AtExit(Arc<Set>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let shared = self.0.read_shared();
        assert!(message(|| self.0.synchronize()).contains("this thread"));
        assert_eq!(shared.0, 0);
        drop(shared);
        self.0.synchronize();
    }
}

#[test]
fn destructor_of_a_thread_local_reads_a_set_and_is_told_if_it_shares_it() {
    ends("a thread's end", || {
        let set = tight(Queue::PerThread);
        let own = Arc::clone(&set);
        let thread = thread::spawn(move || {
            AT_EXIT.set(Some(AtExit(Arc::clone(&own)))); // destroyed after what comes later
            drop(own.read_shared());
        });
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&set), 1, "it ended");
    });
}

/// A structure that, in each call, does something to a set: its own or another.
struct Meddling {
    inside: BTreeSet<u32>,
    act: fn(&Meddled) -> Option<String>,
    said: Option<String>,
}

type Meddled = DeferredSet<Meddling, Element<u32>>;

static OWN: Mutex<()> = Mutex::new(());
static SET: OnceLock<Meddled> = OnceLock::new();

impl Meddling {
    fn meddle(&mut self) {
        if let Some(set) = SET.get() {
            if let Some(said) = (self.act)(set) {
                self.said = Some(said);
            }
        }
    }
}

impl Structure<Element<u32>> for Meddling {
    fn insert(&mut self, member: &Element<u32>) {
        assert!(self.inside.insert(**member), "{} is told twice", **member);
        self.meddle();
    }

    fn remove(&mut self, member: &Element<u32>) {
        assert!(self.inside.remove(&**member), "{} was never told", **member);
        self.meddle();
    }
}

/// Tries each call of the set from within its own structure.
#[test]
fn structure_that_uses_its_own_set_changes_it_and_is_told_that_it_reads() {
    let _alone = OWN.lock();
    static NEXT: AtomicUsize = AtomicUsize::new(1_000);
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    type Act = fn(&Meddled) -> Option<String>;
    let acts: [(&str, bool, Act); 8] = [
        ("add", false, |set| {
            // Once in a while: each of them is told, too.
            if LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                drop(set.add(NEXT.fetch_add(1, SeqCst) as u32));
                std::mem::forget(set.add(NEXT.fetch_add(1, SeqCst) as u32));
            }
            None
        }),
        ("read", true, |set| Some(message(|| drop(set.read())))),
        ("read_shared", true, |set| Some(message(|| drop(set.read_shared().said.clone())))),
        ("synchronize", true, |set| Some(message(|| set.synchronize()))),
        ("stats", true, |set| Some(message(|| assert_eq!(set.stats().applied, 0)))),
        ("into_box", true, |set| Some(message(|| drop(set.add(1).remove().into_box())))),
        ("try_read", false, |set| {
            assert!(matches!(set.try_read(), Err(TryReadError::Busy)));
            None
        }),
        ("clear_poison", false, |set| {
            set.clear_poison();
            assert!(!set.is_poisoned() && format!("{set:?}").contains("held_by_this_thread: true"));
            None
        }),
    ];
    let meddling = Meddling { inside: BTreeSet::new(), act: |_| None, said: None };
    let set = SET.get_or_init(|| DeferredSet::builder().max_queued(2).build(meddling).unwrap());
    let before = set.read().inside.len();
    for (turn, (name, says, act)) in acts.into_iter().enumerate() {
        ends(name, move || {
            set.read().act = act;
            LEFT.store(5, SeqCst);
            let members: Vec<_> = (0..10).map(|at| set.add((turn * 20 + at) as u32 + 10)).collect();
            let own = |set: &Meddled| {
                let inside = &set.read().inside;
                inside.range(turn as u32 * 20 + 10..).filter(|member| **member < 1_000).count()
            };
            assert_eq!(own(set), 10, "{name}: an update of the outer level was lost");
            drop(members);
            assert_eq!(own(set), 0, "{name}: an update of the outer level was lost");
            let said = std::mem::take(&mut set.read().said);
            assert_eq!(said.is_some(), says, "{name}");
            said.into_iter().for_each(|said| assert!(said.starts_with("manycore: "), "{said}"));
            set.read().act = |_| None;
        });
    }
    assert_eq!(set.read().inside.len() - before, 5, "what the structure added and leaked");
}

/// A value that uses its own registry when it is dropped.
struct UsesOnDrop(&'static Registry<UsesOnDrop>, u32);

impl Drop for UsesOnDrop {
    fn drop(&mut self) {
        let Self(registry, left) = *self;
        if left > 0 {
            drop(registry.register(UsesOnDrop(registry, left - 1)));
            assert!(registry.len() < 1_000);
            registry.for_each(|_| ());
        }
    }
}

#[test]
fn value_that_uses_its_registry_when_it_is_dropped_finds_no_lock_held() {
    for builder in [
        Registry::builder(),
        Registry::builder().marks(Queue::PerThread).max_entries(2),
        Registry::builder().marks(Queue::Global).max_entries(1),
        Registry::builder().logs(manycore::oplog::Logs::Always).max_entries(2),
        Registry::builder().logs(manycore::oplog::Logs::Never),
    ] {
        ends("a destructor that uses the registry", move || {
            let registry: &'static Registry<UsesOnDrop> =
                Box::leak(Box::new(builder.build().unwrap()));
            let entries: Vec<_> =
                (0..5).map(|_| registry.register(UsesOnDrop(registry, 3))).collect();
            registry.for_each(|_| drop(registry.register(UsesOnDrop(registry, 0))));
            drop(entries); // told by then, so that reads free them
            assert!(registry.is_empty());
            thread::spawn(move || drop(registry.register(UsesOnDrop(registry, 3)))).join().unwrap();
            assert!(registry.is_empty());
        });
    }
}

/// A timer's value and a key use their collection when they are dropped.
#[test]
fn timers_and_keys_that_use_their_set_when_they_are_dropped_find_no_lock_held() {
    struct Again(u64);
    static TIMERS: OnceLock<TimerQueue<Again>> = OnceLock::new();
    impl Drop for Again {
        fn drop(&mut self) {
            if let Some(timers) = TIMERS.get().filter(|_| self.0 > 0) {
                timers.insert(self.0, Again(self.0 - 1)).detach();
                let _ = timers.next_deadline();
                drop(timers.advance(0));
            }
        }
    }
    ends("timers", || {
        let timers = TIMERS.get_or_init(TimerQueue::new);
        drop(timers.insert(9, Again(3)));
        drop(timers.advance(100));
        assert_eq!(timers.next_deadline(), None);
    });

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(u32);
    static KEYS: OnceLock<ActiveSet<Key>> = OnceLock::new();
    impl Drop for Key {
        fn drop(&mut self) {
            if self.0 == 7 {
                let _inner = KEYS.get().map(|keys| keys.register(Key(1)));
            }
        }
    }
    ends("keys", || {
        let keys = KEYS.get_or_init(|| ActiveSet::with_queue(Queue::Global));
        let members: Vec<_> = (0..9).map(|number| keys.register(Key(number))).collect();
        assert!(keys.snapshot().len() >= 9);
        drop(members);
        assert!(keys.oldest().is_none()); // dropped keys under the lock, which registered others
        assert!(keys.is_empty());
    });
}

#[cfg(unix)]
#[test]
fn sets_in_the_child_of_a_fork_do_not_wait_for_themselves() {
    let tests: &[fn()] = &[
        sharer_changes_its_set_while_another_reader_waits,
        sharer_that_would_wait_for_itself_is_told_whoever_else_waits,
        sharers_and_holders_that_change_each_others_sets_do_not_wait,
        sharer_and_update_of_an_object_do_not_wait_for_each_other,
        walker_registers_and_leaves_while_others_register,
        question_about_intervals_adds_and_drops_some,
        destructor_of_a_thread_local_reads_a_set_and_is_told_if_it_shares_it,
        structure_that_uses_its_own_set_changes_it_and_is_told_that_it_reads,
        value_that_uses_its_registry_when_it_is_dropped_finds_no_lock_held,
        timers_and_keys_that_use_their_set_when_they_are_dropped_find_no_lock_held,
    ];
    crate::common::process::again_in_children(
        "sets_in_the_child_of_a_fork_do_not_wait_for_themselves",
        tests,
    );
}
