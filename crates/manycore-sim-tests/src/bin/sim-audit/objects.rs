//! Paths of objects that distribute themselves, and of collections without a log or a map.

use std::{
    cell::RefCell,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use manycore::{
    cluster::{Clustered, Family, Placement, Rep, Swappable},
    collections::{
        ActiveSet, BudgetTree, DHash, EventQueue, ObjectPool, PageCache, PageStore, Registry,
        ReplicatedMap, TimerQueue,
    },
    ldu::{DeferredSet, Element, Structure},
    oplog::Logs,
    slab::Slab,
};
use manycore_cache::Cache;

use super::on_all_cores;

/// Whether there is such a path; measures it.
pub(super) fn run(path: &str) -> bool {
    match path {
        "ldu-change" => ldu_change(),
        "active-set" => {
            let set = ActiveSet::new();
            on_all_cores(|| set.register(black_box(7)).leave());
        }
        "timer-set-cancel" => {
            let timers = TimerQueue::new();
            on_all_cores(|| {
                black_box(timers.insert(1_000, 7_u64).cancel());
            });
        }
        "registry" => {
            let registry = Registry::builder().logs(Logs::Always).build();
            let registry = registry.expect("the bounds are the defaults");
            on_all_cores(|| drop(registry.register(7_u64)));
        }
        "queue-send" => {
            let queue = EventQueue::builder().logs(Logs::Always).build();
            let queue = queue.expect("the bounds are the defaults");
            on_all_cores(|| queue.send(7_u64).expect("the queue is not closed"));
        }
        "slab" => {
            let slab = Slab::<[u64; 4]>::new();
            on_all_cores(|| drop(black_box(slab.alloc([7; 4]))));
        }
        _ => return distributed(path),
    }
    true
}

/// Whether it is one of an object with parts near each thread; measures it.
fn distributed(path: &str) -> bool {
    match path {
        "clustered-call" => {
            let object = Clustered::<Count>::new(Placement::PerThread, ());
            on_all_cores(|| {
                object.with(|count| count.add());
            });
        }
        "swappable-call" => {
            let object = Swappable::new(Arc::new(Answer(42)));
            on_all_cores(|| {
                black_box(object.call(|answer| answer.0));
            });
        }
        "dhash-get" => {
            let table = DHash::<u64, u64, ()>::new();
            table.insert(7, 7);
            assert!(table.distribute());
            on_all_cores(|| {
                black_box(table.get(&7));
            });
        }
        "dhash-local" => {
            let table = DHash::<u64, u64, u64>::new();
            table.insert(7, 7);
            assert!(table.distribute());
            on_all_cores(|| {
                table.with_local(&7, |_, count| *count += 1);
            });
        }
        "replicated-get" => {
            let map = ReplicatedMap::new();
            map.insert(7_u64, 7_u64);
            on_all_cores(|| {
                black_box(map.get(&7));
            });
        }
        "page-hit" => {
            let cache = PageCache::new(Zeros, 100);
            assert!(cache.distribute());
            on_all_cores(|| drop(black_box(cache.pin(&7).expect("zeros can be loaded"))));
        }
        "budget" => {
            let top = BudgetTree::new(1 << 40);
            let own = top.child(1 << 30);
            on_all_cores(|| {
                own.try_charge(64).expect("far below the limit");
                own.release(64);
            });
        }
        "object-pool" => {
            let pool = ObjectPool::new(100, || [0_u64; 8]);
            on_all_cores(|| drop(black_box(pool.take().expect("more than there are threads"))));
        }
        "cache-get" => {
            let cache = Cache::<u64, u64>::new(1_000);
            (0..100).for_each(|key| {
                cache.insert(key, key);
            });
            on_all_cores(|| {
                black_box(cache.get(&7));
            });
        }
        _ => return false,
    }
    true
}

/// Each thread's member goes and comes back.
fn ldu_change() {
    #[derive(Default)]
    struct Sum(u64);

    impl Structure<Element<u64>> for Sum {
        fn insert(&mut self, member: &Element<u64>) {
            self.0 += **member;
        }

        fn remove(&mut self, member: &Element<u64>) {
            self.0 -= **member;
        }
    }

    thread_local! {
        static MEMBER: RefCell<Option<manycore::ldu::Detached<'static, Sum, Element<u64>>>> =
            const { RefCell::new(None) };
    }
    // Members stay in their threads' hands until the program ends.
    let set: &'static DeferredSet<Sum, Element<u64>> =
        Box::leak(Box::new(DeferredSet::new(Sum::default())));
    on_all_cores(|| {
        MEMBER.with_borrow_mut(|member| {
            let inside = match member.take() {
                Some(member) => member.insert(),
                None => set.add(7),
            };
            *member = Some(inside.remove());
        });
    });
}

/// A representative that counts.
struct Count(AtomicU64);

impl Rep for Count {
    type Root = ();

    fn create((): &(), _: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Count {
    fn add(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }
}

struct Answer(u64);

impl Family for Answer {
    type Part = ();

    fn export(&self, _: usize) {}

    fn import(&self, (): ()) {}
}

/// A store whose pages are all zeros.
pub(super) struct Zeros;

impl PageStore for Zeros {
    type Key = u64;
    type Page = [u64; 8];
    type Error = std::convert::Infallible;

    fn load(&self, _: &u64) -> Result<[u64; 8], Self::Error> {
        Ok([0; 8])
    }

    fn write_back(&self, _: &u64, _: &[u64; 8]) -> Result<(), Self::Error> {
        Ok(())
    }
}
