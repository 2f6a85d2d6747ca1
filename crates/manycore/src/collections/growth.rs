//! How the table of a map grows while threads use it: what [`HashMap`](super::HashMap) and
//! [`FlatHashMap`](super::FlatHashMap) have in common.
//!
//! Owns: [`Root`], the link to a map's table, and [`Growth`], a table's link to the one before it.
//! How a bucket is moved is the table's own law.
//!
//! Laws:
//! - growth.G1 The next table has twice as many buckets. It becomes the root at once, with every
//!   bucket pending, and leads to the table before: a bucket's entries are there until it is moved,
//!   and in its two targets from then on.
//! - growth.G2 Every update during growth moves its own bucket and a few more, then works in the
//!   root table. The thread that moves the last bucket unlinks the table before. Only then may
//!   growth begin again.
//! - growth.G3 A table is unlinked when its own link to a table before is null, and every other
//!   link out of it is tagged (section.E4).

use super::Line;
use crate::config::{MAP_BUCKETS, MAP_CHUNK};
use crate::section::{Atomic, Owned, Section, Shared};
use crate::sync::{AtomicUsize, Backoff, Mutex, Ordering, const_fn};

/// A table that can be followed by one of twice the size.
pub(super) trait Growing: Sized {
    /// An empty table of so many buckets, a power of two: all pending, if `growth` leads to a table
    /// before.
    fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self;

    /// How many buckets.
    fn len(&self) -> usize;

    /// What it occupies.
    fn bytes(&self) -> usize;

    /// Its link to the table before.
    fn growth(&self) -> &Growth<Self>;

    /// The same, of a table that no other thread has.
    fn growth_mut(&mut self) -> &mut Growth<Self>;
}

/// How far the moving from the table before has come.
struct Progress {
    /// The first bucket that is not assigned to a mover.
    next: AtomicUsize,
    /// Buckets moved.
    moved: AtomicUsize,
}

/// What a table knows of the one before it.
pub(super) struct Growth<T> {
    /// The table before, until its entries have moved. It has half as many buckets.
    pub(super) old: Atomic<T>,
    /// `None` if there was no table before. Apart from the table, whose line readers load.
    progress: Option<Box<Line<Progress>>>,
}

impl<T> Growth<T> {
    /// There is no table before.
    pub(super) fn none() -> Self {
        Self::new(true)
    }

    /// Whether there was no table before.
    pub(super) fn is_first(&self) -> bool {
        self.progress.is_none()
    }

    fn new(is_first: bool) -> Self {
        let progress = || Progress { next: AtomicUsize::new(0), moved: AtomicUsize::new(0) };
        let progress = (!is_first).then(|| Box::new(Line(progress())));
        Self { old: Atomic::null(), progress }
    }

    /// Moves bucket `own` of the `len` of the table before, and a few more; true if that table is
    /// empty now, for the thread that emptied it. `move_bucket` says whether it has moved one.
    fn take_over(
        &self,
        own: usize,
        len: usize,
        mut move_bucket: impl FnMut(usize) -> bool,
    ) -> bool {
        let progress = &self.progress.as_ref().expect("there is a table before").0;
        let mut moved = usize::from(move_bucket(own));
        // ORDER: Relaxed; shares the work out, and the locks order it.
        if progress.next.load(Ordering::Relaxed) < len {
            let start = progress.next.fetch_add(MAP_CHUNK, Ordering::Relaxed);
            let chunk = start.min(len)..(start + MAP_CHUNK).min(len);
            moved += chunk.filter(|index| move_bucket(*index)).count();
        }
        // ORDER: AcqRel; what every mover did to its buckets before the unlinking by the last
        // (growth.G3).
        moved != 0 && progress.moved.fetch_add(moved, Ordering::AcqRel) + moved == len
    }
}

/// The link to a map's table; null before the first insertion.
pub(super) struct Root<T> {
    table: Atomic<T>,
    /// Held while a new table is made.
    growing: Mutex<()>,
}

impl<T> Root<T> {
    const_fn! {
        /// No table.
        pub(super) const fn new() -> Self {
            Self { table: Atomic::null(), growing: Mutex::new(()) }
        }
    }

    /// The table.
    #[inline(always)]
    pub(super) fn load<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.table.load(section)
    }

    /// The same, unless the section has to raise its era for that.
    #[inline(always)]
    pub(super) fn load_now<'s>(
        &self,
        section: &'s Section<'_>,
        bounded: bool,
    ) -> Option<Shared<'s, T>> {
        self.table.load_now(section, bounded)
    }
}

