//! Names of nodes outside of sections: [`Id`] and [`Extent`], and their representation.

use std::fmt;
use std::num::NonZeroU64;

/// Flag of a slot's word: lookups do not find the slot.
pub(super) const DEAD: u64 = 1 << 63;
/// Flag of a live word and its id: part of an extent.
pub(super) const EXTENT: u64 = 1 << 62;
/// Flag of a dead word, in place of `EXTENT`: there is a value, to be dropped after quiescence.
pub(super) const HELD: u64 = 1 << 62;
const TAG_SHIFT: u32 = 56;
const TAGS: u64 = (1 << (62 - TAG_SHIFT)) - 1;
const GENERATION_SHIFT: u32 = 32;
/// The last generation. A slot that has had it is never used again (namespace.N5).
pub(super) const LAST_GENERATION: u32 = (1 << (TAG_SHIFT - GENERATION_SHIFT)) - 1;
const INDEX: u64 = (1 << GENERATION_SHIFT) - 1;

/// Returns the tag of the `number`th namespace of the process: 1 to 63.
pub(super) fn tag_of(number: u64) -> NonZeroU64 {
    NonZeroU64::new((number % TAGS + 1) << TAG_SHIFT).expect("one of the tags")
}

/// Returns a dead word.
#[inline(always)]
pub(super) fn dead(index: u32, generation: u32, held: u64) -> u64 {
    DEAD | held | u64::from(generation) << GENERATION_SHIFT | u64::from(index)
}

/// Returns the dead word of an id that has just been removed: its bits, and the flag that there is
/// a value.
#[inline(always)]
pub(super) fn held(id: Id) -> u64 {
    id.to_bits() | DEAD | HELD
}

/// Returns the index in a word.
#[inline(always)]
pub(super) fn index_in(word: u64) -> u32 {
    (word & INDEX) as u32
}

/// Returns the generation in a word.
#[inline(always)]
pub(super) fn generation_in(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32 & LAST_GENERATION
}

/// Returns the class of an extent of `len` ids: log2, rounded up.
pub(super) fn class_of(len: usize) -> usize {
    len.next_power_of_two().trailing_zeros() as usize
}

/// The name of a node in an [`IdSpace`](super::IdSpace): a number that may be kept anywhere, sent
/// anywhere and compared, inside sections and outside.
///
/// An id names one node forever. Once that node is removed the id leads nowhere, even if the place
/// is used again. The id consists of the place (32 bits), the place's generation (24 bits) and a
/// tag of its namespace. Ids are not secrets: others can be guessed from one. Their order has no
/// meaning. `Option<Id>` is as small as `Id`.
///
/// ```
/// use manycore::{namespace::{Id, IdSpace}, section};
/// let names = IdSpace::new();
/// let section = section::enter();
/// let id = names.insert("ada", &section);
/// let sent: u64 = id.to_bits();
/// assert_eq!(Id::from_bits(sent), Some(id));
/// assert_eq!(Id::from_bits(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Id(NonZeroU64);

impl Id {
    #[inline(always)]
    pub(super) fn new(tag: NonZeroU64, extent: u64, index: u32, generation: u32) -> Self {
        let rest = u64::from(generation) << GENERATION_SHIFT | u64::from(index);
        Self(tag | extent | rest)
    }

    /// Returns the next id of a slot whose last id was removed and left this word ([`held`]), in
    /// the namespace with this tag. Returns `None` if the slot has no further id (namespace.N5).
    #[inline(always)]
    pub(super) fn after(held: u64, tag: NonZeroU64) -> Option<Self> {
        debug_assert!(
            held & (DEAD | HELD) == DEAD | HELD,
            "namespace.N4: {held:x} is no removed id"
        );
        let next = held.wrapping_sub(DEAD | HELD).wrapping_add(1 << GENERATION_SHIFT);
        // The generation after the last one runs over into the tag.
        if (next ^ tag.get()) >> TAG_SHIFT != 0 {
            return None;
        }
        // SAFETY: namespace.N5 - it has the bits of the tag, which is not zero.
        Some(Self(unsafe { NonZeroU64::new_unchecked(next) }))
    }

