//! The pages of a file in memory, with policies of the file's own.
//!
//! This module owns [`FileCache`] and [`Builder`]. `source` is where bytes come from, `page` a
//! page, `form` the tables that find pages, `store` how a page gets there, `view` a page as users
//! see it, and `read_ahead` the guess of what is needed next. It does not own how much memory all
//! files have (`page_manager`).
//!
//! ```text
//! FileCache --swappable--> Table (small or large form) --> Frame (page, dirty mark, charge)
//!     |                          | miss: charge, read          | evicted: write back, release
//!     |                          v                             v
//!     +--> PageManager       FileSource                   FileSource
//! ```
//!
//! Laws:
//! - file_cache.F1 One thread at a time reads a page, and the page has one place in memory, which
//!   all threads that touch it share. This is page_cache.G1 and page_cache.G2: each form has such a
//!   cache.
//! - file_cache.F2 The form is exchanged as in swap.W1: no touch is under way while pages move. The
//!   pages themselves move, with their contents, charges and dirty marks.
//! - file_cache.F3 A page is charged to the page manager before it is made. The charge is released
//!   when the page's memory is freed, wherever that happens. So the charges of all files are the
//!   pages that exist.
//! - file_cache.F4 A page has a dirty mark of its own beside the table's, because a form cannot
//!   pass its table's marks to the next. A mark sets both, after the change. A write-back clears
//!   the page's own mark before it copies, and sets it again if it fails. So between calls, a page
//!   that differs from the source has both marks.
//! - file_cache.F5 Sources and closures run without a lock. A touch announces the form. A thread
//!   that is in no touch exchanges the form, and waits with a patience. So a source or a closure
//!   that blocks delays others that long, and no longer.
//!
//! Source: K42's file cache managers (sections 3.4 and 4.3 of the paper): policies for each file,
//! and a simple form that is swapped for a distributed one when the file suffers contention.

mod form;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod page;
mod read_ahead;
mod source;
mod store;
#[cfg(all(test, not(manycore_loom)))]
mod tests;
mod view;

pub use self::form::FileForm;
pub use self::source::{FileSource, MemoryFile};
pub use self::view::FilePage;

use self::form::Table;
use self::read_ahead::Stream;
use crate::page_manager::{Attached, PageManager, PageUser, Usage};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use crate::{Error, ErrorKind, PAGE_BYTES};
use manycore::cluster::{SwapFailure, Swappable};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A file with more pages in memory than this has the large form.
const SMALL_PAGES: usize = if cfg!(manycore_loom) { 1 } else { 64 };
/// How long an exchange of the form waits for running touches (file_cache.F5).
const PATIENCE: Duration =
    Duration::from_millis(if cfg!(manycore_loom) { u32::MAX as u64 } else { 1 });
/// Maximal checks that are skipped after failed exchanges.
const REST_MAX: u32 = 1 << 12;

/// The state that all forms of a file share.
struct File {
    source: Box<dyn FileSource>,
    length: AtomicU64,
    page_bytes: usize,
    pages_max: usize,
    read_ahead: u64,
    stream: Mutex<Stream>,
    manager: Option<PageManager>,
    /// Pages in memory (file_cache.F3).
    held: AtomicUsize,
    usage: Usage,
}

impl File {
    fn length(&self) -> u64 {
        // ORDER: Relaxed; the number only grows, and no page's contents depend on it.
        self.length.load(Ordering::Relaxed)
    }

    /// Returns an error about the page at this offset.
    #[cold]
    fn error(&self, kind: ErrorKind, offset: u64, reason: Option<io::Error>) -> Error {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let pages = self.page_bytes / PAGE_BYTES;
        match (kind, reason) {
            (ErrorKind::System(call), Some(reason)) => Error::system(call, at, pages, reason),
            (kind, _) => Error::new(kind, at, pages),
        }
    }

