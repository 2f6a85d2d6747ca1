//! How far the hand turns, and which entry it takes there.

use super::*;
use manycore::section::Domain;

/// Makes the address of a node that is never accessed.
fn node(number: usize) -> NonNull<Node<u8, u8>> {
    NonNull::new(std::ptr::without_provenance_mut((number + 1) * 64)).expect("not null")
}

/// Evicts from a segment that has one entry in each bucket, with these frequencies. Returns the
/// frequencies afterwards, with `None` for the entry that was evicted.
fn after_eviction(has_probation: bool, frequencies: &[u8]) -> Vec<Option<u8>> {
    let domain = Domain::new();
    let section = domain.enter();
    let segment = Segment::new(Table::new(frequencies.len(), has_probation), Kind::Plain);
    let table = segment.table(&section);
    let chain = |at: usize| table.lock(&table.buckets()[at]).expect("the table is there");
    for (at, frequency) in frequencies.iter().enumerate() {
        chain(at).add(table, KeyHash::of(at as u64), node(at), *frequency);
    }
    let evicted = segment.evict(table, None, None, &section, |node| node);
    let left = (0..frequencies.len()).map(|at| {
        let chain = chain(at);
        let slot = chain.slot_of(node(at))?;
        let frequency = slot.frequency_now();
        chain.clear(slot);
        Some(frequency)
    });
    let left: Vec<_> = left.collect();
    let gone = left.iter().position(Option::is_none);
    assert_eq!(evicted, gone.map(node));
    left
}

#[test]
fn hand_passes_entries_on_probation_and_takes_one_that_has_proved_itself() {
    let left = after_eviction(true, &[ON_PROBATION, PROTECTED, PROTECTED, PROTECTED]);
    assert_eq!(left, [Some(ON_PROBATION), None, Some(PROTECTED), Some(PROTECTED)]);
}

#[test]
fn without_a_queue_for_probation_the_hand_takes_the_first_unused_entry() {
    let left = after_eviction(false, &[PROTECTED + 1, ON_PROBATION, PROTECTED]);
    assert_eq!(left, [Some(PROTECTED), None, Some(PROTECTED)]);
}

/// segment.G4
#[test]
fn hand_that_has_passed_64_buckets_takes_an_entry_on_probation() {
    let mut expected = [Some(ON_PROBATION); 100];
    expected[PATIENCE] = None;
    assert_eq!(PATIENCE, 64);
    assert_eq!(after_eviction(true, &[ON_PROBATION; 100]), expected);
}

/// segment.G4
#[test]
fn hand_that_has_passed_64_buckets_takes_an_entry_that_is_used() {
    let mut expected = [Some(FREQUENCY_MAX); 100];
    expected[..PATIENCE].fill(Some(FREQUENCY_MAX - 1));
    expected[PATIENCE] = None;
    assert_eq!(after_eviction(true, &[FREQUENCY_MAX; 100]), expected);
}
