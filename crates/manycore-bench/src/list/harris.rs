//! The lock-free sorted list of Harris (DISC 2001) with Michael's reclamation-friendly search (SPAA
//! 2002), on crossbeam-epoch. It is the lock-free rival of the paper's figure 12. Unsorted, with
//! insertions at the head, it is the list that the LDU draft compares with (its figure 7).
//!
//! Laws:
//!
//! - harris.H1 (mark) A node whose `next` carries the mark is removed. A marked `next` never
//!   changes again, so nothing can be inserted after a removed node.
//! - harris.H2 (unlink) A node is unlinked by a compare-and-swap on an *unmarked* pointer to it.
//!   That succeeds once, and only the thread that succeeds passes the node to the collector.
//! - harris.H3 (pin) Pointers are followed only under the guard with which they were loaded.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};

use super::{Element, ListHandle, ListImpl};

const MARK: usize = 1;

struct Node {
    element: Element,
    next: Atomic<Node>,
}

/// A list of elements: each once and in order, or, unsorted, as often as it is added.
pub(crate) struct HarrisList<const SORTED: bool = true> {
    head: Atomic<Node>,
}

/// Where an element is or would be.
struct Position<'g> {
    /// The link to `current`.
    link: &'g Atomic<Node>,
    /// The first node not below the element.
    current: Shared<'g, Node>,
    /// Whether `current` holds the element.
    found: bool,
}

impl<const SORTED: bool> HarrisList<SORTED> {
    /// Finds the element, or where it would be, and unlinks removed nodes on the way.
    fn find<'g>(&'g self, element: Element, guard: &'g Guard) -> Position<'g> {
        'again: loop {
            let mut link = &self.head;
            // ORDER: Acquire here and below; pairs with the Release of `insert`: a node's fields
            // come before the pointer to it.
            let mut current = link.load(Acquire, guard);
            loop {
                // SAFETY: harris.H3; harris.H2 keeps unlinked nodes alive while this guard is held.
                let Some(node) = (unsafe { current.as_ref() }) else {
                    return Position { link, current, found: false };
                };
                let next = node.next.load(Acquire, guard);
                if next.tag() != MARK {
                    let found = node.element == element;
                    if found || SORTED && node.element > element {
                        return Position { link, current, found };
                    }
                    (link, current) = (&node.next, next);
                    continue;
                }
                let next = next.with_tag(0);
                if !unlink(link, current, next, guard) {
                    continue 'again;
                }
                current = next;
            }
        }
    }

    /// Before all others.
    fn first<'g>(&'g self, guard: &'g Guard) -> Position<'g> {
        // ORDER: Acquire; as in `find`. The head is in no node, so it never carries the mark.
        Position { link: &self.head, current: self.head.load(Acquire, guard), found: false }
    }

    fn insert(&self, element: Element, guard: &Guard) {
        let mut node = Owned::new(Node { element, next: Atomic::null() });
        loop {
            let place = if SORTED { self.find(element, guard) } else { self.first(guard) };
            if place.found {
                return;
            }
            node.next.store(place.current, Relaxed);
            // ORDER: Release; pairs with the loads of `find`. An expected pointer without the mark
            // makes the swap fail if the node before was removed (harris.H1).
            match place.link.compare_exchange(place.current, node, Release, Relaxed, guard) {
                Ok(_) => return,
                Err(error) => node = error.new,
            }
        }
    }

    fn delete(&self, element: Element, guard: &Guard) {
        loop {
            let Position { link, current, found } = self.find(element, guard);
            // SAFETY: harris.H3.
            let Some(node) = (unsafe { current.as_ref() }).filter(|_| found) else {
                return;
            };
            let next = node.next.load(Acquire, guard);
            if next.tag() == MARK {
                continue;
            }
            // ORDER: Release; what the remover did before comes before the removal.
            let marked = next.with_tag(MARK);
            if node.next.compare_exchange(next, marked, Release, Relaxed, guard).is_ok() {
                if !unlink(link, current, next, guard) {
                    // Another thread changed the link; a search unlinks every marked node it meets.
                    self.find(element, guard);
                }
                return;
            }
        }
    }

    fn walk(&self, mut f: impl FnMut(Element), guard: &Guard) {
        let mut current = self.head.load(Acquire, guard);
        // SAFETY: harris.H3.
        while let Some(node) = unsafe { current.as_ref() } {
            let next = node.next.load(Acquire, guard);
            if next.tag() != MARK {
                f(node.element);
            }
            current = next.with_tag(0);
        }
    }
}

/// Unlinks a marked node; true if this call did it.
fn unlink<'g>(
    link: &Atomic<Node>,
    current: Shared<'g, Node>,
    next: Shared<'g, Node>,
    guard: &'g Guard,
) -> bool {
    // ORDER: Release; passes on the node that `next` points to, read with Acquire.
    let unlinked =
        link.compare_exchange(current.with_tag(0), next, Release, Relaxed, guard).is_ok();
    if unlinked {
        // SAFETY: harris.H2: this thread alone unlinked it, and no new reference can be made.
        unsafe { guard.defer_destroy(current.with_tag(0)) };
    }
    unlinked
}

impl<const SORTED: bool> Drop for HarrisList<SORTED> {
    fn drop(&mut self) {
        // SAFETY: the list is owned: no other thread follows its pointers.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let mut current = self.head.load(Relaxed, guard).with_tag(0);
        while !current.is_null() {
            // SAFETY: `&mut self`, so no other thread has the chain; every node in it is freed
            // once, and marked nodes still in it were never handed to the collector (harris.H2).
            let node = unsafe { current.into_owned() };
            current = node.next.load(Relaxed, guard).with_tag(0);
        }
    }
}

impl<const SORTED: bool> ListImpl for HarrisList<SORTED> {
    type Handle<'a> = &'a Self;

    fn new(_: usize) -> Self {
        Self { head: Atomic::null() }
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl<const SORTED: bool> ListHandle for &HarrisList<SORTED> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.insert(element, &crossbeam_epoch::pin());
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.delete(element, &crossbeam_epoch::pin());
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.walk(f, &crossbeam_epoch::pin());
    }
}

#[cfg(test)]
mod tests {
    use super::HarrisList;
    use crate::list::ListImpl;

    #[test]
    fn elements_come_out_sorted_and_once() {
        let list = HarrisList::<true>::new(1);
        let guard = crossbeam_epoch::pin();
        for element in [5, 1, 3, 1, 5] {
            list.insert(element, &guard);
        }
        list.delete(3, &guard);
        list.delete(4, &guard);
        let mut seen = Vec::new();
        list.walk(|element| seen.push(element), &guard);
        assert_eq!(seen, [1, 5]);
    }
    #[test]
    fn unsorted_elements_come_out_last_first_and_go_one_by_one() {
        let list = HarrisList::<false>::new(1);
        let guard = crossbeam_epoch::pin();
        for element in [5, 1, 3, 1] {
            list.insert(element, &guard);
        }
        let elements = |list: &HarrisList<false>| {
            let mut seen = Vec::new();
            list.walk(|element| seen.push(element), &guard);
            seen
        };
        assert_eq!(elements(&list), [1, 3, 1, 5]);
        [1, 5, 4].into_iter().for_each(|element| list.delete(element, &guard));
        assert_eq!(elements(&list), [3, 1]);
    }
}
