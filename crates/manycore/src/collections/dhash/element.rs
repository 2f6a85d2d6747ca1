//! An element as it is in the master table, in local tables, and in all of them at once.

use super::super::reentrancy_lock::ReentrancyGuard;
use super::super::replica_mask::ReplicaMask;
use super::table::{Table, Tag, Tagged};
use crate::sync::seeded_bug;
use std::mem;

/// An element in the master table.
pub(super) struct Element<K, Shared, Local> {
    pub(super) tag: Tag,
    pub(super) key: K,
    pub(super) shared: Shared,
    pub(super) replica_mask: ReplicaMask,
    /// The part that all threads use while the table is centralized, once a thread has used it.
    pub(super) central: Option<Local>,
}

impl<K, Shared, Local> Element<K, Shared, Local> {
    pub(super) fn new(tag: Tag, key: K, shared: Shared) -> Self {
        Self { tag, key, shared, replica_mask: ReplicaMask::default(), central: None }
    }
}

/// An element in a local table.
pub(super) struct LocalElement<K, Shared, Local> {
    pub(super) tag: Tag,
    pub(super) key: K,
    pub(super) shared: Shared,
    pub(super) local: Local,
}

impl<K, Shared, Local> Tagged for Element<K, Shared, Local> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }
}

impl<K, Shared, Local> Tagged for LocalElement<K, Shared, Local> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }
}

type LocalElements<'a, K, Shared, Local> =
    ReentrancyGuard<'a, Table<LocalElement<K, Shared, Local>>>;

/// The locked local tables that may have an element, with its index in each.
pub(super) struct AllParts<'a, K, Shared, Local> {
    pub(super) tables: Vec<(LocalElements<'a, K, Shared, Local>, Option<usize>)>,
}

impl<K, Shared: Clone, Local> AllParts<'_, K, Shared, Local> {
    fn nears(&mut self) -> impl Iterator<Item = &mut LocalElement<K, Shared, Local>> {
        self.tables.iter_mut().filter_map(|(table, index)| Some(table.at((*index)?)))
    }

    /// Returns all local parts, the central one first.
    pub(super) fn locals<'l>(
        &'l mut self,
        central: &'l mut Option<Local>,
    ) -> impl Iterator<Item = &'l mut Local>
    where
        K: 'l,
        Shared: 'l,
    {
        // BUG: a whole element is looked at without the part that was used before the table was
        // distributed (dhash.M7).
        let central = if seeded_bug!("forgotten-centre") { None } else { central.as_mut() };
        central.into_iter().chain(self.nears().map(|near| &mut near.local))
    }

    /// Gives all copies another shared part. Afterwards `shared` has the master's old shared part,
    /// and `out` the others. Changes all copies, or none if `Clone` panics. Drops no user values.
    pub(super) fn share(
        &mut self,
        master: &mut Shared,
        shared: &mut Shared,
        out: &mut Vec<Shared>,
    ) {
        out.reserve(self.tables.len());
        self.nears().for_each(|_| out.push(shared.clone()));
        self.nears().zip(out).for_each(|(near, copy)| mem::swap(&mut near.shared, copy));
        mem::swap(master, shared);
    }

    pub(super) fn take(&mut self) -> Vec<LocalElement<K, Shared, Local>> {
        let found = self.tables.iter_mut();
        found.filter_map(|(table, index)| Some(table.remove_at((*index)?))).collect()
    }
}