    /// Returns the id in this word, if the word is live.
    #[inline(always)]
    pub(super) fn in_word(word: u64) -> Option<Self> {
        if word & DEAD != 0 { None } else { NonZeroU64::new(word).map(Self) }
    }

    /// Returns the id as a number, never zero.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Returns the id of a number that [`to_bits`](Self::to_bits) returned, or `None` if no id has
    /// this number.
    ///
    /// Any other number is safe as well: it leads nowhere or to some node. For numbers that come
    /// from outside the program use [`IdSpace::check`](super::IdSpace::check).
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let has_tag = bits >> TAG_SHIFT & TAGS != 0;
        match NonZeroU64::new(bits) {
            Some(bits) if bits.get() & DEAD == 0 && has_tag => Some(Self(bits)),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn index(self) -> u32 {
        index_in(self.to_bits())
    }

    #[inline(always)]
    pub(super) fn tag(self) -> u64 {
        self.to_bits() & TAGS << TAG_SHIFT
    }

    #[inline(always)]
    pub(super) fn is_in_extent(self) -> bool {
        self.to_bits() & EXTENT != 0
    }

    /// Returns the id `offset` places further on. The caller knows that the extent has it.
    #[inline(always)]
    pub(super) fn at(self, offset: usize) -> Self {
        debug_assert!(
            offset as u64 + u64::from(self.index()) <= INDEX,
            "namespace.N5: an id's index runs into its generation"
        );
        // Not zero, because adding to the index leaves the tag.
        Self(self.0.saturating_add(offset as u64))
    }
}

impl fmt::Debug for Id {
    /// Place, generation, namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bits, tag) = (self.to_bits(), self.tag() >> TAG_SHIFT);
        write!(f, "Id({}v{}@{tag})", index_in(bits), generation_in(bits))
    }
}

/// Contiguous ids, allocated and freed as a whole; see
/// [`IdSpace::insert_extent`](super::IdSpace::insert_extent).
///
/// ```
/// use manycore::{namespace::IdSpace, section};
/// let pages = IdSpace::new();
/// let section = section::enter();
/// let extent = pages.insert_extent(3, |offset, _id| offset * 4096, &section);
/// assert_eq!(extent.len(), 3);
/// assert_eq!(pages.get(extent.id(2), &section), Some(&8192));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    first: Id,
    len: u32,
}

#[allow(clippy::len_without_is_empty)] // there is no empty one
impl Extent {
    pub(super) fn new(first: Id, len: u32) -> Self {
        Self { first, len }
    }

    /// Returns the extent of a first id and a length that [`first`](Self::first) and
    /// [`len`](Self::len) returned. Other numbers are safe as well: they lead nowhere, or to some
    /// other extent.
    ///
    /// Returns `None` if `first` is not part of an extent, or if no extent can have length `len`.
    pub fn from_parts(first: Id, len: usize) -> Option<Self> {
        let room = INDEX + 1 - u64::from(first.index());
        let fits = len != 0 && len as u64 <= room && len <= super::MAX_EXTENT;
        let len = u32::try_from(len).ok()?;
        (fits && first.is_in_extent()).then_some(Self { first, len })
    }

    /// Returns the first id.
    pub const fn first(self) -> Id {
        self.first
    }

    /// Returns the number of ids, at least one.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns the id at `offset`.
    ///
    /// # Panics
    /// If `offset` is not less than the length.
    #[inline]
    pub fn id(self, offset: usize) -> Id {
        assert!(
            offset < self.len(),
            "manycore: an extent of {} ids has none at {offset}",
            self.len
        );
        self.first.at(offset)
    }

    /// Iterates over all ids, in order.
    pub fn ids(self) -> impl ExactSizeIterator<Item = Id> {
        (0..self.len).map(move |offset| self.first.at(offset as usize))
    }

    /// Returns the class of its size: log2, rounded up.
    pub(super) fn class(self) -> usize {
        class_of(self.len())
    }
}
