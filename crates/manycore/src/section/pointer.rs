//! Typed pointers to nodes: [`Atomic`] links them, [`Shared`] is one that a section may follow,
//! [`Owned`] one that no other thread has.
//!
//! Owns: the node's header (the era of its birth) and the bits in a link: two of a tag, and in a
//! `Shared` one more, `WILD`: found beside a tag in a bounded domain, so not to be followed
//! (section.E4).

use self::sealed::Sealed;
use super::guard::Section;
use super::limbo;
use super::weight::Weight;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, const_fn};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

const TAG: usize = 3;
const WILD: usize = 4;
/// In `birth`, in debug builds: the node has been retired.
const RETIRED: u64 = 1 << 63;

/// A node with its header. Private: `Owned`, `Shared` and `Atomic` lead to the value.
#[repr(C)]
pub struct Node<T> {
    /// The era in which the node was linked, or earlier; zero if unknown.
    birth: AtomicU64,
    value: T,
}

const _: () = assert!(align_of::<Node<u8>>() > WILD, "a link has room for the tag and WILD");

impl<T> Node<T> {
    fn alloc(value: T) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self { birth: AtomicU64::new(0), value })))
    }

    /// # Safety
    /// `address` is a node made by `alloc` that no other thread has any more.
    unsafe fn free(address: NonNull<()>) {
        super::stray::remove(address.addr().get(), size_of::<Self>());
        // SAFETY: the caller promises a node that `alloc` made, and that it has it alone
        // (# Safety).
        drop(unsafe { Box::from_raw(address.cast::<Self>().as_ptr()) });
    }
}

/// A node that no other thread can reach: a box that can be linked without a copy.
///
/// ```
/// let mut node = manycore::section::Owned::new(vec![1]);
/// node.push(2);
/// assert_eq!(node.into_inner(), [1, 2]);
/// ```
pub struct Owned<T> {
    node: NonNull<Node<T>>,
    _owns: PhantomData<Node<T>>,
}

// SAFETY: an `Owned` owns its value, like a `Box`.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: a shared `Owned` gives out `&T` alone, like a `Box`.
unsafe impl<T: Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Allocates a node: the value and eight bytes.
    pub fn new(value: T) -> Self {
        // SAFETY: just allocated.
        unsafe { Self::from_node(Node::alloc(value)) }
    }

    /// # Safety
    /// No other thread has the node.
    unsafe fn from_node(node: NonNull<Node<T>>) -> Self {
        debug_assert!(
            cfg!(manycore_loom)
                // SAFETY: the caller has the node alone (# Safety). ORDER: Relaxed; for that.
                || unsafe { node.as_ref() }.birth.load(Ordering::Relaxed) & RETIRED == 0,
            "section.E1: a retired node is taken for one that no other thread has"
        );
        Self { node, _owns: PhantomData }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        let owned = ManuallyDrop::new(self);
        // SAFETY: made by `alloc`, and ours alone.
        unsafe { Box::from_raw(owned.node.as_ptr()) }.value
    }

    /// A pointer to the node, which the caller now links or retires.
    pub fn into_shared<'s>(self, section: &'s Section<'_>) -> Shared<'s, T> {
        Shared::trusted(self.publish(section))
    }
}

impl<T> From<T> for Owned<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by `alloc`, and ours alone.
        unsafe { Node::<T>::free(self.node.cast()) }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: ours alone, alive until dropped.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: ours alone, and borrowed exclusively.
        unsafe { &mut self.node.as_mut().value }
    }
}

impl<T: fmt::Debug> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A pointer that the section `'s` keeps alive: null, or to a node; with a tag of 0 to 3.
pub struct Shared<'s, T> {
    raw: *mut Node<T>,
    _section: PhantomData<&'s T>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

impl<T> PartialEq for Shared<'_, T> {
    /// Same node and same tag.
    fn eq(&self, other: &Self) -> bool {
        self.link() == other.link()
    }
}
impl<T> Eq for Shared<'_, T> {}

