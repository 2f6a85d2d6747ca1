//! The form with logs: items are counted references, in logs that cancel.
//!
//! Owns: [`Logged`].
//! - **logged.I3** Each user of an interval, the log or the tree, has a reference to its
//!   item, and so has the handle. `Leave` has only the address. So an address is in use for as long
//!   as a log or the tree knows it.
//! - **logged.I4** The handle gives its reference up after `Leave` is logged, outside of
//!   every lock. The handle or the merge gives up the last reference, by one atomic decision, and
//!   drops the item. A merge does not drop it itself, but puts it into the deferred drops.

use super::Item;
use super::tree::{Panics, Ranged, Tree};
use crate::collections::{deferred_drops::DeferredDrops, guarded};
use crate::oplog::{BuildError, Cancel, Cancelling, Deferred, Logs, Op};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

enum Change<K, V> {
    Enter(Arc<Item<K, V>>),
    /// Without the start if the key's `Clone` panicked.
    Leave {
        id: usize,
        start: Option<K>,
    },
}

impl<K, V> Ranged<K> for Arc<Item<K, V>> {
    fn range(&self) -> &Range<K> {
        &self.range
    }
}

struct Intervals<K, V> {
    tree: Tree<K, Arc<Item<K, V>>>,
    deferred_drops: Arc<DeferredDrops<Item<K, V>>>,
}

impl<K: Ord + Clone, V> Op<Intervals<K, V>> for Change<K, V> {
    fn apply(self, intervals: &mut Intervals<K, V>) {
        match self {
            Self::Enter(item) => {
                let id = Arc::as_ptr(&item) as usize;
                intervals.tree.insert(id, item);
            }
            Self::Leave { id, start } => {
                let item = intervals.tree.remove(start.as_ref(), id);
                // interval_registry_tree.T4
                let item = item.expect("logged.I3: the tree has what was added");
                // logged.I4. (While the object is cold, the handle is there still.)
                if let Some(item) = Arc::into_inner(item) {
                    intervals.deferred_drops.lock().push(item);
                    intervals.deferred_drops.note(true);
                }
            }
        }
    }
}

impl<K, V> Cancel for Change<K, V> {
    type Key = usize;

    #[inline]
    fn key(&self) -> usize {
        match self {
            Self::Enter(item) => Arc::as_ptr(item) as usize,
            Self::Leave { id, .. } => *id,
        }
    }

    #[inline]
    fn inserts(&self) -> bool {
        matches!(self, Self::Enter(_))
    }
}

type Object<K, V> = Deferred<Intervals<K, V>, Cancelling<Change<K, V>>>;

pub(super) struct Logged<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> {
    object: Object<K, V>,
    deferred_drops: Arc<DeferredDrops<Item<K, V>>>,
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Logged<K, V> {
    pub(super) fn new(logs: Logs, max_entries: usize, panics: Panics) -> Result<Self, BuildError> {
        let deferred_drops = Arc::new(DeferredDrops::new());
        let intervals =
            Intervals { tree: Tree::new(panics), deferred_drops: Arc::clone(&deferred_drops) };
        let object = Object::builder().logs(logs).max_entries(max_entries).build(intervals)?;
        Ok(Self { object, deferred_drops })
    }

    pub(super) fn enter(&self, item: Item<K, V>) -> NonNull<Item<K, V>> {
        let item = Arc::new(item);
        self.object.append(Change::Enter(Arc::clone(&item)));
        self.deferred_drops.sweep();
        // SAFETY: an `Arc`'s pointer is not null.
        unsafe { NonNull::new_unchecked(Arc::into_raw(item).cast_mut()) }
    }

    /// # Safety
    /// `item` came from `enter`, this is called once for it, and it is not used afterwards.
    pub(super) unsafe fn leave(&self, item: NonNull<Item<K, V>>) {
        // SAFETY: the caller promises that `item` came from `enter`, which kept a reference of the
        // `Arc` for the handle, and that it gives this reference up once.
        let item = unsafe { Arc::from_raw(item.as_ptr()) };
        let id = Arc::as_ptr(&item) as usize;
        let start = catch_unwind(AssertUnwindSafe(|| item.range.start.clone()));
        let (start, panic) = match start {
            Ok(start) => (Some(start), None),
            Err(panic) => (None, Some(panic)),
        };
        self.object.append(Change::Leave { id, start });
        drop(item);
        self.deferred_drops.sweep();
        if let Some(panic) = panic {
            resume_unwind(panic); // the interval has gone all the same
        }
    }

    pub(super) fn read<R>(&self, f: impl FnOnce(&Tree<K, Arc<Item<K, V>>>) -> R) -> R {
        // interval_registry.I2
        guarded(
            || self.object.read(),
            |intervals| f(&intervals.tree),
            || self.deferred_drops.sweep_for_reader(),
        )
    }
}
