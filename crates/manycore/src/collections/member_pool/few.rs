//! A pool's small form: a list of members behind a lock.
//!
//! Owns: [`FewMembers`], for programs with many sets that are mostly hardly used. A pool takes some
//! ten thousand bytes once it is used; the small form takes two hundred.
//!
//! Laws:
//! - **few.F1** A member is *untold* while the structure does not know of its coming or
//!   going yet. It is in the list then, once, and its word says that it is queued. So a pool's set
//!   takes the list over as it is, and that runs no user code. (Law promoted.P1 decides which form
//!   a thread uses.)
//! - **few.F2** No user code runs under the list's lock. If the structure would run some,
//!   the members become a pool first. So members may come and go from within that code, and a panic
//!   of it finds the pool's poison.
//! - **few.F3** Three kinds of nodes are free at once. A node whose owner came and went
//!   before the structure was told gives its value up, if that is small, and waits for the next
//!   member. So does a node that the structure has let go by itself
//!   ([`change_and_free`](FewMembers::change_and_free)), and a node that it was told to remove, if
//!   there is nothing in it to drop.

use super::{Member, MemberPool, MemberStore, SPARE, node_of};
use crate::collections::promoted::{Holding, Promotable, SmallForm};
use crate::config::{self, SMALL};
use crate::ldu::{Linked, Links, Queue};
use crate::sync::{Ordering, caught, model_failed, resume_first, run_each};
use std::mem::{needs_drop, take};
use std::ptr::NonNull;

/// Members as in a [`MemberPool`], which this becomes when many threads use it.
pub(in crate::collections) struct FewMembers<T: Send + Sync + 'static, S: Store<T>> {
    forms: Promotable<Few<T, S>>,
}

/// Requirements of a [`FewMembers`] on its structure.
pub(in crate::collections) trait Store<T>: MemberStore<T> + Default {
    /// Returns true if the structure runs user code when it is told of `untold` members, and then
    /// looked at.
    fn runs_users_code(&self, untold: usize) -> bool;

    /// Data that the owner keeps beside the pool.
    type Beside: Default;
}

/// The large form.
pub(in crate::collections) struct Many<T: Send + Sync + 'static, S: Store<T>> {
    pub(in crate::collections) pool: MemberPool<T, S>,
    pub(in crate::collections) beside: S::Beside,
}

struct Few<T, S> {
    structure: S,
    /// First the untold members. Those that came have their index here noted in them. Those that
    /// have gone are known to the structure (few.F1). Then nodes without a value, for
    /// further members (few.F3), whose `full` means nothing.
    nodes: Vec<NonNull<Member<T>>>,
    untold: usize,
    queue: Queue,
}

/// The work left, without the lock, for a member that has gone.
enum Gone<T> {
    /// Nothing: the structure must be told first.
    Untold,
    /// Drop its value; the node is free.
    Value(T),
    /// Free the node, with its value.
    Node(NonNull<Member<T>>),
}

/// Untold members that a glance looks at, at most: the first line of their list.
const GLANCED: usize = if SMALL { 1 } else { 8 };

/// Bytes of a value up to which it is moved out of its node, so that the node can be reused.
const MOVED_BYTES: usize = 256;

// SAFETY: it owns the nodes that have gone, and leads to those of handles; any thread may use and
// free them, as in a pool (`Member`).
unsafe impl<T: Send + Sync, S: Send> Send for Few<T, S> {}

impl<T: Send + Sync + 'static, S: Store<T>> SmallForm for Few<T, S> {
    type Large = Many<T, S>;

    fn promote(&mut self, _: bool) -> Many<T, S> {
        self.free_spare(0);
        self.untold = 0;
        let (structure, untold) = (take(&mut self.structure), take(&mut self.nodes));
        let mut pool = MemberPool::new(self.queue, config::DEFAULT_MAX_ENTRIES, structure);
        // SAFETY: few.F1 - the list has every untold member, once; owners leave by way of
        // the pool from now on (promoted.P1).
        unsafe { pool.set.take_over(untold) };
        Many { pool, beside: S::Beside::default() }
    }
}

