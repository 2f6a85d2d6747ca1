//! Random operations against a model that is obviously right, on one thread.

use crate::recording::Recording;
use crate::{env, rng::Rng};
use manycore::section::Domain;
use manycore_vm::{ErrorKind, MappingDb, PAGE_BYTES, Rights, SpaceId};
use std::collections::HashMap;
use std::time::Duration;

const WINDOW: usize = 40;
const FRAMES: u32 = 48;
const RIGHTS: [Rights; 3] = [Rights::NONE, Rights::READ, Rights::WRITE];

type Key = (usize, usize);

#[derive(Debug, Clone, Copy)]
struct Page {
    frame: u32,
    rights: Rights,
    parent: Option<Key>,
}

/// Pages by space and address. What is pending is known by the database alone: so an address that
/// is free here may still be refused there, until a flush.
#[derive(Default)]
struct Model {
    pages: HashMap<Key, Page>,
    waiting: Vec<Key>,
}

impl Model {
    fn revoke(&mut self, key: Key) -> usize {
        let children: Vec<Key> =
            self.pages.iter().filter(|(_, page)| page.parent == Some(key)).map(|p| *p.0).collect();
        children.into_iter().map(|child| self.unmap(child)).sum()
    }

    fn unmap(&mut self, key: Key) -> usize {
        let below = self.revoke(key);
        self.pages.remove(&key).expect("mapped");
        self.waiting.push(key);
        below + 1
    }
}

struct Run<'d> {
    db: MappingDb<'d, Recording>,
    domain: &'d Domain,
    spaces: Vec<Option<(SpaceId, usize)>>,
    model: Model,
    rng: Rng,
}

