//! Work on data that all threads share: locks, reads, maps, queues, references and counts.

use std::{
    array,
    cell::Cell,
    collections::{HashMap, VecDeque},
    hint::black_box,
    sync::{
        Arc, LazyLock, Mutex, OnceLock, RwLock, Weak,
        atomic::{AtomicU64, Ordering::*},
    },
};

use arc_swap::ArcSwap;
use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::{ArrayQueue, SegQueue};
use crossbeam_utils::CachePadded;
use dashmap::DashMap;

use super::{Random, repeated};
use crate::{row::Kind, ticks::spin, workload::Entry};

type Pl<T> = parking_lot::Mutex<T>;
type PlRw<T> = parking_lot::RwLock<T>;

/// Ticks of work outside of a lock: a third of a microsecond.
const OUTSIDE: u64 = 1_000;

/// What a lock guards where it is held for long.
type Table = [u64; 64];

fn rotate(table: &mut Table) {
    table.rotate_left(1);
    table[0] += 1;
}

/// A setting that is read nearly always.
#[derive(Clone)]
struct Setting([u64; 8]);

impl Setting {
    fn check(&self) {
        let first = black_box(self.0[0]);
        assert!(self.0.iter().all(|&word| word == first), "half a setting");
    }

    fn next(&self) -> Self {
        Self(self.0.map(|word| word + 1))
    }
}

/// One of a thousand reads is a change.
fn changes(random: &mut Random) -> bool {
    random.below(1_000) == 0
}

const KEYS: u32 = 1_000;

fn key(number: u32) -> String {
    format!("key {number}")
}

fn keys() -> Vec<String> {
    (0..KEYS).map(key).collect()
}

fn filled<M: FromIterator<(String, u64)>>(_: usize) -> (M, Vec<String>) {
    ((0..KEYS).map(|number| (key(number), u64::from(number))).collect(), keys())
}

/// A key, and whether it is changed at such a share, in percent.
fn choice<'a>(keys: &'a [String], random: &mut Random, percent: u32) -> (&'a str, bool) {
    (&keys[random.below(KEYS) as usize], random.below(100) < percent)
}

/// Rows of a map: reads, with this share of updates.
macro_rules! map {
    ($name:expr, $about:expr, $wrap:expr, $percent:expr, $get:expr, $set:expr) => {
        repeated!(
            $name,
            $about,
            |threads| {
                let (map, keys) = filled(threads);
                ($wrap(map), keys)
            },
            Random::new,
            |(map, keys), random| {
                let (key, changed) = choice(keys, random, $percent);
                if changed { $set(map, key) } else { assert!($get(map, key), "{key} is gone") }
            }
        )
    };
}

/// Rows of a queue: put in, take out.
macro_rules! queue {
    ($name:expr, $about:expr, $new:expr, $put:expr, $take:expr) => {
        repeated!($name, $about, |_| $new, |index| index as u64, |queue, own| {
            $put(queue, *own);
            // Another thread may have taken this one's.
            *own = $take(queue).unwrap_or(*own);
        })
    };
}

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

static LAZY: LazyLock<u64> = LazyLock::new(|| 7);
static ONCE: OnceLock<u64> = OnceLock::new();

type StdMap = HashMap<String, u64>;
type ScMap = scc::HashMap<String, u64>;
type Papaya = papaya::HashMap<String, u64>;

