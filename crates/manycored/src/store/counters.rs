//! A worker's statistics, on cache lines of its own.

use crate::protocol::Arith;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident)*) => {
        /// The counts of one worker. Only that worker writes them.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(#[doc = concat!("`", stringify!($name), "` of `stats`.")] pub $name: Count,)*
        }

        /// The counts of all workers.
        #[derive(Debug, Default, Clone, Copy)]
        pub struct Totals {
            $(#[doc = concat!("`", stringify!($name), "` of `stats`.")] pub $name: u64,)*
        }

        impl Totals {
            /// Returns the sum of all workers' counts.
            pub fn sum(all: &[Counters]) -> Self {
                let mut totals = Self::default();
                for counters in all {
                    $(totals.$name += counters.$name.get();)*
                }
                totals
            }

            /// Returns the names and values of the counts.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        impl Counters {
            /// Resets all counts.
            pub fn reset(&self) {
                $(self.$name.0.store(0, Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    cmd_get cmd_set cmd_flush cmd_touch cmd_meta
    get_hits get_misses get_expired get_flushed
    delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
    cas_misses cas_hits cas_badval touch_hits touch_misses
    store_too_large store_no_memory auth_cmds auth_errors
    bytes_read bytes_written total_items conn_yields
}

impl Counters {
    /// Returns the counts of hits and misses of an increment or a decrement.
    pub(crate) fn of_change(&self, arith: Arith) -> [&Count; 2] {
        match arith {
            Arith::Incr => [&self.incr_hits, &self.incr_misses],
            Arith::Decr => [&self.decr_hits, &self.decr_misses],
        }
    }
}

/// A count with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds, by a plain load and store. Only the owning thread may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        // ORDER: Relaxed; a count.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.0.load(Ordering::Relaxed)
    }
}
