//! Memory of nodes that is used again without being freed (section.S13).

use super::{Domain, Mode};
use crate::percpu::loom_tests::large_model;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell, thread};
use std::ptr::NonNull;
use std::sync::Arc;

/// A node: a loom cell, which a thread writes when it makes a node of the memory.
type Node = UnsafeCell<usize>;

/// A domain, a link to a node, and how many nodes were made in the memory of others.
struct Cage {
    domain: Domain,
    link: AtomicPtr<Node>,
    reused: AtomicUsize,
}

unsafe fn free(node: NonNull<()>) {
    // SAFETY: nodes are boxes of this type, and one that was retired comes back once.
    drop(unsafe { Box::from_raw(node.cast::<Node>().as_ptr()) });
}

impl Cage {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            domain: Domain::builder().mode(Mode::Epoch).batch_nodes(1).build().unwrap(),
            link: AtomicPtr::new(Box::into_raw(Box::new(UnsafeCell::new(0)))),
            reused: AtomicUsize::new(0),
        })
    }

    fn replace(&self, number: usize) {
        let section = self.domain.enter();
        let node = match section.reuse_raw(free) {
            Some(node) => {
                self.reused.fetch_add(1, Ordering::Relaxed);
                let node = node.cast::<Node>().as_ptr();
                // SAFETY: `free` takes boxes of this type, and this one is ours; loom checks that
                // no thread is at it.
                unsafe { (*node).with_mut(|value| *value = number) };
                node
            }
            None => Box::into_raw(Box::new(UnsafeCell::new(number))),
        };
        let old = NonNull::new(self.link.swap(node, Ordering::AcqRel)).expect("never null");
        // SAFETY: unlinked by the swap; nothing else leads to it; it has no links.
        unsafe { section.retire_raw(old.cast(), 8, free) };
    }

    fn look(&self) -> usize {
        let section = self.domain.enter();
        // SAFETY: loaded in the section, which keeps the node.
        unsafe { (*section.protect(&self.link)).with(|value| *value) }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if !crate::sync::model_failed() {
            let last = self.link.swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: a box, as all nodes, and no other thread has the link.
            drop(unsafe { Box::from_raw(last) });
        }
    }
}

#[test]
fn loom_section_reused_memory_has_no_reader() {
    large_model(2, || {
        let cage = Cage::new();
        let reader = {
            let cage = Arc::clone(&cage);
            thread::spawn(move || cage.look())
        };
        (1..=2).for_each(|number| cage.replace(number));
        assert!(reader.join().unwrap() <= 2);
        (3..=4).for_each(|number| cage.replace(number));
        assert_ne!(cage.reused.load(Ordering::Relaxed), 0, "without readers, memory is expired");
    });
}
