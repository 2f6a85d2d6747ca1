//! Models of laws promotion.H1 to promotion.H5, on the smallest object that uses the protocol: one
//! word, one updater's part, a gate for evictions. `Deferred`, `Counter` and `ScalableArc` have
//! models of their own for what they fold.

use super::spawn;
use crate::oplog::LogTable;
use crate::oplog::promotion::{self, Inside, Membership, Word};
use crate::oplog::table::{Denied, Evictable, Eviction};
use crate::percpu;
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell};
use std::sync::{Arc, Mutex};

/// A hot state with the part of one updater.
#[repr(align(128))]
struct Hot {
    is_open: AtomicBool,
    part: UnsafeCell<u32>,
    folded: UnsafeCell<u32>,
    is_freed: UnsafeCell<bool>,
    membership: Membership,
    biased: bool,
    /// If the object has a lock, an evictor takes it before the claim and releases it before the
    /// end of the claim.
    lock: Option<AtomicBool>,
}

// SAFETY: the cells are shared as promotion.H1 to promotion.H4 say, which loom checks.
unsafe impl Sync for Hot {}

const FREED: &str = "a hot state was used after its end";
const LOST: &str = "updates are missing";
const TWICE: &str = "two evictors have claimed a hot state";

impl Hot {
    fn in_use(&self) {
        // SAFETY: shared; loom checks that it is not freed at the same time.
        self.is_freed.with(|freed| assert!(unsafe { !*freed }, "{FREED}"));
    }

    fn try_lock(&self) -> bool {
        self.lock.as_ref().is_none_or(|lock| !lock.swap(true, Ordering::Acquire))
    }

    fn unlock(&self) {
        if let Some(lock) = &self.lock {
            lock.store(false, Ordering::Release);
        }
    }

    /// Folds the updater's part. The caller has waited for the updater.
    fn fold(&self) {
        // SAFETY: promotion.H2 - loom checks it.
        let part = self.part.with_mut(|part| unsafe { std::mem::take(&mut *part) });
        // SAFETY: promotion.H2 - loom checks it.
        self.folded.with_mut(|folded| unsafe { *folded += part });
    }
}

impl promotion::State for Hot {
    const RUNS_USER_CODE: bool = false;
}

impl Evictable for Hot {
    fn try_claim(&self) -> bool {
        if !self.try_lock() {
            return false;
        }
        assert!(!self.membership.is_claimed(), "{TWICE}");
        self.membership.claim();
        true
    }

    fn activity(&self) -> u64 {
        0
    }

    unsafe fn finish_eviction(this: *const Self) {
        // SAFETY: claimed; hot states are kept until the end of the model.
        let hot = unsafe { &*this };
        hot.is_open.store(false, Ordering::Release);
        promotion::wait_for_updaters(this, hot.biased);
        hot.fold();
        hot.unlock();
        hot.in_use();
        // SAFETY: claimed by `try_claim`.
        unsafe { Membership::end_claim(&raw const (*this).membership) };
    }
}

struct Object {
    word: AtomicUsize,
    table: Arc<LogTable>,
    /// Retired hot states, kept until the end of the model: loom would not see the use of freed
    /// memory.
    ended: Mutex<Vec<usize>>,
}

impl Object {
    fn new(table: &Arc<LogTable>) -> Self {
        let ended = Mutex::default();
        Self { word: AtomicUsize::new(0), table: Arc::clone(table), ended }
    }

    fn promote(&self, biased: bool) {
        drop(self.promote_with(biased, None).unwrap());
    }

    fn promote_with(&self, biased: bool, lock: Option<AtomicBool>) -> Result<Eviction, Denied> {
        let hot = Box::into_raw(Box::new(Hot {
            is_open: AtomicBool::new(true),
            part: UnsafeCell::new(0),
            folded: UnsafeCell::new(0),
            is_freed: UnsafeCell::new(false),
            membership: Membership::new(),
            biased,
            lock,
        }));
        // SAFETY: made above, and kept until the end of the model.
        let membership = unsafe { &(*hot).membership };
        let entered = membership.enter(&self.table, hot.cast_const(), true, 0);
        match entered {
            Ok(_) => self.word.store(Word::hot(hot, biased, false).raw(), Ordering::Release),
            // SAFETY: made above, and in no table.
            Err(_) => drop(unsafe { Box::from_raw(hot) }),
        }
        entered
    }

    /// Enters the hot state in the table again after an eviction, as a reader does that finds its
    /// lock free.
    fn enter_again(&self) {
        let raw: *const Hot = Word::load(&self.word, Ordering::Acquire).state();
        // SAFETY: hot states are kept until the end of the model.
        let hot = unsafe { &*raw };
        if !hot.try_lock() {
            return;
        }
        if !hot.membership.is_placed() {
            hot.membership.enter_if_free(&self.table, raw);
        }
        hot.unlock();
    }

    /// Makes an update; returns true if it went to the hot state.
    fn update(&self) -> bool {
        let seen = Word::load(&self.word, Ordering::Acquire);
        if !seen.is_plain() {
            return false;
        }
        percpu::with_slot(|slot| {
            // SAFETY: the object's word; hot states are kept until the end of the model.
            let hot = unsafe { promotion::enter_by::<Hot>(slot, &self.word, seen) };
            let Some(hot) = hot else { return false };
            hot.in_use();
            let is_open = hot.is_open.load(Ordering::Acquire);
            if is_open {
                // SAFETY: promotion.H1 - loom checks it.
                hot.part.with_mut(|part| unsafe { *part += 1 });
            }
            is_open
        })
    }

