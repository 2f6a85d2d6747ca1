//! [`Atomic`]: a link to a node.

use super::super::guard::Section;
use super::super::stray;
use super::Pointer;
use super::node::{self, Header, Pointable};
use super::owned::Owned;
use super::shared::Shared;
use crate::sync::{AtomicPtr, LoadToChange, Ordering, const_fn};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// What a link leads to at the moment of a look ([`Atomic::look`]).
pub(crate) enum Look<'s, T: ?Sized> {
    Node(&'s T),
    /// No node, and no tag.
    Null,
    /// A node or none, with a tag: the section may not be able to follow the link.
    Tagged,
    /// The section has to raise its era first.
    Behind,
}

/// A link to a node or to none: readers load it, and writers store, swap or compare-exchange it.
///
/// What for: the links of lock-free structures. When not: in a structure with a lock around it,
/// where a `Box` will do.
///
/// Consistency: every access is linearizable by itself; loads are Acquire, writes Release.
/// Progress: wait-free, with three exceptions that are lock-free: calls that change a tag
/// ([`fetch_or`](Self::fetch_or)), calls with a closure ([`fetch_update`](Self::fetch_update)), and
/// [`swap`](Self::swap) in a bounded domain. Cost: a load is one load; in a bounded domain a second
/// one reads the era, which stays in the core's cache between rounds. Memory: one word.
///
/// Dropping an `Atomic` frees nothing: only its structure knows whether other links lead to the
/// node; see [`into_owned`](Self::into_owned).
///
/// It is not `Clone`: a clone would link the node a second time without a section that protects the
/// node. `Atomic::from(link.load(&section))` does it inside one.
///
/// ```
/// use manycore::section::{self, Atomic, Owned};
///
/// let link = Atomic::new(1);
/// let section = section::enter();
/// let old = link.swap(Owned::new(2), &section);
/// assert_eq!((old.as_ref(), link.load(&section).as_ref()), (Some(&1), Some(&2)));
/// // SAFETY: the swap unlinked it, and nothing else leads to it.
/// unsafe { section.retire(old) };
/// # drop(section);
/// // SAFETY: no other thread has the link.
/// assert_eq!(*unsafe { link.into_owned() }.unwrap(), 2);
/// ```
pub struct Atomic<T: ?Sized + Pointable> {
    raw: AtomicPtr<Header>,
    /// Invariant in the type: what is stored here in one place is loaded in another.
    _links: PhantomData<*mut T>,
}

// SAFETY: through a shared `Atomic` threads get `&T`, and values move from one to another.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Send for Atomic<T> {}
// SAFETY: a shared link gives `&T` to the threads that follow it (`T: Sync`), and lets one thread
// swap out and drop what another put in (`T: Send`). The link itself is atomic.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    /// Makes a link to a new node.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        Self::to(node::alloc(value).as_ptr())
    }
}

impl<T: ?Sized + Pointable> Atomic<T> {
    const_fn! {
        /// Makes a link to no node.
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
        const fn to(raw: *mut Header) -> Self {
            Self { raw: AtomicPtr::new(raw), _links: PhantomData }
        }
    }

