//! What objects cost, measured as the pages that the process holds in memory.
//!
//! Pages of files are left out: the kernel decides how many of the program's own are mapped.
//!
//! Each measurement runs in its own process, so that nothing else changes the figure. That process
//! is this test binary again, started with the name of the measurement.
//!
//! `MANYCORE_MEMORY_SECONDS=60` runs the load without reads for 60 seconds (3 by default).
//! `MANYCORE_MEMORY_OBJECTS=1000000` sends a million objects through a small table (100,000 by
//! default).

#![cfg(target_os = "linux")]

mod common;

use common::env;
use common::kinds::{Add, SumLog};
use common::process::in_own_process;
use manycore::collections::{HashMap, OrderedMap};
use manycore::namespace::IdSpace;
use manycore::oplog::*;
use manycore::section::{Atomic, Domain, Owned};
use manycore::slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a measurement in its own process, and prints its figures.
fn measure(name: &str, body: fn()) {
    let said = in_own_process(name, body).unwrap_or_default();
    said.lines().filter(|line| line.contains("bytes")).for_each(|line| println!("{name}: {line}"));
}

/// Returns the bytes of this process in memory, without pages of files.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    kilobytes.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

const MILLION: usize = 1_000_000;

type Sum = Deferred<u64, Commuting<Add>>;

fn million_cold_objects() {
    let before = resident();
    let objects: Vec<Sum> = (0..MILLION).map(|_| Sum::new(0)).collect();
    for object in &objects {
        object.append(Add(1));
    }
    let grown = resident() - before;
    println!("a million cold u64 objects: {grown} bytes, {} each", grown / MILLION);
    // The value is 8 bytes, and the object adds 16 (which hold its lock). 1 % for whole pages.
    assert!(grown <= (8 + 16) * MILLION * 101 / 100);
    assert!(grown >= 8 * MILLION, "the measurement sees nothing");
    assert!(objects.iter().all(|object| *object.read() == 1 && !object.is_hot()));
}

#[test]
fn million_cold_objects_cost_sixteen_bytes_each_beside_the_value() {
    measure("million_cold_objects_cost_sixteen_bytes_each_beside_the_value", million_cold_objects);
}

/// Lets two threads update two objects without reads. Returns the growth of memory in the second
/// half.
fn grown_without_reads<L: Log<u64, Op = Add>>(kind: &str, growth: usize, seconds: u64) {
    let builder = Deferred::<u64, L>::builder().logs(Logs::Always).growth(growth);
    let objects = [builder.build(0).unwrap(), builder.build(0).unwrap()];
    let done = AtomicU64::new(0);
    let half = Instant::now() + Duration::from_millis(seconds * 500);
    let end = half + Duration::from_millis(seconds * 500);
    let at_half = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    for number in 0..1000_u64 {
                        objects[number as usize % 2].append(Add(1));
                    }
                    done.fetch_add(1000, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(half.saturating_duration_since(Instant::now()));
        at_half.store(resident() as u64, Ordering::Relaxed);
    });
    let grown = resident().saturating_sub(at_half.into_inner() as usize);
    let updates = done.into_inner();
    println!(
        "{kind}, growth {growth}: {grown} bytes more after the second half of {updates} updates"
    );
    // A log holds at most 4,096 entries of up to 16 bytes. While another thread drains, and may be
    // preempted, it holds four times that: 256 KiB, and as much again for the buffer collected
    // last. For two objects and two threads that is 2 MiB, which the second half may be the first
    // to need. Without a bound it would be 8 bytes an update.
    assert!(grown < 3 << 20, "memory grows while no thread reads");
    assert!(updates > MILLION as u64 / 10, "too few updates to tell");
    assert_eq!(objects.map(Deferred::into_inner).iter().sum::<u64>(), updates);
}

fn load_without_reads() {
    // A third of the time for each.
    let seconds = env::number("MANYCORE_MEMORY_SECONDS").unwrap_or(3).div_ceil(3);
    grown_without_reads::<Commuting<Add>>("commuting", 4, seconds);
    grown_without_reads::<Ordered<Add>>("ordered", 4, seconds);
    grown_without_reads::<Ordered<Add>>("ordered", 2, seconds);
}

#[test]
fn load_without_reads_keeps_its_memory() {
    measure("load_without_reads_keeps_its_memory", load_without_reads);
}

