//! The links embedded in a member, and the way from them to the member.

use super::word::{TOGGLE, Word};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell, const_fn};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// The marks and the link of one member of a [`DeferredSet`](super::DeferredSet): 16 bytes that a
/// type has among its fields, so that changes allocate nothing ([`Linked`]).
///
/// See [`Linked`] for an example.
pub struct Links {
    pub(super) word: AtomicU64,
    /// The next member of the same queue. Written by the pushing thread, before the push.
    pub(super) next: AtomicPtr<Links>,
    /// A canary of law ldu.U3 for loom; nothing elsewhere.
    #[cfg_attr(not(manycore_loom), allow(dead_code))] // unused there
    life: UnsafeCell<Life>,
}

/// Whether a member's time is over.
#[cfg(manycore_loom)]
type Life = bool;
#[cfg(not(manycore_loom))]
type Life = ();
#[cfg(manycore_loom)]
const ALIVE: Life = false;
#[cfg(not(manycore_loom))]
const ALIVE: Life = ();

// SAFETY: the only field that is not shareable by itself is the canary, which has no contents.
unsafe impl Sync for Links {}

impl Links {
    const_fn! {
        /// Those of a member that is in no set.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                word: AtomicU64::new(Word::NEW.0),
                next: AtomicPtr::new(ptr::null_mut()),
                life: UnsafeCell::new(ALIVE),
            }
        }
    }

    /// What the word says, and all that was done before it said so.
    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // ORDER: Acquire; pairs with the Release in `change`: a thread that sees a state sees what
        // happened before it.
        Word(self.word.load(Ordering::Acquire))
    }

    /// As [`load`](Self::load), for a transition that follows at once. loom remembers an object's
    /// last access alone: a thread's own load just before its compare-exchange would hide from it
    /// that another's load could come after both. So there it is a read-modify-write.
    #[inline(always)]
    pub(super) fn load_for_change(&self) -> Word {
        if cfg!(manycore_loom) {
            // ORDER: Acquire; as in `load`.
            Word(self.word.fetch_or(0, Ordering::Acquire))
        } else {
            self.load()
        }
    }

    /// Attaches or detaches, whatever else the word says; returns what it said before. For the
    /// owner alone, which knows that this changes no bit but the one.
    #[inline(always)]
    pub(super) fn toggle(&self, attach: bool) -> Word {
        // ORDER: AcqRel; as in `change`.
        Word(if attach {
            self.word.fetch_add(TOGGLE, Ordering::AcqRel)
        } else {
            self.word.fetch_sub(TOGGLE, Ordering::AcqRel)
        })
    }

    /// One transition. `Err` has the word found instead.
    #[inline(always)]
    pub(super) fn change(&self, from: Word, to: Word) -> Result<(), Word> {
        // ORDER: AcqRel; Release pairs with the Acquire of a thread that finds the new state: a
        // change shows the member's data to the drain (ldu.U4), a drain shows the owner that it is
        // done (ldu.U3). Acquire (both) is the other half.
        self.word
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Word)
    }

    /// The word of a member that is in no queue, from its owner.
    #[inline(always)]
    pub(super) fn set(&self, word: Word) {
        // ORDER: Release; as in `change`.
        self.word.store(word.0, Ordering::Release);
    }

    /// Says to loom that the member is in use here, so that it must not be freed now.
    #[inline(always)]
    pub(super) fn in_use(&self) {
        #[cfg(manycore_loom)]
        // SAFETY: loom checks that there is no concurrent write.
        self.life.with(|over| assert!(!unsafe { *over }, "a member is used after its time"));
    }

    /// Says to loom that the member's time is over.
    #[inline(always)]
    pub(super) fn is_over(&self) {
        #[cfg(manycore_loom)]
        // SAFETY: loom checks that access is exclusive.
        self.life.with_mut(|over| assert!(!unsafe { std::mem::replace(&mut *over, true) }));
    }
}

impl Default for Links {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.load();
        f.debug_struct("Links")
            .field("attached", &word.is_attached())
            .field("queued", &word.is_queued())
            .finish()
    }
}

