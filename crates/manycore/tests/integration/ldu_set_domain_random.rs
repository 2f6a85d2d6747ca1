//! Random histories of many small sets in one domain. Some have steps that the test decides, and
//! are compared with a model. In others threads fork and exit, and each compares with what it knows
//! itself.
//!
//! `MANYCORE_SEED=0x12ab` repeats the random choices of an earlier run.

use crate::common::env;
use crate::common::rng::Rng;
use crate::common::steps::Stepped;
use manycore::ldu::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

/// A set of letters or numbers that rejects a member told twice, or taken away though absent.
#[derive(Debug)]
struct Strict<V>(BTreeSet<V>);

impl<V> Default for Strict<V> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<V: Copy + Ord + Send + Sync + std::fmt::Debug> Structure<SetMember<V>> for Strict<V> {
    fn insert(&mut self, member: &SetMember<V>) {
        assert!(self.0.insert(member.1), "{:?} is told twice", **member);
    }

    fn remove(&mut self, member: &SetMember<V>) {
        assert!(self.0.remove(&member.1), "{:?} was never told", **member);
    }
}

type Domain<V> = SetDomain<Strict<V>, V>;

type Handles = Vec<Attached<'static, SetMap<Strict<u32>>, SetMember<u32>>>;
type Outside = Vec<Detached<'static, SetMap<Strict<u32>>, SetMember<u32>>>;

/// A domain, and the expected content of its sets.
struct Modelled {
    domain: &'static Domain<u32>,
    sets: Vec<SetId>,
    model: BTreeMap<SetId, BTreeSet<u32>>,
    inside: Handles,
    outside: Outside,
    numbers: u32,
}

impl Modelled {
    fn tell(&mut self, set: SetId, number: u32, inserted: bool) {
        let members = self.model.entry(set).or_default();
        assert!(if inserted { members.insert(number) } else { members.remove(&number) });
        self.model.retain(|_, members| !members.is_empty());
    }

    /// One step, on a thread of its choice.
    fn step(&mut self, threads: &Stepped, rng: &mut Rng) {
        let (thread, domain) = (rng.below(3), self.domain);
        match rng.below(16) {
            0..2 => self.sets.push(threads.on(thread, SetId::new)),
            2..6 => {
                let (set, number) = (*rng.pick(&self.sets), self.numbers);
                self.numbers += 1;
                self.inside.push(threads.on(thread, move || domain.add((set, number))));
                self.tell(set, number, true);
            }
            6..12 if !self.inside.is_empty() => {
                let member = self.inside.swap_remove(rng.below(self.inside.len()));
                let (set, number) = **member;
                self.tell(set, number, false);
                if rng.once_in(2) {
                    threads.on(thread, || drop(member));
                } else {
                    self.outside.push(threads.on(thread, || member.remove()));
                }
            }
            12..14 if !self.outside.is_empty() => {
                let member = self.outside.swap_remove(rng.below(self.outside.len()));
                let member = if rng.once_in(3) {
                    // Taken back, and on to another set.
                    let to = *rng.pick(&self.sets);
                    threads.on(thread, move || {
                        let mut member = member.into_box();
                        member.0 = to;
                        domain.insert(member)
                    })
                } else {
                    threads.on(thread, || member.insert())
                };
                let (set, number) = **member;
                self.inside.push(member);
                self.tell(set, number, true);
            }
            14 => {
                let set = *rng.pick(&self.sets);
                let seen =
                    threads.on(thread, move || domain.read().get(set).map(|own| own.0.clone()));
                assert_eq!(seen, self.model.get(&set).cloned());
            }
            _ => {
                let seen: BTreeMap<_, _> = threads.on(thread, || {
                    domain.read().iter().map(|(id, set)| (id, set.0.clone())).collect()
                });
                assert_eq!(seen, self.model);
            }
        }
    }
}