impl<T: Send + Sync + 'static, S: Store<T>> FewMembers<T, S> {
    pub(in crate::collections) fn new(queue: Queue) -> Self {
        let few = Few { structure: S::default(), nodes: Vec::new(), untold: 0, queue };
        Self { forms: Promotable::new(few) }
    }

    /// Promotes the members to a pool.
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(in crate::collections) fn promoted(self) -> Self {
        self.promote();
        self
    }

    /// Returns the large form, which it makes if there is none.
    pub(in crate::collections) fn promote(&self) -> &Many<T, S> {
        self.forms.promote()
    }

    /// Returns the large form, if there is one.
    #[inline(always)]
    pub(in crate::collections) fn many(&self) -> Option<&Many<T, S>> {
        self.forms.large()
    }

    #[inline(always)]
    pub(in crate::collections) fn enter(&self, value: T) -> NonNull<T> {
        self.enter_then(value, |_, _| {})
    }

    /// Enters a value, and calls `then` with it if there is a large form.
    #[inline(always)]
    pub(in crate::collections) fn enter_then(
        &self,
        value: T,
        then: impl FnOnce(NonNull<T>, &Many<T, S>),
    ) -> NonNull<T> {
        match self.forms.small() {
            Ok(mut few) => few.enter(value),
            Err(many) => {
                let entered = many.pool.enter(value);
                then(entered, many);
                entered
            }
        }
    }

    /// Same as [`MemberPool::leave`].
    ///
    /// # Safety
    /// Same as [`MemberPool::leave`].
    #[inline(always)]
    pub(in crate::collections) unsafe fn leave(&self, value: NonNull<T>) {
        let gone = match self.forms.small() {
            // SAFETY: the caller promises a value of `enter`, and that this is its last use.
            Ok(mut few) => unsafe { few.leave(node_of(value)) },
            // SAFETY: the caller promises a value of `enter` and its last use; the pool took over
            // what the small form had noted of the member.
            Err(many) => return unsafe { many.pool.leave(value) },
        };
        if let Gone::Node(node) = gone {
            // SAFETY: the node is in no list and has a value, and its owner has gone.
            unsafe { Member::free(node) };
        }
    }

    /// Same as [`MemberPool::read`].
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(in crate::collections) fn read<R>(&self, f: impl FnOnce(&S) -> R) -> R
    where
        S: Sync,
    {
        self.read_few(f).unwrap_or_else(|(f, many)| many.pool.read(f))
    }

    /// Same as [`read`](Self::read) in the small form. Otherwise returns the large form.
    pub(in crate::collections) fn read_few<R, F>(&self, f: F) -> Result<R, (F, &Many<T, S>)>
    where
        F: FnOnce(&S) -> R,
    {
        match self.few_for_a_look() {
            Ok(few) => Ok(look(few, |structure| f(structure))),
            Err(many) => Err((f, many)),
        }
    }

    /// Returns what `of` makes of the structure, changed by `with` for each untold member. If there
    /// are more than a few untold members, the structure is told first. This is for the small form;
    /// otherwise returns the large form.
    #[inline(always)]
    pub(in crate::collections) fn glance<R>(
        &self,
        of: impl Fn(&S) -> R,
        mut with: impl FnMut(&mut R, &T),
    ) -> Result<R, &Many<T, S>> {
        let few = self.few_for_a_look()?;
        if few.untold > GLANCED {
            return Ok(look_again(few, of));
        }
        let mut result = of(&few.structure);
        for node in &few.nodes[..few.untold] {
            // SAFETY: few.F1 - what is in the list is held, with its value, until the
            // structure is told.
            unsafe {
                if !node.as_ref().links.is_here() {
                    return Ok(look_again(few, of));
                }
                with(&mut result, Member::value(*node));
            }
        }
        Ok(result)
    }

    /// Same as [`MemberPool::change`].
    pub(in crate::collections) fn change<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        match self.few_for_a_look() {
            Ok(few) => look(few, f),
            Err(many) => many.pool.change(f),
        }
    }

    /// Calls `f` with the up-to-date structure and a list. To the list `f` adds members that the
    /// structure has let go and whose owners have gone: they are freed, their values not dropped.
    ///
    /// In the small form `f` is also called once before, when the structure does not know yet what
    /// came. What `f` does then may save the structure from ordering those members.
    pub(in crate::collections) fn change_and_free(
        &self,
        mut f: impl FnMut(&mut S, &mut Vec<NonNull<Member<T>>>),
    ) {
        let many = match self.few_for_a_look() {
            Ok(mut few) => {
                let mut garbage = Vec::new();
                let Few { structure, nodes, .. } = &mut *few;
                f(structure, nodes);
                few.tell(&mut garbage);
                let Few { structure, nodes, .. } = &mut *few;
                f(structure, nodes);
                if few.nodes.len() > SPARE {
                    few.free_spare(SPARE);
                }
                drop(few);
                return free(garbage);
            }
            Err(many) => many,
        };
        let mut gone = Vec::new();
        many.pool.change(|structure| f(structure, &mut gone));
        for node in gone {
            // SAFETY: `f` adds each member once, when its owner has gone.
            unsafe { many.pool.leave(Member::handle(node)) };
        }
    }

    /// Returns the small form, unless a look at it runs user code (few.F2).
    #[inline(always)]
    fn few_for_a_look(&self) -> Result<Holding<'_, Few<T, S>>, &Many<T, S>> {
        let few = self.forms.small()?;
        match few.structure.runs_users_code(few.untold) {
            true => Err(few.promote()),
            false => Ok(few),
        }
    }
}

