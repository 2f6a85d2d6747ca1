//! Garbage is bounded in bytes (law section.S10): by stated weights, or by time if weights are not
//! known. Tested with threads that go idle and readers that stall.

mod common;

use manycore::collections::HashMap;
use manycore::section::{Atomic, Builder, Domain, Mode, Owned, Section, Weight};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// What a value of unknown weight counts as, beside its own size.
const ASSUMED_HEAP_BYTES: usize = 256;
/// From then on a section counts as stalled.
const STALLED_MILLIS: u64 = 100;
/// Removals in a row that are freed at once.
const URGENT_BURST: u32 = 32;

/// Counts of the nodes that wait to be freed, kept by the nodes themselves.
#[derive(Default)]
struct Tally {
    waiting: AtomicI64,
    most: AtomicI64,
    nodes: AtomicUsize,
}

struct Node {
    tally: Arc<Tally>,
    bytes: usize,
}

impl Node {
    fn owned(tally: &Arc<Tally>, bytes: usize) -> Owned<Self> {
        Owned::new(Self { tally: Arc::clone(tally), bytes })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tally.waiting.fetch_sub(self.bytes as i64, SeqCst);
        self.tally.nodes.fetch_sub(1, SeqCst);
    }
}

/// Links a new node in place of the old one, and retires the old one with the weight it states.
fn replace(link: &Atomic<Node>, tally: &Arc<Tally>, bytes: usize, section: &Section<'_>) {
    let old = link.swap(Node::owned(tally, bytes), section);
    if let Some(node) = old.as_ref() {
        let waiting = tally.waiting.fetch_add(node.bytes as i64, SeqCst) + node.bytes as i64;
        tally.most.fetch_max(waiting, SeqCst);
        tally.nodes.fetch_add(1, SeqCst);
        // SAFETY: unlinked by the swap; no links out of it; all sections are of one domain.
        unsafe { section.retire_weighed(old, Weight::exact(node.bytes)) };
    }
}

/// Retires a node that was never linked, and that is not marked urgent.
fn retire_light(tally: &Arc<Tally>, section: &Section<'_>) {
    fn free(address: NonNull<()>) {
        // SAFETY: the address is that of the box below, and comes back once.
        drop(unsafe { Box::from_raw(address.cast::<Node>().as_ptr()) });
    }
    let node = Box::leak(Box::new(Node { tally: Arc::clone(tally), bytes: 64 }));
    tally.waiting.fetch_add(64, SeqCst);
    tally.nodes.fetch_add(1, SeqCst);
    // SAFETY: it was never linked, and has no links.
    unsafe { section.retire_raw(NonNull::from(node).cast(), Weight::exact(64), free) };
}

/// Frees the node that is still linked, counting it as if it had been retired.
fn end(link: Atomic<Node>, tally: &Tally) {
    // SAFETY: nothing else leads to the node, and the caller keeps no reference.
    if let Some(node) = unsafe { link.into_owned() } {
        tally.waiting.fetch_add(node.bytes as i64, SeqCst);
        tally.nodes.fetch_add(1, SeqCst);
    }
}

/// Returns the bound by the documented formula. (A node's header is 24 bytes.)
fn bound(budget: usize, threads: usize, largest: usize) -> usize {
    budget + threads * (largest + 24)
}

