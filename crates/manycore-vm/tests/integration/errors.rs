//! Bad input: one error that names the range, and nothing has changed.

use crate::recording::Recording;
use manycore::section::{self, Domain};
use manycore_vm::{Error, ErrorKind, MappingDb, Null, PAGE_BYTES, Rights, SpaceId};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn db() -> MappingDb<'static, Recording> {
    MappingDb::new(Recording::new(16), section::global())
}

fn is(error: Error, kind: ErrorKind, at: usize, pages: usize) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!((error.range().at, error.range().pages), (at, pages), "{error}");
    assert!(error.to_string().contains(&format!("{pages} pages at {at:#x}")), "{error}");
}

#[test]
fn bad_ranges_are_refused_by_name() {
    let db = db();
    let space = db.space(8).unwrap();
    let base = db.base(space).unwrap();
    let page = db.grant(space, 2, Rights::WRITE).unwrap();
    let refused = |at, n| db.revoke(space, at, n).unwrap_err();
    is(refused(page, 0), ErrorKind::ZeroPages, page, 0);
    is(refused(page + 1, 1), ErrorKind::Unaligned, page + 1, 1);
    let last = usize::MAX - (PAGE_BYTES - 1);
    is(refused(last, 2), ErrorKind::Wraps, last, 2);
    is(refused(page, usize::MAX), ErrorKind::Wraps, page, usize::MAX);
    is(refused(base, 9), ErrorKind::OutsideSpace, base, 9);
    is(refused(base - PAGE_BYTES, 1), ErrorKind::OutsideSpace, base - PAGE_BYTES, 1);
    is(refused(page + PAGE_BYTES, 2), ErrorKind::NotMapped, page + PAGE_BYTES, 2);

    is(db.grant(space, 0, Rights::READ).unwrap_err(), ErrorKind::ZeroPages, 0, 0);
    is(db.grant(space, 7, Rights::READ).unwrap_err(), ErrorKind::NoAddresses, 0, 7);
    is(db.grant(space, 9, Rights::READ).unwrap_err(), ErrorKind::NoAddresses, 0, 9);
    is(db.space(0).unwrap_err(), ErrorKind::ZeroPages, 0, 0);
    is(db.space(usize::MAX).unwrap_err(), ErrorKind::NoAddresses, 0, usize::MAX);
    assert_eq!(db.backing().mapped(), 2);
}

#[test]
fn bad_aliases_change_nothing() {
    let db = db();
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 3, Rights::READ).unwrap();
    let to = db.base(other).unwrap();
    let refused = |at, to_at, n, rights| db.alias(one, at, other, to_at, n, rights).unwrap_err();
    is(refused(page, to, 1, Rights::WRITE), ErrorKind::RightsGrow, page, 1);
    is(refused(page, to, 4, Rights::READ), ErrorKind::NotMapped, page, 4);
    is(refused(page, to, 0, Rights::READ), ErrorKind::ZeroPages, page, 0);
    is(
        refused(page, to + 7 * PAGE_BYTES, 2, Rights::READ),
        ErrorKind::OutsideSpace,
        to + 7 * PAGE_BYTES,
        2,
    );
    db.alias(one, page, other, to + PAGE_BYTES, 1, Rights::READ).unwrap();
    is(refused(page, to, 3, Rights::READ), ErrorKind::Overlaps, to, 3);
    // The page before the one that overlaps is free again.
    db.alias(one, page, other, to, 1, Rights::READ).unwrap();
    assert_eq!(db.backing().mapped(), 5);
}

#[test]
fn space_that_has_ended_is_refused() {
    let db = db();
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 1, Rights::READ).unwrap();
    let seen = db.alias_anywhere(one, page, other, 1, Rights::READ).unwrap();
    assert_eq!(db.end(one).unwrap(), 2);
    assert!(db.resolve(other, seen, &section::enter()).is_none(), "derived from an ended space");
    is(db.end(one).unwrap_err(), ErrorKind::SpaceEnded, 0, 0);
    // A number that was never given out: as if it were of an extent of ids.
    let never = SpaceId::from_bits(other.to_bits() | 1 << 62).unwrap();
    is(db.end(never).unwrap_err(), ErrorKind::SpaceEnded, 0, 0);
    is(db.grant(one, 1, Rights::READ).unwrap_err(), ErrorKind::SpaceEnded, 0, 1);
    is(db.revoke(one, page, 1).unwrap_err(), ErrorKind::SpaceEnded, page, 1);
    is(
        db.alias(one, page, other, seen, 1, Rights::READ).unwrap_err(),
        ErrorKind::SpaceEnded,
        page,
        1,
    );
    assert!(db.base(one).is_err());
    // A name of another database leads nowhere, too.
    let strange = MappingDb::new(Null::new(1), section::global()).space(1).unwrap();
    assert_eq!(db.base(strange).unwrap_err().kind(), ErrorKind::SpaceEnded);
}

#[test]
fn frames_that_do_not_suffice_are_all_given_back() {
    let db = db();
    let space = db.space(64).unwrap();
    let first = db.grant(space, 10, Rights::WRITE).unwrap();
    is(
        db.grant(space, 7, Rights::WRITE).unwrap_err(),
        ErrorKind::NoFrames,
        first + 10 * PAGE_BYTES,
        7,
    );
    assert_eq!(db.free_frames(), 6);
    db.grant(space, 6, Rights::WRITE).unwrap();
}

#[test]
fn refusal_of_the_backing_leaves_nothing_behind() {
    let domain = Domain::new();
    let db = MappingDb::new(Recording::new(16), &domain);
    let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
    let page = db.grant(one, 2, Rights::READ).unwrap();
    let refuse = |yes| db.backing().refuses_map.store(yes, Ordering::Relaxed);
    refuse(true);
    let error = db.grant(one, 2, Rights::READ).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System("map"));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(db.free_frames(), 14);
    assert!(db.alias_anywhere(one, page, other, 2, Rights::READ).is_err());
    refuse(false);
    let to = db.base(other).unwrap();
    assert!(db.resolve(other, to, &domain.enter()).is_none());
    assert_eq!(db.revoke(one, page, 2).unwrap(), 0, "nothing was derived");
    db.flush().unwrap();
    db.alias(one, page, other, to, 2, Rights::READ).unwrap();
}

#[test]
fn refusal_in_the_middle_is_undone_or_waits() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(6), &domain, Duration::from_secs(3600));
    let space = db.space(20).unwrap();
    let pages: Vec<usize> = (0..6).map(|_| db.grant(space, 1, Rights::READ).unwrap()).collect();
    assert!(pages.iter().step_by(2).all(|page| db.unmap(space, *page, 1).is_ok()));
    db.flush().unwrap();
    db.backing().refuses_map.store(true, Ordering::Relaxed);
    let refused = || db.grant(space, 3, Rights::READ).unwrap_err().kind(); // three runs
    assert_eq!(refused(), ErrorKind::System("map"));
    assert_eq!((db.pending(), db.free_frames(), db.backing().mapped()), (0, 3, 3));
    db.backing().refuses_unmap.store(true, Ordering::Relaxed);
    assert_eq!(refused(), ErrorKind::System("map"));
    assert_eq!((db.pending(), db.free_frames()), (3, 0), "a frame is free and mapped");
    db.backing().refuses_unmap.store(false, Ordering::Relaxed);
    assert_eq!(db.flush().unwrap(), 3);
    assert_eq!((db.pending(), db.free_frames(), db.backing().mapped()), (0, 3, 3));
}
