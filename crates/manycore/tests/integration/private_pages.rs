//! Private pages: every view equals its model, whatever is forked, written and dropped. Chains stay
//! short, copies are freed, and panics lose nothing.
//!
//! `MANYCORE_SOAK=60` runs the random test for 60 seconds. `MANYCORE_SEED=0x12ab` generates the
//! same programs again.

use crate::common::env;
use crate::common::private::Store;
use crate::common::private::{
    Key, Numbers, View, alive, base, may_panic, panics, read, view, write,
};
use crate::common::rng::Rng;
use crate::common::watchdog::ends;
use manycore::collections::{PageCache, PageStore, PinError, PrivatePages};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(350);

#[test]
fn views_see_what_was_there_and_their_own_writes() {
    let one = view(4);
    assert_eq!((read(&one, 1), one.is_private(&Key(1)), one.depth()), (1001, false, 1));
    assert_eq!((write(&one, 1, 7), one.written(), one.copies()), (1001, 1, 1));
    let two = one.fork();
    assert_eq!((one.written(), two.written(), one.depth(), two.depth()), (0, 0, 2, 2));
    assert_eq!((write(&one, 1, 8), write(&two, 2, 9)), (7, 1002));
    assert_eq!((read(&one, 1), read(&one, 2)), (8, 1002));
    assert_eq!((read(&two, 1), read(&two, 2)), (7, 9));
    assert!(two.is_private(&Key(1)) && two.read(&Key(1)).unwrap().is_private());
    assert!(!one.is_private(&Key(2)) && !one.read(&Key(2)).unwrap().is_private());
    // Nothing of it is the cache's, or the store's.
    assert_eq!(one.cache().pin(&Key(1)).unwrap().number(), 1001);
    assert_eq!((one.cache().flush(), one.cache().store().writes.load(SeqCst)), (Ok(0), 0));
    assert_eq!(one.copies(), 3);
    let alive = alive(&one);
    drop((one, two));
    assert_eq!(alive.load(SeqCst), 0);
}

/// A fork of a view adds no layer if the view was not written.
#[test]
fn fork_without_a_write_costs_no_layer() {
    let mut one = view(4);
    write(&one, 1, 7);
    for _ in 0..100 {
        one = one.fork();
        assert_eq!((one.depth(), one.copies(), read(&one, 1)), (2, 1, 7));
    }
}

#[test]
fn page_that_is_held_stays_as_it_is() {
    let one = view(4);
    write(&one, 1, 7);
    let held = one.read(&Key(1)).unwrap();
    let cached = one.read(&Key(2)).unwrap();
    assert_eq!((write(&one, 1, 8), write(&one, 2, 9)), (7, 1002), "a write waits for no reader");
    assert_eq!((held.number(), cached.number()), (7, 1002));
    let fork = one.fork();
    let frozen = fork.read(&Key(1)).unwrap();
    write(&one, 1, 10);
    write(&fork, 1, 11);
    assert_eq!((held.number(), frozen.number(), read(&one, 1), read(&fork, 1)), (7, 8, 10, 11));
    drop((held, cached));
    // No readers: the next write is in place.
    let copies = one.copies();
    (20..40).for_each(|number| _ = write(&one, 1, number));
    assert_eq!(one.copies(), copies);
}

#[test]
fn every_copy_is_shown_and_no_other_page() {
    let one = view(4);
    (0..40).for_each(|key| _ = write(&one, key, 1));
    let two = one.fork();
    (30..50).for_each(|key| _ = write(&two, key, 2));
    drop(two.read(&Key(99)).unwrap());
    let two = two.fork();
    (45..60).for_each(|key| _ = write(&two, key, 3));
    let shown = |view: &View| {
        let mut pages = Vec::new();
        view.for_each(|key, page| pages.push((key.0, page.number())));
        pages.sort_unstable();
        pages
    };
    let number = |key| {
        if key < 30 {
            1
        } else if key < 45 {
            2
        } else {
            3
        }
    };
    assert_eq!(shown(&two), (0..60).map(|key| (key, number(key))).collect::<Vec<_>>());
    assert_eq!(shown(&one), (0..40).map(|key| (key, 1)).collect::<Vec<_>>());
}

