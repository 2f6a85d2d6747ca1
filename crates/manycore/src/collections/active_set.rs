//! Active transactions, snapshots or readers, and the oldest of them (low-water mark).
//!
//! Owns: [`ActiveSet`] and its handles. Built on values with marks
//! ([`MemberPool`](crate::collections::member_pool::MemberPool)). Source: LDU, section 2.4, for the
//! lists of active snapshots that databases keep behind a lock.

use crate::collections::member_pool::{FewMembers, Member, MemberStore, Store};
use crate::ldu::Queue;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// Active transactions, snapshots, readers, leases: each with a key, and the smallest key of all
/// at the next query.
///
/// A member that registers and leaves between two queries never reaches the ordered list: it costs
/// two atomic instructions on a line of its own, on whichever threads.
///
/// **Registering and the key.** [`oldest`](Self::oldest) sees registered members. If the key is
/// taken from a counter that other threads advance, register with its value and take the version to
/// work with afterwards; and a cleaner reads the counter first, then the oldest member, and stays
/// below both.
///
/// Not where the oldest is asked for at every registration, and not for a set of which only the
/// size matters (take [`Counter`](super::Counter)). If each thread has at most one member at a
/// time, and a fixed slot for it, an array of padded atomics that the cleaner scans is faster: two
/// threads of an EPYC make 784 million pairs a second with it, 115 million with this set, and 6.5
/// million with a search tree behind a mutex (`manycore bench active-set`).
///
/// ```
/// use manycore::collections::ActiveSet;
///
/// let snapshots = ActiveSet::new();
/// let first = snapshots.register(100_u64);
/// let second = snapshots.register(117);
/// assert_eq!(snapshots.oldest(), Some(100)); // versions below 100 can go
/// first.leave();
/// assert_eq!(snapshots.oldest(), Some(117));
/// drop(second);
/// assert_eq!(snapshots.oldest(), None);
/// ```
///
/// - Consistency: linearizable.
/// - Progress: registering and leaving do not wait, unless the set is small still (below): then for
///   its lock, under which no code of the user's runs. Nor if it is large, unless a queue is far
///   over its bound (16,384 changes that a running query keeps from being drained): then for that
///   query. Queries wait for each other.
/// - Cost: of registering and leaving, see [`DeferredSet`](crate::ldu::DeferredSet); no allocation
///   in a steady state. Of a query: the lock, a visit of each member that changed since, and a
///   search tree's insertion or removal for each that did not cancel itself.
/// - Memory: 128 bytes for a set, a key and 32 bytes for each member, and a tree of the keys that
///   were present at the last query. A set stays that small while one thread uses it now and then.
///   When threads meet at its lock, or it changes a hundred thousand times a second, it becomes
///   large, for good: 1.7 KiB, and for every 32 threads of the process 8 KiB and up to 64 free
///   members each. (With keys other than integers, so does a query that finds a member: their code
///   runs there.)
/// - Panics: in the key's `Ord`, `Clone` or `Drop`, in the querying thread, because they run under
///   the set's lock there (they must not use the set); it is of no use then. So it is if `Ord`
///   contradicts itself. The `Drop` of a registered key itself runs in the caller's hands.
/// - A forgotten handle stays active for as long as the set lives.
#[doc(alias = "low-water mark")]
#[doc(alias = "snapshot")]
pub struct ActiveSet<K: Ord + Clone + Send + Sync + 'static> {
    members: FewMembers<K, Keys<K>>,
}

