//! Calls about a whole element: laws dhash.M3 and dhash.M7.

use super::super::replica_mask::ReplicaMask;
use super::element::{AllParts, Element};
use super::reentrancy::TableUse;
use super::{DHash, Tag, enter};
use crate::sync::seeded_bug;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::panic::Location;
use std::ptr;

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Locks the local tables that may have the element (dhash.M3), and finds it in each. The
    /// caller holds the shard's lock.
    #[track_caller]
    pub(super) fn hold_all(
        &self,
        element: &Element<K, Shared, Local>,
    ) -> AllParts<'_, K, Shared, Local> {
        let (tag, replica_mask) = (element.tag, element.replica_mask);
        let is_in_one = || !self.object.root().form.is_distributed();
        // BUG: a whole element is looked for where the table's form says, not where its holders
        // are (dhash.M7).
        if replica_mask.is_none() || seeded_bug!("form-alone") && is_in_one() {
            return AllParts { tables: Vec::new() };
        }
        let place = Location::caller();
        // In the order of the places: the one lock order.
        let concerned = self.object.reps().filter(|&(at, _)| replica_mask.may_include(at));
        let held = concerned.map(|(_, at)| {
            let table = at.table.hold_for(place);
            let index = table.index_of_tag(tag);
            (table, index)
        });
        AllParts { tables: held.collect() }
    }

    /// Changes the element's shared part, everywhere at the same moment.
    ///
    /// # Panics
    /// If `change` does (then nothing is changed), or uses the table.
    #[track_caller]
    pub fn update_shared<Q, T>(&self, key: &Q, change: impl FnOnce(&mut Shared) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.scatter(key, change, |_| ())
    }

    /// Changes the element's shared part and each of its local parts, at the same moment. Places
    /// that have not used the element have no local part yet.
    ///
    /// # Panics
    /// If `change` does (then nothing is changed) or `each` does, or if either uses the table.
    ///
    /// ```
    /// use manycore::collections::DHash;
    ///
    /// let limits = DHash::<&str, u32, u32>::new();
    /// limits.insert("requests", 100);
    /// limits.with_local("requests", |_, used| *used += 1);
    /// // A new period: another limit, and nothing used.
    /// limits.scatter("requests", |limit| *limit = 50, |used| *used = 0);
    /// assert_eq!(limits.with_local("requests", |limit, used| (*limit, *used)), Some((50, 0)));
    /// ```
    #[track_caller]
    pub fn scatter<Q, T>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut Shared) -> T,
        each: impl FnMut(&mut Local),
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.scatter_where(self.hash(key), |_, own| own.borrow() == key, change, each)
    }

    #[track_caller]
    pub(super) fn scatter_where<T>(
        &self,
        hash: u64,
        which: impl Fn(Tag, &K) -> bool,
        change: impl FnOnce(&mut Shared) -> T,
        each: impl FnMut(&mut Local),
    ) -> Option<T> {
        let (mut shared, mut out, answer); // dhash.M4: they outlive the locks
        {
            enter!(self);
            let mut shard = self.shard_for(hash);
            let element = shard.table.find_mut(hash, |found| which(found.tag, &found.key))?;
            let mut whole = self.hold_all(element);
            (shared, out) = (element.shared.clone(), Vec::new());
            answer = change(&mut shared);
            whole.share(&mut element.shared, &mut shared, &mut out);
            whole.locals(&mut element.central).for_each(each);
        }
        drop((shared, out)); // dhash.M10
        Some(answer)
    }

    /// Folds the element's local parts, and may change them, all at one moment. Places that have
    /// not used the element have no local part.
    ///
    /// # Panics
    /// If `fold` does, or if it uses the table.
    #[track_caller]
    pub fn gather<Q, T>(&self, key: &Q, start: T, fold: impl FnMut(T, &mut Local) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.gather_where(self.hash(key), |_, own| own.borrow() == key, start, fold)
    }

    #[track_caller]
    pub(super) fn gather_where<T>(
        &self,
        hash: u64,
        which: impl Fn(Tag, &K) -> bool,
        start: T,
        fold: impl FnMut(T, &mut Local) -> T,
    ) -> Option<T> {
        enter!(self);
        let mut shard = self.shard_for(hash);
        let element = shard.table.find_mut(hash, |found| which(found.tag, &found.key))?;
        let mut whole = self.hold_all(element);
        Some(whole.locals(&mut element.central).fold(start, fold))
    }

    /// Removes the element from the master and every place, and returns all of its parts.
    ///
    /// # Panics
    /// From within an element of the table.
    #[track_caller]
    pub fn remove<Q>(&self, key: &Q) -> Option<(Shared, Vec<Local>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.remove_if(key, |_, _| true)
    }

    /// Removes the element if `decide`, which sees all of its parts, returns true. Decision and
    /// removal are one atomic step.
    ///
    /// # Panics
    /// If `decide` does, or if it uses the table.
    ///
    /// ```
    /// use manycore::collections::DHash;
    ///
    /// // How many references a thread has taken, less those that it gave back.
    /// let objects = DHash::<u32, &str, i32>::new();
    /// objects.insert(1, "one");
    /// objects.with_local(&1, |_, taken| *taken += 1);
    /// let unused = |_: &&str, taken: &mut [&mut i32]| {
    ///     taken.iter().map(|taken| **taken).sum::<i32>() == 0
    /// };
    /// assert_eq!(objects.remove_if(&1, unused), None);
    /// std::thread::scope(|s| s.spawn(|| objects.with_local(&1, |_, taken| *taken -= 1)).join());
    /// assert!(objects.remove_if(&1, unused).is_some());
    /// ```
    #[track_caller]
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        decide: impl FnOnce(&Shared, &mut [&mut Local]) -> bool,
    ) -> Option<(Shared, Vec<Local>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.remove_where(self.hash(key), |_, own| own.borrow() == key, decide)
    }

    #[track_caller]
    pub(super) fn remove_where(
        &self,
        hash: u64,
        which: impl Fn(Tag, &K) -> bool,
        decide: impl FnOnce(&Shared, &mut [&mut Local]) -> bool,
    ) -> Option<(Shared, Vec<Local>)> {
        let (element, nears) = {
            enter!(self);
            let mut shard = self.shard_for(hash);
            let index = shard.table.index_of(hash, |found| which(found.tag, &found.key))?;
            let element = shard.table.at(index);
            let mut whole = self.hold_all(element);
            let mut locals: Vec<_> = whole.locals(&mut element.central).collect();
            let is_going = decide(&element.shared, &mut locals);
            drop(locals);
            if !is_going {
                return None;
            }
            // BUG: an element is removed after the locks under which it was looked at were given
            // up (dhash.M3).
            if seeded_bug!("torn-gather") {
                drop((whole, shard));
                shard = self.shard_for(hash);
                whole = self.hold_all(shard.table.at(index));
            }
            // From here on, no user code runs until the locks are released.
            let nears = whole.take();
            (shard.table.remove_at(index), nears)
        };
        let (mut locals, mut rest) = (Vec::from_iter(element.central), Vec::new());
        for near in nears {
            locals.push(near.local);
            rest.push((near.key, near.shared));
        }
        drop((element.key, rest)); // dhash.M10
        Some((element.shared, locals))
    }

    /// Centralizes a distributed table: from now on all threads use one part of each element again.
    /// Returns true if the table is centralized then; it is not if it was built to be distributed.
    ///
    /// `merge` adds the second part to the first; the second is dropped afterwards. For each
    /// element that happens at one moment. A part that a concurrent call makes may stay, and counts
    /// like any part. If threads wait for each other again, the table is distributed again, after
    /// twice as many waits each time.
    ///
    /// # Panics
    /// If `merge` does, or if it uses the table. The part that `merge` was given stays, and so do
    /// the parts that it was not given yet.
    ///
    /// ```
    /// use manycore::collections::DHash;
    ///
    /// let hits = DHash::<&str, (), u64>::new();
    /// hits.insert("page", ());
    /// hits.distribute();
    /// std::thread::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| hits.with_local("page", |(), hits| *hits += 1));
    ///     }
    /// });
    /// assert!(hits.fold(|sum, hits| *sum += *hits));
    /// assert_eq!(hits.replicas(), 0);
    /// assert_eq!(hits.with_local("page", |(), hits| *hits), Some(3));
    /// ```
    #[track_caller]
    pub fn fold(&self, mut merge: impl FnMut(&mut Local, &mut Local)) -> bool {
        if !self.object.root().form.ask(false) {
            return false;
        }
        self.tags().into_iter().for_each(|tag| self.fold_one(tag, &mut merge));
        true
    }

    #[track_caller]
    fn fold_one(&self, tag: Tag, merge: &mut impl FnMut(&mut Local, &mut Local)) {
        let mut out = Vec::new(); // dhash.M4: outlives the locks
        enter!(self);
        let mut shard = self.shard_for(tag.hash);
        let Some(element) = shard.table.find_mut(tag.hash, |element| element.tag == tag) else {
            return;
        };
        let mut whole = self.hold_all(element);
        out.reserve(whole.tables.len());
        for (table, index) in &mut whole.tables {
            let Some(at) = *index else { continue };
            if let Some(central) = &mut element.central {
                merge(central, &mut table.at(at).local);
            }
            let near = table.remove_at(at);
            *index = None;
            match element.central {
                Some(_) => out.push((near.key, near.shared, Some(near.local))),
                None => {
                    element.central = Some(near.local);
                    out.push((near.key, near.shared, None));
                }
            }
        }
        element.replica_mask = ReplicaMask::default();
    }
}