/// Null.
impl<T> Default for Shared<'_, T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<'s, T> Shared<'s, T> {
    /// No node.
    pub fn null() -> Self {
        Self::trusted(ptr::null_mut())
    }

    fn trusted(raw: *mut Node<T>) -> Self {
        Self { raw, _section: PhantomData }
    }

    /// What a section found in a link (section.E4).
    #[inline(always)]
    fn found(raw: *mut Node<T>, section: &'s Section<'_>) -> Self {
        let is_wild = section.state().bounded && raw.addr() & TAG != 0;
        Self::trusted(raw.map_addr(|bits| bits | if is_wild { WILD } else { 0 }))
    }

    /// As it stands in a link.
    fn link(self) -> *mut Node<T> {
        self.raw.map_addr(|bits| bits & !WILD)
    }

    fn node(self) -> *mut Node<T> {
        self.raw.map_addr(|bits| bits & !(WILD | TAG))
    }

    /// Whether there is no node.
    pub fn is_null(self) -> bool {
        self.node().is_null()
    }

    /// The value; `None` if there is no node. In a bounded domain also `None` if the pointer was
    /// loaded with a tag: such a pointer may come from an unlinked node, and lead nowhere.
    #[inline(always)]
    pub fn as_ref(self) -> Option<&'s T> {
        if self.raw.addr() & WILD != 0 {
            return None;
        }
        // SAFETY: null, or a node that this section keeps (section.E1, section.E2; section.E4 in a
        // bounded domain, for untagged links). To free it early violates the contract of
        // `Section::retire`.
        unsafe { self.node().as_ref() }.map(|node| &node.value)
    }

    /// The tag.
    pub fn tag(self) -> usize {
        self.raw.addr() & TAG
    }

    /// The same pointer with another tag.
    ///
    /// # Panics
    /// If the tag is above 3.
    pub fn with_tag(self, tag: usize) -> Self {
        assert!(tag <= TAG, "manycore: a tag is 0 to {TAG}, and this is {tag}");
        Self::trusted(self.raw.map_addr(|bits| bits & !TAG | tag))
    }

    /// The same pointer, to be linked or followed although it was loaded with a tag, in a bounded
    /// domain: for a list that unlinks a marked node by linking what comes after it.
    ///
    /// # Safety
    /// The pointer is used only as the new value of a compare-exchange that succeeds only while the
    /// node from which it was loaded is linked, and followed only after that succeeded. (Or the
    /// domain is not bounded.)
    pub unsafe fn assume_linked(self) -> Self {
        Self::trusted(self.link())
    }

    /// The node's address, with its header: what a [`Gate`](super::Gate) is told.
    pub fn address(self) -> usize {
        self.node().addr()
    }

    /// Whether `address` lies within the node.
    pub(super) fn spans(self, address: usize) -> bool {
        address.wrapping_sub(self.node().addr()) < size_of::<Node<T>>()
    }

    /// What a node takes beside its value.
    pub(super) const HEADER: usize = size_of::<Node<T>>() - size_of::<T>();

    /// The node on its way to being freed.
    #[inline(always)]
    pub(super) fn into_limbo(self, weight: Weight, section: &Section<'_>) -> limbo::RetiredNode {
        let node = NonNull::new(self.node());
        let node = node.expect("manycore: a null pointer was retired; test with `is_null` first");
        // SAFETY: not null, and not freed, since the caller retires it only now.
        let header = unsafe { &node.as_ref().birth };
        // ORDER: Relaxed; written before the node was published.
        let birth = if cfg!(debug_assertions) {
            let old = header.fetch_or(RETIRED, Ordering::Relaxed);
            assert!(old & RETIRED == 0, "manycore: a node was retired twice");
            old
        } else {
            header.load(Ordering::Relaxed)
        };
        if section.state().bounded {
            super::stray::add(node.addr().get(), size_of::<Node<T>>());
        }
        limbo::RetiredNode {
            address: node.cast(),
            free: Node::<T>::free,
            birth,
            bytes: weight.bytes(),
        }
    }
}

impl<T> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("node", &self.node()).field("tag", &self.tag()).finish()
    }
}

/// What can be put into an [`Atomic`]: a [`Shared`], or an [`Owned`], which becomes one.
pub trait Pointer<T>: Sealed<T> {}
impl<T> Pointer<T> for Owned<T> {}
impl<T> Pointer<T> for Shared<'_, T> {}

mod sealed {
    pub trait Sealed<T>: Sized {
        /// The bits for a link that is about to be written in `section`.
        #[doc(hidden)]
        fn publish(self, section: &super::Section<'_>) -> *mut super::Node<T>;
        /// What was published, which came to nothing.
        ///
        /// # Safety
        /// `raw` came from `publish` and was linked nowhere.
        #[doc(hidden)]
        unsafe fn recover(raw: *mut super::Node<T>) -> Self;
    }
}

impl<T> Sealed<T> for Owned<T> {
    #[inline(always)]
    fn publish(self, section: &Section<'_>) -> *mut Node<T> {
        let node = ManuallyDrop::new(self).node;
        // The latest era that this section has seen: read before the node is linked (section.E4),
        // and one whose nodes this section may hold itself.
        // SAFETY: ours alone until linked.
        let birth = unsafe { &node.as_ref().birth };
        // ORDER: Relaxed; published with the node.
        birth.store(section.upper() & !RETIRED, Ordering::Relaxed);
        node.as_ptr()
    }

