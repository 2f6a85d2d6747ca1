//! Many small sets in one domain: one lock, and one set of queues for all of them.
//!
//! Owns: [`SetMap`], the numbers of its sets ([`SetId`]), what a member needs to be in one
//! ([`SetMember`]), and the handles. Everything else is the [`DeferredSet`]'s around it: changes,
//! queues, reads, members' memory, poison.
//!
//! Laws (U numbers are the parent module's):
//! - **ldu.F1** A set is a number, given out once in a process. So a member that waits in a queue
//!   is never taken for one of a later set, and a set needs no end.
//! - **ldu.F2** The map has a set from the first insertion that a read applies until the last of
//!   its members is taken out by one. A set that came and went between two reads is never in it.
//! - **ldu.F3** A member says the same set from its insertion until no queue has it, or until
//!   [`recycle_raw`](DeferredSet::recycle_raw) has said that its data are free (ldu.U4).
//! - **ldu.F4** A set's count of members is right also after a panic of its structure's: the call
//!   counts as made (ldu.U7), before the structure is called. So no set is left over without
//!   members.
//!
//! Source: LDU, section 2.5.1 and 2.5.3: the anonymous reverse map has queues for each core, but
//! not for each root, because roots come and go too fast, and one lock for the drain.

use super::guard::{ReadGuard, SharedGuard};
use super::handle::Attached;
use super::links::{Linked, Links};
use super::set::DeferredSet;
use super::structure::Structure;
use crate::config::SMALL;
use crate::sync::{self, AtomicU64, Ordering};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Numbers that a thread takes at once.
const BLOCK: u64 = if SMALL { 2 } else { 1024 };

/// Places of the table below which it does not shrink.
const PLACES_KEPT: usize = 64;

/// The number of a set: no other set of this process has had it, in whichever domain.
///
/// ```
/// use manycore::ldu::SetId;
///
/// let (one, other) = (SetId::new(), SetId::new());
/// assert_ne!(one, other); // no two sets of a process are called the same
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
    /// A number for a new set. A thread-local load and a store; each 1024th call of a thread writes
    /// a line that all threads do.
    #[inline]
    #[must_use]
    #[allow(clippy::new_without_default, reason = "no two are equal, so none is the default")]
    pub fn new() -> Self {
        OWN.with(|own| {
            let (mut next, mut end) = own.get();
            if next == end {
                // ORDER: Relaxed; only that no two get the same.
                next = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
                end = next + BLOCK;
            }
            own.set((next + 1, end));
            Self(next)
        })
    }
}

impl From<SetId> for u64 {
    fn from(id: SetId) -> Self {
        id.0
    }
}

/// Hashes consecutive numbers; they are not chosen by users.
#[derive(Default)]
struct MultiplyHasher(u64);

impl Hasher for MultiplyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26) // the product's upper bits are the good ones, the table takes both
    }
}

/// A member that says which set of a [`SetMap`] it is in.
///
/// For types that have [`Links`] of their own. All others use [`SetElement`].
///
/// # Safety
/// [`set`](Self::set) gives the same answer from the member's insertion until no queue has it, or
/// until [`recycle_raw`](DeferredSet::recycle_raw) has given its data back.
///
/// ```
/// use manycore::ldu::{Linked, Links, SetDomain, SetId, SetMember, Structure};
///
/// struct Player {
///     room: SetId, // never changes
///     score: u64,
///     links: Links,
/// }
/// // SAFETY: the offset is the field's, which is used for this alone.
/// unsafe impl Linked for Player {
///     const LINKS: usize = std::mem::offset_of!(Player, links);
/// }
/// // SAFETY: the field is private, and no code changes it.
/// unsafe impl SetMember for Player {
///     fn set(&self) -> SetId {
///         self.room
///     }
/// }
///
/// #[derive(Default)]
/// struct Score(u64);
/// impl Structure<Player> for Score {
///     fn insert(&mut self, player: &Player) {
///         self.0 += player.score;
///     }
///     fn remove(&mut self, player: &Player) {
///         self.0 -= player.score;
///     }
/// }
///
/// let rooms = SetDomain::<Score, Player>::default();
/// let (red, blue) = (rooms.new_set(), rooms.new_set());
/// let join = |room: SetId, score| Box::new(Player { room, score, links: Links::new() });
/// let ann = red.insert(join(red.id(), 7));
/// let bob = blue.insert(join(blue.id(), 9));
/// assert_eq!(red.read().0, 7);
/// assert_eq!(blue.read().0, 9);
/// # drop((ann, bob));
/// ```
pub unsafe trait SetMember: Linked {
    /// The set that the member is in, or goes to.
    fn set(&self) -> SetId;
}

