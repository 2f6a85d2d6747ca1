//! Readers against reclaimers: section.S1 to section.S6, section.S9, section.E1 to section.E4.

use super::{Cage, kind, spawn};
use crate::percpu::loom_tests::{large_model, model, unexplored};
use crate::section::{Atomic, Domain, Mode, Owned, Section, Shared, Weight};
use crate::sync::{Ordering, thread};
use std::sync::Arc;

/// What a node weighs.
const CANARY: usize = size_of::<super::Canary>();

/// A reader looks while another thread replaces the node and frees what it can.
fn reader_keeps_its_node(kind_of: &str) {
    let builder = kind(kind_of);
    large_model(2, move || {
        let cage = Cage::new(builder());
        let reader = spawn(&cage, Cage::look);
        cage.replace(1);
        cage.domain.collect();
        assert!(reader.join().unwrap() < 2);
        unexplored(|| (0..2).for_each(|_| cage.domain.collect()));
        assert_eq!(cage.freed(), 1, "no section is open, and the node is not freed");
    });
}

#[test]
fn loom_section_epoch_reader_keeps_its_node() {
    reader_keeps_its_node("epoch");
}

#[test]
fn loom_section_bounded_reader_keeps_its_node() {
    reader_keeps_its_node("bounded");
}

#[test]
fn loom_section_fenced_reader_keeps_its_node() {
    reader_keeps_its_node("bounded, fenced");
}

/// Retires a node as if it owned nothing: the end of the section leads no round for it.
///
/// # Safety
/// As for [`Section::retire`].
unsafe fn retire_without_a_round(section: &Section<'_>, old: Shared<'_, super::Canary>) {
    let weight = Weight::exact(CANARY);
    section.state().retire(section.local(), old.into_limbo(weight, section), weight);
}

/// The rounds of one thread free a node of another thread (section.E2). The unlink is a plain
/// store, the two threads share nothing but the domain, and the unlinking thread leads no round.
fn shared_quiescence_keeps_the_node(kind_of: &str) {
    let builder = kind(kind_of);
    large_model(2, move || {
        let cage = Cage::of(builder());
        unexplored(|| drop(cage.domain.enter()));
        let reader = spawn(&cage, |cage| {
            unexplored(|| drop(cage.domain.enter()));
            cage.look();
        });
        let leader = spawn(&cage, |cage| {
            (0..2).for_each(|_| cage.domain.state().round(|_| ()));
        });
        let section = cage.domain.enter();
        let old = cage.link.load(&section);
        cage.link.store(Owned::new(super::Canary::new(1, &cage.freed)), &section);
        // SAFETY: unlinked by the store; only this thread writes the link.
        unsafe { retire_without_a_round(&section, old) };
        section.collect_found();
        leader.join().unwrap();
        cage.domain.enter().collect_found();
        reader.join().unwrap();
    });
}

#[test]
fn loom_section_epoch_shared_quiescence_keeps_the_node() {
    shared_quiescence_keeps_the_node("epoch");
}

#[test]
fn loom_section_bounded_shared_quiescence_keeps_the_node() {
    shared_quiescence_keeps_the_node("bounded");
}

#[test]
fn loom_section_fenced_shared_quiescence_keeps_the_node() {
    shared_quiescence_keeps_the_node("bounded, fenced");
}

