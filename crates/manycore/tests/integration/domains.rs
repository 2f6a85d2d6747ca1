//! Many domains at once: the cost of one domain must not depend on the others.

use crate::allocations;
use manycore::section::Domain;

fn entered() -> Domain {
    let domain = Domain::new();
    drop(domain.enter());
    domain
}

/// Returns this thread's allocations for a hundred domains that are made, entered and dropped.
fn allocations_of_a_hundred() -> usize {
    allocations::within(|| (0..100).for_each(|_| drop(entered())))
}

#[test]
fn domain_beside_twenty_thousand_others_takes_no_more_allocations_than_alone() {
    const OTHERS: usize = if cfg!(miri) { 100 } else { 20_000 };
    allocations_of_a_hundred(); // the first makes what the process and the thread need
    let alone = allocations_of_a_hundred();
    let others: Vec<_> = (0..OTHERS).map(|_| entered()).collect();
    let beside = allocations_of_a_hundred();
    // The lists of domains may have to grow.
    assert!(beside <= alone + 4, "{beside} allocations for a hundred, {alone} alone");
    drop(others);
    let after = allocations_of_a_hundred();
    assert!(after <= alone + 4, "{after} allocations for a hundred, {alone} before");
}
