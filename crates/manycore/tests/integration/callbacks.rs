//! User code that uses an object while the object calls it: constructors, destructors, closures,
//! transfers.
//!
//! Each case works, returns an error, or panics with the documented words; none hangs.
//! (`event_queue_tasks` tests wakers and events of `EventQueue`.)

use crate::common::counted::drain;
use crate::common::watchdog::{End, end_of};
use manycore::cluster::{Clustered, Family, Placement, Rep, SwapFailure, Swappable};
use manycore::collections::{
    BudgetTree, Counter, CounterArray, ObjectPool, Pooled, ScalableArc, ScalableWeak,
};
use manycore::namespace::IdSpace;
use manycore::section::Domain;
use manycore::slab::Slab;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

// ---- IdSpace ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdAct {
    Insert,
    InsertAndRemove,
    RemoveNext,
    Extent,
    Look,
    Retain,
    Collect,
    Panic,
}

/// Where user code uses its own space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdAt {
    Make,
    Drop,
    Retain,
}

const ID_ACTS: [IdAct; 8] = [
    IdAct::Insert,
    IdAct::InsertAndRemove,
    IdAct::RemoveNext,
    IdAct::Extent,
    IdAct::Look,
    IdAct::Retain,
    IdAct::Collect,
    IdAct::Panic,
];

/// A value that does something with its own space when it is dropped.
struct Node {
    act: Option<IdAct>,
    space: &'static OnceLock<IdSpace<'static, Node>>,
    domain: &'static Domain,
    made: &'static AtomicUsize,
    dropped: &'static AtomicUsize,
}

impl Node {
    fn quiet(&self) -> Self {
        self.made.fetch_add(1, SeqCst);
        Self { act: None, ..*self }
    }

    fn act(&self, act: IdAct) {
        let space = self.space.get().unwrap();
        let section = self.domain.enter();
        match act {
            IdAct::Insert => drop(space.insert(self.quiet(), &section)),
            IdAct::InsertAndRemove => (0..100).for_each(|_| {
                let id = space.insert_with(|_| self.quiet(), &section);
                assert!(space.remove(id, &section).is_some());
            }),
            IdAct::RemoveNext => {
                let first = space.iter(&section).next().map(|(id, _)| id);
                if let Some(id) = first {
                    space.remove(id, &section);
                }
            }
            IdAct::Extent => {
                let extent = space.insert_extent(5, |_, _| self.quiet(), &section);
                assert!(space.remove_extent(extent, &section));
            }
            IdAct::Look => assert!(space.len() <= space.iter(&section).count() + 1),
            IdAct::Retain => {
                let mut asked = 0;
                space.enter().retain(|_, _| {
                    asked += 1;
                    asked % 2 == 0
                });
            }
            IdAct::Collect => {
                drop(section);
                self.domain.collect();
            }
            IdAct::Panic => panic!("planned"),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
        if let Some(act) = self.act.take() {
            self.act(act);
        }
    }
}

#[test]
fn user_code_may_use_its_own_space_wherever_the_space_calls_it() {
    for act in ID_ACTS {
        for at in [IdAt::Make, IdAt::Drop, IdAt::Retain] {
            let name = format!("IdSpace: {act:?}, in {at:?}");
            let end = end_of(&name, move || {
                let domain: &'static Domain = leak(Domain::builder().build().unwrap());
                let (made, dropped) = (leak(AtomicUsize::new(0)), leak(AtomicUsize::new(0)));
                let space = leak(OnceLock::new());
                assert!(space.set(IdSpace::new_in(domain)).is_ok());
                let ids: &IdSpace<'_, Node> = space.get().unwrap();
                let node = |act| {
                    made.fetch_add(1, SeqCst);
                    Node { act, space, domain, made, dropped }
                };
                let mut panics = 0;
                for number in 0..20 {
                    let failed = catch_unwind(AssertUnwindSafe(|| {
                        let section = domain.enter();
                        match at {
                            IdAt::Drop => {
                                let id = ids.insert(node(Some(act)), &section);
                                ids.remove(id, &section);
                            }
                            IdAt::Make => {
                                let make = |_| {
                                    let node = node(None);
                                    node.act(act);
                                    node
                                };
                                ids.insert_with(make, &section);
                            }
                            IdAt::Retain => {
                                let own = ids.insert(node(None), &section);
                                let keep = |id, node: &Node| {
                                    if id == own {
                                        node.act(act);
                                    }
                                    id != own
                                };
                                ids.retain(keep, &section);
                                assert!(!ids.contains(own, &section));
                            }
                        }
                        drop(section);
                        domain.collect();
                    }));
                    panics += usize::from(failed.is_err());
                    assert!(failed.is_ok() || act == IdAct::Panic, "case {number}");
                }
                assert!(act != IdAct::Panic || panics > 0, "no user code was run");
                // Every value that is not in the space any more has been dropped once.
                drain(domain);
                let section = domain.enter();
                assert_eq!(ids.iter(&section).count(), ids.len());
                assert_eq!(made.load(SeqCst) - dropped.load(SeqCst), ids.len());
                // And the space works.
                let id = ids.insert(node(None), &section);
                assert!(ids.remove(id, &section).is_some() && !ids.contains(id, &section));
            });
            assert_eq!(end, End::Works, "{name}");
        }
    }
}

// ---- Slab ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlabAct {
    Alloc,
    AllocMany,
    Trim,
    Panic,
}

