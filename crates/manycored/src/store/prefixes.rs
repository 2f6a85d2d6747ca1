//! Flushed prefixes of keys (`-D`).
//!
//! A key's prefixes are the parts before each of its delimiters: `a:b:c` has the prefixes `a` and
//! `a:b`. Laws:
//! - prefixes.X1 An item is dead if its stamp is not above the stamp of the last flush of one of
//!   its prefixes.
//! - prefixes.X2 If an item is newer than the last flush of any prefix, its check is one comparison
//!   in the store, with a word that only flushes and sweeps write. If the item is older, its check
//!   loads a word for each of its delimiters, and takes the lock only if such a word may stand for
//!   a flush.
//! - prefixes.X3 A flush is remembered until a sweep that begins [`KEEP`] later has removed the
//!   dead items. (A worker needs less time than that between taking an item's stamp and inserting
//!   the item.)

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The most prefixes that are remembered at once.
pub(super) const MOST: usize = 1 << 16;
/// The least time for which a flush is remembered.
const KEEP: Duration = Duration::from_secs(60);
/// Words of the filter of flushed prefixes.
const WORDS: usize = 512;

/// For each prefix, the stamp and the time of its last flush.
type Stamps = HashMap<Box<[u8]>, (u64, u64)>;

/// The prefixes that were flushed.
pub(super) struct Prefixes {
    delimiter: u8,
    /// A filter: for each remainder of a prefix's hash, the stamp of the last flush of a prefix
    /// with that remainder.
    last: Box<[AtomicU64]>,
    /// The exact stamps and times.
    stamps: RwLock<Stamps>,
}

/// Adds a byte to the hash of a prefix (FNV-1a).
fn more(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The hash of the empty prefix.
const NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

fn word(hash: u64) -> usize {
    (hash >> 32) as usize % WORDS
}

impl Prefixes {
    pub(super) fn new(delimiter: u8) -> Self {
        let last = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { delimiter, last, stamps: RwLock::default() }
    }

    /// Makes all items dead that have this prefix and a stamp up to `stamp`. Returns false if too
    /// many prefixes are remembered.
    pub(super) fn flush(&self, prefix: &[u8], stamp: u64, now: u64) -> bool {
        let mut stamps = self.stamps.write().unwrap_or_else(PoisonError::into_inner);
        if stamps.len() >= MOST && !stamps.contains_key(prefix) {
            return false;
        }
        let known = stamps.entry(prefix.into()).or_insert((stamp, now));
        *known = (known.0.max(stamp), now);
        let hash = prefix.iter().fold(NOTHING, |hash, byte| more(hash, *byte));
        // ORDER: Relaxed; a reply to the flush and a later request order it for clients.
        self.last[word(hash)].fetch_max(stamp, Ordering::Relaxed);
        true
    }

    /// Returns true if an item with this key and stamp was flushed (prefixes.X1).
    pub(super) fn is_dead(&self, key: &[u8], stamp: u64) -> bool {
        // prefixes.X2: the caller has compared with the last flush of any prefix.
        let mut hash = NOTHING;
        for (at, byte) in key.iter().enumerate() {
            // ORDER: Relaxed; as in `flush`.
            if *byte == self.delimiter && stamp <= self.last[word(hash)].load(Ordering::Relaxed) {
                let stamps = self.stamps.read().unwrap_or_else(PoisonError::into_inner);
                if stamps.get(&key[..at]).is_some_and(|(flushed, _)| stamp <= *flushed) {
                    return true;
                }
            }
            hash = more(hash, *byte);
        }
        false
    }

    /// Returns the flushes that can be forgotten after a sweep that begins now (prefixes.X3).
    pub(super) fn old(&self, now: u64) -> Vec<(Box<[u8]>, u64)> {
        let keep = KEEP.as_nanos() as u64;
        let stamps = self.stamps.read().unwrap_or_else(PoisonError::into_inner);
        let old = stamps.iter().filter(|(_, (_, since))| since + keep <= now);
        old.map(|(prefix, (stamp, _))| (prefix.clone(), *stamp)).collect()
    }

    /// Forgets these flushes, except prefixes that were flushed again. Returns true if no flush is
    /// left.
    pub(super) fn forget(&self, old: &[(Box<[u8]>, u64)]) -> bool {
        let mut stamps = self.stamps.write().unwrap_or_else(PoisonError::into_inner);
        for (prefix, stamp) in old {
            if stamps.get(prefix).is_some_and(|(last, _)| last == stamp) {
                stamps.remove(prefix);
            }
        }
        if stamps.is_empty() {
            // ORDER: Relaxed; every writer holds the lock.
            self.last.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        stamps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_of_a_key_counts_and_nothing_else_does() {
        let prefixes = Prefixes::new(b':');
        assert!(prefixes.flush(b"a:b", 5, 0));
        let is_dead = |key: &str, stamp| prefixes.is_dead(key.as_bytes(), stamp);
        assert!(is_dead("a:b:c", 5) && is_dead("a:b:", 1) && is_dead("a:b:c:d", 4));
        assert!(!is_dead("a:b:c", 6) && !is_dead("a:bb:c", 5) && !is_dead("a:b", 5));
        assert!(!is_dead("a:c:b", 5) && !is_dead("", 5) && !is_dead("a", 5));
        assert!(prefixes.flush(b"", 9, 0));
        assert!(is_dead(":x", 9) && !is_dead("x", 9) && is_dead("a:b:c", 5));
    }

    #[test]
    fn a_flush_is_forgotten_after_its_time_and_not_a_later_one() {
        let (prefixes, keep) = (Prefixes::new(b'/'), KEEP.as_nanos() as u64);
        assert!(prefixes.flush(b"a", 5, 10) && prefixes.flush(b"b", 6, 10 + keep));
        assert!(prefixes.old(keep).is_empty());
        let old = prefixes.old(10 + keep);
        assert_eq!(old, [(b"a".as_slice().into(), 5)]);
        assert!(prefixes.flush(b"a", 7, 20 + keep));
        assert!(!prefixes.forget(&old) && prefixes.is_dead(b"a/x", 7));
        assert!(prefixes.forget(&prefixes.old(20 + 2 * keep)));
        assert!(!prefixes.is_dead(b"a/x", 7));
    }

    #[test]
    fn prefixes_are_bounded() {
        let prefixes = Prefixes::new(b':');
        let all = (0..MOST).all(|n| prefixes.flush(n.to_string().as_bytes(), 1, 0));
        assert!(all && !prefixes.flush(b"one more", 1, 0) && prefixes.flush(b"0", 2, 0));
        assert!(!prefixes.is_dead(b"one more:x", 1) && prefixes.is_dead(b"77:x", 1));
    }
}
