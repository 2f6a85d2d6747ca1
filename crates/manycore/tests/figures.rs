//! Checks the documented memory sizes of objects by counting at the allocator.
//!
//! There is one test on one thread, because allocations of other tests would be counted too. What
//! belongs to the process or to a thread is made before an object is measured.

use manycore::cluster::{Adaptive, Clustered, Family, Placement, Rep, Swappable, adaptive};
use manycore::collections::*;
use manycore::ldu;
use manycore::lock::{McsLock, TicketLock};
use manycore::namespace::IdSpace;
use manycore::oplog::{Commuting, Deferred, Log, LogTable, Logs, MergeStrategy, Op, Ordered};
use manycore::section::{self, Domain, Owned};
use manycore::slab::Slab;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes of an object: its own and those that it has allocated.
///
/// It takes the smallest of many measurements. Now and then an object is the first to need a part
/// of the process's table of logs, and that part is not the object's.
fn bytes_of<T>(make: impl Fn() -> T) -> usize {
    let heap = |_| {
        let before = BYTES.load(Ordering::Relaxed);
        let object = make();
        let heap = BYTES.load(Ordering::Relaxed) - before;
        drop(object);
        heap
    };
    size_of::<T>() + (0..500).map(heap).min().unwrap()
}

/// Demands that an object takes as many bytes as its documentation says.
fn takes<T>(name: &str, said: RangeInclusive<usize>, make: impl Fn() -> T) {
    let bytes = bytes_of(make);
    println!("{name}: {bytes} bytes");
    assert!(said.contains(&bytes), "{name} takes {bytes} bytes; the documentation says {said:?}");
}

struct Inc;

impl Op<u64> for Inc {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
    }
}

type Sum = Deferred<u64, Commuting<Inc>>;
type Auto = Adaptive<u64, Commuting<Inc>>;

struct Nothing;

impl Rep for Nothing {
    type Root = ();
    fn create((): &(), _: usize) -> Self {
        Self
    }
}

impl Family for Nothing {
    type Part = ();
    fn export(&self, _: usize) {}
    fn import(&self, (): ()) {}
}

#[derive(Default)]
struct Count(u64);

impl ldu::Structure<ldu::Element<u8>> for Count {
    fn insert(&mut self, _: &ldu::Element<u8>) {
        self.0 += 1;
    }
    fn remove(&mut self, _: &ldu::Element<u8>) {
        self.0 -= 1;
    }
}

/// Returns a range around `bytes`, a quarter less to a quarter more.
fn some(bytes: usize) -> RangeInclusive<usize> {
    bytes * 3 / 4..=bytes * 5 / 4
}

fn deferred_objects() {
    takes("a cold Deferred of 8 bytes", 24..=24, || Sum::new(0));
    let hot = || {
        let object = Sum::new(0);
        object.promote();
        object
    };
    takes("a hot Deferred", 24 + 1100..=24 + 1200, hot);
    takes("a cold Counter", 16..=16, || Counter::new(0));
    let hot = || {
        let counter = Counter::new(0);
        counter.promote();
        counter
    };
    takes("a hot Counter", 16 + 264..=16 + 264, hot);
    let used = || {
        let counter = hot();
        counter.inc();
        counter
    };
    assert_eq!(bytes_of(used) - bytes_of(hot), 128, "of a thread that counts");
    takes("a cold Adaptive of 8 bytes", 32..=32, || Auto::new(0));
    let shared = || {
        let object = Auto::new(0);
        object.pin(adaptive::Mode::Shared);
        drop(object.read());
        object
    };
    takes("a shared Adaptive", some(900 + 4096), shared);
}

/// Demands that an object which lost its logs keeps at most `said` bytes beside its own size.
///
/// All objects have had logs by now. All but those still in the table have lost them to another
/// object.
fn keep<T>(name: &str, said: usize, in_use: usize, objects: &[T], is_hot: fn(&T) -> bool) {
    let before = BYTES.load(Ordering::Relaxed);
    let each = (before - in_use) / objects.len();
    let logged = objects.iter().filter(|object| is_hot(object)).count();
    assert_eq!(BYTES.load(Ordering::Relaxed), before, "of the question whether it has logs");
    println!("{name}: {each} bytes, {logged} of {} logged", objects.len());
    assert!(each <= said, "{name} keeps {each} bytes; the documentation says {said}");
    assert!(logged <= objects.len() / 2, "{name}: {logged} are logged");
}