struct Part {
    act: Option<SlabAct>,
    slab: &'static OnceLock<Slab<Part>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        let slab = self.slab.get().unwrap();
        let quiet = || Part { act: None, slab: self.slab };
        match self.act {
            None => {}
            Some(SlabAct::Alloc) => drop(slab.alloc(quiet())),
            Some(SlabAct::AllocMany) => {
                let many: Vec<_> = (0..1000).map(|_| slab.alloc(quiet())).collect();
                drop(many);
            }
            Some(SlabAct::Trim) => slab.trim(),
            Some(SlabAct::Panic) => panic!("planned"),
        }
    }
}

#[test]
fn objects_may_use_their_own_slab_at_their_end() {
    for act in [SlabAct::Alloc, SlabAct::AllocMany, SlabAct::Trim, SlabAct::Panic] {
        let end = end_of(&format!("Slab: {act:?}"), move || {
            let place = leak(OnceLock::new());
            assert!(place.set(Slab::new()).is_ok());
            let slab = place.get().unwrap();
            for _ in 0..100 {
                let object = slab.alloc(Part { act: Some(act), slab: place });
                let ended = catch_unwind(AssertUnwindSafe(|| drop(object)));
                assert_eq!(ended.is_err(), act == SlabAct::Panic);
            }
            assert_eq!(slab.stats().live, 0, "memory was not freed");
        });
        assert_eq!(end, End::Works, "{act:?}");
    }
}

// ---- ScalableArc ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArcAct {
    CloneOther,
    UpgradeOwn,
    DowngradeOther,
    MakeAndDrop,
    PromoteOther,
    DropLastOther,
    Panic,
}

struct Value {
    act: ArcAct,
    own: OnceLock<ScalableWeak<Value>>,
    other: Mutex<Option<ScalableArc<u64>>>,
    ends: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.ends.fetch_add(1, SeqCst);
        let mut other = self.other.lock().unwrap();
        let there = other.as_ref().unwrap();
        match self.act {
            ArcAct::CloneOther => assert_eq!(**there, *there.clone()),
            ArcAct::UpgradeOwn => assert!(self.own.get().unwrap().upgrade().is_none()),
            ArcAct::DowngradeOther => assert!(ScalableArc::downgrade(there).upgrade().is_some()),
            ArcAct::MakeAndDrop => {
                let made = ScalableArc::new(1);
                ScalableArc::promote(&made);
                drop(made.clone());
            }
            ArcAct::PromoteOther => {
                ScalableArc::promote(there);
                ScalableArc::demote(there);
            }
            ArcAct::DropLastOther => drop(other.take()),
            ArcAct::Panic => {
                drop(other);
                panic!("planned");
            }
        }
    }
}

#[test]
fn shared_values_may_use_handles_at_their_end() {
    let acts = [
        ArcAct::CloneOther,
        ArcAct::UpgradeOwn,
        ArcAct::DowngradeOther,
        ArcAct::MakeAndDrop,
        ArcAct::PromoteOther,
        ArcAct::DropLastOther,
        ArcAct::Panic,
    ];
    for act in acts {
        for hot in [false, true] {
            let name = format!("ScalableArc: {act:?}, hot: {hot}");
            let ended = Arc::new(AtomicUsize::new(0));
            let counts = Arc::clone(&ended);
            let end = end_of(&name, move || {
                let value = ScalableArc::new(Value {
                    act,
                    own: OnceLock::new(),
                    other: Mutex::new(Some(ScalableArc::new(7))),
                    ends: counts,
                });
                value.own.set(ScalableArc::downgrade(&value)).ok().unwrap();
                if hot {
                    ScalableArc::promote(&value);
                    drop(value.clone());
                }
                let weak = ScalableArc::downgrade(&value);
                drop(value);
                // A hot object is found dead by the next that looks.
                assert!(weak.upgrade().is_none());
            });
            assert_eq!(ended.load(SeqCst), 1, "{name}: dropped once");
            let expected = act == ArcAct::Panic;
            assert!(expected == end.panics_with("planned"), "{name}: {end:?}");
            assert!(expected || end == End::Works, "{name}: {end:?}");
        }
    }
}

