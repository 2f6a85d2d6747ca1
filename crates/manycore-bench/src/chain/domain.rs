//! Many small sets in one [`DeferredSet`], as the anonymous reverse map has them: one lock for the
//! drain, and one set of queues for all roots (LDU, sections 2.5.1 and 2.5.3).
//!
//! Owns: the numbers of sets, the map from a number to its tree, and links that serve one set after
//! another. A set is only a number. So making it costs nothing, and a set that came and went
//! between two reads is never made.

use std::{
    cell::Cell,
    collections::{HashMap, hash_map::Entry},
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use manycore::ldu::{DeferredSet, Linked, Links, Queue, Structure};

use super::rivals::Tree;

/// A thread takes this many numbers at once.
const BLOCK: u64 = 1024;

/// A free list keeps this many links.
const KEPT: usize = 64;

/// The number of a set: given out once in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SetId(u64);

impl SetId {
    #[inline]
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });
        let number = match OWN.get() {
            rest if rest % BLOCK != 0 => rest,
            _ => NEXT.fetch_add(BLOCK, Relaxed),
        };
        OWN.set(number + 1);
        Self(number)
    }
}

/// A process in a set.
#[repr(C)]
pub(super) struct Link {
    links: Links,
    set: SetId,
    process: u32,
}

// SAFETY: the offset is that of the field, which nothing else uses.
unsafe impl Linked for Link {
    const LINKS: usize = offset_of!(Link, links);
}

impl Link {
    pub(super) fn boxed(set: SetId, process: u32) -> Box<Self> {
        Box::new(Self { links: Links::new(), set, process })
    }
}

/// The trees of the sets in which a read has found members.
#[derive(Debug, Default)]
pub(super) struct Trees(HashMap<SetId, Tree>);

impl Trees {
    pub(super) fn of(&self, set: SetId) -> impl Iterator<Item = u32> {
        self.0.get(&set).into_iter().flatten().copied()
    }
}

impl Structure<Link> for Trees {
    fn insert(&mut self, link: &Link) {
        assert!(self.0.entry(link.set).or_default().insert(link.process), "told twice");
    }

    fn remove(&mut self, link: &Link) {
        let Entry::Occupied(mut tree) = self.0.entry(link.set) else { panic!("never told") };
        assert!(tree.get_mut().remove(&link.process), "never told");
        if tree.get().is_empty() {
            tree.remove();
        }
    }
}

/// All sets of a family.
pub(super) type SetDomain = DeferredSet<Trees, Link>;

pub(super) fn domain(queue: Queue) -> SetDomain {
    DeferredSet::builder()
        .queue(queue)
        .build(Trees::default())
        .expect("the bounds are the defaults")
}

/// A thread's links that came and went between two reads. They serve another set, also while a
/// queue still has them.
pub(super) struct FreeList<'a> {
    domain: &'a SetDomain,
    idle: Vec<NonNull<Link>>,
}

impl<'a> FreeList<'a> {
    pub(super) fn new(domain: &'a SetDomain) -> Self {
        Self { domain, idle: Vec::new() }
    }

    #[inline]
    pub(super) fn add(&mut self, set: SetId, process: u32) -> NonNull<Link> {
        let link = match self.idle.pop() {
            Some(link) => link,
            None => NonNull::from(Box::leak(Link::boxed(set, process))),
        };
        // SAFETY: `recycle_raw` has said that the link is idle, or it is new. So set and process
        // are this list's; the marks beside them are atomic. It is in no other domain.
        unsafe {
            (&raw mut (*link.as_ptr()).set).write(set);
            (&raw mut (*link.as_ptr()).process).write(process);
            self.domain.insert_raw(link);
        }
        link
    }

    #[inline]
    pub(super) fn remove(&mut self, link: NonNull<Link>) {
        // SAFETY: from `add` of this thread, and removed once; it is used again only if idle.
        if !unsafe { self.domain.recycle_raw(link) } {
            return;
        }
        if self.idle.len() < KEPT {
            return self.idle.push(link);
        }
        // SAFETY: idle, and not used afterwards.
        unsafe { self.domain.free_raw(link) };
    }
}

impl Drop for FreeList<'_> {
    fn drop(&mut self) {
        for link in self.idle.drain(..) {
            // SAFETY: idle, and not used afterwards.
            unsafe { self.domain.free_raw(link) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    const QUEUES: [Queue; 2] = [Queue::PerThread, Queue::Global];

    fn contents(domain: &SetDomain, set: SetId) -> Vec<u32> {
        domain.read().of(set).collect()
    }

    #[test]
    fn numbers_are_given_once_on_all_threads() {
        let numbers = || (0..3000).map(|_| SetId::new()).collect::<Vec<_>>();
        let mut all = numbers();
        thread::scope(|s| {
            let threads: Vec<_> = (0..4).map(|_| s.spawn(numbers)).collect();
            threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
        });
        let count = all.len();
        assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), count);
    }

    /// The purpose of a domain: a set that no read sees reaches no structure.
    #[test]
    fn set_that_comes_and_goes_between_two_reads_is_never_made() {
        for queue in QUEUES {
            let domain = domain(queue);
            let root = SetId::new();
            let kept = domain.insert(Link::boxed(root, 0));
            assert_eq!((contents(&domain, root), domain.read().0.len()), (vec![0], 1));
            let before = domain.stats();
            for process in 1..500 {
                let own = domain.insert(Link::boxed(SetId::new(), process));
                drop((own, domain.insert(Link::boxed(root, process))));
            }
            assert_eq!(contents(&domain, root), [0]);
            assert_eq!(domain.stats().applied, before.applied, "{queue:?}");
            drop(kept);
            assert!(domain.read().0.is_empty());
        }
    }

    #[test]
    fn free_list_serves_set_after_set_with_one_link() {
        for queue in QUEUES {
            let domain = domain(queue);
            let mut free = FreeList::new(&domain);
            for process in 0..1000 {
                let link = free.add(SetId::new(), process);
                free.remove(link);
            }
            assert_eq!((domain.stats().queued, domain.stats().applied), (1, 0), "{queue:?}");
            let root = SetId::new();
            let seen = free.add(root, 7);
            assert_eq!(contents(&domain, root), [7]);
            free.remove(seen); // a read saw it, so the domain frees it
            assert!(contents(&domain, root).is_empty());
            let links: Vec<_> = (0..200).map(|process| free.add(root, process)).collect();
            links.into_iter().for_each(|link| free.remove(link));
            drop(free);
            (0..10).for_each(|_| domain.synchronize());
            let stats = domain.stats();
            assert_eq!((stats.freed, stats.waiting), (201, 0), "{queue:?}");
        }
    }
}
