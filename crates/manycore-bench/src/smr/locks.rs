//! Locks, under which nothing needs to be reclaimed later, and the table for one thread alone.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;
use manycore::lock::{BrLock, McsLock};

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
pub(super) trait TableLock: Send + Sync + 'static {
    fn new(table: Table) -> Self;
    fn read<R>(&self, f: impl FnOnce(&Table) -> R) -> R;
    fn write<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R;
}

macro_rules! table_lock {
    ($lock:ident, $read:ident, $write:ident $(, $unpoison:ident)?) => {
        impl TableLock for $lock<Table> {
            fn new(table: Table) -> Self {
                Self::new(table)
            }

            #[inline]
            fn read<R>(&self, f: impl FnOnce(&Table) -> R) -> R {
                f(&self.$read()$(.$unpoison(PoisonError::into_inner))?)
            }

            #[inline]
            fn write<R>(&self, f: impl FnOnce(&mut Table) -> R) -> R {
                f(&mut self.$write()$(.$unpoison(PoisonError::into_inner))?)
            }
        }
    };
}

table_lock!(Mutex, lock, lock, unwrap_or_else);
table_lock!(RwLock, read, write, unwrap_or_else);
table_lock!(BrLock, read, write);
table_lock!(McsLock, lock, lock);

/// The table behind a lock.
pub(super) struct Locked<L> {
    lock: CachePadded<L>,
    counts: &'static Counts,
}

/// std's mutex.
pub(super) type StdMutex = Locked<Mutex<Table>>;

/// std's read-write lock.
pub(super) type StdRwLock = Locked<RwLock<Table>>;

/// The library's big-reader lock.
pub(super) type Br = Locked<BrLock<Table>>;

/// The library's queue lock.
pub(super) type Mcs = Locked<McsLock<Table>>;

impl<L: TableLock> Scheme for Locked<L> {
    type Handle<'a> = &'a Self;

    fn new(setup: Setup) -> Self {
        Self { lock: CachePadded::new(L::new(table(setup))), counts: setup.counts }
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl<L: TableLock> SchemeHandle for &Locked<L> {
    #[inline]
    fn empty(&mut self, _: usize) {
        self.lock.read(|_| ());
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        self.lock.read(|table| table[slot].payload().value())
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let new = Box::new(Plain::new(value, self.counts));
        // No reader can have the old one any more: readers hold the lock.
        drop(self.lock.write(|table| std::mem::replace(&mut table[slot], new)));
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        self.lock.read(|table| inside(table[slot].payload()));
    }
}
