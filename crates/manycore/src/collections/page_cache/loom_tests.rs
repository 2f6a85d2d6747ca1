//! Models of laws page_cache.G1 to page_cache.G3, page_cache.G5 and page_cache.G8: pins and changes
//! beside a reclaimer, two misses at once, a load that fails, a miss beside pins.

use super::super::{DHashBuilder, Distribution};
use super::{PageCache, PageStore, PinError};
use crate::cluster::Placement;
use crate::percpu::loom_tests::{large_model, model, must_catch};
use crate::sync::{AtomicUsize, Ordering, thread};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// loom's choices must not depend on chance.
#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0
    }
    fn write(&mut self, _: &[u8]) {}
}

struct Counts {
    /// Number of loads that fail.
    fails: usize,
    loads: AtomicUsize,
    drops: AtomicUsize,
    written: AtomicUsize,
}

/// A page that counts its drop in counts that outlive it. So a count reveals a bug, without a look
/// at freed memory.
struct Page(Arc<Counts>, AtomicUsize);

impl Drop for Page {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl PageStore for Arc<Counts> {
    type Key = u8;
    type Page = Page;
    type Error = ();

    fn load(&self, _: &u8) -> Result<Page, ()> {
        if self.loads.fetch_add(1, Ordering::SeqCst) < self.fails {
            return Err(());
        }
        Ok(Page(Arc::clone(self), AtomicUsize::new(self.written.load(Ordering::SeqCst))))
    }

    fn write_back(&self, _: &u8, page: &Page) -> Result<(), ()> {
        self.written.store(page.1.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }
}

type Cache = PageCache<Arc<Counts>, BuildHasherDefault<Constant>>;

/// Distributed, with one place, so that every thread has a part from the start.
fn cache() -> Arc<Cache> {
    built(DHashBuilder::new().placement(Placement::Shared).distribution(Distribution::Always))
}

fn built(table: DHashBuilder) -> Arc<Cache> {
    // Room for two: with one, a miss beside a reclaimer may find the only page being dropped.
    with_room(2, 0, table)
}

fn with_room(pages_max: usize, fails: usize, table: DHashBuilder) -> Arc<Cache> {
    let zero = || AtomicUsize::new(0);
    let counts = Arc::new(Counts { fails, loads: zero(), drops: zero(), written: zero() });
    Arc::new(Cache::with_builder(counts, pages_max, table.hasher(BuildHasherDefault::default())))
}

fn drops(cache: &Cache) -> usize {
    cache.store().drops.load(Ordering::SeqCst)
}

#[test]
fn loom_page_cache_pinned_page_is_not_reclaimed() {
    pinned_page_stays(cache);
}

/// Pins of the central part, which are given back on the page.
#[test]
fn loom_page_cache_in_one_pinned_page_is_not_reclaimed() {
    pinned_page_stays(|| built(DHashBuilder::new().distribution(Distribution::Never)));
}

fn pinned_page_stays(make: fn() -> Arc<Cache>) {
    model(2, move || {
        let shared = make();
        drop(shared.pin(&1).unwrap());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if let Some(page) = shared.pin_if_cached(&1) {
                    assert_eq!(drops(&shared), 0, "a page was dropped under a pin");
                    drop(page);
                }
            })
        };
        let reclaimed = shared.reclaim(1).unwrap();
        assert_eq!(drops(&shared), reclaimed);
        other.join().unwrap();
    });
}

#[test]
fn loom_page_cache_reclaim_after_a_torn_look_is_caught() {
    let test = "loom_page_cache_pinned_page_is_not_reclaimed";
    let test = format!("collections::page_cache::loom_tests::{test}");
    must_catch("torn-gather", &test, &["dropped under a pin", "a pinned page is there"]);
}

#[test]
fn loom_page_cache_in_one_reclaim_after_a_torn_look_is_caught() {
    let test = "loom_page_cache_in_one_pinned_page_is_not_reclaimed";
    let test = format!("collections::page_cache::loom_tests::{test}");
    must_catch("torn-gather", &test, &["dropped under a pin", "a pinned page is there"]);
}

