//! Locks on nodes: law section.S7, the paper's sections 2.2 and 3.5.

use super::guard::Section;
use super::pointer::{Pointable, Shared};
use crate::lock::{self, HOT, Refused};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{AtomicUsize, Ordering, const_fn};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// Value of the word once the node is freed. The lock module takes it for "no lock any more" and
/// turns lockers away.
const FREED: usize = HOT;

/// A lock inside a node that other threads may free: taking the lock fails once the node was freed.
///
/// What for: a thread finds a node without a lock, inside a section, and then changes or removes it
/// under the node's own lock. A thread that comes too late gets `None` and looks up again. When
/// not: if readers need several fields to be consistent, they must take the lock, too, or the node
/// must be replaced instead of changed.
///
/// Consistency: at most one thread holds the lock, and none after the node was freed. Progress:
/// blocking (spins for a while, then sleeps). Cost: one RMW on the node's own line each way.
/// Memory: one word. It does not nest: a thread that takes it twice panics. It is never poisoned: a
/// panic releases it.
///
/// Source: the paper's `ps_lock_take`, `ps_lock_release` and `ps_lock_release_free`.
///
/// ```
/// use manycore::section::{Atomic, Domain, NodeLock, Shared};
///
/// struct Account { lock: NodeLock, name: &'static str }
///
/// let domain = Domain::new();
/// let slot = Atomic::new(Account { lock: NodeLock::new(), name: "ann" });
/// let section = domain.enter();
/// let found = slot.load(&section);
/// let account = found.as_ref().unwrap();
///
/// let guard = account.lock.lock(&section).expect("not freed");
/// let unlinked = slot.swap(Shared::null(), &section);
/// // SAFETY: unlinked just now, under its lock; it has no links.
/// unsafe { guard.retire(unlinked, &section) };
///
/// assert!(account.lock.lock(&section).is_none(), "{} is closed", account.name);
/// ```
pub struct NodeLock {
    word: AtomicUsize,
}

/// The guard of a held lock; dropping it releases the lock.
///
/// See [`NodeLock`] for an example.
#[must_use = "the lock is released when the guard is dropped"]
pub struct NodeGuard<'s> {
    lock: &'s NodeLock,
    /// Not Send: the word names the thread.
    _thread: PhantomData<*mut ()>,
}

impl NodeLock {
    const_fn! {
        /// Makes a free lock, for a node that is not freed.
        pub const fn new() -> Self {
            Self { word: AtomicUsize::new(0) }
        }
    }

    /// Takes the lock, waiting if need be. Returns `None` if the node has been freed.
    ///
    /// # Panics
    /// If the calling thread holds the lock already.
    #[inline]
    #[track_caller]
    pub fn lock<'s>(&'s self, _section: &'s Section<'_>) -> Option<NodeGuard<'s>> {
        self.guarded(
            lock::lock(&self.word, thread_token(), Of::new("NodeLock", self), None)
                .map(|_waited| ()),
        )
    }

    /// Takes the lock if it is free and the node has not been freed.
    ///
    /// # Errors
    /// [`TryLockError::Busy`] if the lock is held, and [`TryLockError::Freed`] if the node has been
    /// freed.
    #[inline]
    pub fn try_lock<'s>(
        &'s self,
        _section: &'s Section<'_>,
    ) -> Result<NodeGuard<'s>, TryLockError> {
        match lock::try_lock(&self.word, thread_token()) {
            Err(Refused::Busy | Refused::HeldBySelf | Refused::Deadlock) => Err(TryLockError::Busy),
            other => self.guarded(other).ok_or(TryLockError::Freed),
        }
    }

    fn guarded(&self, taken: Result<(), Refused>) -> Option<NodeGuard<'_>> {
        match taken {
            Ok(()) => Some(NodeGuard { lock: self, _thread: PhantomData }),
            Err(Refused::Hot) => None,
            Err(Refused::Busy | Refused::HeldBySelf | Refused::Deadlock) => {
                panic!("manycore: this thread holds the lock of the node already")
            }
        }
    }

    /// Returns true if the node has been freed. If false, the node may be freed by the time the
    /// caller looks.
    pub fn is_freed(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `lock::unlock`: what was done before it was freed.
        self.word.load(Ordering::Acquire) & FREED != 0
    }
}

/// Why [`NodeLock::try_lock`] did not take the lock.
///
/// ```
/// use manycore::section::{self, NodeLock, TryLockError};
///
/// let lock = NodeLock::new();
/// let section = section::enter();
/// let guard = lock.try_lock(&section).unwrap();
/// assert_eq!(lock.try_lock(&section).err(), Some(TryLockError::Busy));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is held.
    Busy,
    /// The node has been freed.
    Freed,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the node's lock is held",
            Self::Freed => "the node has been freed",
        })
    }
}

impl std::error::Error for TryLockError {}

impl NodeGuard<'_> {
    /// Releases the lock and, in the same step, declares the node freed. Threads that wait for the
    /// lock, or come later, are refused. The caller has unlinked the node, or is about to, and then
    /// retires it.
    pub fn release_freed(self) {
        let guard = ManuallyDrop::new(self);
        // SAFETY: the guard holds the lock, is not dropped, and borrows the node's memory.
        unsafe { lock::unlock(&raw const guard.lock.word, FREED) };
    }

    /// Does [`release_freed`](Self::release_freed), and retires the node.
    ///
    /// # Panics
    /// In a debug build, if `node` is not the node that contains this lock.
    ///
    /// # Safety
    /// As for [`Section::retire`].
    pub unsafe fn retire<T: ?Sized + Pointable>(self, node: Shared<'_, T>, section: &Section<'_>) {
        debug_assert!(
            node.spans((&raw const *self.lock).addr()),
            "manycore: the node to be retired is not the one whose lock is held"
        );
        self.release_freed();
        // SAFETY: the caller promises what `Section::retire` asks for: an unlinked node of this
        // domain that is retired once (# Safety).
        unsafe { section.retire(node) };
    }
}

impl Drop for NodeGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock and borrows the node's memory.
        unsafe { lock::unlock(&raw const self.lock.word, 0) };
    }
}

impl Drop for NodeLock {
    /// # Panics
    /// In a debug build, if the lock is held: a node was freed without its lock being released.
    fn drop(&mut self) {
        debug_assert!(
            crate::sync::panicking()
                // ORDER: Relaxed; `&mut self` proves that all threads are done.
                || self.word.load(Ordering::Relaxed) & lock::LOCKED == 0,
            "manycore: a node was freed while its lock was held; use `NodeGuard::retire`"
        );
    }
}

impl Default for NodeLock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for NodeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLock").field("is_freed", &self.is_freed()).finish_non_exhaustive()
    }
}

impl fmt::Debug for NodeGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeGuard")
    }
}
