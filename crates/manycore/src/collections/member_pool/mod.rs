//! Values with marks, in memory that is reused: shared by the collections built on [`DeferredSet`].
//!
//! Owns: [`MemberPool`], its nodes and their memory; in `few`, its small form. The structure
//! decides what a read does with the nodes. Members come and go eagerly if that pays (`pace`) and
//! the structure allows it ([`AT_PACE`](MemberStore::AT_PACE)).
//!
//! Laws:
//! - **member_pool.N1** A node is made by `enter` and belongs to the set. It has a value until its
//!   owner leaves. If the structure has to be told of that first, it has a value until the set
//!   frees it.
//! - **member_pool.N2** If a node's owner came and went without a read in between, the node is the
//!   owner's again. It gives its value up and waits in the heap of the thread's slot, perhaps still
//!   queued, for the next `enter` there. Only its slot's owner uses a heap, and no user code runs
//!   meanwhile.
//! - **member_pool.N3** User code runs under the set's lock only if the structure says so. Values
//!   are dropped outside of it. If a closure that a read calls panics, the reader continues the
//!   panic after it has released the lock.

mod few;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod pace;

pub(super) use few::{FewMembers, Many, Store};

use super::guarded;
use crate::clock::Clock;
use crate::config::SMALL;
use crate::ldu::{DeferredSet, Linked, Links, Look, Queue, Stats, Structure};
use crate::percpu::{self, segmented::Segmented};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell, caught, resume_first};
use pace::Pace;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ptr::NonNull;

/// Free nodes that a slot keeps.
const SPARE: usize = if SMALL { 1 } else { 64 };

/// A value with its marks, and what the structure notes of it.
pub(super) struct Member<T> {
    links: Links,
    /// Belongs to the structure while it has the node. Used only under the set's lock.
    pub(super) place: AtomicUsize,
    /// True if there is a value (member_pool.N1, member_pool.N2). Written by the node's owner.
    full: AtomicBool,
    value: MaybeUninit<T>,
}

// SAFETY: the offset is the field's, and nothing else uses it. (Members are shared between threads
// as their owners' handles are, which want `T: Send + Sync`.)
unsafe impl<T: Send + Sync + 'static> Linked for Member<T> {
    const LINKS: usize = offset_of!(Self, links);

    unsafe fn free(node: NonNull<Self>) {
        // SAFETY: member_pool.N1 - from a box; `full` says whether there is a value.
        unsafe {
            let mut node = Box::from_raw(node.as_ptr());
            // ORDER: Relaxed; the node was given up and taken, which orders it.
            if node.full.load(Ordering::Relaxed) {
                node.value.assume_init_drop();
            }
        }
    }
}

/// Free nodes of one slot (member_pool.N2), and the number of members that have come there.
#[repr(align(128))]
struct Heap<T> {
    /// The number of free nodes, plus [`CAME`] times the number of members that came. Written by
    /// the slot's owner. (It is one word, so that members that are never read do not pay for the
    /// pace.)
    counts: AtomicU64,
    nodes: UnsafeCell<Nodes<T>>,
}

/// Free nodes. Only the first ones are `Some`, as many as there are free nodes.
type Nodes<T> = Option<Box<[Option<NonNull<Member<T>>>; SPARE]>>;

/// See [`Heap`].
const CAME: u64 = 256;
const _: () = assert!((SPARE as u64) < CAME);

impl<T> From<usize> for Heap<T> {
    fn from(_: usize) -> Self {
        Self { counts: AtomicU64::new(0), nodes: UnsafeCell::new(None) }
    }
}

impl<T> Heap<T> {
    /// Counts a member that comes, and takes a free node for it. The caller owns the slot.
    #[inline(always)]
    fn pop(&self) -> Option<NonNull<Member<T>>> {
        // ORDER: Relaxed (both); one writer.
        let counts = self.counts.load(Ordering::Relaxed) + CAME;
        let Some(last) = (counts % CAME).checked_sub(1) else {
            self.counts.store(counts, Ordering::Relaxed);
            return None;
        };
        self.counts.store(counts - 1, Ordering::Relaxed);
        // SAFETY: member_pool.N2 - this thread has the slot.
        self.nodes.with(|nodes| unsafe { *(*nodes).as_ref()?.get(last as usize)? })
    }

