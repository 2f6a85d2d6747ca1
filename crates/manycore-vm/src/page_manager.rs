//! Page managers: they ask their attached files for memory.
//!
//! This module owns [`PageManager`], and how much each file is used. It does not own the credits:
//! these are `BudgetTree`'s, and its levels are the levels of page managers.
//!
//! ```text
//! BudgetTree:   all
//!              /   \
//! PageManager ann   bob     <- a charge that finds a limit asks the manager that
//!            / | \   |         holds the most for each recent use
//! files     f1 f2 f3 f4     <- the manager asks its files by the same rule
//! ```
//!
//! Laws:
//! - page_manager.N1 A file is in the table of its home from its creation to its drop. The home is
//!   the slot of the thread that made the file. Handles of the manager are counted for each thread.
//!   So files that come and go in different threads share no lock and no line, except those of the
//!   credits.
//! - page_manager.N2 A request asks files in the order of what they hold for each recent use, the
//!   most first, until enough was given. No lock is held while a file is asked. If the request
//!   becomes a file's last owner, it drops the file after it has released the locks.
//!
//! Source: K42's page managers, sections 3.2 and 4.2 of the paper: free pages and attached files
//! for each processor. The balance between processors, which they lack, comes from `BudgetTree`.
//! The order of requests was chosen here.

use crate::sync::{AtomicU64, Mutex, Ordering, is_sampled, lock, seeded_bug, yield_now};
use manycore::cluster::{Clustered, Placement, Rep};
use manycore::collections::{BudgetTree, Counter, Reclaimer, ScalableArc};
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

/// One touch in this many is counted, and counts this much.
pub(crate) const SAMPLE: u64 = 16;

/// The use of a file.
#[derive(Default)]
pub(crate) struct Usage {
    uses: Counter,
    /// The uses at the last request; below, the recent uses. Only one request at a time changes
    /// them.
    seen: AtomicU64,
    recent: AtomicU64,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Counts a sampled touch. Returns true if it was sampled, for other work that is done as
    /// rarely.
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

    /// Forgets an eighth of the recent uses, adds those since the last call, and returns the
    /// result. `BudgetTree` has the same rule for its users.
    fn recent(&self) -> u64 {
        let uses = u64::try_from(self.uses.sum()).unwrap_or(0);
        // ORDER: Relaxed, all three; requests follow each other under the tree's lock.
        let new = uses.saturating_sub(self.seen.load(Ordering::Relaxed));
        self.seen.store(uses, Ordering::Relaxed);
        let recent = self.recent.load(Ordering::Relaxed);
        let recent = (recent - recent / 8).saturating_add(new);
        self.recent.store(recent, Ordering::Relaxed);
        recent
    }
}

/// A file that has pages of a manager and can give some back.
pub(crate) trait PageUser: Send + Sync {
    /// Returns the number of pages that it holds, and the bytes of a page.
    fn held(&self) -> (usize, usize);

    fn usage(&self) -> &Usage;

    /// Gives up to `pages` pages back, and returns how many.
    fn give(&self, pages: usize) -> usize;
}

/// The files of one home (page_manager.N1).
struct Home(Mutex<Vec<Weak<dyn PageUser>>>);

impl Rep for Home {
    type Root = ();

    fn create(_root: &(), _place: usize) -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// The files of a manager. Apart from [`Inner`], because handles of the manager are counted for
/// each thread. That takes memory, and the callback, the only other owner, does not need it.
struct Files(Clustered<Home>);

struct Inner {
    budget: BudgetTree,
    files: Arc<Files>,
    /// Set once, when everything else exists.
    reclaimer: OnceLock<Reclaimer>,
}

/// The memory of some [files](crate::FileCache) as a part of a budget.
///
/// The files' pages are charged to the budget. When memory is short here or above, the least used
/// file gives pages first.
///
/// What for: a limit for the pages of a process, a tenant or a database within the limit of all.
/// Make each a page manager on a child of one [`BudgetTree`]. When not: a single file with a fixed
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
/// - *Requests*: if a charge finds a limit reached and nothing idle, `BudgetTree` asks a page
///   manager below that limit: the one that holds the most for each recent use. The manager asks
///   its files by the same rule. A touch is a use. One touch in 16, at random, is counted. Within a
///   file, pages are chosen by second chance.
/// - *Cost*: a charge and a release cost as much as those of [`BudgetTree`], and write no shared
///   line. A file is attached and detached under a lock of its home, the slot of the thread that
///   made it. A request reads some lines for each file: 0.7 ms for 1,000 files. So give the budget
///   a batch of pages.
/// - *Memory*: 1.1 KB with its tree, 256 bytes for every 32 threads, and 24 bytes for each file.
/// - *Source*: K42's page managers.
#[derive(Clone)]
pub struct PageManager {
    inner: ScalableArc<Inner>,
}

impl PageManager {
    /// Creates a manager of what `budget` allows, in bytes. The files' pages are charged to that
    /// level.
    ///
    /// A request asks for what is missing and a batch of the level that is short. Give the level a
    /// batch of some pages ([`BudgetTree::child_with_batch`]), so that not every page makes a
    /// request.
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

    /// Returns the level to which pages are charged.
    pub fn budget(&self) -> &BudgetTree {
        &self.inner.budget
    }

    /// Returns the number of attached files.
    pub fn files(&self) -> usize {
        self.inner.files.0.gather(0, |sum, home| sum + lock(&home.0).len())
    }

    pub(crate) fn attach(&self, file: Weak<dyn PageUser>) -> Attached {
        let homes = &self.inner.files.0;
        let place = homes.place();
        lock(&homes.local().0).push(file);
        Attached { place }
    }

    /// Detaches a file. Called when the file is dropped.
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

/// A file's place in its manager.
pub(crate) struct Attached {
    place: usize,
}

/// A file that may give pages back.
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

    /// Compares bytes for each use, without a division.
    fn rank(&self, other: &Self) -> std::cmp::Ordering {
        let weighed = |own: &Self, by: &Self| u128::from(own.bytes) * (u128::from(by.recent) + 1);
        weighed(other, self).cmp(&weighed(self, other))
    }
}

impl Files {
    /// Asks files until `wanted` bytes were given (page_manager.N2). Returns how many were given.
    #[cold]
    fn reclaim(&self, wanted: u64) -> u64 {
        // Declared outside the locks, because this may be the last owner of a file.
        let mut files = Vec::new();
        for (_, home) in self.0.reps() {
            let home = lock(&home.0);
            files.extend(home.iter().filter_map(Weak::upgrade));
            // BUG: a file is dropped under the lock of its home (page_manager.N2).
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