    /// Charges a page (file_cache.F3). The page's frame calls [`release`](Self::release).
    fn charge(&self, offset: u64) -> Result<(), Error> {
        let Some(manager) = &self.manager else { return Ok(()) };
        let charged = manager.budget().try_charge(self.page_bytes as u64);
        charged.map_err(|_| self.error(ErrorKind::NoMemory, offset, None))
    }

    fn count(&self, pages: usize) {
        // ORDER: Relaxed; a count.
        self.held.fetch_add(pages, Ordering::Relaxed);
    }

    fn release(&self) {
        // ORDER: Relaxed; a count.
        let before = self.held.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "file_cache.F3: a page is given back twice");
        if let Some(manager) = &self.manager {
            manager.budget().release(self.page_bytes as u64);
        }
    }

    fn held(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.held.load(Ordering::Relaxed)
    }

    /// Tells the source what will probably be read after this page.
    fn read_ahead(&self, page: u64) {
        if self.read_ahead == 0 {
            return;
        }
        let ahead = lock(&self.stream).note(page, self.read_ahead);
        if let Some((first, pages)) = ahead {
            let bytes = self.page_bytes as u64;
            let offset = first.saturating_mul(bytes);
            let left = self.length().saturating_sub(offset);
            if left > 0 {
                self.source.will_need(offset, left.min(pages.saturating_mul(bytes)));
            }
        }
    }
}

/// A cache of a file's pages: read when they are touched, and written back when they were changed.
///
/// What for: files (or things like files) that many threads read and change in place, with a limit
/// on memory that several files share ([`PageManager`]). Examples are data files of a database,
/// segments of a log or an index, images of virtual machines. When not: a file that is read once,
/// from beginning to end, needs no cache. If the kernel's own cache and limits suffice, `mmap` is
/// simpler. For values by key, use the crate `manycore-cache`.
///
/// ```
/// use manycore_vm::{FileCache, MemoryFile, PageManager};
/// use manycore::collections::BudgetTree;
///
/// let memory = PageManager::new(BudgetTree::with_batch(16 * 4096, 0));
/// let file = FileCache::builder(MemoryFile::new(vec![1; 1 << 20])).within(&memory).build()?;
/// std::thread::scope(|s| {
///     for thread in 0..4_u64 {
///         let file = &file;
///         s.spawn(move || {
///             for page in 0..64 {
///                 file.write((thread * 64 + page) * 4096, &[2]).unwrap();
///             }
///         });
///     }
/// });
/// file.flush()?;
/// assert!(file.pages() <= 16 && memory.budget().used() <= 16 * 4096);
/// let mut byte = [0];
/// file.read(255 * 4096, &mut byte)?; // the page was written back, and is read again
/// assert_eq!(byte, [2]);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Policies* are the file's own: its [page size](Builder::page_bytes), how far it is [read
///   ahead](Builder::read_ahead), and [how many pages](Builder::pages_max) it may have.
/// - *Forms*: a file begins small: one table under one lock. It becomes [large](FileForm::Large)
///   when more than 64 pages are in memory or threads wait for each other, while threads use it. It
///   becomes small again when it has 16 pages or fewer, unless threads have waited for each other
///   in it. [`form`](Self::form) returns the present form.
/// - *Consistency*: a page is one memory for all threads, like a page of a mapped file; see
///   [`FilePage`]. When [`flush`](Self::flush) returns, the source has every change that was marked
///   before.
/// - *Progress*: blocking. Threads that touch a page wait while another thread reads it. A touch
///   that needs memory may write back a page of this file, or of another file of the same manager.
///   A form is exchanged when no touch is under way. New touches wait meanwhile, at most a
///   millisecond. Failed exchanges are retried ever more rarely.
/// - *Cost*: a touch of a page in memory takes some 25 ns. In the large form it writes no shared
///   line, once threads have met. Making and dropping a file takes 0.3 us. A read costs what the
///   source costs, plus the charge and some locks of a table.
/// - *Memory*: the pages, up to the page manager's limit. Also some 260 bytes for each page, 1.3 KB
///   for a file in the small form, and 2 KB more in the large form.
/// - *Errors*: [`Error`]. Its range is the byte offset in the file, and pages of 4,096 bytes. A
///   touch that fails has changed nothing.
/// - *Panics*: a panic of a source or a closure passes to the caller that runs it. A source that
///   touches the page it is reading, or closes a cycle of such reads, panics.
/// - *Drop*: writes nothing back. Call [`flush`](Self::flush) before.
/// - *Source*: K42's file cache managers.
pub struct FileCache {
    table: Swappable<Table>,
    file: Arc<File>,
    /// The present or next form. Only a hint that says when to check.
    is_large: AtomicBool,
    exchange: Mutex<Exchange>,
    attached: Option<Attached>,
}

