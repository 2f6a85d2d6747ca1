//! Active transactions, snapshots or readers, and the oldest of them (low-water mark).
//!
//! Owns: [`ActiveSet`] and its handles. Built on values with marks
//! ([`MemberPool`](crate::collections::member_pool::MemberPool)). Keys that are integers of up to
//! 64 bits have places in front of the pool (`board`). Source: LDU, section 2.4, for the lists of
//! active snapshots that databases keep behind a lock.

mod board;
#[cfg(all(test, manycore_loom))]
mod loom_tests;

use crate::collections::integer::{from_word, has_word, is_integer, to_word};
use crate::collections::member_pool::{FewMembers, Many, Member, MemberStore, Store};
use crate::collections::owned::{Kept, Owner};
use crate::ldu::Queue;
use crate::percpu;
use board::{Board, Taken};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A set of active transactions, snapshots, readers or leases, each with a key. A query returns the
/// smallest key.
///
/// A member that registers and leaves between two queries costs two atomic instructions on a line
/// of its thread's own, even if it leaves on another thread. Keys that are integers of up to 64
/// bits have ten places for each thread, which [`oldest`](Self::oldest) only loads. Other keys, and
/// members that find no place, wait in queues and reach an ordered list at the next query.
///
/// **Registering and the key.** [`oldest`](Self::oldest) sees registered members. If the key comes
/// from a counter that other threads advance, register with its value first, and take the version
/// to work with afterwards. A cleaner reads the counter first, then the oldest member, and stays
/// below both.
///
/// When not: if only the size of the set matters, take [`Counter`](super::Counter). Nor with keys
/// other than integers if the oldest is queried at every registration. If each thread has at most
/// one member at a time, and a fixed slot for it, an array of padded atomics that the cleaner scans
/// is faster. Leaving need not be a full fence there. (`manycore-bench bench active-set` measures
/// both, and a search tree behind a mutex.)
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
/// - Progress, small set: registering and leaving wait for the set's lock, under which no user code
///   runs.
/// - Progress, large set: they do not wait, unless a queue is far over its bound (16,384 changes
///   that a running query keeps from being drained). Then they wait for that query.
/// - Progress of queries: they wait for each other. `oldest` does not wait if all members have
///   places and it can load all places twice in the same state (it tries four times).
/// - Cost of a place: one atomic instruction to take it and one to leave it. Without a place, see
///   [`DeferredSet`](crate::ldu::DeferredSet). No allocation in a steady state.
/// - Cost of `oldest`: if all members have places, two loads of a line for each thread that ever
///   registered. In a small set, the lock and a look at the new members, if at most eight have come
///   since the last query and none that it saw has gone.
/// - Cost of other queries: the lock, a load of these lines, and a visit of each other member that
///   changed since. Each of those that did not cancel itself costs an insertion or removal in a
///   search tree.
/// - Memory: 128 bytes for a set, a key and 32 bytes for each member, and a tree of the keys that
///   were present at the last query. A set stays that small, with up to 64 free members, until
///   threads meet at its lock. Then it becomes large, for good: 2 KiB, and for every 32 threads of
///   the process 8 KiB of places. Once a member finds no place, 8 KiB more and up to 64 free
///   members each. (With keys other than integers, a query that finds a member also makes the set
///   large: it runs the keys' code.)
/// - Panics: in the key's `Ord`, `Clone` or `Drop`, in the querying thread: a query runs them under
///   the set's lock, and they must not use the set. The set is of no use afterwards. The same goes
///   for an `Ord` that contradicts itself. The `Drop` of a registered key itself runs in the
///   caller's hands.
/// - A forgotten handle stays active for as long as the set lives.
#[doc(alias = "low-water mark")]
#[doc(alias = "snapshot")]
pub struct ActiveSet<K: Ord + Clone + Send + Sync + 'static> {
    members: FewMembers<K, Keys<K>>,
}

/// Number of members that have each key.
struct Keys<K>(BTreeMap<K, usize>);

impl<K: Ord + Clone> Keys<K> {
    #[inline(always)]
    fn first(&self) -> Option<K> {
        self.0.first_key_value().map(|(key, _)| key.clone())
    }
}

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

    /// Used only for keys that have a word.
    type Beside = Board;
}