fn evicted_deferred<L: Log<u64, Op = Inc>>(name: &str, merge: MergeStrategy) {
    // Few places, so that the logs of those that have them do not count.
    let table = Arc::new(LogTable::new(1));
    let builder = Deferred::<u64, L>::builder().logs(Logs::Always).merge(merge).table(table);
    let objects: Vec<_> = (0..10_000).map(|_| builder.build(0).unwrap()).collect();
    let before = BYTES.load(Ordering::Relaxed);
    for object in &objects {
        object.append(Inc);
        drop(object.read()); // makes the branches, if any
        object.append(Inc);
        let rest = object.stats();
        assert_eq!((rest.appended, rest.applied, rest.pending), (2, 1, 1));
    }
    let logs = |object: &Deferred<u64, L>| object.is_hot();
    keep(name, 257, before, &objects, logs); // 256, and the one that has logs
    let counts = objects[0].stats();
    assert_eq!((counts.appended, counts.applied, counts.evictions), (2, 2, 1));
    assert_eq!((counts.pending, counts.logs), (0, 0));
    keep(name, 257, before, &objects, logs);
    assert!(objects[0].promote() && objects[0].is_hot(), "it can have logs again");
    objects[0].append(Inc);
    assert_eq!((*objects[0].read(), *objects[1].read()), (3, 2));
}

fn evicted_objects() {
    evicted_deferred::<Commuting<Inc>>("an evicted Deferred", MergeStrategy::Flat);
    evicted_deferred::<Ordered<Inc>>("an evicted ordered Deferred", MergeStrategy::Flat);
    evicted_deferred::<Commuting<Inc>>("an evicted Deferred with a tree", MergeStrategy::Tree);
    let counters: Vec<_> = (0..100_000).map(|_| Counter::new(0)).collect();
    let before = BYTES.load(Ordering::Relaxed);
    for counter in &counters {
        assert!(counter.promote());
        counter.inc();
    }
    // The process's table has 4,096 places, whose counters have a row of 128 bytes each.
    keep("an evicted Counter", 264 + 128 * 4096 / 100_000 + 4, before, &counters, |counter| {
        counter.is_hot()
    });
    let evicted = counters.iter().find(|counter| !counter.is_hot()).unwrap();
    assert!(evicted.sum() == 1 && evicted.promote() && evicted.is_hot());
}

fn collections() {
    let hot = || {
        let queue = EventQueue::<u64>::builder().logs(Logs::Always).build().unwrap();
        queue.send(1).unwrap();
        queue
    };
    takes("an EventQueue with a log", some(1500 + 1600), hot);
    small_forms();
    takes("a RangeMap, without its domain's state in a slab", some(930), RangeMap::<u64>::new);
    let page = |number: u64| number * 4096..(number + 1) * 4096;
    let map = RangeMap::new();
    let view = map.enter();
    // Makes the slabs of an entry and a list.
    (0..2).for_each(|number| drop(view.insert(page(number), number)));
    let before = BYTES.load(Ordering::Relaxed);
    view.insert(1 << 40..(1 << 40) + (1 << 30), 2).unwrap();
    assert_eq!(BYTES.load(Ordering::Relaxed) - before, 640, "a branch above all, and its entry");
    drop(view);
    takes("a Registry", some(240), Registry::<u64>::new);
    takes("an IntervalRegistry", some(410), IntervalRegistry::<u64, u64>::new);
    takes("an Lru", some(130), Lru::<u64>::new);
    takes("a BudgetTree", some(700), || BudgetTree::new(100));
    let charged = || {
        let budget = BudgetTree::new(1000);
        drop(budget.charge(1).unwrap());
        budget
    };
    assert_eq!(bytes_of(charged) - bytes_of(|| BudgetTree::new(100)), 128);
    takes("an ObjectPool", some(512), || ObjectPool::new(4, || 1_u8));
    takes("a ScalableArc of 8 bytes", 8 + 24..=8 + 32, || ScalableArc::new(1_u64));
    let weak = || {
        let object = ScalableArc::new(1_u64);
        (ScalableArc::downgrade(&object), object)
    };
    takes("a ScalableArc with a weak handle", 2 * 8 + 32 + 640..=2 * 8 + 32 + 640, weak);
    let hot = || {
        let object = ScalableArc::new(1_u64);
        ScalableArc::promote(&object);
        drop(object.clone());
        object
    };
    takes("a hot ScalableArc", 8 + 32 + 640 + 4096..=8 + 32 + 640 + 4096, hot);
}