#[test]
fn limit_is_kept_and_room_comes_back() {
    let cache = Arc::new(PageCache::new(Store::default(), 4));
    let one = PrivatePages::with_limit(cache, 3);
    (0..3).for_each(|key| _ = write(&one, key, 5));
    let full = |view: &View, key| {
        view.with_mut(&Key(key), |_| unreachable!()).err() == Some(PinError::Full)
    };
    assert!(full(&one, 3));
    assert_eq!((write(&one, 2, 6), one.copies()), (5, 3), "what is there can be written");
    {
        let _held = one.read(&Key(2)).unwrap();
        assert!(full(&one, 2), "what is read needs a copy");
    }
    let two = one.fork();
    assert!(full(&two, 0));
    drop(one);
    assert!(full(&two, 0), "it sees all three");
    assert_eq!((0..3).map(|key| read(&two, key)).collect::<Vec<_>>(), [5, 5, 6]);
    // A fork's own copies go with it.
    let three = view(4);
    let mut all = Vec::new();
    for _ in 0..10 {
        let fork = three.fork();
        write(&fork, 1, 1);
        all.push(fork.copies());
    }
    assert_eq!(all, [1; 10]);
}

fn check(view: &View, model: &Numbers, keys: u32, what: &str) {
    for key in 0..keys {
        let there = model.get(&key).copied();
        assert_eq!(read(view, key), there.unwrap_or(base(key)), "page {key}, {what}");
        assert_eq!(view.is_private(&Key(key)), there.is_some(), "page {key}, {what}");
    }
    let mut shown = Numbers::new();
    view.for_each(|key, page| assert_eq!(shown.insert(key.0, page.number()), None, "{what}"));
    assert_eq!(shown, *model, "{what}");
}

#[test]
fn every_view_equals_its_model() {
    let seed = env::seed();
    let until = env::soak(SHARE);
    let mut round = 0;
    while round == 0 || Instant::now() < until {
        let what = format!("round {round}, MANYCORE_SEED={seed:#x}");
        let mut rng = Rng::part(seed, round);
        let keys = *rng.pick(&[1, 3, 8, 60]);
        let most = *rng.pick(&[2, 4, 12]);
        let first = view(3);
        let alive = alive(&first);
        let mut views = vec![(first, Numbers::new())];
        for step in 0..400 {
            let (at, there) = (rng.below(views.len()), views.len());
            let (view, model) = &mut views[at];
            match rng.below(10) {
                0 | 1 if there < most => {
                    let fork = (view.fork(), model.clone());
                    views.push(fork);
                }
                2 if there > 1 => drop(views.swap_remove(at)),
                3 => check(view, model, keys, &what),
                _ => {
                    let (key, number) = (rng.below(keys as usize) as u32, step);
                    let old = model.insert(key, number).unwrap_or(base(key));
                    assert_eq!(write(view, key, number), old, "{what}");
                }
            }
        }
        for (view, model) in &views {
            check(view, model, keys, &what);
            assert!(view.depth() <= 2 + 4, "depth {}, {what}", view.depth());
        }
        while !views.is_empty() {
            drop(views.swap_remove(rng.below(views.len())));
        }
        assert_eq!(alive.load(SeqCst), 0, "copies are left, {what}");
        round += 1;
    }
}

/// Of each view and its fork, one is dropped, either of them. The layers of the remaining view are
/// joined into one.
#[test]
fn chain_of_dropped_views_is_joined() {
    for drop_parent in [true, false] {
        let mut one = view(4);
        (0..200).for_each(|key| _ = write(&one, key, 1));
        for step in 0..2000 {
            let fork = one.fork();
            let other = if drop_parent { std::mem::replace(&mut one, fork) } else { fork };
            drop(other);
            write(&one, step % 200, u64::from(step));
            assert!(one.depth() <= 3, "depth {} after {step} forks", one.depth());
        }
        // 200 pages, the last layer's, and what waits to be freed.
        assert!(one.copies() <= 201 + 64, "{} copies of 200 pages", one.copies());
        assert_eq!(read(&one, 5), 1805);
        let alive = alive(&one);
        drop(one);
        assert_eq!(alive.load(SeqCst), 0);
    }
}

