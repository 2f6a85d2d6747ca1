//! Debug builds list the retired nodes of bounded domains, so that a load of an untagged link in a
//! retired node is noticed (section.E4).
//!
//! Owns: the list of retired nodes, by address. A link out of a node is tagged before the node is
//! unlinked, hence before the node is listed here. Suppose that a reader finds the link's node
//! listed, and *then* finds the link untagged. Then the structure breaks the rule of
//! [`Section::retire`](super::Section::retire), whatever other threads do. Nodes of more than a few
//! pages are not listed.
//!
//! The list's locks are cache lines that threads share, and the structure under test has no such
//! lines. So `manycore sim`, which looks for conflicts, builds without the list.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE_BITS: u32 = 12;
const PAGES_MAX: usize = 4;

/// The end of each listed node by its beginning. A node is in the lists of all pages that it
/// touches.
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

/// True if retired nodes are listed.
pub(super) const KEPT: bool =
    cfg!(debug_assertions) && !cfg!(any(manycore_loom, manycore_shuttle, manycore_sim));

/// Holds the lists' locks over a fork.
pub(super) fn hold() -> Box<dyn std::any::Any> {
    Box::new((0..LISTS.len()).map(list).collect::<Vec<_>>())
}

/// Lists a node that was retired.
#[inline(always)]
pub(super) fn add(address: usize, bytes: usize) {
    if !KEPT {
        return;
    }
    for page in pages(address, bytes) {
        list(page).insert(address, address + bytes);
    }
}

/// Removes a node that is freed now, if it was listed.
#[inline(always)]
pub(super) fn remove(address: usize, bytes: usize) {
    if !KEPT {
        return;
    }
    for page in pages(address, bytes) {
        list(page).remove(&address);
    }
}

/// Returns true if the link at `address` lies in a retired node.
pub(super) fn contains(address: usize) -> bool {
    let list = list(address >> PAGE_BITS);
    list.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
}