/// The attempts to exchange the form.
#[derive(Default)]
struct Exchange {
    /// Checks to skip before the next attempt.
    rest: u32,
    failures: u32,
    swaps: u64,
}

/// Builder for [`FileCache`]: the policies of a file.
///
/// ```
/// use manycore_vm::{FileCache, MemoryFile};
///
/// let index = FileCache::builder(MemoryFile::new(vec![0; 1 << 20]))
///     .page_bytes(64 << 10)
///     .read_ahead(0) // read at random
///     .pages_max(4)
///     .build()?;
/// (0..16).try_for_each(|page| index.with_page(page, |_| ()))?;
/// assert_eq!(index.pages(), 4);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    source: Box<dyn FileSource>,
    page_bytes: usize,
    pages_max: usize,
    read_ahead: usize,
    manager: Option<PageManager>,
}

impl Builder {
    /// Sets the file's page size: a power of two, at least 4,096 (the default). Larger pages make
    /// fewer and longer calls of the source.
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Sets the maximal pages in memory, including pinned ones. No limit by default.
    pub fn pages_max(mut self, pages: usize) -> Self {
        self.pages_max = pages;
        self
    }

    /// Sets how many pages ahead of a sequential reader the source is [told](FileSource::will_need)
    /// to prepare, at most. 32 by default; use 0 for a file that is read at random.
    pub fn read_ahead(mut self, pages: usize) -> Self {
        self.read_ahead = pages;
        self
    }

    /// Charges the file's pages to `manager`, which asks for them back when others need memory.
    pub fn within(mut self, manager: &PageManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Makes the cache, without a page in memory.
    ///
    /// # Errors
    /// If the page size is invalid, no page may be in memory, or the source fails to return its
    /// length.
    pub fn build(self) -> Result<Arc<FileCache>, Error> {
        let Self { source, page_bytes, pages_max, read_ahead, manager } = self;
        if !page_bytes.is_power_of_two() || page_bytes < PAGE_BYTES {
            return Err(Error::new(ErrorKind::Unaligned, 0, page_bytes.div_ceil(PAGE_BYTES)));
        }
        if pages_max == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        let length = source.length().map_err(|reason| Error::system("length", 0, 0, reason))?;
        let file = Arc::new(File {
            source,
            length: AtomicU64::new(length),
            page_bytes,
            pages_max,
            read_ahead: read_ahead as u64,
            stream: Mutex::new(Stream::default()),
            manager,
            held: AtomicUsize::new(0),
            usage: Usage::new(),
        });
        let table = Arc::new(Table::new(&file, FileForm::Small, false));
        Ok(Arc::new_cyclic(|cyclic| FileCache {
            table: Swappable::new(table),
            is_large: AtomicBool::new(false),
            exchange: Mutex::new(Exchange::default()),
            attached: file.manager.as_ref().map(|manager| {
                let file: Weak<FileCache> = cyclic.clone();
                manager.attach(file)
            }),
            file,
        }))
    }
}

impl FileCache {
    /// Creates a cache of this file, with the default policies and no limit on its memory.
    ///
    /// # Errors
    /// If the source fails to return its length.
    pub fn new(source: impl FileSource) -> Result<Arc<Self>, Error> {
        Self::builder(source).build()
    }