/// How many members have each key.
struct Keys<K>(BTreeMap<K, usize>);

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> MemberStore<K> for Keys<K> {
    unsafe fn insert(&mut self, node: NonNull<Member<K>>) {
        // SAFETY: member_pool.N1 - the caller promises that the node has a value
        // (`MemberStore::insert`).
        let key = unsafe { Member::value(node) };
        match self.0.get_mut(key) {
            Some(count) => *count += 1,
            None => {
                self.0.insert(key.clone(), 1);
            }
        }
    }

    unsafe fn remove(&mut self, node: NonNull<Member<K>>) {
        // SAFETY: member_pool.N1 - the caller promises that the node has a value until this returns
        // (`MemberStore::remove`).
        let key = unsafe { Member::value(node) };
        let count = self.0.get_mut(key).expect("manycore: a key's Ord contradicts itself");
        if *count > 1 {
            *count -= 1;
        } else {
            self.0.remove(key);
        }
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Store<K> for Keys<K> {
    fn runs_users_code(&self, untold: usize) -> bool {
        !is_integer::<K>() && (untold > 0 || !self.0.is_empty())
    }
}

/// Whether `Ord`, `Clone` and `Drop` are the compiler's.
fn is_integer<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    let integers = [
        TypeId::of::<u64>(),
        TypeId::of::<u32>(),
        TypeId::of::<u128>(),
        TypeId::of::<usize>(),
        TypeId::of::<i64>(),
        TypeId::of::<i32>(),
        TypeId::of::<i128>(),
        TypeId::of::<isize>(),
    ];
    integers.contains(&key)
}

impl<K: Ord + Clone + Send + Sync + 'static> ActiveSet<K> {
    /// An empty set, with a queue for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_queue(Queue::PerThread)
    }

    /// An empty set. With [`Queue::Global`] it takes less memory.
    #[must_use]
    pub fn with_queue(queue: Queue) -> Self {
        Self { members: FewMembers::new(queue) }
    }

    /// Becomes active with this key until the handle is dropped. Keys need not differ.
    #[inline]
    pub fn register(&self, key: K) -> Active<'_, K> {
        Active { key: self.members.enter(key), set: self }
    }

    /// The smallest key that is active now.
    ///
    /// # Panics
    /// If comparing keys does.
    #[must_use]
    pub fn oldest(&self) -> Option<K> {
        self.members.read(|keys| keys.0.first_key_value().map(|(key, _)| key.clone()))
    }

    /// All keys that are active now, smallest first, each as often as it is.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn snapshot(&self) -> Vec<K> {
        let all = |(key, count): (&K, &usize)| vec![key.clone(); *count];
        self.members.read(|keys| keys.0.iter().flat_map(all).collect())
    }

    /// How many are active now. As [`oldest`](Self::oldest), so not for hot paths.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.read(|keys| keys.0.values().sum())
    }

    /// Whether no member is active now.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Default for ActiveSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> fmt::Debug for ActiveSet<K> {
    /// Prints no keys: that would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveSet").finish_non_exhaustive()
    }
}

/// Active for as long as this lives. Gives access to the key, and may be dropped on any thread.
///
/// See [`ActiveSet`] for an example.
#[must_use = "dropping the handle leaves the set"]
pub struct Active<'a, K: Ord + Clone + Send + Sync + 'static> {
    key: NonNull<K>,
    set: &'a ActiveSet<K>,
}

// SAFETY: a handle gives shared access to the key (`K: Sync`), and dropping it can drop the key on
// that thread (`K: Send`). The set may be used from any thread.
unsafe impl<K: Ord + Clone + Send + Sync + 'static> Send for Active<'_, K> {}
// SAFETY: a shared handle gives out `&K` alone (`K: Sync`); leaving the set takes the handle
// itself.
unsafe impl<K: Ord + Clone + Send + Sync + 'static> Sync for Active<'_, K> {}

impl<K: Ord + Clone + Send + Sync + 'static> Active<'_, K> {
    /// Leaves the set: the same as dropping the handle.
    #[inline]
    pub fn leave(self) {
        drop(self);
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Deref for Active<'_, K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        // SAFETY: member_pool.N1 - the key is there until its owner leaves.
        unsafe { self.key.as_ref() }
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Drop for Active<'_, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the key came from `enter`, and its handle is dropped once.
        unsafe { self.set.members.leave(self.key) };
    }
}

impl<K: Ord + Clone + Send + Sync + fmt::Debug + 'static> fmt::Debug for Active<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Active").field(&**self).finish()
    }
}
