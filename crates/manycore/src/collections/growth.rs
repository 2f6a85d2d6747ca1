//! Growth and shrinking of a map's table while threads use it. [`HashMap`](super::HashMap) and
//! [`FlatHashMap`](super::FlatHashMap) share this.
//!
//! Owns: [`Root`], the link to a map's table, and [`Growth`], a table's link to the old table that
//! it replaces. Each kind of table has its own law for moving a group of buckets.
//!
//! ```text
//! growth:     old   0   1              shrinking:  old   0   1   2   3
//!                  / \ / \                              \   \ /   /
//!             root 0 2 1 3                         root    0+2 1+3
//! ```
//!
//! Laws:
//! - growth.G1 The next table has twice as many buckets, or half as many. It becomes the root as a
//!   whole, with every bucket pending, and links to the old table. Buckets move in groups, one
//!   group for each bucket of the smaller table: one bucket and its two targets, or two buckets and
//!   their target. A group's entries are in the old table until the group is moved, and in the root
//!   from then on.
//! - growth.G2 During growth, every update moves its own group, or a few others if its own has
//!   moved, and then works in the root table. When all groups have moved, one thread unlinks the
//!   old table. Only then may the next table come.
//! - growth.G3 When a table is unlinked, its own link to an old table is null, and every other link
//!   out of it is tagged (section.E4).
//! - growth.G4 A group that has moved is counted, even if user code panics before the mover is done
//!   with its other groups. A group that no thread has moved is handed out again. So a panic delays
//!   growth and does not end it.
//! - growth.G5 Before a large table becomes the root, the updates that ask for it touch the huge
//!   pages of its buckets, one each, but for the first. So no update has to wait for several new
//!   pages.

use super::Line;
use crate::config::{MAP_BUCKETS, MAP_CHUNK};
use crate::section::{Atomic, Owned, Section, Shared};
use crate::slab::large_array::PAGE_BYTES;
use crate::sync::{AtomicUsize, Backoff, Mutex, MutexGuard, Ordering, const_fn};
use std::sync::TryLockError;

/// A table that can be replaced by a table of twice the size, or half.
pub(super) trait Growing: Sized {
    /// Bytes of one bucket.
    const BUCKET_BYTES: usize;

    /// Makes an empty table of `buckets` buckets, a power of two. All buckets are pending if
    /// `growth` leads to an old table.
    fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self;

    /// Number of buckets.
    fn len(&self) -> usize;

    /// Bytes that the table occupies.
    fn bytes(&self) -> usize;

    /// Writes to a bucket that is pending and that no other thread has, so that its page is in
    /// memory.
    fn touch(&self, index: usize);

    /// Link to the old table.
    fn growth(&self) -> &Growth<Self>;

    /// Same, for a table that no other thread has.
    fn growth_mut(&mut self) -> &mut Growth<Self>;
}

/// Progress of moving the entries of the old table.
struct Progress {
    /// First group that is not assigned to a mover; wraps around (growth.G4).
    next: AtomicUsize,
    /// Groups moved.
    moved: AtomicUsize,
}

/// Counts the groups that one mover has moved. Dropping this adds them to the progress (growth.G4).
struct Share<'a> {
    progress: &'a Progress,
    moved: usize,
}

impl Share<'_> {
    /// Groups moved by all threads, as far as this thread can tell.
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

/// A table's link to the old table that it replaces.
pub(super) struct Growth<T> {
    /// The old table, until its entries have moved. It has half as many buckets, or twice as many.
    pub(super) old: Atomic<T>,
    /// `None` if there was no old table. In a box, because readers load the table's own line.
    progress: Option<Box<Line<Progress>>>,
}

impl<T> Growth<T> {
    /// Makes the link of a table that replaces no table.
    pub(super) fn none() -> Self {
        Self::new(true)
    }

    /// Returns true if there was no old table.
    pub(super) fn is_first(&self) -> bool {
        self.progress.is_none()
    }

    fn new(is_first: bool) -> Self {
        let progress = || Progress { next: AtomicUsize::new(0), moved: AtomicUsize::new(0) };
        let progress = (!is_first).then(|| Box::new(Line(progress())));
        Self { old: Atomic::null(), progress }
    }