/// Only the last forks are kept. Copies that only older forks saw are freed.
#[test]
fn copies_of_dropped_forks_are_freed() {
    let one = view(4);
    let mut undo = std::collections::VecDeque::new();
    let mut most = 0;
    for step in 0..3000_u32 {
        (0..5).for_each(|page| _ = write(&one, (step * 7 + page * 13) % 100, u64::from(step)));
        undo.push_back(one.fork());
        if undo.len() > 10 {
            drop(undo.pop_front());
        }
        most = most.max(one.copies());
    }
    // 100 pages, 50 that the forks alone see, and what waits to be freed.
    assert!(most <= 600, "{most} copies of 100 pages");
}

/// The depth grows only with the logarithm of the pages, though no layers can be joined in place.
/// Nothing recurses deeply.
#[test]
fn chain_of_living_views_stays_short() {
    const VIEWS: u32 = if cfg!(miri) { 500 } else { 20_000 };
    for newest_first in [true, false] {
        let mut views = vec![view(4)];
        let mut deepest = 0;
        for step in 0..VIEWS {
            let last = views.last().unwrap();
            write(last, step % 1000, u64::from(step));
            let fork = last.fork();
            deepest = deepest.max(last.depth());
            views.push(fork);
        }
        assert!(deepest <= 8, "{deepest} layers for 1,000 pages"); // log4(1000) and two
        for at in [0, VIEWS / 2, VIEWS - 1] {
            assert_eq!(read(&views[at as usize + 1], at % 1000), u64::from(at));
        }
        let alive = alive(&views[0]);
        if newest_first {
            while views.pop().is_some() {}
        } else {
            views.drain(..).for_each(drop);
        }
        assert_eq!(alive.load(SeqCst), 0);
    }
}

