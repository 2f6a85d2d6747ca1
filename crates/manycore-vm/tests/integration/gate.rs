//! When addresses and frames come back, and how many calls that takes.

use crate::recording::Recording;
use manycore::section::Domain;
use manycore_vm::{ErrorKind, MappingDb, PAGE_BYTES, Rights};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn frame_rests_for_a_tick() {
    const TICK: Duration = Duration::from_millis(30);
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(1), &domain, TICK);
    let space = db.space(8).unwrap();
    let page = db.grant(space, 1, Rights::WRITE).unwrap();
    let begun = Instant::now();
    db.unmap(space, page, 1).unwrap();
    while db.grant(space, 1, Rights::WRITE).is_err() {
        db.tick().unwrap();
        std::thread::yield_now();
    }
    assert!(begun.elapsed() >= TICK, "used again after {:?}", begun.elapsed());
}

#[test]
fn longest_tick_never_comes() {
    let domain = Domain::new();
    for tick in [Duration::MAX, Duration::from_secs(u64::MAX / 1_000_000_000 + 1)] {
        let db = MappingDb::with_tick(Recording::new(1), &domain, tick);
        let space = db.space(8).unwrap();
        db.tick().unwrap(); // begins the first
        let page = db.grant(space, 1, Rights::WRITE).unwrap();
        db.unmap(space, page, 1).unwrap();
        (0..100).for_each(|_| assert_eq!(db.tick().unwrap(), 0, "{tick:?}"));
        assert_eq!(db.flush().unwrap(), 1);
    }
}

#[test]
fn open_section_holds_frames_back_and_stops_no_revocation() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(2), &domain, Duration::ZERO);
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 1, Rights::WRITE).unwrap();
    let seen = db.alias_anywhere(one, page, other, 1, Rights::READ).unwrap();
    let section = domain.enter();
    assert!(db.resolve(other, seen, &section).is_some());
    std::thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(db.unmap(one, page, 1).unwrap(), 2);
            (0..10).for_each(|_| assert_eq!(db.tick().unwrap(), 0));
        });
    });
    assert!(db.resolve(other, seen, &section).is_none());
    assert!(db.backing().access(seen).is_some(), "unmapped under a section");
    assert_eq!((db.pending(), db.free_frames()), (2, 1));
    drop(section);
    assert_eq!(db.flush().unwrap(), 2);
    assert_eq!((db.pending(), db.free_frames(), db.backing().mapped()), (0, 2, 0));
}

#[test]
fn all_that_a_tick_collected_takes_one_call() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(100), &domain, Duration::from_secs(3600));
    let space = db.space(1000).unwrap();
    let pages: Vec<usize> = (0..100).map(|_| db.grant(space, 1, Rights::WRITE).unwrap()).collect();
    // Every second one first: they are adjacent in the end.
    for half in [0, 1] {
        for page in pages.iter().skip(half).step_by(2) {
            db.unmap(space, *page, 1).unwrap();
        }
    }
    assert_eq!(db.flush().unwrap(), 100);
    let counted = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!(counted(&db.backing().unmap_calls), 1);
    assert_eq!(counted(&db.backing().spans), 1, "adjacent pages are joined");
}

#[test]
fn refused_unmapping_waits_and_is_tried_again() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(1), &domain, Duration::ZERO);
    let space = db.space(1).unwrap();
    let page = db.grant(space, 1, Rights::WRITE).unwrap();
    db.unmap(space, page, 1).unwrap();
    db.backing().refuses_unmap.store(true, Ordering::Relaxed);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::System("unmap"));
    assert_eq!(db.grant(space, 1, Rights::WRITE).unwrap_err().kind(), ErrorKind::NoAddresses);
    assert_eq!(db.pending(), 1);
    db.backing().refuses_unmap.store(false, Ordering::Relaxed);
    assert_eq!(db.flush().unwrap(), 1);
    assert_eq!(db.grant(space, 1, Rights::WRITE).unwrap(), page);
}

