//! Models of laws count.A1 to count.A7 and count.A9. What loom can and can't
//! show, and how a model is itself tested, is in the header of [`crate::percpu::loom_tests`].
//!
//! Every value has a canary, a loom cell that handles read and the destructor writes. So the model
//! fails, whatever its assertions say, if a value is dropped under a handle, or not after the
//! handle's last read. A value dropped twice or never gives a wrong count. The rows are in a loom
//! cell, too: the model also fails if a thread sums them under an updater.

use super::{ScalableArc, ScalableWeak};
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

/// Counts drops.
type Dropped = Arc<AtomicUsize>;

struct Canary {
    alive: UnsafeCell<bool>,
    dropped: Dropped,
}

impl Canary {
    fn sing(&self) {
        // SAFETY: no thread writes while a handle exists; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "a dead canary sang");
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the last handle is gone; loom checks it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: these models test that accesses to the cell do not race.
unsafe impl Sync for Canary {}
// SAFETY: these models test that accesses to the cell do not race: loom checks that its accesses do
// not race.
unsafe impl Send for Canary {}

type Bird = ScalableArc<Canary>;

fn bird() -> (Bird, Dropped) {
    let dropped = Dropped::default();
    let canary = Canary { alive: UnsafeCell::new(true), dropped: Arc::clone(&dropped) };
    (ScalableArc::new(canary), dropped)
}

fn hot_bird() -> (Bird, Dropped) {
    let (bird, dropped) = bird();
    assert!(ScalableArc::promote(&bird));
    (bird, dropped)
}

fn count(dropped: &Dropped) -> usize {
    dropped.load(Ordering::Relaxed)
}

/// Clones a handle, drops the first handle, and then the second.
fn pass_on(bird: Bird) {
    let other = bird.clone();
    drop(bird);
    other.sing();
}

/// The owner drops its handle while another thread makes and drops handles.
#[test]
fn loom_arc_owner_dropped_under_clones_drops_the_value_once() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let light = owner.clone();
        let other = thread::spawn(move || pass_on(light));
        owner.sing();
        drop(owner);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

/// Handles made in one thread and dropped in another leave a negative row behind.
#[test]
fn loom_arc_handles_dropped_elsewhere_leave_a_negative_row() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let (first, second) = (owner.clone(), owner.clone());
        let other = thread::spawn(move || {
            first.sing();
            drop(first);
            second.sing();
        });
        drop(owner);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_promoted_under_clones_and_drops_loses_none() {
    model(3, || {
        let (bird, dropped) = bird();
        let handle = bird.clone();
        let other = thread::spawn(move || pass_on(handle));
        ScalableArc::promote(&bird);
        bird.sing();
        drop(bird);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

/// Two owners drop their handles at once: one of them folds.
#[test]
fn loom_arc_two_owners_dropped_at_once_fold_once() {
    model(3, || {
        let (bird, dropped) = bird();
        let second = bird.clone();
        assert!(ScalableArc::promote(&bird));
        let light = bird.clone();
        let other = thread::spawn(move || drop(second));
        drop(bird);
        light.sing();
        other.join().unwrap();
        assert_eq!((ScalableArc::strong_count(&light), count(&dropped)), (1, 0));
        assert!(!ScalableArc::is_hot(&light));
        drop(light);
        assert_eq!(count(&dropped), 1);
    });
}

/// The folding thread need not be an owner: the last owner drops its handle concurrently.
#[test]
fn loom_arc_demoted_while_the_owner_goes_keeps_the_value() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let light = owner.clone();
        let other = thread::spawn(move || drop(owner));
        ScalableArc::demote(&light);
        light.sing();
        other.join().unwrap();
        assert_eq!((ScalableArc::strong_count(&light), count(&dropped)), (1, 0));
        drop(light);
        assert_eq!(count(&dropped), 1);
    });
}

/// A handle made in an earlier period is an owner in the next one.
#[test]
fn loom_arc_hot_again_counts_old_handles_in_the_word() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let old = owner.clone();
        drop(owner);
        assert!(ScalableArc::promote(&old));
        let new = old.clone();
        let other = thread::spawn(move || pass_on(new));
        drop(old);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

fn upgrade_and_sing(weak: &ScalableWeak<Canary>) -> bool {
    weak.upgrade().is_some_and(|bird| {
        bird.sing();
        true
    })
}

#[test]
fn loom_arc_upgraded_while_the_owner_goes_is_alive_or_none() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let weak = ScalableArc::downgrade(&owner);
        let other = thread::spawn(move || upgrade_and_sing(&weak));
        drop(owner);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_cold_upgrade_while_the_last_handle_goes_is_alive_or_none() {
    model(3, || {
        let (owner, dropped) = bird();
        let weak = ScalableArc::downgrade(&owner);
        let other = thread::spawn(move || upgrade_and_sing(&weak));
        drop(owner);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_retired_refuses_later_upgrades() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let weak = ScalableArc::downgrade(&owner);
        let other = {
            let weak = weak.clone();
            thread::spawn(move || upgrade_and_sing(&weak))
        };
        assert!(ScalableArc::retire(&owner));
        assert!(weak.upgrade().is_none());
        other.join().unwrap();
        assert_eq!((ScalableArc::strong_count(&owner), count(&dropped)), (1, 0));
        drop(owner);
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_unwrapped_by_two_gives_the_value_to_one() {
    model(3, || {
        let (owner, dropped) = hot_bird();
        let light = owner.clone();
        let other = thread::spawn(move || ScalableArc::into_inner(light).is_some());
        let mine = ScalableArc::into_inner(owner).is_some();
        assert!(mine != other.join().unwrap(), "one of the two gets the value");
        assert_eq!(count(&dropped), 1);
    });
}

/// The panic of a read through a handle whose canary was dropped.
const DEAD: &str = "a dead canary sang";
/// loom's panic for a canary in memory that was freed and reused.
const GONE: &str = "index out of bounds";
/// The panic of a fold whose rows count more drops than handles.
const TWICE: &str = "counted down twice";

fn catches(bug: &str, name: &str) {
    let signs: Vec<&str> = RACE.into_iter().chain([DEAD, GONE, TWICE]).collect();
    must_catch(bug, &format!("collections::scalable_arc::loom_tests::{name}"), &signs);
}

#[test]
fn loom_arc_plain_announcement_is_caught() {
    catches("plain-publish", "loom_arc_owner_dropped_under_clones_drops_the_value_once");
}

#[test]
fn loom_arc_rows_summed_while_in_use_are_caught() {
    catches("unwaited-updaters", "loom_arc_owner_dropped_under_clones_drops_the_value_once");
}

#[test]
fn loom_arc_zero_without_the_rows_is_caught() {
    catches("central-alone", "loom_arc_handles_dropped_elsewhere_leave_a_negative_row");
}

/// What a thread reads between the generation and the handle is consistent (count.A8).
#[test]
fn loom_arc_handle_by_generation_is_of_what_was_read() {
    model(2, || {
        let arc = ScalableArc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let weak = ScalableArc::downgrade(&arc);
        let changer = thread::spawn(move || {
            ScalableArc::change(&arc, || arc.iter().for_each(|n| n.store(1, Ordering::Relaxed)));
            arc
        });
        let generation = weak.generation();
        // Read through another handle, because the data lies in the object itself.
        if let Some(read) = weak.upgrade() {
            let [first, second] = [0, 1].map(|n: usize| read[n].load(Ordering::Relaxed));
            let found = weak.try_acquire(generation);
            assert!(found.is_none() || first == second, "{HALF}");
        }
        drop(changer.join().unwrap());
    });
}

const HALF: &str = "a handle of half a change";

#[test]
fn loom_arc_unchecked_generation_is_caught() {
    let model = "loom_arc_handle_by_generation_is_of_what_was_read";
    let model = format!("collections::scalable_arc::loom_tests::{model}");
    must_catch("unchecked-generation", &model, &[HALF]);
}

/// A value is changed in place while another thread turns its handle into a weak one and back.
#[test]
fn loom_arc_changed_in_place_is_seen_by_no_other_handle() {
    model(3, || {
        let (mut bird, dropped) = bird();
        let other = bird.clone();
        drop(ScalableArc::downgrade(&bird));
        let other = thread::spawn(move || {
            let weak = ScalableArc::downgrade(&other);
            drop(other);
            weak.upgrade().iter().for_each(|bird| bird.sing());
        });
        if let Some(canary) = ScalableArc::get_mut(&mut bird) {
            // SAFETY: the only handle; loom checks it.
            canary.alive.with_mut(|alive| unsafe { *alive = true });
        }
        other.join().unwrap();
        assert!(ScalableArc::get_mut(&mut bird).is_some(), "the only handle is not taken for it");
        drop(bird);
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_without_weak_handles_changed_in_place_is_seen_by_no_other_handle() {
    model(3, || {
        let (mut bird, dropped) = bird();
        let other = bird.clone();
        let other = thread::spawn(move || {
            let weak = ScalableArc::downgrade(&other);
            drop(other);
            weak.upgrade().iter().for_each(|bird| bird.sing());
        });
        if let Some(canary) = ScalableArc::get_mut(&mut bird) {
            // SAFETY: the only handle; loom checks it.
            canary.alive.with_mut(|alive| unsafe { *alive = true });
        }
        other.join().unwrap();
        drop(bird);
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_seeded_weak_unlocked_is_caught() {
    let test = "loom_arc_changed_in_place_is_seen_by_no_other_handle";
    let test = format!("collections::scalable_arc::loom_tests::{test}");
    must_catch("weak-unlocked", &test, &RACE);
}

/// Two handles of a cold object are dropped at once: one drop finds the other done.
#[test]
fn loom_arc_drop_of_the_only_handle_sees_what_others_did() {
    model(3, || {
        let (bird, dropped) = bird();
        let other = {
            let bird = bird.clone();
            thread::spawn(move || {
                bird.sing();
                drop(bird);
            })
        };
        bird.sing();
        drop(bird);
        other.join().unwrap();
        assert_eq!(count(&dropped), 1);
    });
}

#[test]
fn loom_arc_relaxed_drop_of_the_only_handle_is_caught() {
    let name = "loom_arc_drop_of_the_only_handle_sees_what_others_did";
    let test = format!("collections::scalable_arc::loom_tests::{name}");
    must_catch("lone-relaxed", &test, &RACE);
}
