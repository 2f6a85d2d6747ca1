//! Models of namespaces: laws namespace.N3 to namespace.N7 in every interleaving up to a bound.
//! What loom can and can't show, and how a model is itself tested, is in the header of
//! [`crate::percpu::loom_tests`].
//!
//! Every node has a canary, as in the models of sections. The model fails, whatever it asserts, if
//! a node is dropped under a reader, with nothing between the two, or twice.

use super::pool::Pool;
use super::{Extent, Id, IdSpace};
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch, unexplored};
use crate::section::{Domain, Mode};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use loom::sync::Arc; // whose last owner comes after the others
use std::ptr;

type Freed = Arc<AtomicUsize>;

struct Canary {
    number: usize,
    alive: UnsafeCell<bool>,
    freed: Freed,
}

// SAFETY: the cell is what the tests are about.
unsafe impl Sync for Canary {}

impl Canary {
    fn sing(&self) -> usize {
        // SAFETY: no thread writes while a section keeps the node; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "a dead canary sang");
        self.number
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the node is dropped, so no other thread has access; loom checks it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A space and its domain. The space comes first, as it is dropped first.
struct Cage {
    space: IdSpace<'static, Canary>,
    domain: Arc<Domain>,
    freed: Freed,
}

impl Cage {
    fn new() -> Self {
        let builder = Domain::builder().mode(Mode::Epoch).batch_nodes(1);
        let domain = Arc::new(builder.build().unwrap());
        // SAFETY: `domain` is dropped after the space, since every `Cage` keeps it.
        let lasting: &'static Domain = unsafe { &*ptr::from_ref(&*domain) };
        Self { space: IdSpace::new_in(lasting), domain, freed: Freed::default() }
    }

    fn canary(&self, number: usize) -> Canary {
        Canary { number, alive: UnsafeCell::new(true), freed: Arc::clone(&self.freed) }
    }

    fn insert(&self, number: usize) -> Id {
        self.space.insert(self.canary(number), &self.domain.enter())
    }

    fn insert_extent(&self, len: usize, number: usize) -> Extent {
        let make = |offset, _| self.canary(number + offset);
        self.space.insert_extent(len, make, &self.domain.enter())
    }

    fn look(&self, id: Id) -> Option<usize> {
        self.space.get(id, &self.domain.enter()).map(Canary::sing)
    }

    fn remove(&self, id: Id) -> bool {
        self.space.remove(id, &self.domain.enter()).is_some()
    }

    /// Removes an id, and has its slot reused if that is possible already.
    fn replace(&self, id: Id, number: usize) -> Id {
        assert!(self.remove(id));
        self.domain.collect();
        self.insert(number)
    }

    fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }
}

fn spawn<R: 'static>(
    cage: &Arc<Cage>,
    f: impl FnOnce(&Cage) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cage = Arc::clone(cage);
    thread::spawn(move || f(&cage))
}

#[test]
fn loom_id_lookup_against_removal_and_reuse_finds_its_node_or_none() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        let id = cage.insert(1);
        let reader = spawn(&cage, move |cage| cage.look(id));
        let again = cage.replace(id, 2);
        assert!(matches!(reader.join().unwrap(), None | Some(1)));
        assert_ne!(id, again);
        assert_eq!((cage.look(id), cage.look(again)), (None, Some(2)));
    });
}

#[test]
fn loom_id_is_not_reused_while_an_older_section_is_open() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        let id = cage.insert(1);
        let reader = spawn(&cage, move |cage| {
            let section = cage.domain.enter();
            let Some(canary) = cage.space.get(id, &section) else {
                return;
            };
            thread::yield_now();
            assert_eq!(canary.sing(), 1);
            for (other, canary) in cage.space.iter(&section) {
                assert!(other == id || canary.number == 2);
                assert!(other == id || other.index() != id.index(), "reused under a section");
            }
        });
        cage.replace(id, 2);
        reader.join().unwrap();
    });
}

#[test]
fn loom_id_of_two_allocators_are_two() {
    large_model(2, || {
        let cage = Arc::new(Cage::new());
        let other = spawn(&cage, |cage| [cage.insert(1), cage.insert(2), cage.insert(3)]);
        let mine = cage.insert(4);
        let [first, second, third] = other.join().unwrap();
        let found = [first, second, third, mine].map(|id| cage.look(id).unwrap());
        assert_eq!(found, [1, 2, 3, 4]);
        assert_eq!(cage.space.len(), 4);
    });
}

#[test]
fn loom_id_is_removed_by_exactly_one() {
    model(3, || {
        let cage = Arc::new(Cage::new());
        let id = cage.insert(1);
        let other = spawn(&cage, move |cage| cage.remove(id));
        let here = cage.remove(id);
        assert!(here != other.join().unwrap(), "removed once");
        unexplored(|| (0..2).for_each(|_| cage.domain.collect()));
        assert!(cage.freed() <= 1);
        assert_eq!(cage.space.len(), 0);
    });
}

#[test]
fn loom_id_freed_by_one_thread_is_inserted_by_another() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        let ids = [1, 2, 3].map(|number| cage.insert(number));
        let consumer = spawn(&cage, move |cage| {
            ids.into_iter().for_each(|id| assert!(cage.remove(id)));
            cage.domain.collect();
        });
        let new = [4, 5].map(|number| cage.insert(number));
        consumer.join().unwrap();
        assert!(ids.iter().all(|id| cage.look(*id).is_none()));
        assert_eq!(new.map(|id| cage.look(id)), [Some(4), Some(5)]);
    });
}

