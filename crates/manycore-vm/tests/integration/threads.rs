//! Threads that grant, alias and revoke at the same time.

use crate::recording::Recording;
use crate::{env, rng::Rng};
use manycore::section::Domain;
use manycore_vm::{MappingDb, PAGE_BYTES, Rights, SpaceId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FRAMES: u32 = 64;
const WINDOW: usize = 64;

/// Each thread does everything to everything. What must hold at any time is checked by the backing
/// (no frame is cleared while it is mapped, no address used twice), and at the end: nothing is
/// lost.
#[test]
fn storm_loses_no_frame_and_reuses_none_early() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(FRAMES), &domain, Duration::ZERO);
    let spaces: Vec<SpaceId> = (0..3).map(|_| db.space(WINDOW).unwrap()).collect();
    let bases: Vec<usize> = spaces.iter().map(|space| db.base(*space).unwrap()).collect();
    std::thread::scope(|s| {
        for thread in 0..4 {
            let (db, spaces, bases) = (&db, &spaces, &bases);
            s.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                for _ in 0..env::rounds(4000) {
                    let (one, other) = (rng.below(3), rng.below(3));
                    let at = bases[one] + rng.below(WINDOW) * PAGE_BYTES;
                    let to = bases[other] + rng.below(WINDOW) * PAGE_BYTES;
                    match rng.below(12) {
                        0..=2 => drop(db.grant(spaces[one], 1 + rng.below(2), Rights::WRITE)),
                        3..=6 => drop(db.alias(
                            spaces[one],
                            at,
                            spaces[other],
                            to,
                            1 + rng.below(2),
                            Rights::READ,
                        )),
                        7 => drop(db.unmap(spaces[one], at, 1)),
                        8..=9 => drop(db.revoke(spaces[one], at, 1)),
                        10 if rng.once_in(20) => drop(db.flush().unwrap()),
                        11 if rng.once_in(40) => {
                            let own = db.space(4).unwrap();
                            let _ = db.alias_anywhere(spaces[one], at, own, 1, Rights::READ);
                            if let Ok(page) = db.grant(own, 1, Rights::READ) {
                                let _ = db.alias(own, page, spaces[other], to, 1, Rights::READ);
                            }
                            db.end(own).unwrap();
                        }
                        _ => drop(db.tick().unwrap()),
                    }
                }
            });
        }
    });
    for space in spaces {
        db.end(space).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.free_frames(), FRAMES as usize);
    assert_eq!((db.pending(), db.backing().mapped()), (0, 0));
    assert_eq!(db.backing().windows.load(Ordering::Relaxed), 0);
}

/// While one thread revokes, others derive from what it revokes, at any depth: when it returns, a
/// page that was derived before does not resolve.
#[test]
fn nothing_resolves_that_was_derived_before_a_revocation_returned() {
    let domain = Domain::new();
    let db = MappingDb::with_tick(Recording::new(8), &domain, Duration::ZERO);
    let (one, other) = (db.space(8).unwrap(), db.space(4096).unwrap());
    let page = db.grant(one, 1, Rights::WRITE).unwrap();
    let first = db.base(other).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..2 {
            let (db, domain, done) = (&db, &domain, &done);
            s.spawn(move || {
                let mut rng = Rng::new(thread);
                let (mut found, mut at) = (0_u64, page);
                while !done.load(Ordering::Relaxed) {
                    let from = if at == page { one } else { other };
                    match db.alias_anywhere(from, at, other, 1, Rights::WRITE) {
                        Ok(seen) if rng.once_in(3) => at = seen,
                        _ => at = page,
                    }
                    found += u64::from(db.resolve(other, at, &domain.enter()).is_some());
                    if rng.once_in(8) && at != page {
                        let _ = db.unmap(other, at, 1);
                    }
                }
                std::hint::black_box(found);
            });
        }
        for _ in 0..env::rounds(300) {
            // The parent goes, so nothing is derived any more: all of `other` must be empty.
            db.unmap(one, page, 1).unwrap();
            let section = domain.enter();
            for index in 0..64 {
                let at = first + index * PAGE_BYTES;
                assert!(db.resolve(other, at, &section).is_none(), "page {index} still resolves");
            }
            drop(section);
            while db.grant(one, 1, Rights::WRITE).map_or(true, |at| at != page) {
                // The same address again, after its gate.
                let base = db.base(one).unwrap();
                for index in 0..8 {
                    let _ = db.unmap(one, base + index * PAGE_BYTES, 1);
                }
                db.flush().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
