//! Namespaces from outside: any sequence of operations compared with a model, and threads compared
//! with an oracle.
//!
//! `MANYCORE_SOAK=60` sets the number of seconds. `MANYCORE_SEED=0x12ab` repeats the random choices
//! of an earlier run.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::namespace::{Extent, Id, IdSpace};
use manycore::section::{Domain, Mode};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

#[derive(Debug, Clone)]
enum Step {
    Insert,
    InsertExtent(usize),
    /// Of the ids or extents ever given, the one so far in.
    Remove(usize),
    RemoveExtent(usize),
    Get(usize),
    /// Keeps the values that are no multiples of this number, and all extents.
    Retain(u64),
    /// Closes the section, frees what can be freed, opens another.
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Insert),
        2 => (1_usize..40).prop_map(Step::InsertExtent),
        4 => any::<usize>().prop_map(Step::Remove),
        2 => any::<usize>().prop_map(Step::RemoveExtent),
        3 => any::<usize>().prop_map(Step::Get),
        1 => (1_u64..6).prop_map(Step::Retain),
        2 => Just(Step::Collect),
    ]
}

/// The expected content of a space.
#[derive(Default)]
struct Model {
    live: BTreeMap<Id, u64>,
    singles: Vec<Id>,
    extents: Vec<Extent>,
    ever: HashSet<Id>,
    next: u64,
}

impl Model {
    /// A value of its own.
    fn value(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, id: Id, value: u64) {
        assert!(self.ever.insert(id), "{id:?} was given before");
        self.live.insert(id, value);
    }
}

fn run(steps: &[Step], mode: Mode) {
    let domain = Domain::builder().mode(mode).batch_nodes(3).build().unwrap();
    let space = IdSpace::new_in(&domain);
    let mut model = Model::default();
    let mut section = domain.enter();
    for step in steps {
        match *step {
            Step::Insert => {
                let value = model.value();
                let id = space.insert(value, &section);
                model.add(id, value);
                model.singles.push(id);
            }
            Step::InsertExtent(len) => {
                let base = model.next;
                model.next += len as u64;
                let make = |offset: usize, _| base + 1 + offset as u64;
                let extent = space.insert_extent(len, make, &section);
                assert_eq!((extent.len(), extent.ids().len()), (len, len));
                for (offset, id) in extent.ids().enumerate() {
                    model.add(id, base + 1 + offset as u64);
                }
                model.extents.push(extent);
            }
            Step::Remove(at) if !model.singles.is_empty() => {
                let id = model.singles[at % model.singles.len()];
                assert_eq!(space.remove(id, &section).copied(), model.live.remove(&id));
            }
            Step::RemoveExtent(at) if !model.extents.is_empty() => {
                let extent = model.extents[at % model.extents.len()];
                let was_there = model.live.contains_key(&extent.first());
                assert_eq!(space.remove_extent(extent, &section), was_there);
                for id in extent.ids() {
                    model.live.remove(&id);
                }
            }
            Step::Get(at) if !model.singles.is_empty() => {
                let id = model.singles[at % model.singles.len()];
                assert_eq!(space.get(id, &section), model.live.get(&id));
            }
            Step::Retain(number) => {
                let singles = &model.singles;
                let mut asked = HashSet::new();
                let keep = |id, value: &u64| {
                    assert!(asked.insert(id) && singles.contains(&id), "{id:?}");
                    value % number != 0
                };
                space.retain(keep, &section);
                let was_asked = |id: &Id| model.live.contains_key(id);
                assert_eq!(asked.len(), singles.iter().filter(|id| was_asked(id)).count());
                model
                    .live
                    .retain(|id, value| value.wrapping_rem(number) != 0 || !asked.contains(id));
            }
            Step::Collect => {
                drop(section);
                domain.collect();
                section = domain.enter();
            }
            _ => {}
        }
    }
    assert_eq!(space.len(), model.live.len());
    let found: BTreeMap<Id, u64> = space.iter(&section).map(|(id, value)| (id, *value)).collect();
    assert_eq!(found, model.live);
    for id in &model.ever {
        assert_eq!(space.get(*id, &section), model.live.get(id));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

    #[test]
    fn any_sequence_does_what_a_map_does(
        steps in proptest::collection::vec(step(), 1..300),
        mode in prop_oneof![Just(Mode::Epoch), Just(Mode::Bounded)],
    ) {
        run(&steps, mode);
    }
}

/// A node that knows its id, and whether it is alive.
struct Node {
    id: AtomicU64,
    alive: AtomicBool,
    count: Arc<AtomicU64>,
}

impl Node {
    fn new(id: Id, count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, SeqCst);
        let id = AtomicU64::new(id.to_bits());
        Self { id, alive: AtomicBool::new(true), count: Arc::clone(count) }
    }

    /// Fails if this is not the live node of `id`.
    fn expect(&self, id: Id, seed: u64) {
        assert!(self.alive.load(SeqCst), "freed under a reader; SEED={seed:#x}");
        assert_eq!(self.id.load(SeqCst), id.to_bits(), "another's node; SEED={seed:#x}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, SeqCst), "freed twice");
        self.id.store(u64::MAX, SeqCst);
        self.count.fetch_sub(1, SeqCst);
    }
}

/// Ids that any thread may look up or remove. Some were removed long ago.
struct Board(Vec<AtomicU64>);

impl Board {
    fn new(places: usize) -> Self {
        Self((0..places).map(|_| AtomicU64::new(0)).collect())
    }

    fn at(&self, place: usize) -> Option<Id> {
        Id::from_bits(self.0[place % self.0.len()].load(SeqCst))
    }
}

/// State that the threads of a run share.
struct Arena<'a> {
    space: IdSpace<'a, Node>,
    domain: &'a Domain,
    board: Board,
    count: Arc<AtomicU64>,
    removed: AtomicU64,
    inserted: AtomicU64,
    seed: u64,
}