/// Any interleaving of threads' steps on several sets gives the result of the sequential replay.
#[test]
fn random_steps_on_several_sets_are_the_sequential_replay() {
    let (seed, threads) = (env::seed(), Stepped::new(3));
    println!("MANYCORE_SEED={seed:#x}");
    for round in 0..200 {
        let mut rng = Rng::part(seed, round);
        let builder = DeferredSet::builder().queue(*rng.pick(&QUEUES));
        let builder = builder.max_queued(*rng.pick(&[1, 3, 4096]));
        let domain = Box::into_raw(Box::new(builder.build(SetMap::default()).unwrap()));
        // SAFETY: leaked; freed below, when all that borrows it is gone.
        let shared: &'static Domain<u32> = unsafe { &*domain };
        let mut all = Modelled {
            domain: shared,
            sets: vec![SetId::new()],
            model: BTreeMap::new(),
            inside: Vec::new(),
            outside: Vec::new(),
            numbers: 0,
        };
        (0..60).for_each(|_| all.step(&threads, &mut rng));
        drop(all);
        assert!(shared.read().iter().next().is_none(), "MANYCORE_SEED={seed:#x}, round {round}");
        // SAFETY: from the box above; the handles are dropped.
        drop(unsafe { Box::from_raw(domain) });
    }
}

/// Threads fork and exit. Each child is in its own set and in those of its ancestors; all threads
/// share one ancestor. Of its own members, a reader of a set finds exactly those that are in the
/// set.
fn families(queue: Queue, max_queued: usize) {
    let seed = env::seed();
    println!("{queue:?}, at most {max_queued}: MANYCORE_SEED={seed:#x}");
    let builder = DeferredSet::builder().queue(queue).max_queued(max_queued);
    let domain: Domain<(usize, u32)> = builder.build(SetMap::default()).unwrap();
    let root = SetId::new();
    let until = Instant::now() + Duration::from_millis(300);
    let alive = AtomicI64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (domain, alive) = (&domain, &alive);
            let mut rng = Rng::part(seed, thread as u64);
            scope.spawn(move || {
                let (mut number, mut free) = (0, FreeList::new(domain));
                while Instant::now() < until {
                    let mut line = Vec::new();
                    let mut sets = vec![root];
                    for _ in 0..rng.below(5) {
                        number += 1;
                        sets.push(SetId::new());
                        let links: Vec<_> =
                            sets.iter().map(|set| free.add(*set, (thread, number))).collect();
                        alive.fetch_add(1, SeqCst);
                        line.push((number, links));
                    }
                    if rng.once_in(8) && line.len() > 1 {
                        line.remove(0); // a parent that ends before its children
                        alive.fetch_sub(1, SeqCst);
                    }
                    if rng.once_in(20) {
                        let place = rng.below(sets.len());
                        let seen = domain.read_shared();
                        let seen = seen.get(sets[place]).into_iter().flat_map(|set| &set.0);
                        let seen = seen.filter(|(owner, _)| *owner == thread);
                        let seen: Vec<_> = seen.map(|(_, number)| *number).collect();
                        let own = line.iter().filter(|(_, links)| links.len() > place);
                        let own: Vec<_> = own.map(|(number, _)| *number).collect();
                        assert_eq!(seen, own, "set {place}, MANYCORE_SEED={seed:#x}");
                    }
                    alive.fetch_sub(line.len() as i64, SeqCst);
                    let links = line.into_iter().flat_map(|(_, links)| links);
                    for link in links.filter(|_| rng.below(3) != 0) {
                        free.remove(link);
                    }
                }
            });
        }
    });
    assert_eq!(alive.load(SeqCst), 0);
    assert!(domain.read().iter().next().is_none(), "MANYCORE_SEED={seed:#x}");
    println!("{:?}", domain.stats());
}

#[test]
fn families_of_sets_survive_a_stress() {
    let _alone = env::alone();
    for queue in QUEUES {
        families(queue, 4096);
        families(queue, 2);
    }
}
