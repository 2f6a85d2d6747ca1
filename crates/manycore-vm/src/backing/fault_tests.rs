//! Refuses each system call of each operation in turn, as at the system's limit of mappings. Then
//! compares the system's mappings with the database.

use super::Memfd;
use crate::sys::faults;
use crate::{Error, MappingDb, PAGE_BYTES, Rights, SpaceId};
use manycore::section::Domain;
use std::time::Duration;

const WINDOW: usize = 24;
const FRAMES: usize = 16;

type Db<'d> = MappingDb<'d, Memfd>;

/// A database with two spaces. The pages of the first space have every second frame, so that a
/// grant of several pages has a run for each page.
struct Case<'d> {
    db: Db<'d>,
    domain: &'d Domain,
    spaces: [SpaceId; 2],
    pages: Vec<usize>,
}

/// Returns frame and rights of each mapped page, as the kernel reports them.
fn mapped(from: usize, to: usize) -> Vec<Option<(usize, Rights)>> {
    let mut pages = vec![None; (to - from) / PAGE_BYTES];
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let (rights, offset) = (words.next().unwrap(), number(words.next().unwrap()));
        let (start, end) = (number(start), number(end));
        if !line.contains("manycore-vm") {
            let is_within = start < to && end > from;
            assert!(!is_within || rights.starts_with("---"), "memory that faults not: {line}");
            continue;
        }
        let rights = match &rights[..2] {
            "rw" => Rights::WRITE,
            "r-" => Rights::READ,
            _ => Rights::NONE,
        };
        for at in (start.max(from)..end.min(to)).step_by(PAGE_BYTES) {
            let frame = (offset + at - start) / PAGE_BYTES;
            pages[(at - from) / PAGE_BYTES] = Some((frame, rights));
        }
    }
    pages
}

impl<'d> Case<'d> {
    fn new(domain: &'d Domain) -> Self {
        let backing = Memfd::new(FRAMES as u32).unwrap();
        let db = MappingDb::with_tick(backing, domain, Duration::from_secs(3600));
        let spaces = [(); 2].map(|()| db.space(WINDOW).unwrap());
        let all: Vec<usize> =
            (0..FRAMES).map(|_| db.grant(spaces[0], 1, Rights::WRITE).unwrap()).collect();
        for page in all.iter().skip(1).step_by(2) {
            db.unmap(spaces[0], *page, 1).unwrap();
        }
        db.flush().unwrap();
        Self { db, domain, spaces, pages: all.into_iter().step_by(2).collect() }
    }

    /// Checks that what resolves is mapped that way, and that nothing else is mapped if nothing
    /// waits.
    fn check(&self, what: &str) {
        let section = self.domain.enter();
        for space in self.spaces {
            let Ok(base) = self.db.base(space) else { continue };
            for (page, mapped) in mapped(base, base + WINDOW * PAGE_BYTES).into_iter().enumerate() {
                let found = self.db.resolve(space, base + page * PAGE_BYTES, &section);
                let found = found.map(|found| (found.frame as usize, found.rights));
                if found.is_some() || self.db.pending() == 0 {
                    assert_eq!(mapped, found, "page {page} after {what}");
                }
            }
        }
    }

    /// Unmaps everything, and checks that every frame is free and every page unmapped.
    fn end(&self, what: &str) {
        for space in self.spaces {
            let Ok(base) = self.db.base(space) else { continue };
            for page in 0..WINDOW {
                let _ = self.db.unmap(space, base + page * PAGE_BYTES, 1);
            }
        }
        self.db.flush().unwrap();
        assert_eq!((self.db.pending(), self.db.free_frames()), (0, FRAMES), "{what}");
        self.check(what);
    }
}