/// Sends objects one after the other through a table of 64 places: each gets logs and loses them to
/// the next.
fn many_objects_in_a_small_table() {
    const PLACES: usize = 64;
    let many = env::number("MANYCORE_MEMORY_OBJECTS").unwrap_or(100_000) as usize;
    let table = Arc::new(LogTable::new(PLACES));
    let builder = Deferred::<u64, SumLog>::builder().logs(Logs::Always).table(Arc::clone(&table));
    let objects: Vec<_> = (0..many).map(|_| builder.build(0).unwrap()).collect();
    let before = resident();
    let mut logs = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        object.append(Add(1));
        assert!(table.hot_objects() <= PLACES);
        assert_eq!(*object.read(), 1);
        if (number + 1) % (many / 10) == 0 {
            // The objects in the table came lately: the last few thousand objects have all the
            // logs.
            let last = &objects[(number + 1).saturating_sub(10_000)..=number];
            logs.push(last.iter().map(|object| object.stats().logs).sum::<usize>());
        }
    }
    let shell = (resident() - before) / many;
    println!("logs as {many} objects came: {logs:?}; {shell} bytes stay with each");
    let most = *logs.iter().max().unwrap();
    assert!(most <= PLACES, "{PLACES} places hold {most} logs");
    assert!(logs.iter().all(|logs| *logs >= most / 4), "it is not constant: {logs:?}");
    assert!(table.evictions() as usize > many / 2);
    assert!(shell <= 448, "{shell} bytes stay with each object that lost its logs");
    let total: u64 = objects.into_iter().map(Deferred::into_inner).sum();
    assert_eq!(total, many as u64);
}

#[test]
fn many_objects_share_the_logs_of_a_small_table() {
    measure("many_objects_share_the_logs_of_a_small_table", many_objects_in_a_small_table);
}

/// Makes and frees objects of a slab: their pages must be given back, too.
fn slab_of_objects_that_went() {
    const BYTES: usize = 64 << 20;
    let slab = Slab::new();
    let before = resident();
    let mut objects: Vec<_> = (0..BYTES / 1024).map(|_| slab.alloc([1_u8; 1024])).collect();
    let full = resident();
    assert!(full - before > BYTES * 9 / 10, "the measurement sees nothing");
    objects.truncate(1000);
    let after = resident();
    println!("{before} bytes, with {BYTES} more {full}, without {after}");
    // A thousand objects, what is at hand, 16 empty chunks, and the vector.
    assert!(after < before + BYTES / 8, "memory is kept");
    assert_eq!(slab.stats().live, 1000);
}

#[test]
fn slab_gives_memory_back_when_its_chunks_are_empty() {
    measure("slab_gives_memory_back_when_its_chunks_are_empty", slab_of_objects_that_went);
}

/// Nodes retired by sections of threads that have ended.
fn nodes_of_ended_threads() {
    const NODES: usize = 500_000;
    let domain = Domain::new();
    let before = resident();
    let mut nodes: Vec<Owned<[u64; 7]>> = Vec::with_capacity(2 * NODES);
    for _ in 0..2 {
        let fill = || nodes.extend((0..NODES).map(|i| Owned::new([i as u64; 7])));
        thread::scope(|scope| scope.spawn(fill).join().unwrap());
    }
    let full = resident();
    assert!(full - before > 2 * NODES * 64, "the measurement sees nothing");
    for node in nodes {
        let link = Atomic::from(node);
        let section = domain.enter();
        // SAFETY: the link is this thread's alone, and forgotten.
        unsafe { section.retire(link.load(&section)) };
    }
    domain.collect();
    let after = resident();
    println!("{before} bytes, with a million nodes {full}, without {after}");
    // The rest: memory at hand, empty chunks, and the limbo's own lists.
    assert!(after < before + 2 * NODES * 64 / 8, "memory is kept");
}

#[test]
fn nodes_of_ended_threads_are_given_back_by_those_that_reclaim_them() {
    measure(
        "nodes_of_ended_threads_are_given_back_by_those_that_reclaim_them",
        nodes_of_ended_threads,
    );
}

/// Returns what a space with two live ids holds: fresh, and after one thread has inserted and
/// removed `pairs` other ids.
fn two_ids<const SIZE: usize>(pairs: usize) -> (usize, usize) {
    let domain = Domain::builder().build().unwrap();
    // Memory that the domain and this thread keep does not belong to the space.
    drop(domain.enter());
    let before = resident();
    let space = IdSpace::<[u8; SIZE]>::new_in(&domain);
    let value = std::hint::black_box([1_u8; SIZE]);
    let ids = [0, 1].map(|_| space.insert(value, &domain.enter()));
    let fresh = resident() - before;
    for _ in 0..pairs {
        let section = domain.enter();
        let id = space.insert(value, &section);
        space.remove(id, &section).unwrap();
    }
    let used = resident() - before;
    assert!(ids.iter().all(|id| space.contains(*id, &domain.enter())) && space.len() == 2);
    (fresh, used)
}