    unsafe fn recover(raw: *mut Node<T>) -> Self {
        // SAFETY: the caller promises that `raw` came from `publish`, which never gives null, and
        // was linked nowhere (# Safety), so the node is still the caller's alone.
        unsafe { Self::from_node(NonNull::new_unchecked(raw)) }
    }
}

impl<T> Sealed<T> for Shared<'_, T> {
    #[inline(always)]
    fn publish(self, _section: &Section<'_>) -> *mut Node<T> {
        assert!(
            self.raw.addr() & WILD == 0,
            "manycore: a pointer that was loaded with a tag in a bounded domain may lead nowhere, \
             and must not be linked; see `Shared::assume_linked`"
        );
        self.raw
    }

    unsafe fn recover(raw: *mut Node<T>) -> Self {
        Self::trusted(raw)
    }
}

/// A link to a node, or to none: what readers follow and writers swing.
///
/// What for: the links of lock-free structures. When not: in a structure with a lock around it, a
/// `Box` will do.
///
/// Consistency: every access is linearizable by itself; loads are Acquire, writes Release.
/// Progress: wait-free, but [`set_tag`](Self::set_tag) and, in a bounded domain,
/// [`swap`](Self::swap) lock-free. Cost: a load is a load, and in a bounded domain
/// another of the era, which stays in the core's cache between rounds. Memory: one word. Dropping
/// an `Atomic` frees nothing: whether the node is in other links is known to its structure alone;
/// see [`into_owned`](Self::into_owned).
pub struct Atomic<T> {
    raw: AtomicPtr<Node<T>>,
    _links: PhantomData<Node<T>>,
}