/// Returns the most bytes that waited, and how long a worker's longest section lasted.
fn most_waiting(
    builder: Builder,
    threads: usize,
    bytes: usize,
    is_stalled: bool,
) -> (usize, Duration) {
    let sections = if bytes < 64 << 10 { 6_400 } else { 1_600 };
    let domain = builder.build().unwrap();
    let tally = Arc::new(Tally::default());
    let link = Atomic::null();
    let links: Vec<_> = (0..threads).map(|_| Atomic::null()).collect();
    let (inside, is_inside) = channel();
    let (stop, stopped) = channel::<()>();
    let longest = thread::scope(|scope| {
        if is_stalled {
            let (domain, link) = (&domain, &link);
            let inside = inside.clone();
            scope.spawn(move || {
                let section = domain.enter();
                let _ = link.load(&section).as_ref();
                inside.send(()).unwrap();
                let _ = stopped.recv();
            });
            is_inside.recv().unwrap();
        }
        let workers: Vec<_> = links
            .iter()
            .map(|own| {
                let (domain, tally) = (&domain, &tally);
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    for _ in 0..sections / threads {
                        let (start, section) = (Instant::now(), domain.enter());
                        replace(own, tally, bytes, &section);
                        longest = longest.max(start.elapsed());
                        drop(section);
                    }
                    longest
                })
            })
            .collect();
        let longest = workers.into_iter().map(|worker| worker.join().unwrap()).max();
        drop(stop);
        longest.unwrap()
    });
    links.into_iter().chain([link]).for_each(|link| end(link, &tally));
    drop(domain);
    assert_eq!(tally.waiting.load(SeqCst), 0);
    (usize::try_from(tally.most.load(SeqCst)).unwrap(), longest)
}

#[test]
fn garbage_of_every_size_and_number_of_threads_keeps_to_the_formula() {
    const BUDGET: usize = 1 << 20;
    for is_stalled in [false, true] {
        for threads in [1, 2, 8, 64] {
            for bytes in [16, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20] {
                let mut builder = Domain::builder().mode(Mode::Bounded).budget(BUDGET);
                if !is_stalled {
                    // However long the machine keeps a thread from running in a section.
                    builder = builder.backpressure(Duration::from_secs(600));
                }
                let (most, longest) = most_waiting(builder, threads, bytes, is_stalled);
                let mut bound = bound(BUDGET, threads, bytes);
                if is_stalled {
                    if longest > Duration::from_millis(STALLED_MILLIS) / 2 {
                        println!("a section of a worker lasted {longest:?}: it may be stalled");
                        continue;
                    }
                    // Nodes that the stalled section can have seen: those linked and those waiting
                    // when the first round came.
                    bound = 2 * bound + threads * bytes;
                }
                assert!(
                    most <= bound,
                    "{threads} threads, {bytes} bytes, stalled {is_stalled}: {most} > {bound}"
                );
            }
        }
    }
}

/// Returns the most bytes of removed values that waited in a map, and how long the longest call
/// took. Meanwhile `threads` threads replaced values of 1 KiB.
fn most_waiting_in(map: &HashMap<u64, Value>, threads: u64) -> (usize, Duration) {
    const KEYS: u64 = 100;
    let tally = Arc::new(Tally::default());
    let value = || Value(Node { tally: Arc::clone(&tally), bytes: 1 << 10 });
    let insert = |key| {
        let start = Instant::now();
        let waiting = tally.waiting.fetch_add(1 << 10, SeqCst) + (1 << 10);
        tally.most.fetch_max(waiting, SeqCst);
        map.insert(key, value());
        start.elapsed()
    };
    let longest = thread::scope(|scope| {
        let work = |thread| (0..40_000 / threads).map(move |n| (n + 7 * thread) % KEYS);
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread).map(insert).max()))
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).max()
    });
    let linked = (KEYS as usize) << 10;
    (usize::try_from(tally.most.load(SeqCst)).unwrap() - linked, longest.unwrap())
}

/// A value that says it has 1 KiB on the heap.
struct Value(Node);

#[test]
fn removed_values_of_a_map_keep_to_its_budget_whatever_the_number_of_writers() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let budget = (cores * (2 << 20)).min(32 << 20);
    for threads in [1, 8, 64] {
        let weighed = HashMap::builder().weigher(|_, value: &Value| value.0.bytes).build();
        for (map, counted) in [(HashMap::new(), ASSUMED_HEAP_BYTES), (weighed, 1 << 10)] {
            let (most, longest) = most_waiting_in(&map, threads);
            if longest > Duration::from_millis(STALLED_MILLIS) / 2 {
                println!("a call lasted {longest:?}: its section may have counted as stalled");
                continue;
            }
            let values = bound(budget, threads as usize, 1 << 10) / counted;
            let bound = values << 10;
            assert!(most <= bound, "{threads} threads, counted as {counted}: {most} > {bound}");
        }
    }
}

