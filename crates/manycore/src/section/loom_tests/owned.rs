//! A section that moves to another thread protects there what it protected here: section.E1 and
//! section.S9 for the slot that only this section has.

use super::{Cage, kind, spawn};
use crate::percpu::loom_tests::{large_model, unexplored};
use crate::section::OwnedSection;
use crate::sync::thread;
use std::sync::Arc;

/// One thread opens the section, a second one reads and closes it, and a third replaces the node
/// and frees what it can.
fn moved_section_keeps_its_node(kind_of: &str) {
    let builder = kind(kind_of);
    large_model(2, move || {
        let cage = Cage::new(builder());
        let reclaimer = spawn(&cage, |cage| {
            cage.replace(1);
            cage.domain.collect();
        });
        let section = cage.domain.enter_owned();
        // SAFETY: the thread that it moves to keeps the cage longer.
        let section =
            unsafe { std::mem::transmute::<OwnedSection<'_>, OwnedSection<'static>>(section) };
        let kept = Arc::clone(&cage);
        let reader = thread::spawn(move || {
            let number = kept.link.load(&section).as_ref().expect("there is always one").sing();
            drop(section);
            number
        });
        assert!(reader.join().unwrap() < 2);
        reclaimer.join().unwrap();
        unexplored(|| (0..3).for_each(|_| cage.domain.collect()));
        assert_eq!(cage.freed(), 1, "no section is open, and the node is not freed");
    });
}

#[test]
fn loom_section_epoch_moved_section_keeps_its_node() {
    moved_section_keeps_its_node("epoch");
}

#[test]
fn loom_section_fenced_moved_section_keeps_its_node() {
    moved_section_keeps_its_node("bounded, fenced");
}
