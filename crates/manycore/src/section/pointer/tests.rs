//! Nodes of every kind of type, and every operation on the pointers to them, in runs small enough
//! for Miri.

use super::super::{Domain, Mode, NodeLock, OwnedSection, Section, unprotected};
use super::{Atomic, Owned, Pointable, Shared};
use crate::sync::{AtomicUsize, Ordering::SeqCst, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Freed = Arc<AtomicUsize>;

/// Counts itself when it is dropped.
struct Counted(Freed);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted(number: usize, freed: &Freed) -> Vec<Counted> {
    (0..number).map(|_| Counted(Arc::clone(freed))).collect()
}

fn end<T: ?Sized + Pointable>(link: Atomic<T>) {
    // SAFETY: the test is over; no other thread has the link.
    drop(unsafe { link.into_owned() });
}

fn text_in(said: Box<dyn std::any::Any + Send>) -> String {
    match said.downcast::<String>() {
        Ok(text) => *text,
        Err(said) => said.downcast_ref::<&str>().expect("a text").to_string(),
    }
}

const MODES: [Mode; 2] = [Mode::Epoch, Mode::Bounded];

#[test]
fn nodes_of_slices_are_read_by_one_thread_while_another_replaces_and_retires_them() {
    for mode in MODES {
        let freed = Freed::default();
        let domain = Domain::builder().mode(mode).batch_nodes(1).build().unwrap();
        let link: Atomic<[Counted]> = Owned::<[_]>::from(counted(3, &freed)).into();
        thread::scope(|scope| {
            let read = || {
                let section = domain.enter();
                let items = link.load(&section).as_ref().unwrap();
                assert!(items.iter().all(|item| Arc::strong_count(&item.0) > 0));
                items.len()
            };
            scope.spawn(|| {
                for length in [0, 1, 7] {
                    let section = domain.enter();
                    let old = link.swap(Owned::<[_]>::from(counted(length, &freed)), &section);
                    // SAFETY: unlinked by the swap, and it has no links.
                    unsafe { section.retire(old) };
                }
            });
            (0..3).for_each(|_| assert!([3, 0, 1, 7].contains(&read())));
        });
        end(link);
        drop(domain);
        assert_eq!(freed.load(SeqCst), 3 + 1 + 7);
    }
}

#[repr(align(64))]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line(u8);

#[test]
fn slices_of_any_alignment_and_length_are_kept() {
    fn keeps<T: Copy + PartialEq + std::fmt::Debug>(item: T) {
        for length in [0, 1, 2, 5] {
            let items = vec![item; length];
            let node: Owned<[T]> = items.as_slice().into();
            assert_eq!((&*node, node.as_ptr().addr() % align_of::<T>()), (&*items, 0));
            let link = Atomic::from(node);
            // SAFETY: no other thread has it.
            let section = unsafe { unprotected() };
            assert_eq!(link.load(section).as_ref().unwrap(), &*items);
            // SAFETY: as before.
            assert_eq!(unsafe { link.into_owned() }.unwrap().into_vec(), items);
            assert_eq!(items.iter().copied().collect::<Owned<[T]>>().as_ref(), &*items);
            assert_eq!(&*Owned::<[T]>::from(items.clone().into_boxed_slice()), &*items);
        }
    }
    keeps(());
    keeps(7_u8);
    keeps(7_u128);
    keeps(Line(7));
    assert_eq!((Shared::<[Line]>::MAX_TAG, Shared::<[u8]>::MAX_TAG), (63, 7));
}

#[test]
fn texts_are_nodes_too() {
    let domain = Domain::new();
    let link: Atomic<str> = Owned::<str>::from("grey").into();
    let section = domain.enter();
    let seen = link.load(&section);
    assert_eq!(seen.as_ref(), Some("grey"));
    let old = link.swap(Owned::from(String::from("green")), &section);
    // SAFETY: unlinked by the swap, and it has no links.
    unsafe { section.retire(old) };
    assert_eq!(seen.as_ref(), Some("grey"), "kept by the section");
    assert_eq!(link.load(&section).as_ref(), Some("green"));
    assert_eq!(format!("{} {:?}", Owned::<str>::from("a"), Owned::<str>::from("a")), "a \"a\"");
    drop(section);
    end(link);
}

#[test]
fn item_that_panics_when_it_is_dropped_leaves_the_others_dropped_and_the_memory_freed() {
    struct Fuse(Freed, bool);
    impl Drop for Fuse {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            assert!(!self.1, "blown");
        }
    }
    let freed = Freed::default();
    let items = [false, true, false].map(|blows| Fuse(Arc::clone(&freed), blows));
    let node = Owned::<[Fuse]>::from_iter(items);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(node))).is_err());
    assert_eq!(freed.load(SeqCst), 3);
}

