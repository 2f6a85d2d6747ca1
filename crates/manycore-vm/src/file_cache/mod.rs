//! The pages of a file in memory, with policies of the file's own.
//!
//! Owns: [`FileCache`], [`Builder`]. `source` has where bytes come from, `page` a page, `form` the
//! tables that it is found in, `store` how it gets there, `view` what users see of it, `read_ahead`
//! the guess what is needed next. Does not own: how much memory there is for all files
//! (`page_manager`).
//!
//! Laws:
//! - file_cache.F1 A page is read by one thread at a time, and has one place in memory: two threads
//!   that touch it share it. It is that of page_cache.G1 and page_cache.G2, whose cache each form
//!   has.
//! - file_cache.F2 The form is exchanged as swap.W1 says: no touch is under way while pages move,
//!   and the pages move themselves, with their contents, charges and dirty marks.
//! - file_cache.F3 A page is charged to the page manager before it is made, and that is given back
//!   when its memory is freed, wherever that happens. So the charges of all files are the pages
//!   that there are.
//! - file_cache.F4 A page has a dirty mark of its own beside the table's, because a form cannot
//!   show its table's marks to the next. A mark sets both, behind the change. A write-back clears
//!   the page's own before it copies, and sets it again if it fails. So between calls a page that
//!   the source does not have as it is has both.
//! - file_cache.F5 Sources and closures run with no lock held. Within a touch the form is
//!   announced, and a form is exchanged by a thread that is in no touch, with a patience: a source
//!   or a closure that blocks delays others that long and no longer.
//!
//! Source: K42's file cache managers (sections 3.4 and 4.3 of the paper): policies for each file, a
//! simple form that is swapped for a distributed one when the file suffers contention.

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

/// A file with more pages in memory has the large form.
const SMALL_PAGES: usize = if cfg!(manycore_loom) { 1 } else { 64 };
/// How long an exchange of the form waits for touches that are under way (file_cache.F5).
const PATIENCE: Duration =
    Duration::from_millis(if cfg!(manycore_loom) { u32::MAX as u64 } else { 1 });
/// How many looks an exchange that failed rests at most.
const REST_MAX: u32 = 1 << 12;

/// What the forms of a file share.
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
        // ORDER: Relaxed; a number that only grows, and no page's contents depend on it.
        self.length.load(Ordering::Relaxed)
    }

    /// About the page at this offset.
    #[cold]
    fn error(&self, kind: ErrorKind, offset: u64, reason: Option<io::Error>) -> Error {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let pages = self.page_bytes / PAGE_BYTES;
        match (kind, reason) {
            (ErrorKind::System(call), Some(reason)) => Error::system(call, at, pages, reason),
            (kind, _) => Error::new(kind, at, pages),
        }
    }

    /// Charges a page (file_cache.F3); [`release`](Self::release) is the frame's.
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

    /// Tells the source what will be read after this page.
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

/// The pages of a file that are in memory, read when they are touched and written back when they
/// were changed.
///
/// What for: files, or what is like one, that many threads read and change in place, with a limit
/// on memory that several files share ([`PageManager`]): data files of a database, segments of a
/// log or an index, images of virtual machines. When not: a file that is read once, from beginning
/// to end, needs no cache; if the kernel's own cache and limits suffice, `mmap` is simpler; for
/// values by key, take the crate `manycore-cache`.
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
/// file.read(255 * 4096, &mut byte)?; // was written back, and is read again
/// assert_eq!(byte, [2]);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Policies* are the file's own: its [page size](Builder::page_bytes), how far it is
///   [read ahead](Builder::read_ahead), [how many pages](Builder::pages_max) it may have.
/// - *Forms*: a file begins small: one table under one lock. When more than 64 pages are in memory,
///   or threads wait for each other, it becomes [large](FileForm::Large), while threads use it. It
///   becomes small again when it has given back all but a quarter of that, unless threads have
///   waited for each other in it. [`form`](Self::form) says which it is.
/// - *Consistency*: a page is one memory for all threads, as that of a mapped file; see
///   [`FilePage`]. When [`flush`](Self::flush) returns, the source has every change that was
///   marked before.
/// - *Progress*: blocking. Threads that touch a page that is being read wait for it; a touch that
///   needs memory may write a page back, of this or another file of the same manager. A form is
///   exchanged when no touch is under way; touches that come while it waits for that wait too, a
///   millisecond at most, and seldomer each time it is in vain.
/// - *Cost*: a touch of a page that is there takes some 25 ns, and in the large form writes no
///   shared line once threads have met. Making and dropping a file takes 0.3 us. A read costs what
///   the source costs, the charge, and some locks of a table.
/// - *Memory*: the pages, of which the page manager keeps the limit; beside it some 260 bytes for
///   each page, and 1.3 KB for a file in the small form, 2 KB more in the large one.
/// - *Errors*: [`Error`], whose range is the byte offset in the file, and pages of 4,096 bytes. A
///   touch that fails has changed nothing.
/// - *Panics*: those of sources and closures pass to the caller that runs them. A source that
///   touches the page it is reading, or closes a cycle of such reads, panics.
/// - *Drop*: nothing is written back then: [`flush`](Self::flush) first.
/// - *Source*: K42's file cache managers.
pub struct FileCache {
    table: Swappable<Table>,
    file: Arc<File>,
    /// What the form is, or is about to be: says when to look, and nothing else.
    is_large: AtomicBool,
    exchange: Mutex<Exchange>,
    attached: Option<Attached>,
}

