//! [`IdSpaceView`]: a space as one section sees it.

use super::id::{Extent, Id};
use super::space::{Full, IdSpace};
use crate::section::Section;
use std::fmt;

/// An [`IdSpace`] and an open section of its domain. References to nodes borrow from the view.
///
/// Keep a view for as long as references are needed, or for many calls in a row, but not while
/// waiting for anything: see [`Section`]. A view stays on its thread. Views nest. When not: if a
/// section of the domain is open anyway, or if references are kept across an `.await` (an
/// [`OwnedSection`](crate::section::OwnedSection)). Then pass the section to the space's methods.
///
/// Cost: that of a section, some 2 ns. Each method costs as much as the space's own.
///
/// ```
/// use manycore::namespace::IdSpace;
///
/// let files = IdSpace::new();
/// let view = files.enter();
/// let ids = ["/etc/passwd", "/etc/hosts"].map(|path| view.insert(path));
/// let hosts = view.get(ids[1]);
/// std::thread::scope(|s| {
///     s.spawn(|| files.enter().remove(ids[1]).is_some());
/// });
/// assert_eq!(hosts, Some(&"/etc/hosts")); // valid as long as the view
/// assert_eq!(view.get(ids[1]), None);
/// ```
///
/// A node does not outlive its view:
/// ```compile_fail
/// let files = manycore::namespace::IdSpace::new();
/// let view = files.enter();
/// let path = view.get(view.insert("/etc/passwd"));
/// drop(view);
/// println!("{path:?}");
/// ```
pub struct IdSpaceView<'s, T> {
    space: &'s IdSpace<'s, T>,
    section: Section<'s>,
}

impl<T> IdSpace<'_, T> {
    /// Opens a section of the space's domain, and returns a view of the space in it.
    #[inline]
    pub fn enter(&self) -> IdSpaceView<'_, T> {
        IdSpaceView { space: self, section: self.domain().enter() }
    }
}

impl<'s, T> IdSpaceView<'s, T> {
    /// Returns the space.
    pub fn space(&self) -> &'s IdSpace<'s, T> {
        self.space
    }

    /// Releases everything that was removed before, as if the view were closed and opened again.
    pub fn refresh(&mut self) {
        self.section.refresh();
    }

    /// As [`IdSpace::get`].
    ///
    /// # Panics
    /// In a debug build, if the id is of another namespace.
    #[inline]
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&T> {
        self.space.get(id, &self.section)
    }

    /// As [`IdSpace::contains`].
    ///
    /// # Panics
    /// In a debug build, if the id is of another namespace.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.get(id).is_some()
    }

    /// As [`IdSpace::get_in`].
    ///
    /// # Panics
    /// In a debug build, if the extent is of another namespace.
    #[inline]
    #[must_use]
    pub fn get_in(&self, extent: Extent, offset: usize) -> Option<&T>
    where
        T: Send + Sync + 'static,
    {
        self.space.get_in(extent, offset, &self.section)
    }

    /// As [`IdSpace::iter`].
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.space.iter(&self.section)
    }
}

impl<T: Send + Sync + 'static> IdSpaceView<'_, T> {
    /// As [`IdSpace::insert`].
    ///
    /// # Panics
    /// If there are no ids left.
    #[inline]
    pub fn insert(&self, value: T) -> Id {
        self.space.insert(value, &self.section)
    }

    /// As [`IdSpace::insert_with`].
    ///
    /// # Panics
    /// If there are no ids left.
    #[inline]
    pub fn insert_with(&self, f: impl FnOnce(Id) -> T) -> Id {
        self.space.insert_with(f, &self.section)
    }

    /// As [`IdSpace::try_insert_with`].
    ///
    /// # Errors
    /// If there are no ids left.
    #[inline]
    pub fn try_insert_with(&self, f: impl FnOnce(Id) -> T) -> Result<Id, Full> {
        self.space.try_insert_with(f, &self.section)
    }

    /// As [`IdSpace::insert_extent`].
    ///
    /// # Panics
    /// If `len` is zero or above [`MAX_EXTENT`](super::MAX_EXTENT), or if there are no ids left.
    pub fn insert_extent(&self, len: usize, f: impl FnMut(usize, Id) -> T) -> Extent {
        self.space.insert_extent(len, f, &self.section)
    }

    /// As [`IdSpace::try_insert_extent`].
    ///
    /// # Errors
    /// If there are not that many contiguous ids left.
    ///
    /// # Panics
    /// If `len` is zero or above [`MAX_EXTENT`](super::MAX_EXTENT).
    pub fn try_insert_extent(
        &self,
        len: usize,
        f: impl FnMut(usize, Id) -> T,
    ) -> Result<Extent, Full> {
        self.space.try_insert_extent(len, f, &self.section)
    }

    /// As [`IdSpace::remove`]. The node is there as long as the view.
    ///
    /// # Panics
    /// As [`IdSpace::remove`].
    #[inline]
    pub fn remove(&self, id: Id) -> Option<&T> {
        self.space.remove(id, &self.section)
    }

    /// As [`IdSpace::remove_extent`].
    ///
    /// # Panics
    /// As [`IdSpace::remove`].
    pub fn remove_extent(&self, extent: Extent) -> bool {
        self.space.remove_extent(extent, &self.section)
    }

    /// As [`IdSpace::retain`].
    ///
    /// # Panics
    /// As [`IdSpace::retain`].
    pub fn retain(&self, keep: impl FnMut(Id, &T) -> bool) {
        self.space.retain(keep, &self.section);
    }
}

impl<T: fmt::Debug> fmt::Debug for IdSpaceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
