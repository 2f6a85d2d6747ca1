//! Where pages come from, and what may go wrong.

use std::fmt;
use std::hash::Hash;

/// Where the pages of a [`PageCache`](super::PageCache) come from and go back to.
///
/// Its functions are called with no lock of the cache held. They may use the cache, but a load must
/// not pin its own page, and a write-back must not flush the cache.
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
    /// Which page.
    type Key: Eq + Hash + Clone + Send + Sync + 'static;
    /// A page. If it is changed in place, by what it has inside: atomics, or a lock.
    type Page: Send + Sync + 'static;
    /// What may go wrong.
    type Error;

    /// Gets the page. One call at a time for each key.
    ///
    /// # Errors
    /// As the store has it. The cache calls again when the page is wanted again.
    fn load(&self, key: &Self::Key) -> Result<Self::Page, Self::Error>;

    /// Writes the page, which may be changed concurrently: then this is called again, later. One
    /// call at a time for each key.
    ///
    /// # Errors
    /// As the store has it. The page stays in the cache, and dirty.
    fn write_back(&self, key: &Self::Key, page: &Self::Page) -> Result<(), Self::Error>;
}

/// Why there is no page.
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
    /// All pages are in use: pinned, being loaded, written back or dropped. Or there may be no more
    /// private copies ([`PrivatePages::with_limit`](super::super::PrivatePages::with_limit)).
    Full,
    /// The store could not load the page, or not write back the one that should make room.
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
