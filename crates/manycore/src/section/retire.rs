//! Retiring: an unlinked node goes to its thread's limbo (section.S5).

use super::guard::Section;
use super::home::NOWHERE;
use super::limbo::Limbo;
use super::limbo::RetiredNode;
use super::local::{FULL, Local, URGENT};
use super::pointer::{Pointable, Shared};
use super::state::State;
use super::unprotected;
use super::weight::Weight;
use std::ptr::NonNull;

impl Section<'_> {
    /// Frees `node` once every section that is open now has been closed.
    ///
    /// Cost: an append to the thread's own list and, in the long run, one earlier node freed for
    /// each retired; no shared line is written. Progress: never waits. A destructor that panics
    /// panics here, in whichever thread frees the node, and its node counts as freed.
    ///
    /// # Panics
    /// If `node` is null. In a debug build, if it was retired before.
    ///
    /// # Safety
    /// - The node is unlinked: no section opened from now on can reach it, and it is retired once.
    /// - Every section under which it was or will be loaded or linked is of this section's domain,
    ///   and its value may be dropped by any thread at any time until the domain is dropped.
    /// - In [`Mode::Bounded`](super::Mode::Bounded): before it was unlinked, every link out of it
    ///   was given a tag (see [`Atomic::fetch_or`](super::Atomic::fetch_or)) or set to null, and
    ///   was not changed back, so that a reader that still has the node does not follow its links.
    ///   Nodes without links, like a value behind one pointer, need nothing. Textbook lock-free
    ///   structures do not tag them all, and need the default, [`Mode::Epoch`](super::Mode::Epoch).
    ///   In a debug build, a load of an untagged link of a retired node panics.
    #[inline]
    #[doc(alias = "call_rcu")]
    #[doc(alias = "defer_destroy")]
    pub unsafe fn retire<T: ?Sized + Pointable + Send>(&self, node: Shared<'_, T>) {
        let weight = node.weight(None);
        self.state().retire(self.local(), node.into_limbo(weight, self), weight);
    }

    /// As [`retire`](Self::retire), of a node whose weight the caller knows better than its type
    /// tells: with everything that it owns on the heap, and without the node's header.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire). A wrong weight is safe.
    #[inline(always)] // of a weight that the compiler knows, not much is left
    pub unsafe fn retire_weighed<T: ?Sized + Pointable + Send>(
        &self,
        node: Shared<'_, T>,
        weight: impl Into<Weight>,
    ) {
        let weight = node.weight(Some(weight.into()));
        let weight = if std::mem::needs_drop::<T>() { weight.urgent() } else { weight };
        // A node of a type whose memory is used again (`Owned::new_in`).
        let into_limbo = || node.into_limbo(weight, self);
        if weight.is_urgent() || !self.state().retire_for_reused(self.local(), into_limbo) {
            self.retire_now(node.into_limbo(weight, self), weight);
        }
    }

    #[inline(never)]
    fn retire_now(&self, node: RetiredNode, weight: Weight) {
        self.state().retire(self.local(), node, weight);
    }

    /// As [`retire`](Self::retire), but no user code runs before the section is closed: nothing is
    /// freed and no gate is asked.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire).
    pub(crate) unsafe fn retire_quietly<T: Send>(
        &self,
        node: Shared<'_, T>,
        weight: impl Into<Weight>,
    ) {
        let weight = node.weight(Some(weight.into()));
        let weight = if std::mem::needs_drop::<T>() { weight.urgent() } else { weight };
        self.state().retire_quietly(self.local(), node.into_limbo(weight, self), weight);
    }

    /// Calls `free(address)` once every section that is open now has been closed: for memory that
    /// is no [`Owned`](super::Owned). Its `weight` is what `free` gives back: a number of bytes, if
    /// that is exact (see [`Weight`]).
    ///
    /// In a bounded domain such memory has no known birth: every stalled section holds it back.
    /// [`retire_born`](Self::retire_born) is told.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), with "node" for what is at `address`; and `free` may be
    /// called with it once, by any thread.
    #[inline]
    pub unsafe fn retire_raw(
        &self,
        address: NonNull<()>,
        weight: impl Into<Weight>,
        free: unsafe fn(NonNull<()>),
    ) {
        // SAFETY: what the caller promises; the birth is unknown.
        unsafe { self.retire_born(address, weight, 0, free) };
    }

    /// The birth of a node that the calling thread links from now on, in this section or in a later
    /// one: for [`retire_born`](Self::retire_born).
    #[inline]
    pub fn birth(&self) -> u64 {
        self.upper()
    }

    /// As [`retire_raw`](Self::retire_raw), with the node's birth: in a bounded domain, a section
    /// that stalled before the birth does not hold the node back.
    ///
    /// ```
    /// use manycore::section::Domain;
    /// use std::ptr::NonNull;
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    ///
    /// fn free(address: NonNull<()>) {
    ///     // SAFETY: the address is that of the box below, and comes back once.
    ///     drop(unsafe { Box::from_raw(address.cast::<u64>().as_ptr()) });
    /// }
    ///
    /// let domain = Domain::bounded();
    /// let section = domain.enter();
    /// let birth = section.birth(); // before it is linked
    /// let link = AtomicPtr::new(Box::into_raw(Box::new(7_u64)));
    /// let old = NonNull::new(link.swap(std::ptr::null_mut(), Ordering::AcqRel)).unwrap();
    /// // SAFETY: unlinked by the swap; it has no links; the birth was read before it was linked.
    /// unsafe { section.retire_born(old.cast(), 8_usize, birth, free) };
    /// ```
    ///
    /// # Safety
    /// As for [`retire_raw`](Self::retire_raw). `birth` is zero, or what [`birth`](Self::birth) of
    /// a section of this domain returned to the thread that linked the node: before it did, and in
    /// the section in which it did or before that was opened.
    #[inline(always)] // the C library's, at the end of a function of its own
    pub unsafe fn retire_born(
        &self,
        address: NonNull<()>,
        weight: impl Into<Weight>,
        birth: u64,
        free: unsafe fn(NonNull<()>),
    ) {
        let weight = weight.into();
        debug_assert!(
            cfg!(manycore_loom) || !self.state().bounded || birth <= self.state().era(),
            "section.E4: a node is retired before its birth"
        );
        let node = RetiredNode { address, free, birth, bytes: weight.bytes() };
        self.state().retire(self.local(), node, weight);
    }

    /// Memory that `free` would free next: that of a node which the calling thread retired in this
    /// domain with this function, and whose grace period is over (section.S13). The caller has it
    /// now, with what is in it, and `free` is not called. `None` if there is none at hand.
    ///
    /// What for: a structure that replaces nodes makes the new one in the memory of an old one, and
    /// spares its allocator both ways. The next [`retire`](Self::retire) frees one node less, so
    /// garbage is what it would have been. When not: nodes that own something, which `free` would
    /// have dropped: drop it before.
    ///
    /// Two functions that do the same may be one to the compiler. So what is known of the node is
    /// what `free` relies on, and no more. Cost: a few instructions; no shared line is touched.
    ///
    /// ```
    /// use manycore::section::Domain;
    /// use std::ptr::NonNull;
    ///
    /// fn free(address: NonNull<()>) {
    ///     // SAFETY: the address is that of a box below, and comes back once.
    ///     drop(unsafe { Box::from_raw(address.cast::<u64>().as_ptr()) });
    /// }
    ///
    /// let domain = Domain::new();
    /// let mut reused = 0;
    /// for number in 0..100_000_u64 {
    ///     let section = domain.enter();
    ///     let node = match section.reuse_raw(free) {
    ///         Some(node) => {
    ///             reused += 1;
    ///             // SAFETY: `free` takes boxes of this type, and this one is the caller's now.
    ///             unsafe { node.cast::<u64>().write(number) };
    ///             node
    ///         }
    ///         None => NonNull::from(Box::leak(Box::new(number))).cast(),
    ///     };
    ///     // SAFETY: it was never linked; it has no links.
    ///     unsafe { section.retire_raw(node, 8, free) };
    /// }
    /// assert!(reused > 50_000);
    /// ```
    #[inline(always)]
    #[must_use = "memory that is not used again is leaked"]
    pub fn reuse_raw(&self, free: unsafe fn(NonNull<()>)) -> Option<NonNull<()>> {
        self.local().reuse(free)
    }

    /// As [`retire_raw`](Self::retire_raw), if the thread has used memory again since its last
    /// retire, so that this one frees nothing (section.S13). If it returns false, nothing was done.
    /// Reports are left as they are: they count the memory that was used again in the node's stead.
    ///
    /// # Safety
    /// As for [`retire_raw`](Self::retire_raw).
    #[inline(always)]
    pub(crate) unsafe fn retire_for_reused(
        &self,
        address: NonNull<()>,
        weight: Weight,
        free: unsafe fn(NonNull<()>),
    ) -> bool {
        let node = || RetiredNode { address, free, birth: 0, bytes: weight.bytes() };
        !weight.is_urgent() && self.state().retire_for_reused(self.local(), node)
    }

    /// As [`retire_raw`](Self::retire_raw), but no user code runs before the section is closed, as
    /// in [`retire_quietly`](Self::retire_quietly).
    ///
    /// # Safety
    /// As for [`retire_raw`](Self::retire_raw).
    pub(crate) unsafe fn retire_raw_quietly(
        &self,
        address: NonNull<()>,
        weight: impl Into<Weight>,
        free: unsafe fn(NonNull<()>),
    ) {
        let weight = weight.into();
        let node = RetiredNode { address, free, birth: 0, bytes: weight.bytes() };
        self.state().retire_quietly(self.local(), node, weight);
    }

    /// Runs `f` once every section that is open now has been closed: in some thread that retires,
    /// at the latest when the domain is dropped.
    ///
    /// Cost: as `retire`, and an allocation.
    ///
    /// ```
    /// let section = manycore::section::enter();
    /// section.defer(|| println!("the grace period is over"));
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&self, f: F) {
        unsafe fn run<F: FnOnce()>(address: NonNull<()>) {
            // SAFETY: the address is that of the box below, and comes back once (`retire_raw`).
            let f = unsafe { Box::from_raw(address.cast::<F>().as_ptr()) };
            f();
        }
        let boxed = NonNull::from(Box::leak(Box::new(f))).cast();
        let weight = const { Weight::of::<F>() };
        let node = RetiredNode { address: boxed, free: run::<F>, birth: 0, bytes: weight.bytes() };
        self.state().retire(self.local(), node, weight);
    }
}

