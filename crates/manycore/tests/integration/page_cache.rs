//! The page cache: one load serves all concurrent misses (single flight), even when loads fail or
//! panic. Pinned pages stay, and the bound holds. No marked change is lost, whatever the store
//! does. Histories are linearizable.
//!
//! `MANYCORE_SOAK=60` runs each test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the same
//! programs again.

use crate::common::calls::{self, Model, Subject};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{
    Contention, DHashBuilder, Distribution, PageCache, PageStore, PinError, Pinned,
};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(350);

/// What the store does in its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Works,
    Fails,
    Panics,
}

#[derive(Debug, PartialEq, Eq)]
struct Refused;

#[derive(Default)]
struct Counts {
    alive: AtomicUsize,
    most: AtomicUsize,
}

/// A page with a number that all threads may change, and a word that says the page is alive.
struct Page {
    number: AtomicU64,
    canary: AtomicU64,
    counts: Arc<Counts>,
}

const THERE: u64 = 0x7_4e5e;

impl Page {
    fn new(number: u64, counts: &Arc<Counts>) -> Self {
        let alive = counts.alive.fetch_add(1, SeqCst) + 1;
        counts.most.fetch_max(alive, SeqCst);
        let canary = AtomicU64::new(THERE);
        Self { number: AtomicU64::new(number), canary, counts: Arc::clone(counts) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.canary.store(0xdead, SeqCst);
        self.counts.alive.fetch_sub(1, SeqCst);
    }
}

type Moods = Box<dyn Fn() -> Mood + Send + Sync>;

struct Store {
    numbers: Mutex<HashMap<u32, u64>>,
    counts: Arc<Counts>,
    loads: AtomicUsize,
    writes: AtomicUsize,
    /// Keys that are being loaded or written: at most once each.
    busy: Mutex<HashMap<u32, &'static str>>,
    on_load: Moods,
    on_write: Moods,
}

impl Store {
    fn new(on_load: Moods, on_write: Moods) -> Self {
        Self {
            numbers: Mutex::default(),
            counts: Arc::default(),
            loads: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            busy: Mutex::default(),
            on_load,
            on_write,
        }
    }

    fn plain() -> Self {
        Self::new(Box::new(|| Mood::Works), Box::new(|| Mood::Works))
    }

    fn number(&self, key: u32) -> u64 {
        self.numbers.lock().unwrap().get(&key).copied().unwrap_or(0)
    }

    fn call(&self, key: u32, what: &'static str, mood: Mood) -> Result<(), Refused> {
        let other = self.busy.lock().unwrap().insert(key, what);
        assert_eq!(other, None, "page {key}: {what} beside another call");
        thread::yield_now();
        self.busy.lock().unwrap().remove(&key);
        match mood {
            Mood::Works => Ok(()),
            Mood::Fails => Err(Refused),
            Mood::Panics => panic!("the store panics on purpose"),
        }
    }
}

impl PageStore for Store {
    type Key = u32;
    type Page = Page;
    type Error = Refused;

    fn load(&self, key: &u32) -> Result<Page, Refused> {
        self.loads.fetch_add(1, SeqCst);
        self.call(*key, "load", (self.on_load)())?;
        Ok(Page::new(self.number(*key), &self.counts))
    }

    fn write_back(&self, key: &u32, page: &Page) -> Result<(), Refused> {
        self.writes.fetch_add(1, SeqCst);
        let number = page.number.load(SeqCst);
        self.call(*key, "write-back", (self.on_write)())?;
        self.numbers.lock().unwrap().insert(*key, number);
        Ok(())
    }
}

/// The three forms of the table of descriptors: one table, a table for each thread, and a table
/// that changes between these forms while it is in use.
const FORMS: [Distribution; 3] =
    [Distribution::Never, Distribution::Always, Distribution::Contended(Contention::new(1, 1))];

fn built<T: PageStore>(store: T, pages: usize, form: Distribution) -> PageCache<T> {
    PageCache::with_builder(store, pages, DHashBuilder::new().distribution(form))
}

/// Makes a store that follows `moods` in its first calls, and works afterwards.
fn first(moods: &'static [Mood]) -> Moods {
    let calls = AtomicUsize::new(0);
    Box::new(move || moods.get(calls.fetch_add(1, SeqCst)).copied().unwrap_or(Mood::Works))
}

#[test]
fn every_page_is_shown_and_none_stays_pinned() {
    for form in FORMS {
        let cache = built(Store::plain(), 20, form);
        (0..20).for_each(|key| drop(cache.pin(&key).unwrap()));
        let held = cache.pin(&7).unwrap();
        let mut shown = Vec::new();
        cache.for_each(|key, page| {
            assert_eq!(page.canary.load(SeqCst), THERE);
            // Others may go while one is shown; this one may not.
            cache.reclaim(1).unwrap();
            assert!(cache.pin_if_cached(key).is_some(), "{key} has gone");
            shown.push(*key);
        });
        assert!(shown.contains(&7) && shown.len() >= 10, "{shown:?}");
        shown.sort_unstable();
        shown.dedup();
        assert!(shown.len() >= 10, "a page was shown twice");
        let panicked = catch_unwind(AssertUnwindSafe(|| cache.for_each(|_, _| panic!("shown"))));
        assert!(panicked.is_err());
        drop(held);
        cache.reclaim(20).unwrap();
        assert!(cache.is_empty(), "a page stayed pinned");
    }
}

#[test]
fn misses_at_once_make_one_load() {
    FORMS.into_iter().for_each(one_load);
}

fn one_load(form: Distribution) {
    let cache = built(Store::plain(), 4, form);
    for round in 0..50 {
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let page = cache.pin(&round).unwrap();
                    assert_eq!(page.canary.load(SeqCst), THERE);
                    barrier.wait();
                });
            }
        });
        assert_eq!(cache.store().loads.load(SeqCst), round as usize + 1);
        assert!(cache.len() <= 4);
    }
}