    /// Loads the pointer.
    #[inline(always)]
    pub fn load<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.found(section.protect(&self.raw), section)
    }

    /// As `load`, but calls nothing, so it is short: if the section has to raise its era first, it
    /// only says so.
    #[inline(always)]
    pub(crate) fn look<'s>(&self, section: &'s Section<'_>) -> Look<'s, T> {
        let Some(raw) = section.protect_now(&self.raw) else { return Look::Behind };
        self.expect_no_stray(Shared::found(raw, section.is_bounded()), section);
        if raw.addr() & Shared::<T>::MAX_TAG != 0 {
            return Look::Tagged;
        }
        if raw.is_null() {
            return Look::Null;
        }
        // SAFETY: a node that this section keeps, found by a link without a tag: as in
        // `Shared::as_ref`.
        Look::Node(unsafe { &*T::value(raw) })
    }

    /// Returns the node, if the link leads to one and the section covers it; see
    /// [`look`](Self::look).
    ///
    /// # Safety
    /// The link never has a tag.
    #[inline(always)]
    pub(crate) unsafe fn look_untagged<'s>(&self, section: &'s Section<'_>) -> Option<&'s T> {
        // (Null in place of `None`: the compiler then tests both at once.)
        let raw = section.protect_now(&self.raw).unwrap_or(ptr::null_mut());
        debug_assert!(raw.addr() & Shared::<T>::MAX_TAG == 0, "section.E4: it has a tag");
        // SAFETY: null, or a node that this section keeps, found by a link without a tag
        // (# Safety): as in `Shared::as_ref`.
        (!raw.is_null()).then(|| unsafe { &*T::value(raw) })
    }

    /// Returns true if the link leads to no node, whatever its tag. The node itself is not looked
    /// at, so the section need not look at the era.
    #[inline(always)]
    pub(crate) fn leads_nowhere(&self, _section: &Section<'_>) -> bool {
        // ORDER: Acquire; as in `Section::protect`.
        self.raw.load(Ordering::Acquire).addr() & !Shared::<T>::MAX_TAG == 0
    }

    /// Links something that is no node, under a tag that says so. No section follows it; only
    /// [`marked`](Self::marked) finds it.
    pub(crate) fn store_marked<U>(&self, other: &U, tag: usize) {
        Shared::<T>::check_tag(tag);
        let other = ptr::from_ref(other).cast::<Header>().cast_mut();
        debug_assert!(tag != 0 && other.addr() & Shared::<T>::MAX_TAG == 0, "no room for the tag");
        // ORDER: Release; as in `store`.
        self.raw.store(other.map_addr(|bits| bits | tag), Ordering::Release);
    }

    /// Returns what [`store_marked`](Self::store_marked) linked, and its tag.
    #[inline(always)]
    pub(crate) fn marked<U>(&self) -> (*const U, usize) {
        // ORDER: Acquire; as in `Section::protect`.
        let found = self.raw.load(Ordering::Acquire);
        let tag = found.addr() & Shared::<T>::MAX_TAG;
        (found.map_addr(|bits| bits & !Shared::<T>::MAX_TAG).cast_const().cast(), tag)
    }

    /// As `load`, for a thread that may write the link next.
    #[inline(always)]
    pub(crate) fn load_to_change<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.found(section.protect_to_change(&self.raw), section)
    }

    /// Returns the pointer if it leads to `node` and has no tag: for a thread that may write the
    /// link next. The section keeps the node, so it need not look at the era.
    #[inline(always)]
    pub(crate) fn load_if<'s>(&self, node: &'s T) -> Option<Shared<'s, T>>
    where
        T: Sized,
    {
        // ORDER: Relaxed; the caller knows the node, and so has acquired its contents.
        let found = self.raw.load_to_change(Ordering::Relaxed);
        (found.addr() == node::address_of(node)).then(|| Shared::trusted(found))
    }

    #[inline(always)]
    fn found<'s>(&self, raw: *mut Header, section: &'s Section<'_>) -> Shared<'s, T> {
        let found = Shared::found(raw, section.is_bounded());
        self.expect_no_stray(found, section);
        found
    }

    /// Panics, in a debug build, if the link is untagged although it lies in a retired node of a
    /// bounded domain (section.E4).
    #[inline(always)]
    fn expect_no_stray(&self, found: Shared<'_, T>, section: &Section<'_>) {
        if stray::KEPT
            && section.state().bounded
            && found.tag() == 0
            && !found.is_null()
            && stray::contains((&raw const self.raw).addr())
        {
            // The pointer was perhaps loaded before the node was unlinked, so load it again.
            // ORDER: Relaxed; the list's lock orders the tag before the node's entry.
            let now = Shared::<T>::trusted(self.raw.load(Ordering::Relaxed));
            assert!(
                now.is_null() || now.tag() != 0,
                "manycore: an untagged link of a retired node was loaded, in a domain of \
                 `Mode::Bounded`: the node behind it may be freed. Tag every link of a node before \
                 unlinking it (`Atomic::fetch_or`), or use a domain of `Mode::Epoch`, as \
                 `Domain::new` and `section::global` are"
            );
        }
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
            // So that the section covers the old node (section.E4). A swap alone could return a
            // node that the section does not cover, when the link no longer holds it.
            let old = section.protect_to_change(&self.raw);
            // ORDER: AcqRel; as above.
            if self.raw.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return self.found(old, section);
            }
        }
    }

    /// Does a [`swap`](Self::swap) with null.
    ///
    /// ```
    /// use manycore::section::{self, Atomic};
    ///
    /// let mail = Atomic::new("hello");
    /// let section = section::enter();
    /// let taken = mail.take(&section);
    /// assert_eq!(taken.as_ref(), Some(&"hello"));
    /// assert!(mail.load(&section).is_null());
    /// // SAFETY: unlinked just now, and nothing else leads to it.
    /// unsafe { section.retire(taken) };
    /// ```
    #[inline]
    pub fn take<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.swap(Shared::null(), section)
    }

    /// Replaces the pointer if it equals `current`, tag included. Returns the new pointer.
    ///
    /// # Errors
    /// The present pointer, and `new` back. The present pointer is loaded anew, so that the section
    /// covers it. If the link was changed back in between (ABA), it may equal `current` again.
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
            Err(_) => Err(self.refused(new, section)),
        }
    }

    /// As [`compare_exchange`](Self::compare_exchange), but may fail although the pointer equals
    /// `current`. Use it where the caller has a loop anyway: on machines with load-linked and
    /// store-conditional (Arm without LSE) it saves a loop.
    ///
    /// ```
    /// use manycore::section::{self, Atomic, Owned};
    ///
    /// let link = Atomic::new(1);
    /// let section = section::enter();
    /// let (mut current, mut new) = (link.load(&section), Owned::new(2));
    /// while let Err(lost) = link.compare_exchange_weak(current, new, &section) {
    ///     (current, new) = (lost.current, lost.new);
    /// }
    /// // SAFETY: unlinked just now, and nothing else leads to it.
    /// unsafe { section.retire(current) };
    /// # drop(section);
    /// # // SAFETY: no other thread has it.
    /// # assert_eq!(*unsafe { link.into_owned() }.unwrap(), 2);
    /// ```
    ///
    /// # Errors
    /// As [`compare_exchange`](Self::compare_exchange).
    #[inline]
    pub fn compare_exchange_weak<'s, P: Pointer<T>>(
        &self,
        current: Shared<'_, T>,
        new: P,
        section: &'s Section<'_>,
    ) -> Result<Shared<'s, T>, CompareExchangeError<'s, T, P>> {
        let (current, new) = (current.link(), new.publish(section));
        // ORDER: AcqRel and Acquire; as in `compare_exchange`.
        match self.raw.compare_exchange_weak(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Shared::trusted(new)),
            Err(_) => Err(self.refused(new, section)),
        }
    }

    fn refused<'s, P: Pointer<T>>(
        &self,
        new: *mut Header,
        section: &'s Section<'_>,
    ) -> CompareExchangeError<'s, T, P> {
        // SAFETY: the compare-exchange failed, so it was not linked.
        CompareExchangeError { current: self.load(section), new: unsafe { P::recover(new) } }
    }

    /// Replaces the pointer by what `f` returns for it, and returns the old pointer. If another
    /// thread was faster, `f` is called again, and what it returned before is dropped.
    ///
    /// ```
    /// use manycore::section::{self, Atomic, Owned};
    ///
    /// let total = Atomic::new(40);
    /// let section = section::enter();
    /// let add_two = |old: section::Shared<'_, i32>| Some(Owned::new(old.as_ref()? + 2));
    /// let old = total.fetch_update(&section, add_two).unwrap();
    /// assert_eq!(total.load(&section).as_ref(), Some(&42));
    /// // SAFETY: unlinked just now, and nothing else leads to it.
    /// unsafe { section.retire(old) };
    /// # drop(section);
    /// # // SAFETY: no other thread has it.
    /// # drop(unsafe { total.into_owned() });
    /// ```
    ///
    /// # Errors
    /// The present pointer, if `f` returned `None`.
    pub fn fetch_update<'s, P: Pointer<T>>(
        &self,
        section: &'s Section<'_>,
        mut f: impl FnMut(Shared<'s, T>) -> Option<P>,
    ) -> Result<Shared<'s, T>, Shared<'s, T>> {
        let mut seen = self.load_to_change(section);
        while let Some(new) = f(seen) {
            match self.compare_exchange_weak(seen, new, section) {
                Ok(_) => return Ok(seen),
                Err(lost) => seen = lost.current,
            }
        }
        Err(seen)
    }

    /// Sets bits of the link's tag: stores the bitwise "or" of the tag and `tag`. Returns the old
    /// pointer, with its old tag.
    ///
    /// ```
    /// use manycore::section::{self, Atomic};
    ///
    /// let link = Atomic::new(7);
    /// let section = section::enter();
    /// assert_eq!(link.fetch_or(0b101, &section).tag(), 0);
    /// assert_eq!(link.fetch_and(0b011, &section).tag(), 0b101);
    /// assert_eq!(link.fetch_xor(0b111, &section).tag(), 0b001);
    /// assert_eq!(link.load(&section).tag(), 0b110);
    /// # drop(section);
    /// # // SAFETY: no other thread has it.
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Panics
    /// If the tag is above [`Shared::MAX_TAG`].
    pub fn fetch_or<'s>(&self, tag: usize, section: &'s Section<'_>) -> Shared<'s, T> {
        Shared::<T>::check_tag(tag);
        self.change_tag(section, |bits| bits | tag)
    }

    /// Clears bits of the link's tag: stores the bitwise "and" of the tag and `tag`. Returns the
    /// old pointer, with its old tag.
    ///
    /// In a bounded domain, the links of a node that is unlinked keep a tag (see
    /// [`Section::retire`]).
    ///
    /// # Panics
    /// If the tag is above [`Shared::MAX_TAG`].
    pub fn fetch_and<'s>(&self, tag: usize, section: &'s Section<'_>) -> Shared<'s, T> {
        Shared::<T>::check_tag(tag);
        let cleared = Shared::<T>::MAX_TAG & !tag;
        self.change_tag(section, |bits| bits & !cleared)
    }

    /// Inverts bits of the link's tag: stores the "exclusive or" of the tag and `tag`. Returns the
    /// old pointer, with its old tag.
    ///
    /// In a bounded domain, the links of a node that is unlinked keep a tag (see
    /// [`Section::retire`]).
    ///
    /// # Panics
    /// If the tag is above [`Shared::MAX_TAG`].
    pub fn fetch_xor<'s>(&self, tag: usize, section: &'s Section<'_>) -> Shared<'s, T> {
        Shared::<T>::check_tag(tag);
        self.change_tag(section, |bits| bits ^ tag)
    }

    fn change_tag<'s>(
        &self,
        section: &'s Section<'_>,
        change: impl Fn(usize) -> usize,
    ) -> Shared<'s, T> {
        let mut seen = section.protect_to_change(&self.raw);
        loop {
            let tagged = seen.map_addr(&change);
            // ORDER: AcqRel, so that a reader that finds the node sees the tag before the unlink
            // that follows it (section.E4); Acquire on failure.
            match self.raw.compare_exchange(seen, tagged, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Shared::found(seen, section.is_bounded()),
                Err(_) => seen = section.protect_to_change(&self.raw),
            }
        }
    }

    /// Takes the node of a link that no other thread can reach any more, to drop or use it.
    ///
    /// # Safety
    /// No other link leads to the node, and it was not retired. Only the caller has it. After this
    /// call, no thread, not even the calling one, uses a reference to the value or a [`Shared`] of
    /// the node, though its section may still be open. (These live as long as their section, so the
    /// compiler does not notice that the node is dropped earlier.)
    pub unsafe fn into_owned(self) -> Option<Owned<T>> {
        // ORDER: Relaxed; `self` is ours alone.
        let found = Shared::<T>::trusted(self.raw.load(Ordering::Relaxed));
        // SAFETY: the caller promises what `Shared::into_owned` asks for (# Safety).
        unsafe { found.into_owned() }
    }
}

