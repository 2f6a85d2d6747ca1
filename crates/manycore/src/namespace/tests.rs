//! Corners that need a look inside: the last generation, the last index, the pool, the end of a
//! namespace with blocks that are still away.

use super::id::{EXTENT, LAST_GENERATION, dead};
use super::pool::Pool;
use super::trie::INDEX_BITS;
use super::{Extent, Full, Id, IdSpace, MAX_EXTENT};
use crate::section::{Domain, Mode, Section};
use crate::sync::{AtomicUsize, Ordering, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Counts instances.
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, value: u64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count), value)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A domain that checks after each node.
fn eager() -> Domain {
    Domain::builder().mode(Mode::Epoch).batch_nodes(1).build().unwrap()
}

/// Waits until nothing is pending. (A thread that has been joined may still be handing over its
/// limbo.)
fn drain(domain: &Domain) {
    let waiting = || domain.backlog(std::time::Duration::MAX).nodes;
    for _ in 0..5000 {
        if waiting() == 0 {
            return;
        }
        domain.collect();
        thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} nodes are never freed", waiting());
}

fn message<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("it should have panicked");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast_ref::<&str>().map(|text| text.to_string()).unwrap(),
    }
}

/// Sets the next generation of `id`'s slot to `generation`.
fn age<T: Send + Sync>(space: &IdSpace<'_, T>, id: Id, generation: u32) {
    let slot = space.slot(id).unwrap();
    // SAFETY: a slot of the space; nothing of it is in use.
    let word = unsafe { &(*slot.as_ptr()).word };
    word.store(dead(id.index(), generation - 1, 0), Ordering::Relaxed);
}

#[test]
fn slot_after_its_last_generation_is_never_used_again() {
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let first = space.insert(1, &domain.enter());
    space.remove(first, &domain.enter());
    drain(&domain);
    age(&space, first, LAST_GENERATION);
    let last = space.insert(2, &domain.enter());
    assert_eq!(last.index(), first.index());
    assert_eq!(space.state().worn(), 0);
    space.remove(last, &domain.enter());
    drain(&domain);
    assert_eq!(space.state().worn(), 1);
    for n in 0..5000 {
        let id = space.insert(n, &domain.enter());
        assert_ne!(id.index(), first.index());
    }
    assert_eq!(space.get(last, &domain.enter()), None);
    assert_eq!(space.get(first, &domain.enter()), None);
}

#[test]
fn last_index_is_given_and_then_no_more() {
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let chunk = 1 << crate::config::ID_CHUNK_BITS;
    let low = space.insert(0, &domain.enter());
    space.state().set_frontier((1_u64 << INDEX_BITS) - chunk);
    let mut ids: Vec<Id> = (1..chunk).map(|n| space.insert(n, &domain.enter())).collect();
    ids.extend((0..chunk).map(|n| space.insert(n, &domain.enter())));
    assert!(ids.iter().any(|id| u64::from(id.index()) == (1 << INDEX_BITS) - 1));
    let section = domain.enter();
    assert_eq!(space.try_insert_with(|_| unreachable!(), &section), Err(Full));
    assert_eq!(space.try_insert_extent(2, |_, _| unreachable!(), &section), Err(Full));
    assert!(message(|| space.insert(7, &section)).contains("no ids left"));
    assert_eq!(space.get(low, &section), Some(&0));
    assert_eq!(space.get(ids[0], &section), Some(&1));
    assert_eq!(space.iter(&section).count() as u64, 2 * chunk);
    space.remove(low, &section);
    drop(section);
    drain(&domain);
    assert_eq!(space.insert(9, &domain.enter()).index(), low.index());
}

#[test]
fn ids_of_every_place_resolve_as_the_trie_grows() {
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let chunk = 1 << crate::config::ID_CHUNK_BITS;
    let indices = (0..INDEX_BITS).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]);
    let mut starts: Vec<u64> = indices.map(|index| index / chunk * chunk).collect();
    starts.dedup();
    let mut ids = Vec::new();
    for start in starts {
        space.state().set_frontier(start);
        let section = domain.enter();
        ids.extend((0..chunk).map(|_| space.insert_with(Id::to_bits, &section)));
    }
    let section = domain.enter();
    for id in &ids {
        assert_eq!(space.get(*id, &section), Some(&id.to_bits()));
    }
    assert!(ids.len() > 32 * 32, "{}", ids.len());
}

