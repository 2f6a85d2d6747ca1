//! Events of single requests, for clients of `watch`, for `stats detail` and for `--trace`.
//!
//! Laws:
//! - events.E1 Without a watcher, detail and a recording of requests, a request costs one load of
//!   a word that no request writes.
//! - events.E2 The buffer of a watcher is bounded. A line without room is dropped and counted, and
//!   the watcher is told how many lines were dropped. The number of prefixes of `stats detail` is
//!   bounded, too.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A kind of event: a get.
pub const FETCHERS: u32 = 1;
/// A value that was stored, or refused.
pub const MUTATIONS: u32 = 1 << 1;
/// An item that was evicted.
pub const EVICTIONS: u32 = 1 << 2;
/// A connection that was opened or closed.
pub const CONNEVENTS: u32 = 1 << 3;
/// An item that a client deleted.
pub const DELETIONS: u32 = 1 << 4;
/// Events of memcached's own internals, which do not occur here.
pub const OTHERS: u32 = 1 << 5;
/// Counts by prefix.
pub const DETAIL: u32 = 1 << 16;

/// A kind for a recording (`--trace`): keys that are looked up.
pub const TRACED_GETS: u32 = 1 << 17;
/// Values that are stored or changed.
pub const TRACED_STORES: u32 = 1 << 18;
/// Keys that are deleted.
pub const TRACED_DELETES: u32 = 1 << 19;

/// Concurrent watchers, as in memcached.
const WATCHERS_MAX: usize = 20;
/// Prefixes that are counted, as in memcached.
const PREFIXES_MAX: usize = 256;