/// A value with links and the number of its set. Gives access to the value.
///
/// See [`SetMap`] for an example.
#[derive(Debug)]
pub struct SetElement<V> {
    links: Links,
    set: SetId,
    /// Missing only in a [`FreeList`](super::FreeList).
    value: Option<V>,
}

const HERE: &str = "only members of a free list have no value";

impl<V> SetElement<V> {
    /// A value for that set, not in it yet: [`Set::insert`] does that.
    #[must_use]
    pub fn new(set: SetId, value: V) -> Self {
        Self { links: Links::new(), set, value: Some(value) }
    }

    /// Says that the value goes to another set. It is in none now: one that is can't be had
    /// mutably.
    pub fn move_to(&mut self, set: SetId) {
        self.set = set;
    }

    /// The value alone.
    #[must_use]
    pub fn into_value(self) -> V {
        self.value.expect(HERE)
    }

    /// Takes the value out of an idle member, whose marks a drain may read concurrently.
    ///
    /// # Safety
    /// The member is live, and its set and value are the caller's: no other thread accesses them.
    #[inline]
    pub(super) unsafe fn take(member: NonNull<Self>) -> Option<V> {
        // SAFETY: the caller promises that the member is live, and that no other thread looks at
        // its value (# Safety). The reference is to the value alone, not to the marks.
        unsafe { &mut (*member.as_ptr()).value }.take()
    }

    /// Gives it to another set, with another value.
    ///
    /// # Safety
    /// As [`take`](Self::take), which was called before: an old value is not dropped.
    #[inline]
    pub(super) unsafe fn refill(member: NonNull<Self>, set: SetId, value: V) {
        // SAFETY: the caller promises that the member is live, and its set and value the caller's
        // alone (# Safety). Both are places within the member, beside its marks.
        unsafe {
            (&raw mut (*member.as_ptr()).set).write(set);
            (&raw mut (*member.as_ptr()).value).write(Some(value));
        }
    }
}

// SAFETY: the offset is the field's, which is private and unused.
unsafe impl<V: Send + Sync + 'static> Linked for SetElement<V> {
    const LINKS: usize = std::mem::offset_of!(Self, links);
}

// SAFETY: ldu.F3 - `move_to` needs the element mutably, and an insertion gives it away until
// `into_box` has settled it, or a free list has it, where it is idle.
unsafe impl<V: Send + Sync + 'static> SetMember for SetElement<V> {
    #[inline]
    fn set(&self) -> SetId {
        self.set
    }
}

impl<V> Deref for SetElement<V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect(HERE)
    }
}

impl<V> DerefMut for SetElement<V> {
    fn deref_mut(&mut self) -> &mut V {
        self.value.as_mut().expect(HERE)
    }
}