impl<T: ?Sized + Pointable> From<Owned<T>> for Atomic<T> {
    fn from(owned: Owned<T>) -> Self {
        // The node may have been offered to a link of another domain, with eras that mean nothing
        // here.
        Self::to(owned.born(0))
    }
}

/// Makes a second link to the node, for a new node that is not linked itself yet.
///
/// # Panics
/// If the pointer was loaded with a tag in a bounded domain (see [`Shared::assume_linked`]).
impl<T: ?Sized + Pointable> From<Shared<'_, T>> for Atomic<T> {
    fn from(shared: Shared<'_, T>) -> Self {
        Self::to(shared.linkable())
    }
}

/// Null.
impl<T: ?Sized + Pointable> Default for Atomic<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDER: Relaxed; the pointer is only printed.
        let now = Shared::<T>::trusted(self.raw.load(Ordering::Relaxed));
        let mut text = f.debug_struct("Atomic");
        text.field("node", &format_args!("{now:p}")).field("tag", &now.tag()).finish()
    }
}

/// The address of the node, without the tag.
impl<T: ?Sized + Pointable> fmt::Pointer for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDER: Relaxed; the pointer is only printed.
        fmt::Pointer::fmt(&Shared::<T>::trusted(self.raw.load(Ordering::Relaxed)), f)
    }
}

/// A [`compare_exchange`](Atomic::compare_exchange) found another pointer than expected.
///
/// ```
/// use manycore::section::{self, Atomic, Owned, Shared};
///
/// let link = Atomic::new(1);
/// let section = section::enter();
/// let refused = link.compare_exchange(Shared::null(), Owned::new(2), &section).unwrap_err();
/// assert_eq!(refused.current.as_ref(), Some(&1));
/// assert_eq!(*refused.new, 2); // to try again with
/// ```
#[non_exhaustive]
pub struct CompareExchangeError<'s, T: ?Sized + Pointable, P: Pointer<T>> {
    /// The pointer that the link holds.
    pub current: Shared<'s, T>,
    /// The pointer that was not linked.
    pub new: P,
}

impl<T: ?Sized + Pointable, P: Pointer<T>> fmt::Debug for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("CompareExchangeError");
        text.field("current", &self.current).finish_non_exhaustive()
    }
}

impl<T: ?Sized + Pointable, P: Pointer<T>> fmt::Display for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link leads elsewhere")
    }
}

impl<T: ?Sized + Pointable, P: Pointer<T>> std::error::Error for CompareExchangeError<'_, T, P> {}
