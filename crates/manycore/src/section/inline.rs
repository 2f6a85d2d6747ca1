//! Sections that code which is not compiled with this crate opens and closes: the inline functions
//! of a C header (section.S12).

use super::domain::{Domain, Moment};
use super::guard::Section;
use super::local::{Local, SPARE};
use super::state::State;
use crate::sync::AtomicU64;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// A section that is open and has no guard: what [`Section::leave_open`] returns.
///
/// What for: the boundary to another language, with functions that open a section and return. With
/// the three words, that language can even open and close sections without a call, as law
/// section.S12 says. When not: in Rust code, where a guard closes the section whatever happens.
///
/// ```
/// let domain = manycore::section::Domain::new();
/// let open = domain.enter().leave_open();
/// assert!(domain.is_inside());
/// // SAFETY: opened above by this thread, and closed once.
/// drop(unsafe { domain.resume(open.announced()) });
/// assert!(!domain.is_inside());
/// ```
#[must_use = "the section stays open until it is resumed and dropped"]
pub struct OpenSection<'d> {
    local: *const Local,
    state: &'d State,
    /// Neither Send nor Sync: the words are the thread's own.
    _thread: PhantomData<*mut ()>,
}

impl OpenSection<'_> {
    /// Returns the calling thread's word in the domain: zero, or the era in which its outermost
    /// section was opened.
    pub fn announced(&self) -> *mut u64 {
        const { assert!(std::mem::offset_of!(Local, lower) == 0) };
        self.local.cast_mut().cast()
    }

    /// Returns the word that is zero if closing the section takes no more than storing zero to the
    /// announced word. It lies [`PENDING_OFFSET`](Self::PENDING_OFFSET) bytes behind the announced
    /// word.
    pub fn pending(&self) -> *const u32 {
        self.announced().wrapping_byte_add(Self::PENDING_OFFSET).cast_const().cast()
    }

    /// See [`pending`](Self::pending).
    pub const PENDING_OFFSET: usize = std::mem::offset_of!(Local, extra);

    /// Bytes from the announced word to the word that the thread raises in a bounded domain. A link
    /// may be followed there if the era, read after the link, is at most the greater of the two
    /// words.
    pub const RAISED_OFFSET: usize = std::mem::offset_of!(Local, raised);

    /// Returns the address of the domain's era, which stays the same as long as the domain lives.
    pub fn era(&self) -> *const u64 {
        AtomicU64::as_ptr(&self.state.era.0).cast_const()
    }

    /// Returns true if the thread may open and close sections of the domain through the words. Then
    /// readers of the domain pay no fence, and the words stay the thread's own until its
    /// destructors run.
    pub fn is_inlinable(&self) -> bool {
        // SAFETY: the state lives, and with it the part of it that belongs to the slot.
        self.state.light && unsafe { &*self.local }.extra.get() & SPARE == 0
    }
}

impl fmt::Debug for OpenSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSection").field("announced", &self.announced()).finish_non_exhaustive()
    }
}

impl<'d> Section<'d> {
    /// Gives up the guard and leaves the section open; [`Domain::resume`] makes a guard again.
    ///
    /// A section that is left open for good holds back all that is retired from then on.
    pub fn leave_open(self) -> OpenSection<'d> {
        let section = ManuallyDrop::new(self);
        OpenSection { local: section.local(), state: section.state(), _thread: PhantomData }
    }
}

impl Domain {
    /// Makes the guard of a section that was left open, or that was opened through its words
    /// (section.S12).
    ///
    /// See [`OpenSection`] for an example.
    ///
    /// # Safety
    /// - `announced` is that of an [`OpenSection`] of this domain that the calling thread had.
    /// - The thread has a section of the domain open now, and uses no other guard of that section.
    /// - The thread's destructors have not run since, unless the section has been open all the
    ///   time.
    #[inline]
    pub unsafe fn resume(&self, announced: *mut u64) -> Section<'_> {
        // SAFETY: the address of a `Local` (`OpenSection::announced`) of this domain, which keeps
        // it as long as it lives. The caller promises that the thread owns the slot.
        let local = unsafe { &*announced.cast_const().cast::<Local>() };
        debug_assert!(local.is_inside(), "section.S12: a section is resumed that is not open");
        // SAFETY: a section is open, which the caller promises.
        Section::opened(unsafe { self.made_state() }, local)
    }
}

impl Moment {
    /// Returns the moment as a number, for code that cannot keep a `Moment`.
    ///
    /// ```
    /// use manycore::section::{Domain, Moment};
    ///
    /// let domain = Domain::new();
    /// let moment = domain.now();
    /// assert_eq!(Moment::from_bits(moment.to_bits()), moment);
    /// ```
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the moment for a number that [`to_bits`](Self::to_bits) returned. Any other number
    /// gives a moment that has passed, or that never will.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}