/// Many small sets that share one lock and one set of queues: the structure of a [`SetDomain`].
///
/// For sets that are many and do not live long: the mappings of each process in a family that
/// forks, the children of a request, the members of a room. A set is nothing but a number, so to
/// make one and to be done with it costs neither memory nor a line that others write. A set
/// that came and went between two reads is never in the map.
///
/// `T` is a set's structure, made at its first member that a read applies, and dropped, under the
/// domain's lock, with its last one.
///
/// # A queue for each set, or for all?
///
/// | | a [`DeferredSet`] for each set | a [`SetDomain`] for all |
/// |---|---|---|
/// | a set costs | its memory (1,250 bytes and the queues), making it and dropping it | nothing until a read finds members in it, then a place in a table |
/// | a change costs | as written there | the same |
/// | a set that came and went without a read | is emptied when it is dropped | waits in the queues until a read, or until they are full |
/// | a read of one set | applies what changed in that set | applies what changed in all, then looks the set up |
/// | two readers of different sets | do not contend | wait for each other, or share one round ([`Set::read_shared`]) |
/// | a panic of a structure's | poisons its set | poisons the domain |
/// | pays for | few sets, or long-lived ones, or read often | many short-lived sets, read rarely |
///
/// In both, [`Queue`](super::Queue) says whether each thread has a queue or all have one. For a
/// million sets of their own that decides the memory; a domain has its queues once.
///
/// Measured by `manycore bench fork-chain`, on two cores: a domain with a
/// [`FreeList`](super::FreeList) is nine times as fast as a lock at the root without reads, five
/// times with a read after each 1,000 changes and 1.3 times after each 100; after each 10, it has
/// 0.4 of the lock's speed. Sets of their own with one queue each have 1.8, 1.8, 1.7 and 1.1 times;
/// a domain without a free list 2.0, 1.6, 1.3 and 0.4.
///
/// # Ends
///
/// A [`Set`] is a name, and may be copied and forgotten while the set has members: they stay in it
/// until their own handles go. So members may outlive the set that their maker knew, and others may
/// join them by the number ([`DeferredSet::set`]).
///
/// # Members' memory
///
/// Each insertion makes a box, and the next read frees it. A thread that inserts and removes all
/// the time has a [`FreeList`](super::FreeList), which uses members again while queues have them
/// still; types with links of their own do that by [`recycle_raw`](DeferredSet::recycle_raw).
///
/// ```
/// use manycore::ldu::{SetDomain, SetElement, Structure};
/// use std::collections::BTreeSet;
///
/// #[derive(Default)]
/// struct Pids(BTreeSet<u32>);
/// impl Structure<SetElement<u32>> for Pids {
///     fn insert(&mut self, pid: &SetElement<u32>) {
///         self.0.insert(**pid);
///     }
///     fn remove(&mut self, pid: &SetElement<u32>) {
///         self.0.remove(&**pid);
///     }
/// }
///
/// let mapped = SetDomain::<Pids, _>::default();
/// let parent = mapped.new_set(); // pages that the parent made
/// let own = parent.add(1);
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         let child = mapped.new_set();
///         let links = (parent.add(2), child.add(2)); // may map its parent's pages, and its own
///         drop(links); // exit: no tree has heard of it
///     });
/// });
/// assert_eq!(parent.read().0, [1].into());
/// assert_eq!(mapped.read().created(), 1);
/// drop(own);
/// assert!(parent.read().0.is_empty());
/// ```
///
/// - Consistency: linearizable, all sets of a domain together: a [`read`](DeferredSet::read) of the
///   domain is a moment of all of them.
/// - Progress, cost of a change: those of a [`DeferredSet`].
/// - Cost of a read: that of the [`DeferredSet`], and a look in a table for each call of a
///   structure.
/// - Memory: a domain's, once; for each set that a read found members in, its structure and 20 to
///   40 bytes of table, given back when few sets are left.
/// - Errors, panics: see [`DeferredSet::read`]. A structure may change members of its domain, and
///   name new sets, from within its calls; reading the domain there panics.
/// - Source: [LDU](crate#sources), sections 2.5.1 and 2.5.3.
pub struct SetMap<T> {
    sets: HashMap<SetId, SetState<T>, BuildHasherDefault<MultiplyHasher>>,
    /// What a set without members looks like.
    empty: T,
    make: Box<dyn Fn() -> T + Send + Sync>,
    created: u64,
}

/// One set.
struct SetState<T> {
    /// More than none (ldu.F2).
    members: usize,
    /// Missing only if making it panicked.
    structure: Option<T>,
}

/// Many small sets behind one lock and one set of queues: see [`SetMap`].
///
/// See [`SetMap`] for an example.
pub type SetDomain<T, E> = DeferredSet<SetMap<T>, E>;

impl<T> SetMap<T> {
    /// A map without sets, whose structures `make` makes, empty: one at once, which stands for
    /// every set without members, and one for each set. Later calls are made under the domain's
    /// lock; a panic there is as one of the structure's `insert`.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self { sets: HashMap::default(), empty: make(), make: Box::new(make), created: 0 }
    }

    /// A set's structure, if the set has members.
    #[must_use]
    pub fn get(&self, set: SetId) -> Option<&T> {
        self.sets.get(&set)?.structure.as_ref()
    }

    /// The same, to change what is not the domain's to tell: anything but the members.
    #[must_use]
    pub fn get_mut(&mut self, set: SetId) -> Option<&mut T> {
        self.sets.get_mut(&set)?.structure.as_mut()
    }

    /// A set's structure, or an empty one.
    #[must_use]
    pub fn get_or_empty(&self, set: SetId) -> &T {
        self.get(set).unwrap_or(&self.empty)
    }

    /// The sets that have members, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &T)> {
        self.sets.iter().filter_map(|(id, set)| Some((*id, set.structure.as_ref()?)))
    }

    /// Sets that have members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether no set has members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Sets that a read has found members in so far. All others have come and gone unseen.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    fn shrink(&mut self) {
        let len = self.sets.len();
        if self.sets.capacity() > PLACES_KEPT.max(8 * len) {
            self.sets.shrink_to(PLACES_KEPT.max(2 * len));
        }
    }
}

impl<T: Structure<E>, E: SetMember> Structure<E> for SetMap<T> {
    fn insert(&mut self, member: &E) {
        let set = self.sets.entry(member.set()).or_insert_with(|| {
            self.created += 1;
            SetState { members: 0, structure: None }
        });
        set.members += 1; // ldu.F4
        set.structure.get_or_insert_with(&self.make).insert(member);
    }