impl Arena<'_> {
    fn insert(&self, rng: &mut Rng) {
        let section = self.domain.enter();
        let id = self.space.insert_with(|id| Node::new(id, &self.count), &section);
        self.inserted.fetch_add(1, SeqCst);
        self.space.get(id, &section).expect("just inserted").expect(id, self.seed);
        let old = self.board.0[rng.below(self.board.0.len())].swap(id.to_bits(), SeqCst);
        // The thread that overwrites an id on the board removes it, unless it has been removed
        // already.
        if let Some(old) = Id::from_bits(old) {
            self.remove(old, &section);
        }
    }

    fn remove(&self, id: Id, section: &manycore::section::Section<'_>) {
        if let Some(node) = self.space.remove(id, section) {
            node.expect(id, self.seed);
            self.removed.fetch_add(1, SeqCst);
        }
        assert!(self.space.get(id, section).is_none(), "removed; SEED={:#x}", self.seed);
    }

    fn look(&self, rng: &mut Rng) {
        let section = self.domain.enter();
        for _ in 0..rng.below(20) {
            let Some(id) = self.board.at(rng.below(1 << 30)) else {
                continue;
            };
            let Some(node) = self.space.get(id, &section) else {
                continue;
            };
            node.expect(id, self.seed);
            if rng.once_in(50) {
                thread::yield_now();
            }
            // Removed or not, the section keeps it, and its place is not reused.
            node.expect(id, self.seed);
            let place = id.to_bits() as u32;
            if rng.once_in(1000) {
                let others = self.space.iter(&section).filter(|(other, _)| *other != id);
                for (other, found) in others {
                    found.expect(other, self.seed);
                    let reused = other.to_bits() as u32 == place;
                    assert!(!reused, "{id:?} reused as {other:?}; SEED={:#x}", self.seed);
                }
            }
        }
    }

    fn extent(&self, rng: &mut Rng) {
        let section = self.domain.enter();
        let len = 1 + rng.below(90);
        let extent = self.space.insert_extent(len, |_, id| Node::new(id, &self.count), &section);
        self.inserted.fetch_add(len as u64, SeqCst);
        for (offset, id) in extent.ids().enumerate() {
            let node = self.space.get_in(extent, offset, &section).expect("just inserted");
            node.expect(id, self.seed);
        }
        assert!(self.space.remove_extent(extent, &section));
        self.removed.fetch_add(len as u64, SeqCst);
        assert!(extent.ids().all(|id| self.space.get(id, &section).is_none()));
    }

    fn work(&self, part: u64, until: Instant) {
        let mut rng = Rng::part(self.seed, part);
        while Instant::now() < until {
            for _ in 0..64 {
                match rng.below(16) {
                    0..6 => self.insert(&mut rng),
                    6..8 => {
                        if let Some(id) = self.board.at(rng.below(1 << 30)) {
                            self.remove(id, &self.domain.enter());
                        }
                    }
                    8..15 => self.look(&mut rng),
                    _ if rng.once_in(10) => self.extent(&mut rng),
                    _ => self.domain.collect(),
                }
            }
        }
    }
}