// ---- ObjectPool ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolAct {
    Take,
    TakeAll,
    Shrink,
    Count,
    Panic,
}

struct Thing {
    act: Option<PoolAct>,
    pool: Weak<ObjectPool<Thing>>,
}

fn use_pool(pool: &ObjectPool<Thing>, act: PoolAct) {
    match act {
        PoolAct::Take => drop(pool.take()),
        PoolAct::TakeAll => {
            let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            all.into_iter().for_each(|mut thing| thing.act = None);
        }
        PoolAct::Shrink => assert!(pool.shrink() <= 4),
        PoolAct::Count => assert!(pool.created() <= 4 && pool.idle() <= 4),
        PoolAct::Panic => panic!("planned"),
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        if let (Some(act), Some(pool)) = (self.act.take(), self.pool.upgrade()) {
            use_pool(&pool, act);
        }
    }
}

thread_local! {
    /// The constructor acts at the outermost call only.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn things_may_use_their_own_pool_where_they_are_made_and_at_their_end() {
    for act in [PoolAct::Take, PoolAct::TakeAll, PoolAct::Shrink, PoolAct::Count, PoolAct::Panic] {
        for at_end in [false, true] {
            let name = format!("ObjectPool: {act:?}, at the end: {at_end}");
            let end = end_of(&name, move || {
                let pool = Arc::new_cyclic(|weak: &Weak<ObjectPool<Thing>>| {
                    let weak = weak.clone();
                    ObjectPool::new(4, move || {
                        if !at_end && !MAKING.replace(true) {
                            let made = catch_unwind(AssertUnwindSafe(|| {
                                use_pool(&weak.upgrade().unwrap(), act);
                            }));
                            MAKING.set(false);
                            if let Err(panic) = made {
                                std::panic::resume_unwind(panic);
                            }
                        }
                        Thing { act: at_end.then_some(act), pool: weak.clone() }
                    })
                });
                for _ in 0..20 {
                    let used = catch_unwind(AssertUnwindSafe(|| {
                        drop(pool.take());
                        pool.shrink();
                        drop(pool.take().map(Pooled::detach));
                    }));
                    assert!(used.is_ok() || act == PoolAct::Panic);
                    assert!(pool.created() <= 4 && pool.idle() <= pool.created(), "{pool:?}");
                }
            });
            assert_eq!(end, End::Works, "{name}");
        }
    }
}

// ---- Counter, Histogram's cells, BudgetTree: no code of the user's runs inside, but at a thread's
// end, where the library gives slots back, destructors of thread-locals may count ----

struct Late(&'static Counter, &'static CounterArray, &'static BudgetTree);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.inc();
        self.1.add(1, 2);
        drop(self.2.charge(3).unwrap());
        assert!(self.0.sum() >= 1 && self.1.sum(1) >= 2);
    }
}

#[test]
fn destructors_of_thread_locals_may_count_and_charge() {
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    for hot in [false, true] {
        let counter = leak(Counter::new(0));
        let cells = leak(CounterArray::new(4));
        let budget = leak(BudgetTree::new(100).child(50));
        if hot {
            counter.promote();
            cells.promote();
        }
        for count in 1..20 {
            let end = end_of("a thread's end", move || {
                LATE.set(Some(Late(counter, cells, budget)));
                counter.inc(); // after the local was made: the library's own are gone before it
            });
            assert_eq!(end, End::Works);
            assert_eq!((counter.sum(), cells.sum(1)), (2 * count, 2 * count));
            assert_eq!(budget.used(), 0);
        }
    }
}

// ---- Clustered ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepAct {
    Local,
    At,
    Reps,
    Scatter,
    Panic,
}

struct Piece;

struct Root(OnceLock<(Weak<Clustered<Piece>>, RepAct)>, AtomicUsize);

impl Rep for Piece {
    type Root = Root;

    fn create(root: &Root, _: usize) -> Self {
        root.1.fetch_add(1, SeqCst);
        if let Some((object, act)) = root.0.get() {
            let object = object.upgrade().unwrap();
            match act {
                RepAct::Local => object.with(|_| ()),
                RepAct::At => assert!(object.at(object.place()).is_none()),
                RepAct::Reps => assert_eq!(object.reps().count(), 0),
                RepAct::Scatter => object.scatter(|_| (), |_| ()),
                RepAct::Panic => panic!("planned"),
            }
        }
        Self
    }
}

/// The documented message for each call from a constructor.
const FROM_CONSTRUCTOR: &str = "called from its representative's constructor";