    /// Moves group `own` of `groups` groups, or a few others if `own` has moved. Returns true if
    /// all groups have moved. `move_group` returns true if it has moved its group.
    fn take_over(
        &self,
        own: usize,
        groups: usize,
        mut move_group: impl FnMut(usize) -> bool,
    ) -> bool {
        let progress = &self.progress.as_ref().expect("there is an old table").0;
        let mut share = Share { progress, moved: 0 };
        share.moved += usize::from(move_group(own));
        // Not in addition to its own group, which lies elsewhere: an update stays short.
        if share.moved == 0 && share.sum() < groups {
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

/// Attempts at a step while other threads are at theirs.
const ATTEMPTS: usize = if cfg!(any(manycore_loom, manycore_shuttle)) { 1 } else { 64 };

/// A table that is to replace the root (growth.G5).
pub(super) struct Next<T> {
    table: Owned<T>,
    /// Its first buckets, whose pages may not have been touched.
    untouched: usize,
}

/// Link to a map's table; null before the first insertion.
pub(super) struct Root<T> {
    table: Atomic<T>,
    /// The table that is being made. Held during each step.
    pub(super) growing: Mutex<Option<Next<T>>>,
    /// Entries that the user reserved room for (`set_floor`).
    floor: AtomicUsize,
}

impl<T> Root<T> {
    const_fn! {
        /// Makes a root without a table.
        pub(super) const fn new() -> Self {
            Self { table: Atomic::null(), growing: Mutex::new(None), floor: AtomicUsize::new(0) }
        }
    }

    /// Returns the table.
    #[inline(always)]
    pub(super) fn load<'s>(&self, section: &'s Section<'_>) -> Shared<'s, T> {
        self.table.load(section)
    }

    /// Same, but also returns `None` if the section would have to raise its era.
    #[inline(always)]
    pub(super) fn load_now<'s>(&self, section: &'s Section<'_>) -> Option<&'s T> {
        // SAFETY: what is stored here is a new table, which has no tag.
        unsafe { self.table.look_untagged(section) }
    }
}

impl<T: Growing> Root<T> {
    const BUCKETS_OF_A_PAGE: usize =
        if T::BUCKET_BYTES < PAGE_BYTES { PAGE_BYTES / T::BUCKET_BYTES } else { 1 };

    /// Returns the table, if there is a table and no old table, and the section need not raise its
    /// era.
    #[inline(always)]
    pub(super) fn settled<'s>(&self, section: &'s Section<'_>) -> Option<&'s T>
    where
        T: 's,
    {
        let table = self.load_now(section)?;
        table.growth().old.leads_nowhere(section).then_some(table)
    }

    /// Returns true if `table` is the root. The section keeps `table` alive.
    #[inline(always)]
    pub(super) fn is(&self, table: &T) -> bool {
        self.table.load_if(table).is_some()
    }

    /// Makes the first table, unless another thread has.
    #[cold]
    fn make(&self, buckets: usize, section: &Section<'_>) {
        let table = Owned::new(T::with_buckets(buckets, Growth::none()));
        // If another thread was first, this table is not linked and is dropped here.
        let _ = self.table.compare_exchange(Shared::null(), table, section);
    }

    /// Returns the table that is being made, unless another thread is at a step.
    fn growing(&self) -> Option<MutexGuard<'_, Option<Next<T>>>> {
        match self.growing.try_lock() {
            Ok(growing) => Some(growing),
            // The last attempt had no memory for a table, and changed nothing.
            Err(TryLockError::Poisoned(growing)) => Some(growing.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes a step to replace `root` by a table of `buckets` buckets, twice as many or half. The
    /// last step replaces it (growth.G5). Returns false if another thread replaces it, or if
    /// entries are still moving to `root` (growth.G2).
    #[cold]
    fn follow(&self, root: Shared<'_, T>, buckets: usize, section: &Section<'_>) -> bool {
        let Some(mut growing) = self.growing() else { return false };
        let Some(table) = root.as_ref() else { return false };
        if !table.growth().old.load(section).is_null() || self.load(section) != root {
            return false;
        }
        let mut next =
            growing.take().filter(|next| next.table.len() == buckets).unwrap_or_else(|| {
                let table = Owned::new(T::with_buckets(buckets, Growth::new(false)));
                Next { table, untouched: buckets }
            });
        if next.untouched > Self::BUCKETS_OF_A_PAGE {
            next.untouched -= Self::BUCKETS_OF_A_PAGE;
            next.table.touch(next.untouched);
            *growing = Some(next);
            return true;
        }
        next.table.growth().old.store(root, section);
        // This thread holds the lock, and no other thread writes the root.
        self.table.store(next.table, section);
        true
    }

    /// Takes a step to replace `root` by a table of twice the size, unless another thread does or
    /// entries are still moving to it (growth.G2, growth.G5).
    #[cold]
    pub(super) fn grow(&self, root: Shared<'_, T>, section: &Section<'_>) {
        let buckets = root.as_ref().map_or(0, T::len) * 2;
        self.follow(root, buckets, section);
    }

    /// Takes a step to replace `root` by a table of half the size, unless another thread does or
    /// entries are still moving to it (growth.G2, growth.G5).
    #[cold]
    pub(super) fn shrink(&self, root: Shared<'_, T>, section: &Section<'_>) {
        let buckets = root.as_ref().map_or(0, T::len) / 2;
        self.follow(root, buckets, section);
    }

    /// Notes that the user reserved room for `entries` entries. The table does not shrink below
    /// that by itself, until the map has had half as many.
    pub(super) fn set_floor(&self, entries: usize) {
        // ORDER: Relaxed; a wish.
        self.floor.store(entries, Ordering::Relaxed);
    }

    /// Returns the entries that [`set_floor`](Self::set_floor) has set.
    pub(super) fn floor(&self) -> usize {
        // ORDER: Relaxed; a wish.
        self.floor.load(Ordering::Relaxed)
    }

    /// Takes the table out of the map. The next call takes the old table.
    pub(super) fn take(&mut self) -> Option<Owned<T>> {
        let link = std::mem::take(&mut self.table);
        // SAFETY: `&mut self`: no open section has loaded the table, and the root is not retired.
        let mut table = unsafe { link.into_owned() }?;
        self.table = std::mem::take(&mut table.growth_mut().old);
        Some(table)
    }

    /// Puts a table in front of the current one.
    pub(super) fn put(&mut self, mut table: Owned<T>) {
        table.growth_mut().old = std::mem::take(&mut self.table);
        self.table = Atomic::from(table);
    }
}

impl<T: Growing + Send> Root<T> {
    /// Returns the table in which to update the bucket of `hash`, after the caller has done its
    /// part of the moving. `move_group` moves one group from its second table to its first, unless
    /// that is done.
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
                    // SAFETY: this thread has unlinked it, after all groups have moved (growth.G2).
                    // Its links meet the requirements of a bounded domain (growth.G3).
                    unsafe { section.retire_quietly(before, old.bytes()) };
                }
            }
            return root;
        }
    }

    /// Moves the entries of the old table to the root. Returns the root, which then has no old
    /// table, or null before the first insertion.
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
                        backoff.pause(); // another thread is moving the last group
                    }
                }
                _ => return root,
            }
        }
    }

    /// Grows until there are at least `buckets` buckets, and no old table. `move_group` as for
    /// [`to_update`](Self::to_update).
    ///
    /// # Panics
    /// If no memory can hold that many buckets. Nothing has grown then.
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
                Some(_) => backoff.pause(), // another thread is making a table
            }
        }
    }

    /// Replaces the table by a table of half its size if it has more buckets than `needed`, and
    /// moves the entries. Returns false if it does not have more. `move_group` as for
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
            let mut backoff = Backoff::new();
            // Bounded: another thread may want a larger table meanwhile, and after a fork none may
            // hold the lock.
            for _ in 0..buckets / Self::BUCKETS_OF_A_PAGE + ATTEMPTS {
                if self.load(section) != root {
                    break;
                }
                if !self.follow(root, buckets / 2, section) {
                    backoff.pause();
                }
            }
            self.settle(section, &mut move_group);
        } else if let Some(mut growing) = self.growing() {
            *growing = None; // what was made is not needed yet
        }
        needed < buckets
    }
}