/// Batches pile up behind a reader, and their thread leads no round: it filters no batch before a
/// round of another thread has looked (section.E4).
fn filter_waits_for_a_round(kind_of: &str) {
    let builder = kind(kind_of);
    model(2, move || {
        let cage = Cage::of(builder());
        cage.replace(1); // the birth of the first node is not known
        let reader = spawn(&cage, Cage::look);
        for number in 2..5 {
            let section = cage.domain.enter();
            let new = Owned::new(super::Canary::new(number, &cage.freed));
            let old = cage.link.swap(new, &section);
            // SAFETY: unlinked by the swap; nothing else leads to it; it has no links.
            unsafe { retire_without_a_round(&section, old) };
            section.collect_found();
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_section_bounded_filter_waits_for_a_round() {
    filter_waits_for_a_round("bounded");
}

#[test]
fn loom_section_fenced_filter_waits_for_a_round() {
    filter_waits_for_a_round("bounded, fenced");
}

/// A reader stalls on the first node, walks on to a younger node and stays on both, while batches
/// are filtered under it (section.E4).
#[test]
fn loom_section_bounded_filter_frees_nothing_that_the_reader_covers() {
    let builder = kind("bounded");
    model(2, move || {
        let cage = Cage::new(builder());
        cage.replace(1); // the birth of the first node is not known
        let reader = spawn(&cage, |cage| {
            let section = cage.domain.enter();
            let first = cage.link.load(&section).as_ref().unwrap();
            let second = cage.link.load(&section).as_ref().unwrap();
            assert!(first.sing() <= second.sing());
        });
        (2..5).for_each(|number| cage.replace(number));
        reader.join().unwrap();
    });
}

/// `quiesced` returns true only when the section that was open is closed.
#[test]
fn loom_section_quiesced_is_never_early() {
    model(2, || {
        let cage = Cage::new(kind("epoch")());
        let reader = spawn(&cage, |cage| {
            let section = cage.domain.enter();
            cage.link.load(&section).as_ref().map(super::Canary::sing)
        });
        let fresh = Atomic::new(super::Canary::new(1, &cage.freed));
        let mine = Domain::bounded();
        let section = mine.enter(); // of another domain: it holds nothing back here
        let old = cage.link.swap(Shared::null(), &section);
        let taken = old.as_ref().unwrap();
        cage.link.store(fresh.load(&section), &section);
        let moment = cage.domain.now();
        if cage.domain.quiesced(moment) || cage.domain.quiesced(moment) {
            // No reader can hold it: do what its destructor would do.
            taken.alive.with_mut(|alive| {
                // SAFETY: unlinked, and every section that was open is closed; loom checks it.
                unsafe { *alive = false };
            });
        }
        reader.join().unwrap();
        cage.link.swap(old, &section);
        // SAFETY: swapped out of the cage.
        drop(unsafe { fresh.into_owned() });
    });
}

/// Dropping the domain frees everything once, also what an ended thread left (section.S9).
#[test]
fn loom_section_domain_drop_frees_everything_once() {
    large_model(2, || {
        let cage = Cage::new(Domain::builder().mode(Mode::Bounded));
        let freed = Arc::clone(&cage.freed);
        let other = spawn(&cage, |cage| cage.replace(1));
        cage.replace(2);
        other.join().unwrap();
        while Arc::strong_count(&cage) > 1 {
            thread::yield_now();
        }
        drop(cage);
        assert_eq!(freed.load(Ordering::Relaxed), 3, "two were retired and one was linked");
    });
}

/// A batch that was closed early, because one of its nodes may own much, waits for its reader.
#[test]
fn loom_section_urgent_batch_waits_for_its_reader() {
    model(2, || {
        let cage = Cage::of(Domain::builder().mode(Mode::Epoch).batch_nodes(64));
        let reader = spawn(&cage, Cage::look);
        cage.replace(1); // far from a full batch
        cage.look();
        assert!(reader.join().unwrap() < 2);
        cage.look();
        cage.look();
        assert_eq!(cage.freed(), 1, "an urgent node waits for a full batch");
    });
}

/// Another thread takes over what a thread has retired while that thread is outside, but never
/// while it is inside and may touch it (section.S9). The models' cells would tell.
#[test]
fn loom_section_limbo_is_taken_over_from_outside_only() {
    model(2, || {
        let cage = Cage::of(Domain::builder().mode(Mode::Epoch).batch_nodes(64));
        let owner = spawn(&cage, |cage| {
            let section = cage.domain.enter();
            let light = Owned::new(7_u8).into_shared(&section);
            // SAFETY: never linked.
            unsafe { section.retire(light) };
        });
        cage.domain.collect();
        owner.join().unwrap();
    });
}