impl<K: Ord + Clone + Send + Sync + 'static> ActiveSet<K> {
    /// Makes an empty set, with a queue for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with_queue(Queue::PerThread)
    }

    /// Makes an empty set. With [`Queue::Global`] it takes less memory.
    #[must_use]
    pub fn with_queue(queue: Queue) -> Self {
        Self { members: FewMembers::new(queue) }
    }

    /// Registers a member with this key, which is active until the handle is dropped. Keys need not
    /// differ.
    ///
    /// The handle borrows the set. If it must not, because a struct is to hold it, use
    /// [`register_owned`](Self::register_owned).
    #[inline]
    pub fn register(&self, key: K) -> Active<'_, K> {
        let word = to_word(&key);
        if let Some((many, word)) = self.members.many().zip(word) {
            let Many { pool, beside: board } = many;
            let taken = percpu::with_own_slot(|slot| board.enter(slot, word, pool.epoch()));
            let held = match taken {
                Some(place) => Held::Placed(place, key),
                None => Held::Member(enter_pool(many, key)),
            };
            return Active { held, set: self };
        }
        let key = self.members.enter(key);
        if let Some(many) = self.members.many().filter(|_| word.is_some()) {
            many.beside.block(); // the set has just become large
        }
        Active { held: Held::Member(key), set: self }
    }

    /// Same as [`register`](Self::register), with a handle that keeps the set alive. [`Owner`] says
    /// what it costs.
    #[inline]
    pub fn register_owned<S: Owner<Target = Self>>(set: &S, key: K) -> OwnedActive<K, S> {
        OwnedActive { kept: Kept::new(set, |set| set.register(key)) }
    }

    /// Reads all keys at one moment. Calls `of` with the keys of the pool, or of the small form;
    /// then `with` with the result of `of` and each key that has a place. `of` runs the keys' code.
    fn read<R>(&self, of: impl FnOnce(&Keys<K>) -> R, mut with: impl FnMut(&mut R, K)) -> R {
        let (of, many) = match self.members.read_few(of) {
            Ok(result) => return result,
            Err((of, many)) if !has_word::<K>() => return many.pool.read(of),
            Err(large) => large,
        };
        let Many { pool, beside: board } = many;
        pool.read_cut(
            || board.block(),
            |keys, cut| {
                let mut result = of(keys);
                board.each_at(cut, |word| with(&mut result, from_word(word)));
                board.admit(|| keys.0.is_empty() && pool.is_current());
                result
            },
        )
    }

    /// Returns the smallest key that is active now.
    ///
    /// # Panics
    /// If comparing keys does.
    #[must_use]
    pub fn oldest(&self) -> Option<K> {
        let glanced = self.members.glance(Keys::first, |oldest: &mut Option<K>, key| {
            if oldest.as_ref().is_none_or(|oldest| key < oldest) {
                *oldest = Some(key.clone());
            }
        });
        match glanced {
            Ok(oldest) => oldest,
            Err(many) => oldest_of_many(many),
        }
    }

    /// Returns all keys that are active now, smallest first, each once for each member that has it.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn snapshot(&self) -> Vec<K> {
        let all = |(key, count): (&K, &usize)| vec![key.clone(); *count];
        let in_pool = |keys: &Keys<K>| keys.0.iter().flat_map(all).collect();
        let mut keys: Vec<K> = self.read(in_pool, |keys: &mut Vec<K>, key| keys.push(key));
        if has_word::<K>() {
            keys.sort_unstable();
        }
        keys
    }

    /// Returns the number of active members. Always takes the set's lock, so not for hot paths.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn len(&self) -> usize {
        self.read(|keys| keys.0.values().sum(), |count: &mut usize, _| *count += 1)
    }

    /// Returns true if no member is active now.
    ///
    /// # Panics
    /// As [`oldest`](Self::oldest).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Adds a key for which there is no place to the pool.
fn enter_pool<K: Ord + Clone + Send + Sync + 'static>(
    many: &Many<K, Keys<K>>,
    key: K,
) -> NonNull<K> {
    let key = many.pool.enter(key);
    many.beside.block(); // board.B4: before the registration returns
    key
}

