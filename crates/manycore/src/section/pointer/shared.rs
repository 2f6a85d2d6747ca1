//! [`Shared`]: a pointer that a section may follow.

use super::super::guard::Section;
use super::super::limbo;
use super::super::stray;
use super::super::weight::Weight;
use super::node::{Header, Pointable, RETIRED};
use super::owned::Owned;
use super::sealed::Sealed;
use crate::sync::Ordering;
use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// A pointer that the section `'s` keeps alive: null, or to a node; with a tag of up to
/// [`MAX_TAG`](Self::MAX_TAG).
///
/// Cost: two words, which are copied; the second word says whether the pointer may be followed.
///
/// ```
/// use manycore::section::{self, Atomic, Shared};
///
/// let section = section::enter();
/// let link = Atomic::new(7);
/// let shared: Shared<i32> = link.load(&section);
/// assert_eq!(shared.as_ref(), Some(&7));
/// assert_eq!(shared.with_tag(5).tag(), 5); // three bits at least
/// # drop(section);
/// # // SAFETY: no other thread has it.
/// # drop(unsafe { link.into_owned() });
/// ```
pub struct Shared<'s, T: ?Sized + Pointable> {
    /// The word as it is in a link.
    raw: *mut Header,
    /// True if the pointer must not be followed (section.E4).
    is_wild: bool,
    /// Invariant in the type, like the link that it is put into.
    _section: PhantomData<(&'s (), *mut T)>,
}

impl<T: ?Sized + Pointable> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized + Pointable> Copy for Shared<'_, T> {}

impl<T: ?Sized + Pointable> PartialEq for Shared<'_, T> {
    /// Same node and same tag.
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<T: ?Sized + Pointable> Eq for Shared<'_, T> {}

impl<T: ?Sized + Pointable> PartialOrd for Shared<'_, T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By address, then tag.
impl<T: ?Sized + Pointable> Ord for Shared<'_, T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<T: ?Sized + Pointable> Hash for Shared<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

