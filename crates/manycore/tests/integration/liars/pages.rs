//! The page cache and the private views of its pages.

use super::liar::{Key, Ledger, Lie, Soul, Subject, attempt, lies, panics};
use crate::common::rng::Rng;
use manycore::cluster::Placement;
use manycore::collections::{
    DHashBuilder, Distribution, PageCache, PageStore, PinError, Pinned, PrivatePages,
};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

type Hasher = BuildHasherDefault<DefaultHasher>;
type Cache = PageCache<Store, Hasher>;

const PAGES_MAX: usize = 6;

struct Page {
    soul: Soul,
    changes: AtomicU64,
}

impl Clone for Page {
    fn clone(&self) -> Self {
        let changes = AtomicU64::new(self.changes.load(SeqCst));
        Self { soul: self.soul.clone(), changes }
    }
}

struct Store {
    ledger: Arc<Ledger>,
    calls: AtomicU64,
    /// Changes that were marked, and those that were written back.
    marked: AtomicU64,
    written: AtomicU64,
}

impl Store {
    fn new(ledger: &Arc<Ledger>) -> Self {
        let zero = || AtomicU64::new(0);
        let ledger = Arc::clone(ledger);
        Self { ledger, calls: zero(), marked: zero(), written: zero() }
    }

    /// Fails now and then.
    fn answer(&self, key: &Key) -> Result<(), ()> {
        key.look();
        self.ledger.call();
        if self.calls.fetch_add(1, SeqCst) % 7 == 3 { Err(()) } else { Ok(()) }
    }
}

impl PageStore for Store {
    type Key = Key;
    type Page = Page;
    type Error = ();

    fn load(&self, key: &Key) -> Result<Page, ()> {
        self.answer(key)?;
        Ok(Page { soul: Soul::new(&self.ledger), changes: AtomicU64::new(0) })
    }

    fn write_back(&self, key: &Key, page: &Page) -> Result<(), ()> {
        page.soul.look();
        self.answer(key)?;
        self.written.fetch_add(page.changes.swap(0, SeqCst), SeqCst);
        Ok(())
    }
}

fn cache(form: usize, ledger: &Arc<Ledger>) -> Cache {
    let builder = match form {
        0 => DHashBuilder::new(),
        1 => DHashBuilder::new().distribution(Distribution::Always),
        _ => DHashBuilder::new().distribution(Distribution::Always).placement(Placement::Shared),
    };
    PageCache::with_builder(Store::new(ledger), PAGES_MAX, builder.hasher(Hasher::default()))
}

fn step<'c>(cache: &'c Cache, pins: &mut Vec<Pinned<'c, Store, Hasher>>, key: &Key, rng: &mut Rng) {
    match rng.below(16) {
        0..=5 => match attempt(|| cache.pin(key)) {
            Some(Ok(pin)) => pins.push(pin),
            None | Some(Err(PinError::Full | PinError::Store(()))) => {}
            Some(Err(other)) => panic!("{other:?}"),
        },
        6 => pins.extend(attempt(|| cache.pin_if_cached(key)).flatten()),
        7..=9 if !pins.is_empty() => {
            let pin = pins.swap_remove(rng.below(pins.len()));
            drop(pin); // never panics: the pin would stay
        }
        10 if !pins.is_empty() => {
            let pin = rng.pick(pins);
            pin.changes.fetch_add(1, SeqCst);
            cache.store().marked.fetch_add(1, SeqCst);
            pin.mark_dirty();
            pin.key().look();
        }
        11 => _ = attempt(|| cache.reclaim(2)),
        12 => _ = attempt(|| cache.flush()),
        13 => _ = cache.distribute(),
        14 => _ = attempt(|| cache.fold()),
        _ => {}
    }
    assert!(cache.len() <= PAGES_MAX, "more pages than the bound: {}", cache.len());
    pins.iter().for_each(|pin| pin.soul.look());
}

/// Demands that every page can be reclaimed when no pin is left: no pin was counted for another
/// page.
fn empty(cache: &Cache) {
    for _ in 0..50 {
        let _ = attempt(|| cache.reclaim(usize::MAX)); // the store fails now and then
    }
    assert_eq!(cache.len(), 0, "a pin was not given back, or not to its own page");
    let store = cache.store();
    assert_eq!(store.marked.load(SeqCst), store.written.load(SeqCst), "a marked change was lost");
}

