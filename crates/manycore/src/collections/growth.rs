//! How the table of a map grows and shrinks while threads use it: what
//! [`HashMap`](super::HashMap) and [`FlatHashMap`](super::FlatHashMap) have in common.
//!
//! Owns: [`Root`], the link to a map's table, and [`Growth`], a table's link to the one before it.
//! How a group of buckets is moved is the table's own law.
//!
//! ```text
//! growth:     old   0   1              shrinking:  old   0   1   2   3
//!                  / \ / \                              \   \ /   /
//!             root 0 2 1 3                         root    0+2 1+3
//! ```
//!
//! Laws:
//! - growth.G1 The next table has twice as many buckets, or half as many. It becomes the root at
//!   once, with every bucket pending, and leads to the table before. Buckets move in groups, one
//!   for each bucket of the smaller table: one bucket and its two targets, or two buckets and
//!   their target. A group's entries are in the table before until it is moved, and in the root
//!   from then on.
//! - growth.G2 Every update in between moves its own group and a few more, then works in the root
//!   table. When all have moved, one thread unlinks the table before. Only then may the next table
//!   come.
//! - growth.G3 A table is unlinked when its own link to a table before is null, and every other
//!   link out of it is tagged (section.E4).
//! - growth.G4 A group that has moved is counted, also if user code panics before the mover is done
//!   with its others. A group that no thread has moved is handed out again. So a panic delays
//!   growth and does not end it.

use super::Line;
use crate::config::{MAP_BUCKETS, MAP_CHUNK};
use crate::section::{Atomic, Owned, Section, Shared};
use crate::sync::{AtomicUsize, Backoff, Mutex, Ordering, const_fn};
use std::sync::TryLockError;

/// A table that can be followed by one of twice the size, or half.
pub(super) trait Growing: Sized {
    /// What a bucket occupies.
    const BUCKET_BYTES: usize;

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
    /// The first group that is not assigned to a mover; wraps around (growth.G4).
    next: AtomicUsize,
    /// Groups moved.
    moved: AtomicUsize,
}

/// What one mover has moved: dropping this counts it (growth.G4).
struct Share<'a> {
    progress: &'a Progress,
    moved: usize,
}

impl Share<'_> {
    /// Groups moved by all, as far as this thread can tell.
    fn sum(&self) -> usize {
        // ORDER: Relaxed; shares the work out, and the locks order it.
        self.progress.moved.load(Ordering::Relaxed) + self.moved
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.moved != 0 {
            // ORDER: Release; pairs with Acquire in `take_over`: what every mover did to its
            // buckets before the unlinking (growth.G3).
            self.progress.moved.fetch_add(self.moved, Ordering::Release);
        }
    }
}

/// What a table knows of the one before it.
pub(super) struct Growth<T> {
    /// The table before, until its entries have moved. It has half as many buckets, or twice as
    /// many.
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

    /// Moves group `own` of so many, and a few more. Returns true if all have moved.
    /// `move_group` returns true if it has moved one.
    fn take_over(
        &self,
        own: usize,
        groups: usize,
        mut move_group: impl FnMut(usize) -> bool,
    ) -> bool {
        let progress = &self.progress.as_ref().expect("there is a table before").0;
        let mut share = Share { progress, moved: 0 };
        share.moved += usize::from(move_group(own));
        if share.sum() < groups {
            // ORDER: Relaxed; shares the work out, and the locks order it.
            let start = progress.next.fetch_add(MAP_CHUNK, Ordering::Relaxed) & (groups - 1);
            for index in start..(start + MAP_CHUNK).min(groups) {
                share.moved += usize::from(move_group(index));
            }
        }
        drop(share);
        // ORDER: Acquire; pairs with Release in `Share::drop`.
        progress.moved.load(Ordering::Acquire) == groups
    }
}

/// The link to a map's table; null before the first insertion.
pub(super) struct Root<T> {
    table: Atomic<T>,
    /// Held while a new table is made.
    pub(super) growing: Mutex<()>,
    /// Entries for which room was asked for (`set_floor`).
    floor: AtomicUsize,
}

impl<T> Root<T> {
    const_fn! {
        /// No table.
        pub(super) const fn new() -> Self {
            Self { table: Atomic::null(), growing: Mutex::new(()), floor: AtomicUsize::new(0) }
        }
    }

