//! Page managers, which ask the files that are attached to them for memory.
//!
//! Owns: [`PageManager`], and how much each file is used. Does not own: the credits, which are
//! `BudgetTree`'s; its levels are the levels of page managers.
//!
//! Laws:
//! - page_manager.N1 A file is in the table of its home, the slot of the thread that made it, from
//!   its making to its drop; handles of the manager are counted for each thread. So files that come
//!   and go in different threads share no lock and no line, but the credits' own.
//! - page_manager.N2 A request asks files in the order of what they hold for each recent use, the
//!   most first, until enough was given. No lock is held while a file is asked, and a file whose
//!   last owner is the request is dropped behind the locks.
//!
//! Source: K42's page managers, sections 3.2 and 4.2 of the paper: free pages and attached files by
//! processor; the balance that they lack is `BudgetTree`'s, and the order of requests is ours.

use crate::sync::{AtomicU64, Mutex, Ordering, is_sampled, lock, seeded_bug, yield_now};
use manycore::cluster::{Clustered, Placement, Rep};
use manycore::collections::{BudgetTree, Counter, Reclaimer, ScalableArc};
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

/// A touch in so many is counted, as so many.
pub(crate) const SAMPLE: u64 = 16;

/// How much a file is used.
#[derive(Default)]
pub(crate) struct Usage {
    uses: Counter,
    /// The uses at the last request, and the recent ones. Changed by one request at a time.
    seen: AtomicU64,
    recent: AtomicU64,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Counts a touch, or not; true if it did: for what need not be looked at each time.
    #[inline]
    pub(crate) fn note(&self, manager: Option<&PageManager>) -> bool {
        if !is_sampled(SAMPLE) {
            return false;
        }
        if let Some(reclaimer) = manager.and_then(|manager| manager.inner.reclaimer.get()) {
            self.uses.add(SAMPLE as i64);
            reclaimer.note_uses(SAMPLE);
        }
        true
    }

    /// Forgets an eighth of the recent uses, adds those since, and returns them: the rule that
    /// `BudgetTree` has for its users.
    fn recent(&self) -> u64 {
        let uses = u64::try_from(self.uses.sum()).unwrap_or(0);
        // ORDER: Relaxed, all three; a request follows the one before under the tree's lock.
        let new = uses.saturating_sub(self.seen.load(Ordering::Relaxed));
        self.seen.store(uses, Ordering::Relaxed);
        let recent = self.recent.load(Ordering::Relaxed);
        let recent = (recent - recent / 8).saturating_add(new);
        self.recent.store(recent, Ordering::Relaxed);
        recent
    }
}

/// What has pages of a manager, and gives some back.
pub(crate) trait PageUser: Send + Sync {
    /// How many pages, and how large.
    fn held(&self) -> (usize, usize);

    fn usage(&self) -> &Usage;

    /// Gives up to so many pages back, and says how many.
    fn give(&self, pages: usize) -> usize;
}

/// The files whose home is one place (page_manager.N1).
struct Home(Mutex<Vec<Weak<dyn PageUser>>>);

impl Rep for Home {
    type Root = ();

    fn create(_root: &(), _place: usize) -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// The files of a manager. Handles of it are counted for each thread, which costs memory that the
/// callback, the only other owner, does not need.
struct Files(Clustered<Home>);

struct Inner {
    budget: BudgetTree,
    files: Arc<Files>,
    /// Set once, when all else is there.
    reclaimer: OnceLock<Reclaimer>,
}

/// The memory of some [files](crate::FileCache), as a part of a budget: their pages are charged to
/// it, and when memory is short, here or above, the file whose pages are least used gives first.
///
/// What for: a limit for the pages of a process, a tenant or a data base within that of all; make
/// each a page manager, on a child of one [`BudgetTree`]. When not: a single file with a fixed
/// number of pages has [`pages_max`](crate::FileCacheBuilder::pages_max).
///
/// ```
/// use manycore_vm::{FileCache, MemoryFile, PageManager};
/// use manycore::collections::BudgetTree;
///
/// let all = BudgetTree::with_batch(100 * 4096, 0); // bytes
/// let (ann, bob) = (PageManager::new(all.child(u64::MAX)), PageManager::new(all.child(u64::MAX)));
/// let file = |manager| {
///     FileCache::builder(MemoryFile::new(vec![0; 1 << 20])).within(manager).build()
/// };
/// let (old, new) = (file(&ann)?, file(&bob)?);
/// for page in 0..100 {
///     old.with_page(page, |_| ())?; // takes all there is
/// }
/// for page in 0..30 {
///     new.with_page(page, |_| ())?; // which ann's file gives
/// }
/// assert_eq!((old.pages() <= 70, new.pages()), (true, 30));
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Requests*: where a charge finds a limit reached and nothing idle, `BudgetTree` asks the page
///   manager below that limit which holds the most for each recent use; that asks its files by the
///   same rule. A touch is a use, of which one in 16 is counted, at random. Within a file, pages go
///   by second chance.
/// - *Cost*: a charge and a release are those of [`BudgetTree`], no shared line written. A file is
///   attached and detached under a lock of its home, that of the thread which made it. A request
///   reads some lines for each file: 0.7 ms for 1,000 files, so give the budget a batch of pages.
/// - *Memory*: 1.1 KB with its tree, 256 bytes for every 32 threads; 24 bytes for each file.
/// - *Source*: K42's page managers.
#[derive(Clone)]
pub struct PageManager {
    inner: ScalableArc<Inner>,
}

impl PageManager {
    /// A manager of what `budget` allows, in bytes. The files' pages are charged to that level.
    ///
    /// A request asks for a batch of the level that is short more than is missing: give it one of
    /// some pages ([`BudgetTree::child_with_batch`]), so that not every page asks.
    #[must_use]
    pub fn new(budget: BudgetTree) -> Self {
        let files = Arc::new(Files(Clustered::new(Placement::PerThread, ())));
        let weak = Arc::downgrade(&files);
        let inner = ScalableArc::new(Inner { budget, files, reclaimer: OnceLock::new() });
        let reclaimer = inner.budget.on_reclaim(move |wanted| {
            let files: Option<Arc<Files>> = weak.upgrade();
            files.map_or(0, |files| files.reclaim(wanted))
        });
        let set = inner.reclaimer.set(reclaimer);
        debug_assert!(set.is_ok(), "page_manager.N1: a manager has one callback");
        Self { inner }
    }