struct Pins(Cache);

impl Subject for Pins {
    const FORMS: usize = 3;

    fn new(form: usize, ledger: &Arc<Ledger>) -> Self {
        Self(cache(form, ledger))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut pins = Vec::new();
        for _ in 0..steps {
            step(&self.0, &mut pins, &Key::any(rng, ledger), rng);
        }
        // Another thread gives half of them back.
        let theirs = pins.split_off(pins.len() / 2);
        std::thread::scope(|scope| _ = scope.spawn(move || drop(theirs)));
        drop(pins);
    }

    fn check(self, _: &Arc<Ledger>) {
        empty(&self.0);
    }
}

#[test]
fn page_cache_among_liars() {
    lies::<Pins>("PageCache");
}

#[test]
fn page_cache_and_panics_at_every_call() {
    panics::<Pins>("PageCache");
}

/// A key that is not equal to itself has its own page at every pin. The page stays while it is
/// pinned, and makes room afterwards.
#[test]
fn page_of_a_key_unlike_itself_stays_while_pinned() {
    let ledger = Ledger::new(Lie::EqNever, 1);
    let cache = cache(0, &ledger);
    let key = Key::new(1, &ledger);
    let pins: Vec<_> = (0..PAGES_MAX * 2).filter_map(|_| cache.pin(&key).ok()).collect();
    assert!(pins.len() >= PAGES_MAX - 1, "each its own page, as many as there may be");
    assert_eq!(cache.reclaim(usize::MAX), Ok(0), "all are pinned");
    pins.iter().for_each(|pin| pin.soul.look());
    assert_eq!(ledger.living(), ledger_of(&pins, &key, &cache));
    drop(pins);
    empty(&cache);
}

/// Returns how many values live while these pins do: each page, its key and the table's copy of the
/// key.
fn ledger_of(pins: &[Pinned<'_, Store, Hasher>], _: &Key, _: &Cache) -> i64 {
    const KEY: i64 = 2;
    pins.len() as i64 * (1 + 2 * KEY) + KEY
}

/// A view, its forks, and the cache below.
struct Views(Arc<Cache>, PrivatePages<Store, Hasher>);

impl Subject for Views {
    const FORMS: usize = 2;

    fn new(form: usize, ledger: &Arc<Ledger>) -> Self {
        let cache = Arc::new(cache(form, ledger));
        Self(Arc::clone(&cache), PrivatePages::with_limit(cache, 40))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut forks = Vec::new();
        for _ in 0..steps {
            let key = Key::any(rng, ledger);
            let view = if forks.is_empty() { &self.1 } else { rng.pick(&forks) };
            match rng.below(12) {
                0..=3 => {
                    let change = |page: &mut Page| {
                        page.soul.look();
                        page.soul.ledger.call();
                        *page.changes.get_mut() += 1;
                    };
                    let _ = attempt(|| view.with_mut(&key, change));
                }
                4..=6 => {
                    let first = attempt(|| view.read(&key));
                    let second = attempt(|| self.1.read(&Key::any(rng, ledger)));
                    first.into_iter().flatten().for_each(|page| page.soul.look());
                    second.into_iter().flatten().for_each(|page| page.soul.look());
                }
                7 => _ = attempt(|| view.is_private(&key)),
                8 => {
                    let look = |key: &Key, page: &Page| (key.look(), page.soul.look());
                    attempt(|| view.for_each(|key, page| _ = look(key, page)));
                }
                9 | 10 if forks.len() < 4 => {
                    let fork = attempt(|| view.fork());
                    forks.extend(fork);
                }
                _ if !forks.is_empty() => drop(forks.swap_remove(rng.below(forks.len()))),
                _ => {}
            }
            assert!(self.1.copies() <= 40, "more copies than the limit");
        }
    }

    fn check(self, _: &Arc<Ledger>) {
        let Self(cache, view) = self;
        drop(view);
        empty(&cache);
    }
}

#[test]
fn private_pages_among_liars() {
    lies::<Views>("PrivatePages");
}

#[test]
fn private_pages_and_panics_at_every_call() {
    panics::<Views>("PrivatePages");
}