    /// The table.
    #[inline(always)]
    pub(super) fn load<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.table.load(section)
    }

    /// The same; `None` also where the section has to raise its era for that.
    #[inline(always)]
    pub(super) fn load_now<'s>(&self, section: &'s Section<'_>) -> Option<&'s T> {
        // SAFETY: what is stored here is a new table, which has no tag.
        unsafe { self.table.look_untagged(section) }
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

    /// Whether this is the table, and there is none before it. The section keeps it.
    #[inline(always)]
    pub(super) fn is_settled(&self, table: &T, section: &Section<'_>) -> bool {
        self.table.load_if(table).is_some() && table.growth().old.leads_nowhere(section)
    }

    /// Makes the first table, unless another thread has.
    #[cold]
    fn make(&self, buckets: usize, section: &Section<'_>) {
        let table = Owned::new(T::with_buckets(buckets, Growth::none()));
        // One that is not linked is dropped.
        let _ = self.table.compare_exchange(Shared::null(), table, section);
    }

    /// Puts a table of so many buckets, twice as many or half, in place of `root`. Returns false
    /// if another thread does, or entries are still moving to `root` (growth.G2).
    #[cold]
    fn follow(&self, root: Shared<'_, T>, buckets: usize, section: &Section<'_>) -> bool {
        let _growing = match self.growing.try_lock() {
            Ok(growing) => growing,
            // There was no memory for a table, and nothing was changed.
            Err(TryLockError::Poisoned(growing)) => growing.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(table) = root.as_ref() else { return false };
        if !table.growth().old.load(section).is_null() || self.load(section) != root {
            return false;
        }
        let growth = Growth::new(false);
        growth.old.store(root, section);
        let next = Owned::new(T::with_buckets(buckets, growth));
        // Under the lock, and no other thread writes the root.
        self.table.store(next, section);
        true
    }

    /// Puts a table of twice the size in place of `root`, unless another thread replaces it or the
    /// last growth is not over (growth.G2).
    #[cold]
    pub(super) fn grow(&self, root: Shared<'_, T>, section: &Section<'_>) {
        let buckets = root.as_ref().map_or(0, T::len) * 2;
        self.follow(root, buckets, section);
    }

    /// Puts a table of half the size in place of `root`, unless another thread replaces it or
    /// entries are still moving to it (growth.G2).
    #[cold]
    pub(super) fn shrink(&self, root: Shared<'_, T>, section: &Section<'_>) {
        let buckets = root.as_ref().map_or(0, T::len) / 2;
        self.follow(root, buckets, section);
    }

    /// Room for so many entries was asked for: the table does not shrink below that by itself,
    /// until the map has had half as many.
    pub(super) fn set_floor(&self, entries: usize) {
        // ORDER: Relaxed; a wish.
        self.floor.store(entries, Ordering::Relaxed);
    }

    /// What [`set_floor`](Self::set_floor) has set.
    pub(super) fn floor(&self) -> usize {
        // ORDER: Relaxed; a wish.
        self.floor.load(Ordering::Relaxed)
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
    /// `move_group` moves one group to the first table from the second, unless that is done.
    #[inline(always)]
    pub(super) fn to_update<'s>(
        &self,
        hash: u64,
        section: &'s Section<'_>,
        move_group: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) -> Shared<'s, T>
    where
        T: 's,
    {
        let root = self.load(section);
        match root.as_ref() {
            Some(table) if table.growth().old.load(section).is_null() => root,
            _ => self.to_update_in_growth(hash, section, move_group),
        }
    }

    #[cold]
    #[inline(never)]
    fn to_update_in_growth<'s>(
        &self,
        hash: u64,
        section: &'s Section<'_>,
        mut move_group: impl FnMut(&'s T, &'s T, usize) -> bool,
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
            let link = &table.growth().old;
            let before = link.load(section);
            if let Some(old) = before.as_ref() {
                let groups = table.len().min(old.len());
                let own = hash as usize & (groups - 1);
                let moved =
                    table.growth().take_over(own, groups, |index| move_group(table, old, index));
                if moved && link.compare_exchange(before, Shared::null(), section).is_ok() {
                    // SAFETY: unlinked by this thread, after all groups have moved (growth.G2); its
                    // links are as a bounded domain wants them (growth.G3).
                    unsafe { section.retire_quietly(before, old.bytes()) };
                }
            }
            return root;
        }
    }

    /// Moves to the root what is in the table before. Returns the root, which then has none before
    /// it; null before the first insertion.
    fn settle<'s>(
        &self,
        section: &'s Section<'_>,
        move_group: &mut impl FnMut(&'s T, &'s T, usize) -> bool,
    ) -> Shared<'s, T>
    where
        T: 's,
    {
        let (mut group, mut backoff) = (0, Backoff::new());
        loop {
            let root = self.load(section);
            match root.as_ref() {
                Some(table) if !table.growth().old.load(section).is_null() => {
                    self.to_update(group, section, &mut *move_group);
                    group += 1;
                    if group as usize >= table.len() {
                        backoff.pause(); // another thread is moving the last
                    }
                }
                _ => return root,
            }
        }
    }

    /// Grows until there are so many buckets, and no table before. `move_group` as for
    /// [`to_update`](Self::to_update).
    ///
    /// # Panics
    /// If no memory can have so many, before anything has grown.
    pub(super) fn reserve<'s>(
        &self,
        buckets: usize,
        section: &'s Section<'_>,
        mut move_group: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) where
        T: 's,
    {
        let bytes = buckets.checked_mul(T::BUCKET_BYTES);
        assert!(
            bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()),
            "manycore: capacity overflow"
        );
        let mut backoff = Backoff::new();
        loop {
            let root = self.settle(section, &mut move_group);
            match root.as_ref() {
                None => self.make(buckets, section),
                Some(table) if buckets <= table.len() => break,
                Some(table) if self.follow(root, table.len() * 2, section) => {}
                Some(_) => backoff.pause(), // another thread makes a table
            }
        }
    }

    /// Replaces the table by one of half its size if it has more buckets than `needed`, and moves
    /// the entries. Returns false if it does not have more. `move_group` as for
    /// [`to_update`](Self::to_update).
    pub(super) fn halve<'s>(
        &self,
        needed: usize,
        section: &'s Section<'_>,
        mut move_group: impl FnMut(&'s T, &'s T, usize) -> bool,
    ) -> bool
    where
        T: 's,
    {
        let root = self.settle(section, &mut move_group);
        let buckets = root.as_ref().map_or(0, T::len);
        if needed < buckets {
            self.follow(root, buckets / 2, section);
            self.settle(section, &mut move_group);
        }
        needed < buckets
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