#[test]
fn nodes_that_are_away_come_back_to_a_dropped_namespace() {
    let count = Arc::new(AtomicUsize::new(0));
    let domain = eager();
    let reader = domain.enter();
    {
        let space = IdSpace::new_in(&domain);
        let section = domain.enter();
        let ids: Vec<Id> =
            (0..100).map(|n| space.insert(Counted::new(&count, n), &section)).collect();
        let extent = space.insert_extent(70, |_, _| Counted::new(&count, 0), &section);
        thread::scope(|s| {
            s.spawn(|| {
                let section = domain.enter();
                ids[..30].iter().for_each(|id| assert!(space.remove(*id, &section).is_some()));
            });
        });
        assert_eq!(space.remove(ids[50], &section).unwrap().1, 50);
        assert!(space.remove_extent(extent, &section));
        assert_eq!(space.len(), 69);
        assert_eq!(count.load(Ordering::Relaxed), 170);
    }
    assert_eq!(count.load(Ordering::Relaxed), 101, "those in limbo, and no others");
    drop(reader);
    drain(&domain);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn domain_that_is_dropped_with_nodes_away_drops_them() {
    let count = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new();
    let space = IdSpace::new_in(&domain);
    let id = space.insert(Counted::new(&count, 0), &domain.enter());
    space.insert(Counted::new(&count, 1), &domain.enter());
    let reader = domain.enter();
    // The other thread's limbo keeps the node, because of the reader, and is left when it ends.
    thread::scope(|s| {
        s.spawn(|| assert!(space.remove(id, &domain.enter()).is_some()));
    });
    drop(reader);
    drop(space);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(domain);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn panic_in_a_constructor_gives_the_ids_back() {
    let count = Arc::new(AtomicUsize::new(0));
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let section = domain.enter();
    let mut tried = None;
    let make = |id| {
        tried = Some(id);
        panic!("user code")
    };
    assert_eq!(message(|| space.insert_with(make, &section)), "user code");
    assert_eq!(space.get(tried.unwrap(), &section).map(|node: &Counted| node.1), None);
    let id = space.insert(Counted::new(&count, 0), &section);
    assert_eq!(id.index(), tried.unwrap().index());
    assert_ne!(id, tried.unwrap(), "an id that user code has seen was given again");

    let make = |offset, id| {
        tried = Some(id);
        assert!(offset < 3, "user code");
        Counted::new(&count, 0)
    };
    assert_eq!(message(|| space.insert_extent(5, make, &section)), "user code");
    assert_eq!(count.load(Ordering::Relaxed), 1, "three were made and dropped");
    let extent = space.insert_extent(5, |_, _| Counted::new(&count, 0), &section);
    assert_eq!(extent.id(3).index(), tried.unwrap().index());
    assert_eq!(count.load(Ordering::Relaxed), 6);
}

/// Panics when it is dropped, if it was told to.
struct Bomb(bool, Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "user code");
    }
}

#[test]
fn panic_in_a_destructor_loses_no_id_and_no_other_node() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = |armed| Bomb(armed, Arc::clone(&dropped));
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let id = space.insert(bomb(true), &domain.enter());
    let extent = space.insert_extent(4, |offset, _| bomb(offset == 1), &domain.enter());
    let section = domain.enter();
    assert!(space.remove(id, &section).is_some());
    assert!(space.remove_extent(extent, &section));
    // Nodes with destructors are freed as soon as they can be: at the end of the section.
    let mut panics = usize::from(catch_unwind(AssertUnwindSafe(|| drop(section))).is_err());
    for _ in 0..6 {
        panics += usize::from(catch_unwind(AssertUnwindSafe(|| domain.collect())).is_err());
    }
    assert_eq!((panics, dropped.load(Ordering::Relaxed)), (2, 5));
    let section = domain.enter();
    assert_eq!(space.insert(bomb(false), &section).index(), id.index());
    let again = space.insert_extent(3, |_, _| bomb(false), &section);
    assert_eq!(again.first().index(), extent.first().index());
}

#[test]
fn extents_of_any_size_keep_to_their_block() {
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    for len in (1..200).chain([1000, 1024, 1025, 5000]) {
        let make = |offset, id: Id| (offset, id);
        let extent = space.insert_extent(len, make, &domain.enter());
        let section = domain.enter();
        for (offset, id) in extent.ids().enumerate() {
            assert_eq!(space.get(id, &section), Some(&(offset, id)));
        }
        assert_eq!(space.get_in(extent, len, &section), None);
        assert_eq!(space.len(), len);
        assert!(space.remove_extent(extent, &section));
        assert!(!space.remove_extent(extent, &section));
        assert!(extent.ids().all(|id| !space.contains(id, &section)));
        drop(section);
        drain(&domain);
    }
    // Blocks were used again: one of each class, in whole chunks.
    assert!(space.state().end() < 32 * 1024, "{}", space.state().end());
}