    /// Keeps a free node, unless there are enough. The caller owns the slot.
    #[inline(always)]
    fn push(&self, node: NonNull<Member<T>>) -> bool {
        // ORDER: Relaxed (both); one writer.
        let counts = self.counts.load(Ordering::Relaxed);
        let len = (counts % CAME) as usize;
        if len == SPARE {
            return false;
        }
        self.counts.store(counts + 1, Ordering::Relaxed);
        self.nodes.with_mut(|nodes| {
            // SAFETY: member_pool.N2 - this thread has the slot.
            let nodes = unsafe { (*nodes).get_or_insert_with(|| Box::new([None; SPARE])) };
            if let Some(place) = nodes.get_mut(len) {
                *place = Some(node);
            }
        });
        true
    }

    /// Returns how many members have come.
    fn came(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.counts.load(Ordering::Relaxed) / CAME
    }

    /// Empties the heap. The caller owns the pool.
    fn take_all(&self, f: impl FnMut(NonNull<Member<T>>)) {
        // ORDER: Relaxed; the pool's owner is alone.
        let len = self.counts.load(Ordering::Relaxed) % CAME;
        // SAFETY: the pool's owner is alone.
        let nodes = self.nodes.with_mut(|nodes| unsafe { (*nodes).take() });
        nodes
            .into_iter()
            .flat_map(|nodes| nodes.into_iter().take(len as usize))
            .flatten()
            .for_each(f);
    }
}

impl<T> Member<T> {
    /// Makes a node. The caller writes its value before anything else.
    #[inline(never)]
    fn new() -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self {
            links: Links::new(),
            place: AtomicUsize::new(0),
            full: AtomicBool::new(true),
            value: MaybeUninit::uninit(),
        })))
    }

    /// Returns the value of a node that a structure has.
    ///
    /// # Safety
    /// The structure has been told of the node's coming, and not yet of its going (member_pool.N1).
    #[inline(always)]
    pub(super) unsafe fn value<'a>(node: NonNull<Self>) -> &'a T {
        // SAFETY: member_pool.N1 - the caller promises that a structure has the node; the set frees
        // it, and its owner takes the value back, only when no structure has it.
        unsafe { (*node.as_ptr()).value.assume_init_ref() }
    }

    /// Returns the address of the value, which `enter` returns for this node.
    pub(super) fn handle(node: NonNull<Self>) -> NonNull<T> {
        // SAFETY: the field is within the node, so its address is not zero. No reference is made:
        // the pointer leads back to the node (`node_of`).
        unsafe { NonNull::new_unchecked((&raw mut (*node.as_ptr()).value).cast()) }
    }

    /// Frees a node that a leaked handle has left in a structure.
    ///
    /// # Safety
    /// The structure had it, and is being dropped with its set.
    pub(super) unsafe fn free_left(node: NonNull<Self>) {
        // SAFETY: member_pool.N1 - from a box, with a value; no queue has the node any more.
        unsafe {
            let mut node = Box::from_raw(node.as_ptr());
            node.value.assume_init_drop();
        }
    }
}

/// A [`Structure`] that keeps the nodes of a [`MemberPool`], and may free what leaked handles have
/// left in it. So it gets the pointers from the nodes' boxes, not references.
pub(super) trait MemberStore<T>: Send {
    /// True if members may come and go eagerly. They run the structure's code then, and readers
    /// wait for each other meanwhile.
    const AT_PACE: bool = false;

    /// Adds a node.
    ///
    /// # Safety
    /// The node has a value, and is alive until [`remove`](Self::remove) has returned for it, or
    /// the set is gone (member_pool.N1).
    unsafe fn insert(&mut self, node: NonNull<Member<T>>);

    /// Removes a node.
    ///
    /// # Safety
    /// Same as for [`insert`](Self::insert), which was called for the node before.
    unsafe fn remove(&mut self, node: NonNull<Member<T>>);
}

/// Adapts a [`MemberStore`] to the set's [`Structure`].
struct MemberStructure<S> {
    members: S,
    pace: Pace,
}

impl<T: Send + Sync + 'static, S: MemberStore<T>> Structure<Member<T>> for MemberStructure<S> {
    fn insert(&mut self, _: &Member<T>) {
        unreachable!("a set calls insert_at");
    }

    fn remove(&mut self, _: &Member<T>) {
        unreachable!("a set calls remove_at");
    }

    unsafe fn insert_at(&mut self, node: NonNull<Member<T>>) {
        // SAFETY: member_pool.N1 - a node that a structure is told of has a value. The rest is the
        // caller's.
        unsafe { self.members.insert(node) };
    }

    unsafe fn remove_at(&mut self, node: NonNull<Member<T>>) {
        // SAFETY: member_pool.N1 - a node that a structure is told of keeps its value until this
        // returns; the caller promises that it was inserted before (`Structure::remove_at`).
        unsafe { self.members.remove(node) };
    }
}