/// Implements [`ActiveSet::oldest`] for the large form.
#[inline(never)]
fn oldest_of_many<K: Ord + Clone + Send + Sync + 'static>(many: &Many<K, Keys<K>>) -> Option<K> {
    if !has_word::<K>() {
        return many.pool.read(Keys::first);
    }
    match many.beside.scan() {
        Some(oldest) => oldest.map(from_word),
        None => oldest_at_a_cut(many).map(from_word),
    }
}

/// Returns the oldest key at a cut, made by this reader or by a reader that it waited for.
#[cold]
fn oldest_at_a_cut<K: Ord + Clone + Send + Sync + 'static>(many: &Many<K, Keys<K>>) -> Option<u64> {
    let Many { pool, beside: board } = many;
    // If a cut missed a change that returned before this call, a full fence has passed since. So
    // this is larger than that cut's number (ldu.U6), and the cut's result is not taken.
    let epoch = pool.epoch();
    let make = |keys: &mut Keys<K>, cut: u64| {
        let mut oldest = keys.first().and_then(|key| to_word(&key));
        board.each_at(cut, |key| oldest = Some(oldest.map_or(key, |oldest| oldest.min(key))));
        board.note_oldest(cut, oldest);
        board.admit(|| keys.0.is_empty() && pool.is_current());
    };
    loop {
        // The round that this reader waited for may have been a change's, which notes no oldest.
        let known = pool.share_cut(|| board.block(), make, || board.oldest_since(epoch));
        if let Some(oldest) = known {
            return oldest;
        }
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

/// A handle: its member is active for as long as this lives. Gives access to the key, and may be
/// dropped on any thread.
///
/// See [`ActiveSet`] for an example.
#[must_use = "dropping the handle leaves the set"]
pub struct Active<'a, K: Ord + Clone + Send + Sync + 'static> {
    held: Held<'a, K>,
    set: &'a ActiveSet<K>,
}

/// Where a registration is.
enum Held<'a, K> {
    /// In the pool or the small form.
    Member(NonNull<K>),
    /// In a place, which has the key's word. The set is large.
    Placed(Taken<'a>, K),
}

// SAFETY: a handle gives shared access to the key (`K: Sync`), and dropping it can drop the key on
// that thread (`K: Send`). The set may be used from any thread.
unsafe impl<K: Ord + Clone + Send + Sync + 'static> Send for Active<'_, K> {}
// SAFETY: a shared handle gives out `&K` alone (`K: Sync`); leaving the set takes the handle
// itself.
unsafe impl<K: Ord + Clone + Send + Sync + 'static> Sync for Active<'_, K> {}

impl<K: Ord + Clone + Send + Sync + 'static> Active<'_, K> {
    /// Leaves the set, as dropping the handle does.
    #[inline]
    pub fn leave(self) {
        drop(self);
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Deref for Active<'_, K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        match &self.held {
            // SAFETY: member_pool.N1 - the key is there until its owner leaves.
            Held::Member(key) => unsafe { key.as_ref() },
            Held::Placed(_, key) => key,
        }
    }
}

impl<K: Ord + Clone + Send + Sync + 'static> Drop for Active<'_, K> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            // SAFETY: the key came from `enter`, and its handle is dropped once.
            Held::Member(key) => unsafe { self.set.members.leave(*key) },
            Held::Placed(place, _) => {
                let many = self.set.members.many().expect("a place is of the large form");
                place.leave(many.pool.epoch());
            }
        }
    }
}

impl<K: Ord + Clone + Send + Sync + fmt::Debug + 'static> fmt::Debug for Active<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Active").field(&**self).finish()
    }
}

/// Same as [`Active`], without borrowing the set; see [`ActiveSet::register_owned`].
///
/// ```
/// use manycore::collections::{ActiveSet, OwnedActive};
/// use std::sync::Arc;
///
/// struct Transaction {
///     snapshot: OwnedActive<u64>,
/// }
///
/// let snapshots = Arc::new(ActiveSet::new());
/// let transaction = Transaction { snapshot: ActiveSet::register_owned(&snapshots, 100) };
/// assert_eq!(*transaction.snapshot, 100);
/// assert_eq!(snapshots.oldest(), Some(100));
/// drop(transaction);
/// assert_eq!(snapshots.oldest(), None);
/// ```
#[must_use = "dropping the handle leaves the set"]
pub struct OwnedActive<
    K: Ord + Clone + Send + Sync + 'static,
    S: Owner<Target = ActiveSet<K>> = Arc<ActiveSet<K>>,
