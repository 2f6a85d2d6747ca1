//! Types that can be made at compile time, each in a `static` that threads use at the same time.
//! Types that cannot are in a `LazyLock`, with the reason.

use manycore::cluster::Adaptive;
use manycore::collections::{Counter, EventQueue, Gauge, HashMap, HashSet, Histogram, Registry};
use manycore::lock::{BrLock, McsLock, TicketLock};
use manycore::oplog::{Commuting, Deferred, Op};
use manycore::section::{Atomic, Domain, NodeLock, Owned};
use manycore::slab::Slab;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::LazyLock;
use std::thread;

struct Add(u64);

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}

type Hasher = BuildHasherDefault<DefaultHasher>;

static ADAPTIVE: Adaptive<u64, Commuting<Add>> = Adaptive::new(0);
static COUNTER: Counter = Counter::new(0);
static DEFERRED: Deferred<u64, Commuting<Add>> = Deferred::new(0);
static DOMAIN: Domain = Domain::new();
static GAUGE: Gauge = Gauge::new(0);
static HISTOGRAM: Histogram = Histogram::new();
static LINK: Atomic<u64> = Atomic::null();
static MAP: HashMap<u64, u64, Hasher> = HashMap::with_hasher(Hasher::new());
static MCS: McsLock<u64> = McsLock::new(0);
static NODE_LOCK: NodeLock = NodeLock::new();
static READ_MOSTLY: BrLock<u64> = BrLock::new(0);
static SET: HashSet<u64, Hasher> = HashSet::with_hasher(Hasher::new());
static SLAB: Slab<u64> = Slab::new();
static TICKET: TicketLock<u64> = TicketLock::new(0);

/// A registry's entries lead to its heap, so it is made at run time, and so is a queue. A lazy lock
/// costs as much as checking a pointer inside the type would.
static REGISTRY: LazyLock<Registry<u64>> = LazyLock::new(Registry::new);
static QUEUE: LazyLock<EventQueue<u64>> = LazyLock::new(EventQueue::new);
/// `RandomState` draws a random number.
static RANDOM: LazyLock<HashMap<u64, u64>> = LazyLock::new(HashMap::new);

#[test]
fn statics_made_at_compile_time_serve_threads_at_once() {
    const EACH: u64 = 1_000;
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for n in 0..EACH {
                    ADAPTIVE.update(Add(1));
                    COUNTER.inc();
                    DEFERRED.append(Add(1));
                    GAUGE.inc();
                    HISTOGRAM.record(n);
                    *MCS.lock() += 1;
                    *READ_MOSTLY.write() += 1;
                    *TICKET.lock() += 1;
                    let key = n * 4 + thread;
                    assert!(MAP.insert(key, n) && RANDOM.insert(key, n) && SET.insert(key));
                    drop(REGISTRY.register(n));
                    QUEUE.send(n).expect("open");
                    assert_eq!(*SLAB.alloc(n), n);
                    let section = DOMAIN.enter();
                    let old = LINK.swap(Owned::new(n), &section);
                    if !old.is_null() {
                        // SAFETY: unlinked by the swap; it has no links; one domain.
                        unsafe { section.retire(old) };
                    }
                    drop(NODE_LOCK.lock(&section));
                }
            });
        }
    });
    let all = 4 * EACH;
    assert_eq!((*ADAPTIVE.read(), *DEFERRED.read(), COUNTER.sum() as u64), (all, all, all));
    assert_eq!((GAUGE.get() as u64, HISTOGRAM.take().count()), (all, all));
    assert_eq!((*MCS.lock(), *READ_MOSTLY.read(), *TICKET.lock()), (all, all, all));
    let lengths = [MAP.len(), RANDOM.len(), SET.len(), QUEUE.drain().len()];
    assert_eq!((lengths, REGISTRY.len()), ([all as usize; 4], 0));
    assert!(!LINK.load(&DOMAIN.enter()).is_null());
}

/// The domain is made by its first user; all other users find the same domain.
#[test]
fn domain_first_used_by_many_threads_is_made_once() {
    for _ in 0..200 {
        let domain = Domain::new();
        let link = Atomic::new(0_u64);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (domain, link) = (&domain, &link);
                scope.spawn(move || {
                    let section = domain.enter();
                    let old = link.swap(Owned::new(thread), &section);
                    // SAFETY: unlinked by the swap; it has no links; one domain.
                    unsafe { section.retire(old) };
                });
            }
        });
        // SAFETY: the threads have ended.
        drop(unsafe { link.into_owned() });
    }
    drop(Domain::new()); // never used
}

#[test]
fn map_that_was_never_filled_has_no_table_and_answers() {
    let map = HashMap::<u32, u32>::new();
    assert_eq!((map.capacity(), map.len(), map.get_cloned(&1)), (0, 0, None));
    assert!(!map.remove(&1) && !map.update(&1, |n| *n) && map.enter().iter().next().is_none());
    map.retain(|_, _| false);
    map.clear();
    assert!(!map.compute(1, |_| None) && !map.remove_if(&1, |_, _| true));
    map.shrink_to_fit();
    assert_eq!((map.clone().len(), map.clone().into_iter().next()), (0, None));
    assert_eq!(map, HashMap::new());
    map.reserve(10);
    assert!(map.capacity() >= 10 && map.insert(1, 1));
}