/// Collects until the condition holds. (Joined threads may still be handing over their limbo.)
fn drain(domain: &Domain, until: impl Fn() -> bool, what: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while !until() {
        assert!(Instant::now() < end, "{what}");
        domain.collect();
    }
}

#[test]
fn id_that_was_removed_never_leads_to_another_node() {
    let _alone = env::alone();
    let seed = env::seed();
    println!("SEED={seed:#x}");
    let until = env::soak(Duration::from_secs(1));
    let mut round = 0;
    while Instant::now() < until {
        let mode = [Mode::Epoch, Mode::Bounded][round as usize % 2];
        let domain = Domain::builder().mode(mode).batch_nodes(8).build().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        {
            let arena = Arena {
                space: IdSpace::new_in(&domain),
                domain: &domain,
                board: Board::new(200),
                count: Arc::clone(&count),
                removed: AtomicU64::new(0),
                inserted: AtomicU64::new(0),
                seed: seed ^ round,
            };
            let end = (Instant::now() + Duration::from_millis(300)).min(until);
            // Threads come and go, more than there are cores.
            thread::scope(|s| {
                for part in 0..3 {
                    let arena = &arena;
                    s.spawn(move || {
                        for life in 0..5 {
                            let part = part * 10 + life;
                            let end = end.min(Instant::now() + Duration::from_millis(60));
                            thread::scope(|s| drop(s.spawn(move || arena.work(part, end))));
                        }
                    });
                }
            });
            let live = arena.inserted.load(SeqCst) - arena.removed.load(SeqCst);
            assert_eq!(arena.space.len() as u64, live, "SEED={seed:#x}");
            assert_eq!(arena.space.iter(&domain.enter()).count() as u64, live, "SEED={seed:#x}");
            if round % 2 == 0 {
                let what = format!("removed nodes are not dropped; SEED={seed:#x}");
                drain(&domain, || count.load(SeqCst) == live, &what);
            }
        }
        let what = format!("nodes were lost or dropped twice; SEED={seed:#x}");
        drain(&domain, || count.load(SeqCst) == 0, &what);
        round += 1;
    }
}

#[test]
fn place_is_not_used_again_while_an_older_section_is_open() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let domain = Domain::builder().mode(mode).batch_nodes(2).build().unwrap();
        let space = IdSpace::new_in(&domain);
        let id = space.insert(1, &domain.enter());
        let (inside, leave) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|s| {
            s.spawn(|| {
                let section = domain.enter();
                let node = space.get(id, &section).unwrap();
                inside.wait();
                leave.wait();
                assert_eq!(*node, 1);
            });
            inside.wait();
            assert_eq!(space.remove(id, &domain.enter()), Some(&1));
            let place = |id: Id| id.to_bits() as u32;
            for _ in 0..1000 {
                let new = space.insert(2, &domain.enter());
                assert_ne!(place(new), place(id), "{mode:?}");
                space.remove(new, &domain.enter());
                domain.collect();
            }
            leave.wait();
        });
        drain(&domain, || domain.backlog(Duration::MAX).nodes == 0, "a backlog stays");
        let all: Vec<Id> = (0..2000).map(|_| space.insert(3, &domain.enter())).collect();
        assert!(all.iter().any(|new| new.to_bits() as u32 == id.to_bits() as u32), "{mode:?}");
        assert_eq!(space.get(id, &domain.enter()), None);
    }
}