/// The counts of the keys with one prefix.
#[derive(Debug, Default, Clone, Copy)]
struct Detail {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// A request as `stats detail` counts it.
#[derive(Debug, Clone, Copy)]
pub enum Asked {
    /// A get. The flag is true for a hit.
    Get(bool),
    /// A value to be stored.
    Set,
    /// A key to be deleted.
    Delete,
}

/// The watchers, and the counts by prefix.
#[derive(Debug)]
pub struct Events {
    /// The kinds that any watcher has subscribed to, [`DETAIL`], and `traced` (events.E1).
    wanted: AtomicU32,
    /// The kinds that a recording wants.
    traced: AtomicU32,
    has_detail: AtomicBool,
    delimiter: u8,
    details: Mutex<BTreeMap<Box<[u8]>, Detail>>,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// The number of the last event.
    last: AtomicU64,
    /// Lines that were buffered for watchers, and lines that were dropped.
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// The subscription and the buffer of one watcher.
#[derive(Debug)]
struct Watcher {
    kinds: u32,
    /// The bound on buffered bytes.
    room: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines dropped since the buffer was last drained.
    dropped: u64,
}

/// A watcher's registration. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    events: Arc<Events>,
    watcher: Arc<Watcher>,
}

/// Statistics of the watchers.
#[derive(Debug, Clone, Copy)]
pub struct EventCounts {
    /// Current watchers.
    pub watchers: usize,
    /// Lines that were buffered for them.
    pub sent: u64,
    /// Lines that were dropped because a watcher's buffer was full.
    pub dropped: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Events {
    pub(super) fn new(delimiter: Option<u8>) -> Self {
        let has_detail = delimiter.is_some();
        Self {
            wanted: AtomicU32::new(if has_detail { DETAIL } else { 0 }),
            traced: AtomicU32::new(0),
            has_detail: AtomicBool::new(has_detail),
            delimiter: delimiter.unwrap_or(b':'),
            details: Mutex::default(),
            watchers: Mutex::default(),
            last: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Returns true if one of these kinds has a watcher, is counted or is recorded.
    #[inline]
    pub fn wants(&self, kinds: u32) -> bool {
        // ORDER: Relaxed; an event concurrent with a subscription may be reported or not.
        self.wanted.load(Ordering::Relaxed) & kinds != 0
    }

    /// Recomputes the wanted kinds, under the watchers' lock.
    fn refresh(&self, watchers: &[Arc<Watcher>]) {
        let kinds = watchers.iter().fold(0, |kinds, watcher| kinds | watcher.kinds);
        // ORDER: Relaxed; as in `wants`. Both writers have the lock.
        let detail = if self.has_detail.load(Ordering::Relaxed) { DETAIL } else { 0 };
        let traced = self.traced.load(Ordering::Relaxed);
        self.wanted.store(kinds | detail | traced, Ordering::Relaxed);
    }

    /// Sets the kinds of requests that are recorded.
    pub fn set_traced(&self, kinds: u32) {
        let watchers = locked(&self.watchers);
        // ORDER: Relaxed; read under the same lock.
        self.traced.store(kinds, Ordering::Relaxed);
        self.refresh(&watchers);
    }

    /// Enables or disables the counts by prefix.
    pub fn set_detail(&self, is_on: bool) {
        let watchers = locked(&self.watchers);
        // ORDER: Relaxed; read under the same lock, or as a hint.
        self.has_detail.store(is_on, Ordering::Relaxed);
        self.refresh(&watchers);
    }

    /// Returns true if the counts by prefix are enabled.
    pub fn has_detail(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.has_detail.load(Ordering::Relaxed)
    }

    /// Returns the delimiter that ends a prefix.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Counts a request by its key's prefix, if it has one.
    #[cold]
    pub fn count(&self, key: &[u8], asked: Asked) {
        let Some(end) = key.iter().position(|byte| *byte == self.delimiter) else { return };
        let mut details = locked(&self.details);
        if details.len() >= PREFIXES_MAX && !details.contains_key(&key[..end]) {
            return; // events.E2
        }
        let detail = match details.get_mut(&key[..end]) {
            Some(detail) => detail,
            None => details.entry(key[..end].into()).or_default(),
        };
        debug_assert!(detail.hits <= detail.gets, "events.E2: more hits than gets");
        match asked {
            Asked::Get(is_hit) => {
                detail.gets += 1;
                detail.hits += u64::from(is_hit);
            }
            Asked::Set => detail.sets += 1,
            Asked::Delete => detail.deletes += 1,
        }
    }

    /// Writes the counts by prefix.
    pub fn dump_details(&self, out: &mut Vec<u8>) {
        use std::io::Write as _;
        for (prefix, Detail { gets, hits, sets, deletes }) in locked(&self.details).iter() {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            // Writing to a vector does not fail.
            let _ = write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
    }

    /// Resets the counts by prefix.
    pub fn reset_details(&self) {
        locked(&self.details).clear();
    }

    /// Returns the statistics of the watchers.
    pub fn counts(&self) -> EventCounts {
        // ORDER: Relaxed; counts.
        let (sent, dropped) = (&self.sent, &self.dropped);
        let (sent, dropped) = (sent.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed));
        EventCounts { watchers: locked(&self.watchers).len(), sent, dropped }
    }

    /// Registers a watcher of these kinds. `None` if there are too many.
    pub fn watch(self: &Arc<Self>, kinds: u32, room: usize) -> Option<Watch> {
        let mut watchers = locked(&self.watchers);
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        let watcher = Arc::new(Watcher { kinds, room, waiting: Mutex::default() });
        watchers.push(watcher.clone());
        debug_assert!(watchers.len() <= WATCHERS_MAX, "events.E2: too many watchers");
        self.refresh(&watchers);
        Some(Watch { events: self.clone(), watcher })
    }

    /// Reports an event to the watchers of its kind. `text` appends to the line, which begins with
    /// the time and the event's number.
    #[cold]
    pub fn tell(&self, kind: u32, text: impl FnOnce(&mut String)) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Under the lock, so that every watcher has events in the order of their numbers.
        let watchers = locked(&self.watchers);
        // ORDER: Relaxed; under the lock.
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = String::with_capacity(256);
        let _ = write!(line, "ts={}.{} gid={number} ", now.as_secs(), now.subsec_micros());
        text(&mut line);
        line.push('\n');
        for watcher in watchers.iter().filter(|watcher| watcher.kinds & kind != 0) {
            // ORDER: Relaxed; counts.
            if watcher.put(&line) {
                self.sent.fetch_add(1, Ordering::Relaxed);
            } else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Watcher {
    /// Buffers a line, if there is room (events.E2).
    fn put(&self, line: &str) -> bool {
        let mut waiting = locked(&self.waiting);
        // After a dropped line, drop this line, too: it would precede the note of the drops.
        if waiting.dropped > 0 || waiting.lines.len() + line.len() > self.room {
            waiting.dropped += 1;
            return false;
        }
        waiting.lines.extend_from_slice(line.as_bytes());
        debug_assert!(
            waiting.lines.len() <= self.room,
            "events.E2: a watcher's buffer is too long"
        );
        true
    }
}

impl Watch {
    /// Drains the buffer.
    pub fn take(&self, out: &mut Vec<u8>) {
        let mut waiting = locked(&self.watcher.waiting);
        out.append(&mut waiting.lines);
        if waiting.dropped > 0 {
            out.extend_from_slice(format!("skipped={}\n", waiting.dropped).as_bytes());
            waiting.dropped = 0;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watchers = locked(&self.events.watchers);
        watchers.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
        self.events.refresh(&watchers);
    }
}

/// Writes a key in the form of event lines: bytes other than letters, digits and `-._~` are
/// percent-encoded.
pub fn write_key(out: &mut String, key: &[u8]) {
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(watch: &Watch) -> String {
        let mut out = Vec::new();
        watch.take(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn watchers_are_told_what_they_asked_for_and_nothing_when_they_have_gone() {
        let events = Arc::new(Events::new(None));
        assert!(!events.wants(u32::MAX));
        let watch = events.watch(FETCHERS | DELETIONS, 1000).unwrap();
        assert!(events.wants(FETCHERS) && !events.wants(MUTATIONS));
        events.tell(FETCHERS, |line| line.push_str("type=a"));
        events.tell(MUTATIONS, |line| line.push_str("type=b"));
        let text = taken(&watch);
        assert!(text.starts_with("ts=") && text.ends_with(" gid=1 type=a\n"), "{text}");
        drop(watch);
        assert!(!events.wants(u32::MAX));
        assert_eq!(events.counts().watchers, 0);
    }

    #[test]
    fn what_a_watcher_does_not_take_is_bounded_and_told() {
        let events = Arc::new(Events::new(None));
        let watch = events.watch(FETCHERS, 200).unwrap();
        for _ in 0..100 {
            events.tell(FETCHERS, |line| line.push_str("type=item_get"));
        }
        let (text, dropped) = (taken(&watch), events.counts().dropped);
        let note = format!("skipped={dropped}\n");
        assert!(dropped > 90 && text.ends_with(&note) && text.len() <= 200 + note.len(), "{text}");
        events.tell(FETCHERS, |line| line.push_str("type=next"));
        assert!(taken(&watch).ends_with("type=next\n"));
        let all: Vec<_> = (0..WATCHERS_MAX).map_while(|_| events.watch(FETCHERS, 1)).collect();
        assert_eq!(all.len(), WATCHERS_MAX - 1);
    }

    #[test]
    fn prefixes_that_are_counted_are_bounded() {
        let events = Events::new(Some(b':'));
        for number in 0..2 * PREFIXES_MAX {
            events.count(format!("{number}:x").as_bytes(), Asked::Get(true));
        }
        events.count(b"no prefix", Asked::Set);
        events.count(b"7:y", Asked::Set);
        let mut out = Vec::new();
        events.dump_details(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), PREFIXES_MAX);
        assert!(text.contains("PREFIX 7 get 1 hit 1 set 1 del 0\r\n"));
        events.reset_details();
        assert!(locked(&events.details).is_empty());
    }

    #[test]
    fn keys_are_one_word() {
        let mut out = String::new();
        write_key(&mut out, b"a.b~c-_#\xff ");
        assert_eq!(out, "a.b~c-_%23%FF%20");
    }
}
