//! The slab as its users see it. Random operations are compared with a model. Threads come and go,
//! memory returns to its owner, processes fork, and threads use the slab in their last moments.

use crate::common::env;
#[cfg(unix)]
use crate::common::process::{in_child, in_own_process};
use crate::common::rng::Rng;
use crate::common::steps::Stepped;
use manycore::slab::{Slab, SlabBox};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// An object that knows what it should contain.
#[derive(Debug, PartialEq)]
struct Node {
    key: u64,
    check: [u64; 5],
}

impl Node {
    fn new(key: u64) -> Self {
        Self { key, check: std::array::from_fn(|index| key.rotate_left(index as u32 + 1)) }
    }

    fn is_whole(&self) -> bool {
        *self == Self::new(self.key)
    }
}

// ---- any interleaving equals the model ----

const THREADS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Allocates that many.
    Alloc(usize),
    /// Frees that many, those at the index first.
    Free(usize, usize),
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        5 => (1_usize..300).prop_map(Step::Alloc),
        5 => ((0_usize..2000), (1_usize..300)).prop_map(|(at, many)| Step::Free(at, many)),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec((0..THREADS, step), 1..60)
}

type Live = Mutex<Vec<SlabBox<'static, [u64; 16]>>>;

/// Does a step on the calling thread.
fn step(slab: &'static Slab<[u64; 16]>, live: &Live, step: Step, next: &AtomicUsize) {
    let mut live = live.lock().unwrap();
    match step {
        Step::Alloc(many) => {
            live.extend(
                (0..many).map(|_| slab.alloc([next.fetch_add(1, Ordering::Relaxed) as u64; 16])),
            );
        }
        Step::Free(at, many) => {
            for _ in 0..many.min(live.len()) {
                let at = at % live.len();
                let freed = SlabBox::into_inner(live.swap_remove(at));
                assert!(freed.iter().all(|word| *word == freed[0]), "{freed:?}");
            }
        }
        Step::Trim => slab.trim(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_threads_operations_keep_every_object_whole(steps in steps()) {
        let slab: &'static Slab<[u64; 16]> = Box::leak(Box::default());
        let live: &'static Live = Box::leak(Box::default());
        let next: &'static AtomicUsize = Box::leak(Box::default());
        let threads = Stepped::new(THREADS);
        for (thread, now) in steps {
            threads.on(thread, move || step(slab, live, now, next));
            let live = live.lock().unwrap();
            let stats = slab.stats();
            prop_assert_eq!(stats.live, live.len());
            prop_assert!(stats.bytes >= live.len() * 128 && stats.bytes == stats.chunks << 16);
            let addresses: HashSet<_> = live.iter().map(|object| &raw const **object).collect();
            prop_assert_eq!(addresses.len(), live.len(), "two objects have one address");
            let whole = live.iter().all(|object| object.iter().all(|word| *word == object[0]));
            prop_assert!(whole, "an object was overwritten");
        }
        live.lock().unwrap().clear();
        // Each thread returns remote blocks to their owners; then each frees its own.
        for thread in (0..THREADS).chain(0..THREADS) {
            threads.on(thread, || slab.trim());
        }
        slab.trim();
        let stats = slab.stats();
        for thread in 0..THREADS {
            threads.on(thread, || slab.trim());
        }
        prop_assert_eq!(slab.stats().chunks, 0, "after {:?}", stats);
    }
}

// ---- many threads ----

#[test]
fn threads_that_come_and_go_and_free_each_others_nodes_lose_none() {
    let _alone = env::alone();
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let slab = Slab::new();
    let pool: Mutex<Vec<SlabBox<'_, Node>>> = Mutex::default();
    let until = env::soak(std::time::Duration::from_secs(1));
    let mut wave = 0;
    while wave < 3 || std::time::Instant::now() < until {
        thread::scope(|scope| {
            for thread in 0..6 {
                let (slab, pool) = (&slab, &pool);
                let mut rng = Rng::part(seed, wave * 100 + thread);
                scope.spawn(move || {
                    let mut own = Vec::new();
                    for _ in 0..3000 {
                        match rng.below(10) {
                            0..4 => own.push(slab.alloc(Node::new(rng.next()))),
                            4..6 if !own.is_empty() => {
                                let at = rng.below(own.len());
                                assert!(own.swap_remove(at).is_whole(), "a node was overwritten");
                            }
                            6..8 => pool.lock().unwrap().extend(own.pop()),
                            8 => {
                                let mut pool = pool.lock().unwrap();
                                let many = rng.below(64).min(pool.len());
                                let at = pool.len() - many;
                                let taken: Vec<_> = pool.drain(at..).collect();
                                drop(pool);
                                assert!(taken.iter().all(|node| node.is_whole()));
                            }
                            _ if rng.once_in(200) => slab.trim(),
                            _ => {}
                        }
                    }
                    // The remaining objects go to the other threads, and this thread ends.
                    pool.lock().unwrap().append(&mut own);
                });
            }
        });
        assert_eq!(slab.stats().live, pool.lock().unwrap().len());
        wave += 1;
    }
    println!("{wave} waves, {:?}", slab.stats());
    let pool = pool.into_inner().unwrap();
    assert!(pool.iter().all(|node| node.is_whole()));
    drop(pool);
    assert_eq!(slab.stats().live, 0);
}

#[test]
fn objects_of_two_threads_share_no_line() {
    let slab = Slab::<u64>::new();
    let barrier = std::sync::Barrier::new(4);
    let lines: Vec<HashSet<usize>> = thread::scope(|scope| {
        let allocate = || {
            let lines = (0..5000).map(|_| slab.alloc_raw().addr().get() / 128).collect();
            barrier.wait(); // so that each has a slot of its own
            lines
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(allocate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, lines_of_one) in lines.iter().enumerate() {
        assert!(lines_of_one.len() >= 5000 / 16);
        assert!(lines[number + 1..].iter().all(|others| lines_of_one.is_disjoint(others)));
    }
}

/// A producer allocates objects that a consumer frees. The number of chunks stays at what the queue
/// needs.
#[test]
fn producer_and_consumer_keep_their_memory() {
    let _alone = env::alone();
    let slab = Slab::new();
    let (sender, receiver) = mpsc::sync_channel(1000);
    let slab = &slab;
    let (warm, end) = thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop::<SlabBox<'_, [u64; 8]>>));
        let produce = |many| (0..many).for_each(|n| sender.send(slab.alloc([n; 8])).unwrap());
        produce(50_000);
        let warm = slab.stats();
        produce(400_000);
        let end = slab.stats();
        drop(sender);
        (warm, end)
    });
    println!("{warm:?}, then {end:?}");
    assert!(end.chunks <= warm.chunks.max(4), "memory does not come home: {warm:?}, {end:?}");
    assert_eq!(slab.stats().live, 0);
}

/// Returns how many pages of the process are in memory.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let numbers = std::fs::read_to_string("/proc/self/statm").unwrap();
    numbers.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The same test as the system sees it: memory in use does not grow, while 25 MB pass through.
#[cfg(target_os = "linux")]
#[test]
fn producer_and_consumer_do_not_grow_the_process() {
    in_own_process("producer_and_consumer_do_not_grow_the_process", || {
        let slab = &Slab::new();
        let (sender, receiver) = mpsc::sync_channel(1000);
        let (warm, end) = thread::scope(|scope| {
            scope.spawn(move || receiver.into_iter().for_each(drop::<SlabBox<'_, [u64; 8]>>));
            let produce = |many| (0..many).for_each(|n| sender.send(slab.alloc([n; 8])).unwrap());
            produce(50_000);
            let warm = resident();
            produce(400_000);
            let end = resident();
            drop(sender);
            (warm, end)
        });
        println!("{warm} pages, then {end}");
        assert!(end < warm + 1024, "the process grew from {warm} to {end} pages");
    });
}

/// A thread's fresh objects are on the NUMA node of its core, because the thread touches them
/// first. (With one node there is only one possible answer; the test asks anyway.)
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn fresh_objects_lie_on_the_node_of_their_thread() {
    /// `MPOL_F_NODE` and `MPOL_F_ADDR`: the node of the page at an address.
    const OF_ADDRESS: usize = 1 | 2;
    let slab = Slab::<[u64; 64]>::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (mut core, mut node) = (0_u32, 0_u32);
                // SAFETY: the calls write to the two numbers, and pin this thread to its core.
                unsafe {
                    assert_eq!(libc::syscall(libc::SYS_getcpu, &raw mut core, &raw mut node, 0), 0);
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(core as usize, &mut set);
                    libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
                    libc::syscall(libc::SYS_getcpu, &raw mut core, &raw mut node, 0);
                }
                for number in 0..1000 {
                    let object = slab.alloc([number; 64]);
                    let (mut found, none) = (-1_i32, std::ptr::null::<u8>());
                    // SAFETY: the call writes one number and looks at a page that is there.
                    let failed = unsafe {
                        let page = &raw const *object;
                        libc::syscall(
                            libc::SYS_get_mempolicy,
                            &raw mut found,
                            none,
                            0,
                            page,
                            OF_ADDRESS,
                        )
                    };
                    if failed != 0 {
                        println!("not asked: {}", std::io::Error::last_os_error());
                        return;
                    }
                    assert_eq!(found, node as i32, "on another node than core {core}");
                    std::mem::forget(object);
                }
            });
        }
    });
}

