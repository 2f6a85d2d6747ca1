//! The list with marks on its members: additions and removals cancel, on whichever threads they are
//! made.
//!
//! This file holds all the glue that a program would write: the list's reaction to a change of a
//! member. The members stand in an array, as a program's own structures would, and are managed by
//! hand.

use std::{mem::ManuallyDrop, ptr::NonNull};

use manycore::ldu::{DeferredSet, Element as Member, Queue, Structure};

use super::{
    Element, ElementList, ListHandle, ListImpl, OWN_ELEMENTS, first_element, locks::sequential,
};

impl Structure<Member<Element>> for ElementList {
    #[inline]
    fn insert(&mut self, member: &Member<Element>) {
        self.add(**member);
    }

    #[inline]
    fn remove(&mut self, member: &Member<Element>) {
        ElementList::remove(self, **member);
    }
}

type Set = DeferredSet<ElementList, Member<Element>>;

/// The elements of one thread.
#[repr(align(128))]
struct Members([Member<Element>; OWN_ELEMENTS as usize]);

/// A list behind marks; one queue for all threads if `GLOBAL`.
pub(super) struct MarkedList<const GLOBAL: bool> {
    set: ManuallyDrop<Set>,
    members: *mut [Members],
}

// SAFETY: members may be used by any thread, and `members` is only changed through them.
unsafe impl<const GLOBAL: bool> Sync for MarkedList<GLOBAL> {}

impl<const GLOBAL: bool> ListImpl for MarkedList<GLOBAL> {
    type Handle<'a> = MarkedHandle<'a>;

    fn new(threads: usize) -> Self {
        let queue = if GLOBAL { Queue::Global } else { Queue::PerThread };
        let set = DeferredSet::builder().queue(queue).build(sequential(threads));
        let own = |thread| Members(std::array::from_fn(|own| member(thread, own)));
        let members = Box::into_raw((0..threads).map(own).collect::<Box<[_]>>());
        Self { set: ManuallyDrop::new(set.expect("the bounds are the defaults")), members }
    }

    fn handle(&self, thread: usize) -> MarkedHandle<'_> {
        // SAFETY: the array lives as long as the list; the offset is within it.
        let members = unsafe { &raw mut (*self.members.cast::<Members>().add(thread)).0 };
        let members = NonNull::new(members.cast()).expect("a place in an array");
        MarkedHandle { set: &self.set, members }
    }
}

fn member(thread: usize, own: usize) -> Member<Element> {
    Member::new(first_element(thread) + u32::try_from(own).expect("elements are few"))
}

impl<const GLOBAL: bool> Drop for MarkedList<GLOBAL> {
    fn drop(&mut self) {
        // SAFETY: dropped here alone; then no queue has a member, and no other pointer to the array
        // is left.
        unsafe {
            ManuallyDrop::drop(&mut self.set);
            drop(Box::from_raw(self.members));
        }
    }
}

/// A thread's members.
pub(super) struct MarkedHandle<'a> {
    set: &'a Set,
    members: NonNull<Member<Element>>,
}

impl MarkedHandle<'_> {
    #[inline(always)]
    fn member(&self, element: Element) -> NonNull<Member<Element>> {
        // SAFETY: the remainder is a place in the array.
        unsafe { self.members.add((element % OWN_ELEMENTS) as usize) }
    }
}

impl ListHandle for MarkedHandle<'_> {
    #[inline]
    fn add(&mut self, element: Element) {
        // SAFETY: the members outlive the set, are in no other, and are this thread's.
        unsafe { self.set.insert_raw(self.member(element)) };
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        // SAFETY: ldu.U1 - the member is this thread's, which makes one change at a time; it
        // outlives the set and was inserted into it, as a thread removes only what it has added.
        unsafe { self.set.remove_raw(self.member(element)) };
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.set.read().for_each(f);
    }
}