/// The callers whose loads fail or panic are told; all other callers get the page.
#[test]
fn failed_load_fails_its_caller_and_the_next_one_loads() {
    for mood in [Mood::Fails, Mood::Panics] {
        let moods: &'static [Mood] = if mood == Mood::Fails {
            &[Mood::Fails, Mood::Fails]
        } else {
            &[Mood::Panics, Mood::Panics]
        };
        let cache = PageCache::new(Store::new(first(moods), first(&[])), 1);
        let (told, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    match catch_unwind(AssertUnwindSafe(|| cache.pin(&1).map(drop))) {
                        Ok(Ok(())) => served.fetch_add(1, SeqCst),
                        Ok(Err(error)) => {
                            assert_eq!((error, mood), (PinError::Store(Refused), Mood::Fails));
                            told.fetch_add(1, SeqCst)
                        }
                        Err(_) => {
                            assert_eq!(mood, Mood::Panics);
                            told.fetch_add(1, SeqCst)
                        }
                    };
                });
            }
        });
        assert_eq!((told.into_inner(), served.into_inner()), (2, 4), "{mood:?}");
        assert_eq!((cache.store().loads.load(SeqCst), cache.len()), (3, 1));
        assert_eq!(cache.reclaim(2), Ok(1), "no room was lost");
        assert_eq!((cache.len(), cache.store().counts.alive.load(SeqCst)), (0, 0));
    }
}

#[test]
fn pinned_pages_stay_and_a_full_cache_says_so() {
    FORMS.into_iter().for_each(pinned_pages_stay);
}

fn pinned_pages_stay(form: Distribution) {
    let cache = built(Store::plain(), 2, form);
    let (one, two) = (cache.pin(&1).unwrap(), cache.pin(&2).unwrap());
    assert_eq!(cache.pin(&3).err(), Some(PinError::Full));
    assert_eq!((cache.reclaim(9), cache.len()), (Ok(0), 2));
    assert_eq!((cache.reclaim_unpinned(9), cache.len()), (Ok(0), 2));
    assert_eq!(one.canary.load(SeqCst), THERE);
    // Any thread may give a pin back.
    thread::scope(|scope| {
        scope.spawn(move || drop(one));
    });
    drop(cache.pin(&3).unwrap());
    assert!(cache.pin_if_cached(&1).is_none() && cache.pin_if_cached(&2).is_some());
    assert_eq!((two.key(), two.number.load(SeqCst)), (&2, 0));
    assert_eq!(cache.store().counts.most.load(SeqCst), 2);
    let nothing = PageCache::new(Store::plain(), 0);
    assert_eq!(nothing.pin(&1).err(), Some(PinError::Full));
    assert!(nothing.is_empty());
}

#[test]
fn page_in_use_outlives_those_that_are_not() {
    let cache = PageCache::new(Store::plain(), 4);
    for key in 1..100 {
        drop(cache.pin(&key).unwrap());
        drop(cache.pin(&0).unwrap());
    }
    let loads = cache.store().loads.load(SeqCst);
    assert!(loads <= 99 + 5, "the page that is always used was loaded {} times", loads - 99);
}

/// Three threads use one page each. One of four pages is always free, however often all are used.
#[test]
fn pages_used_lately_refuse_no_pin() {
    for form in FORMS {
        let cache = built(Store::plain(), 4, form);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for key in (0..8).cycle().take(2_000) {
                        cache.pin(&key).expect("a page is free").mark_dirty();
                    }
                });
            }
        });
        assert!(cache.store().counts.most.load(SeqCst) <= 4, "more pages than the bound");
    }
}

