//! The merge in a tree: helpers collect in the reader's place (B1 to B4).
//!
//! All slots are members from the start: it takes a collection to become one, which would make the
//! models too large.

use super::races::{appends_race_a_read, appends_race_two_reads, reader_sees_cause_before_effect};
use super::{Commuting, Deferred, Log, Ordered, Push, builder};
use crate::clock::Clock;
use crate::oplog::{MergeStrategy, Publish};
use std::sync::Arc;

fn tree<L: Log<Vec<u32>>>(publish: Publish) -> Arc<Deferred<Vec<u32>, L>> {
    let builder = builder(publish).merge(MergeStrategy::Tree);
    let object = builder.clock(Arc::new(Clock::counter())).build(Vec::new()).unwrap();
    assert!(object.promote());
    object.with_core(|core, _| core.presume_members(&[0, 1, 2]));
    Arc::new(object)
}

/// Each updater may collect for the other, and no log is in two hands.
#[test]
fn loom_tree_locked_helpers_race_reads_and_nothing_is_lost() {
    appends_race_a_read(|| tree(Publish::Locked));
    appends_race_two_reads(3, || tree(Publish::Locked));
}

#[test]
fn loom_tree_biased_helpers_race_reads_and_nothing_is_lost() {
    appends_race_two_reads(3, || tree(Publish::Biased));
}

#[test]
fn loom_tree_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| tree::<Commuting<Push>>(Publish::Locked));
}

#[test]
fn loom_tree_ordered_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| tree::<Ordered<Push>>(Publish::Locked));
}
