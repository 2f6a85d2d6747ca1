//! A model of laws object_pool.P1 and object_pool.P3: one thing, two threads. The thing is a loom
//! cell, so two holders, or one that does not see what the last one did, fail the model.

use super::ObjectPool;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::{UnsafeCell, thread};
use std::sync::Arc;

struct Thing(UnsafeCell<usize>);

// SAFETY: the cell is what the test is about.
unsafe impl Send for Thing {}

#[test]
fn loom_pool_lends_a_thing_to_one_at_a_time() {
    model(2, || {
        let pool = Arc::new(ObjectPool::new(1, || Thing(UnsafeCell::new(0))));
        let use_it = |pool: &ObjectPool<Thing>| {
            let Some(thing) = pool.take() else { return false };
            // SAFETY: the pool lends it to one at a time; loom checks it.
            thing.0.with_mut(|uses| unsafe { *uses += 1 });
            true
        };
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || usize::from(use_it(&pool)))
        };
        let mut uses = usize::from(use_it(&pool));
        uses += other.join().unwrap();
        assert!(uses >= 1, "one of them comes first");
        assert_eq!(pool.created(), 1, "more things than the bound");
        let thing = pool.take().expect("idle, wherever it lies");
        // SAFETY: the pool lends the thing to this thread alone, as the other one has ended; loom
        // checks it.
        assert_eq!(thing.0.with(|seen| unsafe { *seen }), uses);
        assert!(pool.take().is_none() && pool.created() == 1);
    });
}

#[test]
fn loom_thing_counted_after_the_look_at_the_bound_is_caught() {
    let test = "collections::object_pool::loom_tests::loom_pool_lends_a_thing_to_one_at_a_time";
    must_catch("late-count", test, &["more things than the bound"]);
}