#[test]
fn boxes_become_nodes_and_nodes_boxes() {
    let freed = Freed::default();
    let node: Owned<Counted> = Box::new(Counted(Arc::clone(&freed))).into();
    let boxed: Box<Counted> = node.into_box();
    assert_eq!(freed.load(SeqCst), 0, "moved");
    let link = Atomic::new(*boxed);
    end(link);
    assert_eq!(freed.load(SeqCst), 1);
    let dynamic: Owned<Box<dyn Fn() -> u8 + Send>> = Owned::new(Box::new(|| 7));
    assert_eq!(dynamic(), 7);
}

/// Neither Send nor Sync because of the raw pointer.
struct Rawly {
    _freed: Counted,
    owner: *const u8,
    lock: NodeLock,
}

#[test]
fn node_that_is_not_send_is_freed_by_another_thread_than_the_one_that_retired_it() {
    struct Links([Atomic<Rawly>; 3]);
    // SAFETY: a node's pointer is never followed, and the rest of a node is Send and Sync.
    unsafe impl Sync for Links {}

    let freed = Freed::default();
    let domain = Domain::new();
    let node = || Rawly {
        _freed: Counted(Arc::clone(&freed)),
        owner: std::ptr::null(),
        lock: NodeLock::new(),
    };
    let links = Links([Atomic::new(node()), Atomic::new(node()), Atomic::new(node())]);
    let outer = domain.enter();
    let first = links.0[0].load(&outer).as_ref().unwrap();
    thread::scope(|scope| {
        let (domain, links) = (&domain, &links);
        scope.spawn(move || {
            let section = domain.enter();
            let [plain, weighed, locked] = &links.0;
            let found = locked.load(&section);
            let guard = found.as_ref().unwrap().lock.lock(&section).unwrap();
            // SAFETY: unlinked by the swaps, without links; any thread may drop a `Rawly`.
            unsafe {
                section.retire(plain.swap(Shared::null(), &section));
                section.retire_weighed(weighed.swap(Shared::null(), &section), 64_usize);
                guard.retire(locked.swap(Shared::null(), &section), &section);
            }
        });
    });
    assert!(first.owner.is_null() && freed.load(SeqCst) == 0, "held by the outer section");
    drop(outer);
    domain.collect();
    domain.collect();
    assert_eq!(freed.load(SeqCst), 3);
}

#[test]
fn tags_take_every_bit_that_the_alignment_leaves() {
    for mode in MODES {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let section = domain.enter();
        let (small, wide) = (Atomic::new(1_u8), Atomic::new(Line(1)));
        for tag in 0..=7 {
            assert_eq!(small.load(&section).with_tag(tag).tag(), tag);
        }
        assert_eq!(wide.fetch_or(0b101_000, &section).tag(), 0);
        assert_eq!(wide.fetch_xor(0b111_111, &section).tag(), 0b101_000);
        assert_eq!(wide.fetch_and(0b110_100, &section).tag(), 0b010_111);
        let now = wide.load(&section);
        assert_eq!(now.tag(), 0b010_100);
        assert_eq!(now.as_ref().is_none(), mode == Mode::Bounded, "wild where it is bounded");
        // SAFETY: the node stays linked.
        assert_eq!(unsafe { now.assume_linked() }.as_ref(), Some(&Line(1)));
        assert!(!now.is_null() && Shared::<u8>::null().with_tag(3).is_null());
        let small_tag = || small.fetch_or(8, &section).tag();
        let said = catch_unwind(AssertUnwindSafe(small_tag)).unwrap_err();
        assert!(text_in(said).contains("0 to 7, and this is 8"));
        drop(section);
        end(small);
        end(wide);
    }
}

#[test]
fn weak_exchange_and_update_give_back_what_they_did_not_link() {
    for mode in MODES {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let section = domain.enter();
        let link = Atomic::new(1);
        let first = link.load(&section);
        let lost = link.compare_exchange_weak(Shared::null(), Owned::new(2), &section).unwrap_err();
        assert_eq!((lost.current, *lost.new), (first, 2));
        let mut new = lost.new;
        while let Err(lost) = link.compare_exchange_weak(first, new, &section) {
            new = lost.new; // failed spuriously
        }
        let none = link.fetch_update(&section, |_| None::<Owned<i32>>).unwrap_err();
        assert_eq!(none.as_ref(), Some(&2));
        let add = |old: Shared<'_, i32>| Some(Owned::new(old.as_ref()? + 40));
        let old = link.fetch_update(&section, add).unwrap();
        assert_eq!((old, link.load(&section).as_ref()), (none, Some(&42)));
        let last = link.take(&section);
        assert!(link.load(&section).is_null());
        for node in [first, old, last] {
            // SAFETY: each was unlinked once, and has no links.
            unsafe { section.retire(node) };
        }
    }
}