#[test]
fn panics_lose_nothing() {
    let one = view(4);
    let alive = alive(&one);
    write(&one, 1, 7);
    panics("load", || one.with_mut(&Key(2), |_| ()));
    panics("load", || one.read(&Key(2)).map(drop));
    panics("hash", || one.with_mut(&Key(1), |_| ()));
    panics("hash", || one.read(&Key(1)).map(drop));
    panics("clone", || one.with_mut(&Key(2), |_| ()));
    {
        let _held = one.read(&Key(1)).unwrap();
        panics("clone", || one.with_mut(&Key(1), |_| ()));
    }
    panics("closure", || {
        one.with_mut(&Key(1), |page| {
            page.write(8);
            may_panic("closure");
        })
    });
    assert_eq!((read(&one, 1), one.copies()), (8, 1), "what the closure did stays");
    let two = one.fork();
    panics("clone", || two.with_mut(&Key(1), |_| ()));
    one.cache().reclaim(4).unwrap();
    one.cache().store().refuses.store(true, SeqCst);
    assert_eq!(one.with_mut(&Key(2), |_| ()).err(), Some(PinError::Store(())));
    assert_eq!(one.read(&Key(2)).map(drop).err(), Some(PinError::Store(())));
    one.cache().store().refuses.store(false, SeqCst);
    assert_eq!((write(&one, 1, 9), write(&two, 1, 10), write(&two, 2, 11)), (8, 8, 1002));
    assert_eq!((read(&one, 1), read(&one, 2), read(&two, 1), read(&two, 2)), (9, 1002, 10, 11));
    drop((one, two));
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn closure_that_waits_for_itself_is_told() {
    let one = view(4);
    write(&one, 1, 7);
    let mut fork = None;
    one.with_mut(&Key(1), |page| {
        let told = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
        told(&|| drop(one.read(&Key(1))));
        told(&|| _ = one.with_mut(&Key(1), |_| ()));
        // Other pages are fine, and so is a fork: it has this write, when it is done.
        assert_eq!((write(&one, 2, 5), read(&one, 2)), (1002, 5));
        let forked = one.fork();
        told(&|| drop(forked.read(&Key(1))));
        told(&|| _ = one.with_mut(&Key(1), |_| ()));
        assert_eq!((read(&forked, 2), write(&one, 2, 6)), (5, 5));
        page.write(8);
        fork = Some(forked);
    })
    .unwrap();
    let fork = fork.unwrap();
    assert_eq!((read(&one, 1), read(&fork, 1), read(&fork, 2), read(&one, 2)), (8, 8, 5, 6));
    assert_eq!((write(&one, 1, 9), read(&fork, 1)), (8, 8));
}

/// A key whose comparison panics while layers are joined.
#[derive(Debug, Clone, Eq)]
struct Odd(u32);

impl PartialEq for Odd {
    fn eq(&self, other: &Self) -> bool {
        may_panic("eq");
        self.0 == other.0
    }
}

impl Hash for Odd {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

struct Zeros;

impl PageStore for Zeros {
    type Key = Odd;
    type Page = u32;
    type Error = ();

    fn load(&self, _: &Odd) -> Result<u32, ()> {
        Ok(0)
    }

    fn write_back(&self, _: &Odd, _: &u32) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn fork_that_panics_changes_nothing() {
    let one = PrivatePages::new(Arc::new(PageCache::new(Zeros, 4)));
    (0..20).for_each(|key| one.with_mut(&Odd(key), |page| *page = 1).unwrap());
    drop(one.fork());
    (10..30).for_each(|key| one.with_mut(&Odd(key), |page| *page = 2).unwrap());
    panics("eq", || drop(one.fork()));
    let number = |key| if key < 10 { 1 } else { 2 };
    (0..30).for_each(|key| assert_eq!(*one.read(&Odd(key)).unwrap(), number(key)));
    one.with_mut(&Odd(0), |page| *page = 3).unwrap();
    let two = one.fork();
    assert_eq!((two.depth(), *two.read(&Odd(0)).unwrap(), *two.read(&Odd(29)).unwrap()), (2, 3, 2));
}

/// A key; all keys have the same hash. A look-up by a key with a gate stops in `Eq` after the
/// comparison with the number that the gate names.
#[derive(Debug, Clone)]
struct Gated(u32, Option<(u32, Arc<[Barrier; 2]>)>);

impl PartialEq for Gated {
    fn eq(&self, other: &Self) -> bool {
        // The key that is asked for is on one side or on the other.
        for (one, other) in [(self, other), (other, self)] {
            if let Some((_, gate)) = one.1.as_ref().filter(|(at, _)| *at == other.0) {
                gate.iter().for_each(|barrier| _ = barrier.wait());
            }
        }
        self.0 == other.0
    }
}

impl Eq for Gated {}

impl Hash for Gated {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u8.hash(state);
    }
}

struct Numbered;

impl PageStore for Numbered {
    type Key = Gated;
    type Page = u32;
    type Error = ();

    fn load(&self, key: &Gated) -> Result<u32, ()> {
        Ok(key.0)
    }

    fn write_back(&self, _: &Gated, _: &u32) -> Result<(), ()> {
        Ok(())
    }
}

/// A reader stops between two layers. Before it goes on, its view gives the lower layer up. The
/// only other view of that layer then joins the layer with its own writes.
#[test]
fn reader_sees_nothing_of_another_views_writes_in_a_layer_that_its_view_gave_up() {
    ends("a reader between two layers", || {
        let key = |number| Gated(number, None);
        let write = |view: &PrivatePages<Numbered>, number, page| {
            view.with_mut(&key(number), |own| *own = page).expect("there is room");
        };
        let one = PrivatePages::new(Arc::new(PageCache::new(Numbered, 10)));
        write(&one, 1, 10);
        (10..20).for_each(|number| write(&one, number, number));
        let other = one.fork(); // both have a layer with page 1
        // Few enough, and enough, that they take the others in, in a new array.
        (2..5).for_each(|number| write(&one, number, 20));
        write(&other, 1, 11);
        let gate = Arc::new([Barrier::new(2), Barrier::new(2)]);
        thread::scope(|scope| {
            let gated = Gated(1, Some((2, Arc::clone(&gate))));
            let one = &one;
            let reader = scope.spawn(move || *one.read(&gated).expect("there is room"));
            gate[0].wait(); // the reader is in the top of `one`, which is without page 1
            let forks = [one.fork(), other.fork()];
            gate[1].wait();
            assert_eq!(reader.join().expect("it reads"), 10, "that is the other view's page");
            drop(forks);
        });
        assert_eq!((*one.read(&key(1)).unwrap(), *other.read(&key(1)).unwrap()), (10, 11));
    });
}
