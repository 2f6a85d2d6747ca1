//! A page as a reader sees it.

use super::super::{PageStore, Pinned};
use super::frame::Reading;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;

/// A page of a [`PrivatePages`](super::PrivatePages), which does not change until this is dropped
/// (except for a page of the cache that others change in place).
///
/// It stays with its thread. It keeps replaced copies of its family of views from being freed, so
/// drop it soon. If it is forgotten, those copies are never freed, and each write of the page
/// copies it.
///
/// See [`PrivatePages`](super::PrivatePages) for an example.
#[must_use = "the page may be replaced at once"]
pub struct PrivatePage<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static = RandomState> {
    whose: Whose<'a, T, S>,
}

enum Whose<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    Own(Reading<'a, T::Key, T::Page>),
    Cached(Pinned<'a, T, S>),
}

impl<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> PrivatePage<'a, T, S> {
    pub(super) fn own(reading: Reading<'a, T::Key, T::Page>) -> Self {
        Self { whose: Whose::Own(reading) }
    }

    pub(super) fn cached(pinned: Pinned<'a, T, S>) -> Self {
        Self { whose: Whose::Cached(pinned) }
    }

    /// Returns true if the page is a copy of the view's, false if it is the cache's page.
    #[must_use]
    pub fn is_private(&self) -> bool {
        matches!(self.whose, Whose::Own(_))
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Deref for PrivatePage<'_, T, S> {
    type Target = T::Page;

    #[inline]
    fn deref(&self) -> &T::Page {
        match &self.whose {
            Whose::Own(reading) => reading.page(),
            Whose::Cached(pinned) => pinned,
        }
    }
}

impl<T, S> fmt::Debug for PrivatePage<'_, T, S>
where
    T: PageStore<Page: fmt::Debug>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