#[test]
fn writers_over_the_budget_report_once_and_wait_so_long_at_most() {
    const BUDGET: usize = 1 << 16;
    const WAIT: Duration = Duration::from_millis(2);
    let reports = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reports);
    let domain = Domain::builder()
        .mode(Mode::Epoch)
        .budget(BUDGET)
        .backpressure(WAIT)
        .on_over_budget(move |backlog| {
            assert!(backlog.bytes > BUDGET && backlog.stalled.len() == 1, "{backlog}");
            counted.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    let (tally, link) = (Arc::default(), Atomic::null());
    thread::scope(|scope| {
        let (inside, is_inside) = channel();
        let (stop, stopped) = channel::<()>();
        let domain = &domain;
        scope.spawn(move || {
            let _section = domain.enter();
            inside.send(()).unwrap();
            let _ = stopped.recv();
        });
        is_inside.recv().unwrap();
        // The stalled section holds everything: beyond the budget each section of a writer waits.
        let start = Instant::now();
        (0..40).for_each(|_| replace(&link, &tally, 8 << 10, &domain.enter()));
        let waited = start.elapsed();
        assert!(waited > 20 * WAIT, "{waited:?}: writers did not wait");
        assert_eq!(reports.load(SeqCst), 1);
        drop(stop);
    });
    (0..4).for_each(|_| domain.collect());
    assert_eq!(tally.waiting.load(SeqCst), 0);
    end(link, &tally);
}

/// Makes a thread retire ten light nodes, then runs `then` while the thread lives on without a
/// section.
fn idle_thread<R>(domain: &Domain, tally: &Arc<Tally>, then: impl FnOnce() -> R) -> R {
    let (idle, is_idle) = channel();
    let (stop, stopped) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..10).for_each(|_| retire_light(tally, &domain.enter()));
            idle.send(()).unwrap();
            let _ = stopped.recv();
        });
        is_idle.recv().unwrap();
        assert_eq!(tally.nodes.load(SeqCst), 10, "they are light, and wait for a full batch");
        let result = then();
        drop(stop);
        result
    })
}

#[test]
fn idle_threads_garbage_is_taken_over_by_those_that_retire() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let tally = Arc::default();
        idle_thread(&domain, &tally, || {
            let (own, link, start) = (Arc::default(), Atomic::null(), Instant::now());
            while tally.nodes.load(SeqCst) != 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "{mode:?}: it waits for ever");
                replace(&link, &own, 64, &domain.enter());
            }
            end(link, &own);
        });
    }
}

#[test]
fn owner_flushes_what_idle_threads_retired_and_leaves_those_inside_alone() {
    let domain = Domain::new();
    let tally = Arc::default();
    idle_thread(&domain, &tally, || {
        let start = Instant::now();
        while tally.nodes.load(SeqCst) != 0 {
            domain.collect();
            assert!(start.elapsed() < Duration::from_secs(20), "collect leaves it");
        }
    });
    // A section that stays open keeps its thread's garbage.
    let link = Atomic::null();
    thread::scope(|scope| {
        let section = domain.enter();
        (0..11).for_each(|_| replace(&link, &tally, 64, &section));
        scope.spawn(|| (0..4).for_each(|_| domain.collect())).join().unwrap();
        assert_eq!(tally.nodes.load(SeqCst), 10);
    });
    (0..3).for_each(|_| domain.collect());
    assert_eq!(tally.nodes.load(SeqCst), 0);
    end(link, &tally);
}