    /// The level that pages are charged to.
    pub fn budget(&self) -> &BudgetTree {
        &self.inner.budget
    }

    /// How many files are attached.
    pub fn files(&self) -> usize {
        self.inner.files.0.gather(0, |sum, home| sum + lock(&home.0).len())
    }

    pub(crate) fn attach(&self, file: Weak<dyn PageUser>) -> Attached {
        let homes = &self.inner.files.0;
        let place = homes.place();
        lock(&homes.local().0).push(file);
        Attached { place }
    }

    /// For the file's drop.
    pub(crate) fn detach(&self, attached: Attached, file: *const ()) {
        let homes = &self.inner.files.0;
        let is_other = |weak: &Weak<dyn PageUser>| !ptr::eq(weak.as_ptr().cast(), file);
        // A thread without a slot, as in its last destructors, has a place that may change.
        let found = homes.at(attached.place).is_some_and(|home| {
            let mut files = lock(&home.0);
            let before = files.len();
            files.retain(is_other);
            files.len() < before
        });
        if !found {
            homes.reps().for_each(|(_, home)| lock(&home.0).retain(is_other));
        }
    }
}

/// A file's place at its manager.
pub(crate) struct Attached {
    place: usize,
}

/// What a file has to give.
struct Candidate {
    file: Arc<dyn PageUser>,
    page_bytes: u64,
    bytes: u64,
    recent: u64,
}

impl Candidate {
    fn new(file: Arc<dyn PageUser>) -> Self {
        let (pages, page_bytes) = file.held();
        let (bytes, recent) = ((pages * page_bytes) as u64, file.usage().recent());
        Self { file, page_bytes: page_bytes as u64, bytes, recent }
    }

    /// Bytes for each use, compared without a division.
    fn rank(&self, other: &Self) -> std::cmp::Ordering {
        let weighed = |own: &Self, by: &Self| u128::from(own.bytes) * (u128::from(by.recent) + 1);
        weighed(other, self).cmp(&weighed(self, other))
    }
}

impl Files {
    /// Asks files until so many bytes were given (page_manager.N2), and returns how many.
    #[cold]
    fn reclaim(&self, wanted: u64) -> u64 {
        // Outlives the locks: the last owner of a file may be this.
        let mut files = Vec::new();
        for (_, home) in self.0.reps() {
            let home = lock(&home.0);
            files.extend(home.iter().filter_map(Weak::upgrade));
            // BUG: a file is dropped under the lock of its home (page_manager.N2 of
            // `page_manager`).
            if seeded_bug!("drop-under-lock") {
                files.drain(..).for_each(|file: Arc<dyn PageUser>| {
                    yield_now();
                    drop(file);
                });
            }
        }
        let mut files: Vec<Candidate> = files.into_iter().map(Candidate::new).collect();
        files.retain(|candidate| candidate.bytes > 0);
        files.sort_by(Candidate::rank);
        let mut given = 0;
        for Candidate { file, page_bytes, .. } in &files {
            if given >= wanted {
                break;
            }
            let pages =
                usize::try_from((wanted - given).div_ceil(*page_bytes)).unwrap_or(usize::MAX);
            given += file.give(pages) as u64 * page_bytes;
        }
        given
    }
}

impl fmt::Debug for PageManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageManager")
            .field("budget", &self.inner.budget)
            .field("files", &self.files())
            .finish()
    }
}
