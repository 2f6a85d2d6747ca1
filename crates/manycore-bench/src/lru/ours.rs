//! The library's recency list.

use manycore::collections::Lru;

use super::LruImpl;

macro_rules! lru {
    ($(#[$doc:meta])* $Name:ident, $logs:expr) => {
        $(#[$doc])*
        pub(super) struct $Name(Lru<u64>);

        impl LruImpl for $Name {
            fn new() -> Self {
                Self(Lru::builder().logs($logs).build().expect("the bounds are the defaults"))
            }

            #[inline]
            fn touch(&self, key: u64) {
                self.0.touch(key);
            }

            fn evict(&self) -> Option<u64> {
                self.0.evict_oldest()
            }
        }
    };
}

lru!(
    /// As it comes.
    Auto,
    manycore::oplog::Logs::default()
);
lru!(
    /// With logs from the start.
    Always,
    manycore::oplog::Logs::Always
);
