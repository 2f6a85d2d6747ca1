//! Keys, values and callbacks that panic at a chosen call, and accounts of what became of each
//! entry.

#![allow(dead_code, reason = "each test uses a part")]

use manycore_cache::{Builder, Cache, Cause};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

thread_local! {
    /// Calls of user code until one of them panics; `i64::MAX` if none does.
    static FUSE: Cell<i64> = const { Cell::new(i64::MAX) };
    static PLANTED: Cell<&'static str> = const { Cell::new("nothing") };
}

/// Plants a panic in the call with this number, counted from zero. Later calls do not panic.
pub fn arm(calls: i64) {
    FUSE.set(calls);
}

/// Removes the planted panic. Returns true if a call has panicked since it was planted.
pub fn disarm() -> bool {
    FUSE.replace(i64::MAX) < 0
}

/// Returns where the last panic was.
pub fn planted() -> &'static str {
    PLANTED.get()
}

/// Counts a call of user code, and panics if it is the chosen one.
fn tick(what: &'static str) {
    let Ok(left) = FUSE.try_with(Cell::get) else { return };
    if left == i64::MAX || left < 0 {
        return;
    }
    FUSE.set(left - 1);
    if left == 0 {
        PLANTED.set(what);
        panic!("planted in {what}");
    }
}

/// Counts of all keys, values and entries that were made, and of what became of them.
#[derive(Default)]
pub struct Accounts {
    keys: AtomicI64,
    values: AtomicI64,
    next: AtomicU64,
    told: Mutex<BTreeMap<u64, Cause>>,
    pub now: AtomicU64,
}

impl Accounts {
    /// Returns the numbers of keys and of values that are not dropped.
    pub fn living(&self) -> (i64, i64) {
        (self.keys.load(SeqCst), self.values.load(SeqCst))
    }

    pub fn is_told(&self, id: u64) -> bool {
        self.told.lock().unwrap().contains_key(&id)
    }

    pub fn key(self: &Arc<Self>, number: u32) -> Key {
        self.keys.fetch_add(1, SeqCst);
        Key { number, accounts: Arc::clone(self) }
    }

    pub fn value(self: &Arc<Self>, weight: u32) -> Value {
        self.values.fetch_add(1, SeqCst);
        let id = self.next.fetch_add(1, SeqCst);
        Value { id, weight, ends: AtomicU64::new(0), accounts: Arc::clone(self) }
    }

    /// Returns a builder whose callbacks all tick. The kind says whether it has a weigher, times
    /// and metadata.
    pub fn builder(self: &Arc<Self>, kind: Kind, capacity: u64) -> Builder<Key, Value> {
        let (own, clock) = (Arc::clone(self), Arc::clone(self));
        let builder =
            Cache::builder(capacity).initial_entries(1).listener(move |_, value: &Value, cause| {
                let before = own.told.lock().unwrap().insert(value.id, cause);
                assert_eq!(before, None, "told twice: {}", value.id);
                tick("the listener");
            });
        let builder = builder.clock(move || {
            tick("the clock");
            Duration::from_secs(clock.now.load(SeqCst))
        });
        let weigh = |_: &Key, value: &Value| {
            tick("the weigher");
            value.weight
        };
        match kind {
            Kind::Plain => builder,
            Kind::Full => builder.weigher(weigh).expire_after(|_, value: &Value| {
                tick("the time to live");
                value.end()
            }),
            Kind::Bare => {
                builder.weigher(weigh).weight_in_bytes(true).without_metadata(|_, value: &Value| {
                    tick("the expiration of an entry without metadata");
                    value.end()
                })
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Full,
    Bare,
}

pub const KINDS: [Kind; 3] = [Kind::Plain, Kind::Full, Kind::Bare];

impl Kind {
    pub fn is_timed(self) -> bool {
        self != Self::Plain
    }

    pub fn weight(self, value: &Value) -> u64 {
        if self == Self::Plain { 1 } else { u64::from(value.weight.max(1)) }
    }
}

pub struct Key {
    pub number: u32,
    accounts: Arc<Accounts>,
}

impl Drop for Key {
    fn drop(&mut self) {
        self.accounts.keys.fetch_sub(1, SeqCst);
        tick("a key's destructor");
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        tick("Hash");
        // There are few hashes, so that equal tags are common.
        (self.number % 5).hash(hasher);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        tick("Eq");
        self.number == other.number
    }
}
impl Eq for Key {}

pub struct Value {
    pub id: u64,
    pub weight: u32,
    /// The second at which the value ends; zero means never.
    pub ends: AtomicU64,
    accounts: Arc<Accounts>,
}

impl Value {
    pub fn until(self, second: u64) -> Self {
        self.ends.store(second, SeqCst);
        self
    }

    fn end(&self) -> Option<Duration> {
        let end = self.ends.load(SeqCst);
        (end != 0).then(|| Duration::from_secs(end))
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        tick("Clone");
        self.accounts.value(self.weight)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.accounts.values.fetch_sub(1, SeqCst);
        tick("a value's destructor");
    }
}

/// Wakers that tick in each of their functions.
pub mod waker {
    use super::tick;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            tick("a waker's clone");
            RawWaker::new(data, &TABLE)
        },
        |_| tick("a waker"),
        |_| tick("a waker by reference"),
        |_| tick("a waker's destructor"),
    );

    pub fn new() -> Waker {
        // SAFETY: the functions of the table use no data.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
    }
}
