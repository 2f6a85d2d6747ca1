//! Models of laws promoted.P1 and few.F1: members that come and go while the small form
//! becomes a pool.

use super::{FewMembers, Member, MemberStore, Store};
use crate::ldu::Queue;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::thread;
use std::ptr::NonNull;
use std::sync::Arc;

/// The members' numbers.
#[derive(Default)]
struct Numbers(Vec<u32>);

impl MemberStore<u32> for Numbers {
    unsafe fn insert(&mut self, node: NonNull<Member<u32>>) {
        // SAFETY: member_pool.N1 - a structure is told of nodes with a value.
        self.0.push(unsafe { *Member::value(node) });
    }

    unsafe fn remove(&mut self, node: NonNull<Member<u32>>) {
        // SAFETY: member_pool.N1 - what the structure is told to remove has its value still.
        let number = unsafe { *Member::value(node) };
        let at = self.0.iter().position(|own| *own == number).expect("it was never told");
        self.0.swap_remove(at);
    }
}

impl Store<u32> for Numbers {
    type Beside = ();

    fn runs_users_code(&self, _: usize) -> bool {
        false
    }
}

type Members = FewMembers<u32, Numbers>;

fn numbers(members: &Members) -> Vec<u32> {
    members.read(|numbers| {
        let mut numbers = numbers.0.clone();
        numbers.sort_unstable();
        numbers
    })
}

fn leave(members: &Members, value: NonNull<u32>) {
    // SAFETY: `enter` returned it, and each test gives it back once.
    unsafe { members.leave(value) };
}

/// A member's value, which another thread gives back.
struct Left(NonNull<u32>);

// SAFETY: the thread that gives it back is its owner from then on.
unsafe impl Send for Left {}

#[test]
fn loom_members_of_two_threads_are_in_one_set_while_it_becomes_a_pool() {
    model(3, || {
        let members = Arc::new(Members::new(Queue::Global));
        let other = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.enter(1);
                let second = members.enter(2);
                leave(&members, second);
            })
        };
        let third = members.enter(3);
        members.promote();
        let seen = numbers(&members);
        assert!(seen.contains(&3), "its own member is not in {seen:?}");
        leave(&members, third);
        other.join().unwrap();
        assert_eq!(numbers(&members), [1], "a member was lost");
    });
}

/// A member that the structure has been told of in the small form.
#[test]
fn loom_member_leaves_by_the_pool_that_came_before_it() {
    model(3, || {
        let members = Arc::new(Members::new(Queue::Global));
        let told = members.enter(1);
        assert_eq!(numbers(&members), [1]);
        let (untold, told) = (members.enter(2), Left(told));
        let other = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                let Left(told) = { told };
                leave(&members, told);
            })
        };
        leave(&members, untold);
        members.promote();
        let seen = numbers(&members);
        assert!(seen.is_empty() || seen == [1], "{seen:?}");
        other.join().unwrap();
        assert_eq!(numbers(&members), [], "a member has not gone");
    });
}

#[test]
fn loom_list_that_is_used_beside_the_pool_is_caught() {
    let test = "collections::member_pool::loom_tests::\
                loom_members_of_two_threads_are_in_one_set_while_it_becomes_a_pool";
    must_catch("small-beside-large", test, &["a member was lost", "is not in", "promoted twice"]);
}