#[cfg(unix)]
#[test]
fn chunks_of_ended_threads_go_back_when_others_free_their_objects() {
    in_own_process("chunks_of_ended_threads_go_back_when_others_free_their_objects", || {
        let slab = Slab::new();
        // At once, so that each has a slot of its own.
        let start = std::sync::Barrier::new(4);
        let mut nodes: Vec<_> = thread::scope(|scope| {
            let fill = || {
                let nodes: Vec<_> = (0..50_000).map(|key| slab.alloc(Node::new(key))).collect();
                start.wait();
                nodes
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(fill)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let full = slab.stats().chunks;
        assert!(full > 4 * 30, "{full} chunks for 200,000 nodes");
        nodes.clear();
        slab.trim();
        // An empty one for each, and what was at hand when its thread ended.
        let left = slab.stats().chunks;
        assert!(left <= 4, "{left} of {full} chunks are kept");
        assert_eq!(slab.stats().live, 0);
    });
}

/// The next owner of a slot continues with the chunks there.
#[test]
fn thread_after_thread_uses_what_the_last_one_left() {
    let slab = Slab::new();
    let mut left = Vec::new();
    for round in 0..100 {
        left = thread::scope(|scope| {
            let slab = &slab;
            let work = move || {
                assert!(left.iter().all(|node: &SlabBox<'_, Node>| node.is_whole()));
                drop(left);
                (0..500).map(|key| slab.alloc(Node::new(round + key))).collect()
            };
            scope.spawn(work).join().unwrap()
        });
    }
    let chunks = slab.stats().chunks;
    // Other tests take slots of these threads', so now and then a round begins a new heap.
    assert!(chunks < 50, "{chunks} chunks for 500 nodes");
}

static LATE: Slab<Node> = Slab::new();

struct Kept(Vec<SlabBox<'static, Node>>);

impl Drop for Kept {
    fn drop(&mut self) {
        // This thread's slot has gone back by now.
        let more: Vec<_> = (0..100).map(|key| LATE.alloc(Node::new(key))).collect();
        self.0.truncate(50);
        assert!(more.iter().chain(&self.0).all(|node| node.is_whole()));
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept(Vec::new())) };
}

#[test]
fn slab_works_in_a_threads_last_destructors() {
    for _ in 0..20 {
        thread::spawn(|| {
            // Touched first, so destroyed after the slot's own destructor has run.
            KEPT.with_borrow_mut(|kept| {
                kept.0 = (0..100).map(|key| LATE.alloc(Node::new(key))).collect();
            });
        })
        .join()
        .unwrap();
    }
    assert_eq!(LATE.stats().live, 0);
}

// ---- boxes ----

#[test]
fn box_drops_its_object_once_and_frees_also_if_that_panics() {
    struct Counts<'a>(&'a AtomicUsize, bool);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "planned");
        }
    }
    let drops = AtomicUsize::new(0);
    let slab = Slab::new();
    drop(slab.alloc(Counts(&drops, false)));
    let inner = SlabBox::into_inner(slab.alloc(Counts(&drops, false)));
    assert_eq!((drops.load(Ordering::Relaxed), slab.stats().live), (1, 0));
    drop(inner);
    let panicking = slab.alloc(Counts(&drops, true));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(panicking))).is_err());
    assert_eq!((drops.load(Ordering::Relaxed), slab.stats().live), (3, 0));
    let raw = SlabBox::into_raw(slab.alloc(Counts(&drops, false)));
    // SAFETY: as `into_raw` left it.
    drop(unsafe { SlabBox::from_raw(&slab, raw) });
    std::mem::forget(slab.alloc(Counts(&drops, false)));
    assert_eq!((drops.load(Ordering::Relaxed), slab.stats().live), (4, 1));
    assert!(format!("{slab:?}").contains("live: 1"));
}