impl State {
    /// Puts a node that is not urgent into the owner's limbo, if the owner has used memory again
    /// since its last retire, so that this one frees nothing (section.S13). Reports are left as
    /// they are: they count the memory that was used again in the node's stead. If it returns
    /// false, nothing was done, and `node` was not called.
    #[inline(always)]
    fn retire_for_reused(&self, local: &Local, node: impl FnOnce() -> RetiredNode) -> bool {
        if !local.reused.get() {
            return false;
        }
        let full = {
            let limbo = local.limbo_unpublished();
            // SAFETY: `claim` allows it to the owner, which is inside, and no code of the user's
            // runs.
            let limbo = unsafe { limbo.deref() };
            if limbo.share() > 1 {
                return false;
            }
            limbo.push(node(), false);
            // (As many nodes wait as before the memory was used again.)
            let (nodes, bytes) = limbo.open();
            nodes >= self.batch_nodes || bytes >= limbo.limit()
        };
        local.reused.set(false);
        if full {
            self.batch_full(local);
        }
        true
    }

    /// Puts a node into the owner's limbo and frees a few that are expired (section.S5).
    #[inline(always)]
    pub(super) fn retire(&self, local: &Local, node: RetiredNode, weight: Weight) {
        let is_urgent = weight.is_urgent();
        let RetiredNode { address, free, birth, bytes } = node;
        let node = || RetiredNode { address, free, birth, bytes };
        // (No memory is used again in a section that protects nothing.)
        if !is_urgent && self.retire_for_reused(local, node) {
            return;
        }
        if local.slot == NOWHERE {
            return unprotected::free(address, free);
        }
        if is_urgent {
            // Not stored again if it is there: the compiler would store the one byte, and the load
            // of all four at the section's end would wait for that to leave the store buffer.
            let extra = local.extra.get();
            if extra & URGENT == 0 {
                local.extra.set(extra | URGENT);
            }
            if weight.grows() {
                local.pace.retired();
            }
        }
        // One look into the limbo for both, so that its counts are loaded and stored once.
        let is_freeing = !local.freeing.get().is_null();
        let reused = usize::from(local.reused.replace(false));
        let (expired, share, full) = {
            let mut limbo = local.limbo_inside();
            limbo.push(node(), is_urgent);
            let share = if is_freeing { 0 } else { limbo.share().saturating_sub(reused) };
            let expired =
                if share == 0 { None } else { limbo.pop_expired().map(RetiredNode::expired) };
            (expired, share, self.is_full(&limbo))
        };
        if let Some(node) = expired {
            self.free_these(local, node, share - 1);
        }
        if full {
            self.batch_full(local);
        }
    }

