//! In debug builds: which nodes of bounded domains are retired, so that a load of an untagged
//! link in one is noticed (section.E4).
//!
//! Owns: the list of retired nodes, by address. A link out of a node is tagged before the node is
//! unlinked, hence before it is listed here; so a reader that finds the link's node listed, and
//! *then* the link untagged, has found a structure that breaks the rule of
//! [`Section::retire`](super::Section::retire), whatever other threads do. Nodes of more than a few
//! pages are not listed.
//!
//! The list's locks are lines that threads share, and the structure under test has none of them:
//! so `manycore sim`, under which conflicts are looked for, builds without the list.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE_BITS: u32 = 12;
const PAGES_MAX: usize = 4;

/// Ends of listed nodes by their beginnings, in the lists of all pages that they touch.
type List = BTreeMap<usize, usize>;

static LISTS: [Mutex<List>; 64] = [const { Mutex::new(List::new()) }; 64];

fn list(page: usize) -> MutexGuard<'static, List> {
    LISTS[page % LISTS.len()].lock().unwrap_or_else(PoisonError::into_inner)
}

fn pages(address: usize, bytes: usize) -> impl Iterator<Item = usize> {
    let pages = address >> PAGE_BITS..((address + bytes - 1) >> PAGE_BITS) + 1;
    let listed = if pages.len() > PAGES_MAX { 0 } else { pages.len() };
    pages.take(listed)
}

/// Whether retired nodes are listed.
pub(super) const KEPT: bool =
    cfg!(debug_assertions) && !cfg!(any(manycore_loom, manycore_shuttle, manycore_sim));

/// Keeps the lists' locks for a fork.
pub(super) fn hold() -> Box<dyn std::any::Any> {
    Box::new((0..LISTS.len()).map(list).collect::<Vec<_>>())
}

/// The node was retired.
#[inline(always)]
pub(super) fn add(address: usize, bytes: usize) {
    if !KEPT {
        return;
    }
    for page in pages(address, bytes) {
        list(page).insert(address, address + bytes);
    }
}

/// The node is freed now, if it was listed.
#[inline(always)]
pub(super) fn remove(address: usize, bytes: usize) {
    if !KEPT {
        return;
    }
    for page in pages(address, bytes) {
        list(page).remove(&address);
    }
}

/// Whether the link at `address` lies in a retired node.
pub(super) fn contains(address: usize) -> bool {
    let list = list(address >> PAGE_BITS);
    list.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
}