#[test]
fn nested_boxes_free_each_other() {
    struct List(#[allow(dead_code, reason = "dropped")] Option<SlabBox<'static, List>>);
    static LISTS: Slab<List> = Slab::new();
    let mut list = LISTS.alloc(List(None));
    for _ in 0..1000 {
        list = LISTS.alloc(List(Some(list)));
    }
    assert_eq!(LISTS.stats().live, 1001);
    drop(list);
    assert_eq!(LISTS.stats().live, 0);
}

// ---- fork ----

#[cfg(unix)]
#[test]
fn forked_child_goes_on_with_a_copy() {
    in_own_process("forked_child_goes_on_with_a_copy", || {
        let slab = Slab::new();
        let mut nodes: Vec<_> = thread::scope(|scope| {
            let fill = || (0..1000).map(|key| slab.alloc(Node::new(key))).collect::<Vec<_>>();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(fill)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        nodes.extend((0..1000).map(|key| slab.alloc(Node::new(key))));
        let status = in_child(|| {
            let whole = nodes.iter().all(|node| node.is_whole());
            nodes.clear();
            let again: Vec<_> = (0..5000).map(|key| slab.alloc(Node::new(key))).collect();
            slab.trim();
            whole && again.iter().all(|node| node.is_whole()) && slab.stats().live == 5000
        });
        assert_eq!(status, 0);
        assert!(nodes.iter().all(|node| node.is_whole()));
    });
}