/// A type that carries [`Links`] and so can be a member of a [`DeferredSet`](super::DeferredSet).
///
/// For types that should not be wrapped, because they are in other structures too. All others use
/// [`Element`].
///
/// # Safety
/// `LINKS` is the offset of a field of type [`Links`] that nothing but this module uses.
///
/// ```
/// use manycore::ldu::{DeferredSet, Linked, Links, Structure};
///
/// struct Mapping {
///     pages: std::ops::Range<u64>,
///     links: Links,
/// }
/// // SAFETY: the offset is the field's, which is used for this alone.
/// unsafe impl Linked for Mapping {
///     const LINKS: usize = std::mem::offset_of!(Mapping, links);
/// }
///
/// #[derive(Default)]
/// struct Pages(u64);
/// impl Structure<Mapping> for Pages {
///     fn insert(&mut self, mapping: &Mapping) {
///         self.0 += mapping.pages.end - mapping.pages.start;
///     }
///     fn remove(&mut self, mapping: &Mapping) {
///         self.0 -= mapping.pages.end - mapping.pages.start;
///     }
/// }
///
/// let mapped = DeferredSet::new(Pages::default());
/// let text = mapped.insert(Box::new(Mapping { pages: 0..16, links: Links::new() }));
/// assert_eq!(mapped.read().0, 16);
/// drop(text);
/// assert_eq!(mapped.read().0, 0);
/// ```
pub unsafe trait Linked: Send + Sync + Sized + 'static {
    /// Where the [`Links`] are, in bytes from the member's beginning.
    const LINKS: usize;

    /// How a panic calls the member.
    fn name(&self) -> String {
        format!("{} at {:p}", std::any::type_name::<Self>(), self)
    }

    /// Frees a member that was given up, outside of every lock. The default takes it for a box. A
    /// panic reaches the reader or the owner that frees it; a change that drained contains it.
    ///
    /// # Safety
    /// Called once for a member, by the set, when no reference to it is left.
    unsafe fn free(member: NonNull<Self>) {
        // SAFETY: handles are made of boxes; a type whose members are not says so here.
        drop(unsafe { Box::from_raw(member.as_ptr()) });
    }
}

/// The links of a member.
///
/// # Safety
/// `member` points to a live member.
#[inline(always)]
pub(super) unsafe fn links_of<E: Linked>(member: NonNull<E>) -> NonNull<Links> {
    // SAFETY: `Linked` says that they are there; the caller says that the member is.
    unsafe { member.byte_add(E::LINKS).cast() }
}

/// The member that has these links.
///
/// # Safety
/// `links` came from [`links_of`] for a member of this type.
#[inline(always)]
pub(super) unsafe fn member_of<E: Linked>(links: NonNull<Links>) -> NonNull<E> {
    // SAFETY: the caller promises that `links` came from `links_of` for this type (# Safety), so
    // the pointer was made from one to the whole member, which begins `LINKS` bytes earlier.
    unsafe { links.byte_sub(E::LINKS).cast() }
}

/// A value with links: the members of sets whose users have no type of their own to put links in.
/// Gives access to the value.
///
/// ```
/// use manycore::ldu::{DeferredSet, Element, Structure};
///
/// #[derive(Default)]
/// struct Longest(Vec<usize>);
/// impl Structure<Element<String>> for Longest {
///     fn insert(&mut self, word: &Element<String>) {
///         self.0.push(word.len()); // an element is used as its value
///     }
///     fn remove(&mut self, word: &Element<String>) {
///         let at = self.0.iter().position(|len| *len == word.len()).unwrap();
///         self.0.swap_remove(at);
///     }
/// }
///
/// let words = DeferredSet::new(Longest::default());
/// let kept = words.add("ant".into()); // makes the element
/// let other = words.insert(Box::new(Element::new("elephant".into()))); // the same by hand
/// assert_eq!(words.read().0.iter().max(), Some(&8));
/// drop(other);
/// assert_eq!(words.read().0, [3]);
/// # drop(kept);
/// ```
#[derive(Debug, Default)]
#[repr(C)]
pub struct Element<V> {
    links: Links,
    value: V,
}

impl<V> From<V> for Element<V> {
    fn from(value: V) -> Self {
        Self::new(value)
    }
}

impl<V> Element<V> {
    /// A value with links of its own, in no set.
    #[must_use]
    pub fn new(value: V) -> Self {
        Self { links: Links::new(), value }
    }

    /// The value alone.
    #[must_use]
    pub fn into_value(self) -> V {
        self.value
    }

    /// Exchanges the value of an idle member, whose marks a drain may read at the same time.
    ///
    /// # Safety
    /// The member is live, and its value is the caller's: no other thread accesses it.
    #[inline]
    pub(super) unsafe fn replace(member: NonNull<Self>, value: V) -> V {
        // SAFETY: the caller promises that the member is live, and that no other thread looks at
        // its value (# Safety). The pointer is to the value alone, not to the marks.
        unsafe { (&raw mut (*member.as_ptr()).value).replace(value) }
    }
}

// SAFETY: the offset is the field's, which is private and unused.
unsafe impl<V: Send + Sync + 'static> Linked for Element<V> {
    const LINKS: usize = std::mem::offset_of!(Self, links);
}

impl<V> Deref for Element<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> DerefMut for Element<V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.value
    }
}