    #[inline(always)]
    pub(super) fn is_full(&self, limbo: &Limbo) -> bool {
        let (nodes, bytes) = limbo.open();
        nodes >= self.batch_nodes || bytes >= limbo.limit() || limbo.waiting() >= self.bound
    }

    /// Puts a node into the owner's limbo, and leaves all else to the end of the section.
    pub(super) fn retire_quietly(&self, local: &Local, node: RetiredNode, weight: Weight) {
        if local.slot == NOWHERE {
            return unprotected::free(node.address, node.free);
        }
        let is_urgent = weight.is_urgent();
        let full = {
            let mut limbo = local.limbo_inside();
            limbo.push(node, is_urgent);
            self.is_full(&limbo)
        };
        if weight.grows() {
            local.pace.retired();
        }
        let wishes = if full { FULL } else { 0 } | if is_urgent { URGENT } else { 0 };
        local.extra.set(local.extra.get() | wishes);
    }

    /// Asks for the batch to be sealed when the outermost section closes, when the thread's own
    /// section can no longer hold anything back; or seals it, if that takes too long.
    #[cold]
    fn batch_full(&self, local: &Local) {
        local.extra.set(local.extra.get() | FULL);
        let (nodes, bytes) = local.with_limbo(|limbo| limbo.open());
        if nodes >= 2 * self.batch_nodes || bytes >= 2 * self.batch_bytes {
            self.seal(local);
            // The section itself held it: again when it closes.
            local.extra.set(local.extra.get() | FULL);
        }
    }
}