#[test]
fn space_keeps_its_domain_and_drops_each_node_once() {
    struct Table {
        domain: Arc<Domain>,
        space: IdSpace<'static, Node>,
    }
    for mode in [Mode::Epoch, Mode::Bounded] {
        let count = Arc::new(AtomicU64::new(0));
        let domain = Arc::new(Domain::builder().mode(mode).build().unwrap());
        let alive = Arc::downgrade(&domain);
        let table = Table { space: IdSpace::with_domain(Arc::clone(&domain)), domain };
        let insert = |table: &Table| table.space.enter().insert_with(|id| Node::new(id, &count));
        let ids: Vec<Id> = (0..100).map(|_| insert(&table)).collect();
        thread::scope(|s| {
            for half in ids.chunks(50) {
                let table = &table;
                s.spawn(move || {
                    let section = table.domain.enter();
                    let removed = |id: &Id| table.space.remove(*id, &section).is_some();
                    assert!(half[..25].iter().all(removed));
                });
            }
        });
        // A reader that keeps the domain, and no space, sees what it has found until its end.
        let reader = table.domain.enter_arc();
        let Table { domain, space } = table;
        drop(domain);
        assert!(std::ptr::eq(space.domain(), alive.upgrade().unwrap().as_ref()));
        assert_eq!(space.enter().iter().count(), 50);
        drop(space);
        assert!(reader.is_of(&alive.upgrade().unwrap()), "{mode:?}");
        drop(reader);
        assert!(alive.upgrade().is_none(), "{mode:?}: the domain goes with its last user");
        assert_eq!(count.load(SeqCst), 0, "{mode:?}");
    }
}

#[test]
fn view_keeps_what_it_has_found_until_it_is_refreshed() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let count = Arc::new(AtomicU64::new(0));
        let domain = Domain::builder().mode(mode).batch_nodes(1).build().unwrap();
        let space = IdSpace::new_in(&domain);
        let mut view = space.enter();
        let id = view.insert_with(|id| Node::new(id, &count));
        let region = view.insert_extent(3, |_, id| Node::new(id, &count));
        let (single, last) = (view.get(id).unwrap(), view.get_in(region, 2).unwrap());
        assert!(std::ptr::eq(view.space(), &space) && view.iter().count() == 4);
        thread::scope(|s| {
            s.spawn(|| {
                let other = space.enter();
                assert!(other.remove(id).is_some() && other.remove(id).is_none());
                assert!(other.remove_extent(region));
            });
        });
        (0..3).for_each(|_| domain.collect());
        assert!(!view.contains(id) && view.get_in(region, 0).is_none() && space.is_empty());
        single.expect(id, 0);
        last.expect(region.id(2), 0);
        assert_eq!(count.load(SeqCst), 4, "{mode:?}");
        view.refresh();
        drain(&domain, || count.load(SeqCst) == 0, "a view that was refreshed holds nodes back");
    }
}

#[test]
fn node_that_several_calls_of_retain_refuse_is_removed_once() {
    let _alone = env::alone();
    for mode in [Mode::Epoch, Mode::Bounded] {
        let count = Arc::new(AtomicU64::new(0));
        let domain = Domain::builder().mode(mode).build().unwrap();
        let space = IdSpace::new_in(&domain);
        let fill = |number: u64| {
            let view = space.enter();
            (0..number).for_each(|_| {
                view.insert_with(|id| Node::new(id, &count));
            });
        };
        fill(5_000);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    space.enter().retain(|id, node| {
                        node.expect(id, 0);
                        id.to_bits() % 5 == 0
                    });
                });
            }
            fill(500);
        });
        let live = count_live(&space);
        assert!((1_000..=1_500).contains(&live) && space.len() == live, "{mode:?}: {live}");
        drain(&domain, || count.load(SeqCst) == live as u64, "removed nodes are not dropped");
    }
}

fn count_live(space: &IdSpace<'_, Node>) -> usize {
    space.enter().iter().count()
}