fn spaces_with_two_ids() {
    const MEGABYTE: usize = 1 << 20;
    let kib = |name: &str, (fresh, used): (usize, usize)| {
        println!("two ids of {name}: {fresh} bytes, {used} bytes after others came and went");
        assert!(fresh <= MEGABYTE, "a space of two ids holds {fresh} bytes");
        used
    };
    let used = [
        kib("8 bytes", two_ids::<8>(20_000)),
        kib("64 bytes", two_ids::<64>(20_000)),
        kib("1 KiB", two_ids::<1024>(20_000)),
    ];
    assert!(used.iter().all(|used| *used <= MEGABYTE), "{used:?}");
    // Half a megabyte of free places, and what waits in the domain.
    assert!(kib("64 KiB", two_ids::<65_536>(2_000)) <= 2 * MEGABYTE);
}

#[test]
fn space_of_two_ids_costs_little_whatever_their_size() {
    measure("space_of_two_ids_costs_little_whatever_their_size", spaces_with_two_ids);
}

/// Makes a domain and uses it on this thread.
fn used_domain() -> Domain {
    let domain = Domain::new();
    let section = domain.enter();
    let link = Atomic::new(1_u64);
    // SAFETY: the link is this thread's alone, and forgotten.
    unsafe { section.retire(link.load(&section)) };
    drop(section);
    domain
}

/// Makes many things, each of which takes the documented bytes, plus up to a tenth that the
/// allocator loses. Returns them, so that the next ones do not reuse their memory.
fn two_kilobytes_each<T>(name: &str, make: impl Fn() -> T) -> Vec<T> {
    const MANY: usize = 5_000;
    drop(make()); // the first makes what the process and the thread need
    let before = resident();
    let all: Vec<T> = (0..MANY).map(|_| make()).collect();
    let bytes = (resident() - before) / MANY;
    println!("{name}: {bytes} bytes");
    assert!(bytes > 1000, "the measurement sees nothing");
    assert!(bytes <= 2048 * 11 / 10, "{name} takes {bytes} bytes, more than documented");
    all
}

fn small_domains_and_maps() {
    let entered = || {
        let domain = Domain::new();
        drop(domain.enter());
        domain
    };
    let map = || {
        let map = HashMap::new();
        map.insert(1_u64, 1_u64);
        map
    };
    let _kept = (
        two_kilobytes_each("a domain that was entered", entered),
        two_kilobytes_each("a domain in which a node waits", used_domain),
        two_kilobytes_each("a map with an entry", map),
    );
}

#[test]
fn domain_or_small_map_of_one_thread_takes_two_kilobytes() {
    measure("domain_or_small_map_of_one_thread_takes_two_kilobytes", small_domains_and_maps);
}

fn entries_of_an_ordered_map() {
    const MANY: usize = 500_000;
    let scattered = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let before = resident();
    let map = OrderedMap::new();
    (0..MANY).for_each(|number| assert!(map.insert(scattered(number), number)));
    map.domain().collect();
    let bytes = (resident() - before) / MANY;
    println!("an entry takes {bytes} bytes");
    assert!((16..=36).contains(&bytes), "an entry takes {bytes} bytes, and not the 30 documented");
    let before = resident();
    let dense: OrderedMap<u64, usize> = (0..MANY).map(|number| (number as u64, number)).collect();
    let bytes = (resident() - before) / MANY;
    println!("of a map that was collected, {bytes}");
    assert!((16..=26).contains(&bytes), "an entry takes {bytes} bytes, and not the 22 documented");
    assert_eq!(map.len() + dense.len(), 2 * MANY);
}

#[test]
fn entry_of_an_ordered_map_takes_what_is_documented() {
    measure("entry_of_an_ordered_map_takes_what_is_documented", entries_of_an_ordered_map);
}

fn domains_that_went() {
    const MANY: usize = 10_000;
    drop(used_domain());
    let before = resident();
    let domains: Vec<Domain> = (0..MANY).map(|_| used_domain()).collect();
    let full = resident();
    assert!(full - before > MANY * 1000, "the measurement sees nothing");
    // A thread that uses one leaves something in memory that was allocated last.
    thread::scope(|scope| scope.spawn(|| drop(domains[0].enter())).join().unwrap());
    drop(domains);
    let after = resident();
    println!("{before} bytes, with {MANY} domains {full}, without {after}");
    // The rest: memory at hand, 16 empty chunks, and memory of the limbos' lists that the allocator
    // keeps.
    assert!(after < before + MANY * 500, "memory is kept");
}

#[test]
fn dropped_domains_give_their_memory_back() {
    measure("dropped_domains_give_their_memory_back", domains_that_went);
}
