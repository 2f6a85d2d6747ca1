//! Representatives: created once, and not during a change to all of them.

use crate::cluster::{Clustered, Placement, Rep};
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::{AtomicUsize, Ordering, thread};
use std::sync::Arc;

/// Copies a number from the root.
struct Copy(AtomicUsize);

struct Root {
    number: AtomicUsize,
    made: AtomicUsize,
}

impl Rep for Copy {
    type Root = Root;

    fn create(root: &Root, _place: usize) -> Self {
        root.made.fetch_add(1, Ordering::Relaxed);
        Self(AtomicUsize::new(root.number.load(Ordering::Relaxed)))
    }
}

fn object() -> Arc<Clustered<Copy>> {
    let root = Root { number: AtomicUsize::new(1), made: AtomicUsize::new(0) };
    Arc::new(Clustered::new(Placement::Shared, root))
}

#[test]
fn loom_representative_is_made_once_in_a_race() {
    model(3, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.with(|copy| copy.0.load(Ordering::Relaxed)))
        };
        assert_eq!(shared.with(|copy| copy.0.load(Ordering::Relaxed)), 1);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(shared.root().made.load(Ordering::Relaxed), 1, "made twice");
    });
}

#[test]
fn loom_representative_made_beside_a_scatter_knows_of_it() {
    model(3, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.local();
            })
        };
        let change = |root: &Root| root.number.store(2, Ordering::Relaxed);
        shared.scatter(change, |copy| copy.0.store(2, Ordering::Relaxed));
        other.join().unwrap();
        assert_eq!(shared.local().0.load(Ordering::Relaxed), 2, "a copy of old");
    });
}

#[test]
fn loom_representative_made_without_the_list_lock_is_caught() {
    for (test, sign) in [
        ("loom_representative_is_made_once_in_a_race", "made twice"),
        ("loom_representative_made_beside_a_scatter_knows_of_it", "a copy of old"),
    ] {
        must_catch("unlisted-rep", &format!("cluster::loom_tests::make::{test}"), &[sign]);
    }
}
