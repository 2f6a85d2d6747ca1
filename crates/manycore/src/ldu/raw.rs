//! Changes of members by hand, for owners that manage their members' memory themselves.

use super::links::{Linked, links_of};
use super::retired::retire;
use super::set::DeferredSet;
use super::structure::Structure;
use super::word::Change;
use std::ptr::NonNull;

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    /// Inserts a member by hand.
    ///
    /// # Panics
    /// If the member is already in the set; the panic gives the member's [`name`](Linked::name).
    ///
    /// # Safety
    /// - The member is alive. It stays alive and unchanged until [`dequeue_raw`](Self::dequeue_raw)
    ///   has returned for it, or until it was passed to [`retire_raw`](Self::retire_raw).
    /// - It is in no other set, and in no other set's queue.
    /// - Calls for one member follow each other (ldu.U1).
    #[inline]
    pub unsafe fn insert_raw(&self, member: NonNull<E>) {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member that is in no other set or
        // queue, is not changed until it is settled or retired, and has one call at a time (#
        // Safety).
        if unsafe { self.state.change(member, Change::Insert) }.is_err() {
            // SAFETY: the change was refused, so it took nothing: the caller's member is alive (#
            // Safety).
            misused(unsafe { member.as_ref() }, "is inserted, but is in the set already");
        }
    }

    /// Removes a member by hand.
    ///
    /// # Panics
    /// If the member is not in the set; the panic gives the member's [`name`](Linked::name).
    ///
    /// # Safety
    /// As for [`insert_raw`](Self::insert_raw); and the member was inserted into this set.
    #[inline]
    pub unsafe fn remove_raw(&self, member: NonNull<E>) {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member that was inserted into this
        // set, and one call at a time (# Safety).
        if unsafe { self.state.change(member, Change::Remove) }.is_err() {
            // SAFETY: the change was refused, so it took nothing: the caller's member is alive
            // (# Safety).
            misused(unsafe { member.as_ref() }, "is removed, but is not in the set");
        }
    }

    /// Removes a member by hand and leaves its memory to the set. The set calls [`Linked::free`]
    /// when no queue has the member any more.
    ///
    /// # Panics
    /// As for [`remove_raw`](Self::remove_raw).
    ///
    /// # Safety
    /// As for [`remove_raw`](Self::remove_raw); and the member is not used afterwards.
    #[inline]
    pub unsafe fn retire_raw(&self, member: NonNull<E>) {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member that was inserted into this
        // set, one call at a time, and no use of the member afterwards (# Safety).
        if unsafe { self.state.change(member, Change::GiveUp) }.is_err() {
            // SAFETY: the change was refused, so it did not give the member up: it is alive
            // (# Safety).
            misused(unsafe { member.as_ref() }, "is removed, but is not in the set");
        }
    }

    /// Removes a member by hand, for an owner that wants to reuse its memory soon.
    ///
    /// Returns true if the member's data belong to the caller again, although a queue may still
    /// have the member. Then it may be inserted with other data, or passed to
    /// [`free_raw`](Self::free_raw). Returns false if the structure still has to be told about the
    /// member; then the set frees it, as after [`retire_raw`](Self::retire_raw).
    ///
    /// A member that came and went since the last read, without a read in between, belongs to the
    /// caller.
    ///
    /// # Panics
    /// As for [`remove_raw`](Self::remove_raw).
    ///
    /// # Safety
    /// As for [`remove_raw`](Self::remove_raw); and the member is not used afterwards if the result
    /// is false.
    #[inline]
    pub unsafe fn recycle_raw(&self, member: NonNull<E>) -> bool {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member that was inserted into this
        // set, one call at a time, and no use afterwards if the result is false (# Safety).
        match unsafe { self.state.change(member, Change::Recycle) } {
            Ok(word) => word.is_idle(),
            // SAFETY: the change was refused, so it did not give the member up: it is alive
            // (# Safety).
            Err(_) => misused(unsafe { member.as_ref() }, "is removed, but is not in the set"),
        }
    }

    /// Ensures that no queue has the member, by reading the set if a queue has it. Afterwards its
    /// memory belongs to the caller alone.
    ///
    /// # Panics
    /// As for [`read`](Self::read), if a read is needed; also if the member is in the set.
    ///
    /// # Safety
    /// As for [`remove_raw`](Self::remove_raw).
    pub unsafe fn dequeue_raw(&self, member: NonNull<E>) {
        // SAFETY: ldu.U3 - the caller promises a live member that was not retired (# Safety); a
        // drain that lets it go leaves its memory to the caller.
        let marks = unsafe { &*links_of(member).as_ptr() };
        let word = marks.load();
        if word.is_attached() {
            // SAFETY: the member is alive, and nothing changes it before this call has returned
            // (# Safety).
            misused(unsafe { member.as_ref() }, "is settled, but is in the set");
        }
        if !word.is_queued() {
            return;
        }
        // SAFETY: `hold` passes a set with a lock that this thread has.
        let guard = self.hold(true, |state| unsafe { state.drain(false) });
        // A leftover mark can be no race: its changes came before this read's cut.
        assert!(
            guard.is_ok() && !marks.load().is_queued(),
            "manycore: a member can't be taken back while this thread holds its set (or an object \
             for which the set's holder waits), or while the set is poisoned"
        );
        drop(guard);
    }

    /// Frees a member that is not in the set, or leaves that to the set if a queue still has it.
    ///
    /// # Safety
    /// As [`remove_raw`](Self::remove_raw); the member is not in the set, and it is not used
    /// afterwards.
    pub unsafe fn free_raw(&self, member: NonNull<E>) {
        // SAFETY: the caller promises a member of its own that is not in the set, and that it is
        // not used afterwards (# Safety).
        unsafe { retire(member) };
    }
}

#[cold]
#[inline(never)]
fn misused<E: Linked>(member: &E, how: &str) -> ! {
    panic!("manycore: {} {how}", member.name());
}