#[test]
fn loom_id_magazine_is_with_one_holder() {
    model(3, || {
        let pool = Arc::new(Pool::new(1));
        let give = |pool: &Pool, mark: usize| {
            let held = pool.take_empty();
            let block = std::ptr::without_provenance_mut(mark);
            assert!(pool.with(&held, |blocks| blocks.push(1, block)));
            pool.give_full(0, held);
        };
        let take = |pool: &Pool| {
            let held = pool.take_full(0)?;
            let mark = pool.with(&held, |blocks| blocks.pop().expect("a full one").addr());
            pool.give_empty(held);
            Some(mark)
        };
        give(&pool, 1);
        give(&pool, 2);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let sum = take(&pool).unwrap_or(0) + take(&pool).unwrap_or(0);
                give(&pool, 4);
                sum
            })
        };
        let mine = take(&pool).unwrap_or(0);
        let mut sum = mine + other.join().unwrap();
        while let Some(mark) = take(&pool) {
            sum += mark;
        }
        assert_eq!(sum, 7);
    });
}

#[test]
fn loom_id_space_that_is_dropped_waits_for_its_blocks() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        let (id, stays) = (cage.insert(1), cage.insert(2));
        let (domain, freed) = (Arc::clone(&cage.domain), Arc::clone(&cage.freed));
        let other = {
            let cage = Arc::clone(&cage);
            let domain = Arc::clone(&domain);
            thread::spawn(move || {
                assert!(cage.remove(id));
                drop(cage);
                domain.collect();
            })
        };
        assert_eq!(cage.look(stays), Some(2));
        drop(cage);
        other.join().unwrap();
        drop(domain); // and with it what waits still
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn loom_id_that_comes_back_in_a_removal_is_booked_before_the_space_is_dropped() {
    large_model(2, || {
        let cage = Arc::new(Cage::new());
        let ids = [1, 2].map(|number| cage.insert(number));
        let (domain, freed) = (Arc::clone(&cage.domain), Arc::clone(&cage.freed));
        // The second removal frees the first one's node.
        let other = spawn(&cage, move |cage| ids.map(|id| assert!(cage.remove(id))));
        drop(cage);
        other.join().unwrap();
        drop(domain);
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn loom_id_extent_is_removed_whole_by_exactly_one() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        let extent = cage.insert_extent(3, 10);
        let other = spawn(&cage, move |cage| {
            let section = cage.domain.enter();
            let seen = cage.space.get_in(extent, 2, &section).map(Canary::sing);
            assert!(matches!(seen, None | Some(12)));
            cage.space.remove_extent(extent, &section)
        });
        let here = cage.space.remove_extent(extent, &cage.domain.enter());
        assert!(here != other.join().unwrap(), "removed once");
        assert!(extent.ids().all(|id| cage.look(id).is_none()));
        cage.domain.collect();
        let again = cage.insert_extent(4, 20);
        assert_eq!(again.ids().map(|id| cage.look(id).unwrap()).sum::<usize>(), 20 + 21 + 22 + 23);
    });
}

#[test]
fn loom_id_extent_that_is_guessed_is_removed_whole_or_not_at_all() {
    model(2, || {
        let cage = Arc::new(Cage::new());
        // The class's next block is this one again, one generation later.
        let known = cage.insert_extent(2, 10);
        assert!(cage.space.remove_extent(known, &cage.domain.enter()));
        cage.domain.collect();
        cage.domain.collect();
        let next = Id::from_bits(known.first().to_bits() + (1 << 32)).unwrap();
        let guess = Extent::from_parts(next, 2).unwrap();
        let other = spawn(&cage, move |cage| cage.space.remove_extent(guess, &cage.domain.enter()));
        let extent = cage.insert_extent(2, 20);
        assert_eq!(extent, guess);
        let removed = other.join().unwrap();
        for (offset, id) in extent.ids().enumerate() {
            assert_eq!(cage.look(id), (!removed).then_some(20 + offset), "half an extent");
        }
    });
}

fn catches(bug: &str, model: &str, signs: &[&str]) {
    let signs: Vec<&str> = RACE.into_iter().chain(signs.iter().copied()).collect();
    must_catch(bug, &format!("namespace::loom_tests::{model}"), &signs);
}

const LOOKUP: &str = "loom_id_lookup_against_removal_and_reuse_finds_its_node_or_none";

#[test]
fn loom_id_eager_reuse_is_caught() {
    catches("eager-reuse", LOOKUP, &["a dead canary sang"]);
}

#[test]
fn loom_id_of_the_same_generation_is_caught() {
    catches("same-generation", LOOKUP, &["assertion `left != right` failed"]);
}

#[test]
fn loom_id_stamp_without_a_fence_after_the_removal_is_caught() {
    catches("plain-publish", LOOKUP, &["a dead canary sang"]);
}

#[test]
fn loom_id_extent_published_head_first_is_caught() {
    let model = "loom_id_extent_that_is_guessed_is_removed_whole_or_not_at_all";
    catches("head-first", model, &["half an extent"]);
}

#[test]
fn loom_id_credit_by_a_load_and_a_store_outside_of_a_removal_is_caught() {
    let model = "loom_id_space_that_is_dropped_waits_for_its_blocks";
    catches("unborrowed-credit", model, &["namespace.N7: a block is booked after the end"]);
}