    fn remove(&mut self, member: &E) {
        let Entry::Occupied(mut entry) = self.sets.entry(member.set()) else {
            panic!(
                "manycore: {} leaves a set that the map does not have; a reader must not \
                 exchange the map, nor a member say another set",
                member.name()
            );
        };
        let set = entry.get_mut();
        debug_assert!(set.members > 0, "ldu.F2: the map has a set without members");
        set.members -= 1; // ldu.F4
        if set.members > 0 {
            return set.structure.iter_mut().for_each(|structure| structure.remove(member));
        }
        let last = entry.remove();
        self.shrink();
        last.structure.into_iter().for_each(|mut structure| structure.remove(member));
    }
}

impl<T: Default + 'static> Default for SetMap<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug> fmt::Debug for SetMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(id, structure)| (id.0, structure))).finish()
    }
}

/// One set of a [`SetDomain`], by name: a number and the domain. See [`SetMap`].
///
/// See [`SetMap`] for an example.
pub struct Set<'d, T: Structure<E>, E: SetMember> {
    domain: &'d SetDomain<T, E>,
    id: SetId,
}

impl<T: Structure<E>, E: SetMember> DeferredSet<SetMap<T>, E> {
    /// Names a new set, without members. Cost: that of [`SetId::new`].
    #[inline]
    #[must_use]
    pub fn new_set(&self) -> Set<'_, T, E> {
        self.set(SetId::new())
    }

    /// The set of that number: of one that a member says, or of one that was named before.
    #[inline]
    #[must_use]
    pub fn set(&self, id: SetId) -> Set<'_, T, E> {
        Set { domain: self, id }
    }
}

impl<'d, T: Structure<E>, E: SetMember> Set<'d, T, E> {
    /// The set's number, which may be kept where no reference can.
    #[inline]
    #[must_use]
    pub fn id(&self) -> SetId {
        self.id
    }

    /// Inserts a member. The next read sees it.
    ///
    /// # Panics
    /// If the member says another set.
    #[inline]
    #[track_caller]
    pub fn insert(&self, member: Box<E>) -> Attached<'d, SetMap<T>, E> {
        assert!(
            member.set() == self.id,
            "manycore: the member says another set than it is inserted into; say this one's id() \
             first"
        );
        self.domain.insert(member)
    }

    /// Brings the domain up to date and holds it, with this set's structure in hand; one without
    /// members if the set has none.
    ///
    /// # Panics
    /// As [`DeferredSet::read`].
    #[track_caller]
    pub fn read(&self) -> SetGuard<ReadGuard<'d, SetMap<T>, E>> {
        SetGuard { guard: self.domain.read(), id: self.id }
    }

    /// As [`read`](Self::read), in parallel with other shared readers of the domain.
    ///
    /// # Panics
    /// As [`DeferredSet::read_shared`].
    #[track_caller]
    pub fn read_shared(&self) -> SetGuard<SharedGuard<'d, SetMap<T>, E>>
    where
        T: Sync,
    {
        SetGuard { guard: self.domain.read_shared(), id: self.id }
    }
}

impl<'d, T: Structure<SetElement<V>>, V: Send + Sync + 'static> Set<'d, T, SetElement<V>> {
    /// Inserts a value, in a box with links.
    #[inline]
    pub fn add(&self, value: V) -> Attached<'d, SetMap<T>, SetElement<V>> {
        self.domain.insert(Box::new(SetElement::new(self.id, value)))
    }
}

impl<T: Structure<E>, E: SetMember> Clone for Set<'_, T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Structure<E>, E: SetMember> Copy for Set<'_, T, E> {}

impl<T: Structure<E>, E: SetMember> fmt::Debug for Set<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("id", &self.id.0).finish_non_exhaustive()
    }
}

/// One set's structure, up to date, in the hands of a reader of its domain: `G` is the domain's
/// guard. Each access looks the set up; keep the reference for several.
///
/// See [`SetMap`] for an example.
pub struct SetGuard<G> {
    guard: G,
    id: SetId,
}

impl<G> SetGuard<G> {
    /// The whole domain, at the same moment.
    #[must_use]
    pub fn into_domain(self) -> G {
        self.guard
    }
}

impl<T, G: Deref<Target = SetMap<T>>> Deref for SetGuard<G> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.get_or_empty(self.id)
    }
}

impl<T: fmt::Debug, G: Deref<Target = SetMap<T>>> fmt::Debug for SetGuard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
