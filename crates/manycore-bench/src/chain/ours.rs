//! The library's chains: queues per set, and queues for all sets.

use std::{
    collections::{HashMap, hash_map::Entry},
    ptr::NonNull,
};

use crossbeam_utils::CachePadded;
use manycore::{
    ldu::{Attached, DeferredSet, Element, Queue, Structure},
    oplog::{Cancel, Cancelling, Deferred, Logs, Op},
};

use super::{
    Chains,
    domain::{FreeList, Link, SetDomain, SetId, Trees, domain},
    rivals::Tree,
};

const fn queue(global: bool) -> Queue {
    if global { Queue::Global } else { Queue::PerThread }
}

/// The rivals' tree, told of members that give their process.
#[derive(Default)]
pub(super) struct Told(Tree);

impl Structure<Element<u32>> for Told {
    #[inline]
    fn insert(&mut self, member: &Element<u32>) {
        self.0.insert(**member);
    }

    #[inline]
    fn remove(&mut self, member: &Element<u32>) {
        self.0.remove(&**member);
    }
}

/// A set with marks and queues of its own.
type OneSet = DeferredSet<Told, Element<u32>>;

/// Queues for each set; one for all threads if `GLOBAL`.
pub(super) struct EachMarked<const GLOBAL: bool>(CachePadded<OneSet>);

fn one_set(global: bool) -> OneSet {
    let builder = DeferredSet::builder().queue(queue(global));
    builder.build(Told::default()).expect("the bounds are the defaults")
}

impl<const GLOBAL: bool> Chains for EachMarked<GLOBAL> {
    type Set<'a> = OneSet;
    type Link<'a> = NonNull<Element<u32>>;
    type Own<'a> = ();

    fn new() -> Self {
        Self(CachePadded::new(one_set(GLOBAL)))
    }

    fn own(&self) {}

    fn set(&self) -> OneSet {
        one_set(GLOBAL)
    }

    /// By hand, because a handle would borrow the set, which moves with its process.
    #[inline]
    fn link(&self, (): &mut (), set: Option<&OneSet>, process: u32) -> NonNull<Element<u32>> {
        let link = NonNull::from(Box::leak(Box::new(Element::new(process))));
        // SAFETY: the link is new, and the set's until `unlink`.
        unsafe { set.unwrap_or(&self.0).insert_raw(link) };
        link
    }

    #[inline]
    fn unlink(&self, (): &mut (), set: Option<&OneSet>, link: NonNull<Element<u32>>) {
        // SAFETY: linked into this set by `link`, and not used afterwards.
        unsafe { set.unwrap_or(&self.0).retire_raw(link) };
    }

    fn for_each(&self, set: Option<&OneSet>, f: impl FnMut(u32)) {
        set.unwrap_or(&self.0).read_shared().0.iter().copied().for_each(f);
    }
}

/// One lock and one set of queues for all sets.
pub(super) struct Domain<const GLOBAL: bool> {
    domain: SetDomain,
    root: SetId,
}

impl<const GLOBAL: bool> Chains for Domain<GLOBAL> {
    type Set<'a> = SetId;
    type Link<'a> = Attached<'a, Trees, Link>;
    type Own<'a> = ();

    fn new() -> Self {
        Self { domain: domain(queue(GLOBAL)), root: SetId::new() }
    }

    fn own(&self) {}

    fn set(&self) -> SetId {
        SetId::new()
    }

    #[inline]
    fn link<'a>(&'a self, (): &mut (), set: Option<&SetId>, process: u32) -> Self::Link<'a> {
        self.domain.insert(Link::boxed(*set.unwrap_or(&self.root), process))
    }

    #[inline]
    fn unlink<'a>(&'a self, (): &mut (), _: Option<&SetId>, link: Self::Link<'a>) {
        drop(link);
    }

    fn for_each(&self, set: Option<&SetId>, f: impl FnMut(u32)) {
        self.domain.read_shared().of(*set.unwrap_or(&self.root)).for_each(f);
    }
}

/// A domain whose links each thread uses again.
pub(super) struct Reused(Domain<false>);

impl Chains for Reused {
    type Set<'a> = SetId;
    type Link<'a> = NonNull<Link>;
    type Own<'a> = FreeList<'a>;

    fn new() -> Self {
        Self(Domain::new())
    }

    fn own(&self) -> Self::Own<'_> {
        FreeList::new(&self.0.domain)
    }

    fn set(&self) -> SetId {
        SetId::new()
    }

    #[inline]
    fn link(&self, own: &mut Self::Own<'_>, set: Option<&SetId>, process: u32) -> NonNull<Link> {
        own.add(*set.unwrap_or(&self.0.root), process)
    }

    #[inline]
    fn unlink(&self, own: &mut Self::Own<'_>, _: Option<&SetId>, link: NonNull<Link>) {
        own.remove(link);
    }

    fn for_each(&self, set: Option<&SetId>, f: impl FnMut(u32)) {
        self.0.for_each(set, f);
    }
}

/// All trees, by their set.
type ByNumber = HashMap<SetId, Tree>;

/// A process that comes to a set, or goes.
pub(super) struct Change {
    set: SetId,
    process: u32,
    comes: bool,
}

impl Op<ByNumber> for Change {
    fn apply(self, trees: &mut ByNumber) {
        match (trees.entry(self.set), self.comes) {
            (entry, true) => {
                entry.or_default().insert(self.process);
            }
            (Entry::Occupied(mut tree), false) => {
                tree.get_mut().remove(&self.process);
                if tree.get().is_empty() {
                    tree.remove();
                }
            }
            (Entry::Vacant(_), false) => {}
        }
    }
}

impl Cancel for Change {
    type Key = (SetId, u32);

    fn key(&self) -> (SetId, u32) {
        (self.set, self.process)
    }

    fn inserts(&self) -> bool {
        self.comes
    }
}

/// Logs of each thread in front of all trees.
pub(super) struct Logged {
    trees: Deferred<ByNumber, Cancelling<Change>>,
    root: SetId,
}

impl Chains for Logged {
    type Set<'a> = SetId;
    type Link<'a> = u32;
    type Own<'a> = ();

    fn new() -> Self {
        let trees = Deferred::builder().logs(Logs::Always).build(ByNumber::default());
        Self { trees: trees.expect("the bounds are the defaults"), root: SetId::new() }
    }

    fn own(&self) {}

    fn set(&self) -> SetId {
        SetId::new()
    }

    #[inline]
    fn link(&self, (): &mut (), set: Option<&SetId>, process: u32) -> u32 {
        let set = set.copied().unwrap_or(self.root);
        self.trees.append(Change { set, process, comes: true });
        process
    }

    #[inline]
    fn unlink(&self, (): &mut (), set: Option<&SetId>, process: u32) {
        let set = set.copied().unwrap_or(self.root);
        self.trees.append(Change { set, process, comes: false });
    }

    fn for_each(&self, set: Option<&SetId>, f: impl FnMut(u32)) {
        let trees = self.trees.read();
        let tree = trees.get(set.unwrap_or(&self.root));
        tree.into_iter().flatten().copied().for_each(f);
    }
}