impl Run<'_> {
    /// A space that has not ended, its number and base.
    fn space(&mut self) -> (usize, SpaceId, usize) {
        loop {
            let number = self.rng.below(self.spaces.len());
            if let Some((id, base)) = self.spaces[number] {
                return (number, id, base);
            }
        }
    }

    fn range(&mut self, base: usize) -> (usize, usize) {
        let n = 1 + self.rng.below(4);
        (base + self.rng.below(WINDOW - n) * PAGE_BYTES, n)
    }

    fn keys(number: usize, at: usize, n: usize) -> impl Iterator<Item = Key> + Clone {
        (0..n).map(move |page| (number, at + page * PAGE_BYTES))
    }

    fn grant(&mut self) {
        let (number, id, base) = self.space();
        let n = 1 + self.rng.below(4);
        let rights = *self.rng.pick(&RIGHTS);
        match self.db.grant(id, n, rights) {
            Ok(at) => {
                assert!((base..base + WINDOW * PAGE_BYTES).contains(&at));
                for key in Self::keys(number, at, n) {
                    let section = self.domain.enter();
                    let found = self.db.resolve(id, key.1, &section).expect("granted");
                    assert!(!self.model.waiting.contains(&key), "used before its gate");
                    let shared = self.model.pages.values().any(|page| page.frame == found.frame);
                    assert!(!shared, "frame {} is granted twice", found.frame);
                    let page = Page { frame: found.frame, rights, parent: None };
                    assert!(self.model.pages.insert(key, page).is_none());
                }
            }
            Err(error) => {
                let kinds = [ErrorKind::NoFrames, ErrorKind::NoAddresses];
                assert!(kinds.contains(&error.kind()), "{error}");
                let _ = self.db.flush().expect("unmaps");
                self.model.waiting.clear();
            }
        }
    }

    fn alias(&mut self) {
        let ((one, from, base), (other, to, to_base)) = (self.space(), self.space());
        let ((at, n), (to_at, _)) = (self.range(base), self.range(to_base));
        let rights = *self.rng.pick(&RIGHTS);
        let sources: Vec<_> =
            Self::keys(one, at, n).map(|key| self.model.pages.get(&key)).collect();
        let targets = Self::keys(other, to_at, n);
        let is_within = to_at + n * PAGE_BYTES <= to_base + WINDOW * PAGE_BYTES;
        let is_free = targets
            .clone()
            .all(|key| !self.model.pages.contains_key(&key) && !self.model.waiting.contains(&key));
        let expected = if sources.iter().any(Option::is_none) {
            Some(ErrorKind::NotMapped)
        } else if sources.iter().any(|page| !page.unwrap().rights.includes(rights)) {
            Some(ErrorKind::RightsGrow)
        } else if !is_within {
            Some(ErrorKind::OutsideSpace)
        } else if !is_free {
            Some(ErrorKind::Overlaps)
        } else {
            None
        };
        let done = self.db.alias(from, at, to, to_at, n, rights);
        match (done, expected) {
            (Ok(()), None) => {
                let frames: Vec<u32> = sources.iter().map(|page| page.unwrap().frame).collect();
                for ((key, parent), frame) in targets.zip(Self::keys(one, at, n)).zip(frames) {
                    self.model.pages.insert(key, Page { frame, rights, parent: Some(parent) });
                }
            }
            (Err(error), Some(kind)) => {
                // Several may be wrong with several pages: any of them may be named.
                let both = [ErrorKind::NotMapped, ErrorKind::RightsGrow];
                let is_either = both.contains(&kind) && both.contains(&error.kind());
                assert!(error.kind() == kind || is_either, "{error}, and not {kind:?}");
            }
            (done, expected) => panic!("{done:?} in place of {expected:?}"),
        }
    }

    fn take_back(&mut self, own: bool) {
        let (number, id, base) = self.space();
        let (at, n) = self.range(base);
        let keys = Self::keys(number, at, n);
        let is_mapped = keys.clone().all(|key| self.model.pages.contains_key(&key));
        let done = if own { self.db.unmap(id, at, n) } else { self.db.revoke(id, at, n) };
        match done {
            Ok(removed) => {
                assert!(is_mapped);
                let mut expected = 0;
                for key in keys {
                    // A page of the range may be derived from another.
                    if self.model.pages.contains_key(&key) {
                        expected +=
                            if own { self.model.unmap(key) } else { self.model.revoke(key) };
                    }
                }
                assert_eq!(removed, expected);
            }
            Err(error) => assert!(!is_mapped && error.kind() == ErrorKind::NotMapped, "{error}"),
        }
    }

    fn restrict(&mut self) {
        let (number, id, base) = self.space();
        let at = base + self.rng.below(WINDOW) * PAGE_BYTES;
        let rights = *self.rng.pick(&RIGHTS);
        let key = (number, at);
        let page = self.model.pages.get(&key).copied();
        match self.db.restrict(id, at, 1, rights) {
            Ok(removed) => {
                assert!(page.expect("mapped").rights.includes(rights));
                assert_eq!(removed, self.model.revoke(key));
                self.model.pages.get_mut(&key).expect("mapped").rights = rights;
                let access = self.db.backing().access(at);
                assert_eq!(access.map(|(_, rights)| rights), Some(rights));
            }
            Err(error) if error.kind() == ErrorKind::NotMapped => assert!(page.is_none()),
            Err(_) => assert!(!page.expect("mapped").rights.includes(rights)),
        }
    }

    fn end(&mut self) {
        let (number, id, base) = self.space();
        let removed = self.db.end(id).expect("ends once");
        let mut expected = 0;
        for key in Self::keys(number, base, WINDOW) {
            if self.model.pages.contains_key(&key) {
                expected += self.model.unmap(key);
            }
        }
        assert_eq!(removed, expected);
        let again = self.db.end(id).expect_err("ends once");
        assert_eq!(again.kind(), ErrorKind::SpaceEnded);
        let id = self.db.space(WINDOW).expect("reserves");
        self.spaces[number] = Some((id, self.db.base(id).expect("lives")));
    }

    /// Compares all pages.
    fn check(&self) {
        let section = self.domain.enter();
        for (number, space) in self.spaces.iter().enumerate() {
            let (id, base) = space.expect("lives");
            for key in Self::keys(number, base, WINDOW) {
                let found = self.db.resolve(id, key.1, &section);
                let expected = self.model.pages.get(&key);
                assert_eq!(
                    found.map(|page| (page.frame, page.rights)),
                    expected.map(|page| (page.frame, page.rights)),
                    "{key:?}"
                );
                // What resolves is mapped so.
                if let Some(page) = expected {
                    assert_eq!(self.db.backing().access(key.1), Some((page.frame, page.rights)));
                }
            }
        }
    }
}

#[test]
fn operations_agree_with_a_sequential_model() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    for part in 0..env::rounds(10) as u64 {
        let domain = Domain::new();
        let db = MappingDb::with_tick(Recording::new(FRAMES), &domain, Duration::from_secs(3600));
        let mut run = Run {
            db,
            domain: &domain,
            spaces: vec![None; 3],
            model: Model::default(),
            rng: Rng::part(seed, part),
        };
        for space in &mut run.spaces {
            let id = run.db.space(WINDOW).expect("reserves");
            *space = Some((id, run.db.base(id).expect("lives")));
        }
        for _ in 0..400 {
            match run.rng.below(20) {
                0..=4 => run.grant(),
                5..=12 => run.alias(),
                13..=14 => run.take_back(true),
                15..=17 => run.take_back(false),
                18 => run.restrict(),
                _ if run.rng.once_in(4) => run.end(),
                _ => {
                    let gone = run.db.flush().expect("unmaps");
                    assert_eq!(gone, run.model.waiting.len());
                    run.model.waiting.clear();
                }
            }
            run.check();
        }
        for (id, _) in run.spaces.iter().flatten() {
            run.db.end(*id).expect("ends once");
        }
        let _ = run.db.flush().expect("unmaps");
        assert_eq!(run.db.free_frames(), FRAMES as usize);
        assert_eq!((run.db.pending(), run.db.backing().mapped()), (0, 0));
    }
}