/// Attempts to exchange the form.
#[derive(Default)]
struct Exchange {
    /// Looks to let pass before the next one.
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
    /// The file's page size: a power of two, at least 4,096, which it is by default. Larger pages
    /// make fewer and longer calls of the source.
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// The most pages that may be in memory, pinned ones among them. No limit by default.
    pub fn pages_max(mut self, pages: usize) -> Self {
        self.pages_max = pages;
        self
    }

    /// How many pages ahead of a sequential reader the source is [told](FileSource::will_need) to
    /// have ready, at most: 32 by default, 0 for a file that is read at random.
    pub fn read_ahead(mut self, pages: usize) -> Self {
        self.read_ahead = pages;
        self
    }

    /// Charges the file's pages to `manager`, which asks for them when others need memory.
    pub fn within(mut self, manager: &PageManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Makes the cache, without a page.
    ///
    /// # Errors
    /// If the page size is none, no page may be in memory, or the source does not know its length.
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
    /// A cache of this file, with the default policies and no limit on its memory.
    ///
    /// # Errors
    /// If the source does not know its length.
    pub fn new(source: impl FileSource) -> Result<Arc<Self>, Error> {
        Self::builder(source).build()
    }

    /// Begins to build a cache of this file.
    pub fn builder(source: impl FileSource) -> Builder {
        let (page_bytes, pages_max, read_ahead) = (PAGE_BYTES, usize::MAX, 32);
        Builder { source: Box::new(source), page_bytes, pages_max, read_ahead, manager: None }
    }

    /// Runs `f` on a page, by its number, which is read if it is not in memory and stays there
    /// until `f` returns.
    ///
    /// `f` may touch other pages, of this file and of others. While it runs, the file's form is not
    /// exchanged: one that blocks for long delays that.
    ///
    /// # Errors
    /// If the file has no such page, the source does not read it, or no memory is left: the budget
    /// is used up and no file gives, or the source refuses to write back the page that should make
    /// room.
    ///
    /// # Panics
    /// If `f` or a source does, or if this is called by the source, for the page it is reading.
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
    /// As [`with_page`](Self::with_page), and if the range goes past the file's end: then nothing
    /// was copied.
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

    /// Changes bytes of the file, from `offset` on. The source is told when the page is written
    /// back.
    ///
    /// # Errors
    /// As [`with_page`](Self::with_page), and if the range goes past the file's end: then nothing
    /// was changed. If a later page of the range cannot be read, those before it are changed.
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

    /// How many bytes the file has.
    pub fn length(&self) -> u64 {
        self.file.length()
    }

    /// Makes the file as long as `length`, if it is shorter: new bytes are zeros, and reach the
    /// source when they are changed.
    pub fn extend(&self, length: u64) {
        // ORDER: Relaxed; as in `File::length`.
        self.file.length.fetch_max(length, Ordering::Relaxed);
    }

    /// The file's page size, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.file.page_bytes
    }

    /// How many pages are in memory.
    pub fn pages(&self) -> usize {
        self.file.held()
    }

    /// Writes all changed pages back, and returns how many there were. They stay in memory.
    ///
    /// # Errors
    /// At the first page that the source does not take; it stays dirty, as do those that were not
    /// looked at yet.
    ///
    /// # Panics
    /// If the source does, or if this is called by its `write`.
    pub fn flush(&self) -> Result<usize, Error> {
        self.table.call(|table| table.cache.flush())
    }

    /// Takes up to so many pages out of memory, changed ones after they were written back, and
    /// returns how many. Pages that are being touched stay.
    ///
    /// # Errors
    /// At the first page that the source does not take. That page stays, and dirty; what was taken
    /// before it is gone.
    pub fn reclaim(&self, pages: usize) -> Result<usize, Error> {
        let reclaimed = self.table.call(|table| table.cache.reclaim(pages));
        self.shrink();
        reclaimed
    }

    /// Which form the cache has now.
    pub fn form(&self) -> FileForm {
        self.table.call(|table| table.form)
    }

    /// How often the form was exchanged.
    pub fn swaps(&self) -> u64 {
        lock(&self.exchange).swaps
    }

    /// Looks whether the file has outgrown the small form, or threads wait for each other in it.
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
        // The table's own controller has seen waits in windows in a row then.
        let is_shared = is_time && self.table.call(|table| table.cache.stats().is_distributed);
        if is_full || is_shared {
            self.change_form(FileForm::Large, is_shared);
        }
    }

    /// Looks whether a large file has become small.
    fn shrink(&self) {
        // ORDER: Relaxed; a hint.
        if self.is_large.load(Ordering::Relaxed)
            && self.file.held() <= SMALL_PAGES / 4
            && !self.table.call(|table| table.cache.stats().is_distributed)
        {
            self.change_form(FileForm::Small, false);
        }
    }

    /// Exchanges the form, if no other thread is about to, and no touch takes longer than the
    /// patience (file_cache.F5). What was in vain is tried again later, and ever later.
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
            // A touch from within a touch: the outer one looks when it is over.
            Err(error) if matches!(error.reason, SwapFailure::InsideCall) => {}
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
