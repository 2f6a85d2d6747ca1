//! Many small sets in one domain: one lock, and one set of queues for all of them.
//!
//! Owns: the numbers of sets ([`SetId`]), the map of their structures ([`SetMap`]), and members
//! that serve one set after another ([`FreeList`]). Everything else belongs to the [`DeferredSet`]
//! around it.
//!
//! Laws (U numbers are the parent module's):
//! - **set_domain.F1** A set is a number, given out once in a process. So a member that waits in a
//!   queue is never taken for a member of a later set, and a set needs no end.
//! - **set_domain.F2** A set enters the map with the first insertion that a read applies, and
//!   leaves it when a read takes out the last of its members. A set that came and went between two
//!   reads is never in the map.
//! - **set_domain.F3** A member in a free list is idle: no structure has it, and no read will ask
//!   for it, although a queue may still have it (as [`recycle_raw`](DeferredSet::recycle_raw)
//!   says). So its set and its value belong to the list, and its marks do not.
//! - **set_domain.F4** A set's count of members is right also after a panic of its structure: the
//!   call counts as made (ldu.U7), before the structure is called. So no set is left over without
//!   members.
//!
//! Source: LDU, section 2.5.1 and 2.5.3: the anonymous reverse map has one lock for the drain, and
//! queues for each core. It has no queues for each root, because roots come and go too fast.

use super::handle::Attached;
use super::links::{Element, links_of};
use super::set::DeferredSet;
use super::structure::Structure;
use crate::config::SMALL;
use crate::sync::{self, AtomicU64, Ordering};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ptr::{self, NonNull};

/// A thread takes this many numbers at once.
const BLOCK: u64 = if SMALL { 2 } else { 1024 };

/// The table does not shrink below this many places.
const PLACES_KEPT: usize = 64;

/// A free list keeps this many members.
const KEPT: usize = if SMALL { 1 } else { 64 };

/// The number of a set: no other set of this process has had it, in any domain.
///
/// ```
/// use manycore::ldu::SetId;
///
/// let (one, other) = (SetId::new(), SetId::new());
/// assert_ne!(one, other); // no two sets of a process have the same number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u64);

sync::global! {
    /// The first number of the next block.
    static NEXT: AtomicU64 = AtomicU64::new(1);
}