impl<T: Growing> Root<T> {
    /// The table, if there is one and none before it.
    #[inline(always)]
    pub(super) fn settled<'s>(&self, section: &'s Section<'_>) -> Option<&'s T>
    where
        T: 's,
    {
        let table = self.load(section).as_ref()?;
        table.growth().old.load(section).is_null().then_some(table)
    }

    /// Makes the first table, unless another thread has.
    #[cold]
    fn make(&self, buckets: usize, section: &Section<'_>) {
        let table = Owned::new(T::with_buckets(buckets, Growth::none()));
        // One that is not linked is dropped.
        let _ = self.table.compare_exchange(Shared::null(), table, section);
    }

    /// Puts a table of twice the size in place of `root`, unless another thread does or the last
    /// growth is not over (growth.G2).
    #[cold]
    pub(super) fn grow(&self, root: Shared<'_, T>, section: &Section<'_>) {
        let Ok(_growing) = self.growing.try_lock() else {
            return; // another thread does
        };
        let Some(table) = root.as_ref() else { return };
        if !table.growth().old.load(section).is_null() || self.load(section) != root {
            return;
        }
        let growth = Growth::new(false);
        growth.old.store(root, section);
        let next = Owned::new(T::with_buckets(table.len() * 2, growth));
        // Under the lock, and no other thread writes the root.
        self.table.store(next, section);
    }

    /// The table, which the map does not have any more; then the one before it.
    pub(super) fn take(&mut self) -> Option<Owned<T>> {
        let link = std::mem::take(&mut self.table);
        // SAFETY: `&mut self`: no section is open that has it, and the root is not retired.
        let mut table = unsafe { link.into_owned() }?;
        self.table = std::mem::take(&mut table.growth_mut().old);
        Some(table)
    }

    /// Puts a table in front of what there is.
    pub(super) fn put(&mut self, mut table: Owned<T>) {
        table.growth_mut().old = std::mem::take(&mut self.table);
        self.table = Atomic::from(table);
    }
}

impl<T: Growing + Send> Root<T> {
    /// The table to update the bucket of `hash` in, after the caller's part of the moving.
    /// `move_bucket` moves one bucket to the first table from the second, unless that is done.
    #[inline(always)]
    pub(super) fn to_update<'s>(
        &self,
        hash: u64,
        section: &'s Section<'_>,
        move_bucket: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) -> Shared<'s, T>
    where
        T: 's,
    {
        let root = self.load(section);
        match root.as_ref() {
            Some(table) if table.growth().old.load(section).is_null() => root,
            _ => self.to_update_in_growth(hash, section, move_bucket),
        }
    }

    #[cold]
    #[inline(never)]
    fn to_update_in_growth<'s>(
        &self,
        hash: u64,
        section: &'s Section<'_>,
        mut move_bucket: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) -> Shared<'s, T>
    where
        T: 's,
    {
        loop {
            let root = self.load(section);
            let Some(table) = root.as_ref() else {
                self.make(MAP_BUCKETS, section);
                continue;
            };
            let growth = table.growth();
            let before = growth.old.load(section);
            if let Some(old) = before.as_ref() {
                let own = hash as usize & (old.len() - 1);
                if growth.take_over(own, old.len(), |index| move_bucket(table, old, index)) {
                    growth.old.store(Shared::null(), section);
                    // SAFETY: unlinked by the thread that moved the last bucket (growth.G2); its
                    // links are as a bounded domain wants them (growth.G3).
                    unsafe { section.retire_quietly(before, old.bytes()) };
                }
            }
            return root;
        }
    }

    /// Grows until there are so many buckets, and no table before. `move_bucket` as for
    /// [`to_update`](Self::to_update).
    pub(super) fn reserve<'s>(
        &self,
        buckets: usize,
        section: &'s Section<'_>,
        mut move_bucket: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) where
        T: 's,
    {
        let mut backoff = Backoff::new();
        for bucket in 0.. {
            let root = self.load(section);
            let Some(table) = root.as_ref() else {
                self.make(buckets, section);
                continue;
            };
            if !table.growth().old.load(section).is_null() {
                // Moves a part; another thread may be moving the last.
                self.to_update(bucket, section, &mut move_bucket);
            } else if buckets <= table.len() {
                break;
            } else {
                self.grow(root, section);
            }
            if bucket as usize >= table.len() {
                backoff.pause();
            }
        }
    }
}

/// The buckets of a table that takes so many entries, `load` a bucket.
///
/// # Panics
/// If there are no numbers for so many.
pub(super) fn buckets_for(entries: usize, load: usize) -> usize {
    let buckets = entries.div_ceil(load).max(MAP_BUCKETS);
    buckets.checked_next_power_of_two().expect("manycore: capacity overflow")
}
