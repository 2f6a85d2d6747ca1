//! Calls by tag, for collections that continue with an element they have found: law dhash.M9.

use super::element::LocalElement;
use super::reentrancy::TableUse;
use super::{DHash, Lookup, Tag, enter, enter_place};
use std::hash::{BuildHasher, Hash};
use std::num::NonZero;
use std::ptr;

impl<K, Shared, Local, S> DHash<K, Shared, Local, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    Shared: Clone + Send + Sync + 'static,
    Local: Default + Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Adds an element, unless there is one with this key (or `anyway` is true), in one step.
    ///
    /// # Errors
    /// If there is an element with this key: its tag, and what was to be added.
    #[track_caller]
    pub(in super::super) fn add(
        &self,
        hash: u64,
        key: K,
        shared: Shared,
        anyway: bool,
    ) -> Result<Tag, (Tag, K, Shared)> {
        enter!(self);
        let mut shard = self.shard_for(hash);
        let found = shard.table.find_mut(hash, |element| element.key == key);
        match found.filter(|_| !anyway).map(|element| element.tag) {
            None => Ok(shard.add(hash, key, shared)),
            Some(tag) => Err((tag, key, shared)),
        }
    }

    /// Runs `f` on the shared part and a local part of this element, if it is there.
    #[track_caller]
    pub(in super::super) fn with_tagged<T>(
        &self,
        lookup: &mut Lookup,
        f: impl FnOnce(&Shared, &mut Local) -> T,
    ) -> Option<T> {
        let tag = lookup.tag;
        self.with_local_at(lookup, |own, _| own == tag, f)
    }

    /// Runs `f` on a local part of the element with this id, or on its central part if the calling
    /// thread's place has no local part. `near` is the index where a place had it, and is tried
    /// first. `hash` returns the element's hash. Runs no user code.
    #[inline]
    #[track_caller]
    pub(in super::super) fn with_near<T>(
        &self,
        id: u64,
        near: NonZero<usize>,
        hash: impl Fn() -> u64,
        f: impl FnOnce(&mut Local) -> T,
    ) -> Option<T> {
        {
            enter_place!(self, place);
            let mut table = place.table.hold();
            let found = table.get(near.get() - 1);
            if let Some(found) =
                found.filter(|found: &&mut LocalElement<_, _, _>| found.tag.id == id)
            {
                return Some(f(&mut found.local));
            }
            if let Some(at) = table.index_of_tag(Tag { hash: hash(), id }) {
                return Some(f(&mut table.at(at).local));
            }
        }
        self.with_centre(Tag { hash: hash(), id }, f)
    }

    /// Runs `f` on the central part of this element (dhash.M7). Runs no user code.
    #[track_caller]
    pub(in super::super) fn with_centre<T>(
        &self,
        tag: Tag,
        f: impl FnOnce(&mut Local) -> T,
    ) -> Option<T> {
        self.with_central(&mut Lookup::of(tag), |own, _| own == tag, |_, local| f(local))
    }

    /// Returns the tags of all elements, one part of the table after the other.
    #[track_caller]
    pub(in super::super) fn tags(&self) -> Vec<Tag> {
        let mut tags = Vec::new();
        enter!(self);
        for shard in 0..self.shards() {
            tags.extend(self.shard(shard).table.iter().map(|element| element.tag));
        }
        tags
    }

    /// Same as [`update_shared`](Self::update_shared), for this element.
    #[track_caller]
    pub(in super::super) fn update_tagged<T>(
        &self,
        tag: Tag,
        change: impl FnOnce(&mut Shared) -> T,
    ) -> Option<T> {
        self.scatter_where(tag.hash, |own, _| own == tag, change, |_| ())
    }

    /// Same as [`gather`](Self::gather), for this element.
    #[track_caller]
    pub(in super::super) fn gather_tagged<T>(
        &self,
        tag: Tag,
        start: T,
        fold: impl FnMut(T, &mut Local) -> T,
    ) -> Option<T> {
        self.gather_where(tag.hash, |own, _| own == tag, start, fold)
    }

    /// Same as [`remove_if`](Self::remove_if), for this element.
    #[track_caller]
    pub(in super::super) fn remove_tagged_if(
        &self,
        tag: Tag,
        decide: impl FnOnce(&Shared, &mut [&mut Local]) -> bool,
    ) -> Option<(Shared, Vec<Local>)> {
        self.remove_where(tag.hash, |own, _| own == tag, decide)
    }
}