#[test]
fn large_node_is_freed_at_the_end_of_the_section_or_of_a_later_one_that_only_reads() {
    let domain = Domain::new();
    let (tally, link) = (Arc::default(), Atomic::null());
    (0..2).for_each(|_| replace(&link, &tally, 1 << 20, &domain.enter()));
    assert_eq!(tally.nodes.load(SeqCst), 0, "nothing held it");
    let (inside, is_inside) = channel();
    let (stop, stopped) = channel::<()>();
    thread::scope(|scope| {
        let domain = &domain;
        let link = &link;
        let reader = scope.spawn(move || {
            let section = domain.enter();
            let held = link.load(&section).as_ref().map(|node| node.bytes);
            inside.send(()).unwrap();
            let _ = stopped.recv();
            assert_eq!(held, Some(1 << 20));
        });
        is_inside.recv().unwrap();
        replace(link, &tally, 1 << 20, &domain.enter());
        // Rounds in vain must not count as rounds to come.
        (0..8).for_each(|_| drop(domain.backlog(Duration::ZERO)));
        assert_eq!(tally.nodes.load(SeqCst), 1, "freed under a reader");
        drop(stop);
        reader.join().unwrap();
        let start = Instant::now();
        while tally.nodes.load(SeqCst) != 0 {
            drop(domain.enter()); // retires nothing
            assert!(start.elapsed() < Duration::from_secs(20), "it waits for the next retire");
        }
    });
    end(link, &tally);
}

#[test]
fn maps_weigher_tells_what_its_entries_own_and_may_panic() {
    let map = HashMap::builder().weigher(|_: &u32, text: &String| text.capacity()).build();
    let view = map.enter();
    view.insert(1, "x".repeat(1000));
    view.insert(1, String::new());
    let waiting = map.domain().backlog(Duration::ZERO);
    assert_eq!(waiting.nodes, 1);
    assert!((1000..1200).contains(&waiting.bytes), "{waiting}");
    drop(view);

    let freed = Arc::new(());
    let map = HashMap::builder().weigher(|_: &u32, _: &Arc<()>| panic!("planned")).build();
    map.enter().insert(1, Arc::clone(&freed));
    let update = std::panic::AssertUnwindSafe(|| map.enter().remove(&1).is_some());
    assert!(std::panic::catch_unwind(update).is_err());
    assert!(map.is_empty());
    (0..3).for_each(|_| map.domain().collect());
    assert_eq!(Arc::strong_count(&freed), 1, "the entry is lost");
}

#[test]
fn writers_over_the_budget_wait_for_a_section_that_is_not_stalled_and_for_no_other() {
    const BUDGET: usize = 1 << 16;
    const BYTES: usize = 8 << 10;
    for lasts in [Duration::from_millis(20), Duration::from_millis(3 * STALLED_MILLIS)] {
        let domain = Domain::builder().budget(BUDGET).build().unwrap();
        let (tally, link) = (Arc::default(), Atomic::null());
        let lasted = thread::scope(|scope| {
            let (inside, is_inside) = channel();
            let domain = &domain;
            let reader = scope.spawn(move || {
                let (start, section) = (Instant::now(), domain.enter());
                inside.send(()).unwrap();
                thread::sleep(lasts);
                drop(section);
                start.elapsed()
            });
            is_inside.recv().unwrap();
            (0..2_000).for_each(|_| replace(&link, &tally, BYTES, &domain.enter()));
            reader.join().unwrap()
        });
        let most = usize::try_from(tally.most.load(SeqCst)).unwrap();
        let bound = bound(BUDGET, 1, BYTES);
        if lasted < Duration::from_millis(STALLED_MILLIS) {
            assert!(most <= bound, "{most} > {bound}: writers did not wait {lasted:?}");
        } else if lasts > Duration::from_millis(2 * STALLED_MILLIS) {
            assert!(most > bound, "{most}: writers waited {lasted:?} for a stalled section");
        }
        end(link, &tally);
    }
}

/// Runs `then` while two other threads are registered in the domain and have no section open.
fn beside_idle_threads(domain: &Domain, then: impl FnOnce()) {
    let (registered, stop) = (Barrier::new(3), Barrier::new(3));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                drop(domain.enter());
                registered.wait();
                stop.wait();
            });
        }
        registered.wait();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(then));
        stop.wait();
        result.unwrap();
    });
}