> {
    kept: Kept<Active<'static, K>, S>,
}

impl<K: Ord + Clone + Send + Sync + 'static, S: Owner<Target = ActiveSet<K>>> OwnedActive<K, S> {
    /// Returns the set.
    #[must_use]
    pub fn set(&self) -> &S {
        &self.kept.owner
    }

    /// Leaves the set, as dropping the handle does.
    pub fn leave(self) {
        drop(self);
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, S: Owner<Target = ActiveSet<K>>> Deref
    for OwnedActive<K, S>
{
    type Target = K;

    fn deref(&self) -> &K {
        &self.kept.handle
    }
}

impl<K, S: Owner<Target = ActiveSet<K>>> fmt::Debug for OwnedActive<K, S>
where
    K: Ord + Clone + Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedActive").field(&**self).finish()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    fn large<K: Ord + Clone + Send + Sync + 'static>() -> ActiveSet<K> {
        ActiveSet { members: ActiveSet::new().members.promoted() }
    }

    /// Returns true if `oldest` finds all members in places.
    fn is_scanned<K: Ord + Clone + Send + Sync + 'static>(set: &ActiveSet<K>) -> bool {
        set.members.many().is_some_and(|many| many.beside.scan().is_some())
    }

    #[test]
    fn members_without_a_place_are_found_and_scans_come_back_after_them() {
        let set = large();
        assert_eq!((set.oldest(), is_scanned(&set)), (None, true));
        let mut members: Vec<_> = (10..30).rev().map(|key| set.register(key)).collect();
        let placed = |active: &&Active<'_, i64>| matches!(active.held, Held::Placed(..));
        let in_places = members.iter().filter(placed).count();
        assert!(in_places > 0 && in_places < members.len(), "{in_places} have places");
        assert_eq!((set.oldest(), set.len(), is_scanned(&set)), (Some(10), 20, false));
        assert!(set.snapshot().into_iter().eq(10..30));
        members.truncate(in_places);
        for round in 0.. {
            assert_eq!(set.oldest(), Some(30 - in_places as i64));
            if is_scanned(&set) {
                break;
            }
            assert!(round < 100, "the pool is empty, and the lock is taken for each read");
        }
        members.pop();
        let negative = set.register(-1);
        assert_eq!((set.oldest(), *negative), (Some(-1), -1));
        drop(members);
        assert_eq!(set.snapshot(), [-1]);
    }

    #[test]
    fn place_is_taken_again_unless_a_cut_may_want_its_key() {
        let set = large();
        set.register(1_u64).leave();
        let kept = set.register(7);
        for round in 0..100 {
            let other = set.register(round);
            assert!(matches!(other.held, Held::Placed(..)), "round {round}");
            assert_eq!(set.len(), 2); // a cut: the key of `other` is wanted until the next one
            drop(other);
            assert_eq!(set.oldest(), Some(7));
        }
        drop(kept);
        assert!(set.is_empty());
    }

    /// Members come and go in any order, and the oldest is queried: with no members, with few that
    /// the tree does not know yet, and with many.
    #[test]
    fn oldest_of_a_small_set_is_that_of_a_list() {
        let set = ActiveSet::new();
        let mut members: Vec<Active<'_, u64>> = Vec::new();
        let mut random = 0x9E37_79B9_u32;
        for step in 0..if cfg!(miri) { 300 } else { 50_000 } {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let most = if step / 100 % 2 == 0 { 4 } else { 24 };
            match random >> 29 {
                0..=3 if members.len() < most => members.push(set.register((random >> 8).into())),
                4 => assert_eq!(set.len(), members.len()),
                _ if members.is_empty() => {}
                _ => drop(members.swap_remove((random >> 8) as usize % members.len())),
            }
            if random >> 28 & 1 == 0 {
                assert_eq!(set.oldest(), members.iter().map(|member| **member).min());
            }
        }
        assert!(set.members.many().is_none());
    }

    #[test]
    fn other_keys_have_no_places() {
        let set = large();
        let name = set.register("name".to_string());
        assert!(matches!(name.held, Held::Member(_)));
        assert_eq!(set.oldest().as_deref(), Some("name"));
    }
}