/// A set of values with marks around the structure `S`.
pub(super) struct MemberPool<T: Send + Sync + 'static, S: MemberStore<T>> {
    set: ManuallyDrop<DeferredSet<MemberStructure<S>, Member<T>>>,
    heaps: Segmented<Heap<T>>,
}

/// Returns a value's node.
///
/// # Safety
/// `value` came from [`MemberPool::enter`].
#[inline(always)]
unsafe fn node_of<T>(value: NonNull<T>) -> NonNull<Member<T>> {
    // SAFETY: the caller promises that the pointer came from `MemberPool::enter`, so it points to
    // the field `value` of a node and was made from a pointer to the whole node (`Member::handle`).
    unsafe { value.byte_sub(offset_of!(Member<T>, value)).cast() }
}

impl<T: Send + Sync + 'static, S: MemberStore<T>> MemberPool<T, S> {
    /// Makes a pool. The caller has checked the bound.
    pub(super) fn new(queue: Queue, max_queued: usize, structure: S) -> Self {
        let builder = DeferredSet::builder().queue(queue).max_queued(max_queued);
        let set = builder.build(MemberStructure { members: structure, pace: Pace::default() });
        let set = set.expect("the bound has been checked");
        Self { set: ManuallyDrop::new(set), heaps: Segmented::new() }
    }

    #[inline(always)]
    pub(super) fn enter(&self, value: T) -> NonNull<T> {
        let node = self.spare().unwrap_or_else(Member::new);
        // SAFETY: member_pool.N2 - the node is this call's, new or free; it is in no other set.
        unsafe {
            let place = Member::handle(node);
            place.write(value);
            // ORDER: Relaxed (all of `full`); shown by the insertion, or by the giving up.
            (*node.as_ptr()).full.store(true, Ordering::Relaxed);
            if S::AT_PACE {
                self.set.insert_at_pace(node);
            } else {
                self.set.insert_raw(node);
            }
            place
        }
    }

    #[inline(always)]
    fn spare(&self) -> Option<NonNull<Member<T>>> {
        percpu::with_own_slot(|slot| self.heaps.get_or_init(slot.index()).pop())
    }

    /// Ends a registration.
    ///
    /// # Safety
    /// `value` came from `enter`, this is called once for it, and it is not used afterwards.
    #[inline(always)]
    pub(super) unsafe fn leave(&self, value: NonNull<T>) {
        // SAFETY: the caller promises that `value` came from `enter`.
        let node = unsafe { node_of(value) };
        // SAFETY: ldu.U1 - the caller promises that this is called once and that the value is not
        // used afterwards; the node was inserted by `enter`. If the set keeps it, `free` drops the
        // value.
        let is_free = unsafe {
            if S::AT_PACE { self.set.recycle_at_pace(node) } else { self.set.recycle_raw(node) }
        };
        if !is_free {
            return;
        }
        // SAFETY: member_pool.N2 - the value is this call's, and is not looked at in the node any
        // more.
        let value = unsafe {
            (*node.as_ptr()).full.store(false, Ordering::Relaxed);
            value.read()
        };
        self.keep(node);
        drop(value);
    }

    /// Keeps a node without a value for the next `enter`, or frees it.
    #[inline(always)]
    fn keep(&self, node: NonNull<Member<T>>) {
        percpu::with_own_slot(|slot| {
            if !self.heaps.get_or_init(slot.index()).push(node) {
                // SAFETY: member_pool.N2 - the caller's, without a value, not in the set.
                unsafe { self.set.free_raw(node) };
            }
        });
    }

    /// Calls `f` with the up-to-date structure, in parallel with other readers. If `f` panics, the
    /// panic continues after the set is released (member_pool.N3).
    pub(super) fn read<R>(&self, f: impl FnOnce(&S) -> R) -> R
    where
        S: Sync,
    {
        let read = || match S::AT_PACE {
            true => self.set.read_shared_at(|told, look| self.pace(told, look)),
            false => self.set.read_shared(),
        };
        guarded(read, |told| f(&told.members), || ())
    }

    /// Same as [`read`](Self::read), for a reader that changes the structure, though not its
    /// members.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        let read = || self.set.read_at(|told, look| self.pace(told, look));
        guarded(read, |told| f(&mut told.members), || ())
    }

    /// Same as [`read`](Self::read), alone and at a cut, which `f` gets. `before` is called under
    /// the set's lock, before the epoch is raised.
    pub(super) fn read_cut<R>(&self, before: impl FnOnce(), f: impl FnOnce(&S, u64) -> R) -> R {
        guarded(|| self.set.read_cut(before), |(told, cut)| f(&told.members, *cut), || ())
    }

    /// Makes a cut as [`read_cut`](Self::read_cut) does and passes it to `at`, or waits for another
    /// reader's cut that began after this call. Then calls `f` in parallel with other readers.
    pub(super) fn share_cut<R>(
        &self,
        before: impl FnOnce(),
        at: impl FnOnce(&mut S, u64),
        f: impl FnOnce() -> R,
    ) -> R
    where
        S: Sync,
    {
        let at = |told: &mut MemberStructure<S>, cut: u64| at(&mut told.members, cut);
        guarded(|| self.set.share_cut(before, at), |_| f(), || ())
    }

    /// Returns the epoch that a change that begins now must note: see [`DeferredSet::epoch`].
    #[inline(always)]
    pub(super) fn epoch(&self) -> u64 {
        self.set.epoch()
    }

    /// Same as [`DeferredSet::is_current`].
    pub(super) fn is_current(&self) -> bool {
        self.set.is_current()
    }

    /// Decides whether changes are to be eager, and for how many reads.
    #[cold]
    fn pace(&self, told: &mut MemberStructure<S>, look: Look) -> (bool, u32) {
        told.pace.look(look, self.came(), Clock::system().ticks_now())
    }

    /// Returns how many members have come.
    fn came(&self) -> u64 {
        self.heaps.iter().map(|(_, heap)| heap.came()).sum()
    }

    pub(super) fn stats(&self) -> Stats {
        self.set.stats()
    }
}