#[test]
fn removed_value_is_dropped_at_the_end_of_the_section_whatever_it_weighs() {
    for (mode, asymmetric) in
        [(Mode::Epoch, true), (Mode::Epoch, false), (Mode::Bounded, true), (Mode::Bounded, false)]
    {
        let domain = Domain::builder().mode(mode).asymmetric(asymmetric).build().unwrap();
        let (tally, link) = (Arc::default(), Atomic::null());
        replace(&link, &tally, 64, &domain.enter());
        let half = URGENT_BURST / 2;
        beside_idle_threads(&domain, || {
            for number in 0..half {
                replace(&link, &tally, 64, &domain.enter());
                assert_eq!(tally.nodes.load(SeqCst), 0, "{mode:?}: {number}, weighed");
            }
            for number in 0..half {
                let value = Arc::new(());
                let kept = Arc::clone(&value);
                domain.enter().defer(move || drop(value));
                assert_eq!(Arc::strong_count(&kept), 1, "{mode:?}: {number}, deferred");
            }
        });
        end(link, &tally);
    }
}

#[test]
fn values_removed_in_haste_are_dropped_by_later_sections_that_only_read() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let (tally, link) = (Arc::default(), Atomic::null());
        beside_idle_threads(&domain, || {
            (0..1_000).for_each(|_| replace(&link, &tally, 64, &domain.enter()));
            let start = Instant::now();
            while tally.nodes.load(SeqCst) != 0 {
                drop(domain.enter()); // retires nothing
                assert!(start.elapsed() < Duration::from_secs(20), "{mode:?}: values stay");
            }
        });
        end(link, &tally);
    }
}

#[test]
fn maps_removed_value_is_dropped_when_its_view_ends_with_and_without_a_weigher() {
    let plain = HashMap::new();
    let weighed = HashMap::builder().weigher(|_: &u32, _: &Arc<()>| 64).build();
    for map in [plain, weighed] {
        let value = Arc::new(());
        (0..10_u32).for_each(|key| _ = map.insert(key, Arc::clone(&value)));
        let view = map.enter();
        view.remove(&0);
        assert_eq!(Arc::strong_count(&value), 11, "dropped within a view");
        drop(view);
        assert_eq!(Arc::strong_count(&value), 10);
        for key in 1..10 {
            map.remove(&key);
            assert_eq!(Arc::strong_count(&value), 10 - key as usize);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn replaced_values_with_heap_of_unknown_size_keep_some_megabytes() {
    let test = "replaced_values_with_heap_of_unknown_size_keep_some_megabytes";
    common::process::in_own_process(test, || {
        let map: HashMap<u32, Vec<u8>> = HashMap::new();
        for round in 0..3000_usize {
            map.enter().insert(1, vec![round as u8; 1 << 20]);
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let peak: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        println!("3,000 values of 1 MiB behind one key: {} MB at most", peak >> 10);
        assert!(peak >> 10 < 100, "{line}");
    });
}

/// A textbook queue without tags: its readers walk on from retired nodes.
#[cfg(debug_assertions)]
#[test]
fn untagged_link_of_a_retired_node_is_noticed_in_a_bounded_domain_only() {
    struct Link(Atomic<Link>);
    for (mode, is_noticed) in [(Mode::Bounded, true), (Mode::Epoch, false)] {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let head = Atomic::new(Link(Atomic::null()));
        let section = domain.enter();
        let first = head.load(&section);
        let second = Owned::new(Link(Atomic::null())).into_shared(&section);
        let node = first.as_ref().unwrap();
        node.0.store(second, &section);
        head.store(second, &section);
        // SAFETY: unlinked just now, and retired once. (That its link has no tag is what is tested;
        // the node behind it is linked and stays.)
        unsafe { section.retire(first) };
        let walk = std::panic::AssertUnwindSafe(|| node.0.load(&section).is_null());
        let said = std::panic::catch_unwind(walk).err();
        let said = said.and_then(|said| said.downcast_ref::<&str>().map(|said| said.to_string()));
        assert_eq!(said.is_some_and(|said| said.contains("an untagged link")), is_noticed);
        drop(section);
        // SAFETY: the structure is gone, and no reference is used any more.
        drop(unsafe { head.into_owned() });
    }
}