#[test]
fn constructors_of_representatives_may_look_at_the_object_and_not_call_it() {
    let cases = [
        (RepAct::Local, FROM_CONSTRUCTOR),
        (RepAct::Scatter, FROM_CONSTRUCTOR),
        (RepAct::Panic, "planned"),
        (RepAct::At, ""),
        (RepAct::Reps, ""),
    ];
    for (act, words) in cases {
        for placement in [Placement::PerThread, Placement::PerLlc, Placement::Shared] {
            let name = format!("Clustered: {act:?}, {placement:?}");
            let end = end_of(&name, move || {
                let root = Root(OnceLock::new(), AtomicUsize::new(0));
                let object = Arc::new(Clustered::<Piece>::new(placement, root));
                object.root().0.set((Arc::downgrade(&object), act)).ok().unwrap();
                object.with(|_| ());
            });
            match words {
                "" => assert_eq!(end, End::Works, "{name}"),
                words => assert!(end.panics_with(words), "{name}: {end:?}"),
            }
        }
    }
    // From within a scatter: what is there may be called, and no other scatter.
    let end = end_of("Clustered: scatter from a scatter", || {
        let root = Root(OnceLock::new(), AtomicUsize::new(0));
        let object = Clustered::<Piece>::new(Placement::PerThread, root);
        object.with(|_| ());
        object.scatter(|_| object.with(|_| ()), |rep| assert!(std::ptr::eq(rep, object.local())));
        object.scatter(|_| object.scatter(|_| (), |_| ()), |_| ());
    });
    assert!(end.panics_with("during its own scatter"), "{end:?}");
}

// ---- Swappable ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwapAct {
    Call,
    Swap,
    Panic,
}

/// An implementation whose transfer does something with the object.
struct Impl(OnceLock<(Weak<Swappable<Impl>>, SwapAct)>);

impl Impl {
    fn quiet() -> Arc<Self> {
        Arc::new(Self(OnceLock::new()))
    }
}

fn use_object(object: &Swappable<Impl>, act: SwapAct) {
    match act {
        SwapAct::Call => object.call(|_| ()),
        SwapAct::Swap => {
            let error = object.swap(Impl::quiet()).expect_err("from within a call");
            assert!(matches!(error, SwapFailure::InsideCall), "{error}");
        }
        SwapAct::Panic => panic!("planned"),
    }
}

impl Family for Impl {
    type Part = ();

    fn export(&self, _: usize) {
        if let Some((object, act)) = self.0.get() {
            use_object(&object.upgrade().unwrap(), *act);
        }
    }

    fn import(&self, (): ()) {}
}

const SWAP_ACTS: [SwapAct; 3] = [SwapAct::Call, SwapAct::Swap, SwapAct::Panic];
const FROM_TRANSFER: &str = "a transfer calls an exchangeable object";

#[test]
fn transfers_that_use_the_object_fail_the_swap_with_a_sentence() {
    for act in SWAP_ACTS {
        let end = end_of(&format!("Swappable: {act:?} from a transfer"), move || {
            let first = Impl::quiet();
            let object = Arc::new(Swappable::new(Arc::clone(&first)));
            first.0.set((Arc::downgrade(&object), act)).ok().unwrap();
            match (act, object.swap(Impl::quiet())) {
                (SwapAct::Swap, swapped) => assert!(swapped.is_ok()),
                (_, swapped) => {
                    let error = swapped.expect_err("the transfer panicked");
                    let words = if act == SwapAct::Panic { "planned" } else { FROM_TRANSFER };
                    assert!(error.to_string().contains(words), "{error}");
                }
            }
            object.call(|_| ());
        });
        assert_eq!(end, End::Works, "{act:?}");
    }
}

#[test]
fn calls_that_use_the_object_work_and_a_swap_in_them_is_an_error() {
    for act in SWAP_ACTS {
        let end = end_of(&format!("Swappable: {act:?} from a call"), move || {
            let object = Swappable::new(Impl::quiet());
            object.call(|_| use_object(&object, act));
        });
        assert!((act == SwapAct::Panic) == end.panics_with("planned"), "{act:?}: {end:?}");
        assert!(act == SwapAct::Panic || end == End::Works, "{act:?}: {end:?}");
    }
}

#[cfg(unix)]
#[test]
fn objects_in_the_child_of_a_fork_do_not_wait_for_themselves() {
    let tests: &[fn()] = &[
        user_code_may_use_its_own_space_wherever_the_space_calls_it,
        objects_may_use_their_own_slab_at_their_end,
        shared_values_may_use_handles_at_their_end,
        things_may_use_their_own_pool_where_they_are_made_and_at_their_end,
        destructors_of_thread_locals_may_count_and_charge,
        constructors_of_representatives_may_look_at_the_object_and_not_call_it,
        transfers_that_use_the_object_fail_the_swap_with_a_sentence,
        calls_that_use_the_object_work_and_a_swap_in_them_is_an_error,
    ];
    crate::common::process::again_in_children(
        "objects_in_the_child_of_a_fork_do_not_wait_for_themselves",
        tests,
    );
}