/// The cases.
pub(super) static ENTRIES: &[Entry<usize>] = &[
    Entry {
        kind: Kind::Baseline,
        threads_max: 1,
        ..repeated!("unshared", "a word that one thread has", |_| (), |_| 0_u64, |(), own| {
            *own = black_box(*own + 1);
        })
    },
    // A lock around a word.
    repeated!("lock-std", "std Mutex", |_| Mutex::new(0_u64), |_| (), |lock, ()| {
        *lock.lock().unwrap() += 1;
    }),
    repeated!("lock-pl", "parking_lot's", |_| Pl::new(0_u64), |_| (), |lock, ()| {
        *lock.lock() += 1;
    }),
    repeated!("lock-std-rw", "std RwLock", |_| RwLock::new(0_u64), |_| (), |lock, ()| {
        *lock.write().unwrap() += 1;
    }),
    repeated!("lock-pl-rw", "parking_lot's", |_| PlRw::new(0_u64), |_| (), |lock, ()| {
        *lock.write() += 1;
    }),
    // With work outside.
    repeated!("work-std", "std Mutex", |_| Mutex::new(0_u64), |_| (), |lock, ()| {
        *lock.lock().unwrap() += 1;
        spin(OUTSIDE);
    }),
    repeated!("work-pl", "parking_lot's", |_| Pl::new(0_u64), |_| (), |lock, ()| {
        *lock.lock() += 1;
        spin(OUTSIDE);
    }),
    repeated!("work-std-rw", "std RwLock", |_| RwLock::new(0_u64), |_| (), |lock, ()| {
        *lock.write().unwrap() += 1;
        spin(OUTSIDE);
    }),
    repeated!("work-atomic", "one word", |_| AtomicU64::new(0), |_| (), |word, ()| {
        word.fetch_add(1, AcqRel);
        spin(OUTSIDE);
    }),
    // Held for long.
    repeated!("long-std", "std Mutex", |_| Mutex::new([0_u64; 64]), |_| (), |lock, ()| {
        rotate(&mut lock.lock().unwrap());
    }),
    repeated!("long-pl", "parking_lot's", |_| Pl::new([0_u64; 64]), |_| (), |lock, ()| {
        rotate(&mut lock.lock());
    }),
    repeated!(
        "long-sharded",
        "a std Mutex for each thread",
        |threads| (0..threads).map(|_| CachePadded::new(Mutex::new([0; 64]))).collect::<Vec<_>>(),
        |index| index,
        |locks, index| rotate(&mut locks[*index].lock().unwrap())
    ),
    // A setting that all read.
    repeated!(
        "read-std",
        "std Mutex",
        |_| Mutex::new(Setting([0; 8])),
        Random::new,
        |lock, own| {
            let mut setting = lock.lock().unwrap();
            if changes(own) { *setting = setting.next() } else { setting.check() }
        }
    ),
    repeated!(
        "read-std-rw",
        "std RwLock",
        |_| RwLock::new(Setting([0; 8])),
        Random::new,
        |l, own| {
            if changes(own) {
                let mut setting = l.write().unwrap();
                *setting = setting.next();
            } else {
                l.read().unwrap().check();
            }
        }
    ),
    repeated!(
        "read-pl-rw",
        "parking_lot's",
        |_| PlRw::new(Setting([0; 8])),
        Random::new,
        |l, own| {
            if changes(own) {
                let mut setting = l.write();
                *setting = setting.next();
            } else {
                l.read().check();
            }
        }
    ),
    repeated!(
        "read-arc",
        "an Arc that is cloned under a std Mutex",
        |_| Mutex::new(Arc::new(Setting([0; 8]))),
        Random::new,
        |lock, own| {
            let setting = Arc::clone(&lock.lock().unwrap());
            setting.check();
            if changes(own) {
                *lock.lock().unwrap() = Arc::new(setting.next());
            }
        }
    ),
    repeated!(
        "read-arc-swap",
        "arc-swap",
        |_| ArcSwap::from_pointee(Setting([0; 8])),
        Random::new,
        |swap, own| {
            let setting = swap.load();
            setting.check();
            if changes(own) {
                swap.store(Arc::new(setting.next()));
            }
        }
    ),
    // A map of strings, an update in twenty.
    map!(
        "map-std",
        "HashMap under a std Mutex",
        Mutex::new,
        5,
        |map: &Mutex<StdMap>, key: &str| map.lock().unwrap().contains_key(key),
        |map: &Mutex<StdMap>, key: &str| *map.lock().unwrap().get_mut(key).unwrap() += 1
    ),
    map!(
        "map-std-rw",
        "HashMap under a std RwLock",
        RwLock::new,
        5,
        |map: &RwLock<StdMap>, key: &str| map.read().unwrap().contains_key(key),
        |map: &RwLock<StdMap>, key: &str| *map.write().unwrap().get_mut(key).unwrap() += 1
    ),
    map!(
        "map-pl-rw",
        "HashMap under parking_lot's RwLock",
        PlRw::new,
        5,
        |map: &PlRw<StdMap>, key: &str| map.read().contains_key(key),
        |map: &PlRw<StdMap>, key: &str| *map.write().get_mut(key).unwrap() += 1
    ),
    map!(
        "map-dashmap",
        "DashMap",
        |map| map,
        5,
        |map: &DashMap<String, u64>, key: &str| map.contains_key(key),
        |map: &DashMap<String, u64>, key: &str| *map.get_mut(key).unwrap() += 1
    ),
    map!(
        "map-scc",
        "scc HashMap",
        |map| map,
        5,
        |map: &ScMap, key: &str| map.contains_sync(key),
        |map: &ScMap, key: &str| {
            map.update_sync(key, |_, value| *value += 1).unwrap();
        }
    ),
    map!(
        "map-papaya",
        "papaya HashMap",
        |map| map,
        5,
        |map: &Papaya, key: &str| map.pin().contains_key(key),
        |map: &Papaya, key: &str| {
            map.pin().update(key.to_owned(), |value| value + 1).unwrap();
        }
    ),
    // ... half of them updates.
    map!(
        "update-std",
        "HashMap under a std Mutex",
        Mutex::new,
        50,
        |map: &Mutex<StdMap>, key: &str| map.lock().unwrap().contains_key(key),
        |map: &Mutex<StdMap>, key: &str| *map.lock().unwrap().get_mut(key).unwrap() += 1
    ),
    map!(
        "update-pl-rw",
        "HashMap under parking_lot's RwLock",
        PlRw::new,
        50,
        |map: &PlRw<StdMap>, key: &str| map.read().contains_key(key),
        |map: &PlRw<StdMap>, key: &str| *map.write().get_mut(key).unwrap() += 1
    ),
    map!(
        "update-dashmap",
        "DashMap",
        |map| map,
        50,
        |map: &DashMap<String, u64>, key: &str| map.contains_key(key),
        |map: &DashMap<String, u64>, key: &str| *map.get_mut(key).unwrap() += 1
    ),
    map!(
        "update-scc",
        "scc HashMap",
        |map| map,
        50,
        |map: &ScMap, key: &str| map.contains_sync(key),
        |map: &ScMap, key: &str| {
            map.update_sync(key, |_, value| *value += 1).unwrap();
        }
    ),
    // A queue.
    queue!(
        "queue-std",
        "VecDeque under a std Mutex",
        Mutex::new(VecDeque::new()),
        |queue: &Mutex<VecDeque<u64>>, word| queue.lock().unwrap().push_back(word),
        |queue: &Mutex<VecDeque<u64>>| queue.lock().unwrap().pop_front()
    ),
    queue!(
        "queue-pl",
        "VecDeque under parking_lot's Mutex",
        Pl::new(VecDeque::new()),
        |queue: &Pl<VecDeque<u64>>, word| queue.lock().push_back(word),
        |queue: &Pl<VecDeque<u64>>| queue.lock().pop_front()
    ),
    queue!(
        "queue-seg",
        "crossbeam's SegQueue",
        SegQueue::new(),
        |queue: &SegQueue<u64>, word| queue.push(word),
        |queue: &SegQueue<u64>| queue.pop()
    ),
    queue!(
        "queue-array",
        "crossbeam's ArrayQueue",
        ArrayQueue::new(1_024),
        |queue: &ArrayQueue<u64>, word| queue.push(word).expect("room"),
        |queue: &ArrayQueue<u64>| queue.pop()
    ),
    queue!(
        "queue-concurrent",
        "concurrent-queue",
        ConcurrentQueue::unbounded(),
        |queue: &ConcurrentQueue<u64>, word| queue.push(word).expect("an open queue"),
        |queue: &ConcurrentQueue<u64>| queue.pop().ok()
    ),
    queue!(
        "queue-channel",
        "crossbeam's channel",
        crossbeam_channel::unbounded(),
        |(into, _): &Channel, word| into.send(word).expect("an open channel"),
        |(_, from): &Channel| from.try_recv().ok()
    ),
    // References.
    repeated!("arc-shared", "clone and drop one Arc", |_| Arc::new(7_u64), |_| (), |arc, ()| {
        assert_eq!(*Arc::clone(arc), 7);
    }),
    repeated!("arc-own", "... an Arc of one's own", |_| (), |_| Arc::new(7_u64), |(), arc| {
        assert_eq!(*black_box(Arc::clone(arc)), 7);
    }),
    repeated!(
        "arc-weak",
        "upgrade one Weak",
        |_| {
            let arc = Arc::new(7_u64);
            (Arc::downgrade(&arc), arc)
        },
        |_| (),
        |(weak, _): &(Weak<u64>, Arc<u64>), ()| {
            assert_eq!(*weak.upgrade().unwrap(), 7);
        }
    ),
    // Counts.
    repeated!("count-max", "fetch_max", |_| AtomicU64::new(0), |_| 0, |word, own| {
        *own += 1;
        assert!(word.fetch_max(*own, AcqRel) < u64::MAX);
    }),
    repeated!(
        "count-exchange",
        "a loop of exchanges",
        |_| AtomicU64::new(0),
        |_| (),
        |word, ()| {
            word.fetch_update(AcqRel, Relaxed, |value| Some(value + 1)).unwrap();
        }
    ),
    repeated!("count-swap", "swap", |_| AtomicU64::new(0), |index| index as u64, |word, own| {
        *own = word.swap(*own, AcqRel);
    }),
    repeated!(
        "count-padded",
        "a padded word for each thread",
        |_| array::from_fn::<_, 64, _>(|_| CachePadded::new(AtomicU64::new(0))),
        |index| index % 64,
        |words, index| {
            words[*index].fetch_add(1, AcqRel);
        }
    ),
    repeated!("count-local", "a thread-local", |_| (), |_| (), |(), ()| {
        LOCAL.set(black_box(LOCAL.get() + 1));
    }),
    // Set once.
    repeated!("once-lazy", "LazyLock", |_| (), |_| (), |(), ()| assert_eq!(*LAZY, 7)),
    repeated!("once-lock", "OnceLock", |_| (), |_| (), |(), ()| {
        assert_eq!(*ONCE.get_or_init(|| 7), 7);
    }),
    repeated!("once-std", "Mutex of an Option", |_| Mutex::new(None), |_| (), |lock, ()| {
        assert_eq!(*lock.lock().unwrap().get_or_insert(7), 7);
    }),
];

type Channel = (crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>);