/// Objects that one thread has used now and then.
fn small_forms() {
    let _shares_its_settings = EventQueue::<u64>::new();
    takes("an EventQueue", 128..=128, EventQueue::<u64>::new);
    let received = || {
        let queue = EventQueue::<u64>::new();
        queue.send(7).unwrap();
        assert_eq!(queue.recv(), Some(7));
        queue
    };
    takes("an EventQueue that was used", 128..=176, received);
    let polled = || {
        let queue = received();
        assert!(queue.try_recv().is_err() && queue.recv_timeout(Duration::ZERO).is_err());
        queue
    };
    takes("an EventQueue whose receiver has waited", some(1500), polled);
    takes("an ActiveSet", 128..=128, ActiveSet::<u64>::new);
    let left = || {
        let set = ActiveSet::<u64>::new();
        set.register(7).leave();
        assert_eq!(set.oldest(), None);
        set
    };
    takes("an ActiveSet that was used", 128..=256, left);
    let asked = || {
        let set = ActiveSet::<u64>::new();
        std::mem::forget(set.register(7));
        assert_eq!(set.oldest(), Some(7));
        set
    };
    takes("an ActiveSet that was asked for a member", 0..=400, asked);
    takes("a TimerQueue", 128..=128, TimerQueue::<u64>::new);
    let cancelled = || {
        let timers = TimerQueue::<u64>::new();
        assert_eq!(timers.insert(7, 1).cancel(), Some(1));
        assert!(timers.advance(3).is_empty());
        timers
    };
    takes("a TimerQueue that was used", 128..=256, cancelled);
}

fn parts() {
    type Set = ldu::DeferredSet<Count, ldu::Element<u8>>;
    let set = || Set::builder().build(Count::default()).unwrap();
    takes("a DeferredSet", some(1250), set);
    takes("a Domain, without its state in a slab", 16..=16, || Domain::builder().build().unwrap());
    let entered = || {
        let domain = Domain::builder().build().unwrap();
        drop(domain.enter());
        domain
    };
    takes("a Domain that was entered, without its state", 16..=16, entered);
    let shared = || {
        let domain = entered();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(domain.enter())).join().unwrap();
        });
        domain
    };
    takes("a further thread in a Domain", 16 + 384..=16 + 512, shared);
    let map = || {
        let map = HashMap::new();
        map.insert(1_u64, 1_u64);
        map
    };
    takes("a HashMap with an entry, without what is in slabs", 96 + 512..=96 + 512, map);
    takes("an OrderedMap", 40..=40, OrderedMap::<u64, u64>::new);
    takes("an Owned of 8 bytes, without its node in a slab", 8..=8, || Owned::new(1_u64));
    takes("a TicketLock of 8 bytes", 32..=32, || TicketLock::new(0_u64));
    takes("an McsLock of 8 bytes", 24..=24, || McsLock::new(0_u64));
    takes("a Swappable", 128..=128 + 300, || Swappable::new(Arc::new(Nothing)));
    let called = || {
        let object = Clustered::<Nothing>::new(Placement::PerThread, ());
        object.with(|_| ());
        object
    };
    let empty = bytes_of(|| Clustered::<Nothing>::new(Placement::PerThread, ()));
    assert!((256..=256 + 128).contains(&(bytes_of(called) - empty)), "places and a representative");
}

fn two_ids<const SIZE: usize>(most: usize) {
    takes(&format!("two ids of {SIZE} bytes"), 2 * SIZE..=most, || {
        let (space, section) = (IdSpace::<[u8; SIZE]>::new(), section::enter());
        assert_ne!(space.insert([0; SIZE], &section), space.insert([0; SIZE], &section));
        space
    });
}

/// Returns the least distance between objects of one slab.
fn spacing<T>(make: impl Fn() -> T) -> usize {
    let slab = Slab::new();
    let objects: Vec<_> = (0..100).map(|_| slab.alloc(make())).collect();
    let mut places: Vec<usize> =
        objects.iter().map(|object| (&raw const **object).addr()).collect();
    places.sort_unstable();
    places.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
}

#[test]
fn objects_take_the_memory_that_their_documentation_says() {
    deferred_objects();
    evicted_objects();
    collections();
    parts();
    assert_eq!(spacing(|| ()), 16, "of objects without size");
    assert_eq!((spacing(|| 1_u8), spacing(|| [1_u64; 3])), (16, 24));
    takes("an IdSpace", some(1300), IdSpace::<u64>::new);
    two_ids::<8>(80_000);
    two_ids::<56>(80_000);
    two_ids::<1_000>(80_000);
    two_ids::<30_000>(80_000);
    two_ids::<65_536>(30_000 + 2 * 65_536);
}
