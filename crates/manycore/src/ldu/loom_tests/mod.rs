//! Models of cancelling updates: laws ldu.U3, ldu.U4, ldu.U6 in every interleaving up to a bound.
//! The three faults of the published forms are caught when they are planted (`seeded`). The header
//! of [`crate::percpu::loom_tests`] says what loom can and cannot show.
//!
//! There are two kinds of canaries. Members' data are in loom's cells, which the structure reads,
//! and which the owner writes when the member belongs to it again. And links know when their
//! member's time is over. Freed members stay in memory, so that a model that fails says how.

mod eager;
mod lives;
mod reads;
mod seeded;
mod shared;

use super::{DeferredSet, Linked, Links, Queue, Structure};
use crate::sync::{UnsafeCell, thread};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

struct Member {
    links: Links,
    number: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Member {}

// SAFETY: the offset is the field's, which is used for this alone.
unsafe impl Linked for Member {
    const LINKS: usize = offset_of!(Member, links);

    unsafe fn free(member: NonNull<Self>) {
        // SAFETY: the set calls this once, when no reference to the member is left.
        unsafe { member.as_ref() }.set(0);
    }
}

impl Member {
    fn boxed(number: u32) -> Box<Self> {
        Box::new(Self { links: Links::new(), number: UnsafeCell::new(number) })
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that there is no concurrent write.
        self.number.with(|number| unsafe { *number })
    }

    fn set(&self, number: u32) {
        // SAFETY: loom checks that access is exclusive.
        self.number.with_mut(|own| unsafe { *own = number });
    }
}

/// The numbers of the members. It checks what it is told.
#[derive(Default)]
struct Numbers(Vec<u32>);

impl Structure<Member> for Numbers {
    fn insert(&mut self, member: &Member) {
        let number = member.get();
        assert!(number != 0 && !self.0.contains(&number), "{number} is told twice");
        self.0.push(number);
    }

    fn remove(&mut self, member: &Member) {
        let number = member.get();
        let place = self.0.iter().position(|own| *own == number);
        self.0.swap_remove(place.unwrap_or_else(|| panic!("{number} was never told")));
    }
}

type Set = DeferredSet<Numbers, Member>;

fn set(queue: Queue) -> Arc<Set> {
    Arc::new(DeferredSet::builder().queue(queue).build(Numbers::default()).unwrap())
}

/// Starts a thread with its own reference to `shared`. The caller joins it.
fn spawn<S: Send + Sync + 'static, R: 'static>(
    shared: &Arc<S>,
    f: impl FnOnce(&S) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

/// Returns the contents of the set, up to date, smallest first.
fn contents(set: &Set) -> Vec<u32> {
    let mut numbers = set.read().0.clone();
    numbers.sort_unstable();
    numbers
}