#[test]
fn pointers_compare_print_and_are_made_as_those_of_the_standard_library() {
    let domain = Domain::new();
    let section = domain.enter();
    let link = Atomic::new(7);
    let seen = link.load(&section);
    let again = Atomic::from(seen.with_tag(1)); // a second link
    assert_eq!(again.load(&section), seen.with_tag(1));
    assert!(seen < seen.with_tag(1) && Shared::default() < seen);
    let set = std::collections::HashSet::from([seen, seen.with_tag(1), seen]);
    assert_eq!(set.len(), 2);
    let address = format!("{seen:p}");
    assert_eq!((format!("{link:p}"), format!("{again:p}")), (address.clone(), address.clone()));
    assert_eq!(format!("{again:?}"), format!("Atomic {{ node: {address}, tag: 1 }}"));
    assert_eq!(seen.as_ptr(), std::ptr::from_ref(seen.as_ref().unwrap()));
    assert!(Shared::<u8>::null().as_ptr().is_null());
    assert_eq!((*Owned::<u8>::default(), *Owned::new(3).clone(), *Owned::from(4)), (0, 3, 4));
    // SAFETY: linked twice, and this thread alone has both links and no reference.
    unsafe { *seen.as_mut().unwrap() = 8 };
    assert_eq!(again.load(&section).as_ref(), Some(&8));
    let unlinked = link.take(&section);
    // SAFETY: linked only in `again`, which is not used any more.
    assert_eq!(*unsafe { unlinked.into_owned() }.unwrap(), 8);
}

#[test]
fn owned_section_moves_between_threads_protects_and_retires() {
    for mode in MODES {
        let freed = Freed::default();
        let domain = Arc::new(Domain::builder().mode(mode).batch_nodes(1).build().unwrap());
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        let replace = |section: &Section<'_>| {
            let old = link.swap(Owned::new(Counted(Arc::clone(&freed))), section);
            // SAFETY: unlinked by the swap, and it has no links.
            unsafe { section.retire(old) };
        };
        let collect = || (0..4).for_each(|_| domain.collect());
        let section: OwnedSection<'static> = domain.enter_arc();
        let first = link.load(&section).as_ref().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| replace(&domain.enter())).join().unwrap();
        });
        assert!(!domain.is_inside(), "{domain:?}");
        collect();
        assert_eq!((freed.load(SeqCst), Arc::strong_count(&first.0)), (0, 3));
        let mut section = thread::scope(|scope| {
            let there = move || {
                replace(&section);
                section // not closed
            };
            scope.spawn(there).join().unwrap()
        });
        collect();
        assert_eq!(freed.load(SeqCst), 0, "it could hold both");
        section.refresh();
        collect();
        assert!(freed.load(SeqCst) >= 1, "{domain:?}");
        drop(section);
        collect();
        assert_eq!(freed.load(SeqCst), 2);
        domain.synchronize();
        end(link);
    }
}

#[test]
fn owned_sections_keep_their_domain_and_give_their_slots_back() {
    let freed = Freed::default();
    let section = {
        let domain = Arc::new(Domain::new());
        let section = domain.enter_arc();
        let counted = Counted(Arc::clone(&freed));
        section.defer(move || drop(counted));
        section
    };
    assert_eq!(freed.load(SeqCst), 0);
    drop(section);
    assert_eq!(freed.load(SeqCst), 1, "with the domain");
    let domain = Domain::bounded();
    let slots = || (0..20).map(|_| domain.enter_owned().slot()).max();
    let both = [domain.enter_owned(), domain.enter_owned()];
    assert_ne!(both[0].slot(), both[1].slot());
    assert!(both[0].slot().max(both[1].slot()) <= slots().unwrap());
    assert!(slots() < Some(20), "each takes a slot that was not given back");
}

#[test]
fn task_that_keeps_an_owned_section_across_an_await_is_send() {
    async fn task(link: &Atomic<String>, domain: &Domain) -> usize {
        let section = domain.enter_owned();
        let text = link.load(&section).as_ref().unwrap();
        std::future::ready(()).await;
        text.len()
    }
    fn poll<F: Future + Send>(future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(result) => Some(result),
            std::task::Poll::Pending => None,
        }
    }
    let (link, domain) = (Atomic::new(String::from("abc")), Domain::new());
    assert_eq!(poll(task(&link, &domain)), Some(3));
    end(link);
}

#[test]
fn what_is_retired_or_deferred_unprotected_is_done_at_once() {
    let freed = Freed::default();
    let link: Atomic<[Counted]> = Owned::<[_]>::from(counted(2, &freed)).into();
    // SAFETY: no other thread has the link, and what is retired is not used afterwards.
    let section = unsafe { unprotected() };
    let old = link.swap(Owned::<[_]>::from(counted(1, &freed)), section);
    // SAFETY: unlinked by the swap, and it has no links.
    unsafe { section.retire(old) };
    assert_eq!(freed.load(SeqCst), 2);
    let later = Counted(Arc::clone(&freed));
    section.defer(move || drop(later));
    assert_eq!(freed.load(SeqCst), 3);
    assert!(link.load(section).as_ref().is_some_and(|items| items.len() == 1));
    end(link);
    assert_eq!(freed.load(SeqCst), 4);
}