/// A reclaimer sees page 1 pinned, and then finds the other page pinned, too. By then page 1 is
/// gone.
#[test]
fn room_given_back_during_the_search_is_found() {
    type Kept = Mutex<Vec<Pinned<'static, Store>>>;
    static CACHE: OnceLock<PageCache<Store>> = OnceLock::new();
    static KEPT: Kept = Mutex::new(Vec::new());
    let writes = AtomicUsize::new(0);
    let on_write = Box::new(move || {
        let cache = CACHE.get().unwrap();
        let two = cache.pin(&2).unwrap();
        match writes.fetch_add(1, SeqCst) {
            0 => two.mark_dirty(),
            _ => {
                drop(std::mem::replace(&mut *KEPT.lock().unwrap(), vec![two]));
                assert_eq!(cache.reclaim(1), Ok(1));
            }
        }
        Mood::Works
    });
    let cache =
        CACHE.get_or_init(|| PageCache::new(Store::new(Box::new(|| Mood::Works), on_write), 2));
    KEPT.lock().unwrap().push(cache.pin(&1).unwrap());
    cache.pin(&2).unwrap().mark_dirty();
    assert_eq!(cache.pin(&3).map(|page| *page.key()), Ok(3));
    assert_eq!((cache.store().writes.load(SeqCst), cache.len()), (2, 2));
    KEPT.lock().unwrap().clear();
}

#[test]
fn write_back_that_fails_or_panics_keeps_the_page_and_its_change() {
    for moods in [&[Mood::Fails], &[Mood::Panics]] {
        for way in 0..3 {
            let cache = PageCache::new(Store::new(first(&[]), first(moods)), 1);
            let page = cache.pin(&1).unwrap();
            page.number.store(7, SeqCst);
            page.mark_dirty();
            drop(page);
            let attempt = || match way {
                0 => cache.flush().is_ok(),
                1 => cache.reclaim(1).is_ok(),
                _ => cache.pin(&2).is_ok(),
            };
            assert!(!catch_unwind(AssertUnwindSafe(attempt)).unwrap_or(false), "{way}");
            assert_eq!((cache.store().number(1), cache.len()), (0, 1));
            assert_eq!(cache.pin_if_cached(&1).unwrap().number.load(SeqCst), 7);
            assert!(attempt(), "{way}: it works again");
            assert_eq!(cache.store().number(1), 7);
            assert_eq!(cache.store().writes.load(SeqCst), 2);
            assert_eq!(cache.flush(), Ok(0), "it is clean now");
        }
    }
}

/// A store that uses its own cache, in ways that would make it wait for itself.
struct Inward(Mutex<Option<&'static PageCache<Inward>>>);

impl PageStore for Inward {
    type Key = u32;
    type Page = u32;
    type Error = ();

    fn load(&self, key: &u32) -> Result<u32, ()> {
        let cache = *self.0.lock().unwrap();
        match cache {
            // Another page, and that is fine.
            Some(cache) if *key == 1 => Ok(*cache.pin(&2).map_err(|_| ())? + 1),
            Some(cache) if *key == 3 => Ok(*cache.pin(&3).map_err(|_| ())?),
            _ => Ok(*key),
        }
    }

    fn write_back(&self, _: &u32, _: &u32) -> Result<(), ()> {
        let cache = *self.0.lock().unwrap();
        cache.map_or(Ok(()), |cache| cache.flush().map(drop))
    }
}

#[test]
fn store_that_waits_for_itself_is_told() {
    let cache: &'static _ = Box::leak(Box::new(PageCache::new(Inward(Mutex::new(None)), 4)));
    *cache.store().0.lock().unwrap() = Some(cache);
    assert_eq!(*cache.pin(&1).unwrap(), 3);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.pin(&3).is_ok())).is_err());
    cache.pin(&1).unwrap().mark_dirty();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.flush())).is_err());
    assert_eq!((cache.len(), *cache.pin(&2).unwrap()), (2, 2));
    *cache.store().0.lock().unwrap() = None;
    assert_eq!((cache.flush(), cache.pin(&3).map(|page| *page)), (Ok(1), Ok(3)));
}

/// Threads count in pages while others reclaim and flush, and the store sometimes fails or panics.
/// In the end the store has every count. No thread ever saw a page that was not present.
#[test]
fn no_marked_change_is_lost_and_no_pinned_page_goes() {
    let _alone = env::alone();
    FORMS.into_iter().for_each(pages_under_load);
}