sync::thread_local! {
    /// The rest of this thread's block: the next number, and the end.
    static OWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

impl SetId {
    /// Returns a number for a new set. Costs a thread-local load and a store; each 1024th call of a
    /// thread writes a line that all threads write.
    #[inline]
    #[must_use]
    #[allow(clippy::new_without_default, reason = "no two are equal, so none is the default")]
    pub fn new() -> Self {
        OWN.with(|own| {
            let (mut next, mut end) = own.get();
            if next == end {
                // ORDER: Relaxed; it only matters that no two threads get the same numbers
                // (set_domain.F1).
                next = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
                end = next + BLOCK;
            }
            own.set((next + 1, end));
            Self(next)
        })
    }
}

/// A member of a [`SetDomain`]: the set that it is in, and a value.
///
/// See [`SetDomain`] for an example.
pub type SetMember<V> = Element<(SetId, V)>;

/// Many small sets behind one lock and one set of queues.
///
/// For many sets that do not live long: the mappings of each process in a family that forks, the
/// children of a request. A set is only a number, so making it and being done with it costs neither
/// memory nor a line that other threads write. A set that came and went between two reads is never
/// made.
///
/// `T` is a set's structure. It is made when a read applies the set's first member. It is dropped,
/// under the domain's lock, with the last member.
///
/// # A queue for each set, or for all?
///
/// | | a [`DeferredSet`] for each set | a [`SetDomain`] for all |
/// |---|---|---|
/// | a set costs | its memory (1,250 bytes and the queues), making it and dropping it | nothing until a read finds members in it, then a place in a table |
/// | a set that came and went without a read | is emptied when it is dropped | waits in the queues until a read, or until they are full |
/// | a read of one set | applies what changed in that set | applies what changed in all, then looks the set up |
/// | two readers of different sets | do not contend | wait for each other, or share one round ([`DeferredSet::read_shared`]) |
/// | a panic of a structure | poisons its set | poisons the domain |
/// | pays for | few sets, or long-lived sets, or sets that are often read | many short-lived sets, read rarely |
///
/// In both, [`Queue`](super::Queue) says whether each thread has a queue or all threads share one.
/// For a million separate sets, that decides the memory; a domain has its queues only once.
///
/// Forks in a millisecond by two threads of an EPYC, as `manycore-bench bench fork-chain` counts:
///
/// | a read after each | 1,000 changes | 100 | 10 |
/// |---|---|---|---|
/// | a domain with a [`FreeList`] | 21,050 | 2,540 | 750 |
/// | a domain | 5,110 | 2,080 | 740 |
/// | separate sets, one queue each | 6,350 | 3,490 | 1,940 |
/// | a mutex of std at the root | 2,100 | 1,530 | 1,260 |
/// | a mutex that spins a little first | 6,290 | 4,260 | 3,610 |
///
/// ```
/// use manycore::ldu::{SetDomain, SetId, SetMember, Structure};
/// use std::collections::BTreeSet;
///
/// #[derive(Default)]
/// struct Pids(BTreeSet<u32>);
/// impl Structure<SetMember<u32>> for Pids {
///     fn insert(&mut self, member: &SetMember<u32>) {
///         self.0.insert(member.1);
///     }
///     fn remove(&mut self, member: &SetMember<u32>) {
///         self.0.remove(&member.1);
///     }
/// }
///
/// let mapped = SetDomain::<Pids, u32>::default();
/// let parent = SetId::new(); // pages that the parent made
/// let own = mapped.add((parent, 1));
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         let child = SetId::new(); // it may map its parent's pages, and its own
///         let links = (mapped.add((parent, 2)), mapped.add((child, 2)));
///         drop(links); // exit: no tree has heard of it
///     });
/// });
/// assert_eq!(mapped.read().get(parent).unwrap().0, [1].into());
/// drop(own);
/// assert!(mapped.read().get(parent).is_none());
/// ```
///
/// - Consistency: linearizable, all sets of a domain together: a read shows one moment of all of
///   them.
/// - Progress, cost of a change: as for a [`DeferredSet`].
/// - Cost of a read: as for the [`DeferredSet`], and a look in a table for each call of a
///   structure.
/// - Memory: a domain's, once. For each set in which a read found members, its structure and 20 to
///   40 bytes of table, given back when few sets are left.
/// - Errors, panics: see [`DeferredSet::read`]. A structure may change members of its domain from
///   within its calls; reading the domain there panics. So does a read after another read has
///   exchanged the map.
/// - Source: [LDU](crate#sources), sections 2.5.1 and 2.5.3.
pub type SetDomain<T, V> = DeferredSet<SetMap<T>, SetMember<V>>;

/// The structures of a [`SetDomain`]'s sets.
///
/// See [`SetDomain`] for an example.
pub struct SetMap<T> {
    sets: HashMap<SetId, SetState<T>>,
}

/// The state of one set.
struct SetState<T> {
    /// Never zero (set_domain.F2).
    members: usize,
    /// Missing only if making it panicked.
    structure: Option<T>,
}

impl<T> SetMap<T> {
    /// Returns a set's structure, if the set has members.
    #[must_use]
    pub fn get(&self, set: SetId) -> Option<&T> {
        self.sets.get(&set)?.structure.as_ref()
    }

    /// Returns the sets that have members, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &T)> {
        self.sets.iter().filter_map(|(id, set)| Some((*id, set.structure.as_ref()?)))
    }
}

impl<V, T> Structure<SetMember<V>> for SetMap<T>
where
    T: Structure<SetMember<V>> + Default,
{
    fn insert(&mut self, member: &SetMember<V>) {
        let new = || SetState { members: 0, structure: None };
        let set = self.sets.entry(member.0).or_insert_with(new);
        set.members += 1; // set_domain.F4
        set.structure.get_or_insert_default().insert(member);
    }

    fn remove(&mut self, member: &SetMember<V>) {
        let Entry::Occupied(mut entry) = self.sets.entry(member.0) else {
            panic!("manycore: a reader has exchanged the map of a domain that has members");
        };
        let set = entry.get_mut();
        debug_assert!(set.members > 0, "set_domain.F2: the map has a set without members");
        set.members -= 1; // set_domain.F4
        if set.members > 0 {
            return set.structure.iter_mut().for_each(|structure| structure.remove(member));
        }
        let last = entry.remove();
        if self.sets.capacity() > PLACES_KEPT.max(8 * self.sets.len()) {
            self.sets.shrink_to(PLACES_KEPT.max(2 * self.sets.len()));
        }
        last.structure.into_iter().for_each(|mut structure| structure.remove(member));
    }
}

impl<T> Default for SetMap<T> {
    fn default() -> Self {
        Self { sets: HashMap::new() }
    }
}

impl<T: fmt::Debug> fmt::Debug for SetMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(id, structure)| (id.0, structure))).finish()
    }
}