/// Runs `call` in new cases, for every `n` with the `n`-th system call refused. If `stays`, all
/// later calls are refused too. `see` gets the result.
fn refuse_each<R>(
    stays: bool,
    prepare: impl Fn(&mut Case<'_>),
    call: impl Fn(&Case<'_>) -> Result<R, Error>,
    see: impl Fn(&Case<'_>, Result<R, Error>),
) {
    for n in 0.. {
        let domain = Domain::new();
        let mut case = Case::new(&domain);
        prepare(&mut case);
        faults::order(n, if stays { usize::MAX } else { 1 });
        let done = call(&case);
        let left = faults::order(usize::MAX, 0);
        if left == if stays { usize::MAX } else { 1 } {
            assert!(n > 0, "no system call was refused");
            assert!(done.is_ok());
            return;
        }
        let what = format!("call {n} was refused, all later ones: {stays}");
        case.check(&what);
        see(&case, done);
        case.check(&what);
        case.end(&what);
    }
}

#[test]
fn refused_grant_changes_nothing() {
    for stays in [false, true] {
        let grant = |case: &Case<'_>| case.db.grant(case.spaces[1], 6, Rights::READ);
        refuse_each(
            stays,
            |_| {},
            grant,
            |case, done| {
                assert_eq!(done.unwrap_err().range().pages, 1, "a run of one page");
                // A call that could not be undone waits for a flush.
                assert!(stays || case.db.pending() == 0);
                case.db.flush().unwrap();
                assert_eq!(case.db.free_frames(), FRAMES / 2);
                assert!(grant(case).is_ok());
            },
        );
    }
}

#[test]
fn refused_alias_and_fewer_rights_change_nothing() {
    for stays in [false, true] {
        let alias = |case: &Case<'_>| {
            let [from, to] = case.spaces;
            let to_at = case.db.base(to)? + 4 * PAGE_BYTES;
            case.db.alias(from, case.pages[0], to, to_at, 1, Rights::READ)?;
            case.db.alias(to, to_at, from, case.pages[0] + PAGE_BYTES, 1, Rights::NONE)
        };
        refuse_each(stays, |_| {}, alias, |_, done| assert!(done.is_err()));
        // Two neighbours with different rights, and a page of another mapping.
        let prepare = |case: &mut Case<'_>| {
            let pages = case.db.grant(case.spaces[1], 4, Rights::WRITE).unwrap();
            case.db.restrict(case.spaces[1], pages, 1, Rights::READ).unwrap();
            case.pages = vec![pages];
        };
        let restrict =
            |case: &Case<'_>| case.db.restrict(case.spaces[1], case.pages[0], 3, Rights::READ);
        refuse_each(stays, prepare, restrict, |case, done| {
            assert_eq!(done.is_err(), stays, "one refusal is answered by the spare entries");
            assert!(restrict(case).is_ok());
        });
    }
}

#[test]
fn refused_flush_is_made_up_for() {
    let flush = |case: &Case<'_>| case.db.flush();
    let prepare = |case: &mut Case<'_>| {
        let [from, to] = case.spaces;
        case.db.alias_anywhere(from, case.pages[1], to, 1, Rights::READ).unwrap();
        for page in &case.pages[..4] {
            case.db.unmap(from, *page, 1).unwrap();
        }
    };
    refuse_each(false, prepare, flush, |case, done| {
        assert!(done.is_ok(), "giving back needs what the system refuses");
        assert_eq!((case.db.pending(), case.db.free_frames()), (0, FRAMES / 2 + 4));
    });
    refuse_each(true, prepare, flush, |case, done| {
        assert!(done.is_err());
        assert!(case.db.flush().is_ok(), "what was refused is lost");
        assert_eq!((case.db.pending(), case.db.free_frames()), (0, FRAMES / 2 + 4));
    });
    // A space that ends either gives its addresses back or keeps them.
    let end = |case: &Case<'_>| {
        case.db.end(case.spaces[0])?;
        case.db.flush()
    };
    refuse_each(
        false,
        |_| {},
        end,
        |case, done| {
            assert!(done.is_ok());
            assert_eq!(case.db.free_frames(), FRAMES);
        },
    );
}
