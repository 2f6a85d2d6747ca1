//! Calls within calls while objects are exchanged.

use super::{Object, Plain, add, object, total};
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::thread;
use std::sync::Arc;

fn swap(object: &Object) {
    object.swap(Plain::in_parts(1)).unwrap();
}

#[test]
fn loom_call_from_within_itself_passes_a_swap() {
    model(2, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.call(|_| add(&shared)))
        };
        swap(&shared);
        other.join().unwrap();
        assert_eq!(total(&shared), 1);
    });
}

#[test]
fn loom_deep_calls_are_counted_and_pass_a_swap() {
    model(2, || {
        let shared = object();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.call(|_| shared.call(|_| add(&shared))))
        };
        swap(&shared);
        other.join().unwrap();
        assert_eq!(total(&shared), 1);
    });
}

/// A thread inside of one object calls the other, which is exchanged.
#[test]
fn loom_nested_call_of_another_object_beside_its_swap() {
    model(2, || {
        let outer = object();
        let inner = object();
        let other = {
            let inner = Arc::clone(&inner);
            thread::spawn(move || outer.call(|_| add(&inner)))
        };
        swap(&inner);
        other.join().unwrap();
        assert_eq!(total(&inner), 1, "a call was lost");
    });
}

#[test]
fn loom_transfer_beside_an_admitted_call_is_caught() {
    let test = "loom_nested_call_of_another_object_beside_its_swap";
    let signs: Vec<&str> = RACE.into_iter().chain(["a call was lost"]).collect();
    must_catch("unsealed-transfer", &format!("cluster::loom_tests::nested::{test}"), &signs);
}

/// Each object calls the other, and one is exchanged concurrently.
#[test]
fn loom_objects_that_call_each_other_pass_a_swap() {
    model(1, || {
        let (a, b) = (object(), object());
        let through = |first: &Arc<Object>, second: &Arc<Object>| {
            let (first, second) = (Arc::clone(first), Arc::clone(second));
            thread::spawn(move || first.call(|_| add(&second)))
        };
        let others = [through(&a, &b), through(&b, &a)];
        swap(&a);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((total(&a), total(&b)), (1, 1));
    });
}

/// Both are exchanged at once, and a thread calls through both.
#[test]
fn loom_two_objects_exchanged_at_once_let_nested_calls_pass() {
    model(1, || {
        let (a, b) = (object(), object());
        let caller = {
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            thread::spawn(move || a.call(|_| add(&b)))
        };
        let swapper = {
            let b = Arc::clone(&b);
            thread::spawn(move || swap(&b))
        };
        swap(&a);
        caller.join().unwrap();
        swapper.join().unwrap();
        assert_eq!(total(&b), 1);
    });
}