#[test]
fn closure_of_retain_that_panics_leaves_all_other_nodes() {
    let count = Arc::new(AtomicU64::new(0));
    let domain = Domain::new();
    let space = IdSpace::new_in(&domain);
    let ids: Vec<Id> =
        (0..10).map(|_| space.enter().insert_with(|id| Node::new(id, &count))).collect();
    let mut asked = 0;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        space.enter().retain(|_, _| {
            asked += 1;
            assert!(asked < 4, "planned");
            false
        });
    }));
    assert!(panicked.is_err());
    assert!(!domain.is_inside() && space.len() == 7 && count_live(&space) == 7);
    space.enter().retain(|id, _| id == ids[9]);
    assert_eq!(count_live(&space), 1);
    drain(&domain, || count.load(SeqCst) == 1, "removed nodes are not dropped");
}

#[test]
fn producer_and_consumer_do_not_grow_for_ever() {
    let _alone = env::alone();
    let domain = Domain::builder().batch_nodes(64).build().unwrap();
    let space = IdSpace::new_in(&domain);
    let highest = AtomicU64::new(0);
    let (send, receive) = mpsc::sync_channel::<Id>(100);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 0..300_000_u64 {
                let id = space.insert(n, &domain.enter());
                highest.fetch_max(id.to_bits() & u64::from(u32::MAX), SeqCst);
                send.send(id).unwrap();
            }
            drop(send);
        });
        for (id, n) in receive.iter().zip(0..300_000_u64) {
            assert_eq!(space.remove(id, &domain.enter()), Some(&n));
        }
    });
    // Places on their way, places that wait, and places that two threads keep.
    let highest = highest.load(SeqCst);
    assert!(highest < 20_000, "{highest} places for 100 nodes");
}

#[test]
fn slots_next_owner_goes_on_with_what_a_thread_has_left() {
    let domain = Domain::builder().batch_nodes(1).build().unwrap();
    let space = IdSpace::new_in(&domain);
    let places = Mutex::new(HashSet::new());
    for _ in 0..2000 {
        thread::scope(|s| {
            s.spawn(|| {
                let id = space.insert((), &domain.enter());
                places.lock().unwrap().insert(id.to_bits() as u32);
                space.remove(id, &domain.enter());
                domain.collect();
                domain.collect();
            });
        });
    }
    // Other tests take slots concurrently; what must not be is a chunk for each thread.
    let places = places.lock().unwrap();
    assert!(places.iter().max() < Some(&10_000), "{:?}", places.iter().max());
}

#[test]
fn space_that_only_its_own_removed_node_holds_is_freed_with_it() {
    static DOMAIN: Domain = Domain::new();
    struct Ring(#[allow(dead_code, reason = "kept alive")] Arc<IdSpace<'static, Ring>>);
    let space = Arc::new(IdSpace::new_in(&DOMAIN));
    let alive = Arc::downgrade(&space);
    let section = DOMAIN.enter();
    let id = space.insert(Ring(Arc::clone(&space)), &section);
    space.remove(id, &section);
    drop(space);
    assert_eq!(alive.strong_count(), 1, "the section may still reach the node");
    drop(section);
    drain(&DOMAIN, || alive.strong_count() == 0, "the node was freed, and so is its space");
}

#[test]
fn nodes_of_any_shape_fit() {
    #[derive(Clone, Copy)]
    #[repr(align(256))]
    struct Wide([u8; 300]);
    impl fmt::Debug for Wide {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0[299])
        }
    }
    fn try_shape<T: Send + Sync + Copy + fmt::Debug + 'static>(value: T) {
        let space = IdSpace::new();
        let section = manycore::section::enter();
        let ids: Vec<Id> = (0..2500).map(|_| space.insert(value, &section)).collect();
        let extent = space.insert_extent(1500, |_, _| value, &section);
        for id in ids.into_iter().chain(extent.ids()) {
            let found: &T = space.get(id, &section).unwrap();
            assert_eq!(format!("{found:?}"), format!("{value:?}"));
            assert!((&raw const *found).is_aligned());
        }
    }
    try_shape(());
    try_shape(1_u8);
    try_shape([3_u16; 5]);
    try_shape(Wide([7; 300]));
}