    /// Creates a builder of a cache of this file.
    pub fn builder(source: impl FileSource) -> Builder {
        let (page_bytes, pages_max, read_ahead) = (PAGE_BYTES, usize::MAX, 32);
        Builder { source: Box::new(source), page_bytes, pages_max, read_ahead, manager: None }
    }

    /// Runs `f` on the page with this number. Reads the page if it is not in memory, and keeps it
    /// there until `f` returns.
    ///
    /// `f` may touch other pages, of this file and of others. While `f` runs, the file's form
    /// cannot be exchanged, so an `f` that blocks for long delays an exchange.
    ///
    /// # Errors
    /// If the file has no such page, the source fails to read it, or there is no memory. The last
    /// means that the budget is used up and no file gives a page, or that the source refuses to
    /// write back the page that should make room.
    ///
    /// # Panics
    /// If `f` or a source panics, or if the source calls this for the page it is reading.
    #[inline]
    pub fn with_page<R>(
        &self,
        number: u64,
        f: impl FnOnce(&FilePage<'_>) -> R,
    ) -> Result<R, Error> {
        let page_bytes = self.file.page_bytes as u64;
        if number.checked_mul(page_bytes).is_none_or(|offset| offset >= self.file.length()) {
            let offset = number.saturating_mul(page_bytes);
            return Err(self.file.error(ErrorKind::OutsideFile, offset, None));
        }
        let (result, was_read) = self.table.call(|table| table.with_page(number, f))?;
        let is_time = self.file.usage.note(self.file.manager.as_ref());
        if was_read || is_time {
            self.reconsider(is_time);
        }
        Ok(result)
    }

    /// Copies bytes of the file, from `offset` on.
    ///
    /// # Errors
    /// Those of [`with_page`](Self::with_page). Also if the range goes past the file's end; then
    /// nothing was copied.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len())?;
        let mut at = 0;
        while at < into.len() {
            let (page, from) = self.position(offset + at as u64);
            let count = (self.file.page_bytes - from).min(into.len() - at);
            let rest = &mut into[at..at + count];
            self.with_page(page, |page| page.read(from, rest))?;
            at += count;
        }
        Ok(())
    }

    /// Changes bytes of the file, from `offset` on. The source gets them when the page is written
    /// back.
    ///
    /// # Errors
    /// Those of [`with_page`](Self::with_page). Also if the range goes past the file's end; then
    /// nothing was changed. If a later page of the range cannot be read, the pages before it stay
    /// changed.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.check(offset, from.len())?;
        let mut at = 0;
        while at < from.len() {
            let (page, to) = self.position(offset + at as u64);
            let count = (self.file.page_bytes - to).min(from.len() - at);
            self.with_page(page, |page| page.write(to, &from[at..at + count]))?;
            at += count;
        }
        Ok(())
    }

