//! Pages that notice when they are freed or half written, a store of such pages, and views of it.

use super::manycore::collections::{PageCache, PageStore, PinError, PrivatePages};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

thread_local! {
    /// Name of the call that panics next.
    static PANICS: Cell<&'static str> = const { Cell::new("") };
}

pub fn may_panic(what: &str) {
    if PANICS.get() == what {
        PANICS.set("");
        panic!("{what} panics on purpose");
    }
}

pub fn panics<R>(what: &'static str, f: impl FnOnce() -> R) {
    PANICS.set(what);
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "{what} did not panic");
    PANICS.set("");
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic("hash");
        self.0.hash(state);
    }
}

const THERE: u64 = 0x7_4e5e;

/// A number written twice, with a word that says the page is alive. Counts itself.
#[derive(Debug)]
pub struct Page {
    halves: [u64; 2],
    canary: u64,
    alive: Arc<AtomicUsize>,
}

impl Page {
    fn new(number: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self { halves: [number; 2], canary: THERE, alive: Arc::clone(alive) }
    }

    /// Its number, if it is a whole page.
    pub fn number(&self) -> u64 {
        assert_eq!(self.canary, THERE, "a page that is gone");
        assert_eq!(self.halves[0], self.halves[1], "half a write");
        self.halves[0]
    }

    /// Writes a number, in two steps. Returns the old one.
    pub fn write(&mut self, number: u64) -> u64 {
        let old = self.number();
        self.halves[0] = number;
        if number % 3 == 0 {
            thread::yield_now();
        }
        self.halves[1] = number;
        old
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        may_panic("clone");
        Self::new(self.number(), &self.alive)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        assert_eq!(std::mem::replace(&mut self.canary, 0xdead), THERE, "dropped twice");
        self.alive.fetch_sub(1, SeqCst);
    }
}

/// A store in which page `key` has the number `1000 + key`.
#[derive(Default)]
pub struct Store {
    pub alive: Arc<AtomicUsize>,
    pub refuses: AtomicBool,
    pub writes: AtomicUsize,
}

pub fn base(key: u32) -> u64 {
    1000 + u64::from(key)
}

impl PageStore for Store {
    type Key = Key;
    type Page = Page;
    type Error = ();

    fn load(&self, key: &Key) -> Result<Page, ()> {
        may_panic("load");
        if self.refuses.load(SeqCst) {
            return Err(());
        }
        Ok(Page::new(base(key.0), &self.alive))
    }

    fn write_back(&self, _: &Key, _: &Page) -> Result<(), ()> {
        self.writes.fetch_add(1, SeqCst);
        Ok(())
    }
}

pub type View = PrivatePages<Store>;

pub fn view(pages: usize) -> View {
    PrivatePages::new(Arc::new(PageCache::new(Store::default(), pages)))
}

pub fn alive(view: &View) -> Arc<AtomicUsize> {
    Arc::clone(&view.cache().store().alive)
}

pub fn read(view: &View, key: u32) -> u64 {
    loop {
        match view.read(&Key(key)) {
            Ok(page) => return page.number(),
            Err(error) => assert_eq!(error, PinError::Full), // others have theirs pinned
        }
        thread::yield_now();
    }
}

pub fn write(view: &View, key: u32, number: u64) -> u64 {
    loop {
        match view.with_mut(&Key(key), |page| page.write(number)) {
            Ok(old) => return old,
            Err(error) => assert_eq!(error, PinError::Full),
        }
        thread::yield_now();
    }
}

/// The numbers that a view must show.
pub type Numbers = BTreeMap<u32, u64>;
