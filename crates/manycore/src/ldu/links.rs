//! The links embedded in a member, and the way from the links to the member.

use super::word::{TOGGLE, Word};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell, const_fn};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// The marks and the link of one member of a [`DeferredSet`](super::DeferredSet). A type has these
/// 16 bytes among its fields, so that changes allocate nothing ([`Linked`]).
///
/// See [`Linked`] for an example.
pub struct Links {
    pub(super) word: AtomicU64,
    /// The next member of the same queue. Written by the pushing thread, before the push.
    pub(super) next: AtomicPtr<Links>,
    /// A canary of law ldu.U3 for loom; empty elsewhere.
    #[cfg_attr(not(manycore_loom), allow(dead_code))] // unused there
    life: UnsafeCell<Life>,
}

/// True once a member's time is over.
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
        /// Makes the links of a member that is in no set.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                word: AtomicU64::new(Word::NEW.0),
                next: AtomicPtr::new(ptr::null_mut()),
                life: UnsafeCell::new(ALIVE),
            }
        }
    }

    /// Loads the word, and acquires what was done before it was stored.
    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // ORDER: Acquire; pairs with the Release in `change`: a thread that sees a state sees what
        // happened before it.
        Word(self.word.load(Ordering::Acquire))
    }

    /// As [`load`](Self::load), for a transition that follows at once. loom remembers only an
    /// object's last access. A thread's own load just before its compare-exchange would hide from
    /// loom that another thread's load could come after both. So under loom it is a
    /// read-modify-write.
    #[inline(always)]
    pub(super) fn load_for_change(&self) -> Word {
        if cfg!(manycore_loom) {
            // ORDER: Acquire; as in `load`.
            Word(self.word.fetch_or(0, Ordering::Acquire))
        } else {
            self.load()
        }
    }

    /// Attaches or detaches, whatever else the word says, and returns the word as it was before.
    /// Only for the owner, which knows that this changes no other bit.
    #[inline(always)]
    pub(super) fn toggle(&self, attach: bool) -> Word {
        // ORDER: AcqRel; as in `change`.
        Word(if attach {
            self.word.fetch_add(TOGGLE, Ordering::AcqRel)
        } else {
            self.word.fetch_sub(TOGGLE, Ordering::AcqRel)
        })
    }

    /// Makes one transition. Returns `Err` with the word if it is not `from`.
    #[inline(always)]
    pub(super) fn change(&self, from: Word, to: Word) -> Result<(), Word> {
        // ORDER: AcqRel; Release pairs with the Acquire of a thread that finds the new state: a
        // change shows the member's data to the drain (ldu.U4), and a drain shows the owner that it
        // is done (ldu.U3). Acquire (both) is the other half.
        self.word
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Word)
    }

    /// Stores the word of a member that is in no queue. Only for the member's owner.
    #[inline(always)]
    pub(super) fn set(&self, word: Word) {
        // ORDER: Release; as in `change`.
        self.word.store(word.0, Ordering::Release);
    }

    /// Tells loom that the member is in use here, so that it must not be freed now.
    #[inline(always)]
    pub(super) fn in_use(&self) {
        #[cfg(manycore_loom)]
        // SAFETY: loom checks that there is no concurrent write.
        self.life.with(|over| assert!(!unsafe { *over }, "a member is used after its time"));
    }

    /// Tells loom that the member's time is over.
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
/// For types that should not be wrapped, because they are in other structures, too. All other types
/// use [`Element`].
///
/// # Safety
/// `LINKS` is the offset of a field of type [`Links`] that only this module uses.
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
    /// The offset of the [`Links`], in bytes from the member's beginning.
    const LINKS: usize;

    /// Returns the name that a panic calls the member by.
    fn name(&self) -> String {
        format!("{} at {:p}", std::any::type_name::<Self>(), self)
    }

    /// Frees a member that was given up, outside of every lock. The default frees it as a box. A
    /// panic reaches the reader or the owner that frees the member; a change that drains contains
    /// the panic.
    ///
    /// # Safety
    /// The set calls this once for a member, when no reference to the member is left.
    unsafe fn free(member: NonNull<Self>) {
        // SAFETY: handles are made of boxes; a type with other members implements this differently.
        drop(unsafe { Box::from_raw(member.as_ptr()) });
    }
}

/// Returns the links of a member.
///
/// # Safety
/// `member` points to a live member.
#[inline(always)]
pub(super) unsafe fn links_of<E: Linked>(member: NonNull<E>) -> NonNull<Links> {
    // SAFETY: `Linked` promises that the links are there; the caller promises that the member is.
    unsafe { member.byte_add(E::LINKS).cast() }
}

/// Returns the member that has these links.
///
/// # Safety
/// `links` came from [`links_of`] for a member of this type.
#[inline(always)]
pub(super) unsafe fn member_of<E: Linked>(links: NonNull<Links>) -> NonNull<E> {
    // SAFETY: the caller promises that `links` came from `links_of` for this type (# Safety). So
    // the pointer was made from a pointer to the whole member, which begins `LINKS` bytes earlier.
    unsafe { links.byte_sub(E::LINKS).cast() }
}

/// A value with links: a member for sets whose users have no type to put links in. It dereferences
/// to the value.
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
    /// Makes an element of a value, in no set.
    #[must_use]
    pub fn new(value: V) -> Self {
        Self { links: Links::new(), value }
    }

    /// Returns the value.
    #[must_use]
    pub fn into_value(self) -> V {
        self.value
    }
}

// SAFETY: the offset is that of the field, which is private and otherwise unused.
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