/// Tells the structure what it does not know, and calls `f` with it. Drops what has gone after the
/// lock is released.
fn look<T, S, R>(mut few: Holding<'_, Few<T, S>>, f: impl FnOnce(&mut S) -> R) -> R
where
    T: Send + Sync + 'static,
    S: Store<T>,
{
    let mut garbage = Vec::new();
    few.tell(&mut garbage);
    let result = f(&mut few.structure);
    drop(few);
    free(garbage);
    result
}

/// Same as [`look`], for a look that began without telling the structure.
#[inline(never)]
fn look_again<T, S, R>(few: Holding<'_, Few<T, S>>, of: impl Fn(&S) -> R) -> R
where
    T: Send + Sync + 'static,
    S: Store<T>,
{
    look(few, |structure| of(structure))
}

/// Frees members that have gone.
#[inline]
fn free<T: Send + Sync + 'static>(gone: Vec<NonNull<Member<T>>>) {
    if gone.is_empty() {
        return;
    }
    // SAFETY: member_pool.N1 - the callers have them from `Few::tell` or the list of a set that
    // goes: they are in no list, have a value, and their owners have gone.
    run_each(gone, |node| unsafe { Member::free(node) });
}

impl<T: Send + Sync + 'static, S: MemberStore<T>> Few<T, S> {
    #[inline(always)]
    fn enter(&mut self, value: T) -> NonNull<T> {
        let node = match self.nodes.get(self.untold) {
            Some(node) => *node,
            None => self.make_node(),
        };
        // SAFETY: the node is this call's: new, or free (few.F3).
        unsafe {
            let place = Member::handle(node);
            place.write(value);
            let member = &mut *node.as_ptr();
            member.links = Links::coming();
            // ORDER: Relaxed (all of `place`); guarded by the lock.
            member.place.store(self.untold, Ordering::Relaxed);
            self.untold += 1;
            place
        }
    }

    /// Makes a free node, in the first place after the untold members. The caller has found none
    /// there.
    #[cold]
    #[inline(never)]
    fn make_node(&mut self) -> NonNull<Member<T>> {
        debug_assert!(self.nodes.len() == self.untold, "few.F3: a free node is misplaced");
        let node = Member::new();
        self.nodes.push(node);
        node
    }

    /// Removes a member.
    ///
    /// # Safety
    /// `node` is that of a value of `enter`, and its owner leaves.
    #[inline(always)]
    unsafe fn leave(&mut self, node: NonNull<Member<T>>) -> Gone<T> {
        // SAFETY: member_pool.N1 - the caller is the owner, so the node is there.
        let member = unsafe { node.as_ref() };
        if !member.links.is_untold() {
            self.leave_told(node);
            return Gone::Untold;
        }
        let at = member.place.load(Ordering::Relaxed);
        debug_assert!(
            at < self.untold && self.nodes[at] == node,
            "few.F1: an untold member is misplaced"
        );
        self.untold -= 1;
        if at != self.untold {
            self.close_gap(at);
        }
        if size_of::<T>() > MOVED_BYTES || self.nodes.len() - self.untold > SPARE {
            self.nodes.swap_remove(self.untold);
            return Gone::Node(node);
        }
        // SAFETY: few.F3 - the node has a value, which is read once, since it counts as
        // free from here on; its owner has gone.
        Gone::Value(unsafe { Member::handle(node).read() })
    }

    /// Notes that the structure must be told that a member goes.
    #[inline(never)]
    fn leave_told(&mut self, node: NonNull<Member<T>>) {
        // SAFETY: member_pool.N1 - the caller is the owner, so the node is there.
        unsafe { node.as_ref() }.links.go();
        self.nodes.push(node);
        let last = self.nodes.len() - 1;
        self.nodes.swap(self.untold, last);
        self.untold += 1;
    }

    /// Swaps the last untold member with a node before it.
    #[inline(never)]
    fn close_gap(&mut self, at: usize) {
        self.nodes.swap(at, self.untold);
        // SAFETY: few.F1 - what is in the list is held until the structure is told.
        let moved = unsafe { self.nodes[at].as_ref() };
        // If the member has gone, its place still belongs to the structure.
        if moved.links.is_here() {
            moved.place.store(at, Ordering::Relaxed);
        }
    }

    /// Tells the structure what it does not know. Adds what has gone to `garbage`, to be freed.
    ///
    /// # Panics
    /// If the structure does. It counts as told of that member (ldu.U7).
    fn tell(&mut self, garbage: &mut Vec<NonNull<Member<T>>>) {
        while let Some(last) = self.untold.checked_sub(1) {
            let node = self.nodes.swap_remove(last);
            self.untold = last;
            // SAFETY: few.F1 - an untold member is held, with its value, until the
            // structure is told of it; one that has gone had been told of before.
            unsafe {
                if node.as_ref().links.note_told_if_here() {
                    self.structure.insert(node);
                } else {
                    let is_kept = !needs_drop::<T>() && self.nodes.len() - last < SPARE;
                    if is_kept { &mut self.nodes } else { &mut *garbage }.push(node);
                    self.structure.remove(node);
                }
            }
        }
    }

    /// Frees nodes without a value, except `keep` of them.
    #[cold]
    fn free_spare(&mut self, keep: usize) {
        let from = self.nodes.len().min(self.untold + keep);
        // SAFETY: few.F3 - the nodes came from boxes, and are in no other list.
        self.nodes.drain(from..).for_each(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
    }
}

impl<T: Send + Sync + 'static, S: Store<T>> Drop for FewMembers<T, S> {
    /// Tells the structure what is left, as a pool does. (If there is a pool, nothing is left.)
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        let mut garbage = Vec::new();
        let few = self.forms.get_mut();
        let told = caught(|| few.tell(&mut garbage));
        few.free_spare(0); // what was told has left nodes here
        // After a panic: what has gone is freed all the same.
        // SAFETY: few.F1 - what is in the list is held.
        garbage
            .extend(few.nodes.drain(..).filter(|node| !unsafe { node.as_ref() }.links.is_here()));
        resume_first([told, caught(|| free(garbage))]);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Returns the number of nodes.
    #[derive(Default)]
    struct Count(usize);

    impl<T> MemberStore<T> for Count {
        unsafe fn insert(&mut self, _: NonNull<Member<T>>) {
            self.0 += 1;
        }

        unsafe fn remove(&mut self, _: NonNull<Member<T>>) {
            self.0 -= 1;
        }
    }

    impl<T> Store<T> for Count {
        type Beside = ();

        fn runs_users_code(&self, _: usize) -> bool {
            false
        }
    }

    type Members = FewMembers<u64, Count>;

    fn count(members: &Members) -> usize {
        members.read(|count| count.0)
    }

    /// Every order of coming, being told and going of some members, across the promotion.
    #[test]
    fn members_of_both_forms_are_counted_once() {
        for (told, gone, promoted_at) in (0..16)
            .flat_map(|told| (0..4).flat_map(move |gone| (0..4).map(move |at| (told, gone, at))))
        {
            let mut members = Members::new(Queue::PerThread);
            let mut here = Vec::new();
            for step in 0..4_usize {
                if promoted_at == step {
                    members = members.promoted();
                }
                here.push(members.enter(step as u64));
                here.push(members.enter(10 + step as u64));
                if told >> step & 1 == 1 {
                    assert_eq!(count(&members), here.len());
                }
                let value = here.swap_remove((gone * step) % here.len());
                // SAFETY: `enter` returned it, and it is not used afterwards.
                unsafe { members.leave(value) };
            }
            assert_eq!(count(&members), 4);
            // SAFETY: `enter` returned each, and each is given back here for the last time.
            here.into_iter().for_each(|value| unsafe { members.leave(value) });
            assert_eq!(count(&members), 0);
        }
    }

    #[test]
    fn node_with_nothing_to_drop_is_used_again_after_its_structure_was_told() {
        let members = Members::new(Queue::PerThread);
        let first = members.enter(1);
        assert_eq!(count(&members), 1);
        // SAFETY: `enter` returned it, and it is not used afterwards.
        unsafe { members.leave(first) };
        assert_eq!(count(&members), 0);
        let second = members.enter(2);
        assert_eq!(second, first);
        // SAFETY: `enter` returned it, and it is read before it is given back.
        assert_eq!(unsafe { *second.as_ref() }, 2);
        assert_eq!(count(&members), 1);
        // SAFETY: as for the first.
        unsafe { members.leave(second) }; // the end tells the structure, and frees the node
    }

    #[test]
    fn node_of_a_member_that_came_and_went_is_used_again_and_its_value_dropped_once() {
        let shared = Arc::new(());
        let members = FewMembers::<Arc<()>, Count>::new(Queue::PerThread);
        let enter = || members.enter(Arc::clone(&shared));
        // SAFETY: `enter` returned each, and each is given back once.
        let leave = |value| unsafe { members.leave(value) };
        let first = enter();
        leave(first);
        assert_eq!(Arc::strong_count(&shared), 1);
        assert_eq!(enter(), first);
        let many: Vec<_> = (0..2 * SPARE).map(|_| enter()).collect();
        assert_eq!(Arc::strong_count(&shared), 2 + many.len());
        many.into_iter().for_each(leave);
        assert_eq!((Arc::strong_count(&shared), members.read(|count| count.0)), (2, 1));
        leave(first); // its structure has been told
        assert_eq!(members.read(|count| count.0), 0);
        assert_eq!(Arc::strong_count(&shared), 1);
        drop(members.promoted());
    }
}