fn pages_under_load(form: Distribution) {
    const KEYS: u32 = 24;
    const PAGES: usize = 8;
    let seed = env::seed();
    let until = env::soak(SHARE);
    let calls = Arc::new(AtomicU32::new(0));
    let mood = |every: u32| -> Moods {
        let calls = Arc::clone(&calls);
        Box::new(move || match calls.fetch_add(1, Relaxed) % every {
            0 => Mood::Fails,
            1 => Mood::Panics,
            _ => Mood::Works,
        })
    };
    let cache = built(Store::new(mood(101), mood(53)), PAGES, form);
    let counted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, counted) = (&cache, &counted);
            scope.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                let mut kept = Vec::new();
                while Instant::now() < until {
                    let key = rng.below(KEYS as usize) as u32;
                    let step = || match rng.below(40) {
                        2 => assert_eq!(cache.distribute(), form != Distribution::Never),
                        3 => assert_eq!(cache.fold(), form != Distribution::Always),
                        0 => drop(cache.flush()),
                        1 => drop(cache.reclaim(3)),
                        _ => {
                            let Ok(page) = cache.pin(&key) else { return };
                            page.number.fetch_add(1, SeqCst);
                            counted[key as usize].fetch_add(1, SeqCst);
                            page.mark_dirty();
                            kept.push(page);
                        }
                    };
                    let _ = catch_unwind(AssertUnwindSafe(step)); // the store's panics
                    for page in &kept {
                        assert_eq!(page.canary.load(SeqCst), THERE, "SEED={seed:#x}");
                    }
                    if kept.len() > 2 {
                        drop(kept.swap_remove(0));
                    }
                }
            });
        }
    });
    // Until nothing is dirty: the store goes on failing now and then.
    while !matches!(catch_unwind(AssertUnwindSafe(|| cache.flush())), Ok(Ok(0))) {}
    for key in 0..KEYS {
        let (store, counts) = (cache.store().number(key), counted[key as usize].load(SeqCst));
        assert_eq!(store, counts, "page {key}, SEED={seed:#x}");
    }
    assert!(cache.store().counts.most.load(SeqCst) <= PAGES, "more pages than the bound");
    while !matches!(catch_unwind(AssertUnwindSafe(|| cache.reclaim(PAGES))), Ok(Ok(0))) {}
    assert_eq!((cache.len(), cache.store().counts.alive.load(SeqCst)), (0, 0));
}

#[allow(missing_docs, reason = "public only as the answer of a public trait must be")]
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Read(u32),
    Write(u32, u64),
    Reclaim,
    Flush,
    Distribution,
    Fold,
}

/// The pages' numbers, modelled as one register each, cached or not.
type Numbers = std::collections::BTreeMap<u32, u64>;

impl Model for Numbers {
    type Call = Call;
    type Answer = u64;

    fn call(rng: &mut Rng) -> Call {
        let (key, value) = (rng.below(2) as u32, rng.below(100) as u64);
        match rng.below(10) {
            0..=2 => Call::Read(key),
            3..=5 => Call::Write(key, value),
            6 => Call::Reclaim,
            7 => Call::Distribution,
            8 => Call::Fold,
            _ => Call::Flush,
        }
    }

    fn answer(&mut self, call: &Call) -> u64 {
        match *call {
            Call::Read(key) => self.get(&key).copied().unwrap_or(0),
            Call::Write(key, value) => self.insert(key, value).unwrap_or(0),
            Call::Reclaim | Call::Flush | Call::Distribution | Call::Fold => 0,
        }
    }
}

impl Subject<Numbers> for PageCache<Store> {
    fn answer(&self, call: &Call) -> u64 {
        let pin = |key| loop {
            match self.pin(&key) {
                Ok(page) => break page,
                // Room for one page, and others have theirs pinned.
                Err(error) => assert_eq!(error, PinError::Full),
            }
            thread::yield_now();
        };
        match *call {
            Call::Read(key) => pin(key).number.load(SeqCst),
            Call::Write(key, value) => {
                let page = pin(key);
                let old = page.number.swap(value, SeqCst);
                page.mark_dirty();
                old
            }
            Call::Reclaim => {
                self.reclaim(1).unwrap();
                0
            }
            Call::Flush => {
                self.flush().unwrap();
                0
            }
            Call::Distribution => {
                self.distribute();
                0
            }
            Call::Fold => {
                self.fold();
                0
            }
        }
    }
}

#[test]
fn histories_are_linearizable() {
    let _alone = env::alone();
    for (pages, form) in FORMS.map(|form| [(1, form), (2, form)]).concat() {
        let until = env::soak(SHARE);
        let make = |_: &mut Rng| built(Store::plain(), pages, form);
        match calls::check::<Numbers, _>(env::seed(), until, make) {
            Ok(histories) => println!("{pages} pages, {form:?}: {histories} histories"),
            Err(report) => panic!("{pages} pages, {form:?}: {report}"),
        }
    }
}
