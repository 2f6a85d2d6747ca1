//! The interface to a page store, and its errors.

use std::fmt;
use std::hash::Hash;

/// The store that pages of a [`PageCache`](super::PageCache) come from and go back to.
///
/// The cache calls these functions with no lock held. They may use the cache, but a load must not
/// pin its own page, and a write-back must not flush the cache.
///
/// ```
/// use manycore::collections::{PageCache, PageStore};
/// use std::{fs, io, path::{Path, PathBuf}};
/// use std::sync::Mutex;
///
/// /// The files of a folder, each a page.
/// struct Folder(PathBuf);
///
/// impl PageStore for Folder {
///     type Key = String;
///     type Page = Mutex<Vec<u8>>; // changed in place, so behind a lock
///     type Error = io::Error;
///
///     fn load(&self, name: &String) -> io::Result<Self::Page> {
///         fs::read(self.0.join(name)).map(Mutex::new)
///     }
///     fn write_back(&self, name: &String, page: &Self::Page) -> io::Result<()> {
///         fs::write(self.0.join(name), &*page.lock().unwrap())
///     }
/// }
///
/// # let folder = std::env::temp_dir().join(format!("manycore-{}", std::process::id()));
/// # let folder: &Path = &folder;
/// # fs::create_dir(folder).unwrap();
/// fs::write(folder.join("note"), "old").unwrap();
/// let files = PageCache::new(Folder(folder.into()), 100);
/// let note = files.pin(&"note".into()).unwrap();
/// *note.lock().unwrap() = b"new".to_vec();
/// note.mark_dirty();
/// files.flush().unwrap();
/// assert_eq!(fs::read(folder.join("note")).unwrap(), b"new");
/// # drop(note);
/// # fs::remove_dir_all(folder).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not load and write back pages",
    label = "lacks `PageStore`",
    note = "implement `manycore::collections::PageStore`"
)]
pub trait PageStore: Send + Sync + 'static {
    /// Identity of a page.
    type Key: Eq + Hash + Clone + Send + Sync + 'static;
    /// A page. If it is changed in place, it needs atomics or a lock inside.
    type Page: Send + Sync + 'static;
    /// The store's error.
    type Error;

    /// Loads the page. There is one call at a time for each key.
    ///
    /// # Errors
    /// As the store defines. The cache calls again when a thread pins the page again.
    fn load(&self, key: &Self::Key) -> Result<Self::Page, Self::Error>;

    /// Writes the page back. Threads may change the page meanwhile; then the cache calls again
    /// later. There is one call at a time for each key.
    ///
    /// # Errors
    /// As the store defines. The page stays in the cache, and dirty.
    fn write_back(&self, key: &Self::Key, page: &Self::Page) -> Result<(), Self::Error>;
}

/// Reason why a page could not be pinned.
///
/// ```
/// # use manycore::collections::PageStore;
/// use manycore::collections::{PageCache, PinError};
///
/// # struct Blank;
/// # impl PageStore for Blank {
/// #     type Key = u64;
/// #     type Page = Vec<u8>;
/// #     type Error = std::io::Error;
/// #     fn load(&self, _: &u64) -> std::io::Result<Vec<u8>> {
/// #         Ok(vec![0; 4096])
/// #     }
/// #     fn write_back(&self, _: &u64, _: &Vec<u8>) -> std::io::Result<()> {
/// #         Ok(())
/// #     }
/// # }
/// let cache = PageCache::new(Blank, 1); // room for one page
/// let pinned = cache.pin(&1).unwrap();
/// assert!(matches!(cache.pin(&2), Err(PinError::Full)));
/// drop(pinned);
/// assert!(cache.pin(&2).is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError<E> {
    /// All pages are in use: pinned, being loaded, written back or dropped. Or the limit of private
    /// copies is reached ([`PrivatePages::with_limit`](super::super::PrivatePages::with_limit)).
    Full,
    /// The store could not load the page, or could not write back the page that should make room.
    Store(E),
}

impl<E: fmt::Display> fmt::Display for PinError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the page cache is full of pages in use"),
            Self::Store(error) => write!(f, "the store of a page cache failed: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PinError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Full => None,
            Self::Store(error) => Some(error),
        }
    }
}