/// Returns the number of buckets of a table for `entries` entries, `load` in each bucket.
///
/// # Panics
/// If the number does not fit a `usize`.
pub(super) fn buckets_for(entries: usize, load: usize) -> usize {
    let buckets = entries.div_ceil(load).max(MAP_BUCKETS);
    buckets.checked_next_power_of_two().expect("manycore: capacity overflow")
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::section;

    const QUARTER: usize = PAGE_BYTES / 4;

    /// A table of buckets of so many bytes.
    struct Fake<const BYTES: usize> {
        buckets: usize,
        touched: Mutex<Vec<usize>>,
        growth: Growth<Self>,
    }

    impl<const BYTES: usize> Growing for Fake<BYTES> {
        const BUCKET_BYTES: usize = BYTES;

        fn with_buckets(buckets: usize, growth: Growth<Self>) -> Self {
            Self { buckets, touched: Mutex::new(Vec::new()), growth }
        }

        fn len(&self) -> usize {
            self.buckets
        }

        fn bytes(&self) -> usize {
            self.buckets * BYTES
        }

        fn touch(&self, index: usize) {
            self.touched.lock().unwrap().push(index);
        }

        fn growth(&self) -> &Growth<Self> {
            &self.growth
        }

        fn growth_mut(&mut self) -> &mut Growth<Self> {
            &mut self.growth
        }
    }

    fn root_of<const BYTES: usize>(buckets: usize) -> Root<Fake<BYTES>> {
        let mut root = Root::new();
        root.put(Owned::new(Fake::with_buckets(buckets, Growth::none())));
        root
    }

    /// Bytes of the table that is being made.
    fn bytes_made(root: &Root<Fake<QUARTER>>) -> usize {
        root.growing.lock().unwrap().as_ref().map_or(0, |next| next.table.bytes())
    }

    #[test]
    fn large_table_becomes_the_root_when_its_pages_are_in_memory_one_by_each_call() {
        let section = section::enter();
        let mut root = root_of::<QUARTER>(8);
        let small = root.load(&section);
        for touched in 1..=3 {
            root.grow(small, &section);
            let growing = root.growing.lock().unwrap();
            let next = growing.as_ref().expect("a table is being made");
            assert_eq!(next.table.touched.lock().unwrap().len(), touched);
            assert!(root.load(&section) == small, "growth.G5: a page is not in memory");
        }
        root.grow(small, &section);
        let large = root.load(&section).as_ref().expect("a map has a table");
        assert_eq!((large.len(), &*large.touched.lock().unwrap()), (16, &vec![12, 8, 4]));
        assert_eq!(bytes_made(&root), 0);
        while root.take().is_some() {}
    }

    #[test]
    fn table_that_is_being_made_is_freed_when_the_map_is_to_be_small() {
        let section = section::enter();
        let mut root = root_of::<QUARTER>(8);
        root.grow(root.load(&section), &section);
        assert_eq!(bytes_made(&root), 16 * QUARTER);
        root.shrink(root.load(&section), &section);
        assert_eq!(bytes_made(&root), 0);
        assert_eq!(root.load(&section).as_ref().map(Growing::len), Some(4));
        while root.take().is_some() {}
        root = root_of(8);
        root.grow(root.load(&section), &section);
        assert!(!root.halve(8, &section, |_, _, _| false));
        assert_eq!(bytes_made(&root), 0);
        while root.take().is_some() {}
    }

    #[test]
    fn table_of_buckets_larger_than_a_page_becomes_the_root() {
        let section = section::enter();
        let mut root = root_of::<{ PAGE_BYTES + 1 }>(4);
        let small = root.load(&section);
        (0..8).for_each(|_| root.grow(small, &section));
        assert_eq!(root.load(&section).as_ref().map(Growing::len), Some(8));
        while root.take().is_some() {}
    }
}
