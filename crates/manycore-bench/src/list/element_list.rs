//! The sequential list that is inside all lists except the lock-free ones.
//!
//! Owns: [`ElementList`], a doubly linked list threaded through a slab. Adding and removing an
//! element takes constant time, without allocation or search.

/// An element. Elements are small numbers: they index the slab.
pub type Element = u32;

/// No element.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
    linked: bool,
}

const UNLINKED: Links = Links { previous: NONE, next: NONE, linked: false };

/// A list of elements in no order that anyone relies on.
#[derive(Clone, Debug)]
pub struct ElementList {
    links: Vec<Links>,
    head: u32,
}

impl ElementList {
    /// An empty list that holds elements below `limit` without growing.
    pub fn with_limit(limit: Element) -> Self {
        Self { links: vec![UNLINKED; limit as usize], head: NONE }
    }

    /// Adds an element; one that is in the list stays where it is.
    #[inline]
    pub fn add(&mut self, element: Element) {
        let index = element as usize;
        if index >= self.links.len() {
            self.grow(index + 1);
        }
        if self.links[index].linked {
            return;
        }
        self.links[index] = Links { previous: NONE, next: self.head, linked: true };
        if let Some(old_head) = self.links.get_mut(self.head as usize) {
            old_head.previous = element;
        }
        self.head = element;
    }

    #[cold]
    fn grow(&mut self, limit: usize) {
        self.links.resize(limit, UNLINKED);
    }

    /// Removes an element, if it is in the list.
    #[inline]
    pub fn remove(&mut self, element: Element) {
        let Some(links) = self.links.get_mut(element as usize) else {
            return;
        };
        let Links { previous, next, linked } = *links;
        if !linked {
            return;
        }
        links.linked = false;
        match self.links.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        if let Some(after) = self.links.get_mut(next as usize) {
            after.previous = previous;
        }
    }

    /// Calls `f` with every element.
    #[inline]
    pub fn for_each(&self, mut f: impl FnMut(Element)) {
        let mut element = self.head;
        while let Some(links) = self.links.get(element as usize) {
            f(element);
            element = links.next;
        }
    }

    /// Does what an update says.
    #[inline]
    pub fn apply(&mut self, op: ListOp) {
        match op {
            ListOp::Add(element) => self.add(element),
            ListOp::Remove(element) => self.remove(element),
        }
    }
}

/// An update of the list, for implementations that write updates down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOp {
    /// Add the element.
    Add(Element),
    /// Remove the element.
    Remove(Element),
}

#[cfg(test)]
mod tests {
    use super::{ElementList, ListOp};

    fn sorted(list: &ElementList) -> Vec<u32> {
        let mut elements = Vec::new();
        list.for_each(|element| elements.push(element));
        elements.sort_unstable();
        elements
    }

    #[test]
    fn removal_at_head_middle_and_tail_keeps_the_rest() {
        for gone in 0..4 {
            let mut list = ElementList::with_limit(2);
            (0..4).for_each(|element| list.apply(ListOp::Add(element)));
            list.apply(ListOp::Remove(gone));
            let expected: Vec<_> = (0..4).filter(|element| *element != gone).collect();
            assert_eq!(sorted(&list), expected);
            list.add(gone);
            assert_eq!(sorted(&list), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn second_add_and_removal_of_a_stranger_change_nothing() {
        let mut list = ElementList::with_limit(0);
        list.add(7);
        list.add(7);
        list.remove(3);
        list.remove(900);
        assert_eq!(sorted(&list), [7]);
    }
}