#[test]
fn page_that_cannot_be_unmapped_holds_its_frame_and_no_other() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(4), &domain, Duration::from_secs(3600));
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 4, Rights::WRITE).unwrap();
    let second = page + PAGE_BYTES;
    let seen = db.alias_anywhere(one, second, other, 1, Rights::READ).unwrap();
    db.backing().refuses_unmap_of.store(seen, Ordering::Relaxed);
    assert_eq!(db.unmap(one, page, 4).unwrap(), 5);
    for _ in 0..2 {
        assert_eq!(db.flush().unwrap_err().range().at, seen);
        // The alias waits, and with it the frame that it leads to.
        assert_eq!((db.pending(), db.free_frames(), db.backing().mapped()), (2, 3, 1));
    }
    let again = db.grant(one, 3, Rights::WRITE).unwrap();
    assert_eq!(db.grant(one, 1, Rights::WRITE).unwrap_err().kind(), ErrorKind::NoFrames);
    db.unmap(one, again, 3).unwrap();
    db.backing().refuses_unmap_of.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(db.flush().unwrap(), 5);
    assert_eq!((db.pending(), db.free_frames(), db.backing().mapped()), (0, 4, 0));
}

#[test]
fn ended_space_gives_its_window_back() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(4), &domain, Duration::from_secs(3600));
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 2, Rights::WRITE).unwrap();
    db.alias_anywhere(one, page, other, 2, Rights::READ).unwrap();
    db.end(other).unwrap();
    assert_eq!(db.backing().windows.load(Ordering::Relaxed), 2);
    db.flush().unwrap();
    assert_eq!(db.backing().windows.load(Ordering::Relaxed), 1);
    let section = domain.enter();
    assert!(db.resolve(one, page + PAGE_BYTES, &section).is_some(), "granted here, and not ended");
}

#[test]
fn deep_derivations_are_revoked_without_a_deep_stack() {
    const DEPTH: usize = 20_000;
    let domain = Domain::new();
    let db = MappingDb::new(Recording::new(1), &domain);
    let space = db.space(DEPTH + 1).unwrap();
    let page = db.grant(space, 1, Rights::WRITE).unwrap();
    let mut at = page;
    for _ in 0..DEPTH {
        at = db.alias_anywhere(space, at, space, 1, Rights::WRITE).unwrap();
    }
    std::thread::scope(|s| {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let revoked = small.spawn_scoped(s, || db.revoke(space, page, 1).unwrap()).unwrap();
        assert_eq!(revoked.join().unwrap(), DEPTH);
    });
    assert!(db.resolve(space, at, &domain.enter()).is_none());
}

#[test]
fn backing_that_panics_leaves_nothing_behind() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(8), &domain, Duration::from_secs(3600));
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 2, Rights::WRITE).unwrap();
    let panics = |call: &dyn Fn()| {
        db.backing().panics.store(true, Ordering::Relaxed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        db.backing().panics.store(false, Ordering::Relaxed);
        let panic = result.expect_err("a panic reaches the caller");
        assert_eq!(panic.downcast_ref(), Some(&"the backing panics"));
    };
    panics(&|| drop(db.grant(one, 3, Rights::WRITE)));
    panics(&|| drop(db.alias_anywhere(one, page, other, 2, Rights::READ)));
    // What may have been mapped rests for a flush, which panics once, too.
    panics(&|| drop(db.flush()));
    assert_eq!(db.pending(), 5);
    assert_eq!(db.flush().unwrap(), 5);
    assert_eq!((db.pending(), db.free_frames()), (0, 6));
    assert!(db.tick().is_ok(), "no lock is left poisoned");
    // A space that ends waits for no page, and is released once.
    db.end(other).unwrap();
    panics(&|| drop(db.flush()));
    assert_eq!(db.end(one).unwrap(), 2);
    db.flush().unwrap();
    assert_eq!((db.free_frames(), db.backing().mapped()), (8, 0));
}
