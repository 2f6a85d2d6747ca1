//! Models of the slab: what goes home, and what passes with a slot. Each block has a cell beside it
//! that its user writes. So loom sees a block that two threads have, and a block that is reused
//! without an order after its last use.

use super::Slab;
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::{UnsafeCell, thread};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Large enough that a chunk has few of them.
type Object = [usize; 48];

struct Watched {
    slab: Slab<Object>,
    /// A cell for each address. Not loom's mutex: the models must not get order from it.
    cells: Mutex<HashMap<usize, Arc<UnsafeCell<usize>>>>,
}

/// A block's address, on its way to another thread.
#[derive(Clone, Copy)]
struct Sent(NonNull<Object>);

// SAFETY: plain memory.
unsafe impl Send for Sent {}

impl Watched {
    fn new() -> Arc<Self> {
        Arc::new(Self { slab: Slab::new(), cells: Mutex::default() })
    }

    fn use_it(&self, object: Sent) {
        let cell = {
            let mut cells = self.cells.lock().unwrap();
            Arc::clone(
                cells.entry(object.0.addr().get()).or_insert_with(|| Arc::new(UnsafeCell::new(0))),
            )
        };
        // SAFETY: slab.B2 - the caller has the block alone; loom checks it.
        cell.with_mut(|uses| unsafe { *uses += 1 });
    }

    fn alloc(&self) -> Sent {
        let object = Sent(self.slab.alloc_raw());
        self.use_it(object);
        object
    }

    fn free(&self, object: Sent) {
        self.use_it(object);
        // SAFETY: allocated by `alloc`, and freed once by each model.
        unsafe { self.slab.free_raw(object.0) };
    }
}

/// Blocks that others freed come home while their owner allocates, and are used again.
#[test]
fn loom_remote_frees_come_home_and_are_used_again() {
    model(2, || {
        let watched = Watched::new();
        let objects: Vec<_> = (0..2).map(|_| watched.alloc()).collect();
        let other = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || {
                objects.into_iter().for_each(|object| watched.free(object));
                watched.slab.trim();
            })
        };
        let again: Vec<_> = (0..5).map(|_| watched.alloc()).collect();
        other.join().unwrap();
        again.into_iter().for_each(|object| watched.free(object));
        assert_eq!(watched.slab.stats().live, 0);
        watched.slab.trim();
        assert_eq!(watched.slab.stats().chunks, 0, "everything came home");
    });
}

#[test]
fn loom_return_without_order_is_caught() {
    let test = "slab::loom_tests::loom_remote_frees_come_home_and_are_used_again";
    must_catch("relaxed-return", test, &RACE);
}

/// Two threads send blocks to one owner at the same time, and it looks in between.
#[test]
fn loom_two_senders_and_the_owner_lose_no_block() {
    model(2, || {
        let watched = Watched::new();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (watched, object) = (Arc::clone(&watched), watched.alloc());
                thread::spawn(move || {
                    watched.free(object);
                    watched.slab.trim();
                })
            })
            .collect();
        watched.slab.trim();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(watched.slab.stats().live, 0);
        watched.slab.trim();
        assert_eq!(watched.slab.stats().chunks, 0, "everything came home");
    });
}

/// A slot's next owner continues its heap, with what the last owner left.
#[test]
fn loom_heap_passes_with_its_slot() {
    model(2, || {
        let watched = Watched::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let watched = Arc::clone(&watched);
                thread::spawn(move || {
                    let (first, second) = (watched.alloc(), watched.alloc());
                    watched.free(first);
                    second
                })
            })
            .collect();
        let left: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(watched.slab.stats().live, 2);
        assert_ne!(left[0].0, left[1].0);
        left.into_iter().for_each(|object| watched.free(object));
        assert_eq!(watched.slab.stats().live, 0);
    });
}

/// A thread has ended. The thread that frees its blocks puts them away, while another takes over
/// its slot and uses what came home.
#[test]
fn loom_blocks_of_an_ended_thread_are_put_away_by_those_that_free_them() {
    model(2, || {
        let watched = Watched::new();
        let owner = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || (0..2).map(|_| watched.alloc()).collect::<Vec<_>>())
        };
        let left = owner.join().unwrap();
        let next = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || watched.alloc())
        };
        left.into_iter().for_each(|object| watched.free(object));
        let last = next.join().unwrap();
        watched.free(last);
        watched.slab.trim();
        assert_eq!(watched.slab.stats().live, 0);
    });
}
