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
    /// Cost: an append to the thread's own list and, in the long run, freeing one earlier node for
    /// each retired one. No shared line is written. Progress: never waits. If a destructor panics,
    /// the panic comes out here, in the thread that frees the node, and the node counts as freed.
    ///
    /// # Panics
    /// If `node` is null. In a debug build, if it was retired before.
    ///
    /// # Safety
    /// - The node is unlinked: no section opened from now on can reach it. It is retired once.
    /// - Every section in which the node was or will be loaded or linked is a section of this
    ///   domain.
    /// - Any thread may drop the node's value, at any time until the domain is dropped. This holds
    ///   if `T` is [`Send`] and borrows nothing. `T` need not be `Send`: for a node that holds raw
    ///   pointers, for example, the caller vouches that its destructor may run on another thread.
    /// - In [`Mode::Bounded`](super::Mode::Bounded): before the node was unlinked, every link out
    ///   of it was given a tag (see [`Atomic::fetch_or`](super::Atomic::fetch_or)) or set to null,
    ///   and was not changed back. So a reader that still has the node does not follow its links.
    ///   Nodes without links, like a value behind one pointer, need nothing. Textbook lock-free
    ///   structures do not tag all their links, and need the default,
    ///   [`Mode::Epoch`](super::Mode::Epoch). In a debug build, loading an untagged link of a
    ///   retired node panics.
    #[inline]
    #[doc(alias = "call_rcu")]
    #[doc(alias = "defer_destroy")]
    pub unsafe fn retire<T: ?Sized + Pointable>(&self, node: Shared<'_, T>) {
        let weight = node.weight(None);
        self.state().retire(self.local(), node.into_limbo(weight, self), weight);
    }

    /// As [`retire`](Self::retire), if the caller knows the node's weight better than its type
    /// tells. `weight` includes everything that the node owns on the heap, and leaves out the
    /// node's header.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire). A wrong weight is safe.
    #[inline(always)] // little is left if the compiler knows the weight
    pub unsafe fn retire_weighed<T: ?Sized + Pointable>(
        &self,
        node: Shared<'_, T>,
        weight: impl Into<Weight>,
    ) {
        let weight = node.weight(Some(weight.into()));
        let weight = if std::mem::needs_drop::<T>() { weight.urgent() } else { weight };
        // The thread may have used a node's memory again (`Owned::new_in`).
        let into_limbo = || node.into_limbo(weight, self);
        if weight.is_urgent() || !self.state().retire_for_reused(self.local(), into_limbo) {
            self.state().retire_apart(self.local(), node.into_limbo(weight, self), weight);
        }
    }

    /// As [`retire`](Self::retire), but runs no user code before the section is closed: frees
    /// nothing and asks no gate.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire).
    pub(crate) unsafe fn retire_quietly<T>(&self, node: Shared<'_, T>, weight: impl Into<Weight>) {
        let weight = node.weight(Some(weight.into()));
        let weight = if std::mem::needs_drop::<T>() { weight.urgent() } else { weight };
        self.state().retire_quietly(self.local(), node.into_limbo(weight, self), weight);
    }

    /// Calls `free(address)` once every section that is open now has been closed: for memory that
    /// is no [`Owned`](super::Owned). `weight` is what `free` gives back: a number of bytes if that
    /// is exact (see [`Weight`]).
    ///
    /// In a bounded domain, such memory has no known birth, so every stalled section holds it back.
    /// [`retire_born`](Self::retire_born) takes the birth.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), where "node" means what is at `address`. Any thread may
    /// call `free` with `address`, once.
    #[inline]
    pub unsafe fn retire_raw(
        &self,
        address: NonNull<()>,
        weight: impl Into<Weight>,
        free: unsafe fn(NonNull<()>),
    ) {
        // SAFETY: the caller's promises are passed on; the birth is unknown.
        unsafe { self.retire_born(address, weight, 0, free) };
    }

    /// Returns the birth for a node that the calling thread will link, in this section or in a
    /// later one: for [`retire_born`](Self::retire_born).
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
    /// As for [`retire_raw`](Self::retire_raw). `birth` is zero, or what [`birth`](Self::birth)
    /// returned for a section of this domain to the thread that linked the node. The thread called
    /// it before it linked the node, in the section in which it linked it, or in an earlier one.
    #[inline(always)] // for the C library, which calls it at the end of a function
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

    /// Takes the memory of a node that `free` would free next.
    ///
    /// The calling thread retired that node in this domain, with this `free`, and its grace period
    /// is over (section.S13). The caller now owns the memory with what is in it, and `free` is not
    /// called. Returns `None` if no such memory is at hand.
    ///
    /// What for: a structure that replaces nodes can make the new node in the memory of an old one,
    /// and so spares its allocator both ways. The next [`retire`](Self::retire) frees one node
    /// less, so garbage stays the same. When not: nodes that own something that `free` would drop.
    /// Drop that first.
    ///
    /// The compiler may merge two functions that do the same. So the caller knows about the node
    /// only what `free` relies on. Cost: a few instructions; no shared line is touched.
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
    /// retire, so that this retire frees nothing (section.S13). If this returns false, nothing was
    /// done. Reports stay as they are: they already count the reused memory in place of this node.
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

    /// As [`retire_raw`](Self::retire_raw), but runs no user code before the section is closed,
    /// like [`retire_quietly`](Self::retire_quietly).
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

    /// Runs `f` once every section that is open now has been closed. Some thread that retires runs
    /// it, at the latest when the domain is dropped.
    ///
    /// Cost: as for `retire`, and an allocation.
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
    /// since its last retire, so that this retire frees nothing (section.S13). If this returns
    /// false, nothing was done, and `node` was not called. Reports stay as they are: they already
    /// count the reused memory in place of this node.
    #[inline(always)]
    fn retire_for_reused(&self, local: &Local, node: impl FnOnce() -> RetiredNode) -> bool {
        if !local.reused.get() {
            return false;
        }
        let full = {
            let limbo = local.limbo_unpublished();
            // SAFETY: `claim` allows it to the owner, which is inside, and no user code runs.
            let limbo = unsafe { limbo.deref() };
            if limbo.share() > 1 {
                return false;
            }
            limbo.push(node(), false);
            // (As many nodes wait as before the memory was used again.)
            limbo.is_open_full(self.batch_nodes)
        };
        local.reused.set(false);
        if full {
            self.batch_full(local);
        }
        true
    }

    /// As [`retire`](Self::retire), for callers that are inlined. (Not a method of the section:
    /// then that would have to be in memory, each time.)
    #[inline(never)]
    fn retire_apart(&self, local: &Local, node: RetiredNode, weight: Weight) {
        self.retire(local, node, weight);
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
            // Not stored again if it is set already. The compiler would store one byte. The load of
            // all four at the end of the section would then wait until that byte has left the store
            // buffer.
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
        limbo.is_open_full(self.batch_nodes) || limbo.waiting() >= self.bound
    }

    /// Puts a node into the owner's limbo, and leaves everything else to the end of the section.
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

    /// Asks for the batch to be sealed when the outermost section closes: then the thread's own
    /// section can no longer hold anything back. Seals it here if the batch has grown to twice its
    /// size.
    #[cold]
    fn batch_full(&self, local: &Local) {
        local.extra.set(local.extra.get() | FULL);
        let (nodes, bytes) = local.with_limbo(|limbo| limbo.open());
        if nodes >= 2 * self.batch_nodes || bytes >= 2 * self.batch_bytes {
            self.seal(local);
            // This section itself held the batch back, so seal again when it closes.
            local.extra.set(local.extra.get() | FULL);
        }
    }
}