/// A pin is taken in one form and given back in another, beside a reclaimer.
#[test]
fn loom_page_cache_pin_lasts_while_the_table_spreads_and_folds() {
    large_model(2, || {
        let shared = built(DHashBuilder::new());
        drop(shared.pin(&1).unwrap());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if let Some(page) = shared.pin_if_cached(&1) {
                    assert_eq!(drops(&shared), 0, "a page was dropped under a pin");
                    drop(page);
                }
            })
        };
        assert!(shared.distribute());
        assert!(shared.fold());
        let reclaimed = shared.reclaim(1).unwrap();
        assert_eq!(drops(&shared), reclaimed);
        other.join().unwrap();
        assert_eq!(shared.reclaim(1), Ok(1 - reclaimed), "a pin was not given back");
    });
}

#[test]
fn loom_page_cache_marked_change_is_not_lost() {
    model(2, || {
        let shared = cache();
        drop(shared.pin(&1).unwrap());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let page = shared.pin(&1).unwrap();
                page.1.store(7, Ordering::SeqCst);
                page.mark_dirty();
            })
        };
        shared.reclaim(1).unwrap();
        other.join().unwrap();
        shared.flush().unwrap();
        assert_eq!(shared.store().written.load(Ordering::SeqCst), 7, "a change was lost");
        assert_eq!(shared.pin(&1).unwrap().1.load(Ordering::SeqCst), 7);
    });
}

#[test]
fn loom_page_cache_misses_at_once_make_one_load() {
    large_model(2, || {
        let shared = cache();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || drop(shared.pin(&1).unwrap()))
        };
        drop(shared.pin(&1).unwrap());
        other.join().unwrap();
        assert_eq!(shared.store().loads.load(Ordering::SeqCst), 1, "two loads of one page");
        assert_eq!((shared.len(), drops(&shared)), (1, 0));
    });
}

#[test]
fn loom_page_cache_load_without_a_look_is_caught() {
    let test = "loom_page_cache_misses_at_once_make_one_load";
    let test = format!("collections::page_cache::loom_tests::{test}");
    must_catch("second-load", &test, &["two loads of one page"]);
}

#[test]
fn loom_page_cache_failed_load_leaves_room_for_the_next() {
    large_model(2, || {
        let shared = with_room(1, 1, DHashBuilder::new().distribution(Distribution::Never));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.pin(&1).map(drop))
        };
        let mut ends = [shared.pin(&1).map(drop), other.join().unwrap()];
        ends.sort_by_key(Result::is_ok);
        assert_eq!(ends, [Err(PinError::Store(())), Ok(())], "told something else");
        assert_eq!((shared.store().loads.load(Ordering::SeqCst), shared.len()), (2, 1));
    });
}

#[test]
fn loom_page_cache_room_given_back_late_is_caught() {
    let test = "loom_page_cache_failed_load_leaves_room_for_the_next";
    let test = format!("collections::page_cache::loom_tests::{test}");
    must_catch("late-room", &test, &["told something else"]);
}

/// At each moment at most one of the two pages is pinned.
#[test]
fn loom_page_cache_miss_beside_pins_finds_room() {
    large_model(2, || {
        let shared = built(DHashBuilder::new().distribution(Distribution::Never));
        drop(shared.pin(&1).unwrap());
        drop(shared.pin(&2).unwrap());
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || [1, 2].map(|key| drop(shared.pin_if_cached(&key))))
        };
        assert_eq!(shared.pin(&3).map(drop), Ok(()), "a page that was not in use did not go");
        other.join().unwrap();
        assert_eq!((shared.len(), drops(&shared)), (2, 1));
    });
}

#[test]
fn loom_page_cache_full_of_pages_used_lately_is_caught() {
    let test = "loom_page_cache_miss_beside_pins_finds_room";
    let test = format!("collections::page_cache::loom_tests::{test}");
    must_catch("spared-is-full", &test, &["did not go"]);
}
