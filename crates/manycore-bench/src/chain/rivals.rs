//! Chains as they are commonly built: trees behind one lock, or each behind its own lock.

use std::{
    cell::UnsafeCell,
    collections::BTreeSet,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;

use super::Chains;

/// The processes in one set.
pub(super) type Tree = BTreeSet<u32>;

/// What locks go around.
pub(super) trait Value: Send + Sync + 'static {}
impl<T: Send + Sync + 'static> Value for T {}

/// A lock around something.
pub(super) trait Lock: 'static {
    type Around<T: Value>: Sync + Send + 'static;
    fn around<T: Value>(value: T) -> Self::Around<T>;
    fn write<T: Value, R>(lock: &Self::Around<T>, f: impl FnOnce(&mut T) -> R) -> R;
    fn read<T: Value, R>(lock: &Self::Around<T>, f: impl FnOnce(&T) -> R) -> R;
}

/// The standard library's lock for readers and writers.
pub(super) struct StdRwLock;

impl Lock for StdRwLock {
    type Around<T: Value> = RwLock<T>;

    fn around<T: Value>(value: T) -> RwLock<T> {
        RwLock::new(value)
    }

    fn write<T: Value, R>(lock: &RwLock<T>, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T: Value, R>(lock: &RwLock<T>, f: impl FnOnce(&T) -> R) -> R {
        f(&lock.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The standard library's lock.
pub(super) struct StdMutex;

impl Lock for StdMutex {
    type Around<T: Value> = Mutex<T>;

    fn around<T: Value>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn write<T: Value, R>(lock: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T: Value, R>(lock: &Mutex<T>, f: impl FnOnce(&T) -> R) -> R {
        f(&lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// parking_lot's lock for readers and writers.
pub(super) struct ParkingLot;

impl Lock for ParkingLot {
    type Around<T: Value> = parking_lot::RwLock<T>;

    fn around<T: Value>(value: T) -> parking_lot::RwLock<T> {
        parking_lot::RwLock::new(value)
    }

    fn write<T: Value, R>(lock: &Self::Around<T>, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock.write())
    }

    fn read<T: Value, R>(lock: &Self::Around<T>, f: impl FnOnce(&T) -> R) -> R {
        f(&lock.read())
    }
}

/// A tree that its family's lock guards.
#[derive(Default)]
pub(super) struct Guarded(UnsafeCell<Tree>);

// SAFETY: the tree is reached under the lock of its family alone.
unsafe impl Sync for Guarded {}

/// One lock for all sets, the root's.
pub(super) struct RootLocked<L: Lock> {
    lock: CachePadded<L::Around<()>>,
    root: CachePadded<Guarded>,
}

impl<L: Lock> RootLocked<L> {
    fn write(&self, set: Option<&Guarded>, f: impl FnOnce(&mut Tree) -> bool) {
        let tree = set.unwrap_or(&self.root);
        // SAFETY: the lock is held alone.
        let changed = L::write(&self.lock, |()| f(unsafe { &mut *tree.0.get() }));
        debug_assert!(changed, "links come and go in turns");
    }
}

impl<L: Lock> Chains for RootLocked<L> {
    type Set<'a> = Guarded;
    type Link<'a> = u32;
    type Own<'a> = ();

    fn new() -> Self {
        Self { lock: CachePadded::new(L::around(())), root: CachePadded::default() }
    }

    fn own(&self) {}

    fn set(&self) -> Guarded {
        Guarded::default()
    }

    fn link(&self, (): &mut (), set: Option<&Guarded>, process: u32) -> u32 {
        self.write(set, |tree| tree.insert(process));
        process
    }

    fn unlink(&self, (): &mut (), set: Option<&Guarded>, process: u32) {
        self.write(set, |tree| tree.remove(&process));
    }

    fn for_each(&self, set: Option<&Guarded>, f: impl FnMut(u32)) {
        let tree = set.unwrap_or(&self.root);
        // SAFETY: the lock is held, and its shared holders do not change the tree.
        L::read(&self.lock, |()| unsafe { &*tree.0.get() }.iter().copied().for_each(f));
    }
}

/// A lock for each set.
pub(super) struct EachLocked<L: Lock>(CachePadded<L::Around<Tree>>);

impl<L: Lock> Chains for EachLocked<L> {
    type Set<'a> = L::Around<Tree>;
    type Link<'a> = u32;
    type Own<'a> = ();

    fn new() -> Self {
        Self(CachePadded::new(L::around(Tree::new())))
    }

    fn own(&self) {}

    fn set(&self) -> L::Around<Tree> {
        L::around(Tree::new())
    }

    fn link(&self, (): &mut (), set: Option<&L::Around<Tree>>, process: u32) -> u32 {
        L::write(set.unwrap_or(&self.0), |tree| tree.insert(process));
        process
    }

    fn unlink(&self, (): &mut (), set: Option<&L::Around<Tree>>, process: u32) {
        L::write(set.unwrap_or(&self.0), |tree| tree.remove(&process));
    }

    fn for_each(&self, set: Option<&L::Around<Tree>>, f: impl FnMut(u32)) {
        L::read(set.unwrap_or(&self.0), |tree| tree.iter().copied().for_each(f));
    }
}