    fn look(&self) {
        let look = |hot: &Inside<Hot>, _| hot.in_use();
        // SAFETY: the object's word; hot states are kept until the end of the model.
        let _: Option<()> = unsafe { promotion::look_on(&self.word, look) };
    }

    /// Demotes, as the only thread that does, and returns the number of updates in the hot state.
    fn demote(&self) -> u32 {
        let seen = Word::load(&self.word, Ordering::Acquire);
        self.word.store(seen.closing().raw(), Ordering::Release);
        let raw: *mut Hot = seen.state();
        // SAFETY: hot states are kept until the end of the model.
        let hot = unsafe { &*raw };
        hot.membership.leave(&self.table, raw.cast_const());
        promotion::wait_for_updaters(raw, seen.is_biased());
        hot.fold();
        self.word.store(0, Ordering::Release);
        promotion::wait_until_left(raw, seen.is_biased());
        // SAFETY: promotion.H4 - loom checks it.
        hot.is_freed.with_mut(|freed| unsafe { *freed = true });
        self.ended.lock().unwrap().push(raw as usize);
        // SAFETY: folded, and marked as freed above, so no other thread accesses it (promotion.H2,
        // promotion.H4).
        hot.folded.with(|folded| unsafe { *folded })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        for raw in self.ended.lock().unwrap().drain(..) {
            // SAFETY: made by `promote`, and the model is over.
            drop(unsafe { Box::from_raw(raw as *mut Hot) });
        }
    }
}

fn demotion_races(biased: bool) {
    model(3, move || {
        let object = Arc::new(Object::new(&Arc::new(LogTable::new(1))));
        object.promote(biased);
        let updater = spawn(&object, |object| (0..2).filter(|_| object.update()).count());
        let seen = object.demote();
        assert_eq!(seen as usize, updater.join().unwrap(), "{LOST}");
    });
}

#[test]
fn loom_promotion_locked_updates_race_a_demotion() {
    demotion_races(false);
}

#[test]
fn loom_promotion_biased_updates_race_a_demotion() {
    demotion_races(true);
}

/// A waiter delays the freeing of the hot state, but not the fold. If the address is reused, the
/// waiter does not enter a freed hot state.
#[test]
fn loom_promotion_waiters_race_a_demotion() {
    model(3, || {
        let object = Arc::new(Object::new(&Arc::new(LogTable::new(1))));
        object.promote(true);
        let waiter = spawn(&object, |object| {
            object.look();
            object.look();
        });
        assert_eq!(object.demote(), 0);
        waiter.join().unwrap();
    });
}

/// An updater, a demotion and an eviction on behalf of another object.
#[test]
fn loom_promotion_eviction_races_updates_and_a_demotion() {
    model(2, || {
        let table = Arc::new(LogTable::new(1));
        let [victim, newcomer] = [(); 2].map(|()| Arc::new(Object::new(&table)));
        victim.promote(true);
        let evictor = spawn(&newcomer, |newcomer| newcomer.promote(true));
        let updater = spawn(&victim, Object::update);
        let seen = victim.demote();
        assert_eq!(seen, u32::from(updater.join().unwrap()), "{LOST}");
        evictor.join().unwrap();
        assert_eq!(newcomer.demote(), 0);
        assert_eq!(table.hot_objects(), 0);
    });
}

/// An object that was evicted enters the table again, and is evicted once more.
#[test]
fn loom_promotion_second_eviction_races_the_end_of_the_first() {
    model(3, || {
        let table = Arc::new(LogTable::new(1));
        let [victim, newcomer] = [(); 2].map(|()| Arc::new(Object::new(&table)));
        drop(victim.promote_with(true, Some(AtomicBool::new(false))).unwrap());
        let evict = |newcomer: &Object| {
            // Denied if the victim's lock is held.
            let Ok(eviction) = newcomer.promote_with(true, None) else { return };
            newcomer.demote(); // the place is free before the eviction is over
            drop(eviction);
        };
        let evictor = spawn(&newcomer, evict);
        victim.enter_again();
        evict(&Object::new(&table));
        evictor.join().unwrap();
        victim.demote();
    });
}

fn catches(bug: &str, models: &[&str]) {
    let signs: Vec<&str> = RACE.into_iter().chain([FREED, LOST, TWICE]).collect();
    for model in models {
        must_catch(bug, &format!("oplog::loom_tests::promotion::loom_promotion_{model}"), &signs);
    }
}

#[test]
fn loom_promotion_plain_announcement_is_caught() {
    let models = ["locked_updates_race_a_demotion", "biased_updates_race_a_demotion"];
    catches("plain-publish", &models);
}

#[test]
fn loom_promotion_entry_without_a_second_look_is_caught() {
    let models = ["biased_updates_race_a_demotion", "waiters_race_a_demotion"];
    catches("unchecked-entry", &models);
}

#[test]
fn loom_promotion_fold_under_an_updater_is_caught() {
    let models = ["biased_updates_race_a_demotion", "eviction_races_updates_and_a_demotion"];
    catches("unwaited-updaters", &models);
}

#[test]
fn loom_promotion_end_under_a_waiter_is_caught() {
    catches("unwaited-waiters", &["waiters_race_a_demotion"]);
}

#[test]
fn loom_promotion_end_under_an_evictor_is_caught() {
    catches("unwaited-evictor", &["eviction_races_updates_and_a_demotion"]);
}

#[test]
fn loom_promotion_claim_before_the_end_of_another_is_caught() {
    let model = "second_eviction_races_the_end_of_the_first";
    catches("unfinished-claim", &[model]);
}
