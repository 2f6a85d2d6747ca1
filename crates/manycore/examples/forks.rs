//! Requests that need a private copy of a shared data set: each forks a copy-on-write view of it,
//! writes some pages, reads some, and drops it. Once with the library and once with a map of shared
//! pages that is cloned at the first write, behind a lock. Prints what each step takes; the
//! argument is how many pages there are (1,000 by default).

use manycore::collections::{PageCache, PageStore, PrivatePages};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::Instant;

type Page = Box<[u8; 4096]>;

/// Pages that were never written.
struct Blank;

impl PageStore for Blank {
    type Key = u64;
    type Page = Page;
    type Error = std::convert::Infallible;

    fn load(&self, _: &u64) -> Result<Page, Self::Error> {
        Ok(Box::new([0; 4096]))
    }

    fn write_back(&self, _: &u64, _: &Page) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// What both can do.
trait View {
    fn read(&self, key: u64) -> u8;
    fn write(&self, key: u64, value: u8);
    fn fork(&self) -> Self;
}

impl View for PrivatePages<Blank> {
    fn read(&self, key: u64) -> u8 {
        self.read(&key).expect("room in the cache")[0]
    }

    fn write(&self, key: u64, value: u8) {
        self.with_mut(&key, |page| page[0] = value).expect("room in the cache");
    }

    fn fork(&self) -> Self {
        self.fork()
    }
}

struct Cloned(RwLock<Arc<HashMap<u64, Arc<Page>>>>);

impl View for Cloned {
    fn read(&self, key: u64) -> u8 {
        self.0.read().expect("no thread panics").get(&key).map_or(0, |page| page[0])
    }

    fn write(&self, key: u64, value: u8) {
        let mut map = self.0.write().expect("no thread panics");
        let page =
            Arc::make_mut(&mut map).entry(key).or_insert_with(|| Arc::new(Box::new([0; 4096])));
        Arc::make_mut(page)[0] = value;
    }

    fn fork(&self) -> Self {
        Self(RwLock::new(self.0.read().expect("no thread panics").clone()))
    }
}

/// Nanoseconds for each of so many calls, the best of three times.
fn time(calls: u64, mut f: impl FnMut(u64)) -> u128 {
    let mut round = || {
        let start = Instant::now();
        (0..calls).for_each(&mut f);
        start.elapsed().as_nanos() / u128::from(calls)
    };
    (0..3).map(|_| round()).min().unwrap_or(0)
}

fn measure(name: &str, view: &impl View, pages: u64) {
    let some = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % pages;
    (0..pages).for_each(|key| view.write(key, 1));
    let read = time(20_000, |number| _ = black_box(view.read(some(number))));
    let write = time(20_000, |number| view.write(some(number), 2));
    let fork = time(20_000, |_| drop(black_box(view.fork())));
    let request = time(200, |number| {
        let own = view.fork();
        (0..10).for_each(|step| own.write(some(number * 10 + step), 3));
        (0..30).for_each(|step| _ = black_box(own.read(some(number * 30 + step))));
    });
    assert!((0..pages).all(|key| view.read(key) < 3), "a request changed what others see");
    println!("{name:<14} ns: read {read}, write {write}, fork {fork}, request {request}");
}

fn main() {
    let pages = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number"));
    measure("PrivatePages", &PrivatePages::new(Arc::new(PageCache::new(Blank, 64))), pages);
    measure("Arc<HashMap>", &Cloned(RwLock::default()), pages);
}
