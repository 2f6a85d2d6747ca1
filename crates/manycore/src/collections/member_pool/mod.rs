//! Values with marks, in memory that is used again: what collections on [`DeferredSet`] share.
//!
//! Owns: [`MemberPool`], its nodes and their memory; in `few`, its small form. What a read wants of
//! the nodes is the structure's.
//!
//! Laws:
//! - **member_pool.N1** A node is made by `enter` and belongs to the set. It has a value from then
//!   until its owner leaves, or, if the structure has to be told of that still, until the set frees
//!   it.
//! - **member_pool.N2** A node whose owner came and went without a read between them is the owner's
//!   again: it gives its value up and waits in the heap of the thread's slot, perhaps still queued,
//!   for the next `enter` there. A heap is used by its slot's owner alone, and no user
//!   code runs in between.
//! - **member_pool.N3** The user's code runs under the set's lock only where the structure says so.
//!   Values are dropped outside of it, and closures that a read calls give their panic to the
//!   reader after it.

mod few;
#[cfg(all(test, manycore_loom))]
mod loom_tests;

pub(super) use few::{FewMembers, Store};

use super::guarded;
use crate::config::SMALL;
use crate::ldu::{DeferredSet, Linked, Links, Queue, Stats, Structure};
use crate::percpu::{self, segmented::Segmented};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell, caught, resume_first};
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ptr::NonNull;

/// Free nodes that a slot keeps.
const SPARE: usize = if SMALL { 1 } else { 64 };

/// A value, its marks, and what the structure notes of it.
pub(super) struct Member<T> {
    links: Links,
    /// The structure's, while it has the node: used under the set's lock alone.
    pub(super) place: AtomicUsize,
    /// Whether there is a value (member_pool.N1, member_pool.N2). Written by the node's owner.
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

/// Free nodes of one slot (member_pool.N2).
#[repr(align(128))]
struct Heap<T>(UnsafeCell<Vec<NonNull<Member<T>>>>);

impl<T> From<usize> for Heap<T> {
    fn from(_: usize) -> Self {
        Self(UnsafeCell::new(Vec::new()))
    }
}

impl<T> Member<T> {
    /// A node that is to get a value before anything else.
    fn new() -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self {
            links: Links::new(),
            place: AtomicUsize::new(0),
            full: AtomicBool::new(true),
            value: MaybeUninit::uninit(),
        })))
    }

    /// The value of a node that a structure has.
    ///
    /// # Safety
    /// The structure has been told of the node's coming, and not yet of its going (member_pool.N1).
    #[inline(always)]
    pub(super) unsafe fn value<'a>(node: NonNull<Self>) -> &'a T {
        // SAFETY: member_pool.N1 - the caller promises that a structure has the node; the set frees
        // it, and its owner takes the value back, only when no structure has it.
        unsafe { (*node.as_ptr()).value.assume_init_ref() }
    }

    /// Where the value is: what `enter` has returned for this node.
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

/// What keeps the nodes of a [`MemberPool`]: a [`Structure`] that may free what leaked handles have
/// left in it. So it gets the pointers that the nodes' boxes were made into, and no references.
pub(super) trait MemberStore<T>: Send {
    /// A node comes.
    ///
    /// # Safety
    /// The node has a value, and is alive until [`remove`](Self::remove) has returned for it, or
    /// the set is gone (member_pool.N1).
    unsafe fn insert(&mut self, node: NonNull<Member<T>>);

    /// A node goes.
    ///
    /// # Safety
    /// As [`insert`](Self::insert), which was called for it before.
    unsafe fn remove(&mut self, node: NonNull<Member<T>>);
}

/// Members as a set's structure.
struct MemberStructure<S>(S);

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
        unsafe { self.0.insert(node) };
    }

    unsafe fn remove_at(&mut self, node: NonNull<Member<T>>) {
        // SAFETY: member_pool.N1 - a node that a structure is told of keeps its value until this
        // returns; the caller promises that it was inserted before (`Structure::remove_at`).
        unsafe { self.0.remove(node) };
    }
}

/// A set of values with marks around the structure `S`.
pub(super) struct MemberPool<T: Send + Sync + 'static, S: MemberStore<T>> {
    set: ManuallyDrop<DeferredSet<MemberStructure<S>, Member<T>>>,
    heaps: Segmented<Heap<T>>,
}

/// A value's node.
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
    /// The bound has been checked.
    pub(super) fn new(queue: Queue, max_queued: usize, structure: S) -> Self {
        let builder = DeferredSet::builder().queue(queue).max_queued(max_queued);
        let set = builder.build(MemberStructure(structure)).expect("the bound has been checked");
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
            self.set.insert_raw(node);
            place
        }
    }

    #[inline(always)]
    fn spare(&self) -> Option<NonNull<Member<T>>> {
        percpu::with_own_slot(|slot| {
            let heap = self.heaps.get(slot.index())?;
            // SAFETY: member_pool.N2 - this thread has the slot.
            heap.0.with_mut(|heap| unsafe { (*heap).pop() })
        })
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
        if !unsafe { self.set.recycle_raw(node) } {
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

    /// Puts a node without a value where the next `enter` finds it, or frees it.
    #[inline(always)]
    fn keep(&self, node: NonNull<Member<T>>) {
        percpu::with_own_slot(|slot| {
            let heap = self.heaps.get_or_init(slot.index());
            heap.0.with_mut(|heap| {
                // SAFETY: member_pool.N2 - this thread has the slot.
                let heap = unsafe { &mut *heap };
                if heap.len() < SPARE {
                    heap.push(node);
                } else {
                    // SAFETY: member_pool.N2 - the caller's, without a value, not in the set.
                    unsafe { self.set.free_raw(node) };
                }
            });
        });
    }

    /// Calls `f` with the structure, up to date, side by side with other readers. A panic of `f`
    /// goes on when the set is given up (member_pool.N3).
    pub(super) fn read<R>(&self, f: impl FnOnce(&S) -> R) -> R
    where
        S: Sync,
    {
        guarded(|| self.set.read_shared(), |told| f(&told.0), || ())
    }

    /// As [`read`](Self::read), for a structure that a reader may change, though not its members.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        guarded(|| self.set.read(), |told| f(&mut told.0), || ())
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
            heap.0.with_mut(|heap| {
                // SAFETY: `&mut self`. A free node is a box without a value.
                unsafe { (*heap).drain(..).for_each(|node| drop(Box::from_raw(node.as_ptr()))) };
            });
        }
        resume_first([dropped]);
    }
}
