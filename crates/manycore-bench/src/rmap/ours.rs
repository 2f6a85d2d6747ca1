//! The library's reverse map.

use std::ops::Range;

use manycore::{
    collections::{Interval, IntervalRegistry},
    ldu::Queue,
    oplog::Logs,
};

use super::ReverseMap;

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
    IntervalRegistry::builder().marks(if GLOBAL { Queue::Global } else { Queue::PerCore })
);
