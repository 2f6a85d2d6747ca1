//! The library's chains: queues per set, and queues for all sets.

use std::{
    collections::{HashMap, hash_map::Entry},
    ptr::NonNull,
};

use crossbeam_utils::CachePadded;
use manycore::{
    ldu::{
        Attached, DeferredSet, Element, FreeList, Queue, SetDomain, SetId, SetMap, SetMember,
        Structure,
    },
    oplog::{Cancel, Cancelling, Deferred, Logs, Op},
};

use super::{Chains, rivals::Tree};

const fn queue(global: bool) -> Queue {
    if global { Queue::Global } else { Queue::PerThread }
}

/// The rivals' tree, told of members that give their process.
#[derive(Default)]
pub(super) struct Told(Tree);

macro_rules! told {
    ($member:ty, $process:expr) => {
        impl Structure<$member> for Told {
            #[inline]
            fn insert(&mut self, member: &$member) {
                self.0.insert($process(member));
            }

            #[inline]
            fn remove(&mut self, member: &$member) {
                self.0.remove(&$process(member));
            }
        }
    };
}
told!(Element<u32>, |member: &Element<u32>| **member);
told!(SetMember<u32>, |member: &SetMember<u32>| member.1);

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
    domain: SetDomain<Told, u32>,
    root: SetId,
}

impl<const GLOBAL: bool> Chains for Domain<GLOBAL> {
    type Set<'a> = SetId;
    type Link<'a> = Attached<'a, SetMap<Told>, SetMember<u32>>;
    type Own<'a> = ();

    fn new() -> Self {
        let builder = DeferredSet::builder().queue(queue(GLOBAL));
        let domain = builder.build(SetMap::default()).expect("the bounds are the defaults");
        Self { domain, root: SetId::new() }
    }

    fn own(&self) {}

    fn set(&self) -> SetId {
        SetId::new()
    }

    #[inline]
    fn link<'a>(&'a self, (): &mut (), set: Option<&SetId>, process: u32) -> Self::Link<'a> {
        self.domain.add((*set.unwrap_or(&self.root), process))
    }

    #[inline]
    fn unlink<'a>(&'a self, (): &mut (), _: Option<&SetId>, link: Self::Link<'a>) {
        drop(link);
    }

    fn for_each(&self, set: Option<&SetId>, f: impl FnMut(u32)) {
        let seen = self.domain.read_shared();
        let told = seen.get(*set.unwrap_or(&self.root));
        told.into_iter().flat_map(|told| &told.0).copied().for_each(f);
    }
}

/// A domain whose links each thread uses again.
pub(super) struct Reused(Domain<false>);

impl Chains for Reused {
    type Set<'a> = SetId;
    type Link<'a> = Attached<'a, SetMap<Told>, SetMember<u32>>;
    type Own<'a> = FreeList<'a, Told, u32>;

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
    fn link<'a>(
        &'a self,
        own: &mut Self::Own<'a>,
        set: Option<&SetId>,
        process: u32,
    ) -> Self::Link<'a> {
        own.add(*set.unwrap_or(&self.0.root), process)
    }

    #[inline]
    fn unlink<'a>(&'a self, own: &mut Self::Own<'a>, _: Option<&SetId>, link: Self::Link<'a>) {
        own.remove(link);
    }

    fn for_each(&self, set: Option<&SetId>, f: impl FnMut(u32)) {
        self.0.for_each(set, f);
    }
}

/// All trees, by their set.
type Trees = HashMap<SetId, Tree>;

/// A process that comes to a set, or goes.
pub(super) struct Change {
    set: SetId,
    process: u32,
    comes: bool,
}

impl Op<Trees> for Change {
    fn apply(self, trees: &mut Trees) {
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
    trees: Deferred<Trees, Cancelling<Change>>,
    root: SetId,
}

impl Chains for Logged {
    type Set<'a> = SetId;
    type Link<'a> = u32;
    type Own<'a> = ();

    fn new() -> Self {
        let trees = Deferred::builder().logs(Logs::Always).build(Trees::default());
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
