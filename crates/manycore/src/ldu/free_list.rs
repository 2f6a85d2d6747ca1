//! A free list of members that were inserted and removed between two reads.
//!
//! Owns: [`FreeList`]. Law:
//! - **ldu.L1** A member in the list is idle: no structure has it, and no read will ask for it,
//!   although a queue may have it still (as [`recycle_raw`](super::DeferredSet::recycle_raw) says).
//!   So its set and its value are the list's, and its marks are not. Its value has been taken out.

use super::handle::Attached;
use super::links::links_of;
use super::set_domain::{SetDomain, SetElement, SetId, SetMap};
use super::structure::Structure;
use crate::config::SMALL;
use std::fmt;
use std::ptr::{self, NonNull};

/// Members that a list keeps.
const KEPT: usize = if SMALL { 1 } else { 64 };

/// Members of a [`SetDomain`] that came and went between two reads, kept to serve another set.
///
/// For a thread whose sets and members come and go all the time. What it takes out through the
/// list it puts in again, also into another set, and also while a queue still has it: then the
/// whole life of a member is two atomic instructions on a line of the thread's own, with neither
/// memory nor a queue. On two cores, sets of one to five members come and go four times as fast so
/// without reads (`manycore bench fork-chain`). Queues for each set cannot do that: a member
/// that waits in one can't serve another set.
///
/// One for each thread; it may be moved to another. It may take members that other threads
/// inserted.
///
/// ```
/// use manycore::ldu::{FreeList, SetDomain, SetElement, Structure};
///
/// #[derive(Default)]
/// struct Sum(u64);
/// impl Structure<SetElement<u64>> for Sum {
///     fn insert(&mut self, number: &SetElement<u64>) {
///         self.0 += **number;
///     }
///     fn remove(&mut self, number: &SetElement<u64>) {
///         self.0 -= **number;
///     }
/// }
///
/// let domain = SetDomain::<Sum, _>::default();
/// let mut free = FreeList::new(&domain);
/// for number in 0..1000 {
///     let member = free.add(domain.new_set().id(), number);
///     assert_eq!(free.remove(member), Some(number)); // no read in between
/// }
/// assert_eq!(domain.stats().queued, 1);
/// ```
///
/// - Cost: that of an insertion or a removal. Where a read has seen the member, or the list is
///   empty or full, that of the memory, too.
/// - Memory: at most 64 members, given back with the list.
/// - Panics: as [`DeferredSet`](super::DeferredSet).
#[doc(alias = "free list")]
pub struct FreeList<'d, T: Structure<SetElement<V>>, V: Send + Sync + 'static> {
    domain: &'d SetDomain<T, SetElement<V>>,
    idle: Vec<NonNull<SetElement<V>>>,
}

// SAFETY: ldu.L1 - the members are the list's, and may be sent (`Linked`).
unsafe impl<T: Structure<SetElement<V>>, V: Send + Sync + 'static> Send for FreeList<'_, T, V> {}

impl<'d, T: Structure<SetElement<V>>, V: Send + Sync + 'static> FreeList<'d, T, V> {
    /// An empty list.
    #[must_use]
    pub fn new(domain: &'d SetDomain<T, SetElement<V>>) -> Self {
        Self { domain, idle: Vec::new() }
    }

    /// Inserts a value into a set of the domain: [`Set::add`](super::Set::add) with a member of the
    /// list's, if there is one.
    #[inline]
    pub fn add(&mut self, set: SetId, value: V) -> Attached<'d, SetMap<T>, SetElement<V>> {
        let Some(member) = self.idle.pop() else {
            return self.domain.set(set).add(value);
        };
        debug_assert!(is_idle(member), "ldu.L1: a member of a free list is in use");
        // SAFETY: ldu.L1 - set and value are the list's to write, and there is no value to be lost;
        // the member's memory is held, and it is in no other domain than this.
        unsafe {
            SetElement::refill(member, set, value);
            Attached::from_raw(self.domain, member)
        }
    }

    /// Takes a member out and keeps its memory, if no read has to hear of it: then its value comes
    /// back. `None` says that the domain drops it with the next read.
    ///
    /// # Panics
    /// If the member is in another domain.
    #[inline]
    #[track_caller]
    pub fn remove(&mut self, member: Attached<'d, SetMap<T>, SetElement<V>>) -> Option<V> {
        assert!(
            ptr::eq(member.domain(), self.domain),
            "manycore: the member is in another domain than the list; remove it through its handle"
        );
        let member = member.into_raw();
        // SAFETY: the handle was the only one, and is spent.
        if !unsafe { self.domain.recycle_raw(member) } {
            return None;
        }
        debug_assert!(is_idle(member), "ldu.L1: a member of a free list is in use");
        // SAFETY: ldu.L1 - idle from here on.
        let value = unsafe { SetElement::take(member) };
        if self.idle.len() < KEPT {
            self.idle.push(member);
        } else {
            // SAFETY: not in the domain, and not used afterwards.
            unsafe { self.domain.free_raw(member) };
        }
        value
    }
}

/// Whether a member is as one of a list must be (ldu.L1).
fn is_idle<V: Send + Sync + 'static>(member: NonNull<SetElement<V>>) -> bool {
    // SAFETY: ldu.L1 - the list has the member, so it lives; its marks are atomic.
    unsafe { links_of(member).as_ref() }.load().is_idle()
}

impl<T: Structure<SetElement<V>>, V: Send + Sync + 'static> Drop for FreeList<'_, T, V> {
    fn drop(&mut self) {
        for member in self.idle.drain(..) {
            // SAFETY: ldu.L1 - not in the domain, and not used afterwards.
            unsafe { self.domain.free_raw(member) };
        }
    }
}

impl<T: Structure<SetElement<V>>, V: Send + Sync + 'static> fmt::Debug for FreeList<'_, T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList").field("idle", &self.idle.len()).finish_non_exhaustive()
    }
}
