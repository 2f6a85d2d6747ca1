//! The library's reverse map.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use manycore::{
    cluster::Adaptive as Object,
    collections::{Interval, IntervalRegistry},
    ldu::Queue,
    oplog::{Cancel, Cancelling, Logs, Op},
};

use super::{
    ReverseMap,
    rivals::{Tree, overlapping},
};

macro_rules! ours {
    ($(#[$doc:meta])* $name:ident, $flag:ident, $builder:expr) => {
        $(#[$doc])*
        pub(super) struct $name<const $flag: bool>(IntervalRegistry<u64, u32>);

        impl<const $flag: bool> ReverseMap for $name<$flag> {
            type Mapping<'a> = Interval<'a, u64, u32>;

            fn new() -> Self {
                Self($builder.build().expect("the bounds are the defaults"))
            }

            #[inline]
            fn add(&self, pages: Range<u64>, id: u32) -> Interval<'_, u64, u32> {
                self.0.add(pages, id)
            }

            #[inline]
            fn remove(&self, mapping: Interval<'_, u64, u32>) {
                mapping.remove();
            }

            fn for_overlapping(&self, pages: Range<u64>, mut f: impl FnMut(u32)) {
                self.0.for_overlapping(pages, |_, id| f(*id));
            }
        }
    };
}

ours!(
    /// With logs, from the start if `HOT`.
    Logged, HOT, IntervalRegistry::builder().logs(if HOT { Logs::Always } else { Logs::Auto })
);
ours!(
    /// With marks; one queue for all threads if `GLOBAL`.
    Marked, GLOBAL,
    IntervalRegistry::builder().marks(if GLOBAL { Queue::Global } else { Queue::PerThread })
);

/// A mapping that comes (with its end) or goes.
pub(super) struct Change {
    mapping: (u64, u32),
    end: Option<u64>,
}

impl Op<Tree> for Change {
    fn apply(self, tree: &mut Tree) {
        match self.end {
            Some(end) => tree.insert(self.mapping, end),
            None => tree.remove(&self.mapping),
        };
    }
}

impl Cancel for Change {
    type Key = (u64, u32);

    fn key(&self) -> (u64, u32) {
        self.mapping
    }

    fn inserts(&self) -> bool {
        self.end.is_some()
    }
}

/// The rivals' tree in an object that chooses by itself.
pub(super) struct Adaptive(CachePadded<Object<Tree, Cancelling<Change>>>);

impl ReverseMap for Adaptive {
    type Mapping<'a> = (u64, u32);

    fn new() -> Self {
        Self(CachePadded::new(Object::new(Tree::new())))
    }

    #[inline]
    fn add(&self, pages: Range<u64>, id: u32) -> (u64, u32) {
        let mapping = (pages.start, id);
        self.0.update(Change { mapping, end: Some(pages.end) });
        mapping
    }

    #[inline]
    fn remove(&self, mapping: (u64, u32)) {
        self.0.update(Change { mapping, end: None });
    }

    fn for_overlapping(&self, pages: Range<u64>, f: impl FnMut(u32)) {
        overlapping(&self.0.read(), pages, f);
    }
}
