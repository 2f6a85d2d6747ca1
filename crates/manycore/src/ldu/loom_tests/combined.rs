//! Members and ordered updates in one object (laws ldu.C1 to ldu.C3): reads see both kinds at one
//! moment, and nothing is lost.

use super::{Member, Numbers, spawn};
use crate::ldu::{Combined, CombinedState};
use crate::oplog::Op;
use crate::percpu::loom_tests::model;
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// Appends its number to those of the members: 10 and more, so that it is none of theirs.
struct Say(u32);

impl Op<Numbers> for Say {
    fn apply(self, numbers: &mut Numbers) {
        numbers.0.push(self.0);
    }
}

type Object = Combined<Numbers, Member, Say>;

fn object(logs: bool) -> Object {
    let object = Object::new(Numbers::default());
    assert!(!logs || object.promote());
    object
}

/// What the object shows: members, smallest first, then what was said, as it is.
fn contents(object: &Object) -> (Vec<u32>, Vec<u32>) {
    let guard = object.read();
    let seen: &CombinedState<Numbers, Say> = &guard;
    let (mut members, said): (Vec<u32>, Vec<u32>) = seen.0.iter().partition(|n| **n < 10);
    members.sort_unstable();
    (members, said)
}

/// An effect in one kind whose cause is in the other.
fn effect_has_its_cause(member_first: bool) {
    model(2, move || {
        let insert = |object: &Object| std::mem::forget(object.insert(Member::boxed(1)));
        let say = |object: &Object| object.append(Say(10));
        let shared = Arc::new((object(true), AtomicBool::new(false)));
        let (object, happened) = &*shared;
        let cause = spawn(&shared, move |(object, happened)| {
            if member_first {
                insert(object)
            } else {
                say(object)
            }
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, move |(object, _)| {
            let (members, said) = contents(object);
            let (cause, effect) = if member_first { (members, said) } else { (said, members) };
            assert!(effect.is_empty() || !cause.is_empty(), "effect without its cause: {effect:?}");
        });
        let knew = happened.load(Ordering::Acquire);
        if knew {
            if member_first { say(object) } else { insert(object) }
        }
        cause.join().unwrap();
        reader.join().unwrap();
        let (members, said) = contents(object);
        let effects = usize::from(knew);
        let counts = (members.len(), said.len());
        assert_eq!(counts, if member_first { (1, effects) } else { (effects, 1) });
    });
}

#[test]
fn loom_ldu_combined_ordered_update_never_seen_without_its_cause() {
    effect_has_its_cause(true);
}

#[test]
fn loom_ldu_combined_member_never_seen_without_its_cause() {
    effect_has_its_cause(false);
}

/// One thread does both kinds in turn beside a reader: each read sees a beginning of it.
fn reads_see_a_beginning(logs: bool) {
    model(2, move || {
        let object = Arc::new(object(logs));
        let other = spawn(&object, |object| {
            object.append(Say(10));
            std::mem::forget(object.insert(Member::boxed(1)));
            object.append(Say(11));
        });
        let (members, said) = contents(&object);
        let seen = (members.len(), &said[..]);
        assert!(
            matches!(seen, (0, []) | (0, [10]) | (1, [10]) | (1, [10, 11])),
            "{seen:?} was never the object"
        );
        other.join().unwrap();
        assert_eq!(contents(&object), (vec![1], vec![10, 11]), "a change was lost");
    });
}

#[test]
fn loom_ldu_combined_read_sees_a_state_that_was() {
    reads_see_a_beginning(true);
}

#[test]
fn loom_ldu_combined_read_of_a_cold_object_sees_a_state_that_was() {
    reads_see_a_beginning(false);
}