// SAFETY: through a shared `Atomic` threads get `&T`, and values move from one to another.
unsafe impl<T: Send + Sync> Send for Atomic<T> {}
// SAFETY: shared, it gives `&T` to the threads that follow it (`T: Sync`), and lets one swap out
// and drop what another put in (`T: Send`); the link itself is atomic.
unsafe impl<T: Send + Sync> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    /// A link to a new node.
    pub fn new(value: T) -> Self {
        Self::to(Node::alloc(value).as_ptr())
    }

    const_fn! {
        /// A link to no node.
        ///
        /// ```
        /// use manycore::section::{self, Atomic};
        ///
        /// static CONFIG: Atomic<String> = Atomic::null();
        /// assert!(CONFIG.load(&section::enter()).is_null());
        /// ```
        pub const fn null() -> Self {
            Self::to(ptr::null_mut())
        }
    }

    const_fn! {
        const fn to(raw: *mut Node<T>) -> Self {
            Self { raw: AtomicPtr::new(raw), _links: PhantomData }
        }
    }

    /// Where the link leads.
    #[inline(always)]
    pub fn load<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        let found = Shared::found(section.protect(&self.raw), section);
        self.expect_no_stray(found, section);
        found
    }

    /// In a debug build: says so if the link was left untagged in a node of a bounded domain that
    /// is retired (section.E4).
    #[inline(always)]
    fn expect_no_stray(&self, found: Shared<'_, T>, section: &Section<'_>) {
        if super::stray::KEPT
            && section.state().bounded
            && found.tag() == 0
            && !found.is_null()
            && super::stray::contains((&raw const self.raw).addr())
        {
            // It was perhaps loaded before the node was unlinked. ORDER: Relaxed; the list's lock
            // orders the tag before the node's entry.
            let now = self.raw.load(Ordering::Relaxed);
            assert!(
                now.is_null() || now.addr() & TAG != 0,
                "manycore: an untagged link of a retired node was loaded, in a domain of \
                 `Mode::Bounded`: the node behind it may be freed. Tag every link of a node before \
                 unlinking it (`Atomic::set_tag`), or use a domain of `Mode::Epoch`, as \
                 `Domain::new` and `section::global` are"
            );
        }
    }

    /// As `load`, for a thread that may write the link next.
    #[inline(always)]
    pub(crate) fn load_to_change<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        let found = Shared::found(section.protect_to_change(&self.raw), section);
        self.expect_no_stray(found, section);
        found
    }

    /// Stores the pointer. The old node is not freed.
    #[inline]
    pub fn store<P: Pointer<T>>(&self, new: P, section: &Section<'_>) {
        // ORDER: Release; pairs with Acquire in `Section::protect`: the node before its link.
        self.raw.store(new.publish(section), Ordering::Release);
    }

    /// Swaps the pointer and returns the old one.
    #[inline]
    pub fn swap<'s, P: Pointer<T>>(&self, new: P, section: &'s Section<'_>) -> Shared<'s, T> {
        let new = new.publish(section);
        if !section.state().bounded {
            // ORDER: AcqRel; Release as in `store`, Acquire as in `Section::protect`.
            return Shared::trusted(self.raw.swap(new, Ordering::AcqRel));
        }
        loop {
            // So that the section covers it (section.E4).
            let old = section.protect_to_change(&self.raw);
            // ORDER: AcqRel; as above.
            if self.raw.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Shared::found(old, section);
            }
        }
    }

    /// Compare-exchanges the pointer: replaces it if it equals `current`, tag included; returns the
    /// new pointer.
    ///
    /// # Errors
    /// The present pointer, and `new` back. The pointer is loaded anew, so that the section covers
    /// it: if it was changed back in between (ABA), it may equal `current` again.
    #[inline]
    pub fn compare_exchange<'s, P: Pointer<T>>(
        &self,
        current: Shared<'_, T>,
        new: P,
        section: &'s Section<'_>,
    ) -> Result<Shared<'s, T>, CompareExchangeError<'s, T, P>> {
        let new = new.publish(section);
        // ORDER: AcqRel; as in `swap`. Acquire on failure, as in `Section::protect`.
        match self.raw.compare_exchange(current.link(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Shared::trusted(new)),
            Err(_) => Err(CompareExchangeError {
                current: self.load(section),
                // SAFETY: it was not linked.
                new: unsafe { P::recover(new) },
            }),
        }
    }

    /// Adds `tag` to the link's tag and returns where it led before, with the tag it had.
    ///
    /// # Panics
    /// If the tag is above 3.
    pub fn set_tag<'s>(&self, tag: usize, section: &'s Section<'_>) -> Shared<'s, T> {
        assert!(tag <= TAG, "manycore: a tag is 0 to {TAG}, and this is {tag}");
        let mut seen = section.protect_to_change(&self.raw);
        loop {
            let tagged = seen.map_addr(|bits| bits | tag);
            // ORDER: AcqRel, so that the tag comes before the unlink that follows it for a
            // reader that finds the node (section.E4); Acquire on failure.
            match self.raw.compare_exchange(seen, tagged, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Shared::found(seen, section),
                Err(_) => seen = section.protect_to_change(&self.raw),
            }
        }
    }

    /// The node of a link that no other thread can reach any more, to be dropped or used.
    ///
    /// # Safety
    /// No other link leads to the node, and it was not retired. The caller has it alone: no thread,
    /// the calling one included, uses a reference to the value or a [`Shared`] of the node after
    /// this call, though its section may still be open. (Their lifetimes are their section's; the
    /// compiler does not notice that the node is dropped before.)
    pub unsafe fn into_owned(self) -> Option<Owned<T>> {
        // ORDER: Relaxed; `self` is ours alone.
        let raw = self.raw.load(Ordering::Relaxed).map_addr(|bits| bits & !TAG);
        // SAFETY: the caller promises that it has the node alone, and that it was not retired
        // (# Safety); every node in a link is from `alloc`.
        NonNull::new(raw).map(|node| unsafe { Owned::from_node(node) })
    }
}

impl<T> From<Owned<T>> for Atomic<T> {
    fn from(owned: Owned<T>) -> Self {
        let node = ManuallyDrop::new(owned).node;
        // It may have been offered to a link of another domain, whose eras mean nothing here.
        // SAFETY: ours alone until linked.
        let birth = unsafe { &node.as_ref().birth };
        // ORDER: Relaxed; published with the node.
        birth.store(0, Ordering::Relaxed);
        Self::to(node.as_ptr())
    }
}

impl<T> Default for Atomic<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDER: Relaxed; the pointer is only printed.
        f.debug_tuple("Atomic").field(&self.raw.load(Ordering::Relaxed)).finish()
    }
}

/// A [`compare_exchange`](Atomic::compare_exchange) found another pointer than it expected.
#[non_exhaustive]
pub struct CompareExchangeError<'s, T, P: Pointer<T>> {
    /// Where the link led.
    pub current: Shared<'s, T>,
    /// What was not linked.
    pub new: P,
}

impl<T, P: Pointer<T>> fmt::Debug for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("CompareExchangeError");
        text.field("current", &self.current).finish_non_exhaustive()
    }
}

impl<T, P: Pointer<T>> fmt::Display for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link leads elsewhere")
    }
}

impl<T, P: Pointer<T>> std::error::Error for CompareExchangeError<'_, T, P> {}