/// Null.
impl<T: ?Sized + Pointable> Default for Shared<'_, T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<'s, T: ?Sized + Pointable> Shared<'s, T> {
    /// The greatest tag: 7, or more if the type's alignment is more than 8 bytes.
    ///
    /// ```
    /// use manycore::section::Shared;
    ///
    /// #[repr(align(64))]
    /// struct Line([u8; 64]);
    /// assert_eq!((Shared::<u8>::MAX_TAG, Shared::<Line>::MAX_TAG), (7, 63));
    /// ```
    pub const MAX_TAG: usize = {
        assert!(T::ALIGN >= 8 && T::ALIGN.is_power_of_two());
        T::ALIGN - 1
    };

    /// Returns a pointer to no node.
    pub const fn null() -> Self {
        Self::trusted(ptr::null_mut())
    }

    pub(super) const fn trusted(raw: *mut Header) -> Self {
        Self { raw, is_wild: false, _section: PhantomData }
    }

    /// Makes the pointer that a section found in a link of a domain that is `bounded` or not
    /// (section.E4).
    #[inline(always)]
    pub(super) fn found(raw: *mut Header, bounded: bool) -> Self {
        let is_wild = bounded && raw.addr() & Self::MAX_TAG != 0;
        Self { raw, is_wild, _section: PhantomData }
    }

    /// Returns the word as it is in a link.
    pub(super) fn link(self) -> *mut Header {
        self.raw
    }

    fn node(self) -> *mut Header {
        self.raw.map_addr(|bits| bits & !Self::MAX_TAG)
    }

    /// Returns true if there is no node.
    pub fn is_null(self) -> bool {
        self.node().is_null()
    }

    /// Returns the value, or `None` if there is no node. In a bounded domain, also returns `None`
    /// if the pointer was loaded with a tag. Such a pointer may come from an unlinked node, and
    /// lead nowhere.
    #[inline(always)]
    pub fn as_ref(self) -> Option<&'s T> {
        let node = self.node();
        if self.is_wild || node.is_null() {
            return None;
        }
        // SAFETY: a node that this section keeps (section.E1, section.E2; section.E4 in a bounded
        // domain, for untagged links). Freeing it early violates the contract of `Section::retire`.
        Some(unsafe { &*T::value(node) })
    }

    /// Returns the value's address, or null where [`as_ref`](Self::as_ref) is `None`. For
    /// comparisons, and for code that keeps raw pointers. To retire a node, use its `Shared`.
    pub fn as_ptr(self) -> *const T
    where
        T: Sized,
    {
        self.as_ref().map_or(ptr::null(), ptr::from_ref)
    }

    /// Returns the value for changing it.
    ///
    /// # Safety
    /// Only this thread can reach the node: while the result is used, no other reference to the
    /// value exists or is made, by any thread.
    ///
    /// ```
    /// use manycore::section::{self, Owned};
    ///
    /// let section = section::enter();
    /// let node = Owned::new(1).into_shared(&section); // linked nowhere yet
    /// // SAFETY: no other thread can reach it.
    /// unsafe { *node.as_mut().unwrap() += 1 };
    /// assert_eq!(node.as_ref(), Some(&2));
    /// // SAFETY: as before.
    /// assert_eq!(unsafe { node.into_owned() }.unwrap().into_inner(), 2);
    /// ```
    pub unsafe fn as_mut(self) -> Option<&'s mut T> {
        let node = self.node();
        if self.is_wild || node.is_null() {
            return None;
        }
        // SAFETY: kept by the section as in `as_ref`, and no other reference reaches it, as the
        // caller promises (# Safety).
        Some(unsafe { &mut *T::value(node) })
    }

    /// Takes the node, for a caller that alone has it: the node was never linked, or was unlinked
    /// when no other thread could reach it. Returns `None` if there is no node.
    ///
    /// # Safety
    /// As for [`Atomic::into_owned`](super::Atomic::into_owned).
    pub unsafe fn into_owned(self) -> Option<Owned<T>> {
        // SAFETY: the caller promises that it has the node alone, and that it was not retired
        // (# Safety); every node in a link is one of this type.
        NonNull::new(self.node()).map(|node| unsafe { Owned::from_node(node) })
    }

    /// Returns the tag.
    pub fn tag(self) -> usize {
        self.raw.addr() & Self::MAX_TAG
    }

    /// Returns the same pointer with another tag.
    ///
    /// # Panics
    /// If the tag is above [`MAX_TAG`](Self::MAX_TAG).
    pub fn with_tag(self, tag: usize) -> Self {
        Self::check_tag(tag);
        Self { raw: self.raw.map_addr(|bits| bits & !Self::MAX_TAG | tag), ..self }
    }

    #[inline(always)]
    pub(super) fn check_tag(tag: usize) {
        let most = Self::MAX_TAG;
        assert!(tag <= most, "manycore: a tag is 0 to {most}, and this is {tag}");
    }

    /// Returns the pointer as one that may be linked or followed although it was loaded with a tag
    /// in a bounded domain. For a list that unlinks a marked node by linking what comes after it.
    ///
    /// # Safety
    /// The pointer is used only as the new value of a compare-exchange, which succeeds only while
    /// the node from which the pointer was loaded is linked. It is followed only after the
    /// compare-exchange succeeded. (Or the domain is not bounded.)
    pub unsafe fn assume_linked(self) -> Self {
        Self::trusted(self.raw)
    }

    /// Returns the address of the node with its header: the address that a
    /// [`Gate`](super::super::Gate) sees.
    pub fn address(self) -> usize {
        self.node().addr()
    }

    /// Returns true if `address` lies within the node, which is not freed.
    pub(in super::super) fn spans(self, address: usize) -> bool {
        let node = self.node();
        // SAFETY: not null, and not freed, as the caller says.
        !node.is_null() && address.wrapping_sub(node.addr()) < unsafe { T::bytes(node) }
    }

    /// Returns what the node weighs: `known` plus the header, if the caller knows its value's
    /// weight.
    #[inline(always)]
    pub(in super::super) fn weight(self, known: Option<Weight>) -> Weight {
        match known {
            Some(known) => known.plus(T::HEADER),
            // SAFETY: not null, and not freed, since the caller retires it only now.
            None => unsafe { T::weight(self.not_null().as_ptr()) },
        }
    }

    fn not_null(self) -> NonNull<Header> {
        let node = NonNull::new(self.node());
        node.expect("manycore: a null pointer was retired; test with `is_null` first")
    }

    /// Turns the node into a retired one, on its way to being freed.
    #[inline(always)]
    pub(in super::super) fn into_limbo(
        self,
        weight: Weight,
        section: &Section<'_>,
    ) -> limbo::RetiredNode {
        let node = self.not_null();
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
            // SAFETY: not null, and not freed, since the caller retires it only now.
            stray::add(node.addr().get(), unsafe { T::bytes(node.as_ptr()) });
        }
        limbo::RetiredNode { address: node.cast(), free: T::free, birth, bytes: weight.bytes() }
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// Returns a pointer to the node, which the caller now links or retires.
    pub fn into_shared<'s>(self, section: &'s Section<'_>) -> Shared<'s, T> {
        Shared::trusted(self.publish(section))
    }
}

impl<T: ?Sized + Pointable> Sealed<T> for Shared<'_, T> {
    #[inline(always)]
    fn publish(self, _section: &Section<'_>) -> *mut Header {
        self.linkable()
    }

    unsafe fn recover(raw: *mut Header) -> Self {
        Self::trusted(raw)
    }
}

impl<T: ?Sized + Pointable> Shared<'_, T> {
    #[inline(always)]
    pub(super) fn linkable(self) -> *mut Header {
        assert!(
            !self.is_wild,
            "manycore: a pointer that was loaded with a tag in a bounded domain may lead nowhere, \
             and must not be linked; see `Shared::assume_linked`"
        );
        self.raw
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("node", &self.node()).field("tag", &self.tag()).finish()
    }
}

/// The address of the node, without the tag.
impl<T: ?Sized + Pointable> fmt::Pointer for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.node(), f)
    }
}
