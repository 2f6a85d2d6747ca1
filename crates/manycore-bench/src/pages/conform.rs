//! Checks that a cache loads a page once, keeps what is in use, and loses no change.

use std::{
    sync::{Barrier, atomic::Ordering},
    thread,
};

use super::{Disk, Pages, Random};

const THREADS: usize = 3;

pub(super) fn conform<C: Pages>() -> Result<(), String> {
    loads_once::<C>()?;
    loses_no_change::<C>()
}

/// All threads want the same pages at the same time.
fn loads_once<C: Pages>() -> Result<(), String> {
    const KEYS: u64 = 50;
    let cache = &C::new(Disk::new(KEYS, 3, 500), 64 * KEYS as usize);
    let together = &Barrier::new(THREADS);
    on_threads(|_| {
        for key in 0..KEYS {
            together.wait();
            let mut seen = None;
            cache.with(key, |page| {
                seen = Some((page.key, page.text.len()));
                false
            });
            if seen != Some((key, 3)) {
                return Err(format!("page {key} is {seen:?}"));
            }
        }
        Ok(())
    })?;
    match cache.disk().loads.load(Ordering::Relaxed) {
        KEYS => Ok(()),
        loads => Err(format!("{KEYS} pages were loaded {loads} times")),
    }
}

/// Few pages fit. A page is changed while others come and go, and all changes reach the store.
fn loses_no_change<C: Pages>() -> Result<(), String> {
    const KEYS: u64 = 256;
    const STEPS: u64 = 1_500;
    let cache = &C::new(Disk::new(KEYS, 0, 0), KEYS as usize / 2);
    on_threads(|thread| {
        let mut random = Random::of(thread);
        for _ in 0..STEPS {
            let (key, other) = ((random.next() >> 32) % KEYS, (random.next() >> 32) % KEYS);
            cache.with(key, |page| {
                page.changes.fetch_add(1, Ordering::Relaxed);
                if other != key {
                    cache.with(other, |_| false);
                }
                page.changes.fetch_add(1, Ordering::Relaxed);
                true
            });
            if other == 0 {
                cache.flush();
            }
        }
        Ok(())
    })?;
    if cache.disk().loads.load(Ordering::Relaxed) <= KEYS {
        return Err("no page was ever evicted".to_owned());
    }
    cache.flush();
    let stored = cache.disk().changes.iter().map(|own| own.load(Ordering::Relaxed)).sum::<u64>();
    let made = 2 * STEPS * THREADS as u64;
    if stored == made { Ok(()) } else { Err(format!("{stored} of {made} changes were stored")) }
}

fn on_threads(work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread panicked")?)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        sync::{Arc, Mutex},
    };

    use super::{
        super::{Disk, Page, Pages, skewed},
        conform,
    };

    /// Forgets a page while it is in use, and loads a page again if `TWICE`.
    struct Forgetful<const TWICE: bool> {
        pages: Mutex<HashMap<u64, Arc<Page>>>,
        room: usize,
        disk: Disk,
    }

    impl<const TWICE: bool> Pages for Forgetful<TWICE> {
        fn new(disk: Disk, room: usize) -> Self {
            Self { pages: Mutex::default(), room, disk }
        }

        fn with(&self, key: u64, f: impl FnOnce(&Page) -> bool) {
            let mut pages = self.pages.lock().unwrap();
            if pages.len() > self.room {
                pages.drain().for_each(|(_, page)| self.disk.write_back(&page));
            }
            let page = match pages.get(&key) {
                Some(page) if !TWICE => Arc::clone(page),
                _ => Arc::new(self.disk.load(key)),
            };
            pages.insert(key, Arc::clone(&page));
            drop(pages);
            f(&page);
        }

        fn flush(&self) {
            let pages = self.pages.lock().unwrap();
            pages.values().for_each(|page| self.disk.write_back(page));
        }

        fn disk(&self) -> &Disk {
            &self.disk
        }
    }

    #[test]
    fn caches_that_load_twice_or_lose_changes_are_found() {
        let twice = conform::<Forgetful<true>>().unwrap_err();
        assert!(twice.contains("loaded"), "{twice}");
        let lost = conform::<Forgetful<false>>().unwrap_err();
        assert!(lost.contains("changes were stored"), "{lost}");
    }

    #[test]
    fn a_tenth_of_the_pages_gets_a_third_of_the_pins() {
        let words = (0..100_000_u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let keys: Vec<u64> = words.map(|word| skewed(word, 1000)).collect();
        assert!(keys.iter().all(|key| *key < 1000));
        let hot = keys.iter().filter(|key| **key < 100).count();
        assert!((30_000..34_000).contains(&hot), "{hot}");
    }
}
