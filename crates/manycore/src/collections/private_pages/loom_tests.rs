//! Models of laws private_pages.F1 to private_pages.F5 and private_pages.F8: the first and a later
//! write beside a fork, a reader beside a write, and a reader beside a fork that joins layers.

use super::super::{DHashBuilder, Distribution, PageStore};
use super::{PageCache, PrivatePages};
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch};
use crate::sync::thread;
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

struct Zeros;

impl PageStore for Zeros {
    type Key = u8;
    type Page = u32;
    type Error = ();

    fn load(&self, _: &u8) -> Result<u32, ()> {
        Ok(0)
    }

    fn write_back(&self, _: &u8, _: &u32) -> Result<(), ()> {
        Ok(())
    }
}

type View = PrivatePages<Zeros, BuildHasherDefault<Constant>>;

/// A view with the number 1 in page 1: in the top, or (`frozen`) below a top that has another page.
fn view(frozen: bool) -> Arc<View> {
    let table =
        DHashBuilder::new().distribution(Distribution::Never).hasher(BuildHasherDefault::default());
    let view = PrivatePages::new(Arc::new(PageCache::with_builder(Zeros, 2, table)));
    write(&view, 1);
    if !frozen {
        return Arc::new(view);
    }
    let view = view.fork();
    view.with_mut(&2, |page| *page = 5).unwrap();
    Arc::new(view)
}

fn write(view: &View, number: u32) {
    view.with_mut(&1, |page| *page = number).unwrap();
}

fn read(view: &View) -> u32 {
    *view.read(&1).unwrap()
}

fn writer(view: &Arc<View>, number: u32) -> thread::JoinHandle<()> {
    let view = Arc::clone(view);
    thread::spawn(move || write(&view, number))
}

fn write_beside_fork(frozen: bool) {
    let view = view(frozen);
    let other = writer(&view, 2);
    // Open until the read: the end of a section that retires pays a fence, in which one that is
    // missing in `freeze` would not show.
    let section = view.family.domain.enter();
    let fork = view.fork();
    let first = read(&fork);
    drop(section);
    assert!([1, 2].contains(&first));
    other.join().unwrap();
    assert_eq!(read(&fork), first, "a fork has changed");
    assert_eq!(read(&view), 2, "a write was lost");
    write(&fork, 3);
    assert_eq!((read(&view), read(&fork)), (2, 3));
}

#[test]
fn loom_private_pages_write_is_wholly_before_a_fork_or_after_it() {
    large_model(3, || write_beside_fork(false));
}

#[test]
fn loom_private_pages_first_write_is_wholly_before_a_fork_or_after_it() {
    large_model(3, || write_beside_fork(true));
}

fn catches(bug: &str, test: &str, sign: &str) {
    let test = format!("collections::private_pages::loom_tests::{test}");
    must_catch(bug, &test, &[&[sign][..], &RACE].concat());
}

#[test]
fn loom_private_pages_write_to_a_frozen_layer_is_caught() {
    let test = "loom_private_pages_write_is_wholly_before_a_fork_or_after_it";
    catches("stale-layer", test, "a fork has changed");
}

#[test]
fn loom_private_pages_freezing_without_a_fence_is_caught() {
    let test = "loom_private_pages_write_is_wholly_before_a_fork_or_after_it";
    catches("unfenced-freeze", test, "a fork has changed");
}

#[test]
fn loom_private_pages_page_that_is_read_stays_as_it_is() {
    model(3, || {
        let view = view(false);
        let other = writer(&view, 2);
        {
            let page = view.read(&1).unwrap();
            let first = *page;
            assert!([1, 2].contains(&first));
            thread::yield_now();
            assert_eq!(*page, first, "a page has changed under its reader");
        }
        other.join().unwrap();
        assert_eq!(read(&view), 2, "a write was lost");
    });
}

#[test]
fn loom_private_pages_write_in_place_under_a_reader_is_caught() {
    let test = "loom_private_pages_page_that_is_read_stays_as_it_is";
    catches("written-under-reader", test, "a page has changed under its reader");
}

/// Two writers of one page that both copy it first.
#[test]
fn loom_private_pages_no_write_is_lost_beside_another() {
    model(3, || {
        let view = view(true);
        let other = {
            let view = Arc::clone(&view);
            thread::spawn(move || view.with_mut(&1, |page| *page += 10).unwrap())
        };
        view.with_mut(&1, |page| *page += 100).unwrap();
        other.join().unwrap();
        assert_eq!(read(&view), 111, "a write was lost");
    });
}

/// A fork joins layers, in place and into a new one, under a reader.
#[test]
fn loom_private_pages_reader_sees_nothing_of_layers_that_are_joined() {
    for shared in [false, true] {
        large_model(3, move || {
            let view = view(true);
            let kept = shared.then(|| view.fork());
            write(&view, 2);
            let other = {
                let view = Arc::clone(&view);
                thread::spawn(move || assert_eq!(read(&view), 2, "a read saw an older page"))
            };
            let fork = view.fork();
            assert_eq!((view.depth(), read(&fork)), (2, 2), "nothing was joined");
            other.join().unwrap();
            assert_eq!(kept.map_or(1, |kept| read(&kept)), 1);
        });
    }
}

/// Two writers write one page first since a fork. One of them forks.
#[test]
fn loom_private_pages_fork_has_its_threads_own_writes() {
    large_model(3, || {
        let view = Arc::new(view(false).fork());
        let other = writer(&view, 2);
        // Else loom begins with this thread's steps, and hardly ever lets the other thread come
        // first.
        thread::yield_now();
        write(&view, 3);
        let fork = read(&view.fork());
        assert_ne!(fork, 1, "a fork is without a write that had returned");
        other.join().unwrap();
    });
}

#[test]
fn loom_private_pages_frame_that_is_counted_late_is_caught() {
    let test = "loom_private_pages_fork_has_its_threads_own_writes";
    catches("late-frame-count", test, "without a write that had returned");
}
