//! Sets of one domain (laws ldu.F1 to ldu.F3): reads of all of them are one moment, and a member
//! that is queued may serve another set.

use super::{Numbers, spawn};
use crate::ldu::{DeferredSet, Linked, Links, SetDomain, SetId, SetMap, SetMember, Structure};
use crate::percpu::loom_tests::model;
use crate::sync::UnsafeCell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

/// A member whose set is a cell that loom watches.
struct Link {
    links: Links,
    home: UnsafeCell<(SetId, u32)>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Link {}

// SAFETY: the offset is the field's, which is used for this alone.
unsafe impl Linked for Link {
    const LINKS: usize = offset_of!(Link, links);
}

// SAFETY: loom checks that the answer is the owner's to change.
unsafe impl SetMember for Link {
    fn set(&self) -> SetId {
        self.get().0
    }
}

impl Link {
    fn boxed(set: SetId, number: u32) -> Box<Self> {
        Box::new(Self { links: Links::new(), home: UnsafeCell::new((set, number)) })
    }

    fn get(&self) -> (SetId, u32) {
        // SAFETY: loom checks that there is no concurrent write.
        self.home.with(|home| unsafe { *home })
    }
}

impl Structure<Link> for Numbers {
    fn insert(&mut self, link: &Link) {
        let number = link.get().1;
        assert!(!self.0.contains(&number), "{number} is told twice");
        self.0.push(number);
    }

    fn remove(&mut self, link: &Link) {
        let number = link.get().1;
        let place = self.0.iter().position(|own| *own == number);
        self.0.swap_remove(place.unwrap_or_else(|| panic!("{number} was never told")));
    }
}

type Domain = SetDomain<Numbers, Link>;

fn domain() -> Arc<Domain> {
    Arc::new(DeferredSet::new(SetMap::new(Numbers::default)))
}

fn numbers(domain: &Domain, set: SetId) -> Vec<u32> {
    domain.set(set).read().0.clone()
}

/// One thread moves a process from one set to another: no read finds it in both. Both links are
/// queued before, so that a read without a cut could take one as it was and the other as it is.
#[test]
fn loom_ldu_set_domain_read_of_two_sets_is_one_moment() {
    model(3, || {
        let domain = domain();
        let (here, there) = (SetId::new(), SetId::new());
        let other = spawn(&domain, move |domain| {
            let x = domain.insert(Link::boxed(there, 1)).remove();
            let y = domain.insert(Link::boxed(here, 2));
            let y = y.remove();
            std::mem::forget((x.insert(), y));
        });
        let seen = domain.read();
        let has = |set| seen.get(set).is_some();
        assert!(!has(here) || !has(there), "what is in both sets was never the set");
        drop(seen);
        other.join().unwrap();
        assert_eq!(numbers(&domain, there), [1], "a change was lost");
        assert_eq!(domain.read().len(), 1);
    });
}

/// One link serves two sets in turn beside a reader: never both, and the thread that frees it is
/// last.
#[test]
fn loom_ldu_set_domain_recycled_link_moves_to_another_set() {
    model(3, || {
        let domain = domain();
        let (first, second) = (SetId::new(), SetId::new());
        let other = spawn(&domain, move |domain| {
            let link = NonNull::from(Box::leak(Link::boxed(first, 1)));
            // SAFETY: the link is in this domain alone, and is used no more if it is not idle.
            unsafe {
                domain.insert_raw(link);
                if domain.recycle_raw(link) {
                    link.as_ref().home.with_mut(|home| *home = (second, 2));
                    domain.insert_raw(link);
                    domain.retire_raw(link);
                }
            }
        });
        let seen = domain.read();
        let (one, two) = (seen.get_or_empty(first).0.clone(), seen.get_or_empty(second).0.clone());
        assert!(matches!((&one[..], &two[..]), ([], [] | [2]) | ([1], [])), "{one:?}, {two:?}");
        drop(seen);
        other.join().unwrap();
        assert!(domain.read().is_empty());
    });
}