impl<T: Send + Sync + 'static, S: MemberStore<T>> Drop for MemberPool<T, S> {
    fn drop(&mut self) {
        // SAFETY: not used afterwards. After this, no queue has a node.
        let dropped = caught(|| unsafe { ManuallyDrop::drop(&mut self.set) });
        for (_, heap) in self.heaps.iter() {
            // SAFETY: `&mut self`. A free node is a box without a value.
            heap.take_all(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
        }
        resume_first([dropped]);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::thread;

    /// Returns the number of nodes.
    struct Count(usize);

    impl MemberStore<u64> for Count {
        const AT_PACE: bool = true;

        unsafe fn insert(&mut self, _: NonNull<Member<u64>>) {
            self.0 += 1;
        }

        unsafe fn remove(&mut self, _: NonNull<Member<u64>>) {
            self.0 -= 1;
        }
    }

    /// Makes pairs, with a read inside after every few of them. Returns how many were eager.
    fn run(pool: &MemberPool<u64, Count>, pairs: usize, read_every: usize) -> usize {
        let mut eager = 0;
        for pair in 1..=pairs {
            let value = pool.enter(7);
            if pair % read_every == 0 {
                assert_eq!(pool.read(|count| count.0), 1);
            }
            eager += usize::from(pool.set.is_eager());
            // SAFETY: `enter` returned it just now, and it is not used afterwards.
            unsafe { pool.leave(value) };
        }
        eager
    }

    #[test]
    fn members_are_put_on_trial_while_reads_are_frequent() {
        let pool = MemberPool::new(Queue::PerThread, 100, Count(0));
        assert_eq!(run(&pool, 10_000, 100), 0, "seldom read");
        assert!(run(&pool, 20_000, 1) >= 512, "a read for each pair");
        run(&pool, 2_000, usize::MAX);
        assert_eq!(run(&pool, 2_000, usize::MAX), 0, "never read");
        assert_eq!(pool.read(|count| count.0), 0);
    }

    #[test]
    fn eager_and_deferred_members_of_threads_add_up() {
        let pool = &MemberPool::new(Queue::PerThread, 100, Count(0));
        thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 40 } else { 20_000 } {
                        let values = [pool.enter(round), pool.enter(thread)];
                        if (round / 300 + thread) % 2 == 0 {
                            assert!(pool.read(|count| count.0) >= 2);
                        }
                        // SAFETY: `enter` returned them just now.
                        values.into_iter().for_each(|value| unsafe { pool.leave(value) });
                    }
                });
            }
        });
        assert_eq!(pool.read(|count| count.0), 0);
    }
}