    fn position(&self, offset: u64) -> (u64, usize) {
        let bytes = self.file.page_bytes as u64;
        (offset / bytes, (offset % bytes) as usize)
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), Error> {
        let end = offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= self.file.length()) {
            return Ok(());
        }
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        Err(Error::new(ErrorKind::OutsideFile, at, bytes.div_ceil(PAGE_BYTES)))
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.file.length()
    }

    /// Makes the file `length` bytes long, if it is shorter. New bytes are zeros, and reach the
    /// source when they are changed.
    pub fn extend(&self, length: u64) {
        // ORDER: Relaxed; as in `File::length`.
        self.file.length.fetch_max(length, Ordering::Relaxed);
    }

    /// Returns the file's page size in bytes.
    pub fn page_bytes(&self) -> usize {
        self.file.page_bytes
    }

    /// Returns how many pages are in memory.
    pub fn pages(&self) -> usize {
        self.file.held()
    }

    /// Writes all changed pages back and returns how many there were. They stay in memory.
    ///
    /// # Errors
    /// At the first page that the source does not take. It stays dirty, and so do the pages not
    /// visited yet.
    ///
    /// # Panics
    /// If the source panics, or if its `write` calls this.
    pub fn flush(&self) -> Result<usize, Error> {
        self.table.call(|table| table.cache.flush())
    }

    /// Takes up to `pages` pages out of memory and returns how many. Writes changed pages back
    /// first. Pages that threads touch at the moment stay.
    ///
    /// # Errors
    /// At the first page that the source does not take. That page stays, and stays dirty; the pages
    /// taken before it are gone.
    pub fn reclaim(&self, pages: usize) -> Result<usize, Error> {
        let reclaimed = self.table.call(|table| table.cache.reclaim(pages));
        self.shrink();
        reclaimed
    }

    /// Returns the present form of the cache.
    pub fn form(&self) -> FileForm {
        self.table.call(|table| table.form)
    }

    /// Returns how often the form was exchanged.
    pub fn swaps(&self) -> u64 {
        lock(&self.exchange).swaps
    }

    /// Checks whether the file has outgrown the small form, or threads wait for each other in it.
    #[cold]
    fn reconsider(&self, is_time: bool) {
        // ORDER: Relaxed; a hint.
        if self.is_large.load(Ordering::Relaxed) {
            if is_time {
                self.shrink();
            }
            return;
        }
        let is_full = self.file.held() > SMALL_PAGES;
        // True after the table's own controller has seen waits in several windows in a row.
        let is_shared = is_time && self.table.call(|table| table.cache.stats().is_distributed);
        if is_full || is_shared {
            self.change_form(FileForm::Large, is_shared);
        }
    }

    /// Checks whether a large file has become small.
    fn shrink(&self) {
        // ORDER: Relaxed; a hint.
        if self.is_large.load(Ordering::Relaxed)
            && self.file.held() <= SMALL_PAGES / 4
            && !self.table.call(|table| table.cache.stats().is_distributed)
        {
            self.change_form(FileForm::Small, false);
        }
    }

    /// Exchanges the form, unless another thread is about to, or a touch takes longer than the
    /// patience (file_cache.F5). After a failure it is tried again later, and ever later.
    fn change_form(&self, form: FileForm, is_shared: bool) {
        let Ok(mut exchange) = self.exchange.try_lock() else { return };
        if exchange.rest > 0 {
            exchange.rest -= 1;
            return;
        }
        let new = Arc::new(Table::new(&self.file, form, is_shared));
        match self.table.swap_within(new, PATIENCE) {
            Ok(swapped) => {
                // ORDER: Relaxed; a hint.
                self.is_large.store(form == FileForm::Large, Ordering::Relaxed);
                (exchange.rest, exchange.failures) = (0, 0);
                exchange.swaps += 1;
                drop(exchange);
                drop(swapped);
            }
            // A touch inside a touch: the outer touch checks when it is over.
            Err(SwapFailure::InsideCall) => {}
            Err(_) => {
                exchange.failures = (exchange.failures + 1).min(REST_MAX.ilog2());
                exchange.rest = 1 << exchange.failures;
            }
        }
    }
}

impl PageUser for FileCache {
    fn held(&self) -> (usize, usize) {
        (self.pages(), self.page_bytes())
    }

    fn usage(&self) -> &Usage {
        &self.file.usage
    }

    fn give(&self, pages: usize) -> usize {
        self.table.call(|table| table.give(pages))
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        let attached = self.attached.take();
        if let Some((manager, attached)) = self.file.manager.as_ref().zip(attached) {
            manager.detach(attached, ptr::from_ref(self).cast());
        }
    }
}

impl fmt::Debug for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCache")
            .field("length", &self.length())
            .field("page_bytes", &self.page_bytes())
            .field("pages", &self.pages())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("page_bytes", &self.page_bytes)
            .field("pages_max", &self.pages_max)
            .field("read_ahead", &self.read_ahead)
            .finish_non_exhaustive()
    }
}
