//! The page pool.

use crate::{env, rng::Rng};
use manycore_vm::{ErrorKind, PAGE_BYTES, PagePool, Pages};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc;

#[test]
fn zeroed_pages_hold_zeros_and_others_may_not() {
    let pool = PagePool::new(4).unwrap();
    let mut page = pool.alloc(1).unwrap();
    page.fill(7);
    drop(page);
    let pages: Vec<Pages<'_>> = (0..4).map(|_| pool.alloc_zeroed(1).unwrap()).collect();
    assert!(pages.iter().all(|page| page.iter().all(|byte| *byte == 0)));
    drop(pages);
    let mut all = pool.alloc(4).unwrap();
    all.fill(9);
    drop(all);
    assert!(pool.alloc_zeroed(4).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn bound_is_hard_and_every_page_is_reached() {
    let pool = PagePool::new(100).unwrap();
    let pages: Vec<Pages<'_>> = (0..100).map(|_| pool.alloc(1).unwrap()).collect();
    let refused = pool.alloc(1).unwrap_err();
    assert_eq!((refused.kind(), refused.range().pages), (ErrorKind::NoFrames, 1));
    let mut indexes: Vec<usize> = pages.iter().map(Pages::index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..100).collect::<Vec<_>>());
    drop(pages);
    // Singles join again.
    assert_eq!(pool.alloc(100).unwrap().len(), 100 * PAGE_BYTES);
    assert_eq!(pool.idle(), 100);
}

#[test]
fn bad_requests_are_refused_by_name() {
    let pool = PagePool::new(16).unwrap();
    let kind = |refused: Result<Pages<'_>, manycore_vm::Error>| refused.unwrap_err().kind();
    assert_eq!(kind(pool.alloc(0)), ErrorKind::ZeroPages);
    assert_eq!(kind(pool.alloc(17)), ErrorKind::NoFrames);
    assert_eq!(kind(pool.alloc(usize::MAX)), ErrorKind::NoFrames);
    assert_eq!(kind(pool.alloc_aligned(1, 3)), ErrorKind::Unaligned);
    assert_eq!(kind(pool.alloc_aligned(1, 0)), ErrorKind::Unaligned);
    assert_eq!(kind(pool.alloc_aligned(1, 1 << 40)), ErrorKind::Unaligned);
    assert_eq!(kind(pool.alloc_aligned(1, 1 << 63)), ErrorKind::Unaligned);
    assert_eq!(PagePool::new(0).unwrap_err().kind(), ErrorKind::ZeroPages);
    assert!(PagePool::builder(1).node(5000).build().is_err());
    assert_eq!(pool.idle(), 16);
}

#[test]
fn huge_pools_are_aligned_and_bind_to_the_first_node() {
    let pool = PagePool::builder(2048).huge_pages(true).build().unwrap();
    let _page = pool.alloc(1).unwrap();
    let run = pool.alloc_aligned(512, 512).unwrap();
    assert_eq!(run.as_ptr().addr() % (512 * PAGE_BYTES), 0);
    // A kernel without NUMA says so.
    match PagePool::builder(8).node(0).build() {
        Ok(pool) => pool.alloc(8).unwrap().fill(1),
        Err(error) => assert_eq!(error.kind(), ErrorKind::System("mbind"), "{error}"),
    }
}

#[test]
fn memory_beyond_what_is_kept_goes_back() {
    let pool = PagePool::builder(4096).keep(100).build().unwrap();
    let mut run = pool.alloc(4096).unwrap();
    run.fill(1);
    assert_eq!(pool.resident(), 4096);
    drop(run);
    assert!(pool.resident() <= 100, "{} pages keep their memory", pool.resident());
    let pages: Vec<Pages<'_>> = (0..50).map(|_| pool.alloc(1).unwrap()).collect();
    drop(pages);
    pool.trim();
    assert_eq!(pool.resident(), 0);
    assert!(pool.alloc_zeroed(4096).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn pool_keeps_any_number_of_idle_pages() {
    for keep in [usize::MAX, usize::MAX / 5 * 4, usize::MAX - 256] {
        let pool = PagePool::builder(600).keep(keep).build().unwrap();
        pool.alloc(600).unwrap().fill(1);
        drop((0..600).map(|_| pool.alloc(1).unwrap()).collect::<Vec<_>>());
        assert_eq!((pool.idle(), pool.resident()), (600, 600));
    }
}

/// Each page is filled with its owner's number, and checked before it goes: by the owner or, passed
/// on, by another thread.
#[test]
fn pages_have_one_owner_each() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let pool = PagePool::builder(600).keep(64).build().unwrap();
    let queue = Mutex::new(VecDeque::new());
    std::thread::scope(|s| {
        for thread in 0..4_u8 {
            let (pool, queue) = (&pool, &queue);
            s.spawn(move || {
                let mut rng = Rng::part(seed, thread.into());
                let mut own: Vec<(Pages<'_>, u8)> = Vec::new();
                let check = |(page, mark): &(Pages<'_>, u8)| {
                    assert!(page.iter().step_by(97).all(|byte| byte == mark));
                };
                for round in 0..env::rounds(4000) {
                    if own.len() < 20 && rng.below(2) == 0 {
                        let n = if rng.once_in(10) { 1 + rng.below(20) } else { 1 };
                        let zeroed = rng.once_in(3);
                        let got = if zeroed { pool.alloc_zeroed(n) } else { pool.alloc(n) };
                        let Ok(mut pages) = got else { continue };
                        assert!(!zeroed || pages.iter().step_by(61).all(|byte| *byte == 0));
                        let mark = (round as u8) ^ (thread << 6);
                        pages.fill(mark);
                        own.push((pages, mark));
                    } else if !own.is_empty() {
                        let pages = own.swap_remove(rng.below(own.len()));
                        check(&pages);
                        let mut queue = queue.lock().unwrap();
                        if rng.once_in(2) {
                            queue.push_back(pages);
                        }
                        let passed = if queue.len() > 8 { queue.pop_front() } else { None };
                        drop(queue);
                        passed.iter().for_each(check);
                    }
                }
            });
        }
    });
    queue.into_inner().unwrap().clear();
    assert_eq!(pool.idle(), 600);
}

#[test]
fn thread_without_pages_takes_those_that_another_freed() {
    let pool = PagePool::new(64).unwrap();
    let (send, receive) = mpsc::channel();
    std::thread::scope(|s| {
        let pool = &pool;
        s.spawn(move || {
            for _ in 0..1000 {
                // Never refused: at most 33 are out.
                let page = pool.alloc(1).expect("idle pages are on the other's shelf");
                send.send(page).unwrap();
                while pool.idle() < 32 {
                    std::thread::yield_now();
                }
            }
        });
        s.spawn(move || receive.iter().for_each(drop));
    });
    assert_eq!(pool.idle(), 64);
}