#[test]
fn extent_of_other_numbers_leads_nowhere_and_harms_nothing() {
    let domain = eager();
    let space = IdSpace::new_in(&domain);
    let section = domain.enter();
    let long = space.insert_extent(70, |offset, _| offset, &section);
    let short = space.insert_extent(4, |offset, _| offset, &section);
    let single = space.insert(0, &section);
    assert_eq!(Extent::from_parts(single, 1), None);
    assert_eq!(Extent::from_parts(long.first(), 0), None);
    assert_eq!(Extent::from_parts(long.first(), MAX_EXTENT + 1), None);
    assert_eq!(Extent::from_parts(long.first(), 70), Some(long));
    for (first, len) in [
        (long.id(1), 69),
        (long.id(64), 6),
        (long.first(), 64),
        (long.first(), MAX_EXTENT / 4),
        (short.id(1), 3),
        (short.id(2), 2),
        (short.first(), 5),
    ] {
        let forged = Extent::from_parts(first, len).unwrap();
        assert!(!space.remove_extent(forged, &section), "{forged:?}");
    }
    // Of the same class: it is that extent.
    assert!(space.remove_extent(Extent::from_parts(short.first(), 3).unwrap(), &section));
    assert!(short.ids().all(|id| !space.contains(id, &section)));
    assert!(long.ids().all(|id| space.contains(id, &section)));
    assert_eq!(space.len(), 71);
}

#[test]
fn misuse_panics_and_says_why() {
    let (domain, other) = (eager(), Domain::new());
    let (space, stranger) = (IdSpace::new_in(&domain), IdSpace::new_in(&domain));
    let section: Section<'_> = domain.enter();
    let id = space.insert(1, &section);
    let extent = space.insert_extent(2, |_, _| 2, &section);
    let wrong = other.enter();
    fn is_wrong<R>(f: impl FnOnce() -> R) -> bool {
        message(f).contains("another domain")
    }
    assert!(is_wrong(|| space.get(id, &wrong)));
    assert!(is_wrong(|| space.insert(1, &wrong)));
    assert!(is_wrong(|| space.remove(id, &wrong)));
    assert!(is_wrong(|| space.insert_extent(1, |_, _| 1, &wrong)));
    assert!(is_wrong(|| space.remove_extent(extent, &wrong)));
    assert!(is_wrong(|| drop(space.iter(&wrong))));
    if cfg!(debug_assertions) {
        assert!(message(|| stranger.get(id, &section)).contains("another namespace"));
        assert!(message(|| stranger.remove(id, &section)).contains("another namespace"));
    }
    stranger.insert(3, &section);
    assert_eq!(stranger.check(id.to_bits()), None);
    assert_eq!(space.check(id.to_bits()), Some(id));
    assert!(message(|| space.remove(extent.first(), &section)).contains("as a whole"));
    assert!(message(|| space.insert_extent(0, |_, _| 1, &section)).contains("zero ids"));
    let too_many = MAX_EXTENT + 1;
    assert!(message(|| space.insert_extent(too_many, |_, _| 1, &section)).contains("most"));
    assert!(message(|| extent.id(2)).contains("none at 2"));
    assert_eq!(space.len(), 3);
}

#[test]
fn bits_of_no_id_are_refused() {
    for bits in [0, 1, u64::MAX, 1 << 63, (1 << 56) - 1, EXTENT] {
        assert_eq!(Id::from_bits(bits), None, "{bits:#x}");
    }
    assert_eq!(size_of::<Option<Id>>(), 8);
}

/// Places of several namespaces come out of one limbo, and each goes to its own (namespace.N6).
#[test]
fn places_are_used_again_by_their_own_namespace() {
    let domain = Domain::new();
    let spaces: [IdSpace<'_, u64>; 3] = std::array::from_fn(|_| IdSpace::new_in(&domain));
    let rounds = if crate::config::SMALL { 2_000 } else { 60_000 };
    for round in 0..rounds {
        let section = domain.enter();
        // In turns, and in runs.
        let space = &spaces[(if round % 2 == 0 { round } else { round / 700 }) as usize % 3];
        let id = space.insert(round, &section);
        assert_eq!(space.get(id, &section), Some(&round));
        assert_eq!(space.remove(id, &section), Some(&round));
        assert!(space.get(id, &section).is_none());
    }
    for space in &spaces {
        assert!(space.is_empty());
        assert!(space.state().end() <= rounds / 4, "places are not used again");
    }
}

#[test]
fn magazines_go_round_without_loss() {
    let pool = Arc::new(Pool::new(1));
    let workers: Vec<_> = (0..4)
        .map(|worker: usize| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut taken = 0_i64;
                for round in 0..20_000 {
                    let held = pool.take_empty();
                    let mark = std::ptr::without_provenance_mut(worker * 100_000 + round + 1);
                    assert!(pool.with(&held, |blocks| blocks.push(1, mark)));
                    pool.give_full(0, held);
                    if let Some(full) = pool.take_full(0) {
                        taken += pool.with(&full, |b| b.pop().unwrap().addr() as i64);
                        assert!(pool.with(&full, |blocks| blocks.pop().is_none()));
                        pool.give_empty(full);
                    }
                }
                let all: i64 = (1..=20_000).sum::<i64>() + 20_000 * worker as i64 * 100_000;
                all - taken
            })
        })
        .collect();
    let mut missing: i64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    while let Some(full) = pool.take_full(0) {
        missing -= pool.with(&full, |blocks| blocks.pop().unwrap().addr() as i64);
    }
    assert_eq!(missing, 0);
}
