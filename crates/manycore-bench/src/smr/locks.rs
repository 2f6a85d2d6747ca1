//! Locks, under which nothing needs to be reclaimed later, and the table of one thread alone.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;

use super::{Counts, Node, Payload, Scheme, SchemeHandle, Setup};

type Plain = Node;
type Table = Box<[Box<Plain>]>;

fn table(setup: Setup) -> Table {
    setup.table(|value, counts| Box::new(Plain::new(value, counts)))
}

/// The baseline: the table lives in its only thread's handle, and an old node is freed at once.
pub(super) struct Unshared(Setup);

/// The thread's table; empty for all but the first thread.
pub(super) struct Own {
    table: Table,
    counts: &'static Counts,
}

impl Scheme for Unshared {
    type Handle<'a> = Own;

    fn new(setup: Setup) -> Self {
        Self(setup)
    }

    fn handle(&self, thread: usize) -> Own {
        let table = if thread == 0 { table(self.0) } else { Box::default() };
        Own { table, counts: self.0.counts }
    }
}

impl SchemeHandle for Own {
    #[inline(always)]
    fn empty(&mut self, slot: usize) {
        black_box(slot);
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        self.table[slot].payload().value()
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = Box::new(Plain::new(value, self.counts));
        drop(std::mem::replace(&mut self.table[slot], new));
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        match self.table.get(slot) {
            Some(node) => inside(node.payload()),
            // The reader that stalls beside the only updater: it has nothing to hold.
            None => inside(Plain::new(super::value_of(slot, 0), self.counts).payload()),
        }
    }
}

/// A lock around the table.
pub(super) struct Locked<L> {
    lock: CachePadded<L>,
    counts: &'static Counts,
}

/// std's mutex.
pub(super) type StdMutex = Locked<Mutex<Table>>;

/// std's read-write lock.
pub(super) type StdRwLock = Locked<RwLock<Table>>;

macro_rules! scheme_under_a_lock {
    ($lock:ident, $read:ident, $write:ident) => {
        impl Scheme for Locked<$lock<Table>> {
            type Handle<'a> = &'a Self;

            fn new(setup: Setup) -> Self {
                Self { lock: CachePadded::new($lock::new(table(setup))), counts: setup.counts }
            }

            fn handle(&self, _: usize) -> &Self {
                self
            }
        }

        impl SchemeHandle for &Locked<$lock<Table>> {
            #[inline]
            fn empty(&mut self, _: usize) {
                drop(self.lock.$read().unwrap_or_else(PoisonError::into_inner));
            }

            #[inline]
            fn read(&mut self, slot: usize) -> u64 {
                let table = self.lock.$read().unwrap_or_else(PoisonError::into_inner);
                table[slot].payload().value()
            }

            #[inline]
            fn update(&mut self, slot: usize, value: u64) {
                let new = Box::new(Plain::new(value, self.counts));
                let mut table = self.lock.$write().unwrap_or_else(PoisonError::into_inner);
                let old = std::mem::replace(&mut table[slot], new);
                // No reader can have it any more: readers hold the lock.
                drop(table);
                drop(old);
            }

            fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
                let table = self.lock.$read().unwrap_or_else(PoisonError::into_inner);
                inside(table[slot].payload());
            }
        }
    };
}

scheme_under_a_lock!(Mutex, lock, lock);
scheme_under_a_lock!(RwLock, read, write);