/// Members of a [`SetDomain`] that came and went between two reads, kept to serve another set.
///
/// For a thread with sets and members that come and go all the time. A member that it takes out
/// through the list, it puts in again, also into another set, and also while a queue still has the
/// member. Then the whole life of a member is two atomic instructions on a line of the thread, with
/// neither memory nor a queue. On two cores without reads, this makes sets of one to five members
/// come and go four times as fast (`manycore-bench bench fork-chain`). Queues for each set cannot
/// do that: a member that waits in one set's queue cannot serve another set.
///
/// Use one list for each thread; a list may be moved to another thread. A list may take members
/// that other threads inserted.
///
/// ```
/// use manycore::ldu::{FreeList, SetDomain, SetId, SetMember, Structure};
///
/// #[derive(Default)]
/// struct Sum(u64);
/// impl Structure<SetMember<u64>> for Sum {
///     fn insert(&mut self, number: &SetMember<u64>) {
///         self.0 += number.1;
///     }
///     fn remove(&mut self, number: &SetMember<u64>) {
///         self.0 -= number.1;
///     }
/// }
///
/// let domain = SetDomain::<Sum, u64>::default();
/// let mut free = FreeList::new(&domain);
/// for number in 0..1000 {
///     let member = free.add(SetId::new(), number);
///     free.remove(member); // no read in between
/// }
/// assert_eq!(domain.stats().queued, 1);
/// ```
///
/// - Cost: that of an insertion or a removal. If a read has seen the member, or the list is empty
///   or full, also the cost of the memory.
/// - Memory: at most 64 members, given back with the list. A removed value is dropped when its
///   member is used again, or with the list. If that panics, the panic reaches that call, after the
///   call has removed the new member.
/// - Panics: as [`DeferredSet`].
#[doc(alias = "free list")]
pub struct FreeList<'d, T: Structure<SetMember<V>> + Default, V: Send + Sync + 'static> {
    domain: &'d SetDomain<T, V>,
    idle: Vec<NonNull<SetMember<V>>>,
}

// SAFETY: set_domain.F3 - the members belong to the list, and may be sent (`Linked`).
unsafe impl<T, V> Send for FreeList<'_, T, V>
where
    T: Structure<SetMember<V>> + Default,
    V: Send + Sync + 'static,
{
}

impl<'d, T, V> FreeList<'d, T, V>
where
    T: Structure<SetMember<V>> + Default,
    V: Send + Sync + 'static,
{
    /// Makes an empty list.
    #[must_use]
    pub fn new(domain: &'d SetDomain<T, V>) -> Self {
        Self { domain, idle: Vec::new() }
    }

    /// Inserts a value into a set of the domain, with a member from the list if there is one.
    #[inline]
    pub fn add(&mut self, set: SetId, value: V) -> Attached<'d, SetMap<T>, SetMember<V>> {
        let Some(member) = self.idle.pop() else { return self.domain.add((set, value)) };
        debug_assert!(is_idle(member), "set_domain.F3: a member of a free list is in use");
        // SAFETY: set_domain.F3 - the list may exchange set and value. The member's memory is held,
        // and it is in no other domain than this.
        let (old, added) = unsafe {
            let old = Element::replace(member, (set, value));
            (old, Attached::from_raw(self.domain, member))
        };
        drop(old); // runs user code, after the member is in a handle
        added
    }

    /// Takes a member out. Keeps its memory if no read has to hear of the member; otherwise the
    /// domain drops it with the next read.
    ///
    /// # Panics
    /// If the member is in another domain.
    #[inline]
    #[track_caller]
    pub fn remove(&mut self, member: Attached<'d, SetMap<T>, SetMember<V>>) {
        assert!(
            ptr::eq(member.domain(), self.domain),
            "manycore: the member is in another domain than the list; remove it through its handle"
        );
        let member = member.into_raw();
        // SAFETY: the handle was the only one, and is spent.
        if !unsafe { self.domain.recycle_raw(member) } {
            return;
        }
        debug_assert!(is_idle(member), "set_domain.F3: a member of a free list is in use");
        if self.idle.len() < KEPT {
            self.idle.push(member);
        } else {
            // SAFETY: not in the domain, and not used afterwards.
            unsafe { self.domain.free_raw(member) };
        }
    }
}

/// Returns true if a member is as a member of a free list must be (set_domain.F3).
fn is_idle<V: Send + Sync + 'static>(member: NonNull<SetMember<V>>) -> bool {
    // SAFETY: set_domain.F3 - the list has the member, so it lives; its marks are atomic.
    unsafe { links_of(member).as_ref() }.load().is_idle()
}

impl<T, V> Drop for FreeList<'_, T, V>
where
    T: Structure<SetMember<V>> + Default,
    V: Send + Sync + 'static,
{
    fn drop(&mut self) {
        sync::run_each(self.idle.drain(..), |member| {
            // SAFETY: set_domain.F3 - not in the domain, and not used afterwards.
            unsafe { self.domain.free_raw(member) };
        });
    }
}

impl<T, V> fmt::Debug for FreeList<'_, T, V>
where
    T: Structure<SetMember<V>> + Default,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList").field("idle", &self.idle.len()).finish_non_exhaustive()
    }
}
